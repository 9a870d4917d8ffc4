"""Failures of conversations that users of other libraries met, each ruled out as a kind. Docstrings name the case."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    BrokenStreamError,
    CorruptStoreError,
    File,
    FileStore,
    Image,
    MemoryStore,
    Message,
    ModelReplyEntry,
    OpenAICompatible,
    Reply,
    Reporter,
    Request,
    State,
    Store,
    StoreError,
    TextBlock,
    Tool,
    ToolCall,
    ToolError,
    ToolInputError,
    ToolOutcome,
    ToolResultEntry,
    Usage,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, Fault, ProviderServer, tool_call

from ..conversations import PNG, StrictModel, chat_bytes, example_share, sent
from ..run.runs import assert_saved, assert_whole, kinds, outcomes
from ..states import assert_replays, values

CHECK = "may or may not have taken effect: check before you do it again"


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "states", fsync=False)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hung thread waits for; open at the end, so that none is left."""
    event = threading.Event()
    yield event
    event.set()


def started(text: str = "go") -> State:
    return State(messages=[Message.user(text)])


def results(state: State) -> dict[str, ToolResultEntry]:
    """The result of each call by its id; none has two."""
    found = [entry for entry in state.history if entry.kind == "tool_result" and not entry.late]
    by_id = {entry.call.id: entry for entry in found}
    assert len(by_id) == len(found)
    return by_id


# A1


class Slow:
    """Tools that don't end by themselves, and what else a run can end by."""

    def __init__(self, calls: int, gate: threading.Event) -> None:
        self.missing = calls
        self.all_started = trio.Event()
        self.gate = gate

    def start(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.all_started.set()

    @tool
    async def task(self) -> str:
        """Sleep."""
        self.start()
        await trio.sleep_forever()
        raise AssertionError

    @tool
    def thread(self) -> str:
        """Hang."""
        trio.from_thread.run_sync(self.start)
        self.gate.wait()
        return "after all"

    @tool
    async def broken(self) -> str:
        """Fail."""
        await self.all_started.wait()
        raise ZeroDivisionError("bug")

    @tool
    async def ctrl_c(self) -> str:
        """Be interrupted."""
        await self.all_started.wait()
        raise KeyboardInterrupt

    @tool
    async def leave(self) -> str:
        """Exit."""
        await self.all_started.wait()
        raise SystemExit(3)


ENDS: dict[str, type[BaseException] | None] = {
    "cancel": None,
    "deadline": None,
    "loop body": LookupError,
    "broken": ZeroDivisionError,
    "ctrl_c": KeyboardInterrupt,
    "leave": SystemExit,
}


@pytest.mark.parametrize("kind", ["task", "thread"])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("end", ENDS)
async def test_however_a_run_ends_every_open_call_has_one_result_and_the_next_message_works(
    end: str, calls: int, kind: str, gate: threading.Event
):
    """A1."""
    slow = Slow(calls, gate)
    names = [kind] * calls + [end] * (end in ("broken", "ctrl_c", "leave"))
    model = StrictModel([[tool_call(name) for name in names], "hello"])

    @loop(until=waiting_for_user, limit=9)
    async def body(agent: Agent, state: State) -> None:
        await agent.think(state)
        if end != "loop body" or not state.pending_calls:
            await agent.use_tools(state)
            return
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def fail() -> None:
                    await slow.all_started.wait()
                    scope.cancel()

                await agent.use_tools(state)
        raise LookupError("bug")

    agent = Agent(model=model, tools=[slow], loop=body)
    state = started()
    error = ENDS[end]
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            if error is None:

                @nursery.start_soon
                async def cut_short() -> None:
                    await slow.all_started.wait()
                    if end == "cancel":
                        scope.cancel()
                    else:
                        scope.deadline = trio.current_time()

                await agent.run(state)
            else:
                with pytest.raises(error):
                    await agent.run(state)

    assert scope.cancelled_caught == (error is None)
    assert_whole(state)
    asked = [call.id for call in state.messages[1].tool_calls]
    assert set(results(state)) == set(asked)
    for entry in results(state).values():
        assert entry.outcome in ("interrupted", "aborted")
        assert CHECK in entry.content[0].text.lower()

    state.add_message(Message.user("hi"))
    assert await agent.run(state) == "hello"
    assert [message["role"] for message in model.messages] == ["user", "assistant", *["tool"] * len(names), "user"]
    assert_whole(state)


async def test_what_closes_a_cancelled_run_is_written_under_a_shield_with_a_deadline(autojump_clock):
    """A1. A store that takes a second a write has it; one that hangs doesn't hold the run for ever."""

    class SlowStore(MemoryStore):
        seconds = 1.0

        async def append(self, *args: Any) -> None:
            await trio.sleep(self.seconds)
            await super().append(*args)

    @tool
    async def sleep() -> str:
        """Sleep."""
        await trio.sleep_forever()
        raise AssertionError

    store, state = SlowStore(), started()
    agent = Agent(model=StrictModel([tool_call("sleep"), "hello"]), tools=[sleep], store=store)
    with trio.move_on_after(60):
        await agent.run(state)
    assert outcomes(state) == [("sleep", "interrupted")]
    await assert_saved(store, state)
    assert len(await store.read(state.id)) == len(state.history)

    store.seconds = 10_000
    state.add_message(Message.user("hi"))
    start = trio.current_time()
    with trio.move_on_after(60), pytest.raises(StoreError, match="whole in memory"):
        await agent.run(state)
    assert 60 < trio.current_time() - start < 90


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_only_where_the_loop_body_catches_what_a_tool_raised_calls_stay_pending(others: int):
    """A1, the exception to it: the body can call use_tools again."""
    fails = [ZeroDivisionError("bug")]

    @tool
    async def flaky() -> str:
        """Fail the first time."""
        await trio.lowlevel.checkpoint()
        if fails:
            raise fails.pop()
        return "well now"

    @tool
    async def good() -> str:
        """Do it."""
        await trio.lowlevel.checkpoint()
        return "ok"

    @loop(until=waiting_for_user, limit=9)
    async def body(agent: Agent, state: State) -> None:
        await agent.think(state)
        try:
            await agent.use_tools(state)
        except ZeroDivisionError:
            assert "flaky" in [call.name for call in state.pending_calls]
            await agent.use_tools(state)

    state = started()
    model = StrictModel([[*[tool_call("good") for _ in range(others)], tool_call("flaky")], "x"])
    assert await Agent(model=model, tools=[flaky, good], loop=body).run(state) == "x"

    assert sorted(outcomes(state)) == [("flaky", "done"), *[("good", "done")] * others]
    assert_whole(state)


# A2


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    await trio.lowlevel.checkpoint()
    return a + b


@tool
async def chat(state: State) -> str:
    """Have somebody talk meanwhile."""
    state.add_message(Message.user("also do X"))
    state.add_message(Message.notice("the build is green"))
    with state.edit_extra_data() as data:
        data["talked"] = True
    await trio.lowlevel.checkpoint()
    return "talked"


@tool
async def complain() -> str:
    """Fail."""
    raise ToolError("no")


def busy_agent(*script: object) -> Agent:
    return Agent(model=StrictModel(script), tools=[add, chat, complain])


async def busy_state() -> State:
    """A State whose history has a bit of everything, several calls at a time, and messages between them."""
    sums = [tool_call("add", a=1, b=2), tool_call("add", a=3, b=4), tool_call("add", a=5, b=6)]
    turns = [sums, [tool_call("add", a=1, b=2), tool_call("chat")], [tool_call("complain"), tool_call("unknown")]]
    agent = busy_agent(*turns, "done", "a summary", sums, "done again", "a side answer")
    state = started()
    await agent.run(state)
    await agent.compact(state)
    state.add_message(Message.user("go on"))
    await agent.run(state)
    await agent.ask(state, "why?")
    return state


async def test_a_process_killed_anywhere_leaves_a_file_that_loads_and_goes_on(store: Store):
    """A2. Every length of a history, as a crash at that moment leaves it."""
    whole = await busy_state()
    open_calls = 0
    for length in range(1, len(whole.history) + 1):
        before = State(id=f"cut-{length}", history=whole.history[:length])
        await store.save(before)

        state = await store.load(before.id)
        again = await store.load(before.id)

        assert state.snapshot() == again.snapshot()
        assert values(state) | {"updated_at": None} == values(again) | {"updated_at": None}
        assert list(state.history[:length]) == list(before.history)
        closing = state.history[length:]
        aborted = [entry for entry in closing if entry.kind == "tool_result"]
        assert [entry.call for entry in aborted] == list(before.pending_calls)
        for entry in aborted:
            assert entry.outcome == "aborted"
            assert CHECK in entry.content[0].text
        assert len(closing) - len(aborted) == before.snapshot_now().request_open
        assert_whole(state)
        open_calls = max(open_calls, len(aborted))

        state.add_message(Message.user("continue"))
        agent = busy_agent("on we go")
        assert await agent.run(state) == "on we go"
        assert agent.model.messages[-1]["role"] == "user"
        assert agent.model.messages[-1]["content"].split("\n\n")[-1] == "continue"
        await assert_saved(store, state)
        assert len(await store.read(state.id)) == len(state.history)  # the closing was saved too
    assert open_calls == 3


async def test_a_file_that_ends_on_calls_is_refused_by_no_provider_however_often_it_is_loaded(tmp_path: Path):
    """A2, over a socket. Saved and loaded again before anything runs: the calls are closed once."""
    state = started()
    await Agent(model=FakeModel([[tool_call("read"), tool_call("read")]])).think(state)
    await FileStore(tmp_path).save(state)

    for _ in range(3):
        store = FileStore(tmp_path)
        loaded = await store.load(state.id)
        await store.save(loaded)
    async with ProviderServer(["on we go"]) as server:
        loaded.add_message(Message.user("continue"))
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url)).run(loaded)

    assert answer == "on we go"
    roles = [message["role"] for message in server.requests[0].body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


# A4


def at_the_end(state: State, call_id: str, *, late: bool = False) -> ToolResultEntry:
    """A result of *call_id* that would come next."""
    last = state.history[-1]
    at = last.at + timedelta(seconds=1)
    return ToolResultEntry(
        last.seq + 1, last.turn, at, (TextBlock("x"),), ToolCall(call_id, "read", {}), ToolOutcome.DONE, late=late
    )


async def test_replay_refuses_a_result_whose_call_is_not_pending_wherever_it_stands_and_names_it():
    """A4. At every point of a busy history: unknown ids, and those that have a result already."""
    whole = await busy_state()
    refused = 0
    for length in range(1, len(whole.history) + 1):
        state = State(history=whole.history[:length])
        pending = {call.id for call in state.pending_calls}
        asked = {c.id for e in state.history if e.kind == "model_reply" for c in e.content.tool_calls}
        for call_id in (asked | {"nobody", ""}) - pending:
            with pytest.raises(ValueError, match=f"entry {length}: result of {call_id!r}"):
                State(history=[*state.history, at_the_end(state, call_id)])
            refused += 1
        for call_id in asked - pending:
            assert State(history=[*state.history, at_the_end(state, call_id, late=True)]).messages == state.messages
        for call_id in pending | {"nobody"}:
            with pytest.raises(ValueError, match=f"late result of {call_id!r}"):
                State(history=[*state.history, at_the_end(state, call_id, late=True)])
    assert refused > 100


async def test_replay_refuses_a_history_that_lost_the_reply_of_a_result():
    """A4. As a library saves it that holds a deferred turn back but not its result."""
    whole = await busy_state()
    replies = [e.seq for e in whole.history if e.kind == "model_reply" and e.content.tool_calls]
    for seq in replies:
        kept = [entry for entry in whole.history if entry.seq != seq]
        moved = [attrs.evolve(entry, seq=number) for number, entry in enumerate(kept)]
        with pytest.raises(ValueError, match=r"entry \d+"):
            State(history=moved)


async def test_a_saved_result_without_its_call_is_told_when_it_is_loaded_and_not_sent():
    """A4."""
    store, state = MemoryStore(), started()
    await store.save(State(id="a", history=state.history))
    orphan = State(id="b", history=state.history)
    raw = json.loads((await store.read("a"))[0])
    result = {
        "seq": 1,
        "kind": "tool_result",
        "turn": 0,
        "at": raw["at"],
        "content": [{"type": "text", "text": "x"}],
        "call": {"id": "lost", "name": "read", "args": {}},
    }
    infos = dict(await store.infos())
    await store.append(orphan.id, 0, [json.dumps(raw).encode(), json.dumps(result).encode()], infos["a"])

    with pytest.raises(CorruptStoreError, match="entry 1: result of 'lost'"):
        await store.load(orphan.id)


@pytest.mark.parametrize("calls", [1, 2, 20])
async def test_a_reply_is_recorded_and_durable_before_any_of_its_tools_starts(calls: int, store: Store):
    """A4. Nothing is held back."""
    seen: list[list[str]] = []

    @tool
    async def look(state: State) -> str:
        """Look at what is recorded and saved."""
        replies = [entry for entry in state.history if entry.kind == "model_reply"]
        assert len(replies[-1].content.tool_calls) == calls
        seen.append([json.loads(raw)["kind"] for raw in await store.read(state.id)])
        return "ok"

    state = started()
    await Agent(model=StrictModel([[tool_call("look") for _ in range(calls)], "x"]), tools=[look], store=store).run(
        state
    )

    assert len(seen) == calls
    assert all("model_reply" in kinds for kinds in seen)


# A5


@tool
async def echo(n: int) -> str:
    """Say n."""
    await trio.lowlevel.checkpoint()
    return f"result {n}"


ids = st.lists(
    st.lists(st.sampled_from(["", "a", "a_2", "a_2_2", "call_0", "call_3_0", "call_3_1"]), max_size=4), max_size=4
)


def run_with_ids(turns: list[list[str]]) -> tuple[State, StrictModel]:
    numbers = iter(range(100))
    script = [[ToolCall(call_id, "echo", {"n": next(numbers)}) for call_id in turn] for turn in turns if turn]
    model, state = StrictModel([*script, "done"]), State(id="same", messages=[Message.user("go")])
    trio.run(Agent(model=model, tools=[echo]).run, state)
    return state, model


@example_share(0.5)
@given(ids)
def test_calls_that_share_an_id_all_run_and_each_has_its_own_result_by_position(turns: list[list[str]]):
    """A5."""
    state, model = run_with_ids(turns)

    calls = [call for message in state.messages for call in message.tool_calls]
    assert len({call.id for call in calls}) == len(calls)
    assert "" not in {call.id for call in calls}
    texts = {call.id: f"result {call.args['n']}" for call in calls}
    assert {entry.call.id: entry.content[0].text for entry in state.history if entry.kind == "tool_result"} == texts
    told = [message for message in model.messages if message["role"] == "tool"]
    assert [message["content"] for message in told] == [f"result {n}" for n in range(len(calls))]
    given = [call_id for turn in turns for call_id in turn]
    for number, call_id in enumerate(given):
        if call_id and call_id not in [call.id for call in calls[:number]]:
            assert calls[number].id == call_id  # the first of an id keeps it
    assert_whole(state)


@example_share(0.5)
@given(ids)
def test_the_same_history_gives_the_same_bytes_live_replayed_and_run_again(turns: list[list[str]]):
    """A5: no id is made up by chance, so a provider's cache is hit."""
    state, model = run_with_ids(turns)
    other, again = run_with_ids(turns)

    assert json.dumps(model.bodies) == json.dumps(again.bodies)
    assert list(other.messages) == list(state.messages)
    assert chat_bytes(Request(messages=state.messages)) == chat_bytes(
        Request(messages=State(history=state.history).messages)
    )


@pytest.mark.parametrize("call_id", [None, "", "call_0", ...])
async def test_ids_that_are_missing_or_come_twice_on_the_wire_are_made_unique(call_id: object):
    """A5, by bytes: null, empty, twice the same, and none at all."""

    def fragment(index: int) -> dict[str, Any]:
        arguments = json.dumps({"n": index})
        call = {"index": index, "type": "function", "function": {"name": "echo", "arguments": arguments}}
        return call if call_id is ... else {"id": call_id, **call}

    choice = {"index": 0, "delta": {"tool_calls": [fragment(0), fragment(1)]}, "finish_reason": "tool_calls"}
    answer = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n".encode()
    state = started()
    async with ProviderServer([answer, answer, "done"]) as server:
        await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[echo]).run(state)

    told = [message for message in server.requests[-1].body["messages"] if message["role"] == "tool"]
    assert [message["content"] for message in told] == ["result 0", "result 1"] * 2
    assert len({message["tool_call_id"] for message in told}) == 4
    assert_whole(state)


# A7


class Orchestra:
    """A run of one reply with calls, whose tools end when they are told to."""

    def __init__(self, calls: int, before: list[Message]) -> None:
        self.cues = [trio.Event() for _ in range(calls)]
        self.state = started()

        def ask(request: Request) -> list[ToolCall]:
            for message in before:
                self.state.add_message(message)
            return [tool_call("wait", n=n) for n in range(calls)]

        @tool
        async def wait(n: int) -> str:
            """Wait for the cue."""
            await self.cues[n].wait()
            return f"result {n}"

        self.model = StrictModel([ask, "done"])
        self.agent = Agent(model=self.model, tools=[wait])

    async def end(self, n: int) -> None:
        self.cues[n].set()
        await trio.testing.wait_all_tasks_blocked()


def said(message: Message) -> dict[str, str]:
    return {"role": "user", "content": message.text}


somebody = st.sampled_from(["user", "notice"])


@given(
    data=st.data(),
    calls=st.integers(1, 4),
    before=st.lists(somebody, max_size=2),
    meanwhile=st.lists(somebody, max_size=4),
)
def test_whatever_is_recorded_between_calls_and_results_comes_behind_all_results(data, calls, before, meanwhile):
    """A7. Every interleaving of results and messages, and a well-formed side question at each moment."""
    events = data.draw(st.permutations([*range(calls), *meanwhile]))
    number = iter(range(100))

    def message(kind: str) -> Message:
        text = f"{kind} {next(number)}"
        return Message.notice(text) if kind == "notice" else Message.user(text)

    early = [message(kind) for kind in before]
    added = list(early)

    async def main() -> None:
        orchestra = Orchestra(calls, early)
        state, model = orchestra.state, orchestra.model
        side = Agent(model=StrictModel(lambda request: "hm"))

        async def conduct() -> None:
            await trio.testing.wait_all_tasks_blocked()
            for event in events:
                if isinstance(event, int):
                    await orchestra.end(event)
                else:
                    added.append(message(event))
                    state.add_message(added[-1])
                    with state.edit_extra_data() as notes:
                        notes[added[-1].text] = True
                await side.ask(state, "how is it going?")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(conduct)
            await orchestra.agent.think(state)
            await orchestra.agent.use_tools(state)
        assert await orchestra.agent.run(state) == "done"

        asked = model.messages[1]["tool_calls"]
        assert model.messages == [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": asked},
            *[{"role": "tool", "tool_call_id": asked[n]["id"], "content": f"result {n}"} for n in range(calls)],
            *([{"role": "user", "content": "\n\n".join([each.text for each in added])}] if added else []),
        ]
        assert [each.role for each in state.messages[:3]] == ["user", "assistant", "tool"]
        assert len(state.messages[2].blocks) == calls  # all results first, in one message
        recorded = [entry.content for entry in state.history if entry.kind in ("user", "notice")]
        assert recorded == added
        assert_whole(state)

    trio.run(main)


# A8


@pytest.mark.parametrize("finished", list(product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("resumed", ["the same State", "loaded", "killed and loaded"])
async def test_what_was_done_before_an_interrupt_is_known_at_once_and_never_done_again(
    finished: tuple[bool, ...], resumed: str, store: Store
):
    """A8. Whichever of three tools have ended."""
    done: Counter[int] = Counter()
    begun = [trio.Event() for _ in finished]
    cues = [trio.Event() for _ in finished]

    @tool
    async def work(n: int) -> str:
        """Do n, when told to."""
        begun[n].set()
        await cues[n].wait()
        done[n] += 1
        return f"did {n}"

    state = started()
    model = StrictModel([[tool_call("work", n=n) for n in range(3)], "I see."])
    agent = Agent(model=model, tools=[work], store=store)
    killed = State(id="killed")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run, state)
            async with state.watch() as entries:  # with a store, what it shows is durable
                async for entry in entries:
                    if entry.kind == "model_reply":
                        break
                for n, ends in enumerate(finished):
                    if ends:
                        cues[n].set()
                        async for entry in entries:
                            if entry.kind == "tool_result":
                                assert entry.content[0].text == f"did {n}"
                                break
            assert [call.args["n"] for call in state.pending_calls] == [n for n in range(3) if not finished[n]]
            for one in begun:
                await one.wait()
            killed = State(id="killed", history=state.history)
            scope.cancel()

    if resumed == "loaded":
        state = await store.load(state.id)
    elif resumed == "killed and loaded":
        await store.save(killed)
        state = await store.load("killed")
    for cue in cues:
        cue.set()
    if not all(finished):
        state.add_message(Message.user("where were we?"))
        await agent.run(state)

    assert done == {n: 1 for n in range(3) if finished[n]}
    for n, entry in enumerate(sorted(results(state).values(), key=lambda entry: entry.call.args["n"])):
        if finished[n]:
            assert (entry.outcome, entry.content[0].text) == ("done", f"did {n}")
        else:
            assert entry.is_error
            assert CHECK in entry.content[0].text.lower()


# A10

BLANKS = ["", " ", "  \n", "\t\u2003\x1f"]


@pytest.mark.parametrize(
    "blocks", [[], *[[TextBlock(text)] for text in BLANKS], [TextBlock(""), TextBlock(" ")]], ids=repr
)
@pytest.mark.parametrize("with_call", [False, True])
async def test_blank_text_of_a_model_is_kept_in_history_and_not_sent(blocks: list[TextBlock], with_call: bool):
    """A10."""
    calls = [ToolCall("a", "echo", {"n": 1})] if with_call else []
    state = started()
    async with ProviderServer(["Hello."]) as server:
        await Agent(model=FakeModel([Reply([*blocks, *calls])]), tools=[echo]).think(state)
        await Agent(model=FakeModel(), tools=[echo]).use_tools(state)
        state.add_message(Message.user("hi"))
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[echo]).run(state)

    assert answer == "Hello."
    replies = [entry.content for entry in state.history if isinstance(entry, ModelReplyEntry)]
    assert list(replies[0].blocks) == [*blocks, *calls]
    told = [m for m in server.requests[0].body["messages"] if m["role"] == "assistant"]
    assert [(message["content"], len(message["tool_calls"])) for message in told] == [(None, 1)] * with_call


@pytest.mark.parametrize("text", BLANKS)
@pytest.mark.parametrize("shape", ["text", "block", "with a picture", "error"])
async def test_a_tool_that_gives_blank_text_is_sent_as_empty(text: str, shape: str):
    """A10."""

    @tool
    async def blank() -> Any:
        """Say nothing."""
        if shape == "error":
            raise ToolError(text)
        return {"text": text, "block": TextBlock(text), "with a picture": [text, Image(PNG)]}[shape]

    state = started()
    async with ProviderServer([tool_call("blank"), "Done."]) as server:
        await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[blank]).run(state)

    (told,) = [m for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert told["content"] == "(an image: it follows in a user message)" if shape == "with a picture" else "(empty)"


@pytest.mark.parametrize("system", [None, *BLANKS])
async def test_an_empty_system_prompt_is_no_message(system: str | None):
    """A10."""
    async with ProviderServer(["Hello."]) as server:
        await Agent(model=OpenAICompatible("m", base_url=server.base_url), system=system).run("Hi")

    assert server.requests[0].body["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("text", BLANKS)
def test_nobody_can_say_nothing(text: str):
    """A10, at the edge: what is blank is refused where it is made, and a picture alone is enough."""
    for make in (Message.user, Message.notice, Message.assistant):
        with pytest.raises(ValueError, match="a message needs text"):
            make(text)

    (message,) = sent([Message.user(text, Image(PNG))])
    assert [part["type"] for part in message["content"]] == ["image_url"]


# A11 and A12

HALF, OTHER_HALF, NUL = "\ud83d", "\ude00", "a\x00b"
any_text = st.text(
    st.characters(codec=None, exclude_categories=()) | st.sampled_from([HALF, OTHER_HALF, "\x00"]), max_size=6
)


def clean(text: str) -> str:
    """What a lone surrogate becomes, by its definition."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


async def conversation_with(text: str, store: Store, base_url: str, seen: list[str]) -> State:
    """Put *text* wherever text can come from: the person, the code, the model's arguments, results, errors, answers."""

    @tool
    async def repeat(text: str, fail: bool = False) -> str:
        """Say it."""
        await trio.lowlevel.checkpoint()
        seen.append(text)
        if fail:
            raise ToolError("failed: " + text)
        return "said " + text

    model = OpenAICompatible("m", base_url=base_url)
    state = State(messages=[Message.user("hi " + text)], extra_data={"key " + text: [text]})
    state.add_message(Message.notice(text + " note"))
    calls = [tool_call("repeat", text=text), tool_call("repeat", text=text, fail=True), tool_call("nothing", text=text)]
    scripted = Agent(model=FakeModel([["look: " + text, *calls]]), tools=[repeat], store=store)
    await scripted.think(state)
    await scripted.use_tools(state)
    agent = Agent(model=model, system="be " + text, tools=[repeat], store=store, name=text, description=text)
    await agent.run(state)
    await agent.ask(state, "why " + text)
    await agent.compact(state, "keep " + text)
    state.add_message(Message.user("more " + text))
    await agent.run(state)
    await state.finish({"answer " + text: text})
    return state


async def check_text_everywhere(text: str, store: Store) -> State:
    seen: list[str] = []
    async with ProviderServer(answers_with(text)) as server:
        state = await conversation_with(text, store, server.base_url, seen)
    assert seen == [text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")] * 2  # two halves are one
    for request in server.requests:
        json.dumps(request.body, ensure_ascii=False).encode()  # raises for half a character
    told = json.dumps(server.requests[0].body, ensure_ascii=False)
    assert json.dumps(clean(f"said {text}"), ensure_ascii=False)[1:-1] in told
    assert_replays(state)
    loaded = await store.load(state.id)
    assert values(loaded) == values(state)
    str(state), repr(state), state._repr_html_()
    return state


def answers_with(text: str) -> list[Any]:
    return ["Good " + clean(text), "Because " + clean(text), "Summary " + clean(text), "More " + clean(text)]


@pytest.mark.parametrize(
    "text", [HALF, OTHER_HALF, OTHER_HALF + HALF, "ok " + HALF + "!", HALF + OTHER_HALF, "\ud800\ud800"], ids=ascii
)
async def test_half_a_character_can_come_from_anywhere_and_is_saved_loaded_and_sent(text: str, store: Store):
    """A11."""
    state = await check_text_everywhere(text, store)

    (reply,) = [e for e in state.history if e.kind == "model_reply" and e.content.tool_calls]
    said, failed, unknown = [results(state)[call.id] for call in reply.content.tool_calls]
    assert said.content[0].text == f"said {clean(text)}"
    assert failed.content[0].text == f"failed: {clean(text)}"
    assert unknown.outcome == "input_error"


async def test_nul_can_come_from_anywhere_and_stays_what_it_is(store: Store):
    """A12. In memory, on the wire, and in every store."""
    state = await check_text_everywhere(NUL, store)

    loaded = await store.load(state.id)
    for one in (state, loaded):
        (reply,) = [e for e in one.history if e.kind == "model_reply" and e.content.tool_calls]
        said, failed, _ = [results(one)[call.id].content[0].text for call in reply.content.tool_calls]
        assert (said, failed) == (f"said {NUL}", f"failed: {NUL}")
        assert one.answer == {f"answer {NUL}": NUL}
        assert one.extra_data == {f"key {NUL}": [NUL]}


async def test_a_utf16_file_read_as_text_goes_through(store: Store):
    """A12."""
    state = await check_text_everywhere("name;value\r\n".encode("utf-16").decode("latin-1"), store)

    assert "\x00" in (await store.load(state.id)).messages[-2].text


@example_share(0.15)
@given(any_text)
def test_any_text_can_come_from_anywhere_and_is_saved_loaded_and_sent(text: str):
    """A11 and A12, as a law."""
    trio.run(check_text_everywhere, text, MemoryStore())


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped arguments", "plain arguments"])
@pytest.mark.parametrize("cut", range(1, 12))
async def test_the_halves_of_a_character_that_come_with_two_deltas_are_one(cut: int, escaped: bool):
    """A11. In the text and in the arguments; a half that stays alone becomes U+FFFD."""

    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return (
            b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode()
        )

    def arguments(text: str, **head: Any) -> bytes:
        return event({"tool_calls": [{"index": 0, **head, "function": {"name": "echo_text", "arguments": text}}]})

    heard: list[str] = []

    @tool
    async def echo_text(text: str) -> str:
        """Say it."""
        heard.append(text)
        return text

    text = "ab" + HALF + OTHER_HALF + "cd" + HALF + "e" + OTHER_HALF + "fgh"
    asked = json.dumps({"text": text}, ensure_ascii=escaped)
    place = 3 * cut if escaped else len('{"text": "') + cut
    first = event({"content": text[:cut]}) + event({"content": text[cut:]})
    calls = arguments(asked[:place], id="a") + event(
        {"tool_calls": [{"index": 0, "function": {"arguments": asked[place:]}}]}
    )
    whole = "ab\U0001f600cd\ufffde\ufffdfgh"
    state = started()
    async with ProviderServer([first + calls + event({}, "tool_calls") + b"data: [DONE]\n\n", "Done."]) as server:
        await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[echo_text]).run(state)

    assert state.messages[1].text == whole
    assert heard == [whole]
    assert server.requests[1].body["messages"][1]["content"] == whole
    assert server.requests[1].body["messages"][2]["content"] == whole


# A13

HUGE = "x" * 11_000_000


@tool
async def huge_text() -> str:
    """Give much text."""
    return HUGE


@tool
async def huge_list() -> list[str]:
    """Give much text in a list."""
    return [HUGE[:6_000_000], HUGE[:5_000_000]]


@tool
async def huge_json() -> dict[str, list[int]]:
    """Give much JSON."""
    return {"numbers": list(range(1_600_000))}


@tool
async def huge_beside_a_picture() -> list[object]:
    """Give much text around a picture."""
    return [HUGE[:6_000_000], Image(PNG), HUGE[:5_000_000]]


@tool
async def huge_error() -> str:
    """Complain at length."""
    raise ToolError(HUGE)


@tool
def huge_thread() -> str:
    """Give much text from a thread."""
    return HUGE


class HugeTool(Tool):
    """A tool from data."""

    name = "huge_tool"
    description = "Give much text."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object"}

    async def run(self, args: object, state: State) -> str:
        await trio.lowlevel.checkpoint()
        return HUGE


HUGE_TOOLS = [huge_text, huge_list, huge_json, huge_beside_a_picture, huge_error, huge_thread, HugeTool()]


@pytest.mark.slow
@pytest.mark.parametrize("one", HUGE_TOOLS, ids=lambda one: one.name)
async def test_a_huge_result_is_cut_for_the_model_and_kept_whole_in_the_history(one: Any):
    """A13. A provider refuses a text over 10 MB; here it gets 64 KiB of it, and one line that says what is missing."""
    state = started()
    async with ProviderServer([tool_call(one.name), "I see."]) as server:
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[one]).run(state)

    assert answer == "I see."
    (told,) = [m for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert len(told["content"].encode()) <= 65_536 + 100
    assert told["content"].count(" bytes are missing here)") == 1
    (entry,) = [entry for entry in state.history if entry.kind == "tool_result"]
    texts = [block.text for block in entry.full if isinstance(block, TextBlock)]
    assert sum(map(len, texts)) >= 11_000_000
    assert sum(isinstance(block, Image) for block in entry.full) == (one is huge_beside_a_picture)
    assert sum(len(block.text) for block in entry.content if isinstance(block, TextBlock)) <= 65_536


async def test_a_huge_result_that_comes_late_is_cut_and_kept_whole_too(gate: threading.Event, mock_clock):
    """A13. The model is told of it by a notice, and the entry has the whole."""
    running = trio.Event()

    @tool(timeout=30)
    def late() -> str:
        """Come late."""
        trio.from_thread.run_sync(running.set)
        gate.wait()
        return HUGE

    async def let_it_time_out() -> None:
        await running.wait()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(31)

    state = started()
    model = StrictModel([tool_call("late"), "x", "y"])
    agent = Agent(model=model, tools=[late])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_it_time_out)
        await agent.run(state)
    gate.set()
    async with state.watch() as entries:
        async for entry in entries:
            if entry.kind == "tool_result" and entry.late:
                break
    state.add_message(Message.user("and?"))
    await agent.run(state)

    assert max(len(message["content"] or "") for message in model.messages) < 70_000
    assert entry.full is not None
    assert entry.full[0].text == HUGE


async def test_a_huge_text_file_in_a_result_is_not_sent_as_a_huge_text():
    """A13. Where the format has no place for a document, its text stands in the message: the limit holds for it too."""

    @tool
    async def attach() -> File:
        """Give a document."""
        return File(HUGE.encode(), name="log.txt")

    state = started()
    async with ProviderServer([tool_call("attach"), "I see."]) as server:
        answer = await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[attach]).run(state)

    assert answer == "I see."


class Picky(HugeTool):
    """A tool from data that says at length what is wrong."""

    name = "picky"

    def read_args(self, args: object) -> object:
        raise ToolInputError(HUGE)


LONG = "x" * 200_000
WRONG_CALLS = {
    "name": ToolCall("a", LONG, {}),
    "arguments": ToolCall("a", "echo", {"n": LONG, LONG: 1}),
    "malformed": ToolCall("a", "echo", None, LONG),
    "said by the tool": ToolCall("a", "picky", {}),
}


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=WRONG_CALLS)
async def test_what_the_model_got_wrong_at_length_is_not_told_back_at_length(call: ToolCall):
    """A13. What says what was wrong is cut as any result is."""
    state = started()
    agent = Agent(model=FakeModel([call]), tools=[echo, Picky()])
    await agent.think(state)
    await agent.use_tools(state)

    (entry,) = [entry for entry in state.history if entry.kind == "tool_result"]
    assert entry.outcome == "input_error"
    assert len(entry.content[0].text) <= 65_536


# A14

contents = st.lists(st.sampled_from(["text", "picture"]), max_size=3)


@example_share(0.5)
@given(st.lists(contents, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_pictures_in_results_are_sent_as_pictures_behind_all_results_of_the_turn(turns, together, meanwhile):
    """A14, Chat Completions: never base64 as text, never between two results, and before what was said meanwhile."""
    picture = Image(PNG)
    state = started()

    @tool
    async def show(n: int, state: State) -> list[object]:
        """Show what n has."""
        await trio.lowlevel.checkpoint()
        if meanwhile and not n:
            state.add_message(Message.user("what do you see?"))
        return [picture if kind == "picture" else f"text {n}" for kind in turns[n]]

    calls = [tool_call("show", n=n) for n in range(len(turns))]
    model = StrictModel([calls, "I see."] if together else [*calls, "I see."])
    trio.run(Agent(model=model, tools=[show]).run, state)

    encoded = base64.b64encode(PNG).decode()
    url = f"data:image/png;base64,{encoded}"
    told = [message for message in model.messages if message["role"] == "tool"]
    assert len(told) == len(turns)
    for message in told:
        assert isinstance(message["content"], str)
    parts = [part for m in model.messages if isinstance(m["content"], list) for part in m["content"]]
    assert [part["image_url"]["url"] for part in parts if part["type"] == "image_url"] == [
        url for turn in turns for kind in turn if kind == "picture"
    ]
    texts = [m["content"] for m in model.messages if isinstance(m["content"], str)]
    texts += [part["text"] for part in parts if part["type"] == "text"]
    assert not any(encoded[:20] in text for text in texts)
    for number, message in enumerate(model.messages):
        if isinstance(message["content"], list):
            assert model.messages[number - 1]["role"] == "tool"
    for content, message in zip(turns, told, strict=True):
        assert message["content"].count("(an image: it follows in a user message)") == content.count("picture")


# A15


@tool(name="echo", parallel=False)
async def echo_in_order(n: int) -> str:
    """Say n, one after the other."""
    await trio.lowlevel.checkpoint()
    return f"result {n}"


SPENT = Usage(input_tokens=100, output_tokens=10, requests=1)
REPLIES = [
    Reply([TextBlock("I look."), ToolCall("a", "echo", {"n": 1})], "m", "tool_calls", SPENT),
    Reply([ToolCall("b", "echo", {"n": 2}), ToolCall("c", "echo", {"n": 3})], "m", "tool_calls", SPENT),
    Reply([TextBlock("It is 3, \U0001f600.")], "m", "stop", SPENT),
]


class Listener(Reporter):
    """Shows a reply while it arrives."""

    def __init__(self) -> None:
        self.text = ""

    def on_text(self, state: State, text: str) -> None:
        self.text += text


async def run_over(server: ProviderServer, store: Store | None, reporter: Reporter | None, **settings: Any) -> State:
    state = State(id="same", messages=[Message.user("go")])
    model = OpenAICompatible("m", base_url=server.base_url, **settings)
    agent = Agent(model=model, tools=[echo_in_order], store=store, reporter=reporter)
    await agent.run(state)
    return state


async def test_streamed_or_not_shown_or_not_saved_or_not_the_histories_are_equal():
    """A15."""
    histories = []
    listener = Listener()
    paths: list[tuple[ProviderServer, Store | None, Reporter | None, dict[str, Any]]] = [
        (ProviderServer(REPLIES), None, None, {}),
        (ProviderServer(REPLIES, chunk_size=1), MemoryStore(), listener, {}),
        (ProviderServer(REPLIES, chunk_size=7), None, None, {}),
        (ProviderServer(REPLIES), MemoryStore(), None, {"extra_body": {"stream": False}}),
    ]
    for place, store, reporter, settings_ in paths:
        async with place as server:
            state = await run_over(server, store, reporter, **settings_)
        assert [request.body["stream"] for request in server.requests] == [not settings_] * 3
        assert_whole(state)
        if store is not None:
            saved = await store.load(state.id)
            assert values(saved) == values(state)
        histories.append(state.history)

    assert all(history == histories[0] for history in histories)
    assert Counter(entry.kind for entry in histories[0])["tool_result"] == 3
    assert listener.text == "I look.It is 3, \U0001f600."


async def test_the_next_turn_of_a_stored_session_sees_the_tool_turns(store: Store):
    """A15: so a model has no reason to repeat its calls."""
    async with ProviderServer([*REPLIES, "Again 3."]) as server:
        await run_over(server, store, Listener())
        loaded = await store.load("same")
        loaded.add_message(Message.user("sure?"))
        await Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[echo_in_order]).run(loaded)

    roles = [message["role"] for message in server.requests[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "tool", "assistant", "user"]


async def test_a_stream_that_breaks_records_no_half_reply_and_the_whole_one_once():
    """A15, the other way round: what was shown of a reply that broke off is no reply, and its calls don't run."""
    listener = Listener()
    state = started()
    async with ProviderServer([Fault(answer=REPLIES[0], cut_after=900), *REPLIES]) as server:
        model = OpenAICompatible("m", base_url=server.base_url, retries=0)
        agent = Agent(model=model, tools=[echo_in_order], reporter=listener)
        with pytest.raises(BrokenStreamError):
            await agent.run(state)
        assert listener.text == "I look."
        assert "model_reply" not in kinds(state)
        assert "tool_result" not in kinds(state)
        await agent.run(state)

    assert outcomes(state) == [("echo", "done")] * 3
    assert_whole(state)
