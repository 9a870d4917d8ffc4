"""A tree whose sync tools run Agents by ``run_sync``, three deep, cut short at every step there is.

The threads go as fast as they like, so which steps there are differs a little from time to time; what holds after each
of them doesn't.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from alpineagents import Agent, AllowByName, DecideByHuman, Human, MemoryStore, Message, State, tool
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_saved, assert_whole, errors, outcomes, tasks
from ..run.test_cancellation import At, AtStep
from .test_sweep import counted

SECONDS = 30  # Nothing waits that long unless it is broken.
EITHER = pytest.mark.parametrize("abandon", [False, True], ids=["waited for", "may be abandoned"])


class Threads:
    """How many of the tools' threads are on."""

    def __init__(self) -> None:
        self._on = 0
        self._changed = threading.Condition()

    @contextmanager
    def on(self) -> Iterator[None]:
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def wait_until_off(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._on, SECONDS)

    def _change(self, by: int) -> None:
        with self._changed:
            self._on += by
            self._changed.notify_all()


class Meeting:
    """Three wait for each other; when all are there, something may be done."""

    def __init__(self) -> None:
        self.there = 0
        self.when_full: Callable[[], None] = lambda: None
        self._full = trio.Event()

    async def join(self) -> None:
        self.there += 1
        try:
            if self.there == 3 and not self._full.is_set():
                self.when_full()
                self._full.set()
            await self._full.wait()
            await trio.lowlevel.checkpoint()
        finally:
            self.there -= 1


class Patient(Human):
    """Says yes to three when all of them have asked."""

    def __init__(self) -> None:
        self.open = Meeting()

    async def ask(self, question, returns):
        await self.open.join()
        return "yes"


class Tree:
    """A lead that calls two sync tools at once. One runs an Agent in its thread, whose own sync tool does the same; the
    other has trio start two threads, each of which runs one. All below ask a person, who takes a while, and work at
    the same time, and clean up behind themselves."""

    def __init__(self, abandon: bool) -> None:
        self.store = MemoryStore()
        self.human = Patient()
        self.at_work = Meeting()
        self.threads = Threads()
        self.running: list[str] = []
        self.states = {
            name: State(id=name, messages=[Message.user("go")]) for name in ("lead", "middle", "a", "b", "c")
        }

        @tool
        async def risky() -> str:
            """Do what a person has to allow."""
            self.running.append("risky")
            try:
                await self.at_work.join()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
                self.running.remove("risky")
            return "dared"

        def leaf() -> Agent:
            return self._agent(["risky"], tools=[risky])

        @tool(abandon_on_cancel=abandon)
        def deeper() -> str:
            """Have somebody else answer, in this thread."""
            with self.threads.on():
                return str(leaf().run_sync(self._begun("a")))

        @tool(abandon_on_cancel=abandon)
        def delegate() -> str:
            """Have somebody else answer, in this thread."""
            with self.threads.on():
                return str(self._agent(["deeper"], tools=[deeper]).run_sync(self._begun("middle")))

        @tool(abandon_on_cancel=abandon)
        def share() -> str:
            """Have two others answer, each in a thread of its own."""

            async def both() -> None:
                async with trio.open_nursery() as nursery:
                    for name in ("b", "c"):
                        nursery.start_soon(trio.to_thread.run_sync, part, name)

            def part(name: str) -> None:
                with self.threads.on():
                    leaf().run_sync(self._begun(name))

            with self.threads.on():
                trio.from_thread.run(both)
            return "shared"

        self.begun: set[str] = set()
        self.agent = self._agent(
            ["delegate", "share"],
            tools=[delegate, share],
            store=self.store,
            human=self.human,
            permissions=[AllowByName(["delegate", "share", "deeper"]), DecideByHuman()],
        )

    def _begun(self, name: str) -> State:
        """The State for a part of the work; one of its own where the tree is run again."""
        if name in self.begun:
            return State(messages=[Message.user("go")])
        self.begun.add(name)
        return self.states[name]

    @staticmethod
    def _agent(calls, **settings) -> Agent:
        def answer(request):
            if any(message.role == "tool" for message in request.messages):
                return "done"
            return [tool_call(call) for call in calls]

        return Agent(model=FakeModel(answer), **settings)

    async def play(self) -> None:
        await self.agent.run(self.states["lead"])

    def check_ended(self) -> None:
        """Nothing below the lead is left, though threads may be."""
        assert not self.running
        assert not self.human.open.there
        assert not any(state.running for state in self.states.values())

    async def check(self) -> None:
        """After whatever happened."""
        lead = self.states["lead"]
        begun = [lead, *[self.states[name] for name in sorted(self.begun) if list(self.states[name].history)]]
        for state in begun:
            assert_whole(state)
            assert {outcome for _, outcome in outcomes(state)} <= {"done", "interrupted"}
            assert errors(state).count("Cancelled") <= 1
            assert state.usage == counted(state)
            if await self.store.has(state.id):
                await assert_saved(self.store, state)
        before = list(lead.history)
        lead.add_message(Message.user("go on"))
        with trio.fail_after(60):
            assert await self.agent.run(lead) == "done"
        assert list(lead.history)[: len(before)] == before
        assert_whole(lead)
        await assert_saved(self.store, lead)


async def cut_short(abandon: bool, step: int) -> bool:
    """Cancel a tree at that step; False when it has no more."""
    tree = Tree(abandon)
    with trio.CancelScope() as scope:
        instrument = AtStep(step, scope.cancel)
        trio.lowlevel.add_instrument(instrument)
        before = tasks()
        instrument.armed = True
        await tree.play()
        instrument.armed = False
    trio.lowlevel.remove_instrument(instrument)
    await settled(tree, before, abandon)
    return instrument.done


async def settled(tree: Tree, before: int, abandon: bool) -> None:
    """See that nothing is left of it but what is recorded, and that that can go on."""
    tree.check_ended()
    assert await trio.to_thread.run_sync(tree.threads.wait_until_off)
    with trio.fail_after(SECONDS):
        while tasks() != before:  # A thread that is left behind asks trio once more, and is told that it's too late.
            assert abandon
            await trio.lowlevel.checkpoint()
    await tree.check()


@EITHER
@pytest.mark.parametrize("moment", ["all ask", "all work"])
async def test_a_tree_below_threads_cancelled_while_all_three_leaves_do_something_is_whole_and_runs_on(moment, abandon):
    tree, before = Tree(abandon), tasks()
    found: list[tuple[int, int]] = []

    def cancel() -> None:
        found.append((tree.human.open.there, len(tree.running)))
        scope.cancel()

    (tree.human.open if moment == "all ask" else tree.at_work).when_full = cancel
    with trio.CancelScope() as scope:
        await tree.play()

    assert scope.cancelled_caught
    assert found == [(3, 0) if moment == "all ask" else (0, 3)]
    await settled(tree, before, abandon)


def swept(play: Callable[[int], bool], stride: int) -> int:
    """Play at one step after the other, until there are no more; return how many there are."""
    step = 0
    while play(step):
        step += stride
        assert step < 3_000
    return step


@pytest.mark.slow
@EITHER
def test_a_tree_below_threads_cancelled_at_any_step_is_whole_and_runs_on(abandon: bool):
    assert swept(lambda step: trio.run(cut_short, abandon, step), 1) > 100


@pytest.mark.slow
@EITHER
def test_a_tree_below_threads_interrupted_at_any_step_is_whole_and_runs_on(abandon: bool):
    """Ctrl+C, by a real signal, at every third step."""

    def play(step: int) -> bool:
        tree = Tree(abandon)
        instrument = AtStep(step, lambda: signal.raise_signal(signal.SIGINT))

        async def main() -> None:
            instrument.armed = True
            await tree.play()
            instrument.armed = False

        try:
            trio.run(main, instruments=[instrument])
        except KeyboardInterrupt:
            assert instrument.done
        else:
            assert not instrument.done
        tree.check_ended()
        assert tree.threads.wait_until_off()
        trio.run(tree.check)
        return instrument.done

    assert swept(play, 3) > 100


class AtCall(At):
    """Does something at a moment in what a call does for its thread, and for what that runs."""

    def _profile(self, frame, event, arg) -> None:
        if frame.f_code.co_filename.endswith(("/tools/_call_tasks.py", "/tools/_threads.py", "/state/_context.py")):
            super()._profile(frame, event, arg)


@pytest.mark.slow
@EITHER
def test_ctrl_c_at_any_moment_of_a_call_comes_out_and_leaves_a_whole_tree_that_runs_on(abandon: bool):
    def play(moment: int) -> bool:
        tree = Tree(abandon)
        interrupt = AtCall(moment, lambda: signal.raise_signal(signal.SIGINT))
        try:
            trio.run(interrupt.around, tree.play)
        except KeyboardInterrupt:
            assert interrupt.done
        else:
            assert not interrupt.done
        tree.check_ended()
        assert tree.threads.wait_until_off(), interrupt.where
        trio.run(tree.check)
        return interrupt.done

    assert swept(play, 1) > 20
