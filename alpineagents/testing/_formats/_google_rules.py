"""What the Gemini API refuses in a request to ``generateContent``.

Source: Google's API reference, GenerateContentRequest, Content and Part, its guides on function calling, thought
signatures, thinking and structured output (v1beta, 2026), and the messages of its own errors.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from ._format import is_unicode
from ._google_config_rules import config_problems, tool_problems

SIGNED_END: Final = "end"
"""What the signature at the end of a reply without calls is of."""

_REQUEST_FIELDS = frozenset(
    (
        *("cachedContent", "contents", "generationConfig", "safetySettings", "serviceTier", "store"),
        *("systemInstruction", "toolConfig", "tools"),
    )
)
_DATA = frozenset(
    (
        *("codeExecutionResult", "executableCode", "fileData", "functionCall", "functionResponse", "inlineData"),
        *("text", "toolCall", "toolResponse"),
    )
)
_PART_FIELDS = _DATA | {"mediaResolution", "partMetadata", "thought", "thoughtSignature", "videoMetadata"}
_MODELS_ONLY = frozenset(("codeExecutionResult", "executableCode", "functionCall", "toolCall"))
_MEDIA = frozenset(
    ("application/pdf", "image/heic", "image/heif", "image/jpeg", "image/png", "image/webp", "text/plain")
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_NO_SIGNATURES = frozenset(("context_engineering_is_the_way_to_go", "skip_thought_signature_validator"))
_OLDER = re.compile(r"gemini-[12]\b")


def thought_signature(model: str, of: Any) -> str:
    """Return the signature that *model* gives; the same for the same, so that it can be checked when it comes back."""
    digest = sha256(f"{model}\n{json.dumps(of, sort_keys=True)}".encode(errors="surrogatepass")).digest()
    return base64.b64encode(b"scripted:" + digest).decode()


def problems(body: Any, model: str) -> Iterator[str]:
    """Yield what the API would refuse in the body of a request to *model*."""
    if not isinstance(body, dict):
        yield "Invalid JSON payload received."
        return
    yield from _unknown(body, _REQUEST_FIELDS, "")
    if not is_unicode(body):
        yield "Invalid JSON payload received. Half of a surrogate pair."
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
        return
    older = _OLDER.match(model) is not None
    if "systemInstruction" in body:
        yield from _system_problems(body["systemInstruction"])
    for number, content in enumerate(contents):
        where = f"contents[{number}]"
        yield from [f"{where}: {problem}" for problem in _content_problems(content, older)]
    if all(isinstance(content, dict) for content in contents):
        yield from _order_problems(contents)
        yield from _signature_problems(contents, model, older)
    yield from config_problems(body, older)
    yield from tool_problems(body, _NAME)


def _unknown(value: Mapping[str, Any], known: frozenset[str], where: str) -> Iterator[str]:
    for name in sorted(set(value) - known):
        place = f" at '{where}'" if where else ""
        yield f'Invalid JSON payload received. Unknown name "{name}"{place}: Cannot find field.'


def _system_problems(system: Any) -> Iterator[str]:
    parts = system.get("parts") if isinstance(system, dict) else None
    if not isinstance(parts, list) or not parts:
        yield "* GenerateContentRequest.system_instruction.parts: must not be empty"
    elif not all(isinstance(part, dict) and set(part) == {"text"} and _says(part["text"]) for part in parts):
        yield "system_instruction: it holds text only, and no empty one"


def _says(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _content_problems(content: Any, older: bool) -> Iterator[str]:
    if not isinstance(content, dict):
        yield f"Invalid value (got {content!r:.80})"
        return
    yield from _unknown(content, frozenset(("parts", "role")), "contents")
    role, parts = content.get("role"), content.get("parts")
    if role not in ("user", "model"):
        yield f"Please use a valid role: user, model. (got {role!r:.80})"
    if not isinstance(parts, list) or not parts:
        yield "contents.parts must not be empty."
        return
    for number, part in enumerate(parts):
        yield from [f"parts[{number}]: {problem}" for problem in _part_problems(part, role, older)]


def _part_problems(part: Any, role: Any, older: bool) -> Iterator[str]:
    if not isinstance(part, dict):
        yield f"Invalid value (got {part!r:.80})"
        return
    yield from _unknown(part, _PART_FIELDS, "parts")
    data = sorted(_DATA & set(part))
    if len(data) != 1:
        yield f"required oneof field 'data' must have one initialized field (got {data})"
        return
    kind, value = data[0], part[data[0]]
    if role == "user" and ("thoughtSignature" in part or "thought" in part or kind in _MODELS_ONLY):
        yield f"{kind}: only the model writes this"
    if role == "model" and kind == "functionResponse":
        yield "functionResponse: the role must be 'user'"
    if kind == "text":
        if not isinstance(value, str) or not (value.strip() or "thoughtSignature" in part):
            yield f"text must not be empty (got {value!r:.80})"
    elif not isinstance(value, dict):
        yield f"{kind}: Invalid value (got {value!r:.80})"
    elif kind == "inlineData":
        yield from _blob_problems(value)
    elif kind == "functionCall":
        yield from _call_problems(value)
    elif kind == "functionResponse":
        yield from _response_problems(value, older)


def _blob_problems(blob: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(blob, frozenset(("data", "mimeType")), "inline_data")
    if blob.get("mimeType") not in _MEDIA:
        yield f"Unsupported MIME type: {blob.get('mimeType')}"
    try:
        empty = not base64.b64decode(str(blob.get("data")), validate=True)
    except binascii.Error:
        empty = True
    if empty:
        yield "inline_data.data: Base64 decoding failed"


def _call_problems(call: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(call, frozenset(("args", "id", "name")), "function_call")
    if not _is_name(call.get("name")):
        yield f"Invalid function name {call.get('name')!r:.80}"
    if not isinstance(call.get("args", {}), dict):
        yield f"function_call.args: must be an object (got {call['args']!r:.80})"


def _response_problems(response: Mapping[str, Any], older: bool) -> Iterator[str]:
    yield from _unknown(response, frozenset(("id", "name", "parts", "response")), "function_response")
    if not _is_name(response.get("name")):
        yield f"Invalid function name {response.get('name')!r:.80}"
    given = response.get("response")
    if not isinstance(given, dict) or not given:
        yield f"function_response.response: must be an object (got {given!r:.80})"
    if "parts" in response:
        if older:
            yield "`function_response.parts` is not supported for this model"
        for part in response["parts"] or [None]:
            if not isinstance(part, dict) or set(part) != {"inlineData"} or not isinstance(part["inlineData"], dict):
                yield f"function_response.parts: Invalid value (got {part!r:.80})"
            else:
                yield from _blob_problems(part["inlineData"])


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _parts(content: Mapping[str, Any], kind: str) -> Sequence[Mapping[str, Any]]:
    """What a content holds of one kind, as far as it is objects."""
    parts = content.get("parts")
    parts = parts if isinstance(parts, list) else []
    return [part for part in parts if isinstance(part, dict) and isinstance(part.get(kind), dict)]


def _order_problems(contents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The person speaks first, and each turn of calls is answered right behind it, in a content that holds no more."""
    if contents[0].get("role") == "model":
        yield "Please ensure that multiturn requests start with a user role."
    called: list[tuple[Any, Any]] = []
    before: Any = None
    for number, content in enumerate(contents):
        calls = [_identity(part["functionCall"]) for part in _parts(content, "functionCall")]
        answers = [_identity(part["functionResponse"]) for part in _parts(content, "functionResponse")]
        if answers and not called:
            yield "Please ensure that function response turn comes immediately after a function call turn."
        elif len(answers) != len(called) or (called and len(content.get("parts") or ()) != len(called)):
            yield (
                "Please ensure that the number of function response parts is equal to the number of function call "
                f"parts of the function call turn. (contents[{number}])"
            )
        elif answers != called:
            yield f"contents[{number}]: function responses of other calls than the turn before: {answers} for {called}"
        if calls and before == "model":
            yield (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        called, before = calls, content.get("role")
    if called:
        yield "Please ensure that the function call turn is followed by its function responses."


def _identity(call: Mapping[str, Any]) -> tuple[Any, Any]:
    return call.get("id"), call.get("name")


def _signature_problems(contents: Sequence[Mapping[str, Any]], model: str, older: bool) -> Iterator[str]:
    """Signatures that this model didn't give, and calls of the current turn that have none."""
    for number, content in enumerate(contents):
        for part in content.get("parts") or ():
            if isinstance(part, dict) and "thoughtSignature" in part and not _is_signed(part, model):
                yield f"contents[{number}]: Thought signature is not valid."
    said = [number for number, content in enumerate(contents) if content.get("role") == "user" and _speaks(content)]
    for number in range(said[-1] if said else 0, len(contents)):
        calls = _parts(contents[number], "functionCall")
        if calls and not older and "thoughtSignature" not in calls[0]:
            yield (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                f"work correctly. (function call {calls[0]['functionCall'].get('name')!r:.80}, contents[{number}])"
            )


def _is_signed(part: Mapping[str, Any], model: str) -> bool:
    """Whether the signature is what the model gave to this part, or says that there is none."""
    signature = part["thoughtSignature"]
    call = part.get("functionCall")
    if isinstance(call, dict):
        return signature in _NO_SIGNATURES or signature == thought_signature(model, call.get("args", {}))
    return bool(signature == thought_signature(model, part.get("text") if part.get("thought") else SIGNED_END))


def _speaks(content: Mapping[str, Any]) -> bool:
    """Whether the person says something: with that a turn begins."""
    return any(isinstance(part, dict) and "functionResponse" not in part for part in content.get("parts") or ())
