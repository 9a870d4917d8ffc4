"""What OpenAI's Responses API refuses in a request that stores nothing.

Source: OpenAI's API reference, "Create a model response", its guides on reasoning, function calling and structured
outputs, and the messages of its errors as people met them (December 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ._format import is_unicode
from ._openai_model_rules import OpenAIModel
from ._responses_item_rules import item_problems, order_problems

_REQUEST_FIELDS: Final = frozenset(
    (
        *("background", "context_management", "conversation", "include", "input", "instructions"),
        *("max_output_tokens", "max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id"),
        *("prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning"),
        *("safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text"),
        *("tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
    )
)
_INCLUDABLE: Final = frozenset(
    (
        *("code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results"),
        *("message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content"),
        *("web_search_call.action.sources", "web_search_call.results"),
    )
)
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SUMMARIES: Final = ("auto", "concise", "detailed")
_LEAST_OUTPUT: Final = 16
"""Tokens: "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16"."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_STRICT: Final = frozenset(
    (
        *("allOf", "default", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf"),
        *("patternProperties", "prefixItems", "propertyNames", "then", "uniqueItems"),
    )
)


def problems(body: Any, thoughts: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType({})) -> Iterator[str]:
    """Yield what OpenAI would refuse in the body of a request.

    Args:
        body: The request's JSON.
        thoughts: The encrypted thoughts that led to a call that the server sent, by model and the call's id.
    """
    if not isinstance(body, dict):
        yield "the body is not a JSON object"
        return
    for name in sorted(set(body) - _REQUEST_FIELDS):
        yield f"Unknown parameter: '{name}'."
    model = body.get("model")
    if not isinstance(model, str) or not model:
        yield "Missing required parameter: 'model'."
        return
    if not is_unicode(body):
        yield "We could not parse the JSON body of your request: half of a surrogate pair"
    yield from _settings_problems(body, model)
    yield from _tool_problems(body)
    yield from _format_problems(body.get("text"))
    items = body.get("input")
    if not isinstance(items, list) or not items:
        yield "Missing required parameter: 'input'."
        return
    for number, item in enumerate(items):
        yield from [f"{problem} (input[{number}])" for problem in item_problems(item, model)]
    yield from order_problems([item for item in items if isinstance(item, dict)], model, thoughts)


def _settings_problems(body: Mapping[str, Any], model: str) -> Iterator[str]:
    limit, heat = body.get("max_output_tokens", _LEAST_OUTPUT), body.get("temperature", 1)
    if not isinstance(limit, int) or limit < _LEAST_OUTPUT:
        yield f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit}."
    if not isinstance(heat, int | float) or not 0 <= heat <= 2:
        yield f"Invalid 'temperature': expected a number from 0 to 2, but got {heat!r:.80}."
    if body.get("previous_response_id") is not None:
        yield f"Previous response with id {body['previous_response_id']!r:.80} not found."
    if not isinstance(body.get("instructions", "x"), str) or not body.get("instructions", "x"):
        yield "Invalid 'instructions': expected a text that isn't empty."
    include = body.get("include", [])
    for wanted in include if isinstance(include, list) else [include]:
        if wanted not in _INCLUDABLE:
            yield f"Invalid value: {wanted!r:.80} in 'include'."
    known = OpenAIModel(model)
    if known.reasons() == "never" and "reasoning.encrypted_content" in include:
        yield "Encrypted content is not supported with this model."
    reasoning = body.get("reasoning", {})
    if not isinstance(reasoning, dict) or (known.reasons() == "never" and reasoning):
        yield "Unsupported parameter: 'reasoning' is not supported with this model."
        return
    yield from known.effort_problems(reasoning.get("effort"), "reasoning.effort")
    yield from known.responses_problems(body, reasoning.get("effort"))
    for name in sorted(set(reasoning) - {"context", "effort", "mode", "summary"}):
        yield f"Unknown parameter: 'reasoning.{name}'."
    if reasoning.get("effort", "low") not in _EFFORTS:
        yield f"Invalid value: {reasoning['effort']!r:.80}. Supported values are: {', '.join(_EFFORTS)}."
    if reasoning.get("summary", "auto") not in _SUMMARIES:
        yield f"Invalid value: {reasoning['summary']!r:.80}. Supported values are: {', '.join(_SUMMARIES)}."


def _tool_problems(body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools") or []
    names = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    for tool, name in zip(tools, names, strict=True):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            yield f"Invalid value in 'tools': {tool!r:.80}"
            continue
        for field in sorted(set(tool) - {"type", "name", "description", "parameters", "strict"}):
            yield f"Unknown parameter: 'tools.{field}'."
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"Invalid 'tools.name': {name!r:.80} does not match ^[a-zA-Z0-9_-]+$."
        if not isinstance(tool.get("parameters"), dict):
            yield f"Invalid type for 'tools.parameters' of {name!r:.80}: expected an object."
        if tool.get("strict", True):
            yield from [
                f"Invalid schema for function {name!r:.80}: {problem}"
                for problem in _strictness_problems(tool.get("parameters"))
            ]
    if len(set(map(str, names))) < len(names):
        yield "Two tools have one name."
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        yield "Tool choice is only allowed when 'tools' are specified."
    if isinstance(choice, dict) and (choice.get("type") != "function" or choice.get("name") not in names):
        yield f"Tool choice {choice!r:.80} not found in 'tools' parameter."
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        yield f"Invalid value: {choice!r:.80} in 'tool_choice'."


def _format_problems(text: Any) -> Iterator[str]:
    if text is None:
        return
    if not isinstance(text, dict) or set(text) - {"format", "verbosity"}:
        yield f"Invalid 'text': {text!r:.80}"
        return
    wanted = text.get("format", {"type": "text"})
    if wanted.get("type") != "json_schema":
        return
    if set(wanted) - {"type", "name", "schema", "strict", "description"}:
        yield f"Unknown parameter in 'text.format': {sorted(wanted)}"
    if not _NAME.fullmatch(str(wanted.get("name", ""))):
        yield f"Invalid 'text.format.name': {wanted.get('name')!r:.80}"
    if not isinstance(wanted.get("schema"), dict):
        yield "Missing required parameter: 'text.format.schema'."
    elif wanted.get("strict"):
        yield from [f"Invalid schema for response_format: {found}" for found in _strictness_problems(wanted["schema"])]


def _strictness_problems(schema: Any) -> Iterator[str]:
    """What keeps a schema from being strict, at the top and anywhere in it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield "schema must be a JSON Schema of 'type: \"object\"'"
        return
    yield from _inner_problems(schema)


def _inner_problems(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for keyword in sorted(_NOT_STRICT.intersection(schema)):
        yield f"'{keyword}' is not permitted."
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false."
        if set(schema.get("required", ())) != set(properties):
            yield "'required' is required to be supplied and to be an array including every key in properties."
    for inner in (*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())):
        yield from _inner_problems(inner)
    yield from _inner_problems(schema.get("items"))
