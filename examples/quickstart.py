"""An agent with two tools answers a question about a folder of text files; its conversation is saved and gone on with.

    python examples/quickstart.py                        the local model if it is built, else a scripted one
    python examples/quickstart.py --local                the local model (make local-model builds it)
    python examples/quickstart.py --local --format messages             the same, in Anthropic's format
    python examples/quickstart.py --model qwen3 --base-url http://127.0.0.1:11434/v1

With ``OPENAI_API_KEY`` in the environment it asks OpenAI.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import trio

from alpineagents import (
    Agent,
    AlpineAgentsError,
    Anthropic,
    FileStore,
    Message,
    Model,
    OpenAI,
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
FOLLOW_UP = "And what does loading do?"
LONGEST = 4_000
"""Characters of a file that the model gets."""


def text_files(folder: Path) -> list[str]:
    """Return the names of the text files in *folder*."""
    names = sorted(entry.name for entry in folder.glob("*.md") if not entry.is_dir())
    if not names:
        raise ValueError(f"{folder} has no text files (*.md); name another one: --folder docs")
    return names


def question(folder: Path) -> str:
    """Return what to ask about *folder*."""
    names = text_files(folder)
    return f"Read {'saving.md' if 'saving.md' in names else names[0]} and explain it in simple words."


def reading_tools(folder: Path, *, introductions_only: bool) -> list[Tool]:
    """Return tools that look into *folder*, and nowhere else."""
    names = text_files(folder)
    Name = Literal[tuple(names)]  # so the model can only ask for files that exist

    @tool
    def list_files() -> list[str]:
        """List the text files."""
        return names

    @tool
    def read_file(name: Name) -> str:
        """Read a text file."""
        text = (folder / name).read_text(encoding="utf-8")
        paragraphs = [part.strip() for part in text.split("\n\n") if not part.startswith(("#", "`"))]
        return " ".join(paragraphs[0].split()) if introductions_only and paragraphs else text[:LONGEST]

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
    """For a very small model: have it read a file, then ask for one thing only."""
    if any(message.role == "tool" for message in state.messages):
        await agent.think(state, tools=[])
    else:
        await agent.think(state, tools=["read_file"], tool_choice="required")
        await agent.use_tools(state)
        state.add_message(Message.user("Thank you. Now write a short summary of the text, in plain English sentences."))


def scripted(*, resumed: bool) -> FakeModel:
    """A model that needs no network: it plays a reader, on what the tools really returned."""

    def asked_for(request: Request) -> ToolCall:
        return tool_call("read_file", name=request.messages[0].text.split()[1])

    def sentences(request: Request) -> list[str]:
        results = [block for message in request.messages if message.role == "tool" for block in message.blocks]
        prose = [
            part for part in results[-1].content[0].text.split("\n\n") if not part.startswith(("#", "`", "|", "*"))
        ]
        return re.split(r"(?<=[.:]) ", " ".join(" ".join(prose).split()))

    def answer(request: Request) -> str:
        return f"In short: {sentences(request)[0]}"

    def follow_up(request: Request) -> str:
        about = [sentence for sentence in sentences(request) if "load" in sentence.lower()]
        return f"It says: {about[0] if about else 'nothing about that.'}"

    first = [["Let me see what is there.", tool_call("list_files")], asked_for, answer]
    return FakeModel([follow_up] if resumed else first, name="fake/scripted")


@contextmanager
def chosen_model(args: argparse.Namespace) -> Iterator[tuple[Model, bool]]:
    """Yield the model to use, and whether it is the small local one."""
    local = load_local_model()
    if args.base_url or args.model:
        settings = SMALL if args.small else {}
        yield in_format(args.format, args.model or local.MODEL, args.base_url, **settings), args.small
    elif os.environ.get("OPENAI_API_KEY") and not args.local:
        yield OpenAI("gpt-5-mini"), False
    elif args.local or local.available():
        with local.serving() as base_url:
            yield in_format(args.format, local.MODEL, base_url, **SMALL), True
    else:
        yield scripted(resumed=args.resume is not None), False


def in_format(name: str, model: str, base_url: str | None, **settings: Any) -> Model:
    """Return a model at a server that speaks several formats, such as llama.cpp's."""
    if name == "messages":
        return Anthropic(model, base_url=base_url and base_url.removesuffix("/v1"), **settings)
    return (OpenAI if name == "responses" else OpenAICompatible)(model, base_url=base_url, **settings)


SMALL = {"max_tokens": 80, "temperature": 0, "extra_body": {"repeat_penalty": 1.1}}
"""Settings that keep the local model, which has 135 million parameters, to the point."""


def load_local_model():  # a module
    """Import scripts/local_model.py, which starts the local model's server."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import local_model

    return local_model


async def first_conversation(agent: Agent, prompt: str) -> State:
    """Ask the question in a new State."""
    state = State(messages=[Message.user(prompt)])
    print(f"\nyou: {prompt}\nagent: ", end="", flush=True)
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
    print(f"saved in: {os.path.relpath(store.folder)}/{state.id}.jsonl")


def second_process(args: argparse.Namespace, model: Model, state: State, *, small: bool) -> list[str]:
    """Return the command that goes on with *state*, on the same model."""
    command = [sys.executable, __file__, "--resume", state.id, "--store", str(args.store), "--folder", str(args.folder)]
    if isinstance(model, Anthropic | OpenAI | OpenAICompatible):
        command += ["--model", model.model, "--base-url", model.base_url, "--format", args.format]
    return [*command, "--small"] if small else command


def main(args: argparse.Namespace) -> None:
    """Run one process of the demo: the first, or with --resume the second."""
    store = FileStore(args.store)
    with chosen_model(args) as (model, small):
        hint = " (scripted; make local-model builds a real one)" if isinstance(model, FakeModel) else ""
        print(f"model: {model.name}{hint}")
        agent = Agent(
            model=model,
            system="You are a helpful assistant.",
            tools=reading_tools(args.folder, introductions_only=small),
            loop=read_then_answer if small else default_loop,
            reporter=Printer(),
            store=store,
            name="reader",
        )
        if args.resume:
            show(trio.run(resumed_conversation, agent, args.resume), store)
            return
        state = trio.run(first_conversation, agent, question(args.folder))
        show(state, store)
        sys.stdout.flush()
        sys.exit(subprocess.run(second_process(args, model, state, small=small), check=False).returncode)


def parsed() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="the model's name at the server")
    parser.add_argument("--base-url", help="a server, such as http://127.0.0.1:8080/v1")
    parser.add_argument(
        "--format", choices=("chat", "messages", "responses"), default="chat", help="what to speak to it"
    )
    parser.add_argument("--local", action="store_true", help="use the local model")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "docs", help="the files to talk about (default: the docs)"
    )
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "demo", help="where States are saved")
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
