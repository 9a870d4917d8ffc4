"""Anthropic's Messages API: a Request as JSON, and what decodes the answer.

Source: Anthropic's API reference, "Create a Message", version 2026-10-21, and its pages on thinking, prompt caching,
tool use and structured outputs (December 2026). A message is encoded once and its JSON reused in later requests, so a
turn costs what is new: a cache mark is put behind JSON that stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, final

from .._errors import ProviderError
from ..record._messages import Message, Request, ToolSpec
from ._anthropic_blocks import Encoded, encode_message, encoded_message, merged
from ._anthropic_models import Traits
from ._anthropic_schema import sendable_schema
from ._anthropic_stream import MessagesDecoder
from ._anthropic_thinking import ThinkingPlan
from ._json import dumps, dumps_array, dumps_object
from ._names import sendable_name
from ._once import OncePerMessage
from ._openai_complaints import complaint_of_body
from ._wire import Endpoint, Redact, Settings, error_of_answer

NOTHING_SAID: Final = "(nothing said yet)"
"""What stands for the person where a conversation begins with a reply, or has nothing that can be sent."""
GO_ON: Final = "(go on)"
"""What stands for the person behind a reply at the end: newer models refuse to go on with words of their own."""
_CACHE: Final = {"type": "ephemeral"}
_MARK: Final = b',"cache_control":' + dumps(_CACHE)
_NO_TOOLS: Final = dumps(
    [{"name": "none", "description": "There is no tool now.", "input_schema": {"type": "object", "properties": {}}}]
)
"""What stands for tools where none is shown: without any, the API refuses a conversation that has calls in it."""
_Group: TypeAlias = list[Encoded]
"""Messages of one role, one behind the other: to the API they are one message."""


@final
class MessagesWire:
    """The Messages format for one model at one endpoint. See ``_wire.Wire``."""

    path = "/v1/messages"

    def __init__(self, endpoint: Endpoint, settings: Settings, traits: Traits, thinking: ThinkingPlan) -> None:
        self.endpoint = endpoint
        self._fields = _fixed_fields(endpoint, settings, thinking)
        self._thinking = thinking
        self._temperature = settings.temperature
        self._effort = settings.effort
        self._extra = {key: dumps(value) for key, value in (settings.extra_body or {}).items()}
        self._may_be_parallel = settings.parallel_tool_calls is not False
        self._cache = settings.cache
        self._can_force = traits.forced_tools
        self._stands_in = traits.is_claude and "tools" not in self._extra
        self._paused = False
        self._encoded = OncePerMessage(partial(encode_message, provider=endpoint.provider, model=endpoint.model))

    def continuing(self) -> MessagesWire:
        """Return the same for requests whose last message is a reply that the API paused, and wants back to go on."""
        wire = copy.copy(self)
        wire._paused = True
        return wire

    def decoder(self, redacted: Redact = str) -> MessagesDecoder:
        """Return a new decoder for one answer, whose errors are *redacted*."""
        return MessagesDecoder(self.endpoint, redacted)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> ProviderError:
        """Return the error that an answer with this *status* stands for."""
        complaint = complaint_of_body(body)
        return error_of_answer(
            self.endpoint, complaint, status=status, headers=headers, body=body, retry_after=retry_after
        )

    def encode(self, request: Request) -> bytes:
        """Return the request's JSON."""
        choice = request.tool_choice if request.tools else "auto"
        forced = choice not in ("auto", "none")
        groups = self._groups(request.messages)
        thinks = self._thinking.thinks
        if self._thinking.budgeted and ((forced and self._can_force) or self._began_without_thinking(groups)):
            thinks = False
        cache = self._cache and request.cache
        demand = _demand(choice) if forced and not self._can_force else None
        fields = {**self._fields, "messages": dumps_array(self._messages(groups, thinks, cache, demand))}
        if self._thinking.field is not None and (thinks or not self._thinking.budgeted):
            fields["thinking"] = dumps(self._thinking.field)
        if self._temperature is not None and not thinks:
            fields["temperature"] = dumps(self._temperature)
        if request.system and not request.system.isspace():
            block: dict[str, Any] = {"type": "text", "text": request.system}
            fields["system"] = dumps([{**block, "cache_control": _CACHE} if cache else block])
        if request.tools:
            fields["tools"] = dumps(_tools(request.tools, cache))
            if (sent := self._tool_choice("auto" if demand else choice)) is not None:
                fields["tool_choice"] = dumps(sent)
        elif self._stands_in and any(item.results_end for group in groups for item in group):
            fields["tools"], fields["tool_choice"] = _NO_TOOLS, dumps({"type": "none"})
        if output := self._output(request):
            fields["output_config"] = dumps(output)
        return dumps_object({**fields, **self._extra})

    def _output(self, request: Request) -> dict[str, Any]:
        output: dict[str, Any] = {} if self._effort is None else {"effort": self._effort}
        if request.returns is not None:
            output["format"] = {"type": "json_schema", "schema": sendable_schema(request.returns) or request.returns}
        return output

    def _tool_choice(self, choice: str) -> dict[str, Any] | None:
        if choice == "none":
            return {"type": "none"}
        if choice == "auto" and self._may_be_parallel:
            return None  # The default.
        sent: dict[str, Any] = {"type": "any" if choice == "required" else "tool"}
        if choice == "auto":
            sent = {"type": "auto"}
        elif choice != "required":
            sent["name"] = sendable_name(choice)
        return sent if self._may_be_parallel else {**sent, "disable_parallel_tool_use": True}

    def _groups(self, messages: Sequence[Message]) -> list[_Group]:
        before = messages[:-1] if self._paused else messages
        encoded = self._encoded.of(before)
        if self._paused:
            here = self.endpoint
            encoded.append(encode_message(messages[-1], here.provider, here.model, paused=True))
        groups: list[_Group] = []
        role = ""
        for item in encoded:
            if not item.message:
                continue
            if item.role == role:
                groups[-1].append(item)
            else:
                groups.append([item])
                role = item.role
        return groups

    def _began_without_thinking(self, groups: list[_Group]) -> bool:
        """Whether the turn that goes on began with a reply without thinking, as one of another model does here."""
        first: _Group | None = None
        for group in reversed(groups):
            if group[0].role == "assistant":
                if group is groups[-1] and not self._paused:
                    return False  # A line of the person comes behind it: a new turn.
                first = group
            elif not group[0].results_end and not any(item.results_end for item in group):
                break  # A line of the person, with which the turn began.
        return first is not None and not first[0].opens_with_thinking

    def _messages(self, groups: list[_Group], thinks: bool, cache: bool, demand: bytes | None) -> list[bytes]:
        """All messages. The last two of the person's have a cache mark: the request before this one ended there."""
        made = [merged(group, thinks) if len(group) > 1 else group[0].as_sent(thinks) for group in groups]
        last = len(made) - 1
        person_is_last = bool(groups) and groups[last][0].role == "user"
        if cache:
            newest = last if person_is_last else last - 1
            for number in (newest, newest - 2):
                if number >= 0:
                    made[number] = made[number].removesuffix(b"}]}") + _MARK + b"}]}"
        if person_is_last and demand is not None:
            made[last] = made[last].removesuffix(b"]}") + b"," + demand + b"]}"
        elif not person_is_last and not (made and self._paused):
            made.append(_user(demand or _text(GO_ON if made else NOTHING_SAID)))
        if groups and groups[0][0].role == "assistant":
            made.insert(0, _user(_text(NOTHING_SAID)))
        return made


def _fixed_fields(endpoint: Endpoint, settings: Settings, thinking: ThinkingPlan) -> dict[str, bytes]:
    fields: dict[str, object] = {
        "model": endpoint.model,
        "max_tokens": thinking.max_tokens,
        "stream": True,
        "stop_sequences": settings.stop,
    }
    return {key: dumps(value) for key, value in fields.items() if value is not None}


def _user(content: bytes) -> bytes:
    return encoded_message("user", content)


def _text(text: str) -> bytes:
    return dumps({"type": "text", "text": text})


def _demand(choice: str) -> bytes:
    """What a model that can't be made to call a tool is told instead, behind the rest of the conversation."""
    which = "one of your tools" if choice == "required" else f"your tool {sendable_name(choice)}"
    return _text(f"(Answer this by calling {which}.)")


def _tools(tools: Sequence[ToolSpec], cache: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for tool in tools:
        described: dict[str, Any] = {"name": tool.name, "description": tool.description}
        if not tool.description:
            del described["description"]
        made.append({**described, "input_schema": {"type": "object", **tool.input_schema}})
    if cache:
        made[-1]["cache_control"] = _CACHE
    return made
