"""What is particular to httpx. Importing this imports httpx (0.1 s), so ``_http`` does it when a request is made."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Self, final

import httpx

from .._errors import BrokenStreamError, ProviderError
from ._target import CONNECT_SECONDS, KEEP_ALIVE_SECONDS, Target
from ._wire import one_line

FAILURES = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)  # The last: from host names that no DNS can have.
_ENDED_BY_SERVER = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)
_NOT_CONNECTED = (httpx.ConnectTimeout, httpx.ConnectError, httpx.ProxyError)


def new_client(base_url: str) -> httpx.AsyncClient:
    """Return a client for requests to *base_url*. Proxies and certificates are httpx's own settings."""
    return httpx.AsyncClient(
        verify=_tls() if base_url.startswith("https:") else _no_tls(),
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),  # The other limits are _http's.
        limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_SECONDS),
    )


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Once a process: reading the certificates takes 40 ms."""
    return httpx.create_ssl_context()


@lru_cache(maxsize=1)
def _no_tls() -> ssl.SSLContext:
    """For plain HTTP: trusts nobody, and reads no certificates."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@final
class _Body(httpx.AsyncByteStream):
    """A request's body in one piece.

    httpx's own is an async generator, which stays half read, with a ResourceWarning, when the server hangs up.
    """

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._data is None:
            raise StopAsyncIteration
        data, self._data = self._data, None
        return data


@asynccontextmanager
async def post(client: httpx.AsyncClient, target: Target, body: bytes) -> AsyncIterator[httpx.Response]:
    """Send *body*, and close what is left of the answer when the block ends."""
    request = client.build_request("POST", target.url, content=body, headers=target.headers)
    request.stream = _Body(body)
    response = await client.send(request, stream=True)
    try:
        yield response
    finally:
        await response.aclose()


def body_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Return its bytes as they come. We ask for no compression, which holds streams back; some compress anyway."""
    return response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()


def ended_by_server(error: Exception) -> bool:
    """Whether the server, or what lies between, ended the connection."""
    return isinstance(error, _ENDED_BY_SERVER)


def as_provider_error(error: Exception, what: str, target: Target, *, began: bool) -> ProviderError:
    """Return what went wrong between here and the provider as one of our errors."""
    endpoint = target.endpoint
    if isinstance(error, httpx.ConnectTimeout):
        what = f"none within {CONNECT_SECONDS:g} s (limit: connect)"
    if isinstance(error, _NOT_CONNECTED):
        message = f"no connection to {endpoint.base_url}: {what} - is the server running, and is base_url right?"
        return ProviderError(message, provider=endpoint.provider)
    if began:
        message = f"{endpoint} broke off its answer before the finish reason: {what}"
        return BrokenStreamError(message, status=200, provider=endpoint.provider)
    if ended_by_server(error):
        message = f"{endpoint} closed the connection twice without an answer: {what}"
        return BrokenStreamError(message, provider=endpoint.provider)
    return ProviderError(f"{endpoint}: the request can't be sent: {what}", provider=endpoint.provider)


def _chain(error: BaseException, outer: BaseException | None) -> Iterator[BaseException]:
    """*error* and what it came from, up to *outer*."""
    link: BaseException | None = error
    while link is not None and link is not outer:
        yield link
        link = link.__cause__ or link.__context__


def description(error: BaseException, outer: BaseException | None) -> str:
    """Return its text and that of what it began with: "all attempts failed" alone doesn't say why.

    Args:
        error: What httpx raised.
        outer: What the caller was handling then, which ends the chain and is none of ours.
    """
    *_, first = _chain(error, outer)
    if isinstance(first, BaseExceptionGroup):  # One per address that a name has.
        first = first.exceptions[0]
    return one_line(": ".join(dict.fromkeys([_text(error), _text(first)])))


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def take_secrets_out(error: Exception, outer: BaseException | None, target: Target) -> None:
    """Take from *error* what leads to the key: its request's headers, and the frames that hold the request."""
    if isinstance(error, httpx.HTTPError):
        error.request = httpx.Request("POST", target.url)
    for link in _chain(error, outer):
        link.__traceback__ = None
