"""What clients send, checked: a fault is a Problem that says what is right."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from typing import Final

from starlette.requests import Request

MOST_BYTES: Final = 64 * 1024
"""Bytes that a body may have."""

_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


class ProblemError(Exception):
    """A request that is answered with an error.

    Args:
        status: The HTTP status code.
        text: What is wrong, and what is right, in a line.
        headers: More headers of the answer.
    """

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


async def read_object(request: Request, *names: str, optional: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the fields of a JSON object of texts: *names*, and those *optional* ones that it has.

    Raises:
        ProblemError: it is too long (413), isn't JSON by its header (415), or not such an object (422).
    """
    raw = await read_body(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError(415, "send JSON, with the header Content-Type: application/json")
    right = "send " + json.dumps(dict.fromkeys(names, "..."))
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or a thousand brackets
        raise ProblemError(422, f"the body is no JSON; {right}") from None
    if not isinstance(body, dict) or not set(names) <= set(body) <= {*names, *optional}:
        raise ProblemError(422, f"the body is no such object; {right}")
    for name, value in body.items():
        if not isinstance(value, str) or not value.strip():
            raise ProblemError(422, f"{name} must be a text that isn't blank; {right}")
    return body


async def read_body(request: Request) -> bytes:
    """Return the body, which is read before anything is answered: else the server hangs up behind the answer.

    A client that keeps its connection would send the next request into that.

    Raises:
        ProblemError: it is too long.
    """
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MOST_BYTES:
                raise ProblemError(413, f"a body may have {MOST_BYTES} bytes; send less", {"Connection": "close"})
    return bytes(body)


def idempotency_key(request: Request) -> str | None:
    """Return what the client calls this message, so that it can send it again and have it there once.

    Raises:
        ProblemError: it is too long, or not of ASCII.
    """
    key = request.headers.get("idempotency-key")
    if key is not None and _KEY.fullmatch(key) is None:
        raise ProblemError(422, "Idempotency-Key must be 1 to 200 ASCII characters without spaces, such as a UUID")
    return key


def count(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a number of the query: ``?limit=20``.

    Raises:
        ProblemError: it is no number from *least* to *most*.
    """
    text = request.query_params.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,15}", text) or not least <= int(text) <= most:
        raise ProblemError(422, f"{name} must be a number from {least} to {most}: ?{name}={default}")
    return int(text)


def last_event_id(request: Request) -> int:
    """Return how many entries the client has seen, by the header that EventSource sends when it connects again.

    Raises:
        ProblemError: it is none of our ids.
    """
    text = request.headers.get("last-event-id", "")
    if text and not re.fullmatch(r"[0-9]{1,15}", text):
        raise ProblemError(422, "Last-Event-ID must be the id of the last event that you have, such as 12")
    return int(text) + 1 if text else 0
