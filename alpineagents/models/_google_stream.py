"""Decodes the answers of Gemini's ``streamGenerateContent``: event streams, and JSON where ``alt=sse`` got lost.

Source: Google's API reference, GenerateContentResponse (v1beta, 2026). A reply is complete when its candidate gave a
finish reason, and nothing of it came behind that, or when the prompt was blocked; there is no other end mark. Some
models put ``STOP`` on every chunk, or on empty ones before all content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import orjson

from .._errors import BrokenStreamError
from ..record._blocks import clean_text
from ..record._messages import Reply, Usage
from ._decoding import Decoding
from ._google_complaints import complaint_of_json
from ._google_reply import ReplyParts, says_something
from ._json import loads, loads_exactly, whole, words
from ._sse import Event
from ._wire import Complaint, Delta, Endpoint, Redact, no_json, one_line

_REFUSED = frozenset(
    (
        *("BLOCKLIST", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_SAFETY", "LANGUAGE", "MODEL_ARMOR"),
        *("PROHIBITED_CONTENT", "RECITATION", "SAFETY", "SPII"),
    )
)
# The model wrote what is no call, or no answer. What it wrote isn't told in a form that could be used, and as it is
# drawn by lot, the same request gives another: so it is a broken answer, which is asked for again.
_GARBLED = frozenset(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"))
_UNEXPECTED_CALL = "UNEXPECTED_TOOL_CALL"
"""Of a tool that there isn't: where the call is told, it gets a result that says so, else it is as the above."""
_OUR_FAULT = frozenset(("MISSING_THOUGHT_SIGNATURE",))
_NOT_FINISHED = frozenset(("", "FINISH_REASON_UNSPECIFIED"))
_NOT_BLOCKED = frozenset(("", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"))


@final
class GoogleDecoder(Decoding):
    """Decodes one answer. See ``_wire.Decoder``."""

    _END: ClassVar[str] = "the finish reason"

    def __init__(self, endpoint: Endpoint, redacted: Redact = str) -> None:
        super().__init__(endpoint, redacted)
        self._parts = ReplyParts(endpoint.provider, endpoint.model)
        self._model = ""
        self._stop_reason: str | None = None
        self._marked = False  # A finish reason came, and no content behind it.
        self._doubted = False  # Content came behind a finish reason: the next one needn't be the last either.
        self._refusal = False

    def feed(self, events: Sequence[Event]) -> list[Delta]:
        """Take events and return what to show of them."""
        deltas: list[Delta] = []
        for name, data in events:
            try:
                chunk = loads_exactly(data) if b'"functionCall"' in data else orjson.loads(data)
            except ValueError:
                chunk = self._sloppy_chunk(name, data)
            if name == "error":
                chunk = _as_error(chunk, data)
            self._take_all(chunk, data, deltas)
        return deltas

    def _take_document(self, document: object, deltas: list[Delta]) -> bool:
        """One chunk, or all of them in an array."""
        if not _is_answer(document):
            return False
        self._take_all(document, self._last, deltas)
        self.finished = self._marked
        return True

    def _complain(self, document: object) -> None:
        if found := complaint_of_json(document):
            self._failed(found[0], retry_after=found[1])

    def _take_all(self, chunk: object, data: bytes, deltas: list[Delta]) -> None:
        """Take a chunk, or a list of chunks; anything else is a ping or the like."""
        for item in chunk if type(chunk) is list else [chunk]:
            if type(item) is dict and self.failure is None:
                self._last = data
                self._take(item, deltas)

    def _take(self, chunk: dict[str, Any], deltas: list[Delta]) -> None:
        if "error" in chunk:
            found = None if self.finished else complaint_of_json(chunk)
            if found is not None:
                self._failed(found[0], retry_after=found[1])
                return
        if type(usage := chunk.get("usageMetadata")) is dict and usage:
            self._usage = usage  # The last one counts: each has the sums so far.
            if self._marked and not chunk.get("candidates"):
                self.finished = self.complete = True
        if not self._model and isinstance(model := chunk.get("modelVersion"), str):
            self._model = clean_text(model)
        if type(candidates := chunk.get("candidates")) is list:
            for candidate in candidates:
                if type(candidate) is dict and not candidate.get("index"):
                    self._candidate(candidate, deltas)
        if "promptFeedback" in chunk:
            self._prompt_feedback(_dict(chunk["promptFeedback"]))

    def _candidate(self, candidate: dict[str, Any], deltas: list[Delta]) -> None:
        content = candidate.get("content")
        if type(content) is dict and type(parts := content.get("parts")) is list:
            if self._marked and any(map(says_something, parts)):
                self._marked = self.finished = self.complete = False
                self._doubted = True
            for part in parts:
                if type(part) is dict:
                    self._parts.take(part, deltas, sloppy=self._sloppy)
        reason = candidate.get("finishReason")
        if reason is None or (reason := words(reason)) in _NOT_FINISHED:
            return
        self._parts.flush(deltas)
        self._finish(reason, words(candidate.get("finishMessage") or ""))

    def _finish(self, reason: str, message: str) -> None:
        why = f"finishReason {reason!r}" + (f": {one_line(self._redacted(message))}" if message else "")
        if reason in _GARBLED or (reason == _UNEXPECTED_CALL and not self._parts.has_calls):
            self._fail(BrokenStreamError, f"gave up its own answer ({why})")
        elif reason in _OUR_FAULT:
            self._failed(Complaint(message=why, words=reason, status=400))
        else:
            self._stop_reason = reason
            self._refusal = self._refusal or reason in _REFUSED
            self._marked = True
            self.finished = not self._doubted and (reason != "STOP" or self._parts.say_something)

    def _prompt_feedback(self, feedback: dict[str, Any]) -> None:
        """A reason why the prompt was blocked: then nothing else comes."""
        reason = feedback.get("blockReason")
        if isinstance(reason, str) and reason not in _NOT_BLOCKED:
            self._stop_reason = words(reason)
            self._refusal = self._marked = self.finished = self.complete = True

    def _sloppy_chunk(self, name: str, data: bytes) -> object:
        """What orjson refused: surrogates and control characters, or no JSON at all."""
        text = data.strip()
        try:
            chunk = loads(data)
        except ValueError:
            if text == b"[DONE]":  # Some gateways add it.
                self.complete = self.complete or self._marked
                self.finished = self._marked
            elif text and name in ("", "message") and not self.finished and self.failure is None:
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
        return Reply(
            self._parts.blocks(),
            model=self._model,
            stop_reason=self._stop_reason,
            usage=usage_of(self._usage),
            cut_off=self._stop_reason == "MAX_TOKENS",
            refusal=self._refusal,
        )


def usage_of(usage: dict[str, Any]) -> Usage:
    """Return the token counts of a ``usageMetadata``; zeros for what it doesn't say.

    Unlike OpenAI's, ``candidatesTokenCount`` is without the thoughts.
    """
    input_tokens = whole(usage.get("promptTokenCount")) + whole(usage.get("toolUsePromptTokenCount"))
    thinking = whole(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=whole(usage.get("candidatesTokenCount")) + thinking,
        cache_read_tokens=min(whole(usage.get("cachedContentTokenCount")), input_tokens),
        thinking_tokens=thinking,
        requests=1,
    )


def _as_error(chunk: object, data: bytes) -> object:
    """An event that is called an error as one that says so itself."""
    if type(chunk) is list or (type(chunk) is dict and "error" in chunk):
        return chunk
    return {"error": chunk if type(chunk) is dict else data.decode(errors="replace")}


def _is_answer(document: object) -> bool:
    """Whether a document, or the first of an array, is a GenerateContentResponse."""
    first = document[0] if isinstance(document, list) and document else document
    return isinstance(first, dict) and ("candidates" in first or "promptFeedback" in first)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
