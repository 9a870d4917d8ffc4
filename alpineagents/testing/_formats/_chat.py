"""Chat Completions, from the provider's side.

Source: OpenAI's API reference, "Create chat completion" (December 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, final

from ...record._blocks import TextBlock, ThinkingBlock
from ...record._messages import Reply
from ._chat_rules import problems
from ._format import ReceivedRequest, arguments, token_counts, words


@final
class ChatFormat:
    """Chat Completions. See ``_format.Format``."""

    def takes(self, path: str) -> bool:
        """``POST /v1/chat/completions``."""
        return path == "/v1/chat/completions"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """``Authorization: Bearer ...``."""
        return headers.get("authorization", "").removeprefix("Bearer ") or None

    def problems(self, request: ReceivedRequest) -> Iterator[str]:
        """See ``_chat_rules``."""
        return problems(request.body)

    def is_streamed(self, request: ReceivedRequest) -> bool:
        """``"stream": true``."""
        return isinstance(request.body, dict) and request.body.get("stream") is True

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Chunks, the usage in the last of them, and ``[DONE]``."""
        chunks = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in _chunks(reply, request)]
        return [*chunks, b"data: [DONE]\n\n"]

    def document(self, reply: Reply, request: ReceivedRequest) -> Mapping[str, Any]:
        """A ``chat.completion``."""
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments(call)}}
                for call in reply.tool_calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": _model(reply, request),
            "choices": [choice],
            "usage": _usage(reply, request),
        }

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """``{"error": {...}}``."""
        code = "invalid_api_key" if status == 401 else None
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _chunks(reply: Reply, request: ReceivedRequest) -> Iterator[dict[str, Any]]:
    model = _model(reply, request)

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": model,
            "choices": [choice],
        }

    yield chunk({"role": "assistant", "content": None})
    for block in reply.blocks:
        if isinstance(block, ThinkingBlock):
            yield from [chunk({"reasoning_content": word}) for word in words(block.text)]
        elif isinstance(block, TextBlock):
            yield from [chunk({"content": word}) for word in words(block.text)]
    for index, call in enumerate(reply.tool_calls):
        head = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        for piece in words(arguments(call)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish_reason(reply))
    yield {**chunk({}), "choices": [], "usage": _usage(reply, request)}


def _usage(reply: Reply, request: ReceivedRequest) -> dict[str, int]:
    read, written = token_counts(reply, request)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _model(reply: Reply, request: ReceivedRequest) -> str:
    asked = request.body.get("model", "") if isinstance(request.body, dict) else ""
    return reply.model or str(asked)


def _finish_reason(reply: Reply) -> str:
    return reply.stop_reason or ("length" if reply.cut_off else "tool_calls" if reply.tool_calls else "stop")
