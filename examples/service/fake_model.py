"""A model that needs no network and no key: it plays the desk, word by word, as slowly as you like."""

from __future__ import annotations

import re
from typing import final

import trio

from alpineagents import Emit, Message, Model, Reply, Request, TextBlock, TextDelta, ToolCall, ToolResultBlock, Usage


@final
class FakeDesk(Model):
    """Calls ``refund`` and ``look_up_order`` where a message names an order, and repeats what it was told.

    Args:
        delay: Seconds before each word.
    """

    name = "fake/desk"

    def __init__(self, delay: float = 0.05) -> None:
        self.delay = delay

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Return the next reply. Checkpoint: yes."""
        await trio.sleep(self.delay)
        decided = _decided(list(request.messages))
        if isinstance(decided, ToolCall):
            return Reply((decided,), self.name, "tool_calls", _USAGE)
        for word in re.findall(r"\s*\S+", decided):
            await trio.sleep(self.delay)
            emit(TextDelta(word))
        return Reply((TextBlock(decided),), self.name, "stop", _USAGE)


_USAGE = Usage(input_tokens=10, output_tokens=10, requests=1)


def _decided(messages: list[Message]) -> str | ToolCall:
    """Return what to say to the messages since the last reply, or what to call."""
    last_reply = max([at for at, message in enumerate(messages) if message.role == "assistant"], default=-1)
    new = messages[last_reply + 1 :]
    said = " ".join([message.text for message in new if message.role == "user" and not message.is_notice])
    number = re.search(r"order (\d+)", said)
    if any("allowed refund" in message.text for message in new if message.is_notice):
        before = [call for message in messages for call in message.tool_calls if call.name == "refund"]
        return _call(messages, "refund", before[-1].args or {})
    if number is not None:
        name = "refund" if "refund" in said.lower() else "look_up_order"
        return _call(messages, name, {"order": int(number[1])})
    results = [block for message in new for block in message.blocks if isinstance(block, ToolResultBlock)]
    found = " ".join([part.text for block in results for part in block.content if isinstance(part, TextBlock)])
    return f"I see: {found}." if found and not said else f"You said: {said or new[-1].text}"


def _call(messages: list[Message], name: str, args: dict[str, object]) -> ToolCall:
    return ToolCall(f"call_{len(messages)}", name, args)
