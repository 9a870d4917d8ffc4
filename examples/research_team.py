"""A lead with ten subagents at once: each reads one file of a folder, the lead puts together what they found.

    python examples/research_team.py             scripted models: no network, a second
    python examples/research_team.py --local     the local model (make local-model builds it): a few minutes
    python examples/research_team.py --model qwen3 --base-url http://127.0.0.1:11434/v1

Everything that happens in the team comes as one stream of events. All of it has one budget, and every conversation is
saved.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Literal

import trio
from quickstart import ROOT, SMALL, in_format, load_local_model

from alpineagents import (
    Agent,
    AlpineAgentsError,
    Budget,
    Emit,
    EntryAdded,
    FileStore,
    Message,
    Model,
    ModelEventEntry,
    Reply,
    Request,
    RunEnd,
    State,
    TextBlock,
    Tool,
    ToolCall,
    ToolStart,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

TEAM = 10
"""How many subagents there are, if the folder has as many files."""
LONGEST = 6_000
"""Characters of a file that a reader gets."""


def files_of(folder: Path) -> list[str]:
    """Return the names of the first text files in *folder*, then of those in the folders in it."""
    names = sorted(
        [path.relative_to(folder).as_posix() for path in folder.rglob("*.md")], key=lambda name: ("/" in name, name)
    )
    if not names:
        raise ValueError(f"{folder} has no text files (*.md); name another one: --folder docs")
    return names[:TEAM]


def reading_tool(folder: Path, *, introductions_only: bool) -> Tool:
    """Return a tool that reads the files of *folder*, and nothing else."""
    Name = Literal[tuple(files_of(folder))]  # so the model can only ask for files that exist

    @tool
    async def read_file(name: Name) -> str:
        """Read a text file."""
        text = await trio.Path(folder / name).read_text(encoding="utf-8")
        return prose(text)[:400] if introductions_only else text[:LONGEST]

    return read_file


def prose(text: str) -> str:
    """Return the paragraphs of a Markdown text, without headings, code and lists."""
    paragraphs = [part.strip() for part in text.split("\n\n")]
    return " ".join([" ".join(part.split()) for part in paragraphs if part and part[0] not in "#`|*-<>"])


# The models


def scripted_lead(names: list[str]) -> FakeModel:
    """A model that asks a reader about every file, all at once, and lists what they answer."""

    def answer(request: Request) -> str:
        return "What is in the files:\n" + "\n".join(f"  {line}" for line in found(request))

    return FakeModel([["I ask a reader about each file.", *tasks(names)], answer], name="fake/lead")


def scripted_reader() -> FakeModel:
    """A model that reads the file it is asked about, and answers with the first sentence."""

    def answer(request: Request) -> str | ToolCall:
        name = request.messages[0].text.removeprefix("Read ").partition(" and say ")[0]  # as tasks() writes it
        if request.messages[-1].role != "tool":
            return tool_call("read_file", name=name)
        sentence = re.search(r".{20,}?[.!?](?=\s|$)", prose(found(request)[0]))
        return f"{name}: {sentence[0].strip() if sentence else 'no sentence'}"

    return FakeModel(answer, name="fake/reader")


def tasks(names: list[str]) -> list[ToolCall]:
    """Return the calls that give every reader its file."""
    return [tool_call("reader", prompt=f"Read {name} and say in a sentence what it is about.") for name in names]


def found(request: Request) -> list[str]:
    """Return what the tools have given."""
    blocks = [block for message in request.messages if message.role == "tool" for block in message.blocks]
    return [part.text for block in blocks for part in block.content if isinstance(part, TextBlock)]


class Planned(Model):
    """A model whose first reply is made by a program: for a model too small to plan for a team."""

    def __init__(self, model: Model, plan: list[ToolCall]) -> None:
        self.model = model
        self.name = model.name
        self.context_window = model.context_window
        self.max_tokens = model.max_tokens
        self.price = model.price
        self._plan = plan

    def session(self) -> AbstractAsyncContextManager[None]:
        return self.model.session()

    async def respond(self, request: Request, emit: Emit) -> Reply:
        if any(message.role == "assistant" for message in request.messages):
            return await self.model.respond(request, emit)
        await trio.lowlevel.checkpoint()
        return Reply(tuple(self._plan), self.name, "tool_calls")


@loop(until=waiting_for_user, limit=4)
async def read_then_answer(agent: Agent, state: State) -> None:
    """For a very small model: have it read a file, then ask for one thing only."""
    if any(message.role == "tool" for message in state.messages):
        await agent.think(state, tools=[])
    else:
        await agent.think(state, tools=["read_file"], tool_choice="required")
        await agent.use_tools(state)
        state.add_message(Message.user("Thank you. Now write a short summary of the text, in plain English sentences."))


@loop(until=waiting_for_user, limit=4)
async def ask_then_sum_up(agent: Agent, state: State) -> None:
    """For a very small model: once the readers have answered, ask for one thing only."""
    if state.turn == 0:
        await agent.think(state)
        await agent.use_tools(state)
        state.add_message(
            Message.user("Thank you. Now write a short summary of these texts, in plain English sentences.")
        )
    else:
        await agent.think(state, tools=[])


@contextmanager
def chosen_models(args: argparse.Namespace, names: list[str]) -> Iterator[tuple[Model, Model, bool]]:
    """Yield the models of the lead and of the readers, and whether it is the small local one."""
    if args.local:
        local = load_local_model()
        with local.serving() as base_url:
            model = in_format("chat", local.MODEL, base_url, **SMALL)
            yield Planned(model, tasks(names)), model, True
    elif args.model:
        model = in_format("chat", args.model, args.base_url)
        yield model, model, False
    else:
        yield scripted_lead(names), scripted_reader(), False


# The team


def team(args: argparse.Namespace, lead_model: Model, reader_model: Model, *, small: bool) -> Agent:
    """Return the lead, with the reader among its tools."""
    reader = Agent(
        name="reader",
        description="Reads one file and answers a question about it.",
        model=reader_model,
        system="You are a helpful assistant.",
        tools=[reading_tool(args.folder, introductions_only=small)],
        loop=read_then_answer if small else default_loop,
    )
    return Agent(
        name="lead",
        model=lead_model,
        system="You lead a team. Ask a reader about each file, all in one reply; then sum up what they found.",
        tools=[reader],
        loop=ask_then_sum_up if small else default_loop,
        store=FileStore(args.store),
        budget=Budget(requests=100, tokens=500_000),
    )


async def research(lead: Agent, names: list[str]) -> State:
    """Run the team and tell what happens; return the State of the lead."""
    print(f"\nyou: What is in {', '.join(names)}?\n")
    began, running, most = trio.current_time(), 0, 0
    readers: set[State] = set()
    async with lead.stream(f"What is in these files: {', '.join(names)}?") as run:
        async for event in run:
            if event.state is run.state:
                continue
            readers.add(event.state)
            name = f"reader {number_of(event.state, run.state)}"
            match event:
                case EntryAdded(entry=entry) if entry.kind == "run_start":
                    running += 1
                    most = max(most, running)
                case EntryAdded(entry=ModelEventEntry(content=content)):
                    print(f"  {name}: {content.text}")
                case ToolStart(call=call):
                    print(f"  {name} -> {call.name}({(call.args or {}).get('name')!r})")
                case RunEnd(answer=answer):
                    running -= 1
                    print(f"  {name} is done: {shortened(str(answer))}")
                case _:
                    pass
        seconds = trio.current_time() - began
        team = "1 subagent" if len(readers) == 1 else f"{len(readers)} subagents, {most} at once"
        print(f"\nanswer: {run.answer}\n\n{team}, in {seconds:.1f} s")
        return run.state


def number_of(reader: State, lead: State) -> int:
    """Return which of the lead's calls a reader was started by, the first being 1."""
    calls = [call.id for message in lead.messages for call in message.tool_calls]
    return calls.index(reader.parent_call_id or "") + 1


def shortened(text: str, length: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


async def show_saved(lead: Agent, state: State, folder: Path) -> None:
    """Print what the store has: the lead's conversation, and those of its subagents below it."""
    assert lead.store is not None
    children = await lead.store.list(parent_id=state.id)
    usage = state.usage
    print(f"tokens: {usage.input_tokens} read, {usage.output_tokens} written, in {usage.requests} requests")
    print(f"saved in {folder}: {state.id}, and below it a State for each subagent ({len(children)})")


async def main(args: argparse.Namespace) -> None:
    """Run the demo."""
    names = files_of(args.folder)
    with chosen_models(args, names) as (lead_model, reader_model, small):
        print(f"models: {lead_model.name} leads, {reader_model.name} reads")
        lead = team(args, lead_model, reader_model, small=small)
        state = await research(lead, names)
        await show_saved(lead, state, args.store)


def parsed() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local", action="store_true", help="use the local model")
    parser.add_argument("--model", help="the model's name at the server")
    parser.add_argument("--base-url", help="a server, such as http://127.0.0.1:8080/v1")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs", help="the files to read (default: the docs)")
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "team", help="where States are saved")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        trio.run(main, parsed())
    except (AlpineAgentsError, ValueError) as error:
        sys.exit(f"error: {error}")
    except load_local_model().LocalModelError as error:
        sys.exit(f"error: {error}")
