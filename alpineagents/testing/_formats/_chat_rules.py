"""What a Chat Completions provider refuses in a request.

Source: OpenAI's API reference, "Create chat completion" (December 2026), and what stricter servers than OpenAI's
demand: no empty text, results right behind their calls and in order, no call id twice, the person first, roles that
alternate.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ._format import is_unicode
from ._openai_model_rules import OpenAIModel

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
_MAX_TEXT = 10_485_760
"""Characters of one text, as OpenAI's own error names the limit ("string_above_max_length")."""
_OF_MISTRAL = re.compile(r"mistral|ministral|devstral|codestral|magistral|pixtral|mixtral")
_OF_OPENAI = re.compile(r"(^|/)(gpt-|chatgpt-|o[1-9])(?!oss)")
_MOST_ID = 40
"""Characters of a call's id, by OpenAI's "string_above_max_length"."""
_FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def problems(body: Any) -> Iterator[str]:
    """Yield what a provider would refuse in the body of a request."""
    if not isinstance(body, dict):
        yield "the body is not a JSON object"
        return
    for name in sorted(set(body) - _REQUEST_FIELDS):
        yield f"Unrecognized request argument supplied: {name}"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "you must provide a model parameter"
    if not is_unicode(body):
        yield "We could not parse the JSON body of your request: half of a surrogate pair"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    for number, message in enumerate(messages):
        yield from [f"messages[{number}]: {problem}" for problem in _message_problems(message)]
    yield from _order_problems(messages)
    if _OF_MISTRAL.search(str(body.get("model"))):
        yield from _mistrals_problems(messages)
    yield from _tool_problems(body)
    yield from _setting_problems(body)


def _setting_problems(body: Mapping[str, Any]) -> Iterator[str]:
    temperature = body.get("temperature", 1)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        yield f"Invalid 'temperature': expected a number from 0 to 2 (got {temperature!r:.80})"
    if "stream_options" in body and body.get("stream") is not True:
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    model = str(body.get("model"))
    yield from OpenAIModel(model).chat_problems(body)
    if _OF_OPENAI.search(model):
        ids = [call.get("id") for message in body["messages"] for call in _calls_of(message)]
        if any(isinstance(call_id, str) and len(call_id) > _MOST_ID for call_id in ids):
            yield f"Invalid 'messages': a tool call's id is longer than {_MOST_ID} characters"
    described = _object(_object(body.get("response_format")).get("json_schema"))
    if described.get("strict") is True:
        yield from _strict_problems(described.get("schema"))


def _strict_problems(schema: Any) -> Iterator[str]:
    """What a schema may not have where it is held to: an object that is open, or has properties that may be missing."""
    for part in schema if isinstance(schema, list) else [schema]:
        if isinstance(part, dict):
            properties = part.get("properties")
            if part.get("type") == "object" and part.get("additionalProperties") is not False:
                yield "Invalid schema for response_format: 'additionalProperties' is required to be supplied and false."
            if isinstance(properties, dict):
                if set(properties) - set(part.get("required") or ()):
                    yield "Invalid schema for response_format: 'required' must include every key in properties."
                yield from _strict_problems(list(properties.values()))
            for name in ("items", "anyOf"):
                yield from _strict_problems(part.get(name))
            yield from _strict_problems(list(_object(part.get("$defs")).values()))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


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
        if not content:
            yield "[] is too short - 'content'"
    elif content is None and role == "assistant" and calls:
        pass
    elif not isinstance(content, str) or not content.strip():
        yield f"content must be non-empty text (got {content!r:.80})"
    elif len(content) > _MAX_TEXT:
        yield _too_long(content)
    if "tool_calls" in message and not (isinstance(calls, list) and calls):
        yield f"{calls!r:.80} is too short - 'tool_calls'"
    for call in _calls_of(message):
        yield from _call_problems(call)


def _part_problems(part: Any, role: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _PART_TYPES or kind not in part:
        yield f"unsupported part {part!r:.80}"
    elif kind != "text":
        if role != "user":
            yield f"a {role} message holds text only"
    elif not isinstance(part["text"], str) or not part["text"].strip():
        yield "text content blocks must be non-empty"
    elif len(part["text"]) > _MAX_TEXT:
        yield _too_long(part["text"])


def _too_long(text: str) -> str:
    return f"string too long: expected a maximum length of {_MAX_TEXT}, but got one of length {len(text)}"


def _calls_of(message: Any) -> Sequence[Mapping[str, Any]]:
    """The calls of a message, as far as they are objects."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [call if isinstance(call, dict) else {} for call in calls] if isinstance(calls, list) else []


def _call_problems(call: Mapping[str, Any]) -> Iterator[str]:
    function = call.get("function")
    if not isinstance(function, dict):
        function = {}
    if call.get("type") != "function" or not isinstance(call.get("id"), str) or not call["id"]:
        yield f"a tool call needs an id and the type 'function' (got {call!r:.80})"
    name = function.get("name")
    if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
        yield f"invalid function name {name!r:.80}"
    try:
        arguments = json.loads(str(function.get("arguments")))
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        yield f"arguments must be the text of a JSON object (got {function.get('arguments')!r:.80})"


def _order_problems(messages: Sequence[Any]) -> Iterator[str]:
    """The person speaks first; every call is answered right behind its message, once, in order; no id comes twice."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    first = next((number for number, role in enumerate(roles) if role not in ("system", "developer")), None)
    if first is None or roles[first] == "assistant":
        yield "the first message that isn't the system's must be of the role 'user'"
    seen: set[Any] = set()
    pending: list[Any] = []
    for number, (role, message) in enumerate(zip(roles, messages, strict=True)):
        if role == "user" and number and roles[number - 1] == "user":
            yield f"messages[{number}]: conversation roles must alternate user/assistant"
        if role == "tool":
            if not pending or message.get("tool_call_id") != pending.pop(0):
                yield (
                    f"messages[{number}]: a tool message must answer the next of a preceding message's 'tool_calls' "
                    f"(got tool_call_id {message.get('tool_call_id')!r})"
                )
            continue
        if pending:
            yield f"messages[{number}]: no tool message answers {', '.join(map(str, pending))}"
        if role in ("system", "developer") and first is not None and number > first:
            yield f"messages[{number}]: a system message must be at the beginning"
        pending = [call.get("id") for call in _calls_of(message)]
        if len(set(map(str, pending))) < len(pending):
            yield f"messages[{number}]: two tool calls have one id"
        if again := seen.intersection(map(str, pending)):
            yield f"messages[{number}]: a tool call before has the id {min(again)}"
        seen.update(map(str, pending))
    if pending:
        yield f"no tool message answers {', '.join(map(str, pending))}"


def _mistrals_problems(messages: Sequence[Any]) -> Iterator[str]:
    """What servers of Mistral's models want besides, and say in these words."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    if ("tool", "user") in pairwise(roles):
        yield "Unexpected role 'user' after role 'tool'"


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools")
    functions = [tool.get("function") if isinstance(tool, dict) else None for tool in tools or ()]
    names = [function.get("name") if isinstance(function, dict) else None for function in functions]
    if tools is not None and not tools:
        yield "[] is too short - 'tools'"
    for name in names:
        if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
            yield f"tools: invalid function name {name!r:.80}"
    for function in functions:
        if isinstance(function, dict) and not isinstance(function.get("parameters", {}), dict):
            yield f"tools: parameters must be an object (got {function['parameters']!r:.80})"
    if len(set(map(str, names))) < len(names):
        yield "two tools have one name"
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield "'tool_choice' is only allowed when 'tools' are specified"
    if isinstance(choice, dict) and choice.get("function", {}).get("name") not in names:
        yield f"tool choice {choice!r} not found in 'tools'"
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        yield f"invalid tool_choice {choice!r}"
