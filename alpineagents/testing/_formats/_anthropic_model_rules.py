"""What single models of Anthropic's refuse, by their names: a model refuses what a newer or older one takes.

Source: Anthropic's pages on models, thinking and tool use, and its notes on what is new in each model (December 2026).
Told apart here on its own, so that a mistake of the client's isn't repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_NAME: Final = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")
_SAMPLING: Final = ("temperature", "top_k", "top_p")


def binds_thinking(model: str) -> bool:
    """Whether the model refuses thinking of its own behind a conversation that was changed."""
    found = _NAME.match(model)
    if found is None:
        return False
    return (int(found[2]), int(found[3] or 0)) >= ((5, 1) if found[1] in ("fable", "mythos") else (5, 5))


def model_problems(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the model of a request refuses; nothing for one that isn't called as Anthropic's are since 4.0."""
    found = _NAME.match(str(body.get("model")))
    if found is None:
        return
    family, version = found[1], (int(found[2]), int(found[3] or 0))
    always_thinks = family in ("fable", "mythos") or (family == "opus" and version >= (5, 5))
    if version >= (4, 7):
        for name in _SAMPLING:
            if name in body:
                yield f"{name}: this model does not support sampling parameters"
    thinking, choice = body.get("thinking"), body.get("tool_choice")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "enabled" and version >= (4, 7):
        yield 'thinking.type: "enabled" is not supported for this model. Use "adaptive".'
    if kind == "adaptive" and version < (4, 6):
        yield "adaptive thinking is not supported on this model"
    if kind == "disabled" and (always_thinks or (family == "sonnet" and version >= (5, 5))):
        yield 'thinking.type: "disabled" is not supported for this model'
    if kind == "between_tools" and not (family == "sonnet" and version >= (5, 5)):
        yield 'thinking.type: "between_tools" is not supported for this model'
    forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    if forced and family != "haiku" and binds_thinking(str(body.get("model"))):
        yield "tool_choice: forcing tool use is not supported for this model"
