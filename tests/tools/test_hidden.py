"""Parameters that the model doesn't see: State, Agent, ToolCall, CallKey, Progress."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import pytest
import trio
import trio.testing

from alpineagents import Agent, CallKey, Message, Progress, Reporter, State, ToolCall, tool
from alpineagents.testing import FakeModel, tool_call

Told = tuple[str, float, float | None, str | None]


class Watching(Reporter):
    """Keeps what it is told of progress, and on which thread."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.threads: set[int] = set()

    def on_tool_progress(
        self, state: State, call: ToolCall, done: float, total: float | None, text: str | None
    ) -> None:
        self.told.append((call.name, done, total, text))
        self.threads.add(threading.get_ident())


async def run(one: Any, reporter: Reporter | None = None, **args: Any) -> State:
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call(one.name, **args), "ok"]), tools=[one], reporter=reporter).run(state)
    return state


def results(state: State) -> list[str]:
    return [entry.content[0].text for entry in state.history if entry.kind == "tool_result"]


async def test_each_gets_what_its_type_says() -> None:
    got: list[Any] = []

    @tool
    async def look(
        state: State, agent: Agent, call: ToolCall, key: CallKey, progress: Annotated[Progress, "told"], n: int
    ) -> str:
        got.extend([state, agent, call, key, progress])
        return f"{n}"

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("look", n=1), "ok"]), tools=[look])
    await agent.run(state)

    assert list(look.input_schema["properties"]) == ["n"]
    assert got[:2] == [state, agent]
    assert got[2].name == "look"
    assert got[3] == f"{state.id}/{got[2].id}"
    assert type(got[3]) is CallKey
    assert isinstance(got[3], str)
    assert isinstance(got[4], Progress)


async def test_the_key_of_a_call_is_the_same_when_it_is_run_again() -> None:
    keys: list[str] = []

    @tool
    async def pay(key: CallKey) -> str:
        keys.append(key)
        if len(keys) == 1:
            raise ConnectionError("the bank is away")
        return "paid"

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("pay"), tool_call("pay"), "ok"]), tools=[pay])
    await agent.think(state)
    with pytest.raises(ConnectionError):
        await agent.use_tools(state)
    await agent.use_tools(state)
    await agent.think(state)
    await agent.use_tools(state)

    assert keys[0] == keys[1] != keys[2]


class TestProgress:
    async def test_a_reporter_is_told(self) -> None:
        watching = Watching()

        @tool
        async def load(progress: Progress) -> None:
            progress(1)
            progress(2, 3)
            progress(3.0, 3.0, "done")

        await run(load, watching)

        assert watching.told == [("load", 1, None, None), ("load", 2, 3, None), ("load", 3.0, 3.0, "done")]

    async def test_a_sync_tool_tells_it_from_its_thread_in_order(self) -> None:
        watching = Watching()
        threads: set[int] = set()

        @tool
        def load(progress: Progress) -> None:
            threads.add(threading.get_ident())
            for n in range(50):
                progress(n, 50)

        await run(load, watching)

        assert [done for _, done, _, _ in watching.told] == list(range(50))
        assert watching.threads == {threading.get_ident()}
        assert threads.isdisjoint(watching.threads)

    async def test_a_thread_that_an_async_tool_starts_can_tell_too(self) -> None:
        watching = Watching()

        @tool
        async def load(progress: Progress) -> None:
            await trio.to_thread.run_sync(progress, 1)

        await run(load, watching)

        assert watching.told == [("load", 1, None, None)]

    async def test_nobody_need_listen(self) -> None:
        @tool
        def load(progress: Progress) -> str:
            progress(1)
            return "loaded"

        assert results(await run(load)) == ["loaded"]

    async def test_what_the_reporter_raises_comes_out_of_the_run(self) -> None:
        class Broken(Reporter):
            def on_tool_progress(self, *_: Any) -> None:
                raise ZeroDivisionError

        @tool
        async def load(progress: Progress) -> None:
            progress(1)

        @tool
        def load_in_thread(progress: Progress) -> None:
            progress(1)

        for one in (load, load_in_thread):
            with pytest.raises(ZeroDivisionError):
                await run(one, Broken())

    async def test_once_the_call_is_closed_nobody_is_told(self, mock_clock: trio.testing.MockClock) -> None:
        watching = Watching()
        go_on, ended = threading.Event(), threading.Event()

        @tool(timeout=30)
        def load(progress: Progress) -> None:
            trio.from_thread.run_sync(mock_clock.jump, 30)
            go_on.wait(5)
            progress(1)
            ended.set()

        await run(load, watching)
        go_on.set()
        await trio.to_thread.run_sync(ended.wait, 5)

        assert ended.is_set()
        assert watching.told == []

    def test_a_thread_that_outlives_trio_goes_on(self) -> None:
        clock = trio.testing.MockClock()
        go_on, ended = threading.Event(), threading.Event()

        @tool(timeout=30)
        def load(progress: Progress) -> None:
            trio.from_thread.run_sync(clock.jump, 30)
            go_on.wait(5)
            progress(1)
            ended.set()

        trio.run(run, load, Watching(), clock=clock)
        go_on.set()

        assert ended.wait(5)

    @pytest.mark.parametrize("wrong", [(), ("1",), (None,), (True,), (1, "2"), (1, False), (1, 2, 3)])
    async def test_wrong_arguments_are_refused(self, wrong: tuple[Any, ...]) -> None:
        @tool
        async def load(progress: Progress) -> None:
            progress(*wrong)

        with pytest.raises(TypeError, match=r"progress|missing"):
            await run(load)


@pytest.mark.parametrize("kind", [State, Agent, ToolCall, CallKey, Progress])
def test_one_that_may_be_none_is_refused(kind: Any) -> None:
    def f(p=None):
        return p

    f.__annotations__ = {"p": kind | None}

    with pytest.raises(TypeError, match=f"parameter 'p' always gets what it asks for; write p: {kind.__name__}"):
        tool(f)
