"""Reasoning in Chat Completions: the fields it comes in, and how it goes back.

``reasoning_content`` (DeepSeek, Moonshot, llama.cpp), ``reasoning`` (vLLM, Groq, Ollama), ``reasoning_details``
(OpenRouter, with signatures) or parts of ``content`` (Mistral). DeepSeek (api-docs.deepseek.com, thinking mode, read
in December 2026) wants it back on every reply of a turn with tool calls, and ignores it elsewhere: there it is always
sent, and a blank where another provider wrote the reply. People met the refusal of replies without, and of empty text.
Otherwise it goes back to the model alone that wrote it: a signature holds for no other, even of the same provider, and
some of Groq's models refuse any ("reasoning is not supported with this model", vercel/ai issue 8057).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from ..record._blocks import Block, ThinkingBlock
from ..record._frozen import FrozenDict
from ._json import storable
from ._wire import Endpoint

_FIELDS = ("reasoning_content", "reasoning")
_DETAILS = "reasoning_details"
_WANTS_ALL = "deepseek"


@final
class Thinking:
    """Collects the reasoning of one answer."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._field: str | None = None
        self._details: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._parts or self._details)

    def take(self, delta: dict[str, Any]) -> str:
        """Return the reasoning text of *delta*, and keep it."""
        found = ""
        for field in _FIELDS:
            value = delta.get(field)
            if isinstance(value, str):
                self._field = self._field or field
                found = found or value
        details = delta.get(_DETAILS)
        if isinstance(details, list):
            texts = [self._detail(detail) for detail in details if isinstance(detail, dict)]
            found = found or "".join(texts)
        if found:
            self._parts.append(found)
        return found

    def take_part(self, part: dict[str, Any]) -> str:
        """Return the reasoning text of a part of ``content``, and keep it."""
        thinking = part.get("thinking")
        parts = thinking if isinstance(thinking, list) else [{"text": thinking}]
        texts = [item.get("text") for item in parts if isinstance(item, dict)]
        found = "".join([text for text in texts if isinstance(text, str)])
        if found:
            self._parts.append(found)
        return found

    def _detail(self, detail: dict[str, Any]) -> str:
        """Join pieces of one detail, which come with the same type and index; the signature comes with the last."""
        last = self._details[-1] if self._details else {}
        same = all(last.get(key) == detail.get(key) for key in ("type", "index"))
        key = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(str(detail.get("type")), "")
        piece = detail.get(key)
        if last and same and key:
            joined = _joined(last.get(key), piece)
            last.update({name: value for name, value in detail.items() if value is not None})
            last[key] = joined
        else:
            self._details.append(dict(detail))
        return piece if isinstance(piece, str) else ""

    def block(self, provider: str, model: str, *, even_if_empty: bool) -> ThinkingBlock | None:
        """Return the whole reasoning; None where there is none to keep."""
        text = "".join(self._parts)
        details = storable({_DETAILS: self._details, "model": model}) if self._details else None
        if details is not None:
            return ThinkingBlock(text, provider=provider, raw=details)
        if self._field is not None and (text or even_if_empty):
            return ThinkingBlock(text, provider=provider, raw={"field": self._field, "model": model})
        return ThinkingBlock(text, provider=provider) if text else None


def echo(blocks: Iterable[Block], to: Endpoint, *, has_calls: bool) -> dict[str, Any]:
    """Return the fields that give a reply's reasoning back to who wrote it."""
    wants_all = to.house == _WANTS_ALL
    if not (has_calls or wants_all):
        return {}
    fields: dict[str, Any] = {}
    for block in blocks:
        if type(block) is ThinkingBlock and block.provider == to.provider and isinstance(block.raw, FrozenDict):
            own = block.raw.get("model", to.model) == to.model
            if (details := block.raw.get(_DETAILS)) is not None:
                if own:
                    fields[_DETAILS] = [*fields.get(_DETAILS, ()), *details]
            elif (field := block.raw.get("field")) in _FIELDS and (own or wants_all):
                fields[field] = fields.get(field, "") + block.text
    if wants_all and not fields.get(_FIELDS[0]):
        fields[_FIELDS[0]] = " "
    return fields


def _joined(first: object, second: object) -> object:
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    return second if first is None else first
