"""What the tests of permissions share: tools that note what ran, permissions that say what they are told, runs."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import trio

from alpineagents import (
    Agent,
    Allowed,
    AllowPermission,
    DecidePermission,
    Denied,
    DenyPermission,
    Message,
    State,
    Tool,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

call = tool_call


class Tools:
    """Tools by the names they are asked for; ``ran`` has the calls that ran, in order."""

    def __init__(self, *names: str) -> None:
        self.ran: list[str] = []
        self.all: list[Tool] = [self._made(name) for name in names or ("read", "write", "delete")]

    def _made(self, name: str) -> Tool:
        @tool(name=name)
        async def made(n: int = 0) -> str:
            """Do it."""
            await trio.lowlevel.checkpoint()
            self.ran.append(f"{name} {n}")
            return f"{name} did {n}"

        return made


class _Said:
    """Says what it was made with, or what a function of the call returns."""

    def __init__(self, verdict: object = None, name: str = "") -> None:
        self.verdict = verdict
        self.name = name
        self.asked: list[str] = []

    def check(self, state: State, call: Any, tool: Tool) -> Any:
        self.asked.append(call.name)
        verdict = self.verdict(call) if isinstance(self.verdict, FunctionType) else self.verdict
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Deny(_Said, DenyPermission):
    pass


class Allow(_Said, AllowPermission):
    pass


class Decide(_Said, DecidePermission):
    pass


def an_agent(tools: Tools, script: Any, permissions: Any, **settings: Any) -> Agent:
    return Agent(model=FakeModel(script), tools=tools.all, permissions=permissions, **settings)


def go(permissions: Any, *calls: Any, tools: Tools | None = None, **settings: Any) -> tuple[State, Tools]:
    """Run a State whose first reply asks for *calls*."""
    tools = tools or Tools()
    state = State(messages=[Message.user("go")])
    an_agent(tools, [list(calls), "done"], permissions, **settings).run_sync(state)
    return state, tools


def results(state: State) -> list[tuple[str, str, str, str | None]]:
    """Name, outcome, text and who decided, of each call in the order of the calls."""
    order = [one.id for entry in state.history if entry.kind == "model_reply" for one in entry.content.tool_calls]
    found = {
        entry.call.id: (entry.call.name, str(entry.outcome), entry.content[0].text, entry.decided_by)
        for entry in state.history
        if entry.kind == "tool_result"
    }
    return [found[call_id] for call_id in order if call_id in found]


ALLOWED, DENIED = Allowed(), Denied("no")
