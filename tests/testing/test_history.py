"""assert_history: what it takes for the same, and the diff that it shows otherwise."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    Entry,
    ErrorEntry,
    Message,
    MessageEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    RunStartEntry,
    State,
    TextBlock,
    ToolResultEntry,
    tool,
)
from alpineagents.record._codec import _ENTRIES
from alpineagents.testing import FakeModel, assert_history, tool_call
from alpineagents.testing._aligned import aligned
from alpineagents.testing._history import _KIND
from alpineagents.testing._lines import entry_line


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@functools.cache
def talk(answer: str = "3") -> State:
    state = State(id="sum", messages=[Message.user("1 + 2")])
    Agent(model=FakeModel([tool_call("add", a=1, b=2), answer]), tools=[add]).run_sync(state)
    return state


LINES = [
    "[turn 0] context_change import of 1 messages",
    "[turn 0] run_start agent with fake/fake",
    "[turn 1] model_request fake/fake",
    "[turn 1] model_reply add(a=1, b=2)",
    "[turn 1] tool_result add: 1 B",
    "[turn 2] model_request fake/fake",
    "[turn 2] model_reply 3",
    "[turn 2] stop until waiting_for_user",
]
STANDS = "stopped: until waiting_for_user"


def diff_of(state: object, expected: object) -> list[str]:
    """The lines of the diff, below the first."""
    with pytest.raises(AssertionError) as caught:
        assert_history(state, expected)
    first, *lines = str(caught.value).splitlines()
    assert re.fullmatch(r"(State \S+|the history) isn't as expected \(- expected, \+ happened\):", first)
    return lines


# ---- What is as expected

SAME: list[object] = [
    LINES,
    tuple(LINES),
    [*LINES, STANDS],
    [*LINES, "stopped: *"],
    "\n".join([*LINES, STANDS]),
    "\n    " + "\n\n      ".join(LINES) + "\n",
    [line.partition("] ")[2] for line in LINES],
    [...],
    [..., ...],
    [..., *LINES, ...],
    [..., STANDS],
    f"...\n    model_reply add(a=1, b=2)\n    ...\n    {STANDS}",
    [..., "tool_result *", ..., "model_reply 3", ...],
    [..., "[turn *] tool_result add: *", ...],
    ["*"] * 8,
    [..., ModelRequestEntry, ModelReplyEntry, ToolResultEntry, ...],
    [*LINES[:3], ModelReplyEntry, ..., "stop *"],
    [..., RunStartEntry, ..., ModelReplyEntry, "stop *"],
]


@pytest.mark.parametrize("expected", SAME)
def test_it_is_as_expected(expected):
    assert_history(talk(), expected)
    assert_history(talk().snapshot(), expected)


def test_a_state_is_as_it_prints_itself_and_as_its_own_history():
    state = talk()

    assert_history(state, str(state))
    assert_history(state, list(state.history))
    assert_history(state.history, [entry_line(entry) for entry in state.history])
    assert_history(state, [state.history[0], ..., *state.history[-2:]])


def test_times_do_not_count_in_entries():
    first = State(id="a", messages=[Message.user("Hi")])

    assert_history(State(id="b", messages=[Message.user("Hi")]), list(first.history))


def test_an_empty_state_is_as_nothing():
    assert_history(State(), [])
    assert_history(State(), "empty")


def test_what_means_something_in_patterns_is_meant_as_it_is():
    state = State(messages=[Message.user("Is [a-z]+ (one?) a * or a .")])
    Agent(model=FakeModel(["\\d * [x]"])).run_sync(state)

    assert_history(state, str(state))
    assert_history(state, [..., "model_reply \\d * [x]", ...])
    assert diff_of(state, [..., "model_reply \\d . [x]", ...])


@pytest.mark.parametrize("kind", list(_ENTRIES))
def test_the_last_line_may_be_of_an_entry_of_any_kind(kind):
    for line in (kind, f"{kind} *", f"{kind}*"):
        assert _KIND.match(line)


@pytest.mark.parametrize(
    "line", ["waiting for the model", "2 pending calls: a, b", "finished: finish()", "stopped: limit of 3 turns"]
)
def test_or_say_how_the_state_stands(line):
    assert not _KIND.match(line)


# ---- The diff


def test_a_line_that_differs_is_shown_with_where_it_does():
    expected = [line.replace("1 B", "2 B") for line in LINES]

    assert diff_of(talk(), expected) == [
        *[f"  {line}" for line in LINES[:4]],
        "- [turn 1] tool_result add: 2 B",
        "+ [turn 1] tool_result add: 1 B",
        "                            ^",
        *[f"  {line}" for line in LINES[5:]],
    ]


def test_lines_that_are_missing_or_too_many_are_shown_where_they_are():
    expected = [*LINES[:2], *LINES[3:6], "[turn 2] error ValueError", *LINES[6:]]

    assert diff_of(talk(), expected) == [
        *[f"  {line}" for line in LINES[:2]],
        f"+ {LINES[2]}",
        *[f"  {line}" for line in LINES[3:6]],
        "- [turn 2] error ValueError",
        *[f"  {line}" for line in LINES[6:]],
    ]


def test_how_a_state_stands_is_compared_where_it_is_expected():
    assert diff_of(talk(), [..., "finished: finish()"])[-2:] == ["- finished: finish()", f"+ {STANDS}"]


def test_entries_that_look_alike_show_the_fields_that_differ():
    state = talk()
    reply = state.history[6]
    other = ModelReplyEntry(reply.seq, reply.turn, reply.at, Reply([TextBlock("3")], "fake/other"))

    lines = diff_of(state, [..., other, state.history[7]])

    assert "    content.model: expected 'fake/other', happened 'fake/fake'" in lines
    assert "    content.usage.input_tokens: expected 0, happened 10" in lines


def test_a_class_is_shown_by_its_name():
    assert diff_of(talk(), [*LINES[:7], ErrorEntry])[-2:] == ["- ErrorEntry", f"+ {LINES[7]}"]


def test_what_the_gap_covers_is_shown_as_it_is():
    lines = diff_of(talk(), [..., "model_reply 4", "stop *"])

    assert lines == [*[f"  {line}" for line in LINES[:6]], "- model_reply 4", f"+ {LINES[6]}", f"  {LINES[7]}"]


def test_a_long_history_is_shown_where_it_differs():
    state = State(messages=[Message.user("first")])
    for number in range(300):
        state.add_message(Message.user(f"message {number}"))
    expected = str(state).replace("message 150", "message x")

    assert diff_of(state, expected) == [
        "  (148 as expected)",
        *[f"  [turn 0] user message {number}" for number in (147, 148, 149)],
        "- [turn 0] user message x",
        "+ [turn 0] user message 150",
        "                        ^",
        *[f"  [turn 0] user message {number}" for number in (151, 152, 153)],
        "  (147 as expected)",
    ]


def test_a_history_of_ten_thousand_is_compared_in_no_time():
    """Were all pairs compared, it would take minutes."""
    state = State()
    for number in range(10_000):
        state.add_message(Message.user(f"message {number}"))
    expected = [f"user other {number}" for number in range(10_000)]

    assert len(diff_of(state, expected)) == 20_000


def test_pytest_shows_the_diff_as_it_is(pytester):
    pytester.makepyfile("""
from alpineagents import Message, State
from alpineagents.testing import assert_history

def test_it():
    assert_history(State(id="a", messages=[Message.user("Hi")]), ["context_change import of 2 messages"])
""")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(
        [
            "E       AssertionError: State a isn't as expected (- expected, + happened):",
            "E       - context_change import of 2 messages",
            "E       + ?turn 0? context_change import of 1 messages",
        ]
    )
    result.stdout.no_fnmatch_line("*steps*")  # the frames of assert_history itself


def test_a_history_is_as_the_saved_file_says(history_snapshot):
    """The file shows in every change of it what a history has in it."""
    state = State(messages=[Message.user("1 + 2")])
    Agent(model=FakeModel([tool_call("add", a=1, b=2), "3"]), tools=[add]).run_sync(state)

    assert state == history_snapshot


# ---- Mistakes


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (3, "expected must be a text or a list, not int"),
        (None, "expected must be a text or a list, not NoneType"),
        (["a", 3], "an item must be a line such as 'model_reply *', an entry class, an entry or ..., not 3"),
        ([Message], "an item must be a line"),
        ([Message.user("Hi")], "an item must be a line"),
    ],
)
def test_what_cannot_be_expected_is_refused(expected, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        assert_history(talk(), expected)


@pytest.mark.parametrize("state", ["text", 3, None, [Message.user("Hi")], Agent])
def test_what_has_no_history_is_refused(state):
    with pytest.raises(TypeError, match="assert_history"):
        assert_history(state, [])


def test_one_entry_is_no_list():
    with pytest.raises(TypeError, match=r"expected must be a text or a list, not ModelRequestEntry"):
        assert_history(talk(), talk().history[2])


def test_a_bare_history_stands_nowhere():
    with pytest.raises(TypeError, match="only a State stands somehow; leave this out for a history: 'stopped: "):
        assert_history(talk().history, [..., STANDS])


# ---- Alignment

Items = list[object]
items = st.lists(st.sampled_from("ab"), max_size=7)
patterns = st.lists(st.sampled_from(["a", "b", ...]), max_size=5)


def covers(expected: Items, happened: Items) -> bool:
    if not expected:
        return not happened
    if expected[0] is ...:
        return covers(expected[1:], happened) or (bool(happened) and covers(expected, happened[1:]))
    return bool(happened) and expected[0] == happened[0] and covers(expected[1:], happened[1:])


@given(patterns, items)
def test_nothing_differs_exactly_where_the_pattern_covers_all(expected, happened):
    steps = aligned(expected, happened, lambda a, b: a == b)

    assert covers(expected, happened) == (not any(step.differs for step in steps))
    assert [step.happened for step in steps if step.happened is not None] == happened
    assert [step.expected for step in steps if step.expected not in (None, ...)] == [x for x in expected if x != ...]
    for step in steps:
        both = step.expected is not None and step.happened is not None
        assert not both or not step.differs


@given(items, items)
def test_no_more_differs_than_has_to(expected, happened):
    """As many as the longest common subsequence leaves over."""

    @functools.cache
    def common(i: int, j: int) -> int:
        if i == len(expected) or j == len(happened):
            return 0
        if expected[i] == happened[j]:
            return 1 + common(i + 1, j + 1)
        return max(common(i + 1, j), common(i, j + 1))

    steps = aligned(expected, happened, lambda a, b: a == b)

    assert sum(step.differs for step in steps) == len(expected) + len(happened) - 2 * common(0, 0)


def test_lines_are_those_that_a_state_prints():
    state = talk("x" * 2_000 + "\n\x1b[31m\u202e")
    state.fork().add_message(Message.user("y"))
    entries: list[Entry] = [*state.history, MessageEntry(9, 2, state.updated_at, Message.user("z" * 3_000))]

    assert [entry_line(entry) for entry in state.history] == str(state).split("\n")[:-1]
    assert all(len(entry_line(entry)) <= 500 for entry in entries)
