"""``alpineagents run``: one prompt, one answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
import trio

from alpineagents import FileStore
from alpineagents.testing import Fault, ProviderServer

from .program import COMMAND, environment, run_program


def saved(here):
    async def load():
        store = FileStore(here.states)
        return [await store.load(info.id) for info in await store.list()]

    return trio.run(load)


def test_the_answer_and_nothing_else_is_on_standard_output_and_the_state_is_saved(here):
    assert here.agent("reader") == (0, "It is long.\n", "")

    (state,) = saved(here)
    assert state.answer == "It is long."
    assert state.messages[0].text == "Go on"


def test_an_answer_that_is_no_text_is_json(here):
    assert here.agent("ender", "--yes") == (0, '{"answer": 42}\n', "")


@pytest.mark.parametrize("args", [["-"], []])
def test_the_prompt_is_read_from_standard_input(home, args):
    done = run_program(home, "run", "--agent", "app:greeter", *args, input="What is\nin this file?\n")

    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello.\n", "")
    shown = run_program(home, "show").stdout
    assert "> What is\n> in this file?\n" in shown


def test_a_dash_may_stand_anywhere_among_the_options(home):
    done = run_program(home, "run", "-", "--agent", "app:greeter", input="Hi")

    assert done.stdout == "Hello.\n"


def test_a_prompt_that_begins_with_a_dash_comes_behind_two(here):
    assert here("run", "--agent", "app:greeter", "--", "--help")[:2] == (0, "Hello.\n")
    assert saved(here)[0].messages[0].text == "--help"


@pytest.mark.parametrize("given", [[""], ["-"], []])
def test_a_blank_prompt_is_a_wrong_command_line(here, given):
    assert here("run", "--agent", "app:greeter", *given) == (2, "", "error: the prompt is blank\n")


def test_the_prompt_may_be_a_file_or_nothing_at_all(here, monkeypatch):
    (here.home / "prompt.txt").write_text("from a file")
    with open("prompt.txt") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", file)
        assert here("run", "-a", "app:greeter", "-")[0] == 0
    assert saved(here)[0].messages[0].text == "from a file"

    monkeypatch.setattr(sys, "stdin", None)
    assert here("run", "-a", "app:greeter", "-") == (2, "", "error: the prompt is blank\n")
    assert here("run", "-a", "app:greeter", "Hi")[0] == 0


def test_a_standard_input_that_is_closed_is_an_empty_one(home):
    shell = f"'{sys.executable}' -m alpineagents run --agent app:greeter - <&-"

    done = subprocess.run(
        shell, shell=True, cwd=home, env=environment(home), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (2, "error: the prompt is blank\n")


# ---- Models


def test_without_a_model_it_says_how_to_name_one(here, monkeypatch):
    code, _, err = here("run", "Hi")
    assert code == 2
    assert "write --model anthropic/claude-sonnet-5, or set ALPINEAGENTS_MODEL" in err
    assert err.endswith("the environment has no provider's key\n")

    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-secret")
    err = here("run", "Hi")[2]
    assert "write --model openai/gpt-5" in err
    assert err.endswith("the environment has OPENAI_API_KEY\n")


@pytest.mark.slow
async def test_a_model_is_named_by_an_option_or_by_the_environment(home):
    async with ProviderServer(["One.", "Two."]) as server:
        env = environment(home, OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY="none")
        by_option = await trio.run_process(
            [*COMMAND, "run", "--model", "compatible/small", "Hi"], env=env, cwd=home, capture_stdout=True
        )
        by_environment = await trio.run_process(
            [*COMMAND, "run", "Hi", "--system", "Be brief."],
            env={**env, "ALPINEAGENTS_MODEL": "compatible/large"},
            cwd=home,
            capture_stdout=True,
        )

    assert (by_option.stdout, by_environment.stdout) == (b"One.\n", b"Two.\n")
    assert [request.body["model"] for request in server.requests] == ["small", "large"]
    assert server.requests[1].body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_the_environment_does_not_replace_the_model_of_an_agent(here, monkeypatch):
    monkeypatch.setenv("ALPINEAGENTS_MODEL", "nobody/nothing")

    assert here.agent("greeter")[:2] == (0, "Hello.\n")


@pytest.mark.parametrize("model", ["nobody/nothing", "what", ""])
def test_an_unknown_model_is_a_wrong_command_line(here, model):
    code, out, err = here("run", "--model", model, "Hi")

    assert (code, out) == (2, "")
    assert err.startswith(f"error: unknown model {model!r}; known: " if model else "error: no model is named")
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(404, 2), (401, 1), (400, 1)])
async def test_what_the_provider_says_is_one_line(home, status, code):
    async with ProviderServer([Fault(status=status)]) as server:
        env = environment(home, OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY="sk-proj-abcdefghij")
        done = await trio.run_process(
            [*COMMAND, "run", "-m", "compatible/x", "Hi"],
            env=env,
            cwd=home,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1
    assert b"abcdefghij" not in done.stderr


# ---- Agents and tools


def test_tools_are_added_to_those_of_the_agent_and_a_plain_function_becomes_one(here):
    assert here.agent("adder", "--tools", "app:add", "-t", "app:both", "--yes")[:2] == (0, "Three.\n")
    assert saved(here)[0].history[1].content.tools == ("add", "read_file", "write_file")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--agent", "app"], "'app' names no Agent; write MODULE:AGENT, such as app.agents:reader"),
        (["--agent", "nothing_here:x"], "nothing_here can't be imported: ModuleNotFoundError"),
        (["--agent", "app:nobody"], "has no 'nobody'; it is looked for from the current directory on"),
        (["--agent", "app:number"], "is a int, not an Agent"),
        (["--agent", "app:greeter", "--tools", "read_file"], "'read_file' names no tool; write MODULE:NAME"),
        (["--agent", "./my/app.py:greeter"], "'./my/app.py' is a file; write the module: my.app:greeter"),
        (["--agent", "app:greeter", "--tools", "app:number"], "int object is not a tool"),
        (["--agent", "app:greeter", "--tools", "app:undocumented"], "undocumented"),
        (["--agent", "app:reader", "--tools", "app:read_file"], "two tools are called 'read_file'"),
        (["--agent", "app:own_loop", "--limit", "3"], "--limit needs a loop made with @loop"),
        (["--agent", "app:greeter", "--limit", "0"], "--limit must be 1 or more (got 0)"),
        (["--agent", "app:greeter", "--budget", "much"], "--budget takes an amount of US dollars, such as 0.50"),
        (["--agent", "app:greeter", "--budget", "-1"], "--budget"),
    ],
)
def test_what_is_named_wrongly_is_a_wrong_command_line_and_nothing_is_saved(here, args, message):
    code, out, err = here("run", *args, "Hi")

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not here.states.exists()


def test_a_module_that_ends_the_program_is_one_that_can_not_be_imported(here):
    (here.home / "leaves_at_once.py").write_text("raise SystemExit(0)")

    assert here("run", "--agent", "leaves_at_once:x", "Hi") == (
        2,
        "",
        "error: leaves_at_once can't be imported: SystemExit: 0\n",
    )


# ---- Permissions and limits


def test_a_call_that_changes_something_is_refused_where_nobody_can_be_asked(here):
    code, out, err = here.agent("writer")

    assert (code, out) == (3, "")
    assert err == "stopped: NobodyToAsk() refused write_file; --yes lets all calls run\n"
    assert here.agent("reader")[0] == 0


def test_with_yes_all_calls_run(here):
    assert here.agent("writer", "--yes") == (0, "Done.\n", "")


def test_the_permissions_of_an_agent_stay_and_yes_answers_for_the_person_only(here):
    assert here.agent("careful", "--yes")[:2] == (0, "Not allowed.\n")
    assert here.agent("asks_somebody") == (0, "Asked.\n", "")


def test_an_agent_that_is_stopped_by_a_limit_is_exit_code_3_and_says_how_to_go_on(here):
    code, out, err = here.agent("looper", "--limit", 2)

    (state,) = saved(here)
    assert (code, out) == (3, "")
    assert err == f"stopped: limit of 2 turns; go on with: alpineagents chat --resume {state.id}\n"
    assert state.turn == 2


def test_an_agent_that_is_stopped_by_its_budget_is_exit_code_3(here):
    code, _, err = here.agent("spender")

    assert code == 3
    assert err.startswith("stopped: budget of requests: 1 of 1; ")


# ---- Errors


def test_an_error_of_a_tool_is_one_line_and_the_traceback_is_shown_if_asked_for(here):
    assert here.agent("breaker", "-y") == (1, "", "error: RuntimeError: it is broken\n")

    code, out, err = here.agent("breaker", "-y", "--traceback")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):")
    assert "RuntimeError: it is\nbroken" in err


def test_a_tool_may_end_the_program(here):
    assert here.agent("leaver", "-y") == (7, "", "")


def test_a_reader_may_stop_early(home):
    shell = f"'{sys.executable}' -m alpineagents run --agent app:wordy Hi | head -c 3"

    done = subprocess.run(
        shell, shell=True, cwd=home, env=environment(home), capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("xxx", "")


@pytest.mark.slow
@pytest.mark.parametrize(("signal_", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_it_without_a_traceback_and_the_state_is_whole(home, signal_, code):
    arrived = trio.Event()

    def hang(request):
        arrived.set()
        return Fault(wait=600)

    async with ProviderServer([hang]) as server:
        env = environment(home, OPENAI_BASE_URL=server.base_url)
        process = await trio.lowlevel.open_process(
            [*COMMAND, "run", "-m", "compatible/x", "Hi"], env=env, cwd=home, stderr=subprocess.PIPE
        )
        await arrived.wait()
        process.send_signal(signal_)
        err = b"".join([chunk async for chunk in process.stderr])
        await process.wait()
        await process.stderr.aclose()

    assert (process.returncode, err) == (code, b"")
    (row,) = [json.loads(line) for line in run_program(home, "list", "--json").stdout.splitlines()]
    assert row["status"] == "interrupted"


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_while_it_reads_its_prompt(home, signal_):
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", READS, "run", "-m", "compatible/x", "-"],
        env=environment(home),
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert await process.stdout.receive_some() == b"reading\n"
    process.send_signal(signal_)
    err = b"".join([chunk async for chunk in process.stderr])
    await process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        await stream.aclose()

    assert (process.returncode, err) == (128 + signal_, b"")


READS = """
import sys
from alpineagents.cli import main
from alpineagents.reporters._terminal import _keyboard

class Keyboard(_keyboard.Keyboard):
    async def read(self):
        print("reading", flush=True)
        return await super().read()

_keyboard.Keyboard = Keyboard
sys.exit(main())
"""
"""The program, telling when it begins to read."""
