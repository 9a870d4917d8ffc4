"""What OpenAI's models take and refuse, told from their names.

Source: OpenAI's guides on reasoning and on its latest models ("When reasoning effort is not none, remove temperature,
top_p, and top_logprobs"), its deployment checklist, and the 400s that people met with models that are older (December
2026).
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import attrs

from ._wire import Settings

Reasons: TypeAlias = Literal["never", "if told to", "unless told not to", "always"]

# gpt-35-turbo (Azure), gpt-4.1-mini, ft:gpt-4o:x, chatgpt-4o-latest, openai/gpt-5, gpt-5-2025-08-07, gpt-6.1-sol, o3
_NAME: Final = re.compile(r"(?:^|[/:])(?:(?:chat)?gpt-(\d)(?:\.?(\d))?([-\w]*)|o[1-9](?!\w))")
_DEFAULT_TEMPERATURE: Final = 1
_REST: Final = "none"


def reasons(model: str) -> Reasons | None:
    """When the model of this name reasons; ``None`` for a name that doesn't say."""
    found = _NAME.search(model.lower())
    if found is None:
        return None
    if found[1] is None:
        return "always"
    version, variant = (int(found[1]), int(found[2] or 0)), found[3]
    if version < (5, 0) or (version == (5, 0) and variant.startswith(("-chat", "-search"))):
        return "never"
    if version == (5, 0) or variant.startswith(("-astra", "-chat", "-pro")):
        return "always"
    if (version <= (5, 2) and variant.startswith("-codex")) or (version == (6, 1) and variant.startswith("-sol")):
        return "always"
    return "if told to" if version < (5, 5) else "unless told not to"


def rests_for_tools(model: str) -> bool:
    """Whether Chat Completions takes tools for it only with the effort ``"none"`` said: so from GPT-5.6 on."""
    found = _NAME.search(model.lower())
    return reasons(model) == "unless told not to" and found is not None and (found[1], found[2]) != ("5", "5")


def taken_by(model: str, settings: Settings) -> Settings:
    """Return *settings* without those that say only what the model does anyway.

    Raises:
        ValueError: OpenAI would refuse one of them with every request.
    """
    when = reasons(model)
    if when is None:
        return settings
    told_not_to = settings.thinking is False or settings.effort == _REST
    if when == "never":
        if not told_not_to and (settings.effort is not None or settings.thinking):
            name, value = ("effort", settings.effort) if settings.effort is not None else ("thinking", True)
            raise ValueError(f"{name}={value!r:.80}: {model} doesn't reason; leave {name} out")
        return attrs.evolve(settings, effort=None, thinking=None)
    if when == "always" and told_not_to:
        said = "thinking=False" if settings.thinking is False else f"effort={_REST!r}"
        raise ValueError(f"{said}: {model} always reasons; effort='low' makes it reason less")
    if told_not_to or (when == "if told to" and settings.effort is None):
        return settings
    return _while_it_reasons(model, settings, can_rest=when != "always")


def _while_it_reasons(model: str, settings: Settings, *, can_rest: bool) -> Settings:
    way_out = f"leave it out, or say effort={_REST!r}" if can_rest else "leave it out"
    if settings.temperature not in (None, _DEFAULT_TEMPERATURE):
        raise ValueError(f"temperature={settings.temperature:g}: {model} takes none while it reasons; {way_out}")
    if settings.stop is not None:
        raise ValueError(f"stop: {model} takes none while it reasons (got {settings.stop!r:.80}); {way_out}")
    return attrs.evolve(settings, temperature=None)
