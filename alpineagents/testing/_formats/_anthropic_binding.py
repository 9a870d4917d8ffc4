"""Thinking that is bound to what led to it: whether it comes back behind the conversation that it was sent behind.

Source: Anthropic's page on preserved thinking (December 2026): from Opus and Sonnet 5.5 and Fable 5.1 on, a request is
refused whose thinking stands behind a changed conversation, unless it has such thinking dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, final

from ._anthropic_model_rules import binds_thinking

_BOUND = {"thinking": "signature", "redacted_thinking": "data"}
"""Where a block says which one it is."""


@final
class Bindings:
    """What each thinking block that was sent stood behind."""

    def __init__(self) -> None:
        self._prefixes: dict[str, set[str]] = {}

    def sent(self, content: Sequence[Mapping[str, Any]], body: Any) -> None:
        """Take note of a reply's *content*, the answer to a request with this *body*."""
        messages = body.get("messages") if isinstance(body, dict) else None
        if isinstance(messages, list) and any(block["type"] in _BOUND for block in content):
            prefix = _digest(messages)
            for block in content:
                if block["type"] in _BOUND:
                    self._prefixes.setdefault(block[_BOUND[block["type"]]], set()).add(prefix)

    def problems(self, body: Any) -> Iterator[str]:
        """Yield what is refused of the thinking in a request: of that alone which was sent from here."""
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not binds_thinking(str(body.get("model"))) or _drops(body):
            return
        for number, message in enumerate(messages):
            content = message.get("content") if isinstance(message, dict) else None
            blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
            for block in blocks:
                prefixes = self._prefixes.get(str(block.get(_BOUND.get(str(block.get("type")), ""))))
                if prefixes is not None and _digest(messages[:number]) not in prefixes:
                    yield f"messages.{number}: a thinking block is bound to another conversation than stands before it"


def _drops(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    binding = thinking.get("block_binding") if isinstance(thinking, dict) else None
    return isinstance(binding, dict) and binding.get("prefix_mismatch_behavior") == "drop_block"


def _digest(messages: Sequence[Any]) -> str:
    return sha256(json.dumps(_bare(messages), sort_keys=True).encode()).hexdigest()


def _bare(value: Any) -> Any:
    """Without the marks of the cache, which move, and thinking, which may be left out; text in its longer form."""
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value if not (isinstance(item, dict) and item.get("type") in _BOUND)]
    if not isinstance(value, dict):
        return value
    bare = {key: _bare(item) for key, item in value.items() if key != "cache_control"}
    if "role" in bare and isinstance(bare.get("content"), str):
        bare["content"] = [{"type": "text", "text": bare["content"]}]
    return bare
