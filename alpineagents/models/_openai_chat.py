"""Chat Completions, the format most servers speak: a Request as JSON, and what decodes the answer.

Source: OpenAI's API reference, "Create chat completion", and what servers accept that copy it (December 2026).
A message is encoded once and its JSON reused in later requests, so a turn costs what is new.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, final

from .._errors import ProviderError
from ..record._blocks import Block, File, Image, RawBlock, ResultBlock, TextBlock, ToolCall, ToolResultBlock, is_blank
from ..record._frozen import FrozenDict
from ..record._messages import Message, Request, ToolSpec
from ._json import dumps, dumps_array, dumps_object
from ._names import sendable_id, sendable_name
from ._once import OncePerMessage
from ._openai_complaints import complaint_of_body
from ._openai_models import rests_for_tools, taken_by
from ._openai_schema import can_be_strict, format_name
from ._openai_stream import ChatDecoder
from ._openai_thinking import echo
from ._wire import Endpoint, Redact, Settings, error_of_answer

EMPTY_RESULT = "(empty)"
NOTHING_SAID = "(nothing said yet)"
"""What stands for the person where a conversation begins with a reply, or has nothing that can be sent."""
_SEEN = dumps({"role": "assistant", "content": "(I have seen the results.)"})
_SPEAKS_BEHIND_RESULTS = re.compile(r"mistral|ministral|devstral|codestral|magistral|pixtral|mixtral", re.IGNORECASE)
"""Models whose servers want the model's word between results and the person's: "Unexpected role 'user' after role
'tool'". Mistral's own says so, and those of others that serve its models (met at NVIDIA, Azure and vLLM)."""


class _Encoded(NamedTuple):
    """A message's JSON, in the parts that the order of a request needs."""

    results: bytes
    """``tool`` messages, joined by commas."""
    attachments: list[bytes]
    """What those couldn't hold: parts of a user message behind all results."""
    rest: bytes
    """The user or assistant message."""


@final
class ChatWire:
    """The Chat Completions format for one model at one endpoint. See ``_wire.Wire``.

    Raises:
        ValueError: the model refuses a setting, as some of OpenAI's do.
    """

    path = "/chat/completions"

    def __init__(self, endpoint: Endpoint, settings: Settings) -> None:
        self.endpoint = endpoint
        if endpoint.house == "openai":
            settings = taken_by(endpoint.model, settings)
        self._fields = _fixed_fields(endpoint, settings)
        self._rests = endpoint.house == "openai" and settings.effort is None and rests_for_tools(endpoint.model)
        self._extra = {key: dumps(value) for key, value in (settings.extra_body or {}).items()}
        self._parallel = settings.parallel_tool_calls
        self._bridges = _SPEAKS_BEHIND_RESULTS.search(f"{endpoint.house}/{endpoint.model}") is not None
        self._encoded = OncePerMessage(partial(_encode, to=endpoint))

    def decoder(self, redacted: Redact = str) -> ChatDecoder:
        """Return a new decoder for one answer, whose errors are *redacted*."""
        return ChatDecoder(self.endpoint, redacted)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> ProviderError:
        """Return the error that an answer with this *status* stands for."""
        complaint = complaint_of_body(body)
        return error_of_answer(
            self.endpoint, complaint, status=status, headers=headers, body=body, retry_after=retry_after
        )

    def encode(self, request: Request) -> bytes:
        """Return the request's JSON."""
        fields = {**self._fields, "messages": dumps_array(self._messages(request))}
        if request.tools:
            fields["tools"] = dumps([_tool(tool) for tool in request.tools])
            if request.tool_choice != "auto":  # The default; some servers refuse to be told so.
                fields["tool_choice"] = dumps(_tool_choice(request.tool_choice))
            if self._parallel is not None:
                fields["parallel_tool_calls"] = dumps(self._parallel)
            if self._rests:
                fields["reasoning_effort"] = b'"none"'  # Refused otherwise, even where it isn't said.
        if request.returns is not None:
            fields["response_format"] = dumps(_response_format(request.returns))
        if self._extra.get("stream") == b"false":
            fields.pop("stream_options", None)  # Refused without a stream.
        return dumps_object({**fields, **self._extra})

    def _messages(self, request: Request) -> list[bytes]:
        """All messages; attachments of results wait until the last result of their turn is out."""
        items: list[bytes] = []
        waiting: list[bytes] = []
        if request.system and not request.system.isspace():
            items.append(dumps({"role": "system", "content": request.system}))
        opening = len(items)
        answered = False  # The last item is a result, and something must stand between it and the person.
        said: list[bytes] = []  # By the person, last of all.
        for message, (results, attachments, rest) in zip(
            request.messages, self._encoded.of(request.messages), strict=True
        ):
            if results:
                items += _in_one(said)
                said = []
                items.append(results)
                waiting += attachments
                answered = self._bridges
            if rest:
                if len(items) == opening and not said and message.role == "assistant":
                    items.append(dumps({"role": "user", "content": NOTHING_SAID}))
                if answered and (waiting or message.role != "assistant"):
                    items.append(_SEEN)
                answered = False
                if waiting:
                    said.append(_user_message(waiting))
                    waiting = []
                if message.role == "assistant":
                    items += _in_one(said)
                    said = []
                    items.append(rest)
                else:
                    said.append(rest)
        if waiting:
            items += [_SEEN] if answered else []
            said.append(_user_message(waiting))
        items += _in_one(said)
        if len(items) == opening:
            items.append(dumps({"role": "user", "content": NOTHING_SAID}))
        return items


def _fixed_fields(endpoint: Endpoint, settings: Settings) -> dict[str, bytes]:
    # OpenAI's reasoning models refuse max_tokens; other servers don't all know the newer name.
    limit = "max_completion_tokens" if endpoint.house == "openai" else "max_tokens"
    fields: dict[str, object] = {
        "model": endpoint.model,
        "stream": True,
        # Mistral refuses what it doesn't know (422, extra_forbidden), and tells the usage by itself.
        "stream_options": None if endpoint.house == "mistral" else {"include_usage": True},
        limit: settings.max_tokens,
        "temperature": settings.temperature,
        "reasoning_effort": settings.effort,
        "stop": settings.stop,
        "seed": settings.seed,
    }
    return {key: dumps(value) for key, value in fields.items() if value is not None}


_USER = b'{"role":"user","content":'


def _in_one(said: list[bytes]) -> list[bytes]:
    """The person's messages in a row as one: the chat templates of some models demand that roles alternate."""
    if len(said) < 2:
        return said
    contents = [message[len(_USER) : -1] for message in said]
    if all(content.startswith(b'"') for content in contents):
        return [b'%b"%b"}' % (_USER, rb"\n\n".join([content[1:-1] for content in contents]))]
    return [b"%b[%b]}" % (_USER, b",".join([_parts_of(content) for content in contents]))]


def _parts_of(content: bytes) -> bytes:
    """The parts of a user message's content, joined by commas."""
    return content[1:-1] if content.startswith(b"[") else b'{"type":"text","text":%b}' % content


def _user_message(parts: list[bytes]) -> bytes:
    return dumps_object({"role": b'"user"', "content": dumps_array(parts)})


def _tool(tool: ToolSpec) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    if not tool.description:
        del function["description"]
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> object:
    if choice in ("none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: FrozenDict) -> dict[str, object]:
    described: dict[str, object] = {"name": format_name(schema), "schema": schema}
    if can_be_strict(schema):
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


def _encode(message: Message, to: Endpoint) -> _Encoded:
    results: list[bytes] = []
    attachments: list[bytes] = []
    others: list[Block] = []
    for block in message.blocks:
        if type(block) is ToolResultBlock:
            call_id = _id(block.call_id, to.house)
            results.append(dumps({"role": "tool", "tool_call_id": call_id, "content": _result_text(block)}))
            attachments += _attachments(block)
        elif not is_blank(block):
            others.append(block)
    rest = _assistant(others, to) if message.role == "assistant" else _user(others)
    return _Encoded(b",".join(results), attachments, dumps(rest) if rest else b"")


def _assistant(blocks: Sequence[Block], to: Endpoint) -> dict[str, object] | None:
    text = "".join([block.text for block in blocks if type(block) is TextBlock])
    calls: list[dict[str, Any]] = []
    for block in blocks:
        if type(block) is ToolCall:
            arguments = dumps(block.args or {}).decode()
            function = {"name": sendable_name(block.name), "arguments": arguments}
            calls.append({"id": _id(block.id, to.house), "type": "function", "function": function})
        elif calls and (extra := _extra_content(block, to.provider)) is not None:
            calls[-1]["extra_content"] = extra  # Stands behind the call it came with.
    if not (text or calls):
        return None
    message: dict[str, object] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = calls
    return {**message, **echo(blocks, to, has_calls=bool(calls))}


def _id(call_id: str, house: str) -> str:
    """The id as this provider takes it; most take any, and some (Moonshot) want their own back as it was."""
    if house == "openai":
        return call_id if len(call_id) <= 40 else sendable_id(call_id, 40)
    if house == "mistral":
        return sendable_id(call_id, 9, alphanumeric=True)
    return call_id


def _extra_content(block: Block, provider: str) -> object:
    if type(block) is RawBlock and block.provider == provider and isinstance(block.raw, FrozenDict):
        return block.raw.get("extra_content")
    return None


def _user(blocks: Sequence[Block]) -> dict[str, object] | None:
    if not blocks:
        return None
    if all(type(block) is TextBlock for block in blocks):
        texts = [block.text for block in blocks if type(block) is TextBlock]
        return {"role": "user", "content": "\n\n".join(texts)}
    parts = [_part(block) for block in blocks if isinstance(block, TextBlock | Image | File)]
    return {"role": "user", "content": parts} if parts else None


def _part(block: ResultBlock) -> dict[str, object]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, Image):
        return {"type": "image_url", "image_url": {"url": _data_url(block)}}
    if block.media_type != "application/pdf":
        return {"type": "text", "text": _document_text(block)}
    name = block.name if block.name.lower().endswith(".pdf") else f"{block.name}.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": _data_url(block)}}


def _data_url(block: Image | File) -> str:
    return f"data:{block.media_type};base64,{base64.b64encode(block.data).decode()}"


def _document_text(file: File) -> str:
    return f"[{file.name}]\n{file.data.decode(errors='replace')}"


def _result_text(result: ToolResultBlock) -> str:
    """The result as text, all a ``tool`` message can hold: what else it has follows in a user message."""
    texts: list[str] = []
    for block in result.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, Image):
            texts.append("(an image: it follows in a user message)")
        elif _is_attachment(block):
            texts.append(f"({block.name}: it follows in a user message)")
        else:
            texts.append(_document_text(block))
    return "\n".join([text for text in texts if text and not text.isspace()]) or EMPTY_RESULT


def _is_attachment(block: ResultBlock) -> bool:
    return isinstance(block, Image) or (isinstance(block, File) and block.media_type == "application/pdf")


def _attachments(result: ToolResultBlock) -> list[bytes]:
    parts = [dumps(_part(block)) for block in result.content if _is_attachment(block)]
    if not parts:
        return []
    return [dumps({"type": "text", "text": f"From the result of tool call {result.call_id}:"}), *parts]
