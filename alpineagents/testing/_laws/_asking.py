"""What models and wires are asked in their laws: conversations of every shape, tools, schemas."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from ...record._blocks import (
    Block,
    File,
    Image,
    RawBlock,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultBlock,
)
from ...record._messages import Message, Request, ToolSpec

_PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
"""A picture of one pixel."""

TOOL: Final = ToolSpec(
    "read_file",
    "Read a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Which."}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
OTHER_TOOL: Final = ToolSpec("list_files", "List files.", {"type": "object", "properties": {}})
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def _said(*blocks: Block) -> Message:
    return Message("assistant", blocks)


def _results(*results: tuple[str, ResultBlock] | tuple[str, ResultBlock, bool]) -> Message:
    return Message("tool", tuple([ToolResultBlock(each[0], (each[1],), *each[2:]) for each in results]))


_ASKED: Final = Message.user("Find the bug.")
_CALL: Final = ToolCall("call_1", "read_file", {"path": "main.py", "info": [1, None, {"a": True}]})
_THOUGHT: Final = ThinkingBlock("Hm.", "signature of another", "another", {"a": 1})

CONVERSATIONS: Final[Mapping[str, tuple[Message, ...]]] = {
    "one message": (_ASKED,),
    "two from the person": (_ASKED, Message.user("In main.py.")),
    "a notice": (_ASKED, Message.notice("It is late.")),
    "an answer before": (_ASKED, Message.assistant("Which?"), Message.user("That one.")),
    "an answer first": (Message.assistant("Hello."), Message.user("Hello.")),
    "an answer last": (_ASKED, Message.assistant("It is")),
    "a summary": (_ASKED, Message.summary("We looked at all files."), Message.user("Go on.")),
    "a picture": (Message.user("What is it?", Image(_PNG)),),
    "a document": (Message.user("Sum it up.", File(b"All is well.", media_type="text/plain", name="a.txt")),),
    "a call": (_ASKED, _said(TextBlock("I look."), _CALL), _results(("call_1", TextBlock("x = 1")))),
    "an error": (_ASKED, _said(_CALL), _results(("call_1", TextBlock("no such file"), True))),
    "calls": (
        _ASKED,
        _said(_CALL, ToolCall("call_2", "list_files", {})),
        _results(("call_1", TextBlock("x = 1")), ("call_2", TextBlock("main.py"))),
    ),
    "a picture as a result": (_ASKED, _said(_CALL), _results(("call_1", Image(_PNG)))),
    "a message behind results": (_ASKED, _said(_CALL), _results(("call_1", TextBlock("x"))), Message.user("Faster.")),
    "arguments that are none": (
        _ASKED,
        _said(ToolCall("call_1", "read_file", None, '{"path": ')),
        _results(("call_1", TextBlock("The arguments are not a JSON object."), True)),
    ),
    "an odd call id": (
        _ASKED,
        _said(ToolCall("call 1/ü", "read_file", {"path": "a"})),
        _results(("call 1/ü", TextBlock("x"))),
    ),
    "a tool that is gone": (_ASKED, _said(ToolCall("call_1", "gone", {})), _results(("call_1", TextBlock("x"), True))),
    "thoughts of another model": (_ASKED, _said(_THOUGHT, TextBlock("It is here.")), Message.user("Sure?")),
    "only thoughts of another model": (_ASKED, _said(_THOUGHT), Message.user("Well?")),
    "a block of another provider": (_ASKED, _said(RawBlock("another", {"type": "odd"}), TextBlock("x")), _ASKED),
    "a reply without a word": (_ASKED, _said(), Message.user("Well?")),
    "a blank reply": (_ASKED, _said(TextBlock(" \n")), Message.user("Well?")),
    "a reply that was cut off": (_ASKED, Message("assistant", (TextBlock("It is in"),), cut_off=True), _ASKED),
    "letters of all kinds": (Message.user("naïve 🐛 \0 \u2028 \x1b[0m </s> \\ \" '"),),
}
"""Every one of them is well formed, and a run can come to it: also by a change of model in the middle."""

CHOICES: Final = ("auto", "required", "none", "read_file")


def request_of(name: str, **fields: Any) -> Request:
    """Return a request with the conversation of this name, and tools where it needs them."""
    messages = CONVERSATIONS[name]
    has_calls = any(message.tool_calls for message in messages)
    return Request(messages=messages, **{"tools": (TOOL, OTHER_TOOL) if has_calls else (), **fields})


def asking(text: str = "Find the bug.", **fields: Any) -> Request:
    """Return a request of one message."""
    return Request(messages=(Message.user(text),), **fields)
