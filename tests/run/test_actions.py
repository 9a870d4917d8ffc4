"""What an Agent does on a State: think, use_tools, ask, compact; and what it says of wrong settings."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal

import attrs
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    CompactIfFull,
    Image,
    MemoryStore,
    Message,
    OutputError,
    Reply,
    Reporter,
    State,
    TextBlock,
    Tool,
    ToolCall,
    Usage,
    compact_if_full,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call

from .runs import assert_whole, errors, kinds, outcomes

PNG = b"\x89PNG\r\n\x1a\n" + bytes(1_000_000)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.lowlevel.checkpoint()
    return a + b


@tool
async def name_of(n: int) -> str:
    """Name a number."""
    return f"number {n}"


def asked(text: str = "go") -> State:
    return State(messages=[Message.user(text)])


def reply(text: str, tokens: int = 0, **more) -> Reply:
    return Reply((TextBlock(text),), usage=Usage(input_tokens=tokens, output_tokens=1, requests=1), **more)


# think


async def test_think_shows_the_model_the_tools_it_is_told_to_and_records_their_names():
    state = asked()
    model = FakeModel(["one", "two", "three"])
    agent = Agent(model=model, tools=[add, name_of])

    await agent.think(state)
    await agent.think(state, tools=["name_of"])
    await agent.think(state, tools=[])

    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["add", "name_of"],
        ["name_of"],
        [],
    ]
    assert [e.tools for e in state.history if e.kind == "model_request"] == [None, ("name_of",), ()]


async def test_think_takes_tools_as_well_as_their_names():
    model = FakeModel(["one"])

    await Agent(model=model, tools=[add, name_of]).think(asked(), tools=[name_of])

    assert [spec.name for spec in model.requests[0].tools] == ["name_of"]


@pytest.mark.parametrize("choice", ["auto", "required", "none", "add"])
async def test_think_hands_the_tool_choice_on(choice):
    model = FakeModel(["one"])

    await Agent(model=model, tools=[add]).think(asked(), tool_choice=choice)

    assert model.requests[0].tool_choice == choice


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": ["nope"]}, "no tool 'nope'; the Agent has add, name_of"),
        ({"tool_choice": "nope"}, "'auto', 'required', 'none', or the name of a tool"),
        ({"tool_choice": "add", "tools": ["name_of"]}, "a tool it is shown"),
        ({"tool_choice": "required", "tools": []}, "needs a tool"),
    ],
)
async def test_think_refuses_what_it_can_not_do_and_records_nothing(options, said):
    state = asked()
    before = list(state.history)

    with pytest.raises(ValueError, match=said):
        await Agent(model=FakeModel(["x"]), tools=[add, name_of]).think(state, **options)

    assert list(state.history) == before


@pytest.mark.parametrize("tools", ["add", [print], add, [None]])
async def test_think_says_how_to_write_tools_of_a_wrong_type(tools):
    state = asked()
    before = list(state.history)

    with pytest.raises(TypeError, match="tools"):
        await Agent(model=FakeModel(["x"]), tools=[add]).think(state, tools=tools)

    assert list(state.history) == before


async def test_a_call_of_a_tool_that_was_not_shown_is_an_input_error():
    state = asked()
    model = FakeModel([tool_call("add", a=1, b=1), "sorry"])
    agent = Agent(model=model, tools=[add, name_of])

    await agent.think(state, tools=["name_of"])
    await agent.use_tools(state)

    assert outcomes(state) == [("add", "input_error")]
    assert "no tool 'add'" in state.history[-1].content[0].text


async def test_think_while_calls_are_pending_names_them_and_records_nothing():
    state = asked()
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=1), "x"]), tools=[add])
    await agent.think(state)
    before = list(state.history)

    with pytest.raises(ValueError, match=r"calls are pending \(add\).*await agent\.use_tools"):
        await agent.think(state)

    assert list(state.history) == before


@pytest.mark.parametrize("action", ["think", "use_tools", "compact"])
async def test_one_action_at_a_time(action):
    state = asked()
    gate = trio.Event()

    async def slow(request):
        await gate.wait()
        return "x"

    agent = Agent(model=FakeModel([slow]), tools=[add])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.think, state)
        await trio.testing.wait_all_tasks_blocked()
        before = list(state.history)

        with pytest.raises(ValueError, match="think is on"):
            await getattr(agent, action)(state)

        assert list(state.history) == before
        gate.set()


async def test_a_late_result_is_told_once_though_a_think_was_refused_meanwhile():
    """A refused think records nothing."""
    state = asked()

    class Leaving(Tool):
        name, description, input_schema, abandon_on_cancel = (
            "leaving",
            "Go on after a cancel.",
            {"type": "object"},
            True,
        )

        async def run(self, args, state):
            raise AssertionError

        async def call(self, args, context):
            self.context = context
            await trio.sleep_forever()

    leaving = Leaving()
    agent = Agent(
        model=FakeModel([tool_call("leaving"), "x", tool_call("add", a=1, b=1), "done"]), tools=[leaving, add]
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await agent.think(state)
    await agent.think(state)
    leaving.context.record_late((TextBlock("at last"),), "done", None)
    with pytest.raises(ValueError, match="pending"):
        await agent.think(state)
    await agent.use_tools(state)
    await agent.think(state)

    assert len([m for m in state.messages if "at last" in m.text]) == 1


async def test_every_action_is_a_checkpoint():
    """Where a tool isn't one, use_tools isn't either, as it says."""
    state = asked()
    agent = Agent(model=FakeModel([tool_call("name_of", n=1), "done", "because", "a summary", "x"]), tools=[name_of])

    with trio.testing.assert_checkpoints():
        await agent.think(state)
    await agent.use_tools(state)
    with trio.testing.assert_checkpoints():
        await agent.use_tools(state)
    with trio.testing.assert_checkpoints():
        await agent.think(state)
    with trio.testing.assert_checkpoints():
        await agent.ask(state, "why?")
    with trio.testing.assert_checkpoints():
        await agent.compact(state)
    with trio.testing.assert_checkpoints():
        await agent.run(state)


# use_tools


async def test_500_calls_run_16_at_a_time_and_their_results_are_in_the_order_asked():
    """D10."""
    running = most = 0

    @tool
    async def count(n: int) -> int:
        """Count who is in here."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(n % 5 + 1):
            await trio.lowlevel.checkpoint()
        running -= 1
        return n

    state = asked()
    await Agent(model=FakeModel([[tool_call("count", n=n) for n in range(500)], "done"]), tools=[count]).run(state)

    assert most == 16
    (results,) = [m for m in state.messages if m.role == "tool"]
    assert [block.content[0].text for block in results.blocks] == [str(n) for n in range(500)]
    assert_whole(state)


@pytest.mark.parametrize("limit", [1, 3])
async def test_max_parallel_tools_bounds_sync_tools_too(limit):
    import threading

    lock = threading.Lock()
    running = most = 0

    @tool
    def count(n: int) -> int:
        """Count who is in here."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        return n

    state = asked()
    calls = [tool_call("count", n=n) for n in range(20)]
    await Agent(model=FakeModel([calls, "done"]), tools=[count], max_parallel_tools=limit).run(state)

    assert 1 <= most <= limit
    assert len(outcomes(state)) == 20


@pytest.mark.parametrize("limit", [1, 3, 19])
@pytest.mark.parametrize("threaded", [False, True], ids=["in tasks", "in threads"])
async def test_calls_that_have_to_wait_begin_in_the_order_asked(limit, threaded):
    begun: list[int] = []

    @tool(name="note")
    async def note(n: int) -> None:
        """Note that it begins."""
        begun.append(n)
        for _ in range(n % 3):
            await trio.lowlevel.checkpoint()

    @tool(name="note")
    def note_in_a_thread(n: int) -> None:
        """Note that it begins."""
        begun.append(n)

    calls = [tool_call("note", n=n) for n in range(20)]
    one = note_in_a_thread if threaded else note
    await Agent(model=FakeModel([calls, "done"]), tools=[one], max_parallel_tools=limit).run(asked())

    assert sorted(begun) == list(range(20))
    if limit == 1:
        assert begun == list(range(20))
    for place, n in enumerate(begun):  # those before it that have begun later were at most as many as fit beside it
        assert len([other for other in begun[place:] if other < n]) < limit


async def test_tools_that_are_not_parallel_run_one_by_one_in_the_order_asked_behind_the_others():
    log: list[str] = []
    parallel_ended = trio.Event()

    @tool
    async def free() -> str:
        """Run beside others."""
        log.append("free in")
        await trio.testing.wait_all_tasks_blocked()
        log.append("free out")
        parallel_ended.set()
        return "ok"

    @tool(parallel=False)
    async def alone(n: int) -> str:
        """Run alone."""
        assert parallel_ended.is_set()
        log.append(f"in {n}")
        await trio.testing.wait_all_tasks_blocked()
        log.append(f"out {n}")
        return "ok"

    state = asked()
    calls = [tool_call("alone", n=1), tool_call("free"), tool_call("alone", n=2), tool_call("free")]
    await Agent(model=FakeModel([calls, "done"]), tools=[free, alone]).run(state)

    assert log == ["free in", "free in", "free out", "free out", "in 1", "out 1", "in 2", "out 2"]
    (results,) = [m for m in state.messages if m.role == "tool"]
    assert [b.call_id for b in results.blocks] == [c.id for c in state.messages[1].tool_calls]


async def test_a_sync_tool_that_times_out_just_when_its_thread_ends_gives_one_result(mock_clock):
    """The thread has ended, and before trio has delivered that, the call's time is over."""
    import threading

    entered, leave = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    @tool(timeout=10)
    def slow() -> str:
        """Return when let go."""
        token.run_sync_soon(entered.set)
        leave.wait(30)
        return "just in time"

    state = asked()
    agent = Agent(model=FakeModel([tool_call("slow"), "done", "done"]), tools=[slow])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await entered.wait()
        await trio.testing.wait_all_tasks_blocked()
        leave.set()
        while not trio.lowlevel.current_statistics().run_sync_soon_queue_size:
            pass  # without a checkpoint, until the thread has handed its result over
        mock_clock.jump(11)

    assert state.answer == "done"
    assert len(outcomes(state)) == 1
    assert_whole(state)


async def test_an_error_whose_text_fails_comes_out_as_itself_beside_another():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    @tool
    async def first() -> str:
        """Fail."""
        await trio.testing.wait_all_tasks_blocked()
        raise ValueError("one")

    @tool
    async def second() -> str:
        """Fail while cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            raise Mute

    state = asked()
    with pytest.raises(ValueError, match="one"):
        await Agent(model=FakeModel([[tool_call("first"), tool_call("second")]]), tools=[first, second]).run(state)

    assert_whole(state)


# ask


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Bug:
    file: str
    line: int


@dataclasses.dataclass
class Fix:
    bug: str
    colour: Colour = Colour.RED


@pytest.mark.parametrize(
    ("returns", "text", "answer", "recorded"),
    [
        (str, "Because.", "Because.", "Because."),
        (int, '{"answer": 42}', 42, 42),
        (int, "42", 42, 42),
        (bool, '{"answer": true}', True, True),
        (bool, "false", False, False),
        (Literal["yes", "no"], '{"answer": "yes"}', "yes", "yes"),
        (list[int], '{"answer": [1, 2]}', [1, 2], [1, 2]),
        (Bug, '{"file": "b.py", "line": 3}', Bug("b.py", 3), {"file": "b.py", "line": 3}),
        (Bug, 'Sure:\n```json\n{"file": "b.py", "line": 3}\n```', Bug("b.py", 3), {"file": "b.py", "line": 3}),
        (Fix, '{"bug": "b", "colour": "blue"}', Fix("b", Colour.BLUE), {"bug": "b", "colour": "blue"}),
        (list[Bug], '{"answer": [{"file": "b", "line": 3}]}', [Bug("b", 3)], [{"file": "b", "line": 3}]),
    ],
)
async def test_ask_returns_the_object_and_records_its_json(returns, text, answer, recorded):
    state = asked()
    before = list(state.messages)

    got = await Agent(model=FakeModel([text])).ask(state, "Which?", returns)

    assert got == answer
    assert type(got) is type(answer)
    entry = state.history[-1]
    assert (entry.kind, entry.content.question, entry.content.answer) == ("ask", "Which?", recorded)
    assert list(state.messages) == before
    assert (state.turn, state.usage.requests) == (0, 1)
    assert_whole(state)


async def test_ask_asks_again_with_what_was_wrong_and_counts_all_it_spent():
    state = asked()
    model = FakeModel(["no idea", '{"file": "b.py"}', '{"file": "b.py", "line": 3}'])

    assert await Agent(model=model).ask(state, "Which?", Bug) == Bug("b.py", 3)

    assert [len(request.messages) for request in model.requests] == [2, 4, 6]
    assert "line" in model.requests[2].messages[-1].text
    assert state.usage == Usage(input_tokens=30, output_tokens=30, requests=3)
    assert [e.usage.requests for e in state.history if e.kind == "ask"] == [3]


async def test_ask_gives_up_after_its_retries_and_what_it_spent_is_in_the_usage():
    state = asked()
    model = FakeModel(["a", "b", "c", "d"])

    with pytest.raises(OutputError, match=r"gave no Bug in 3 tries"):
        await Agent(model=model).ask(state, "Which?", Bug)

    assert len(model.requests) == 3
    assert state.usage.requests == 3
    assert kinds(state) == ["context_change", "error"]
    assert [m.role for m in state.messages] == ["user"]


async def test_ask_without_retries_asks_once():
    model = FakeModel(["a", "b"])

    with pytest.raises(OutputError, match="in 1 tries"):
        await Agent(model=model).ask(asked(), "Which?", Bug, retries=0)

    assert len(model.requests) == 1


async def test_ask_refuses_fewer_than_no_retries_and_records_nothing():
    state = asked()
    model = FakeModel(["3"])

    with pytest.raises(ValueError, match="retries"):
        await Agent(model=model).ask(state, "Which?", int, retries=-1)

    assert kinds(state) == ["context_change"]
    assert not model.requests


async def test_a_refusal_is_an_output_error_at_once():
    state = asked()
    model = FakeModel([reply("I can't say.", refusal=True), "x"])

    with pytest.raises(OutputError, match="refused: I can't say"):
        await Agent(model=model).ask(state, "Which?", Bug)

    assert len(model.requests) == 1
    assert state.usage.requests == 1


@pytest.mark.parametrize(
    ("prompt", "returns", "error"), [("", str, ValueError), (3, str, TypeError), ("x", set, TypeError)]
)
async def test_ask_refuses_a_wrong_question_before_anything_is_recorded(prompt, returns, error):
    state = asked()
    model = FakeModel(["x"])
    if returns is set:
        returns = object()

    with pytest.raises(error):
        await Agent(model=model).ask(state, prompt, returns)

    assert kinds(state) == ["context_change"]
    assert not model.requests


async def test_ask_while_calls_are_pending_ends_before_the_open_reply():
    state = asked()
    model = FakeModel([tool_call("add", a=1, b=1), "done", tool_call("add", a=2, b=2), "side answer"])
    agent = Agent(model=model, tools=[add])
    await agent.run(state)
    state.add_message(Message.user("more"))
    await agent.think(state)
    state.add_message(Message.user("waits"))
    pending = state.pending_calls

    assert await agent.ask(state, "What are you doing?") == "side answer"

    request = model.requests[-1]
    assert [m.role for m in request.messages] == ["user", "assistant", "tool", "assistant", "user", "user"]
    assert request.messages[-1].text == "What are you doing?"
    assert (request.tool_choice, [spec.name for spec in request.tools]) == ("none", ["add"])
    assert state.pending_calls == pending
    await agent.use_tools(state)
    assert_whole(state)


async def test_ask_works_while_the_model_is_waited_on_and_while_tools_run():
    state = asked()
    gates = [trio.Event(), trio.Event()]

    async def slow(request):
        await gates[0].wait()
        return tool_call("wait")

    @tool
    async def wait() -> str:
        """Wait."""
        await gates[1].wait()
        return "ok"

    agent = Agent(model=FakeModel([slow, "done"]), tools=[wait])
    other = agent.copy(model=FakeModel(["one", "two"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        for gate, answer in zip(gates, ["one", "two"], strict=True):
            await trio.testing.wait_all_tasks_blocked()
            assert await other.ask(state, "What now?") == answer
            gate.set()

    assert state.answer == "done"
    assert kinds(state).count("ask") == 2
    assert_whole(state)


async def test_a_side_question_that_is_cancelled_leaves_the_calls_of_others_alone():
    """Outside a run as well: the calls are not its own."""
    state = asked()
    gate = trio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "ok"

    async def never(request):
        await trio.sleep_forever()

    agent = Agent(model=FakeModel([tool_call("wait")]), tools=[wait])
    await agent.think(state)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.use_tools, state)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as asking:
                asking.start_soon(agent.copy(model=FakeModel([never])).ask, state, "Well?")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert [call.name for call in state.pending_calls] == ["wait"]
        gate.set()

    assert outcomes(state) == [("wait", "done")]
    assert errors(state) == ["Cancelled"]
    assert_whole(state)


# compact


def talked() -> State:
    return State(
        messages=[
            Message.user("Find the bug"),
            Message.assistant("Looking"),
            Message.user("And?"),
            Message.assistant("It is in b.py"),
        ]
    )


async def test_compact_puts_a_summary_of_the_models_in_place_of_the_messages():
    state = talked()
    model = FakeModel(["The bug is in b.py."])

    await Agent(model=model, system="You debug.").compact(state, "Keep file names.")

    assert [m.text for m in state.messages] == ["Find the bug", state.messages[1].text]
    assert "The bug is in b.py." in state.messages[1].text
    assert [m.role for m in state.messages] == ["user", "user"]
    assert model.requests[0].messages[-1].text.endswith("Keep file names.")
    change = state.history[-1].content
    assert (change.kind, change.covers, change.usage.requests) == ("compact", 4, 1)
    assert change.tokens_before > 0
    assert state.usage.requests == 1
    assert_whole(state)


async def test_what_is_added_while_the_summary_is_written_stays_behind_it():
    state = talked()

    def meanwhile(request):
        state.add_message(Message.user("one more thing"))
        state.add_message(Message.notice("news"))
        return "a summary"

    await Agent(model=FakeModel([meanwhile])).compact(state)

    assert [m.text for m in state.messages][2:] == ["one more thing", "[notice] news"]
    assert_whole(state)


@pytest.mark.parametrize("change", ["compact", "restore", "clear_tool_results", "think"])
async def test_what_rewrites_messages_is_refused_while_the_summary_is_written(change):
    """Else the summary would cover what its request never saw."""
    state = State(messages=[*talked().messages, Message.user("call it")])
    earlier = state.snapshot()
    refused = []

    async def meanwhile(request):
        try:
            match change:
                case "compact":
                    state.compact("mine")
                case "restore":
                    state.restore(earlier)
                case "clear_tool_results":
                    state.clear_tool_results(keep_last=0)
                case "think":
                    await agent.think(state)
        except ValueError as error:
            refused.append(error)
        state.add_message(Message.user("keep me"))
        return "a summary"

    agent = Agent(model=FakeModel([meanwhile]))
    await agent.compact(state)

    assert len(refused) == 1
    assert state.messages[-1].text == "keep me"
    assert_whole(state)


async def test_compact_is_refused_while_calls_are_pending_and_without_messages():
    state = asked()
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=1)]), tools=[add])
    await agent.think(state)
    before = list(state.history)

    with pytest.raises(ValueError, match="pending"):
        await agent.compact(state)
    with pytest.raises(ValueError, match="no messages"):
        await agent.compact(State())

    assert list(state.history) == before


@pytest.mark.parametrize(
    "answer", [reply(" \n", 7), reply("I can't do that.", 7, refusal=True)], ids=["blank", "refusal"]
)
async def test_a_summary_that_is_none_is_an_output_error_and_the_messages_stay(answer):
    state = talked()
    before = list(state.messages)

    with pytest.raises(OutputError):
        await Agent(model=FakeModel([answer])).compact(state)

    assert list(state.messages) == before
    assert kinds(state)[-1] == "error"
    assert state.usage == Usage(input_tokens=7, output_tokens=1, requests=1), "what it cost is counted"


async def test_a_compaction_that_fails_or_is_cancelled_leaves_the_messages(autojump_clock):
    state = talked()
    before = list(state.messages)

    with pytest.raises(ConnectionError):
        await Agent(model=FakeModel([ConnectionError("gone")])).compact(state)
    with trio.move_on_after(1):
        await Agent(model=FakeModel(["late"], delay=10)).compact(state)

    assert list(state.messages) == before
    assert errors(state) == ["ConnectionError: gone", "Cancelled"]
    await Agent(model=FakeModel(["a summary"])).compact(state)
    assert len(state.messages) == 2


async def test_the_request_for_a_summary_is_well_formed_at_every_point_of_a_conversation():
    """F1: three calls at a time, and a summary after any number of turns."""
    for turns in range(1, 5):
        state = asked()
        calls = [[tool_call("add", a=n, b=i) for i in range(3)] for n in range(turns)]
        model = FakeModel([*calls, "a summary", "done"])  # it refuses malformed requests
        agent = Agent(model=model, tools=[add])
        for _ in range(turns):
            await agent.think(state)
            await agent.use_tools(state)

        await agent.compact(state)

        assert (model.requests[-1].tool_choice, len(model.requests[-1].tools)) == ("none", 1)
        assert await agent.run(state) == "done"
        assert_whole(state)


# How full the context is


async def test_context_used_is_unknown_where_the_window_is():
    state = asked()
    agent = Agent(model=FakeModel(["x"]))

    assert agent.context_used(state) is None
    await compact_if_full(agent, state)

    assert agent.context_tokens(state) > 0
    assert kinds(state) == ["context_change"]


async def test_context_tokens_go_on_from_the_last_replys_real_count():
    state = asked("x" * 4_000)
    agent = Agent(model=FakeModel([reply("answer", 5_000)], context_window=10_000))
    estimated = agent.context_tokens(state)

    await agent.think(state)
    counted = agent.context_tokens(state)
    state.add_message(Message.user("y" * 400))

    assert 900 < estimated < 1_200
    assert counted == 5_001
    assert 5_090 < agent.context_tokens(state) < 5_120
    assert agent.context_used(state) == agent.context_tokens(state) / 10_000


async def test_system_prompt_and_tools_count_in_the_estimate():
    state = asked()
    bare = Agent(model=FakeModel())
    full = Agent(model=FakeModel(), system="s" * 4_000, tools=[add])

    assert full.context_tokens(state) > bare.context_tokens(state) + 1_000


async def test_images_count_for_what_providers_count_and_not_by_their_bytes():
    """F4."""
    state = State(messages=[Message.user("look", *[Image(PNG) for _ in range(3)])])

    assert 1_000 < Agent(model=FakeModel()).context_tokens(state) < 10_000


async def test_a_side_question_does_not_change_the_count():
    state = asked()
    agent = Agent(model=FakeModel([reply("answer", 5_000), reply("side", 9)], context_window=10_000))
    await agent.think(state)

    await agent.ask(state, "why?")

    assert agent.context_tokens(state) == 5_001


async def test_compact_if_full_compacts_only_when_it_is():
    state = talked()
    agent = Agent(model=FakeModel([reply("answer", 599), reply("answer", 601), "a summary"], context_window=1_000))

    await agent.think(state)
    await compact_if_full(agent, state)
    assert "compact" not in [e.content.kind for e in state.history if e.kind == "context_change"]
    state.add_message(Message.user("more"))
    await agent.think(state)
    await compact_if_full(agent, state)

    assert [m.role for m in state.messages] == ["user", "user"]
    assert agent.context_used(state) < 0.6


async def test_a_block_with_other_settings_compacts_at_its_own_mark():
    state = talked()
    model = FakeModel(["a summary"], context_window=100)

    await CompactIfFull(at=0.01, instructions="Keep names.")(Agent(model=model), state)

    assert model.requests[0].messages[-1].text.endswith("Keep names.")


@pytest.mark.parametrize("at", [0, -1, 1.1])
def test_a_mark_outside_0_to_1_is_refused(at):
    with pytest.raises(ValueError, match="at"):
        CompactIfFull(at=at)


async def test_a_first_message_that_fills_the_window_alone_is_not_compacted_for_ever():
    """F2: what a summary can't make smaller is left alone."""
    state = asked("x" * 40_000)
    model = FakeModel(["hm"], context_window=1_000)

    assert await Agent(model=model).run(state) == "hm"

    assert len(model.requests) == 1
    before = len(state.history)
    for _ in range(3):
        await compact_if_full(Agent(model=FakeModel(lambda request: "s" * 40_000, context_window=1_000)), state)
    assert len(state.history) <= before + 1


async def test_a_long_run_in_a_small_window_compacts_now_and_then_and_ends():
    def answer(request):
        if request.messages[-1].text.startswith("Write a summary"):
            return "so far so good"
        return reply_with_call(len(request.messages) * 100)

    def reply_with_call(tokens):
        return Reply((tool_call("add", a=1, b=1),), usage=Usage(input_tokens=tokens, output_tokens=1, requests=1))

    state = asked()
    model = FakeModel(answer, context_window=2_000)
    await Agent(model=model, tools=[add], loop=default_loop.copy(limit=60)).run(state)

    compactions = [e for e in state.history if e.kind == "context_change" and e.content.kind == "compact"]
    assert 5 < len(compactions) < 30
    assert state.turn == 60
    assert_whole(state)


# The Agent's settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": 3}, r"model must be a Model or a string, not int"),
        ({"model": None}, r"model must be a Model"),
        ({"model": FakeModel}, r"model must be a Model"),
        ({"system": 3}, r"system must be str, not int"),
        ({"tools": add}, r"tools must be a list"),
        ({"tools": "add"}, r"tools must be a list"),
        ({"tools": 3}, r"tools must be a list, not int"),
        ({"tools": [print]}, r"print is not a tool: decorate it with @tool"),
        ({"tools": ["add"]}, r"'add' is a text and not a tool"),
        ({"loop": 3}, r"async"),
        ({"loop": lambda agent, state: None}, r"async def"),
        ({"reporter": print}, r"reporter must be Reporter"),
        ({"reporter": Reporter}, r"reporter must be Reporter, not the class Reporter; .*: Reporter\(\.\.\.\)"),
        ({"store": "states"}, r"store must be Store, not str: Agent\(\.\.\., store=FileStore\('states'\)\)"),
        ({"store": MemoryStore}, r"store must be Store, not the class MemoryStore; .*: MemoryStore\(\.\.\.\)"),
        ({"store": str}, r"store must be Store, not type: "),
        ({"name": 3}, r"name must be str"),
        ({"description": b"x"}, r"description must be str"),
        ({"max_parallel_tools": "3"}, r"max_parallel_tools must be int"),
        ({"max_parallel_tools": None}, r"max_parallel_tools must be int"),
        ({"max_parallel_tools": 2.0}, r"max_parallel_tools must be int"),
        ({"max_parallel_tools": True}, r"max_parallel_tools must be int"),
        ({"nope": 1}, r"nope"),
    ],
)
def test_a_setting_of_a_wrong_type_is_told_when_the_agent_is_made(settings, said):
    with pytest.raises(TypeError, match=said):
        Agent(**{"model": FakeModel()} | settings)


def test_settings_of_a_wrong_value_are_told_when_the_agent_is_made():
    with pytest.raises(ValueError, match="1 or more"):
        Agent(model=FakeModel(), max_parallel_tools=0)
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        Agent(model=FakeModel(), tools=[add, tool(name="add")(name_of.__wrapped__)])
    with pytest.raises(ValueError, match="two tools are called 'add'"):
        Agent(model=FakeModel(), tools=[add, add])


def test_a_copy_has_other_settings_and_the_agent_has_its_own_still():
    agent = Agent(model=FakeModel(name="fake/a"), tools=[add], system="old", name="a")

    copy = agent.copy(model=FakeModel(name="fake/b"), tools=[name_of])

    assert (copy.model.name, copy.system, copy.name, list(copy.tool_map)) == ("fake/b", "old", "a", ["name_of"])
    assert (agent.model.name, list(agent.tool_map)) == ("fake/a", ["add"])
    with pytest.raises(TypeError):
        agent.copy(modle=FakeModel())
    with pytest.raises(TypeError, match="system must be str"):
        agent.copy(system=3)
    with pytest.raises(TypeError):
        agent.copy(tool_map={})


async def test_a_copy_runs_a_state_that_the_other_ran():
    state = asked()
    agent = Agent(model=FakeModel(["one"]), system="old")
    other = agent.copy(model=FakeModel(["two"], name="fake/b"), system="new")
    await agent.run(state)
    state.add_message(Message.user("more"))

    assert await other.run(state) == "two"

    infos = [e.content for e in state.history if e.kind == "run_start"]
    assert [info.model for info in infos] == ["fake/fake", "fake/b"]
    assert infos[0].system_sha256 != infos[1].system_sha256
    assert other.model.requests[0].system == "new"


def test_an_agent_and_its_tool_map_are_read_only():
    agent = Agent(model=FakeModel(), tools=[add, name_of])

    assert dict(agent.tool_map) == {"add": add, "name_of": name_of}
    with pytest.raises(TypeError):
        agent.tool_map["x"] = add
    with pytest.raises(AttributeError):
        agent.system = "x"
    with pytest.raises(AttributeError):
        agent.tool_map = {}


def test_an_object_gives_all_its_tools():
    class Box:
        @tool
        async def open(self) -> str:
            """Open it."""
            return "open"

        @tool
        async def close(self) -> str:
            """Close it."""
            return "closed"

    assert list(Agent(model=FakeModel(), tools=[Box(), add]).tool_map) == ["open", "close", "add"]


# A Reporter


class Log(Reporter):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_run_start(self, state, agent):
        self.lines.append(f"run of {agent.name}")

    def on_think_start(self, state):
        self.lines.append(f"think {state.turn}")

    def on_text(self, state, text):
        self.lines.append(f"text {text}")

    def on_reply(self, state, reply):
        self.lines.append(f"reply with {len(reply.tool_calls)} calls")

    def on_tool_start(self, state, call):
        self.lines.append(f"start {call.name}")

    def on_tool_end(self, state, call, result, outcome):
        assert not any(pending.id == call.id for pending in state.pending_calls)
        self.lines.append(f"end {call.name} {outcome}: {result[0].text}")

    def on_run_end(self, state, error):
        self.lines.append(f"run ended: {error!r}")


async def test_a_reporter_is_told_of_a_run_in_order():
    log = Log()
    script = [["Let me see.", tool_call("add", a=1, b=2), tool_call("name_of", n=7)], "done"]

    await Agent(model=FakeModel(script), tools=[add, name_of], reporter=log, name="adder").run("go")

    tools = log.lines[4:8]
    assert log.lines[:4] == ["run of adder", "think 1", "text Let me see.", "reply with 2 calls"]
    assert sorted(tools) == ["end add done: 3", "end name_of done: number 7", "start add", "start name_of"]
    assert all(tools.index(f"start {name}") < tools.index(end) for name, end in (("add", "end add done: 3"),))
    assert log.lines[8:] == ["think 2", "text done", "reply with 0 calls", "run ended: None"]


async def test_a_reporter_is_told_of_the_result_of_a_call_that_the_model_got_wrong():
    """A call got its result, though it didn't run."""
    log = Log()

    await Agent(model=FakeModel([tool_call("nope"), "done"]), tools=[add], reporter=log).run("go")

    assert any(line.startswith("end nope input_error") for line in log.lines)


async def test_a_reporter_is_told_of_the_error_that_ends_a_run():
    log = Log()

    with pytest.raises(ConnectionError):
        await Agent(model=FakeModel([ConnectionError("gone")]), reporter=log).run("go")

    assert log.lines[-1] == "run ended: ConnectionError('gone')"


METHODS = ["on_run_start", "on_think_start", "on_text", "on_reply", "on_tool_start", "on_tool_end", "on_run_end"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("calls", [1, 2])
async def test_an_exception_of_a_reporter_comes_out_of_the_run_and_the_record_stays_true(method, calls):
    failing = [True]
    raised = ZeroDivisionError(method)

    def fail(self, *args):
        if failing:
            raise raised

    reporter = type("Failing", (Reporter,), {method: fail})()
    ran = []

    @tool
    async def work(n: int) -> str:
        """Leave a trace."""
        ran.append(n)
        return f"did {n}"

    def answer(request):
        if any(m.role == "tool" for m in request.messages):
            return "done"
        return ["Well.", *[tool_call("work", n=n) for n in range(calls)]]

    store = MemoryStore()
    state = asked()
    agent = Agent(model=FakeModel(answer), tools=[work], reporter=reporter, store=store)

    with pytest.raises(ZeroDivisionError) as caught:
        await agent.run(state)

    assert caught.value is raised
    assert set(errors(state)) == {f"ZeroDivisionError: {method}"}
    assert len(errors(state)) == 1 or method.startswith("on_tool"), "each call's own is in its own entry"
    done = [e for e in state.history if e.kind == "tool_result" and str(e.outcome) == "done"]
    assert {e.content[0].text for e in done} <= {f"did {n}" for n in ran}
    if method not in ("on_tool_start",):
        assert len(done) == len(ran), "what ran has its result"
    assert_whole(state)
    assert (await store.load(state.id)).snapshot() == state.snapshot()
    failing.clear()
    state.add_message(Message.user("go on"))
    assert await agent.run(state) == "done"
    assert_whole(state)


async def test_an_exception_of_a_reporter_at_the_end_does_not_hide_what_ended_the_run():
    class Failing(Reporter):
        def on_run_end(self, state, error):
            raise OSError("reporter")

    state = asked()
    with pytest.raises(ConnectionError, match="gone") as caught:
        await Agent(model=FakeModel([ConnectionError("gone")]), reporter=Failing()).run(state)

    assert any("reporter" in note for note in caught.value.__notes__)


async def test_a_reporter_may_read_and_change_the_state():
    class Helpful(Reporter):
        def on_reply(self, state, reply):
            if state.turn == 1:
                state.add_message(Message.notice("are you sure?"))

    state = asked()
    model = FakeModel(["yes", "quite sure"])

    assert await Agent(model=model, reporter=Helpful()).run(state) == "quite sure"
    assert_whole(state)


@pytest.mark.parametrize("method", ["on_think_start", "on_text", "on_reply", "on_tool_start", "on_tool_end"])
async def test_an_exception_of_a_reporter_outside_a_run_is_recorded_once_too(method):
    def fail(self, *args):
        raise ZeroDivisionError(method)

    state = asked()
    agent = Agent(model=FakeModel([["Well.", tool_call("add", a=1, b=1)]]), tools=[add])
    agent = agent.copy(reporter=type("Failing", (Reporter,), {method: fail})())

    async def turn() -> None:
        await agent.think(state)
        await agent.use_tools(state)

    with pytest.raises(ZeroDivisionError):
        await turn()

    assert errors(state) == [f"ZeroDivisionError: {method}"]


async def test_sys_exit_in_a_reporter_at_the_end_comes_out_though_the_run_had_failed():
    """SystemExit and KeyboardInterrupt come first; what the run raised is a note."""

    class Leaving(Reporter):
        def on_run_end(self, state, error):
            raise SystemExit(3)

    with pytest.raises(SystemExit) as caught:
        await Agent(model=FakeModel([ConnectionError("gone")]), reporter=Leaving()).run(asked())

    assert any("gone" in note for note in caught.value.__notes__)


async def test_actions_outside_a_run_report_too():
    log = Log()
    state = asked()
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=2)]), tools=[add], reporter=log)

    await agent.think(state)
    await agent.use_tools(state)

    assert log.lines == ["think 1", "reply with 1 calls", "start add", "end add done: 3"]


# Loops


async def test_a_loop_without_a_decorator_is_any_async_function():
    async def twice(agent, state):
        await agent.think(state)
        await agent.think(state)

    state = asked()
    assert await Agent(model=FakeModel(["one", "two"]), loop=twice).run(state) == "two"
    assert state.stopped is None


async def test_calls_that_a_loop_leaves_open_are_closed_when_the_run_ends():
    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        await agent.think(state)

    state = asked()
    await Agent(model=FakeModel([tool_call("add", a=1, b=1)]), tools=[add], loop=body).run(state)

    assert outcomes(state) == [("add", "aborted")]
    assert_whole(state)


async def test_a_tool_that_runs_its_own_state_again_is_refused():
    @tool
    async def again(state: State) -> str:
        """Run what runs me."""
        for action in (agent.run(state), agent.think(state), agent.use_tools(state), agent.compact(state)):
            with pytest.raises(ValueError, match=r"is on|in a run"):
                await action
        return "refused"

    state = asked()
    agent = Agent(model=FakeModel([tool_call("again"), "done"]), tools=[again])

    with trio.fail_after(10):
        assert await agent.run(state) == "done"
    assert isinstance(state.messages[1].tool_calls[0], ToolCall)
