"""``alpineagents show`` and ``tail``: one conversation, as it is and as it goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import trio
import trio.testing

from alpineagents import Agent, AlpineAgentsError, FileStore, Image, Message, OverloadedError, SQLiteStore, State, tool
from alpineagents.cli._show import tail
from alpineagents.cli._talk import message, pieces, printable
from alpineagents.record import (
    ContextChangeEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    RawBlock,
    Reply,
    TextBlock,
    ToolCall,
    ToolOutcome,
    ToolResultEntry,
)
from alpineagents.testing import FakeModel, tool_call

from .program import COMMAND, environment

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def test_a_conversation_is_shown_as_it_went(here):
    here.agent("reader")

    code, out, err = here("show")

    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert re.fullmatch(r"State \w{26}: 2 turns, 40 tokens, \$0\.00", first)
    assert rest == [
        "",
        "> Go on",
        "* read_file(path='a.py')",
        "* read_file: 149 B",
        *[f"  line {number}" for number in range(8)],
        "  ... and 12 more lines",
        "",
        "It is long.",
        "- until waiting_for_user",
        "",
        "stopped: until waiting_for_user",
    ]
    assert "  line 19\n" in here("show", "--whole")[1]


def test_an_id_may_be_cut_and_without_one_it_is_the_state_that_changed_last(here):
    async def fill():
        store = FileStore(here.states)
        for name in ("alpha-1", "alpha-2", "beta", "bet"):
            await store.save(State(id=name, messages=[Message.user(f"I am {name}")]))
        state = await store.load("alpha-1")
        await state.add_message(Message.user("changed last"))

    trio.run(fill)

    assert "changed last" in here("show")[1]
    assert "I am alpha-2" in here("show", "alpha-2")[1]
    assert "I am bet\n" in here("show", "bet")[1]
    assert "I am beta\n" in here("show", "beta")[1]
    assert here("show", "alpha") == (2, "", "error: 'alpha' is the beginning of 2 ids: alpha-2, alpha-1\n")
    assert here("show", "gamma") == (1, "", f"error: no State gamma in {here.states}\n")
    assert here("show", "../x")[0] == 1


def test_of_many_ids_that_begin_so_a_few_are_named(here):
    async def fill():
        for number in range(5):
            await FileStore(here.states).save(State(id=f"x{number}", messages=[Message.user("hi")]))

    trio.run(fill)

    assert here("show", "x")[2] == "error: 'x' is the beginning of 5 ids: x4, x3, x2, ...\n"


def test_where_there_is_no_state_it_says_so(here):
    assert here("show")[0] == 1
    here.states.mkdir(parents=True)
    assert here("show") == (1, "", f"error: there is no State in FileStore('{here.states}') yet\n")


def test_json_is_what_is_saved(here):
    here.agent("reader")
    (log,) = here.states.glob("*.jsonl")

    out = here("show", "--json")[1]

    assert [json.loads(line)["kind"] for line in out.splitlines()][:3] == [
        "context_change",
        "run_start",
        "model_request",
    ]
    assert out.encode().splitlines() == list(trio.run(FileStore(here.states).read, log.stem))


def test_messages_are_what_the_model_sees(here):
    here.agent("reader")

    shown = [json.loads(line) for line in here("show", "--messages")[1].splitlines()]

    assert [each["role"] for each in shown] == ["user", "assistant", "tool", "assistant"]
    assert shown[0] == {"role": "user", "blocks": [{"type": "text", "text": "Go on"}]}
    assert shown[2]["blocks"][0]["content"][0]["text"].endswith("line 19")


def test_a_state_in_the_middle_of_a_turn_is_shown_as_that(here):
    @tool
    async def hang() -> str:
        """Hang."""
        return ""

    async def fill():
        state = State(id="waiting", messages=[Message.user("go")])
        agent = Agent(model=FakeModel([tool_call("hang")]), tools=[hang], store=FileStore(here.states))
        await agent.think(state)

    trio.run(fill)

    assert here("show", "wait")[1].splitlines()[-1] == "1 pending call: hang"


@pytest.mark.parametrize(
    ("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_on_a_terminal_it_has_colours_unless_they_are_not_wanted(here, monkeypatch, variables, is_coloured):
    here.agent("breaker", "-y")
    master, slave = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with open(slave, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        here("show")
    shown = os.read(master, 100_000).decode()
    os.close(master)

    assert ("\x1b[1m> Go on\x1b[0m" in shown) == is_coloured
    assert ("\x1b" in shown) == is_coloured


# ---- Pieces


def shown(state):
    return [piece.text for entry in state.history for piece in pieces(entry)]


def test_what_a_terminal_would_act_on_is_not_printed_as_it_is():
    assert printable("a\tb\r\nc\x1b[31m\x07\u202e\ud800") == "a   b\nc?[31m???"


def test_every_kind_of_entry_is_shown_or_only_tells_that_something_began():
    model = FakeModel(
        [
            [tool_call("read", path="x"), tool_call("unknown")],
            "Done.",
            "yes",
            "a summary",
            OverloadedError("refused\nby all"),
        ]
    )

    @tool
    async def read(path: str) -> str:
        """Read."""
        return " "

    agent = Agent(model=model, tools=[read])
    state = State(messages=[Message.user("Look", Image(PNG)), Message.assistant("Well?"), Message.notice("note")])
    with state.edit_extra_data() as data:
        data["a"] = 1

    async def play():
        state.add_message(Message.user("two\nlines"))
        await agent.run(state)
        await agent.ask(state, "Sure?")
        await agent.compact(state)
        with pytest.raises(AlpineAgentsError, match="refused"):
            await agent.think(state)

    trio.run(play)

    assert shown(state)[:7] == [
        "> Look",
        "> (image)",
        "Well?",
        "> [notice] note",
        "> two\n> lines",
        "* read(path='x')",
        "* unknown()",
    ]
    assert any(text.startswith("* unknown: input_error, ") for text in shown(state))
    assert shown(state)[-3:] == ["- Sure? -> 'yes'", "- compact: a summary", "! OverloadedError: refused by all"]


def test_a_result_without_text_and_what_happened_on_the_way_are_a_line_each():
    state = State(messages=[Message.user("x")])
    at = state.history[0].at
    call = ToolCall("c1", "look", {})

    result = ToolResultEntry(1, 1, at, (Image(PNG),), call=call, outcome=ToolOutcome.DONE, late=True)
    event = ModelEventEntry(1, 1, at, ModelEvent("retry", "in 2 s"))

    assert [piece.text for piece in pieces(result)] == ["* look: 1 attachment, late"]
    assert [piece.text for piece in pieces(event)] == ["- retry: in 2 s"]


def test_a_call_whose_arguments_are_malformed_and_blocks_of_others_are_shown_too():
    call = ToolCall("c1", "read", None, '{"path": "x')
    reply = Reply([TextBlock(" "), RawBlock("nobody", {"type": "new"}), call])
    state = State(messages=[Message.user("x")])
    entry = ModelReplyEntry(1, 1, state.history[0].at, reply)

    assert [piece.text for piece in pieces(entry)] == ['* read({"path": "x)']
    assert [piece.text for piece in message(Message.user(" a"))] == [">  a"]
    assert isinstance(state.history[0], ContextChangeEntry)


# ---- tail


def test_a_state_that_is_finished_is_shown_to_its_end(here):
    here.agent("ender", "-y")

    code, out, _ = here("tail")
    assert code == 0
    assert out.splitlines()[-2:] == ["* end: 5 B", "  ended"]
    assert here("tail", "-n", "1")[1].splitlines() == ["* end: 5 B", "  ended"]
    assert here("tail", "-n", "0")[1] == ""
    assert [json.loads(line)["kind"] for line in here("tail", "--json", "-n", "2")[1].splitlines()] == [
        "stop",
        "tool_result",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FileStore, SQLiteStore])
async def test_entries_are_shown_as_another_process_records_them_until_the_state_is_finished(home, kind):
    store = kind(home / ("runs" if kind is FileStore else "runs.db"))
    state = State(id="live", messages=[Message.user("Begin")])

    @tool
    async def end(state: State) -> str:
        """End."""
        state.finish("over")
        return "ended"

    agent = Agent(model=FakeModel(["First.", tool_call("end")]), tools=[end], store=store)
    async with store:
        await store.save(state)
        process = await trio.lowlevel.open_process(
            [*COMMAND, "tail", "live", "--store", getattr(store, "folder", None) or store.path],
            env=environment(home),
            stdout=subprocess.PIPE,
        )
        shown = Shown(process)
        await shown.until("> Begin\n")
        await agent.run(state)
        await shown.until("First.\n- until waiting_for_user\n")
        await state.add_message(Message.user("And now?"))
        await shown.until("> And now?\n")
        await agent.run(state)
        await shown.until("* end: 5 B\n  ended\n")
        assert await process.wait() == 0
        await process.stdout.aclose()


async def test_it_ends_with_the_last_result_behind_the_finish(tmp_path, nursery, capsys):
    store = FileStore(tmp_path)
    store.poll_seconds = 0.01
    free = trio.Event()

    @tool
    async def end(state: State) -> str:
        """End."""
        state.finish("over")
        await free.wait()
        return "ended"

    state = State(id="live", messages=[Message.user("Begin")])
    agent = Agent(model=FakeModel([tool_call("end")]), tools=[end], store=store)
    await store.save(state)
    nursery.start_soon(agent.run, state)
    while state.stopped is None:
        await trio.lowlevel.checkpoint()
    nursery.start_soon(set_later, free)
    await tail("live", store=str(tmp_path))

    assert capsys.readouterr().out.endswith("* end: 5 B\n  ended\n")


async def set_later(event):
    await trio.testing.wait_all_tasks_blocked()
    event.set()


async def test_ctrl_c_ends_it_without_a_traceback(home):
    store = FileStore(home / "runs")
    await store.save(State(id="idle", messages=[Message.user("Begin")]))
    process = await trio.lowlevel.open_process(
        [*COMMAND, "tail", "--store", home / "runs"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    await Shown(process).until("> Begin\n")
    process.send_signal(2)
    err = b"".join([chunk async for chunk in process.stderr])
    assert (await process.wait(), err) == (130, b"")
    await process.stderr.aclose()
    await process.stdout.aclose()


class Shown:
    """What a process prints."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.text = ""

    async def until(self, end: str) -> None:
        while not self.text.endswith(end):
            with trio.fail_after(30):
                chunk = await self.process.stdout.receive_some()
            assert chunk, f"it ended after {self.text!r}"
            self.text += chunk.decode()
