"""What a request to Gemini says besides the conversation, and what the generations of models take of it.

Source: Google's API reference, GenerationConfig and ThinkingConfig, and its guide on thinking (v1beta, 2026): up to
2.5 a model thinks by a budget of tokens, from 3 on by a level, and takes only one of the two.
"""

from __future__ import annotations

import re

from ._wire import Settings

MOST_STOPS = 5
_OLDER = re.compile(r"(models/)?gemini-[12]\b")
_BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens per level, as Google's OpenAI endpoint translates them for 2.5 (its guide on OpenAI compatibility, 2026)."""
_ANY_BUDGET = -1
"""The model decides how much it thinks."""


def is_before_gemini_3(model: str) -> bool:
    """Whether *model* is of the generations 1 and 2. A name that doesn't say, such as an alias, is a newer one's."""
    return _OLDER.match(model) is not None


def generation_config(model: str, settings: Settings) -> dict[str, object]:
    """Return the ``generationConfig`` for *settings*.

    Raises:
        ValueError: the API has nothing for a setting, so that it would be dropped or refused with every request.
    """
    if settings.parallel_tool_calls is False:
        raise ValueError("parallel_tool_calls=False: Gemini has no such setting, a reply may hold several calls")
    if settings.stop is not None and len(settings.stop) > MOST_STOPS:
        raise ValueError(f"stop: Gemini takes at most {MOST_STOPS} texts (got {len(settings.stop)})")
    fields = {
        "maxOutputTokens": settings.max_tokens,
        "temperature": settings.temperature,
        "stopSequences": settings.stop or None,
        "seed": settings.seed,
        "thinkingConfig": _thinking(model, settings) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _thinking(model: str, settings: Settings) -> dict[str, object]:
    thinking, effort = settings.thinking, settings.effort
    older = is_before_gemini_3(model)
    if thinking is not None and not thinking:
        if not older:
            raise ValueError(f"thinking={thinking}: {model} always thinks; effort='low' makes it think less")
        if effort is not None:
            raise ValueError(f"thinking={thinking} and effort={effort!r}: take one of them")
        return {"thinkingBudget": 0}
    amount = _amount(thinking, effort, older)
    return amount if thinking is None else {**amount, "includeThoughts": True}


def _amount(thinking: bool | int | None, effort: str | None, older: bool) -> dict[str, object]:
    """How much the model thinks."""
    if thinking is not None and thinking is not True:
        if effort is not None:
            raise ValueError(f"thinking={thinking} and effort={effort!r}: Gemini takes one of them")
        return {"thinkingBudget": thinking}
    if effort is None:
        return {"thinkingBudget": _ANY_BUDGET} if older and thinking else {}
    if not older:
        return {"thinkingLevel": effort.upper()}
    if effort.lower() not in _BUDGETS:
        raise ValueError(f"effort must be one of {', '.join(map(repr, _BUDGETS))} for this model (got {effort!r})")
    return {"thinkingBudget": _BUDGETS[effort.lower()]}
