"""Runs conversations, in a nursery of the service: not one of the request that brought the message."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, final

import trio

from alpineagents import (
    Agent,
    ConflictError,
    ExtraDataEntry,
    MessageEntry,
    ModelRequestEntry,
    RunningElsewhereError,
    RunStartEntry,
    State,
    StopEntry,
    StoreError,
)

from .conversations import Conversations

RESTS: Final = "service.rests"
"""Key of ``extra_data``: it is set where no run is wanted until the next message, since one was cancelled or failed."""

log = logging.getLogger("service")


def wants_run(state: State) -> bool:
    """Whether somebody waits for the model: there is an unanswered message, or a run was cut short.

    Computed from the history alone, so it says the same after a restart.
    """
    if state.finished:
        return False
    has_stopped = False
    for entry in reversed(state.history):
        match entry:
            case MessageEntry():  # also one that came in the last turn of a run: the model hasn't seen it
                return True
            case StopEntry():
                has_stopped = True
            case ModelRequestEntry() if has_stopped:  # it had all messages before it
                return False
            case RunStartEntry():  # a run that ended by itself has a StopEntry behind its start
                return not has_stopped
            case ExtraDataEntry() if RESTS in entry.content:
                return False
    return False


@final
class Runs:
    """At most one run of a conversation at a time, and so many in all.

    Args:
        agent: Who runs them.
        conversations: Where they are.
        at_once: How many runs are on at the same time; the others wait for their turn.
        finish_seconds: How long runs may go on when the service stops, before they are cancelled and saved.
        retry_seconds: How long to wait where another process holds a conversation.
    """

    def __init__(
        self,
        agent: Agent,
        conversations: Conversations,
        *,
        at_once: int,
        finish_seconds: float,
        retry_seconds: float,
    ) -> None:
        self.stopping = trio.Event()
        """Set it to end: no run starts any more."""
        self.ended = trio.Event()
        """Set when all of them have ended, and are saved."""
        self._agent = agent
        self._conversations = conversations
        self._limit = trio.CapacityLimiter(at_once)
        self._finish_seconds = finish_seconds
        self._retry_seconds = retry_seconds
        self._running: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Hold the nursery that runs are in. The end of the block waits until they have ended, and are saved."""
        async with trio.open_nursery() as nursery:
            self._nursery = await nursery.start(self._host)
            try:
                yield
            finally:
                self.stopping.set()

    async def _host(self, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        async with trio.open_nursery() as runs:
            task_status.started(runs)
            await self.stopping.wait()
            runs.cancel_scope.deadline = trio.current_time() + self._finish_seconds
        self.ended.set()

    def is_running(self, state: State) -> bool:
        """Whether it runs, or waits for its turn."""
        return state.id in self._running

    def wake(self, state: State) -> None:
        """Run *state* if it wants that; nothing if a run is on, which looks again at its end. No checkpoint."""
        if self._nursery is not None and not self.stopping.is_set() and not self.is_running(state):
            self._running[state.id] = trio.CancelScope()
            self._nursery.start_soon(self._work, state, name=f"conversation {state.id}")

    async def cancel(self, state: State) -> bool:
        """Cancel the run that is on, or comes; return whether there is one. Until the next message there is no other.

        Raises:
            StoreError: that couldn't be saved: a restart would run it again.
        """
        if not wants_run(state):
            await trio.lowlevel.checkpoint()
            return False
        async with state.edit_extra_data() as data:
            data[RESTS] = len(state.history)
            if self.is_running(state):
                self._running[state.id].cancel()
        return True

    async def _work(self, state: State) -> None:
        try:
            while (wants_run(state) or state.saved < len(state.history)) and not self.stopping.is_set():
                with self._running[state.id]:
                    state = await self._run(state)
                self._running[state.id] = trio.CancelScope()
        finally:
            del self._running[state.id]

    async def _run(self, state: State) -> State:
        """Run it once; return what to look at next: the same State, or what somebody else has made of it."""
        try:
            async with self._limit:
                if self.stopping.is_set():
                    return state
                if wants_run(state):
                    await self._agent.run(state)
                else:  # the end of its last run couldn't be saved
                    await self._conversations.store.save(state)
        except (RunningElsewhereError, ConflictError):
            self._conversations.forget(state)
        except StoreError as error:  # what isn't saved is in memory, and the next run saves it
            log.warning("%s can't be saved: %s", state.id, type(error).__name__)
            await trio.sleep(self._retry_seconds)
            return state
        except Exception as error:  # noqa: BLE001  # one conversation that fails doesn't end the others
            log.warning("the run of %s failed: %s", state.id, type(error).__name__)
            if state.store is not None:
                await self._rest(state)
                return state
            self._conversations.forget(state)  # another process was faster with a new one of this id
        else:
            return state
        return await self._loaded_again(state.id)

    async def _rest(self, state: State) -> None:
        try:
            async with state.edit_extra_data() as data:
                data[RESTS] = len(state.history)
        except StoreError as error:
            log.error("%s can't be saved: %s", state.id, type(error).__name__)

    async def _loaded_again(self, conversation_id: str) -> State:
        """Wait a little and load it; whoever held it has ended, or answered it, by then or later."""
        while True:
            await trio.sleep(self._retry_seconds)
            try:
                return await self._conversations.get(conversation_id)
            except StoreError as error:
                log.warning("%s can't be loaded: %s", conversation_id, type(error).__name__)
