"""portal.run: calls, what they return and raise, where a Portal can be used."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import pytest
import trio

from alpineagents import Agent, FileStore, MemoryStore, Message, State, aio, tool
from alpineagents.testing import FakeModel, tool_call

from .kit import ROOT, Gate, conversation, run, waiting_agent

flavor: ContextVar[str] = ContextVar("flavor", default="plain")


def portal_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "alpineagents.aio"]


@pytest.mark.parametrize("debug", [False, True])
def test_an_agent_runs(debug):
    async def main():
        state = conversation()
        async with aio.Portal() as portal:
            answer = await portal.run(Agent(model=FakeModel(["hello"])).run, state)
        return answer, state.answer, state.turn

    assert run(main(), debug=debug) == ("hello", "hello", 1)


def test_what_can_be_awaited_is_awaited_and_the_rest_given_as_it_is():
    async def add(a: int, *, b: int) -> int:
        await trio.lowlevel.checkpoint()
        return a + b

    async def main():
        async with aio.Portal() as portal:
            return [
                await portal.run(add, 1, b=2),
                await portal.run(max, 3, 4),
                await portal.run(trio.lowlevel.in_trio_task),
                await portal.run(lambda: None),
            ]

    assert run(main()) == [3, 4, True, None]


def test_a_receipt_is_awaited_so_the_message_is_saved():
    async def main():
        store = MemoryStore()
        state = conversation()
        async with aio.Portal() as portal:
            await portal.run(store.save, state)
            await portal.run(state.add_message, Message.user("more"))
            return (await portal.run(store.load, state.id)).messages[-1].text

    assert run(main()) == "more"


def test_a_message_can_be_added_while_it_runs():
    async def main():
        gate = Gate()
        state = conversation()
        model = FakeModel([tool_call("wait"), "one", "two"])
        agent = waiting_agent(gate).copy(model=model)
        async with aio.Portal() as portal:
            running = asyncio.create_task(portal.run(agent.run, state))
            await gate.reached.wait()
            state.add_message(Message.user("and this"))
            await portal.run(gate.open)
            await running
        return model.requests[1].messages[-1].text

    assert run(main()) == "and this"


def test_200_runs_at_once_share_one_trio_thread():
    async def main():
        threads = set()

        def answer(request):
            threads.add(threading.current_thread())
            return request.messages[0].text.upper()

        @tool
        async def together() -> str:
            """Wait for the others."""
            nonlocal waiting
            waiting += 1
            if waiting == 200:
                everyone.set()
            await everyone.wait()
            return "ok"

        waiting, everyone = 0, trio.Event()
        async with aio.Portal() as portal, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    portal.run(
                        Agent(
                            model=FakeModel([tool_call("together"), answer]), tools=[together], store=MemoryStore()
                        ).run,
                        f"run {n}",
                    )
                )
                for n in range(200)
            ]
            await asyncio.gather(*tasks)
            assert threads == set(portal_threads())
        return [task.result() for task in tasks], len(threads)

    answers, threads = run(main())
    assert answers == [f"RUN {n}" for n in range(200)]
    assert threads == 1
    assert not portal_threads()


def test_context_variables_are_seen_in_the_function_in_tools_and_in_threads_below():
    seen = []

    @tool
    async def taste() -> str:
        """Taste."""
        seen.append(flavor.get())
        flavor.set("spoiled")
        return "ok"

    @tool
    def taste_in_thread() -> str:
        """Taste."""
        seen.append(flavor.get())
        return "ok"

    async def main():
        calls = [tool_call("taste"), tool_call("taste_in_thread"), "ok"]
        async with aio.Portal() as portal:

            async def of(name: str) -> None:
                flavor.set(name)
                await portal.run(Agent(model=FakeModel(calls), tools=[taste, taste_in_thread]).run, "x")
                assert flavor.get() == name

            await asyncio.gather(of("sweet"), of("salty"))
            assert await portal.run(flavor.get) == "plain"

    run(main())
    assert sorted(seen) == ["salty", "salty", "sweet", "sweet"]


def raise_it(error: BaseException) -> None:
    raise error


async def raise_it_later(error: BaseException) -> None:
    await trio.lowlevel.checkpoint()
    raise_it(error)


@pytest.mark.parametrize("fn", [raise_it, raise_it_later])
@pytest.mark.parametrize(
    "error", [ValueError("no"), ExceptionGroup("two", [ValueError("a"), KeyError("b")]), StopAsyncIteration("end")]
)
def test_an_exception_comes_out_as_raised_with_its_traceback(fn, error):
    context = KeyError("before")
    error.__context__ = context

    async def main():
        async with aio.Portal() as portal:
            with pytest.raises(type(error)) as caught:
                await portal.run(fn, error)
            return caught.value

    caught = run(main())
    assert caught is error
    assert caught.__context__ is context
    assert "raise_it" in [frame.name for frame in traceback.extract_tb(caught.__traceback__)]


def test_what_would_end_a_coroutine_ends_its_own_call_alone():
    async def main():
        gate = Gate()
        async with aio.Portal() as portal:
            other = asyncio.create_task(portal.run(gate.wait))
            await gate.reached.wait()
            with pytest.raises(GeneratorExit, match="mine"):
                await portal.run(raise_it_later, GeneratorExit("mine"))
            await portal.run(gate.open)
            return await other

    assert run(main()) == "opened"


def test_what_an_agent_raises_comes_out():
    failure = RuntimeError("the model is broken")

    async def main():
        state = conversation()
        async with aio.Portal() as portal:
            with pytest.raises(RuntimeError) as caught:
                await portal.run(Agent(model=FakeModel([failure])).run, state)
        return caught.value is failure, state.history[-1].error is failure

    assert run(main()) == (True, True)


def test_stop_iteration_becomes_a_runtime_error_as_in_every_coroutine():
    async def main():
        async with aio.Portal() as portal:
            with pytest.raises(RuntimeError, match="StopIteration") as caught:
                await portal.run(next, iter([]))
            return type(caught.value.__cause__)

    assert run(main()) is StopIteration


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_programs_ends_the_asyncio_program_with_its_states_closed(kind):
    """As it does where a coroutine raises it in asyncio itself."""
    state = conversation()

    async def main():
        gate = Gate()
        async with aio.Portal() as portal:
            others.append(asyncio.create_task(portal.run(waiting_agent(gate).run, state)))
            await gate.reached.wait()
            await portal.run(raise_it, kind("stop"))

    others: list[asyncio.Task[object]] = []
    with pytest.raises(kind, match="stop"):
        asyncio.run(main())
    assert others[0].cancelled() or isinstance(others[0].exception(), RuntimeError)
    assert not state.running
    assert not state.pending_calls


def test_it_cannot_be_used_before_or_after_its_block_or_twice():
    async def main():
        portal = aio.Portal()
        agent = Agent(model=FakeModel())
        for use in (lambda: portal.stream(agent, "x"), lambda: portal.iterate(State().watch)):
            with pytest.raises(RuntimeError, match="isn't open; write: async with"):
                use()
        with pytest.raises(RuntimeError, match="isn't open; write: async with"):
            await portal.run(int)
        async with portal:
            late = portal.stream(agent, "x")
        for use in (lambda: portal.stream(agent, "x"), lambda: portal.iterate(State().watch)):
            with pytest.raises(RuntimeError, match="this Portal is closed"):
                use()
        with pytest.raises(RuntimeError, match="this Portal is closed"):
            await portal.run(int)
        with pytest.raises(RuntimeError, match="this Portal is closed"):
            await anext(late)
        with pytest.raises(RuntimeError, match="used already"):
            await portal.__aenter__()

    run(main())


def test_it_belongs_to_one_event_loop():
    async def main():
        async with aio.Portal() as portal:

            async def elsewhere():
                with pytest.raises(RuntimeError, match=r"portal\.run is for the event loop"):
                    await portal.run(int)

            await asyncio.to_thread(asyncio.run, elsewhere())
            with pytest.raises(RuntimeError, match="under trio call it directly"):
                await portal.run(portal.run, int)

    run(main())


def test_where_asyncio_does_not_run_it_is_refused():
    async def main():
        async with aio.Portal():
            pass

    with pytest.raises(RuntimeError, match=r"no event loop of asyncio.*under trio.*await agent\.run\(state\)"):
        trio.run(main)


def test_what_is_no_function_is_refused_with_a_line_of_right_code():
    async def main():
        agent = Agent(model=FakeModel())
        async with aio.Portal() as portal:
            with pytest.raises(TypeError, match=r"not coroutine: await portal\.run\(agent\.run, state\)"):
                await portal.run(agent.run("x"))
            with pytest.raises(TypeError, match=r"not Watch: portal\.iterate\(state\.watch, after=3\)"):
                portal.iterate(State().watch())
            for fn, kind in ((agent.run, "coroutine"), (str, "str")):
                with pytest.raises(TypeError, match=rf"not {kind}: portal\.iterate\(state\.watch, after=3\)"):
                    await anext(portal.iterate(fn, "x"))
            with pytest.raises(TypeError, match=r"not str: portal\.stream\(agent, state\)"):
                portal.stream("agent", "x")
            with pytest.raises(TypeError, match="a prompt or a State"):
                portal.stream(agent, 3)

    run(main())


@pytest.mark.parametrize("name", ["run", "think", "use_tools", "compact"])
def test_an_agent_that_is_used_without_a_portal_says_how_to_write_it(name):
    """Everybody's first mistake. Nothing is recorded."""
    agent, state = Agent(model=FakeModel()), conversation()
    before = state.history
    with pytest.raises(RuntimeError, match=rf"agent\.{name} needs trio.*await portal\.run\(agent\.{name}, state\)"):
        asyncio.run(getattr(agent, name)(state))
    assert state.history == before
    assert not state.running


def test_a_stream_without_a_portal_says_how_to_write_it():
    async def main():
        async with Agent(model=FakeModel()).stream("x"):
            pass

    with pytest.raises(RuntimeError, match=r"agent\.stream needs trio.*async with portal\.stream\(agent, state\) as"):
        asyncio.run(main())


def test_portals_nest_and_stand_side_by_side():
    async def main():
        async with aio.Portal() as one, aio.Portal() as two:
            first, second = await one.run(threading.current_thread), await two.run(threading.current_thread)
            async with aio.Portal() as three:
                third = await three.run(threading.current_thread)
            assert await one.run(threading.current_thread) is first
        return len({first, second, third})

    assert run(main()) == 3


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_it_works_in_eager_tasks():
    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with aio.Portal() as portal, asyncio.TaskGroup() as group:
            tasks = [group.create_task(portal.run(abs, -n)) for n in range(20)]
            stopped = asyncio.create_task(portal.run(trio.sleep_forever))
            stopped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopped
        return [task.result() for task in tasks]

    assert run(main()) == list(range(20))


def test_run_sync_in_a_thread_below_is_no_part_of_the_tool_call_around_the_program():
    """A tool that is an asyncio program of its own: the contexts are copied, the nursery of the call isn't used."""

    async def inner():
        agent = Agent(model=FakeModel(["inner"]))
        async with aio.Portal() as portal:
            return await portal.run(trio.to_thread.run_sync, agent.run_sync, "x")

    @tool
    def program() -> str:
        """Run a program."""
        return asyncio.run(inner())

    model = FakeModel([tool_call("program"), lambda request: request.messages[-1].blocks[0].content[0].text])
    assert Agent(model=model, tools=[program]).run_sync("x") == "inner"


def test_under_asyncio_the_library_says_where_to_go():
    async def main():
        agent = Agent(model=FakeModel())
        with pytest.raises(RuntimeError, match=r"alpineagents\.aio"):
            await State().add_message(Message.user("x"))
        with pytest.raises(RuntimeError, match=r"alpineagents\.aio"):
            agent.run_sync("x")

    run(main())


def test_who_does_not_import_it_loads_no_asyncio():
    code = "import sys, alpineagents; print('asyncio' in sys.modules, 'alpineagents.aio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_a_cancellation_that_is_raised_where_nothing_is_cancelled_harms_nobody_else():
    async def stray():
        kept = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                kept.append(error)
                raise
        raise kept[0]

    async def main():
        gate = Gate()
        async with aio.Portal() as portal:
            other = asyncio.create_task(portal.run(gate.wait))
            await gate.reached.wait()
            with pytest.raises(trio.Cancelled):
                await portal.run(stray)
            await portal.run(gate.open)
            return await other

    assert run(main()) == "opened"


INTERNAL = "trio has failed"


def crash() -> None:
    """Make trio itself fail."""
    trio.lowlevel.current_trio_token().run_sync_soon(raise_it, ValueError(INTERNAL))


def test_where_trio_itself_fails_every_call_fails_and_nothing_hangs():
    async def main():
        gate = Gate()
        state = conversation()
        async with aio.Portal() as portal:
            running = asyncio.create_task(portal.run(waiting_agent(gate).run, state))
            iterated = asyncio.create_task(anext(portal.iterate(State().watch)))
            await gate.reached.wait()
            await portal.run(crash)
            for task in (running, iterated):
                with pytest.raises(RuntimeError, match="closed in the middle") as caught:
                    await task
                assert isinstance(caught.value.__cause__, trio.TrioInternalError)
            with pytest.raises(RuntimeError, match="the Portal's trio thread has failed"):
                await portal.run(int)

    with pytest.raises(trio.TrioInternalError) as caught:
        run(main())
    assert INTERNAL in "".join(traceback.format_exception(caught.value))


def test_what_ends_programs_goes_before_what_made_trio_fail():
    async def main():
        async with aio.Portal() as portal:
            await portal.run(crash)
            raise SystemExit("bye")

    with pytest.raises(SystemExit, match="bye") as caught:
        asyncio.run(main())
    assert caught.value.__notes__[0].startswith("also raised: TrioInternalError")


@contextmanager
def no_more_files() -> Iterator[None]:
    """Open no more files in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    try:
        with suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in opened:
            os.close(fd)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_where_trio_cannot_start_entering_raises_why():
    async def main():
        with no_more_files():
            await aio.Portal().__aenter__()

    with pytest.raises(OSError, match="Too many open files"):
        run(main())
    assert not portal_threads()


def test_a_file_store_saves_from_the_portal(tmp_path):
    async def main():
        store = FileStore(tmp_path)
        async with aio.Portal() as portal:
            state = conversation()
            await portal.run(Agent(model=FakeModel(["kept"]), store=store).run, state)
            return (await portal.run(store.load, state.id)).answer

    assert run(main()) == "kept"
