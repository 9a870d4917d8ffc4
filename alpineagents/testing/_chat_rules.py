"""What a Chat Completions provider refuses in a request.

Source: OpenAI's API reference, "Create chat completion" (December 2026), and what stricter servers than OpenAI's
demand: no empty text, results right behind their calls and in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_REQUEST_FIELDS = frozenset(
    (
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
    )
)
_MESSAGE_FIELDS: Mapping[str, frozenset[str]] = {
    "system": frozenset(("content", "name")),
    "developer": frozenset(("content", "name")),
    "user": frozenset(("content", "name")),
    "assistant": frozenset(
        ("content", "name", "tool_calls", "refusal", "reasoning_content", "reasoning", "reasoning_details")
    ),
    "tool": frozenset(("content", "tool_call_id")),
}
_PART_TYPES = frozenset(("text", "image_url", "file"))


def problems(body: Any) -> Iterator[str]:
    """Yield what a provider would refuse in the body of a request."""
    if not isinstance(body, dict):
        yield "the body is not a JSON object"
        return
    for name in sorted(set(body) - _REQUEST_FIELDS):
        yield f"Unrecognized request argument supplied: {name}"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "you must provide a model parameter"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    for number, message in enumerate(messages):
        yield from [f"messages[{number}]: {problem}" for problem in _message_problems(message)]
    yield from _order_problems(messages)
    yield from _tool_problems(body)


def _message_problems(message: Any) -> Iterator[str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _MESSAGE_FIELDS:
        yield f"unknown role {role!r}"
        return
    for name in sorted(set(message) - _MESSAGE_FIELDS[role] - {"role"}):
        yield f"unknown field {name!r}"
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        for part in content:
            yield from _part_problems(part, role)
    elif content is None and role == "assistant" and calls:
        pass
    elif not isinstance(content, str) or not content.strip():
        yield f"content must be non-empty text (got {content!r})"
    for call in calls or ():
        yield from _call_problems(call)


def _part_problems(part: Any, role: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _PART_TYPES or kind not in part:
        yield f"unsupported part {part!r:.80}"
    elif kind == "text" and not part["text"].strip():
        yield "text content blocks must be non-empty"
    elif kind != "text" and role != "user":
        yield f"a {role} message holds text only"


def _call_problems(call: Any) -> Iterator[str]:
    function = call.get("function") or {}
    if call.get("type") != "function" or not call.get("id"):
        yield f"a tool call needs an id and the type 'function' (got {call!r:.80})"
    name = function.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
        yield f"invalid function name {name!r}"
    try:
        arguments = json.loads(str(function.get("arguments")))
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        yield f"arguments must be the text of a JSON object (got {function.get('arguments')!r:.80})"


def _order_problems(messages: Sequence[Any]) -> Iterator[str]:
    """Every call is answered right behind its message, once, in order; every result answers one."""
    pending: list[Any] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if not pending or message.get("tool_call_id") != pending.pop(0):
                yield (
                    f"messages[{number}]: a tool message must answer the next of a preceding message's 'tool_calls' "
                    f"(got tool_call_id {message.get('tool_call_id')!r})"
                )
            continue
        if pending:
            yield f"messages[{number}]: no tool message answers {', '.join(map(str, pending))}"
        pending = [call.get("id") for call in message.get("tool_calls") or ()]
        if len(set(pending)) < len(pending):
            yield f"messages[{number}]: two tool calls have one id"
    if pending:
        yield f"no tool message answers {', '.join(map(str, pending))}"


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools")
    names = [tool.get("function", {}).get("name") for tool in tools or ()]
    if tools is not None and not tools:
        yield "[] is too short - 'tools'"
    if len(set(names)) < len(names):
        yield "two tools have one name"
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield "'tool_choice' is only allowed when 'tools' are specified"
    if isinstance(choice, dict) and choice.get("function", {}).get("name") not in names:
        yield f"tool choice {choice!r} not found in 'tools'"
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        yield f"invalid tool_choice {choice!r}"
