"""How much a request asks Anthropic's model to think, and what follows from that for the rest of the request.

With a budget (models before Claude 4.6), the API refuses a forced tool, and a turn whose first reply has no thinking
of this model: thinking is off for such a request. A temperature it refuses with any thinking. Adaptive thinking has
the last of these limits only. Source: Anthropic's pages on thinking and on preserved thinking (December 2026).
"""

from __future__ import annotations

from typing import Any, Final, final

import attrs

from ._anthropic_models import Traits
from ._wire import Settings

LEAST_BUDGET: Final = 1_024
"""Tokens: the API takes no smaller budget."""
_BUDGET: Final = 16_000
"""Tokens of thinking where nobody said how many."""
_FOR_THE_ANSWER: Final = 8_192
"""Tokens left for the answer where the budget alone would reach the default of ``max_tokens``."""


@final
@attrs.frozen
class ThinkingPlan:
    """What a request says of thinking."""

    field: dict[str, Any] | None
    """Its ``thinking``; None = none."""
    max_tokens: int
    """Its output limit, thinking included."""
    thinks: bool
    """Whether thinking comes, so that earlier thinking is sent back."""
    budgeted: bool
    """Whether it has a budget, with the limits of that."""


def plan(settings: Settings, traits: Traits, *, may_bind: bool) -> ThinkingPlan:
    """Return what requests with *settings* say of thinking.

    Args:
        settings: As they were given.
        traits: What the model takes.
        may_bind: Whether a header says that the request uses the controls for bound thinking.

    Raises:
        ValueError: the model can't think in this way, or the budget is below 1,024 or leaves nothing of ``max_tokens``.
    """
    asked = settings.thinking
    limit = settings.max_tokens or traits.max_tokens
    is_budget = asked is not None and not isinstance(asked, bool)
    if is_budget and not traits.budget:
        raise ValueError(f"thinking={asked}: this model takes no budget; use thinking=True, and effort= for how much")
    if asked is False and traits.off is None:
        raise ValueError("thinking=False: this model always thinks; effort='low' has it think least")
    if asked is False:
        return ThinkingPlan({"type": traits.off} if traits.off else None, limit, thinks=False, budgeted=False)
    if asked is not None and (is_budget or not traits.adaptive):
        return _with_budget(asked, settings.max_tokens, limit)
    field: dict[str, Any] = {"type": "adaptive"}
    if traits.binds_thinking and may_bind:
        # Else a request is refused once a compaction, or a step with other tools, changed what led to the thinking.
        field["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    if asked:
        field["display"] = "summarized"  # The newer models show nothing of it unless they are asked to.
    says = bool(asked) or "block_binding" in field
    thinks = bool(asked) or traits.thinks_unasked
    return ThinkingPlan(field if says else None, limit, thinks=thinks, budgeted=False)


def _with_budget(asked: bool | int, given: int | None, limit: int) -> ThinkingPlan:
    budget = max(LEAST_BUDGET, min(_BUDGET, limit // 2)) if asked is True else asked
    if budget < LEAST_BUDGET:
        raise ValueError(f"thinking={budget}: the budget must be {LEAST_BUDGET:,} tokens or more")
    if budget >= limit:
        if given is not None:
            raise ValueError(f"thinking takes {budget:,} of the {given:,} tokens of max_tokens: none is left to answer")
        limit = budget + _FOR_THE_ANSWER
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, limit, thinks=True, budgeted=True)
