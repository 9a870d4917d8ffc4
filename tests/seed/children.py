"""A run in which a tool call starts a subagent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpineagents import Agent, Message, State, Store, ToolCall, Usage, tool
from alpineagents.testing import FakeModel, tool_call


class Family:
    """A State, and the one that a tool call of its run starts an Agent on."""

    def __init__(
        self, *, child_script: Sequence[Any] = ("found",), call: ToolCall | None = None, store: Store | None = None
    ) -> None:
        self.state = State(id="parent", messages=[Message.user("go")])
        self.child = State(id="child", messages=[Message.user("look")])
        self.call = call or tool_call("explore")
        child_agent = Agent(model=FakeModel(child_script, name="fake/child"), store=store)

        @tool
        async def explore() -> str:
            """Have another Agent look."""
            return str(await child_agent.run(self.child))

        self.agent = Agent(model=FakeModel([self.call, "done"]), tools=[explore], store=store)

    async def run(self) -> None:
        await self.agent.run(self.state)

    @property
    def own_usage(self) -> Usage:
        """What the requests of the State itself used."""
        usage = Usage()
        for entry in self.state.history:
            if entry.kind == "model_reply":
                usage += entry.content.usage
        return usage
