"""Histories that can have happened and those that can't: replay tells them apart, by the position of the entry."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import CodeType
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpineagents
from alpineagents import (
    Agent,
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    IllegalEntryError,
    MemoryStore,
    Message,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    ResumeWarning,
    RunStartEntry,
    State,
    StopEntry,
    StoppedByFinish,
    StoppedByLimit,
    TextBlock,
    ToolCall,
    ToolOutcome,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
    freeze,
    tool,
)
from alpineagents.record._conversation import first_fault
from alpineagents.record._replay import fold, replay
from alpineagents.record._snapshot import Snapshot
from alpineagents.testing import FakeModel, tool_call

from ..states import PROPERTIES, assert_replays
from .strategies import entries as any_entries

AT = datetime(2026, 1, 2, tzinfo=UTC)


def user(seq: int, turn: int = 0, text: str = "go") -> Entry:
    return MessageEntry(seq, turn, AT, Message.user(text))


def request(seq: int, turn: int = 1) -> Entry:
    return ModelRequestEntry(seq, turn, AT, "m")


def reply(seq: int, *ids: str, turn: int = 1) -> Entry:
    blocks = (TextBlock("hm"), *[call(call_id) for call_id in ids])
    return ModelReplyEntry(seq, turn, AT, Reply(blocks, "m", usage=Usage(1, 1, requests=1)))


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "f", {})


def result(seq: int, call_id: str, turn: int = 1, **more: Any) -> Entry:
    return ToolResultEntry(seq, turn, AT, (TextBlock(f"of {call_id}"),), call(call_id), **more)


def change(seq: int, kind: str, turn: int = 0, **more: Any) -> Entry:
    return ContextChangeEntry(seq, turn, AT, ContextChange(kind=kind, **more))


def finish(seq: int, turn: int = 0) -> Entry:
    return StopEntry(seq, turn, AT, StoppedByFinish("done"))


def imported(seq: int, *messages: Message) -> Entry:
    return change(seq, "import", messages=messages)


def at(entry: Entry, when: datetime) -> Entry:
    return attrs.evolve(entry, at=when)


ASKED = [user(0), request(1)]
PENDING = [*ASKED, reply(2, "a", "b")]
TURN = [*PENDING, result(3, "b"), result(4, "a")]
ASSISTANT_CALL = Message("assistant", (call("a"),))
TOOL_RESULT = Message("tool", (ToolResultBlock("a", (TextBlock("x"),)),))

ILLEGAL: dict[str, tuple[Sequence[Entry], int, str]] = {
    # Order
    "first seq not 0": ([user(1)], 1, "seq should be 0"),
    "a gap": ([user(0), user(2)], 2, "seq should be 1"),
    "a position twice": ([user(0), user(0)], 0, "seq should be 1"),
    "a time before the last": ([user(0), at(user(1), AT - timedelta(microseconds=1))], 1, "before"),
    "a time without a zone": ([at(user(0), datetime(2026, 1, 2))], 0, "has no time zone"),
    "a later time without a zone": ([user(0), at(user(1), datetime(2026, 1, 3))], 1, "has no time zone"),
    "turn of a message": ([user(0, turn=1)], 0, "turn 1 should be 0"),
    "turn of a request": ([user(0), request(1, turn=0)], 1, "turn 0 should be 1"),
    "turn of a reply": ([*ASKED, reply(2, turn=2)], 2, "turn 2 should be 1"),
    "turn of a failed request": ([*ASKED, ErrorEntry(2, 1, AT, "x", "think")], 2, "turn 1 should be 0"),
    "turn of a restore": ([*TURN, change(5, "restore", 1, restored_to=1)], 5, "turn 1 should be 0"),
    # Requests and replies
    "request without messages": ([request(0)], 0, "without messages"),
    "request while one is open": ([*ASKED, request(2, turn=2)], 2, "while one is open"),
    "request before the results": ([*PENDING, result(3, "a"), request(4, turn=2)], 4, "'b' has no result"),
    "request on a finished State": ([user(0), finish(1), request(2)], 2, "finished"),
    "reply without a request": ([user(0), reply(1, turn=0)], 1, "without a request"),
    "second reply": ([*ASKED, reply(2), reply(3)], 3, "without a request"),
    "reply to a request taken back": (
        [*ASKED, ErrorEntry(2, 0, AT, "x", "think"), reply(3, turn=0)],
        3,
        "without a request",
    ),
    "a reply with a result in it": (
        [*ASKED, ModelReplyEntry(2, 1, AT, Reply((TextBlock("hm"), ToolResultBlock("a", ()))))],
        2,
        "a reply holds tool calls, not their results",
    ),
    "a call id twice in one reply": ([*ASKED, reply(2, "a", "a")], 2, "twice"),
    "a call id that came before": ([*TURN, request(5, 2), reply(6, "a", turn=2)], 6, "'a' came before"),
    "a call id that was imported": (
        [imported(0, Message.user("go"), ASSISTANT_CALL, TOOL_RESULT), request(1), reply(2, "a")],
        2,
        "'a' came before",
    ),
    # Results
    "result of no call": ([user(0), result(1, "a", turn=0)], 1, "'a', which isn't a pending call"),
    "result before the reply": ([*ASKED, result(2, "a")], 2, "'a', which isn't a pending call"),
    "result of another call": ([*PENDING, result(3, "c")], 3, "'c', which isn't a pending call"),
    "result twice": ([*PENDING, result(3, "a"), result(4, "a")], 4, "'a', which isn't a pending call"),
    "result of a closed turn": ([*TURN, result(5, "a")], 5, "'a', which isn't a pending call"),
    "late result of a pending call": ([*PENDING, result(3, "a", late=True)], 3, "'a', which isn't a closed call"),
    "late result of no call": ([*TURN, result(5, "c", late=True)], 5, "'c', which isn't a closed call"),
    # Changes of messages
    "import in the middle": ([user(0), imported(1, Message.user("x"))], 1, "start"),
    "import twice": ([imported(0, Message.user("x")), imported(1, Message.user("x"))], 1, "start"),
    "import of a call without result": ([imported(0, Message.user("x"), ASSISTANT_CALL)], 0, "'a' has no result"),
    "import of a result without call": ([imported(0, TOOL_RESULT)], 0, "a"),
    "compact while a request waits": ([*ASKED, change(2, "compact", 1, summary="x")], 2, "request is open"),
    "compact while calls wait": ([*PENDING, change(3, "compact", 1, summary="x")], 3, "calls are pending"),
    "clear while calls wait": ([*PENDING, change(3, "clear_tool_results", 1)], 3, "calls are pending"),
    "restore while a request waits": ([*ASKED, change(2, "restore", restored_to=1)], 2, "request is open"),
    "compact of less than nothing": ([*TURN, change(5, "compact", 1, summary="x", covers=-1)], 5, "covers -1 messages"),
    "compact of more than there is": ([*TURN, change(5, "compact", 1, summary="x", covers=4)], 5, "but there are 3"),
    "compact without a summary": ([*TURN, change(5, "compact", 1)], 5, "without a summary"),
    "compact between call and result": (
        [*TURN, change(5, "compact", 1, summary="x", covers=2)],
        5,
        "not their results",
    ),
    "clear of an unknown result": ([*TURN, change(5, "clear_tool_results", 1, cleared=("a", "z"))], 5, "'z'"),
    "restore to nowhere": ([user(0), change(1, "restore")], 1, "None"),
    "restore to the future": ([user(0), change(1, "restore", restored_to=2)], 1, "2 entries, but there are 1"),
    "restore to less than nothing": ([user(0), change(1, "restore", restored_to=-1)], 1, "-1"),
    "restore into an open request": ([*TURN, change(5, "restore", 1, restored_to=2)], 5, "middle of a turn"),
    "restore into pending calls": ([*TURN, change(5, "restore", 1, restored_to=4)], 5, "middle of a turn"),
    # The end
    "run of a finished State": ([finish(0), RunStartEntry(1, 0, AT, AgentInfo())], 1, "finished"),
    "limit after the end": ([finish(0), StopEntry(1, 0, AT, StoppedByLimit(1))], 1, "finished"),
    "stop taken back after the end": ([finish(0), StopEntry(1, 0, AT, None)], 1, "finished"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_history_that_cannot_have_happened_is_refused_by_the_position_of_the_entry(name):
    history, position, reason = ILLEGAL[name]

    with pytest.raises(IllegalEntryError, match=rf"^entry {position}: .*({reason})"):
        State(history=history)


NO_MESSAGES = pytest.mark.parametrize(
    ("message", "reason"),
    [
        (lambda: Message.assistant("a reply"), "not (role )?'assistant'"),
        (lambda: ASSISTANT_CALL, "not (role )?'assistant'"),
        (lambda: TOOL_RESULT, "not (role )?'tool'"),
        (lambda: Message("user", (TextBlock("x"), call("a"))), "holds no ToolCall"),
        (lambda: Message("user", TOOL_RESULT.blocks), "holds no ToolResultBlock"),
        (lambda: Message("user", ()), "needs text or an image"),
        (lambda: Message("user", (TextBlock(" "), TextBlock(""))), "needs text or an image"),
    ],
    ids=["a reply", "calls", "results", "calls of the person's", "results of the person's", "nothing", "blank"],
)


@NO_MESSAGES
def test_replay_takes_as_a_message_only_what_a_person_or_the_code_can_say(message, reason):
    """Else the next request isn't well formed."""
    with pytest.raises(IllegalEntryError, match=f"^entry 0: .*{reason}"):
        State(history=[MessageEntry(0, 0, AT, message())])


@NO_MESSAGES
def test_add_message_takes_only_what_a_person_or_the_code_can_say(message, reason):
    state = State()

    with pytest.raises(ValueError, match=rf"\b{reason}"):
        state.add_message(message())

    assert not len(state.history)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [user(0), user(1)],
        [*ASKED, ErrorEntry(2, 0, AT, "x", "think"), request(3), reply(4)],
        [*ASKED, ErrorEntry(2, 1, AT, "x", "ask"), reply(3)],
        [*PENDING, ErrorEntry(3, 1, AT, "x", "think"), result(4, "a"), result(5, "b")],
        [*ASKED, user(2, 1), reply(3), user(4, 1)],
        [*TURN, request(5, 2), reply(6, turn=2)],
        [*TURN, result(5, "a", late=True), result(6, "a", late=True)],
        [*PENDING, finish(3, 1), result(4, "a"), result(5, "b"), finish(6, 1)],
        [*ASKED, finish(2, 1), reply(3)],
        [finish(0), user(1), ExtraDataEntry(2, 0, AT, freeze({"a": 1}), ("b",))],
        [*TURN, change(5, "clear_tool_results", 1, cleared=("a",)), change(6, "compact", 1, summary="x", covers=3)],
        [*TURN, change(5, "restore", restored_to=1), change(6, "restore", 1, restored_to=5)],
        [*TURN, change(5, "restore", restored_to=0), user(6)],
        [finish(0), change(1, "restore", restored_to=0), RunStartEntry(2, 0, AT, AgentInfo())],
        [imported(0)],
        [imported(0, Message.user("go"), ASSISTANT_CALL, TOOL_RESULT), result(1, "a", 0, late=True)],
    ],
    ids=lambda history: "-".join(entry.kind for entry in history) or "empty",
)
def test_a_history_that_can_have_happened_is_taken(history):
    assert_replays(State(history=history))


def test_a_history_refused_leaves_nothing_behind_in_the_state_it_came_from():
    state = State(history=TURN)
    before = state.snapshot()

    with pytest.raises(IllegalEntryError):
        State(history=[*state.history, result(5, "a")])

    assert state.snapshot() == before
    state.add_message(Message.user("on"))
    assert_replays(state)


# What the entries come to


def test_usage_is_the_sum_of_what_every_entry_has_spent():
    history = [
        *[user(0), request(1), reply(2, "a", "b")],
        *[result(3, "a"), result(4, "b", usage=Usage(10)), result(5, "b", late=True, usage=Usage(100))],
        ModelEventEntry(6, 1, AT, ModelEvent("retry"), Usage(1_000)),
        ExchangeEntry(7, 1, AT, "ask", Exchange("why?", "because"), Usage(10_000)),
        ErrorEntry(8, 1, AT, "x", "ask", usage=Usage(100_000)),
        change(9, "compact", 1, summary="x", usage=Usage(1_000_000)),
        *[request(10, 2), ErrorEntry(11, 1, AT, "x", "think", usage=Usage(10_000_000))],
        *[request(12, 2), reply(13, turn=2), change(14, "restore", 1, restored_to=5)],
    ]

    assert State(history=history).usage == Usage(11_111_112, 2, requests=2)


def test_messages_say_which_reply_was_cut_off_and_which_results_are_errors():
    cut_off = ModelReplyEntry(2, 1, AT, Reply((call("a"), call("b")), cut_off=True))
    state = State(history=[*ASKED, cut_off, result(3, "a"), result(4, "b", outcome=ToolOutcome.DENIED)])

    assert [message.cut_off for message in state.messages] == [False, True, False]
    assert [block.is_error for block in state.messages[-1].blocks] == [False, True]


async def test_a_side_question_that_fails_while_the_model_is_waited_on_leaves_the_request_open():
    state = State(messages=[Message.user("go")])

    async def answer(request) -> str:
        with pytest.raises(ConnectionError):
            await Agent(model=FakeModel([ConnectionError("gone")])).ask(state, "why?")
        assert state.turn == 1
        return "done"

    await Agent(model=FakeModel([answer])).think(state)

    assert [(entry.kind, entry.turn) for entry in state.history[1:]] == [
        ("model_request", 1),
        ("error", 1),
        ("model_reply", 1),
    ]
    assert_replays(state)


async def test_a_call_of_a_tool_that_the_last_request_did_not_show_is_refused():
    @tool
    async def f() -> str:
        """Return at once."""
        return "done"

    outcomes = []
    for shown in (None, ("f",), ("g",)):
        state = State(history=[user(0), ModelRequestEntry(1, 1, AT, "m", shown), reply(2, "a")])
        await Agent(model=FakeModel(), tools=[f]).use_tools(state)
        outcomes.append(state.history[-1].outcome)

    assert outcomes == ["done", "done", "input_error"]


async def test_results_that_came_late_are_told_with_the_next_request_and_not_again():
    state = State(history=[*TURN, result(5, "b", late=True), result(6, "a", late=True)])
    model = FakeModel(["I see", "still"])
    agent = Agent(model=model)

    await agent.think(state)
    await agent.think(state)

    first, second = ([m.text for m in request.messages if m.is_notice] for request in model.requests)
    assert ["of b" in first[0], "of a" in first[1]] == [True, True]
    assert second == first


async def test_a_late_result_is_told_although_the_state_was_restored_meanwhile():
    state = State(history=[*TURN, result(5, "b", late=True), change(6, "restore", 1, restored_to=5)])
    model = FakeModel(["I see"])

    await Agent(model=model).think(state)

    assert "of b" in model.requests[0].messages[-1].text


def test_the_size_of_the_context_is_what_the_last_reply_says_and_an_estimate_of_what_came_behind():
    """Four characters are a token, and each message is four more."""
    agent = Agent(model=FakeModel())
    counted = [
        user(0, text="x" * 400),
        request(1),
        ModelReplyEntry(2, 1, AT, Reply((call("a"),), usage=Usage(100, 20))),
    ]
    with_result = [*counted, ToolResultEntry(3, 1, AT, (TextBlock("y" * 40),), call("a"))]
    uncounted = [*with_result, request(4, 2), ModelReplyEntry(5, 2, AT, Reply((TextBlock("z" * 40),)))]
    compacted = [*uncounted, change(6, "compact", 2, summary="s")]
    restored = [*compacted, change(7, "restore", 1, restored_to=4)]

    tokens = [
        agent.context_tokens(State(history=history))
        for history in (counted[:1], counted, with_result, uncounted, compacted, restored)
    ]

    summary = len(Message.summary("s").text) // 4
    assert tokens == [104, 120, 120 + 14, 120 + 2 * 14, 104 + 4 + summary, 120 + 14]


def test_a_state_that_was_restored_keeps_when_it_was_created():
    later = AT + timedelta(hours=1)
    state = State(history=[user(0), at(user(1), later), at(change(2, "restore", restored_to=0), later)])

    assert (state.created_at, state.updated_at) == (AT, later)


async def test_a_state_restored_to_before_its_first_run_still_knows_which_agent_ran_it():
    store = MemoryStore()
    state = State(messages=[Message.user("go")])
    start = state.snapshot()
    await Agent(model=FakeModel(["ok"], name="fake/one"), store=store).run(state)
    await state.restore(start)
    loaded = await store.load(state.id)

    with pytest.warns(ResumeWarning, match="fake/one -> fake/two"):
        await Agent(model=FakeModel(["ok"], name="fake/two"), store=store).run(loaded)


async def test_a_fork_made_between_two_results_goes_its_own_way_to_the_same_messages():
    forks = []

    @tool
    async def quick() -> str:
        """Return at once."""
        return "quick"

    @tool
    async def forking() -> str:
        """Fork once the other result is there."""
        if not forks:
            async for entry in state.watch():
                if entry.kind == "tool_result":
                    break
            forks.append(state.fork())
        return "slow"

    agent = Agent(model=FakeModel([[tool_call("quick"), tool_call("forking")]]), tools=[quick, forking])
    state = State(messages=[Message.user("go")])
    await agent.think(state)
    await agent.use_tools(state)
    fork = forks[0]
    assert [pending.name for pending in fork.pending_calls] == ["forking"]

    await agent.use_tools(fork)

    assert list(fork.messages) == list(state.messages)
    assert_replays(fork)


@pytest.mark.parametrize(
    "history", [[None], ["x"], [user(0), {}], [Message.user("x")]], ids=["None", "str", "dict", "Message"]
)
def test_what_is_no_entry_is_a_type_error_with_its_position(history):
    with pytest.raises(TypeError, match=rf"history\[{len(history) - 1}\]"):
        State(history=history)


# Laws


LONG = [
    *[user(0), user(1, text="and")],
    *[request(2), ModelReplyEntry(3, 1, AT, Reply((call("a"), call("b"))))],
    *[result(4, "b"), user(5, 1, "meanwhile"), result(6, "a")],
    *[request(7, 2), ErrorEntry(8, 1, AT, "x", "think"), request(9, 2), reply(10, "c", turn=2), result(11, "c", 2)],
    *[result(12, "a", 2, late=True), change(13, "clear_tool_results", 2, cleared=("b", "a"))],
    *[StopEntry(14, 2, AT, StoppedByLimit(2)), RunStartEntry(15, 2, AT, AgentInfo())],
    *[change(16, "restore", 1, restored_to=7), change(17, "compact", 1, summary="so far")],
    *[change(18, "restore", 2, restored_to=16), finish(19, 2)],
]


def test_the_long_history_of_these_laws_is_legal():
    assert_replays(State(history=LONG))


@settings(max_examples=300)
@given(st.data())
def test_a_history_changed_anywhere_is_refused_or_still_well_formed(data):
    """What the model is sent is always well formed (invariant 3)."""
    history = list(LONG)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(history) - 1))
        match data.draw(st.sampled_from(["drop", "repeat", "swap", "put", "turn"])):
            case "drop" if len(history) > 1:
                del history[position]
            case "repeat":
                history.insert(position, history[position])
            case "swap":
                other = data.draw(st.integers(0, len(history) - 1))
                history[position], history[other] = history[other], history[position]
            case "put":
                history.insert(position, data.draw(any_entries))
            case _:
                moved = history[position].turn + data.draw(st.sampled_from([-1, 1]))
                history[position] = attrs.evolve(history[position], turn=moved)
    history = [attrs.evolve(entry, seq=seq, at=AT) for seq, entry in enumerate(history)]

    state, refusal = state_or_refusal(history)
    if state is None:
        assert refusal.startswith("entry ")
        return
    messages = list(state.messages)
    last = messages[-1] if messages else None
    complete = messages[:-1] if state.pending_calls and last and last.tool_calls else messages
    assert first_fault(complete) is None
    assert_replays(state)


TALKING = [*PENDING, user(3, 1, "one"), result(4, "b"), user(5, 1, "two"), result(6, "a")]


@pytest.mark.parametrize("history", [LONG, TALKING], ids=["long", "talking"])
@pytest.mark.parametrize("apart", [False, True], ids=["on the same lists", "on lists of its own"])
def test_a_moment_that_went_on_in_other_ways_still_goes_on_as_if_it_had_not(history, apart):
    """A commit that was interrupted, or refused, may leave behind what it had begun to append."""
    expected = everything(replay(history))
    for position in range(len(history)):
        moment = replay(history[:position])
        before = everything(moment)
        for other in what_could_follow(moment):
            with suppress(IllegalEntryError):
                fold(moment, other)
            assert everything(moment) == before, other
        snapshot = moment.detached() if apart else moment
        for entry in history[position:]:
            snapshot = went_on(snapshot, entry, history)
        assert everything(snapshot) == expected, position
        assert everything(moment) == before, position


def what_could_follow(moment: Snapshot) -> list[Entry]:
    """Entries of many kinds; those that can't follow may leave something behind, too."""
    seq, turn = moment.length, moment.turn
    return [
        *[user(seq, turn, "elsewhere"), request(seq, turn + 1), reply(seq, turn=turn), reply(seq, "c", turn=turn)],
        *[result(seq, call_id, turn, late=late) for call_id in "abc" for late in (False, True)],
        *[reply(seq, "c", "a", turn=turn), user(seq, turn + 9), ErrorEntry(seq, turn - 1, AT, "x", "think")],
        *[change(seq, "compact", turn, summary="elsewhere"), change(seq, "clear_tool_results", turn, cleared=("a",))],
        *[finish(seq, turn), ExtraDataEntry(seq, turn, AT, freeze({"else": "where"}))],
    ]


def went_on(snapshot: Snapshot, entry: Entry, history: Sequence[Entry]) -> Snapshot:
    back_to = entry.content.restored_to if isinstance(entry, ContextChangeEntry) else None
    return fold(snapshot, entry, restored=None if back_to is None else replay(history[:back_to]))


def everything(snapshot: Snapshot) -> dict[str, object]:
    """All values of a moment, copied out of lists that go on growing."""
    values = {name: getattr(snapshot, name) for name in PROPERTIES}
    calls = [call.id for entry in LONG if isinstance(entry, ModelReplyEntry) for call in entry.content.tool_calls]
    return values | {
        "messages": list(snapshot.messages),
        "history": list(snapshot.history),
        "waiting": snapshot.waiting[: snapshot.waiting_length],
        "late": snapshot.late,
        "pending": [call_id for call_id in calls if snapshot.is_pending(call_id)],
        "known": [call_id for call_id in calls if snapshot.knows_call(call_id)],
    }


def state_or_refusal(history: list[Entry]) -> tuple[State | None, str]:
    try:
        return State(history=history), ""
    except ValueError as error:
        return None, str(error)


@settings(max_examples=50)
@given(st.integers(0, len(LONG)), st.integers(0, len(LONG)))
def test_every_beginning_of_a_history_is_a_history_and_a_prefix_of_the_longer_ones(a, b):
    shorter, longer = State(history=LONG[: min(a, b)]), State(history=LONG[: max(a, b)])

    assert list(longer.history[: len(shorter.history)]) == list(shorter.history)
    assert_replays(shorter)


# Cost


GROWING: dict[str, Callable[[int], tuple[list[Entry], Callable[[int], Entry]]]] = {
    "messages": lambda n: ([user(seq) for seq in range(n)], user),
    "messages that wait": lambda n: ([*ASKED, *[user(seq, 1) for seq in range(2, n)]], lambda seq: user(seq, 1)),
    "results": lambda n: (
        [*ASKED, reply(2, *map(str, range(2 * n))), *[result(seq, str(seq)) for seq in range(3, n)]],
        lambda seq: result(seq, str(seq)),
    ),
}


@pytest.mark.parametrize("kind", GROWING)
def test_an_entry_takes_no_more_memory_at_any_length(kind):
    """Moments share what has grown: it isn't copied for the next one."""

    def bytes_for_one_more(length: int) -> int:
        history, following = GROWING[kind](length)
        snapshot = replay(history)
        entries = [following(seq) for seq in range(length, length + 10)]
        taken = []
        tracemalloc.start()
        try:
            for entry in entries:
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                snapshot = fold(snapshot, entry)
                taken.append(tracemalloc.get_traced_memory()[1] - before)
        finally:
            tracemalloc.stop()
        return min(taken)  # now and then a list makes room for many more

    assert bytes_for_one_more(3_000) < 2 * bytes_for_one_more(30)


PACKAGE = str(Path(alpineagents.__file__).parent)


def calls_made_by(work: Any) -> int:
    """How many functions of the library ``work()`` enters: a cost that doesn't depend on the machine."""
    count = 0
    ours: dict[CodeType, bool] = {}

    def profile(frame: Any, event: str, _: object) -> None:
        nonlocal count
        if event == "call":
            code = frame.f_code
            if code not in ours:
                ours[code] = code.co_filename.startswith(PACKAGE)
            count += ours[code]

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def restored_again_and_again(times: int) -> State:
    """Try, go back, try again from there: each restore goes back to a moment behind the last one."""
    state = State(messages=[Message.user("go")])
    for _ in range(times):
        snapshot = state.snapshot()
        state.add_message(Message.user("try"))
        state.restore(snapshot)
    return state


def test_replaying_restores_costs_no_more_than_replaying_as_many_entries():
    """Each restore that is replayed from the start doubles the cost of a history that goes back ten times."""
    few, many = (list(restored_again_and_again(times).history) for times in (4, 12))

    cost_of_few = calls_made_by(lambda: State(history=few))
    cost_of_many = calls_made_by(lambda: State(history=many))

    assert cost_of_many / len(many) < 2 * cost_of_few / len(few)


@pytest.mark.parametrize("behind", [0, 1], ids=["this very moment", "a moment before"])
def test_restoring_costs_the_same_at_any_length(behind):
    """That the snapshot is of this State isn't found by comparing it entry by entry."""

    def restored(entries: int) -> int:
        state = State(history=[user(seq) for seq in range(entries)])
        snapshot = state.snapshot()
        for _ in range(behind):
            state.add_message(Message.user("more"))
        return calls_made_by(lambda: state.restore(snapshot))

    assert restored(1_000) == restored(10)


@pytest.mark.parametrize("kind", ["message", "reply", "results", "extra_data"])
def test_folding_an_entry_costs_the_same_at_any_length(kind):
    def replayed(turns: int) -> float:
        history: list[Entry] = [user(0)]
        for turn in range(1, turns + 1):
            seq = len(history)
            match kind:
                case "message":
                    history.append(user(seq))
                case "reply":
                    history += [request(seq, turn), reply(seq + 1, turn=turn)]
                case "results":
                    history += [request(seq, turn), reply(seq + 1, f"c{turn}", turn=turn)]
                    history.append(result(seq + 2, f"c{turn}", turn))
                case _:
                    history.append(ExtraDataEntry(seq, 0, AT, freeze({"n": turn})))
        return calls_made_by(lambda: State(history=history)) / len(history)

    assert replayed(1_000) < 1.5 * replayed(100)


def test_many_results_of_one_reply_cost_the_same_each():
    def replayed(calls: int) -> float:
        ids = [f"c{n}" for n in range(calls)]
        history = [*ASKED, reply(2, *ids), *[result(3 + n, call_id) for n, call_id in enumerate(ids)]]
        return calls_made_by(lambda: State(history=history)) / calls

    assert replayed(2_000) < 1.5 * replayed(200)
