"""An agent with two tools answers a question about a folder of text files; its conversation is saved and gone on with.

    python examples/quickstart.py                        the local model if it is built, else a scripted one
    python examples/quickstart.py --local                the local model (make local-model builds it)
    python examples/quickstart.py --model qwen3 --base-url http://127.0.0.1:11434/v1

With ``OPENAI_API_KEY`` in the environment it asks OpenAI.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import trio

from alpineagents import (
    Agent,
    AlpineAgentsError,
    FileStore,
    Message,
    Model,
    OpenAICompatible,
    Reporter,
    Request,
    State,
    Tool,
    ToolCall,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

ROOT = Path(__file__).parents[1]
QUESTION = "Which of these files should I read first, and what does it say?"
FOLLOW_UP = "Which file did you read for that?"
LONGEST = 1_500
"""Characters of a file that the model gets: the local model has room for about 2,000 tokens."""


def reading_tools(folder: Path) -> list[Tool]:
    """Return tools that look into *folder*, and nowhere else."""
    names = sorted(entry.name for entry in folder.glob("*.md") if not entry.is_dir())
    if not names:
        raise ValueError(f"{folder} has no text files (*.md); name another one: --folder docs")
    Name = Literal[tuple(names)]  # so the model can only ask for files that exist

    @tool
    def list_files() -> list[str]:
        """List the text files."""
        return names

    @tool
    def read_file(name: Name) -> str:
        """Read the beginning of a text file."""
        return (folder / name).read_text(encoding="utf-8")[:LONGEST]

    return [list_files, read_file]


class Printer(Reporter):
    """Prints what happens while it happens."""

    def on_text(self, state: State, text: str) -> None:
        print(text, end="", flush=True)

    def on_tool_start(self, state: State, call: ToolCall) -> None:
        print(
            f"\n  -> {call.name}({', '.join(f'{key}={value!r}' for key, value in (call.args or {}).items())})",
            flush=True,
        )

    def on_tool_end(self, state: State, call: ToolCall, result: object, outcome: object) -> None:
        print(f"  <- {call.name}: {outcome}", flush=True)


@loop(until=waiting_for_user, limit=4)
async def read_then_answer(agent: Agent, state: State) -> None:
    """For a very small model: have it read a file, then have it answer."""
    has_read = state.messages[-1].role == "tool"
    await agent.think(state, tools=[] if has_read else ["read_file"], tool_choice="auto" if has_read else "required")
    await agent.use_tools(state)


def scripted(*, resumed: bool) -> FakeModel:
    """A model that needs no network: it plays a reader, on what the tools really returned."""

    def results(request: Request) -> list[str]:
        blocks = [block for message in request.messages if message.role == "tool" for block in message.blocks]
        return [block.content[0].text for block in blocks]

    def first_file(request: Request) -> ToolCall:
        names = results(request)[-1].strip("[]").replace('"', "").split(",")
        return tool_call("read_file", name=names[0].strip())

    def answer(request: Request) -> str:
        lines = [line.strip("# ").strip() for line in results(request)[-1].splitlines() if line.strip()]
        return f"Begin with the one called {lines[0]!r}. It says: {' '.join(lines[1:4])}"

    def follow_up(request: Request) -> str:
        read = [
            call.args["name"] for message in request.messages for call in message.tool_calls if call.name == "read_file"
        ]
        return f"I read {read[-1]}, {len(results(request)[-1].split())} words of it."

    first = [["Let me see what is there.", tool_call("list_files")], first_file, answer]
    return FakeModel([follow_up] if resumed else first, name="fake/scripted")


@contextmanager
def chosen_model(args: argparse.Namespace) -> Iterator[tuple[Model, bool]]:
    """Yield the model to use, and whether it is the small local one; the first line printed says which."""
    local = load_local_model()
    if args.base_url or args.model:
        yield (
            OpenAICompatible(
                args.model or "smollm2", base_url=args.base_url, max_tokens=args.max_tokens, temperature=0
            ),
            args.small,
        )
    elif os.environ.get("OPENAI_API_KEY") and not args.local:
        yield OpenAICompatible("gpt-5-mini"), False
    elif args.local or local.available():
        with local.serving() as base_url:
            yield OpenAICompatible(local.MODEL, base_url=base_url, max_tokens=120, temperature=0), True
    else:
        yield scripted(resumed=args.resume is not None), False


def load_local_model():  # a module
    """Import scripts/local_model.py, which starts the local model's server."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import local_model

    return local_model


async def first_conversation(agent: Agent) -> State:
    """Ask the question in a new State."""
    state = State(messages=[Message.user(QUESTION)])
    print(f"\nyou: {QUESTION}\nagent: ", end="")
    await agent.run(state)
    return state


async def resumed_conversation(agent: Agent, state_id: str) -> State:
    """Ask the follow-up in a State that another process saved."""
    assert agent.store is not None
    state = await agent.store.load(state_id)
    print(
        f"\n[process {os.getpid()} loaded {state_id}: {len(state.history)} entries]\n\nyou: {FOLLOW_UP}\nagent: ",
        end="",
    )
    await state.add_message(Message.user(FOLLOW_UP))
    await agent.run(state)
    return state


def show(state: State, store: FileStore) -> None:
    """Print what the State holds, and where it lies."""
    usage = state.usage
    print(f"\n\nanswer: {state.answer}\n\nhistory of {state.id}:\n{state}\n")
    print(f"tokens: {usage.input_tokens} read, {usage.output_tokens} written, in {usage.requests} requests")
    print(f"saved in: {store.folder}/{state.id}.jsonl")


def main(args: argparse.Namespace) -> None:
    """Run one process of the demo: the first, or with --resume the second."""
    store = FileStore(args.store)
    with chosen_model(args) as (model, small):
        print(
            f"model: {model.name}"
            + (" (scripted: build a real one with make local-model)" if model.name.startswith("fake/") else "")
        )
        agent = Agent(
            model=model,
            system="You answer questions about text files.",
            tools=reading_tools(args.folder),
            loop=read_then_answer if small else default_loop,
            reporter=Printer(),
            store=store,
            name="reader",
        )
        if args.resume:
            show(trio.run(resumed_conversation, agent, args.resume), store)
            return
        state = trio.run(first_conversation, agent)
        show(state, store)
        second = [
            sys.executable,
            __file__,
            "--resume",
            state.id,
            "--store",
            str(args.store),
            "--folder",
            str(args.folder),
        ]
        if isinstance(model, OpenAICompatible):
            second += [
                "--model",
                model.model,
                "--base-url",
                model.base_url,
                *(["--small"] if small else []),
                "--max-tokens",
                "120",
            ]
        sys.stdout.flush()
        sys.exit(subprocess.run(second, check=False).returncode)


def parsed() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="the model's name at the server")
    parser.add_argument("--base-url", help="a server that speaks Chat Completions, such as http://127.0.0.1:8080/v1")
    parser.add_argument("--local", action="store_true", help="use the local model")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "docs", help="the files to talk about (default: the docs)"
    )
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "demo", help="where States are saved")
    parser.add_argument("--max-tokens", type=int, help="most tokens of a reply")
    parser.add_argument("--resume", metavar="ID", help="go on with a saved State")
    parser.add_argument("--small", action="store_true", help="lead the model through the tools step by step")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(parsed())
    except (AlpineAgentsError, ValueError) as error:
        sys.exit(f"error: {error}")
    except load_local_model().LocalModelError as error:
        sys.exit(f"error: {error}")
