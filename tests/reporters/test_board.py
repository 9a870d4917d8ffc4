"""The Board: whatever it is told, in whatever order, it shows each thing once, and keeps no row of what is over."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import Reply, TextBlock, ToolCall, ToolOutcome, Usage
from alpineagents.reporters._terminal._board import Board
from alpineagents.reporters._terminal._layout import cells, fitted, permanent, wrapped
from alpineagents.reporters._terminal._shown import (
    Ended,
    EndOfText,
    Label,
    Note,
    Piece,
    Printed,
    Row,
    Said,
    Shown,
    printable,
)

KEYS = ["a", "b", "c"]
CALLS = [ToolCall("call_1", "read", {"path": "a.txt"}), ToolCall("call_2", "b", {"prompt": "go"})]
TEXTS = st.text("ab \n🐛漢", max_size=6)
Told = tuple[str, tuple[Any, ...], dict[str, Any]]


def told(name: str, *args: st.SearchStrategy[Any], **options: st.SearchStrategy[Any]) -> st.SearchStrategy[Told]:
    return st.tuples(st.just(name), st.tuples(*args), st.fixed_dictionaries(options))


def reply(text: str) -> Reply:
    return Reply((TextBlock(text),) if text else (), "fake/fake", "stop", usage=Usage(input_tokens=5, output_tokens=5))


key, call = st.sampled_from(KEYS), st.sampled_from(CALLS)
anything = st.one_of(
    told(
        "start", key, st.sampled_from(["", "a", "b"]), st.sampled_from([None, *KEYS]), st.sampled_from([None, "call_2"])
    ),
    told("think", key),
    told("say", key, TEXTS, is_thinking=st.booleans()),
    told("event", key, st.just("retry"), TEXTS, is_restart=st.booleans()),
    told("reply", key, st.builds(reply, TEXTS)),
    told("start_call", key, call, st.just(0.0)),
    told("progress", key, call, st.floats(), st.none() | st.floats(), st.none() | TEXTS),
    told("end_call", key, call, TEXTS, st.sampled_from(ToolOutcome), st.just(0.0)),
    told("note", key, TEXTS),
    told("print", st.builds(Printed, TEXTS, st.booleans(), st.booleans())),
    told("end", key, TEXTS, is_error=st.booleans()),
)


def after(board: Board, *all_told: Told) -> list[Shown]:
    for name, args, options in all_told:
        getattr(board, name)(*args, **options)
    return board.take()


def all_over(all_told: list[Told]) -> list[Told]:
    """What ends everything that was told of: each run as often as it began, and each call."""
    ends: list[Told] = [("end", (args[0], ""), {"is_error": False}) for name, args, _ in all_told if name == "start"]
    return [*ends, *[("end_call", (k, c, "", ToolOutcome.DONE, 0.0), {}) for k in KEYS for c in CALLS]]


@given(st.lists(anything, max_size=30), st.booleans())
def test_nothing_is_left_of_what_is_over(all_told: list[Told], streams: bool):
    board = Board(streams=streams, thinking=True)

    after(board, *all_told, *all_over(all_told))

    assert board.rows() == []


@given(st.lists(anything, max_size=30), st.booleans())
def test_each_thing_that_is_worth_a_line_is_shown_once(all_told: list[Told], streams: bool):
    board = Board(streams=streams)
    names = [name for name, _, _ in all_told]

    shown = after(board, *all_told, *[("end", (k, ""), {"is_error": False}) for k in KEYS])

    assert sum(isinstance(each, Ended) for each in shown) == names.count("end_call")
    printed = [args[0].text for name, args, _ in all_told if name == "print"]
    assert sorted(each.text for each in shown if isinstance(each, Printed)) == sorted(printed)
    assert sum(isinstance(each, Note) for each in shown) >= names.count("event") + names.count("note")


@given(st.lists(anything, max_size=30))
def test_no_text_has_anything_in_the_middle_of_a_line(all_told: list[Told]):
    shown = after(Board(streams=True, thinking=True), *all_told)

    for each, following in pairwise(shown):
        assert not isinstance(each, Piece) or isinstance(following, Piece | EndOfText)


@given(st.lists(anything, max_size=30))
def test_where_nothing_streams_nothing_waits(all_told: list[Told]):
    board = Board(streams=False)

    for each in all_told:
        shown = after(board, each)
        assert not any(isinstance(one, Piece | EndOfText) for one in shown)
        assert each[0] not in ("end_call", "event", "note", "print") or shown


@given(st.lists(anything, max_size=30), st.integers(1, 60), st.integers(0, 6))
def test_the_frame_fits_whatever_the_size(all_told: list[Told], width: int, height: int):
    board = Board(streams=True)
    after(board, *all_told)

    lines = fitted(board.rows(), width, height)

    assert len(lines) <= height
    assert all(cells(line.plain) <= width for line in lines)


@given(st.text("ab 🐛漢\u0301", max_size=40), st.text("ab 🐛漢", max_size=20), st.integers(2, 12))
def test_rows_of_a_line_stay_when_it_goes_on(line: str, more: str, width: int):
    rows, longer = wrapped(line, width), wrapped(line + more, width)

    assert longer[: len(rows) - 1] == rows[:-1]
    assert all(cells(row.rstrip(" ")) <= width for row in longer)
    assert "".join(longer).replace(" ", "") == (line + more).replace(" ", "")


def rows_word_by_word(line: str, width: int) -> list[str]:
    """Wrap as people do: the next word goes on the row if it fits, else on a new one; a word of no row is cut."""
    rows, row = [], ""
    for word in re.findall("[^ ]+ *| +", line):
        if row.strip(" ") and cells(row + word.rstrip(" ")) > width:
            rows.append(row)
            row = ""
        row += word
        while cells(row.rstrip(" ")) > width:
            rows.append(row[:width])
            row = row[width:]
    return [each.rstrip(" ") for each in [*rows, row]]


@given(st.text("ab  ", max_size=60).map(str.lstrip), st.integers(1, 12))
def test_a_line_is_wrapped_word_by_word(line: str, width: int):
    assert [row.rstrip(" ") for row in wrapped(line, width)] == rows_word_by_word(line, width)


def test_a_line_that_ends_in_many_blanks_does_not_keep_them():
    """A model that streams nothing but blanks would make each piece cost more than the one before."""
    assert wrapped("ab" + " " * 10_000, 8) == ["ab" + " " * 7]


@given(st.lists(st.text("ab 🐛漢\u0301", max_size=9), max_size=12), st.integers(2, 12))
def test_a_line_that_comes_in_pieces_is_wrapped_as_if_it_had_come_whole(pieces: list[str], width: int):
    rows, tail = [], ""
    for piece in pieces:
        *full, tail = wrapped(tail + piece, width)
        rows += full

    assert [row.rstrip(" ") for row in [*rows, tail]] == [row.rstrip(" ") for row in wrapped("".join(pieces), width)]


@given(st.text())
def test_nothing_printable_is_obeyed_by_a_terminal(text: str):
    shown = printable(text)

    assert all(char == "\n" or char.isprintable() or not char.isascii() for char in shown)
    assert not set(shown) & set("\x1b\x9b\x00\r\u202e\u2066\u061c")
    assert shown.encode().decode() == shown


def ended(args: dict[str, Any] | None, **changes: Any) -> Ended:
    return attrs.evolve(Ended(ToolCall("call_1", "read", args), ToolOutcome.DONE, "12 B", 0.1), **changes)


@pytest.mark.parametrize(
    ("what", "width", "line"),
    [
        (ended({"path": "a.txt", "lines": [1, 2]}), 41, '* read(path="a.txt", lines=[1,2]) -> 12 B'),
        (ended({"path": "a" * 99}), 40, '* read(path="aaaaaaaaaaaaaaaaa…) -> 12 B'),
        (ended({}, seconds=75.2), 40, "* read() -> 12 B (1 min 15 s)"),
        (ended({}, seconds=2.25), 40, "* read() -> 12 B (2.2 s)"),
        (ended({}, outcome=ToolOutcome.DENIED, result="(no)"), 40, "! read() denied -> (no)"),
        (ended({}, outcome=ToolOutcome.INPUT_ERROR, result="what"), 40, "! read() input error -> what"),
        (
            ended({}, outcome=ToolOutcome.ERROR, result="(it is gone)", name="b", depth=1),
            40,
            "  ! b: read() -> (it is gone)",
        ),
        (ended({}, result="漢" * 40), 20, "* read() -> 漢漢漢…"),
        (ended({"text": "a\n\x1b[2J\u202e"}), 60, '* read(text="a\\n\\u001b[2J\\u202e") -> 12 B'),
        (ended({"x": 1}), 8, "* re… -…"),
    ],
)
def test_a_call_is_one_line(what: Ended, width: int, line: str):
    (shown,) = permanent(what, width, width)

    assert shown.plain == line
    assert cells(shown.plain) <= width


def test_arguments_that_are_no_json_are_shown_as_they_are():
    row = Row(0, ToolCall("call_1", "read", None, '{"path": '), "read")

    assert fitted([row], 40, 1)[0].plain == 'read({"path":)'


def test_of_many_arguments_the_first_are_looked_at():
    row = Row(0, ToolCall("call_1", "read", {f"key{number}": "x" * 1_000 for number in range(10)}), "read")

    assert fitted([row], 30, 1)[0].plain == 'read(key0="xxxxxxxxxxxxxxxx…)'


def test_a_call_shows_how_far_it_is():
    known, unknown = [Row(0, CALLS[0], "read", "lines", 3.0, total) for total in (10.0, None)]

    assert fitted([known], 60, 1)[0].plain == 'read(path="a.txt") ━━━─────── 3/10 lines'
    assert fitted([unknown], 60, 1)[0].plain == 'read(path="a.txt") 3 lines'


def test_rows_that_have_no_room_are_counted():
    rows = [Row(0, CALLS[0], "read")] * 5

    assert [line.plain for line in fitted(rows, 60, 3)] == ['read(path="a.txt")', 'read(path="a.txt")', "and 3 more"]


def test_while_one_streams_others_wait_until_its_reply_is_over():
    board = Board(streams=True)
    board.start("a", "writer")
    board.start("b", "critic")
    board.say("a", "One ")
    board.say("b", "Two")
    board.reply("b", reply("Two"))
    board.end("b", "done", is_error=False)
    board.say("a", "more")

    assert board.take() == [Label("writer"), Piece("One "), Piece("more")]

    board.reply("a", reply("One more"))

    assert board.take() == [EndOfText(), Label("critic"), Said("Two"), Note("done", name="critic")]


def test_a_reply_whose_beginning_was_not_shown_is_shown_whole():
    board = Board(streams=True)
    board.start("a", "writer")
    board.start("b", "critic")
    board.say("a", "One")
    board.say("b", "Tw")
    board.reply("a", reply("One"))
    board.take()
    board.say("b", "o")

    assert board.take() == []

    board.reply("b", reply("Two"))

    assert board.take() == [Label("critic"), Said("Two")]


def test_what_is_printed_does_not_wait():
    board = Board(streams=True)
    board.start("a", "")
    board.say("a", "On")
    board.print(Printed("now"))

    assert board.take() == [Piece("On"), EndOfText(), Printed("now")]


def test_a_line_that_is_typed_waits_below_the_text_that_streams():
    board = Board(streams=True)
    board.start("a", "")
    board.say("a", "On")
    board.print(typed := Printed("count\nto me", is_typed=True, can_wait=True))
    board.say("a", "e.")

    assert board.take() == [Piece("On"), Piece("e.")]
    assert board.rows() == [Row(0, None, "", "queued: count to me")]
    board.reply("a", reply("One."))
    assert board.take() == [EndOfText(), typed]
    assert board.rows() == []


def test_a_restart_says_that_the_text_is_void():
    board = Board(streams=True)
    board.start("a", "")
    board.say("a", "On")
    board.event("a", "retry", "in 2 s", is_restart=True)
    board.say("a", "One")

    assert board.take() == [Piece("On"), EndOfText(), Note("retry: in 2 s (the text above is void)"), Piece("One")]
    assert board.rows() == []


def test_a_restart_of_what_was_not_shown_says_no_such_thing():
    board = Board(streams=False)
    board.start("a", "")
    board.say("a", "On")
    board.event("a", "retry", "in 2 s", is_restart=True)

    assert board.take() == [Note("retry: in 2 s")]
    assert board.rows() == [Row(0, None, "", "retry: in 2 s")]


def test_reasoning_is_shown_where_it_is_wanted():
    def shown(board: Board) -> list[Shown]:
        board.start("a", "")
        board.say("a", "Hm.", is_thinking=True)
        board.say("a", "Yes.")
        board.reply("a", reply("Yes."))
        return board.take()

    assert shown(Board(streams=False)) == [Said("Yes.")]
    assert shown(Board(streams=False, thinking=True)) == [Said("Hm.", is_thinking=True), Said("Yes.")]
    assert shown(Board(streams=True)) == [Piece("Yes."), EndOfText()]
    assert shown(Board(streams=True, thinking=True)) == [Piece("Hm.", is_thinking=True), Piece("Yes."), EndOfText()]


def with_subagents(board: Board) -> None:
    board.start("a", "boss")
    for number in (1, 2):
        board.start_call("a", ToolCall(f"call_{number}", "part", {"prompt": f"{number}"}), 0.0)
        board.start(f"part-{number}", "part", "a", f"call_{number}")


def test_a_subagent_shares_the_row_of_its_call():
    board = Board(streams=True)
    with_subagents(board)
    board.reply("part-1", reply(""))
    board.start_call("part-1", CALLS[0], 0.0)
    board.think("part-2")

    assert [line.plain for line in fitted(board.rows(), 80, 9)] == [
        'part(prompt="1") 10 tokens',
        '  read(path="a.txt")',
        'part(prompt="2") waiting for the model',
    ]


def test_an_agent_that_a_tool_runs_has_a_row_below_it():
    board = Board(streams=True)
    board.start("a", "boss")
    board.start_call("a", CALLS[0], 0.0)
    board.start("part-1", "part", "a", "call_1")
    board.think("part-1")
    board.start("part-2", "", "a", "call_1")

    assert [line.plain for line in fitted(board.rows(), 80, 9)] == [
        'read(path="a.txt")',
        "  part: waiting for the model",
        "  agent part-2: working",
    ]


def test_a_subagent_whose_call_is_not_known_has_a_row_of_its_own():
    board = Board(streams=True)
    board.start("a", "boss")
    board.start("part-1", "part", "a")

    assert board.rows() == [Row(0, None, "part")]


def test_of_a_subagent_its_calls_are_shown_and_not_its_text():
    board = Board(streams=True)
    with_subagents(board)
    board.say("part-1", "I am on it.")
    board.reply("part-1", reply("I am on it."))
    board.end_call("part-1", CALLS[0], "12 B", ToolOutcome.DONE, 0.0)
    board.end("part-1", "done", is_error=False)

    assert board.take() == [Ended(CALLS[0], ToolOutcome.DONE, "12 B", None, "part", 1)]


def test_what_a_subagent_leaves_behind_its_parent_stands_by_itself():
    board = Board(streams=True)
    with_subagents(board)
    board.think("part-1")
    board.end("a", "done", is_error=False)

    assert board.rows() == [Row(0, None, "", "waiting for the model")]


def names(board: Board, say: Callable[[str], None]) -> list[str]:
    for one in ("a", "b", "a"):
        say(one)
    return [each.name for each in board.take() if isinstance(each, Label)]


def test_names_are_shown_where_several_agents_run_at_once():
    board = Board(streams=False)
    for one in ("a", "b"):
        board.start(one, f"agent {one}")

    assert names(board, lambda one: board.reply(one, reply("Yes."))) == ["agent a", "agent b", "agent a"]


def test_names_are_shown_where_another_agent_runs_than_before():
    board = Board(streams=False)

    def run(one: str) -> None:
        board.start(one, f"agent {one}")
        board.reply(one, reply("Yes."))
        board.end(one, "done", is_error=False)

    assert names(board, run) == ["agent b", "agent a"]


def test_a_state_outside_of_a_run_holds_up_nobody():
    """``await agent.think(state)`` that fails: nobody tells of its end."""
    board = Board(streams=True)
    board.think("a")
    board.say("a", "On")
    board.start("b", "critic")
    board.reply("b", reply("Two"))

    assert board.take() == [Piece("On"), EndOfText(), Label("critic"), Said("Two")]
