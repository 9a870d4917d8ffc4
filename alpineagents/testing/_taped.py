"""Requests, replies, deltas and errors as the JSON that a cassette holds, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, final

import attrs

from .. import _errors
from .._errors import ProviderError
from ..record._codec import decode_entry, encode_entry
from ..record._entries import Entry, ErrorEntry, MessageEntry, ModelEvent, ModelEventEntry, ModelReplyEntry
from ..record._frozen import thaw
from ..record._json import loads
from ..record._messages import Message, Reply, Request, TextDelta, ThinkingDelta, Usage

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN: Final[dict[str, Any]] = {"system": None, "tools": [], "tool_choice": "auto", "returns": None}
"""What a request says besides the messages where it says nothing."""
_ID: Final = 16
"""Hex digits of a request's id."""


@final
@attrs.frozen(eq=False)
class Form:
    """A request as JSON, and what it is found by."""

    id: str
    """The same for equal requests."""
    fields: dict[str, Any]
    """All but the messages."""
    messages: list[dict[str, Any]]
    hashes: list[str]
    """Of the first message, the first two, and so on."""

    def whole(self) -> dict[str, Any]:
        """Return all of it as one JSON object."""
        return {**self.fields, "messages": self.messages}


@final
class FormMaker:
    """Makes Forms. A message that came before is not made into JSON again."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Message, dict[str, Any], str]] = {}

    def form_of(self, request: Request) -> Form:
        """Return *request* as a Form."""
        fields = {
            "system": request.system,
            "tools": [
                {"name": tool.name, "description": tool.description, "input_schema": thaw(tool.input_schema)}
                for tool in request.tools
            ],
            "tool_choice": request.tool_choice,
            "returns": None if request.returns is None else thaw(request.returns),
        }
        messages: list[dict[str, Any]] = []
        hashes: list[str] = []
        so_far = sha256()
        for message in request.messages:
            made, text = self._json_of(message)
            messages.append(made)
            so_far.update(text.encode() + b"\n")
            hashes.append(so_far.hexdigest())
        so_far.update(_sorted(fields).encode())
        return Form(so_far.hexdigest()[:_ID], fields, messages, hashes)

    def _json_of(self, message: Message) -> tuple[dict[str, Any], str]:
        known = self._made.get(id(message))
        if known is None or known[0] is not message:
            made = _content(MessageEntry(1, 0, _AT, message))
            known = self._made[id(message)] = message, made, _sorted(made)
        return known[1], known[2]


def _sorted(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _content(entry: Entry) -> Any:
    """Return the content of an entry in its saved form."""
    return loads(encode_entry(entry))["content"]


def _from_content(kind: str, content: Any, **fields: Any) -> Entry:
    saved = {"seq": 1, "kind": kind, "turn": 1, "at": "2026-01-01T00:00:00Z", "content": content, **fields}
    return decode_entry(json.dumps(saved).encode())


# Replies


def reply_fields(reply: Reply) -> Any:
    """Return a reply as JSON."""
    return _content(ModelReplyEntry(1, 1, _AT, reply))


def reply_of(fields: Any) -> Reply:
    """Return the reply; ValueError where it isn't one."""
    entry = _from_content("model_reply", fields)
    if not isinstance(entry, ModelReplyEntry):
        raise AssertionError("a model_reply is a ModelReplyEntry")
    return entry.content


# What was told while it came


def told_fields(told: Sequence[TextDelta | ThinkingDelta | ModelEvent]) -> list[Any]:
    """Return deltas and events as JSON: text as it is, the others by their kind."""
    fields: list[Any] = []
    for event in told:
        match event:
            case TextDelta():
                fields.append(event.text)
            case ThinkingDelta():
                fields.append({"thinking": event.text})
            case _:
                fields.append({"event": _content(ModelEventEntry(1, 1, _AT, event))})
    return fields


def told_of(fields: Sequence[Any]) -> Iterator[TextDelta | ThinkingDelta | ModelEvent]:
    """Yield the deltas and events."""
    for each in fields:
        if isinstance(each, str):
            yield TextDelta(each)
        elif "thinking" in each:
            yield ThinkingDelta(each["thinking"])
        else:
            entry = _from_content("model_event", each["event"])
            if not isinstance(entry, ModelEventEntry):
                raise AssertionError("a model_event is a ModelEventEntry")
            yield entry.content


# Errors


_ABOUT: Final = ("status", "request_id", "body", "provider", "retry_after")


def error_fields(error: ProviderError) -> dict[str, Any]:
    """Return an error as JSON."""
    about = {name: getattr(error, name) for name in _ABOUT if getattr(error, name) is not None}
    fields: dict[str, Any] = {"type": type(error).__name__, "message": str(error), **about}
    if isinstance(error.usage, Usage):
        fields["usage"] = loads(encode_entry(ErrorEntry(1, 0, _AT, "", usage=error.usage))).get("usage", {})
    return fields


def error_of(fields: dict[str, Any]) -> ProviderError:
    """Return the error, of the class it had where that is one of the library's."""
    kind = getattr(_errors, fields["type"], ProviderError)
    if not (isinstance(kind, type) and issubclass(kind, ProviderError)):
        kind = ProviderError
    error = kind(fields["message"], **{name: fields[name] for name in _ABOUT if name in fields})
    if "usage" in fields:
        entry = _from_content("error", "", usage=fields["usage"])
        error.usage = entry.usage if isinstance(entry, ErrorEntry) else None
    return error
