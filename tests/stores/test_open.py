"""A store by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpineagents import FileStore, PostgresStore, SQLiteStore
from alpineagents.stores import open_store


@pytest.mark.parametrize(
    ("where", "kind", "place"),
    [
        ("runs", FileStore, "runs"),
        ("runs.d/x", FileStore, "runs.d/x"),
        ("runs.db", SQLiteStore, "runs.db"),
        ("runs.sqlite3", SQLiteStore, "runs.sqlite3"),
        ("sqlite:runs", SQLiteStore, "runs"),
    ],
)
def test_a_path_is_a_folder_or_a_file_by_its_end(tmp_path, monkeypatch, where, kind, place):
    monkeypatch.chdir(tmp_path)

    store = open_store(where)

    assert isinstance(store, kind)
    assert repr(store) == f"{kind.__name__}({str(tmp_path / place)!r})"
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL"])
@pytest.mark.parametrize(
    ("query", "schema", "rest"),
    [
        ("", "alpineagents", {}),
        ("?schema=app", "app", {}),
        ("?sslmode=require&schema=app&connect_timeout=3", "app", {"sslmode": "require", "connect_timeout": "3"}),
        ("?sslmode=require", "alpineagents", {"sslmode": "require"}),
    ],
)
def test_a_server_is_a_url_that_may_name_a_schema(scheme, query, schema, rest):
    store = open_store(f"{scheme}://app:p%40@db:5433/runs{query}")

    assert isinstance(store, PostgresStore)
    assert repr(store) == "PostgresStore('host=db port=5433 dbname=runs')"
    assert store._connections.schema == schema
    assert store._connections._parameters.items() >= {"user": "app", "password": "p@", **rest}.items()


@pytest.mark.parametrize(
    "where", ["mysql://app:secret@db/app", "postgresql+psycopg://app:secret@db/app", "sqlite:///secret.db", "://secret"]
)
def test_another_address_is_refused_and_not_taken_for_a_folder(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(
        ValueError, match=r"is no store; write postgresql://host/database, sqlite:PATH, or a folder"
    ) as (caught):
        open_store(where)

    assert "secret" not in str(caught.value)


def test_no_name_is_refused():
    with pytest.raises(ValueError, match="name a store"):
        open_store("")


def test_a_schema_that_can_not_be_one_is_refused():
    with pytest.raises(ValueError, match="schema must be"):
        open_store("postgresql://db/runs?schema=App")
