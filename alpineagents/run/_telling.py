"""Telling a Reporter of what is recorded while a State is run: each entry once, in the order of the history.

Entries are told in two places: before whatever else the Reporter is told, and in a task that wakes when something was
recorded, in whichever thread. Both go on from the same position, in the run's own thread, so the order is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, final

import trio

from .._contracts import Reporter
from ..record._blocks import ResultBlock, ToolCall
from ..record._entries import ModelEvent, ToolOutcome
from ..record._messages import Reply
from ..state import State
from ._groups import most_important, parts
from ._user_code import told

T = TypeVar("T")


@final
class Teller(Reporter):
    """Stands in a Reporter's place for one State, from now on: tells it of entries, and of all else.

    A commit may be in any thread, but entries are told in the trio run that the Teller was made in alone. Where
    somebody acts on the State in another one, what that tells of may come before entries that led to it.
    """

    def __init__(self, reporter: Reporter, state: State) -> None:
        self.reporter = reporter
        """Who is told."""
        self.failure: BaseException | None = None
        """What ``on_entry`` raised in the task of ``during``, which has cancelled the work for it."""
        self._state = state
        self._next = state.snapshot_now().length
        self._token = trio.lowlevel.current_trio_token()
        self._ended = False
        self._is_behind = trio.Event()
        self._looks_soon = False

    @trio.lowlevel.enable_ki_protection
    async def during(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await ``work()``, and tell of each entry soon after it was recorded.

        Raises:
            Exception: what the work raised. Where that was cancelled since ``on_entry`` raised something, that.
        """
        results: list[T] = []
        errors: list[BaseException] = []
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope, name=f"reporter of {self._state.id}")
                try:
                    results.append(await work())
                except BaseException as error:  # noqa: BLE001  # raised again below, when the task has ended
                    errors.append(error)
                nursery.cancel_scope.cancel()
        except BaseException as group:  # noqa: BLE001  # raised again below
            errors.extend(parts(group))
        if self.failure is not None:
            errors.append(self.failure)
        if errors:
            raise most_important(errors)
        return results[0]

    @trio.lowlevel.enable_ki_protection
    async def _watch(self, around: trio.CancelScope) -> None:
        with self._state.heard_by(self):
            while not (failures := self._tell_entries()):
                self._is_behind = trio.Event()
                await self._is_behind.wait()
        self.failure = most_important(failures)  # not raised here: a nursery would make another of a group
        around.cancel()

    def notice(self) -> None:
        """Have what was recorded told, unless something else does so first. Safe in any thread and signal handler."""
        if self._looks_soon:
            return
        # No call in between, so Ctrl+C can't come there. What is recorded in between, in a thread or a signal handler,
        # is seen by the look that is about to be asked for.
        self._looks_soon = True
        try:
            self._token.run_sync_soon(self._look)
        except BaseException as error:
            self._looks_soon = False
            if not isinstance(error, trio.RunFinishedError):
                raise  # else what this is about is over, too

    def _look(self) -> None:
        """Wake the task, unless all was told meanwhile, as it mostly was: waking it costs as much as telling a turn."""
        self._looks_soon = False
        if self._next < self._state.snapshot_now().length:
            self._is_behind.set()

    def end(self) -> list[BaseException]:
        """Tell of what is left, and of no more. Returns what ``on_entry`` raised."""
        failures = self._tell_entries()
        self._ended = True
        return failures

    def _tell_entries(self) -> list[BaseException]:
        """Tell of the entries that are new by now, not of those that ``on_entry`` records: that might never end.

        Returns what ``on_entry`` raised.
        """
        failures: list[BaseException] = []
        if self._ended or trio.lowlevel.current_trio_token() is not self._token:
            return failures
        history = self._state.snapshot_now().history
        while self._next < len(history):
            entry = history[self._next]
            self._next += 1
            try:
                told(self.reporter.on_entry, self._state, entry)
            except BaseException as failure:  # noqa: BLE001  # raised by who is told of it
                failures.append(failure)
        return failures

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        """Call the Reporter's *method*, after the entries before it; also where it has raised for one of those."""
        failures = self._tell_entries()
        try:
            told(method, *args)
        except BaseException as failure:  # noqa: BLE001  # raised again below
            failures.append(failure)
        if failures:
            raise most_important(failures)

    # What a Reporter is told of besides

    @trio.lowlevel.enable_ki_protection
    def on_run_start(self, state: State, agent: Any) -> None:
        self._tell(self.reporter.on_run_start, state, agent)

    @trio.lowlevel.enable_ki_protection
    def on_think_start(self, state: State) -> None:
        self._tell(self.reporter.on_think_start, state)

    @trio.lowlevel.enable_ki_protection
    def on_text(self, state: State, text: str) -> None:
        self._tell(self.reporter.on_text, state, text)

    @trio.lowlevel.enable_ki_protection
    def on_thinking(self, state: State, text: str) -> None:
        self._tell(self.reporter.on_thinking, state, text)

    @trio.lowlevel.enable_ki_protection
    def on_model_event(self, state: State, event: ModelEvent) -> None:
        self._tell(self.reporter.on_model_event, state, event)

    @trio.lowlevel.enable_ki_protection
    def on_reply(self, state: State, reply: Reply) -> None:
        self._tell(self.reporter.on_reply, state, reply)

    @trio.lowlevel.enable_ki_protection
    def on_tool_start(self, state: State, call: ToolCall) -> None:
        self._tell(self.reporter.on_tool_start, state, call)

    @trio.lowlevel.enable_ki_protection
    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        self._tell(self.reporter.on_tool_progress, state, call, done, total, text)

    @trio.lowlevel.enable_ki_protection
    def on_tool_end(self, state: State, call: ToolCall, result: tuple[ResultBlock, ...], outcome: ToolOutcome) -> None:
        self._tell(self.reporter.on_tool_end, state, call, result, outcome)

    @trio.lowlevel.enable_ki_protection
    def on_run_end(self, state: State, error: BaseException | None) -> None:
        try:
            self._tell(self.reporter.on_run_end, state, error)
        finally:
            self._ended = True
