"""Terminal on a terminal: whole screens, as a person sees them.

The programs go on when a test says so, by a byte in a pipe of the step's name; their clock stands still. So each screen
is the only one that there can be at that point.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from .pty_screen import Screen, on_screen, python

pytestmark = pytest.mark.slow  # Each starts a program.

PRELUDE: Final = """
import os, trio, trio.testing
from alpineagents import *
from alpineagents.testing import FakeModel, tool_call

terminal = Terminal()
clock = trio.testing.MockClock()
steps = {name: os.open(os.path.join(os.environ["STEPS"], name), os.O_RDWR) for name in "abcd"}

async def step(name):
    await trio.lowlevel.wait_readable(steps[name])
    os.read(steps[name], 1)

class Step(str):
    pass

class Says(Model):
    name = "fake/says"

    def __init__(self, *replies):
        self.replies = list(replies)

    async def respond(self, request, emit):
        blocks = []
        for part in self.replies.pop(0):
            match part:
                case Step():
                    await step(part)
                case str():
                    emit(TextDelta(part))
                    blocks.append(TextBlock(part))
                case ModelEvent():
                    emit(part)
                case Exception():
                    raise part
                case _:
                    blocks.append(part)
        await trio.lowlevel.checkpoint()
        return Reply(tuple(blocks), self.name, "stop", usage=Usage(input_tokens=1_000, output_tokens=234))

@tool(read_only=True)
async def read(path: str) -> str:
    "Read."
    if path in steps:
        await step(path)
    return f"This is {path}."

def run(agent, *prompts):
    async def main():
        for prompt in prompts or ["Go on"]:
            await agent.run(prompt)
    trio.run(main, clock=clock)
"""


class Steps:
    """Lets a program go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pipes: dict[str, int] = {}
        for name in "abcd":
            os.mkfifo(folder / name)
            self._pipes[name] = os.open(folder / name, os.O_RDWR)  # Open at both ends: nothing is lost.

    def go(self, name: str) -> None:
        os.write(self._pipes[name], b"\n")

    def close(self) -> None:
        for pipe in self._pipes.values():
            os.close(pipe)


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    made = Steps(tmp_path)
    yield made
    made.close()


@contextmanager
def shown(steps: Steps, program: str, *, columns: int = 80, lines: int = 24, **env: str) -> Iterator[Screen]:
    env["STEPS"] = str(steps.folder)
    with on_screen([*python("")[:-1], PRELUDE + program], columns=columns, lines=lines, env=env) as screen:
        yield screen


def check(screen: Screen, *lines: str) -> None:
    """Wait until the whole screen, with what has scrolled off, is these lines."""
    screen.wait_until(lambda: screen.all_lines == list(lines), f"shows only {lines}")


TOOLS = """
call_a, call_b = tool_call("read", path="a"), tool_call("read", path="b")
text = ["I will ", Step("d"), "look at both files, and then tell you", " which of them is the one. ", Step("d"), "So:"]
run(Agent(model=Says([*text, call_a, call_b], ["It is **a**.\\n\\nDone."]), tools=[read], reporter=terminal))
"""


def test_text_streams_and_tools_have_a_row_while_they_run(steps: Steps):
    with shown(steps, TOOLS) as screen:
        check(screen, "I will")
        steps.go("d")
        check(screen, "I will look at both files, and then tell you which of them is the one.")
        steps.go("d")
        said = "I will look at both files, and then tell you which of them is the one. So:"
        check(screen, said, 'read(path="a")', 'read(path="b")')
        steps.go("b")
        check(screen, said, '* read(path="b") -> This is b.', 'read(path="a")')
        steps.go("a")
        calls = ('* read(path="b") -> This is b.', '* read(path="a") -> This is a.')
        check(screen, said, *calls, "It is **a**.", "", "Done.", "- done: 2 turns, 2,468 tokens")
        assert screen.exit_code() == 0
        assert screen.cursor == (7, 0)


def test_a_narrow_terminal_has_shorter_lines(steps: Steps):
    with shown(steps, TOOLS, columns=40) as screen:
        steps.go("d")
        check(screen, "I will look at both files, and then tell", "you which of them is the one.")
        steps.go("d")
        said = ["I will look at both files, and then tell", "you which of them is the one. So:"]
        check(screen, *said, 'read(path="a")', 'read(path="b")')
        steps.go("a")
        check(screen, *said, '* read(path="a") -> This is a.', 'read(path="b")')


PROGRESS = """
@tool
async def copy(files: list[str], progress: Progress) -> str:
    "Copy."
    progress(0, 8, "a.txt")
    await step("a")
    clock.jump(1)
    progress(6, 8, "g.txt")
    await step("a")
    clock.jump(1)
    progress(7)
    await step("a")
    return "copied"

names = [f"{name}.txt" for name in "abcdefgh"]
run(Agent(model=Says([tool_call("copy", files=names)], ["Done."]), tools=[copy], reporter=terminal))
"""


def test_progress_is_a_bar(steps: Steps):
    call = 'copy(files=["a.txt","b.txt","c.txt","d.txt","e.txt","f.tx…)'
    with shown(steps, PROGRESS) as screen:
        check(screen, f"{call} ────────── 0/8 a.txt")
        steps.go("a")
        check(screen, f"{call} ━━━━━━━━── 6/8 g.txt")
        steps.go("a")
        check(screen, 'copy(files=["a.txt","b.txt","c.txt","d.txt","e.txt","f.txt","g.txt","h.txt"]) 7')
        steps.go("a")
        result = '* copy(files=["a.txt","b.txt","c.txt","d.txt","e.txt","f.txt…) -> copied (2.0 s)'
        check(screen, result, "Done.", "- done: 2 turns, 2,468 tokens, 2.0 s")


def test_progress_fits_a_narrow_terminal(steps: Steps):
    with shown(steps, PROGRESS, columns=40) as screen:
        check(screen, 'copy(files=["a.tx…) ────────── 0/8 a.txt')


SUBAGENTS = """
def part(name):
    call = tool_call("read", path=name)
    model = Says(["Let me look.", call], [Step(name), f"It is {name}, and\\nthat is all."])
    return Agent(model=model, name=f"part_{name}", description="Does a part.", tools=[read])

calls = [tool_call(f"part_{name}", prompt=f"Do the part {name}") for name in "abc"]
run(Agent(model=Says(calls, ["Done."]), tools=[part(name) for name in "abc"], name="boss", reporter=terminal))
"""


def test_subagents_are_a_tree(steps: Steps):
    with shown(steps, SUBAGENTS) as screen:
        rows = [
            line
            for name in "abc"
            for line in (f'part_{name}(prompt="Do the part {name}") 1,234 tokens', f'  read(path="{name}")')
        ]
        check(screen, *rows)
        steps.go("b")
        check(
            screen,
            '  * part_b: read(path="b") -> This is b.',
            *rows[:2],
            'part_b(prompt="Do the part b") 1,234 tokens, waiting for the model',
            *rows[4:],
        )
        steps.go("b")
        read_b, part_b = '  * part_b: read(path="b") -> This is b.', '* part_b(prompt="Do the part b") -> It is b, and…'
        check(screen, read_b, f"{part_b} (25 B)", *rows[:2], *rows[4:])
        for name in "aacc":
            steps.go(name)
        screen.wait_for("- done: 2 turns, 9,872 tokens")
        assert screen.exit_code() == 0
        assert len(screen.all_lines) == 8


TWO = """
def agent(name, *texts):
    return Agent(model=Says(texts), name=name, reporter=terminal)

async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent("writer", "One ", Step("a"), "and two.").run, "Go on")
        nursery.start_soon(agent("critic", Step("b"), "It is ", Step("b"), "good.").run, "Go on")

trio.run(main, clock=clock)
"""


def test_the_text_of_one_agent_streams_and_the_others_is_shown_whole(steps: Steps):
    with shown(steps, TWO, columns=40) as screen:
        screen.wait_for("One")
        steps.go("b")
        screen.wait_for("critic: writing")
        lines = [line for line in screen.all_lines if "writ" not in line]
        assert lines == ["One"]
        steps.go("b")
        screen.wait_gone("critic")
        steps.go("a")
        screen.wait_for("good")
        assert screen.exit_code() == 0
        said = ["critic:", "It is good.", "- critic: done: 1 turn, 1,234 tokens"]
        last = "- writer: done: 1 turn, 1,234 tokens"
        assert screen.all_lines[-5:] == ["One and two.", *said, last]


def test_a_retry_is_a_line_and_what_was_said_before_it_is_void(steps: Steps):
    program = """
retry = ModelEvent("retry", "overloaded, trying again in 2 s", {"restarted": True})
run(Agent(model=Says([Step("a"), "On", Step("a"), retry, Step("a"), "One."]), reporter=terminal))
"""
    with shown(steps, program) as screen:
        check(screen, "waiting for the model")
        steps.go("a")
        check(screen, "On")
        steps.go("a")
        note = "- retry: overloaded, trying again in 2 s (the text above is void)"
        check(screen, "On", note, "retry: overloaded, trying again in 2 s")
        steps.go("a")
        check(screen, "On", note, "One.", "- done: 1 turn, 1,234 tokens")


def test_an_error_ends_what_is_on(steps: Steps):
    program = """
try:
    calls = [tool_call("read", path="a"), tool_call("fail")]
    @tool
    async def fail() -> None:
        "Fail."
        await step("d")
        raise KeyError("no")
    run(Agent(model=Says(calls), tools=[read, fail], reporter=terminal))
except KeyError:
    terminal.print("It failed.")
"""
    with shown(steps, program) as screen:
        check(screen, 'read(path="a")', "fail()")
        steps.go("d")
        screen.wait_for("It failed.")
        assert screen.exit_code() == 0
        assert sorted(line.partition(":")[0] for line in screen.all_lines[:2]) == [
            "! fail() aborted -> (aborted",
            '! read(path="a") aborted -> (aborted',
        ]
        assert screen.all_lines[2:] == ["! failed with KeyError: 1 turn, 1,234 tokens", "It failed."]


APPROVAL = """
@tool
async def write(path: str, text: str) -> str:
    "Write."
    return f"wrote {path}"

calls = [tool_call("read", path="a"), tool_call("write", path="b.txt", text="x" * 30)]
run(Agent(model=Says(calls, ["Done."]), tools=[read, write], name="writer", reporter=terminal, human=terminal,
          permissions=[AllowByReadOnly(), DecideByHuman()]))
"""
QUESTION = ["? writer asks: Allow write with", '{"path":"b.txt","text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}?']


def test_an_approval_is_asked_above_the_line_that_is_typed(steps: Steps):
    with shown(steps, APPROVAL) as screen:
        check(screen, *QUESTION, "Answer yes, no or always.", ">")
        screen.send("maybe")
        check(screen, *QUESTION, "Answer yes, no or always.", "> maybe")
        assert screen.cursor == (3, 7)
        screen.send("\r")
        check(screen, *QUESTION, "Answer yes, no or always.", ">")
        screen.send("yes\r")
        check(
            screen,
            *QUESTION,
            "> yes",
            '* write(path="b.txt", text="xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx") -> wrote b.txt',
            'read(path="a")',
        )
        steps.go("a")
        screen.wait_for("- done")
        assert screen.exit_code() == 0
        assert screen.settings == screen.before


def test_ctrl_c_at_a_question_interrupts_the_run(steps: Steps):
    with shown(steps, APPROVAL, columns=40) as screen:
        screen.wait_for("\n>")
        screen.send("ye\x03")
        assert screen.exit_code() == -signal.SIGINT
        assert "- interrupted: 1 turn, 1,234 tokens" in screen.all_lines
        assert screen.settings == screen.before


def test_a_question_stays_while_others_go_on(steps: Steps):
    program = """
@tool
async def ask(state: State) -> str:
    "Ask."
    return await agent.ask_human(state, "Which one?")

agent = Agent(model=Says([tool_call("ask"), tool_call("read", path="a")], ["Done."]), tools=[ask, read],
              reporter=terminal, human=terminal)
run(agent)
"""
    with shown(steps, program) as screen:
        check(screen, "ask()", 'read(path="a")', "? Which one?", ">")
        screen.send("the fir")
        screen.wait_for("fir")
        steps.go("a")
        check(screen, '* read(path="a") -> This is a.', "ask()", "? Which one?", "> the fir")
        screen.send("st\r")
        check(
            screen,
            '* read(path="a") -> This is a.',
            "? Which one?",
            "> the first",
            "* ask() -> the first",
            "Done.",
            "- done: 2 turns, 2,468 tokens",
        )


LINES = """
agent = Agent(model=Says(["One ", Step("a"), "two."], ["Three."]), reporter=terminal)

async def main():
    state = State(messages=[Message.user("Go on")])
    async def work():
        await agent.run(state)
    async with trio.open_nursery() as nursery, terminal.lines() as lines:
        nursery.start_soon(work)
        async for line in lines:
            state.add_message(Message.user(line))
    terminal.print("Bye.")

trio.run(main, clock=clock)
"""


def test_lines_are_typed_while_an_agent_works(steps: Steps):
    with shown(steps, LINES) as screen:
        check(screen, "One", ">")
        screen.send("wait")
        check(screen, "One", "> wait")
        screen.send("!\r")
        check(screen, "One", "queued: wait!", ">")
        steps.go("a")
        check(screen, "One two.", "> wait!", "Three.", "- done: 2 turns, 2,468 tokens", ">")
        screen.send("\x04")
        check(screen, "One two.", "> wait!", "Three.", "- done: 2 turns, 2,468 tokens", "Bye.")


def test_without_colour_there_is_a_frame_all_the_same(steps: Steps):
    with shown(steps, TOOLS, NO_COLOR="1") as screen:
        steps.go("d")
        steps.go("d")
        screen.wait_for('read(path="b")')
        steps.go("a")
        steps.go("b")
        screen.wait_for("- done")
        assert screen.exit_code() == 0
        assert b"\x1b[" in screen.raw
        assert not re.search(rb"\x1b\[[0-9;]*m", screen.raw)


def test_with_colour_there_is_some(steps: Steps):
    with shown(steps, "terminal.print('x'); run(Agent(model=Says(['y']), reporter=terminal))", NO_COLOR="") as screen:
        assert screen.exit_code() == 0
        assert re.search(rb"\x1b\[[0-9;]*m", screen.raw)


def test_a_dumb_terminal_has_plain_lines(steps: Steps):
    with shown(steps, "run(Agent(model=Says(['One ', 'two.']), reporter=terminal))", TERM="dumb") as screen:
        assert screen.exit_code() == 0
        assert screen.raw == b"One two.\r\n- done: 1 turn, 1,234 tokens\r\n"


@pytest.mark.parametrize("columns", [40, 120])
def test_a_terminal_that_is_resized_has_no_leftovers(steps: Steps, columns: int):
    with shown(steps, TOOLS) as screen:
        steps.go("d")
        steps.go("d")
        screen.wait_for('read(path="b")')
        screen.resize(columns)
        steps.go("a")
        screen.wait_for('* read(path="a")')
        assert screen.lines[1:] == ['* read(path="a") -> This is a.', 'read(path="b")']
        steps.go("b")
        screen.wait_for("- done")
        assert screen.exit_code() == 0
        assert screen.lines[1:] == [
            '* read(path="a") -> This is a.',
            '* read(path="b") -> This is b.',
            "It is **a**.",
            "",
            "Done.",
            "- done: 2 turns, 2,468 tokens",
        ]


def test_a_frame_is_never_higher_than_the_screen(steps: Steps):
    program = """
@tool
async def wait(number: int) -> str:
    "Wait."
    await step("abcd"[number])
    return "waited"

calls = [tool_call("wait", number=min(number, 3)) for number in range(4)]
run(Agent(model=Says(calls, ["Done."]), tools=[wait], reporter=terminal))
"""
    with shown(steps, program, lines=4) as screen:
        check(screen, "wait(number=0)", "wait(number=1)", "and 2 more")
        steps.go("a")
        done = "* wait(number=0) -> waited"
        check(screen, done, "wait(number=1)", "wait(number=2)", "wait(number=3)")
        for name in "bcd":
            steps.go(name)
        screen.wait_for("- done")
        assert screen.exit_code() == 0
        assert sorted(screen.all_lines[:4]) == [f"* wait(number={number}) -> waited" for number in range(4)]
        assert screen.all_lines[4:] == ["Done.", "- done: 2 turns, 2,468 tokens"]


def test_wide_characters_take_two_cells(steps: Steps):
    program = """
run(Agent(model=Says(["漢字 🐛 " * 5, Step("a"), tool_call("read", path="字" * 30)]), tools=[read], reporter=terminal,
          loop=default_loop.copy(limit=1)))
"""
    with shown(steps, program, columns=20) as screen:
        screen.wait_for("漢字 🐛")
        steps.go("a")
        screen.wait_for("read")
        assert screen.exit_code() == 0
        assert [line.replace("\0", "") for line in screen.all_lines[:4]] == [
            "漢字 🐛 漢字 🐛 漢字",
            "🐛 漢字 🐛 漢字 🐛",
            "* read(pa…) -> This…",
            "- stopped by limit",
        ]


def test_what_would_move_the_cursor_is_shown_instead(steps: Steps):
    program = r"""
evil = "a\x1b[2Jb\x1b]0;title\x07c\rd\x9b1Ae"
run(Agent(model=Says([evil, Step("a")]), reporter=terminal, name=evil))
"""
    with shown(steps, program) as screen:
        check(screen, r"a\x1b[2Jb\x1b]0;title\x07cd\x9b1Ae")
        steps.go("a")
        assert screen.exit_code() == 0
