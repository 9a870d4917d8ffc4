"""Long streamed answers in the four provider formats, and a server for them in a process of its own.

Standard library only, so that the Python of any environment runs it. Every event is an HTTP chunk of its own, as
providers send them; 64 of them go into a write, which keeps the server far ahead of its client.

    python benchmarks/stream_server.py CHUNKS    (prints its port; ends when its standard input does)
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVENTS_PER_WRITE = 64
Events = list[tuple[str, dict[str, Any]]]


def pieces(chunks: int) -> list[str]:
    """Return the pieces of text that a stream of *chunks* small deltas brings."""
    return [f" tok{number % 1_000}" for number in range(chunks)]


def _chat(chunks: int) -> Events:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], "usage": None}

    head = {"id": "chatcmpl-abc123", "object": "chat.completion.chunk", "created": 1_764_600_000, "model": "m"}
    head["system_fingerprint"] = "fp_0"
    counts = {"prompt_tokens": 10, "completion_tokens": chunks, "total_tokens": 10 + chunks}
    texts = [chunk({"content": piece}) for piece in pieces(chunks)]
    end = [chunk({}, "stop"), {**head, "choices": [], "usage": counts}]
    return [("", event) for event in [chunk({"role": "assistant", "content": ""}), *texts, *end]]


def _anthropic(chunks: int) -> Events:
    message = {"id": "msg_01", "type": "message", "role": "assistant", "content": [], "model": "m"}
    usage = {"input_tokens": 10, "output_tokens": 1}
    deltas = [{"index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in pieces(chunks)]
    return [
        ("message_start", {"message": {**message, "stop_reason": None, "usage": usage}}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *[("content_block_delta", delta) for delta in deltas],
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {**usage, "output_tokens": chunks}}),
        ("message_stop", {}),
    ]


def _google(chunks: int) -> Events:
    def chunk(text: str, so_far: int, **fields: str) -> dict[str, Any]:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, **fields, "index": 0}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": so_far, "totalTokenCount": 10 + so_far}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "m91NaoKoNe2_"}

    events = [chunk(piece, number) for number, piece in enumerate(pieces(chunks), 1)]
    return [("", event) for event in [*events, chunk("", chunks, finishReason="STOP")]]


def _responses(chunks: int) -> Events:
    at = {"item_id": "msg_01", "output_index": 0, "content_index": 0}
    text = "".join(pieces(chunks))
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    item = {"id": "msg_01", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
    usage = {"input_tokens": 10, "output_tokens": chunks, "total_tokens": 10 + chunks}
    response = {"id": "resp_01", "object": "response", "created_at": 1_764_600_000, "model": "m", "store": False}
    deltas = [{**at, "delta": piece, "logprobs": [], "obfuscation": "x9Qa3f"} for piece in pieces(chunks)]
    return [
        ("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}}),
        ("response.content_part.added", {**at, "part": {**part, "text": ""}}),
        *[("response.output_text.delta", delta) for delta in deltas],
        ("response.output_text.done", {**at, "text": text}),
        ("response.content_part.done", {**at, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": {**response, "status": "completed", "output": [item], "usage": usage}}),
    ]


_FORMATS = {
    "/v1/chat/completions": _chat,
    "/v1/messages": _anthropic,
    "/v1beta/models/m:streamGenerateContent": _google,
    "/v1/responses": _responses,
}


def stream(path: str, chunks: int) -> list[bytes]:
    """Return the events of an answer to a request at *path*, as they are sent."""
    events: list[bytes] = []
    for number, (name, event) in enumerate(_FORMATS[path](chunks)):
        fields = {"type": name, **event} if name else event
        if path == "/v1/responses":
            fields["sequence_number"] = number
        data = json.dumps(fields, separators=(",", ":")).encode()
        events.append((b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % data)
    return [*events, b"data: [DONE]\n\n"] if path == "/v1/chat/completions" else events


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Else the first events wait for an acknowledgement of the head: 40 ms.
    writes: dict[str, list[bytes]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for data in self.writes[self.path.partition("?")[0]]:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _writes(path: str, chunks: int) -> list[bytes]:
    sent = [b"%x\r\n%b\r\n" % (len(event), event) for event in stream(path, chunks)] + [b"0\r\n\r\n"]
    return [b"".join(sent[start : start + EVENTS_PER_WRITE]) for start in range(0, len(sent), EVENTS_PER_WRITE)]


@contextmanager
def serving(chunks: int) -> Iterator[str]:
    """Yield the origin of a server whose answers have *chunks* deltas."""
    command = [sys.executable, __file__, str(chunks)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"


def main() -> None:
    _Handler.writes = {path: _writes(path, int(sys.argv[1])) for path in _FORMATS}
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
