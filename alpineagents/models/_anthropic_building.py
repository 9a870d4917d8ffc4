"""A content block of a Messages answer put together from its start and its deltas, and what it becomes of ours."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

from ..record._blocks import Block, RawBlock, TextBlock, ThinkingBlock, ToolCall
from ._json import dumps, loads, words
from ._openai_calls import parse_arguments

_OURS: Final = {
    "text": frozenset(("type", "text")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "redacted_thinking": frozenset(("type", "data")),
    "tool_use": frozenset(("type", "id", "name", "input")),
}
"""The fields that blocks of ours have a place for."""


class Origin(NamedTuple):
    """Who wrote a block."""

    provider: str
    model: str


@final
class Building:
    """A block that is under way."""

    __slots__ = ("_arguments", "_fields", "_pieces", "kind", "stopped")

    def __init__(self, start: dict[str, Any]) -> None:
        kind = start.get("type")
        self.kind = kind if isinstance(kind, str) else ""
        self.stopped = False
        """Whether the API said that it ends: it says so of a block that a limit cut off as well."""
        self._fields = dict(start)
        self._pieces: dict[str, list[str]] = {}
        self._arguments: list[str] = []

    def text(self) -> str:
        """Return the text that it began with."""
        text = self._fields.get(self.kind)
        return text if isinstance(text, str) and self.kind in ("text", "thinking") else ""

    def add(self, field: str, piece: str) -> None:
        """Lengthen a text."""
        pieces = self._pieces.get(field)
        if pieces is None:
            start = self._fields.get(field)
            pieces = self._pieces[field] = [start] if isinstance(start, str) else []
        pieces.append(piece)

    def take(self, delta: dict[str, Any]) -> None:
        """Take a delta of which nothing is shown. Texts of kinds that aren't known are put one behind the other."""
        for field, value in delta.items():
            if field == "partial_json":
                if isinstance(value, str):
                    self._arguments.append(value)
            elif field == "citation":
                known = self._fields.get("citations")
                self._fields["citations"] = [*(known if isinstance(known, list) else ()), value]
            elif field == "signature" or (field != "type" and not isinstance(value, str)):
                self._fields[field] = value
            elif field != "type":
                self.add(field, value)

    def blocks(self, origin: Origin, *, may_be_cut_off: bool) -> list[Block]:
        """Return what it becomes: nothing, or a block, and behind it what only the provider understands.

        Args:
            origin: Who wrote it.
            may_be_cut_off: Whether the output limit may have come in it: then a call is whole only if its arguments,
                as the model wrote them, are.
        """
        fields = {**self._fields, **{field: "".join(pieces) for field, pieces in self._pieces.items()}}
        made: Block | None
        if self.kind == "text":
            made = TextBlock(_text(fields.get("text"))) if fields.get("text") else None
        elif self.kind == "thinking":
            signature = _text(fields.get("signature")) or None
            raw = {"model": origin.model}
            made = ThinkingBlock(_text(fields.get("thinking")), signature, origin.provider, raw)
        elif self.kind == "redacted_thinking":
            raw = {"model": origin.model, "redacted": _text(fields.get("data"))}
            made = ThinkingBlock("", provider=origin.provider, raw=raw)
        elif self.kind == "tool_use":
            made = self._call(fields, may_be_cut_off)
        else:
            return _raw(origin, {**fields, **self._server_input()}) if self.kind else []
        if made is None:
            return []
        extra = {name: value for name, value in fields.items() if name not in _OURS[self.kind] and _says(name, value)}
        return [made, *_raw(origin, {"extra": extra})] if extra else [made]

    def _call(self, fields: dict[str, Any], may_be_cut_off: bool) -> ToolCall:
        text = "".join(self._arguments)
        written = bool(text.strip())
        if not text and fields.get("input"):
            text = words(fields["input"])  # As servers give it that don't stream arguments: what they could read.
        args = None if may_be_cut_off and not written else parse_arguments(text)
        return ToolCall(_text(fields.get("id")), _text(fields.get("name")), args, None if args is not None else text)

    def _server_input(self) -> dict[str, Any]:
        """The arguments of a tool that the provider runs itself; empty where a limit cut them off."""
        if not self._arguments:
            return {}
        return {"input": parse_arguments("".join(self._arguments)) or {}}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _says(name: str, value: object) -> bool:
    """Whether a field is worth keeping. Every call has a ``caller``, and it is the model unless it says otherwise."""
    return bool(value) and not (name == "caller" and value == {"type": "direct"})


def _raw(origin: Origin, value: dict[str, Any]) -> list[Block]:
    """A RawBlock, without half characters; nothing for what no history can hold, such as a thousand lists in lists."""
    try:
        return [RawBlock(origin.provider, loads(dumps(value)))]
    except (TypeError, ValueError, RecursionError):
        return []
