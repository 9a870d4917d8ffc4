"""ReporterLaws: the test class that any Reporter must pass, ours and yours."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
import trio

from ..._contracts import Emit, Model, Progress, Reporter
from ..._errors import RateLimitError, ToolError
from ...record._blocks import TextBlock, ToolCall
from ...record._entries import Entry, ModelEvent, ToolResultEntry
from ...record._messages import Message, Reply, Request, TextDelta, ThinkingDelta
from ...run import Agent
from ...state import State
from ...tools import DenyByName, tool
from ...tools._permissions import AllowByDefault
from .._fake_model import FakeModel, Item
from ._kit import law, system_tasks


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail() -> None:
    """Fail in a way that the model may know."""
    raise ToolError("(no)")


@tool
async def crash() -> None:
    """Fail in a way that stops the run."""
    raise KeyError("crash")


@tool
async def count(progress: Progress) -> str:
    """Tell how far it is."""
    progress(0)
    progress(1, 3, "one of three")
    progress(3, 3.0)
    return "counted"


@tool
def wait() -> None:
    """Do something in a thread."""


@tool
def write(state: State, text: str) -> None:
    """Record this and that, in a thread."""
    state.add_message(Message.notice(text))
    with state.edit_extra_data() as data:
        data["written"] = text


@tool
async def stay() -> None:
    """Never end."""
    await trio.sleep_forever()


class _Talkative(Model):
    """Tells all that a model can tell."""

    name = "fake/talkative"

    async def respond(self, request: Request, emit: Emit) -> Reply:
        await trio.lowlevel.checkpoint()
        emit(ThinkingDelta("Hm\x1b[31m"))
        emit(TextDelta("Hel"))
        emit(ModelEvent("retry", "sent again", {"restarted": True, "attempt": 2}))
        for text in ("Hello", ", ", "", "you.\r\n\0 🐛 [/b] {x} \ud83d"):
            emit(TextDelta(text))
        emit(ModelEvent("own word", "", {}))
        return Reply((TextBlock("Hello, you."),), self.name, "stop")


def _call(number: int, name: str, **args: object) -> ToolCall:
    return ToolCall(f"call_{number}", name, args)


def _agent(*script: Item, **settings: Any) -> Agent:
    tools = settings.pop("tools", [add, fail, crash, count, wait, write, stay])
    return Agent(**{"model": FakeModel(script), "tools": tools, "name": "agent", **settings})


def _run(*script: Item, **settings: Any) -> Callable[[Reporter | None], Awaitable[State]]:
    async def run(reporter: Reporter | None) -> State:
        state = State(id="state-1", messages=[Message.user("Go on. [red]{x}")])
        with suppress(RateLimitError, KeyError):
            await _agent(*script, reporter=reporter, **settings).run(state)
        return state

    return run


async def _cancelled(reporter: Reporter | None) -> State:
    state = State(id="state-1", messages=[Message.user("Go on.")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_agent([_call(1, "stay"), _call(2, "add", a=1, b=2)], reporter=reporter).run, state)
        while not any(entry.kind == "tool_result" for entry in state.history):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return state


async def _twice(reporter: Reporter | None) -> State:
    state = State(id="state-1", messages=[Message.user("Go on.")])
    agent = _agent([_call(1, "add", a=1, b=2)], "Three.", "Nothing.", reporter=reporter)
    await agent.run(state)
    state.add_message(Message.user("And now?"))
    await agent.run(state)
    return state


async def _with_subagent(reporter: Reporter | None) -> State:
    part = Agent(
        model=FakeModel(lambda request: "A part."),
        name="part",
        description="Does a part.",
        reporter=None,
        tools=[count],
    )
    state = State(id="state-1", messages=[Message.user("Go on.")])
    agent = _agent(
        [_call(1, "part", prompt="1"), _call(2, "part", prompt="2")], "Done.", tools=[part], reporter=reporter
    )
    await agent.run(state)
    return state


Scenario: TypeAlias = Callable[[Reporter | None], Awaitable[State]]

SCENARIOS: Mapping[str, Scenario] = {
    "an answer": _run("Hello."),
    "an answer of nothing": _run(Reply((), "fake/fake")),
    "calls": _run([_call(1, "add", a=1, b=2), _call(2, "fail"), _call(3, "wait")], "Done."),
    "wrong calls": _run([_call(1, "add", a="?"), _call(2, "gone"), ToolCall("call_3", "add", None, "{")], "Done."),
    "progress": _run([_call(1, "count"), _call(2, "count")], "Done."),
    "entries of other threads": _run([_call(1, "write", text="[b]{x}\x1b[2J"), _call(2, "add", a=1, b=2)], "Done."),
    "refused calls": _run(
        [_call(1, "fail"), _call(2, "add", a=1, b=2)],
        "Done.",
        permissions=[DenyByName("fail", reason="never"), AllowByDefault()],
    ),
    "deltas and events": _run(model=_Talkative()),
    "a model that fails": _run(RateLimitError("slow down", status=429)),
    "a tool that stops the run": _run([_call(1, "crash")]),
    "a cancelled run": _cancelled,
    "two runs": _twice,
    "subagents": _with_subagent,
}


class ReporterLaws:
    """What a Reporter must do, as tests: subclass it beside one fixture. See ``ModelLaws`` for how they run.

    * ``reporter``: the Reporter.

    Example::

        class TestMyReporter(ReporterLaws):
            @pytest.fixture
            def reporter(self):
                return MyReporter()
    """

    @law
    def test_its_methods_are_plain_and_take_what_they_are_given(self, reporter: Reporter) -> None:
        """Its methods are no ``async def``, which nobody would await, and have the parameters of ``Reporter``'s."""
        for name, method in inspect.getmembers(Reporter, inspect.isfunction):
            if name.startswith("on_"):
                own = getattr(reporter, name)
                assert not inspect.iscoroutinefunction(own), name
                count = len(inspect.signature(method).parameters) - 1
                inspect.signature(own).bind(*[None] * count)

    @pytest.mark.parametrize("name", SCENARIOS)
    @law
    async def test_a_run_is_the_same_with_it(self, reporter: Reporter, name: str) -> None:
        """Whatever happens in a run, it only watches: nothing is raised, and the history is as it is without it."""
        with_it = await SCENARIOS[name](reporter)
        without = await SCENARIOS[name](None)

        assert _kinds(with_it) == _kinds(without)
        assert with_it.messages == without.messages
        assert with_it.extra_data == without.extra_data

    @law
    async def test_it_watches_many_states_at_once(self, reporter: Reporter) -> None:
        """One Reporter may watch many runs at a time, whose calls come in between each other."""
        states: list[State] = []

        async def run(number: int) -> None:
            state = State(id=f"state-{number}", messages=[Message.user("Go on.")])
            states.append(state)
            await _agent([_call(1, "add", a=1, b=2), _call(2, "count")], "Done.", reporter=reporter).run(state)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(run, number)

        assert [state.answer for state in states] == ["Done."] * 20

    @law
    def test_it_works_in_one_trio_run_after_another(self, reporter: Reporter) -> None:
        """A Reporter outlives a trio run: it works in the next one."""
        for _ in range(3):
            assert trio.run(_result_of, SCENARIOS["calls"], reporter).answer == "Done."

    @law
    async def test_it_leaves_no_task_behind(self, reporter: Reporter) -> None:
        """No task of the Reporter's goes on, hidden among trio's own, when the run has ended."""
        await SCENARIOS["calls"](reporter)
        before = system_tasks()
        await SCENARIOS["calls"](reporter)

        assert system_tasks() == before


async def _result_of(scenario: Scenario, reporter: Reporter) -> State:
    return await scenario(reporter)


def _kinds(state: State) -> list[tuple[str, object]]:
    """What happened, in an order that doesn't depend on that of tasks."""

    def told(entry: Entry) -> tuple[str, object]:
        return entry.kind, entry.call.id if isinstance(entry, ToolResultEntry) else str(entry.content)

    return sorted([told(entry) for entry in state.history], key=repr)
