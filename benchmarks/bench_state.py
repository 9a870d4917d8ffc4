"""W8: does what a State does grow with its history?

Commit (``add_message``), property read and snapshot, in ns; replay, in µs per entry decoded from bytes; memory, in
bytes per entry. Sizes: histories of 10 to 100,000 entries, best of n, CPU time, garbage collection off and on. Floors:
for a commit the least that it could be (an attrs entry with the time, appended under a lock), for replay orjson and
cattrs on the outermost class alone, for memory the entries' JSON. Law: with gc off all four times are flat within 1.3x.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from time import process_time_ns
from typing import Any

import attrs
import cattrs
import orjson
import ours
import trio
from machine import FLAT, collecting, describe, growth, ratio

from alpineagents import Message, State
from alpineagents.record._codec import decode_history, encode_entry

SIZES = (10, 1_000, 15_000, 100_000)
GC_SIZES = SIZES[:3]
"""Where garbage collection is on, a list of everything costs more and more: growth is told up to here."""
ROUNDS, MOST_ROUNDS = 3, 6
"""More than ROUNDS only while the law seems broken: on a busy machine the best of 3 may not be."""
MESSAGE = Message.user("Find the bug in main.py")
READS = ("turn", "answer", "usage", "messages", "history", "pending_calls", "stopped", "extra_data")

Costs = dict[tuple[str, int, bool], list[float]]


@attrs.frozen
class Note:
    seq: int
    turn: int
    at: datetime
    content: Message


@attrs.frozen
class Outline:
    kind: str
    seq: int
    turn: int
    at: str
    content: Any


class Log:
    """The floor of a State."""

    def __init__(self, notes: list[Note]) -> None:
        self.notes, self.lock = list(notes), threading.RLock()

    def add(self, message: Message) -> None:
        with self.lock:
            self.notes.append(Note(len(self.notes), 0, datetime.now(UTC), message))


def messages(n: int) -> State:
    """Return a State of *n* entries."""
    state = State()
    for _ in range(n):
        state.add_message(MESSAGE)
    return state


def worked(n: int) -> list[bytes]:
    """Return the *n* entries of an agent's work, as JSON."""
    return [encode_entry(entry) for entry in work_live(n).history[:n]]


def per(operations: int, work: Callable[[], object], scale: int = 1) -> float:
    """Return what one of the *operations* of *work* costs."""
    start = process_time_ns()
    work()
    return (process_time_ns() - start) / operations / scale


def commit(make: Callable[[], Callable[[Message], object]], n: int) -> float:
    """Return ns per commit behind *n* entries: a tenth of them more, on as many copies as make 10,000 commits."""
    more = max(10, n // 10)
    copies = [make() for _ in range(10_000 // more)]

    def work() -> None:
        for add in copies:
            for _ in range(more):
                add(MESSAGE)

    return per(10_000, work)


def reads(state: State) -> None:
    for _ in range(2_000):
        for name in READS:
            getattr(state, name)


def snapshots(state: State) -> None:
    for _ in range(10_000):
        state.snapshot()


def repeated(n: int, work: Callable[[], object]) -> None:
    """Do *work*, on *n* entries, for 1,000 entries at least."""
    for _ in range(max(1, 1_000 // n)):
        work()


def codec_floor() -> Callable[[list[bytes]], list[Any]]:
    """Return what only decodes: JSON with orjson, and the outermost class with cattrs."""
    structure = cattrs.Converter(detailed_validation=False).get_structure_hook(Outline)
    return lambda raws: [structure(orjson.loads(raw), Outline) for raw in raws]


def measure(n: int, state: State, raws: list[bytes]) -> dict[str, float]:
    """Return each cost at *n* entries, floors right before."""
    notes = [Note(0, 0, datetime.now(UTC), MESSAGE)] * n
    decode = codec_floor()
    total = max(1, 1_000 // n) * n
    return {
        "commit, floor (ns)": commit(lambda: Log(notes).add, n),
        "commit (ns)": commit(lambda: state.fork().add_message, n),
        "property read (ns)": per(2_000 * len(READS), lambda: reads(state)),
        "snapshot (ns)": per(10_000, lambda: snapshots(state)),
        "replay, floor (µs)": per(total, lambda: repeated(n, lambda: decode(raws)), 1_000),
        "replay (µs)": per(total, lambda: repeated(n, lambda: State(history=decode_history(raws))), 1_000),
    }


def traced(make: Callable[[], object]) -> int:
    """Return the bytes that what *make* makes takes."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = make()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del made
    return after - before


def print_memory() -> None:
    n = 10_000
    raws = worked(n)
    state = State(history=decode_history(raws))
    print(f"\nbytes per entry in memory, {n:,} entries")
    print(f"{'messages of one text, added':36}{traced(lambda: messages(n)) / n:>8.0f}")
    print(f"{'an agent at work, live':36}{traced(lambda: work_live(n)) / n:>8.0f}")
    print(f"{'the same, loaded':36}{traced(lambda: State(history=decode_history(raws))) / n:>8.0f}")
    print(f"{'its JSON':36}{sum(map(len, raws)) / n:>8.0f}")
    print(f"{'a snapshot':36}{traced(lambda: [state.snapshot() for _ in range(n)]) / n:>8.0f}")


def work_live(n: int) -> State:
    """Return a State whose run has made *n* entries."""
    state = ours.conversation()
    trio.run(ours.agent(ours.Counting(n // 3 + 1)).run, state)
    return state


def growth_of(costs: Costs, name: str, gc_on: bool) -> float:
    return growth(list(zip(*[costs[name, n, gc_on] for n in (GC_SIZES if gc_on else SIZES)], strict=True)))


def law_holds(costs: Costs) -> bool:
    return all(growth_of(costs, name, gc_on=False) <= FLAT for name, _, _ in costs if "floor" not in name)


def main() -> None:
    print(describe())
    with collecting(False):
        histories = {n: (messages(n), worked(n)) for n in SIZES}
    costs: Costs = {}
    for rounds in range(MOST_ROUNDS):
        if rounds >= ROUNDS and law_holds(costs):
            break
        for n, (state, raws) in histories.items():
            for gc_on in (False, True):
                with collecting(gc_on):
                    for name, cost in measure(n, state, raws).items():
                        costs.setdefault((name, n, gc_on), []).append(cost)
    names = list(dict.fromkeys(name for name, _, _ in costs))
    print(f"{'':20}{'gc':>4}" + "".join(f"{n:>10,}" for n in SIZES) + " entries    growth")
    for name in names:
        for gc_on in (False, True):
            values = "".join(f"{min(costs[name, n, gc_on]):>10.1f}" for n in SIZES)
            print(f"{name:20}{'on' if gc_on else 'off':>4}{values}{growth_of(costs, name, gc_on):>16.2f}x")
    for name in ("commit", "replay"):
        unit = "(ns)" if name == "commit" else "(µs)"
        ratios = [ratio(costs[f"{name} {unit}", n, False], costs[f"{name}, floor {unit}", n, False]) for n in SIZES]
        print(f"{name} / its floor, gc off: {', '.join(f'{value:.1f}' for value in ratios)}")
    print_memory()
    assert law_holds(costs), "something a State does costs more with a long history"


if __name__ == "__main__":
    main()
