"""``agent.stream``: what is told, in which order, how it ends, and what a slow or early leaving consumer does to it."""

from __future__ import annotations

import contextvars
import threading

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    DecideByHuman,
    EntryAdded,
    MemoryStore,
    Message,
    Model,
    ModelEvent,
    NoHumanError,
    Reply,
    Reporter,
    RunEnd,
    RunStream,
    State,
    StreamedText,
    StreamedThinking,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolProgress,
    ToolStart,
    Usage,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents._contracts import Progress
from alpineagents.run._budget import Purse
from alpineagents.run._stream import _Buffer, _Followed
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_saved, assert_whole, errors, kinds, tasks
from ..run.test_cancellation import At, interrupted_at_each_moment
from .trees import asked, child_of, closed, helper, lead, said, told


@tool
async def noop() -> str:
    """Do nothing."""
    return "ok"


class Talker(Model):
    """Emits pieces of text, thinking and events, and replies with the text; *slowly*: each when all else waits."""

    name = "fake/talker"

    def __init__(self, *pieces, slowly: bool = False) -> None:
        self.pieces = pieces
        self.slowly = slowly

    async def respond(self, request, emit):
        text = ""
        for piece in self.pieces:
            event = TextDelta(piece) if isinstance(piece, str) else piece
            if isinstance(event, ModelEvent) and event.data.get("restarted"):
                text = ""
            text += event.text if isinstance(event, TextDelta) else ""
            emit(event)
            if self.slowly:
                await trio.testing.wait_all_tasks_blocked()
            else:
                await trio.lowlevel.checkpoint()
        return Reply((TextBlock(text),), "", "stop", Usage(input_tokens=3, requests=1))


def shown(event) -> str:
    """An event in a word."""
    match event:
        case TextDelta(text=text):
            return f"text {text}"
        case ThinkingDelta(text=text):
            return f"thinking {text}"
        case EntryAdded(entry=entry):
            return entry.kind
        case ToolStart(call=call) | ToolProgress(call=call) | ToolEnd(call=call):
            return f"{type(event).__name__} {call.name}"
        case RunEnd(answer=answer):
            return f"end {answer}"


async def events_of(agent, subject) -> list:
    got: list = []
    await stream_into(got, agent, subject)
    return got


async def stream_into(got: list, agent, subject) -> None:
    """Put the events into *got*, also where the run fails."""
    async with agent.stream(subject) as run:
        async for event in run:
            got.append(event)


# What is told


async def test_a_stream_tells_everything_in_order():
    state = asked()
    script = FakeModel([["I look.", tool_call("noop")], "Done."])
    events = await events_of(Agent(model=script, tools=[noop]), state)

    assert [shown(event) for event in events] == [
        "run_start",
        "model_request",
        "text I look.",
        "model_reply",
        "ToolStart noop",
        "tool_result",
        "ToolEnd noop",
        "model_request",
        "text Done.",
        "model_reply",
        "stop",
        "end Done.",
    ]
    assert {event.state for event in events} == {state}
    assert [event.entry for event in events if isinstance(event, EntryAdded)] == list(state.history)[1:]


async def test_events_are_frozen_values_that_say_what_they_are():
    state = asked()
    events = await events_of(Agent(model=Talker("a", ThinkingDelta("b"))), state)

    text = next(event for event in events if isinstance(event, TextDelta))
    thinking = next(event for event in events if isinstance(event, ThinkingDelta))
    assert text == StreamedText("a", state)
    assert thinking == StreamedThinking("b", state)
    assert text.state is state
    assert text != TextDelta("a")
    with pytest.raises(AttributeError):
        text.text = "c"
    end = events[-1]
    assert end == RunEnd(state, "a", None, state.usage)


async def test_run_state_answer_and_usage_are_live():
    state = asked()
    seen = []
    async with lead(helper(said("part", 7))).stream(state) as run:
        assert isinstance(run, RunStream)
        assert run.state is state
        assert run.answer is None
        assert run.usage == Usage()
        async for event in run:
            if isinstance(event, RunEnd):
                seen.append((event.state is state, event.usage.input_tokens, run.usage.requests))
                await trio.testing.wait_all_tasks_blocked()

    assert seen[0][:2] == (False, 7)
    assert seen[1] == (True, 10 + 7 + 10, 3)
    assert run.usage == state.usage
    assert run.answer == "part"


async def test_the_usage_of_the_tree_is_seen_before_the_call_closes():
    seen = []

    async def second(request):
        await trio.testing.wait_all_tasks_blocked()
        return "done"

    child = helper(tool_call("noop"), second, tools=[noop])
    state = asked()
    async with lead(child).stream(state) as run:
        async for event in run:
            if isinstance(event, ToolEnd) and event.state is not state:
                seen.append((run.usage.requests, state.usage.requests))

    assert seen == [(2, 1)]


async def test_a_prompt_makes_a_state():
    async with Agent(model=FakeModel(["hello"])).stream("hi") as run:
        async for _ in run:
            pass

    assert run.answer == "hello"
    assert [message.text for message in run.state.messages] == ["hi", "hello"]


async def test_subagents_are_told_of_with_their_own_states():
    state = asked()
    inner = helper("detail", name="inner")
    middle = helper([tool_call("inner", prompt="x")], "part", tools=[inner], name="middle")
    events = await events_of(lead(middle), state)

    child = child_of(state)
    grandchild = child_of(child)
    for each, words in ((state, "part"), (child, "part"), (grandchild, "detail")):
        own = [event for event in events if event.state is each]
        assert shown(own[-1]) == f"end {words}"
        entries = [event.entry for event in own if isinstance(event, EntryAdded)]
        assert entries == list(each.history)[1:]
    order = [shown(event) for event in events]
    assert order.index("ToolStart inner") < order.index("end detail") < order.index("ToolEnd inner")
    assert order.index("end detail") < order.index("end part")


async def test_a_run_that_a_tool_starts_itself_is_told_of_too():
    @tool
    def delegate(prompt: str) -> str:
        """Delegate from a thread."""
        return Agent(model=FakeModel(["part"])).run_sync(prompt)

    state = asked()
    events = await events_of(lead(delegate), state)

    child = child_of(state)
    assert [shown(event) for event in events if event.state is child][-1] == "end part"


async def test_a_subagent_with_a_reporter_of_its_own_is_streamed_all_the_same():
    class Log(Reporter):
        def __init__(self):
            self.said = []

        def on_text(self, state, text):
            self.said.append(text)

        def on_run_end(self, state, error):
            self.said.append(error)

    above, own = Log(), Log()
    events = await events_of(lead(helper("part", reporter=own), reporter=above), asked())

    assert own.said == ["part", None]
    assert above.said == ["part", None]
    assert [shown(event) for event in events].count("text part") == 2


async def test_a_stream_inside_a_tool_call_of_a_streamed_run_tells_both():
    inside = []

    @tool
    async def delegate(prompt: str) -> str:
        """Stream a subagent."""
        async with Agent(model=FakeModel(["part"])).stream(prompt) as run:
            inside.extend([shown(event) async for event in run])
        return run.answer

    state = asked()
    events = await events_of(lead(delegate), state)

    child = child_of(state)
    assert child.parent_id == state.id
    assert [shown(event) for event in events if event.state is child] == inside
    assert inside[-1] == "end part"


async def test_what_a_tool_does_on_a_state_without_running_it_is_told_as_far_as_it_is_heard():
    other = asked("other")

    @tool
    async def side(prompt: str) -> str:
        """Think beside any run."""
        return (await Agent(model=FakeModel(["aside"])).think(other)).text

    events = await events_of(lead(side), asked())

    assert [shown(event) for event in events if event.state is other] == ["text aside"]


async def test_another_agent_that_acts_in_a_subagent_is_told_of_once():
    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        await agent.copy().think(state)

    state = asked()
    events = await events_of(lead(helper("part", loop=body)), state)

    assert [shown(event) for event in events if event.state is child_of(state)].count("text part") == 1


async def test_progress_is_told_from_tasks_and_threads():
    @tool
    async def steps(progress: Progress) -> str:
        """Go step by step."""
        progress(1, 2, "half")
        return "ok"

    @tool
    def threaded(progress: Progress) -> str:
        """The same in a thread."""
        progress(3)
        return "ok"

    state = asked()
    script = FakeModel([tool_call("steps"), tool_call("threaded"), "done"])
    events = await events_of(Agent(model=script, tools=[steps, threaded]), state)

    told = [event for event in events if isinstance(event, ToolProgress)]
    assert [(each.call.name, each.done, each.total, each.text) for each in told] == [
        ("steps", 1, 2, "half"),
        ("threaded", 3, None, None),
    ]
    order = [shown(event) for event in events]
    for name in ("steps", "threaded"):
        assert order.index(f"ToolStart {name}") < order.index(f"ToolProgress {name}") < order.index(f"ToolEnd {name}")


async def test_a_retry_that_throws_text_away_stands_between_the_texts():
    event = ModelEvent("retry", "again", {"restarted": True})
    state = asked()
    events = await events_of(Agent(model=Talker("wro", event, "right")), state)

    assert [shown(event) for event in events][2:6] == ["text wro", "model_event", "text right", "model_reply"]
    [restart] = [event.entry for event in events if shown(event) == "model_event"]
    assert restart.content.data["restarted"] is True


async def test_what_is_recorded_from_a_foreign_thread_is_told():
    state = asked()

    async def answer(request):
        def say():
            state.add_message(Message.notice("from a thread"))

        thread = threading.Thread(target=say)
        thread.start()
        await trio.to_thread.run_sync(thread.join)
        return "done"

    events = await events_of(Agent(model=FakeModel([answer, "again"])), state)

    assert [event.entry for event in events if isinstance(event, EntryAdded)] == list(state.history)[1:]


def test_what_a_thread_records_just_when_the_event_loop_ends_is_no_error():
    state = asked()

    async def main():
        return _Followed(state, Purse(None, None), _Buffer(), trio.lowlevel.current_trio_token())

    followed = trio.run(main)
    state.add_message(Message.notice("too late to be told"))

    followed.end()
    assert kinds(state) == ["context_change", "notice"]


async def test_what_another_thread_does_on_the_state_is_told_in_the_thread_of_the_stream():
    """A State can be acted on in another thread's event loop; the tasks that wait for events are this one's."""

    @loop(until=waiting_for_user, limit=5)
    async def body(agent, state):
        await trio.to_thread.run_sync(trio.run, default_loop.body, agent, state)

    state, threads = asked(), set()
    script = FakeModel([["a b", tool_call("helper", prompt="part")], ["c d", tool_call("noop")], "done"])
    agent = Agent(model=script, tools=[helper("part"), noop], loop=body)
    events = []
    async with agent.stream(state) as run:
        async for event in run:
            events.append(event)
            threads.add(threading.current_thread())

    assert threads == {threading.current_thread()}
    for each in (state, child_of(state)):
        own = [event for event in events if event.state is each]
        assert [event.entry for event in own if isinstance(event, EntryAdded)] == list(each.history)[1:]
        assert isinstance(own[-1], RunEnd)
    names = [shown(event) for event in events if event.state is state]
    assert [name for name in names if name.startswith(("text", "Tool"))] == [
        "text a b",
        "ToolStart helper",
        "ToolEnd helper",
        "text c d",
        "ToolStart noop",
        "ToolEnd noop",
        "text done",
    ]


@pytest.mark.parametrize("below", [False, True])
async def test_a_late_result_is_told_as_an_entry_while_its_run_is_on_and_not_behind_its_end(below):
    """A call ends once; what its thread gives later is recorded."""
    let_go = threading.Event()
    states = [asked()]

    @tool(timeout=0.01)
    def hung() -> str:
        """Take longer than allowed."""
        let_go.wait(60)
        return "late"

    async def when_it_came(request):
        if below:
            states.append(child_of(states[0]))
        let_go.set()
        async with states[-1].watch() as entries:
            async for entry in entries:
                if getattr(entry, "late", False):
                    break
        return "done"

    if below:
        agent = Agent(model=FakeModel([tool_call("helper", prompt="x"), when_it_came]), tools=[helping(hung)])
    else:
        agent = Agent(model=FakeModel([tool_call("hung"), when_it_came]), tools=[hung])
    events = await events_of(agent, states[0])

    own = [event for event in events if event.state is states[-1]]
    late = [event for event in own if isinstance(event, EntryAdded) and getattr(event.entry, "late", False)]
    assert len(late) == (0 if below else 1)
    assert [shown(event) for event in own].count("ToolEnd hung") == 1
    assert isinstance(own[-1], RunEnd)


def helping(*tools) -> Agent:
    """A subagent that calls each of its tools once."""
    return helper([tool_call(tool.name) for tool in tools], "part", tools=tools)


async def test_every_call_that_starts_is_told_to_end_however_it_does(autojump_clock):
    @tool
    async def endless() -> None:
        """Never end."""
        await trio.sleep_forever()

    @tool
    async def broken() -> None:
        """Fail once the other one waits."""
        await trio.testing.wait_all_tasks_blocked()
        raise OSError("bug")

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        await agent.think(state)
        with trio.move_on_after(5):
            await agent.use_tools(state)

    for calls, words in ((["endless"], "interrupted"), (["endless", "broken"], "aborted")):
        got = []
        script = [[tool_call(name) for name in calls], "done"]
        child = helper(*script, tools=[endless, broken], loop=body)
        await stream_into(got, lead(child), asked())

        below = [event for event in got if isinstance(event, ToolStart | ToolEnd) and event.call.name != "helper"]
        assert sorted(shown(event) for event in below) == sorted(
            f"{kind} {name}" for name in calls for kind in ("ToolStart", "ToolEnd")
        )
        assert {str(event.outcome) for event in below if isinstance(event, ToolEnd)} == {words}
        order = [shown(event) for event in got if event.state is below[0].state]
        assert order[-1].startswith("end")


async def sleeping(request):
    await trio.sleep_forever()


async def test_a_stream_in_a_tool_that_is_left_early_ends_its_run_alone():
    @tool
    async def peek(prompt: str) -> str:
        """Look at the beginning of a subagent's work."""
        agent = Agent(model=FakeModel([tool_call("noop"), sleeping]), tools=[noop])
        async with agent.stream(prompt) as run:
            async for event in run:
                if isinstance(event, ToolEnd):
                    break
        return "seen enough"

    state = asked()
    events = await events_of(lead(peek), state)

    child = child_of(state)
    assert told(state) == [("done", "seen enough")]
    assert errors(child) == ["Cancelled"]
    assert_whole(child)
    assert state.usage.requests == 2 + child.usage.requests
    ends = [(event.state, type(event.error)) for event in events if isinstance(event, RunEnd)]
    assert ends == [(child, trio.Cancelled), (state, type(None))]


async def test_what_is_recorded_before_and_after_is_not_told():
    state = asked()
    async with Agent(model=FakeModel(["done"])).stream(state) as run:
        await trio.testing.wait_all_tasks_blocked()
        state.add_message(Message.notice("afterwards"))
        await trio.testing.wait_all_tasks_blocked()
        events = [event async for event in run]

    assert shown(events[0]) == "run_start"
    assert shown(events[-1]) == "end done"


async def test_what_is_recorded_right_after_a_run_is_not_told_behind_its_end():
    child = asked("part")

    @tool
    async def delegate(prompt: str) -> str:
        """Run a State, and say something to it at once."""
        await Agent(model=FakeModel(["done"])).run(child)
        child.add_message(Message.notice("afterwards"))
        return "ok"

    events = await events_of(lead(delegate), asked())

    assert [shown(event) for event in events if event.state is child][-2:] == ["stop", "end done"]


async def test_with_a_store_everything_is_told_and_saved():
    store = MemoryStore()
    state = asked()
    events = await events_of(lead(helper("part"), store=store), state)

    await assert_saved(store, state)
    assert [e.entry for e in events if isinstance(e, EntryAdded) and e.state is state] == list(state.history)[1:]


# Consumers


async def test_text_joins_behind_a_slow_consumer_and_nothing_else_does():
    state = asked()
    pieces = [str(number % 10) for number in range(1000)]
    async with Agent(model=Talker(*pieces, ThinkingDelta("x"), ThinkingDelta("y"), "!")).stream(state) as run:
        await trio.testing.wait_all_tasks_blocked()
        events = [event async for event in run]

    assert [shown(event) for event in events] == [
        "run_start",
        "model_request",
        "text " + "".join(pieces),
        "thinking xy",
        "text !",
        "model_reply",
        "stop",
        "end " + "".join(pieces) + "!",
    ]


async def test_a_quick_consumer_gets_every_piece():
    events = await events_of(Agent(model=Talker("a", "b", "c", slowly=True)), asked())

    assert [shown(event) for event in events][2:5] == ["text a", "text b", "text c"]


async def test_text_of_many_that_speak_at_once_joins_for_each():
    state = asked()
    child = Agent(model=Talker(*"abc" * 100), name="helper", description="h")
    async with lead(child, calls=5).stream(state) as run:
        await trio.testing.wait_all_tasks_blocked()
        events = [event async for event in run]

    texts = [event for event in events if isinstance(event, TextDelta) and event.state is not state]
    assert [event.text for event in texts] == ["abc" * 100] * 5
    assert len({event.state for event in texts}) == 5


async def test_a_consumer_that_takes_its_time_does_not_hold_up_the_run():
    state = asked()
    async with lead(helper(lambda request: "part"), calls=3).stream(state) as run:
        await trio.testing.wait_all_tasks_blocked()
        assert not state.running
        assert state.answer == "part\npart\npart"
        assert [shown(event) async for event in run][-1] == "end part\npart\npart"


async def test_a_wait_that_is_cancelled_loses_nothing(autojump_clock):
    state = asked()
    agent = Agent(model=FakeModel(lambda request: "done", delay=5))
    got = []
    async with agent.stream(state) as run:
        while not (got and got[-1].startswith("end")):
            with trio.move_on_after(1):
                got.append(shown(await anext(run)))
        with pytest.raises(StopAsyncIteration):
            await anext(run)

    assert got == ["run_start", "model_request", "text done", "model_reply", "stop", "end done"]


async def test_two_tasks_can_share_a_stream():
    state = asked()
    got = []
    async with Agent(model=Talker("a", "b", slowly=True)).stream(state) as run:

        async def take():
            got.extend([shown(event) async for event in run])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)

    assert sorted(got) == sorted(["run_start", "model_request", "text a", "text b", "model_reply", "stop", "end ab"])


async def test_next_is_a_checkpoint():
    async with Agent(model=FakeModel(["done"])).stream("hi") as run:
        await trio.testing.wait_all_tasks_blocked()
        with trio.testing.assert_checkpoints():
            await anext(run)


# Leaving early


@pytest.mark.parametrize("number", range(1, 9))
async def test_leaving_early_cancels_the_run_and_leaves_a_state_that_runs_on(number):
    """D5."""
    ran = []

    @tool
    async def due() -> str:
        """Wait until let go."""
        await trio.testing.wait_all_tasks_blocked()
        ran.append("due")
        return "ok"

    store = MemoryStore()
    state = asked()
    child = helper(lambda r: "part" if len(r.messages) > 1 else tool_call("due"), tools=[due])
    agent = lead(child, calls=2, store=store)
    before = tasks()
    async with agent.stream(state) as run:
        count = 0
        async for _ in run:
            count += 1
            if count == number:
                break

    assert tasks() == before
    assert not state.running
    assert not ran
    assert errors(state) == ["Cancelled"]
    for each in (state, *[state.child(child_id) for entry in closed(state) for child_id in entry.child_ids]):
        assert not each.running
        assert_whole(each)
        await assert_saved(store, each)
    assert await agent.copy(model=FakeModel(["on again"])).run(state) == "on again"


async def test_a_block_that_does_nothing_cancels_the_run():
    state = asked()
    async with Agent(model=FakeModel([tool_call("noop"), "x"]), tools=[noop]).stream(state):
        pass

    assert errors(state) == ["Cancelled"]
    assert_whole(state)


async def test_what_the_block_raises_comes_out_as_it_is():
    error = ZeroDivisionError("mine")
    state = asked()
    with pytest.raises(ZeroDivisionError) as caught:
        async with Agent(model=FakeModel(["x"])).stream(state):
            raise error from KeyError("cause")

    assert caught.value is error
    assert isinstance(error.__cause__, KeyError)
    assert errors(state) == ["Cancelled"]


async def test_a_group_of_the_blocks_own_is_passed_on():
    group = ExceptionGroup("mine", [ValueError("a")])
    with pytest.raises(ExceptionGroup) as caught:
        async with Agent(model=FakeModel(["x"])).stream("hi"):
            raise group

    assert caught.value is group


async def test_cancelled_from_outside_it_is_a_cancelled_block(autojump_clock):
    state = asked()
    with trio.move_on_after(5) as scope:
        async with Agent(model=FakeModel(lambda r: "late", delay=10)).stream(state) as run:
            async for _ in run:
                pass

    assert scope.cancelled_caught
    assert errors(state) == ["Cancelled"]
    assert_whole(state)


async def test_leaving_waits_for_what_takes_time_to_end(autojump_clock):
    log = []

    @tool
    async def slow() -> None:
        """Take time even to be cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            log.append("closed")

    async with Agent(model=FakeModel([tool_call("slow")]), tools=[slow]).stream("hi") as run:
        async for event in run:
            if isinstance(event, ToolStart):
                await trio.sleep(1)
                break

    assert log == ["closed"]


# Errors


async def test_the_error_of_the_run_comes_out_of_async_for_after_its_events():
    error = OSError("gone")
    state = asked()
    got = []
    with pytest.raises(OSError, match="gone") as caught:
        await stream_into(got, Agent(model=FakeModel([error])), state)

    assert caught.value is error
    assert isinstance(got[-1], RunEnd)
    assert got[-1].error is error
    assert kinds(state)[-1] == "error"


async def test_the_error_of_the_run_is_raised_once():
    state = asked()
    async with Agent(model=FakeModel([OSError("gone")])).stream(state) as run:
        with pytest.raises(OSError, match="gone"):
            async for _ in run:
                pass
        with pytest.raises(StopAsyncIteration):
            await anext(run)


async def test_the_error_of_the_run_comes_out_of_the_block_where_nobody_iterated():
    error = OSError("gone")
    with pytest.raises(OSError, match="gone") as caught:
        async with Agent(model=FakeModel([error])).stream("hi"):
            await trio.testing.wait_all_tasks_blocked()

    assert caught.value is error


async def test_the_error_of_the_run_is_a_note_on_that_of_the_block():
    async def block():
        async with Agent(model=FakeModel([OSError("gone")])).stream("hi"):
            await trio.testing.wait_all_tasks_blocked()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await block()

    assert caught.value.__notes__ == ["also raised: OSError: gone"]


async def test_a_tool_that_fails_on_being_cancelled_is_heard_of():
    @tool
    async def stubborn() -> None:
        """Fail when cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("while closing")

    async def block():
        async with Agent(model=FakeModel([tool_call("stubborn")]), tools=[stubborn]).stream("hi") as run:
            async for event in run:
                if isinstance(event, ToolStart):
                    await trio.testing.wait_all_tasks_blocked()
                    break

    with pytest.raises(OSError, match="while closing"):
        await block()


async def test_a_group_that_a_tool_raised_comes_out_as_it_is():
    group = ExceptionGroup("mine", [ValueError("a"), OSError("b")])

    @tool
    async def failing() -> None:
        """Fail twice."""
        raise group

    with pytest.raises(ExceptionGroup) as caught:
        await events_of(Agent(model=FakeModel([tool_call("failing")]), tools=[failing]), asked())

    assert caught.value is group


@pytest.mark.parametrize("store", [None, MemoryStore()])
async def test_a_mistake_found_before_the_run_comes_out_of_async_with(store):
    finished = State()
    finished.finish("x")
    agent = Agent(model=FakeModel(["x"]), store=store)
    reached = []
    for wrong, error in ((finished, ValueError), (5, TypeError)):
        with pytest.raises(error):
            async with agent.stream(wrong):
                reached.append(wrong)
    running = asked()
    with running.in_run(), pytest.raises(ValueError, match="in a run already"):
        async with agent.stream(running):
            reached.append(running)
    with pytest.raises(NoHumanError):
        async with agent.copy(permissions=[DecideByHuman()]).stream("hi"):
            reached.append("hi")

    assert not reached
    assert kinds(finished) == ["stop"]


async def test_ctrl_c_in_a_tool_comes_out_of_the_block():
    @tool
    async def interrupted() -> None:
        """As if Ctrl+C came here."""
        raise KeyboardInterrupt

    state = asked()
    with pytest.raises(KeyboardInterrupt):
        await events_of(Agent(model=FakeModel([tool_call("interrupted")]), tools=[interrupted]), state)

    assert told(state)[0][0] == "interrupted"
    assert_whole(state)


async def test_a_reporter_that_fails_comes_out_and_is_told():
    class Broken(Reporter):
        def on_text(self, state, text):
            raise OSError("screen is gone")

    got = []
    with pytest.raises(OSError, match="screen is gone"):
        await stream_into(got, Agent(model=FakeModel(["x"]), reporter=Broken()), "hi")

    assert [shown(event) for event in got][-3:] == ["text x", "error", "end None"]


async def test_context_of_the_caller_reaches_the_run_and_nothing_leaks_back():
    """D6."""
    span = contextvars.ContextVar("span", default="none")
    seen = []

    async def answer(request):
        seen.append(span.get())
        span.set("below")
        return "done"

    span.set("caller")
    token = span.set("block")
    async with Agent(model=FakeModel([answer])).stream("hi") as run:
        async for _ in run:
            assert span.get() == "block"
            break
        await trio.testing.wait_all_tasks_blocked()
    span.reset(token)

    assert seen == ["block"]
    assert span.get() == "caller"


# What it isn't


async def write_with(block) -> None:
    with block:
        raise AssertionError("it began")


async def write_await(block) -> None:
    await block


async def write_async_for(block) -> None:
    async for _ in block:
        raise AssertionError("it began")


@pytest.mark.parametrize("written", [write_with, write_await, write_async_for])
async def test_who_takes_it_for_something_else_is_told_how_it_is_written(written):
    state = asked()
    what = written.__name__.removeprefix("write_").replace("_", " ")

    with pytest.raises(TypeError, match=rf"a block, not for '{what}': async with agent.stream\(state\) as run:"):
        await written(Agent(model=FakeModel(["never"])).stream(state))

    assert kinds(state) == ["context_change"]


class AtStream(At):
    """Does something at a moment in the code of the stream, or of contextlib."""

    def _profile(self, frame, event, arg) -> None:
        if frame.f_code.co_filename.endswith(("/run/_stream.py", "/contextlib.py")):
            super()._profile(frame, event, arg)


def test_ctrl_c_at_any_moment_of_a_stream_comes_out_and_leaves_nothing_running():
    states: list[State] = []

    async def main() -> None:
        states.append(asked())
        async with Agent(model=FakeModel(["done"])).stream(states[-1]) as run:
            async for _ in run:
                pass

    def check(where: str) -> None:
        assert not states[-1].running, where
        assert_whole(states[-1])

    assert interrupted_at_each_moment(main, check, AtStream) > 50
