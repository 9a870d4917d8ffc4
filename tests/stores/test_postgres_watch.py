"""PostgresStore: who watches hears of changes from the server, on one connection, and misses nothing."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from alpineagents import PostgresStore, StateNotFoundError, StoreError
from alpineagents._contracts import StoreWatch
from alpineagents.stores import _postgres, _postgres_connections, _postgres_listen
from alpineagents.stores._threads import Threads

from .histories import INFO, raw, raws
from .postgres import Schema, cluster, opened, postgres, schema

__all__ = ["cluster", "opened", "postgres", "schema"]  # fixtures

LISTENING = "query LIKE 'LISTEN %' AND state = 'idle'"


@pytest.fixture(autouse=True)
def _only_what_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking from time to time would hide that nothing is heard."""
    monkeypatch.setattr(PostgresStore, "poll_seconds", math.inf)
    monkeypatch.setattr(_postgres_listen, "LONGEST_WAIT", math.inf)


async def see(store: PostgresStore, state_id: str, count: int, seen: list[bytes]) -> None:
    """Watch a State until it has given so many entries."""
    with trio.fail_after(60):
        async for entry in store.watch(state_id):
            seen.append(entry)
            if len(seen) == count:
                return


async def test_what_another_one_writes_is_heard_of(postgres: PostgresStore, schema: Schema) -> None:
    other = schema.store()
    await other.append("bug-1", 0, raws(1), INFO)
    seen: list[bytes] = []

    async with other.lease("bug-1"), trio.open_nursery() as nursery:
        nursery.start_soon(see, postgres, "bug-1", 5, seen)
        for first in range(1, 5):
            await schema.pids(LISTENING)  # it waits for news
            await other.append("bug-1", first, raws(1, first), INFO)
            while len(seen) <= first:
                await trio.lowlevel.checkpoint()

    assert seen == raws(5)


async def test_what_is_written_without_a_lease_and_a_removal_are_heard_of_too(
    postgres: PostgresStore, schema: Schema
) -> None:
    other = schema.store()
    await other.append("bug-1", 0, raws(1), INFO)
    seen: list[bytes] = []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gone_after, postgres, seen)
        await schema.pids(LISTENING)
        await other.append("bug-1", 1, raws(1, 1), INFO)
        while len(seen) < 2:
            await trio.lowlevel.checkpoint()
        await schema.pids(LISTENING)
        await other.remove("bug-1")

    assert seen == raws(2)


async def gone_after(store: PostgresStore, seen: list[bytes]) -> None:
    with pytest.raises(StateNotFoundError):
        await see(store, "bug-1", 9, seen)


async def test_nothing_that_comes_between_reading_and_listening_is_missed(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    changed = PostgresStore.changed
    left = iter(range(1, 4))

    async def written_before(store: PostgresStore, state_id: str) -> None:
        if (seq := next(left, None)) is not None:
            await schema.store().append("bug-1", seq, raws(1, seq), INFO)
        await changed(store, state_id)

    monkeypatch.setattr(PostgresStore, "changed", written_before)
    seen: list[bytes] = []

    await see(postgres, "bug-1", 4, seen)

    assert seen == raws(4)


async def test_many_who_watch_share_a_connection_that_listens_only_meanwhile(
    schema: Schema, opened: list[psycopg.Connection[Any]]
) -> None:
    store = schema.store(max_connections=30)
    numbers = range(20)
    for number in numbers:
        await store.append(f"bug-{number}", 0, raws(1), INFO)
    seen: list[list[bytes]] = [[] for _ in numbers]

    async with trio.open_nursery() as nursery:
        for number in numbers:
            nursery.start_soon(see, store, f"bug-{number}", 3, seen[number])
        for first in (1, 2):
            for number in reversed(numbers):
                await store.append(f"bug-{number}", first, raws(1, first), INFO)
            while any(len(each) <= first for each in seen):
                await trio.lowlevel.checkpoint()
                assert len(await schema.pids("query LIKE 'LISTEN %'", 0)) <= 1

    assert seen == [raws(3)] * 20
    assert not any(conn.closed for conn in opened), "it is of use for other calls"
    assert schema.cluster.sql("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %'") == []


async def waiting(store: PostgresStore, count: int) -> None:
    """Return when so many wait for news, one at the socket."""
    await trio.testing.wait_all_tasks_blocked()
    while not (
        (ear := (_postgres._ears.get() or {}).get(store))
        and ear._watched
        and sum(waiter.stirred.statistics().tasks_waiting for waiter in ear._waiters) == count - 1
    ):
        await trio.lowlevel.checkpoint()


async def test_a_watcher_that_is_cancelled_hands_the_socket_on(postgres: PostgresStore) -> None:
    for number in range(3):
        await postgres.append(f"bug-{number}", 0, raws(1), INFO)
    seen: list[list[bytes]] = [[], [], []]
    scopes = [trio.CancelScope() for _ in seen]

    async def watch(number: int) -> None:
        with scopes[number]:
            await see(postgres, f"bug-{number}", 2, seen[number])

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(watch, number)
            await waiting(postgres, number + 1)
        scopes[0].cancel()  # it watches the socket
        await waiting(postgres, 2)
        await postgres.append("bug-2", 1, raws(1, 1), INFO)
        while len(seen[2]) < 2:
            await trio.lowlevel.checkpoint()
        await postgres.append("bug-1", 1, raws(1, 1), INFO)

    assert seen == [raws(1), raws(2), raws(2)]


async def test_a_watcher_that_is_cancelled_closes_the_connection_that_listens(
    postgres: PostgresStore, opened: list[psycopg.Connection[Any]]
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(see, postgres, "bug-1", 2, [])
        await waiting(postgres, 1)
        nursery.cancel_scope.cancel()

    assert [conn.closed for conn in opened].count(True) == 1
    assert list(await postgres.read("bug-1")) == raws(1)


async def test_watching_can_be_cancelled_at_any_moment(postgres: PostgresStore) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    await postgres.aclose()  # so that connecting is among the moments

    for rounds in [*range(6), *(2**power for power in range(3, 12))]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see, postgres, "bug-1", 2, [])
            for _ in range(rounds):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    seen: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(see, postgres, "bug-1", 2, seen)
        await postgres.append("bug-1", 1, raws(1, 1), INFO)
    assert seen == raws(2)
    assert not postgres._connections._listening


async def test_no_more_connections_are_kept_after_watching_than_allowed(
    schema: Schema, opened: list[psycopg.Connection[Any]]
) -> None:
    store = schema.store(max_connections=1)
    await store.append("bug-1", 0, raws(1), INFO)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(see, store, "bug-1", 2, [])
        await waiting(store, 1)
        await store.append("bug-1", 1, raws(1, 1), INFO)

    assert [conn.closed for conn in opened].count(False) == 1


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_watcher_that_is_cancelled_just_when_it_listens_leaves_no_connection_behind(
    postgres: PostgresStore, opened: list[psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """Before or after the thread has handed over the connection; the task hears of it too late."""
    await postgres.append("bug-1", 0, raws(1), INFO)
    await postgres.read("bug-1")
    trio_token = trio.lowlevel.current_trio_token()
    given_up = threading.Event()
    over = trio.Event()

    def cancelling(fn: Callable[..., object], *args: object) -> object:
        result = fn(*args)
        trio_token.run_sync_soon(scope.cancel)
        given_up.wait()
        return result

    def then_over(fn: Callable[..., object], *args: object) -> None:
        fn(*args)
        trio_token.run_sync_soon(over.set)

    async def in_thread(_: Threads, fn: Callable[..., object], *args: object, abandon_on_cancel: bool) -> None:
        call = partial(cancelling, fn) if is_done else fn
        await trio.to_thread.run_sync(then_over, call, *args, abandon_on_cancel=abandon_on_cancel)

    monkeypatch.setattr(Threads, "run", in_thread)
    if not is_done:
        monkeypatch.setattr(postgres._connections, "listen", partial(cancelling, postgres._connections.listen))
    with trio.CancelScope() as scope:
        await postgres.changed("bug-1")
    given_up.set()
    await over.wait()

    assert scope.cancelled_caught
    assert [conn.closed for conn in opened] == [True]


async def test_a_connection_that_was_closed_is_not_kept(postgres: PostgresStore) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    link = await trio.to_thread.run_sync(postgres._connections.listen, postgres._connections.call())

    postgres._connections.drop(link)
    postgres._connections.unlisten(link)
    postgres._connections.drop(link)

    assert link.closed
    assert list(await postgres.read("bug-1")) == raws(1)


async def test_when_the_connection_that_listens_breaks_another_one_does(
    postgres: PostgresStore, schema: Schema
) -> None:
    for state_id in ("bug-1", "bug-2"):
        await postgres.append(state_id, 0, raws(1), INFO)
    seen: dict[str, list[bytes]] = {"bug-1": [], "bug-2": []}

    async with trio.open_nursery() as nursery:
        for state_id, entries in seen.items():
            nursery.start_soon(see, postgres, state_id, 2, entries)
        (first,) = await schema.pids(LISTENING)
        schema.cluster.sql("SELECT pg_terminate_backend(%s)", [first])
        await schema.pids(f"{LISTENING} AND pid <> {first}")
        for state_id in seen:
            await postgres.append(state_id, 1, raws(1, 1), INFO)

    assert list(seen.values()) == [raws(2), raws(2)]


async def test_who_comes_back_after_a_break_does_not_get_the_broken_connection(
    postgres: PostgresStore, schema: Schema
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    ear = _postgres_listen.Ear(postgres._connections, Threads())
    call = postgres._connections.call()
    looked = trio.Event()

    async def looks_long() -> bool:
        await looked.wait()
        return True

    async def is_not_old() -> bool:
        return False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ear.wait, "bug-2", call, looks_long)
        async with trio.open_nursery() as first:
            first.start_soon(ear.wait, "bug-1", call, is_not_old)
            (pid,) = await schema.pids(LISTENING)
            schema.cluster.sql("SELECT pg_terminate_backend(%s)", [pid])
        nursery.start_soon(ear.wait, "bug-1", call, is_not_old)
        await schema.pids(f"{LISTENING} AND pid <> {pid}")
        await postgres.append("bug-1", 1, raws(1, 1), INFO)
        looked.set()


async def test_while_the_server_is_away_it_is_asked_from_time_to_time(
    postgres: PostgresStore, schema: Schema, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    monkeypatch.setattr(PostgresStore, "poll_seconds", 700.0)
    await postgres.read("bug-1")
    with schema.cluster.stopped():
        start = trio.current_time()

        await postgres.changed("bug-1")

        assert trio.current_time() - start == 700
    monkeypatch.setattr(_postgres_listen, "LONGEST_WAIT", 30)
    await postgres.changed("bug-1")


@pytest.mark.parametrize("after", [0, 1, 9])
async def test_what_was_not_heard_is_looked_for_after_half_a_minute_and_not_before(
    postgres: PostgresStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(_postgres_listen, "LONGEST_WAIT", 30.0)
    await postgres.append("bug-1", 0, raws(1), INFO)
    await postgres.read("bug-1", after=after)
    start = trio.current_time()

    await postgres.changed("bug-1")

    assert trio.current_time() - start == 30


@pytest.mark.parametrize("count", [1, 3])
async def test_closing_the_store_ends_those_who_watch_with_an_error_and_leaves_no_connection(
    postgres: PostgresStore, opened: list[psycopg.Connection[Any]], count: int
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    seen: list[list[bytes]] = [[] for _ in range(count)]

    async with trio.open_nursery() as nursery:
        for each in seen:
            nursery.start_soon(closed_while_watching, postgres.watch("bug-1"), each)
        await waiting(postgres, count)
        await postgres.aclose()

    assert seen == [raws(1)] * count
    assert all(conn.closed for conn in opened)
    assert list(await postgres.read("bug-1")) == raws(1)


async def closed_while_watching(watch: StoreWatch, seen: list[bytes]) -> None:
    async def look() -> None:
        async for entry in watch:
            seen.append(entry)

    with pytest.raises(StoreError, match="closed meanwhile"):
        await look()


async def test_closing_the_store_ends_a_watcher_at_whatever_moment(
    postgres: PostgresStore, opened: list[psycopg.Connection[Any]]
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)

    for rounds in [*range(6), *(2**power for power in range(3, 11))]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(closed_while_watching, postgres.watch("bug-1"), [])
            for _ in range(rounds):
                await trio.lowlevel.checkpoint()
            await postgres.aclose()
        assert all(conn.closed for conn in opened)


async def test_a_connection_that_listens_just_when_the_store_is_closed_is_closed(
    postgres: PostgresStore, opened: list[psycopg.Connection[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    await postgres.read("bug-1")
    execute = _postgres_connections.Link.execute

    def closed_behind_it(link: Any, text: str, values: Any = None) -> Any:
        result = execute(link, text, values)
        postgres._connections.close()
        return result

    monkeypatch.setattr(_postgres_connections.Link, "execute", closed_behind_it)
    with pytest.raises(StoreError, match="closed meanwhile"):
        await postgres.changed("bug-1")

    assert all(conn.closed for conn in opened)


async def test_who_takes_an_entry_before_the_store_is_closed_gets_no_more(
    postgres: PostgresStore, opened: list[psycopg.Connection[Any]]
) -> None:
    await postgres.append("bug-1", 0, raws(2), INFO)
    watch = postgres.watch("bug-1")
    assert [await anext(watch), await anext(watch)] == raws(2)

    await postgres.aclose()

    with pytest.raises(StoreError, match="closed meanwhile"):
        await anext(watch)
    assert all(conn.closed for conn in opened)


async def test_a_store_that_was_watched_and_is_forgotten_closes_its_connections(
    schema: Schema, opened: list[psycopg.Connection[Any]]
) -> None:
    store = schema.store()
    await store.append("bug-1", 0, raws(1), INFO)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(see, store, "bug-1", 2, [])
        await waiting(store, 1)
        nursery.cancel_scope.cancel()

    del store
    gc.collect()

    assert all(conn.closed for conn in opened)


async def test_two_trio_runs_may_watch_through_one_store(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    seen: list[list[bytes]] = [[], []]

    def elsewhere() -> None:
        trio.run(see, postgres, "bug-1", 2, seen[0])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(see, postgres, "bug-1", 2, seen[1])
        await schema.pids(LISTENING, 2)
        await postgres.append("bug-1", 1, raws(1, 1), INFO)
    thread.join()

    assert seen == [raws(2), raws(2)]


async def test_who_has_not_read_waits_for_the_next_change(postgres: PostgresStore) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    await postgres.append("bug-2", 0, raws(1), INFO)
    await postgres.read("bug-2")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(postgres.changed, "bug-1")
        await waiting(postgres, 1)
        assert nursery.child_tasks
        await postgres.append("bug-1", 1, [raw(1)], INFO)
