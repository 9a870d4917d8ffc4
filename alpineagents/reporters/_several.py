"""Reporters: several that watch as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import trio

from .._contracts import Reporter
from ..record._blocks import ResultBlock, ToolCall
from ..record._entries import Entry, ModelEvent, ToolOutcome
from ..record._messages import Reply
from ..state import State, error_text


@final
class Reporters(Reporter):
    """A Reporter made of several: each is told everything, in the order in which they are given.

    Where one raises, those behind it are told all the same, and then that is raised. Where several do, it is the first
    error, or before it what ends programs: KeyboardInterrupt, SystemExit. Its notes tell of the others.

    Args:
        *reporters: Reporters, also such as this one; none = nobody is told.

    Raises:
        TypeError: one of them is no Reporter.

    Example:
        >>> from alpineagents import Agent, Reporter
        >>> from alpineagents.testing import FakeModel
        >>> class Prints(Reporter):
        ...     def on_text(self, state, text):
        ...         print(text)
        >>> class Counts(Reporter):
        ...     replies = 0
        ...
        ...     def on_reply(self, state, reply):
        ...         self.replies += 1
        >>> counts = Counts()
        >>> agent = Agent(model=FakeModel(["hello"]), reporter=Reporters(Prints(), counts))
        >>> agent.run_sync("hi")
        hello
        'hello'
        >>> counts.replies
        1
    """

    def __init__(self, *reporters: Reporter) -> None:
        given: tuple[object, ...] = reporters
        for one in given:
            if not isinstance(one, Reporter):
                kind = f"the class {one.__name__}" if isinstance(one, type) else type(one).__name__
                raise TypeError(f"Reporters takes Reporter objects, not {kind}: Reporters(first, second)")
        self.reporters: Final = reporters
        """All, in order."""

    def __repr__(self) -> str:
        return f"Reporters({', '.join([repr(reporter) for reporter in self.reporters])})"

    def on_run_start(self, state: State, agent: Any) -> None:
        _tell_all([each.on_run_start for each in self.reporters], state, agent)

    def on_think_start(self, state: State) -> None:
        _tell_all([each.on_think_start for each in self.reporters], state)

    def on_text(self, state: State, text: str) -> None:
        _tell_all([each.on_text for each in self.reporters], state, text)

    def on_thinking(self, state: State, text: str) -> None:
        _tell_all([each.on_thinking for each in self.reporters], state, text)

    def on_model_event(self, state: State, event: ModelEvent) -> None:
        _tell_all([each.on_model_event for each in self.reporters], state, event)

    def on_reply(self, state: State, reply: Reply) -> None:
        _tell_all([each.on_reply for each in self.reporters], state, reply)

    def on_tool_start(self, state: State, call: ToolCall) -> None:
        _tell_all([each.on_tool_start for each in self.reporters], state, call)

    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        _tell_all([each.on_tool_progress for each in self.reporters], state, call, done, total, text)

    def on_tool_end(self, state: State, call: ToolCall, result: tuple[ResultBlock, ...], outcome: ToolOutcome) -> None:
        _tell_all([each.on_tool_end for each in self.reporters], state, call, result, outcome)

    def on_entry(self, state: State, entry: Entry) -> None:
        _tell_all([each.on_entry for each in self.reporters], state, entry)

    def hears_entries(self) -> bool:
        """Return whether one of them does."""
        return any(reporter.hears_entries() for reporter in self.reporters)

    def on_run_end(self, state: State, error: BaseException | None) -> None:
        _tell_all([each.on_run_end for each in self.reporters], state, error)


@trio.lowlevel.enable_ki_protection
def _tell_all(methods: list[Callable[..., None]], *args: Any) -> None:
    failures: list[BaseException] = []
    for method in methods:
        try:
            _tell(method, *args)
        except BaseException as failure:  # noqa: BLE001  # raised again below
            failures.append(failure)
    if failures:
        raise _first(failures)


@trio.lowlevel.disable_ki_protection
def _tell(method: Callable[..., None], *args: Any) -> None:
    """Call *method* such that Ctrl+C can interrupt it."""
    method(*args)


def _first(failures: list[BaseException]) -> BaseException:
    """Return what leaves: what ends programs before any error. The others are notes on it."""
    first = next((failure for failure in failures if not isinstance(failure, Exception)), failures[0])
    for other in failures:
        if other is not first:
            first.add_note(f"also raised: {error_text(other)}")
    return first
