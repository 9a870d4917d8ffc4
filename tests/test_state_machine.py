"""The heart of the suite: whatever is done to a State, in whatever order, replay gives the same State again.

Every request that the scripted model gets is checked by FakeModel for being well formed.
"""

from __future__ import annotations

import contextlib
import functools

import pytest
import trio
import trio.testing
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from alpineagents import Agent, Message, OutputError, State, ToolError, tool
from alpineagents.testing import FakeModel, tool_call

from .states import assert_replays, values

words = st.text(min_size=1, max_size=8).filter(lambda text: text.strip())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@tool
async def good(n: int) -> str:
    """Say n."""
    await trio.lowlevel.checkpoint()
    return f"got {n}"


@tool
async def complaining(n: int) -> str:
    """Fail in a way the model should hear of."""
    raise ToolError(f"no {n}")


@tool
async def broken(n: int) -> str:
    """Fail in a way nobody expected."""
    await trio.lowlevel.checkpoint()
    raise ArithmeticError(f"bug {n}")


@tool
async def slow(n: int) -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


TOOLS = [good, complaining, broken, slow]
calls = st.lists(st.sampled_from(["good", "good", "complaining", "broken", "slow", "unknown"]), min_size=1, max_size=4)


def asking_for(names: list[str]) -> list:
    return [tool_call(name, n=i) for i, name in enumerate(names)]


def agent_with(*script: object) -> Agent:
    return Agent(model=FakeModel(script), tools=TOOLS)


def step(fn, *args, cancel: bool = False, raises: tuple[type[BaseException], ...] = ()) -> None:
    """Run one action in a trio run of its own; where it would wait for ever, cancel it when all is quiet."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def act() -> None:
                with contextlib.suppress(*raises):
                    await fn(*args)
                nursery.cancel_scope.cancel()

            nursery.start_soon(act)
            if cancel:
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()

    trio.run(main)


class StateMachine(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")

    @initialize(messages=st.lists(words, max_size=2), data=st.dictionaries(words, json_values, max_size=2))
    def start(self, messages, data):
        self.state = State(messages=[Message.user(text) for text in messages], extra_data=data)
        self.taken: list[tuple[object, dict[str, object]]] = []

    def free(self) -> bool:
        return not self.state.finished

    def between_turns(self) -> bool:
        return not self.state.pending_calls

    def can_think(self) -> bool:
        return self.free() and self.between_turns() and len(self.state.messages) > 0

    @rule(text=words, notice=st.booleans())
    def add_message(self, text, notice):
        self.state.add_message(Message.notice(text) if notice else Message.user(text))

    @precondition(can_think)
    @rule(text=words)
    def think_text(self, text):
        step(agent_with(text).think, self.state)
        assert self.state.messages[-1].text == text

    @precondition(can_think)
    @rule(names=calls)
    def think_calls(self, names):
        step(agent_with(asking_for(names)).think, self.state)
        assert len(self.state.pending_calls) == len(names)

    @precondition(can_think)
    @rule()
    def think_fails(self):
        turn = self.state.turn
        step(agent_with(ConnectionError("gone")).think, self.state, raises=(ConnectionError,))
        assert self.state.turn == turn

    @precondition(can_think)
    @rule(text=words)
    def think_is_cancelled_while_a_message_arrives(self, text):
        async def reply(request):
            self.state.add_message(Message.user(text))
            await trio.sleep_forever()

        step(agent_with(reply).think, self.state, cancel=True)
        assert self.state.messages[-1].text == text

    @precondition(lambda self: self.free() and not self.between_turns())
    @rule()
    def use_tools(self):
        step(agent_with().use_tools, self.state, cancel=True, raises=(ArithmeticError,))

    @precondition(lambda self: self.free() and self.between_turns())
    @rule(names=calls, text=words)
    def run(self, names, text):
        self.state.add_message(Message.user(text))
        agent = agent_with(asking_for(names), text)
        step(agent.run, self.state, cancel=True, raises=(ArithmeticError,))
        assert not self.state.pending_calls

    @rule(data=st.dictionaries(words, json_values, max_size=2), drop=st.booleans())
    def edit_extra_data(self, data, drop):
        with self.state.edit_extra_data() as current:
            if drop:
                current.clear()
            current.update(data)

    @precondition(lambda self: self.free() and self.between_turns())
    @rule(answer=json_values)
    def finish(self, answer):
        self.state.finish(answer)
        assert self.state.finished
        assert answer is None or self.state.answer == answer

    @precondition(between_turns)
    @rule(text=words)
    def compact(self, text):
        self.state.compact(text)
        assert sum(message.is_summary for message in self.state.messages) == 1

    @precondition(can_think)
    @rule(text=words, late=words)
    def compact_by_the_model_while_a_message_arrives(self, text, late):
        def reply(request):
            self.state.add_message(Message.user(late))
            return text

        step(agent_with(reply).compact, self.state)
        assert self.state.messages[-1].text == late

    @precondition(between_turns)
    @rule(keep=st.integers(0, 3))
    def clear_tool_results(self, keep):
        self.state.clear_tool_results(keep_last=keep)

    @precondition(free)
    @rule(text=words)
    def ask(self, text):
        before = list(self.state.messages)
        step(functools.partial(agent_with(text).ask, self.state, "why?"))
        assert list(self.state.messages) == before

    @precondition(free)
    @rule()
    def ask_without_an_answer(self):
        step(functools.partial(agent_with("x", "y", "z").ask, self.state, "how many?", int), raises=(OutputError,))

    @rule(target=snapshots)
    def take_snapshot(self):
        snapshot = self.state.snapshot()
        self.taken.append((snapshot, values(snapshot)))
        return multiple() if self.state.pending_calls else snapshot

    @precondition(between_turns)
    @rule(snapshot=snapshots)
    def restore(self, snapshot):
        usage = self.state.usage
        self.state.restore(snapshot)
        kept = {"history", "usage", "updated_at", "created_at"}
        assert {k: v for k, v in values(self.state).items() if k not in kept} == {
            k: v for k, v in values(snapshot).items() if k not in kept
        }
        assert self.state.usage == usage

    @rule()
    def fork_and_go_on_with_the_fork(self):
        before = values(self.state)
        fork = self.state.fork()
        assert values(fork) == before
        fork.add_message(Message.user("elsewhere"))
        assert values(self.state) == before
        self.state = self.state.fork()

    @precondition(lambda self: not self.between_turns())
    @rule()
    def what_must_wait_for_results_is_refused(self):
        before = values(self.state)
        for refused in (lambda: self.state.compact("x"), self.state.clear_tool_results):
            with pytest.raises(ValueError, match="pending"):
                refused()
        assert values(self.state) == before

    @invariant()
    def replay_equals_live(self):
        assert_replays(self.state)

    @invariant()
    def earlier_snapshots_are_prefixes_and_never_change(self):
        for snapshot, was in self.taken:
            assert values(snapshot) == was
            assert list(self.state.history[: len(snapshot.history)]) == list(snapshot.history)


TestStateMachine = StateMachine.TestCase
