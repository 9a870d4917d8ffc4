"""What the Gemini API refuses in the tools and the settings of a request. Sources: see ``_google_rules``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_CONFIG_FIELDS = frozenset(
    (
        *("candidateCount", "enableEnhancedCivicAnswers", "frequencyPenalty", "imageConfig", "logprobs"),
        *("maxOutputTokens", "mediaResolution", "presencePenalty", "responseFormat", "responseJsonSchema"),
        *("responseLogprobs", "responseMimeType", "responseModalities", "responseSchema", "seed", "speechConfig"),
        *("stopSequences", "temperature", "thinkingConfig", "topK", "topP"),
    )
)
_KEYWORDS = frozenset(
    (
        *("$anchor", "$defs", "$id", "$ref", "additionalProperties", "anyOf", "description", "enum", "format"),
        *("items", "maxItems", "maximum", "minItems", "minimum", "oneOf", "prefixItems", "properties"),
        *("propertyOrdering", "required", "title", "type"),
    )
)
_LEVELS = frozenset(("MINIMAL", "LOW", "MEDIUM", "HIGH"))
_MODES = frozenset(("AUTO", "ANY", "NONE", "VALIDATED"))
_DECLARATION_FIELDS = frozenset(
    ("behavior", "description", "name", "parameters", "parametersJsonSchema", "response", "responseJsonSchema")
)


def config_problems(body: Mapping[str, Any], older: bool) -> Iterator[str]:
    """Yield what is wrong with the ``generationConfig``, for a model before Gemini 3 if *older*."""
    config = body.get("generationConfig", {})
    if not isinstance(config, dict):
        yield "generation_config: Invalid value"
        return
    yield from [_unknown(name, "generation_config") for name in sorted(set(config) - _CONFIG_FIELDS)]
    if "temperature" in config and not 0 <= config["temperature"] <= 2:
        yield "temperature must be in the range [0.0, 2.0]."
    if config.get("maxOutputTokens", 1) < 1:
        yield "max_output_tokens must be positive."
    if len(config.get("stopSequences", ())) > 5:
        yield "the maximum number of stop sequences is 5"
    schema = config.get("responseJsonSchema")
    if schema is not None:
        yield from [f"response_json_schema: {problem}" for problem in schema_problems(schema)]
        if config.get("responseMimeType") != "application/json":
            yield "response_json_schema needs response_mime_type 'application/json'"
    if older and config.get("responseMimeType") == "application/json" and body.get("tools"):
        yield "Function calling with a response mime type: 'application/json' is unsupported"
    yield from _thinking_problems(config.get("thinkingConfig", {}), older)


def _thinking_problems(config: Mapping[str, Any], older: bool) -> Iterator[str]:
    known = {"includeThoughts", "thinkingBudget", "thinkingLevel"}
    yield from [_unknown(name, "generation_config.thinking_config") for name in sorted(set(config) - known)]
    if "thinkingBudget" in config and "thinkingLevel" in config:
        yield "You can only set only one of thinking budget and thinking level."
    if "thinkingLevel" in config:
        if older:
            yield "Thinking level is not supported for this model."
        if str(config["thinkingLevel"]).upper() not in _LEVELS:
            yield f"Invalid value at 'thinking_config.thinking_level' (got {config['thinkingLevel']!r:.80})"


def tool_problems(body: Mapping[str, Any], name_form: re.Pattern[str]) -> Iterator[str]:
    """Yield what is wrong with ``tools`` and ``toolConfig``."""
    tools = body.get("tools", [])
    declared = [item for tool in tools if isinstance(tool, dict) for item in tool.get("functionDeclarations", ())]
    names = [item.get("name") if isinstance(item, dict) else None for item in declared]
    for number, (item, name) in enumerate(zip(declared, names, strict=True)):
        if not isinstance(name, str) or not name_form.fullmatch(name):
            yield (
                f"function_declarations[{number}].name: Invalid function name. Must start with a letter or an "
                f"underscore, with a maximum length of 64. (got {name!r:.80})"
            )
        else:
            yield from [f"function_declarations[{number}]: {problem}" for problem in _declaration_problems(item)]
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        yield f"Duplicate function declaration found: {name}"
    config = body.get("toolConfig")
    if config is not None:
        yield from _calling_problems(config.get("functionCallingConfig", {}), names)


def _declaration_problems(declaration: Mapping[str, Any]) -> Iterator[str]:
    yield from [_unknown(name, "function_declarations") for name in sorted(set(declaration) - _DECLARATION_FIELDS)]
    if "parameters" in declaration and "parametersJsonSchema" in declaration:
        yield "parameters and parameters_json_schema are mutually exclusive"
    if "parametersJsonSchema" in declaration:
        yield from schema_problems(declaration["parametersJsonSchema"])


def _calling_problems(config: Mapping[str, Any], names: Sequence[Any]) -> Iterator[str]:
    mode, allowed = config.get("mode", "AUTO"), config.get("allowedFunctionNames", [])
    if mode not in _MODES:
        yield f"Invalid value at 'tool_config.function_calling_config.mode' (got {mode!r:.80})"
    if allowed and mode not in ("ANY", "VALIDATED"):
        yield "Please set allowed_function_names only when function calling mode is ANY."
    if mode == "ANY" and not names:
        yield "Function calling config is set without function_declarations."
    for name in allowed:
        if name not in names:
            yield f"allowed_function_names: no function is declared with the name {name!r:.80}"


def schema_problems(schema: Any, place: str = "schema") -> Iterator[str]:
    """Yield where a JSON Schema has keywords that aren't supported, or values that aren't."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{place}: Invalid value (got {schema!r:.80})"
        return
    yield from [_unknown(name, place) for name in sorted(set(schema) - _KEYWORDS)]
    if "$ref" in schema and any(not name.startswith("$") for name in schema):
        yield f"{place}: $ref can't have other fields beside it"
    for value in schema.get("enum", ()):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            yield f"{place}: enum holds strings and numbers (got {value!r:.80})"
    for key in ("additionalProperties", "items"):
        if key in schema:
            yield from schema_problems(schema[key], f"{place}.{key}")
    for key in ("anyOf", "oneOf", "prefixItems"):
        for number, item in enumerate(schema.get(key, ())):
            yield from schema_problems(item, f"{place}.{key}[{number}]")
    for key in ("$defs", "properties"):
        for name, item in schema.get(key, {}).items():
            yield from schema_problems(item, f"{place}.{key}.{name}")


def _unknown(name: str, where: str) -> str:
    return f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
