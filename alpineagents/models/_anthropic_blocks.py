"""One message of the conversation as content blocks of Anthropic's Messages API, each as JSON.

What a block had besides what ours can hold, such as the citations of a text, stands in a RawBlock behind it, as
``{"extra": {...}}``, and goes back as part of it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

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
from ._json import dumps
from ._names import sendable_id, sendable_name

EMPTY_RESULT: Final = "(empty)"


@final
@attrs.frozen
class Encoded:
    """A message as JSON."""

    role: str
    """``user`` or ``assistant``."""
    message: bytes
    """The whole of it, tool results first; empty where there is nothing to send."""
    plain: bytes
    """The same without thinking, for requests in which it is off."""
    results_end: int
    """Where in its content the tool results end."""
    opens_with_thinking: bool
    """Whether its first block is thinking."""

    def as_sent(self, thinks: bool) -> bytes:
        """Return the message as a request has it in which thinking is on or off."""
        return self.message if thinks else self.plain


def encode_message(message: Message, provider: str, model: str, *, paused: bool = False) -> Encoded:
    """Return *message* as the API takes it.

    Args:
        message: Any message.
        provider: Whose own blocks it may hold.
        model: Whose thinking it may hold.
        paused: Whether it is a reply that the API asked to have back as it is, to go on with it.
    """
    if message.role == "assistant":
        found = _assistant(message.blocks, provider, model)
        if not paused:
            found = _closed(found)
        plain = [block for block in found if not _is_thinking(block)]
        opens = bool(found) and _is_thinking(found[0])
        whole = encoded_message("assistant", _joined(found)) if found else b""
        without = whole if len(plain) == len(found) else encoded_message("assistant", _joined(plain))
        return Encoded("assistant", whole, without, 0, opens)
    given = [block for block in message.blocks if type(block) is ToolResultBlock]
    results = _joined([_result(block) for block in given])
    parts = [part for block in given if block.is_error for part in _behind(block)]
    parts += _parts([block for block in message.blocks if isinstance(block, TextBlock | Image | File)])
    content = b",".join([part for part in (results, _joined(parts)) if part])
    whole = encoded_message("user", content) if content else b""
    return Encoded("user", whole, whole, len(results), False)


def encoded_message(role: str, content: bytes) -> bytes:
    """Return a message; *content* is its blocks, joined by commas."""
    return b'{"role":"%b","content":[%b]}' % (role.encode(), content)


def merged(items: Sequence[Encoded], thinks: bool) -> bytes:
    """Return several messages of one role as one: the tool results of all, then all else.

    Args:
        items: The messages.
        thinks: Whether thinking is on in the request.
    """
    contents = [_content(item.as_sent(thinks)) for item in items]
    results = [content[: item.results_end] for item, content in zip(items, contents, strict=True)]
    others = [content[item.results_end :].removeprefix(b",") for item, content in zip(items, contents, strict=True)]
    return encoded_message(items[0].role, b",".join([part for part in (*results, *others) if part]))


def _content(message: bytes) -> bytes:
    return message[message.index(b"[") + 1 : -2]


def _joined(blocks: Iterable[dict[str, Any]]) -> bytes:
    return b",".join([dumps(block) for block in blocks])


def _assistant(blocks: Sequence[Block], provider: str, model: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    sent = False  # Whether the block before was sent: what stands behind one that wasn't belongs to nothing.
    for block in blocks:
        if type(block) is RawBlock and isinstance(block.raw, FrozenDict) and "extra" in block.raw:
            if sent and block.provider == provider and isinstance(extra := block.raw["extra"], FrozenDict):
                made[-1].update(extra)
            continue
        encoded = _assistant_block(block, provider, model)
        sent = encoded is not None
        if encoded is not None:
            made.append(encoded)
    return made


def _assistant_block(block: Block, provider: str, model: str) -> dict[str, Any] | None:
    """None where the API has no place for it: pictures in a reply, thinking of others, blank text."""
    if type(block) is TextBlock:
        return None if is_blank(block) else {"type": "text", "text": block.text}
    if type(block) is ToolCall:
        name, call_id = sendable_name(block.name), sendable_id(block.id)
        return {"type": "tool_use", "id": call_id, "name": name, "input": block.args or {}}
    if type(block) is ThinkingBlock and block.provider == provider and isinstance(block.raw, FrozenDict):
        if block.raw.get("model") != model:
            return None
        if "redacted" in block.raw:
            return {"type": "redacted_thinking", "data": block.raw["redacted"]}
        if block.signature:  # What has none, such as thinking that a limit cut off, is refused.
            return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    if type(block) is RawBlock and block.provider == provider and isinstance(block.raw, FrozenDict):
        return dict(block.raw) if isinstance(block.raw.get("type"), str) else None
    return None


def _is_thinking(block: dict[str, Any]) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def _closed(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what only a paused reply may end with: a server's tool without its result, thinking before nothing."""
    answered = [block.get("tool_use_id") for block in blocks]
    kept = [block for block in blocks if not _is_server_call(block) or block.get("id") in answered]
    while kept and _is_thinking(kept[-1]):
        kept.pop()
    return kept


def _is_server_call(block: dict[str, Any]) -> bool:
    kind: str = block["type"]
    return kind != "tool_use" and kind.endswith("_tool_use")


def _part(block: ResultBlock) -> dict[str, Any] | None:
    """A block of a user message or of a result; None for blank text."""
    if isinstance(block, TextBlock):
        return None if is_blank(block) else {"type": "text", "text": block.text}
    if isinstance(block, Image):
        return {"type": "image", "source": _base64(block)}
    if block.media_type == "application/pdf":
        source = _base64(block)
    else:
        text = block.data.decode(errors="replace")
        if not text or text.isspace():
            return {"type": "text", "text": f"[{block.name}]\n{EMPTY_RESULT}"}
        source = {"type": "text", "media_type": "text/plain", "data": text}
    document: dict[str, Any] = {"type": "document", "source": source}
    if block.name.strip():
        document["title"] = block.name
    return document


def _base64(block: Image | File) -> dict[str, Any]:
    data = base64.b64encode(block.data).decode()
    return {"type": "base64", "media_type": block.media_type, "data": data}


def _parts(blocks: Iterable[ResultBlock]) -> list[dict[str, Any]]:
    return [part for part in map(_part, blocks) if part is not None]


def _result(block: ToolResultBlock) -> dict[str, Any]:
    parts = _parts(block.content)
    if block.is_error:  # The API wants nothing but text then; the rest follows behind all results.
        parts = [part for part in parts if part["type"] == "text"]
    content = parts or [{"type": "text", "text": EMPTY_RESULT}]
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": sendable_id(block.call_id), "content": content}
    if block.is_error:
        made["is_error"] = True
    return made


def _behind(error: ToolResultBlock) -> list[dict[str, Any]]:
    """What the result of a failed call has besides text."""
    parts = [part for part in _parts(error.content) if part["type"] != "text"]
    said = {"type": "text", "text": f"From the result of tool call {sendable_id(error.call_id)}:"}
    return [said, *parts] if parts else []
