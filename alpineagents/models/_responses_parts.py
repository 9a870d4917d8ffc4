"""What a Responses request holds of messages: texts, pictures and documents as parts, results of calls, schemas."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from ..record._blocks import Block, File, Image, ResultBlock, TextBlock, ToolResultBlock, is_blank
from ..record._frozen import FrozenDict
from ..record._messages import ToolSpec
from ._openai_chat import EMPTY_RESULT
from ._openai_schema import can_be_strict, format_name

_PDF = "application/pdf"


def user_parts(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return what a user message has to show of *blocks*; blank text is left out."""
    return [_part(block) for block in blocks if isinstance(block, TextBlock | Image | File) and not is_blank(block)]


def output(result: ToolResultBlock) -> str | list[dict[str, Any]]:
    """Return a result: as text where it is all text, which every server takes; else as parts, which OpenAI takes."""
    if not any(_is_attachment(block) for block in result.content):
        texts = [_part(block)["text"] for block in result.content]
        return "\n".join([text for text in texts if text and not text.isspace()]) or EMPTY_RESULT
    return user_parts(result.content)


def function(tool: ToolSpec) -> dict[str, object]:
    """Return a tool as it is described. ``strict`` is always said: left out, OpenAI would make every field required."""
    described: dict[str, object] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": can_be_strict(tool.input_schema),
    }
    if not tool.description:
        del described["description"]
    return described


def answer_format(schema: FrozenDict) -> dict[str, object]:
    """Return the format of an answer that fits *schema*."""
    name, strict = format_name(schema), can_be_strict(schema)
    return {"type": "json_schema", "name": name, "schema": schema, "strict": strict}


def _part(block: ResultBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, Image):
        return {"type": "input_image", "image_url": _data_url(block), "detail": "auto"}
    if block.media_type != _PDF:
        return {"type": "input_text", "text": f"[{block.name}]\n{block.data.decode(errors='replace')}"}
    name = block.name if block.name.lower().endswith(".pdf") else f"{block.name}.pdf"
    return {"type": "input_file", "filename": name, "file_data": _data_url(block)}


def _is_attachment(block: ResultBlock) -> bool:
    return isinstance(block, Image) or (isinstance(block, File) and block.media_type == _PDF)


def _data_url(block: Image | File) -> str:
    return f"data:{block.media_type};base64,{base64.b64encode(block.data).decode()}"
