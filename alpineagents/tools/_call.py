"""One call of a tool, from its arguments to what the model gets."""

from __future__ import annotations

from math import inf
from typing import Any

import trio

from .._contracts import Tool, ToolContext
from ..record._blocks import TextBlock
from ..record._entries import ToolOutcome
from ..record._frozen import FrozenDict
from ._results import Ending, answered, done


def read_args(tool: Tool, args: FrozenDict) -> Any:
    """Return *args* as the tool takes them.

    A tool that doesn't read them itself gets only what fits its ``input_schema``, where jsonschema is installed.

    Raises:
        ToolInputError: they are wrong; the message lists every problem, for the model to read.
        TypeError: the ``input_schema`` can't be used.
    """
    if type(tool).read_args is Tool.read_args:
        from ._jsonschema import check  # only for who has such tools

        check(tool, args)
    return tool.read_args(args)


@trio.lowlevel.disable_ki_protection  # all of it: nothing in here has to be kept whole, and a spinning tool must end
async def run_call(tool: Tool, args: Any, context: ToolContext) -> Ending:
    """Run a tool and return how the call ended.

    Args:
        tool: The tool.
        args: What its ``read_args`` returned.
        context: What the call is part of.

    Checkpoint: if the tool is one. Cancelled: the tool is, and what it raises then goes on.

    Raises:
        TypeError: the result isn't JSON.
        RuntimeError: the tool raised a Cancelled though it hadn't been cancelled.
        BaseException: whatever else the tool raises, except ToolError and what its exception_handler is for.
    """
    if tool.timeout is None:
        return await _run(tool, args, context)
    with trio.move_on_after(tool.timeout):
        return await _run(tool, args, context)
    text = f"(timed out after {tool.timeout:.12g} s)"
    return Ending((TextBlock(text),), ToolOutcome.ERROR, None, TimeoutError(text[1:-1]))


async def _run(tool: Tool, args: Any, context: ToolContext) -> Ending:
    try:
        result = await tool.call(args, context)
    except BaseException as error:
        if is_cancellation(error):
            if trio.current_effective_deadline() != -inf:
                raise RuntimeError(
                    f"tool {tool.name!r} raised Cancelled without being cancelled: one of its cancel scopes had ended"
                ) from error
            raise
        if isinstance(error, Exception):
            return answered(error, tool)
        raise
    return done(result, tool)


def is_cancellation(error: BaseException) -> bool:
    """Whether it is trio's Cancelled, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)
