"""State and its methods, sentence by sentence: what no other test says of them."""

from __future__ import annotations

import copy
import dataclasses
import enum
import pickle
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import attrs
import pydantic
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    Image,
    MemoryStore,
    Message,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    RunningElsewhereError,
    RunStartEntry,
    State,
    StateNotFoundError,
    StopEntry,
    StoppedByBudget,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
    freeze,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

from ..states import assert_replays, values
from .test_state import ANSWERED, ASKED, AT, CALLS, answered, close, pending, texts, waiting_for_the_model

PNG = Image(b"\x89PNG\r\n\x1a\n")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# Making one


def said(*what: str) -> Iterator[Message]:
    for text in what:
        yield Message.user(text)


@pytest.mark.parametrize("make", [list, tuple, iter, lambda messages: State(messages=messages).messages])
def test_messages_are_any_iterable_and_read_once(make):
    state = State(messages=make(said("a", "b")))

    assert texts(state) == ["a", "b"]
    assert state.history[0].content == ContextChange(kind="import", messages=(Message.user("a"), Message.user("b")))


def test_an_iterable_that_fails_leaves_its_exception_alone():
    def failing() -> Iterator[Message]:
        yield Message.user("a")
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        State(messages=failing())


def test_a_list_or_dict_given_to_a_state_stays_the_callers_own():
    messages, extra_data = [Message.user("a")], {"a": [1]}
    state = State(messages=messages, extra_data=extra_data)

    messages.append(Message.user("b"))
    extra_data["a"].append(2)
    extra_data["b"] = 1

    assert texts(state) == ["a"]
    assert state.extra_data == {"a": [1]}


@pytest.mark.parametrize(
    "make",
    [list, tuple, iter, lambda history: history, lambda history: State(history=history).snapshot().history],
    ids=["list", "tuple", "iterator", "history", "history of a snapshot"],
)
def test_a_history_is_any_iterable_of_entries(make):
    state = pending()

    assert values(State(history=make(state.history))) == values(state)


def test_an_empty_history_is_an_empty_state():
    assert values(State(history=[])) == values(State())


@pytest.mark.parametrize("other", [{"messages": ()}, {"extra_data": {"a": 1}}, {"messages": [], "extra_data": {}}])
def test_a_history_goes_alone(other):
    with pytest.raises(ValueError, match=r"State\(history=other\.history\)"):
        State(history=iter(()), **other)


def test_ids_are_128_bits_of_which_80_are_random():
    """The least likely of these letters is missing once in 10 ** 12 times."""
    ids = [State().id for _ in range(500)] + [State().fork().id for _ in range(500)]

    assert {len(state_id) for state_id in ids} == {26}
    assert len({state_id[10:] for state_id in ids}) == 1_000
    for place in range(10, 26):  # 5 bits each, behind the time
        assert len({state_id[place] for state_id in ids}) == 32


# Messages that wait


async def test_messages_go_in_at_once_and_in_order_when_the_request_they_wait_for_fails():
    state = State(messages=[Message.user("go")])

    def fail(request: object) -> Exception:
        state.add_message(Message.user("one"))
        state.add_message(Message.notice("two"))
        state.add_message(Message.user("", PNG))
        assert texts(state) == ["go"]
        return ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await Agent(model=FakeModel([fail])).think(state)

    assert texts(state) == ["go", "one", "[notice] two", ""]
    assert [entry.kind for entry in state.history[2:]] == ["user", "notice", "user", "error"]
    assert [entry.turn for entry in state.history] == [0, 1, 1, 1, 1, 0]
    assert_replays(state)


async def test_a_message_that_waits_when_calls_are_asked_for_goes_in_behind_their_results_in_a_run():
    state = State(messages=[Message.user("go")])

    def ask(request: object) -> ToolCall:
        state.add_message(Message.user("during the request"))
        return tool_call("add", a=1, b=2)

    model = FakeModel([ask, "done"])
    await Agent(model=model, tools=[add]).run(state)

    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool", "user"]
    assert texts(state)[3] == "during the request"


def test_a_fork_with_messages_that_wait_and_its_origin_let_them_in_on_their_own():
    state = pending()
    state.add_message(Message.user("both"))
    fork = state.fork()
    state.add_message(Message.user("state"))
    fork.add_message(Message.notice("fork"))

    closed = [close(close(one, CALLS[1]), CALLS[0]) for one in (state, fork)]

    assert [texts(one)[3:] for one in closed] == [["both", "state"], ["both", "[notice] fork"]]
    assert texts(state)[2:] == texts(fork)[2:] == []
    for one in (*closed, state, fork):
        assert_replays(one)


@pytest.mark.parametrize("make", [waiting_for_the_model, pending])
def test_notes_can_be_made_while_the_model_is_waited_on_and_while_calls_are_pending(make):
    state = make()

    with state.edit_extra_data() as data:
        data["ä\ud83d"] = "noted"

    assert state.extra_data == {"ä\ud83d": "noted"}
    assert_replays(state)


# finish


@dataclasses.dataclass
class Found:
    file: str
    lines: tuple[int, ...]


class FoundModel(pydantic.BaseModel):
    file: str
    lines: tuple[int, ...]


@pytest.mark.parametrize("kind", [Found, FoundModel, attrs.make_class("FoundAttrs", ["file", "lines"])])
def test_an_answer_of_a_class_is_its_dict_and_read_only(kind):
    state = State()

    state.finish(kind(file="b.py", lines=(1, 2)))

    assert state.answer == {"file": "b.py", "lines": [1, 2]}
    assert state.stopped.answer is state.answer
    with pytest.raises(TypeError, match="read-only"):
        state.answer["lines"].append(3)
    assert_replays(state)


@pytest.mark.parametrize("answer", [{1}, b"x", object(), float("nan"), {1: 2}], ids=type)
def test_an_answer_that_is_not_json_is_refused_and_the_state_goes_on(answer):
    state = answered()

    with pytest.raises(TypeError, match=r"^answer"):
        state.finish(answer)

    assert not state.finished
    assert len(state.history) == len(ANSWERED)


@pytest.mark.parametrize("answer", [0, "", [], {}, False], ids=repr)
def test_a_finish_without_an_answer_keeps_the_one_that_was_given_also_if_it_is_false(answer):
    state = answered()

    state.finish("first")
    state.finish(answer)
    state.finish()

    assert repr(state.answer) == repr(answer)
    assert_replays(state)


async def test_after_finish_one_can_read_watch_note_fork_and_await():
    state = answered()
    state.finish("done")
    agent = Agent(model=FakeModel(), name="a")

    await state.add_message(Message.user("thanks"))
    await state.finish("really")
    async with state.edit_extra_data() as data:
        data["n"] = 1
    assert [entry.seq async for entry in state.watch()] == list(range(len(state.history)))
    assert state.fork().finished
    assert state.snapshot().answer == "really"
    assert agent.context_tokens(state) > 0
    assert agent.context_used(state) is None


# compact and clear_tool_results


def test_the_first_message_of_the_person_is_kept_wherever_it_is_and_whatever_it_holds():
    for first in (Message.user("", PNG), Message.user("task"), Message.user("task", PNG)):
        state = State(messages=[Message.notice("tick"), Message.assistant("hm"), first, Message.user("and")])

        state.compact("so far")

        assert list(state.messages) == [first, Message.summary("so far")]
        assert_replays(state)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_however_often_it_is_compacted_there_is_one_summary_the_last(count):
    state = State(messages=[Message.user("task"), Message.assistant("hm")])
    for n in range(count):
        state.add_message(Message.user(f"more {n}"))
        state.compact(f"summary {n}")

    assert list(state.messages) == [Message.user("task"), Message.summary(f"summary {count - 1}")]


def test_a_summary_with_a_lone_surrogate_can_be_sent_and_saved():
    state = State(messages=[Message.user("task")])

    state.compact("half \ud83d of it")

    assert state.messages[-1].text.endswith("half \ufffd of it")
    state.messages[-1].text.encode()
    assert_replays(state)


def with_three_results_at_once() -> State:
    calls = tuple(ToolCall(f"c{n}", "f", {}) for n in range(3))
    results = tuple(ToolResultBlock(f"c{n}", (TextBlock(f"result {n}"), PNG), n == 0) for n in range(3))
    return State(messages=[Message.user("go"), Message("assistant", calls), Message("tool", results)])


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_results_of_one_reply_are_cleared_one_by_one_from_the_oldest_on(keep):
    state = with_three_results_at_once()
    before = state.messages[2].blocks

    state.clear_tool_results(keep_last=keep)

    blocks = state.messages[2].blocks
    assert state.history[-1].content == ContextChange(kind="clear_tool_results", cleared=("c0", "c1", "c2")[: 3 - keep])
    assert blocks[3 - keep :] == before[3 - keep :]
    assert [(block.call_id, block.is_error) for block in blocks] == [("c0", True), ("c1", False), ("c2", False)]
    assert {len(block.content) for block in blocks[: 3 - keep]} == {1}
    assert not any(block.content[0].text.startswith("result ") for block in blocks[: 3 - keep])
    assert list(state.messages[:2]) == list(with_three_results_at_once().messages[:2])
    assert_replays(state)


def test_a_huge_number_of_results_to_keep_clears_nothing():
    state = with_three_results_at_once()
    state.clear_tool_results(keep_last=10**30)
    assert len(state.history) == 1


def test_a_result_the_model_was_shown_as_cleared_is_whole_in_the_history():
    state = close(close(pending(), CALLS[0]), CALLS[1])

    state.clear_tool_results(keep_last=0)

    assert [entry.content for entry in state.history if entry.kind == "tool_result"] == [(TextBlock("ok"),)] * 2
    assert all(block.content != (TextBlock("ok"),) for block in state.messages[2].blocks)


# restore and fork


def test_restoring_the_moment_it_is_in_changes_no_value_and_is_recorded():
    state = State(messages=[Message.user("a")], extra_data={"n": 1})
    before = values(state)

    state.restore(state.snapshot())

    after = values(state)
    changed = {name for name in before if before[name] != after[name]}
    assert changed - {"updated_at"} == {"history"}
    assert state.history[-1].content == ContextChange(kind="restore", restored_to=2)


@pytest.mark.parametrize(
    "travel",
    [
        lambda state, snapshot: pickle.loads(pickle.dumps(snapshot)),
        lambda state, snapshot: copy.deepcopy(snapshot),
        lambda state, snapshot: State(history=snapshot.history).snapshot(),
        lambda state, snapshot: state.fork().snapshot(),
    ],
    ids=["pickled", "copied", "of a State of the same history", "of a fork"],
)
def test_a_snapshot_with_an_equal_beginning_is_one_of_this_state_wherever_it_comes_from(travel):
    state = State(messages=[Message.user("a")])
    snapshot = travel(state, state.snapshot())
    state.add_message(Message.user("b"))

    state.restore(snapshot)

    assert texts(state) == ["a"]
    assert_replays(state)


def test_restore_brings_back_stops_and_answers_in_both_directions():
    state = answered()
    state.commit(lambda snap, at: StopEntry(snap.length, snap.turn, at, StoppedByLimit(1)))
    stopped = state.snapshot()
    state.finish({"a": 1})
    finished = state.snapshot()

    state.restore(stopped)
    assert (state.stopped, state.finished, state.answer) == (StoppedByLimit(1), False, "hello")
    state.restore(finished)
    assert (state.stopped, state.finished, state.answer) == (finished.stopped, True, {"a": 1})
    assert_replays(state)


def test_usage_spent_before_a_restore_stays_spent():
    state = State(history=[*ANSWERED, ErrorEntry(3, 1, AT, "x", "ask", usage=Usage(3, cost=None))])
    start = State(history=ANSWERED[:1]).snapshot()

    state.restore(start)

    assert state.usage == Usage(3, cost=None)
    assert (state.turn, state.answer) == (0, None)


async def test_a_fork_keeps_the_parent_and_is_in_no_store():
    store = MemoryStore()
    state = State(messages=[Message.user("go")])
    state.commit(lambda snap, at: RunStartEntry(snap.length, snap.turn, at, AgentInfo(), "parent", "call"))
    await store.save(state)

    fork = state.fork()
    await fork.add_message(Message.user("on its own"))

    assert (fork.parent_id, fork.parent_call_id) == (state.parent_id, state.parent_call_id) == ("parent", "call")
    with pytest.raises(StateNotFoundError):
        await store.load(fork.id)
    assert len(await store.read(state.id)) == 2
    assert fork.id != state.id


def test_a_fork_of_a_fork_is_as_free_as_its_origin():
    state = State(messages=[Message.user("a")])
    forks = [state]
    for n in range(5):
        forks.append(forks[-1].fork())
        forks[-1].add_message(Message.user(str(n)))

    for n, fork in enumerate(forks):
        assert texts(fork) == ["a", *map(str, range(n))]
        assert_replays(fork)
    assert len({fork.id for fork in forks}) == 6


# Ids of calls


async def test_a_call_id_that_an_imported_message_or_the_origin_of_a_fork_has_is_made_unique():
    call = ToolCall("c", "add", {"a": 1, "b": 2})
    state = State(
        messages=[Message.user("go"), Message("assistant", (call,)), Message("tool", (ToolResultBlock("c", ()),))]
    )
    agent = Agent(model=FakeModel(lambda request: call), tools=[add])

    for one in (state, state.fork(), state.fork().fork()):
        for expected in ("c_2", "c_3"):
            await agent.think(one)
            assert [call.id for call in one.pending_calls] == [expected]
            await agent.use_tools(one)
        assert_replays(one)


# As sequences


def test_history_and_messages_have_no_hash_and_equal_sequences_of_the_same_items_only():
    state = State(messages=[Message.user("a")])
    state.add_message(Message.user("b"))

    for sequence in (state.history, state.messages):
        with pytest.raises(TypeError, match="unhashable"):
            hash(sequence)
        assert sequence == copy.deepcopy(sequence) == pickle.loads(pickle.dumps(sequence)) == copy.copy(sequence)
        assert sequence != iter(sequence)
        assert sequence != "ab"
        assert sequence != list(reversed(sequence))
        assert repr(sequence) == repr(list(sequence))
        assert sequence[0:0] == ()
        assert sequence[5:] == ()
        assert sequence[-1:] == (sequence[1],)


def test_what_a_copy_of_a_history_holds_does_not_grow():
    state = State(messages=[Message.user("a")])
    copied = copy.copy(state.history)
    state.add_message(Message.user("b"))
    assert len(copied) == 1


def test_pending_calls_are_a_tuple_in_the_order_asked():
    state = pending()
    assert state.pending_calls == CALLS
    assert type(State().pending_calls) is tuple

    assert close(state, CALLS[0]).pending_calls == CALLS[1:]
    assert close(state, CALLS[1]).pending_calls == CALLS[:1]


# Receipts


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.add_message(Message.user("x")),
        lambda state: state.finish(),
        lambda state: state.compact("x"),
        lambda state: state.restore(state.snapshot()),
    ],
    ids=["add_message", "finish", "compact", "restore"],
)
async def test_a_receipt_of_a_state_that_somebody_else_leased_says_so_and_the_change_stays(change: Callable[..., Any]):
    store, state = MemoryStore(), State(messages=[Message.user("a")])
    await store.save(state)

    async with store.lease(state.id):
        receipt = change(state)
        with pytest.raises(RunningElsewhereError, match=state.id):
            await receipt
    assert len(state.history) == 2

    await receipt
    assert len(await store.read(state.id)) == 2


# Shown


SHOWN = [
    (ContextChangeEntry(0, 0, AT, ContextChange(kind="import", messages=(Message.user("a"),))), "import of 1 messages"),
    (MessageEntry(1, 0, AT, Message.notice("b\nc")), "[notice] b c"),
    (RunStartEntry(2, 0, AT, AgentInfo(model="fake/m")), "agent with fake/m"),
    (ModelRequestEntry(3, 1, AT, "fake/m"), "fake/m"),
    (ModelEventEntry(4, 1, AT, ModelEvent("retry", "in 2 s")), "retry: in 2 s"),
    (ModelReplyEntry(5, 1, AT, Reply((ToolCall("c", "f", {"a": "x" * 200}), ToolCall("d", "g", None, "{")))), None),
    (ToolResultEntry(6, 1, AT, (PNG,), ToolCall("d", "g", None, "{"), "input_error"), "g (input_error): 1 attachment"),
    (ToolResultEntry(7, 1, AT, (TextBlock("ab"),), ToolCall("c", "f", {"a": "x" * 200})), "f: 2 B"),
    (ExchangeEntry(8, 1, AT, "ask", Exchange("why?", {"a": 1})), "why? -> {'a': 1}"),
    (ExchangeEntry(9, 1, AT, "human", Exchange("ok?", True)), "ok? -> True"),
    (ContextChangeEntry(10, 1, AT, ContextChange(kind="clear_tool_results", cleared=("c",))), None),
    (ContextChangeEntry(11, 1, AT, ContextChange(kind="compact", summary="so far")), "compact: so far"),
    (ExtraDataEntry(12, 1, AT, freeze({"a": 1, "b": 2}), ("c",)), "a, b, -c"),
    (ErrorEntry(13, 1, AT, "OSError: gone"), "OSError: gone"),
    (StopEntry(14, 1, AT, StoppedByLimit(3)), "limit of 3 turns"),
    (StopEntry(15, 1, AT, None), "taken back"),
    (StopEntry(16, 1, AT, StoppedByPermission(CALLS[0], "AskHuman()")), "AskHuman() refused f"),
    (StopEntry(17, 1, AT, StoppedByBudget("cost", "0.50", "0.61")), "budget of cost: 0.61 of 0.50"),
    (ContextChangeEntry(18, 0, AT, ContextChange(kind="restore", restored_to=2)), "restore to entry 2"),
]


def test_every_kind_of_entry_has_its_line():
    """With one to show that the beginning is always the same."""
    data = State(extra_data={"c": 1}).history[0]
    history = [SHOWN[0][0], attrs.evolve(data, seq=1, at=AT), *[attrs.evolve(e, seq=e.seq + 1) for e, _ in SHOWN[1:]]]
    state = State(history=history)
    lines = str(state).splitlines()

    assert len(lines) == len(history) + 1
    for line, entry, (_, content) in zip(lines[2:], history[2:], SHOWN[1:], strict=False):
        assert line.startswith(f"[turn {entry.turn}] {entry.kind} ")
        assert content is None or line == f"[turn {entry.turn}] {entry.kind} {content}"
    assert lines[6].endswith("f(a='" + "x" * 94 + "...) g({)")
    assert lines[-1] == "between turns"
    table = state._repr_html_()
    assert table.count("<tr>") == 1 + len(history)
    assert "budget of cost: 0.61 of 0.50" in table


@pytest.mark.parametrize(("count", "shown"), [(999, "999 B"), (1_000, "1.0 KB"), (1_000_000, "1.0 MB")])
def test_sizes_change_their_unit_at_a_thousand(count, shown):
    entry = ToolResultEntry(3, 1, AT, (TextBlock("x" * count),), CALLS[0])

    assert str(State(history=[*ASKED, entry])).splitlines()[3] == f"[turn 1] tool_result f: {shown}"


def test_how_it_stands_is_said_in_a_few_words():
    calls = tuple(ToolCall(f"c{n}", f"tool{n}", {}) for n in range(6))
    asked = State(history=[*ASKED[:2], ModelReplyEntry(2, 1, AT, Reply(calls))])
    finished = State()
    finished.finish()

    lines = str(asked).splitlines()
    assert lines[2].startswith("[turn 1] model_reply tool0() tool1()")
    assert lines[-1] == "6 pending calls: tool0, tool1, tool2, tool3, tool4"
    assert str(finished) == "[turn 0] stop finish()\nfinished: finish()"


@pytest.mark.parametrize(("length", "shown"), [(100, "x" * 100), (101, "x" * 97 + "...")])
def test_a_text_of_100_characters_is_shown_whole(length, shown):
    state = State()
    state.add_message(Message.user("x" * length))

    assert str(state).splitlines()[0] == f"[turn 0] user {shown}"


@pytest.mark.parametrize(("length", "cut"), [(500, False), (501, True)])
def test_a_line_of_500_characters_is_shown_whole(length, cut):
    notes = State(extra_data={"x" * (length - len("[turn 0] extra_data ")): 1})

    line = str(notes).splitlines()[0]

    assert len(line) == 500
    assert line.endswith("...") == cut


@pytest.fixture
def few_digits() -> Iterator[None]:
    """Python makes text of integers of up to 640 digits only, as a program may set it."""
    usual = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield
    sys.set_int_max_str_digits(usual)


def test_an_integer_that_python_makes_no_text_of_is_shown_as_one(request):
    state = State()
    state.finish(10**1_000)
    request.getfixturevalue("few_digits")

    for shown in (str(state), repr(state), state._repr_html_()):
        assert "finish((int with a very long integer))" in shown


LONG = "very long\n" * 1_000


@pytest.mark.parametrize(
    "history",
    [
        [StopEntry(0, 0, AT, StoppedByUntil(LONG))],
        [StopEntry(0, 0, AT, StoppedByPermission(ToolCall("c", LONG, {}), LONG))],
        [RunStartEntry(0, 0, AT, AgentInfo(name=LONG, model=LONG))],
        [ExtraDataEntry(0, 0, AT, freeze({f"{n}\n": n for n in range(5_000)}))],
        [*ASKED[:1], ModelRequestEntry(1, 1, AT, LONG)],
        [*ASKED[:2], ModelReplyEntry(2, 1, AT, Reply(tuple(ToolCall(f"{n}", LONG, {LONG: n}) for n in range(9))))],
        [*ASKED[:2], ModelReplyEntry(2, 1, AT, Reply((ToolCall("c", "\ud83d\u2028\x85", {"\ud83d": "\ud83d"}),)))],
    ],
    ids=["until", "permission", "run", "extra data", "model", "calls", "surrogates"],
)
def test_names_that_are_long_or_odd_leave_it_one_short_line_each_that_can_be_printed(history):
    """Names come from models, users and other programs."""
    state = State(history=history)

    assert len(str(state).splitlines()) == len(history) + 1
    assert max(map(len, str(state).splitlines())) <= 500
    assert len(repr(state).splitlines()) == 1
    assert len(repr(state)) < 300
    assert len(state._repr_html_()) < 3_000
    for shown in (str(state), repr(state), state._repr_html_()):
        shown.encode()


@pytest.mark.parametrize("make", [State, answered, pending, waiting_for_the_model])
def test_showing_a_state_changes_nothing(make):
    state = make()
    before = values(state)

    for show in (str, repr, State._repr_html_, lambda state: f"{state}"):
        assert show(state)

    assert values(state) == before


# In every place at once


async def test_every_method_works_in_tasks_threads_and_threads_of_trio():
    state = State(messages=[Message.user("go")])
    start = state.snapshot()

    def everything(name: str) -> None:
        state.add_message(Message.user(name))
        state.compact(name)
        state.clear_tool_results()
        with state.edit_extra_data() as data:
            data[name] = True
        state.finish(name)
        assert state.fork().answer == name
        assert name in str(state)
        state.restore(state.snapshot())
        state.restore(start)

    everything("task")
    await trio.to_thread.run_sync(everything, "thread")
    await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(everything, "back in trio"))
    await trio.to_thread.run_sync(lambda: trio.run(in_a_task, everything, "another trio"))

    answers = [entry.content.answer for entry in state.history if entry.kind == "stop"]
    assert answers == ["task", "thread", "back in trio", "another trio"]
    assert state.extra_data == {}
    assert_replays(state)


async def in_a_task(work: Callable[[str], None], name: str) -> None:
    work(name)
    await trio.lowlevel.checkpoint()


class Name(enum.StrEnum):
    BUG = "bug-1"


def test_an_id_given_as_a_word_of_an_enum_is_its_text():
    assert type(State(id=Name.BUG).id) is str
    assert State(id=Name.BUG).id == "bug-1"


def test_times_are_none_only_while_there_is_no_history():
    state = State()
    empty = state.snapshot()
    before = datetime.now(UTC)
    state.add_message(Message.user("x"))
    state.restore(empty)

    assert (empty.created_at, empty.updated_at) == (None, None)
    assert before <= state.created_at <= state.updated_at
    assert state.created_at == state.history[0].at


class Sly(str):
    """Text that says something else when it is asked for its text."""

    def __str__(self) -> str:
        return "../elsewhere"


class OldName(str, enum.Enum):  # noqa: UP042  # as it was written before StrEnum
    BUG = "bug-1"


@pytest.mark.parametrize("state_id", [OldName.BUG, Sly("bug-1")], ids=["Enum", "str"])
def test_the_id_that_was_checked_is_the_id(state_id):
    for state in (State(id=state_id), State().fork(id=state_id)):
        assert (state.id, type(state.id)) == ("bug-1", str)


@pytest.mark.parametrize(
    "entry",
    [
        MessageEntry(0, 0, AT, "text"),
        MessageEntry(0, 0, "2026-01-01", Message.user("x")),
        ContextChangeEntry(0, 0, AT, "import"),
        ToolResultEntry(0, 0, AT, (), "call"),
    ],
    ids=["message", "time", "change", "call"],
)
def test_an_entry_that_holds_something_else_than_it_should_is_refused_by_its_position(entry):
    with pytest.raises((TypeError, ValueError), match=r"entry 0|history\[0\]"):
        State(history=[entry])


async def test_a_finished_state_can_be_compacted_by_an_agent_too():
    """Only think, use_tools, ask and run are refused."""
    state = answered()
    state.finish("done")

    await Agent(model=FakeModel(["so far"])).compact(state)

    assert texts(state) == ["go", "[summary of the conversation so far] so far"]
    assert state.answer == "done"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_state_is_not_copied_and_says_what_to_do_instead(duplicate):
    with pytest.raises(TypeError, match=r"state\.fork\(\)"):
        duplicate(State())
