"""What ProviderServer needs to know of a provider's format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, final

import attrs

from ...record._blocks import ToolCall
from ...record._messages import Reply


@final
@attrs.frozen
class ReceivedRequest:
    """What a client sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """The JSON; ``None`` where there is none."""


class Format(Protocol):
    """A provider's format."""

    def takes(self, path: str) -> bool:
        """Whether requests at *path*, a query included, are of this format."""
        ...

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that a request carries."""
        ...

    def problems(self, request: ReceivedRequest) -> Iterator[str]:
        """Yield what the provider would refuse in a request, each as its error message."""
        ...

    def is_streamed(self, request: ReceivedRequest) -> bool:
        """Whether the answer shall be an event stream."""
        ...

    def events(self, reply: Reply, request: ReceivedRequest) -> list[bytes]:
        """Return the events that give *reply*, each with the blank line at its end."""
        ...

    def document(self, reply: Reply, request: ReceivedRequest) -> Mapping[str, Any]:
        """Return *reply* as one JSON document."""
        ...

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """Return the body of an error answer."""
        ...


def token_counts(reply: Reply, request: ReceivedRequest) -> tuple[int, int]:
    """Return the tokens read and written: those of the reply's usage where it has one, else about what it was."""
    if reply.usage.requests:
        return reply.usage.input_tokens, reply.usage.output_tokens
    return len(json.dumps(request.body)) // 4, len(reply.text.split()) + 1


def words(text: str) -> list[str]:
    """Return *text* in pieces."""
    return re.findall(r"\S+\s*|\s+", text)


def arguments(call: ToolCall) -> str:
    """Return a call's arguments as the text that a model wrote."""
    return (call.raw_args or "") if call.args is None else json.dumps(call.args)


def is_unicode(value: Any) -> bool:
    """Whether all text in *value* can be written in UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
