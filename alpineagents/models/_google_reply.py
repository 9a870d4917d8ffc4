"""Puts the parts of a Gemini answer together: blocks in the order of the parts, and deltas that say the same.

Pieces of text, or of thought, that follow each other are one block, except that a part with a signature is one of its
own. Whatever is no text, thought or call is kept as it came: code that ran, searches, pictures.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, final

from ..record._blocks import Block, TextBlock, ThinkingBlock, ToolCall, clean_text
from ..record._messages import TextDelta, ThinkingDelta
from ._google_message import own_name
from ._google_signatures import SIGNATURE, part_block, signature_block
from ._json import dumps, loads, words
from ._openai_calls import parse_arguments
from ._wire import Delta

_NO_DATA = frozenset(("thought", SIGNATURE))
_UNFINISHED = frozenset(("partialArgs", "willContinue"))  # Calls in pieces: Vertex AI, where it is asked to.


@final
class ReplyParts:
    """Takes parts, returns blocks."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._blocks: list[Block] = []
        self._kind: type[Delta] = TextDelta  # Of the pieces that no block holds yet.
        self._pieces: list[str] = []
        self._half = ""  # A high surrogate whose low one may come with the next piece.
        self._calls = 0

    def take(self, part: dict[str, Any], deltas: list[Delta], *, sloppy: bool) -> None:
        """Take a part and add what to show of it to *deltas*.

        Args:
            part: As it came.
            deltas: Lengthened.
            sloppy: Whether its text may hold lone surrogates.
        """
        text = part.get("text")
        signature = part.get(SIGNATURE)
        if not isinstance(signature, str) or not signature:
            signature = None
        if type(call := part.get("functionCall")) is dict:
            self.close(deltas)
            self._call(call, signature)
        elif type(text) is str or part.keys() <= _NO_DATA:
            kind: type[Delta] = ThinkingDelta if part.get("thought") else TextDelta
            self._text(kind, text if type(text) is str else "", signature, deltas, sloppy)
        else:
            self.close(deltas)
            self._keep(part)

    def _keep(self, part: dict[str, Any]) -> None:
        # A part that is nested deeper than can be recorded is none of those that an answer is made of.
        with suppress(ValueError, TypeError, RecursionError):
            self._blocks.append(part_block(self._provider, self._model, loads(dumps(part))))

    def _text(self, kind: type[Delta], text: str, signature: str | None, deltas: list[Delta], sloppy: bool) -> None:
        if not text and signature is None:
            return
        if kind is not self._kind or signature is not None:
            self.close(deltas)
            self._kind = kind
        if text:
            piece = self._half + text
            self._half = ""
            if sloppy:
                if "\ud800" <= piece[-1] <= "\udbff" and signature is None:
                    piece, self._half = piece[:-1], piece[-1]
                piece = clean_text(piece)
            if piece:
                self._pieces.append(piece)
                deltas.append(kind(piece))
        if signature is not None:
            self._sign(signature)

    def _sign(self, signature: str) -> None:
        """Make the one piece there is a block with a signature: without a text, it signs the end of the reply."""
        text = "".join(self._pieces)
        self._pieces = []
        if self._kind is ThinkingDelta:
            self._blocks.append(self._thinking(text, signature))
        elif text:
            self._blocks += [TextBlock(text), signature_block(self._provider, self._model, signature, "text")]
        else:
            self._blocks.append(part_block(self._provider, self._model, {"text": "", SIGNATURE: signature}))

    def _thinking(self, text: str, signature: str | None) -> ThinkingBlock:
        return ThinkingBlock(text, signature, self._provider, {"model": self._model})

    def _call(self, call: dict[str, Any], signature: str | None) -> None:
        given, name = call.get("id"), own_name(_str(call.get("name")))
        raw = call if call.keys() & _UNFINISHED else call.get("args")
        text = _text_of(raw)
        args = None if raw is call or text is None else parse_arguments(text)
        self._calls += 1
        call_id = given if isinstance(given, str) and given else f"call_{self._calls}"
        made = ToolCall(call_id, name, args, None if args is not None else words(raw) if text is None else text)
        if given and made in self._blocks:
            return  # The same call once more.
        self._blocks.append(made)
        if signature is not None:
            self._blocks.append(signature_block(self._provider, self._model, signature, "call"))

    @property
    def say_something(self) -> bool:
        """Whether anything but nothing has come."""
        return bool(self._blocks or self._pieces)

    @property
    def has_calls(self) -> bool:
        """Whether a call has come."""
        return self._calls > 0

    def flush(self, deltas: list[Delta]) -> None:
        """Show half a character whose other half doesn't come any more."""
        if self._half:
            self._pieces.append("\ufffd")
            deltas.append(self._kind("\ufffd"))
            self._half = ""

    def close(self, deltas: list[Delta]) -> None:
        """End the block whose pieces have come: what follows is another."""
        self.flush(deltas)
        if self._pieces:
            self._blocks = self.blocks()
            self._pieces = []

    def blocks(self) -> list[Block]:
        """Return all blocks so far."""
        text = "".join(self._pieces)
        if not text:
            return list(self._blocks)
        return [*self._blocks, TextBlock(text) if self._kind is TextDelta else self._thinking(text, None)]


def says_something(part: object) -> bool:
    """Whether *part* is more than a signature for what came before."""
    return isinstance(part, dict) and (bool(part.get("text")) or not part.keys() <= _NO_DATA | {"text"})


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""


def _text_of(raw: object) -> str | None:
    """Arguments as text; None for what is nested too deep to be written."""
    text = None
    with suppress(ValueError):
        text = raw if isinstance(raw, str) else "" if raw is None else dumps(raw).decode()
    return text
