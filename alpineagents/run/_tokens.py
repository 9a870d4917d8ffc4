"""About how many tokens a request reads."""

from __future__ import annotations

from typing import Final

from ..record._blocks import Block, File, Image, TextBlock, ThinkingBlock, ToolCall, ToolResultBlock
from ..record._messages import Message
from ..record._snapshot import Snapshot
from ..state import Recorder
from ._setup import Setup

CHARACTERS_PER_TOKEN: Final = 4
IMAGE_TOKENS: Final = 1_500
PDF: Final = "application/pdf"
BYTES_PER_PDF_TOKEN: Final = 50
MESSAGE_TOKENS: Final = 4
"""Rules of thumb, used only for what no reply has counted yet: the provider's own count takes their place."""


def context_tokens(setup: Setup, state: Recorder) -> int:
    """Return about how many tokens the next request reads.

    The count of the last reply's provider is the base; only what came after it is estimated.
    """
    snap = state.snapshot_now()
    if snap.context_count is not None:
        tokens, covered = snap.context_count
        return tokens + _estimate(snap, covered)
    fixed = len(setup.system or "") + sum(
        _spec_length(spec.description, spec.input_schema) for spec in setup.tool_specs
    )
    return _estimate(snap, 0) + fixed // CHARACTERS_PER_TOKEN


def _estimate(snap: Snapshot, start: int) -> int:
    total = 0
    for message in snap.messages[start:]:
        total += message_tokens(message)
    return total


def message_tokens(message: Message) -> int:
    """Return about how many tokens a message has."""
    total = MESSAGE_TOKENS
    for block in message.blocks:
        total += _block_tokens(block)
    return total


def _block_tokens(block: Block) -> int:
    match block:
        case TextBlock() | ThinkingBlock():
            return len(block.text) // CHARACTERS_PER_TOKEN
        case ToolCall():
            return (len(block.name) + _spec_length(block.raw_args or "", block.args)) // CHARACTERS_PER_TOKEN
        case ToolResultBlock():
            return sum(_block_tokens(inner) for inner in block.content)
        case Image():
            return IMAGE_TOKENS
        case File():
            return len(block.data) // (BYTES_PER_PDF_TOKEN if block.media_type == PDF else CHARACTERS_PER_TOKEN)
        case _:
            return 0


def _spec_length(text: str, value: object) -> int:
    return len(text) + len(str(value))
