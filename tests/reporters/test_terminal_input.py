"""A person at a real terminal: questions, lines, keys, and what goes wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alpineagents import FileStore

from .pty_screen import ROOT, Screen, on_screen, python

SETUP = """
import signal
import sys
from typing import Literal

import trio

from alpineagents import Agent, DecideByHuman, FileStore, Message, NoHumanError, State, Terminal, tool
from alpineagents.testing import FakeModel, tool_call

terminal = Terminal()

@tool
async def shell(command: str) -> str:
    "Run a command."
    return f"ran {command}"

def agent_of(*replies, name="bob", **options):
    return Agent(name=name, model=FakeModel(list(replies)), human=terminal, **options)

"""
APPROVES = """
async def main():
    agent = agent_of(
        tool_call("shell", command="ls"),
        tool_call("shell", command="pwd"),
        "All done.",
        tools=[shell],
        permissions=[DecideByHuman()],
        reporter=terminal,
        store=FileStore(sys.argv[1]) if sys.argv[1:] else None,
    )
    await agent.run(State(id="s", messages=[Message.user("Go")]))

trio.run(main)
"""
ASKS = """
async def main():
    agent = agent_of("unused")
    answer = await agent.ask_human(State(), "Which file?", returns=str)
    print("Answer:", repr(answer), flush=True)
    print("Choice:", await agent.ask_human(State(), "Which colour?", returns=Literal["red", "green"]), flush=True)

trio.run(main)
"""
LISTENS = """
async def main():
    token = trio.lowlevel.current_trio_token()
    signal.signal(signal.SIGUSR1, lambda *_: token.run_sync_soon(terminal.print, "text of an agent"))
    async with terminal.lines() as lines:
        terminal.print("ready")
        async for line in lines:
            terminal.print(f"got {line!r}")
    terminal.print("the end")

trio.run(main)
"""
BOTH = """
async def main():
    token = trio.lowlevel.current_trio_token()
    asked = trio.Event()
    withdrawn = trio.CancelScope()
    signal.signal(signal.SIGUSR1, lambda *_: token.run_sync_soon(asked.set))
    signal.signal(signal.SIGUSR2, lambda *_: token.run_sync_soon(withdrawn.cancel))

    async def ask():
        await asked.wait()
        with withdrawn:
            answer = await agent_of("unused").ask_human(State(), "Which file?", returns=str)
            terminal.print(f"answer {answer!r}")
        terminal.print(f"withdrawn {withdrawn.cancelled_caught}")

    async with terminal.lines() as lines, trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        terminal.print("ready")
        async for line in lines:
            terminal.print(f"got {line!r}")

trio.run(main)
"""
SEVERAL = """
import trio.testing

async def main():
    async with trio.open_nursery() as nursery:
        for name in ("ada", "bob", "cleo"):
            agent = agent_of(
                tool_call("shell", command=name),
                "ok",
                name=name,
                tools=[shell],
                permissions=[DecideByHuman()],
                reporter=terminal,
            )
            nursery.start_soon(agent.run, "Go")
            await trio.testing.wait_all_tasks_blocked()

trio.run(main)
"""
LONG = """
async def main():
    command = " ".join(f"word{number}" for number in range(100))
    agent = agent_of(tool_call("shell", command=command), "ok", tools=[shell], permissions=[DecideByHuman()])
    await agent.run("Go")

trio.run(main)
"""
SLY = r"""
async def main():
    await agent_of("unused").ask_human(State(), "Allow rm -r /\x1b[2Kls\u202e?", returns=bool)

trio.run(main)
"""


def program(body: str, *arguments: object) -> list[str]:
    return [*python(SETUP + body), *map(str, arguments)]


def last_line(screen: Screen) -> str:
    """The line that is typed: the frame's last."""
    return screen.lines[-1] if screen.lines else ""


@pytest.mark.parametrize("columns", [80, 40])
def test_calls_are_approved_one_by_one(columns):
    with on_screen(program(APPROVES), columns=columns) as screen:
        screen.wait_for('{"command":"ls"}')
        screen.send("y\r")
        screen.wait_for('{"command":"pwd"}')
        screen.send("no\r")
        screen.wait_for("All done.")

        assert screen.exit_code() == 0
        assert screen.settings == screen.before
    assert "ran ls" in screen.text
    assert "ran pwd" not in screen.text


def test_always_is_asked_once():
    with on_screen(program(APPROVES)) as screen:
        screen.wait_for("Allow")
        screen.send("always\r")
        screen.wait_for("All done.")

    assert screen.text.count("Allow") == 1
    assert "ran pwd" in screen.text


def test_what_is_no_answer_is_asked_again():
    """Enter by itself, too."""
    with on_screen(program(APPROVES)) as screen:
        screen.wait_for("Allow")
        screen.send("\rmaybe\ry\r")
        screen.wait_for("pwd")
        screen.send("a\r")
        screen.wait_for("All done.")

    assert "ran ls" in screen.text


def test_text_and_choices():
    with on_screen(program(ASKS)) as screen:
        screen.wait_for("Which file?")
        screen.send("  a.txt \r")
        screen.wait_for("2) green")
        screen.send("blue\r")
        screen.wait_for("Type a number or a name.")
        screen.send("2\r")
        screen.wait_for("Choice: green")

        assert screen.exit_code() == 0
        assert "Answer: '  a.txt '" in screen.lines


def test_an_answer_is_edited():
    with on_screen(program(ASKS)) as screen:
        screen.wait_for("Which file?")
        screen.send("héllo wörld 世界\x1b[D\x1b[D\x7f")
        screen.wait_until(lambda: last_line(screen) == "> héllo wörld世界")
        assert screen.cursor == (len(screen.lines) - 1, len("> héllo wörld"))
        screen.send("\x1b[1;5D\x17!\x1b[H\x1b[3~")
        screen.wait_until(lambda: last_line(screen) == "> wörld世界")
        screen.send("\x01x\x05y\x1b[5~\x1bq\r")

        screen.wait_for("Answer: 'xwörld世界y'")


def test_pasted_lines_are_one_answer():
    with on_screen(program(ASKS)) as screen:
        screen.wait_for("Which file?")
        screen.send("\x1b[200~one\rtwo\x1b[201~")
        screen.wait_until(lambda: last_line(screen) == "> one↵two")
        screen.send("\x1b\rthree\r")

        screen.wait_for(r"Answer: 'one\ntwo\nthree'")


def test_a_line_is_typed_while_text_is_printed_above_it():
    with on_screen(program(LISTENS), columns=40, lines=10) as screen:
        screen.wait_for("ready")
        screen.send("half")
        screen.wait_until(lambda: last_line(screen) == "> half")
        for count in range(1, 16):
            screen.kill(signal.SIGUSR1)
            screen.wait_until(lambda count=count: screen.all_lines.count("text of an agent") == count)
            screen.wait_until(lambda: last_line(screen) == "> half")
        screen.send(" and half\r")
        screen.wait_for("got 'half and half'")

        assert screen.all_lines[:16] == ["ready", *["text of an agent"] * 15]


def test_lines_that_were_entered_are_found_again():
    with on_screen(program(LISTENS)) as screen:
        screen.wait_for("ready")
        screen.send("one\rtwo\r")
        screen.wait_for("got 'two'")
        screen.send("draft\x1b[A\x1b[A")
        screen.wait_until(lambda: last_line(screen) == "> one")
        screen.send("\x1b[B\x1b[B")
        screen.wait_until(lambda: last_line(screen) == "> draft")
        screen.send("\x15\x04")
        screen.wait_for("the end")

        assert screen.exit_code() == 0
        assert screen.settings == screen.before


def test_a_line_that_is_longer_than_the_screen_is_wide_stays_on_one_row():
    text = "".join(f"{number:04}" for number in range(100))
    with on_screen(program(LISTENS), columns=40) as screen:
        screen.wait_for("ready")
        screen.send(text)
        screen.wait_until(lambda: text[-30:] in last_line(screen))
        assert len(screen.lines) == 2
        assert screen.cursor[1] < 40
        screen.send("\x01")
        screen.wait_until(lambda: last_line(screen).startswith("> 00000001"))
        assert screen.cursor == (1, 2)
        screen.send("\r")

        screen.wait_until(lambda: f"'{text}'" in "".join(screen.lines))


def test_another_width_in_the_middle_of_a_line():
    with on_screen(program(LISTENS), columns=80) as screen:
        screen.wait_for("ready")
        screen.send("x" * 60)
        screen.wait_until(lambda: last_line(screen) == "> " + "x" * 60)
        screen.resize(40)
        screen.send("y")
        screen.wait_until(lambda: last_line(screen).endswith("xy"))
        assert len(last_line(screen)) < 40
        screen.resize(100)
        screen.send("z")
        screen.wait_until(lambda: last_line(screen) == "> " + "x" * 60 + "yz")
        screen.send("\r")

        screen.wait_for("got 'xxx")


def test_a_question_comes_while_a_line_is_half_typed():
    with on_screen(program(BOTH)) as screen:
        screen.wait_for("ready")
        screen.send("half")
        screen.wait_until(lambda: last_line(screen) == "> half")
        screen.kill(signal.SIGUSR1)
        screen.wait_for("Which file?")
        screen.wait_until(lambda: last_line(screen) == ">")
        screen.send("a.txt\r")
        screen.wait_for("answer 'a.txt'")
        screen.wait_until(lambda: last_line(screen) == "> half")
        screen.send(" a line\r")
        screen.wait_for("got 'half a line'")
        screen.send("\x04")

        assert screen.exit_code() == 0
        assert screen.settings == screen.before


def test_a_question_that_is_withdrawn_is_gone_from_the_frame():
    with on_screen(program(BOTH)) as screen:
        screen.wait_for("ready")
        screen.send("half")
        screen.wait_until(lambda: last_line(screen) == "> half")
        screen.kill(signal.SIGUSR1)
        screen.wait_for("Which file?")
        screen.send("a.t")
        screen.wait_until(lambda: last_line(screen) == "> a.t")
        screen.kill(signal.SIGUSR2)
        screen.wait_for("withdrawn True")
        screen.wait_until(lambda: last_line(screen) == "> half")

        assert "a.t" not in screen.text
        screen.send("\r")
        screen.wait_for("got 'half'")


def test_several_questions_are_asked_in_order_and_say_who_asks():
    with on_screen(program(SEVERAL)) as screen:
        for name in ("ada", "bob", "cleo"):
            screen.wait_for(f'{name} asks: Allow shell with {{"command":"{name}"}}?')
            screen.wait_until(lambda: last_line(screen) == ">")
            screen.send("y\r")

        assert screen.exit_code() == 0
    assert [line.split()[1] for line in screen.all_lines if "asks:" in line] == ["ada", "bob", "cleo"]
    assert all(f"ran {name}" in screen.text for name in ("ada", "bob", "cleo"))


def test_a_call_with_long_arguments_is_seen_whole_before_it_is_approved():
    with on_screen(program(LONG), columns=40, lines=10) as screen:
        screen.wait_until(lambda: last_line(screen) == ">")
        seen = "".join(line.strip() for line in screen.all_lines)
        screen.send("n\r")

        assert screen.exit_code() == 0
    assert all(f"word{number}" in seen for number in range(100))


def test_what_a_model_writes_into_a_question_is_shown_and_not_obeyed():
    with on_screen(program(SLY)) as screen:
        screen.wait_for(r"rm -r /\x1b[2Kls\u202e?")
        screen.send("no\r")

        assert screen.exit_code() == 0


def test_ctrl_c_while_a_line_is_typed():
    with on_screen(program(LISTENS)) as screen:
        screen.wait_for("ready")
        screen.send("half")
        screen.wait_until(lambda: last_line(screen) == "> half")
        screen.send("\x03")

        assert screen.exit_code() == -signal.SIGINT
        assert screen.settings == screen.before


async def test_ctrl_c_at_a_question_interrupts_the_run(tmp_path):
    """As anywhere: the program ends by it, its State is whole and saved, the terminal is as it was."""
    with on_screen(program(APPROVES, tmp_path / "store")) as screen:
        screen.wait_for("Allow")
        screen.send("ye")
        screen.wait_until(lambda: last_line(screen) == "> ye")
        screen.send("\x03")

        assert screen.exit_code() == -signal.SIGINT
        assert screen.settings == screen.before
        assert screen.raw.rindex(b"\x1b[?2004l") > screen.raw.rindex(b"\x1b[?2004h")
        assert screen.text.rstrip().endswith("KeyboardInterrupt")
    state = await FileStore(tmp_path / "store").load("s")
    assert not state.pending_calls
    assert not state.finished


def test_the_shell_finds_the_terminal_as_it_was():
    command = 'before=$(stty -a); "$0" -c "$1"; test "$before" = "$(stty -a)" && echo the same'
    with on_screen(["sh", "-c", command, sys.executable, SETUP + ASKS]) as screen:
        screen.wait_for("Which file?")
        screen.send("\x04")
        screen.wait_for("the same")

        assert screen.exit_code() == 0


def test_ctrl_z_at_a_question_and_fg():
    with on_screen(program(ASKS)) as screen:
        screen.wait_for("Which file?")
        screen.send("a.t")
        screen.wait_until(lambda: last_line(screen) == "> a.t")
        screen.send("\x1a")
        screen.wait_stopped()
        assert screen.settings == screen.before
        screen.resume()
        screen.wait_until(lambda: last_line(screen) == "> a.t" and screen.settings != screen.before)
        screen.send("xt\r")

        screen.wait_for("Answer: 'a.txt'")


def test_ctrl_d_refuses_a_call():
    with on_screen(program(APPROVES)) as screen:
        screen.wait_for('{"command":"ls"}')
        screen.send("\x04")
        screen.wait_for('{"command":"pwd"}')
        screen.send("y\r")
        screen.wait_for("All done.")

    assert "ran ls" not in screen.text
    assert "ran pwd" in screen.text


def test_ctrl_d_at_another_question_is_an_error():
    with on_screen(program(ASKS)) as screen:
        screen.wait_for("Which file?")
        screen.send("\x04")

        assert screen.exit_code() == 1
        assert screen.settings == screen.before
    assert "NoHumanError: the input ended before anybody answered" in " ".join(screen.lines)


def test_ctrl_l_draws_the_screen_anew():
    with on_screen(program(ASKS)) as screen:
        screen.wait_for("Which file?")
        screen.send("half")
        screen.wait_until(lambda: last_line(screen) == "> half")
        screen.emulator.erase_in_display(2)  # Another program has written here.
        screen.send("\x0c")
        screen.wait_until(lambda: last_line(screen) == "> half" and "Which file?" in screen.text)


@pytest.mark.slow
def test_answers_from_a_pipe_and_its_end(tmp_path: Path):
    def run(body: str, answers: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            program(body), cwd=ROOT, input=answers, capture_output=True, text=True, timeout=60, check=False
        )

    answered = run(ASKS, "a.txt\nnone\nred")
    assert answered.returncode == 0
    assert "Answer: 'a.txt'" in answered.stdout
    assert "Choice: red" in answered.stdout
    assert "\x1b" not in answered.stdout

    ended = run(ASKS, "a.txt\n")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(
        "alpineagents._errors.NoHumanError: the input ended before anybody answered"
    )

    refused = run(APPROVES, "yes\n")
    assert refused.returncode == 0
    assert "ran ls" in refused.stdout
    assert "ran pwd" not in refused.stdout
