"""Who decides about a call, in which order, and what the model and the record are told."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import pytest
import trio

from alpineagents import (
    Agent,
    AllowByDefault,
    AllowByName,
    AllowByReadOnly,
    Allowed,
    AllowPermission,
    Denied,
    DenyByName,
    DenyPermission,
    Message,
    PermissionWarning,
    Reporter,
    State,
    StoppedByPermission,
    Tool,
    ToolCall,
    ToolError,
    tool,
)
from alpineagents._tool_contract import Hints
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import assert_whole, errors, outcomes
from .agents import ALLOWED, DENIED, Allow, Decide, Deny, Tools, an_agent, call, go, results


def test_without_permissions_all_calls_run() -> None:
    state, tools = go(None, call("read"), call("delete"))

    assert sorted(tools.ran) == ["delete 0", "read 0"]
    assert [decided_by for *_, decided_by in results(state)] == [None, None]


def test_an_empty_list_refuses_every_call() -> None:
    with pytest.warns(PermissionWarning, match="AllowByName\\('read'\\)") as warned:
        state, tools = go([], call("read"))

    assert tools.ran == []
    assert results(state) == [("read", "denied", "(denied: no permission allows this call)", None)]
    assert [warning.message.tool for warning in warned] == ["read"]
    assert_whole(state)


def test_every_deny_is_asked_first_wherever_it_stands() -> None:
    decide, allow, last = Decide(ALLOWED, "d"), Allow(ALLOWED, "a"), Deny(DENIED, "last")

    state, tools = go([decide, allow, last], call("read"))

    assert tools.ran == []
    assert results(state) == [("read", "denied", "no", "Deny(last)")]
    assert decide.asked == allow.asked == []


def test_the_first_verdict_in_list_order_counts() -> None:
    silent, no, yes = Allow(None, "silent"), Decide(DENIED, "no"), Allow(ALLOWED, "yes")

    assert results(go([silent, no, yes], call("read"))[0])[0][1:] == ("denied", "no", "Decide(no)")
    assert results(go([silent, yes, no], call("read"))[0])[0][1:] == ("done", "read did 0", "Allow(yes)")


def test_checks_may_be_async() -> None:
    class Late(DenyPermission):
        async def check(self, state: State, call: Any, tool: Any) -> Denied | None:
            await trio.lowlevel.checkpoint()
            return Denied("async no") if call.name == "delete" else None

    state, tools = go([Late(), AllowByDefault()], call("read"), call("delete"))

    assert tools.ran == ["read 0"]
    assert results(state)[1] == ("delete", "denied", "async no", "Late()")


def test_all_calls_are_decided_in_order_before_any_runs() -> None:
    asked: list[tuple[str, list[str]]] = []
    tools = Tools()

    def note(one: Any) -> object:
        asked.append((one.name, list(tools.ran)))
        return ALLOWED

    go([Decide(note)], call("write"), call("read"), call("delete"), tools=tools)

    assert asked == [("write", []), ("read", []), ("delete", [])]
    assert sorted(tools.ran) == ["delete 0", "read 0", "write 0"]


def test_input_errors_are_found_before_permissions_are_asked() -> None:
    decide = Decide(ALLOWED)

    state, _ = go([decide], call("read", n="many"), call("nope"), call("write"))

    assert decide.asked == ["write"]
    assert [outcome for _, outcome, *_ in results(state)] == ["input_error", "input_error", "done"]


@pytest.mark.parametrize("permission", [Deny, Allow, Decide])
def test_a_tool_error_in_a_check_is_a_refusal_that_the_model_reads(permission: Any) -> None:
    state, tools = go([permission(ToolError("no key"), "x"), AllowByDefault()], call("read"))

    assert tools.ran == []
    assert results(state) == [("read", "denied", "no key", f"{permission.__name__}(x)")]
    assert isinstance(next(e.error for e in state.history if e.kind == "tool_result"), ToolError)


@pytest.mark.parametrize("permission", [Deny, Allow, Decide])
def test_any_other_exception_of_a_check_stops_the_run(permission: Any) -> None:
    tools = Tools()
    state = State(messages=[Message.user("go")])
    failing = permission(lambda one: ZeroDivisionError("bug") if one.name == "write" else None)
    agent = an_agent(tools, [[call("read"), call("write"), call("delete")]], [failing, AllowByDefault()])

    with pytest.raises(ZeroDivisionError):
        agent.run_sync(state)

    assert tools.ran == []
    assert errors(state) == ["ZeroDivisionError: bug"]
    assert [outcome for _, outcome in outcomes(state)] == ["aborted"] * 3
    assert next(e.call.name for e in state.history if e.kind == "error") == "write"
    assert_whole(state)


@pytest.mark.parametrize(
    ("permission", "said"),
    [(Deny, ALLOWED), (Allow, DENIED), (Decide, True), (Decide, "yes"), (Decide, Allowed), (Deny, False)],
)
def test_a_verdict_that_a_kind_can_not_give_allows_nothing(permission: Any, said: object) -> None:
    tools = Tools()

    with pytest.raises(TypeError, match=f"{permission.__name__}.check must return"):
        go([permission(said), AllowByDefault()], call("read"), tools=tools)

    assert tools.ran == []


def test_a_check_can_not_fake_a_cancellation() -> None:
    class Cancelling(DenyPermission):
        async def check(self, state: State, call: Any, tool: Any) -> Denied | None:
            with trio.CancelScope() as scope:
                scope.cancel()
                try:
                    await trio.lowlevel.checkpoint()
                except trio.Cancelled as error:
                    kept = error
            raise kept

    with pytest.raises(RuntimeError, match="without being cancelled"):
        go([Cancelling()], call("read"))


async def test_no_call_starts_once_the_run_is_cancelled_whatever_a_check_says(autojump_clock: Any) -> None:
    class Stubborn(AllowPermission):
        async def check(self, state: State, call: Any, tool: Any) -> Allowed:
            with contextlib.suppress(trio.Cancelled):
                await trio.sleep_forever()
            return Allowed()

    ran: list[str] = []

    @tool
    async def write() -> None:
        ran.append("write")

    state = State(messages=[Message.user("go")])
    agent = Agent(model=FakeModel([call("write")]), tools=[write], permissions=[Stubborn()])
    with trio.move_on_after(5) as scope:
        await agent.run(state)

    assert scope.cancelled_caught
    assert ran == []
    assert outcomes(state) == [("write", "interrupted")]
    assert_whole(state)


def test_a_call_without_any_text_for_its_arguments_is_shown_with_none() -> None:
    """``None`` is for what can't be read; a check needn't expect it."""
    seen: list[Any] = []

    class Looking(DenyPermission):
        def check(self, state: State, call: Any, tool: Any) -> None:
            seen.append((call.id, dict(call.args)))

    go([Looking(), AllowByReadOnly(), AllowByDefault()], ToolCall("1", "read", None, " "), ToolCall("2", "read", {}))

    assert seen == [("1", {}), ("2", {})]


def test_a_refused_call_does_not_keep_others_from_running() -> None:
    state, tools = go([DenyByName("delete"), AllowByDefault()], call("read"), call("delete"), call("write"))

    assert sorted(tools.ran) == ["read 0", "write 0"]
    assert [outcome for _, outcome, *_ in results(state)] == ["done", "denied", "done"]
    assert state.answer == "done"


def test_a_permission_sees_state_call_and_tool() -> None:
    seen: list[Any] = []

    class Looking(DenyPermission):
        def check(self, state: State, call: Any, tool: Any) -> None:
            seen.append((state, call.args["n"], call in state.pending_calls, tool.name))

    state, _ = go([Looking(), AllowByDefault()], call("read", n=3))

    assert seen == [(state, 3, True, "read")]


def test_the_reporter_is_told_of_refusals() -> None:
    class Watching(Reporter):
        def __init__(self) -> None:
            self.told: list[tuple[str, str]] = []

        def on_tool_start(self, state: State, call: Any) -> None:
            self.told.append((call.name, "start"))

        def on_tool_end(self, state: State, call: Any, result: Any, outcome: Any) -> None:
            self.told.append((call.name, str(outcome)))

    plain, stopping = Watching(), Watching()
    go([DenyByName("delete"), AllowByDefault()], call("read"), call("delete"), reporter=plain)
    go([Decide(Denied("no", stop=True))], call("read"), call("delete"), reporter=stopping)

    assert plain.told == [("delete", "denied"), ("read", "start"), ("read", "done")]
    assert stopping.told == [("read", "denied"), ("delete", "cancelled")]


def test_use_tools_outside_a_run_asks_too() -> None:
    tools = Tools()

    async def main() -> State:
        state = State(messages=[Message.user("go")])
        agent = an_agent(tools, [[call("read")]], [Decide(DENIED, "d")])
        await agent.think(state)
        await agent.use_tools(state)
        return state

    assert results(trio.run(main)) == [("read", "denied", "no", "Decide(d)")]


def test_a_check_that_failed_is_asked_again_when_the_loop_goes_on() -> None:
    tools = Tools()
    verdicts: list[Any] = [ALLOWED, ZeroDivisionError("bug"), ALLOWED, ALLOWED]

    async def main() -> State:
        state = State(messages=[Message.user("go")])
        agent = an_agent(tools, [[call("read"), call("write")]], [Decide(lambda _: verdicts.pop(0))])
        await agent.think(state)
        with pytest.raises(ZeroDivisionError):
            await agent.use_tools(state)
        assert tools.ran == []
        await agent.use_tools(state)
        return state

    assert [outcome for _, outcome, *_ in results(trio.run(main))] == ["done", "done"]


def test_a_subagent_that_a_check_runs_is_linked_to_the_call() -> None:
    judge = Agent(model=FakeModel(["fine"]))

    class Judged(DenyPermission):
        async def check(self, state: State, call: Any, tool: Any) -> Denied | None:
            return None if await judge.run("May it?") == "fine" else Denied("the judge says no")

    state, tools = go([Judged(), AllowByDefault()], call("read"))

    entry = next(entry for entry in state.history if entry.kind == "tool_result")
    assert tools.ran == ["read 0"]
    assert [state.child(child_id).parent_call_id for child_id in entry.child_ids] == [entry.call.id]
    assert state.usage.requests == 3


def test_awaiting_a_message_that_waits_for_the_call_never_hangs() -> None:
    class Impatient(DenyPermission):
        async def check(self, state: State, call: Any, tool: Any) -> Denied | None:
            await state.add_message(Message.notice("checked"))
            return None

    with pytest.raises(RuntimeError, match="never end"):
        go([Impatient(), AllowByDefault()], call("read"))


def test_two_permission_warnings_name_two_tools() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        go([AllowByName("read")], call("read"), call("write"), call("delete"))

    assert [warning.message.tool for warning in caught] == ["write", "delete"]


def test_a_permission_warning_as_an_error_stops_the_run_and_nothing_ran() -> None:
    tools = Tools()
    state = State(messages=[Message.user("go")])
    agent = an_agent(tools, [[call("read"), call("write")]], [AllowByName("read")])

    with pytest.raises(PermissionWarning):  # all warnings are errors in these tests
        agent.run_sync(state)

    assert tools.ran == []
    assert sorted(outcome for _, outcome in outcomes(state)) == ["aborted", "denied"]
    assert_whole(state)


# The built in ones


@pytest.mark.parametrize(
    ("patterns", "hit"),
    [("read_file", True), ("read_*", True), (["x", "*_file"], True), ("read", False), ("READ_*", False), ([], False)],
)
def test_names_are_matched_by_patterns(patterns: Any, hit: bool) -> None:
    never = DenyByName(patterns, reason="never")
    refused, _ = go([never, AllowByDefault()], call("read_file"), tools=Tools("read_file"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        allowed, _ = go([AllowByName(patterns)], call("read_file"), tools=Tools("read_file"))

    assert results(refused)[0][1:3] == (("denied", "never") if hit else ("done", "read_file did 0"))
    assert results(allowed)[0][1] == ("done" if hit else "denied")


def test_read_only_calls_are_known_by_their_hints() -> None:
    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "seen"

    @tool(hints_for=lambda args: Hints(read_only=args["command"] == "ls"))
    async def shell(command: str) -> str:
        """Run a command."""
        return f"ran {command}"

    tools = Tools("plain")
    tools.all += [look, shell]

    with pytest.warns(PermissionWarning):
        state, _ = go(
            [AllowByReadOnly()],
            *[call("look"), call("shell", command="ls"), call("shell", command="rm"), call("plain")],
            tools=tools,
        )

    assert [outcome for _, outcome, *_ in results(state)] == ["done", "done", "denied", "denied"]


def test_hints_of_an_mcp_server_are_believed_only_if_trusted() -> None:
    def allowed(trust: bool) -> str:
        @tool(read_only=True)
        async def remote() -> str:
            """Look."""
            return "seen"

        remote.from_mcp = True
        tools = Tools("x")
        tools.all = [remote]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state, _ = go([AllowByReadOnly(trust_mcp=trust)], call("remote"), tools=tools)
        return results(state)[0][1]

    assert (allowed(False), allowed(True)) == ("denied", "done")


# Mistakes


@pytest.mark.parametrize(
    ("permissions", "message"),
    [
        (AllowByDefault(), "must be a list, not AllowByDefault"),
        ("read", "must be a list, not str"),
        (5, "must be a list, not int"),
        ([AllowByDefault], "holds the class AllowByDefault; write an object of it"),
        (["read"], "holds a str; subclass one of"),
        ([None], "holds a NoneType"),
    ],
)
def test_wrong_permissions_are_found_when_the_agent_is_made(permissions: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Agent(model=FakeModel([]), permissions=permissions)


def test_a_permission_is_of_one_kind() -> None:
    class Both(Deny, Allow):
        pass

    with pytest.raises(TypeError, match="subclass one of"):
        Agent(model=FakeModel([]), permissions=[Both()])


class NoEtc(DenyPermission):
    def __init__(self) -> None:
        self.seen: list[object] = []

    def check(self, state: State, call: ToolCall, tool: Tool) -> Denied | None:
        assert call.args is not None
        self.seen.append(call.args)
        return Denied("not in /etc") if any(path.startswith("/etc") for path in call.args.get("paths", ())) else None


@pytest.mark.parametrize("paths", [["/etc/passwd"], '["/etc/passwd"]', ' [ "/etc/passwd" ] '])
async def test_a_check_judges_what_the_tool_gets_however_the_model_wrote_it(paths: object) -> None:
    """A list that comes as text is read as a list: nothing that is forgiven gets past a check."""
    deleted: list[str] = []

    @tool
    async def delete(paths: list[str], force: bool = False, times: int = 1) -> None:
        """Delete files."""
        deleted.extend(paths)

    rule = NoEtc()
    asks = tool_call("delete", paths=paths, force="true", times=None)
    state = State(messages=[Message.user("go")])
    await Agent(model=FakeModel([asks, "ok"]), tools=[delete], permissions=[rule, AllowByDefault()]).run(state)

    assert not deleted
    assert rule.seen == [{"paths": ["/etc/passwd"], "force": True}]
    assert outcomes(state) == [("delete", "denied")]
    (entry,) = [entry for entry in state.history if entry.kind == "tool_result"]
    assert entry.call == asks


async def test_arguments_too_deep_to_be_put_right_are_refused() -> None:
    ran: list[object] = []

    @tool
    async def keep(value: list[Any]) -> None:
        """Keep it."""
        ran.append(value)

    state = State(messages=[Message.user("go")])
    asks = tool_call("keep", value="[" * 300 + "]" * 300)
    await Agent(model=FakeModel([asks, "ok"]), tools=[keep], permissions=[AllowByDefault()]).run(state)

    assert not ran
    assert outcomes(state) == [("keep", "denied")]


def test_a_reason_is_something_to_read() -> None:
    with pytest.raises(ValueError, match="reason is blank"):
        Denied(" ")
    with pytest.raises(TypeError, match=r"reason must be str, not NoneType: Denied\('"):
        Denied(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("patterns", [3, [3], ["read", None]])
@pytest.mark.parametrize("kind", [AllowByName, DenyByName])
def test_patterns_are_texts(kind: type, patterns: object) -> None:
    with pytest.raises(TypeError, match=r"patterns must be text, the names of tools, not \w+: \['read_\*', 'search'\]"):
        kind(patterns)


def test_a_second_pattern_without_a_list_is_not_taken_for_the_reason() -> None:
    """It would not be denied."""
    with pytest.raises(TypeError, match="positional"):
        DenyByName("delete", "write")  # type: ignore[misc]


def test_a_permission_whose_repr_fails_is_recorded_by_its_class() -> None:
    class Odd(Decide):
        def __repr__(self) -> str:
            raise ZeroDivisionError("odd")

    state, _ = go([Odd(ALLOWED)], call("read"))

    assert results(state)[0][3] == "Odd (ZeroDivisionError: odd)"


def test_a_permission_of_ones_own_is_named_without_an_address() -> None:
    class Mine(DenyPermission):
        def check(self, state: State, call: Any, tool: Any) -> Denied:
            return Denied("no", stop=True)

    state, _ = go([Mine()], call("read"))

    assert isinstance(state.stopped, StoppedByPermission)
    assert state.stopped.permission == "Mine()"


def test_an_agent_copied_keeps_its_permissions() -> None:
    agent = Agent(model=FakeModel([]), permissions=[AllowByName("read")]).copy(name="copy")

    assert agent.permissions == (AllowByName("read"),)
    assert repr(agent.permissions[0]) == "AllowByName(patterns=('read',))"
