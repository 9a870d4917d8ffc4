"""Reporters that break one law each, and one that breaks none. Run by test_laws.py in a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from alpineagents import Message, Reporter
from alpineagents.testing import ReporterLaws

BROKEN: dict[type[HonestReporter], list[str]] = {}
"""Each with the laws it must fail."""


def breaks(*laws: str) -> Any:
    def register(broken: type[HonestReporter]) -> type[HonestReporter]:
        BROKEN[broken] = [f"test_{law}" for law in laws]
        return broken

    return register


class HonestReporter(Reporter):
    """Does what a Reporter must do."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def on_text(self, state: Any, text: str) -> None:
        self.texts[state.id] = self.texts.get(state.id, "") + text

    def on_model_event(self, state: Any, event: Any) -> None:
        if event.data.get("restarted"):
            self.texts[state.id] = ""


@breaks("its_methods_are_plain_and_take_what_they_are_given")
class IsAsync(HonestReporter):
    async def on_run_end(self, state, error):
        await trio.lowlevel.checkpoint()


@breaks("its_methods_are_plain_and_take_what_they_are_given")
class TakesLess(HonestReporter):
    def on_tool_progress(self, state, call, done):
        pass


@breaks("a_run_is_the_same_with_it")
class PrintsInAscii(HonestReporter):
    def on_text(self, state, text):
        text.encode("ascii")


@breaks("a_run_is_the_same_with_it")
class DividesByTheTotal(HonestReporter):
    def on_tool_progress(self, state, call, done, total, text):
        done / total


@breaks("a_run_is_the_same_with_it")
class ChangesTheState(HonestReporter):
    def on_reply(self, state, reply):
        if not reply.tool_calls and state.turn == 1:
            state.add_message(Message.notice("Seen."))


@breaks("a_run_is_the_same_with_it")
class KnowsOnlyMessages(HonestReporter):
    def on_entry(self, state, entry):
        if entry.kind != "run_start":
            assert entry.content.text is not None


@breaks("a_run_is_the_same_with_it")
class RecordsWhatItHears(HonestReporter):
    def on_entry(self, state, entry):
        if entry.kind == "run_start":
            with state.edit_extra_data() as data:
                data["runs"] = data.get("runs", 0) + 1


@breaks("its_methods_are_plain_and_take_what_they_are_given")
class HearsInATask(HonestReporter):
    async def on_entry(self, state, entry):
        await trio.lowlevel.checkpoint()


@breaks("it_watches_many_states_at_once")
class KnowsOneState(HonestReporter):
    def __init__(self):
        super().__init__()
        self.ids = set()

    def on_run_start(self, state, agent):
        if state.id != "state-1":
            self.ids.add(state.id)
            assert len(self.ids) == 1


@breaks("it_works_in_one_trio_run_after_another")
class IsBoundToItsFirstRun(HonestReporter):
    token = None

    def on_run_start(self, state, agent):
        self.token = self.token or trio.lowlevel.current_trio_token()
        assert self.token is trio.lowlevel.current_trio_token()


@breaks("it_leaves_no_task_behind")
class StartsATask(HonestReporter):
    def on_run_start(self, state, agent):
        trio.lowlevel.spawn_system_task(trio.sleep, 0.5)


def tests_of(kind: type[HonestReporter]) -> type[ReporterLaws]:
    """The class a user would write."""

    class Tests(ReporterLaws):
        @pytest.fixture
        def reporter(self) -> Reporter:
            return kind()

    return Tests


TestHonestReporter = tests_of(HonestReporter)
globals().update({f"Test{kind.__name__}": tests_of(kind) for kind in BROKEN})
