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
from ._anthropic_blocks import Encoded, encode_message, merged
from ._anthropic_models import Traits
from ._anthropic_schema import sendable_schema
from ._anthropic_stream import MessagesDecoder
from ._anthropic_thinking import ThinkingPlan
from ._json import dumps, dumps_array, dumps_object
from ._names import sendable_name
from ._once import OncePerMessage
from ._openai_complaints import complaint_of_body
from ._wire import Endpoint, Settings, error_for

NOTHING_SAID: Final = "(nothing said yet)"
"""What stands for the person where a conversation begins with a reply, or has nothing that can be sent."""
GO_ON: Final = "(go on)"
"""What stands for the person behind a reply at the end: newer models refuse to go on with words of their own."""
_CACHE: Final = {"type": "ephemeral"}
_MARK: Final = b',"cache_control":' + dumps(_CACHE) + b"}"
_USER: Final = b'{"role":"user","content":['
_ASSISTANT: Final = b'{"role":"assistant","content":['
_END: Final = b"]}"
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
        self._paused = False
        self._encoded = OncePerMessage(partial(encode_message, provider=endpoint.provider, model=endpoint.model))

    def continuing(self) -> MessagesWire:
        """Return the same for requests whose last message is a reply that the API paused, and wants back to go on."""
        wire = copy.copy(self)
        wire._paused = True
        return wire

    def decoder(self) -> MessagesDecoder:
        """Return a new decoder for one answer."""
        return MessagesDecoder(self.endpoint)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> ProviderError:
        """Return the error that an answer with this *status* stands for."""
        return error_for(
            self.endpoint,
            complaint_of_body(body),
            status=status,
            body=body.decode(errors="replace"),
            request_id=headers.get("request-id") or headers.get("x-request-id"),
            retry_after=retry_after,
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
            if not item[1]:  # By number, as names of a NamedTuple cost twice as much: this runs for every message.
                continue
            if item[0] == role:
                groups[-1].append(item)
            else:
                groups.append([item])
                role = item[0]
        return groups

    def _began_without_thinking(self, groups: list[_Group]) -> bool:
        """Whether the turn that goes on began with a reply without thinking, as one of another model does here."""
        first: _Group | None = None
        for group in reversed(groups):
            if group[0].role == "assistant":
                if group is groups[-1] and not self._paused:
                    return False  # A line of the person comes behind it: a new turn.
                first = group
            elif not any(item.results_end for item in group):
                break
        return first is not None and not first[0].opens_with_thinking

    def _messages(self, groups: list[_Group], thinks: bool, cache: bool, demand: bytes | None) -> list[bytes]:
        """All messages. The last two of the person's have a cache mark: the request before this one ended there."""
        last = len(groups) - 1
        person_is_last = bool(groups) and groups[last][0].role == "user"
        marked = (last if person_is_last else last - 1, last - 2 if person_is_last else last - 3) if cache else ()
        made: list[bytes] = []
        for number, group in enumerate(groups):
            if group[0][0] == "assistant":
                if not made:
                    made.append(_user(_text(NOTHING_SAID)))
                made.append(_ASSISTANT + b",".join([item[1] if thinks else item[3] for item in group]) + _END)
                continue
            content = group[0][1] if len(group) == 1 else merged(group)
            if number in marked:
                content = content[:-1] + _MARK
            if demand is not None and number == last:
                content += b"," + demand
            made.append(_USER + content + _END)
        if not made:
            made.append(_user(demand or _text(NOTHING_SAID)))
        elif not person_is_last and not self._paused:
            made.append(_user(demand or _text(GO_ON)))
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
    return _USER + content + _END


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
