"""The terminal that other tests run programs in."""

from __future__ import annotations

import signal

import pytest

from .pty_screen import on_screen, python

GREETS = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
name = input("Who? ")
print(f"Hello {name}")
"""


def test_what_is_typed_and_shown():
    with on_screen(python(GREETS), columns=40) as screen:
        screen.wait_for("Who?")
        screen.send("Ada\r")
        screen.wait_for("Hello Ada")

        assert screen.exit_code() == 0
        assert screen.lines == ["Who? Ada", "Hello Ada"]


def test_a_signal_from_the_keyboard_ends_the_program():
    with on_screen(python(GREETS)) as screen:
        screen.wait_for("Who?")
        screen.send("\x03")

        assert screen.exit_code() == -signal.SIGINT
        assert screen.settings == screen.before


def test_ctrl_z_stops_it_and_it_can_go_on():
    with on_screen(python(GREETS)) as screen:
        screen.wait_for("Who?")
        screen.send("\x1a")
        screen.wait_stopped()
        screen.resume()
        screen.send("Ada\r")

        screen.wait_for("Hello Ada")
        assert screen.exit_code() == 0


def test_settings_that_a_program_leaves_behind_are_seen():
    with on_screen(python("import tty; tty.setcbreak(0)")) as screen:
        assert screen.exit_code() == 0
        assert screen.settings != screen.before


def test_waiting_for_what_never_comes_says_what_was_there_instead():
    with on_screen(python("print('Bert')")) as screen, pytest.raises(pytest.fail.Exception) as caught:
        screen.wait_for("Ada")

    assert str(caught.value) == "the program ended with 0 before it shows 'Ada'; on its screen is\n| Bert"


def test_what_scrolls_off_is_kept():
    with on_screen(python("for i in range(500): print('世界', i)")) as screen:
        assert screen.exit_code() == 0

    assert screen.all_lines == [f"世界 {i}" for i in range(500)]
    assert screen.lines == [f"世界 {i}" for i in range(477, 500)]


def test_a_program_that_is_there_when_the_block_ends_is_killed():
    with on_screen(python("import os, time; print('pid', os.getpid(), flush=True); time.sleep(1000)")) as screen:
        screen.wait_for(f"pid {screen.pid}")

    with pytest.raises(ProcessLookupError):
        screen.kill(signal.SIGTERM)


def test_a_command_that_is_not_there():
    with on_screen(["/no/such"]) as screen:
        assert screen.exit_code() == 127
        assert screen.lines == ["/no/such: No such file or directory"]


def test_another_size():
    program = """
    import os, signal
    signal.signal(signal.SIGWINCH, lambda *_: print(*os.get_terminal_size(), flush=True))
    for i in range(6):
        print("line", i, flush=True)
    while True:
        signal.pause()
    """
    with on_screen(python(program)) as screen:
        screen.wait_for("line 5")
        screen.resize(60, 5)
        screen.wait_for("60 5")

        assert screen.lines == ["line 3", "line 4", "line 5", "60 5"]
        assert screen.all_lines[:4] == ["line 0", "line 1", "line 2", "line 3"]
        screen.kill(signal.SIGTERM)
        assert screen.exit_code() == -signal.SIGTERM


def test_more_than_fits_the_terminals_buffer_is_typed_whole():
    program = """
    import os, tty
    tty.setraw(0)
    print("go", flush=True)
    read = 0
    while read < 100_000:
        read += len(os.read(0, 1000))
    print("read", read)
    """
    with on_screen(python(program)) as screen:
        screen.wait_for("go")
        screen.send("x" * 100_000)
        screen.wait_for("read 100000")


def test_a_program_that_is_stopped_when_the_block_ends_is_killed():
    with on_screen(python(GREETS)) as screen:
        screen.wait_for("Who?")
        screen.send("\x1a")
        screen.wait_stopped()

    with pytest.raises(ProcessLookupError):
        screen.kill(signal.SIGTERM)
