"""What Anthropic's models take and refuse, told from their names.

Source: Anthropic's pages on models, thinking, effort, structured outputs and preserved thinking, the notes on what is
new in each model, and the types of its Python SDK 2.15 (December 2026).
"""

from __future__ import annotations

import re
from typing import Final, final

import attrs

# claude-opus-4-1-20250805, claude-sonnet-4-20250514, claude-3-7-sonnet-20250219, claude-opus-4.6, claude-fable-5
_NAME = re.compile(r"claude-(?:([a-z]+)-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?(?:-([a-z]+))?")
_NEWEST: Final[tuple[int, int]] = (99, 0)


@final
@attrs.frozen(kw_only=True)
class Traits:
    """What a model takes."""

    max_tokens: int
    """Output limit where none is set: the API wants one."""
    is_claude: bool = True
    adaptive: bool = True
    """It decides itself how much to think (``adaptive``); else it is given a budget."""
    budget: bool = False
    """It takes ``budget_tokens``."""
    thinks_unasked: bool = True
    """It thinks where the request doesn't say."""
    off: str | None = "disabled"
    """The type of ``thinking`` that turns it off; empty where leaving the field out does; None where nothing does."""
    binds_thinking: bool = False
    """It refuses thinking behind which the conversation was changed, such as compacted, unless told to drop it."""
    forced_tools: bool = True
    """It can be made to call a tool."""
    sampling: bool = False
    """It takes a temperature."""
    schemas: bool = True
    """It holds an answer to a JSON Schema (``output_config.format``)."""


_OTHER: Final = Traits(
    max_tokens=8_192,
    is_claude=False,
    adaptive=False,
    budget=True,
    thinks_unasked=False,
    off="",
    sampling=True,
    schemas=False,
)
"""A model of somebody else whose server speaks this API: only what all of them know."""


def traits_of(name: str) -> Traits:
    """Return what the model called *name* takes. A Claude without a version in its name is taken for the newest."""
    lower = name.lower()
    if "claude" not in lower:
        return _OTHER
    preview = "mythos-preview" in lower
    family, version = ("mythos", (5, 0)) if preview else _family_and_version(lower)
    top = family in ("fable", "mythos")
    binds = version >= ((5, 1) if top else (5, 5))
    return Traits(
        max_tokens=_max_tokens(version),
        adaptive=version >= (4, 6),
        budget=version <= (4, 6),
        thinks_unasked=version >= (5, 0),
        off=_off(family, version, top),
        binds_thinking=binds,
        forced_tools=not preview and not (binds and family != "haiku"),
        sampling=version <= (4, 6),
        schemas=version >= (4, 5),
    )


def _family_and_version(lower: str) -> tuple[str, tuple[int, int]]:
    found = _NAME.search(lower)
    if found is None:
        return "", _NEWEST
    return found[1] or found[4] or "", (int(found[2]), int(found[3] or 0))


def _max_tokens(version: tuple[int, int]) -> int:
    """What the model can, or half of it where that is much: long answers with thinking fit, and endless ones end."""
    if version >= (4, 6):
        return 64_000
    if version >= (3, 7):
        return 32_000
    return 8_192 if version >= (3, 5) else 4_096


def _off(family: str, version: tuple[int, int], top: bool) -> str | None:
    if version < (4, 6):
        return ""
    if top or (version >= (5, 5) and family not in ("sonnet", "haiku")):
        return None
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"
