"""The tables of a PostgresStore, and how those of an older version become them.

Each script in MIGRATIONS leads to the next version, and stays as it is once it was released. Processes that start at
once take turns by an advisory lock; the second one finds nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from psycopg import Cursor, errors
from psycopg.rows import TupleRow

from .._errors import StoreError
from ._postgres_errors import NoTablesError
from ._postgres_place import Place

# json, not jsonb: it is kept as the text it came as; jsonb refuses U+0000 and writes numbers anew.
MIGRATIONS: Final[list[str]] = [
    """
    CREATE TABLE {schema}.states (
        id text COLLATE "C" PRIMARY KEY,
        length integer NOT NULL CHECK (length > 0),  -- how many entries it has
        info json NOT NULL,
        created_at timestamptz NOT NULL,  -- this one and the next are in info, too
        parent_id text COLLATE "C"
    ) WITH (fillfactor = 70);
    CREATE INDEX states_by_age ON {schema}.states (created_at, id);
    CREATE TABLE {schema}.entries (
        state_id text COLLATE "C" NOT NULL REFERENCES {schema}.states ON DELETE CASCADE,
        seq integer NOT NULL CHECK (seq >= 0),
        entry json NOT NULL,
        PRIMARY KEY (state_id, seq)
    );
    CREATE TABLE {schema}.leases (  -- of States that may not have an entry yet
        state_id text COLLATE "C" PRIMARY KEY,
        token uuid NOT NULL,  -- another one each time it is taken
        holder text NOT NULL,
        since timestamptz NOT NULL,
        expires timestamptz NOT NULL
    ) WITH (fillfactor = 70);
    """,
]

_LOCK: Final = 0x616C70696E65  # any number, the same in every process

LOCK_SECONDS: Final = 30
"""How long a call waits for others."""

IDLE_SECONDS: Final = 30
"""After how long the server ends a transaction whose client is silent, so that others needn't wait for it."""

# A connection is set up and its schema looked at in one go. A State saved is durable, whatever the database's default.
_SETTINGS: Final = """
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    set_config('lock_timeout', %(wait)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle)s, false)
"""
_BEGIN: Final = f"SELECT version, {_SETTINGS} FROM {{schema}}.meta"
_BEGIN_WITHOUT: Final = f"SELECT {_SETTINGS}"
_VERSION: Final = "SELECT version FROM {schema}.meta"


class Connected(Protocol):
    """A connection, as far as this module needs it."""

    schema: str
    place: Place

    def execute(self, text: str, values: dict[str, object] | None = None) -> Cursor[TupleRow]:
        """Run one statement with the schema's name filled in."""
        ...

    def in_transaction(self, act: Callable[[], None]) -> None:
        """Call *act* in a transaction."""
        ...


def begin(link: Connected) -> bool:
    """Make a new connection ready for this store's statements; return whether the tables are, too.

    Raises:
        StoreError: a newer version of this library made the tables.
    """
    values: dict[str, object] = {"wait": f"{LOCK_SECONDS}s", "idle": f"{IDLE_SECONDS}s"}
    version = _version(link, _BEGIN, values)
    if version is None:
        link.execute(_BEGIN_WITHOUT, values)
    return version == len(MIGRATIONS)


def make_ready(link: Connected, *, makes_tables: bool) -> None:
    """Bring the tables up to date; make them where they aren't there, if *makes_tables*.

    Raises:
        NoTablesError: they aren't there.
        StoreError: a newer version of this library made them.
    """
    version = _version(link, _VERSION)
    if version is None and not makes_tables:
        raise NoTablesError(f"{link.place}: nothing has been saved in schema {link.schema}")
    if version != len(MIGRATIONS):
        link.in_transaction(lambda: _migrate(link))


def _version(link: Connected, text: str, values: dict[str, object] | None = None) -> int | None:
    """Return the version of the tables; None where there are none."""
    try:
        row = link.execute(text, values).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return None
    return None if row is None else _checked(row[0], link)


def _checked(version: int, link: Connected) -> int:
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{link.place}: the tables in schema {link.schema} are of version {version}, newer than {len(MIGRATIONS)},"
            " the newest that this alpineagents knows; install a newer alpineagents, or use another schema"
        )
    return version


def _migrate(link: Connected) -> None:
    link.execute("SELECT pg_advisory_xact_lock(%(lock)s::bigint)", {"lock": _LOCK})
    name: dict[str, object] = {"name": link.schema}
    if link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %(name)s", name).fetchone() is None:
        link.execute("CREATE SCHEMA {schema}")
    link.execute("CREATE TABLE IF NOT EXISTS {schema}.meta (version integer NOT NULL)")
    row = link.execute("SELECT version FROM {schema}.meta").fetchone()
    if row is None:
        link.execute("INSERT INTO {schema}.meta VALUES (0)")
    version = 0 if row is None else _checked(row[0], link)
    for script in MIGRATIONS[version:]:
        link.execute(script)
    link.execute("UPDATE {schema}.meta SET version = %(version)s", {"version": len(MIGRATIONS)})
