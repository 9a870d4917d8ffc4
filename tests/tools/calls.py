"""What tests of tools need to call one without a run."""

from __future__ import annotations

from typing import Any

import attrs

from alpineagents import State, ToolCall
from alpineagents._contracts import Tool, ToolContext
from alpineagents.record._entries import ToolOutcome
from alpineagents.record._frozen import freeze_dict
from alpineagents.tools import Ending, run_call


@attrs.define
class LateResults:
    """Where late results go."""

    records: list[tuple[str, ToolOutcome, BaseException | None]] = attrs.Factory(list)

    def record(self, content: Any, outcome: ToolOutcome, error: BaseException | None, full: Any = None) -> None:
        self.records.append((content[0].text, outcome, error))


def context(tool: Tool, late: LateResults | None = None) -> ToolContext:
    call = ToolCall("call-1", tool.name, {})
    return ToolContext(State(), None, call, (late or LateResults()).record)


async def ending(tool: Tool, late: LateResults | None = None, **args: Any) -> Ending:
    """Run *tool* with arguments as a model sends them, and return how it ended."""
    return await run_call(tool, tool.read_args(freeze_dict(args)), context(tool, late))


async def text(tool: Tool, **args: Any) -> str:
    """Run *tool* and return the text that the model gets."""
    (block,) = (await ending(tool, **args)).content
    return block.text  # type: ignore[union-attr]


def read(tool: Tool, **args: Any) -> Any:
    """The arguments that the function gets when a model sends *args*."""
    return tool.read_args(freeze_dict(args))
