"""OpenAI's Responses API, from the provider's side. It remembers nothing but the thoughts that led to its calls.

Source: OpenAI's API reference, "Create a model response" and "Responses streaming events" (December 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, final

from ...record._blocks import Block, RawBlock, TextBlock, ThinkingBlock, ToolCall
from ...record._messages import Reply
from ._format import ReceivedRequest, arguments, token_counts, words
from ._responses_rules import problems
from ._responses_thoughts import encrypted

_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded", 500: "server_error", 503: "server_error"}


@final
class ResponsesFormat:
    """The Responses API. See ``_format.Format``."""

    def __init__(self) -> None:
        self._thoughts: dict[tuple[str, str], tuple[str, ...]] = {}
        """The encrypted thoughts that led to a call that was sent, by model and the call's id."""

    def takes(self, path: str) -> bool:
        """``POST /v1/responses``."""
        return path.partition("?")[0] == "/v1/responses"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """``Authorization: Bearer ...``."""
        return headers.get("authorization", "").removeprefix("Bearer ") or None

    def problems(self, request: ReceivedRequest) -> Iterator[str]:
        """See ``_responses_rules``."""
        return problems(request.body, self._thoughts)

    def is_streamed(self, request: ReceivedRequest) -> bool:
        """``"stream": true``."""
        return isinstance(request.body, dict) and request.body.get("stream") is True

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """From ``response.created`` to ``response.completed`` or ``response.incomplete``."""
        items = self._items(reply, request)
        events = _events(items, reply, request)
        return [_written({**event, "sequence_number": number}) for number, event in enumerate(events)]

    def document(self, reply: Reply, request: ReceivedRequest) -> Mapping[str, Any]:
        """A ``response``."""
        return _response(self._items(reply, request), reply, request)

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """``{"error": {...}}``."""
        code = _CODES.get(status)
        if message.startswith("The encrypted content"):
            code = "invalid_encrypted_content"
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}

    def _items(self, reply: Reply, request: ReceivedRequest) -> list[dict[str, Any]]:
        """The items of the answer, as they are in the end. What led to each call is remembered."""
        items = _items(reply)
        thoughts: tuple[str, ...] = ()
        for number, item in enumerate(items):
            if item["type"] == "reasoning":
                _encrypt(item, items[number + 1 :], request)
                thoughts += (item["encrypted_content"],) if "encrypted_content" in item else ()
            elif item["type"] == "function_call":
                key = (_asked(request), item["call_id"])
                known = self._thoughts.setdefault(key, thoughts)
                if known != thoughts:  # Two replies had a call with this id: which of them comes back, isn't known.
                    self._thoughts[key] = ()
        return items


def _encrypt(item: dict[str, Any], rest: list[dict[str, Any]], request: ReceivedRequest) -> None:
    include = request.body.get("include") if isinstance(request.body, dict) else None
    if isinstance(include, list) and "reasoning.encrypted_content" in include:
        text = "".join([part["text"] for part in item["summary"]])
        follower = next((str(other["type"]) for other in rest if other["type"] != "reasoning"), None)
        item["encrypted_content"] = encrypted(_asked(request), text, follower)


def _items(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    head: dict[str, Any] = {}
    for number, block in enumerate(reply.blocks):
        if _raw(block).get("type") == "message":
            head = {"phase": _raw(block)["phase"]}
        elif (item := _item(block, number, reply.refusal)) is not None:
            items.append({**item, **head} if item["type"] == "message" else item)
            head = {}
    if reply.cut_off and items and items[-1]["type"] != "reasoning":
        items[-1]["status"] = "incomplete"
    return items


def _raw(block: Block) -> dict[str, Any]:
    """A raw block's item; a message and a refusal are only marks, for the text behind them."""
    return dict(block.raw) if isinstance(block, RawBlock) and isinstance(block.raw, dict) else {}


def _item(block: Block, number: int, refusal: bool) -> dict[str, Any] | None:
    if isinstance(block, ThinkingBlock):
        summary = [{"type": "summary_text", "text": block.text}] if block.text else []
        return {"id": f"rs_{number}", "type": "reasoning", "summary": summary}
    if isinstance(block, TextBlock):
        if not block.text.strip():
            return None
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": block.text}
        if refusal:
            part = {"type": "refusal", "refusal": block.text}
        message = {"type": "message", "status": "completed", "role": "assistant", "content": [part]}
        return {"id": f"msg_{number}", **message}
    if isinstance(block, ToolCall):
        called = {"arguments": arguments(block), "call_id": block.id, "name": block.name}
        return {"id": f"fc_{number}", "type": "function_call", "status": "completed", **called}
    raw = _raw(block)
    return raw if isinstance(raw.get("type"), str) and raw["type"] != "refusal" else None


def _events(items: list[dict[str, Any]], reply: Reply, request: ReceivedRequest) -> Iterator[dict[str, Any]]:
    begun = {**_response([], reply, request), "status": "in_progress", "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
        yield from [{**event, "item_id": item.get("id"), "output_index": index} for event in _events_of_item(item)]
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    response = _response(items, reply, request)
    yield {"type": f"response.{response['status']}", "response": response}


def _begun(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it begins."""
    empty: dict[str, Any] = {"content": [], "arguments": "", "summary": [], "status": "in_progress"}
    begun = {key: empty.get(key, value) for key, value in item.items()}
    if "encrypted_content" in begun:
        begun["encrypted_content"] = begun["encrypted_content"][:10]  # It is whole only in the end.
    return begun


def _events_of_item(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if item["type"] == "reasoning":
        for index, part in enumerate(item["summary"]):
            at = {"summary_index": index}
            kind = "response.reasoning_summary"
            yield {"type": f"{kind}_part.added", **at, "part": {"type": "summary_text", "text": ""}}
            yield from [{"type": f"{kind}_text.delta", **at, "delta": word} for word in words(part["text"])]
            yield {"type": f"{kind}_text.done", **at, "text": part["text"]}
            yield {"type": f"{kind}_part.done", **at, "part": part}
    elif item["type"] == "message":
        for index, part in enumerate(item["content"]):
            yield from [{**event, "content_index": index} for event in _events_of_part(part)]
    elif item["type"] == "function_call":
        kind = "response.function_call_arguments"
        yield from [{"type": f"{kind}.delta", "delta": piece} for piece in words(item["arguments"])]
        if item["status"] == "completed":
            yield {"type": f"{kind}.done", "arguments": item["arguments"]}


def _events_of_part(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = part["type"]
    field = "refusal" if kind == "refusal" else "text"
    yield {"type": "response.content_part.added", "part": {**part, field: ""}}
    yield from [{"type": f"response.{kind}.delta", "delta": word} for word in words(part[field])]
    yield {"type": f"response.{kind}.done", field: part[field]}
    yield {"type": "response.content_part.done", "part": part}


def _written(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _response(items: list[dict[str, Any]], reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
    filtered = reply.refusal and not reply.text
    reason = "max_output_tokens" if reply.cut_off else "content_filter" if filtered else None
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": reason and {"reason": reason},
        "model": reply.model or _asked(request),
        "output": items,
        "store": False,
        "usage": _usage(reply, request),
    }


def _usage(reply: Reply, request: ReceivedRequest) -> dict[str, Any]:
    read, written = token_counts(reply, request)
    usage = reply.usage
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": read + written,
    }


def _asked(request: ReceivedRequest) -> str:
    return str(request.body.get("model", "")) if isinstance(request.body, dict) else ""
