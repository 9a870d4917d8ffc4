"""Any list of rules and any calls give what the specification's paragraph says, read as a program of a few lines."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import (
    Allowed,
    AllowPermission,
    DecidePermission,
    Denied,
    DenyPermission,
    Message,
    PermissionWarning,
    State,
    StoppedByPermission,
    ToolError,
)

from ..run.runs import assert_whole
from .agents import Tools, an_agent, call, results

NAMES = ("a", "b", "c")
KINDS = {"deny": DenyPermission, "allow": AllowPermission, "decide": DecidePermission}


class Rule(NamedTuple):
    """A permission that says the same of a tool each time: ``says`` by its name."""

    kind: str
    is_async: bool
    says: dict[str, str | None]


def rules() -> st.SearchStrategy[list[Rule]]:
    legal = {
        "deny": [None, "deny", "stop", "error"],
        "allow": [None, "allow", "error"],
        "decide": [None, "allow", "deny", "stop", "error"],
    }
    one = st.sampled_from(sorted(KINDS)).flatmap(
        lambda kind: st.builds(
            Rule,
            st.just(kind),
            st.booleans(),
            st.fixed_dictionaries({name: st.sampled_from(legal[kind]) for name in NAMES}),
        )
    )
    return st.lists(one, max_size=5)


CALLS = st.lists(st.sampled_from([*NAMES, "wrong", "unknown"]), min_size=1, max_size=6)


def permission_of(rule: Rule, index: int) -> Any:
    def verdict(name: str) -> Any:
        match rule.says[name]:
            case None:
                return None
            case "allow":
                return Allowed()
            case "error":
                raise ToolError(f"{index} fails")
            case said:
                return Denied(f"{index} says no", stop=said == "stop")

    def check(self: object, state: State, call: Any, tool: Any) -> Any:
        return verdict(call.name)

    async def check_async(self: object, state: State, call: Any, tool: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return verdict(call.name)

    members = {"check": check_async if rule.is_async else check, "__repr__": lambda self: f"rule {index}"}
    return type("Made", (KINDS[rule.kind],), members)()


def reference(rules: list[Rule] | None, calls: list[str]) -> tuple[list[tuple[str, str | None]], int | None, list[str]]:
    """Outcome and who decided, per call; which call stopped the run; the tools that nobody decided about."""
    ended: dict[int, tuple[str, str | None]] = {}
    undecided = []
    for position, name in enumerate(calls):
        if name not in NAMES:
            ended[position] = "input_error", None
    numbered = list(enumerate(rules or []))
    order = [one for one in numbered if one[1].kind == "deny"] + [one for one in numbered if one[1].kind != "deny"]
    allowed: dict[int, str | None] = {}
    for position, name in enumerate(calls):
        if position in ended:
            continue
        if rules is None:
            allowed[position] = None
            continue
        said, by = next(((rule.says[name], f"rule {index}") for index, rule in order if rule.says[name]), (None, None))
        if said == "allow":
            allowed[position] = by
        elif said == "stop":
            ended[position] = "denied", by
            rest = [other for other in range(len(calls)) if other not in ended]
            ended |= dict.fromkeys(rest, ("cancelled", None))
            return [ended[other] for other in range(len(calls))], position, undecided
        else:
            ended[position] = "denied", by
            if said is None:
                undecided.append(name)
    ended |= {position: ("done", by) for position, by in allowed.items()}
    return [ended[position] for position in range(len(calls))], None, undecided


@given(rules=st.none() | rules(), names=CALLS)
def test_any_rules_and_any_calls_give_what_the_reference_gives(rules: list[Rule] | None, names: list[str]) -> None:
    expected, stopped_by, undecided = reference(rules, names)
    tools = Tools(*NAMES, "wrong")
    calls = [call(name, **({"n": "many"} if name == "wrong" else {"n": n})) for n, name in enumerate(names)]
    state = State(messages=[Message.user("go")])
    permissions = None if rules is None else [permission_of(rule, index) for index, rule in enumerate(rules)]
    agent = an_agent(tools, [calls, "done"], permissions)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent.run_sync(state)

    assert [(outcome, by) for _, outcome, _, by in results(state)] == expected
    assert sorted(tools.ran) == sorted(f"{name} {n}" for n, name in enumerate(names) if expected[n][0] == "done")
    assert [w.message.tool for w in caught if isinstance(w.message, PermissionWarning)] == undecided
    assert isinstance(state.stopped, StoppedByPermission) == (stopped_by is not None)
    if stopped_by is not None:
        assert state.stopped == StoppedByPermission(calls[stopped_by], expected[stopped_by][1])
        assert state.answer is None
    assert_whole(state)
