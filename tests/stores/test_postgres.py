"""PostgresStore: what every store does, its tables and its leases."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import psycopg
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from alpineagents import CorruptStoreError, PostgresStore, RunningElsewhereError, StateNotFoundError, Store, StoreError
from alpineagents.stores import _postgres_rows, _postgres_schema
from alpineagents.stores._holder import this_process
from alpineagents.stores._postgres_connections import Connections
from alpineagents.stores._postgres_leases import Leases
from alpineagents.testing import StoreLaws

from .histories import INFO, infos_of, raw, raws
from .postgres import WAITING, Cluster, Schema, cluster, opened, postgres, schema
from .test_machine import StoreMachine, ids, texts

__all__ = ["cluster", "opened", "postgres", "schema"]  # fixtures

NEWEST = len(_postgres_schema.MIGRATIONS)


class TestPostgresLaws(StoreLaws):
    """What every store does."""

    @pytest.fixture
    def store(self, schema: Schema) -> PostgresStore:
        return schema.store()

    @pytest.fixture
    def other(self, schema: Schema) -> PostgresStore:
        return schema.store()

    @pytest.fixture
    def expire(self, schema: Schema) -> Callable[[str], None]:
        return schema.expire

    @pytest.fixture
    def damage(self, schema: Schema) -> Callable[[str], None]:
        return partial(schema.sql, "DELETE FROM {schema}.entries WHERE state_id = %s AND seq = 0")


class PostgresMachine(StoreMachine):
    """The same as for every store, with several store objects on one schema."""

    def __init__(self, cluster: Cluster) -> None:
        self.schema = Schema(cluster)
        super().__init__()

    def make(self) -> Store:
        return self.schema.store()

    @rule()
    def open_anew(self) -> None:
        self.store = self.schema.store()

    @rule()
    def close(self) -> None:
        assert isinstance(self.store, PostgresStore)
        trio.run(self.store.aclose)

    @rule(state_id=ids, texts=st.lists(texts, min_size=1, max_size=4))
    def another_store_appends(self, state_id: str, texts: list[str]) -> None:
        entries, info = self.new(state_id, texts)
        first = len(self.saved.get(state_id, []))
        self.run(self.schema.store().append, state_id, first, entries, json.dumps(info).encode())
        self.saved.setdefault(state_id, []).extend(entries)
        self.infos[state_id] = info

    @rule(state_id=ids, texts=st.lists(texts, max_size=2), expired=st.booleans())
    def somebody_takes_the_lease_over(self, state_id: str, texts: list[str], expired: bool) -> None:
        async def take_over() -> None:
            other = self.schema.store()
            length = len(self.saved.get(state_id, []))
            async with self.store.lease(state_id):
                if not expired:
                    with pytest.raises(RunningElsewhereError):
                        await other.lease(state_id).__aenter__()
                    with pytest.raises(RunningElsewhereError):
                        await other.append(state_id, length, [raw(length)], b"{}")
                    return
                self.schema.expire(state_id)
                if texts:
                    entries, info = self.new(state_id, texts)
                    await other.append(state_id, length, entries, json.dumps(info).encode())
                    self.saved.setdefault(state_id, []).extend(entries)
                    self.infos[state_id] = info
                else:
                    async with other.lease(state_id):
                        pass
                with pytest.raises(RunningElsewhereError):
                    await self.store.append(state_id, length, [raw(length)], b"{}")

        self.run(take_over)


@pytest.mark.slow
def test_any_sequence_of_calls_does_what_it_does_to_lists(cluster: Cluster) -> None:
    run_state_machine_as_test(
        partial(PostgresMachine, cluster), settings=settings(max_examples=15, stateful_step_count=15)
    )


# ---- Tables


async def test_the_tables_are_made_at_the_first_write(postgres: PostgresStore, schema: Schema) -> None:
    count = "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s"

    assert list(await postgres.infos()) == []
    assert not await postgres.has("bug-1")
    await postgres.remove("bug-1")
    await postgres.delete("bug-1", children=True)
    with pytest.raises(StateNotFoundError):
        await postgres.read("bug-1")
    with pytest.raises(StateNotFoundError):
        await postgres.infos(before="bug-1")
    assert schema.sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema.name) == []

    async with postgres.lease("bug-1"):
        assert schema.sql(count, schema.name) == [(4,)]
    assert schema.sql("SELECT version FROM {schema}.meta") == [(NEWEST,)]


async def test_who_has_read_before_the_tables_were_made_reads_what_is_in_them(
    postgres: PostgresStore, schema: Schema
) -> None:
    assert list(await postgres.infos()) == []
    await schema.store().append("bug-1", 0, raws(1), INFO)

    assert list(await postgres.read("bug-1")) == raws(1)


async def test_a_schema_whose_tables_were_dropped_with_it_is_made_anew(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    schema.sql("DROP SCHEMA {schema} CASCADE")
    with pytest.raises(StoreError, match="somebody has removed some of the store's tables"):
        await postgres.read("bug-1")

    assert list(await postgres.infos()) == []
    await postgres.append("bug-1", 0, raws(1), INFO)
    assert list(await postgres.read("bug-1")) == raws(1)


async def test_stores_that_start_at_once_make_the_tables_once(schema: Schema) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(schema.store().append, f"bug-{number}", 0, raws(1), INFO)

    assert schema.sql("SELECT version FROM {schema}.meta") == [(NEWEST,)]
    assert len(await schema.store().infos()) == 8


async def test_tables_of_a_newer_version_are_refused_with_both_numbers(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    schema.sql("UPDATE {schema}.meta SET version = 99")

    newer = schema.store()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=rf"{schema.name} are of version 99, newer than {NEWEST}, .* install a new"
        ):
            await newer.read("bug-1")
    schema.sql("UPDATE {schema}.meta SET version = %s", NEWEST)
    assert list(await newer.read("bug-1")) == raws(1)


async def test_tables_of_an_older_version_are_brought_up_to_date(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(2), INFO)
    newer = [*_postgres_schema.MIGRATIONS, "ALTER TABLE {schema}.states ADD COLUMN colour text DEFAULT 'red'"]
    monkeypatch.setattr(_postgres_schema, "MIGRATIONS", newer)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(schema.store().append, "bug-1", 0, raws(2), INFO)

    assert schema.sql("SELECT version FROM {schema}.meta") == [(NEWEST + 1,)]
    assert schema.sql("SELECT colour FROM {schema}.states") == [("red",)]
    assert list(await schema.store().read("bug-1")) == raws(2)


async def test_who_finds_a_newer_version_only_when_it_is_their_turn_to_migrate_refuses_it(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    monkeypatch.setattr(_postgres_schema, "MIGRATIONS", [*_postgres_schema.MIGRATIONS, "SELECT 1"])
    with psycopg.connect(schema.cluster.dsn()) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (_postgres_schema._LOCK,))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, schema.store(), f"version 99, newer than {NEWEST + 1}")
            await schema.pids(WAITING)
            conn.execute(f"UPDATE {schema.name}.meta SET version = 99".encode())
            conn.commit()


async def refused(store: PostgresStore, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        await store.infos()


async def test_a_migration_that_fails_changes_nothing(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    broken = ["ALTER TABLE {schema}.states ADD COLUMN colour text", "ALTER TABLE {schema}.nothing ADD COLUMN x text"]
    monkeypatch.setattr(_postgres_schema, "MIGRATIONS", [*_postgres_schema.MIGRATIONS, *broken])

    with pytest.raises(StoreError, match="nothing"):
        await schema.store().read("bug-1")

    monkeypatch.undo()
    assert list(await schema.store().read("bug-1")) == raws(1)
    assert schema.sql("SELECT version FROM {schema}.meta") == [(NEWEST,)]
    with pytest.raises(psycopg.errors.UndefinedColumn):
        schema.sql("SELECT colour FROM {schema}.states")


async def test_schemas_are_apart(postgres: PostgresStore, cluster: Cluster) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)

    assert not await Schema(cluster).store().has("bug-1")


@pytest.mark.parametrize("name", ["", "1a", "a-b", 'a"b', "Runs", "a" * 64, "é", "a\n"])
def test_a_schema_that_can_not_be_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="schema must be 1 to 63 lower case letters"):
        PostgresStore("", schema=name)


@pytest.mark.parametrize("name", ["select", "user", "_", "a" * 63])
async def test_a_schema_may_have_the_name_of_a_keyword(cluster: Cluster, name: str) -> None:
    store = PostgresStore(cluster.dsn(), schema=name)

    await store.append("bug-1", 0, raws(1), INFO)

    assert cluster.sql(f'SELECT length FROM "{name}".states') == [(1,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0"),
        ({"lease_seconds": float("inf")}, "lease_seconds must be a number above 0"),
        ({"lease_seconds": float("nan")}, "lease_seconds must be a number above 0"),
        ({"max_connections": 0}, "max_connections must be 1 or more"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PostgresStore("", **options)


async def test_entries_are_text_and_what_is_listed_is_in_columns_too(postgres: PostgresStore, schema: Schema) -> None:
    entry = rb'{"seq":0, "x":"\u0000 \ud83d", "n":1.0, "x":1e400}'
    info = b'{"created_at":"2026-01-02T03:04:05.000006+02:00","parent_id":"bug-0","x":"\\u0000"}'

    await postgres.append("bug-1", 0, [entry], info)

    (row,) = schema.sql("SELECT entry::text, info::text, parent_id, created_at FROM {schema}.entries, {schema}.states")
    assert [each.encode() for each in row[:2]] == [entry, info]
    assert row[2] == "bug-0"
    assert row[3].isoformat() == "2026-01-02T01:04:05.000006+00:00"


@pytest.mark.parametrize("about", [b'{"parent_id":3,"created_at":3}', b'{"created_at":"0001-01-01T00:00:00+14:00"}'])
async def test_an_odd_info_is_kept_all_the_same(postgres: PostgresStore, about: bytes) -> None:
    await postgres.append("bug-1", 0, raws(1), about)

    assert await infos_of(postgres) == {"bug-1": json.loads(about)}


async def test_what_is_not_json_is_refused_and_nothing_changes(postgres: PostgresStore) -> None:
    async with postgres.lease("bug-1"):
        for entry in (b'{"seq":0,}', b'{"seq":"\xff"}'):
            with pytest.raises(StoreError, match=r"on 127\.0\.0\.1:.*(invalid input syntax for type json|UTF8)"):
                await postgres.append("bug-1", 0, [entry], INFO)

        assert not await postgres.has("bug-1")
        await postgres.append("bug-1", 0, raws(1), INFO)


async def test_a_negative_number_of_states_is_refused(postgres: PostgresStore) -> None:
    with pytest.raises(ValueError, match="limit must be 0 or more"):
        await postgres.infos(limit=-1)


async def test_a_page_behind_an_id_that_no_state_can_have_is_not_found(postgres: PostgresStore) -> None:
    with pytest.raises(StateNotFoundError, match="no State a/b"):
        await postgres.infos(before="a/b")


async def test_more_than_a_statement_holds_is_still_one_append(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_rows, "_MOST_AT_ONCE", 100)
    entries = [raw(seq, text="x" * (30 * seq)) for seq in range(7)]
    async with postgres.lease("bug-1"):
        await postgres.append("bug-1", 0, entries, INFO)
        assert list(await postgres.read("bug-1")) == entries

        bad = [*(raw(seq, text="x" * 90) for seq in range(7, 9)), b'{"seq":9,}']
        with pytest.raises(StoreError):
            await postgres.append("bug-1", 7, bad, b"{}")

    assert list(await postgres.read("bug-1")) == entries
    assert await infos_of(postgres) == {"bug-1": json.loads(INFO)}


@pytest.mark.parametrize(("seq", "readable"), [(0, 0), (1, 1), (3, 3)])
async def test_a_missing_entry_is_damage_and_what_can_still_be_read_is_said(
    postgres: PostgresStore, schema: Schema, seq: int, readable: int
) -> None:
    await postgres.append("bug-1", 0, raws(4), INFO)
    schema.sql("DELETE FROM {schema}.entries WHERE seq = %s", seq)
    damaged = pytest.raises(CorruptStoreError, match=f"bug-1 .*has 3 of its 4 entries.* The first {readable} are")

    with damaged:
        await postgres.read("bug-1")
    with damaged:
        await postgres.append("bug-1", 0, raws(5), INFO)
    assert list(await postgres.read("bug-1", after=seq + 1)) == raws(3 - seq, seq + 1)


async def test_who_deletes_the_row_of_a_state_deletes_its_entries(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(4), INFO)
    schema.sql("DELETE FROM {schema}.states")

    await postgres.append("bug-1", 0, raws(1, by="another"), INFO)

    assert list(await postgres.read("bug-1")) == raws(1, by="another")


async def test_what_a_trigger_swallows_is_not_taken_for_written(postgres: PostgresStore, schema: Schema) -> None:
    await postgres.append("bug-1", 0, raws(1), INFO)
    schema.sql("CREATE FUNCTION {schema}.drop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    schema.sql("CREATE TRIGGER t BEFORE INSERT ON {schema}.entries FOR EACH ROW EXECUTE FUNCTION {schema}.drop()")

    with pytest.raises(StoreError, match="went missing while they were written; is there a trigger"):
        await postgres.append("bug-1", 1, raws(1, 1), INFO)

    assert list(await postgres.read("bug-1")) == raws(1)


# ---- Leases


async def test_who_is_refused_hears_who_holds_the_state_and_since_when(postgres: PostgresStore, schema: Schema) -> None:
    async with postgres.lease("bug-1"):
        schema.sql("UPDATE {schema}.leases SET since = now() - interval '719.6 seconds'")

        with pytest.raises(RunningElsewhereError) as caught:
            async with schema.store().lease("bug-1"):
                pass

    port = schema.cluster.port
    assert str(caught.value) == (
        f"State bug-1 in database postgres on 127.0.0.1:{port} is held by another run or save:"
        f" process {os.getpid()} on {this_process().machine}, since 720 s;"
        " wait until that has ended, or run a fork: state.fork()"
    )


async def test_a_lease_runs_out_by_the_clock_of_the_server(schema: Schema) -> None:
    store = schema.store(lease_seconds=900.5)
    left = "SELECT extract(epoch FROM expires - since)::float, expires > now() FROM {schema}.leases"
    async with store.lease("bug-1"):
        assert schema.sql(left) == [(900.5, True)]
        schema.expire("bug-1")

        await store.renew("bug-1")

        assert schema.sql("SELECT expires > now() + interval '890 seconds' FROM {schema}.leases") == [(True,)]
    assert schema.sql(left) == []


async def test_the_lease_of_a_process_that_is_gone_is_free_at_once(postgres: PostgresStore, schema: Schema) -> None:
    dead = attrs.evolve(this_process(), started="1").encoded()
    for act in (postgres.lease("bug-1").__aenter__, partial(schema.store().append, "bug-2", 0, raws(1), INFO)):
        await schema.store().append("any", 0, raws(1), INFO)
        schema.sql(
            "INSERT INTO {schema}.leases SELECT 'bug-' || n, gen_random_uuid(), %s, now(), now() + interval '1 hour'"
            " FROM generate_series(1, 2) AS n ON CONFLICT DO NOTHING",
            dead,
        )

        await act()

    assert schema.sql("SELECT state_id, holder FROM {schema}.leases") == [("bug-1", this_process().encoded())]


async def test_a_lease_that_ran_out_before_its_taking_was_noted_goes_to_one_of_two(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process slept, and another task of it was faster."""
    claim = _postgres_rows.claim
    second = postgres.lease("bug-1")

    def slowly(link: Any, *args: Any) -> None:
        claim(link, *args)
        monkeypatch.setattr(_postgres_rows, "claim", claim)
        schema.expire("bug-1")
        trio.run(second.__aenter__)

    monkeypatch.setattr(_postgres_rows, "claim", slowly)
    with pytest.raises(RunningElsewhereError, match=r"bug-1 .* is held by .*process \d+ on .*, since 0 s"):
        await postgres.lease("bug-1").__aenter__()

    await postgres.renew("bug-1")
    with pytest.raises(RunningElsewhereError):
        await schema.store().lease("bug-1").__aenter__()
    await second.__aexit__(None, None, None)
    assert schema.sql("SELECT * FROM {schema}.leases") == []


async def test_a_lease_that_is_given_back_while_one_looks_who_has_it_is_taken(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "WITH gone AS (DELETE FROM {schema}.leases WHERE state_id = %(id)s) SELECT 1 WHERE false"
    async with postgres.lease("bug-1"):
        monkeypatch.setattr(_postgres_rows, "_HELD", gone)

        async with schema.store().lease("bug-1"):
            assert schema.sql("SELECT state_id FROM {schema}.leases") == [("bug-1",)]


async def test_a_holder_that_can_not_be_read_holds_all_the_same(postgres: PostgresStore, schema: Schema) -> None:
    async with postgres.lease("bug-1"):
        schema.sql("UPDATE {schema}.leases SET holder = 'of a form to come'")

        with pytest.raises(RunningElsewhereError, match="another version of this library, since"):
            await schema.store().remove("bug-1")


@pytest.mark.parametrize("still_held", [True, False])
async def test_who_lost_the_lease_hears_who_has_it(postgres: PostgresStore, schema: Schema, still_held: bool) -> None:
    other = schema.store()
    async with postgres.lease("bug-1"):
        schema.expire("bug-1")
        lease = other.lease("bug-1")
        await lease.__aenter__()
        if not still_held:
            await lease.__aexit__(None, None, None)
        has_it = f"process {os.getpid()} on .* has it since 0 s" if still_held else "somebody else has had it"

        for act in (partial(postgres.append, "bug-1", 0, raws(1), INFO), partial(postgres.renew, "bug-1")):
            with pytest.raises(RunningElsewhereError, match=rf"ran out, and {has_it};.* store\.load\('bug-1'\)"):
                await act()
    if still_held:
        await lease.__aexit__(None, None, None)


async def test_renewing_what_is_not_held_says_so(postgres: PostgresStore) -> None:
    with pytest.raises(RunningElsewhereError, match=r"bug-1 in .* isn't held by this store; .*store\.lease\('bug-1'\)"):
        await postgres.renew("bug-1")


async def test_a_write_is_refused_when_the_lease_is_taken_over_just_before_it(
    postgres: PostgresStore, schema: Schema
) -> None:
    async with postgres.lease("bug-1"):
        await postgres.append("bug-1", 0, raws(1), INFO)
        with schema.locked("leases") as taker:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(too_late, postgres)
                await schema.pids(WAITING)
                taker.execute(f"UPDATE {schema.name}.leases SET token = gen_random_uuid()".encode())
                taker.commit()

        assert list(await postgres.read("bug-1")) == raws(1)
    assert schema.sql("SELECT state_id FROM {schema}.leases") == [("bug-1",)], "it is the other's"


async def too_late(store: PostgresStore) -> None:
    with pytest.raises(RunningElsewhereError, match="ran out"):
        await store.append("bug-1", 1, raws(1, 1), INFO)


async def test_a_lease_taken_for_one_append_makes_others_wait_and_not_fail(
    postgres: PostgresStore, schema: Schema
) -> None:
    """Such an append holds the State for the length of a transaction."""
    await postgres.append("bug-1", 0, raws(1), INFO)
    with schema.locked("states") as holder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(postgres.append, "bug-1", 1, raws(1, 1), INFO)
            (first,) = await schema.pids(WAITING)
            nursery.start_soon(schema.store().append, "bug-1", 1, raws(2, 1), INFO)
            assert first in await schema.pids(WAITING, 2)
            schema.cluster.sql("SELECT pg_terminate_backend(%s)", [first])  # and the first one comes again, behind
            await schema.pids(f"{WAITING} AND pid <> {first}", 2)
            holder.rollback()

    assert list(await postgres.read("bug-1")) == raws(3)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_lease_whose_taking_is_cancelled_just_then_is_given_back(
    postgres: PostgresStore, schema: Schema, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """Before or after the thread has said that it has the lease; the task hears of it too late."""
    await postgres.infos()
    given_up = threading.Event()
    over = trio.Event()
    trio_token = trio.lowlevel.current_trio_token()
    target = Leases if is_done else Connections
    name = "_take" if is_done else "run"
    call = getattr(target, name)

    def then_cancel(self: object, *args: object) -> None:
        call(self, *args)
        if not given_up.is_set():
            trio_token.run_sync_soon(scope.cancel)
            given_up.wait()
            if not is_done:
                trio_token.run_sync_soon(over.set)

    with monkeypatch.context() as patch:
        patch.setattr(target, name, then_cancel)
        with trio.CancelScope() as scope:
            async with postgres.lease("bug-1"):
                raise AssertionError("was entered")
        given_up.set()
        if not is_done:
            await over.wait()

    assert scope.cancelled_caught
    with trio.fail_after(60):
        while schema.sql("SELECT 1 FROM {schema}.leases"):
            await trio.lowlevel.checkpoint()


async def test_a_lease_whose_block_is_cancelled_ends_for_others_too(postgres: PostgresStore, schema: Schema) -> None:
    with trio.CancelScope() as scope:
        async with postgres.lease("bug-1"):
            scope.cancel()

    async with schema.store().lease("bug-1"):
        pass
