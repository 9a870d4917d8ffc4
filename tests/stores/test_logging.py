"""What stores leave in the log: a line for a lease that stays behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from alpineagents import PostgresStore, SQLiteStore

from .postgres import Schema, cluster, opened, postgres, schema
from .sqlite_files import locked

__all__ = ["cluster", "opened", "postgres", "schema"]  # fixtures


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What stores have logged so far, each line with its level."""
    caplog.set_level(logging.DEBUG, logger="alpineagents.stores")
    return lambda: [f"{r.levelname} {r.getMessage()}" for r in caplog.records if r.name == "alpineagents.stores"]


async def test_a_lease_that_a_locked_file_keeps_is_a_line(lines: Callable[[], list[str]], tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db", lease_seconds=10, busy_seconds=0)
    lease = store.lease("bug-1")
    await lease.__aenter__()
    with locked(store.path):
        await lease.__aexit__(None, None, None)

    line = "WARNING the lease of State bug-1 couldn't be given back (StoreError): it is held for others for up to 10 s"
    assert lines() == [line]


async def test_a_lease_that_a_database_keeps_is_a_line(
    lines: Callable[[], list[str]], postgres: PostgresStore, schema: Schema
) -> None:
    lease = postgres.lease("bug-1")
    await lease.__aenter__()
    schema.sql("ALTER TABLE {schema}.leases RENAME COLUMN token TO another")
    await lease.__aexit__(None, None, None)

    (line,) = lines()
    assert line.startswith("WARNING the lease of State bug-1 couldn't be given back (")
    assert line.endswith("): it is held for others for up to 30 s")


async def test_a_lease_that_is_given_back_is_no_line(lines: Callable[[], list[str]], tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "s.db") as store, store.lease("bug-1"):
        pass

    assert lines() == []
