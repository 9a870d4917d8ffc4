"""The Responses API, stateless: a Request as JSON, and what decodes the answer.

Source: OpenAI's API reference, "Create a model response", its guides on reasoning, function calling and file inputs
(December 2026), and OpenAI's own client Codex, which sends items without ids as well.

Nothing is stored at the server (``store: false``), so every request has the whole conversation, and no ids of items,
which the server would look up in vain. The model's thoughts go back encrypted, each right before what it led to, or
not at all; another organization (at Azure: tenant) can't read them. The system prompt goes as ``instructions``: all
servers that copy this API know it, and not all know the role ``developer``. A message is encoded once and its JSON
reused in later requests, so a turn costs what is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, final

from .._errors import ProviderError
from ..record._blocks import Block, RawBlock, TextBlock, ThinkingBlock, ToolCall, ToolResultBlock, is_blank
from ..record._frozen import FrozenDict
from ..record._messages import Message, Request
from ._json import dumps, dumps_array, dumps_object
from ._names import sendable_id, sendable_name
from ._once import OncePerMessage
from ._openai_chat import NOTHING_SAID
from ._openai_complaints import complaint_of_body
from ._openai_models import reasons, taken_by
from ._responses_items import MESSAGE, REASONING, REFUSAL, TEXT
from ._responses_parts import answer_format, function, output, user_parts
from ._responses_stream import ResponsesDecoder
from ._wire import Endpoint, Redact, Settings, error_of_answer

_NONE: Final = ""
"""In place of a model: none that could read encrypted thoughts."""
_KEY_BYTES: Final = 4_096
"""So much of a conversation's beginning tells it from others."""


@final
class ResponsesWire:
    """The Responses format for one model at one endpoint. See ``_wire.Wire``.

    Raises:
        ValueError: the model refuses a setting.
    """

    path = "/responses"

    def __init__(self, endpoint: Endpoint, settings: Settings) -> None:
        self.endpoint = endpoint
        settings = taken_by(endpoint.model, settings)
        extra = settings.extra_body or FrozenDict()
        self._fields = {key: dumps(value) for key, value in _fixed_fields(endpoint, settings, extra).items()}
        self._text = _object(extra.get("text"))
        merged = [key for key in ("reasoning", "text") if isinstance(extra.get(key), FrozenDict)]
        self._extra = {key: dumps(value) for key, value in extra.items() if key not in merged}
        self._parallel = settings.parallel_tool_calls
        self._caches = settings.cache and endpoint.house == "openai"
        self._encoded = OncePerMessage(partial(_encode, provider=endpoint.provider, model=endpoint.model))

    def decoder(self, redacted: Redact = str) -> ResponsesDecoder:
        """Return a new decoder for one answer, whose errors are *redacted*."""
        return ResponsesDecoder(self.endpoint, redacted)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> ProviderError:
        """Return the error that an answer with this *status* stands for."""
        complaint = complaint_of_body(body)
        return error_of_answer(
            self.endpoint, complaint, status=status, headers=headers, body=body, retry_after=retry_after
        )

    def encode(self, request: Request) -> bytes:
        """Return the request's JSON."""
        system = request.system if request.system and not request.system.isspace() else None
        items = self._items(request.messages)
        fields = {**self._fields, "input": dumps_array(items)}
        if system is not None:
            fields["instructions"] = dumps(system)
        if self._caches and request.cache:
            fields["prompt_cache_key"] = dumps(_cache_key(system or "", items[0]))
        if request.tools:
            fields["tools"] = dumps([function(tool) for tool in request.tools])
            if request.tool_choice != "auto":  # The default.
                fields["tool_choice"] = dumps(_tool_choice(request.tool_choice))
            if self._parallel is not None:
                fields["parallel_tool_calls"] = dumps(self._parallel)
        text = {} if request.returns is None else {"format": answer_format(request.returns)}
        if text or self._text:
            fields["text"] = dumps({**text, **self._text})
        return dumps_object({**fields, **self._extra})

    def leave_out_thoughts(self, messages: Sequence[Message]) -> bool:
        """Send these messages without their thoughts from now on; return whether there are any."""
        return self._encoded.make_anew(messages, partial(_encode, provider=self.endpoint.provider, model=_NONE))

    def _items(self, messages: Sequence[Message]) -> list[bytes]:
        """The items of each message that has any, joined by commas."""
        items: list[bytes] = []
        for message, encoded in zip(messages, self._encoded.of(messages), strict=True):
            if encoded:
                if not items and message.role == "assistant":
                    items.append(dumps(_message("user", _TEXT_FOR_NOBODY)))
                items.append(encoded)
        return items or [dumps(_message("user", _TEXT_FOR_NOBODY))]


_TEXT_FOR_NOBODY: Final = [{"type": "input_text", "text": NOTHING_SAID}]
"""In place of the person's: not OpenAI, but the chat templates of other servers want one at the beginning."""


def _fixed_fields(endpoint: Endpoint, settings: Settings, extra: Mapping[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {
        "model": endpoint.model,
        "stream": True,
        "store": False,
        # "Encrypted content is not supported with this model", says one that has none.
        "include": None if reasons(endpoint.model) == "never" else ["reasoning.encrypted_content"],
        "max_output_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "reasoning": {**_reasoning(settings), **_object(extra.get("reasoning"))} or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _reasoning(settings: Settings) -> dict[str, str]:
    """How much to think, and whether to tell of it: thoughts are shown as a summary only, and only when asked for."""
    fields: dict[str, str] = {}
    if settings.effort is not None:
        fields["effort"] = settings.effort
    elif settings.thinking is False:
        fields["effort"] = "none"
    if settings.thinking:
        fields["summary"] = "auto"
    return fields


def _cache_key(system: str, beginning: bytes) -> str:
    """The same for all requests of a conversation: OpenAI sends those to the machine that has its beginning in store.

    By OpenAI's guide "Prompt caching" (December 2026), requests with one key and one beginning find each other's cache
    more often, as long as there are fewer than about 15 a minute: a key for everything would be too many.
    """
    return sha256(system.encode(errors="replace")[:_KEY_BYTES] + b"\0" + beginning[:_KEY_BYTES]).hexdigest()[:32]


def _tool_choice(choice: str) -> object:
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def _message(role: str, content: list[dict[str, Any]], **fields: object) -> dict[str, object]:
    return {"type": MESSAGE, "role": role, "content": content, **fields}


def _encode(message: Message, provider: str, model: str) -> bytes:
    """The items that a message becomes, joined by commas: results of calls first."""
    results = [block for block in message.blocks if type(block) is ToolResultBlock]
    others = [block for block in message.blocks if type(block) is not ToolResultBlock]
    items: list[dict[str, object]] = [
        {"type": "function_call_output", "call_id": sendable_id(result.call_id), "output": output(result)}
        for result in results
    ]
    if message.role == "assistant":
        items += _Items(provider, model).of(others)
    elif parts := user_parts(others):
        items.append(_message("user", parts))
    return b",".join([dumps(item) for item in items])


@final
class _Items:
    """Makes the items of a reply from its blocks, in their order."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._items: list[dict[str, object]] = []
        self._thoughts: list[dict[str, object]] = []  # They wait for what they led to: without it, they aren't sent.
        self._content: list[dict[str, Any]] | None = None  # Of the message that is under way.
        self._head: dict[str, object] = {}  # What the next message has besides its content.
        self._refused = False  # The next text is a refusal.

    def of(self, blocks: Sequence[Block]) -> list[dict[str, object]]:
        """Return the items."""
        for block in blocks:
            if type(block) is TextBlock:
                self._add_text(block)
            elif type(block) is ToolCall:
                arguments = dumps(block.args or {}).decode()
                call_id, name = sendable_id(block.id), sendable_name(block.name)
                self._add({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments})
            elif type(block) is ThinkingBlock and block.provider == self._provider:
                self._add_thoughts(block.raw)
            elif type(block) is RawBlock and block.provider == self._provider:
                self._add_raw(block.raw)
        return self._items

    def _add(self, item: dict[str, object]) -> None:
        self._items += [*self._thoughts, item]
        self._thoughts.clear()
        self._content, self._head = None, {}

    def _add_text(self, block: TextBlock) -> None:
        refused, self._refused = self._refused, False
        if is_blank(block):
            return
        if self._content is None:
            content: list[dict[str, Any]] = []
            self._add(_message("assistant", content, **self._head))
            self._content = content
        part = {"type": REFUSAL, "refusal": block.text} if refused else {"type": TEXT, "text": block.text}
        self._content.append(part)

    def _add_thoughts(self, raw: object) -> None:
        """Thoughts go back encrypted, and only to the model that can read them."""
        raw = _object(raw)
        item = _object(raw.get("item"))
        encrypted = item.get("encrypted_content")
        if encrypted and raw.get("model") == self._model:
            summary = item.get("summary") or []
            self._thoughts.append({"type": REASONING, "summary": summary, "encrypted_content": encrypted})
            self._content = None

    def _add_raw(self, raw: object) -> None:
        item = _object(raw)
        if item.get("type") == MESSAGE:
            self._content, self._head = None, {"phase": item["phase"]} if "phase" in item else {}
        elif item.get("type") == REFUSAL:
            self._refused = True
        elif isinstance(item.get("type"), str) and (self._model != _NONE or not item.get("encrypted_content")):
            self._add(item)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, FrozenDict) else {}
