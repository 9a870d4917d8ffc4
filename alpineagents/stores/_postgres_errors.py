"""What a PostgresStore tells itself; it needs no psycopg."""

from __future__ import annotations

from .._errors import StoreError


class NoTablesError(StoreError):
    """Nothing has been saved in this schema yet."""
