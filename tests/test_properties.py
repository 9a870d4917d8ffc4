"""Laws of States under everything at once: cancellations, failures, late results, restores, compactions and forks.

Tools end when a conductor tells them to, so every order of endings, messages and cuts can be drawn, and none is left to
chance. After each step the next request is made: a strict provider takes it.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    CutOffError,
    MemoryStore,
    Message,
    OutputError,
    Reply,
    Request,
    State,
    StateSnapshot,
    TextBlock,
    ToolCall,
    ToolError,
    ToolResultBlock,
    tool,
)

from .conversations import StrictModel, example_share, sent
from .states import assert_replays, values

STUCK_SECONDS = 60
PASSES_BY_RESTORE = {"history", "usage", "updated_at", "created_at"}


async def until(state: State, happened: Callable[[], bool]) -> None:
    """Return when *happened* is true, which a change of *state* makes it."""
    with state.waiter() as waiter:
        while not happened():
            await waiter.wait()


@asynccontextmanager
async def not_stuck(nursery: trio.Nursery, stage: Stage) -> AsyncIterator[None]:
    """Fail, and leave no thread behind, where the block would never end: its clock stands still."""
    token, stuck = trio.lowlevel.current_trio_token(), []

    def give_up() -> None:
        stuck.append(True)
        stage.open_all()
        token.run_sync_soon(nursery.cancel_scope.cancel)

    timer = threading.Timer(STUCK_SECONDS, give_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        assert not stuck, "stuck"


# The tools, and who tells them to end


@attrs.define
class Hung:
    """A thread that nobody waits for any more."""

    gate: threading.Event
    state: State
    call_id: str


class Stage:
    """Tools in tasks and threads. Each call has a number, and ends at its cue."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.cues: dict[int, trio.Event] = {}
        self.gates: dict[int, threading.Event] = {}
        self.all_gates: list[threading.Event] = []
        self.missing = 0
        self.all_started = trio.Event()

    def expect(self, calls: int, all_started: trio.Event) -> None:
        """Have *all_started* set when so many calls have started."""
        self.missing, self.all_started = calls, all_started

    def enter(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.all_started.set()

    async def cue(self, n: int) -> None:
        cue = self.cues[n] = trio.Event()
        self.enter()
        await cue.wait()

    def gate(self, n: int) -> None:
        gate = self.gates[n] = threading.Event()
        self.all_gates.append(gate)
        trio.from_thread.run_sync(self.enter)
        gate.wait()

    def open_all(self) -> None:
        """Leave no thread behind."""
        for gate in self.all_gates:
            gate.set()

    @tool
    async def good(self, n: int) -> str:
        """End at the cue."""
        await self.cue(n)
        return f"good {n}"

    @tool
    async def complains(self, n: int) -> str:
        """Fail in a way the model should hear of."""
        await self.cue(n)
        raise ToolError(f"no {n}")

    @tool
    async def breaks(self, n: int) -> str:
        """Fail in a way nobody expected."""
        await self.cue(n)
        raise ArithmeticError(f"bug {n}")

    @tool
    async def sleeps(self, n: int) -> str:
        """End by the clock."""
        self.enter()
        await trio.sleep(5)
        return f"slept {n}"

    @tool
    async def talks(self, n: int, state: State) -> str:
        """Say something however it ends."""
        try:
            await self.cue(n)
        finally:
            state.add_message(Message.notice(f"{n} is over"))
        return f"talked {n}"

    @tool
    async def insists(self, n: int) -> str:
        """Go on to its end when it is cancelled."""
        with trio.CancelScope(shield=True):
            await self.cue(n)
        return f"insisted {n}"

    @tool
    def thread(self, n: int) -> str:
        """End at the cue, or later than anybody waits."""
        self.gate(n)
        return f"thread {n}"

    @tool
    def thread_complains(self, n: int) -> str:
        """Fail in a thread in a way the model should hear of."""
        self.gate(n)
        raise ToolError(f"no {n} from a thread")

    @tool
    def thread_breaks(self, n: int) -> str:
        """Fail in a thread in a way nobody expected."""
        self.gate(n)
        raise ArithmeticError(f"bug {n} in a thread")

    @tool(timeout=5)
    def thread_times_out(self, n: int) -> str:
        """Be given up by the clock."""
        self.gate(n)
        return f"too late {n}"

    @tool(abandon_on_cancel=False)
    def thread_stays(self, n: int) -> str:
        """Be waited for."""
        self.gate(n)
        return f"stayed {n}"

    @tool(parallel=False)
    async def alone(self, n: int) -> str:
        """Run behind the others, and end at once."""
        await trio.lowlevel.checkpoint()
        return f"alone {n}"


TASKS = ["good", "complains", "breaks", "sleeps", "talks", "insists"]
THREADS = ["thread", "thread_complains", "thread_breaks", "thread_times_out", "thread_stays"]
WAITED_FOR = ["insists", "thread_stays"]
"""What a cancelled run waits for."""
BY_THEMSELVES = ["alone", "unknown", "malformed"]
BREAKING = ["breaks", "thread_breaks"]

kinds = st.sampled_from([*TASKS, *THREADS, *THREADS, *BY_THEMSELVES])
call_ids = st.sampled_from(["", "a", "a", "a_2", "b"])
TALK = ["say", "notice", "edit", "snapshot", "release", "release"]
talk = st.sampled_from(TALK)
"""What may happen while the model is waited on."""
events = st.lists(
    st.tuples(st.sampled_from([*["cue"] * 10, *TALK, *TALK, "ask", "fork", "jump", "finish"]), st.integers(0, 5)),
    max_size=5,
)


@attrs.frozen
class Turn:
    """One reply with calls, and what happens while they run; then all the others end, or the run is cut."""

    calls: list[tuple[str, str]]
    before: list[str]
    events: list[tuple[str, int]]
    end: str

    @property
    def conducted(self) -> int:
        """How many of the calls wait for the conductor."""
        return sum(kind not in BY_THEMSELVES for kind, _ in self.calls)


turns = st.builds(
    Turn,
    st.lists(st.tuples(kinds, call_ids), min_size=1, max_size=4),
    st.lists(talk, max_size=2),
    events,
    st.sampled_from(["all end", "cancel", "deadline"]),
)
endings = st.sampled_from(["text", "text", "blank", "error", "cut off", "cancel", "deadline"])


class Everything:
    """A State that anything is done to."""

    def __init__(self) -> None:
        self.state = State(messages=[Message.user("go")])
        self.stage = Stage()
        self.hung: list[Hung] = []
        self.taken: list[tuple[StateSnapshot, dict[str, object]]] = []
        self.words = itertools.count()
        self.starts: list[trio.Event] = []

    # What may happen at any moment

    def word(self) -> str:
        return f"word {next(self.words)}"

    def happen(self, kind: str) -> None:
        match kind:
            case "say":
                self.state.add_message(Message.user(self.word()))
            case "notice":
                self.state.add_message(Message.notice(self.word()))
            case "edit":
                with self.state.edit_extra_data() as data:
                    data[self.word()] = [len(data)]
                    if len(data) > 3:
                        del data[min(data)]
            case "snapshot":
                snapshot = self.state.snapshot()
                self.taken.append((snapshot, values(snapshot)))
            case "finish":
                self.state.finish(self.word())
            case _:
                raise AssertionError(kind)

    async def release(self, which: int) -> None:
        """Let a thread that nobody waits for end: its result is recorded all the same."""
        if self.hung:
            hung = self.hung.pop(which % len(self.hung))
            start = len(hung.state.history)
            hung.gate.set()
            await until(
                hung.state,
                lambda: any(e.kind == "tool_result" and e.call.id == hung.call_id for e in hung.state.history[start:]),
            )

    # Agents, and the requests that they send

    def agent(self, script: Any = ()) -> Agent:
        return Agent(model=StrictModel(script), tools=[self.stage])

    async def happen_while_thinking(self, before: Sequence[str]) -> None:
        for which, event in enumerate(before):
            if event == "release":
                await self.release(which)
            else:
                self.happen(event)
                with pytest.raises(ValueError, match="waits on the model"):
                    self.state.fork()

    def asking(self, turn: Turn, numbers: list[int], all_started: trio.Event) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Reply:
            await self.happen_while_thinking(turn.before)
            self.stage.expect(turn.conducted, all_started)
            calls = [
                ToolCall(call_id, kind, None if kind == "malformed" else {"n": n}, "{" if kind == "malformed" else None)
                for (kind, call_id), n in zip(turn.calls, numbers, strict=True)
            ]
            return Reply([TextBlock(" "), *calls] if numbers[0] % 2 else calls)

        return answer

    def ending(self, how: str, before: Sequence[str], scope: trio.CancelScope) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Any:
            await self.happen_while_thinking(before)
            if how == "cancel":
                scope.cancel()
            elif how == "deadline":
                scope.deadline = trio.current_time()
            else:
                return {
                    "text": self.word(),
                    "blank": Reply([TextBlock(" \n")]),
                    "cut off": Reply([], cut_off=True),
                    "error": ConnectionError("gone"),
                }[how]
            await trio.sleep_forever()
            raise AssertionError

        return answer

    # The conductor

    async def conduct(
        self,
        turn: Turn,
        numbers: list[int],
        all_started: trio.Event,
        clock: trio.testing.MockClock,
        cut: trio.CancelScope,
    ) -> None:
        ready = {n: kind for (kind, _), n in zip(turn.calls, numbers, strict=True) if kind not in BY_THEMSELVES}
        if not ready:
            return
        await all_started.wait()
        await trio.testing.wait_all_tasks_blocked()
        events = [*turn.events]
        if turn.end == "all end":
            events += [("jump", 0), *[("cue", 0)] * len(ready)]
        for event, which in events:
            if not ready:  # the turn is over, and the next one has a schedule of its own
                return
            match event:
                case "cue":
                    waiting = [n for n, kind in ready.items() if kind != "sleeps"]
                    if waiting:
                        n = waiting[which % len(waiting)]
                        if await self.end_call(n, ready.pop(n)):
                            await self.let_go(ready)
                            return
                case "jump":
                    clock.jump(6)
                    await trio.testing.wait_all_tasks_blocked()
                    for n, kind in list(ready.items()):
                        if kind in ("sleeps", "thread_times_out"):
                            assert not self.is_pending(n)
                            self.give_up(n, kind)
                            del ready[n]
                case "release":
                    await self.release(which)
                case "ask" if not self.state.finished:
                    await self.agent(["hm"]).ask(self.state, "how is it going?")
                case "fork":
                    fork = self.state.fork()
                    assert values(fork) == values(self.state)
                    self.taken.append((fork.snapshot(), values(fork)))
                    fork.add_message(Message.user(self.word()))
                case "ask":
                    pass
                case _:
                    self.happen(event)
        if ready:
            if turn.end == "cancel":
                cut.cancel()
            else:
                cut.deadline = trio.current_time()
            await trio.testing.wait_all_tasks_blocked()
            await self.let_go(ready)

    async def end_call(self, n: int, kind: str) -> bool:
        """Let a call end; return whether that breaks the run."""
        if kind in THREADS:
            self.stage.gates[n].set()
            await until(self.state, lambda: not self.is_pending(n) or self.is_recorded_error(n))
        else:
            self.stage.cues[n].set()
        await trio.testing.wait_all_tasks_blocked()
        return kind in BREAKING

    async def let_go(self, ready: dict[int, str]) -> None:
        """After a cut: those end that are waited for; threads that aren't stay behind."""
        for n, kind in ready.items():
            if kind in THREADS and kind not in WAITED_FOR:
                self.give_up(n, kind)
        for n, kind in ready.items():
            if kind in WAITED_FOR:
                if kind in THREADS:
                    self.stage.gates[n].set()
                else:
                    self.stage.cues[n].set()

    def call_of(self, n: int) -> ToolCall:
        replies = [entry.content for entry in self.state.history if entry.kind == "model_reply"]
        (call,) = [call for reply in replies for call in reply.tool_calls if call.args == {"n": n}]
        return call

    def is_pending(self, n: int) -> bool:
        return self.call_of(n) in self.state.pending_calls

    def is_recorded_error(self, n: int) -> bool:
        call = self.call_of(n)
        return any(entry.kind == "error" and entry.call == call for entry in self.state.history)

    def give_up(self, n: int, kind: str) -> None:
        if kind in THREADS:
            self.hung.append(Hung(self.stage.gates[n], self.state, self.call_of(n).id))

    def play(self, act: Callable[..., Any], turns: Sequence[Turn], numbers: list[list[int]] | None = None) -> None:
        """Run an action with a conductor beside it, in a trio run of its own."""
        clock = trio.testing.MockClock()
        if numbers is None:
            numbers = [[next(self.stage.numbers) for _ in turn.calls] for turn in turns]
        starts = self.starts = [trio.Event() for _ in turns]

        async def main() -> None:
            cut = trio.CancelScope(deadline=trio.current_time() + 1_000_000)

            async def conduct() -> None:
                try:
                    for turn, ns, start in zip(turns, numbers, starts, strict=True):
                        await self.conduct(turn, ns, start, clock, cut)
                except Exception:
                    self.stage.open_all()
                    raise

            async with trio.open_nursery() as nursery, not_stuck(nursery, self.stage):
                nursery.start_soon(conduct)
                with cut, suppress(ArithmeticError, ConnectionError, CutOffError):
                    await act(cut, [*map(self.asking, turns, numbers, starts)])
                nursery.cancel_scope.cancel()

        trio.run(main, clock=clock)

    # What is done

    def do(self, step: str, *args: Any) -> None:
        """Do a step as far as it can be done now, and check all laws."""
        getattr(self, step)(*args)
        self.happen("snapshot")
        self.check()

    def can_think(self) -> bool:
        return not self.state.finished and not self.state.pending_calls and len(self.state.messages) > 0

    def run(self, turns: list[Turn], how: str, before: list[str]) -> None:
        self.use_tools(turns[0].events, turns[0].end)
        if self.state.finished or self.state.pending_calls:
            return
        self.happen("say")

        async def act(cut: trio.CancelScope, asking: list[Any]) -> None:
            script = [*asking, self.ending(how, before, cut)]
            # What was added while the model spoke its last word makes the loop go on.
            script += [self.word() for _ in range(3)]
            await self.agent(script).run(self.state)

        self.play(act, turns)
        self.assert_closed()

    def assert_closed(self) -> None:
        """Every call has one result, but for late ones."""
        assert not self.state.pending_calls
        assert not self.state.snapshot_now().request_open
        asked = [call.id for e in self.state.history if e.kind == "model_reply" for call in e.content.tool_calls]
        closed = [e.call.id for e in self.state.history if e.kind == "tool_result" and not e.late]
        assert sorted(closed) == sorted(asked)
        assert len(set(asked)) == len(asked)

    def think_of_calls(self, turn: Turn) -> None:
        if self.can_think():
            numbers = [next(self.stage.numbers) for _ in turn.calls]
            trio.run(self.agent([self.asking(turn, numbers, trio.Event())]).think, self.state)
            assert len(self.state.pending_calls) == len(turn.calls)

    def think_alone(self, how: str, before: list[str]) -> None:
        async def act(cut: trio.CancelScope, asking: list[Any]) -> None:
            await self.agent([self.ending(how, before, cut)]).think(self.state)

        if self.can_think():
            self.play(act, [])
            assert not self.state.pending_calls

    def use_tools(self, events: list[tuple[str, int]], end: str) -> None:
        calls = self.state.pending_calls
        turn = Turn([("malformed" if call.args is None else call.name, call.id) for call in calls], [], events, end)
        numbers = [-1 if call.args is None else call.args["n"] for call in calls]

        async def act(cut: trio.CancelScope, asking: list[Any]) -> None:
            self.stage.expect(turn.conducted, self.starts[0])
            await self.agent().use_tools(self.state)

        if calls and not self.state.finished:
            self.play(act, [turn], [numbers])

    def say(self, kind: str) -> None:
        self.happen(kind)

    def a_thread_left_behind_ends(self, which: int) -> None:
        trio.run(self.release, which)

    def make_smaller(self, keep: int | None) -> None:
        if self.state.pending_calls:
            with pytest.raises(ValueError, match="pending"):
                self.state.compact("so far")
        elif keep is None:
            self.state.compact(self.word())
        else:
            self.state.clear_tool_results(keep_last=keep)

    def compact_by_the_model(self, before: list[str], how: str) -> None:
        messages = list(self.state.messages)

        async def main() -> None:
            with trio.CancelScope() as scope:

                async def summarise(request: Request) -> Any:
                    for which, event in enumerate(before):
                        await self.release(which) if event == "release" else self.happen(event)
                    if how == "cancel":
                        scope.cancel()
                        await trio.sleep_forever()
                    return {"summary": "so far", "blank": " ", "error": ConnectionError("gone")}[how]

                with suppress(ConnectionError, OutputError):
                    await self.agent([summarise]).compact(self.state)

        if self.can_think():
            trio.run(main)
            said = sum(event in ("say", "notice") for event in before)
            kept = list(self.state.messages)[: len(self.state.messages) - said]
            assert kept[-1].is_summary if how == "summary" else kept == messages

    def ask(self) -> None:
        before = list(self.state.messages)
        if not self.state.finished:
            trio.run(self.agent([self.word()]).ask, self.state, "why?")
        assert list(self.state.messages) == before

    def restorable(self) -> list[StateSnapshot]:
        return [
            snapshot
            for snapshot, _ in self.taken
            if not snapshot.pending_calls
            and not snapshot._snap.request_open
            and list(self.state.history[: len(snapshot.history)]) == list(snapshot.history)
        ]

    def restore_to(self, snapshot: StateSnapshot) -> None:
        before, length = self.state.usage, len(self.state.history)
        self.state.restore(snapshot)
        now = values(self.state)
        was = values(snapshot)
        assert {k: now[k] for k in now.keys() - PASSES_BY_RESTORE} == {
            k: was[k] for k in now.keys() - PASSES_BY_RESTORE
        }
        assert self.state.usage == before
        assert len(self.state.history) == length + 1

    def restore(self, first: int, second: int | None) -> None:
        """To any moment, and from there to any later one: each gives its moment's values."""
        found = sorted(self.restorable(), key=lambda snapshot: len(snapshot.history))
        if found and not self.state.pending_calls:
            self.restore_to(found[first % len(found)])
            if second is not None:
                later = found[first % len(found) :]
                self.restore_to(later[second % len(later)])

    def fork(self, on: bool) -> None:
        """Go on with the fork, or with the State while the fork goes its own way."""
        before = values(self.state)
        fork = self.state.fork()
        assert values(fork) == before
        changed, kept = (fork, self.state) if on else (self.state, fork)
        changed.add_message(Message.user(self.word()))
        assert values(kept) == before
        self.state = changed if on else self.state

    def die_and_load(self, back: int) -> None:
        """The process dies, and another loads whatever of the history was durable."""
        length = max(len(self.state.history) - back, 1)
        if not len(self.state.history):
            return
        saved = State(id=f"saved-{next(self.words)}", history=self.state.history[:length])

        async def main() -> State:
            store = MemoryStore()
            await store.save(saved)
            loaded = await store.load(saved.id)
            assert (await store.load(saved.id)).snapshot() == loaded.snapshot()
            return loaded

        loaded = trio.run(main)
        assert not loaded.pending_calls
        assert list(loaded.history[:length]) == list(saved.history)
        loaded.store, loaded.loaded = None, False  # each run has a trio run of its own, and the Agents have other tools
        self.state = loaded

    # What must hold after each step

    def check(self) -> None:
        assert_replays(self.state)
        for snapshot, was in self.taken:
            assert values(snapshot) == was
        for (earlier, _), (later, _) in itertools.pairwise(self.taken):
            shorter, longer = sorted([list(earlier.history), list(later.history)], key=len)
            if earlier.id == later.id:
                assert longer[: len(shorter)] == shorter
        self.check_next_request()

    def check_next_request(self) -> None:
        """Made by a fork, since it must change nothing here; while calls are pending it is that of a side question."""
        state = self.state
        if not len(state.messages):
            return
        if state.finished:
            sent(state.messages if not state.pending_calls else state.messages[:-1])
            return
        fork = state.fork()
        agent = self.agent(["yes"])
        action = partial(agent.ask, fork, "how is it going?") if fork.pending_calls else partial(agent.think, fork)
        untold = [] if fork.pending_calls else fork.snapshot_now().late
        asked = {call.id for message in fork.messages for call in message.tool_calls}
        trio.run(action)
        assert agent.model.fake.remaining == 0
        told = [message.text for message in fork.messages if message.is_notice]
        for entry in untold:
            if entry.call.id in asked:
                assert any(f"({entry.call.id}), closed before" in text for text in told)


def step(name: str, *args: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.just(name), *args)


talks = st.lists(talk, max_size=2)
runs = step("run", st.lists(turns, min_size=1, max_size=2), endings, talks)
says = step("say", st.sampled_from(["say", "notice", "edit", "say", "notice", "finish"]))
releases = step("a_thread_left_behind_ends", st.integers(0, 5))
restores = step("restore", st.integers(0, 20), st.none() | st.integers(0, 20))
rarer = [
    step("think_of_calls", turns),
    step("think_alone", endings, talks),
    step("use_tools", events, st.sampled_from(["all end", "cancel", "deadline"])),
    step("make_smaller", st.none() | st.integers(0, 3)),
    step("compact_by_the_model", talks, st.sampled_from(["summary", "blank", "error", "cancel"])),
    step("ask"),
    step("fork", st.booleans()),
    step("die_and_load", st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13])),
]
steps = st.sampled_from([*[runs] * 6, *[says] * 2, *[releases] * 3, *[restores] * 4, *rarer]).flatmap(lambda step: step)


@example_share(0.6)
@given(st.lists(steps, min_size=3, max_size=10))
def test_whatever_is_done_the_next_request_is_well_formed_and_replay_equals_live(done: list[tuple[Any, ...]]):
    """Cancelled, failing, late, restored, compacted, forked, crashed; snapshots never change, restores go both ways."""
    everything = Everything()
    try:
        for name, *args in done:
            everything.do(name, *args)
    finally:
        everything.stage.open_all()


# Forks


@tool(parallel=False)
async def pick(n: int) -> str:
    """Pick n, one after the other, so that results come in one order."""
    await trio.lowlevel.checkpoint()
    if n == 2:
        raise ToolError("not 2")
    return f"picked {n}"


asked = st.lists(st.tuples(call_ids, st.integers(1, 3)), max_size=3).map(tuple)
turn = st.tuples(st.just("turn"), asked)
plain = ["say", "notice", "edit", "compact", "ask", "fail", "snapshot", "use_tools"]
change = st.one_of(
    turn,
    turn | st.tuples(st.just("think"), asked),
    st.tuples(st.sampled_from(plain), st.just(())),
    st.tuples(st.sampled_from(["clear", "restore", "restore", "cut short", "cut short", "finish"]), st.integers(0, 3)),
)


class Line:
    """A State and what is done to it alone: the same changes give the same history."""

    def __init__(self, state: State, snapshots: Sequence[StateSnapshot] = ()) -> None:
        self.state = state
        self.snapshots = list(snapshots)
        self.done = 0

    def do(self, what: str, how: Any) -> None:
        """Do it; what the State refuses is left."""
        self.done += 1
        with suppress(ValueError, ConnectionError):
            self._do(what, how, f"{what} {self.done}")

    def _do(self, what: str, how: Any, text: str) -> None:
        state = self.state
        match what:
            case "say":
                state.add_message(Message.user(text))
            case "notice":
                state.add_message(Message.notice(text))
            case "edit":
                with state.edit_extra_data() as data:
                    data.setdefault("done", []).append(text)
            case "compact":
                state.compact(text)
            case "ask":
                trio.run(Agent(model=StrictModel([text]), tools=[pick]).ask, state, "why?")
            case "fail":
                trio.run(Agent(model=StrictModel([ConnectionError("gone")]), tools=[pick]).think, state)
            case "finish":
                state.finish(text)
            case "turn" | "think":
                calls = [ToolCall(call_id, "pick", {"n": n}) for call_id, n in how]
                trio.run(Agent(model=StrictModel(), tools=[pick]).use_tools, state)
                trio.run(Agent(model=StrictModel([calls or text]), tools=[pick]).think, state)
                if what == "turn":
                    trio.run(Agent(model=StrictModel(), tools=[pick]).use_tools, state)
            case "use_tools":
                trio.run(Agent(model=StrictModel(), tools=[pick]).use_tools, state)
            case "cut short":
                trio.run(self._cut_short, how)
            case "clear":
                state.clear_tool_results(keep_last=how)
            case "snapshot":
                self.snapshots.append(state.snapshot())
            case "restore" if self.snapshots:
                state.restore(self.snapshots[how % len(self.snapshots)])

    async def _cut_short(self, after: int) -> None:
        """A run whose last tool is cancelled."""
        with trio.CancelScope() as scope:

            @tool(parallel=False)
            async def hang() -> str:
                """Hang."""
                scope.cancel()
                await trio.sleep_forever()
                raise AssertionError

            calls = [*[ToolCall("", "pick", {"n": n}) for n in range(after)], ToolCall("", "hang", {})]
            self.state.add_message(Message.user("go on"))
            await Agent(model=StrictModel([calls]), tools=[pick, hang]).run(self.state)


@example_share(0.4)
@given(before=st.lists(change, max_size=4), mine=st.lists(change, min_size=2, max_size=8), data=st.data())
def test_forks_never_touch_each_other_or_what_they_came_from(before: Any, mine: Any, data: st.DataObject):
    """Two forks and their origin, changed in any order: each is as if there was no other."""
    origin = Line(State(messages=[Message.user("go")]))
    for step in before:
        origin.do(*step)
    lines = [Line(origin.state.fork(), origin.snapshots), Line(origin.state.fork(), origin.snapshots), origin]
    copies = [Line(State(history=origin.state.history), origin.snapshots) for _ in lines]
    for line in [*lines, *copies]:
        line.done = origin.done
    own = [mine, data.draw(st.lists(change, min_size=2, max_size=8)), data.draw(st.lists(change, max_size=3))]
    order = data.draw(st.permutations([which for which, steps in enumerate(own) for _ in steps]))

    left = [iter(steps) for steps in own]
    for which in order:
        lines[which].do(*next(left[which]))

    for line, copy, steps in zip(lines, copies, own, strict=True):
        for step in steps:
            copy.do(*step)
        assert line.state.history == copy.state.history
        assert list(line.state.messages) == list(copy.state.messages)
        assert line.state.snapshot() == copy.state.snapshot()
        assert_replays(line.state)


# Threads and tasks at once

TIMES = 4
"""How often each worker carries out its plan: threads need time to get into each other's way."""
WORKERS = ["thread", "thread", "thread", "task", "task"]
deed = st.sampled_from(
    ["say", "say", "say and wait", "edit", "edit", "finish", "compact", "clear", "restore", "fork", "read"]
)


def imported() -> State:
    """A State with results in it, that can be cleared."""
    messages = [Message.user("go")]
    for n in range(3):
        messages += [Message("assistant", [ToolCall(f"c{n}", "pick", {"n": n})])]
        messages += [Message("tool", [ToolResultBlock(f"c{n}", [TextBlock(f"picked {n}")])])]
    return State(messages=messages, extra_data={"n": 0})


class Crowd:
    """Workers in threads and tasks that change one State at once."""

    def __init__(self, plans: list[list[str]]) -> None:
        self.state = imported()
        self.plans = [plan * TIMES for plan in plans]
        self.taken = [[self.state.snapshot()] for _ in plans]
        self.forks: list[State] = []

    def do(self, who: int, n: int, deed: str) -> Any:
        """Do what needs no waiting; return what can be awaited."""
        state, text = self.state, f"{who} {n}"
        match deed:
            case "say" | "say and wait":
                return state.add_message(Message.user(text))
            case "edit":
                with state.edit_extra_data() as data:
                    data["n"] += 1
                    data[str(who)] = n
            case "finish":
                return state.finish(text)
            case "compact":
                return state.compact(text)
            case "clear":
                return state.clear_tool_results(keep_last=n % 3)
            case "restore":
                return state.restore(self.taken[who][n % len(self.taken[who])])
            case "fork":
                self.forks.append(state.fork())
        self.taken[who].append(state.snapshot())
        return None

    def thread(self, who: int, together: threading.Barrier) -> None:
        together.wait(STUCK_SECONDS)
        for n, deed in enumerate(self.plans[who]):
            self.do(who, n, deed)

    async def task(self, who: int) -> None:
        for n, deed in enumerate(self.plans[who]):
            if deed == "edit":
                async with self.state.edit_extra_data() as data:
                    data["n"] += 1
                    await trio.lowlevel.checkpoint()
                    data[str(who)] = n
                continue
            receipt = self.do(who, n, deed)
            if deed == "say and wait":
                await receipt
            await trio.lowlevel.checkpoint()

    async def main(self) -> None:
        together = threading.Barrier(WORKERS.count("thread"))
        async with trio.open_nursery() as nursery:
            for who, kind in enumerate(WORKERS):
                if kind == "thread":
                    nursery.start_soon(trio.to_thread.run_sync, self.thread, who, together)
                else:
                    nursery.start_soon(self.task, who)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@example_share(0.2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(deed, min_size=5, max_size=25), min_size=len(WORKERS), max_size=len(WORKERS)))
def test_threads_and_tasks_at_once_leave_one_history_that_replays(quick_switches: None, plans: list[list[str]]):
    """However they interleave: no change is lost, each worker's are in its order, and snapshots stay what they were."""
    crowd = Crowd(plans)

    trio.run(crowd.main)

    state = crowd.state
    assert_replays(state)
    for who, plan in enumerate(crowd.plans):
        said = [f"{who} {n}" for n, deed in enumerate(plan) if deed.startswith("say")]
        assert [e.content.text for e in state.history if e.kind == "user" and e.content.text[:2] == f"{who} "] == said
        finished = [f"{who} {n}" for n, deed in enumerate(plan) if deed == "finish"]
        stops = [e.content.answer for e in state.history if e.kind == "stop"]
        assert [answer for answer in stops if answer[:2] == f"{who} "] == finished
    edits = [e.content["n"] for e in state.history if e.kind == "extra_data"][1:]
    assert len(edits) == sum(plan.count("edit") for plan in crowd.plans)
    if not any("restore" in plan for plan in plans):
        assert edits == list(range(1, len(edits) + 1))
    for snapshot in itertools.chain(*crowd.taken, [fork.snapshot() for fork in crowd.forks]):
        assert list(state.history[: len(snapshot.history)]) == list(snapshot.history)
        assert State(history=snapshot.history).snapshot() == snapshot
    sent(state.messages)
