"""How programs end that have a Portal open: Ctrl+C, an event loop that is closed under it, an iterator left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import threading
from pathlib import Path

import pytest

from alpineagents import aio

from .kit import LONG, Gate, assert_closed, conversation, run, script, waiting_agent

PROGRAM = """
import asyncio, gc, sys, threading
import trio
from alpineagents import Agent, FileStore, Message, State, aio, tool
from alpineagents.testing import FakeModel, tool_call

@tool
async def wait() -> str:
    "Wait."
    loop.call_soon_threadsafe(waiting.set)
    await trio.sleep_forever()

async def main():
    global loop
    loop = asyncio.get_running_loop()
    agent = Agent(model=FakeModel([tool_call("wait")]), tools=[wait], store=FileStore(sys.argv[1]))
    async with aio.Portal() as portal:
        await START

async def tell():
    await waiting.wait()
    print("waiting", flush=True)

STATE = State(id="one", messages=[Message.user("go")])
waiting = asyncio.Event()
"""

RUN = PROGRAM.replace("START", "portal.run(agent.run, STATE)")
STREAM = PROGRAM.replace("await START", "async with portal.stream(agent, STATE) as run: [event async for event in run]")
LOOP = PROGRAM.replace("await START", "[event async for event in portal.stream(agent, STATE)]")

CTRL_C = """
async def both():
    async with asyncio.TaskGroup() as group:
        group.create_task(main())
        group.create_task(tell())

asyncio.run(both())
"""

CLOSED = """
loop = asyncio.new_event_loop()
task = loop.create_task(main())
loop.run_until_complete(tell())
if sys.argv[2] != "left open":
    loop.close()
if sys.argv[2] == "forgotten":
    [thread.join() for thread in threading.enumerate() if thread.name == "alpineagents.aio"]
    print(STATE.running)
    task._log_destroy_pending = False
    del task
    gc.collect()
"""


def ends_of_calls(folder: Path) -> list[str]:
    """Return how the calls of the saved State ended."""
    lines = (folder / "one.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry["outcome"] for entry in map(json.loads, lines) if "outcome" in entry]


@pytest.mark.slow
@pytest.mark.parametrize("program", [RUN, STREAM, LOOP], ids=["run", "stream", "loop"])
def test_ctrl_c_ends_the_program_with_its_states_closed_and_saved(program, tmp_path):
    process = script(program + CTRL_C, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONG)

    assert process.returncode in (-signal.SIGINT, 130), errors
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert "never" not in errors
    assert ends_of_calls(tmp_path) == ["interrupted"]


@pytest.mark.slow
@pytest.mark.parametrize("program", [RUN, STREAM, LOOP], ids=["run", "stream", "loop"])
def test_an_event_loop_that_is_closed_takes_the_portal_with_it(program, tmp_path):
    out, errors = script(program + CLOSED, tmp_path, "forgotten").communicate(timeout=LONG)

    assert out.splitlines() == ["waiting", "False"], errors
    assert not errors
    assert ends_of_calls(tmp_path) == ["interrupted"]


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["closed", "left open"])
def test_a_program_that_ends_with_a_portal_open_closes_its_states(loop, tmp_path):
    process = script(RUN + CLOSED, tmp_path, loop)
    out, _ = process.communicate(timeout=LONG)

    assert out == "waiting\n"
    assert process.returncode == 0
    assert ends_of_calls(tmp_path) == ["interrupted"]


IN_A_THREAD = """
from alpineagents.aio import _thread
_thread.LOOK_SECONDS = 0.001

async def used_when_main_has_ended():
    async with aio.Portal() as portal:
        opened.set()
        while threading.main_thread().is_alive():
            await asyncio.sleep(0.001)
        for _ in range(20):
            await portal.run(trio.sleep, 0.002)
        await portal.run(STATE.finish, "done")
    print(STATE.answer)

opened = threading.Event()
threading.Thread(target=asyncio.run, args=[used_when_main_has_ended()], daemon=sys.argv[2] == "daemon").start()
opened.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "printed"), [("thread", "done\n"), ("daemon", "")])
def test_a_program_whose_event_loop_is_in_a_thread_ends_when_that_does(kind, printed, tmp_path):
    """Python waits for threads that are no daemons, also where the main thread has nothing left to do."""
    process = script(PROGRAM.replace("START", "asyncio.sleep(0)") + IN_A_THREAD, tmp_path, kind)
    out, errors = process.communicate(timeout=LONG)

    assert (process.returncode, out) == (0, printed), errors


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
def test_what_a_closed_event_loop_leaves_behind_can_be_thrown_away(streams):
    """A coroutine that is thrown away may not wait any more, in no block that it is in."""
    state = conversation()
    gates: list[Gate] = []

    async def main():
        gates.append(Gate())
        agent = waiting_agent(gates[0])
        async with aio.Portal() as portal:
            if streams:
                async with portal.stream(agent, state) as events:
                    async for _ in events:
                        pass
            await portal.run(agent.run, state)

    async def until_reached():
        await asyncio.sleep(0)  # it begins before this
        await gates[0].reached.wait()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it would be told that the task is pending still
    task = loop.create_task(main())
    loop.run_until_complete(until_reached())
    loop.close()
    for thread in threading.enumerate():
        if thread.name == "alpineagents.aio":
            thread.join()
    assert_closed(state)
    del task
    gates.clear()
    gc.collect()


def test_a_call_whose_coroutine_is_thrown_away_is_cancelled_and_its_failure_told():
    async def main():
        gate, reports = Gate(), asyncio.Queue()
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.put_nowait(report))

        async def fails_when_cancelled():
            try:
                await gate.wait()
            finally:
                raise ValueError("could not clean up")

        async with aio.Portal() as portal:
            call = portal.run(fails_when_cancelled)
            call.send(None)
            await gate.reached.wait()
            call.close()
            return str((await reports.get())["exception"])

    assert run(main()) == "could not clean up"
