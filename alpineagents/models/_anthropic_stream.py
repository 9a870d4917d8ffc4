"""Decodes the answers of Anthropic's Messages API: event streams, and whole documents from servers that don't stream.

A reply is complete when ``message_delta`` gave a stop reason, or ``message_stop`` came. Source: Anthropic's API
reference, "Streaming Messages", and the types and the accumulator of its Python SDK 2.15 (December 2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import orjson

from .._errors import BrokenStreamError
from ..record._blocks import Block, ToolCall, clean_text
from ..record._messages import Reply, TextDelta, ThinkingDelta, Usage
from ._anthropic_building import Building, Origin
from ._decoding import Decoding
from ._json import loads, loads_exactly, whole, words
from ._openai_complaints import complaint_of_event, complaint_of_json
from ._sse import Event
from ._wire import Complaint, Delta, Endpoint, Redact, no_json

PAUSED: Final = "pause_turn"
"""The stop reason of a reply that goes on once it is sent back."""
_REFUSED: Final = "refusal"
_CUT_OFF: Final = frozenset(("max_tokens", "model_context_window_exceeded"))
_CONTENT: Final = ("content_block_delta", "content_block_start", "content_block_stop")
_QUIET: Final = {
    "text": ("citations_delta",),
    "thinking": ("signature_delta",),
    "redacted_thinking": (),
    "tool_use": ("input_json_delta",),
}
"""The deltas of which nothing is shown, by the kind of their block; other kinds of blocks take any."""


@final
class MessagesDecoder(Decoding):
    """Decodes one answer. See ``_wire.Decoder``."""

    _END: ClassVar[str] = "the stop reason"

    def __init__(self, endpoint: Endpoint, redacted: Redact = str) -> None:
        super().__init__(endpoint, redacted)
        self._blocks: list[Building] = []
        self._by_index: dict[int, Building] = {}
        self._model = ""
        self._stop_reason: str | None = None

    def feed(self, events: Sequence[Event]) -> list[Delta]:
        """Take events and return what to show of them."""
        deltas: list[Delta] = []
        for name, data in events:
            try:
                event = loads_exactly(data) if b'"tool_use"' in data else orjson.loads(data)
            except ValueError:
                event = self._sloppy_event(name, data)
            if type(event) is not dict:
                if name != "error":
                    continue
                event = {"error": data.decode(errors="replace")}
            if self.failure is None:
                self._last = data
                self._take(event, name, deltas)
        return deltas

    def _take_document(self, document: object, deltas: list[Delta]) -> bool:
        if not isinstance(document, dict) or not isinstance(content := document.get("content"), list):
            return False
        for index, block in enumerate(content):
            self._start({"index": index, "content_block": block}, deltas)
            self._end(index)
        self._take_message(document)
        self._stop(document, document.get("usage"))
        self._flush(deltas)
        self.finished = self.complete = True  # A whole message: that the JSON is whole says that the message is.
        return True

    def _complain(self, document: object) -> None:
        if complaint := complaint_of_json(document):
            self._says_it_failed(complaint, document)

    def _take(self, event: dict[str, Any], name: str, deltas: list[Delta]) -> None:
        kind = event.get("type") or name
        if kind in _CONTENT:
            if not self.finished:  # What came behind the stop reason would be in some replies and not in others.
                self._take_content(kind, event, deltas)
        elif kind == "message_delta":
            delta = event.get("delta")
            self._stop(delta if type(delta) is dict else {}, event.get("usage"))
            self._flush(deltas)
        elif kind == "message_stop":
            self._flush(deltas)
            self.finished = self.complete = True
        elif kind == "message_start":
            if type(message := event.get("message")) is dict:
                self._take_message(message)
        elif not self.finished and (kind == "error" or "error" in event):
            complaint = complaint_of_event(event, "error" if kind == "error" else name)
            if complaint is not None:
                self._says_it_failed(complaint, event)

    def _take_content(self, kind: str, event: dict[str, Any], deltas: list[Delta]) -> None:
        if kind == "content_block_start":
            self._start(event, deltas)
        elif kind == "content_block_stop":
            self._flush(deltas)
            self._end(event.get("index"))
        elif type(delta := event.get("delta")) is dict:
            self._delta(event.get("index"), delta, deltas)

    def _take_message(self, message: dict[str, Any]) -> None:
        if isinstance(model := message.get("model"), str):
            self._model = self._model or clean_text(model)
        self._take_usage(message.get("usage"))

    def _take_usage(self, usage: object) -> None:
        """The last one counts: they are sums so far. Some servers say 0 in the end for the input they told before."""
        if isinstance(usage, dict):
            for name, value in usage.items():
                if value or name not in self._usage or (value == 0 and name == "output_tokens"):
                    self._usage[name] = value

    def _start(self, event: dict[str, Any], deltas: list[Delta]) -> None:
        start, index = event.get("content_block"), event.get("index")
        if type(start) is not dict:
            return
        self._flush(deltas)
        block = Building(start)
        self._blocks.append(block)
        if type(index) is int:
            self._by_index[index] = block
        if text := block.text():
            self._show(ThinkingDelta if block.kind == "thinking" else TextDelta, text, deltas)

    def _end(self, index: object) -> None:
        if type(index) is int and (block := self._by_index.get(index)):
            block.stopped = True

    def _delta(self, index: object, delta: dict[str, Any], deltas: list[Delta]) -> None:
        kind = delta.get("type")
        block = self._by_index.get(index) if type(index) is int else None
        if block is None:
            block = self._unannounced(kind)
        if block is None:
            return
        if kind == "text_delta" and block.kind == "text":
            self._lengthen(block, "text", TextDelta, delta.get("text"), deltas)
        elif kind == "thinking_delta" and block.kind == "thinking":
            self._lengthen(block, "thinking", ThinkingDelta, delta.get("thinking"), deltas)
        elif kind in _QUIET.get(block.kind, (kind,)):
            block.take(delta)

    def _unannounced(self, kind: object) -> Building | None:
        """The block of a delta whose index is missing, or was never begun: the last, or a new one."""
        wanted = {"text_delta": "text", "thinking_delta": "thinking"}.get(kind) if isinstance(kind, str) else None
        last = self._blocks[-1] if self._blocks else None
        if wanted is None or (last is not None and last.kind == wanted):
            return last
        self._blocks.append(Building({"type": wanted}))
        return self._blocks[-1]

    def _lengthen(self, block: Building, field: str, kind: type[Delta], piece: object, deltas: list[Delta]) -> None:
        if isinstance(piece, str) and piece:
            block.add(field, piece)
            self._show(kind, piece, deltas)

    def _stop(self, delta: dict[str, Any], usage: object) -> None:
        self._take_usage(usage)
        reason = delta.get("stop_reason")
        if reason is not None:
            self._stop_reason = words(reason)
            self.finished = True
            self.complete = self.complete or isinstance(usage, dict)

    def _sloppy_event(self, name: str, data: bytes) -> object:
        """What orjson refused: surrogates and control characters, or no JSON at all."""
        try:
            event = loads(data)
        except ValueError:
            if name not in ("ping", "error") and data.strip() != b"[DONE]" and not self.finished:
                self._last = data
                self._fail(BrokenStreamError, no_json(data, self._redacted))
            return None
        self._sloppy = True
        return event

    def _says_it_failed(self, complaint: Complaint, told: object) -> None:
        request_id = told.get("request_id") if isinstance(told, dict) else None
        self._failed(complaint, request_id=request_id if isinstance(request_id, str) else None)

    def _counted(self) -> Usage:
        return usage_of(self._usage)

    def _made(self) -> Reply:
        return Reply(
            self._whole_blocks(),
            model=self._model,
            stop_reason=self._stop_reason,
            usage=usage_of(self._usage),
            cut_off=self._stop_reason in _CUT_OFF,
            refusal=self._stop_reason == _REFUSED,
        )

    def _whole_blocks(self) -> list[Block]:
        """All blocks. A limit cut off the last thing that the model wrote, or a block that never ended.

        Anthropic's guide on stop reasons has it that of a truncated reply the last block may be an incomplete call.
        Some servers put an empty block behind it.
        """
        origin = Origin(self._endpoint.provider, self._endpoint.model)
        cut_off, is_last = self._stop_reason in _CUT_OFF, True
        made: list[list[Block]] = []
        for block in reversed(self._blocks):
            made.append(block.blocks(origin, may_be_cut_off=cut_off and (is_last or not block.stopped)))
            is_last = is_last and not made[-1]
        blocks = [block for blocks in reversed(made) for block in blocks]
        calls = [block for block in blocks if type(block) is ToolCall]
        return blocks if all(call.id for call in calls) else _with_ids(blocks)


def _with_ids(blocks: list[Block]) -> list[Block]:
    """Calls without an id get one from their place."""
    made: list[Block] = []
    for block in blocks:
        if type(block) is ToolCall and not block.id:
            number = 1 + sum(type(before) is ToolCall for before in made)
            block = ToolCall(f"call_{number}", block.name, block.args, block.raw_args)
        made.append(block)
    return made


def usage_of(usage: dict[str, Any]) -> Usage:
    """Return the token counts of a ``usage``, which counts cached input apart; zeros for what it doesn't say."""
    read, written = whole(usage.get("cache_read_input_tokens")), whole(usage.get("cache_creation_input_tokens"))
    details = usage.get("output_tokens_details")
    return Usage(
        input_tokens=whole(usage.get("input_tokens")) + read + written,
        output_tokens=whole(usage.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        thinking_tokens=whole(details.get("thinking_tokens")) if isinstance(details, dict) else 0,
        requests=1,
    )
