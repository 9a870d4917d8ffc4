"""Failures of a full context that users of other libraries met, each ruled out as a kind. Docstrings name the case."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Agent,
    CompactIfFull,
    ContextChange,
    ContextChangeEntry,
    ContextTooLongError,
    File,
    Image,
    Message,
    OpenAICompatible,
    Reply,
    State,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    Usage,
    compact_if_full,
    default_loop,
    tool,
)
from alpineagents.testing import FakeModel, Fault, ProviderServer, tool_call

from ..conversations import PNG, StrictModel, example_share, sent
from ..run.runs import assert_whole, errors, kinds
from ..states import assert_replays, values

# F1


@tool
async def look(n: int) -> list[object]:
    """Look at n."""
    await trio.lowlevel.checkpoint()
    return [f"saw {n}", Image(PNG)] if n == 1 else [f"saw {n}"]


def three(turn: int) -> list[ToolCall]:
    return [ToolCall(f"t{turn}c{n}", "look", {"n": n}) for n in range(3)]


async def talked(first: Message, turns: int = 3) -> State:
    """A conversation with three calls a turn, messages that arrived meanwhile, and an answer at its end."""
    state = State(messages=[first])

    def ask(turn: int) -> Any:
        def answer(request: object) -> list[ToolCall]:
            if turn % 2:
                state.add_message(Message.user(f"also {turn}"))
            return three(turn)

        return answer

    await Agent(model=StrictModel([*map(ask, range(turns)), "done"]), tools=[look]).run(state)
    return state


FIRSTS = [Message.user("go"), Message.notice("the alarm rings"), Message.user("", Image(PNG))]


def entry_behind(state: State, change: ContextChange) -> ContextChangeEntry:
    last = state.history[-1]
    return ContextChangeEntry(last.seq + 1, last.turn, last.at + timedelta(seconds=1), change)


def assert_groups_are_whole(messages: Sequence[Message]) -> None:
    """It can be sent, it begins with the person, and every turn has its calls and all its results, or neither."""
    body = sent(messages)
    assert body[0]["role"] == "user"
    asked = [call["id"] for message in body for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in body if message["role"] == "tool"]
    assert answered == asked
    turns = {call_id[:2] for call_id in asked}
    assert set(asked) == {f"{turn}c{n}" for turn in turns for n in range(3)}


@pytest.mark.parametrize("first", FIRSTS, ids=["user", "notice", "picture"])
async def test_a_cut_anywhere_keeps_groups_whole_or_is_refused(first: Message):
    """F1. Every position that a summary can be said to cover: between a reply and its results there is none."""
    state = await talked(first)
    messages = list(state.messages)
    kept, refused = 0, 0
    for covers in range(-1, len(messages) + 2):
        history = [*state.history, entry_behind(state, ContextChange(kind="compact", summary="so far", covers=covers))]
        if not 0 <= covers <= len(messages) or (covers < len(messages) and messages[covers].role == "tool"):
            with pytest.raises(ValueError, match=f"the summary covers {covers} messages"):
                State(history=history)
            refused += 1
            continue
        cut = State(history=history)
        kept += 1
        people = [m for m in messages[: max(covers, 0)] if m.role == "user" and not m.is_notice][:1]
        assert list(cut.messages) == [*people, Message.summary("so far"), *messages[covers:]]
        assert_groups_are_whole(cut.messages)
        cut.add_message(Message.user("go on"))
        assert await Agent(model=StrictModel(["yes"])).run(cut) == "yes"
    assert (kept, refused) == (len(messages) + 1 - 3, 2 + 3)


@pytest.mark.parametrize("keep_last", range(11))
async def test_clearing_results_keeps_every_group_whole_whatever_is_kept(keep_last: int):
    """F1. Nine results in three turns: what is cleared stays an answer of its call."""
    state = await talked(FIRSTS[0])

    state.clear_tool_results(keep_last=keep_last)

    assert_groups_are_whole(state.messages)
    told = [message["content"] for message in sent(state.messages) if message["role"] == "tool"]
    cleared = max(9 - keep_last, 0)
    assert [text.startswith("(cleared") for text in told] == [True] * cleared + [False] * (9 - cleared)
    assert_replays(state)


async def test_at_every_moment_of_a_run_compacting_gives_what_can_be_sent_or_is_refused():
    """F1. In the middle of a turn it is refused, and nothing changes; else the next run goes on."""
    whole = await talked(FIRSTS[0])
    done = 0
    for length in range(1, len(whole.history) + 1):
        state = State(history=whole.history[:length])
        agent = Agent(model=StrictModel(["a summary", "yes"]), tools=[look])
        before = values(state)
        if state.pending_calls or state.snapshot_now().request_open:
            for change in (lambda state=state: state.compact("so far"), state.clear_tool_results):
                with pytest.raises(ValueError, match=r"calls are pending|waits on the model"):
                    change()
            with pytest.raises(ValueError, match=r"calls are pending|waits on the model"):
                await agent.compact(state)
            assert values(state) == before
            continue
        by_hand = State(history=state.history)
        by_hand.compact("so far")
        assert_groups_are_whole(by_hand.messages)
        await agent.compact(state)
        assert_groups_are_whole(state.messages)
        state.add_message(Message.user("go on"))
        assert await agent.run(state) == "yes"
        done += 1
    assert done >= 5


@pytest.mark.parametrize("tools", [True, False], ids=["with tools", "without tools"])
@pytest.mark.parametrize("turns", range(4))
async def test_the_request_for_a_summary_is_one_that_a_provider_takes(turns: int, tools: bool):
    """F1, over a socket: all calls with their results in it, the wish for a summary last, and no tool to be called."""
    state = await talked(FIRSTS[0], turns)
    async with ProviderServer(["a summary", "yes"]) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url), tools=[look] if tools else [])
        await agent.compact(state)
        state.add_message(Message.user("go on"))
        assert await agent.run(state) == "yes"

    asked = server.requests[0].body
    assert asked["messages"][-1]["role"] == "user"
    assert "summary" in asked["messages"][-1]["content"]
    assert sum(message["role"] == "tool" for message in asked["messages"]) == 3 * turns
    assert asked.get("tool_choice") == ("none" if tools and turns else None)
    assert server.requests[1].body["messages"] == [
        {"role": "user", "content": "go\n\n[summary of the conversation so far] a summary\n\ngo on"}
    ]


async def test_the_request_for_a_side_question_never_ends_on_an_open_call():
    """F1. While calls are pending it ends before their reply."""
    whole = await talked(FIRSTS[0])
    for length in range(1, len(whole.history) + 1):
        state = State(history=whole.history[:length])
        before = list(state.messages)
        model = StrictModel(["hm"])
        await Agent(model=model, tools=[look]).ask(state, "why?")
        assert list(state.messages) == before
        assert model.messages[-1]["role"] == "user"
        content = model.messages[-1]["content"]
        assert (content.split("\n\n")[-1] if isinstance(content, str) else content[-1]["text"]) == "why?"


changes = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, 3)),
        st.tuples(st.just("say"), st.booleans()),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("clear"), st.integers(0, 4)),
        st.tuples(st.just("late message"), st.booleans()),
    ),
    max_size=10,
)


@example_share(0.5)
@given(changes)
def test_compacting_and_clearing_in_any_order_with_turns_between_gives_what_can_be_sent(steps: list[tuple[str, int]]):
    """F1."""
    numbers = itertools.count()

    async def main() -> None:
        state = State(messages=[Message.user("go")])
        model = StrictModel(lambda request: replies.pop(0)() if replies else "well")
        agent = Agent(model=model, tools=[look])
        replies: list[Any] = []
        for step, n in steps:
            match step:
                case "turn":
                    turn = next(numbers)
                    calls = [ToolCall(f"t{turn}c{i}", "look", {"n": i}) for i in range(n)]
                    replies.append(lambda calls=calls: calls or "well")
                    await agent.think(state)
                    await agent.use_tools(state)
                case "say":
                    state.add_message(Message.notice("so") if n else Message.user("and"))
                case "compact" if n:
                    state.compact("by hand")
                case "compact":
                    replies.append(lambda: "by the model")
                    await agent.compact(state)
                case "clear":
                    state.clear_tool_results(keep_last=n)
                case "late message":

                    def summarise() -> str:
                        state.add_message(Message.user("meanwhile"))
                        return "by the model"

                    replies.append(summarise)
                    await agent.compact(state)
                    assert state.messages[-1].text == "meanwhile"
            body = sent(state.messages)
            assert body[0]["role"] == "user"
            assert body[0]["content"].split("\n\n")[0] == "go"
            assert sum(message.is_summary for message in state.messages) <= 1
        await agent.think(state)
        assert_replays(state)

    trio.run(main)


# F2

TOO_LONG = {
    "error": {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}
}


def too_long(count: int) -> list[Fault]:
    return [Fault(status=400, body=TOO_LONG) for _ in range(count)]


@pytest.mark.parametrize("where", ["first", "recent"])
@pytest.mark.parametrize("turns", [0, 3])
async def test_a_model_that_always_says_too_long_is_asked_a_few_times_at_most_and_the_error_comes_out(where, turns):
    """F2. Wherever the mass of the tokens sits; the conversation is as before, and a model with more room goes on."""
    big = Message.user("x" * 200_000)
    state = await talked(big if where == "first" else FIRSTS[0], turns)
    state.add_message(Message.user("go on") if where == "first" else big)
    before = list(state.messages)
    async with ProviderServer([*too_long(20)]) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url, context_window=1_000_000), tools=[look])
        with pytest.raises(ContextTooLongError, match="8192"):
            await agent.run(state)
        assert 1 <= len(server.requests) <= 6  # at most three tries, each with a request for a summary

    assert errors(state) == [error for error in errors(state) if error.startswith("ContextTooLongError")]
    assert list(state.messages) == before
    assert_whole(state)
    assert await Agent(model=StrictModel(["yes"]), tools=[look]).run(state) == "yes"


async def test_a_conversation_of_thousands_of_messages_is_no_recursion():
    """F2: neither a request nor a compaction recurses over messages."""
    messages = [Message.user("go")]
    for n in range(3_000):
        messages += [Message("assistant", [ToolCall(f"c{n}", "look", {"n": n})])]
        messages += [Message("tool", [ToolResultBlock(f"c{n}", [TextBlock("x" * 100)])])]
    state = State(messages=messages)
    fails: list[Any] = [ContextTooLongError("too long")] * 2
    agent = Agent(model=StrictModel([*fails, "a summary", "yes"]), tools=[look])

    for action in (agent.run, agent.compact):
        with pytest.raises(ContextTooLongError):
            await action(state)
        assert len(state.messages) == 6_001
    await agent.compact(state)

    assert await agent.run(state) == "yes"


async def test_a_summary_that_does_not_fit_either_ends_the_run_with_that_error():
    """F2. A compaction that fails isn't tried again and again."""
    state = await talked(Message.user("x" * 40_000))
    state.add_message(Message.user("go on"))
    async with ProviderServer(too_long(20)) as server:
        model = OpenAICompatible("m", base_url=server.base_url, context_window=8_192)
        with pytest.raises(ContextTooLongError):
            await Agent(model=model, tools=[look]).run(state)

        assert 1 <= len(server.requests) <= 3
    assert_whole(state)


def with_usage(request: Any, *parts: Any) -> Reply:
    """A reply whose usage says what a provider would have counted: four characters a token."""
    size = sum(
        len(getattr(inner, "text", ""))
        for message in request.messages
        for block in message.blocks
        for inner in getattr(block, "content", [block])
    )
    blocks = [TextBlock(part) if isinstance(part, str) else part for part in parts]
    return Reply(blocks, usage=Usage(input_tokens=size // 4, output_tokens=1, requests=1))


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "estimated"])
@pytest.mark.parametrize("summary", ["so far so good", "s" * 30_000], ids=["short summary", "long summary"])
@pytest.mark.parametrize("first", ["go", "x" * 30_000], ids=["short start", "long start"])
async def test_a_run_whose_messages_can_not_be_made_small_does_not_compact_before_every_turn(first, summary, counted):
    """F2: what a compaction can't make smaller is no reason for the next one. 8 of 10 thousand tokens, 30 turns."""
    state = State(messages=[Message.user(first), Message.assistant("x" * 30_000), Message.user("go on")])

    def answer(request: Any) -> Any:
        if "Write a summary" in request.messages[-1].text:
            return with_usage(request, summary)
        if len([e for e in state.history if e.kind == "model_reply"]) == 29:
            return with_usage(request, "done")
        reply = with_usage(request, tool_call("look", n=0))
        return reply if counted else Reply(reply.blocks)

    agent = Agent(model=FakeModel(answer, context_window=10_000), tools=[look])
    assert await agent.run(state) == "done"

    compactions = [e for e in state.history if e.kind == "context_change" and e.content.kind == "compact"]
    assert 1 <= len(compactions) <= 5
    assert_whole(state)


@pytest.mark.parametrize("start", [[Message.notice("x" * 30_000)], [Message.notice("x" * 30_000), Message.user("go")]])
async def test_a_long_notice_at_the_start_can_be_made_small(start: list[Message]):
    """F2, the other way round: what a summary takes the place of is never taken for what stays."""
    state = State(messages=[*start, Message.assistant("hm")])
    agent = Agent(model=FakeModel(["a summary"], context_window=10_000))

    await compact_if_full(agent, state)

    assert agent.context_used(state) < 0.1


async def test_each_compaction_of_a_long_run_makes_the_context_smaller():
    """F2: progress is checked by what is recorded of each."""
    state = State(messages=[Message.user("go")])

    def answer(request: Any) -> Any:
        if "Write a summary" in request.messages[-1].text:
            return with_usage(request, "so far so good")
        return with_usage(request, "I think " + "x" * 4_000, tool_call("look", n=0))

    agent = Agent(model=FakeModel(answer, context_window=10_000), tools=[look], loop=default_loop.copy(limit=40))
    await agent.run(state)

    before = [
        e.content.tokens_before for e in state.history if e.kind == "context_change" and e.content.kind == "compact"
    ]
    assert len(before) > 3
    assert min(before) > 6_000
    assert agent.context_used(state) < 0.75


# F4

MB_PNG = Image(PNG + b"\x00" * 1_000_000)
MB_PDF = File(b"%PDF-1.7\n" + b"\x00" * 1_000_000, name="report")


def conversation_with(attachment: Image | File, where: str) -> State:
    if where == "person":
        return State(messages=[Message.user("look", *[attachment] * 3)])
    calls = three(0)
    results = [ToolResultBlock(call.id, [TextBlock("x"), attachment]) for call in calls]
    return State(messages=[Message.user("look"), Message("assistant", calls), Message("tool", results)])


@pytest.mark.parametrize("where", ["person", "results"])
@pytest.mark.parametrize("attachment", [MB_PNG, MB_PDF], ids=["pictures", "documents"])
async def test_attachments_count_for_what_a_model_reads_of_them_and_not_by_their_bytes(attachment, where):
    """F4. Three of a megabyte each: neither nothing, nor the 250,000 tokens each that base64 would be as text."""
    state = conversation_with(attachment, where)

    tokens = Agent(model=FakeModel()).context_tokens(state)

    assert 3 * 85 < tokens < 3 * 25_000  # 85: the least that a provider counts for a picture


@pytest.mark.parametrize("where", ["person", "results"])
@pytest.mark.parametrize("attachment", [MB_PNG, MB_PDF], ids=["pictures", "documents"])
async def test_a_conversation_with_attachments_is_neither_refused_nor_compacted_by_a_wrong_estimate(attachment, where):
    """F4. By a server that counts nothing, with a window that they fit."""
    state = conversation_with(attachment, where)
    model = FakeModel([Reply([tool_call("look", n=n)]) for n in range(9)] + ["done"], context_window=128_000)

    assert await Agent(model=model, tools=[look]).run(state) == "done"

    assert len(model.requests) == 10
    assert "context_change" not in kinds(state)[1:]


@pytest.mark.parametrize("counted", [300, 90_000])
async def test_the_providers_own_count_takes_the_place_of_the_estimate(counted: int):
    """F4. Real count, and an estimate only of what was added since."""
    state = conversation_with(MB_PNG, "person")
    agent = Agent(model=FakeModel([Reply([TextBlock("I see.")], usage=Usage(counted, 10, requests=1))]))
    await agent.think(state)
    assert agent.context_tokens(state) == counted + 10

    state.add_message(Message.user("y" * 4_000))

    assert counted + 1_000 < agent.context_tokens(state) < counted + 1_100
    state.add_message(Message.user("and this", MB_PNG))
    assert counted + 1_085 < agent.context_tokens(state) < counted + 20_000


@pytest.mark.parametrize("tools", [0, 1, 30])
@pytest.mark.parametrize("system", [None, "s" * 8_000])
async def test_the_system_prompt_and_the_schemas_of_tools_are_counted(tools: int, system: str | None):
    """F4. Until a provider has counted them itself."""

    def described(n: int) -> Any:
        @tool(name=f"tool_{n}", description="d" * 400)
        async def made(a: int, b: str) -> str:
            return ""

        return made

    state = State(messages=[Message.user("hi")])
    bare = Agent(model=FakeModel()).context_tokens(state)
    script = [Reply([TextBlock("x")], usage=Usage(5_000, 1, requests=1))]
    agent = Agent(model=FakeModel(script), system=system, tools=[described(n) for n in range(tools)])

    assert agent.context_tokens(state) >= bare + (2_000 if system else 0) + 100 * tools
    await agent.think(state)
    assert agent.context_tokens(state) == 5_001
    state.compact("so far")
    assert agent.context_tokens(state) >= bare + (2_000 if system else 0) + 100 * tools


blocks = st.one_of(
    st.text(min_size=1, max_size=200).filter(str.strip).map(lambda text: Message.user(text)),
    st.just(Message.user("", MB_PNG)),
    st.text(min_size=1, max_size=200).filter(str.strip).map(Message.assistant),
)


@given(st.lists(blocks, min_size=1, max_size=6), blocks)
def test_the_estimate_is_never_nothing_and_grows_with_every_message(messages: list[Message], another: Message):
    """F4."""
    agent = Agent(model=FakeModel())
    tokens = agent.context_tokens(State(messages=messages))

    assert 0 < tokens < agent.context_tokens(State(messages=[*messages, another]))


async def test_compact_if_full_looks_at_the_real_count_when_there_is_one():
    """F4: no compaction because of pictures that a provider counts for little, and one because of text it counts."""
    state = conversation_with(MB_PNG, "results")
    script = [Reply([TextBlock("I see.")], usage=Usage(255, 1, requests=1)), "a summary"]
    agent = Agent(model=FakeModel(script, context_window=5_000))
    await agent.think(state)

    await compact_if_full(agent, state)
    assert agent.model.remaining == 1
    await CompactIfFull(at=0.05)(agent, state)
    assert agent.model.remaining == 0
