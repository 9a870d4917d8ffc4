"""What is logged of requests: that one was sent again, had to wait, or went to another model; never its contents."""

from __future__ import annotations

import logging

from .._logs import MODELS
from ..record._entries import ModelEvent
from ._wire import Endpoint


def log_event(endpoint: Endpoint, event: ModelEvent, status: int | None, level: int = logging.WARNING) -> None:
    """Log that a request is sent again or had to wait.

    Args:
        endpoint: Who is asked.
        event: What a run is told of it.
        status: HTTP status of the answer for which it is sent again; ``None`` = there was none.
        level: As logging has them.
    """
    model, data = f"{endpoint.provider}/{endpoint.model}", event.data
    if event.kind == "rate_limited":
        MODELS.log(level, "%s: waited %s s for a turn in its RateLimit", model, data["seconds"])
        return
    MODELS.log(
        level,
        "%s: attempt %s in %s s, after %s",
        *(model, data["attempt"], data["wait"], with_status(str(data["error"]), status)),
    )


def with_status(error: str, status: object) -> str:
    """Return an error's class with the HTTP status, where there was one."""
    return error if status is None else f"{error} ({status})"
