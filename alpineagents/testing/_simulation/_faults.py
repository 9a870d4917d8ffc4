"""What can go wrong in a simulation, and when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, TypeVar, final

import attrs

from ..._errors import (
    BrokenStreamError,
    CutOffError,
    OutputError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    StoreError,
    UnreachableError,
)

E = TypeVar("E", bound=Exception)


class FaultKind(StrEnum):
    """What can go wrong in a simulation."""

    MODEL_FAILS = "model fails"
    """A request ends with a ProviderError."""
    MODEL_HANGS = "model hangs"
    """A reply takes ten minutes."""
    MODEL_IS_CUT_OFF = "model is cut off"
    """A reply ends half way: text is shortened, the arguments of its last call can't be read."""
    MODEL_REPEATS_IDS = "model repeats ids"
    """The calls of a reply have ids that came before."""
    TOOL_FAILS = "tool fails"
    """A tool raises what isn't for the model, before it has done anything: the run ends."""
    TOOL_FAILS_LATE = "tool fails late"
    """The same, after it has done its work."""
    TOOL_REFUSES = "tool refuses"
    """A tool raises a ToolError, which the model reads."""
    TOOL_HANGS = "tool hangs"
    """A call takes an hour more."""
    STORE_FAILS = "store fails"
    """A write raises StoreError; nothing was written."""
    STORE_FAILS_LATE = "store fails late"
    """A write raises StoreError, but it was written."""
    STORE_IS_SLOW = "store is slow"
    """A write takes a minute: longer than a run that ends will wait for it."""
    STORE_CANT_READ = "store can't read"
    """A load, or the look whether a State is there, raises StoreError."""
    PERSON_SLEEPS = "person sleeps"
    """A person answers the next day."""
    CANCEL = "cancel"
    """Whoever awaited a run gives it up: a client that went away."""
    CRASH = "crash"
    """A process ends at once. What its store had acknowledged is there, the rest of what it knew is gone."""


@final
@attrs.frozen
class InjectedFault:
    """A fault, and when it comes.

    Args:
        kind: What goes wrong.
        at: The how-manieth time, from 1 on, that it could: request to a model, call of a tool, write, read, question;
            for ``CANCEL`` the step of a task in a run, for ``CRASH`` in a process.
    """

    kind: FaultKind
    at: int

    def __str__(self) -> str:
        return f"{self.kind}, at {self.at}"

    def __repr__(self) -> str:
        return f"InjectedFault(FaultKind.{self.kind.name}, {self.at})"


_STEPS: Final = frozenset({FaultKind.CANCEL, FaultKind.CRASH})
_MOST: Final = 6
"""Faults in one seed."""


def drawn(seed: object, kinds: Collection[FaultKind]) -> tuple[InjectedFault, ...]:
    """Return the faults of a seed: up to six, rather early than late; one seed in eight has none."""
    chance = random.Random(f"faults of {seed}")
    wanted = [kind for kind in FaultKind if kind in kinds]
    if not wanted or chance.random() < 1 / 8:
        return ()
    found: dict[InjectedFault, None] = {}
    for _ in range(chance.randint(1, _MOST)):
        kind = chance.choice(wanted)
        most = 10 if kind in _STEPS else 5  # as a power of two: the early ones are as likely as the many late ones
        found[InjectedFault(kind, int(2 ** chance.uniform(0, most)))] = None
    return tuple(found)


@final
class Faults:
    """The faults of one run of a scenario, and which of them came."""

    def __init__(self, planned: Iterable[InjectedFault]) -> None:
        self._planned: Final = {(fault.kind, fault.at): fault for fault in planned}
        self._times: Final[Counter[FaultKind]] = Counter()
        self.came: Final[list[InjectedFault]] = []
        """Those that came, in order."""
        self._raised: Final[list[BaseException]] = []
        self._put_off: Final[list[InjectedFault]] = []

    def comes(self, *kinds: FaultKind) -> FaultKind | None:
        """Say that each of *kinds* could happen now, and return which does."""
        found: InjectedFault | None = None
        for kind in kinds:
            self._times[kind] += 1
            fault = self._planned.get((kind, self._times[kind]))
            found = found or fault
        if found is None:
            return None
        self.came.append(found)
        return found.kind

    def has_come(self, *kinds: FaultKind) -> bool:
        """Whether one of *kinds* has happened."""
        return any(fault.kind in kinds for fault in self.came)

    def raised(self, error: E) -> E:
        """Note an exception that is about to be raised as a fault, and return it."""
        self._raised.append(error)
        return error

    def is_to_be_expected(self, error: BaseException) -> bool:
        """Whether a service has to live with *error*: injected, or what the library makes of what was."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.is_to_be_expected, error.exceptions))
        if any(error is other for other in self._raised):
            return True
        if isinstance(error, CutOffError | OutputError):  # an answer, or a summary, that was cut off
            return self.has_come(FaultKind.MODEL_IS_CUT_OFF)
        return type(error) is StoreError and self.has_come(*STORE_FAULTS)  # a last save that took too long


STORE_FAULTS: Final = (
    FaultKind.STORE_FAILS,
    FaultKind.STORE_FAILS_LATE,
    FaultKind.STORE_IS_SLOW,
    FaultKind.STORE_CANT_READ,
)


def provider_error(number: int) -> ProviderError:
    """Return one of the errors that providers have, in turn."""
    made: tuple[ProviderError, ...] = (
        OverloadedError("simulated: the provider is overloaded", status=529),
        UnreachableError("simulated: no connection"),
        BrokenStreamError("simulated: the answer broke off", status=200),
        RateLimitError("simulated: too many requests", status=429, retry_after=5.0),
    )
    return made[number % len(made)]
