"""A State in a plain script, without an event loop: making one, adding messages, finishing, snapshots."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from alpineagents import (
    Image,
    Message,
    MessageEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    State,
    StateSnapshot,
    StopEntry,
    StoppedByFinish,
    StoppedByLimit,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
)
from alpineagents._hooks import witness

from ..states import PROPERTIES, assert_replays, values

AT = datetime(2026, 1, 2, tzinfo=UTC)
CALLS = (ToolCall("a", "f", {}), ToolCall("b", "g", {"x": 1}))
GO = [MessageEntry(0, 0, AT, Message.user("go")), ModelRequestEntry(1, 1, AT, "m")]
ASKED = [*GO, ModelReplyEntry(2, 1, AT, Reply(CALLS, usage=Usage(7, requests=1)))]
ANSWERED = [*GO, ModelReplyEntry(2, 1, AT, Reply((TextBlock("hello"),)))]


def answered() -> State:
    return State(history=ANSWERED)


def waiting_for_the_model() -> State:
    return State(history=GO)


def pending() -> State:
    return State(history=ASKED)


def texts(state: State | StateSnapshot) -> list[str]:
    return [message.text for message in state.messages]


def close(state: State, call: ToolCall) -> State:
    """The State with a result of *call*."""
    entry = ToolResultEntry(len(state.history), 1, state.updated_at, (TextBlock("ok"),), call)
    return State(history=[*state.history, entry])


def reply(state: State, *blocks: object) -> State:
    entry = ModelReplyEntry(len(state.history), 1, state.updated_at, Reply(blocks or (TextBlock("hello"),)))
    return State(history=[*state.history, entry])


# Making one


def test_an_empty_state_has_nothing():
    state = State()

    assert values(state) == {
        "messages": [],
        "history": [],
        "answer": None,
        "finished": False,
        "stopped": None,
        "pending_calls": (),
        "turn": 0,
        "usage": Usage(),
        "extra_data": {},
        "created_at": None,
        "updated_at": None,
        "parent_id": None,
        "parent_call_id": None,
    }


def test_what_a_state_starts_with_is_one_entry_each():
    state = State(id="bug-1", messages=[Message.user("a"), Message.assistant("b")], extra_data={"n": (1,)})

    assert state.id == "bug-1"
    assert [(entry.seq, entry.kind, entry.turn) for entry in state.history] == [
        (0, "context_change", 0),
        (1, "extra_data", 0),
    ]
    assert state.history[0].content.kind == "import"
    assert texts(state) == ["a", "b"]
    assert state.extra_data == {"n": [1]}
    assert_replays(state)


@pytest.mark.parametrize("messages", [None, [], (), iter(())])
@pytest.mark.parametrize("extra_data", [None, {}])
def test_nothing_to_start_with_is_no_entry(messages, extra_data):
    assert not len(State(messages=messages, extra_data=extra_data).history)


def test_arguments_are_by_keyword_only():
    with pytest.raises(TypeError):
        State("bug-1")


@pytest.mark.parametrize("state_id", ["a", "A-1_b", "-", "x" * 128])
def test_ids_of_letters_digits_and_two_signs_are_taken(state_id):
    assert State(id=state_id).id == state_id


@pytest.mark.parametrize("state_id", ["", "x" * 129, "a b", "a/b", "../a", "a.b", "ä", "a\n", "\u0661", "a\x00"])
def test_another_id_is_a_value_error_that_shows_a_right_one(state_id):
    with pytest.raises(ValueError, match="letters, digits"):
        State(id=state_id)
    with pytest.raises(ValueError, match="letters, digits"):
        State().fork(id=state_id)


@pytest.mark.parametrize("state_id", [1, b"a", ["a"]])
def test_an_id_that_is_no_text_is_a_type_error(state_id):
    with pytest.raises(TypeError, match="id must be str"):
        State(id=state_id)


def test_ids_made_up_are_different_valid_and_sort_by_age():
    ids = [State().id for _ in range(2_000)]

    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{20,128}", state_id) for state_id in ids)
    ages = [state_id[:10] for state_id in ids]
    assert ages == sorted(ages)


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ("Find the bug", TypeError),
        (b"x", TypeError),
        (Message.user("x"), TypeError),
        (3, TypeError),
        (["x"], TypeError),
        ([Message.user("x"), None], TypeError),
        ([{"role": "user"}], TypeError),
    ],
    ids=["str", "bytes", "Message", "int", "list of str", "None in it", "list of dict"],
)
def test_messages_that_are_none_show_what_to_write(messages, error):
    with pytest.raises(error, match=r"Message\.user\("):
        State(messages=messages)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([Message("assistant", CALLS[:1])], "'a'"),
        ([Message("assistant", CALLS), Message.user("x")], "'a'"),
        ([Message("assistant", CALLS), Message("tool", (ToolResultBlock("a", ()),))], "'b'"),
        ([Message("tool", (ToolResultBlock("zz", ()),))], "'zz'"),
        ([Message("assistant", (CALLS[0], CALLS[0]))], "'a'"),
    ],
    ids=["dangling at the end", "dangling in the middle", "one of two", "orphan", "twice"],
)
def test_messages_whose_calls_and_results_do_not_fit_are_a_value_error_that_names_the_call(messages, fault):
    with pytest.raises(ValueError, match=fault):
        State(messages=messages)


@pytest.mark.parametrize("extra_data", [[], 0, "", (), [("a", 1)], "x", {1: 2}, {"a": {1}}], ids=repr)
def test_extra_data_is_a_dict_of_json(extra_data):
    with pytest.raises(TypeError, match="extra_data"):
        State(extra_data=extra_data)


@pytest.mark.parametrize("other", [{"messages": []}, {"extra_data": {}}, {"messages": [Message.user("x")]}])
def test_a_history_has_messages_and_extra_data_in_it(other):
    with pytest.raises(ValueError, match="history"):
        State(history=[], **other)


@pytest.mark.parametrize("history", [3, "abc", State(), [3]], ids=["int", "str", "State", "list of int"])
def test_a_history_that_is_none_is_a_type_error(history):
    with pytest.raises(TypeError, match=r"history|iterable"):
        State(history=history)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda state: State(id=1), TypeError, "id must be str, not int"),
        (lambda state: State(id="a b"), ValueError, "id 'a b': use 1 to 128 letters, digits, _ and -"),
        (lambda state: State(messages="x"), TypeError, "messages must be a list of Message, not str: State(messages=["),
        (lambda state: State(messages=[Message.user("x"), 3]), TypeError, "messages[1] is a int; make it a Message: "),
        (lambda state: State(history=[GO[0], 3]), TypeError, "history[1] is a int, not an entry: State(history="),
        (
            lambda state: State(history=[attrs.evolve(GO[0], at="noon")]),
            TypeError,
            "history[0]: no MessageEntry has such a content or time: MessageEntry(seq=0",
        ),
        (
            lambda state: State(history=[GO[0], ToolResultEntry(1, 0, GO[0].at, (TextBlock("x"),), "c1")]),
            TypeError,
            "history[1]: its call is a str, not a ToolCall",
        ),
        (lambda state: state.add_message("x"), TypeError, "add_message takes a Message, not str: state.add_message("),
        (lambda state: state.compact(3), TypeError, "summary must be str, not int"),
        (lambda state: state.clear_tool_results("5"), TypeError, "keep_last must be an int, not str"),
        (lambda state: state.clear_tool_results(True), TypeError, "keep_last must be an int, not bool"),
        (lambda state: state.clear_tool_results(-1), ValueError, "keep_last must be 0 or more (got -1)"),
        (lambda state: state.watch(None), TypeError, "after must be an int, not NoneType"),
        (lambda state: state.watch(-1), ValueError, "after must be 0 or more (got -1)"),
        (lambda state: state.restore(3), TypeError, "restore takes a StateSnapshot, not int: state.restore(state.snap"),
    ],
)
def test_an_argument_that_is_wrong_is_named_first_with_what_it_is(call, error, message):
    state = answered()

    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call(state)

    assert len(state.history) == len(ANSWERED)


def test_a_state_of_the_same_history_has_the_same_values_and_goes_its_own_way():
    state = pending()
    other = State(history=state.history)
    assert values(other) == values(state)

    other.add_message(Message.user("x"))

    assert len(state.history) == len(other.history) - 1
    assert_replays(state)
    assert_replays(other)


def test_no_property_can_be_set():
    state = State()
    for name in (*PROPERTIES, "id"):
        with pytest.raises(AttributeError):
            setattr(state, name, None)
    with pytest.raises(AttributeError):
        state.note = 1


def test_a_state_works_without_any_event_loop_and_without_trio_running():
    code = (
        "from alpineagents import Message, State\n"
        "state = State(messages=[Message.user('a')])\n"
        "state.add_message(Message.notice('b')); state.compact('c'); state.clear_tool_results()\n"
        "snapshot = state.snapshot(); state.finish({'a': (1,)}); state.restore(snapshot); state.fork()\n"
        "with state.edit_extra_data() as data: data['n'] = 1\n"
        "print(len(state.history), state.extra_data)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "6 {'n': 1}\n", "")


# history and messages as sequences


def talking(*words: str) -> State:
    state = State()
    for word in words:
        state.add_message(Message.user(word))
    return state


class Anything:
    """Equal to all that doesn't know better."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


@pytest.mark.parametrize("name", ["history", "messages"])
def test_history_and_messages_are_read_only_sequences(name):
    state = talking("a", "b", "c")
    sequence = getattr(state, name)
    plain = list(sequence)

    assert len(sequence) == 3
    assert sequence[0] is plain[0]
    assert sequence[-1] is plain[-1]
    assert list(sequence[1:]) == plain[1:]
    assert list(sequence[::-1]) == plain[::-1] == list(reversed(sequence))
    assert plain[1] in sequence
    assert Message.user("zz") not in sequence
    assert sequence.index(plain[2]) == 2
    assert sequence.count(plain[1]) == 1
    assert sequence == plain
    assert plain == sequence
    assert sequence == tuple(plain)
    assert sequence != plain[:2]
    assert sequence != [*plain, 1]
    assert sequence == getattr(state, name)
    assert sequence == getattr(state.fork(), name)
    assert sequence != getattr(talking("a", "b", "d"), name)
    assert sequence != getattr(talking("a", "b"), name)
    assert sequence != 3
    assert sequence == Anything()
    assert repr(sequence) == repr(plain)
    for index in (3, -4):
        with pytest.raises(IndexError, match=rf"^index {index} of 3 items$"):
            sequence[index]
    with pytest.raises(TypeError):
        sequence[0] = plain[0]
    with pytest.raises(TypeError):
        del sequence[0]
    for method in ("append", "clear", "sort", "pop", "extend"):
        assert not hasattr(sequence, method)


def test_what_was_read_earlier_does_not_grow():
    state = State(messages=[Message.user("a")])
    history, messages = state.history, state.messages

    state.add_message(Message.user("b"))

    assert (len(history), len(messages)) == (1, 1)
    assert list(iter(messages)) == [Message.user("a")]
    with pytest.raises(IndexError):
        messages[1]


# Messages


def test_a_message_between_turns_goes_in_at_once():
    state = answered()

    state.add_message(Message.notice("tests fail"))

    assert state.history[-1].kind == "notice"
    assert texts(state)[-1] == "[notice] tests fail"
    assert_replays(state)


def test_messages_while_the_model_is_waited_on_go_in_after_the_reply_in_their_order():
    state = waiting_for_the_model()
    for message in (Message.user("one"), Message.notice("two"), Message.user("three")):
        state.add_message(message)
    assert texts(state) == ["go"]
    assert len(state.history) == 5

    replied = reply(state)

    assert texts(replied) == ["go", "hello", "one", "[notice] two", "three"]
    assert_replays(replied)


def test_messages_while_calls_are_pending_go_in_after_all_results():
    state = waiting_for_the_model()
    state.add_message(Message.user("during the request"))
    state = reply(state, *CALLS)
    state.add_message(Message.user("during the calls"))
    state = close(state, CALLS[1])
    state.add_message(Message.notice("after one"))
    assert [message.role for message in state.messages] == ["user", "assistant"]

    state = close(state, CALLS[0])

    assert [message.role for message in state.messages] == ["user", "assistant", "tool", "user", "user", "user"]
    assert [block.call_id for block in state.messages[2].blocks] == ["a", "b"]
    assert texts(state)[3:] == ["during the request", "during the calls", "[notice] after one"]
    assert_replays(state)


@pytest.mark.parametrize("message", ["hi", None, {"role": "user"}, Image(b"\x89PNG\r\n\x1a\n")], ids=type)
def test_what_is_no_message_is_a_type_error_that_shows_one(message):
    with pytest.raises(TypeError, match=r"Message\.user\("):
        State().add_message(message)


def test_only_messages_from_the_person_and_notices_can_be_added():
    state = answered()
    for message in (Message.assistant("x"), Message("tool", ()), Message("assistant", CALLS)):
        with pytest.raises(ValueError, match=f"{message.role!r}"):
            state.add_message(message)
    assert len(state.history) == len(ANSWERED)


# Finish


@pytest.mark.parametrize("answer", [0, "", [], {}, False, 0.0])
def test_an_answer_that_is_false_is_an_answer(answer):
    state = answered()

    state.finish(answer)

    assert repr(state.answer) == repr(answer)
    assert state.stopped == StoppedByFinish(answer)
    assert state.finished
    assert_replays(state)


def test_finish_without_an_answer_keeps_the_text():
    state = answered()
    assert state.answer == "hello"

    state.finish()

    assert state.answer == "hello"
    assert state.stopped == StoppedByFinish(None)
    assert State().finish() is not None


def test_finishing_again_is_recorded_and_the_last_answer_that_is_one_wins():
    state = answered()
    for answer in (1, None, {"a": (2,)}, None):
        state.finish(answer)

    assert state.answer == {"a": [2]}
    assert [entry.kind for entry in state.history[3:]] == ["stop"] * 4
    assert state.stopped == StoppedByFinish(None)
    assert_replays(state)


def test_an_answer_given_before_the_reply_stays_when_the_reply_comes():
    state = waiting_for_the_model()
    state.finish("mine")

    assert reply(state).answer == "mine"


def test_a_text_answer_that_comes_after_finish_is_the_answer():
    state = waiting_for_the_model()
    state.finish()

    assert reply(state).answer == "hello"


def test_a_reply_with_calls_leaves_the_answer_as_it_was():
    state = answered()
    request = ModelRequestEntry(3, 2, AT, "m")
    state = State(history=[*ANSWERED, request, ModelReplyEntry(4, 2, AT, Reply((TextBlock("let me see"), *CALLS)))])

    assert state.answer == "hello"


def test_after_finish_everything_but_what_the_seed_lists_still_works():
    """think, use_tools, ask and run raise; the rest doesn't."""
    state = answered()
    start = state.snapshot()
    state.finish("done")

    state.add_message(Message.user("thanks"))
    with state.edit_extra_data() as data:
        data["n"] = 1
    state.compact("all done")
    state.clear_tool_results()
    state.finish("really")
    assert state.fork().answer == "really"
    state.restore(start)

    assert not state.finished
    assert state.stopped is None
    assert state.answer == "hello"
    assert_replays(state)


@pytest.mark.parametrize("make", [waiting_for_the_model, pending])
def test_finish_works_in_the_middle_of_a_turn(make):
    state = make()

    state.finish("early")

    assert (state.finished, state.answer) == (True, "early")
    assert_replays(state)


# Snapshots


def test_a_snapshot_has_the_properties_of_the_state_and_none_of_its_methods():
    state = pending()
    snapshot = state.snapshot()

    assert values(snapshot) == values(state)
    assert snapshot.id == state.id
    for name in ("add_message", "finish", "compact", "clear_tool_results", "restore", "edit_extra_data", "fork"):
        assert not hasattr(snapshot, name)


def test_a_snapshot_never_changes():
    state = pending()
    snapshot = state.snapshot()
    before = values(snapshot)

    state.add_message(Message.user("x"))
    state.finish(1)
    with state.edit_extra_data() as data:
        data["n"] = 1

    assert values(snapshot) == before
    for name in (*PROPERTIES, "id", "other"):
        with pytest.raises(AttributeError):
            setattr(snapshot, name, 1)
        with pytest.raises(AttributeError):
            delattr(snapshot, name)


def test_snapshots_are_equal_when_their_histories_are():
    state = pending()
    snapshot = state.snapshot()

    assert snapshot == state.snapshot() == state.fork().snapshot() == State(history=state.history).snapshot()
    state.add_message(Message.user("x"))
    assert snapshot != state.snapshot()
    assert snapshot != "x"
    with pytest.raises(TypeError, match="unhashable"):
        hash(snapshot)


def test_snapshots_of_as_many_entries_that_say_something_else_are_different():
    assert talking("a", "b").snapshot() != talking("a", "c").snapshot()


def test_a_snapshot_of_a_fork_that_has_gone_on_is_of_another_state():
    state = talking("a")
    fork = state.fork()
    fork.add_message(Message.user("b"))

    with pytest.raises(ValueError, match="isn't the beginning of that of State"):
        state.restore(fork.snapshot())


def test_two_states_that_did_the_same_are_equal_whenever_they_did_it():
    a, b = (State(messages=[Message.user("x")]) for _ in range(2))
    assert a.snapshot() == b.snapshot()
    assert a.id != b.id


def test_a_snapshot_can_be_copied_and_pickled():
    snapshot = pending().snapshot()

    assert copy.copy(snapshot) is snapshot
    assert copy.deepcopy([snapshot])[0] is snapshot
    back = pickle.loads(pickle.dumps(snapshot))
    assert back == snapshot
    assert values(back) == values(snapshot)
    assert back.id == snapshot.id


# Time


def test_times_are_those_of_the_first_and_the_latest_entry_in_utc():
    before = datetime.now(UTC)
    state = State(messages=[Message.user("x")])
    state.add_message(Message.user("y"))
    after = datetime.now(UTC)

    assert state.created_at == state.history[0].at
    assert state.updated_at == state.history[1].at
    assert before <= state.created_at <= state.updated_at <= after
    assert state.created_at.utcoffset() == timedelta(0)


def test_the_time_never_goes_backwards_whatever_the_clock_says():
    """A machine whose clock was an hour ahead wrote this history."""
    future = datetime.now(UTC) + timedelta(hours=1)
    state = State(history=[MessageEntry(0, 0, future, Message.user("x"))])

    state.add_message(Message.user("y"))
    state.finish(1)
    with state.edit_extra_data() as data:
        data["n"] = 1

    assert [entry.at for entry in state.history] == [future] * 4
    assert state.updated_at == future
    assert_replays(state)


# Equal values in order


def at_times(entries: Iterable[object]) -> list[datetime]:
    return [entry.at for entry in entries]


def test_every_entry_has_its_position_and_no_time_before_the_last():
    state = State(messages=[Message.user("x")])
    for n in range(50):
        state.add_message(Message.user(str(n)))
    state.finish()

    assert [entry.seq for entry in state.history] == list(range(52))
    assert at_times(state.history) == sorted(at_times(state.history))


def test_a_stop_of_a_loop_is_shown_until_the_next_run_starts():
    state = State(history=[*ANSWERED, StopEntry(3, 1, AT, StoppedByLimit(1))])

    assert state.stopped == StoppedByLimit(1)
    assert not state.finished


def test_whoever_watches_a_test_is_told_of_each_state_that_is_made_and_what_it_begins_with():
    seen: list[tuple[str, int]] = []
    token = witness.set(lambda state: seen.append((state.id, len(state.history))))
    try:
        made = [State(), State(messages=[Message.user("go")], extra_data={"a": 1}), answered()]
        copied = made[1].fork()
    finally:
        witness.reset(token)
    State()

    assert seen[:3] == [(state.id, len(state.history)) for state in made]
    assert [state_id for state_id, _ in seen[3:]] == [copied.id]
