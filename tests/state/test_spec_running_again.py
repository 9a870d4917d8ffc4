"""A State that ran, or that a store loaded, goes on: with which Agent, from where, and what was left open."""

from __future__ import annotations

import contextlib
import copy
import pickle
import warnings
from collections.abc import Iterator, Sequence
from typing import final

import attrs
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    Emit,
    Entry,
    ErrorEntry,
    ExtraDataEntry,
    FileStore,
    MemoryStore,
    Message,
    MessageEntry,
    Model,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    Request,
    ResumeWarning,
    RunStartEntry,
    State,
    StateInfo,
    StopEntry,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByUntil,
    TextBlock,
    ToolCall,
    ToolOutcome,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
    freeze,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.record._codec import encode_entry, encode_info
from alpineagents.record._conversation import first_fault
from alpineagents.testing import FakeModel, tool_call

from ..states import assert_replays, values
from .test_state import AT, texts


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def saved_in(store: MemoryStore, history: Sequence[Entry], state_id: str = "saved") -> MemoryStore:
    """The store with these entries, as a process left them."""
    await store.append(state_id, 0, [encode_entry(entry) for entry in history], encode_info(StateInfo(id=state_id)))
    return store


async def loaded_from(history: Sequence[Entry]) -> State:
    return await (await saved_in(MemoryStore(), history)).load("saved")


def ran_by(*infos: AgentInfo) -> list[Entry]:
    """A history of runs with these Agents, each ending at once."""
    history: list[Entry] = list(State(messages=[Message.user("go"), Message.assistant("hello")]).history)
    for info in infos:
        history.append(RunStartEntry(len(history), 0, history[0].at, info))
        history.append(StopEntry(len(history), 0, history[0].at, StoppedByUntil("waiting_for_user")))
    return history


@contextlib.contextmanager
def warned() -> Iterator[list[ResumeWarning]]:
    found: list[ResumeWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found.extend(one.message for one in caught if isinstance(one.message, ResumeWarning))


# The warning


BEFORE = AgentInfo(
    name="old", model="fake/old", system_sha256="ab" * 32, tools=("add", "both", "zip"), mcp_servers=("files", "web")
)


async def test_the_warning_names_every_difference_in_one_order():
    state = await loaded_from(ran_by(BEFORE))
    other = Agent(name="new", model=FakeModel(name="fake/new"), system="You add.", tools=[multiply, add])

    with warned() as found:
        await other.run(state)

    [warning] = found
    assert str(warning).endswith(
        ": name: old -> new; tools: removed both, removed zip, added multiply; model: fake/old -> fake/new;"
        " system: changed; MCP servers: removed files, removed web"
    )
    assert state.id in str(warning)
    assert list(warning.changes) == ["name", "tools", "model", "system_sha256", "mcp_servers"]
    assert set(warning.changes) == {field.name for field in attrs.fields(AgentInfo)}
    assert warning.changes["system_sha256"][0] == "ab" * 32
    assert len(warning.changes["system_sha256"][1]) == 64
    assert warning.changes["mcp_servers"] == (("files", "web"), ())
    assert warning.changes["tools"] == (("add", "both", "zip"), ("add", "multiply"))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (AgentInfo(model="fake/fake"), {"name": "new"}, "name: None -> new"),
        (AgentInfo(model="fake/fake", name="old"), {}, "name: old -> None"),
        (AgentInfo(model="fake/fake", system_sha256="ab"), {}, "system: changed"),
        (AgentInfo(model="fake/fake"), {"system": ""}, "system: changed"),
        (AgentInfo(model="fake/fake"), {"tools": [add]}, "tools: added add"),
        (AgentInfo(model="fake/fake", tools=("add",)), {}, "tools: removed add"),
        (AgentInfo(model="fake/old"), {}, "model: fake/old -> fake/fake"),
    ],
)
async def test_one_difference_is_said_alone(before, after, said):
    state = await loaded_from(ran_by(before))

    with warned() as found:
        await Agent(model=FakeModel(), **after).run(state)

    assert [str(warning).partition("another Agent: ")[2] for warning in found] == [said]
    assert len(found[0].changes) == 1


async def test_the_order_of_the_tools_is_no_difference():
    state = await loaded_from(ran_by(AgentInfo(model="fake/fake", tools=("multiply", "add"))))

    with warned() as found:
        await Agent(model=FakeModel(), tools=[multiply, add]).run(state)

    assert found == []


async def test_the_agent_is_compared_with_the_one_of_the_last_run():
    state = await loaded_from(ran_by(BEFORE, AgentInfo(model="fake/fake")))

    with warned() as found:
        await Agent(model=FakeModel()).run(state)

    assert found == []


async def test_a_restore_to_before_the_last_run_does_not_change_which_agent_ran_it():
    history = ran_by(BEFORE, AgentInfo(model="fake/fake"))
    state = State(history=history)
    state.restore(State(history=history[:3]).snapshot())
    state = await loaded_from(list(state.history))

    with warned() as found:
        await Agent(model=FakeModel()).run(state)

    assert found == []


async def test_a_loaded_state_that_never_ran_has_nothing_to_be_compared_with():
    state = await loaded_from(ran_by())

    with warned() as found:
        await Agent(model=FakeModel(), name="any").run(state)

    assert found == []


async def test_what_is_no_run_neither_warns_nor_counts_as_the_first():
    state = await loaded_from(ran_by(BEFORE))
    other = Agent(model=FakeModel(["hm", "42", "summary"]), tools=[add])

    with warned() as found:
        state.add_message(Message.user("more"))
        await other.think(state)
        await other.ask(state, "why?")
        await other.compact(state)
        with state.edit_extra_data() as data:
            data["n"] = 1
    assert found == []
    with warned() as found:
        await other.copy(loop=once).run(state.fork())
    assert found == [], "a fork isn't loaded"

    with warned() as found:
        await other.copy(loop=once).run(state)
    assert len(found) == 1


@loop(until=waiting_for_user, limit=1)
async def once(agent: Agent, state: State) -> None:
    await trio.lowlevel.checkpoint()


async def test_a_run_that_is_refused_has_compared_nothing_and_one_that_fails_has():
    state = await loaded_from(ran_by(BEFORE))
    other = Agent(model=FakeModel([ConnectionError("gone"), "one"]))
    state.add_message(Message.user("more"))
    with state.in_run(), warned() as found, pytest.raises(ValueError, match="in a run"):
        await other.run(state)
    assert found == []

    with warned() as found, pytest.raises(ConnectionError):
        await other.run(state)
    assert len(found) == 1

    with warned() as found:
        assert await other.run(state) == "one"
    assert found == []


async def test_a_warning_that_is_an_error_comes_again_until_it_is_let_through_and_then_no_more():
    state = await loaded_from(ran_by(BEFORE))
    other = Agent(model=FakeModel())
    before = values(state)

    for _ in range(3):
        with pytest.raises(ResumeWarning):  # as all warnings are errors here
            await other.run(state)
        assert values(state) == before
        assert not state.running

    with warned() as found:
        await other.run(state)
    await other.run(state)
    assert len(found) == 1


async def test_saving_and_loading_again_compares_again():
    store = await saved_in(MemoryStore(), ran_by(BEFORE))
    other = Agent(model=FakeModel(), store=store)
    for expected in (1, 0):
        with warned() as found:
            await other.run(await store.load("saved"))
        assert len(found) == expected


# Runs


async def test_a_second_run_is_refused_before_its_agent_is_told_anything():
    state, other = State(messages=[Message.user("go")]), Agent(model=FakeModel(), store=MemoryStore())
    asked: list[str] = []

    async def first(request: object) -> str:
        for again in (other.run(state), Agent(model=FakeModel(), name="third").run(state)):
            before = values(state)
            with pytest.raises(ValueError, match=r"in a run already.*state\.fork\(\)"):
                await again
            assert values(state) == before
            asked.append("again")
        return "one"

    assert await Agent(model=FakeModel([first])).run(state) == "one"
    assert asked == ["again", "again"]
    assert other.model.requests == []
    assert list(await other.store.list()) == []


async def test_a_state_runs_again_and_again_with_any_agent_and_its_history_is_one():
    state = State()
    for n in range(5):
        state.add_message(Message.user(f"question {n}"))
        answer = await Agent(model=FakeModel([tool_call("add", a=n, b=n), f"answer {n}"]), tools=[add]).run(state)
        assert answer == state.answer == f"answer {n}"

    assert state.turn == 10
    assert [entry.content.model for entry in state.history if entry.kind == "run_start"] == ["fake/fake"] * 5
    assert state.stopped == StoppedByUntil("waiting_for_user")
    assert_replays(state)


async def test_an_empty_state_runs_and_its_loop_may_say_the_first_word():
    @loop(until=waiting_for_user, limit=2)
    async def body(agent: Agent, state: State) -> None:
        if not len(state.messages):
            state.add_message(Message.notice("go"))
        await agent.think(state)

    state = State()

    assert await Agent(model=FakeModel(["hello"]), loop=body).run(state) == "hello"
    assert [entry.kind for entry in state.history][:2] == ["run_start", "notice"]


async def test_a_run_whose_loop_thinks_on_an_empty_state_fails_and_the_state_can_go_on():
    state, agent = State(), Agent(model=FakeModel(["hello"]))

    with pytest.raises(ValueError, match=r"no messages.*Message\.user\("):
        await agent.run(state)

    assert [entry.kind for entry in state.history] == ["run_start", "error"]
    assert state.turn == 0
    state.add_message(Message.user("go"))
    assert await agent.run(state) == "hello"


async def test_the_reason_of_the_last_stop_is_gone_when_the_next_run_starts():
    state = State(messages=[Message.user("go")])
    state.commit(lambda snap, at: StopEntry(snap.length, snap.turn, at, StoppedByLimit(3)))
    seen = []

    def answer(request: object) -> str:
        seen.append(state.stopped)
        return "hello"

    await Agent(model=FakeModel([answer])).run(state)

    assert seen == [None]


# What was open when a process ended


CALLS = tuple(ToolCall(f"c{n}", "add", {"a": n, "b": n}) for n in range(3))
LATER = ToolCall("later", "add", {"a": 1, "b": 1})


def said(seq: int, turn: int, text: str) -> Entry:
    """What a person, or at even positions the code, said in between."""
    return MessageEntry(seq, turn, AT, Message.user(text) if seq % 2 else Message.notice(text))


RICH: list[Entry] = [
    ContextChangeEntry(0, 0, AT, ContextChange(kind="import", messages=(Message.user("go"),))),
    ExtraDataEntry(1, 0, AT, freeze({"n": 1})),
    RunStartEntry(2, 0, AT, AgentInfo(model="fake/fake", tools=("add",))),
    ModelRequestEntry(3, 1, AT, "fake/fake"),
    said(4, 1, "during the request"),
    ModelReplyEntry(5, 1, AT, Reply((TextBlock("let me see"), *CALLS))),
    ToolResultEntry(6, 1, AT, (TextBlock("2"),), CALLS[1]),
    said(7, 1, "during the calls"),
    ToolResultEntry(8, 1, AT, (TextBlock("no"),), CALLS[0], ToolOutcome.ERROR),
    ToolResultEntry(9, 1, AT, (TextBlock("4"),), CALLS[2]),
    ModelRequestEntry(10, 2, AT, "fake/fake"),
    ErrorEntry(11, 1, AT, "OSError: gone", "think"),
    ModelRequestEntry(12, 2, AT, "fake/fake"),
    said(13, 2, "during the second request"),
    ModelReplyEntry(14, 2, AT, Reply((LATER,))),
    StopEntry(15, 2, AT, StoppedByFinish("early")),
    ToolResultEntry(16, 2, AT, (TextBlock("2"),), LATER),
]
"""Two turns with calls, messages that wait, a request that failed, and an end before the last result."""

each_length = pytest.mark.parametrize("length", range(1, len(RICH) + 1))
OPEN_CALLS = {6: 3, 7: 2, 8: 2, 9: 1, 15: 1, 16: 1}
OPEN_REQUESTS = {4, 5, 11, 13, 14}


@each_length
async def test_wherever_a_history_was_cut_off_it_is_closed_when_it_is_loaded(length):
    store = await saved_in(MemoryStore(), RICH[:length])

    state = await store.load("saved")

    assert list(state.history[:length]) == RICH[:length]
    closing = list(state.history[length:])
    assert len(closing) == OPEN_CALLS.get(length, 0) + (length in OPEN_REQUESTS)
    for entry in closing:
        match entry:
            case ErrorEntry(action="think"):
                assert length in OPEN_REQUESTS
            case ToolResultEntry(outcome=ToolOutcome.ABORTED, content=(TextBlock(text),)):
                assert "may or may not have taken effect" in text
            case _:
                pytest.fail(f"{entry}")
    assert state.pending_calls == ()
    assert first_fault(state.messages) is None
    assert_replays(state)


@each_length
async def test_what_loading_closed_is_saved_by_the_next_save_and_not_closed_again(length):
    store = await saved_in(MemoryStore(), RICH[:length])
    one, other = await store.load("saved"), await store.load("saved")
    assert one.snapshot() == other.snapshot()
    assert values(one)["messages"] == values(other)["messages"]
    assert len(await store.read("saved")) == length

    await store.save(one)

    again = await store.load("saved")
    assert len(await store.read("saved")) == len(one.history)
    assert again.snapshot() == one.snapshot()
    assert [entry.at for entry in again.history] == [entry.at for entry in one.history]


@each_length
async def test_wherever_it_was_cut_off_a_loaded_state_runs_on_or_says_that_it_is_finished(length):
    store = await saved_in(MemoryStore(), RICH[:length])
    state = await store.load("saved")
    model = FakeModel(["on we go"])  # it checks that the request is well formed
    agent = Agent(model=model, tools=[add], store=store)

    if state.finished:
        with pytest.raises(ValueError, match="finished"):
            await agent.run(state)
        assert state.answer == "early"
        return
    assert await agent.run(state) == "on we go"

    sent = [block.content[0].text for m in model.requests[0].messages if m.role == "tool" for block in m.blocks]
    assert sum("may or may not" in text for text in sent) == OPEN_CALLS.get(length, 0)
    assert (await store.load("saved")).snapshot() == state.snapshot()


async def test_messages_that_waited_when_the_process_ended_are_in_the_messages_when_it_is_loaded():
    during_the_request, during_the_calls = await loaded_from(RICH[:5]), await loaded_from(RICH[:8])

    assert texts(during_the_request) == ["go", "[notice] during the request"]
    assert texts(during_the_calls)[3:] == ["[notice] during the request", "during the calls"]
    assert [block.call_id for block in during_the_calls.messages[2].blocks] == ["c0", "c1", "c2"]


async def test_a_request_taken_back_is_no_turn_and_results_that_were_there_stay():
    state = await loaded_from(RICH[:4])
    assert state.turn == 0
    assert state.history[-1].content.startswith("Aborted: ")

    state = await loaded_from(RICH[:7])
    blocks = state.messages[2].blocks
    assert [block.is_error for block in blocks] == [True, False, True]
    assert blocks[1].content == (TextBlock("2"),)
    assert state.turn == 1


async def test_a_state_that_was_closed_properly_is_loaded_as_it_was():
    state = State(messages=[Message.user("go")])
    store = MemoryStore()
    await Agent(model=FakeModel([tool_call("add", a=1, b=2), "3"]), tools=[add], store=store).run(state)

    loaded = await store.load(state.id)

    assert values(loaded) == values(state)
    assert loaded.stopped == StoppedByUntil("waiting_for_user")


@pytest.mark.parametrize("kind", ["memory", "files"])
async def test_a_snapshot_from_before_the_process_ended_can_be_restored_in_the_loaded_state(kind, tmp_path):
    store = MemoryStore() if kind == "memory" else FileStore(tmp_path)
    state = State(id="saved", messages=[Message.user("go")])
    snapshot = state.snapshot()
    await Agent(model=FakeModel(["hello"]), store=store).run(state)
    loaded = await store.load("saved")

    await loaded.restore(snapshot)

    assert texts(loaded) == ["go"]
    assert texts(await store.load("saved")) == ["go"]


def test_a_history_that_no_store_loaded_stays_open():
    """It may be that of a State which goes on in another place."""
    state = State(history=RICH[:6])

    assert state.pending_calls == CALLS
    assert len(state.history) == 6


async def test_a_reply_that_can_not_be_recorded_takes_the_request_back():
    @final
    class Confused(Model):
        name = "confused/model"

        async def respond(self, request: Request, emit: Emit) -> Reply:
            await trio.lowlevel.checkpoint()
            return Reply((ToolResultBlock("c", ()),), usage=Usage(3, requests=1))

    state = State(messages=[Message.user("go")])
    with pytest.raises(ValueError, match="a reply holds tool calls"):
        await Agent(model=Confused()).run(state)

    assert state.turn == 0
    assert str(state).endswith("between turns")
    assert state.usage == Usage(3, requests=1)


@pytest.mark.parametrize("again", [copy.copy, lambda warning: pickle.loads(pickle.dumps(warning))])
def test_a_resume_warning_can_be_copied_and_sent_to_another_process(again):
    """As test runners do with warnings."""
    warning = again(ResumeWarning("tools: added add", {"tools": ((), ("add",))}))

    assert str(warning) == "tools: added add"
    assert warning.changes == {"tools": ((), ("add",))}
