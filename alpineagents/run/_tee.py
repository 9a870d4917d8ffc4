"""Several watchers of one run: the Reporter of its Agent, and the streams that follow it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, final

from .._contracts import Reporter
from ..record._blocks import ResultBlock, ToolCall
from ..record._entries import ModelEvent, ToolOutcome
from ..record._messages import Reply
from ..state import State

if TYPE_CHECKING:
    from ._budget import Purse


class Sink(Reporter):
    """Follows a run and all below it, whichever Reporters they have."""

    @abstractmethod
    def begin(self, state: State, purse: Purse) -> None:
        """A run is about to begin; *purse* counts what it uses, with all below it."""

    @abstractmethod
    def end(self, state: State, error: BaseException | None) -> None:
        """A run for which ``begin`` was called has ended, and is saved as far as it could be."""


@final
class Tee(Reporter):
    """Tells every sink, then the Reporter: what that raises comes out of the run, and the sinks know before."""

    def __init__(self, reporter: Reporter | None, sinks: tuple[Sink, ...]) -> None:
        self.reporter = reporter
        """The run's own, without the sinks."""
        self._all: tuple[Reporter, ...] = sinks if reporter is None else (*sinks, reporter)

    def on_run_start(self, state: State, agent: Any) -> None:
        for each in self._all:
            each.on_run_start(state, agent)

    def on_think_start(self, state: State) -> None:
        for each in self._all:
            each.on_think_start(state)

    def on_text(self, state: State, text: str) -> None:
        for each in self._all:
            each.on_text(state, text)

    def on_thinking(self, state: State, text: str) -> None:
        for each in self._all:
            each.on_thinking(state, text)

    def on_model_event(self, state: State, event: ModelEvent) -> None:
        for each in self._all:
            each.on_model_event(state, event)

    def on_reply(self, state: State, reply: Reply) -> None:
        for each in self._all:
            each.on_reply(state, reply)

    def on_tool_start(self, state: State, call: ToolCall) -> None:
        for each in self._all:
            each.on_tool_start(state, call)

    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        for each in self._all:
            each.on_tool_progress(state, call, done, total, text)

    def on_tool_end(self, state: State, call: ToolCall, result: tuple[ResultBlock, ...], outcome: ToolOutcome) -> None:
        for each in self._all:
            each.on_tool_end(state, call, result, outcome)

    def on_run_end(self, state: State, error: BaseException | None) -> None:
        for each in self._all:
            each.on_run_end(state, error)

    def hears_entries(self) -> bool:
        return self.reporter is not None and self.reporter.hears_entries()


def tee(reporter: Reporter | None, sinks: tuple[Sink, ...]) -> Reporter | None:
    """Return what tells *reporter* and *sinks*."""
    return Tee(reporter, sinks) if sinks else reporter


def without_sinks(reporter: Reporter | None) -> Reporter | None:
    """Return the Reporter that a run has itself."""
    return reporter.reporter if isinstance(reporter, Tee) else reporter
