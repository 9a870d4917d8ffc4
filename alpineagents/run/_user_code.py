"""Calling code that isn't the library's, such that Ctrl+C can interrupt it wherever it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


@trio.lowlevel.disable_ki_protection
async def unprotected(fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await ``fn(*args)``. Checkpoint: if it is one."""
    return await fn(*args)


@trio.lowlevel.disable_ki_protection
def told(fn: Callable[..., None], *args: Any) -> None:
    """Call a Reporter's method."""
    fn(*args)
