"""Where a PostgreSQL database is, and what its errors mean to somebody who has to mend them.

Invariant: no text made here holds the password, nor a piece of a dsn that couldn't be read.
"""

from __future__ import annotations

import errno
import re
from typing import Any, Final

import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from .._errors import StoreError

_DEFAULTS: Final = {
    "connect_timeout": "10",  # seconds
    # So that a server which is gone without a word is noticed: after 25 s of silence, or 20 s without an answer.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",  # milliseconds
    "fallback_application_name": "alpineagents",
}

_HINTS: Final = {  # by SQLSTATE: appendix A of PostgreSQL's manual
    "25006": "this store writes: connect to the primary, for example with target_session_attrs=read-write in the dsn",
    "28000": "check the user in the dsn, and what pg_hba.conf on the server allows",
    "28P01": "check user and password in the dsn, or PGPASSWORD",
    "3D000": "check the name in the dsn, or create the database: createdb",
    "42501": "let an administrator give this user the rights, or let one that has them use the store first",
    "42P01": "somebody has removed some of the store's tables: restore them from a backup, or drop its schema, which"
    " the next write makes anew",
    "53100": "free some space on the server",
    "53300": "give the store a smaller max_connections, or the server a larger one",
    "55P03": "somebody holds a lock there for long: see pg_stat_activity on the server",
    "57014": "raise statement_timeout for this user, or leave it off",
    "57P01": "try again in a moment",
    "57P03": "try again in a moment",
}

# A connection that isn't made has no SQLSTATE. Where the server speaks another language its own words have to do.
_SIGNS: Final = {
    "password authentication failed": "28P01",
    "no password supplied": "28P01",
    r"pg_hba\.conf": "28000",
    "role .* does not exist": "28000",
    "database .* does not exist": "3D000",
    "database system is |recovery mode": "57P03",
    "too many clients|too many connections|connection slots are reserved": "53300",
}

_UNREACHED: Final = "check host and port in the dsn, and that the server runs"

_FILES: Final = "raise the limit on open files (ulimit -n), or give the store a smaller max_connections"


@attrs.frozen
class Place:
    """One database, as messages name it."""

    host: str
    port: str
    database: str

    def __str__(self) -> str:
        return f"database {self.database} on {self.host}:{self.port}"

    def explained(self, error: psycopg.Error) -> StoreError:
        """Return the StoreError for what psycopg raised."""
        text = str(error)
        state = error.sqlstate or next((code for sign, code in _SIGNS.items() if re.search(sign, text)), None)
        hint = _HINTS.get(state, "") if state else _UNREACHED
        return StoreError(f"{self}: {_reason(text)}{hint and f'; {hint}'}")

    def unconnected(self, error: OSError) -> StoreError:
        """Return the StoreError for what the system refused beside a connection."""
        hint = f"; {_FILES}" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
        return StoreError(f"{self}: no connection can be made: {error.strerror or error}{hint}")


def _reason(text: str) -> str:
    """The server's own words, without how they got here: one line."""
    first = text.strip().partition("\n")[0]
    words = re.split(r"(?:FATAL|ERROR): +", first)[-1]
    return re.sub(r"^connection (?:failed|is bad): ", "", words)[:300] or "the connection broke"


def read_dsn(dsn: str) -> tuple[Place, dict[str, Any]]:
    """Return the place that *dsn* names, by libpq's rules and defaults, and what to connect with.

    Raises:
        ValueError: it can't be read. The message doesn't quote it, since the password is somewhere in it.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        given = None
    if given is None or not _is_plausible(given):
        raise ValueError(
            "dsn is no PostgreSQL connection string; write postgresql://user:password@host:5432/database, with"
            " %40, %2F, %3A for @, / and : in the password, or host=... dbname=... user=..."
        )
    defaults = {
        option.keyword.decode(): option.val.decode()
        for option in Conninfo.get_defaults()  # environment and service file included
        if option.val is not None
    }
    known = defaults | {key: str(value) for key, value in given.items()}
    host = known.get("host") or known.get("hostaddr") or "the local socket"
    database = known.get("dbname") or known.get("user") or "of this user"
    chosen = {key: value for key, value in _DEFAULTS.items() if not known.get(key)}
    return Place(host, known.get("port") or "5432", database), {**chosen, **given, "client_encoding": "UTF8"}


def _is_plausible(given: dict[str, Any]) -> bool:
    """Whether no piece of a password that wasn't percent-encoded has ended up in another part."""
    host, port, database = (str(given.get(key) or "") for key in ("host", "port", "dbname"))
    return "@" not in host[1:] and re.fullmatch(r"[0-9,]*", port) is not None and "@" not in database
