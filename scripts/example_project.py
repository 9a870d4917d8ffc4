"""Tests the wheel as its users have it (``make example-project``): not the checkout, in an environment of its own.

    python scripts/example_project.py            the first test of README.md in an empty folder, then examples/tests
    python scripts/example_project.py --record   write what examples/tests has recorded anew, in the checkout

The project's model is Anthropic's. So that it can be recorded without a key, a ProviderServer stands in for it here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import trio

from alpineagents import Anthropic, FileStore, Message, State, ToolCall
from alpineagents.testing import FakeHuman, ProviderServer, tool_call

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "examples" / "tests"
LOCK = ROOT / "requirements" / "dev.lock"

ANSWERS: list[list[str | ToolCall]] = [
    ["I am sorry to hear that. Let me look it up.", tool_call("find_order", order="A-7")],
    ["It got lost indeed. I ask a colleague to pay you back.", tool_call("refund", order="A-7")],
    ["We have paid back 12.50 EUR for order A-7. It takes two days until you see it."],
]
"""What the recorded model says."""
CASE = "broken-cup"
CASE_ANSWERS: list[str | ToolCall] = [
    tool_call("find_order", order="B-2"),
    "Order B-2 was delivered. Is anything wrong with it?",
    tool_call("refund", order="B-2"),
    "I am sorry: my colleague says that we can't pay this back.",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write what examples/tests has recorded anew")
    if parser.parse_args().record:
        trio.run(record)
        return
    with tempfile.TemporaryDirectory(prefix="example-project-") as folder:
        check(Path(folder))


def check(folder: Path) -> None:
    """Build, install and test, all of it in *folder*."""
    say("building the wheel")
    run([sys.executable, "-m", "build", "--wheel", "--outdir", folder / "dist", ROOT], cwd=folder, quiet=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    run([sys.executable, "-m", "venv", folder / "env"], cwd=folder)
    programs = folder / "env" / "bin"

    say("the first test of README.md, in an empty folder")
    install(programs, wheel, "pytest", "pytest-trio")
    empty = folder / "empty"
    empty.mkdir()
    (empty / "test_first.py").write_text(first_test(), encoding="utf-8")
    run([programs / "pytest"], cwd=empty)

    say("examples/tests")
    project = folder / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    install(programs, *settings["dependency-groups"]["test"])
    run([programs / "pytest", "-ra"], cwd=project)
    run([programs / "alpineagents", "replay", "tests/cases", CASE, "helpdesk:agent"], cwd=project)


def install(programs: Path, *packages: str | Path) -> None:
    """Install packages in the versions that requirements/dev.lock has."""
    options: list[str | Path] = ["--quiet", "--disable-pip-version-check", "--constraint", LOCK]
    run([programs / "python", "-m", "pip", "install", *options, *packages], cwd=programs)


def first_test() -> str:
    """Return the code of "A first test" in README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^## A first test\n(?:(?!^## ).)*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit('README.md has no section "A first test" with a Python block')
    return found[1]


def run(command: Sequence[str | Path], *, cwd: Path, quiet: bool = False) -> None:
    """Run a program without what the environment says of Python paths, pytest and keys; exit where it fails."""
    hidden = re.compile(r"PYTHONPATH|VIRTUAL_ENV|PYTEST_.*|(ANTHROPIC|GEMINI|GOOGLE|OPENAI)_.*")
    environment = {name: value for name, value in os.environ.items() if not hidden.fullmatch(name)}
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=output, stderr=(quiet and subprocess.STDOUT) or None, check=False
    )
    if done.returncode:
        sys.exit(f"{(done.stdout or b'').decode()}{Path(command[0]).name} failed, with exit code {done.returncode}")


def say(what: str) -> None:
    print(f"== {what}", flush=True)


async def record() -> None:
    """Write the cassette, the snapshot and the case of examples/tests anew."""
    async with ProviderServer(ANSWERS) as server:
        await trio.run_process(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "--agents-record",
                "--snapshot-update",
                "-k",
                "recorded or as_it_was",
            ],
            cwd=PROJECT,
            env={**os.environ, "ANTHROPIC_BASE_URL": server.origin, "ANTHROPIC_API_KEY": "none"},
        )
    async with ProviderServer(CASE_ANSWERS) as server:
        await record_case(Anthropic("claude-sonnet-5", base_url=server.origin, api_key="none"))


async def record_case(model: Anthropic) -> None:
    """Write the case: a customer who asks twice, and a colleague who refuses."""
    sys.path.insert(0, str(PROJECT))
    helpdesk = import_module("helpdesk")
    shop = helpdesk.Shop({"B-2": helpdesk.Order(900, "delivered")})
    store = FileStore(PROJECT / "tests" / "cases")
    desk = helpdesk.help_desk(shop).copy(model=model, human=FakeHuman(["no"]), store=store)
    await store.delete(CASE)
    state = State(id=CASE, messages=[Message.user("Where is B-2?")])
    await desk.run(state)
    await state.add_message(Message.user("My cup is broken. I want my money back."))
    await desk.run(state)


if __name__ == "__main__":
    main()
