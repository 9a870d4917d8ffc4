"""Whatever tree of Agents there is, however its requests fall together: no budget is ever overdrawn."""

from __future__ import annotations

from decimal import Decimal

import attrs
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    Budget,
    BudgetError,
    Message,
    Model,
    ModelEvent,
    Price,
    Reply,
    State,
    StoppedByBudget,
    TextBlock,
    ToolCall,
    Usage,
)

from ..run.runs import assert_whole

PRICE = Price(1_000_000, 2_000_000)  # $1 a token read, $2 a token written: whole numbers
READ, MOST_WRITTEN = 3, 20


@attrs.frozen
class Node:
    """An Agent of a tree: what each of its requests is like, and the subagents that it calls at once, again and again.

    The numbers are taken in turn; ``pauses`` are checkpoints, so that requests fall together in many ways.
    """

    turns: int
    pauses: list[int]
    written: list[int]
    retries: list[int]
    own: Budget | None
    children: list[Node]


budgets = st.builds(
    lambda kind, amount: Budget(**{kind: amount}),
    st.sampled_from(["requests", "tokens", "cost"]),
    st.integers(1, 40).map(lambda tens: tens * 3),
)
numbers = st.lists(st.integers(0, 3), min_size=1, max_size=3)


def nodes(children: st.SearchStrategy[list[Node]]) -> st.SearchStrategy[Node]:
    return st.builds(
        Node,
        turns=st.integers(1, 4),
        pauses=numbers,
        written=st.lists(st.integers(0, MOST_WRITTEN), min_size=1, max_size=3),
        retries=st.lists(st.integers(0, 2), min_size=1, max_size=2),
        own=st.none() | budgets,
        children=children,
    )


trees = st.recursive(nodes(st.just([])), lambda inner: nodes(st.lists(inner, min_size=1, max_size=4)), max_leaves=8)


class Scripted(Model):
    """Plays a Node: calls all its subagents in each turn but the last. Counts what it sends."""

    name = "fake/scripted"
    price = PRICE
    max_tokens = MOST_WRITTEN

    def __init__(self, node: Node, sent: list[Usage]) -> None:
        self.node = node
        self.sent = sent

    async def respond(self, request, emit):
        turn = sum(message.role == "assistant" for message in request.messages)
        written = of(self.node.written, turn)
        spent = Usage()
        for retry in range(of(self.node.retries, turn), -1, -1):
            self.sent.append(Usage(requests=1))
            for _ in range(of(self.node.pauses, turn)):
                await trio.lowlevel.checkpoint()
            used = Usage(input_tokens=READ, output_tokens=written) if written or not retry else Usage()
            used = attrs.evolve(used, cost=PRICE.cost(used))
            self.sent.append(used)
            spent += attrs.evolve(used, requests=1)
            if retry:
                self.emit_retry(emit, spent, restarted=bool(written))
        if turn + 1 < self.node.turns and self.node.children:
            calls = [
                ToolCall(f"call_{turn}_{number}", f"child_{number}", {"prompt": "part"})
                for number in range(len(self.node.children))
            ]
            return Reply(tuple(calls), "", "tool_calls", spent)
        return Reply((TextBlock("done"),), "", "stop", spent)

    @staticmethod
    def emit_retry(emit, spent: Usage, *, restarted: bool) -> None:
        """An attempt broke off: after all that it writes, or before it has cost anything."""
        try:
            emit(ModelEvent("retry", "again", {"restarted": restarted}))
        except BudgetError as error:
            error.usage = spent  # as models behind HTTP do
            raise


def of(numbers: list[int], turn: int) -> int:
    return numbers[turn % len(numbers)]


def agent_of(node: Node, sent: list[Usage], name: str, budget: Budget | None) -> Agent:
    children = [agent_of(child, sent, f"child_{i}", child.own) for i, child in enumerate(node.children)]
    return Agent(model=Scripted(node, sent), tools=children, name=name, description=name, budget=budget)


def all_states(state: State) -> list[State]:
    """A State and all below it."""
    found = [state]
    for each in found:
        ids = [i for entry in each.history if entry.kind == "tool_result" for i in entry.child_ids]
        found.extend(each.child(child_id) for child_id in ids)
    return found


breaks_off_twice = Node(1, [0], [MOST_WRITTEN], [2], None, [])


@settings(max_examples=200)
@given(tree=trees, budget=budgets)
@example(tree=breaks_off_twice, budget=Budget(tokens=42))
@example(tree=breaks_off_twice, budget=Budget(cost=63))
def test_no_budget_is_overdrawn_whatever_the_tree(tree: Node, budget: Budget):
    sent: list[Usage] = []
    state = State(messages=[Message.user("all")])

    trio.run(agent_of(tree, sent, "lead", budget).run, state)

    spent = sum(sent, start=Usage())
    if budget.requests is not None:
        assert spent.requests <= budget.requests
    if budget.tokens is not None:
        assert spent.input_tokens + spent.output_tokens < budget.tokens + READ + MOST_WRITTEN
    if budget.cost is not None:
        assert spent.cost < budget.cost + PRICE.cost(Usage(input_tokens=READ, output_tokens=MOST_WRITTEN))
    assert state.usage.input_tokens == spent.input_tokens
    assert state.usage.output_tokens == spent.output_tokens
    assert state.usage.cost == spent.cost
    states = all_states(state)
    for each in states:
        assert_whole(each)
        assert not each.running
        assert not any(entry.kind == "tool_result" and entry.is_error for entry in each.history)
        own_stop = each.stopped
        if isinstance(own_stop, StoppedByBudget):
            assert Decimal(str(own_stop.used)) >= Decimal(str(own_stop.limit))
    assert sum(entry.kind == "model_reply" for each in states for entry in each.history) <= spent.requests


@settings(max_examples=100)
@given(tree=trees, budget=budgets)
def test_a_stream_counts_as_the_history_does(tree: Node, budget: Budget):
    state = State(messages=[Message.user("all")])

    async def main() -> Usage:
        async with agent_of(tree, [], "lead", budget).stream(state) as run:
            async for _ in run:
                pass
        return run.usage

    usage = trio.run(main)

    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (
        state.usage.input_tokens,
        state.usage.output_tokens,
        state.usage.cost,
    )
