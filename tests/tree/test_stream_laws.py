"""Whatever a tree does, and however slowly its events are taken: none is lost, and each State's come in order."""

from __future__ import annotations

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    EntryAdded,
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


def agent_of(tree, name: str) -> Agent:
    script, children = tree
    below = [agent_of(child, f"child_{i}") for i, child in enumerate(children)]
    return Agent(
        model=Chatty(script, len(below)), tools=below, name=name, description=name, loop=default_loop.copy(limit=4)
    )


trees = st.recursive(
    st.tuples(scripts, st.just([])),
    lambda inner: st.tuples(scripts, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=5,
)


@settings(max_examples=200)
@given(tree=trees, pauses=st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_no_event_is_lost_and_those_of_a_state_come_in_order(tree, pauses: list[int]):
    state = State(messages=[Message.user("go")])
    events = []

    async def main() -> None:
        async with agent_of(tree, "lead").stream(state) as run:
            async for event in run:
                events.append(event)
                for _ in range(pauses[len(events) % len(pauses)]):
                    await trio.lowlevel.checkpoint()

    trio.run(main)

    for each in all_states(state):
        own = [event for event in events if event.state is each]
        assert [event.entry for event in own if isinstance(event, EntryAdded)] == list(each.history)[1:]
        assert [event.answer for event in own if isinstance(event, RunEnd)] == [each.answer]
        assert isinstance(own[-1], RunEnd)
        check_replies(own)
        check_calls(own)
    assert {event.state for event in events} == set(all_states(state))


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


def check_calls(events: list) -> None:
    """Each call starts, has its result recorded, and ends, in this order."""
    seen: dict[str, list[str]] = {}
    for event in events:
        match event:
            case ToolStart() | ToolEnd():
                seen.setdefault(event.call.id, []).append(type(event).__name__)
            case EntryAdded(entry=entry) if entry.kind == "tool_result":
                seen.setdefault(entry.call.id, []).append("result")
    assert all(steps == ["ToolStart", "result", "ToolEnd"] for steps in seen.values())
