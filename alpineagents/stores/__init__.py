"""Where entries rest: in memory for tests, in a folder of files, in a SQLite file, or on a PostgreSQL server."""

from typing import TYPE_CHECKING

from ._files import FileStore
from ._memory import MemoryStore
from ._open import open_store

if TYPE_CHECKING:
    from ._postgres import PostgresStore
    from ._sqlite import SQLiteStore

__all__ = ["FileStore", "MemoryStore", "PostgresStore", "SQLiteStore", "open_store"]

_LAZY = {"PostgresStore": "_postgres", "SQLiteStore": "_sqlite"}


def __getattr__(name: str) -> object:
    """Import a database's client when its store is first named."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
