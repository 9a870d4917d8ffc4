"""A provider on a loopback port: real HTTP/1.1, a scripted answer per request, strict about what it is sent.

It speaks every format that the library does, by the path of a request. It works under trio's autojump clock, as it is
addressed by number.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias, final

import attrs
import h11
import trio

from ..record._blocks import TextBlock, ToolCall
from ..record._messages import Reply
from ..run._groups import most_important, parts
from ._formats._anthropic import MessagesFormat
from ._formats._chat import ChatFormat
from ._formats._format import Format, ReceivedRequest
from ._formats._google import GoogleFormat
from ._formats._responses import ResponsesFormat

_FORMATS: Final[tuple[Format, ...]] = (ChatFormat(), GoogleFormat(), MessagesFormat(), ResponsesFormat())


@final
@attrs.frozen(kw_only=True)
class Fault:
    """An answer that something is wrong with. Without arguments, nothing is."""

    status: int = 200
    """HTTP status. From 400 on the body is an error in the provider's form, unless *body* is given."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Added to the answer's own, or put in place of them."""
    body: str | bytes | Mapping[str, Any] | None = None
    """Sent as it is, a mapping as JSON."""
    answer: str | ToolCall | Reply | Sequence[str | ToolCall] = "Hello."
    """What is streamed where there is no *body*."""
    drop: bool = False
    """Close the connection without any answer."""
    garbage: bytes | None = None
    """Sent in place of an HTTP answer; then the connection is closed."""
    wait: float = 0.0
    """Seconds before the answer begins."""
    cut_after: int | None = None
    """Bytes of the body after which it stops: the connection is closed, or, with *stall*, stays open."""
    stall: bool = False
    """Say nothing more, where the body stops, until the client goes away."""
    close: bool = False
    """Close the connection behind the answer, although it was promised to be kept."""
    chunked: bool = True
    """``False``: the end of the connection is the end of the body, so a cut doesn't show."""
    chunk_size: int | None = None
    """Bytes per HTTP chunk; ``None`` = as the server has it."""


Answer: TypeAlias = "str | bytes | ToolCall | Reply | Sequence[str | ToolCall] | Fault"
"""Text, calls or a Reply, streamed as the provider would; bytes are sent as the event stream; or a Fault."""


@final
class ProviderServer:
    """A provider that gives the answers of a script, in order.

    Args:
        script: An answer per request, or a function that makes one from the ReceivedRequest.
        api_key: Demanded of requests; ``None`` = none is.
        strict: Whether to refuse, as the provider would, what is wrong with a request.
        chunk_size: Bytes per HTTP chunk of a stream; ``None`` = an event per chunk.
        delay: Seconds between two chunks.

    Example::

        async with ProviderServer(["Hello."]) as server:
            model = OpenAICompatible("any", base_url=server.base_url)
    """

    def __init__(
        self,
        script: Iterable[Answer | Callable[[ReceivedRequest], Answer]] = (),
        *,
        api_key: str | None = None,
        strict: bool = True,
        chunk_size: int | None = None,
        delay: float = 0.0,
    ) -> None:
        self.requests: list[ReceivedRequest] = []
        """All that came, those that were refused too."""
        self.connections: int = 0
        """Open now."""
        self.accepted: int = 0
        """Connections that were ever opened."""
        self._script = deque(script)
        self._api_key = api_key
        self._strict = strict
        self._chunk_size = chunk_size
        self._delay = delay
        self._port = 0
        self._formats = copy.deepcopy(_FORMATS)  # They may remember what they sent.
        self._crash: Exception | None = None

    @property
    def origin(self) -> str:
        """What ``Anthropic`` and ``Google`` take as ``base_url``, without a path.

        Raises:
            RuntimeError: the server hasn't been opened.
        """
        if not self._port:
            raise RuntimeError("this ProviderServer isn't open: async with provider_server as server: ...")
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """What ``OpenAI`` and ``OpenAICompatible`` take as ``base_url``, with ``/v1``; as ``origin``."""
        return f"{self.origin}/v1"

    def add(self, *answers: Answer | Callable[[ReceivedRequest], Answer]) -> None:
        """Lengthen the script."""
        self._script.extend(answers)

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._nursery_manager = trio.open_nursery()  # not before: a fixture makes the server outside trio
        self._nursery = await self._nursery_manager.__aenter__()
        self._port = listeners[0].socket.getsockname()[1]
        self._nursery.start_soon(trio.serve_listeners, self._connection, listeners)
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        # The nursery isn't told of the block's error, so that it comes out as it is, not in a group.
        self._nursery.cancel_scope.cancel()
        try:
            await self._nursery_manager.__aexit__(None, None, None)
        except BaseExceptionGroup as group:  # Ctrl+C, which trio raises where it finds the main task
            raise most_important(parts(group)) from None
        if self._crash is not None:
            raise self._crash

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.accepted += 1
        try:
            await _serve(stream, self)
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            pass  # The client went away, or speaks no HTTP.
        except Exception as error:  # noqa: BLE001  # raised where the block ends
            self._crash = self._crash or error
        finally:
            self.connections -= 1

    def _answer(self, format: Format, request: ReceivedRequest) -> Fault:
        """The next answer of the script, or the refusal that *request* deserves."""

        def refused(status: int, message: str) -> Fault:
            return Fault(status=status, body=format.error(status, message))

        if request.path == "/v1/models":
            return Fault(body={"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        if not format.takes(request.path):
            return refused(404, f"Invalid URL ({request.method} {request.path})")
        if self._api_key is not None and format.key(request.headers) != self._api_key:
            return refused(401, "Incorrect API key provided.")
        problem = next(format.problems(request), None) if self._strict else None
        if problem is not None:
            return refused(400, problem)
        if not self._script:
            return refused(400, f"the script has no answer to request {len(self.requests)}")
        answer = self._script.popleft()
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, bytes):
            return Fault(body=answer)
        return answer if isinstance(answer, Fault) else Fault(answer=answer)

    async def _respond(self, link: _Link, request: ReceivedRequest) -> bool:
        """Answer *request*; return whether the connection can be used again."""
        self.requests.append(request)
        format = next((format for format in self._formats if format.takes(request.path)), self._formats[0])
        return await self._send(link, format, request, self._answer(format, request))

    async def _send(self, link: _Link, format: Format, request: ReceivedRequest, fault: Fault) -> bool:
        await trio.sleep(fault.wait)
        if fault.drop:
            return False
        if fault.garbage is not None:
            await link.send_garbage(fault.garbage)
            return False
        pieces, media_type = _body(fault, format, request)
        size = fault.chunk_size or self._chunk_size
        if size is not None:
            pieces = _cut(b"".join(pieces), size)
        whole = fault.cut_after is None
        if fault.cut_after is not None:
            pieces = _cut(b"".join(pieces)[: fault.cut_after], size or max(fault.cut_after, 1))
        link.add(_head(fault, media_type))
        for number, piece in enumerate(pieces):
            if number and self._delay:
                await link.flush()
                await trio.sleep(self._delay)
            link.add(h11.Data(data=piece))
        if whole and not fault.stall:
            link.add(h11.EndOfMessage())
        await link.flush()
        if fault.stall:
            await link.wait_for_the_end()
        return whole and fault.chunked and not fault.stall and not fault.close


@final
class _Link:
    """HTTP/1.1 over one connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.http: h11.Connection = h11.Connection(h11.SERVER)
        self._unsent: list[bytes] = []

    def add(self, event: h11.Event) -> None:
        self._unsent.append(self.http.send(event) or b"")

    async def flush(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        await self._stream.send_all(data)

    async def send_garbage(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def next_event(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self._stream.receive_some())
        return event

    async def wait_for_the_end(self) -> None:
        await self._stream.receive_some()  # It has said all: this returns when it goes.


def _head(fault: Fault, media_type: str) -> h11.Response:
    headers = {"content-type": media_type, "x-request-id": "req_scripted"}
    headers["transfer-encoding" if fault.chunked else "connection"] = "chunked" if fault.chunked else "close"
    headers.update({name.lower(): value for name, value in fault.headers.items()})
    return h11.Response(status_code=fault.status, headers=list(headers.items()))


async def _serve(stream: trio.SocketStream, server: ProviderServer) -> None:
    link = _Link(stream)
    while True:
        head = await link.next_event()
        if not isinstance(head, h11.Request):
            return
        body = b""
        while isinstance(event := await link.next_event(), h11.Data):
            body += bytes(event.data)
        headers = {name.decode(): value.decode() for name, value in head.headers}
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        request = ReceivedRequest(head.method.decode(), head.target.decode(), headers, document)
        if not await server._respond(link, request):
            return
        link.http.start_next_cycle()


def _body(fault: Fault, format: Format, request: ReceivedRequest) -> tuple[list[bytes], str]:
    """The pieces of the answer's body, and its media type."""
    body = fault.body
    if body is None and fault.status >= 400:
        body = format.error(fault.status, f"scripted failure {fault.status}")
    if isinstance(body, Mapping):
        return [json.dumps(body).encode()], "application/json"
    if body is not None:
        return [body.encode() if isinstance(body, str) else body], "text/event-stream"
    reply = _reply(fault.answer)
    if format.is_streamed(request):
        return format.events(reply, request), "text/event-stream"
    return [json.dumps(format.document(reply, request)).encode()], "application/json"


def _reply(answer: str | ToolCall | Reply | Sequence[str | ToolCall]) -> Reply:
    if isinstance(answer, Reply):
        return answer
    parts = [answer] if isinstance(answer, str | ToolCall) else answer
    return Reply([TextBlock(part) if isinstance(part, str) else part for part in parts])


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]
