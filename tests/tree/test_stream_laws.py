"""Whatever a tree does, and however slowly its events are taken: none is lost, and each State's come in order."""

from __future__ import annotations

import itertools

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    EntryAdded,
    Loop,
    Message,
    Model,
    ModelEvent,
    Reply,
    RunEnd,
    State,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolEnd,
    ToolStart,
    Usage,
    default_loop,
    loop,
    waiting_for_user,
)

from .test_budget_laws import all_states

pieces = st.lists(st.sampled_from(["a", "b", "think", "restart", "pause"]), max_size=12)
scripts = st.lists(pieces, min_size=1, max_size=3)


class Chatty(Model):
    """Says what its script has for each turn; calls all subagents in each turn but the last."""

    name = "fake/chatty"

    def __init__(self, script: list[list[str]], children: int) -> None:
        self.script = script
        self.children = children

    async def respond(self, request, emit):
        turn = sum(message.role == "assistant" for message in request.messages)
        text = ""
        await trio.lowlevel.checkpoint()
        for piece in self.script[turn % len(self.script)]:
            match piece:
                case "think":
                    emit(ThinkingDelta("hm"))
                case "restart":
                    emit(ModelEvent("retry", "again", {"restarted": True}))
                    text = ""
                case "pause":
                    await trio.lowlevel.checkpoint()
                case _:
                    emit(TextDelta(piece))
                    text += piece
        blocks = [TextBlock(text)] if text else []
        if turn + 1 < len(self.script) or not text:
            blocks += [ToolCall(f"c{turn}_{i}", f"child_{i}", {"prompt": "x"}) for i in range(self.children)]
        if not blocks:
            blocks = [TextBlock(".")]
            emit(TextDelta("."))
        return Reply(tuple(blocks), "", "stop", Usage(requests=1))


patient = default_loop.copy(limit=4)


def agent_of(tree, name: str, turns: Loop = patient) -> Agent:
    script, children = tree
    below = [agent_of(child, f"child_{i}", turns) for i, child in enumerate(children)]
    return Agent(model=Chatty(script, len(below)), tools=below, name=name, description=name, loop=turns)


def impatient(steps: list[int]) -> Loop:
    """A loop that cancels its tools after so many steps of the run, taken in turn; 0 = never."""
    given = itertools.cycle(steps)

    @loop(until=waiting_for_user, limit=4)
    async def body(agent: Agent, state: State) -> None:
        await agent.think(state)
        async with trio.open_nursery() as nursery:
            if count := next(given):
                nursery.start_soon(cancel_after, count, nursery.cancel_scope)
            await agent.use_tools(state)
            nursery.cancel_scope.cancel()

    return body


async def cancel_after(steps: int, scope: trio.CancelScope) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


trees = st.recursive(
    st.tuples(scripts, st.just([])),
    lambda inner: st.tuples(scripts, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=5,
)


slowness = st.lists(st.integers(0, 5), min_size=1, max_size=5)


def events_of(agent: Agent, state: State, pauses: list[int]) -> list:
    """What a consumer gets that pauses after each event for so many steps, taken in turn."""
    events = []

    async def main() -> None:
        async with agent.stream(state) as run:
            async for event in run:
                events.append(event)
                for _ in range(pauses[len(events) % len(pauses)]):
                    await trio.lowlevel.checkpoint()

    trio.run(main)
    return events


@settings(max_examples=200)
@given(tree=trees, pauses=slowness)
def test_no_event_is_lost_and_those_of_a_state_come_in_order(tree, pauses: list[int]):
    state = State(messages=[Message.user("go")])
    events = events_of(agent_of(tree, "lead"), state, pauses)

    for each in all_states(state):
        own = [event for event in events if event.state is each]
        assert [event.entry for event in own if isinstance(event, EntryAdded)] == list(each.history)[1:]
        assert [event.answer for event in own if isinstance(event, RunEnd)] == [each.answer]
        assert isinstance(own[-1], RunEnd)
        check_replies(own)
        check_calls(own)
    assert {event.state for event in events} == set(all_states(state))


@settings(max_examples=200)
@given(tree=trees, pauses=slowness, steps=st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_whatever_is_cancelled_below_every_run_and_every_call_is_told_to_end(tree, pauses: list[int], steps: list[int]):
    state = State(messages=[Message.user("go")])
    events = events_of(agent_of(tree, "lead", impatient(steps)), state, pauses)

    for each in all_states(state):
        own = [event for event in events if event.state is each]
        assert [event.entry for event in own if isinstance(event, EntryAdded)] == list(each.history)[1:]
        assert [isinstance(event, RunEnd) for event in own].index(True) == len(own) - 1
        check_calls(own, ["result", "ToolEnd"])


def check_replies(events: list) -> None:
    """Before each reply its text has come, whole: what a restart threw away left out."""
    text = ""
    for event in events:
        match event:
            case TextDelta():
                text += event.text
            case EntryAdded(entry=entry) if entry.kind == "model_event":
                text = ""
            case EntryAdded(entry=entry) if entry.kind == "model_reply":
                assert text == entry.content.text
                text = ""


def check_calls(events: list, *more: list[str]) -> None:
    """Each call starts, has its result recorded, and ends, in this order; or in one that *more* has."""
    seen: dict[str, list[str]] = {}
    for event in events:
        match event:
            case ToolStart() | ToolEnd():
                seen.setdefault(event.call.id, []).append(type(event).__name__)
            case EntryAdded(entry=entry) if entry.kind == "tool_result":
                seen.setdefault(entry.call.id, []).append("result")
    assert all(steps in (["ToolStart", "result", "ToolEnd"], *more) for steps in seen.values())
