"""Decodes the answers of the Responses API: event streams, and whole documents from servers that don't stream.

Source: OpenAI's API reference, "Responses streaming events" (December 2026), and what llama.cpp, vLLM, OpenRouter and
gateways send that copy it. A reply is complete with ``response.completed``, ``.incomplete`` or ``.failed``, and with
nothing else: ``[DONE]`` is no such marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import attrs
import orjson

from .._errors import BrokenStreamError
from ..record._messages import Reply, Usage
from ._decoding import Decoding
from ._json import loads, loads_exactly, whole, words
from ._openai_complaints import complaint_of_event, complaint_of_json
from ._responses_items import CALL, MESSAGE, REASONING, REFUSAL, SUMMARY, TEXT, THOUGHT
from ._responses_output import Output
from ._sse import Event
from ._wire import Complaint, Delta, Endpoint, Redact, no_json

_PIECES: Final = {
    "response.output_text.delta": (MESSAGE, TEXT),
    "response.refusal.delta": (MESSAGE, REFUSAL),
    "response.reasoning_summary_text.delta": (REASONING, SUMMARY),
    "response.reasoning_text.delta": (REASONING, THOUGHT),
    "response.reasoning.delta": (REASONING, THOUGHT),  # Open Responses (openresponses.org)
}
_WHOLE: Final = {
    "response.output_text.done": (MESSAGE, TEXT, "text"),
    "response.refusal.done": (MESSAGE, REFUSAL, "refusal"),
    "response.reasoning_summary_text.done": (REASONING, SUMMARY, "text"),
    "response.reasoning_text.done": (REASONING, THOUGHT, "text"),
    "response.reasoning.done": (REASONING, THOUGHT, "text"),
}
_PARTS: Final = {"response.content_part.added": MESSAGE, "response.reasoning_summary_part.added": REASONING}
_ARGUMENTS: Final = ("response.function_call_arguments.delta", "response.function_call_arguments.done")
_BEGINS: Final = ("response.created", "response.queued", "response.in_progress")
_ENDS: Final = {
    "response.completed": "completed",
    "response.done": "completed",  # OpenRouter, at first
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_NOT_COMPLETED: Final = ("incomplete", "failed", "cancelled")
_FILTERED: Final = "content_filter"
_CALLERS_FAULT: Final = ("image", "policy")
"""Words in the codes of errors that another try doesn't mend, ``image_too_large`` for one."""


@final
class ResponsesDecoder(Decoding):
    """Decodes one answer. See ``_wire.Decoder``."""

    _END: ClassVar[str] = "response.completed"

    def __init__(self, endpoint: Endpoint, redacted: Redact = str) -> None:
        super().__init__(endpoint, redacted)
        self._output = Output()
        self._model = ""
        self._status = ""
        self._reason: str | None = None

    def feed(self, events: Sequence[Event]) -> list[Delta]:
        """Take events and return what to show of them."""
        deltas: list[Delta] = []
        for name, data in events:
            if self.finished or self.failure is not None:
                break
            try:
                event = loads_exactly(data) if b'"arguments"' in data else orjson.loads(data)
            except ValueError:
                event = self._sloppy_event(name, data)
            if type(event) is not dict:
                if name != "error":
                    continue  # Pings and the like.
                event = {"error": data.decode(errors="replace")}
            self._last = data
            deltas += self._take(event, name)
        return deltas

    def _take_document(self, document: object, deltas: list[Delta]) -> bool:
        if not isinstance(document, dict) or not isinstance(document.get("output"), list):
            return False
        deltas += self._end(document, words(document.get("status") or "completed"))
        return True

    def _complain(self, document: object) -> None:
        if complaint := complaint_of_json(document):
            self._says_it_failed(complaint)

    def _take(self, event: dict[str, Any], name: str) -> list[Delta]:
        kind = event.get("type")
        if not isinstance(kind, str):
            kind = name
        if kind in _PIECES:
            return self._piece(event, *_PIECES[kind])
        if kind in _WHOLE:
            return self._whole_part(event, *_WHOLE[kind])
        if kind in _PARTS:
            self._begin_part(event, _PARTS[kind])
        elif kind == "response.output_item.added":
            self._output.add(event)
        elif kind == "response.output_item.done":
            return self._output.done(event)
        elif kind in _ARGUMENTS:
            self._arguments(event, kind)
        elif kind in _BEGINS:
            self._model = _text(_dict(event.get("response")).get("model"))
        elif kind in _ENDS:
            return self._end(_dict(event.get("response")), _ENDS[kind])
        elif not kind.startswith("response.") or kind == "response.error":
            complaint = complaint_of_event(event, name if name == "error" else kind)
            if complaint is not None:
                self._says_it_failed(complaint)
        return []

    def _piece(self, event: dict[str, Any], kind: str, part: str) -> list[Delta]:
        piece = event.get("delta")
        if isinstance(piece, dict):  # OpenAI, at first
            piece = piece.get("text")
        if not piece or not isinstance(piece, str):
            return []
        item = self._output.item(event, kind)
        return [] if item is None else item.write(part, _index(event, part), piece)

    def _whole_part(self, event: dict[str, Any], kind: str, part: str, field: str) -> list[Delta]:
        text = event.get(field)
        if not text or not isinstance(text, str):
            return []
        item = self._output.item(event, kind)
        return [] if item is None else item.write_whole(part, _index(event, part), text)

    def _begin_part(self, event: dict[str, Any], kind: str) -> None:
        if _dict(event.get("part")).get("type") == THOUGHT:
            kind = REASONING
        item = self._output.item(event, kind)
        if item is not None:
            item.begin_part()

    def _arguments(self, event: dict[str, Any], kind: str) -> None:
        item = self._output.item(event, CALL)
        if item is None:
            return
        if kind.endswith(".done"):
            item.said.append(event.get("arguments"))
        elif isinstance(piece := event.get("delta"), str):
            item.arguments.append(piece)

    def _end(self, response: dict[str, Any], status: str) -> list[Delta]:
        """Take the response as it is in the end."""
        told = response.get("status")
        if status == "completed" and told in _NOT_COMPLETED:  # vLLM says only there that it was cut off.
            status = str(told)
        self._model = _text(response.get("model")) or self._model
        self._usage = _dict(response.get("usage"))
        self._status = status
        if status == "failed":
            self._says_it_failed(_complaint_of(response))
        elif status in ("completed", "incomplete"):
            reason = _dict(response.get("incomplete_details")).get("reason")
            self._reason = reason if isinstance(reason, str) and status == "incomplete" else None
            self.finished = self.complete = True
            return self._output.finish(response.get("output"))
        else:
            self._fail(BrokenStreamError, f"gave up its own answer (status {status!r})")
        return []

    def _sloppy_event(self, name: str, data: bytes) -> object:
        """What orjson refused: an end mark, surrogates and control characters, or no JSON at all."""
        text = data.strip()
        if text == b"[DONE]":
            self.complete = True
            return None
        try:
            return loads(data)
        except ValueError:
            if text and (name in ("", "message") or name.startswith("response.")):
                self._last = data
                self._fail(BrokenStreamError, no_json(data, self._redacted))
            return None

    def _says_it_failed(self, complaint: Complaint) -> None:
        if complaint.status is None and any(word in complaint.words for word in _CALLERS_FAULT):
            complaint = attrs.evolve(complaint, status=400)
        self._failed(complaint)

    def _counted(self) -> Usage:
        return usage_of(self._usage)

    def _made(self) -> Reply:
        incomplete = self._status == "incomplete"
        filtered = self._reason == _FILTERED
        endpoint = self._endpoint
        return Reply(
            self._output.blocks(endpoint.provider, endpoint.model, cut_off=incomplete),
            model=self._model,
            stop_reason=self._reason or self._status,
            usage=usage_of(self._usage),
            cut_off=incomplete and not filtered,
            refusal=filtered or self._output.is_refused(),
        )


def usage_of(usage: dict[str, Any]) -> Usage:
    """Return the token counts of a response's ``usage``; zeros for what it doesn't say."""
    read, written = _dict(usage.get("input_tokens_details")), _dict(usage.get("output_tokens_details"))
    input_tokens = whole(usage.get("input_tokens"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=whole(usage.get("output_tokens")),
        cache_read_tokens=min(whole(read.get("cached_tokens")), input_tokens),
        cache_write_tokens=whole(read.get("cache_write_tokens")),
        thinking_tokens=whole(written.get("reasoning_tokens")),
        requests=1,
    )


def _complaint_of(response: dict[str, Any]) -> Complaint:
    return complaint_of_json({"error": response.get("error")}) or Complaint(message="it failed and doesn't say why")


def _index(event: dict[str, Any], part: str) -> object:
    """Which part a piece belongs to. Only that of a summary is one: vLLM counts the pieces of thoughts instead."""
    index = event.get("summary_index") if part == SUMMARY else None
    return index if isinstance(index, int) else None


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
