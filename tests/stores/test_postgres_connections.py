"""PostgresStore: its connections, what happens when they break, and what is said where none can be made."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
import trio.testing

from alpineagents import FileStore, PostgresStore, RunningElsewhereError, StoreError
from alpineagents.stores import _postgres_connections, _postgres_rows, _postgres_schema
from alpineagents.stores._threads import MOST_THREADS

from .children import ROOT
from .histories import INFO, raws
from .postgres import WAITING, Cluster, Schema, cluster, free_port, opened, postgres, schema

__all__ = ["cluster", "opened", "postgres", "schema"]  # fixtures

Connection = psycopg.Connection[Any]
SECRET = "s3cr3t"


# ---- Kept, and closed


async def test_a_store_connects_when_it_is_used_and_keeps_the_connection(
    postgres: PostgresStore, opened: list[Connection]
) -> None:
    async with postgres.lease("bug-1"):
        for seq in range(5):
            await postgres.append("bug-1", seq, raws(1, seq), INFO)
            await postgres.read("bug-1")

    assert len(opened) == 1


async def test_a_store_that_is_not_used_makes_no_connection(schema: Schema, opened: list[Connection]) -> None:
    async with schema.store():
        pass

    assert opened == []


async def test_no_more_connections_are_open_than_allowed(schema: Schema, opened: list[Connection]) -> None:
    store = schema.store(max_connections=3)

    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(store.append, f"bug-{number}", 0, raws(1), INFO)

    assert len(await store.infos()) == 30
    assert 1 <= len(opened) <= 3


async def test_a_closed_store_has_no_connection_and_no_thread_and_can_be_used_again(
    schema: Schema, opened: list[Connection]
) -> None:
    before = {thread.name for thread in threading.enumerate()}
    async with schema.store() as store:
        async with trio.open_nursery() as nursery:
            for number in range(9):
                nursery.start_soon(store.append, f"bug-{number}", 0, raws(1), INFO)
        assert not all(conn.closed for conn in opened)

    assert all(conn.closed for conn in opened)
    new = {thread.name for thread in threading.enumerate()} - before
    assert all(name.startswith("Trio thread") for name in new), new
    assert list(await store.read("bug-1")) == raws(1)
    await store.aclose()
    assert all(conn.closed for conn in opened)


async def test_closing_is_a_checkpoint_and_closes_also_when_it_is_cancelled(
    postgres: PostgresStore, opened: list[Connection]
) -> None:
    with trio.testing.assert_checkpoints():
        await postgres.aclose()
    await postgres.infos()

    with trio.CancelScope() as scope:
        scope.cancel()
        await postgres.aclose()

    assert scope.cancelled_caught
    assert [conn.closed for conn in opened] == [True]


async def test_a_store_that_is_forgotten_closes_its_connections(schema: Schema, opened: list[Connection]) -> None:
    store = schema.store()
    await store.append("bug-1", 0, raws(1), INFO)

    del store
    gc.collect()

    assert [conn.closed for conn in opened] == [True]


async def test_closing_ends_calls_that_are_still_on(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    with schema.locked("states"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(closed_meanwhile, partial(postgres.append, "bug-1", 1, raws(1, 1), INFO))
            await schema.pids(WAITING)
            await postgres.aclose()

    assert list(await postgres.read("bug-1")) == raws(1)


async def test_closing_ends_calls_that_nobody_waits_for_any_more(
    postgres: PostgresStore, schema: Schema, opened: list[Connection]
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    with schema.locked("states"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(postgres.append, "bug-1", 1, raws(1, 1), INFO)
            await schema.pids(WAITING)
            nursery.cancel_scope.cancel()
        await postgres.aclose()
        assert all(conn.closed for conn in opened)

    assert list(await postgres.read("bug-1")) == raws(1)


async def closed_meanwhile(act: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(StoreError, match="the store was closed meanwhile"):
        await act()


async def test_a_connection_that_was_being_made_when_the_store_was_closed_is_not_kept(
    postgres: PostgresStore, opened: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = psycopg.connect

    def closing(*args: Any, **options: Any) -> Connection:
        conn = connect(*args, **options)
        if len(opened) == 1:
            monkeypatch.setattr(_postgres_connections, "CLOSE_SECONDS", 0)
            postgres._connections.close()
        return conn

    monkeypatch.setattr(psycopg, "connect", closing)

    await closed_meanwhile(postgres.infos)
    assert [conn.closed for conn in opened] == [True]


async def test_a_call_that_was_cancelled_is_done_all_the_same_and_its_connection_is_kept(
    postgres: PostgresStore, schema: Schema, opened: list[Connection]
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    with schema.locked("states"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(postgres.append, "bug-1", 1, raws(1, 1), INFO)
            await schema.pids(WAITING)
            nursery.cancel_scope.cancel()
        assert list(await postgres.read("bug-1")) == raws(1), "on another connection"

    await postgres.append("bug-1", 1, raws(2, 1), INFO)  # behind the first one
    assert list(await postgres.read("bug-1")) == raws(3)
    assert len(opened) == 2
    assert not any(conn.closed for conn in opened)


async def test_where_all_connections_are_busy_for_long_that_is_said(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = schema.store(max_connections=1)
    await store.append("bug-1", 0, raws(1), INFO)
    monkeypatch.setattr(_postgres_connections, "LOCK_SECONDS", 0)
    with schema.locked("states") as holder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "bug-1", 1, raws(1, 1), INFO)
            await schema.pids(WAITING)

            with pytest.raises(StoreError, match=r"all 1 connections .* busy for 0 s; .* larger max_connections"):
                await store.read("bug-1")
            holder.rollback()

    assert list(await store.read("bug-1")) == raws(2)


async def test_many_calls_that_wait_hold_up_no_other_store_and_end_when_theirs_is_closed(
    postgres: PostgresStore, schema: Schema, opened: list[Connection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than have threads: some have a connection, some wait for one, some wait for a thread."""
    monkeypatch.setattr(_postgres_connections, "CLOSE_SECONDS", 60)
    await postgres.append("bug-1", 0, raws(1), INFO)
    with psycopg.Connection[Any].connect(schema.cluster.dsn()) as holder:
        holder.execute(f"LOCK TABLE {schema.name}.states".encode())
        async with trio.open_nursery() as nursery:
            for _ in range(2 * MOST_THREADS):
                nursery.start_soon(closed_meanwhile, partial(postgres.read, "bug-1"))
            await schema.pids(WAITING, 8)

            await FileStore(tmp_path).append("bug-1", 0, raws(1), INFO)
            await postgres.aclose()

        assert all(conn.closed for conn in opened)
        holder.rollback()


async def test_while_all_connections_are_busy_leases_are_kept_and_given_back(schema: Schema) -> None:
    store = schema.store(max_connections=1)
    lease = store.lease("bug-2")
    await lease.__aenter__()
    await store.append("bug-1", 0, raws(1), INFO)
    with schema.locked("states") as holder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.append, "bug-1", 1, raws(1, 1), INFO)
            await schema.pids(WAITING)
            for number in range(2 * MOST_THREADS):
                nursery.start_soon(store.has, f"bug-{number}")
            await trio.testing.wait_all_tasks_blocked()

            await store.renew("bug-2")
            await lease.__aexit__(None, None, None)

            assert schema.sql("SELECT * FROM {schema}.leases WHERE state_id = 'bug-2'") == []
            holder.rollback()


@pytest.mark.parametrize("begins", ["before", "after"])
async def test_a_lease_is_given_back_though_the_store_is_closed_meanwhile(
    postgres: PostgresStore, schema: Schema, opened: list[Connection], begins: str
) -> None:
    lease = postgres.lease("bug-1")
    await lease.__aenter__()
    closings = postgres.times_closed
    with schema.locked("leases") as holder:
        async with trio.open_nursery() as nursery:
            if begins == "after":
                await postgres.aclose()
            nursery.start_soon(lease.__aexit__, None, None, None)
            await schema.pids(WAITING)
            if begins == "before":
                nursery.start_soon(postgres.aclose)
                while postgres._connections.call().closings == closings:
                    await trio.lowlevel.checkpoint()
            holder.rollback()

    assert schema.sql("SELECT * FROM {schema}.leases") == []
    assert all(conn.closed for conn in opened)


async def test_a_lease_that_hangs_while_it_is_given_back_does_not_hold_up_closing_for_ever(
    postgres: PostgresStore, schema: Schema, opened: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_connections, "CLOSE_SECONDS", 0)
    lease = postgres.lease("bug-1")
    await lease.__aenter__()
    with schema.locked("leases"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease.__aexit__, None, None, None)
            await schema.pids(WAITING)

            await postgres.aclose()

    async with postgres.lease("bug-1"):
        pass


async def test_a_lease_whose_taking_is_cut_short_by_closing_is_free(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    claim = _postgres_rows.claim

    def closed_behind_it(link: Any, *args: Any) -> None:
        claim(link, *args)
        monkeypatch.setattr(_postgres_connections, "CLOSE_SECONDS", 0)
        postgres._connections.close()
        link.conn.execute("SELECT 1")

    monkeypatch.setattr(_postgres_rows, "claim", closed_behind_it)
    await closed_meanwhile(postgres.lease("bug-1").__aenter__)

    assert schema.sql("SELECT * FROM {schema}.leases") == []


async def test_a_lease_that_was_not_taken_before_the_store_was_closed_is_free(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    claim = _postgres_rows.claim

    def closed_before_it(link: Any, *args: Any) -> None:
        monkeypatch.setattr(_postgres_rows, "claim", claim)
        monkeypatch.setattr(_postgres_connections, "CLOSE_SECONDS", 0)
        postgres._connections.close()
        claim(link, *args)

    monkeypatch.setattr(_postgres_rows, "claim", closed_before_it)
    await closed_meanwhile(postgres.lease("bug-1").__aenter__)

    assert schema.sql("SELECT * FROM {schema}.leases") == []
    async with postgres.lease("bug-1"):
        pass


async def test_a_lock_that_is_held_for_long_is_an_error_that_says_so(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_schema, "LOCK_SECONDS", 0.001)
    store = schema.store()
    await store.append("bug-1", 0, raws(1), INFO)

    with schema.locked("states"), pytest.raises(StoreError, match=r"lock timeout; .*pg_stat_activity"):
        await store.append("bug-1", 1, raws(1, 1), INFO)
    await store.append("bug-1", 1, raws(1, 1), INFO)


async def test_connections_write_durably_and_see_what_others_did_whatever_the_defaults_are(
    cluster: Cluster, schema: Schema
) -> None:
    cluster.sql("DROP ROLE IF EXISTS hasty")
    cluster.sql("CREATE ROLE hasty SUPERUSER LOGIN")
    cluster.sql("ALTER ROLE hasty SET synchronous_commit = off")
    cluster.sql("ALTER ROLE hasty SET default_transaction_isolation = serializable")
    store = schema.store(dsn=cluster.dsn(user="hasty", client_encoding="LATIN1"))
    names = ("synchronous_commit", "transaction_isolation", "client_encoding")

    async with store.lease("bug-1"):
        await store.append("bug-1", 0, raws(1, text="日"), INFO)
    connections = store._connections
    shown = [
        connections.run(connections.call(), lambda link, name: link.execute(f"SHOW {name}").fetchone(), name)
        for name in names
    ]

    assert shown == [("on",), ("read committed",), ("UTF8",)]


# ---- Broken


Act = Callable[[PostgresStore], Awaitable[object]]


async def append(store: PostgresStore) -> None:
    await store.append("bug-1", 1, raws(2, 1), INFO)


async def take(store: PostgresStore) -> None:
    async with store.lease("bug-2"):
        pass


ACTS: list[Act] = [
    append,
    take,
    lambda store: store.read("bug-1"),
    lambda store: store.infos(),
    lambda store: store.remove("bug-1"),
    lambda store: store.renew("held"),
]


@pytest.mark.parametrize("act", ACTS, ids=["append", "lease", "read", "infos", "remove", "renew"])
async def test_after_a_restart_of_the_server_the_next_call_works(
    postgres: PostgresStore, schema: Schema, opened: list[Connection], act: Act
) -> None:
    async with postgres.lease("held"):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(postgres.append, f"bug-{number}", 0, raws(1), INFO)
        before = len(opened)

        schema.cluster.restart()
        await act(postgres)
        await postgres.append("held", 0, raws(1), INFO)

        assert len(opened) == before + 1, "those that were kept are as old, and aren't tried one by one"
        assert all(conn.closed for conn in opened[:-1])


async def test_a_call_whose_connection_breaks_is_done_again_once(
    postgres: PostgresStore, schema: Schema, opened: list[Connection]
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    with schema.locked("states") as holder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, postgres)
            (first,) = await schema.pids(WAITING)
            schema.cluster.sql("SELECT pg_terminate_backend(%s)", [first])
            await schema.pids(f"{WAITING} AND pid <> {first}")
            holder.rollback()
    assert list(await postgres.read("bug-1")) == raws(3)
    assert len(opened) == 2

    with schema.locked("states"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(terminated, partial(postgres.append, "bug-1", 3, raws(1, 3), INFO))
            (first,) = await schema.pids(WAITING)
            schema.cluster.sql("SELECT pg_terminate_backend(%s)", [first])
            (second,) = await schema.pids(f"{WAITING} AND pid <> {first}")
            schema.cluster.sql("SELECT pg_terminate_backend(%s)", [second])
    assert list(await postgres.read("bug-1")) == raws(3)


async def terminated(act: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(StoreError, match=r"terminating connection .*; try again in a moment"):
        await act()


async def test_a_lease_whose_taking_broke_after_it_was_taken_is_taken(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server did it, and the answer got lost. It mustn't be held by nobody until it runs out."""
    await postgres.infos()
    breaking_after(monkeypatch, "INSERT INTO {schema}.leases", times=1)

    async with postgres.lease("bug-1"):
        await postgres.append("bug-1", 0, raws(1), INFO)

    assert schema.sql("SELECT * FROM {schema}.leases") == []


async def test_a_lease_that_may_have_been_taken_and_could_not_be_asked_for_again_is_free_for_this_object(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.infos()
    breaking_after(monkeypatch, "INSERT INTO {schema}.leases", times=2)
    with pytest.raises(StoreError):
        await postgres.lease("bug-1").__aenter__()
    assert len(schema.sql("SELECT * FROM {schema}.leases")) == 1

    with pytest.raises(RunningElsewhereError):
        await schema.store().lease("bug-1").__aenter__()
    async with postgres.lease("bug-1"):
        await postgres.append("bug-1", 0, raws(1), INFO)


async def test_an_append_whose_answer_got_lost_is_not_written_twice(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with postgres.lease("bug-1"):
        breaking_after(monkeypatch, "COMMIT", times=1)

        await postgres.append("bug-1", 0, raws(3), INFO)

        assert list(await postgres.read("bug-1")) == raws(3)


def breaking_after(monkeypatch: pytest.MonkeyPatch, beginning: str, times: int) -> None:
    """Break the connection as soon as the server has done what begins so."""
    pipeline = psycopg.Connection.pipeline
    execute = _postgres_connections.Link.execute
    seen: list[str] = []
    broken: list[Connection] = []

    def execute_seen(self: Any, text: str, values: Any = None) -> Any:
        seen.append(text.strip())
        return execute(self, text, values)

    @contextmanager
    def breaking(self: Connection) -> Iterator[Any]:
        seen.clear()
        with pipeline(self) as entered:
            yield entered
        if len(broken) < times and any(text.startswith(beginning) for text in seen):
            broken.append(self)
            self.close()
            raise psycopg.OperationalError("the connection broke")

    monkeypatch.setattr(psycopg.Connection, "pipeline", breaking)
    monkeypatch.setattr(_postgres_connections.Link, "execute", execute_seen)


async def test_while_the_server_is_away_each_call_says_so_and_a_lease_is_left_without_an_error(
    postgres: PostgresStore, schema: Schema
) -> None:
    away = rf"database postgres on 127\.0\.0\.1:{schema.cluster.port}: .*Connection refused.*; check host and port"
    async with postgres.lease("held"):
        await postgres.append("held", 0, raws(1), INFO)
        with schema.cluster.stopped():
            for act in ACTS:
                with pytest.raises(StoreError, match=away) as caught:
                    await act(postgres)
                assert type(caught.value) is StoreError
            lease = postgres.lease("bug-2")
            with pytest.raises(StoreError, match=away):
                await lease.__aenter__()
        await postgres.append("held", 1, raws(1, 1), INFO)
        schema.cluster.stop()
    schema.cluster.start()

    other = schema.store()
    with pytest.raises(RunningElsewhereError):
        await other.append("held", 2, raws(1, 2), INFO)
    await postgres.append("held", 2, raws(1, 2), INFO)  # it knows that this lease is its own, and over
    async with postgres.lease("held"), postgres.lease("bug-2"):
        await postgres.append("held", 3, raws(1, 3), INFO)
    await other.append("held", 4, raws(1, 4), INFO)
    assert list(await other.read("held")) == raws(5)


# ---- Refused


def role(cluster: Cluster, name: str, options: str = "") -> None:
    if not cluster.sql("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]):
        cluster.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}' {options}")


def database(cluster: Cluster, name: str, options: str = "") -> None:
    if not cluster.sql("SELECT 1 FROM pg_database WHERE datname = %s", [name]):
        cluster.sql(f"CREATE DATABASE {name} TEMPLATE template0 {options}")


def no_server(cluster: Cluster) -> dict[str, object]:
    return {"port": free_port()}


def no_socket(cluster: Cluster) -> dict[str, object]:
    return {"host": cluster.folder / "nothing"}


def wrong_password(cluster: Cluster) -> dict[str, object]:
    role(cluster, "secured")
    return {"user": "secured", "password": f"wrong{SECRET}"}


def no_password(cluster: Cluster) -> dict[str, object]:
    role(cluster, "secured")
    return {"user": "secured"}


def no_such_user(cluster: Cluster) -> dict[str, object]:
    return {"user": "nobody_known", "password": SECRET}


def unwanted_user(cluster: Cluster) -> dict[str, object]:
    role(cluster, "unwanted")
    return {"user": "unwanted", "password": SECRET}


def no_such_database(cluster: Cluster) -> dict[str, object]:
    return {"dbname": "nothing", "password": SECRET}


def another_encoding(cluster: Cluster) -> dict[str, object]:
    database(cluster, "latin", "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    return {"dbname": "latin"}


def no_rights(cluster: Cluster) -> dict[str, object]:
    role(cluster, "powerless")
    return {"user": "powerless", "password": SECRET}


def read_only(cluster: Cluster) -> dict[str, object]:
    role(cluster, "reader", "SUPERUSER")
    cluster.sql("ALTER ROLE reader SET default_transaction_read_only = on")
    return {"user": "reader"}


def no_connection_left(cluster: Cluster) -> dict[str, object]:
    role(cluster, "crowded", "CONNECTION LIMIT 0")
    return {"user": "crowded"}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (no_server, r"postgres on 127\.0\.0\.1:\d+: .*Connection refused.*; check host and port in the dsn, and that"),
        (
            no_socket,
            r"postgres on /\S+nothing:\d+: .*No such file.*; check host and port in the dsn, and",
        ),
        (wrong_password, r"postgres on 127\.0\.0\.1:\d+: password authentication failed .*; check user and password"),
        (no_password, r"postgres on 127\.0\.0\.1:\d+: .*no password supplied; check user and password in the dsn, or"),
        (no_such_user, r'postgres on 127\.0\.0\.1:\d+: role "nobody_known" does not exist; check the user in the dsn'),
        (unwanted_user, r"postgres on 127\.0\.0\.1:\d+: pg_hba.conf rejects .*; check the user in the dsn, and what"),
        (no_such_database, r'nothing on 127\.0\.0\.1:\d+: database "nothing" does not exist; .* or create .*createdb'),
        (another_encoding, r"latin on 127\.0\.0\.1:\d+: its encoding is LATIN1, .*; use .* createdb --encoding=UTF8"),
        (no_rights, r"postgres on 127\.0\.0\.1:\d+: permission denied .*; let an administrator give this user"),
        (read_only, r"postgres on 127\.0\.0\.1:\d+: cannot execute .* read-only transaction; .*read-write in the dsn"),
        (no_connection_left, r"postgres on 127\.0\.0\.1:\d+: too many connections .*; give the store a smaller max_c"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_why_the_database_can_not_be_used_is_said_with_its_place_and_what_to_do(
    cluster: Cluster,
    schema: Schema,
    opened: list[Connection],
    case: Callable[[Cluster], dict[str, object]],
    message: str,
) -> None:
    store = schema.store(dsn=cluster.dsn(**case(cluster)))
    writes = (partial(store.append, "bug-1", 0, raws(1), INFO), store.lease("bug-1").__aenter__)
    for act in writes if case in (no_rights, read_only) else (store.infos, *writes):
        with pytest.raises(StoreError, match=f"^database {message}") as caught:
            await act()

        assert type(caught.value) is StoreError
        assert "\n" not in str(caught.value)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(store)
    assert all(conn.closed for conn in opened) or case in (no_rights, read_only)


async def test_a_standby_can_be_read_and_says_why_it_can_not_be_written(
    postgres: PostgresStore, schema: Schema
) -> None:
    await postgres.append("bug-1", 0, raws(2), INFO)
    with schema.cluster.in_recovery():
        assert list(await postgres.read("bug-1")) == raws(2)
        for act in (partial(postgres.append, "bug-1", 2, raws(1, 2), INFO), postgres.lease("bug-1").__aenter__):
            with pytest.raises(StoreError, match=r"read-only transaction; .*target_session_attrs=read-write"):
                await act()

    await postgres.append("bug-1", 2, raws(1, 2), INFO)


async def test_who_may_use_the_tables_needs_no_right_to_make_them(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    role(schema.cluster, "powerless")
    schema.sql("GRANT USAGE ON SCHEMA {schema} TO powerless")
    schema.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO powerless")
    store = schema.store(dsn=schema.cluster.dsn(user="powerless"))

    await store.append("bug-1", 1, raws(1, 1), INFO)
    await store.remove("bug-1")

    assert not await postgres.has("bug-1")


async def test_a_schema_that_is_there_is_used_by_who_may_make_tables_in_it(schema: Schema) -> None:
    role(schema.cluster, "owner")
    schema.sql("CREATE SCHEMA {schema} AUTHORIZATION owner")
    store = schema.store(dsn=schema.cluster.dsn(user="owner"))

    await store.append("bug-1", 0, raws(1), INFO)

    assert await store.has("bug-1")


async def test_tables_that_somebody_removed_are_missed_with_what_to_do(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    schema.sql("DROP TABLE {schema}.entries")

    for store in (postgres, schema.store()):
        with pytest.raises(StoreError, match=r"does not exist; somebody has removed .* backup, or drop its schema"):
            await store.read("bug-1")
    schema.sql("DROP SCHEMA {schema} CASCADE")
    await postgres.append("bug-1", 0, raws(1), INFO)

    assert list(await schema.store().read("bug-1")) == raws(1)


async def test_who_may_not_make_tables_reads_a_database_that_has_none(schema: Schema) -> None:
    role(schema.cluster, "powerless")

    assert list(await schema.store(dsn=schema.cluster.dsn(user="powerless")).infos()) == []


async def test_who_may_not_read_the_tables_is_told_what_to_do(
    postgres: PostgresStore, schema: Schema, opened: list[Connection]
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    await postgres.aclose()
    role(schema.cluster, "powerless")
    schema.sql("GRANT USAGE ON SCHEMA {schema} TO powerless")

    with pytest.raises(StoreError, match=r"permission denied for table meta; let an administrator give this user"):
        await schema.store(dsn=schema.cluster.dsn(user="powerless")).read("bug-1")

    assert all(conn.closed for conn in opened)


async def test_where_no_file_can_be_opened_any_more_that_is_said(
    postgres: PostgresStore, opened: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(fd: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(_postgres_connections.os, "dup", refusing)
        with pytest.raises(StoreError, match=r"postgres on .*: no connection .*Too many open files; raise the limit"):
            await postgres.infos()

    assert [conn.closed for conn in opened] == [True]
    assert list(await postgres.infos()) == []


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://app:p@{SECRET}@db/app",
        f"postgresql://app:p/{SECRET}@db/app",
        f"postgresql://app:1/{SECRET}@db/app",
        f"host=db password=p {SECRET}",
        f"host=db passwort={SECRET}",
        f"mysql://app:{SECRET}@db/app",
        f"host=db port={SECRET}",
    ],
)
def test_a_dsn_that_can_not_be_read_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(
        ValueError, match=r"dsn is no PostgreSQL connection string; write postgresql://.* %40"
    ) as caught:
        PostgresStore(dsn)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (f"postgresql://app:{SECRET}@db.example.com/runs", "host=db.example.com port=5432 dbname=runs"),
        (f"postgresql://app:p%40{SECRET}@db:5433/runs?sslmode=require", "host=db port=5433 dbname=runs"),
        (f"host=a,b port=1,2 user=app password={SECRET}", "host=a,b port=1,2 dbname=app"),
        ("", "host=from-env port=6543 dbname=env"),
        ("dbname=runs host=@abstract", "host=@abstract port=6543 dbname=runs"),
        ("hostaddr=127.0.0.2", "host=from-env port=6543 dbname=env"),
    ],
)
def test_its_repr_says_where_it_is_and_never_the_password(
    dsn: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    if dsn.startswith("postgresql") or "user=" in dsn:
        for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER"):
            monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv("PGHOST", "from-env")
        monkeypatch.setenv("PGPORT", "6543")
        monkeypatch.setenv("PGDATABASE", "env")

    assert repr(PostgresStore(dsn)) == f"PostgresStore('{shown}')"


async def test_a_password_that_is_right_is_used(cluster: Cluster, schema: Schema) -> None:
    role(cluster, "secured")
    cluster.sql("GRANT CREATE ON DATABASE postgres TO secured")
    url = f"postgresql://secured:{SECRET}@127.0.0.1:{cluster.port}/postgres"

    await schema.store(dsn=url).append("bug-1", 0, raws(1), INFO)

    assert await schema.store().has("bug-1")


async def test_the_socket_of_this_machine_will_do(cluster: Cluster, schema: Schema) -> None:
    store = schema.store(dsn=cluster.dsn(host=cluster.folder))

    await store.append("bug-1", 0, raws(1), INFO)

    assert str(cluster.folder) in repr(store)


def test_without_psycopg_it_says_what_to_install() -> None:
    code = """
import sys
sys.modules["psycopg"] = None
from alpineagents import PostgresStore
try:
    PostgresStore("")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("PostgresStore needs psycopg: pip install 'psycopg[binary]'")


def test_a_part_of_it_that_can_not_be_imported_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alpineagents.stores._postgres_connections", None)

    with pytest.raises(ImportError, match=r"pip install 'psycopg\[binary\]' \(.*_postgres_connections"):
        PostgresStore("")
