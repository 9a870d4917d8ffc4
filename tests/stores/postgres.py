"""A PostgreSQL server for the tests, and the stores in it.

It is started by the first test that asks for it and stopped at the end of the session, or when the process that runs
the tests is gone: a shell stands between that waits for its input to end. Each test has a schema of its own.
A module that needs it imports the fixtures.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import trio

from alpineagents import PostgresStore

from ..leaks import outliving

KEEPER = """
"$1/pg_ctl" -s -D "$2/data" -l "$2/log" -o "$3" -w start </dev/null >/dev/null && echo started
read how
"$1/pg_ctl" -s -D "$2/data" -m "${how:-immediate}" -w stop </dev/null
[ -n "$how" ] || rm -rf "$2"
"""

HBA = """
local all all trust
host all secured 127.0.0.1/32 scram-sha-256
host all unwanted 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
"""

SETTINGS = "-c listen_addresses=127.0.0.1 -c max_connections=150 -c fsync=off"


def programs() -> Path:
    """The folder with initdb and pg_ctl; the test fails if there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not installed:
        pytest.fail("these tests need PostgreSQL's server: apt-get install postgresql", pytrace=False)
    return installed[-1].parent


def server_user() -> pwd.struct_passwd | None:
    """As whom the server runs: PostgreSQL refuses root. None: as who runs the tests."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name: user for user in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


class Cluster:
    """A PostgreSQL server with its data in a folder of its own."""

    def __init__(self) -> None:
        self.programs = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="alpineagents-postgres-"))
        self.keeper: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.user: dict[str, Any] = {}
        if (user := server_user()) is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        options = ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        subprocess.run(
            [self.programs / "initdb", "-D", self.folder / "data", *options],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self.user,
        )
        (self.folder / "data" / "pg_hba.conf").write_text(HBA)

    def start(self) -> None:
        """Start it; nothing if it runs."""
        while self.keeper is None:
            port = self.port or free_port()
            arguments = [self.programs, self.folder, f"-p {port} -k {self.folder} {SETTINGS}"]
            keeper = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, "sh", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl+C is for the tests
                cwd=self.folder,
                **self.user,
            )
            assert keeper.stdout is not None
            if keeper.stdout.readline() == b"started\n":
                self.keeper, self.port = keeper, port
                return
            said = keeper.communicate()[1].decode() + (self.folder / "log").read_text()
            assert not self.port, f"the server doesn't start:\n{said}"
            assert "could not bind" in said, f"the server doesn't start:\n{said}"

    def stop(self, how: str = "fast") -> None:
        """Stop it; nothing if it doesn't run."""
        if self.keeper is not None:
            self.keeper.communicate(f"{how}\n".encode())
            self.keeper = None

    def restart(self) -> None:
        """Stop it, and start it on the same port."""
        self.stop()
        self.start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for the length of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def in_recovery(self) -> Iterator[None]:
        """Let it be a standby for the length of the block: one that waits for what its primary never sends."""
        signal = self.folder / "data" / "standby.signal"
        self.stop()
        signal.touch()
        if self.user:
            os.chown(signal, self.user["user"], self.user["group"])
        self.start()
        try:
            yield
        finally:
            self.stop()
            signal.unlink()
            self.start()

    def remove(self) -> None:
        """Stop it for good."""
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def dsn(self, **parts: object) -> str:
        """How to connect to it."""
        known = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": "postgres"} | parts
        return " ".join(f"{key}={value}" for key, value in known.items())

    def sql(self, text: str, values: Sequence[object] = (), **parts: object) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, and return its rows."""
        with psycopg.Connection[Any].connect(self.dsn(**parts), autocommit=True) as conn:
            cursor = conn.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Schema:
    """A schema for one test, which isn't there yet."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"test_{uuid4().hex[:12]}"

    def store(self, *, dsn: str | None = None, **options: Any) -> PostgresStore:
        """A store in it."""
        return PostgresStore(dsn or self.cluster.dsn(), schema=self.name, **options)

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement; ``{schema}`` in it stands for this one."""
        return self.cluster.sql(text.replace("{schema}", self.name), values)

    def expire(self, state_id: str) -> None:
        """Let the lease of a State run out."""
        assert self.sql("UPDATE {schema}.leases SET expires = now() WHERE state_id = %s RETURNING token", state_id)

    @contextmanager
    def locked(self, table: str) -> Iterator[psycopg.Connection[Any]]:
        """Lock all rows of a table for the length of the block, in a transaction that it may commit before."""
        with psycopg.Connection[Any].connect(self.cluster.dsn()) as conn:
            conn.execute(f"SELECT FROM {self.name}.{table} FOR UPDATE".encode())
            yield conn
            conn.rollback()

    async def pids(self, doing: str, count: int = 1) -> list[int]:
        """Wait until so many connections of stores are doing that, and return their processes on the server."""
        text = f"SELECT pid FROM pg_stat_activity WHERE application_name = 'alpineagents' AND {doing}"
        with trio.fail_after(60):
            while len(found := self.cluster.sql(text)) < count:
                await trio.lowlevel.checkpoint()
        return [pid for (pid,) in found]


WAITING = "wait_event_type = 'Lock'"


_CLUSTER = pytest.StashKey[Cluster]()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The server of this test session, running."""
    config = request.config
    with outliving(config):
        if _CLUSTER not in config.stash:  # a fixture of the session would be one per module that imports it
            made = Cluster()
            config.add_cleanup(made.remove)
            config.stash[_CLUSTER] = made
        config.stash[_CLUSTER].start()
    return config.stash[_CLUSTER]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[psycopg.Connection[Any]]:
    """Every connection that stores have made since."""
    found: list[psycopg.Connection[Any]] = []
    connect = psycopg.connect

    def remembered(*args: Any, **options: Any) -> psycopg.Connection[Any]:
        found.append(connect(*args, **options))
        return found[-1]

    monkeypatch.setattr(psycopg, "connect", remembered)
    return found


@pytest.fixture
def schema(cluster: Cluster) -> Schema:
    """A schema that isn't there yet."""
    return Schema(cluster)


@pytest.fixture
def postgres(schema: Schema) -> PostgresStore:
    """A store whose tables aren't there yet."""
    return schema.store()


HEADER = """
import os, sys, threading
import trio
from alpineagents import *
from alpineagents.testing import FakeModel, tool_call

def say(text):
    os.write(1, f"{text}\\n".encode())

dsn, schema, *args = sys.argv[1:]
store = PostgresStore(dsn, schema=schema)
"""


def script(text: str, schema: Schema, *args: object) -> list[object]:
    """The command for a Python process that has ``store``, a PostgresStore, and runs *text*."""
    return [sys.executable, "-c", HEADER + text, schema.cluster.dsn(), schema.name, *args]
