"""Conversations: which are well formed, what a compaction leaves of one, and which results can be cleared."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from alpineagents import (
    ContextChange,
    ContextChangeEntry,
    IllegalEntryError,
    Message,
    State,
    TextBlock,
    ToolCall,
    ToolResultBlock,
)

from ..states import assert_replays

AT = datetime(2026, 1, 2, tzinfo=UTC)
GO = Message.user("go")


def asking(*ids: str) -> Message:
    return Message("assistant", tuple(ToolCall(call_id, "f", {}) for call_id in ids))


def results(*ids: str) -> Message:
    return Message("tool", tuple(ToolResultBlock(call_id, (TextBlock(f"of {call_id}"),)) for call_id in ids))


def imported(*messages: Message) -> ContextChangeEntry:
    return ContextChangeEntry(0, 0, AT, ContextChange(kind="import", messages=messages))


# Well formed


TURN = [asking("a"), results("a")]

FAULTS: dict[str, tuple[list[Message], str]] = {
    "a call at the end": ([GO, asking("a")], "call 'a' has no result"),
    "the second of two calls at the end": ([GO, *TURN, asking("b", "c")], "call 'b' has no result"),
    "a message before the result": ([GO, asking("a"), GO], "messages[2]: call 'a' has no result before it"),
    "a reply before the result": ([asking("a"), asking("b")], "messages[1]: call 'a' has no result before it"),
    "one result of two": (
        [asking("a", "b"), results("a")],
        "messages[1]: results of ['a'], but the calls before it are ['a', 'b']",
    ),
    "results in another order": (
        [asking("a", "b"), results("b", "a")],
        "messages[1]: results of ['b', 'a'], but the calls before it are ['a', 'b']",
    ),
    "results again": ([*TURN, results("a")], "messages[2]: results of ['a'], but the calls before it are []"),
    "results without calls": ([results("a")], "messages[0]: results of ['a'], but the calls before it are []"),
    "a tool's message without results": (
        [GO, Message("tool", ())],
        "messages[1]: results of [], but the calls before it are []",
    ),
    "a result that the person says": (
        [GO, Message("user", results("a").blocks)],
        "messages[1]: results of ['a'], but the calls before it are []",
    ),
    "a call that the person says": (
        [GO, Message("user", asking("a").blocks), results("a")],
        "messages[1]: call 'a' in a message of role 'user'",
    ),
    "a call beside results": (
        [asking("a"), Message("tool", (*results("a").blocks, *asking("b").blocks)), results("b")],
        "messages[1]: call 'b' in a message of role 'tool'",
    ),
    "an id twice in a message": ([asking("a", "a"), results("a", "a")], "messages[0]: call id 'a' comes twice"),
    "an id again": ([*TURN, GO, asking("b", "a"), results("b", "a")], "messages[3]: call id 'a' comes twice"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_conversation_that_is_not_well_formed_is_refused_by_position_and_call(name):
    messages, fault = FAULTS[name]

    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$"):
        State(messages=messages)
    with pytest.raises(IllegalEntryError, match=f"^entry 0: {re.escape(fault)}$"):
        State(history=[imported(*messages)])


@pytest.mark.parametrize(
    "messages",
    [
        [GO],
        [GO, GO, Message.notice("tick"), Message.assistant("hi"), Message.assistant("more")],
        [asking("a", "b"), results("a", "b"), asking("c"), results("c"), Message.assistant("done")],
        [GO, asking("a"), results("a"), GO],
        [Message("assistant", (TextBlock("hm"), *asking("a").blocks, TextBlock("so"))), results("a")],
        [asking("a"), Message("tool", (*results("a").blocks, TextBlock("said beside it")))],
    ],
    ids=["one", "no calls", "turns", "goes on", "text around a call", "text beside a result"],
)
def test_a_conversation_that_is_well_formed_is_taken_as_it_is(messages):
    state = State(messages=messages)

    assert list(state.messages) == messages
    assert_replays(state)


# Compacted


def compacted(messages: list[Message], covers: int | None) -> list[Message]:
    change = ContextChange(kind="compact", summary="so far", covers=covers)
    return list(State(history=[imported(*messages), ContextChangeEntry(1, 0, AT, change)]).messages)


SUMMARY = Message.summary("so far")
NOTICE = Message.notice("tick")
ALL = [NOTICE, GO, *TURN, Message.user("and?")]


@pytest.mark.parametrize(
    ("covers", "left"),
    [
        (None, [GO, SUMMARY]),
        (5, [GO, SUMMARY]),
        (4, [GO, SUMMARY, Message.user("and?")]),
        (2, [GO, SUMMARY, *TURN, Message.user("and?")]),
        (1, [SUMMARY, GO, *TURN, Message.user("and?")]),
        (0, [SUMMARY, *ALL]),
    ],
)
def test_a_summary_stands_for_the_messages_it_covers_but_the_first_of_the_person(covers, left):
    """What it doesn't cover comes behind it, once."""
    assert compacted(ALL, covers) == left


@pytest.mark.parametrize(
    ("covers", "fault"),
    [
        (-1, "the summary covers -1 messages, but there are 5"),
        (6, "the summary covers 6 messages, but there are 5"),
        (3, "the summary covers 3 messages: calls, but not their results"),
    ],
)
def test_a_summary_that_covers_what_it_cannot_is_refused(covers, fault):
    with pytest.raises(IllegalEntryError, match=f"^entry 1: {re.escape(fault)}$"):
        compacted(ALL, covers)


@pytest.mark.parametrize("summary", [None, "", " \n"])
def test_a_compaction_without_a_summary_is_refused(summary):
    change = ContextChangeEntry(1, 0, AT, ContextChange(kind="compact", summary=summary))

    with pytest.raises(IllegalEntryError, match=r"^entry 1: compact without a summary$"):
        State(history=[imported(GO), change])


def test_only_words_of_the_person_stay_before_a_summary():
    """Neither a notice, nor an earlier summary, nor a reply."""
    assert compacted([NOTICE, Message.summary("before"), Message.assistant("hi")], None) == [SUMMARY]


# Cleared


def test_a_result_that_is_cleared_twice_in_one_change_is_cleared_once():
    change = ContextChange(kind="clear_tool_results", cleared=("a", "a"))
    state = State(history=[imported(GO, *TURN), ContextChangeEntry(1, 0, AT, change)])

    assert "of a" not in repr(list(state.messages))
    assert_replays(state)


def test_a_clear_that_names_unknown_results_is_refused_by_the_first_of_them():
    change = ContextChange(kind="clear_tool_results", cleared=("z", "y", "a"))

    with pytest.raises(IllegalEntryError, match=r"^entry 1: no result of call 'y' to clear$"):
        State(history=[imported(GO, *TURN), ContextChangeEntry(1, 0, AT, change)])
