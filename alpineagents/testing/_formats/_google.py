"""Gemini's ``generateContent``, from the provider's side.

Source: Google's API reference, models.generateContent and models.streamGenerateContent (v1beta, 2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, final
from urllib.parse import unquote

from ...record._blocks import TextBlock, ThinkingBlock, ToolCall
from ...record._messages import Reply
from ._format import ReceivedRequest, token_counts, words
from ._google_rules import SIGNED_END, problems, thought_signature

_PATH: Final = re.compile(r"/v1(?:beta)?/models/([^/:?]+):(stream)?[gG]enerateContent(\?.*)?")
_CODES: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@final
class GoogleFormat:
    """generateContent. See ``_format.Format``."""

    def takes(self, path: str) -> bool:
        """``POST /v1beta/models/NAME:streamGenerateContent?alt=sse``, or without ``stream``."""
        return _PATH.fullmatch(path) is not None

    def key(self, headers: Mapping[str, str]) -> str | None:
        """``x-goog-api-key: ...``."""
        return headers.get("x-goog-api-key") or None

    def problems(self, request: ReceivedRequest) -> Iterator[str]:
        """See ``_google_rules``."""
        return problems(request.body, _model_in(request))

    def is_streamed(self, request: ReceivedRequest) -> bool:
        """By the path, which says ``stream`` and ``alt=sse``."""
        found = _PATH.fullmatch(request.path)
        return found is not None and bool(found[2]) and "alt=sse" in (found[3] or "")

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """A chunk per piece, the finish reason in the last of them."""
        return [b"data: %b\r\n\r\n" % json.dumps(chunk).encode() for chunk in _chunks(reply, request)]

    def document(self, reply: Reply, request: ReceivedRequest) -> Mapping[str, Any]:
        """All parts in one GenerateContentResponse."""
        parts = [part for pieces in _pieces(reply, _model_in(request)) for part in pieces]
        return _response(parts, reply, request, last=True)

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """A ``google.rpc.Status``."""
        return {"error": {"code": status, "message": message, "status": _CODES.get(status, "UNKNOWN")}}


def _model_in(request: ReceivedRequest) -> str:
    found = _PATH.fullmatch(request.path)
    return unquote(found[1]) if found else ""


def _chunks(reply: Reply, request: ReceivedRequest) -> Iterator[dict[str, Any]]:
    pieces = _pieces(reply, _model_in(request)) or [[]]
    for number, parts in enumerate(pieces, 1):
        yield _response(parts, reply, request, last=number == len(pieces))


def _pieces(reply: Reply, model: str) -> list[list[dict[str, Any]]]:
    """The parts of each chunk. As from Gemini 3, the first call is signed, or else the end of the text.

    A thought is signed where the script's has a signature: with one of the server's own, which it knows again.
    """
    pieces: list[list[dict[str, Any]]] = []
    signed = False
    for block in reply.blocks:
        if isinstance(block, ThinkingBlock):
            thoughts: list[dict[str, Any]] = [{"text": word, "thought": True} for word in words(block.text)]
            if thoughts and block.signature is not None:
                thoughts[-1]["thoughtSignature"] = thought_signature(model, thoughts[-1]["text"])
            pieces += [[thought] for thought in thoughts]
        elif isinstance(block, TextBlock):
            pieces += [[{"text": word}] for word in words(block.text)]
        elif isinstance(block, ToolCall) and block.args is not None:
            call: dict[str, Any] = {"functionCall": {"id": block.id, "name": block.name, "args": block.args}}
            if not signed:
                call["thoughtSignature"] = thought_signature(model, block.args)
            signed = True
            pieces.append([call])
    if pieces and not signed:
        pieces.append([{"text": "", "thoughtSignature": thought_signature(model, SIGNED_END)}])
    return pieces


def _response(parts: list[dict[str, Any]], reply: Reply, request: ReceivedRequest, *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = _finish_reason(reply)
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(reply, request, last=last),
        "modelVersion": reply.model or _model_in(request),
        "responseId": "scripted",
    }


def _usage(reply: Reply, request: ReceivedRequest, *, last: bool) -> dict[str, int]:
    read, written = token_counts(reply, request)
    if not last:
        return {"promptTokenCount": read, "totalTokenCount": read}
    thought = min(reply.usage.thinking_tokens, written)
    counts = {"promptTokenCount": read, "candidatesTokenCount": written - thought, "totalTokenCount": read + written}
    if thought:
        counts["thoughtsTokenCount"] = thought
    if reply.usage.cache_read_tokens:
        counts["cachedContentTokenCount"] = reply.usage.cache_read_tokens
    return counts


def _finish_reason(reply: Reply) -> str:
    """The scripted one; a call whose arguments are no object is what the API itself can't read."""
    if reply.stop_reason is not None:
        return reply.stop_reason
    if reply.cut_off:
        return "MAX_TOKENS"
    if any(call.args is None for call in reply.tool_calls):
        return "MALFORMED_FUNCTION_CALL"
    return "SAFETY" if reply.refusal else "STOP"
