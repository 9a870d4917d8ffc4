"""How an answer is held to a schema: by the provider, by a tool that must be called, or by words in the question."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from ..record._blocks import Block, TextBlock, ToolCall
from ..record._messages import Reply, Request, ToolSpec
from ._json import dumps

Structured: TypeAlias = Literal["native", "tool", "prompt"]
"""``native``: the provider's own structured output. ``tool``: the answer is the arguments of a tool that it must call.
``prompt``: the question says the schema.
"""

ANSWER_TOOL: Final = "give_answer"


def structured(request: Request, how: Structured) -> Request:
    """Return *request* as it is sent for an answer that fits its ``returns``."""
    if request.returns is None or how == "native":
        return request
    if how == "prompt":
        return attrs.evolve(request, returns=None)
    tool = ToolSpec(ANSWER_TOOL, "Give your answer with this tool.", request.returns)
    tools = (*[spec for spec in request.tools if spec.name != ANSWER_TOOL], tool)
    return attrs.evolve(request, returns=None, tools=tools, tool_choice=ANSWER_TOOL)


def as_answer(reply: Reply, how: Structured) -> Reply:
    """Return *reply* with the answer as its text, where it is the arguments of a call."""
    if how != "tool":
        return reply
    calls = [block for block in reply.blocks if type(block) is ToolCall and block.name == ANSWER_TOOL]
    if not calls:
        return reply
    given = calls[0]
    answer = TextBlock((given.raw_args or "") if given.args is None else dumps(given.args).decode())
    blocks: list[Block] = [block for block in reply.blocks if type(block) not in (TextBlock, ToolCall)]
    return attrs.evolve(reply, blocks=(*blocks, answer))
