"""A State as text: print, repr, and the table in a notebook."""

from __future__ import annotations

import contextlib
import html
import re
from datetime import UTC, datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    AgentInfo,
    ExtraDataEntry,
    Image,
    Message,
    MessageEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    RunStartEntry,
    State,
    StopEntry,
    StoppedByUntil,
    TextBlock,
    ToolCall,
    ToolOutcome,
    ToolResultEntry,
    freeze,
)

from ..record.strategies import ENTRIES, json_values, texts

AT = datetime(2026, 1, 2, tzinfo=UTC)
PNG = Image(b"\x89PNG\r\n\x1a\n")
CALL = ToolCall("c1", "read_file", {"path": "a.txt"})
TURN = [
    MessageEntry(0, 0, AT, Message.user("Read\n  a.txt")),
    RunStartEntry(1, 0, AT, AgentInfo(name="reader", model="fake/m")),
    ModelRequestEntry(2, 1, AT, "fake/m"),
    ModelReplyEntry(3, 1, AT, Reply((TextBlock("I read."), CALL))),
]
RESULT = ToolResultEntry(4, 1, AT, (TextBlock("12345678"),), CALL)


def test_print_shows_one_line_per_entry_and_a_last_one_with_how_it_stands():
    state = State(history=[*TURN, RESULT])

    assert str(state).splitlines() == [
        "[turn 0] user Read a.txt",
        "[turn 0] run_start reader with fake/m",
        "[turn 1] model_request fake/m",
        "[turn 1] model_reply I read. read_file(path='a.txt')",
        "[turn 1] tool_result read_file: 8 B",
        "between turns",
    ]


@pytest.mark.parametrize(
    ("history", "standing"),
    [
        ([], "empty"),
        (TURN[:1], "between turns"),
        (TURN[:3], "waiting for the model"),
        (TURN, "1 pending call"),
        ([*TURN, RESULT, StopEntry(5, 1, AT, StoppedByUntil("waiting_for_user"))], "stopped: until waiting_for_user"),
    ],
)
def test_the_last_line_says_how_it_stands(history, standing):
    assert str(State(history=history)).splitlines()[-1].startswith(standing)


def test_the_last_line_of_a_finished_state_shows_its_answer():
    state = State()
    state.finish({"a": 1})
    assert str(state).splitlines()[-1] == "finished: finish({'a': 1})"


@pytest.mark.parametrize(
    ("blocks", "size"),
    [
        ((), "0 B"),
        ((TextBlock(""),), "0 B"),
        ((TextBlock("ä"),), "2 B"),
        ((TextBlock("x" * 999),), "999 B"),
        ((TextBlock("x" * 12_345),), "12.3 KB"),
        ((TextBlock("x" * 1_200_000),), "1.2 MB"),
        ((TextBlock("x" * 8), PNG), "8 B and 1 attachment"),
        ((PNG, PNG), "2 attachments"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_is_shown_by_its_size(blocks, size):
    state = State(history=[*TURN, attrs.evolve(RESULT, content=blocks)])
    assert str(state).splitlines()[4] == f"[turn 1] tool_result read_file: {size}"


def test_a_result_that_is_no_success_or_came_late_says_so():
    failed = attrs.evolve(RESULT, outcome=ToolOutcome.DENIED)
    late = attrs.evolve(RESULT, seq=5, late=True)

    lines = str(State(history=[*TURN, failed, late])).splitlines()

    assert lines[4] == "[turn 1] tool_result read_file (denied): 8 B"
    assert lines[5] == "[turn 1] tool_result read_file: 8 B late"


def test_repr_is_one_short_line():
    state = State(id="bug-1", messages=[Message.user("x" * 10_000)])
    state.finish("y" * 10_000)

    assert "bug-1" in repr(state)
    assert len(repr(state)) < 300
    assert len(repr(state).splitlines()) == 1
    assert len(repr(state.snapshot())) < 300


@given(st.one_of(*[ENTRIES[cls] for cls in (MessageEntry, RunStartEntry, ExtraDataEntry, StopEntry)]))
def test_whatever_an_entry_holds_it_is_one_line(entry):
    """Names come from the model and from users, with any character in them."""
    state = State(history=[attrs.evolve(entry, seq=0, turn=0)])

    assert len(str(state).splitlines()) == 2
    assert len(str(state)) < 2_000
    assert len(repr(state).splitlines()) == 1


@given(texts, texts, json_values)
def test_whatever_a_model_says_it_is_one_line_an_entry_and_can_be_printed(name, text, value):
    call = ToolCall("c1", name, {text: value})
    reply = ModelReplyEntry(3, 1, AT, Reply((TextBlock(text), call)))
    state = State(history=[*TURN[:3], reply, attrs.evolve(RESULT, call=call, content=(TextBlock(text),))])

    assert len(str(state).splitlines()) == 6
    str(state).encode()  # what print does


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x00", "\x7f", "\x9b", "\u202e", "\u2066", "\u061c"])
def test_what_a_terminal_would_act_on_is_shown_as_a_question_mark(character):
    state = State(messages=[Message.user("x")])
    state.add_message(Message.user(f"red{character}[31m"))

    assert "red?[31m" in str(state)
    assert character not in str(state) + repr(state)


@pytest.mark.parametrize("value", [10**5_000, [[10**5_000]]], ids=["an int", "inside"])
def test_whatever_was_recorded_can_be_shown_also_a_very_long_integer(value):
    """Python refuses to turn more than 4,300 digits into text."""
    state = State()
    with contextlib.suppress(ValueError):  # it may be refused when it is frozen
        state.finish(value)

    for shown in (str(state), repr(state), state._repr_html_()):
        assert ("finish" in shown) == state.finished


EVIL = "<script>alert('x')</script>&\"</table></details>"


def test_the_table_in_a_notebook_escapes_everything():
    call = ToolCall("c1", EVIL, {EVIL: EVIL})
    state = State(
        history=[
            MessageEntry(0, 0, AT, Message.user(EVIL)),
            RunStartEntry(1, 0, AT, AgentInfo(name=EVIL, model=EVIL)),
            ModelRequestEntry(2, 1, AT, EVIL),
            ModelReplyEntry(3, 1, AT, Reply((TextBlock(EVIL), call))),
            attrs.evolve(RESULT, call=call, content=(TextBlock(EVIL),)),
            ExtraDataEntry(5, 1, AT, freeze({EVIL: EVIL}), (EVIL,)),
            StopEntry(6, 1, AT, StoppedByUntil(EVIL)),
        ]
    )

    table = state._repr_html_()

    assert "<script" not in table
    assert table.count("</table>") == table.count("</details>") == table.count("<details>") == 1
    assert EVIL in html.unescape(table)


def test_the_table_in_a_notebook_has_a_row_per_entry_and_collapses():
    state = State(id="bug-1", history=[*TURN, RESULT])

    table = state._repr_html_()

    assert table.count("<tr>") == 1 + 5
    assert re.search(r"<details.*<summary.*bug-1.*between turns.*</summary>.*<table", table, re.DOTALL)
