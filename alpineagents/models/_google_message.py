"""A message as Gemini's parts.

Source: Google's API reference, Content and Part, and its guides on function calling, thought signatures and image
understanding (v1beta, 2026).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

import attrs

from ..record._blocks import (
    Block,
    File,
    Image,
    RawBlock,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultBlock,
    is_blank,
)
from ..record._frozen import FrozenDict
from ..record._messages import Message
from ._google_signatures import NO_SIGNATURE, SIGNATURE, Signed, part_of, signature_of
from ._json import dumps
from ._names import sendable_name
from ._openai_chat import EMPTY_RESULT

ContentRole: TypeAlias = Literal["user", "model"]

_READABLE = frozenset(("application/pdf", "image/jpeg", "image/png", "image/webp"))
"""Media types it takes of those a message can hold: it can't read GIF."""


@final
@attrs.frozen
class Recipient:
    """Who reads a message."""

    provider: str
    model: str
    older: bool
    """A model before Gemini 3: it takes no pictures in results, and demands no signatures."""


@final
@attrs.frozen
class Result:
    """A call's result. The name it must say stands in the call only."""

    call_id: str
    before_name: bytes
    """Its part as JSON, up to the name."""
    behind_name: bytes
    """The rest of that."""
    attachments: tuple[bytes, ...]
    """What it can't hold: parts of a content behind all results."""


@final
@attrs.frozen
class Encoded:
    """A message's parts, as the order of a request needs them."""

    role: ContentRole
    results: tuple[Result, ...]
    parts: bytes
    """Joined by commas; empty where there are none."""
    calls: tuple[tuple[str, bytes], ...]
    """Id and name, as JSON, of each call in *parts*."""


_LATE_LETTER = re.compile(r"_*[0-9-]")


def function_name(name: str) -> str:
    """Return a tool's name as Gemini takes it: it begins with a letter or ``_``, and has at most 64 characters."""
    sendable = sendable_name(name)
    return f"_{sendable}"[:64] if _LATE_LETTER.match(sendable) else sendable


def own_name(name: str) -> str:
    """Return the tool's name that ``function_name`` made *name* of."""
    return name[1:] if name.startswith("_") and _LATE_LETTER.match(name) else name


def encode_message(message: Message, to: Recipient) -> Encoded:
    """Return *message* as *to* takes it."""
    results = tuple([_result(block, to) for block in message.blocks if type(block) is ToolResultBlock])
    if message.role != "assistant":
        parts = [_part(block) for block in message.blocks if isinstance(block, TextBlock | Image | File)]
        return Encoded("user", results, _joined([part for part in parts if part]), ())
    calls = tuple([(call.id, dumps(function_name(call.name))) for call in message.tool_calls])
    return Encoded("model", results, _joined(_model_parts(message.blocks, to)), calls)


def _joined(parts: list[dict[str, Any]]) -> bytes:
    return b",".join([dumps(part) for part in parts])


def _model_parts(blocks: Sequence[Block], to: Recipient) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    before: Signed | None = None  # What the last part is that may have a signature, if it has none yet.
    for block in blocks:
        signature = signature_of(block, to.provider, to.model, before)
        if signature is not None:
            parts[-1][SIGNATURE] = signature
            before = None
            continue
        part = _model_part(block, to)
        if part:
            parts.append(part)
            before = "text" if type(block) is TextBlock else "call" if type(block) is ToolCall else None
    calls = [part for part in parts if "functionCall" in part]
    if calls and not to.older:
        calls[0].setdefault(SIGNATURE, NO_SIGNATURE)
    kept = [part for part in parts if SIGNATURE in part or not _is_blank(part)]
    return kept if any(not part.get("thought") for part in kept) else []  # Thoughts alone are no turn.


def _model_part(block: Block, to: Recipient) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"text": block.text}
        case ToolCall():
            name = function_name(block.name)
            return {"functionCall": {"id": block.id, "name": name, "args": block.args or {}}}
        case ThinkingBlock():
            return _thought(block, to)
        case RawBlock():
            return part_of(block, to.provider, to.model)
        case _:
            return None


def _thought(block: ThinkingBlock, to: Recipient) -> dict[str, Any] | None:
    model = block.raw.get("model") if isinstance(block.raw, FrozenDict) else None
    if (block.provider, model) != (to.provider, to.model):
        return None
    part: dict[str, Any] = {"text": block.text, "thought": True}
    return part if block.signature is None else {**part, SIGNATURE: block.signature}


def _is_blank(part: dict[str, Any]) -> bool:
    text = part.get("text")
    return isinstance(text, str) and (not text or text.isspace())


def _part(block: ResultBlock) -> dict[str, Any] | None:
    if is_blank(block):
        return None
    if isinstance(block, TextBlock):
        return {"text": block.text}
    if block.media_type in _READABLE:
        return _inline(block)
    return {"text": _in_words(block)}


def _inline(block: Image | File) -> dict[str, Any]:
    return {"inlineData": {"mimeType": block.media_type, "data": base64.b64encode(block.data).decode()}}


def _in_words(block: Image | File) -> str:
    if isinstance(block, File):
        return f"[{block.name}]\n{block.data.decode(errors='replace')}"
    return f"(an image that can't be shown: Gemini doesn't read {block.media_type})"


def _result(result: ToolResultBlock, to: Recipient) -> Result:
    """A result as an object: pictures and PDFs are in it from Gemini 3 on, before that in a content behind."""
    where = "it follows behind" if to.older else "it is in this result"
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    for block in result.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif block.media_type in _READABLE:
            texts.append(f"({block.name if isinstance(block, File) else 'an image'}: {where})")
            media.append(_inline(block))
        else:
            texts.append(_in_words(block))
    text = "\n".join([text for text in texts if text and not text.isspace()]) or EMPTY_RESULT
    before = b'{"functionResponse":{"id":%b,"name":' % dumps(result.call_id)
    response = b',"response":' + dumps({"error" if result.is_error else "result": text})
    if not media:
        return Result(result.call_id, before, response + b"}}", ())
    if not to.older:
        return Result(result.call_id, before, response + b',"parts":' + dumps(media) + b"}}", ())
    said = {"text": f"From the result of tool call {result.call_id}:"}
    return Result(result.call_id, before, response + b"}}", tuple([dumps(part) for part in (said, *media)]))
