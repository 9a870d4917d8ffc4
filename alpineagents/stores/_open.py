"""A store by its name, as command lines and settings write it."""

from __future__ import annotations

from pathlib import Path

from .._contracts import Store

_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


def open_store(where: str) -> Store:
    """Return the store that *where* names.

    Args:
        where: ``postgresql://...`` is a database server, ``?schema=NAME`` at its end names another schema than
            ``alpineagents``; ``sqlite:PATH``, or a path that ends in ``.db``, ``.sqlite`` or ``.sqlite3``, a SQLite
            file; anything else a folder of files.

    Raises:
        ValueError: it is empty, or an address of another kind.

    Example:
        >>> open_store("runs")
        FileStore('.../runs')
    """
    scheme, mark, rest = where.partition("://")
    if mark:
        return _server(scheme, rest)
    path = where.removeprefix("sqlite:")
    if not path:
        raise ValueError("name a store: a folder, a file such as runs.db, or postgresql://host/database")
    if path != where or Path(path).suffix in _DATABASE_SUFFIXES:
        from ._sqlite import SQLiteStore

        return SQLiteStore(path)
    from ._files import FileStore

    return FileStore(path)


def _server(scheme: str, rest: str) -> Store:
    if scheme.lower() not in ("postgresql", "postgres"):  # without the rest, which may hold a password
        raise ValueError(f"{scheme}://... is no store; write postgresql://host/database, sqlite:PATH, or a folder")
    from ._postgres import PostgresStore

    address, _, query = rest.partition("?")
    schemas = [part.removeprefix("schema=") for part in query.split("&") if part.startswith("schema=")]
    others = "&".join(part for part in query.split("&") if part and not part.startswith("schema="))
    dsn = f"postgresql://{address}{others and f'?{others}'}"
    return PostgresStore(dsn, schema=schemas[-1]) if schemas else PostgresStore(dsn)
