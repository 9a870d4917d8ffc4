"""What all commands share: exit codes, one line for what goes wrong, help, the packages that it needs."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import warnings

import pytest

from alpineagents.cli import _app, _main, main
from alpineagents.cli._exit import line_of

from .program import COMMAND, ROOT, environment, run_program

COMMANDS = [
    [],
    ["run"],
    ["chat"],
    ["list"],
    ["show"],
    ["tail"],
    ["replay"],
    ["store"],
    ["store", "list"],
    ["store", "show"],
    ["store", "copy"],
    ["store", "check"],
    ["store", "export"],
    ["doctor"],
    ["completion"],
]


# ---- Exit codes


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["run", "--agent", "app:greeter", "Hi"], 0),
        (["list"], 0),
        (["--version"], 0),
        (["--help"], 0),
        ([], 0),
        (["store"], 0),
        (["run", "--agent", "app:breaker", "--yes", "Hi"], 1),
        (["show"], 1),
        (["store", "check", "nowhere"], 1),
        (["run", "--model", "nobody/nothing", "Hi"], 2),
        (["run", "--agent", "app:nobody", "Hi"], 2),
        (["ruin"], 2),
        (["run", "--modle", "x", "Hi"], 2),
        (["replay", "nowhere", "x", "app:greeter"], 2),
        (["completion"], 2),
        (["run", "--agent", "app:looper", "--limit", "1", "Hi"], 3),
        (["run", "--agent", "app:writer", "Hi"], 3),
    ],
)
def test_exit_codes(here, args, code):
    got, _, err = here(*args)

    assert got == code
    assert err.count("\n") == (code != 0)


# ---- Wrong command lines


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["ruin"], 'Unknown command "ruin". Did you mean "run"?'),
        (["store", "checks"], 'Unknown command "checks". Did you mean "check"?'),
        (["run", "--modle", "x", "Hi"], "Unknown option: --modle. Did you mean --model? See alpineagents run --help"),
        (["run", "Hi", "--yess"], "Unknown option: --yess. Did you mean --yes? See alpineagents run --help"),
        (["--colour"], "Unknown option: --colour. See alpineagents --help"),
        (["run", "Name", "three", "rivers"], "alpineagents run takes no argument 'three'; put quotes around"),
        (["replay", "runs"], "alpineagents replay needs ID. See alpineagents replay --help"),
        (["store", "show"], "alpineagents store show needs STORE."),
        (
            ["run", "-5 degrees?"],
            "has no option '-5 degrees?'; put -- before an argument that begins with a dash.",
        ),
        (["run", "Hi", "--model"], "alpineagents run: --model needs a value."),
        (["list", "--limit", "many"], 'Invalid value for --limit: unable to convert "many" into int.'),
        (["list", "--limit", "-1"], 'Invalid value "-1" for --limit. Must be >= 0.'),
        (["tail", "--last", "-1"], 'Invalid value "-1" for --last.'),
        (["completion", "csh"], 'Invalid value "csh" for SHELL. Choose from: "bash", "zsh", "fish".'),
        (["store", "export", "a", "b", "--format", "pdf"], '"pdf" for --format. Choose from: "jsonl"'),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_one_line_that_says_what_is_right(here, args, message):
    code, out, err = here(*args)

    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


# ---- Help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_and_fits_a_terminal(here, command):
    code, out, err = here(*command, "--help")

    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {' '.join(['alpineagents', *command])}")
    assert max(map(len, out.splitlines())) <= 80
    assert not re.search(r"│ .* STR\b", out)  # an option says what it takes
    for part in ("Examples:\n", "\nExit codes: 0 ", "--traceback"):
        assert part in out
    app = _app.app
    for name in command:
        app = app[name]
    if app.default_command is not None:
        for argument in app.assemble_argument_collection(parse_docstring=False):
            for name in argument.names:
                if name == "*" or name.startswith(("--no-", "--empty-")):
                    continue  # the app has none of these
                assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", out), name
            assert argument.parameter.help or argument.names == ("*",)
    for example in re.findall(r"^  (?:.*\| )?(alpineagents .*)$", out, re.MULTILINE):
        for option in re.findall(r"(?<= )--?[a-z]+", example.partition("|")[0].partition(">")[0]):
            words = example.split()
            assert option in helped(here, [word for word in words[1:3] if word.isalpha()]), example


def helped(here, command):
    """The help of the command that an example begins with."""
    for chain in (command, command[:1], []):
        if chain in COMMANDS or chain == ["chat"]:
            return here(*chain, "--help")[1]
    raise AssertionError(command)


def test_help_is_shown_on_a_narrow_terminal_too(home):
    done = run_program(home, "run", "--help", env={"COLUMNS": "40"})

    assert max(map(len, done.stdout.splitlines())) <= 44  # examples are not broken


def test_every_command_is_in_the_first_help(here):
    out = here("--help")[1]

    assert all(re.search(rf"│ {command[0]} ", out) for command in COMMANDS if command)


@pytest.mark.parametrize("args", [["--help"], ["run", "--help"], ["--version"]])
def test_a_reader_of_help_may_stop_early(home, args):
    shell = f"'{sys.executable}' -m alpineagents {' '.join(args)} | true"

    done = subprocess.run(
        f"set -o pipefail; {shell}",
        shell=True,
        executable="/bin/bash",
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_that_of_the_package(here):
    assert re.fullmatch(r"alpineagents \d+\.\d+\.\d+\S*\n", here("--version")[1])


# ---- Errors


def test_what_the_library_says_speaks_for_itself_and_other_errors_are_named():
    assert line_of(ValueError("what\nwas wrong")) == "error: what was wrong"
    assert line_of(ValueError()) == "error: ValueError"
    assert line_of(KeyError("x")) == "error: KeyError: 'x'"
    group = ExceptionGroup("both", [OSError(2, "gone"), RuntimeError("x"), RuntimeError("x")])
    assert line_of(group) == "error: [Errno 2] gone; RuntimeError: x"
    assert line_of(UnicodeError("\x1b[31m")) == "error: UnicodeError: ?[31m"


def test_ctrl_c_is_130_wherever_it_comes_and_shows_nothing(here, monkeypatch, capfd):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_main, "_done", interrupted)
    assert main(["list"]) == 130
    assert capfd.readouterr() == ("", "")


def test_a_broken_pipe_that_is_not_that_of_the_output_is_an_error(here):
    (here.home / "pipes.py").write_text(
        "from alpineagents import Agent, tool\nfrom alpineagents.testing import FakeModel, tool_call\n"
        '@tool\ndef write() -> str:\n    """Write."""\n    raise BrokenPipeError(32, "Broken pipe")\n'
        "agent = Agent(model=FakeModel([tool_call('write')]), tools=[write])\n"
    )

    assert here("run", "-a", "pipes:agent", "-y", "x") == (1, "", "error: [Errno 32] Broken pipe\n")


def test_ctrl_c_in_a_run_is_130_and_the_state_is_saved(here):
    assert here.agent("interrupter", "-y") == (130, "", "")
    assert "  interrupted  " in here("list")[1]


def test_a_reader_that_is_gone_is_no_error(here, monkeypatch, capfd):
    here.agent("greeter")
    for args in (["show", "--json"], ["list"]):
        read, write = os.pipe()
        os.close(read)
        with open(write, "w") as pipe, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", pipe)
            assert main(args) == 0
        assert capfd.readouterr() == ("", "")


def test_rich_ends_the_program_where_the_pipe_is_closed_that_help_is_printed_to():
    assert _main._result(lambda: sys.exit(1)) == 0


def test_a_closed_standard_output_is_an_error(here, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["list"]) == 1
    assert capfd.readouterr().err.startswith("error: standard output is closed")


@pytest.mark.parametrize("command", ["list", "show --json", "--help"])
def test_a_full_disk_is_one_line(home, command):
    run_program(home, "run", "-a", "app:greeter", "Hi")

    done = subprocess.run(
        f"'{sys.executable}' -m alpineagents {command} > /dev/full",
        shell=True,
        cwd=home,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_a_full_disk_is_no_reader_that_is_gone(here, monkeypatch, capfd):
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(["doctor", "--offline"]) == 1
        assert main(["completion", "zsh"]) == 0  # what had no room is dropped
    assert capfd.readouterr().err == "error: [Errno 28] No space left on device\n"


def test_where_standard_error_is_closed_errors_do_not_go_to_standard_output(here, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)

    assert here("run", "--model", "nobody/nothing", "Hi") == (2, "", "")
    assert here("show") == (1, "", "")


def test_a_broken_pipe_is_an_error_where_standard_output_is_an_object_of_the_caller(here, monkeypatch, capfd):
    def breaks():
        raise BrokenPipeError(32, "Broken pipe")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        assert _main._run(breaks, shows_traceback=False) == 1
    assert capfd.readouterr().err == "error: [Errno 32] Broken pipe\n"


def test_standard_output_may_be_an_object_of_the_caller(here, monkeypatch):
    text = io.StringIO()
    here.agent("greeter")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", text)
        assert main(["list"]) == 0
    assert text.getvalue().endswith("  Go on\n")


def test_a_warning_is_a_line(here, monkeypatch):
    (here.home / "warns.py").write_text(
        "import warnings\nfrom alpineagents import Agent\nfrom alpineagents.testing import FakeModel\n"
        "warnings.warn('something\\nis odd', stacklevel=1)\n"
        "agent = Agent(model=FakeModel(['x']))\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert here("run", "-a", "warns:agent", "x") == (0, "x\n", "warning: something is odd\n")


def test_sigterm_is_143(here):
    (here.home / "terminated.py").write_text(
        "import signal, trio\nfrom alpineagents import Agent, tool\n"
        "from alpineagents.testing import FakeModel, tool_call\n"
        '@tool\nasync def end() -> str:\n    """End."""\n    signal.raise_signal(signal.SIGTERM)\n'
        "    await trio.sleep_forever()\n"
        "agent = Agent(model=FakeModel([tool_call('end')]), tools=[end])\n"
    )

    assert here("run", "-a", "terminated:agent", "-y", "x") == (143, "", "")
    assert "  interrupted  " in here("list")[1]


@pytest.mark.slow
def test_ctrl_c_at_any_moment_shows_no_traceback(home):
    """The program is interrupted later and later, until it is through."""
    delay, codes = 0.0, set()
    while 0 not in codes and delay < 5:
        process = subprocess.Popen(
            [sys.executable, "-c", FROM_MAIN, "list", "--store", "none"],
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "begins\n"
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        codes.add(process.returncode)
        assert (out, err) == ("", "")
        delay += 0.04

    assert {0} < codes <= {0, 130, -signal.SIGINT}  # the last: while the library was imported, or through already


FROM_MAIN = """
import signal, sys
from _alpineagents_command import main

set_handler = signal.signal

def tell(number, handler):
    before = set_handler(number, handler)
    if (number, handler) == (signal.SIGINT, signal.SIG_DFL):
        signal.signal = set_handler
        print("begins", flush=True)
    return before

signal.signal = tell
sys.exit(main())
"""
"""The program, telling when it has begun."""


# ---- What it needs


@pytest.mark.parametrize("missing", ["cyclopts", "rich"])
def test_without_the_packages_for_it_one_line_says_what_to_install(home, missing):
    code = f"import sys; sys.modules[{missing!r}] = None; from alpineagents.cli import main; sys.exit(main())"

    done = subprocess.run(
        [sys.executable, "-c", code, "list"], env=environment(home), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: the command line needs two more packages: pip install cyclopts rich\n"


def test_a_missing_package_is_found_before_anything_is_done(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclopts", None)

    assert here("list") == (1, "", "error: the command line needs two more packages: pip install cyclopts rich\n")


def test_importing_the_library_loads_none_of_them():
    code = "import sys, alpineagents; print(sorted({'cyclopts', 'rich'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=True)

    assert done.stdout == b"[]\n"


@pytest.mark.parametrize("args", [["list"], ["--version"]])
def test_what_a_command_does_not_use_is_not_loaded(home, args):
    code = (
        "import sys; from alpineagents.cli import main; main();"
        "print(sorted({'httpx', 'sqlite3', 'psycopg', 'alpineagents.testing'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *args], env=environment(home), capture_output=True, text=True, check=True
    )

    assert done.stdout.endswith("[]\n")


# ---- Completion


def test_bash_completes(home):
    typed = {
        "st": "store",
        "run --mo": "--model",
        "store ex": "export",
        "store export a b --format m": "markdown",
        "completion ''": "bash zsh fish",
        "show --mess": "--messages",
        "chat --res": "--resume",
    }
    complete = "COMPREPLY=(); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _alpineagents; echo ${COMPREPLY[@]}"
    script = [f"source <('{sys.executable}' -m alpineagents completion bash)", "complete -p alpineagents"]
    script += [f"COMP_WORDS=(alpineagents {words}); {complete}" for words in typed]

    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)], env=environment(home), capture_output=True, text=True, check=True
    )

    first, *rest = done.stdout.splitlines()
    assert first == "complete -F _alpineagents alpineagents"
    assert dict(zip(typed, rest, strict=True)) == typed
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_too(here, shell):
    code, out, _ = here("completion", shell)

    assert code == 0
    assert "alpineagents" in out.splitlines()[0]
    assert "--model" in out or "-l model" in out


@pytest.mark.parametrize(
    ("handler", "in_the_end"), [(signal.default_int_handler, signal.SIG_DFL), (signal.SIG_IGN, signal.SIG_IGN)]
)
def test_ctrl_c_shows_no_traceback_once_the_program_is_through_and_is_ignored_if_it_was(
    here, monkeypatch, capfd, handler, in_the_end
):
    from _alpineagents_command import main as program

    monkeypatch.setattr(sys, "argv", ["alpineagents", "list"])
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert program() == 0
        assert signal.getsignal(signal.SIGINT) is in_the_end
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr() == ("", "")


def test_it_is_a_program_too(home):
    program = os.path.join(os.path.dirname(sys.executable), "alpineagents")

    assert subprocess.run([program, "list"], env=environment(home), check=True, capture_output=True).stdout == b""
    assert COMMAND[-1] == "alpineagents"
