"""Decodes the answers of Chat Completions servers: event streams, and whole documents from those that don't stream.

A reply is complete when a choice gave its finish reason, and nothing of it came behind that. ``[DONE]`` is no such
marker, except behind an empty finish reason, which some servers (older Ollama) put on every chunk; others (new-api)
put ``stop`` there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import orjson

from .._errors import BrokenStreamError
from ..record._blocks import Block, RawBlock, TextBlock, ThinkingBlock, ToolCall, clean_text
from ..record._messages import Reply, TextDelta, ThinkingDelta, Usage
from ._decoding import Decoding
from ._json import loads, loads_exactly, whole, words
from ._openai_calls import CallCollector
from ._openai_complaints import complaint_of_event, complaint_of_json
from ._openai_thinking import Thinking
from ._sse import Event
from ._wire import Complaint, Delta, Endpoint, Redact, no_json

_CUT_OFF = frozenset(("length", "max_tokens", "max_output_tokens", "model_length"))  # the last: Mistral
_REFUSED = frozenset(("content_filter", "refusal", "safety", "sensitive", "guardrail_intervened"))
_FAILED = frozenset(("error", "network_error", "insufficient_system_resource"))  # OpenRouter, Zhipu, DeepSeek
_ABORTED = frozenset(("abort", "cancelled"))  # vLLM, SGLang
_NOT_FINISHED = frozenset(("", "null"))
_SAY = ("content", "refusal", "reasoning_content", "reasoning", "reasoning_details", "tool_calls")
"""The fields of a delta that are part of a reply."""


@final
class ChatDecoder(Decoding):
    """Decodes one answer. See ``_wire.Decoder``."""

    _END: ClassVar[str] = "the finish reason"

    def __init__(self, endpoint: Endpoint, redacted: Redact = str) -> None:
        super().__init__(endpoint, redacted)
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thinking = Thinking()
        self._calls = CallCollector()
        self._model = ""
        self._stop_reason: str | None = None
        self._marked = False  # A finish reason came, and no content behind it.
        self._doubted = False  # Content came behind a finish reason: the next one needn't be the last either.
        self._cut_off = False

    def feed(self, events: Sequence[Event]) -> list[Delta]:
        """Take events and return what to show of them."""
        deltas: list[Delta] = []
        for name, data in events:
            try:
                chunk = loads_exactly(data) if b'"arguments"' in data else orjson.loads(data)
            except ValueError:
                chunk = self._sloppy_chunk(name, data)
            if type(chunk) is not dict:
                if name != "error":
                    continue  # Pings and the like.
                chunk = {"error": data.decode(errors="replace")}
            if self.failure is None:
                self._last = data
                self._take(chunk, name, deltas)
        return deltas

    def _take_document(self, document: object, deltas: list[Delta]) -> bool:
        if not isinstance(document, dict) or not document.get("choices"):
            return False
        self._take(document, "", deltas)
        self.finished = self._marked
        return True

    def _complain(self, document: object) -> None:
        if complaint := complaint_of_json(document):
            self._failed(complaint)

    def _take(self, chunk: dict[str, Any], name: str, deltas: list[Delta]) -> None:
        choices = chunk.get("choices")
        if "error" in chunk or name == "error" or choices is None:
            complaint = None if self.finished else complaint_of_event(chunk, name)
            if complaint is not None:
                self._failed(complaint)
                return
        if type(choices) is list:
            for choice in choices:
                if type(choice) is dict and not choice.get("index"):
                    self._choice(choice, deltas)
        if not self._model and isinstance(model := chunk.get("model"), str):
            self._model = clean_text(model)
        usage = chunk.get("usage")
        if usage is None and "x_groq" in chunk:
            usage = _dict(chunk["x_groq"]).get("usage")
        if usage:
            self._take_usage(usage)
            if self._marked and not choices:  # With a choice, it may be the sum so far.
                self.finished = self.complete = True

    def _take_usage(self, usage: object) -> None:
        """The last one counts: some servers send the sum so far with every chunk."""
        self._usage = _dict(usage) or self._usage

    def _choice(self, choice: dict[str, Any], deltas: list[Delta]) -> None:
        delta = choice.get("delta")
        if type(delta) is dict:
            if self._marked and any(delta.get(field) for field in _SAY):
                self._marked = self.finished = self.complete = False
                self._doubted = True
            content = delta.get("content")
            if content and type(content) is str and not self._sloppy:
                self._text.append(content)
                deltas.append(TextDelta(content))
            elif content:
                self._content(content, deltas)
            if len(delta) > 1 or not content:
                self._rest_of_delta(delta, deltas)
        elif type(message := choice.get("message")) is dict:
            self._content(message.get("content"), deltas)
            self._rest_of_delta(message, deltas)
            self._marked = self.finished = True  # A whole message: that the JSON is whole says that the message is.
        if usage := choice.get("usage"):  # Moonshot
            self._take_usage(usage)
        reason = choice.get("finish_reason")
        if reason is not None:
            self._finish(words(reason), choice)
            self._flush(deltas)

    def _rest_of_delta(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        """Everything but plain text."""
        self._show(ThinkingDelta, self._thinking.take(delta), deltas)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):  # "" beside the content of any answer: some servers
            self._refusal.append(refusal)
            self._show(TextDelta, refusal, deltas)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for fragment in calls:
                if isinstance(fragment, dict):
                    self._calls.add(fragment)

    def _content(self, content: object, deltas: list[Delta]) -> None:
        """Text that may hold half a character, or the parts that Mistral's reasoning models send."""
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                part = part["text"]
            if isinstance(part, str):
                self._text.append(part)
                self._show(TextDelta, part, deltas)
            elif isinstance(part, dict):
                self._show(ThinkingDelta, self._thinking.take_part(part), deltas)

    def _finish(self, reason: str, choice: dict[str, Any]) -> None:
        if reason in _NOT_FINISHED:
            self._stop_reason = self._stop_reason or reason
            return
        self._stop_reason = reason
        kind = reason.lower()
        error = choice.get("error")
        if kind in _FAILED or error:
            complaint = complaint_of_json({"error": error}) or Complaint(
                message=f"finish_reason {reason!r}", words=reason
            )
            self._failed(complaint)
        elif kind in _ABORTED:
            self._fail(BrokenStreamError, f"gave up its own answer (finish_reason {reason!r})")
        self._marked = True
        self._cut_off = self._cut_off or kind in _CUT_OFF
        said = bool(self._text or self._refusal or self._calls or self._thinking)
        self.finished = not self._doubted and (said or self._cut_off or _is_refused(kind))

    def _sloppy_chunk(self, name: str, data: bytes) -> object:
        """What orjson refused: the end mark, surrogates and control characters, or no JSON at all."""
        text = data.strip()
        if text == b"[DONE]":
            self.complete = True
            self.finished = self.finished or self._marked or self._doubted or self._stop_reason == ""
            return None
        try:
            chunk = loads(data)
        except ValueError:
            if text and name in ("", "message") and not self.finished:
                self._last = data
                self._fail(BrokenStreamError, no_json(data, self._redacted))
            return None
        self._sloppy = True
        return chunk

    def _counted(self) -> Usage:
        return usage_of(self._usage)

    def _is_whole(self) -> bool:
        return self.finished or self._marked

    def _made(self) -> Reply:
        kind = (self._stop_reason or "").lower()
        return Reply(
            self._blocks(),
            model=self._model,
            stop_reason=self._stop_reason,
            usage=usage_of(self._usage),
            cut_off=self._cut_off,
            refusal=bool(self._refusal) or _is_refused(kind),
        )

    def _blocks(self) -> list[Block]:
        provider = self._endpoint.provider
        calls: list[ToolCall | RawBlock] = self._calls.blocks(provider, self._cut_off)
        blocks: list[Block] = []
        thinking: ThinkingBlock | None = self._thinking.block(provider, self._endpoint.model, even_if_empty=bool(calls))
        if thinking is not None:
            blocks.append(thinking)
        blocks += [TextBlock(text) for text in ("".join(self._text), "".join(self._refusal)) if text]
        return blocks + calls


def _is_refused(kind: str) -> bool:
    return kind.partition(":")[0] in _REFUSED


def usage_of(usage: dict[str, Any]) -> Usage:
    """Return the token counts of a Chat Completions ``usage``; zeros for what it doesn't say."""
    prompt, details = _dict(usage.get("prompt_tokens_details")), _dict(usage.get("completion_tokens_details"))
    read = prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
    input_tokens, total = whole(usage.get("prompt_tokens")), whole(usage.get("total_tokens"))
    # xAI and Gemini count reasoning in the total only, all others in completion_tokens.
    output = max(whole(usage.get("completion_tokens")), total - input_tokens)
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output,
        cache_read_tokens=min(whole(read), input_tokens),
        cache_write_tokens=whole(prompt.get("cache_write_tokens")),
        thinking_tokens=whole(details.get("reasoning_tokens")),
        requests=1,
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
