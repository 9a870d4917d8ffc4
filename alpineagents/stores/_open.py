"""A store by its name, as command lines and settings write it."""

from __future__ import annotations

from pathlib import Path

from .._contracts import Store

_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


def open_store(where: str) -> Store:
    """Return the store that *where* names.

    Args:
        where: ``postgresql://...`` is a database server; ``sqlite:PATH``, or a path that ends in ``.db``, ``.sqlite``
            or ``.sqlite3``, a SQLite file; anything else a folder of files.

    Raises:
        ValueError: it is empty.

    Example:
        >>> open_store("runs")
        FileStore('.../runs')
    """
    if where.startswith(("postgresql://", "postgres://")):
        from ._postgres import PostgresStore

        return PostgresStore(where)
    path = where.removeprefix("sqlite:")
    if not path:
        raise ValueError("name a store: a folder, a file such as runs.db, or postgresql://host/database")
    if path != where or Path(path).suffix in _DATABASE_SUFFIXES:
        from ._sqlite import SQLiteStore

        return SQLiteStore(path)
    from ._files import FileStore

    return FileStore(path)
