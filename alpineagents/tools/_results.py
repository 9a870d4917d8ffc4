"""What a call gave, as the model gets it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias, cast, final

import attrs
import orjson

from .._errors import ToolError, ToolInputError
from ..record._blocks import File, Image, ResultBlock, TextBlock, is_blank
from ..record._entries import ToolOutcome
from ..record._frozen import freeze
from ..record._value import Value
from ._misfit import error_text, is_a

MAX_FULL_BYTES = 16 * 1024 * 1024
"""UTF-8 bytes of text that are kept of a result that the model gets shortened."""

Blocks: TypeAlias = tuple[ResultBlock, ...]

_FILES = (Image, File)
_BLOCKS = (TextBlock, Image, File)
_DONE: Blocks = (TextBlock("(done)"),)
_EMPTY: Blocks = (TextBlock("(empty)"),)


@final
@attrs.frozen(eq=False, repr=False)
class Ending(Value):
    """How a call ended."""

    content: Blocks
    """What the model gets."""
    outcome: ToolOutcome = ToolOutcome.DONE
    full: Blocks | None = None
    """The whole, up to 16 MiB of text, where *content* is cut."""
    error: BaseException | None = None
    """The exception that ended it."""


class Named(Protocol):
    """A tool, as far as its results are concerned."""

    name: str
    max_result_bytes: int


def done(result: object, tool: Named) -> Ending:
    """Return the Ending of a call that returned *result*.

    Raises:
        TypeError: the result isn't JSON.
    """
    content, full = to_blocks(result, tool.max_result_bytes, tool.name)
    return Ending(content, ToolOutcome.DONE, full)


def failed(error: ToolError, tool: Named) -> Ending:
    """Return the Ending of a call that raised *error*, which the model reads."""
    content, full = _fitted((TextBlock(error_text(error)),), tool.max_result_bytes)
    outcome = ToolOutcome.INPUT_ERROR if isinstance(error, ToolInputError) else ToolOutcome.ERROR
    return Ending(content, outcome, full, error)


def to_blocks(result: object, max_bytes: int, name: str) -> tuple[Blocks, Blocks | None]:
    """Return what the model gets of a tool's *result*, and the whole of it where that is cut.

    Args:
        result: What the tool returned.
        max_bytes: UTF-8 bytes of text that the model gets; images and files don't count.
        name: The tool, for the error.

    Raises:
        TypeError: the result isn't JSON; the message has the path to what isn't.
    """
    if result is None:
        return _DONE, None
    return _fitted(_blocks(result, name, ""), max_bytes)


def _blocks(result: object, name: str, path: str) -> Blocks:
    if isinstance(result, str):
        return (TextBlock(result),)
    if isinstance(result, _BLOCKS):
        return (result,)
    if is_a(list, result) or is_a(tuple, result):
        items = cast("Sequence[object]", result)
        if any(isinstance(item, _FILES) for item in items):
            return tuple(
                [block for index, item in enumerate(items) for block in _blocks(item, name, f"{path}[{index}]")]
            )
    return (TextBlock(_json(result, name, path)),)


def _json(result: object, name: str, path: str) -> str:
    try:
        frozen = freeze(result, f"the result of tool {name}{path}")
    except ValueError as error:  # it holds itself, or is nested too deep
        raise TypeError(str(error)) from None
    try:
        return orjson.dumps(frozen).decode()
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return json.dumps(frozen, ensure_ascii=False, separators=(",", ":"))


def _fitted(blocks: Blocks, max_bytes: int) -> tuple[Blocks, Blocks | None]:
    """Without blank text, and cut if there is more than *max_bytes* of it."""
    characters = 0
    for block in blocks:
        if isinstance(block, TextBlock):
            characters += len(block.text)
            if is_blank(block):
                return _fitted(tuple([block for block in blocks if not is_blank(block)]) or _EMPTY, max_bytes)
    if characters * 4 <= max_bytes:  # no character has more bytes
        return blocks, None
    size = _size(blocks)
    if size <= max_bytes:
        return blocks, None
    return _cut(blocks, size, max_bytes), _cut(blocks, size, MAX_FULL_BYTES)


def _size(blocks: Blocks) -> int:
    return sum([len(block.text.encode()) for block in blocks if isinstance(block, TextBlock)])


def _cut(blocks: Blocks, size: int, max_bytes: int) -> Blocks:
    """Take text out of the middle, so that *max_bytes* of it stay, the line that says so counted."""
    if size <= max_bytes:
        return blocks
    room = max(max_bytes - len(_gap(size)), max_bytes // 2)
    text = b"".join([block.text.encode() for block in blocks if isinstance(block, TextBlock)])
    start, end = room - room // 2, size - room // 2
    while _is_inside_character(text, start):
        start -= 1
    while _is_inside_character(text, end):
        end += 1
    return tuple(_without(blocks, start, end))


def _is_inside_character(text: bytes, position: int) -> bool:
    return position < len(text) and text[position] & 0b1100_0000 == 0b1000_0000


def _without(blocks: Blocks, start: int, end: int) -> Iterator[ResultBlock]:
    """Leave out bytes *start* to *end* of the text of all blocks; the first block that lost some says so."""
    position, gap = 0, _gap(end - start)
    for block in blocks:
        if not isinstance(block, TextBlock):
            yield block
            continue
        text = block.text.encode()
        first, last = max(start - position, 0), max(end - position, 0)
        if first < len(text) and last > 0:
            kept = TextBlock(text[:first].decode() + gap + text[last:].decode())
            gap = ""
            if not is_blank(kept):
                yield kept
        else:
            yield block
        position += len(text)


def _gap(size: int) -> str:
    return f"\n({size:,} bytes are missing here)\n"
