"""What the Responses API refuses in the items of a request's input, when nothing is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ._responses_thoughts import decrypted

_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "message": frozenset(("content", "role", "status", "phase")),
    "function_call": frozenset(("arguments", "call_id", "name", "status")),
    "function_call_output": frozenset(("call_id", "output", "status")),
    "reasoning": frozenset(("content", "encrypted_content", "summary")),
}
_OTHER_ITEMS: Final = frozenset(
    (
        *("code_interpreter_call", "compaction", "computer_call", "computer_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "file_search_call", "image_generation_call", "local_shell_call"),
        *("local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools"),
        *("shell_call", "shell_call_output", "tool_search_call", "tool_search_output", "web_search_call"),
    )
)
"""Items of tools that OpenAI runs itself. Their schema demands their ids, and they are taken."""
_INPUT_PARTS: Final = frozenset(("input_text", "input_image", "input_file"))
_PARTS: Final[Mapping[Any, frozenset[str]]] = {
    "user": _INPUT_PARTS,
    "system": _INPUT_PARTS,
    "developer": _INPUT_PARTS,
    "assistant": frozenset(("output_text", "refusal")),
}
_PART_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "input_text": frozenset(("text",)),
    "input_image": frozenset(("image_url", "file_id", "detail")),
    "input_file": frozenset(("file_data", "file_id", "file_url", "filename", "detail")),
    "output_text": frozenset(("text", "annotations", "logprobs")),
    "refusal": frozenset(("refusal",)),
}
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_ID: Final = 64
"""Characters: "Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64"."""
_MOST_TEXT: Final = 10_485_760
"""Characters of one text, as OpenAI's own error names the limit ("string_above_max_length")."""


def item_problems(item: Any, model: str) -> Iterator[str]:
    """Yield what is wrong with one item by itself."""
    if not isinstance(item, dict):
        yield f"Invalid type for an item: expected an object, but got {item!r:.80}."
        return
    kind = item.get("type", "message")
    if kind in _OTHER_ITEMS:
        return
    if kind not in _FIELDS:
        yield f"Invalid value: {kind!r:.80}. It is the type of no item."
        return
    if "id" in item:
        yield (
            f"Item with id {item['id']!r:.80} not found. Items are not persisted when `store` is set to false. "
            "Try again with `store` set to true, or remove this item from your input."
        )
    for name in sorted(set(item) - _FIELDS[kind] - {"type", "id"}):
        yield f"Unknown parameter: '{name}'."
    if kind == "message":
        yield from _message_problems(item)
    elif kind == "function_call":
        yield from _call_problems(item)
    elif kind == "function_call_output":
        yield from _output_problems(item)
    else:
        yield from _reasoning_problems(item, model)


def _message_problems(item: Mapping[str, Any]) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in _PARTS:
        yield f"Invalid value: {role!r:.80}. It is the role of no message."
        return
    if "phase" in item and (role != "assistant" or item["phase"] not in ("commentary", "final_answer")):
        yield f"Invalid value: {item['phase']!r:.80} for the 'phase' of a message of the {role}."
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    yield from _parts_problems(content, _PARTS[role])


def _parts_problems(content: Any, allowed: frozenset[str]) -> Iterator[str]:
    if not isinstance(content, list) or not content:
        yield "Invalid 'content': expected at least one part."
        return
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            yield f"Invalid value: {kind!r:.80}. Supported values are: {', '.join(sorted(allowed))}."
            continue
        for name in sorted(set(part) - _PART_FIELDS[kind] - {"type"}):
            yield f"Unknown parameter: '{name}'."
        if kind in ("input_text", "output_text", "refusal"):
            yield from _text_problems(part.get("refusal" if kind == "refusal" else "text"))
        elif kind == "input_image":
            url = part.get("image_url")
            if not isinstance(url, str) or not url.startswith(("data:image/", "https://", "http://")):
                yield f"Invalid 'image_url': expected a URL of an image, but got {url!r:.40}."
        elif not part.get("filename") or not str(part.get("file_data")).startswith("data:"):
            yield "Missing required parameter: 'filename' and 'file_data', a data URL."


def _text_problems(text: Any) -> Iterator[str]:
    if not isinstance(text, str) or not text or text.isspace():
        yield f"Invalid text: it must be a string and not empty (got {text!r:.80})."
    elif len(text) > _MOST_TEXT:
        yield f"Invalid text: string too long. Expected a string with maximum length {_MOST_TEXT}."


def _call_problems(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _id_problems(item.get("call_id"))
    name = item.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"Invalid 'name': {name!r:.80} does not match ^[a-zA-Z0-9_-]+$."
    try:
        arguments = json.loads(str(item.get("arguments")))
    except ValueError:
        arguments = None
    if not isinstance(item.get("arguments"), str) or not isinstance(arguments, dict):
        yield f"Invalid 'arguments': they must be the text of a JSON object (got {item.get('arguments')!r:.80})."


def _output_problems(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _id_problems(item.get("call_id"))
    output = item.get("output")
    yield from _text_problems(output) if isinstance(output, str) else _parts_problems(output, _INPUT_PARTS)


def _id_problems(call_id: Any) -> Iterator[str]:
    if not isinstance(call_id, str) or not call_id:
        yield "Missing required parameter: 'call_id'."
    elif len(call_id) > _MOST_ID:
        yield f"Invalid 'call_id': string too long. Expected a string with maximum length 64, but got {len(call_id)}."


def _reasoning_problems(item: Mapping[str, Any], model: str) -> Iterator[str]:
    if not isinstance(item.get("summary"), list):
        yield "Missing required parameter: 'summary'."
    content = item.get("encrypted_content")
    thought = decrypted(content)
    if thought is None or thought[0] != model:
        yield f"The encrypted content {content!r:.20} could not be verified."


def order_problems(
    items: Sequence[Mapping[str, Any]], model: str, thoughts: Mapping[tuple[str, str], tuple[str, ...]]
) -> Iterator[str]:
    """Yield what is wrong with how items go together: calls and their results, thoughts and what they led to."""
    yield from _pairing_problems(items)
    seen: set[Any] = set()
    for number, item in enumerate(items):
        if item.get("type") == "reasoning":
            seen.add(item.get("encrypted_content"))
            thought = decrypted(item.get("encrypted_content"))
            follower = next((other for other in items[number + 1 :] if other.get("type") != "reasoning"), {})
            if thought is not None and (follower.get("type") != thought[2] or follower.get("role") == "user"):
                yield "Item of type 'reasoning' was provided without its required following item."
        elif item.get("type") == "function_call" and not seen.issuperset(
            thoughts.get((model, str(item.get("call_id"))), ())
        ):
            yield "Item of type 'function_call' was provided without its required 'reasoning' item."


def _pairing_problems(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every call has one result behind it, and every result a call before it; no id comes twice."""
    calls: list[Any] = []
    answered: list[Any] = []
    for item in items:
        call_id = str(item.get("call_id"))
        if item.get("type") == "function_call":
            if call_id in calls:
                yield f"Duplicate item found with call_id {call_id}. Remove duplicate items from your input."
            calls.append(call_id)
        elif item.get("type") == "function_call_output":
            if call_id not in calls or call_id in answered:
                yield f"No tool call found for function call output with call_id {call_id}."
            answered.append(call_id)
    for call_id in calls:
        if call_id not in answered:
            yield f"No tool output found for function call {call_id}."
