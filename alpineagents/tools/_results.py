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

MAX_RESULT_BYTES = 64 * 1024
"""UTF-8 bytes of text that the model gets of a result, where no tool says otherwise."""

MAX_FULL_BYTES = 16 * 1024 * 1024
"""UTF-8 bytes of text that are kept of a result that the model gets shortened."""

Blocks: TypeAlias = tuple[ResultBlock, ...]

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


class Answering(Named, Protocol):
    """A tool that may know what to tell the model of an exception."""

    def answer_to(self, error: Exception) -> object:
        """Return what the model gets as an error result; raise *error* to stop the run."""


def done(result: object, tool: Named) -> Ending:
    """Return the Ending of a call that returned *result*.

    Raises:
        TypeError: the result isn't JSON.
    """
    content, full = to_blocks(result, tool.max_result_bytes, tool.name)
    return Ending(content, ToolOutcome.DONE, full)


def failed(error: ToolError, tool: Named | None) -> Ending:
    """Return the Ending of a call that raised *error*, which the model reads. *tool*: None where there is no such."""
    max_bytes = MAX_RESULT_BYTES if tool is None else tool.max_result_bytes
    content, full = _fitted((TextBlock(error_text(error)),), max_bytes)
    outcome = ToolOutcome.INPUT_ERROR if isinstance(error, ToolInputError) else ToolOutcome.ERROR
    return Ending(content, outcome, full, error)


def answered(error: Exception, tool: Answering) -> Ending:
    """Return the Ending of a call that raised *error*, which is for the model: a ToolError, or what the tool answers.

    Raises:
        Exception: *error* itself, where it is not for the model; or what the tool's handler raised.
    """
    if isinstance(error, ToolError):
        return failed(error, tool)
    try:
        answer = tool.answer_to(error)
    except ToolError as failure:
        return failed(failure, tool)
    content, full = to_blocks(error_text(error) if answer is None else answer, tool.max_result_bytes, tool.name)
    return Ending(content, ToolOutcome.ERROR, full, error)


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
    try:
        blocks = _blocks(result, name, "")
    except RecursionError:
        raise TypeError(f"the result of tool {name}: nested too deep, or circular: it holds itself") from None
    return _fitted(blocks, max_bytes)


def _blocks(result: object, name: str, path: str) -> Blocks:
    if isinstance(result, str):
        return (TextBlock(result),)
    if isinstance(result, _BLOCKS):
        return (result,)
    if is_a(list, result) or is_a(tuple, result):
        items = cast("Sequence[object]", result)
        if any(isinstance(item, _BLOCKS) for item in items):
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
    most = 0
    for block in blocks:
        if isinstance(block, TextBlock):
            most += 4 * len(block.text)  # no character has more bytes
            if is_blank(block):
                return _fitted(tuple([block for block in blocks if not is_blank(block)]) or _EMPTY, max_bytes)
        elif _is_text_file(block):
            most += len(block.data)
    if most <= max_bytes:
        return blocks, None
    size = sum([len(_text_of(block)) for block in blocks])
    if size <= max_bytes:
        return blocks, None
    return _cut(blocks, size, max_bytes), _cut(blocks, size, MAX_FULL_BYTES)


def _is_text_file(block: ResultBlock) -> bool:
    """Whether it is a document that goes to a model as text."""
    return isinstance(block, File) and block.media_type.startswith("text/")


def _text_of(block: ResultBlock) -> bytes:
    if isinstance(block, TextBlock):
        return block.text.encode()
    return block.data if _is_text_file(block) else b""


def _of_text(block: ResultBlock, text: bytes) -> ResultBlock:
    """Return a block like *block* with another text."""
    if isinstance(block, File):
        return File(text, media_type=block.media_type, name=block.name)
    return TextBlock(text.decode())


def _cut(blocks: Blocks, size: int, max_bytes: int) -> Blocks:
    """Take text out of the middle, so that *max_bytes* of it stay, the line that says so counted."""
    if size <= max_bytes:
        return blocks
    room = max(max_bytes - len(_gap(size)), max_bytes // 2)
    text = b"".join([_text_of(block) for block in blocks])
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
    position, gap = 0, _gap(end - start).encode()
    for block in blocks:
        text = _text_of(block)
        first, last = max(start - position, 0), max(end - position, 0)
        if first < len(text) and last > 0:
            kept = text[:first] + gap + text[last:]
            gap = b""
            if kept and not kept.isspace():
                yield _of_text(block, kept)
        else:
            yield block
        position += len(text)


def _gap(size: int) -> str:
    return f"\n({size:,} bytes are missing here)\n"
