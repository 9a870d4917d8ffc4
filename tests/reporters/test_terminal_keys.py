"""Terminal and a person at a terminal, in one process: keys, questions, lines."""

from __future__ import annotations

import os
import select
import signal
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
import trio
import trio.testing

from alpineagents import Question, State, Terminal

from ..run.test_cancellation import interrupted_at_each_moment
from .pty_screen import PATIENCE


class Seat:
    """A terminal of 40 by 8, and who sits there."""

    def __init__(self) -> None:
        self._ours, theirs = os.openpty()
        termios.tcsetwinsize(self._ours, (8, 40))
        self.keyboard = os.fdopen(theirs)
        self.output = open(os.dup(theirs), "w", encoding="utf-8")  # noqa: SIM115
        self.before = termios.tcgetattr(theirs)
        self.terminal = Terminal(file=self.output, keyboard=self.keyboard)
        self._screen = pyte.Screen(40, 8)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        while select.select([self._ours], [], [], 0)[0]:
            self._stream.feed(os.read(self._ours, 65_536))
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().splitlines()

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._ours)

    def types(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def shows(self, *lines: str) -> None:
        """Wait until the screen has these lines."""
        with trio.move_on_after(PATIENCE):
            while self.lines != list(lines):
                await trio.lowlevel.wait_readable(self._ours)
        assert self.lines == list(lines)

    def resize(self, columns: int, lines: int) -> None:
        termios.tcsetwinsize(self._ours, (lines, columns))
        self._screen.resize(lines, columns)

    def close(self) -> None:
        self.keyboard.close()
        self.output.close()
        os.close(self._ours)


@pytest.fixture
def seat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seat]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    made = Seat()
    yield made
    made.close()


def question(text: str, number: int = 1) -> Question:
    return Question(text, id=str(number), state=State())


async def test_a_half_typed_line_waits_while_a_question_is_asked(seat: Seat):
    taken: list[str] = []
    answers: list[object] = []

    async def take() -> None:
        async with seat.terminal.lines() as lines:
            async for line in lines:
                taken.append(line)

    async def ask(number: int) -> None:
        answers.append(await seat.terminal.ask(question(f"Sure {number}?", number), bool))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        seat.types("half")
        await seat.shows("> half")
        for number in (1, 2):
            nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
        await seat.shows("? Sure 1?", "Answer yes or no. (1 more)", ">")
        seat.types("y\r")
        await seat.shows("? Sure 1?", "> y", "? Sure 2?", "Answer yes or no.", ">")
        seat.types("n\r")
        await seat.shows("? Sure 1?", "> y", "? Sure 2?", "> n", "> half")
        seat.types(" done\r\x04")

    assert (answers, taken) == ([True, False], ["half done"])
    await seat.shows("? Sure 1?", "> y", "? Sure 2?", "> n", "> half done")
    assert seat.settings == seat.before


def test_ctrl_c_at_any_moment_of_lines_leaves_the_terminal_as_it_was(seat: Seat):
    async def main() -> None:
        async with seat.terminal.lines():
            pass

    def check(where: str) -> None:
        assert seat.settings == seat.before, where

    assert interrupted_at_each_moment(main, check) > 100


async def test_a_question_that_has_no_room_is_shown_above_the_frame(seat: Seat):
    text = "\n".join(f"line {number}" for number in range(9))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question(text), str)
        await trio.testing.wait_all_tasks_blocked()
        await seat.shows("line 8", *[f"line {number}" for number in range(3, 9)], ">")
        seat.types("yes\r")

    await seat.shows("line 8", "> yes")


async def test_a_question_follows_the_size_of_the_screen(seat: Seat):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question("Is it all right to go on now?"), bool)
        await trio.testing.wait_all_tasks_blocked()
        await seat.shows("? Is it all right to go on now?", "Answer yes or no.", ">")
        seat.resize(20, 8)
        seat.types("y\r")

    await seat.shows("? Is it all right to", "go on now?", "> y")


async def test_what_is_printed_goes_above_the_line_that_is_typed(seat: Seat):
    async with seat.terminal.lines():
        seat.terminal.print("one\ntwo")
        await seat.shows("one", "two", ">")

    await seat.shows("one", "two")
    assert seat.settings == seat.before


async def test_the_screen_is_drawn_anew_when_that_is_asked_for(seat: Seat):
    async with trio.open_nursery() as nursery, seat.terminal.lines() as lines:
        seat.terminal.print("one")
        nursery.start_soon(anext, lines)
        await trio.testing.wait_all_tasks_blocked()
        seat.types("half\x0c")
        await seat.shows("> half")
        signal.raise_signal(signal.SIGCONT)
        await seat.shows("> half")
        seat.types("\r")


async def test_what_others_wrote_while_it_was_stopped_is_not_drawn_over(seat: Seat):
    """Also where something is to be shown before anything else happens after ``fg``."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question("Sure?"), bool)
        await seat.shows("? Sure?", "Answer yes or no.", ">")
        seat.output.write("\n$ fg\n")
        seat.output.flush()
        signal.raise_signal(signal.SIGCONT)
        seat.terminal.print("one")
        await seat.shows("? Sure?", "Answer yes or no.", ">", "$ fg", "one", "? Sure?", "Answer yes or no.", ">")
        seat.types("y\r")


async def test_a_screen_that_is_gone_is_not_drawn(seat: Seat, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", seat.output)
    terminal = Terminal(keyboard=seat.keyboard)
    async with terminal.lines() as lines:
        monkeypatch.setattr("sys.stdout", None)
        seat.types("\x0cone\r")
        assert await anext(lines) == "one"

    monkeypatch.undo()
    assert seat.settings == seat.before


async def test_what_is_no_answer_is_asked_again(seat: Seat):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question("How many?"), int)
        await seat.shows("? How many?", "Type an integer.", ">")
        seat.types("a\r")
        await seat.shows("? How many?", "Not an answer: expected integer, got", 'string "a".', ">")
        seat.types("2\r")


async def test_up_brings_back_the_line_before(seat: Seat):
    async with seat.terminal.lines() as lines:
        seat.types("one\r\x1b[A!\r")

        assert [await anext(lines), await anext(lines)] == ["one", "one!"]


@pytest.mark.parametrize("live", [True, False])
async def test_what_was_typed_before_a_question_was_seen_does_not_answer_it(seat: Seat, live: bool):
    """Neither what was typed when nobody was asked, nor what came with the answer to the question before."""
    terminal = Terminal(file=seat.output, keyboard=seat.keyboard, live=live)
    answers: list[object] = []

    async def ask(number: int) -> None:
        answers.append(await terminal.ask(question(f"Sure {number}?", number), bool))

    seat.types("y\ry")
    await seat.shows("y", "y")  # by the terminal: it is in its queue
    async with trio.open_nursery() as nursery:
        for number in (1, 2):
            nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        seat.types("n\ry\ry\r")
        while "Sure 2" not in "\n".join(seat.lines):
            await trio.lowlevel.wait_readable(seat._ours)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [False]
        seat.types("n\r")

    assert answers == [False, False]


async def test_what_was_typed_before_a_question_is_a_line_where_those_are_taken(seat: Seat):
    """Whether it was read before the question came, or not: that is another at random."""
    for number in range(8):
        async with seat.terminal.lines() as lines, trio.open_nursery() as nursery:
            seat.types("one\ryes\rhalf")
            select.select([seat.keyboard], [], [])
            nursery.start_soon(seat.terminal.ask, question("Sure?", number), bool)
            assert [await anext(lines), await anext(lines)] == ["one", "yes"]
            while seat.lines[-3:] != ["? Sure?", "Answer yes or no.", ">"]:
                await trio.lowlevel.wait_readable(seat._ours)
            seat.types("n\r")
            while seat.lines[-1] != "> half":
                await trio.lowlevel.wait_readable(seat._ours)


async def test_a_paste_that_a_question_comes_in_the_middle_of_does_not_answer_it(seat: Seat):
    async with seat.terminal.lines(), trio.open_nursery() as nursery:
        seat.types("\x1b[200~one\r")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(seat.terminal.ask, question("Sure?"), bool)
        await seat.shows("? Sure?", "Answer yes or no.", ">")
        seat.types("y\ry\r\x1b[201~")
        await seat.shows("? Sure?", "Answer yes or no.", "> one↵y↵y↵")
        seat.types("\x15n\r")


async def test_a_question_that_is_taken_back_says_so(seat: Seat):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question("Sure?"), bool)
        await trio.testing.wait_all_tasks_blocked()
        seat.types("ye")
        await seat.shows("? Sure?", "Answer yes or no.", "> ye")
        nursery.cancel_scope.cancel()

    await seat.shows("? Sure?", "(no answer)")
    assert seat.settings == seat.before


async def test_an_answered_question_is_shown_when_the_text_that_streams_is_over(seat: Seat):
    state = State()
    seat.terminal.on_run_start(state, None)
    seat.terminal.on_text(state, "One ")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question("Sure?"), bool)
        await seat.shows("One", "? Sure?", "Answer yes or no.", ">")
        seat.types("y\r")

    seat.terminal.on_text(state, "two.")
    await seat.shows("One two.")
    seat.terminal.on_run_end(state, None)
    await seat.shows("One two.", "? Sure?", "> y", "- done: 0 turns")


async def test_a_question_that_has_not_been_asked_is_taken_back_in_silence(seat: Seat):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(seat.terminal.ask, question("Sure?"), bool)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0):
            await seat.terminal.ask(question("And?", 2), bool)
        await seat.shows("? Sure?", "Answer yes or no.", ">")
        seat.types("y\r")


async def test_a_terminal_without_a_frame_reads_lines_that_it_edits_itself(seat: Seat):
    terminal = Terminal(file=seat.output, keyboard=seat.keyboard, live=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(terminal.ask, question("Sure?"), bool)
        await trio.testing.wait_all_tasks_blocked()
        assert seat.settings == seat.before
        seat.types("y\r")

    assert seat.lines == ["? Sure?", "Answer yes or no.", "y"]  # by the terminal


async def test_another_keyboard_is_another_editor(seat: Seat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "typed").write_text("one\ntwo\n")
    terminal = Terminal(file=seat.output)
    with (tmp_path / "typed").open() as typed:
        monkeypatch.setattr("sys.stdin", typed)
        async with terminal.lines() as lines:
            assert await anext(lines) == "one"
    monkeypatch.setattr("sys.stdin", None)
    async with terminal.lines() as lines:
        assert [line async for line in lines] == []
