"""Agent.run: what it does in order, how it ends, and that the State can go on afterwards."""

from __future__ import annotations

import signal
import threading

import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    CutOffError,
    Message,
    Model,
    Reply,
    ResumeWarning,
    State,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByUntil,
    ToolError,
    Usage,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, ScriptEndedError, tool_call


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def forever() -> str:
    """Never end."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


def kinds(state: State) -> list[str]:
    return [entry.kind for entry in state.history]


def results(state: State) -> list[tuple[str, str, str]]:
    return [(e.call.name, str(e.outcome), e.content[0].text) for e in state.history if e.kind == "tool_result"]


async def test_a_run_asks_the_model_runs_its_tool_and_returns_the_answer():
    model = FakeModel([tool_call("add", a=1, b=2), "The sum is 3."])
    state = State(messages=[Message.user("1 + 2?")])

    answer = await Agent(model=model, tools=[add]).run(state)

    assert answer == state.answer == "The sum is 3."
    assert kinds(state) == [
        "context_change",
        "run_start",
        "model_request",
        "model_reply",
        "tool_result",
        "model_request",
        "model_reply",
        "stop",
    ]
    assert state.turn == 2
    assert state.stopped == StoppedByUntil("waiting_for_user")
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
    assert state.usage == Usage(input_tokens=20, output_tokens=20, requests=2)


async def test_a_prompt_makes_a_state_of_its_own():
    model = FakeModel(["hello"])

    assert await Agent(model=model).run("hi") == "hello"
    assert model.requests[0].messages[0] == Message.user("hi")


def test_run_sync_works_in_a_plain_script():
    assert Agent(model=FakeModel(["hello"])).run_sync("hi") == "hello"


async def test_run_sync_inside_an_event_loop_says_what_to_write():
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        Agent(model=FakeModel(["hello"])).run_sync("hi")


@pytest.mark.parametrize("subject", [None, 3, [Message.user("x")]])
async def test_run_takes_a_prompt_or_a_state(subject):
    with pytest.raises(TypeError, match="prompt or a State"):
        await Agent(model=FakeModel()).run(subject)


async def test_a_second_run_on_the_same_state_is_refused_and_records_nothing():
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("forever")]), tools=[forever])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await trio.testing.wait_all_tasks_blocked()
        before = list(state.history)

        with pytest.raises(ValueError, match="in a run already"):
            await agent.run(state)

        assert list(state.history) == before
        nursery.cancel_scope.cancel()


async def test_a_finished_state_does_not_run_think_use_tools_or_ask():
    state = State(messages=[Message.user("go")])
    state.finish("done")
    agent = Agent(model=FakeModel(["x"]))
    before = list(state.history)

    for action in (agent.run(state), agent.think(state), agent.use_tools(state), agent.ask(state, "why?")):
        with pytest.raises(ValueError, match="is finished"):
            await action

    assert list(state.history) == before


async def test_think_on_an_empty_state_is_refused():
    state = State()
    with pytest.raises(ValueError, match="no messages"):
        await Agent(model=FakeModel(["x"])).think(state)
    assert not len(state.history)


async def test_a_tool_that_finishes_the_state_ends_the_run_with_its_answer():
    @tool
    async def submit(state: State, answer: int) -> str:
        """Give the answer."""
        state.finish({"answer": (answer, 1)})
        return "ok"

    state = State(messages=[Message.user("go")])
    answer = await Agent(model=FakeModel([tool_call("submit", answer=42)]), tools=[submit]).run(state)

    assert answer == {"answer": [42, 1]}
    assert state.stopped == StoppedByFinish({"answer": [42, 1]})
    assert not state.pending_calls


# Loops


async def test_a_limit_stops_the_loop_and_the_next_run_counts_from_zero():
    model = FakeModel(lambda request: tool_call("add", a=1, b=1))
    agent = Agent(model=model, tools=[add], loop=default_loop.copy(limit=3))
    state = State(messages=[Message.user("go")])

    await agent.run(state)
    assert (state.stopped, state.turn) == (StoppedByLimit(3), 3)

    await agent.run(state)
    assert (state.stopped, state.turn) == (StoppedByLimit(3), 6)


async def test_until_functions_may_be_async_and_are_asked_in_order():
    asked = []

    async def first(state: State) -> bool:
        asked.append("first")
        await trio.lowlevel.checkpoint()
        return False

    def second(state: State) -> bool:
        asked.append("second")
        return len(asked) > 3

    @loop(until=[first, second], limit=10)
    async def body(agent, state):
        await trio.lowlevel.checkpoint()

    state = State()
    await Agent(model=FakeModel(), loop=body).run(state)

    assert asked == ["first", "second", "first", "second"]
    assert state.stopped == StoppedByUntil("second")


async def test_a_stop_of_an_inner_loop_is_taken_back_by_the_outer_one():
    @loop(until=waiting_for_user, limit=1)
    async def inner(agent, state):
        await trio.lowlevel.checkpoint()

    turns = []

    @loop(until=lambda_free_never, limit=2)
    async def outer(agent, state):
        turns.append(state.stopped)
        await inner(agent, state)

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel(), loop=outer).run(state)

    assert turns == [None, None]
    stops = [entry.content for entry in state.history if entry.kind == "stop"]
    assert stops == [StoppedByLimit(1), None, StoppedByLimit(1), None, StoppedByLimit(2)]


def lambda_free_never(state: State) -> bool:
    return False


async def test_a_loop_body_that_returns_something_is_told_so():
    @loop(until=lambda_free_never, limit=2)
    async def body(agent, state):
        return "x"

    with pytest.raises(TypeError, match="must return None"):
        await Agent(model=FakeModel(), loop=body).run(State())


def test_mistakes_in_a_loop_are_told_when_it_is_made():
    with pytest.raises(TypeError, match="async def"):

        @loop(until=waiting_for_user, limit=3)
        def body(agent, state): ...

    with pytest.raises(ValueError, match="1 or more"):
        loop(until=waiting_for_user, limit=0)
    with pytest.raises(TypeError, match="int"):
        loop(until=waiting_for_user, limit=2.5)
    with pytest.raises(ValueError, match="needs a function"):
        loop(until=[], limit=2)
    with pytest.warns(UserWarning, match="lambda"):
        loop(until=lambda state: True, limit=2)
    with pytest.raises(TypeError, match="async def"):
        Agent(model=FakeModel(), loop=lambda agent, state: None)


async def test_a_message_added_after_the_answer_lets_the_loop_go_on():
    """Check the work before finishing: the stop condition is false again."""
    state = State(messages=[Message.user("go")])

    def checked(request):
        state.add_message(Message.notice("tests fail"))
        return "done"

    model = FakeModel([checked, "fixed"])
    assert await Agent(model=model).run(state) == "fixed"
    assert model.requests[1].messages[-1].text == "[notice] tests fail"


# Failures


async def test_a_model_error_is_raised_as_it_is_and_recorded_once():
    error = ConnectionError("gone")
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([error, "back"]))

    with pytest.raises(ConnectionError) as caught:
        await agent.run(state)

    assert caught.value is error
    assert [entry.content for entry in state.history if entry.kind == "error"] == ["ConnectionError: gone"]
    assert state.turn == 0
    assert await agent.run(state) == "back"


async def test_an_error_of_the_loop_body_closes_its_pending_calls_as_aborted():
    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        await agent.think(state)
        raise KeyError("mine")

    state = State(messages=[Message.user("go")])
    with pytest.raises(KeyError):
        await Agent(model=FakeModel([tool_call("add", a=1, b=1)]), tools=[add], loop=body).run(state)

    assert [(name, outcome) for name, outcome, _ in results(state)] == [("add", "aborted")]
    assert results(state)[0][2].startswith("(aborted: KeyError)")
    assert not state.pending_calls


async def test_a_failing_tool_cancels_its_siblings_keeps_finished_results_and_comes_out_bare():
    closed = []

    @tool
    async def bad() -> str:
        """Fail."""
        await trio.testing.wait_all_tasks_blocked()
        raise ZeroDivisionError("bug")

    @tool
    async def slow() -> str:
        """Wait."""
        try:
            await trio.sleep_forever()
        finally:
            closed.append("slow")
        raise AssertionError("unreachable")

    state = State(messages=[Message.user("go")])
    model = FakeModel([[tool_call("slow"), tool_call("add", a=1, b=2), tool_call("bad")], "on again"])
    agent = Agent(model=model, tools=[bad, slow, add])

    with pytest.raises(ZeroDivisionError):
        await agent.run(state)

    assert closed == ["slow"]
    assert {name: outcome for name, outcome, _ in results(state)} == {
        "add": "done",
        "slow": "aborted",
        "bad": "aborted",
    }
    errors = [entry for entry in state.history if entry.kind == "error"]
    assert [(entry.content, entry.call.name) for entry in errors] == [("ZeroDivisionError: bug", "bad")]
    assert await agent.run(state) == "on again"
    last = model.requests[1].messages[-1]
    assert [block.call_id for block in last.blocks] == [call.id for call in state.messages[1].tool_calls]


async def test_two_failing_tools_raise_the_first_and_note_the_other():
    gate = trio.Event()

    @tool
    async def first() -> str:
        """Fail first."""
        await gate.wait()
        raise ValueError("one")

    @tool
    async def second() -> str:
        """Fail while cancelled."""
        gate.set()
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("two")

    state = State(messages=[Message.user("go")])
    with pytest.raises(ValueError, match="one") as caught:
        await Agent(model=FakeModel([[tool_call("first"), tool_call("second")]]), tools=[first, second]).run(state)

    assert any("two" in note for note in caught.value.__notes__)
    assert {e.content for e in state.history if e.kind == "error"} == {"ValueError: one", "OSError: two"}


async def test_a_run_on_a_fork_in_mid_turn_runs_the_pending_calls_first():
    done: list[str] = []

    @tool
    async def note(text: str) -> str:
        """Note."""
        done.append(text)
        return "noted"

    agent = Agent(model=FakeModel([[tool_call("note", text="a"), tool_call("note", text="b")], "done"]), tools=[note])
    state = State(messages=[Message.user("note a and b")])
    await agent.think(state)
    fork = state.fork()

    assert await agent.run(fork) == "done"
    assert sorted(done) == ["a", "b"]
    assert [message.role for message in fork.messages] == ["user", "assistant", "tool", "assistant"]
    assert fork.turn == 2
    assert [call.name for call in state.pending_calls] == ["note", "note"]


async def test_a_loop_body_that_catches_a_tools_error_can_use_the_tools_again():
    """Finished calls don't run twice."""
    ran = []

    @tool
    async def count(n: int) -> int:
        """Count."""
        ran.append(n)
        return n

    @tool
    async def flaky() -> str:
        """Fail the first time."""
        ran.append("flaky")
        if ran.count("flaky") == 1:
            await trio.testing.wait_all_tasks_blocked()
            raise OSError("again, please")
        return "ok"

    @loop(until=waiting_for_user, limit=3)
    async def body(agent, state):
        await agent.think(state)
        try:
            await agent.use_tools(state)
        except OSError:
            await agent.use_tools(state)

    state = State(messages=[Message.user("go")])
    model = FakeModel([[tool_call("count", n=1), tool_call("flaky")], "done"])
    assert await Agent(model=model, tools=[count, flaky], loop=body).run(state) == "done"

    assert ran == [1, "flaky", "flaky"] or ran == ["flaky", 1, "flaky"]
    assert sorted(outcome for _, outcome, _ in results(state)) == ["done", "done"]


async def test_a_tool_error_is_the_models_to_read_and_the_others_go_on():
    @tool
    async def picky() -> str:
        """Complain."""
        raise ToolError("no such file: a.txt")

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([[tool_call("picky"), tool_call("add", a=1, b=2)], "ok"]), tools=[picky, add]).run(
        state
    )

    assert sorted(results(state)) == [("add", "done", "3"), ("picky", "error", "no such file: a.txt")]


async def test_what_the_model_got_wrong_is_an_input_error_and_the_run_goes_on():
    bad_json = Reply((tool_call("add").__class__("c9", "add", None, '{"a": 1'),), usage=Usage(requests=1))
    model = FakeModel(
        [[tool_call("ad", a=1, b=1), tool_call("add", a="x", b=1), tool_call("add", a=1, b=1)], bad_json, "ok"]
    )
    state = State(messages=[Message.user("go")])
    assert await Agent(model=model, tools=[add]).run(state) == "ok"

    assert [outcome for _, outcome, _ in results(state)] == ["input_error", "input_error", "done", "input_error"]
    assert results(state)[3][2].startswith("The arguments are not a JSON object")
    assert "Did you mean add?" in results(state)[0][2]


async def test_call_ids_that_come_again_or_not_at_all_are_made_unique():
    Call = tool_call("add").__class__
    twice = [Call("c", "add", {"a": 1, "b": 1}), Call("c", "add", {"a": 2, "b": 2}), Call("", "add", {"a": 3, "b": 3})]
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([twice, [Call("c", "add", {"a": 4, "b": 4})], "ok"]), tools=[add]).run(state)

    ids = [call.id for message in state.messages for call in message.tool_calls]
    assert ids == ["c", "c_2", "call_3_2", "c_3"]
    blocks = [block for message in state.messages if message.role == "tool" for block in message.blocks]
    assert [(block.call_id, block.content[0].text) for block in blocks] == list(zip(ids, "2468", strict=True))


async def test_an_empty_cut_off_reply_is_an_error_that_keeps_reply_and_tokens():
    cut = Reply((), stop_reason="length", cut_off=True, usage=Usage(input_tokens=5, output_tokens=7, requests=1))
    state = State(messages=[Message.user("go")])
    with pytest.raises(CutOffError):
        await Agent(model=FakeModel([cut])).run(state)

    assert state.usage.output_tokens == 7
    assert [e.kind for e in state.history][-2:] == ["model_reply", "error"]


async def test_a_script_that_ends_too_early_says_so():
    with pytest.raises(ScriptEndedError, match="request 2, and its script had 1"):
        await Agent(model=FakeModel([tool_call("add", a=1, b=1)]), tools=[add]).run("go")


# Cancellation


async def test_a_cancelled_run_leaves_nothing_pending_and_can_go_on(autojump_clock):
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([[tool_call("forever"), tool_call("add", a=1, b=2)], "back"]), tools=[forever, add])

    with trio.move_on_after(30) as scope:
        await agent.run(state)

    assert scope.cancelled_caught
    assert not state.pending_calls
    assert sorted((name, outcome) for name, outcome, _ in results(state)) == [
        ("add", "done"),
        ("forever", "interrupted"),
    ]
    assert [e.content for e in state.history if e.kind == "error"] == ["Cancelled"]
    state.add_message(Message.user("and now?"))
    assert await agent.run(state) == "back"


async def test_a_request_that_is_cancelled_is_taken_back(autojump_clock):
    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel(["late"], delay=100))

    with trio.move_on_after(1):
        await agent.run(state)

    assert state.turn == 0
    assert [e.kind for e in state.history] == ["context_change", "run_start", "model_request", "error"]


async def test_messages_that_came_while_the_model_was_waited_on_go_in_behind_the_results():
    state = State(messages=[Message.user("go")])

    @tool
    async def talk() -> str:
        """Have somebody talk meanwhile."""
        state.add_message(Message.user("also do X"))
        state.add_message(Message.notice("news"))
        return "ok"

    model = FakeModel([tool_call("talk"), "done"])
    await Agent(model=model, tools=[talk]).run(state)

    assert [m.role for m in model.requests[1].messages] == ["user", "assistant", "tool", "user", "user"]
    assert [m.text for m in state.messages][3:5] == ["also do X", "[notice] news"]


async def test_awaiting_a_message_that_waits_for_the_very_call_is_refused():
    state = State(messages=[Message.user("go")])

    @tool
    async def impatient() -> str:
        """Wait for what waits for me."""
        with pytest.raises(RuntimeError, match="never end"):
            await state.add_message(Message.user("x"))
        return "ok"

    await Agent(model=FakeModel([tool_call("impatient"), "done"]), tools=[impatient]).run(state)
    assert results(state)[0][1] == "done"


async def test_a_receipt_completes_when_the_message_has_reached_the_messages():
    state = State(messages=[Message.user("go")])
    gate = trio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "ok"

    async def add_and_wait():
        await state.add_message(Message.user("x"))
        seen.append([m.text for m in state.messages][-1])

    seen: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Agent(model=FakeModel([tool_call("wait"), "done"]), tools=[wait]).run, state)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(add_and_wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not seen
        gate.set()

    assert seen


async def test_a_receipt_for_calls_that_nobody_runs_is_refused():
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("add", a=1, b=1)]), tools=[add]).think(state)

    with pytest.raises(RuntimeError, match="nobody runs"):
        await state.add_message(Message.user("x"))


def test_ctrl_c_in_a_spinning_tool_closes_the_call_and_comes_out():
    @tool
    async def spin() -> str:
        """Spin until interrupted."""
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("unreachable")

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([tool_call("spin"), "back"]), tools=[spin])

    with pytest.raises(KeyboardInterrupt):
        agent.run_sync(state)

    assert [(n, o) for n, o, _ in results(state)] == [("spin", "interrupted")]
    assert results(state)[0][2].startswith("(interrupted by user)")
    assert [e.content for e in state.history if e.kind == "error"] == ["KeyboardInterrupt"]
    assert agent.run_sync(state) == "back"


# Sync tools and threads


async def test_sync_tools_run_in_threads_at_the_same_time():
    together = threading.Barrier(2, timeout=30)

    @tool
    def meet(n: int) -> int:
        """Wait for the other."""
        together.wait()
        return n

    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([[tool_call("meet", n=1), tool_call("meet", n=2)], "done"]), tools=[meet]).run(state)
    assert sorted(text for _, _, text in results(state)) == ["1", "2"]


async def test_a_thread_that_ends_after_its_call_was_closed_gives_a_late_result_and_a_notice():
    entered, leave = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    @tool
    def hang() -> str:
        """Hang until let go."""
        token.run_sync_soon(entered.set)
        leave.wait(30)
        return "at last"

    state = State(messages=[Message.user("go")])
    model = FakeModel([tool_call("hang"), "I see"])
    agent = Agent(model=model, tools=[hang])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run, state)
        await entered.wait()
        nursery.cancel_scope.cancel()
    assert results(state)[0][1] == "interrupted"

    leave.set()
    async for entry in state.watch(after=len(state.history)):
        assert (entry.kind, entry.late, entry.content[0].text) == ("tool_result", True, "at last")
        break
    assert await agent.run(state) == "I see"
    told = model.requests[1].messages[-1]
    assert told.is_notice
    assert "at last" in told.text
    assert len([e for e in state.history if e.kind == "tool_result" and e.late]) == 1


# Resuming with another Agent


async def test_another_agent_on_a_loaded_state_is_warned_of_once():
    from alpineagents import MemoryStore

    store = MemoryStore()
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel(["one"]), tools=[add], system="old", store=store).run(state)
    other = Agent(model=FakeModel(["two", "three"], name="fake/other"), tools=[forever], system="new", store=store)

    loaded = await store.load(state.id)
    loaded.add_message(Message.user("more"))
    with pytest.warns(ResumeWarning) as caught:
        await other.run(loaded)

    warning = caught[0].message
    assert list(warning.changes) == ["tools", "model", "system_sha256"]
    assert warning.changes["tools"] == (("add",), ("forever",))
    assert "tools: removed add, added forever; model: fake/fake -> fake/other; system: changed" in str(warning)
    loaded.add_message(Message.user("more"))
    await other.run(loaded)


async def test_a_resume_warning_that_is_an_error_is_raised_before_anything_and_again_by_the_next_try():
    from alpineagents import MemoryStore

    store = MemoryStore()
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel(["one"]), tools=[add], store=store).run(state)
    loaded = await store.load(state.id)
    before = list(loaded.history)

    for _ in range(2):  # warnings are errors in this test suite
        with pytest.raises(ResumeWarning):
            await Agent(model=FakeModel(["two"]), store=store).run(loaded)

    assert list(loaded.history) == before


class NotAsync(Model):
    name = "mine/m"

    def respond(self, request, emit):
        return None


class TakesLess(Model):
    name = "mine/m"

    async def respond(self, request):
        return None


@pytest.mark.parametrize("kind", [NotAsync, TakesLess])
async def test_a_model_that_is_not_written_as_one_says_how_it_is(kind):
    state = State(messages=[Message.user("go")])

    with pytest.raises(TypeError, match=rf"{kind.__name__}\.respond must be async def respond\(self, request, emit\)"):
        await Agent(model=kind()).run(state)

    assert state.history[-1].kind == "error"


async def test_a_mistake_inside_a_model_comes_out_as_it_is():
    class Wrong(Model):
        name = "mine/wrong"

        async def respond(self, request, emit):
            return len(5)

    with pytest.raises(TypeError, match=r"^object of type 'int' has no len\(\)$"):
        await Agent(model=Wrong()).run("go")
