"""Keys from a real terminal, lines from pipes and files, and the terminal's settings afterwards."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios

import pytest
import trio
import trio.testing

from alpineagents.reporters._terminal._keyboard import Keyboard

from .pty_screen import ROOT, on_screen, python

READS = """
import sys, trio
from alpineagents.reporters._terminal._keyboard import Keyboard

def show(*what):
    print(*what, flush=True)

async def main():
    keyboard = Keyboard(sys.stdin and sys.stdin.fileno(), 1)
    with keyboard.opened(redraw=lambda: show("goes on")):
        show("ready", keyboard.is_by_key)
        while True:
            data = await keyboard.read()
            show(data)
            if data in (b"", b"q"):
                return
            if data == b"x":
                raise ValueError("x was pressed")
            if data == b"c":
                with trio.move_on_after(0):
                    await keyboard.read()
                show("cancelled")

trio.run(main)
"""


def reading(*lines: str) -> list[str]:
    return python("\n".join([*lines, READS]))


def test_keys_come_one_by_one_and_are_not_echoed():
    with on_screen(reading()) as screen:
        screen.wait_for("ready True")
        screen.send("a")
        screen.wait_for("b'a'")
        screen.send("\x16\x0f\x04")  # What a terminal keeps to itself otherwise, and the end of input.
        screen.wait_for("b'\\x16\\x0f\\x04'")

        assert screen.lines == ["ready True", "b'a'", "b'\\x16\\x0f\\x04'"]
        assert screen.raw.startswith(b"\x1b[?2004h")


@pytest.mark.parametrize(
    ("key", "code", "shown"),
    [("q", 0, "b'q'"), ("x", 1, "ValueError: x was pressed"), ("\x03", -signal.SIGINT, "KeyboardInterrupt")],
    ids=["end", "exception", "Ctrl+C"],
)
def test_the_terminal_is_set_back_however_it_ends(key, code, shown):
    with on_screen(reading()) as screen:
        screen.wait_for("ready")
        assert screen.settings != screen.before
        screen.send(key)

        assert screen.exit_code() == code
        assert screen.settings == screen.before
        assert shown in screen.text
        assert screen.raw.count(b"\x1b[?2004h") == screen.raw.count(b"\x1b[?2004l") == 1


def test_a_cancelled_read_takes_nothing():
    with on_screen(reading()) as screen:
        screen.wait_for("ready")
        screen.send("c")
        screen.wait_for("cancelled")
        screen.send("z")
        screen.wait_for("b'z'")


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again():
    with on_screen(reading()) as screen:
        screen.wait_for("ready")
        keyed = screen.settings
        for key in "ab":
            screen.send("\x1a")
            screen.wait_stopped()
            assert screen.settings == screen.before
            assert screen.raw.rindex(b"\x1b[?2004l") > screen.raw.rindex(b"\x1b[?2004h")
            screen.resume()
            screen.wait_for("goes on")
            screen.send(key)
            screen.wait_for(f"b'{key}'")
            assert screen.settings == keyed
        screen.kill(signal.SIGSTOP)
        screen.wait_stopped()
        screen.resume()
        screen.send("q")

        assert screen.exit_code() == 0
        assert screen.settings == screen.before


@pytest.fixture
def terminal():
    """A terminal of this process, which isn't the one that its signals come from."""
    ours, theirs = os.openpty()
    yield theirs
    os.close(ours)
    os.close(theirs)


async def test_a_signal_to_stop_gives_the_terminal_back_first(terminal):
    """As the test above, in this process, which isn't stopped: the signal is blocked, and another one takes it away."""
    before = termios.tcgetattr(terminal)
    resumed = trio.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
    try:
        with Keyboard(terminal, terminal).opened(redraw=resumed.set):
            keyed = termios.tcgetattr(terminal)
            stop = signal.getsignal(signal.SIGTSTP)
            stop(signal.SIGTSTP, None)
            assert signal.sigpending() == {signal.SIGTSTP}
            signal.raise_signal(signal.SIGCONT)
            assert signal.sigpending() == set()
            await resumed.wait()

            assert signal.getsignal(signal.SIGTSTP) is stop
            assert termios.tcgetattr(terminal) == keyed != before
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            signal.raise_signal(signal.SIGCONT)
            assert termios.tcgetattr(terminal) == keyed
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])

    assert termios.tcgetattr(terminal) == before
    assert signal.getsignal(signal.SIGTSTP) is signal.getsignal(signal.SIGCONT) is signal.SIG_DFL


async def test_nobody_need_be_told_that_it_goes_on(terminal):
    with Keyboard(terminal, terminal).opened():
        keyed = termios.tcgetattr(terminal)
        signal.raise_signal(signal.SIGCONT)

        assert termios.tcgetattr(terminal) == keyed


async def test_where_lines_are_read_nothing_is_set(terminal):
    before = termios.tcgetattr(terminal)
    for keyboard in (Keyboard(None, terminal), Keyboard(terminal, None)):
        with keyboard.opened():
            assert termios.tcgetattr(terminal) == before
            assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


@pytest.mark.parametrize("number", ["SIGTSTP", "SIGCONT"])
def test_a_program_with_a_handler_of_its_own_keeps_it(number):
    before = f"import os, signal; signal.signal(signal.{number}, lambda *_: os.write(1, b'its own'))"
    with on_screen(reading(before)) as screen:
        screen.wait_for("ready")
        screen.kill(signal.Signals[number])
        screen.wait_for("its own")
        screen.send("q")

        assert screen.exit_code() == 0
        assert screen.settings == screen.before


def test_what_is_typed_before_and_behind_is_not_lost():
    """Half a line that was typed before is there as keys; what nobody read is there for who comes next."""
    program = """
    import signal, sys, trio
    from alpineagents.reporters._terminal._keyboard import Keyboard

    async def main():
        keyboard = Keyboard(sys.stdin and sys.stdin.fileno(), 1)
        signal.sigwait([signal.SIGUSR1])
        with keyboard.opened():
            print(await keyboard.read(), flush=True)
            signal.sigwait([signal.SIGUSR1])
        print(repr(input()), flush=True)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("ready", flush=True)
    trio.run(main)
    """
    with on_screen(python(program)) as screen:
        screen.wait_for("ready")
        screen.send("half")
        screen.wait_for("half")  # The terminal has it, and has echoed it.
        screen.kill(signal.SIGUSR1)
        screen.wait_for("b'half'")
        screen.send("next\n")
        screen.kill(signal.SIGUSR1)
        screen.wait_for("'next'")

        assert screen.exit_code() == 0


def test_a_terminal_that_shows_nothing_of_what_is_typed_is_read_by_the_line():
    """The program's output goes to a file, so there is nowhere to edit: the terminal does it."""
    with on_screen(["sh", "-c", 'exec "$0" -c "$1" | cat', sys.executable, READS]) as screen:
        screen.wait_for("ready False")
        screen.send("ab\x7fc\r")
        screen.wait_for("b'ac\\n'")
        screen.send("\x04")
        screen.wait_for("b''")

        assert screen.settings == screen.before


@pytest.mark.parametrize("what", ["pipe", "file", "null", "closed"])
def test_what_is_no_terminal_is_read_to_its_end(what, tmp_path):
    (tmp_path / "input").write_bytes(b"one\ntwo")
    command = {
        "pipe": 'printf "one\\ntwo" | "$0" -c "$1"',
        "file": f'"$0" -c "$1" < "{tmp_path}/input"',
        "null": '"$0" -c "$1" < /dev/null',
        "closed": '"$0" -c "$1" <&-',
    }[what]
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, READS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    ready, *read = done.stdout.splitlines()
    assert ready == "ready False"
    assert read == (["b'one\\ntwo'", "b''"] if what in ("pipe", "file") else ["b''"])
    assert done.stderr == ""


async def test_reading_waits_until_there_is_something(autojump_clock):
    read_end, write_end = os.pipe()
    keyboard = Keyboard(read_end, None)
    try:
        with trio.move_on_after(1000) as scope:
            await keyboard.read()
        assert scope.cancelled_caught

        os.write(write_end, b"a")
        assert await keyboard.read() == b"a"
        assert os.get_blocking(read_end)
    finally:
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize("path", [__file__, os.devnull])
async def test_every_read_is_a_checkpoint(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        for keyboard in (Keyboard(fd, None), Keyboard(None, None)):
            with trio.testing.assert_checkpoints():
                await keyboard.read()
    finally:
        os.close(fd)


async def test_a_descriptor_that_was_closed_is_at_its_end():
    fd = os.open("/dev/null", os.O_RDONLY)
    keyboard = Keyboard(fd, None)
    os.close(fd)

    assert await keyboard.read() == b""


async def test_a_descriptor_that_cannot_be_read_is_an_error(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            await Keyboard(folder, None).read()
    finally:
        os.close(folder)


async def test_a_terminal_that_is_hung_up_is_at_its_end():
    ours, theirs = os.openpty()
    try:
        keyboard = Keyboard(theirs, theirs)
        with keyboard.opened():
            assert termios.tcgetattr(ours)[3] & termios.ICANON == 0
            os.close(ours)
            assert await keyboard.read() == b""
        with keyboard.opened():
            assert await keyboard.read() == b""
    finally:
        os.close(theirs)


async def test_in_another_thread_than_the_main_one_signals_are_left_alone(terminal):
    before = termios.tcgetattr(terminal)

    async def opened() -> None:
        with Keyboard(terminal, terminal).opened():
            assert termios.tcgetattr(terminal) != before
            assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL

    await trio.to_thread.run_sync(trio.run, opened)

    assert termios.tcgetattr(terminal) == before


async def test_what_is_read_ahead_is_read_once():
    """Also by a task that waits already, and was told that there is something: the read of nothing would block."""
    ours, theirs = os.openpty()
    os.set_blocking(theirs, False)  # So that it would raise.
    keyboard = Keyboard(theirs, theirs)
    read: list[bytes | None] = []

    async def reads() -> None:
        read.append(await keyboard.read())

    async def reads_ahead() -> None:
        read.append(keyboard.read_ahead())

    with keyboard.opened():
        for _ in range(20):  # Which of the two is first is random.
            read.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reads)
                await trio.testing.wait_all_tasks_blocked()
                os.write(ours, b"a")
                select.select([theirs], [], [])
                nursery.start_soon(reads_ahead)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert read in ([b"a", None], [b"a", b""])
    os.close(ours)
    assert keyboard.read_ahead() == b""  # hung up
    os.close(theirs)
