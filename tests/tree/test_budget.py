"""Budgets: one for the whole tree, looked at before every request and turn, and how a run that it stops ends."""

from __future__ import annotations

import sys
import threading
from decimal import Decimal

import attrs
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    Budget,
    BudgetError,
    MemoryStore,
    Message,
    Model,
    ModelEvent,
    OutputError,
    OverloadedError,
    Price,
    ProviderError,
    RawBlock,
    Reply,
    StoppedByBudget,
    StoppedByLimit,
    StoppedByUntil,
    StoreError,
    TextBlock,
    Usage,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.models import Anthropic, Fallback, OpenAICompatible
from alpineagents.testing import FakeModel, Fault, ProviderServer, tool_call

from ..run.runs import FullStore, assert_saved, assert_whole, errors, kinds
from .trees import asked, child_of, closed, helper, lead, told


@tool
async def noop() -> None:
    """Do nothing."""


def busy(number: int) -> list:
    """A script that asks for a tool so many times before it answers."""
    return [*[tool_call("noop") for _ in range(number - 1)], "done"]


def worker(number: int = 3, **settings) -> Agent:
    return Agent(model=FakeModel(busy(number)), tools=[noop], **settings)


# What a Budget is


def test_a_budget_is_a_frozen_value():
    budget = Budget(cost="0.50", tokens=1000, requests=5, seconds=30)

    assert budget == Budget(cost=Decimal("0.50"), tokens=1000, requests=5, seconds=30)
    assert hash(budget) == hash(Budget(cost=Decimal("0.5"), tokens=1000, requests=5, seconds=30.0))
    assert Budget(cost=0.1).cost == Decimal("0.1")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        budget.requests = 6


@pytest.mark.parametrize("name", ["cost", "tokens", "requests", "seconds"])
@pytest.mark.parametrize("amount", [0, -1])
def test_an_amount_that_allows_nothing_is_refused(name, amount):
    with pytest.raises(ValueError, match=rf"{name} must be more than 0 \(got {amount}\)"):
        Budget(**{name: amount})


@pytest.mark.parametrize(
    ("name", "amount"),
    [("tokens", 1.5), ("requests", "5"), ("requests", True), ("cost", True), ("seconds", "9"), ("seconds", True)],
)
def test_an_amount_of_a_wrong_type_is_refused(name, amount):
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        Budget(**{name: amount})


@pytest.mark.parametrize("settings", [{"cost": "much"}, {"seconds": float("inf")}, {"seconds": float("nan")}, {}])
def test_what_is_no_amount_is_refused(settings):
    with pytest.raises(ValueError, match=r"number of US dollars|more than 0|needs an amount"):
        Budget(**settings)


def test_an_agent_takes_a_budget_only():
    with pytest.raises(TypeError, match=r"budget must be Budget, not int: Agent\(\.\.\., budget=Budget"):
        Agent(model=FakeModel(), budget=5)
    assert Agent(model=FakeModel(), budget=Budget(requests=5)).copy(system="x").budget == Budget(requests=5)


# One run


async def test_a_run_stops_before_the_turn_that_its_requests_do_not_allow():
    state = asked()
    agent = worker(3, budget=Budget(requests=2))

    assert await agent.run(state) is None

    assert state.stopped == StoppedByBudget("requests", 2, 2)
    assert state.usage.requests == 2
    assert kinds(state)[-2:] == ["tool_result", "stop"]
    assert not state.finished
    assert errors(state) == []
    assert_whole(state)


async def test_a_run_that_is_done_has_not_been_stopped_by_the_budget_that_it_used_up():
    """``until`` comes first, then ``limit``, then the budget."""
    state = asked()
    await worker(2, budget=Budget(requests=2)).run(state)
    assert isinstance(state.stopped, StoppedByUntil)

    @loop(until=never, limit=2)
    async def body(agent, state):
        await agent.think(state)
        await agent.use_tools(state)

    state = asked()
    await worker(3, loop=body, budget=Budget(requests=2)).run(state)
    assert state.stopped == StoppedByLimit(2)


def never(state) -> bool:
    return False


async def test_no_turn_begins_once_the_budget_is_used_up():
    turns = []

    @loop(until=never, limit=9)
    async def body(agent, state):
        turns.append(state.turn)
        if not turns[1:]:
            await agent.think(state)

    state = asked()
    await worker(loop=body, budget=Budget(requests=1)).run(state)

    assert turns == [0]
    assert state.stopped == StoppedByBudget("requests", 1, 1)


async def test_an_inner_loop_that_the_budget_stops_ends_the_outer_one_too():
    @loop(until=never, limit=9)
    async def inner(agent, state):
        await agent.think(state)
        await agent.use_tools(state)

    @loop(until=never, limit=9)
    async def outer(agent, state):
        await inner(agent, state)

    state = asked()
    await worker(9, loop=outer, budget=Budget(requests=2)).run(state)

    assert [entry.content for entry in state.history if entry.kind == "stop"] == [StoppedByBudget("requests", 2, 2)]


async def test_each_run_begins_at_zero_and_the_state_knows_the_total():
    """G5: limits per run here, per conversation by a rule over ``state.usage``, which a store keeps."""
    store = MemoryStore()
    state = asked()
    agent = worker(9, budget=Budget(requests=2), store=store)
    await agent.run(state)
    loaded = await store.load(state.id)
    await agent.run(loaded)

    assert loaded.stopped == StoppedByBudget("requests", 2, 2)
    assert loaded.usage.requests == 4

    def five_in_all(state) -> bool:
        return state.usage.requests >= 5

    again = await store.load(state.id)
    await agent.copy(loop=agent.loop.copy(until=[waiting_for_user, five_in_all]), budget=None).run(again)
    assert again.stopped == StoppedByUntil("five_in_all")
    assert again.usage.requests == 5


async def test_tokens_are_looked_at_before_the_next_request():
    state = asked()
    await worker(5, budget=Budget(tokens=50)).run(state)

    assert state.stopped == StoppedByBudget("tokens", 50, 60)
    assert state.usage.requests == 3


async def test_cost_is_exact():
    def priced(request):
        return Reply((tool_call("noop"),), "", "tool_calls", Usage(input_tokens=1, requests=1, cost="0.1"))

    state = asked()
    await Agent(model=FakeModel(priced), tools=[noop], budget=Budget(cost="0.3")).run(state)

    assert state.stopped == StoppedByBudget("cost", "0.3", "0.3")
    assert state.usage.cost == Decimal("0.3")


async def test_a_cost_that_nobody_knows_stops_the_run_before_the_next_request():
    def unpriced(request):
        return Reply((tool_call("noop"),), "", "tool_calls", Usage(input_tokens=1, requests=1, cost=None))

    state = asked()
    await Agent(model=FakeModel(unpriced), tools=[noop], budget=Budget(cost="0.3")).run(state)

    assert state.stopped == StoppedByBudget("cost", "0.3", None)
    assert "budget of cost: unknown of 0.3" in str(state)
    assert state.usage.requests == 1
    assert_whole(state)


async def test_a_model_above_is_told_of_a_price_that_nobody_knows():
    unknown = Reply((tool_call("noop"),), "", "tool_calls", Usage(input_tokens=1, requests=1, cost=None))
    state = asked()
    await lead(helper(unknown, tools=[noop]), budget=Budget(cost="0.3")).run(state)

    line = "(helper stopped before it was done: the budget of $0.3 can't be kept, since a model's price is unknown)"
    assert told(state) == [("done", line)]


async def test_seconds_are_those_since_the_run_began(autojump_clock):
    state = asked()
    agent = Agent(model=FakeModel(busy(9), delay=4), tools=[noop], budget=Budget(seconds=10))
    await trio.sleep(100)
    await agent.run(state)

    assert state.stopped == StoppedByBudget("seconds", 10, 12.0)
    assert state.usage.requests == 3


async def test_a_stop_by_budget_is_saved_and_the_state_runs_on():
    store = MemoryStore()
    state = asked()
    agent = worker(3, budget=Budget(requests=2, cost="9.99"), store=store)
    await agent.run(state)
    loaded = await assert_saved(store, state)

    assert loaded.stopped == state.stopped
    assert await agent.run(loaded) == "done"


# Requests inside a turn


async def test_a_refused_think_opens_no_request_and_the_run_ends_normally():
    @loop(until=waiting_for_user, limit=5)
    async def body(agent, state):
        await agent.think(state)
        await agent.use_tools(state)
        await agent.think(state)

    state = asked()
    await worker(9, loop=body, budget=Budget(requests=1)).run(state)

    assert state.stopped == StoppedByBudget("requests", 1, 1)
    assert kinds(state).count("model_request") == 1
    assert errors(state) == []
    assert_whole(state)


@pytest.mark.parametrize("action", ["ask", "compact"])
async def test_side_questions_count_and_are_refused(action):
    @loop(until=never, limit=5)
    async def body(agent, state):
        await agent.think(state)
        state.add_message(Message.user("go on"))
        await (agent.ask(state, "sure?") if action == "ask" else agent.compact(state))

    state = asked()
    await Agent(model=FakeModel(lambda request: "text"), loop=body, budget=Budget(requests=3)).run(state)

    assert state.stopped == StoppedByBudget("requests", 3, 3)
    assert state.usage.requests == 3
    assert errors(state) == []
    assert_whole(state)


async def test_what_a_question_spent_before_it_was_refused_is_recorded():
    @loop(until=never, limit=5)
    async def body(agent, state):
        await agent.ask(state, "how many?", int, retries=5)

    state = asked()
    await Agent(model=FakeModel(lambda request: "many"), loop=body, budget=Budget(requests=3)).run(state)

    assert state.stopped == StoppedByBudget("requests", 3, 3)
    assert state.usage.requests == 3
    assert errors(state) == ["BudgetError: no request was sent: the budget of 3 requests is used up"]


async def test_a_question_that_failed_counts():
    state = asked()

    @loop(until=never, limit=5)
    async def body(agent, state):
        with pytest.raises(OutputError):
            await agent.ask(state, "how many?", int, retries=1)

    await Agent(model=FakeModel(lambda request: "many"), loop=body, budget=Budget(requests=2)).run(state)

    assert state.stopped == StoppedByBudget("requests", 2, 2)


async def test_a_loop_body_may_go_on_after_a_refusal_and_is_stopped_at_the_next_turn():
    caught = []

    @loop(until=never, limit=5)
    async def body(agent, state):
        try:
            await agent.think(state)
            state.add_message(Message.user("more"))
            await agent.think(state)
        except BudgetError as error:
            caught.append(str(error))

    state = asked()
    await Agent(model=FakeModel(lambda request: "text"), loop=body, budget=Budget(requests=1)).run(state)

    assert caught == ["no request was sent: the budget of 1 request is used up"]
    assert [entry.content for entry in state.history if entry.kind == "stop"] == [StoppedByBudget("requests", 1, 1)]


async def test_a_refusal_in_a_nursery_of_the_loop_body_ends_the_run_normally_too():
    async def body(agent, state):
        await agent.think(state)
        state.add_message(Message.user("more"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.think, state)

    state = asked()
    await Agent(model=FakeModel(lambda request: "text"), loop=body, budget=Budget(requests=1)).run(state)

    assert state.stopped == StoppedByBudget("requests", 1, 1)
    assert errors(state) == []


async def test_another_failure_beside_a_refusal_comes_out():
    async def body(agent, state):
        await agent.think(state)
        try:
            await agent.ask(state, "?")
        except BudgetError as error:
            raise ExceptionGroup("mine", [error, OSError("bug")]) from None

    state = asked()
    with pytest.raises(ExceptionGroup, match="mine"):
        await Agent(model=FakeModel(lambda request: "text"), loop=body, budget=Budget(requests=1)).run(state)

    assert state.stopped == StoppedByBudget("requests", 1, 1)


async def test_finish_is_not_taken_back_by_a_refusal():
    async def body(agent, state):
        await agent.think(state)
        state.finish("mine")
        with pytest.raises(ValueError, match="finished"):
            await agent.think(state)

    state = asked()
    assert await Agent(model=FakeModel(["x"]), loop=body, budget=Budget(requests=1)).run(state) == "mine"
    assert state.finished


# Retries


class Flaky(Model):
    """Fails so many times, tells of each retry, then answers."""

    name = "fake/flaky"

    def __init__(self, failures: int, tokens: int = 0) -> None:
        self.failures = failures
        self.tokens = tokens
        self.sent = 0

    async def respond(self, request, emit):
        spent = Usage()
        for attempt in range(self.failures):
            await trio.lowlevel.checkpoint()
            self.sent += 1
            spent += Usage(requests=1, output_tokens=self.tokens)
            try:
                emit(ModelEvent("retry", f"try {attempt + 2}", {"restarted": True}))
            except BudgetError as error:
                error.usage = spent  # as models behind HTTP do
                raise
        self.sent += 1
        return Reply((TextBlock("well"),), "", "stop", spent + Usage(requests=1))


@pytest.mark.parametrize(("failures", "sent", "answer"), [(1, 2, "well"), (2, 3, "well"), (3, 3, None), (9, 3, None)])
async def test_each_retry_of_a_model_is_a_request(failures, sent, answer):
    state = asked()
    model = Flaky(failures, tokens=7)
    assert await Agent(model=model, budget=Budget(requests=3)).run(state) == answer

    assert model.sent == sent == state.usage.requests
    assert state.usage.output_tokens == 7 * min(failures, 3)
    if answer is None:
        assert state.stopped == StoppedByBudget("requests", 3, 3)
        assert errors(state) == ["BudgetError: no request was sent: the budget of 3 requests is used up"]
    assert_whole(state)


async def test_retries_over_http_are_counted_before_they_are_sent(autojump_clock):
    state = asked()
    async with ProviderServer([Fault(status=503) for _ in range(9)]) as server:
        model = OpenAICompatible("x", base_url=server.base_url, api_key="none", retries=8)
        await Agent(model=model, budget=Budget(requests=3)).run(state)

        assert len(server.requests) == 3
    assert state.usage.requests == 3
    assert state.stopped == StoppedByBudget("requests", 3, 3)
    assert_whole(state)


async def test_each_continuation_of_a_reply_that_the_provider_paused_is_a_request():
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    blocks = (TextBlock("On."), RawBlock("anthropic", search), RawBlock("anthropic", found))
    paused = Reply(blocks, "", "pause_turn", Usage(10, 2, requests=1))
    state = asked()
    async with ProviderServer([paused] * 9) as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.origin, api_key="none", max_tokens=100)
        await Agent(model=model, budget=Budget(requests=3)).run(state)

        assert len(server.requests) == 3
    assert state.usage.requests == 3
    assert state.usage.input_tokens == 30
    assert state.stopped == StoppedByBudget("requests", 3, 3)


async def test_a_fallback_is_a_request():
    state = asked()
    second = FakeModel(["well"])
    model = Fallback(FakeModel([ProviderError("down")]), second, on=ProviderError)
    await Agent(model=model, budget=Budget(requests=1)).run(state)

    assert state.stopped == StoppedByBudget("requests", 1, 1)
    assert second.requests == []


async def test_a_request_that_failed_without_saying_what_it_used_counts():
    @loop(until=never, limit=9)
    async def body(agent, state):
        with pytest.raises(OSError, match="gone"):
            await agent.think(state)

    state = asked()
    model = FakeModel(lambda request: OSError("gone"))
    await Agent(model=model, loop=body, budget=Budget(requests=2)).run(state)

    assert len(model.requests) == 2
    assert state.stopped == StoppedByBudget("requests", 2, 2)


async def test_a_request_that_a_full_store_kept_from_being_sent_does_not_count():
    failed = []

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        try:
            await agent.think(state)
        except StoreError as error:
            failed.append(error)

    state = asked()
    agent = Agent(model=FakeModel(["sent"]), loop=body, budget=Budget(requests=1), store=FullStore(1))

    assert await agent.run(state) == "sent"
    assert len(failed) == 1


async def test_a_cancelled_request_counts(autojump_clock):
    @loop(until=never, limit=9)
    async def body(agent, state):
        with trio.move_on_after(1):
            await agent.think(state)

    state = asked()
    model = FakeModel(lambda request: "late", delay=10)
    await Agent(model=model, loop=body, budget=Budget(requests=2)).run(state)

    assert len(model.requests) == 2
    assert state.stopped == StoppedByBudget("requests", 2, 2)


class Breaking(Model):
    """Writes 90 of its 100 tokens in each attempt, and breaks off so many times; or fails before it writes."""

    name = "fake/breaking"
    max_tokens = 100
    price = Price(0, 1_000_000)

    def __init__(self, failures: int, *, writes: bool = True, kind: str = "retry") -> None:
        self.failures = failures
        self.event = ModelEvent(kind, "again", {"restarted": True} if writes and kind != "continued" else {})
        self.tokens = 90 if writes else 0
        self.sent = 0

    async def respond(self, request, emit):
        spent = Usage()
        for _ in range(self.failures):
            await trio.lowlevel.checkpoint()
            self.sent += 1
            spent += Usage(output_tokens=self.tokens, requests=1, cost=self.tokens)
            try:
                emit(self.event)
            except BudgetError as error:
                error.usage = spent
                raise
        await trio.lowlevel.checkpoint()
        self.sent += 1
        return Reply((TextBlock("well"),), "", "stop", spent + Usage(output_tokens=90, requests=1, cost=90))


@pytest.mark.parametrize("kind", ["retry", "fallback", "continued"])
@pytest.mark.parametrize("budget", [Budget(tokens=150), Budget(cost=150)])
async def test_what_an_attempt_has_written_counts_before_the_next_is_sent(budget, kind):
    """However often an answer breaks off: what can be overshot is one reply."""
    state = asked()
    model = Breaking(9, kind=kind)
    await Agent(model=model, budget=budget).run(state)

    assert model.sent == 2
    assert isinstance(state.stopped, StoppedByBudget)
    assert state.usage.output_tokens == 180
    assert_whole(state)


@pytest.mark.parametrize("budget", [Budget(tokens=50), Budget(cost=50)])
async def test_a_retry_of_what_has_written_nothing_takes_the_place_of_the_request_before(budget):
    """What may be sent may be sent again: the request isn't kept from it by what it has reserved itself."""
    state = asked()
    model = Breaking(3, writes=False)
    assert await Agent(model=model, budget=budget).run(state) == "well"

    assert model.sent == 4


@pytest.mark.parametrize("failures", [0, 2])
async def test_what_attempts_had_reserved_is_there_again(failures):
    @loop(until=never, limit=3)
    async def body(agent, state):
        with trio.CancelScope() as scope:
            scope.cancel()
            await agent.think(state)
        await agent.ask(state, "?")

    state = asked()
    model = Breaking(failures, writes=False)
    await Agent(model=model, loop=body, budget=Budget(tokens=300)).run(state)

    assert state.stopped == StoppedByLimit(3)
    assert state.usage.output_tokens == 270


async def test_seconds_are_counted_by_the_clock_of_the_run_whichever_thread_asks():
    """Each trio run has a clock of its own, which begins somewhere else."""
    state = asked()

    async def answer(request):
        if request.messages[-1].text == "why?":
            return "because"
        return await trio.to_thread.run_sync(trio.run, agent.ask, state, "why?")

    agent = Agent(model=FakeModel(answer), budget=Budget(seconds=60))

    assert await agent.run(state) == "because"
    assert state.stopped == StoppedByUntil("waiting_for_user")


async def test_threads_that_ask_at_once_send_no_more_than_is_left():
    state, sent, gate = asked(), [], threading.Barrier(4)
    agent = Agent(model=FakeModel(lambda request: sent.append(1) or "text"))

    async def ask() -> None:
        for _ in range(1000):
            await agent.ask(state, "?")

    def thread() -> None:
        gate.wait(60)
        with pytest.raises(BudgetError):
            trio.run(ask)

    async def body(agent, state):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(trio.to_thread.run_sync, thread)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        await agent.copy(loop=body, budget=Budget(requests=300)).run(state)
    finally:
        sys.setswitchinterval(before)

    assert len(sent) == 300
    assert state.stopped == StoppedByBudget("requests", 300, 300)


# The tree


async def test_eight_subagents_with_five_requests_left_send_five():
    """G4: look and count are one step."""
    state = asked()
    child = helper(lambda request: "part")
    await lead(child, calls=8, budget=Budget(requests=6)).run(state)

    line = "(helper stopped before it was done: the budget of 6 requests is used up)"
    assert [text for _, text in told(state)].count("part") == 5
    assert [text for _, text in told(state)].count(line) == 3
    assert {outcome for outcome, _ in told(state)} == {"done"}
    assert state.usage.requests == 6
    assert state.stopped == StoppedByBudget("requests", 6, 6)
    stopped = [state.child(entry.child_ids[0]) for entry in closed(state) if "stopped" in entry.content[0].text]
    for each in stopped:
        assert each.stopped == StoppedByBudget("requests", 6, 6)
        assert each.usage.requests == 0
        assert errors(each) == []
        assert_whole(each)


async def test_subagents_that_ask_again_and_again_share_what_is_left():
    state = asked()
    child = helper(lambda request: tool_call("noop"), tools=[noop])
    await lead(child, calls=8, budget=Budget(requests=20)).run(state)

    assert state.usage.requests == 20
    assert isinstance(state.stopped, StoppedByBudget)


async def test_a_refused_subagent_hands_up_its_answer_so_far_and_the_line():
    state = asked()

    @loop(until=never, limit=9)
    async def body(agent, state):
        await agent.think(state)
        state.add_message(Message.user("more"))

    await lead(helper(lambda request: "so far", loop=body), budget=Budget(requests=3)).run(state)

    assert told(state) == [
        ("done", "so far\n\n(helper stopped before it was done: the budget of 3 requests is used up)")
    ]


async def test_a_child_with_a_budget_of_its_own_is_held_to_both():
    for above, own, sent, limit in ((9, 2, 2, 2), (3, 5, 2, 3)):
        state = asked()
        child = helper(lambda request: tool_call("noop"), tools=[noop], budget=Budget(requests=own))
        await lead(child, budget=Budget(requests=above)).run(state)

        assert child_of(state).usage.requests == sent
        assert child_of(state).stopped == StoppedByBudget("requests", limit, limit)
        if above == 9:
            assert state.answer == told(state)[0][1]


async def test_a_subagent_whose_loop_is_refused_a_question_beside_it_stops_orderly():
    @loop(until=never, limit=9)
    async def body(agent, state):
        await agent.ask(asked("other"), "what?")

    state = asked()
    await lead(helper(lambda request: "text", loop=body), budget=Budget(requests=3)).run(state)

    assert told(state) == [("done", "(helper stopped before it was done: the budget of 3 requests is used up)")]
    assert child_of(state).stopped == StoppedByBudget("requests", 3, 3)
    assert errors(child_of(state)) == []


@pytest.mark.parametrize("budget", [None, Budget(requests=9)])
async def test_an_error_of_this_kind_that_no_budget_has_raised_is_an_error(budget):
    async def body(agent, state):
        raise BudgetError("mine")

    state = asked()
    with pytest.raises(BudgetError, match="mine"):
        await worker(loop=body, budget=budget).run(state)

    assert errors(state) == ["BudgetError: mine"]


async def test_what_a_tool_asks_of_a_model_itself_counts_and_is_refused_with_a_word_to_its_model():
    @tool
    async def delegate(prompt: str) -> str:
        """Ask beside any run."""
        return await Agent(model=FakeModel(["part"])).ask(asked("other"), prompt)

    state = asked()
    agent = lead(delegate, calls=3, budget=Budget(requests=3))
    await agent.run(state)

    assert sorted(told(state)) == [
        ("done", "part"),
        ("done", "part"),
        ("error", "no request was sent: the budget of 3 requests is used up"),
    ]
    assert state.stopped == StoppedByBudget("requests", 3, 3)
    assert_whole(state)


async def test_running_requests_have_reserved_their_tokens_where_the_model_limits_them():
    """Eight at once: the first leaves no room for another that could be sure to stay within the budget."""

    class Limited(Model):
        name = "fake/limited"
        max_tokens = 100
        price = Price(0, 1_000_000)
        sent = 0

        async def respond(self, request, emit):
            Limited.sent += 1
            await trio.testing.wait_all_tasks_blocked()
            return Reply((TextBlock("part"),), "", "stop", Usage(output_tokens=60, requests=1, cost="60"))

    for budget, sent in ((Budget(tokens=200), 2), (Budget(cost=250), 3)):
        Limited.sent = 0
        child = Agent(model=Limited(), name="limited", description="l")
        state = asked()
        await lead(child, calls=8, budget=budget).run(state)
        assert Limited.sent == sent  # with 10 to 20 tokens estimated for what each reads
        assert sum(text == "part" for _, text in told(state)) == sent


@pytest.mark.parametrize("fails", [False, True])
async def test_running_requests_of_a_fallback_have_reserved_what_the_dearest_may_cost(fails):
    """Eight at once, and whichever of its models answers: the overshoot is one reply."""

    class Limited(Model):
        max_tokens = 100
        sent = 0

        def __init__(self, name, dollars, fails=False):
            self.name, self.price, self.fails = name, Price(0, dollars * 1_000_000), fails

        async def respond(self, request, emit):
            Limited.sent += 1
            await trio.testing.wait_all_tasks_blocked()
            if self.fails:
                raise OverloadedError("busy")
            used = Usage(output_tokens=60, requests=1)
            return Reply((TextBlock("part"),), "", "stop", attrs.evolve(used, cost=self.price.cost(used)))

    model = Fallback(Limited("fake/cheap", 1, fails), Limited("fake/dear", 2))
    child = Agent(model=model, name="limited", description="l")
    state = asked()
    await lead(child, calls=8, budget=Budget(cost=250)).run(state)

    assert Limited.sent == (4 if fails else 2)
    assert state.usage.cost <= 250 + 200


async def test_what_a_failed_model_has_spent_is_counted_where_the_budget_allows_no_other():
    class Busy(Model):
        name = "fake/busy"

        async def respond(self, request, emit):
            await trio.lowlevel.checkpoint()
            error = OverloadedError("busy")
            error.usage = Usage(output_tokens=7, requests=1)
            raise error

    state = asked()
    agent = Agent(model=Fallback(Busy(), FakeModel(["never asked"])), budget=Budget(requests=1))
    async with agent.stream(state) as run:
        async for _ in run:
            pass

    assert state.stopped == StoppedByBudget("requests", 1, 1)
    assert (state.usage.output_tokens, state.usage.requests) == (7, 1)
    assert run.usage == state.usage


def test_a_fallback_may_reply_as_long_as_the_longest_of_its_models():
    def of(max_tokens):
        return OpenAICompatible("x", base_url="http://127.0.0.1:1", max_tokens=max_tokens)

    assert Fallback(of(10), of(30)).max_tokens == 30
    assert Fallback(of(10), of(None)).max_tokens is None


async def test_what_was_reserved_and_not_used_is_there_again():
    class Limited(Model):
        name = "fake/limited"
        max_tokens = 100

        async def respond(self, request, emit):
            await trio.lowlevel.checkpoint()
            return Reply((TextBlock("part"),), "", "stop", Usage(output_tokens=10, requests=1))

    @loop(until=never, limit=9)
    async def body(agent, state):
        await agent.think(state)
        state.add_message(Message.user("more"))

    state = asked()
    await Agent(model=Limited(), loop=body, budget=Budget(tokens=40)).run(state)

    assert state.usage.requests == 4


async def test_another_agent_that_acts_in_the_run_is_held_to_its_budget():
    @loop(until=never, limit=9)
    async def body(agent, state):
        await agent.copy(model=FakeModel(["text"]), budget=None).think(state)
        state.add_message(Message.user("more"))

    state = asked()
    await worker(loop=body, budget=Budget(requests=3)).run(state)

    assert state.stopped == StoppedByBudget("requests", 3, 3)


async def test_an_action_of_the_same_agent_from_outside_is_a_part_of_the_run_that_is_on():
    state = asked()

    async def answer(request):
        if request.messages[-1].text != "why?":
            await agent.ask(state, "why?")
        return "text"

    agent = Agent(model=FakeModel(answer), budget=Budget(requests=2))
    await agent.run(state)

    assert state.usage.requests == 2
    assert state.answer == "text"


async def test_a_mistake_gives_back_what_was_reserved():
    """A think that finds out late that it can't be gives its request back."""
    raised = []

    @loop(until=waiting_for_user, limit=9)
    async def body(agent, state):
        async with trio.open_nursery() as nursery:

            async def think() -> None:
                try:
                    await agent.think(state)
                except ValueError as error:
                    raised.append(str(error))

            nursery.start_soon(think)
            nursery.start_soon(think)

    state = asked()
    agent = Agent(model=FakeModel(["first"]), loop=body, budget=Budget(requests=2))
    assert await agent.run(state) == "first"

    assert len(raised) == 1
    assert state.usage.requests == 1


async def test_a_stranger_to_the_tree_is_not_held_to_its_budget():
    async with trio.open_nursery() as around:

        @tool
        async def start(prompt: str) -> str:
            """Start a run that isn't a part of this one."""
            around.start_soon(worker(5).run, other)
            return "started"

        other = asked("other")
        state = asked()
        await lead(start, budget=Budget(requests=2)).run(state)

    assert other.usage.requests == 5
    assert state.answer == "started"
