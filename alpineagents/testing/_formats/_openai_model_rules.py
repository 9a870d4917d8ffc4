"""What OpenAI refuses by the model: settings that don't go together with reasoning.

Source: OpenAI's guides on reasoning and on its latest models, its deployment checklist ("When reasoning effort is
not none, remove temperature, top_p, and top_logprobs"), and the 400s that people met, in whose words these are (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

Reasons: TypeAlias = Literal["never", "if told to", "unless told not to", "always"]

_FAMILIES: Final[tuple[tuple[str, Reasons], ...]] = (
    ("gpt-6-astra", "always"),
    ("gpt-6.1-sol", "always"),
    ("gpt-6", "unless told not to"),
    ("gpt-5.6", "unless told not to"),
    ("gpt-5.5-pro", "always"),
    ("gpt-5.5", "unless told not to"),
    ("gpt-5.4-pro", "always"),
    ("gpt-5.4", "if told to"),
    ("gpt-5.3-chat", "always"),
    ("gpt-5.3", "if told to"),
    ("gpt-5.2-chat", "always"),
    ("gpt-5.2-codex", "always"),
    ("gpt-5.2-pro", "always"),
    ("gpt-5.2", "if told to"),
    ("gpt-5.1-chat", "always"),
    ("gpt-5.1-codex", "always"),
    ("gpt-5.1", "if told to"),
    ("gpt-5-chat", "never"),
    ("gpt-5-search", "never"),
    ("gpt-5", "always"),
    ("gpt-4", "never"),
    ("gpt-3", "never"),
    ("o1", "always"),
    ("o3", "always"),
    ("o4", "always"),
)
"""The first that a name begins with holds."""
_TOOLS_NEED_REST: Final = ("gpt-5.6", "gpt-6")
"""Models that Chat Completions gives tools only where ``"none"`` is said."""
_TOOLS_WITHOUT_EFFORT: Final = ("gpt-5.2", "gpt-5.4", "gpt-5.5")
"""Models that it gives tools only where no other effort is said."""
_SAMPLING: Final = ("logprobs", "temperature", "top_logprobs", "top_p")
_MORE_SAMPLING: Final = ("frequency_penalty", "logit_bias", "presence_penalty", "stop")
_DEFAULTS: Final[Mapping[str, object]] = {"temperature": 1, "top_p": 1}


@attrs.frozen
class OpenAIModel:
    """A model, as far as its name tells."""

    name: str

    def reasons(self) -> Reasons | None:
        """When it reasons; ``None`` for a model of somebody else."""
        bare = self.name.rpartition("/")[2]
        return next((when for family, when in _FAMILIES if bare.startswith(family)), None)

    def is_reasoning(self, effort: Any) -> bool:
        """Whether it reasons with this effort, ``None`` where the request says none."""
        when = self.reasons()
        if when in ("if told to", "unless told not to"):
            return effort != "none" if effort is not None else when == "unless told not to"
        return when == "always"

    def effort_problems(self, effort: Any, field: str) -> Iterator[str]:
        """Yield why it can't have this effort, ``None`` where the request says none."""
        if effort is not None and self.reasons() == "never":
            yield f"Unsupported parameter: '{field}' is not supported with this model."
        if effort == "none" and self.reasons() == "always":
            yield f"Unsupported value: '{field}' does not support 'none' with this model."

    def responses_problems(self, body: Mapping[str, Any], effort: Any) -> Iterator[str]:
        """Yield which fields of a Responses request it doesn't take while it reasons."""
        if self.is_reasoning(effort):
            for name in _SAMPLING:
                if body.get(name) is not None:
                    yield f"Unsupported parameter: '{name}' is not supported with this model."

    def chat_problems(self, body: Mapping[str, Any]) -> Iterator[str]:
        """Yield which fields of a Chat Completions request it doesn't take."""
        effort = body.get("reasoning_effort")
        yield from self.effort_problems(effort, "reasoning_effort")
        if "max_tokens" in body and self.reasons() not in (None, "never"):
            yield "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
        if not self.is_reasoning(effort):
            return
        for name in (*_SAMPLING, *_MORE_SAMPLING):
            value = body.get(name)
            if value is None or value == _DEFAULTS.get(name):
                continue
            if name in _DEFAULTS:
                yield (
                    f"Unsupported value: '{name}' does not support {value!r:.80} with this model. "
                    "Only the default (1) value is supported."
                )
            else:
                yield f"Unsupported parameter: '{name}' is not supported with this model."
        bare = self.name.rpartition("/")[2]
        if body.get("tools") and (
            bare.startswith(_TOOLS_NEED_REST) or (effort is not None and bare.startswith(_TOOLS_WITHOUT_EFFORT))
        ):
            yield (
                f"Function tools with reasoning_effort are not supported for {self.name} in /v1/chat/completions. "
                "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
            )
