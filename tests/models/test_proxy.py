"""Proxies and certificates by environment variables, as httpx documents them: with a real proxy and real TLS."""

import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from alpineagents import Message, ProviderError, Request, UnreachableError
from alpineagents.models import OpenAICompatible
from alpineagents.testing import ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])
CERTIFICATE = Path(__file__).parent / "tls" / "both.pem"
"""Signed by itself, for 127.0.0.1, until 2126, with its key: of no use but here."""


def ignore(event):
    """An emit that drops everything."""


@asynccontextmanager
async def serving(handler, ssl_context=None):
    """Serve TCP, or TLS, on a loopback port."""
    async with trio.open_nursery() as nursery:
        if ssl_context is None:
            listeners = await nursery.start(trio.serve_tcp, handler, 0)
            port = listeners[0].socket.getsockname()[1]
        else:
            tls = await trio.open_ssl_over_tcp_listeners(0, ssl_context, host="127.0.0.1", https_compatible=True)
            port = tls[0].transport_listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, handler, tls)
        yield f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def pump(one, other):
    """Copy bytes both ways until either end goes."""

    async def copy(source, target):
        try:
            while data := await source.receive_some():
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # It went without a goodbye.
        nursery.cancel_scope.cancel()

    async with one, other, trio.open_nursery() as nursery:
        nursery.start_soon(copy, one, other)
        await copy(other, one)


class Proxy:
    """A proxy that takes CONNECT and plain requests, and remembers their first lines."""

    def __init__(self, goes_to=None, status=b"200 OK"):
        self.asked = []
        self._goes_to = goes_to
        self._status = status

    async def __call__(self, stream):
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        line = head.partition(b"\r\n")[0].decode()
        self.asked.append(line)
        method, target, _ = line.split(" ")
        where = self._goes_to or target.removeprefix("http://").partition("/")[0]
        if not self._status.startswith(b"200"):
            await stream.send_all(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % self._status)
            return
        host, _, port = where.rpartition(":")
        upstream = await trio.open_tcp_stream(host, int(port))
        if method == "CONNECT":
            await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            path = target.partition(where)[2]
            await upstream.send_all(head.replace(target.encode(), path.encode(), 1))
        await pump(stream, upstream)


@pytest.fixture
def tls_server():
    """A context for a server with the certificate above."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


def forward_to(server):
    """A handler that passes everything on to *server*."""
    host, _, port = server.origin.removeprefix("http://").partition(":")

    async def handle(stream):
        await pump(stream, await trio.open_tcp_stream(host, int(port)))

    return handle


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_is_used(variable, monkeypatch, sockets):
    before = sockets()
    proxy = Proxy()
    async with ProviderServer(["Done."]) as server, serving(proxy) as address:
        monkeypatch.setenv(variable, f"http://{address}")
        reply = await OpenAICompatible("m", base_url=server.base_url).respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert proxy.asked == [f"POST {server.base_url}/chat/completions HTTP/1.1"]
    assert sockets() == before


async def test_no_proxy_is_used_for_hosts_that_are_exempt(monkeypatch):
    proxy = Proxy()
    async with ProviderServer(["Done."]) as server, serving(proxy) as address:
        monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        reply = await OpenAICompatible("m", base_url=server.base_url).respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert proxy.asked == []


async def test_https_goes_through_a_tunnel_and_the_certificate_is_checked_against_ones_own(
    monkeypatch, tls_server, sockets
):
    before = sockets()
    async with (
        ProviderServer(["Done."], api_key="sk-test-key") as server,
        serving(forward_to(server), tls_server) as secure,
        serving(proxy := Proxy(goes_to=secure)) as address,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        model = OpenAICompatible("m", base_url="https://provider.test/v1", api_key="sk-test-key")
        reply = await model.respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert proxy.asked == ["CONNECT provider.test:443 HTTP/1.1"]
    assert sockets() == before


async def test_a_certificate_that_nobody_vouches_for_is_refused_once(tls_server, autojump_clock):
    handshakes = []

    async def handle(stream):
        handshakes.append(stream)
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()

    async with serving(handle, tls_server) as secure:
        with pytest.raises(ProviderError, match=r"CERTIFICATE_VERIFY_FAILED.* - SSL_CERT_FILE can name") as caught:
            await OpenAICompatible("m", base_url=f"https://{secure}/v1").respond(REQUEST, ignore)

    assert type(caught.value) is ProviderError
    assert len(handshakes) == 1


@pytest.mark.parametrize("status", [b"407 Proxy Authentication Required", b"502 Bad Gateway"])
async def test_a_proxy_that_refuses_is_named_and_its_password_is_not(status, monkeypatch, autojump_clock):
    proxy = Proxy(status=status)
    async with serving(proxy) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:proxy-password@{address}")
        model = OpenAICompatible("m", base_url="https://provider.test/v1", retries=1)
        with pytest.raises(UnreachableError) as caught:
            await model.respond(REQUEST, ignore)

    assert status.decode() in str(caught.value)
    assert "proxy-password" not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert len(proxy.asked) == 2
