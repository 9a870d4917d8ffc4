"""Anthropic's Messages API, from the provider's side. It signs the thinking it streams, and knows its own again.

Source: Anthropic's API reference, "Create a Message", "Streaming Messages" and "Errors" (December 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from ...record._blocks import Block, RawBlock, TextBlock, ThinkingBlock, ToolCall
from ...record._messages import Reply
from ._anthropic_binding import Bindings
from ._anthropic_rules import problems
from ._anthropic_signature import signature, signed
from ._format import ReceivedRequest, arguments, token_counts, words

_ERRORS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@final
class MessagesFormat:
    """The Messages API. See ``_format.Format``."""

    def __init__(self) -> None:
        self._bindings = Bindings()

    def takes(self, path: str) -> bool:
        """``POST /v1/messages``."""
        return path.partition("?")[0] == "/v1/messages"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """``x-api-key: ...`` or ``Authorization: Bearer ...``."""
        return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ") or None

    def problems(self, request: ReceivedRequest) -> Iterator[str]:
        """See ``_anthropic_rules`` and ``_anthropic_binding``."""
        yield from problems(request.body, request.headers)
        yield from self._bindings.problems(request.body)

    def is_streamed(self, request: ReceivedRequest) -> bool:
        """``"stream": true``."""
        return isinstance(request.body, dict) and request.body.get("stream") is True

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """From ``message_start`` to ``message_stop``."""
        self._bindings.sent([_content(block, _asked(request)) for block in reply.blocks], request.body)
        return [_event(event) for event in _events(reply, request)]

    def document(self, reply: Reply, request: ReceivedRequest) -> Mapping[str, Any]:
        """A ``message``."""
        content = [_content(block, _asked(request)) for block in reply.blocks]
        self._bindings.sent(content, request.body)
        return {
            **_message(reply, request),
            "content": content,
            "stop_reason": _stop_reason(reply),
            "usage": {**_input_usage(reply, request), "output_tokens": token_counts(reply, request)[1]},
        }

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """``{"type": "error", "error": {...}}``."""
        kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def _event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())


def _events(reply: Reply, request: ReceivedRequest) -> Iterator[dict[str, Any]]:
    start = {**_message(reply, request), "usage": {**_input_usage(reply, request), "output_tokens": 1}}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(reply.blocks):
        whole = _content(block, _asked(request))
        begun, deltas = _cut_up(whole, block)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": token_counts(reply, request)[1]}}
    yield {"type": "message_stop"}


def _content(block: Block, model: str) -> dict[str, Any]:
    """A block of a reply, whole."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ThinkingBlock):
        if isinstance(block.raw, dict) and "redacted" in block.raw:
            return {"type": "redacted_thinking", "data": signed(str(block.raw["redacted"]), model)}
        return {"type": "thinking", "thinking": block.text, "signature": signature(block.text, model)}
    if isinstance(block, ToolCall):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.args or {}}
    if isinstance(block, RawBlock) and isinstance(block.raw, dict):
        return dict(block.raw)
    raise TypeError(f"a Claude writes no {type(block).__name__}: {block!r:.80}")


def _cut_up(whole: dict[str, Any], block: Block) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The block as it begins, and the deltas that complete it."""
    kind = whole["type"]
    if kind == "text":
        return {**whole, "text": ""}, [{"type": "text_delta", "text": word} for word in words(whole["text"])]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": word} for word in words(whole["thinking"])]
        deltas.append({"type": "signature_delta", "signature": whole["signature"]})
        return {**whole, "thinking": "", "signature": ""}, deltas
    if isinstance(block, ToolCall):
        pieces = ["", *words(arguments(block))]
        return {**whole, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return whole, []


def _message(reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": reply.model or _asked(request),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _input_usage(reply: Reply, request: ReceivedRequest) -> dict[str, int]:
    read, written = reply.usage.cache_read_tokens, reply.usage.cache_write_tokens
    return {
        "input_tokens": token_counts(reply, request)[0] - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
    }


def _asked(request: ReceivedRequest) -> str:
    """The model as it was asked for: what thinking is signed for, whatever name the reply gives."""
    return str(request.body.get("model", "")) if isinstance(request.body, dict) else ""


def _stop_reason(reply: Reply) -> str:
    if reply.stop_reason:
        return reply.stop_reason
    if reply.refusal:
        return "refusal"
    return "max_tokens" if reply.cut_off else "tool_use" if reply.tool_calls else "end_turn"
