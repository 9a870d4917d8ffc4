"""``chat`` and ``run`` at a terminal that is this process's own, so that every line of them is looked at."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import time
import tty
import warnings

import pyte
import pytest
import trio

from alpineagents import FileStore, Message, State
from alpineagents.cli import _chat, main

PATIENCE = 30.0
PROMPT = "> \r"
"""What is written when somebody is to type."""


class Typist(threading.Thread):
    """Types when it reads what it waits for: pairs of that and the keys."""

    def __init__(self, fd: int, *steps: tuple[str, str]) -> None:
        super().__init__()
        self.text = ""
        self._fd = fd
        self._steps = steps
        self._is_over = threading.Event()

    def run(self) -> None:
        last = time.monotonic() + PATIENCE
        seen = 0
        for waits_for, keys in self._steps:
            while waits_for not in self.text[seen:] and time.monotonic() < last:
                self._read()
            seen = self.text.find(waits_for, seen) + len(waits_for)
            os.write(self._fd, keys.encode())
        while not self._is_over.is_set():
            self._read()
            if time.monotonic() > last:
                os.write(self._fd, b"\x03\x04")  # It is to end, whatever it waits for.

    def end(self) -> str:
        """Return all that was shown."""
        self._is_over.set()
        self.join()
        self._read()
        return self.text

    def _read(self) -> None:
        if select.select([self._fd], [], [], 0.05)[0]:
            self.text += os.read(self._fd, 65_536).decode(errors="replace")


@pytest.fixture
def at_a_terminal(here, monkeypatch):
    """Run a command at a terminal; return its exit code, and what is on the screen in the end."""

    def run(*args, steps=(), output=None):
        master, slave = os.openpty()
        termios.tcsetwinsize(slave, (50, 300))
        typist = Typist(master, *steps)
        with open(slave, "r+b", buffering=0) as terminal, monkeypatch.context() as patch:
            with (
                open(os.dup(slave), encoding="utf-8") as stdin,
                open(os.dup(slave), "w", encoding="utf-8") as stdout,
                open(os.dup(slave), "w", encoding="utf-8") as stderr,
            ):
                patch.setattr(sys, "stdin", stdin)
                patch.setattr(sys, "stdout", stdout if output is None else output)
                patch.setattr(sys, "stderr", stderr)
                patch.setenv("TERM", "xterm")
                typist.start()
                code = main([arg.replace("app:", f"{here.app}:") for arg in args])
            del terminal
            run.raw = typist.end()
        os.close(master)
        screen = pyte.Screen(300, 50)
        pyte.Stream(screen).feed(run.raw)
        return code, "\n".join(line.rstrip() for line in screen.display)

    return run


def test_a_conversation_and_the_same_again(at_a_terminal, here):
    code, shown = at_a_terminal(
        *("chat", "--agent", "app:greeter", "--system", "Be brief.", "--tools", "app:add"),
        *("--limit", "5", "--budget", "1.5", "--store", "runs.db", "--yes"),
        steps=[("Talking to fake/fake", ""), (PROMPT, "hi\r"), ("done", "\x04")],
    )
    assert code == 0
    (command,) = [line.strip() for line in shown.splitlines() if "--resume" in line]
    state_id = command.split()[3]
    assert command == (
        f"alpineagents chat --resume {state_id} --store runs.db --agent {here.app}:greeter --system 'Be brief.'"
        f" --limit 5 --budget 1.5 --tools {here.app}:add --yes"
    )

    code, shown = at_a_terminal(
        *("chat", "--resume", state_id[:14], "--store", "runs.db", "-a", "app:greeter"),
        steps=[(PROMPT, "/exit\r")],
    )
    assert code == 0
    assert "> hi" in shown
    assert "Hello." in shown
    assert "1 turn, 20 tokens, $0.00" in shown


def test_a_warning_is_a_line_above_what_is_typed(at_a_terminal):
    at_a_terminal("run", "-a", "app:greeter", "Hi")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, shown = at_a_terminal(
            *("chat", "--resume", "-a", "app:greeter", "-t", "app:add"), steps=[(PROMPT, "hi\r"), ("done", "\x04")]
        )

    assert code == 0
    (line,) = [line for line in shown.splitlines() if "goes on with another Agent" in line]
    assert line.startswith("warning: State ")
    assert line.endswith("tools: added add")


def test_one_that_never_began_leaves_nothing(at_a_terminal, here):
    code, shown = at_a_terminal("chat", "-a", "app:greeter", steps=[(PROMPT, "\x04")])

    assert code == 0
    assert "--resume" not in shown
    assert not here.states.exists()


def test_one_that_is_finished_is_not_opened(at_a_terminal, here):
    state = State(id="over", messages=[Message.user("hi")])
    state.finish()
    trio.run(FileStore(here.states).save, state)

    assert at_a_terminal("chat", "over", "-a", "app:greeter")[0] == 2


def test_the_agents_own_reporter_is_told_too(at_a_terminal, here):
    app = here.home / f"{here.app}.py"
    app.write_text(
        app.read_text()
        + "\nfrom alpineagents import Reporter\n\nclass Notes(Reporter):\n    def on_reply(self, state, reply):\n"
        "        __import__('pathlib').Path('notes.txt').write_text(reply.text)\n\n"
        "noted = greeter.copy(reporter=Notes())\n"
    )

    code, shown = at_a_terminal("run", "-a", "app:noted", "Hi")

    assert (code, shown.count("Hello."), (here.home / "notes.txt").read_text()) == (0, 1, "Hello.")


def test_the_terminal_is_set_back_for_a_process_that_is_ended(monkeypatch):
    master, slave = os.openpty()
    with open(os.dup(slave)) as stdin, open(slave, "w") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        before = termios.tcgetattr(slave)
        set_back = _chat._set_back()
        tty.setcbreak(slave)

        set_back()

        assert termios.tcgetattr(slave) == before
    assert os.read(master, 100) == b"\x1b[?2004l\r\r\n"
    os.close(master)


# ---- run


def test_an_answer_is_shown_once_and_a_finished_one_is_printed(at_a_terminal):
    code, shown = at_a_terminal("run", "-a", "app:greeter", "Hi")
    assert (code, shown.count("Hello.")) == (0, 1)

    code, shown = at_a_terminal("run", "-a", "app:ender", "-y", "Hi")
    assert (code, shown.count('{"answer": 42}')) == (0, 1)


def test_a_person_is_asked(at_a_terminal):
    code, shown = at_a_terminal("run", "-a", "app:writer", "Hi", steps=[("Allow write_file", "y\r")])

    assert code == 0
    assert "Done." in shown


def test_where_only_errors_go_to_a_terminal_it_is_shown_there_and_the_answer_is_alone(at_a_terminal, here):
    with open(here.home / "answer.txt", "w", encoding="utf-8") as output:
        code, shown = at_a_terminal("run", "-a", "app:writer", "Hi", steps=[("Allow", "y\r")], output=output)

    assert code == 0
    assert (here.home / "answer.txt").read_text() == "Done.\n"
    assert "write_file" in shown


def test_a_prompt_is_needed(at_a_terminal):
    code, shown = at_a_terminal("run", "-a", "app:greeter")

    assert code == 2
    assert 'error: alpineagents run needs PROMPT, such as: alpineagents run "Name three rivers"' in shown
