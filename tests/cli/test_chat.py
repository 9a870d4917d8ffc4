"""``alpineagents chat``, and ``run`` at a terminal: typed at a real one, and looked at."""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import contextmanager
from functools import partial

import pytest
import trio

from alpineagents import FileStore, Message, State
from alpineagents.testing import Fault, ProviderServer

from ..reporters.pty_screen import on_screen
from .program import ROOT, run_program

APP = '''
import os
import signal
import time

import trio

from alpineagents import Agent, Model, State, tool
from alpineagents.testing import FakeModel, tool_call


@tool(read_only=True)
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


@tool(read_only=True)
async def hang() -> str:
    """Never give anybody a turn."""
    handler = signal.getsignal(signal.SIGINT)

    def tell(number, frame):
        os.write(1, b"pressed")
        handler(number, frame)

    signal.signal(signal.SIGINT, tell)
    os.write(1, b"hanging")
    try:
        while True:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, handler)


@tool(read_only=True, abandon_on_cancel=False)
def stuck() -> str:
    """Never end."""
    time.sleep(3600)


@tool
def write(path: str) -> str:
    """Write a file."""
    return "written"


def answer(request):
    """Do what the last message says: call a tool, fail, or repeat what the person has said so far."""
    asked = [message for message in request.messages if message.role == "user"]
    if request.messages[-1].role == "user":
        word, _, rest = request.messages[-1].text.partition(" ")
        if word == "wait":
            return tool_call("wait", seconds=float(rest))
        if word in ("hang", "stuck"):
            return tool_call(word)
        if word == "write":
            return tool_call("write", path=rest)
        if word == "fail":
            return RuntimeError("it is broken")
    return "heard: " + ", ".join(message.text for message in asked)


agent = Agent(model=FakeModel([answer] * 1000), tools=[wait, hang, stuck, write])
'''


@pytest.fixture
def place(tmp_path):
    (tmp_path / "talk.py").write_text(APP)
    return tmp_path


@pytest.fixture
def chat(place):
    """Start a chat on a screen."""

    def start(*args, command="chat", agent="talk:agent", columns=80, lines=24, **variables):
        env = {"HOME": str(place), "PYTHONPATH": str(ROOT), **variables}
        options = ["--agent", agent] if agent else []
        return on_screen(
            [sys.executable, "-m", "alpineagents", command, *options, *args],
            columns=columns,
            lines=lines,
            env=env,
            cwd=place,
        )

    return start


def saved(place):
    """The States that are saved, as ``alpineagents list`` has them."""
    return [
        json.loads(line)
        for line in run_program(place, "list", "--json", env={"XDG_STATE_HOME": ""}).stdout.splitlines()
    ]


@contextmanager
def provider(*script):
    """A provider for programs that a test which isn't async starts."""
    started, box = threading.Event(), {}

    async def serve():
        async with ProviderServer(script) as server:
            box.update(server=server, token=trio.lowlevel.current_trio_token(), end=trio.Event())
            started.set()
            await box["end"].wait()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert started.wait(30)
    try:
        yield box["server"]
    finally:
        box["token"].run_sync_soon(box["end"].set)
        thread.join()


# ---- chat


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 40])
def test_two_turns_and_after_a_restart_a_third(chat, columns):
    with chat(columns=columns) as screen:
        screen.wait_for("Talking to fake/fake.")
        screen.send("one\r")
        screen.wait_for("heard: one\n")
        screen.send("two\r")
        screen.wait_for("heard: one, two")
        screen.send("\x04")
        assert screen.exit_code() == 0
        assert screen.settings == screen.before
        shown = "".join(screen.all_lines)
        assert "alpineagents chat --resume" in shown
        assert "Traceback" not in shown

    with chat("--resume", columns=columns) as screen:
        screen.wait_for("heard: one, two")
        assert "> two\n" in screen.text
        screen.send("three\r")
        screen.wait_for("heard: one, two, three")
        screen.send("/exit\r")
        assert screen.exit_code() == 0


@pytest.mark.slow
def test_what_is_typed_while_the_agent_works_is_read_at_its_next_step(chat):
    with chat() as screen:
        screen.send("wait 2\r")
        screen.wait_for("wait(")
        screen.send("and this\r")
        screen.wait_for("heard: wait 2, and this")
        screen.send("\x04")
        assert screen.exit_code() == 0


@pytest.mark.slow
def test_ctrl_c_stops_the_turn_and_the_conversation_goes_on(chat, place):
    with chat() as screen:
        screen.send("wait 3600\r")
        screen.wait_for("wait(")
        screen.send("\x03")
        screen.wait_for("cancelled")
        screen.send("go on\r")
        screen.wait_for("heard: wait 3600, go on\n- done")
        screen.send("\x03")
        screen.wait_for("Ctrl+C again leaves")
        screen.send("\x03")
        assert screen.exit_code() == 130
        assert screen.settings == screen.before

    (row,) = saved(place)
    assert row["status"] == "your turn"


@pytest.mark.slow
def test_a_tool_that_hangs_is_stopped_by_a_second_ctrl_c_and_the_conversation_goes_on(chat):
    with chat() as screen:
        screen.send("hang\r")
        screen.wait_for("hanging")
        screen.send("\x03")
        screen.wait_for("pressed")  # Two at once would be one.
        screen.send("\x03")
        screen.wait_for("interrupted")
        screen.send("still there?\r")
        screen.wait_for("heard: hang, still there?")
        screen.send("\x04")
        assert screen.exit_code() == 0


@pytest.mark.slow
def test_a_tool_that_never_ends_is_left_by_a_third_ctrl_c(chat, place):
    with chat() as screen:
        screen.send("stuck\r")
        screen.wait_for("stuck(")
        screen.send("\x03x")
        screen.wait_for("> x")
        screen.send("\x03")
        screen.wait_for("Leaving")
        screen.send("\x03")
        assert screen.exit_code() == -signal.SIGINT
        assert screen.settings == screen.before

    with chat("--resume") as screen:
        screen.wait_for("heard: stuck")
        screen.send("\x04")
        assert screen.exit_code() == 0


@pytest.mark.slow
def test_killed_in_the_middle_of_a_turn_it_goes_on_from_there(chat, place):
    with chat() as screen:
        screen.send("wait 3600\r")
        screen.wait_for("wait(")
        screen.kill(signal.SIGKILL)
        assert screen.exit_code() == -signal.SIGKILL
    assert [row["status"] for row in saved(place)] == ["open"]

    with chat("--resume") as screen:
        screen.wait_for("heard: wait 3600")
        screen.send("\x04")
        assert screen.exit_code() == 0

    shown = run_program(place, "show", env={"XDG_STATE_HOME": ""}).stdout
    assert "* wait: aborted, " in shown


@pytest.mark.slow
def test_sigterm_ends_it_with_143_and_says_how_to_go_on(chat, place):
    with chat() as screen:
        screen.send("wait 3600\r")
        screen.wait_for("wait(")
        screen.kill(signal.SIGTERM)
        assert screen.exit_code() == 143
        assert "alpineagents chat --resume" in "".join(screen.lines)
        assert screen.settings == screen.before
    assert [row["status"] for row in saved(place)] == ["interrupted"]


@pytest.mark.slow
def test_an_error_is_a_line_and_the_conversation_stays_open(chat):
    with chat() as screen:
        screen.send("fail\r")
        screen.wait_for("RuntimeError: it is broken")
        screen.send("/help\r")
        screen.wait_for("/exit")
        screen.send("and now?\r")
        screen.wait_for("heard: fail, and now?")
        screen.send("\x04")
        assert screen.exit_code() == 0
        assert screen.text.count("it is broken") == 1


@pytest.mark.slow
def test_a_call_that_changes_something_is_asked_about(chat):
    with chat() as screen:
        screen.send("write a.py\r")
        screen.wait_for("Allow write")
        screen.send("y\r")
        screen.wait_for("heard: write a.py")
        screen.send("write b.py\r")
        screen.wait_for("b.py")
        screen.wait_until(lambda: screen.text.count("Allow write") == 2, "asks again")
        screen.send("\x03")
        screen.wait_for("cancelled")
        screen.send("\x04")
        assert screen.exit_code() == 0

    with chat("--yes") as screen:
        screen.send("write a.py\r")
        screen.wait_for("heard: write a.py")
        screen.send("\x04")
        assert screen.exit_code() == 0
        assert "Allow" not in screen.text


@pytest.mark.slow
def test_with_a_provider_an_unreachable_one_is_a_line_and_the_model_is_remembered(chat, place):
    with provider("First.", "Second.", Fault(status=400), "Third.") as server:
        env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
        with chat("--model", "compatible/small", agent=None, **env) as screen:
            screen.send("hi\r")
            screen.wait_for("First.")
            screen.send("\x04")
            assert screen.exit_code() == 0
        with chat("--resume", agent=None, **env) as screen:
            screen.wait_for("First.")
            screen.send("again\r")
            screen.wait_for("Second.")
            screen.send("once more\r")
            screen.wait_for("400")
            screen.send("\r")
            screen.wait_for("Third.")
            screen.send("\x04")
            assert screen.exit_code() == 0
        assert [request.body["model"] for request in server.requests] == ["small"] * 4


@pytest.mark.slow
def test_one_that_is_finished_can_not_be_resumed(place, chat):
    async def finish():
        state = State(id="over", messages=[Message.user("hi")])
        state.finish()
        await FileStore(place / ".local/state/alpineagents/states").save(state)

    trio.run(finish)

    with chat("over") as screen:
        assert screen.exit_code() == 2
        assert screen.text.startswith("error: State over is finished")


@pytest.mark.slow
def test_nothing_to_resume_is_an_error(chat):
    with chat("--resume") as screen:
        assert screen.exit_code() == 1
        assert screen.text.startswith("error: there is no ")


def test_without_a_terminal_it_names_run(here):
    assert here("chat", "--agent", "app:greeter") == (
        2,
        "",
        "error: alpineagents chat needs a terminal to type at; without one use: alpineagents run\n",
    )


# ---- run


run = partial(dict, command="run")


@pytest.mark.slow
def test_on_a_terminal_the_answer_is_shown_once_and_the_person_is_asked(chat):
    with chat("write a.py", **run()) as screen:
        screen.wait_for("Allow write")
        screen.send("y\r")
        assert screen.exit_code() == 0
        assert "\n".join(screen.all_lines).count("heard: write a.py") == 1

    with chat("write a.py", **run()) as screen:
        screen.wait_for("Allow write")
        screen.send("\x03")
        assert screen.exit_code() == 130
        assert "Traceback" not in screen.text
        assert screen.settings == screen.before
