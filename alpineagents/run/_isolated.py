"""Awaiting something in a context of its own, as a task has one, without the cost of a task."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar, final

import trio

T = TypeVar("T")


@final
class Isolated(Generic[T]):
    """``await Isolated(coroutine)``: context variables that it sets are seen in it and below, not by who awaits it.

    Costs 1.5 µs, a nursery with a task 20. trio's ``Task.iter_await_frames`` doesn't see what is behind it.

    ``trio.from_thread.run`` gives the task that waits for the thread another context for a while: then that one counts.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, task = self._coroutine, trio.lowlevel.current_task()
        around, own = task.context, copy_context()
        resume: Callable[[Any], Any] = coroutine.send
        sent: Any = None
        while True:
            try:
                trap = own.run(resume, sent) if task.context is around else resume(sent)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # what the coroutine returned
            finally:
                sent = None  # It may hold what comes out of here, whose traceback holds this frame.
            try:
                resume, sent = coroutine.send, (yield trap)
            except BaseException as error:  # noqa: BLE001  # thrown into the coroutine, GeneratorExit too
                resume, sent = coroutine.throw, error
