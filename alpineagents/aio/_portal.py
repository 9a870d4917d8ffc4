"""Portal: what an asyncio program opens to have Agents run in it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, final, overload

from ..run import Agent
from ..run._run import as_state
from ..state import State, error_text
from ._call import Call
from ._stream import PortalIterator, PortalStream
from ._thread import TrioThread

P = ParamSpec("P")
T = TypeVar("T")


@final
class Portal:
    """A thread that runs trio, for the tasks of an asyncio event loop: ``async with aio.Portal() as portal:``.

    One serves any number of tasks. Entering starts the thread; leaving cancels what still runs, waits until that has
    ended, every State closed and saved, and joins the thread, all without blocking the event loop. Agents, tools,
    Reporters and Humans work in that thread, or in threads below it. What blocks it blocks all runs.

    Reading States, and methods that need no ``await``, such as ``state.add_message(...)``, work in every thread.

    Raises (leaving):
        BaseException: what has made trio itself fail; every call under way then raises a RuntimeError.

    Example:
        >>> import asyncio
        >>> from alpineagents import Agent
        >>> from alpineagents.testing import FakeModel
        >>> async def main():
        ...     async with Portal() as portal:
        ...         return await portal.run(Agent(model=FakeModel(["hello"])).run, "hi")
        >>> asyncio.run(main())
        'hello'
    """

    def __init__(self) -> None:
        self._thread: TrioThread | None = None

    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("this Portal was used already; make a new one: async with aio.Portal() as portal:")
        self._thread = TrioThread()
        await self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        thread = self._thread
        if thread is None:
            raise AssertionError("left before it was entered")
        if not thread.is_here():  # the block is thrown away, its event loop closed
            thread.stop()
            return
        cancelled = await thread.close()
        try:
            if thread.error is not None and isinstance(error, KeyboardInterrupt | SystemExit):
                error.add_note(f"also raised: {error_text(thread.error)}")
            elif thread.error is not None:
                raise thread.error
            if cancelled is not None and error is None:
                raise cancelled
        finally:
            del error, cancelled  # their tracebacks hold this frame

    @overload
    async def run(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn(*args, **kwargs)`` under trio, await what it returns where it can be awaited, and return that.

        So ``await portal.run(agent.run, state)`` runs an Agent, ``await portal.run(store.load, state_id)`` loads a
        State, and ``await portal.run(state.add_message, message)`` returns when the message is in ``messages``, for
        which it may have to wait for a reply or tools, and saved. *fn* is called in the trio thread, in a copy of this
        context: context variables are seen there.

        Checkpoint: yes. Cancelled: *fn* is cancelled as trio cancels, and this waits until it has ended, however often
        it is cancelled; then ``CancelledError`` goes on, or what *fn* raised meanwhile.

        Raises:
            TypeError: *fn* isn't callable.
            RuntimeError: the Portal isn't open in this event loop; or it was closed, or trio has failed, meanwhile.
            BaseException: what *fn* raised, the same object.
        """
        _refuse_if_no_function(fn, "portal.run", "await portal.run(agent.run, state)")
        call: Call[Any] = Call(self._opened("portal.run"), partial(fn, *args, **kwargs))
        cancelled = await call.until_ended()
        try:
            return call.result(cancelled)
        finally:
            del cancelled  # its traceback holds this frame

    def stream(self, agent: Agent, prompt_or_state: str | State) -> PortalStream:
        """Return the run of a State, as an async iterator over its events; a prompt makes a State.

        ``async with portal.stream(agent, state) as run:``, and in the block ``async for event in run:``, gives what
        ``agent.stream`` gives. Leaving the block early cancels the run and waits until it has ended. Without the block,
        ``async for event in portal.stream(agent, state):``, leaving the loop early cancels it, too, but doesn't wait.

        Raises:
            TypeError: no Agent, or neither a prompt nor a State.
            RuntimeError: the Portal isn't open in this event loop.
        """
        if not isinstance(agent, Agent):
            raise TypeError(f"stream takes an Agent, not {type(agent).__name__}: portal.stream(agent, state)")
        self._opened("portal.stream")
        return PortalStream(partial(self._opened, "portal.stream"), agent, as_state(prompt_or_state))

    def iterate(
        self,
        fn: Callable[P, AsyncIterable[T] | AbstractAsyncContextManager[AsyncIterable[T]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> PortalIterator[T]:
        """Return an async iterator over what ``fn(*args, **kwargs)`` gives under trio: ``portal.iterate(state.watch)``.

        ``async with portal.iterate(state.watch, after=3) as entries:``, and in the block ``async for entry in
        entries:``. *fn* is called in the trio thread, in a copy of the context in which the iteration begins.

        Args:
            fn: Returns an async iterable, or a block (``async with``) that gives one.
            args: Its arguments.
            kwargs: Its named arguments.

        Raises:
            TypeError: *fn* isn't callable.
            RuntimeError: the Portal isn't open in this event loop.
        """
        _refuse_if_no_function(fn, "portal.iterate", "portal.iterate(state.watch, after=3)")
        self._opened("portal.iterate")
        return PortalIterator(partial(self._opened, "portal.iterate"), partial(fn, *args, **kwargs))

    def _opened(self, what: str) -> TrioThread:
        """Return the thread, where *what* may use it."""
        thread = self._thread
        if thread is None:
            raise RuntimeError(f"{what}: this Portal isn't open; write: async with aio.Portal() as portal:")
        if not thread.is_here():
            raise RuntimeError(f"{what} {_NOT_HERE}")
        if thread.error is not None:
            raise RuntimeError(f"{what}: the Portal's trio thread has failed") from thread.error
        if thread.closing:
            raise RuntimeError(f"{what}: this Portal is closed; keep its block open until those who use it have ended")
        return thread


_NOT_HERE: Final = (
    "is for the event loop that its Portal was opened in, and this code doesn't run in that one; open a Portal there,"
    " or under trio call it directly: await agent.run(state)"
)


def _refuse_if_no_function(fn: object, what: str, example: str) -> None:
    if callable(fn):
        return
    if inspect.iscoroutine(fn):
        fn.close()  # else Python warns that nobody has awaited it
    raise TypeError(f"{what} takes a function and its arguments, not {type(fn).__name__}: {example}")
