"""What Anthropic's Messages API refuses in a request. See ``_anthropic_block_rules`` for what blocks may be.

Source: Anthropic's API reference, "Create a Message", version 2026-10-21, its pages on errors, thinking, preserved
thinking, tool use and prompt caching, and the request types of its Python SDK 2.15 (December 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ._anthropic_block_rules import assistant_block_problems, cache_marks, user_block_problems
from ._anthropic_model_rules import model_problems
from ._format import is_unicode

_REQUEST_FIELDS: Final = frozenset(
    (
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    )
)
_SAMPLING: Final = frozenset(("temperature", "top_k", "top_p"))
_VERSIONS: Final = ("2023-06-01", "2026-10-21")
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TOOL_FIELDS: Final = frozenset(("type", "name", "description", "input_schema", "cache_control", "strict"))
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_LEAST_BUDGET: Final = 1_024
_MOST_MARKS: Final = 4
_BINDING_CONTROLS: Final = "thinking-binding-controls-2026-08-01"


def problems(body: Any, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield what the API would refuse in a request."""
    version = headers.get("anthropic-version")
    if version not in _VERSIONS:
        yield f"anthropic-version: {version!r} is not a valid version"
    if not isinstance(body, dict):
        yield "The request body is not valid JSON"
        return
    allowed = _REQUEST_FIELDS | (_SAMPLING if version == "2023-06-01" else frozenset())
    for name in sorted(set(body) - allowed):
        yield f"{name}: Extra inputs are not permitted"
    for name in sorted({"model", "max_tokens", "messages"} - set(body)):
        yield f"{name}: Field required"
    if not is_unicode(body):
        yield "The request body is not valid JSON: no low surrogate in string"
    limit = body.get("max_tokens")
    if "max_tokens" in body and (type(limit) is not int or limit < 1):
        yield f"max_tokens: must be greater than or equal to 1 (got {limit!r})"
    marks = cache_marks(body)
    if marks > _MOST_MARKS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    yield from _system_problems(body)
    yield from _tool_problems(body)
    yield from _thinking_problems(body, headers)
    yield from _output_problems(body)
    yield from model_problems(body)
    stops = body.get("stop_sequences")
    if isinstance(stops, list) and not all(isinstance(stop, str) and stop.strip() for stop in stops):
        yield "stop_sequences: each stop sequence must contain non-whitespace"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    yield from _message_problems(messages, str(body.get("model")))
    yield from _pairing_problems(messages)
    yield from _turn_problems(body, messages)
    called = any(_blocks(message, kind) for message in messages for kind in ("tool_use", "tool_result"))
    if called and not body.get("tools") and "claude" in str(body.get("model")):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools."


def _system_problems(body: Mapping[str, Any]) -> Iterator[str]:
    system = body.get("system")
    if system is None or (isinstance(system, str) and system.strip()):
        return
    if not isinstance(system, list):
        yield "system: text content blocks must be non-empty"
        return
    for number, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"system.{number}: only text blocks are allowed"
        else:
            yield from [f"system.{number}.{problem}" for problem in user_block_problems(block)]


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools")
    names: list[Any] = []
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, dict):
            yield f"tools.{number}: Input should be an object"
            continue
        names.append(name := tool.get("name"))
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            pattern = "^[a-zA-Z0-9_-]{1,128}$"
            yield f"tools.{number}.custom.name: String should match pattern '{pattern}' (got {name!r:.80})"
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            yield f"tools.{number}.custom.input_schema.type: Input should be 'object'"
        for field in sorted(set(tool) - _TOOL_FIELDS):
            yield f"tools.{number}.custom.{field}: Extra inputs are not permitted"
    if len(set(map(str, names))) < len(names):
        yield "tools: Tool names must be unique."
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    extra = {"auto": {"disable_parallel_tool_use"}, "none": set()}
    extra |= {"any": extra["auto"], "tool": {"name", *extra["auto"]}}
    if kind not in extra:
        yield f"tool_choice: Input tag {kind!r} does not match any of the expected tags: auto, any, tool, none"
    elif fields := set(choice) - extra[kind] - {"type"}:
        yield f"tool_choice.{kind}.{min(fields)}: Extra inputs are not permitted"
    elif not tools:
        yield "tool_choice: tool_choice may only be specified while providing tools"
    elif kind == "tool" and choice.get("name") not in names:
        yield f"Tool {choice.get('name')!r} not found in provided tools"


def _thinking_problems(body: Mapping[str, Any], headers: Mapping[str, str]) -> Iterator[str]:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    fields = {"adaptive": {"display", "block_binding"}, "enabled": {"budget_tokens", "display", "block_binding"}}
    fields |= {"disabled": set(), "between_tools": set()}
    if kind not in fields:
        yield f"thinking: Input tag {kind!r} does not match any of the expected tags"
        return
    for field in sorted(set(thinking) - fields[kind] - {"type"}):
        yield f"thinking.{kind}.{field}: Extra inputs are not permitted"
    if "block_binding" in thinking and _BINDING_CONTROLS not in headers.get("anthropic-beta", ""):
        yield f"thinking.{kind}.block_binding: requires the beta header {_BINDING_CONTROLS}"
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if type(budget) is not int or budget < _LEAST_BUDGET:
            yield f"thinking.enabled.budget_tokens: Input should be greater than or equal to 1024 (got {budget!r})"
        elif budget >= body.get("max_tokens", 0):
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
            yield "Thinking may not be enabled when tool_choice forces tool use."
    if kind in ("enabled", "adaptive") and body.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled"


def _output_problems(body: Mapping[str, Any]) -> Iterator[str]:
    output = body.get("output_config", {})
    if not isinstance(output, dict):
        yield "output_config: Input should be an object"
        return
    for field in sorted(set(output) - {"effort", "format"}):
        yield f"output_config.{field}: Extra inputs are not permitted"
    if "effort" in output and output["effort"] not in _EFFORTS:
        yield f"output_config.effort: Input should be one of {', '.join(_EFFORTS)}"
    if "format" in output:
        wanted = output["format"]
        if not isinstance(wanted, dict) or wanted.get("type") != "json_schema" or set(wanted) != {"type", "schema"}:
            yield "output_config.format: Input should be a json_schema with its schema"
        else:
            yield from _schema_problems(wanted["schema"])


def _schema_problems(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _schema_problems(item)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        yield "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
    for limit in ("minimum", "maximum", "minLength", "maxLength", "pattern", "oneOf"):
        if limit in schema:
            yield f"output_config.format.schema: property {limit!r} is not supported"
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            yield from _schema_problems(list(value.values()))
        elif name in ("items", "anyOf", "allOf"):
            yield from _schema_problems(value)


def _message_problems(messages: Sequence[Any], model: str) -> Iterator[str]:
    before: Any = None
    for number, message in enumerate(messages):
        place = f"messages.{number}"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            yield f"{place}.role: Input should be 'user' or 'assistant' (got {role!r:.80})"
            return
        if number == 0 and role != "user":
            yield 'messages: first message must use the "user" role'
        if role == before:
            yield f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles'
        before = role
        for field in sorted(set(message) - {"role", "content"}):
            yield f"{place}.{field}: Extra inputs are not permitted"
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or not content:
            yield f"{place}: all messages must have non-empty content"
            continue
        for index, block in enumerate(content):
            found = user_block_problems(block) if role == "user" else assistant_block_problems(block, model)
            yield from [f"{place}.content.{index}.{problem}" for problem in found]
        if role == "assistant":
            yield from _end_problems(content[-1], place, is_last=number == len(messages) - 1)


def _end_problems(block: Any, place: str, *, is_last: bool) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("thinking", "redacted_thinking") and not is_last:
        yield f"{place}: The final block in an assistant message cannot be `{kind}`."
    if kind == "text" and is_last:
        if str(block.get("text")) != str(block.get("text")).rstrip():
            yield f"{place}: final assistant content cannot end with trailing whitespace"
        yield "This model does not support assistant message prefill. The conversation must end with a user message."


def _blocks(message: Any, kind: str) -> list[dict[str, Any]]:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else ()
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == kind]


def _pairing_problems(messages: Sequence[Any]) -> Iterator[str]:
    """Each call is answered in the next message, before anything else in it, once; no id comes twice."""
    seen: set[str] = set()
    pending: list[str] = []
    for number, message in enumerate(messages):
        answers = [str(block.get("tool_use_id")) for block in _blocks(message, "tool_result")]
        if missing := sorted(set(pending) - set(answers)):
            yield (
                f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        for answer in answers:
            if answer not in pending:
                yield f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {answer}"
        if len(set(answers)) < len(answers):
            yield f"messages.{number}: each tool_use must have a single result. Found multiple `tool_result` blocks"
        if answers and not all(
            isinstance(block, dict) and block.get("type") == "tool_result"
            for block in message["content"][: len(answers)]
        ):
            yield f"messages.{number}: `tool_result` blocks must come before all other content"
        pending = [str(block.get("id")) for block in _blocks(message, "tool_use")]
        if len({*pending, *seen}) < len(pending) + len(seen):
            yield f"messages.{number}: `tool_use` ids must be unique"
        seen.update(pending)
        yield from _server_tool_problems(message, number, is_last=number == len(messages) - 1)
    if pending:
        yield f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks: {pending[0]}"


def _server_tool_problems(message: Any, number: int, *, is_last: bool) -> Iterator[str]:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    results = [block.get("tool_use_id") for block in blocks]
    for call in _blocks(message, "server_tool_use"):
        if call.get("id") not in results and not is_last:
            yield (
                f"messages.{number}: `{call.get('name')}` tool use with id `{call.get('id')}` was found without a "
                "corresponding tool result block"
            )


def _turn_problems(body: Mapping[str, Any], messages: Sequence[Any]) -> Iterator[str]:
    """With a budget, the turn that goes on must have begun with thinking."""
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    first: Any = None
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "assistant":
            first = message
        elif not _blocks(message, "tool_result"):
            break
    content = first.get("content") if first is not None else None
    if isinstance(content, list) and content and content[0].get("type") not in ("thinking", "redacted_thinking"):
        yield (
            f"Expected `thinking` or `redacted_thinking`, but found `{content[0].get('type')}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block."
        )
