"""What is particular to httpx. Importing this imports httpx (0.1 s), so others do it when a request is made."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, final

import httpx
import trio

from .._errors import BrokenStreamError, ProviderError, UnreachableError
from .._hooks import may_connect
from ._target import KEEP_ALIVE_SECONDS, Target
from ._unreachable import way_to, what_to_look_at
from ._wire import one_line

FAILURES = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)  # The last: from host names that no DNS can have.
_ENDED_BY_SERVER = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)
_NOT_CONNECTED = (httpx.ConnectTimeout, httpx.ConnectError, httpx.ProxyError)
_CUT_BY_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_HOLD_THE_KEY = frozenset(("anyio", "h11", "h2", "httpcore", "httpx", "socksio"))
"""Packages whose frames have headers among their local variables."""


def new_client(base_url: str) -> httpx.AsyncClient:
    """Return a client for requests to *base_url*.

    Proxies and certificates are httpx's own settings, by its documentation of environment variables (0.28):
    HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR.
    """
    return httpx.AsyncClient(
        verify=_tls() if base_url.startswith("https:") else _no_tls(),
        timeout=None,  # Each request brings its own for connecting; the other limits are _attempt's.
        limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_SECONDS),
    )


def _tls() -> ssl.SSLContext:
    """By SSL_CERT_FILE and SSL_CERT_DIR, which name a CA of one's own; else what httpx trusts."""
    return _read_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=1)
def _read_certificates(file: str | None, directory: str | None) -> ssl.SSLContext:
    """Once a process, while the variables that httpx reads stay as they are: it takes 40 ms.

    Raises:
        ValueError: there are none to read.
    """
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one.
        raise ValueError(f"SSL_CERT_FILE={file!r}: no certificates can be read from there: {error}") from error


@lru_cache(maxsize=1)
def _no_tls() -> ssl.SSLContext:
    """For plain HTTP: trusts nobody, and reads no certificates."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@final
class _Body(httpx.AsyncByteStream):
    """A request's body in one piece.

    httpx's own is an async generator, which stays half read, with a ResourceWarning, when the server hangs up.
    """

    def __init__(self, data: bytes, taken: Callable[[], None]) -> None:
        self._data: bytes | None = data
        self._taken = taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._data is None:
            raise StopAsyncIteration
        self._taken()
        data, self._data = self._data, None
        return data


@final
class _Connecting:
    """Closes a connection whose TLS handshake was cancelled: httpcore (1.0) closes one only where it failed.

    It is told of by httpcore, as the ``trace`` extension of a request (httpx documents that). In tests it also asks
    *check* about each host that is connected to: that of a proxy is none of the request's.
    """

    def __init__(self, check: Callable[[str], None] | None, *, tls: bool) -> None:
        self._check = check
        self._tls = tls
        self._stream: Any = None

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(".connect_tcp.started") and self._check is not None:
            self._check(info["host"])
        elif event.endswith(".connect_tcp.complete") and self._tls:
            self._stream = info["return_value"]
        elif event.endswith(".start_tls.complete"):
            self._stream = None

    async def close(self) -> None:
        if self._stream is not None:
            # At once, without a goodbye; shielded, so that no Cancelled takes the place of what ended the handshake.
            with trio.CancelScope(shield=True) as scope:
                scope.cancel()
                await self._stream.aclose()


@asynccontextmanager
async def post(
    client: httpx.AsyncClient, target: Target, body: bytes, connect: float | None, taken: Callable[[], None]
) -> AsyncIterator[httpx.Response]:
    """Send *body*, and close what is left of the answer when the block ends.

    Args:
        client: What sends it.
        target: Where to.
        body: The request's.
        connect: Seconds for connecting.
        taken: Called when *body* goes out: from then on the server may have it.
    """
    timeout = httpx.Timeout(None, connect=connect)
    request = client.build_request("POST", target.url, content=body, headers=target.headers, timeout=timeout)
    request.stream = _Body(body, taken)
    check = _connection_check(target)
    if check is not None:
        check(request.url.host)
    connecting = _Connecting(check, tls=request.url.scheme == "https")
    if request.url.scheme == "https" or check is not None:
        request.extensions["trace"] = connecting
    try:
        response = await client.send(request, stream=True)
    except BaseException:
        await connecting.close()
        raise
    try:
        yield response
    finally:
        await response.aclose()


def _connection_check(target: Target) -> Callable[[str], None] | None:
    """What is asked about each host on the way to *target*; None outside tests."""
    may = may_connect.get()
    return None if may is None else lambda host: may(host, str(target.endpoint))


def body_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Return its bytes as they come. We ask for no compression, which holds streams back; some compress anyway."""
    return response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()


def ended_by_server(error: Exception) -> bool:
    """Whether the server, or what lies between, ended the connection."""
    return isinstance(error, _ENDED_BY_SERVER)


def as_provider_error(
    error: Exception, outer: BaseException | None, target: Target, *, began: bool, connect: float
) -> ProviderError:
    """Return what went wrong between here and the provider as one of our errors.

    Args:
        error: What httpx raised.
        outer: What the caller was handling then.
        target: Where the request went.
        began: Whether the answer had begun.
        connect: The limit for connecting, in seconds.
    """
    endpoint, what = target.endpoint, description(error, outer, target)
    if isinstance(error, httpx.ConnectTimeout):
        what = f"none within {connect:g} s (limit: connect)"
    if isinstance(error, _NOT_CONNECTED):
        # What TLS itself refuses, a certificate or a server that speaks plain HTTP, will be refused the next time too.
        kind = ProviderError if _refused_by_tls(error, outer) else UnreachableError
        way = way_to(target.url)
        look_at = what_to_look_at(list(_chain(error, outer)), way)
        return kind(f"no connection to {endpoint.base_url}{way}: {what} - {look_at}", provider=endpoint.provider)
    if began:
        message = f"{endpoint} broke off its answer before the finish reason: {what}"
        return BrokenStreamError(message, status=200, provider=endpoint.provider)
    if ended_by_server(error):
        message = f"{endpoint} closed the connection without an answer: {what}"
        return BrokenStreamError(message, provider=endpoint.provider)
    return ProviderError(f"{endpoint}: the request can't be sent: {what}", provider=endpoint.provider)


def _refused_by_tls(error: BaseException, outer: BaseException | None) -> bool:
    return any(isinstance(link, ssl.SSLError) and not isinstance(link, _CUT_BY_TLS) for link in _chain(error, outer))


def _chain(error: BaseException, outer: BaseException | None) -> Iterator[BaseException]:
    """*error* and what it came from, up to *outer*."""
    link: BaseException | None = error
    while link is not None and link is not outer:
        yield link
        link = link.__cause__ or link.__context__


def description(error: BaseException, outer: BaseException | None, target: Target) -> str:
    """Return its text and that of what it began with: "all attempts failed" alone doesn't say why.

    Args:
        error: What httpx raised.
        outer: What the caller was handling then, which ends the chain and is none of ours.
        target: Where the request went; its secrets are taken out.
    """
    *_, first = _chain(error, outer)
    if isinstance(first, BaseExceptionGroup):  # One per address that a name has.
        first = first.exceptions[0]
    return one_line(target.redacted(": ".join(dict.fromkeys([_text(error), _text(first)]))))


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def take_secrets_out(error: BaseException, outer: BaseException | None, target: Target) -> None:
    """Take from *error* what leads to the key: its request, the frames that hold headers, and what a server repeats."""
    for link in _chain(error, outer):
        if isinstance(link, httpx.HTTPError):
            link.request = httpx.Request("POST", target.url)
        link.args = tuple([target.redacted(arg) if isinstance(arg, str) else arg for arg in link.args])
        link.__traceback__ = _without_key(link.__traceback__)


def _without_key(traceback: TracebackType | None) -> TracebackType | None:
    """The frames of *traceback* up to the first that may hold headers."""
    last, link = None, traceback
    while link is not None and link.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _HOLD_THE_KEY:
        last, link = link, link.tb_next
    if last is None:
        return None
    last.tb_next = None
    return traceback
