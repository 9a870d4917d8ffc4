"""Does the service keep what it says? Many conversations at once, while it is stopped and killed.

    python -m examples.service.load_test                                  500 conversations, SQLite in a new folder
    python -m examples.service.load_test --store postgresql://host/db     the same on a server
    python -m examples.service.load_test --store postgres                 on one that is started for it, as by the tests

The service is a process of its own. It gets SIGTERM twice and SIGKILL once, each time when so many messages are
acknowledged, and is started again. Clients send again what they have no answer to, with the same Idempotency-Key; some
hang up without waiting for the answer. Event streams are cut again and again. At the end every history is read twice,
over HTTP and from the store, and each acknowledged message must be there exactly once, and answered.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import attrs
import httpx
import trio

from alpineagents import MessageEntry, State, Store
from alpineagents.stores import open_store

from .client import GONE, open_events

ROOT: Final = Path(__file__).parents[2]
STOPS: Final = ((0.25, signal.SIGTERM), (0.5, signal.SIGKILL), (0.75, signal.SIGTERM))
"""When so much of the messages is acknowledged, the service gets that signal."""
MOST_STOP_SECONDS: Final = 10.0
MOST_SECONDS: Final = 600.0
"""After so long the test gives up."""
TIMEOUT: Final = httpx.Timeout(60.0)


@attrs.frozen
class Load:
    """How much."""

    conversations: int = 500
    messages: int = 4
    """In each conversation."""
    streams: int = 50
    """Event streams, each of another conversation."""
    pause: float = 12.0
    """Seconds that a client waits after a message, on average."""
    word: float = 0.02
    """Seconds that the model takes for a word."""


@attrs.define
class Tally:
    """What has happened."""

    acknowledged: dict[str, list[tuple[str, int]]] = attrs.field(factory=dict)
    """By conversation: text and seq of each message."""
    latencies: list[float] = attrs.field(factory=list)
    """Seconds from sending a message to its acknowledgement, of tries that got one."""
    appends: list[float] = attrs.field(factory=list)
    """Seconds that the store took to append one entry, meanwhile."""
    again: int = 0
    """Messages sent again."""
    connections: int = 0
    """Of event streams, which are cut again and again."""
    stops: list[str] = attrs.field(factory=list)
    """How the service was stopped, and how long that took."""
    approvals: int = 0
    faults: list[str] = attrs.field(factory=list)
    changed: trio.Event = attrs.field(factory=trio.Event)

    def acknowledge(self, conversation: str, text: str, seq: int) -> None:
        """Note an acknowledged message."""
        self.acknowledged.setdefault(conversation, []).append((text, seq))
        self.changed.set()
        self.changed = trio.Event()

    @property
    def count(self) -> int:
        """How many messages are acknowledged."""
        return sum(map(len, self.acknowledged.values()))


class Server:
    """The service's process."""

    def __init__(self, store: str, word: float, log: Path) -> None:
        port = free_port()  # the same after each start: clients come back to it
        self.address = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "examples.service", "--port", str(port), "--store", store]
        self._command += ["--fake-delay", str(word)]
        self._log = log
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = await trio.lowlevel.open_process(self._command, cwd=ROOT, stdout=log, stderr=log)

    async def stop(self, how: signal.Signals) -> str:
        """Send a signal and wait for the end; return a line about it, with a word for what was wrong."""
        assert self._process is not None
        before = trio.current_time()
        self._process.send_signal(how)
        await self._process.wait()
        code = self._process.returncode
        seconds = trio.current_time() - before
        right = code == 0 and seconds < MOST_STOP_SECONDS if how == signal.SIGTERM else code == -signal.SIGKILL
        return f"{how.name} {seconds:.1f} s, exit code {code}{'' if right else ' WRONG'}"


def free_port() -> int:
    """Return a port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


# Clients


async def send(client: httpx.AsyncClient, tally: Tally, path: str, body: dict[str, str], key: str) -> dict[str, Any]:
    """Post until it is acknowledged, as a client does that wants it there once."""
    hangs_up = random.random() < 0.05
    while True:
        before = trio.current_time()
        with suppress(httpx.TransportError), trio.move_on_after(0.02 if hangs_up else 60.0):
            answer = await client.post(path, json=body, headers={"Idempotency-Key": key})
            if answer.status_code == 202:
                tally.latencies.append(trio.current_time() - before)
                return answer.json()  # type: ignore[no-any-return]  # httpx knows no better
            if answer.status_code != 503:
                raise AssertionError(f"{path}: {answer.status_code} {answer.text}")
        tally.again += 1
        hangs_up = False
        await trio.sleep(random.uniform(0.2, 1.0))


async def converse(client: httpx.AsyncClient, tally: Tally, load: Load, name: str) -> None:
    """Be a client that has one conversation."""
    await trio.sleep(random.uniform(0, 2 * load.pause))
    for number in range(load.messages):
        await trio.sleep(random.uniform(0, 2 * load.pause) if number else 0)
        text = f"message {number} of {name}"
        if number == 0 and name.endswith("0"):
            text += ": please refund order 7" if name.endswith("00") else ": where is order 8?"
        path, body = f"/conversations/{name}/messages", {"message": text}
        if number == 0:
            path, body = "/conversations", {"id": name, "message": text}
        got = await send(client, tally, path, body, f"{name}.{number}")
        tally.acknowledge(name, text, got["seq"])


@attrs.define
class Follower:
    """A client that follows one conversation, and is cut off again and again."""

    name: str
    seen: list[int] = attrs.field(factory=list)
    wanted: int | None = None
    """How many entries there are in the end; None: not known yet."""

    @property
    def is_done(self) -> bool:
        """Whether it has seen everything."""
        return self.wanted is not None and len(self.seen) >= self.wanted

    async def follow(self, address: str, tally: Tally) -> None:
        """Follow it to its end."""
        while not self.is_done:
            with suppress(*GONE), trio.move_on_after(random.uniform(1.0, 6.0)):
                await self._listen(address, tally)
            await trio.sleep(random.uniform(0.05, 0.3))

    async def _listen(self, address: str, tally: Tally) -> None:
        async with open_events(address, self.name, self.seen[-1] if self.seen else None) as events:
            if events.status in (404, 503):  # not begun yet; or about to stop
                return
            assert events.status == 200, events.status
            tally.connections += 1
            while not self.is_done and (event := await events.next()) is not None:
                if event.id is not None:
                    self.seen.append(event.id)


# Around it


async def disturb(server: Server, tally: Tally, messages: int) -> None:
    """Stop the service and start it again, each time when it has done so much."""
    for part, how in STOPS:
        while tally.count < part * messages:
            await tally.changed.wait()
        tally.stops.append(await server.stop(how))
        await server.start()


async def measure(store: Store, tally: Tally) -> None:
    """Append an entry now and then, beside what the service writes."""
    state = State(extra_data={"n": 0})
    await store.save(state)
    (raw,) = await store.read(state.id)
    info = json.dumps({"id": state.id, "created_at": json.loads(raw)["at"]}).encode()
    for seq in range(1, 10**6):
        await trio.sleep(0.2)
        entry = json.dumps(json.loads(raw) | {"seq": seq}).encode()
        before = trio.current_time()
        await store.append(state.id, seq, [entry], info)
        tally.appends.append(trio.current_time() - before)


async def history(client: httpx.AsyncClient, name: str) -> list[dict[str, Any]]:
    """Read a history over HTTP."""
    entries: list[dict[str, Any]] = []
    after = 0
    while True:
        answer = await client.get(f"/conversations/{name}/history", params={"after": after, "limit": 100})
        assert answer.status_code == 200, (name, answer.status_code, answer.text)
        page = answer.json()
        entries += page["entries"]
        if page["next_after"] is None:
            return entries
        after = page["next_after"]


def is_answered(entries: list[dict[str, Any]]) -> bool:
    """Whether the model has said something to the last message."""
    last = max([entry["seq"] for entry in entries if entry["kind"] in ("user", "notice")])
    return any(entry["kind"] == "model_reply" and not entry["calls"] for entry in entries[last:]) and (
        entries[-1]["kind"] == "stop"
    )


async def answered(client: httpx.AsyncClient, names: list[str], tally: Tally) -> dict[str, list[dict[str, Any]]]:
    """Allow what is asked, wait until all is answered, and return the histories; faults for those that aren't."""
    questions = (await client.get("/approvals")).json()["approvals"]
    for question in questions:
        assert (await client.post(question["answer_at"], json={"answer": "yes"})).status_code == 200
    tally.approvals = len(questions)
    found: dict[str, list[dict[str, Any]]] = {}
    missing = names
    with trio.move_on_after(60):
        while missing := [name for name in names if name not in found or not is_answered(found[name])]:
            for name in missing:
                found[name] = await history(client, name)
            await trio.sleep(0.2)
    tally.faults += [f"{name}: not answered" for name in missing]
    return found


def compare(tally: Tally, name: str, texts: dict[int, str], where: str) -> tuple[int, int]:
    """Return how many acknowledged messages are lost, and how many are doubled, in a history's texts by seq."""
    times = Counter(texts.values())
    acknowledged = tally.acknowledged.get(name, [])
    lost = [text for text, seq in acknowledged if texts.get(seq) != text]
    doubled = [text for text, number in times.items() if number > 1]
    tally.faults += [f"{where}: lost: {text}" for text in lost] + [f"{where}: doubled: {text}" for text in doubled]
    return len(lost), len(doubled)


async def main(load: Load, where: str, log: Path) -> bool:
    """Run the test in a bounded time."""
    with trio.fail_after(MOST_SECONDS):
        return await run(load, where, log)


async def run(load: Load, where: str, log: Path) -> bool:
    """Put the load on a service over the store *where*, print what came of it, and return whether all was kept."""
    tally = Tally()
    server = Server(where, load.word, log)
    run_id = State().id[-6:]
    names = [f"load-{run_id}-{number:04}" for number in range(load.conversations)]
    followers = [Follower(name) for name in names[:: max(1, load.conversations // load.streams)][: load.streams]]
    began = trio.current_time()
    last = ""
    await server.start()
    try:
        async with open_store(where) as store, clients(server.address, 1 + load.conversations // 25) as each:
            async with trio.open_nursery() as watching:
                watching.start_soon(measure, store, tally)
                async with trio.open_nursery() as following:
                    for follower in followers:
                        following.start_soon(follower.follow, server.address, tally)
                    async with trio.open_nursery() as talking:
                        talking.start_soon(disturb, server, tally, load.conversations * load.messages)
                        for number, name in enumerate(names):
                            talking.start_soon(converse, each[number % len(each)], tally, load, name)
                    histories = await answered(each[0], names, tally)
                    for follower in followers:
                        follower.wanted = len(histories[follower.name])
                watching.cancel_scope.cancel()
            lost, doubled = await checked(tally, store, histories, followers)
    finally:
        with trio.CancelScope(shield=True):
            last = await server.stop(signal.SIGTERM)
    tally.stops.append(last)
    report(tally, load, lost, doubled, trio.current_time() - began)
    tally.faults += [f"stop: {line}" for line in tally.stops if "WRONG" in line]
    for fault in tally.faults[:20]:
        print(f"FAULT {fault}")
    return not tally.faults


@asynccontextmanager
async def clients(address: str, count: int) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Yield HTTP clients; several, since one is slow with very many connections."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=10)
    made = [httpx.AsyncClient(base_url=address, timeout=TIMEOUT, limits=limits, trust_env=False) for _ in range(count)]
    try:
        yield made
    finally:
        for client in made:
            await client.aclose()


async def checked(
    tally: Tally, store: Store, histories: dict[str, list[dict[str, Any]]], followers: list[Follower]
) -> tuple[int, int]:
    """Look at everything; return how many messages are lost and doubled, over HTTP or in the store."""
    lost = doubled = 0
    for name, entries in histories.items():
        over_http = {entry["seq"]: entry["text"] for entry in entries if entry["kind"] == "user"}
        saved = (await store.load(name)).history
        in_store = {each.seq: each.content.text for each in saved if isinstance(each, MessageEntry)}
        in_store = {seq: text for seq, text in in_store.items() if not text.startswith("[notice]")}
        for texts, where in ((over_http, "HTTP"), (in_store, "store")):
            of_this = compare(tally, name, texts, where)
            lost, doubled = lost + of_this[0], doubled + of_this[1]
    for follower in followers:
        if follower.seen != list(range(len(histories[follower.name]))):
            tally.faults.append(f"stream of {follower.name}: {follower.seen}")
    return lost, doubled


def report(tally: Tally, load: Load, lost: int, doubled: int, seconds: float) -> None:
    """Print what came of it."""
    percent = statistics.quantiles(tally.latencies, n=100)
    append = statistics.median(tally.appends)
    unanswered = sum([fault.endswith("not answered") for fault in tally.faults])
    rows = [
        ("conversations", f"{load.conversations}, not answered {unanswered}"),
        ("messages acknowledged", f"{tally.count}, lost {lost}, doubled {doubled}"),
        ("acknowledging a message", f"p50 {1000 * percent[49]:.1f} ms, p99 {1000 * percent[98]:.1f} ms"),
        ("the store's append of one entry", f"p50 {1000 * append:.1f} ms, meanwhile"),
        ("so a message costs", f"p50 {percent[49] / append:.1f}, p99 {percent[98] / append:.1f} appends"),
        ("sent again", f"{tally.again}"),
        ("event streams", f"{load.streams}, taken up {tally.connections} times"),
        ("approvals", f"{tally.approvals}"),
        ("stopped", "; ".join(tally.stops)),
        ("seconds", f"{seconds:.0f}"),
    ]
    for name, value in rows:
        print(f"{name:>32}  {value}", flush=True)


@contextmanager
def chosen_store(where: str | None) -> Iterator[str]:
    """Yield the name of the store to use."""
    if where == "postgres":
        sys.path.insert(0, str(ROOT))
        cluster = import_module("tests.stores.postgres").Cluster()
        try:
            cluster.start()
            yield f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres"
        finally:
            cluster.remove()
    elif where is None:
        with tempfile.TemporaryDirectory() as folder:
            yield f"{folder}/conversations.db"
    else:
        yield where


def parsed() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", help="where conversations are saved (default: SQLite, in a new folder)")
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "load_test.log", help="the service's")
    for field in attrs.fields(Load):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    return parser.parse_args()


if __name__ == "__main__":
    args = parsed()
    chosen = Load(**{field.name: getattr(args, field.name) for field in attrs.fields(Load)})
    with chosen_store(args.store) as name:
        sys.exit(0 if trio.run(main, chosen, name, args.log) else 1)
