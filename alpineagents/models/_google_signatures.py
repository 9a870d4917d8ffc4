"""Gemini's thought signatures: how they are kept beside what they belong to, and how they go back.

Source: Google's guide on thought signatures (v1beta, 2026): a signature goes back on exactly the part that had it, and
a part with one is never joined with another. From Gemini 3 on the first call of each step of the current turn must
have one. None but the model that wrote it can read it, so the model's name is kept with it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from ..record._blocks import Block, RawBlock
from ..record._frozen import FrozenDict, freeze_dict

NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""What Google names for calls that another model made, or code."""
SIGNATURE: Final = "thoughtSignature"

Signed: TypeAlias = Literal["text", "call"]


def signature_block(provider: str, model: str, signature: str, of: Signed) -> RawBlock:
    """Return what keeps the signature of the block that stands before it."""
    return RawBlock(provider, {SIGNATURE: signature, "of": of, "model": model})


def part_block(provider: str, model: str, part: dict[str, Any]) -> RawBlock:
    """Return what keeps a part that no other block can hold."""
    return RawBlock(provider, {"part": part, "model": model})


def signature_of(block: Block, provider: str, model: str, of: Signed | None) -> str | None:
    """Return the signature that *block* keeps, if this model wrote it and what stands before it is what it signs."""
    if of is None or type(block) is not RawBlock or block.provider != provider or not isinstance(block.raw, FrozenDict):
        return None
    signature = block.raw.get(SIGNATURE)
    mine = (block.raw.get("model"), block.raw.get("of")) == (model, of)
    return signature if mine and isinstance(signature, str) else None


def part_of(block: Block, provider: str, model: str) -> dict[str, Any] | None:
    """Return the part that *block* keeps: to another model of the provider it goes without its signature."""
    if type(block) is not RawBlock or block.provider != provider or not isinstance(block.raw, FrozenDict):
        return None
    part = block.raw.get("part")
    if not isinstance(part, FrozenDict):
        return None
    if block.raw.get("model") == model:
        return part
    bare = {key: value for key, value in part.items() if key != SIGNATURE}
    return None if bare.get("text") == "" else freeze_dict(bare)
