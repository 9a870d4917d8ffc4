"""W4: what does saving durably cost, per turn of an agent, and what do loading and listing?

Per store: µs per turn (think and one tool), wall and CPU; fsyncs per turn (counted by strace, without which the column
is empty, and by PostgreSQL itself); bytes per turn on disk, for runs of 100, 1,000 and 3,000 turns; fsyncs when 200
tool results arrive at once; ms to load 10,000 entries and to list 10,000 States. Floors, in the same run: three lines
appended and fsynced in a worker thread twice a turn, as a barrier before the request and one before the tool demand;
for loading, orjson alone.
Law: bytes per turn don't grow with the run, and 200 results at once cost 3 fsyncs at most.

    python benchmarks/bench_stores.py [--stores files,sqlite,sqlite-normal,postgres] [--dsn postgresql://...]

The disk of a shared machine is fast for minutes and then slow: count fsyncs and CPU, not wall time. Without ``--dsn``
a private PostgreSQL is started, where the server is installed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import orjson
import ours
import trio
from bare_trio import saved
from machine import FLAT, describe, ratio

from alpineagents import PostgresStore, State, Store
from alpineagents.stores import FileStore

ROOT: Final = Path(__file__).parents[1]
TURNS: Final = 100
ROUNDS: Final = 5
LENGTHS: Final = (100, 1_000, 3_000)
LOADED: Final = 10_000
LISTED: Final = 10_000
STORES: Final = ("files", "sqlite", "sqlite-normal", "postgres")


def made(name: str, folder: Path, dsn: str | None) -> Store:
    """Return a store of this name."""
    if name == "files":
        return FileStore(folder / "files")
    if name == "postgres":
        assert dsn is not None
        return PostgresStore(dsn)
    from alpineagents.stores import SQLiteStore

    return SQLiteStore(folder / f"{name}.db", synchronous="NORMAL" if name.endswith("normal") else "FULL")


async def closing(store: Store, work: Callable[[Store], Any]) -> Any:
    """Await *work* on a store and close it."""
    async with store:
        return await work(store)


def turns(n: int, calls: int = 1) -> Callable[[Store], Any]:
    """Return what runs an agent for *n* turns, saved."""

    async def work(store: Store) -> State:
        state = ours.conversation()
        await ours.agent(ours.Counting(n, calls, tool="slow" if calls > 1 else "add")).copy(store=store).run(state)
        return state

    return work


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return wall and CPU seconds of *work*."""
    wall, cpu = perf_counter(), process_time()
    work()
    return perf_counter() - wall, process_time() - cpu


def bytes_in(folder: Path) -> int:
    """Return how many bytes the files in *folder* have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def stored_bytes(name: str, n: int, dsn: str | None) -> float:
    """Return bytes per turn of a run of *n* turns, on disk once the store is closed."""
    with folder_for() as folder:
        empty = 0
        if name != "files":
            trio.run(closing, made(name, folder, dsn), lambda store: store.infos())
            empty = database_size(folder, dsn) if name == "postgres" else bytes_in(folder)
        trio.run(closing, made(name, folder, dsn), turns(n))
        full = database_size(folder, dsn) if name == "postgres" else bytes_in(folder)
        return (full - empty) / n


def database_size(folder: Path, dsn: str | None) -> int:
    """Return the bytes of a database, its dead rows swept."""
    import psycopg

    assert dsn is not None
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM FULL")
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


def wal_syncs(dsn: str | None) -> int:
    """Return how often the server has synced its log so far, by its own count (pg_stat_wal, PostgreSQL 14 to 17)."""
    import psycopg

    assert dsn is not None
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT wal_sync FROM pg_stat_wal").fetchone()
        assert row is not None
        return int(row[0])


def fsyncs(name: str, dsn: str | None, cases: Sequence[tuple[int, int]]) -> float | None:
    """Return how many fsyncs more one run takes than another, each under strace; None without it.

    *cases* are the turns of each, and the calls of a turn.
    """
    if name == "postgres":
        with folder_for() as folder:
            counts = []
            for n, calls in cases:
                before = wal_syncs(dsn)
                trio.run(closing, made(name, folder, dsn), turns(n, calls))
                counts.append(wal_syncs(dsn) - before)
            return counts[1] - counts[0]
    if shutil.which("strace") is None:
        return None
    with folder_for() as folder:
        counts = []
        for n, calls in cases:
            log, place = folder / f"strace{n}-{calls}", folder / f"{n}-{calls}"
            command = [sys.executable, __file__, "--child", name, str(place), str(n), str(calls)]
            strace = ["strace", "-f", "-c", "-o", str(log), "-e", "trace=fsync,fdatasync,sync_file_range,msync"]
            subprocess.run([*strace, *command], check=True)
            rows = [line.split() for line in log.read_text().splitlines()]
            counts.append(sum(int(row[3]) for row in rows if row and row[-1] in ("fsync", "fdatasync")))
        return counts[1] - counts[0]


def child(name: str, folder: str, n: int, calls: int) -> None:
    """Run under strace."""
    Path(folder).mkdir()
    trio.run(closing, made(name, Path(folder), None), turns(n, calls))


@contextmanager
def folder_for() -> Iterator[Path]:
    """Yield a folder beside the checkout: what /tmp is made of may be no disk."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        yield Path(folder)


def loading(name: str, folder: Path, dsn: str | None) -> tuple[float, float]:
    """Return ms to load LOADED entries, and that / orjson alone on the same bytes."""
    saved = trio.run(closing, made(name, folder, dsn), turns(LOADED // 3))
    raws = [bytes(raw) for raw in trio.run(closing, made(name, folder, dsn), lambda store: store.read(saved.id))]
    seconds, alone = [], []
    for _ in range(ROUNDS):
        alone.append(timed(lambda: [orjson.loads(raw) for raw in raws])[0])
        seconds.append(timed(lambda: trio.run(closing, made(name, folder, dsn), lambda store: store.load(saved.id)))[0])
    return median(seconds) * LOADED / len(raws) * 1e3, ratio(seconds, alone)


def listing(name: str, folder: Path, dsn: str | None) -> float:
    """Return ms to list LISTED States."""

    async def fill(store: Store) -> None:
        info = {"format": 1, "created_at": "2026-12-01T21:49:20.098825Z", "first_message": "Find the bug", "turn": 3}
        entry = b'{"format":1,"kind":"user","seq":0,"turn":0,"at":"2026-12-01T21:49:20.098825Z","content":{}}'
        limit = trio.CapacityLimiter(20)

        async def one(number: int) -> None:
            async with limit:
                await store.append(f"s{number}", 0, [entry], json.dumps({"id": f"s{number}", **info}).encode())

        async with trio.open_nursery() as nursery:
            for number in range(LISTED):
                nursery.start_soon(one, number)

    store = FileStore(folder / "files", fsync=False) if name == "files" else made(name, folder, dsn)
    trio.run(closing, store, fill)
    return (
        min(timed(lambda: trio.run(closing, made(name, folder, dsn), lambda store: store.list()))[0] for _ in range(3))
        * 1e3
    )


def measure(name: str, dsn: str | None) -> dict[str, Any]:
    """Return all figures of a store."""
    walls, cpus, floor_walls, floor_cpus = [], [], [], []
    with folder_for() as folder:
        for _ in range(ROUNDS):
            wall, cpu = timed(lambda: trio.run(saved, TURNS, folder / "floor"))
            floor_walls.append(wall)
            floor_cpus.append(cpu)
            wall, cpu = timed(lambda: trio.run(closing, made(name, folder, dsn), turns(TURNS)))
            walls.append(wall)
            cpus.append(cpu)
        load_ms, load_ratio = loading(name, folder, dsn)
        list_ms = listing(name, folder, dsn)
    per_turn = fsyncs(name, dsn, [(1, 1), (TURNS + 1, 1)])
    at_once = fsyncs(name, dsn, [(1, 1), (1, 200)])
    return {
        "wall us/turn": median(walls) / TURNS * 1e6,
        "CPU us/turn": median(cpus) / TURNS * 1e6,
        "wall / floor": ratio(walls, floor_walls),
        "CPU / floor": ratio(cpus, floor_cpus),
        "fsyncs/turn": None if per_turn is None else per_turn / TURNS,
        "fsyncs, 200 results": None if at_once is None else at_once + 1,
        **{f"bytes/turn, {n:,}": stored_bytes(name, n, dsn) for n in LENGTHS},
        f"load {LOADED:,} (ms)": load_ms,
        "load / orjson": load_ratio,
        f"list {LISTED:,} (ms)": list_ms,
    }


@contextmanager
def postgres(dsn: str | None) -> Iterator[str | None]:
    """Yield the address of a server: the one given, a private one, or None where there is none."""
    if dsn is not None:
        yield dsn
        return
    if not (shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        print("without PostgreSQL: its server isn't installed")
        yield None
        return
    sys.path.insert(0, str(ROOT))
    from tests.stores import postgres as server

    server.SETTINGS = server.SETTINGS.replace("fsync=off", "fsync=on")
    cluster = server.Cluster()
    try:
        cluster.start()
        yield cluster.dsn()
    finally:
        cluster.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--dsn")
    args = parser.parse_args()
    print(describe())
    names = args.stores.split(",")
    with postgres(args.dsn) if "postgres" in names else contextmanager(lambda: iter([None]))() as dsn:
        figures = {name: measure(name, dsn) for name in names if name != "postgres" or dsn}
    print(f"{'':22}" + "".join(f"{name:>15}" for name in figures))
    for key in next(iter(figures.values())):
        cells = [values[key] for values in figures.values()]
        print(f"{key:22}" + "".join(f"{'-' if cell is None else f'{cell:.2f}':>15}" for cell in cells))
    for name, values in figures.items():
        lengths = [values[f"bytes/turn, {n:,}"] for n in LENGTHS]
        assert max(lengths[1:]) <= FLAT * min(lengths[1:]), f"{name}: a long run takes more bytes per turn"
        at_once = values["fsyncs, 200 results"]
        assert at_once is None or at_once <= 3, f"{name}: 200 results at once cost {at_once} fsyncs"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
