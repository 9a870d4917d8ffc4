"""What Anthropic's Messages API refuses in one content block. See ``_anthropic_rules`` for the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ._anthropic_signature import is_signed, signature

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,200}")
_IMAGES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset(("text", "citations")),
    "image": frozenset(("source",)),
    "document": frozenset(("source", "title", "context", "citations")),
    "tool_result": frozenset(("tool_use_id", "content", "is_error")),
    "tool_use": frozenset(("id", "name", "input", "caller")),
    "thinking": frozenset(("thinking", "signature")),
    "redacted_thinking": frozenset(("data",)),
}
_WITHOUT_MARK: Final = frozenset(("thinking", "redacted_thinking"))
_IN_RESULTS: Final = ("text", "image", "document")
_SERVER_BLOCKS: Final = re.compile(r"server_tool_use|[a-z_]+_tool_result|container_upload")


def cache_marks(value: Any) -> int:
    """Return how many cache marks there are in *value*, at any depth."""
    if isinstance(value, list):
        return sum(map(cache_marks, value))
    if not isinstance(value, dict):
        return 0
    inner = [cache_marks(item) for key, item in value.items() if key not in ("input", "input_schema")]
    return sum(inner) + ("cache_control" in value)


def user_block_problems(block: Any) -> Iterator[str]:
    """Yield what is wrong with a block of a user message, or of the system prompt."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "tool_result":
        yield from _field_problems(block, kind)
        yield from _result_problems(block)
    elif kind in _IN_RESULTS:
        yield from _field_problems(block, kind)
        yield from _content_problems(block, kind)
        if kind == "text" and block.get("citations"):
            yield "text.citations: not allowed in a user message"
    else:
        yield f"type: Input tag {kind!r:.80} is not allowed in a user message"


def assistant_block_problems(block: Any, model: str) -> Iterator[str]:
    """Yield what is wrong with a block of an assistant message for *model*."""
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(kind, str) and _SERVER_BLOCKS.fullmatch(kind) and kind != "tool_result":
        return
    if kind not in ("text", "thinking", "redacted_thinking", "tool_use"):
        yield f"type: Input tag {kind!r:.80} is not allowed in an assistant message"
        return
    yield from _field_problems(block, kind)
    if kind == "text":
        yield from _content_problems(block, kind)
    elif kind == "thinking":
        if not block.get("signature"):
            yield "thinking.signature: Field required"
        elif block["signature"] != signature(str(block.get("thinking")), model):
            yield "Invalid `signature` in `thinking` block"
    elif kind == "redacted_thinking":
        if not is_signed(str(block.get("data")), model):
            yield "Invalid `data` in `redacted_thinking` block"
    else:
        yield from _call_problems(block)


def _field_problems(block: Mapping[str, Any], kind: str) -> Iterator[str]:
    allowed = {"type", *_FIELDS[kind], *(() if kind in _WITHOUT_MARK else ("cache_control",))}
    for field in sorted(set(block) - allowed):
        yield f"{kind}.{field}: Extra inputs are not permitted"
    mark = block.get("cache_control", {"type": "ephemeral"})
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
        yield f"{kind}.cache_control: Input should be {{'type': 'ephemeral'}}"


def _content_problems(block: Mapping[str, Any], kind: str) -> Iterator[str]:
    if kind == "text":
        if not isinstance(block.get("text"), str) or not block["text"].strip():
            yield "text: text content blocks must contain non-whitespace text"
        return
    source = block.get("source")
    how = (source.get("type"), source.get("media_type")) if isinstance(source, dict) else (None, None)
    right = how == ("base64", "application/pdf") or how == ("text", "text/plain")
    if kind == "image":
        right = how[0] == "base64" and how[1] in _IMAGES
    if not right or not isinstance(source, dict) or not source.get("data"):
        yield f"{kind}.source: not a source that the API takes: {how!r}"
    if kind == "document" and "title" in block and not block["title"]:
        yield "document.title: String should have at least 1 character"


def _result_problems(block: Mapping[str, Any]) -> Iterator[str]:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str) or not _ID.fullmatch(call_id):
        yield f"tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$' (got {call_id!r:.80})"
    if type(block.get("is_error", False)) is not bool:
        yield "tool_result.is_error: Input should be a valid boolean"
    content = block.get("content", [])
    kinds = {part.get("type") for part in content if isinstance(part, dict)} if isinstance(content, list) else set()
    if block.get("is_error") and not kinds <= {"text"}:
        yield "tool_result: all content must be type `text` if `is_error` is true"
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict) or part.get("type") not in _IN_RESULTS:
            yield f"tool_result.content.{number}: Input should be text, an image or a document"
        else:
            yield from [f"tool_result.content.{number}.{problem}" for problem in user_block_problems(part)]


def _call_problems(block: Mapping[str, Any]) -> Iterator[str]:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not _ID.fullmatch(call_id):
        yield f"tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$' (got {call_id!r:.80})"
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        yield f"tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$' (got {name!r:.80})"
    if not isinstance(block.get("input"), dict):
        yield "tool_use.input: Input should be a valid dictionary"
