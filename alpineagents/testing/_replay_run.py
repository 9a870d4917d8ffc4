"""replay_run: a saved State, run again against today's code. Nothing is called: what was recorded answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, final

import attrs
import trio

from .._hooks import may_connect, witness
from ..record._entries import Entry, RunStartEntry
from ..run import Agent
from ..run._groups import leaves
from ..run._inherit import standing_in
from ..run._loops import Loop
from ..run._run import run
from ..state import State, current_calls, error_text
from ..state._show import describe
from ._replaying._difference import Difference
from ._replaying._fits import goes_on
from ._replaying._judging import judged
from ._replaying._record import Record
from ._replaying._stand_ins import StandIns

_IGNORABLE: Final = ("system", "tools")
_GUESSES: Final = 8
"""How many more ways are tried at one place."""


@final
@attrs.frozen(kw_only=True)
class Replay:
    """What ``replay_run`` found. ``str()`` of it says it to a person: ``assert not replay.differs, str(replay)``."""

    state_id: str
    """Whose history it is."""
    difference: Difference | None = None
    """The first difference; ``None`` where there is none."""
    runs: int = 0
    """How many of its runs were replayed."""
    entries: int = 0
    """How many entries are the same."""
    given: tuple[Entry, ...] = ()
    """What came from beside a run and isn't made by it, such as messages: put in where it came then."""

    @property
    def differs(self) -> bool:
        """Whether today's code does something else."""
        return self.difference is not None

    def __str__(self) -> str:
        runs = f"{self.runs} {'run' if self.runs == 1 else 'runs'}"
        if self.difference is not None:
            return f"State {self.state_id} differs at {self.difference}"
        lines = [f"State {self.state_id}: the same, {self.entries} entries in {runs}"]
        if self.given:
            lines.append("put in, as it came from beside the run:")
            lines += [f"    [turn {entry.turn}] {entry.kind} {describe(entry)}" for entry in self.given]
        return "\n".join(lines)


async def replay_run(state: State, agent: Agent, *, ignore: Collection[Literal["system", "tools"]] = ()) -> Replay:
    """Run a saved State again with *agent*, as it is today, and return the first difference.

    The loop, the stop rules, the permissions and the schemas are today's. Replies, results, answers and what came from
    outside are the record's: no model, no tool, no person, no store and no Reporter is called, and *state* stays as
    it is. Runs of Agents of another name are taken as they were.

    Compared is what a history tells: system prompt (by its hash) and names of the tools, which tools a request shows,
    messages and other changes that the code makes, arguments by today's schemas, results, questions, errors, stops.
    The model's name isn't, nor is what tokens and calls cost.

    Args:
        state: A State that isn't running, such as one that ``store.load`` returns.
        agent: The Agent that ran it, in today's form. Its model isn't asked, and needs no key.
        ignore: ``"system"``: another system prompt is no difference. ``"tools"``: nor are tools added or removed; one
            that is gone and was called still is.

    Checkpoint: yes. The loop's own code runs, several times where that finds out when a message came; what it does
    beside *state*, it does again. What it waits for itself, it waits for again.

    Raises:
        TypeError: no State, or no Agent.
        ValueError: *state* is running, or no run of it is of an Agent of this name; *ignore* holds another word.

    Example:
        >>> from alpineagents import Agent, State, Message
        >>> from alpineagents.testing import FakeModel
        >>> agent = Agent(model=FakeModel(["Hello."]))
        >>> state = State(messages=[Message.user("hi")])
        >>> agent.run_sync(state)
        'Hello.'
        >>> print(trio.run(replay_run, state, agent))
        State ...: the same, 5 entries in 1 run
    """
    _check(state, agent, ignore)
    attempt = await _replayed(state, agent, ignore, frozenset())
    better: _Attempt | None = attempt
    while better is not None:
        attempt, better = better, None
        for early in attempt.other_guesses():
            other = await _replayed(state, agent, ignore, early)
            if other.position > attempt.position or not other.replay.differs:
                better = other
                break
    return attempt.replay


@final
@attrs.frozen
class _Attempt:
    """One way through the history."""

    replay: Replay
    position: int
    """How far it came."""
    early: frozenset[int]
    """Positions of what was put in as soon as the entry before it was there."""
    late: Sequence[int]
    """Positions of what was put in when the code was about to do something else, or waited."""

    def other_guesses(self) -> list[frozenset[int]]:
        """Return what else may have come early: of what came late last, all in a row, or the first of them."""
        if not self.replay.differs:
            return []
        block: list[int] = []
        for place in sorted({place for place in self.late if place < self.position}, reverse=True):
            if block and place != block[-1] - 1:
                break
            block.append(place)
        block.reverse()
        return [self.early.union(block[:length]) for length in range(len(block), max(len(block) - _GUESSES, 0), -1)]


def _check(state: object, agent: object, ignore: Collection[str]) -> None:
    if not isinstance(state, State):
        raise TypeError(
            f"replay_run takes a State, not {type(state).__name__}: await replay_run(await store.load(id), agent)"
        )
    if not isinstance(agent, Agent):
        raise TypeError(f"replay_run takes an Agent, not {type(agent).__name__}: await replay_run(state, agent)")
    for word in ignore if not isinstance(ignore, str) else [ignore]:
        if word not in _IGNORABLE:
            raise ValueError(
                f"ignore takes {' and '.join(map(repr, _IGNORABLE))}, not {word!r:.80}: ignore={{'system'}}"
            )
    if state.running:
        raise ValueError(f"State {state.id} is in a run; replay it when that has ended")
    names = {entry.content.name for entry in state.history if isinstance(entry, RunStartEntry)}
    if agent.name not in names:
        told = ", ".join(sorted([repr(name) for name in names])) or "nobody"
        raise ValueError(
            f"State {state.id} has no run of an Agent named {agent.name!r} (its runs are of {told});"
            " replay it with the Agent that ran it"
        )


async def _replayed(state: State, agent: Agent, ignore: Collection[str], early: frozenset[int]) -> _Attempt:
    """Go through the history once."""
    record = Record(state, judged, ignore, early)
    history = record.entries
    record.leaves_a_stop = isinstance(agent.loop, Loop)
    stand_ins = StandIns(record, has_human_above=state.parent_id is not None)
    runs = 0
    starts = [entry.seq for entry in history if isinstance(entry, RunStartEntry)]
    with _by_itself(stand_ins):
        for start, end in zip(starts, [*starts[1:], len(history)], strict=True):
            _put_in_up_to(record, start)
            entry = history[start]
            if isinstance(entry, RunStartEntry) and entry.content.name == agent.name:
                runs += 1
                await _run_again(record, agent, end)
            if record.difference is not None:
                break
            _put_in_up_to(record, end)
    same = record.position if record.difference is None else record.difference.seq
    replay = Replay(state_id=state.id, difference=record.difference, runs=runs, entries=same, given=tuple(record.given))
    return _Attempt(replay, record.position, early, record.late)


@contextmanager
def _by_itself(stand_ins: StandIns) -> Iterator[None]:
    """Let nothing of what is around get into what runs here, nor this out."""
    tokens = standing_in.set(stand_ins), current_calls.set(()), may_connect.set(_refuse), witness.set(None)
    try:
        yield
    finally:
        standing_in.reset(tokens[0])
        current_calls.reset(tokens[1])
        may_connect.reset(tokens[2])
        witness.reset(tokens[3])


def _refuse(host: str, endpoint: str) -> None:
    raise RuntimeError(
        f"replay_run calls nothing, and the loop asks {endpoint} about another State than the one that is replayed;"
        " give that Agent a FakeModel, or a model of record_model"
    )


def _put_in_up_to(record: Record, end: int) -> None:
    record.begin_run(end)
    while record.position < end:
        record.put_in()


async def _run_again(record: Record, agent: Agent, end: int) -> None:
    """Replay one run."""
    start = record.position
    record.begin_run(end)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(record.keep_going)
            with record.scope:
                await run(agent._setup, record.state)
            nursery.cancel_scope.cancel()
    except BaseException as error:
        if any(isinstance(leaf, trio.Cancelled) for leaf in leaves(error)):
            await trio.lowlevel.checkpoint()  # raises Cancelled alone
            raise
        failure = next(leaves(error))
    await trio.lowlevel.checkpoint()
    if record.interrupt is not None:
        raise record.interrupt
    if not record.is_over:
        _check_end(record, start, failure)


def _check_end(record: Record, start: int, failure: BaseException | None) -> None:
    """Compare how the run ended, where no entry told of it."""
    position = record.position
    if position == start and failure is not None:
        record.differ(start, None, f"no run starts: {error_text(failure)}")
    elif record.state.stopped is None and failure is None and goes_on(record.entries[position : record.end]):
        record.differ(position, None)
