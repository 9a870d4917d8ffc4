"""Keeps connections open between requests: clients per base URL and trio run, counted by the sessions that use them.

Several clients, each for few requests at a time: for each request, the pool of httpcore (1.0.9) compares every idle
connection with every other, so that one client with 500 connections takes 40 ms of CPU for each request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, final

import trio

from ._target import CLOSE_SECONDS

if TYPE_CHECKING:
    import httpx

_REQUESTS_PER_CLIENT = 16


@final
class _Client:
    """A client and how many requests are under way in it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.requests = 0


@final
class _Shared:
    """Clients and how many sessions use them."""

    def __init__(self) -> None:
        self.users = 0
        self.clients: list[_Client] = []


_shared: trio.lowlevel.RunVar[dict[str, _Shared]] = trio.lowlevel.RunVar("alpineagents_http_clients")


@asynccontextmanager
async def open_session(base_url: str) -> AsyncIterator[None]:
    """Keep connections to *base_url* open until the last such session of this trio run ends."""
    try:
        all_shared = _shared.get()
    except LookupError:
        all_shared = {}
        _shared.set(all_shared)
    shared = all_shared.setdefault(base_url, _Shared())
    shared.users += 1
    try:
        yield
    finally:
        shared.users -= 1
        if shared.users == 0:
            del all_shared[base_url]
            await _close([one.client for one in shared.clients])


@contextmanager
def shared_client(base_url: str) -> Iterator[httpx.AsyncClient]:
    """Lend a client of the sessions that are open for *base_url*; the first request makes the first."""
    from ._client import new_client

    clients = _shared.get()[base_url].clients
    # The first that has room: those behind stay for the peaks.
    found = next((one for one in clients if one.requests < _REQUESTS_PER_CLIENT), None)
    if found is None:
        found = _Client(new_client(base_url))
        clients.append(found)
    found.requests += 1
    try:
        yield found.client
    finally:
        found.requests -= 1


@asynccontextmanager
async def fresh_client(base_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Lend a client of one's own: the shared ones may hold connections that are dead."""
    from ._client import new_client

    client = new_client(base_url)
    try:
        yield client
    finally:
        await _close([client])


async def _close(clients: list[httpx.AsyncClient]) -> None:
    # Shielded, so that a cancelled run leaves no socket open. The deadline is for a TLS goodbye that nobody reads;
    # trio closes the socket all the same when it passes.
    with trio.move_on_after(CLOSE_SECONDS, shield=True):
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.aclose)
