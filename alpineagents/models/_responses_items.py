"""One item of a Responses answer, put together from its events: what came piece by piece, and what it was in the end.

Pieces of text are shown as they come, so they count: where the whole item goes on behind them, the rest is shown too;
where it says something else, what was shown stays. So what was shown is always what the reply has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

from ..record._blocks import Block, RawBlock, TextBlock, ThinkingBlock, ToolCall, clean_text
from ..record._frozen import FrozenDict
from ..record._messages import TextDelta, ThinkingDelta
from ._json import storable, words
from ._openai_calls import parse_arguments
from ._wire import Delta

MESSAGE: Final = "message"
REASONING: Final = "reasoning"
CALL: Final = "function_call"

TEXT: Final = "output_text"
REFUSAL: Final = "refusal"
SUMMARY: Final = "summary_text"
THOUGHT: Final = "reasoning_text"

_BETWEEN: Final = {SUMMARY: "\n\n"}
"""What stands between two parts; nothing where it isn't said."""
_UNFINISHED: Final = ("incomplete", "in_progress")


class Written(NamedTuple):
    """One part of an item: its kind, and its text."""

    kind: str
    text: str


@final
class _Part:
    """A part that comes in pieces."""

    __slots__ = ("_half", "_pieces", "index", "kind")

    def __init__(self, kind: str, index: object) -> None:
        self.kind = kind
        self.index = index
        self._pieces: list[str] = []
        self._half = ""  # A high surrogate, whose low one may come with the next piece.

    def add(self, piece: str) -> str:
        """Keep *piece*, and return what can be shown."""
        self._pieces.append(piece)
        if self._half or not piece.isascii():
            piece, self._half = self._half + piece, ""
            if "\ud800" <= piece[-1] <= "\udbff":
                piece, self._half = piece[:-1], piece[-1]
            piece = clean_text(piece)
        return piece

    def end(self) -> str:
        """Return what is left to show."""
        half, self._half = self._half, ""
        return clean_text(half)

    def written(self) -> Written:
        return Written(self.kind, clean_text("".join(self._pieces)))


@final
class Item:
    """An item that is under way, or whole."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.id: object = None
        self.whole: dict[str, Any] | None = None
        """What the server says it is, once it has said so."""
        self.arguments: list[str] = []
        """Pieces of a call's arguments."""
        self.said: list[object] = []
        """A call's arguments as other events than the last had them, the surest last."""
        self._first: dict[str, Any] = {}
        self._parts: list[_Part] = []
        self._cut = False  # The next piece begins another part.
        self._written: list[Written] | None = None

    def begin(self, item: dict[str, Any]) -> None:
        """Take what the item is as it begins."""
        self.id = item.get("id")
        self._first = item

    def is_another(self, item: dict[str, Any]) -> bool:
        """Whether *item*, which begins, isn't this one."""
        return bool(self._first) and self._first.get("id") != item.get("id")

    def begin_part(self) -> None:
        """The next piece of text belongs to another part."""
        self._cut = True

    def write(self, kind: str, index: object, piece: str) -> list[Delta]:
        """Keep a piece of text, and return what is to be shown.

        Args:
            kind: Of the part.
            index: Of the part, where it says which part that is; ``None`` where it can't be relied on.
            piece: Some text, not empty.
        """
        shown = ""
        part = self._parts[-1] if self._parts else None
        if part is not None and self.kind == REASONING and part.kind != kind:
            return []  # The same thoughts, told a second time.
        if part is None or part.kind != kind or part.index != index or (self._cut and kind != THOUGHT):
            if part is not None:
                shown = part.end() + _BETWEEN.get(kind, "")
            part = _Part(kind, index)
            self._parts.append(part)
        self._cut = False
        return self._deltas(shown + part.add(piece))

    def write_whole(self, kind: str, index: object, text: str) -> list[Delta]:
        """Keep the text of a part, unless its pieces came; return what is to be shown."""
        part = self._parts[-1] if self._parts else None
        if part is not None and not self._cut and (part.kind, part.index) == (kind, index):
            return []
        return self.write(kind, index, text)

    def end(self) -> list[Delta]:
        """Return what is left to show."""
        return self._deltas(self._parts[-1].end()) if self._parts else []

    def settle(self, item: dict[str, Any]) -> list[Delta]:
        """Take what the server says the item is; return what of it wasn't shown yet."""
        self.whole = item
        shown = self.end()
        ours = self.written()
        theirs = _written_in(self.kind, item, ours[0].kind if ours else None)
        seen, told = _joined(ours), _joined(theirs)
        if not told.startswith(seen):
            return shown
        self._written = theirs
        return shown + self._deltas(told[len(seen) :])

    def written(self) -> list[Written]:
        """Return its text, by part."""
        if self._written is not None:
            return self._written
        parts = [part.written() for part in self._parts]
        return [part for part in parts if part.text]

    def is_finished(self) -> bool:
        """Whether the server said that it is whole, and no limit cut it off."""
        return self.whole is not None and self.whole.get("status") not in _UNFINISHED

    def _deltas(self, text: str) -> list[Delta]:
        if not text:
            return []
        return [ThinkingDelta(text) if self.kind == REASONING else TextDelta(text)]

    def blocks(self, provider: str, model: str) -> list[Block]:
        """Return what it is in a Reply. A call is for ``call`` to make."""
        if self.kind == MESSAGE:
            return self._message(provider)
        if self.kind == REASONING:
            return self._thoughts(provider, model)
        kept = self._kept()
        return [] if kept is None else [RawBlock(provider, kept)]

    def _kept(self, **beside: object) -> FrozenDict | None:
        """The whole item as it goes back; None where it isn't whole, or no history can hold it."""
        if self.whole is None or not self.is_finished():
            return None
        return storable({**beside, "item": self.whole} if beside else self.whole)

    def _thoughts(self, provider: str, model: str) -> list[Block]:
        text = _joined(self.written())
        # With the model's name: no other can read what that one encrypted.
        raw = self._kept(model=model)
        if not text and not (raw and (self.whole or {}).get("encrypted_content")):
            return []
        return [ThinkingBlock(text, provider=provider, raw=raw)]

    def _message(self, provider: str) -> list[Block]:
        """Its texts; before them, what is to go back with them and isn't text."""
        blocks: list[Block] = []
        written = self.written()
        phase = (self.whole or self._first).get("phase")
        if written and isinstance(phase, str):
            blocks.append(RawBlock(provider, {"type": MESSAGE, "phase": phase}))
        for kind, text in written:
            if kind == REFUSAL:
                blocks.append(RawBlock(provider, {"type": REFUSAL}))
            blocks.append(TextBlock(text))
        return blocks

    def call(self, number: int, *, cut_off: bool, last: bool) -> ToolCall:
        """Return the call it is.

        Args:
            number: Its place among the calls, from 1: its id, where the server gave none.
            cut_off: Whether the reply was cut off: then a call that isn't whole has no arguments. One that the server
                calls incomplete has none in any case.
            last: Whether it is the reply's last item, so that the cut may have gone through it.
        """
        whole = self.whole or {}
        call_id, name = (whole.get(key) or self._first.get(key) for key in ("call_id", "name"))
        call_id = call_id or whole.get("id") or self.id
        told = [whole.get("arguments"), *self.said[::-1], "".join(self.arguments), self._first.get("arguments")]
        texts = [clean_text(_arguments(value)) for value in told]
        text = next((text for text in texts if text.strip()), "")
        broken = cut_off and (not self.is_finished() or (last and not text.strip()))
        args = None if broken or whole.get("status") == "incomplete" else parse_arguments(text)
        return ToolCall(_text(call_id) or f"call_{number}", _text(name), args, None if args is not None else text)


def _written_in(kind: str, item: dict[str, Any], as_kind: str | None) -> list[Written]:
    """The text of a whole item, by part. Thoughts that are told twice: as *as_kind*, or else as the summary."""
    if kind == MESSAGE:
        told = [_content(part) for part in _dicts(item.get("content"))]
    elif kind == REASONING:
        told = [Written(SUMMARY, _text(part.get("text"))) for part in _dicts(item.get("summary"))]
        told += [Written(THOUGHT, _text(part.get("text"))) for part in _dicts(item.get("content"))]
    else:
        return []
    told = [part for part in told if part.text]
    if kind == REASONING and told:
        as_kind = as_kind or told[0].kind
        told = [part for part in told if part.kind == as_kind]
    return told


def _content(part: dict[str, Any]) -> Written:
    if part.get("type") == REFUSAL:
        return Written(REFUSAL, _text(part.get("refusal")))
    return Written(TEXT, _text(part.get("text")) if part.get("type") in (TEXT, "text") else "")


def _joined(parts: Sequence[Written]) -> str:
    return _BETWEEN.get(parts[0].kind, "").join([part.text for part in parts]) if parts else ""


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else words(value)
