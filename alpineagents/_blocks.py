"""Blocks that Ctrl+C finds whole: entered or not, and left or not.

contextlib's own code can be interrupted, and then the generator of the block stands still, with its nursery open.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TypeVar

import trio

T = TypeVar("T", covariant=True)


class Block(AbstractAsyncContextManager[T]):
    """A block of contextlib's. Ctrl+C that comes while it is entered or left is raised when that is done."""

    def __init__(self, block: AbstractAsyncContextManager[T]) -> None:
        self._block = block

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> T:
        return await self._block.__aenter__()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)
