"""What happens after each step of a task: steps are counted, States checked, and tasks cancelled that shall be."""

from __future__ import annotations

from typing import Final, final

import trio

from ._checks import Checks
from ._faults import STORE_FAULTS, FaultKind, Faults
from ._lives import life, patience

MOST_STEPS: Final = 300_000
"""Steps of tasks in one run of a scenario: one that has more won't end."""


class EndlessError(AssertionError):
    """A scenario doesn't come to its end."""


@final
class Steps(trio.abc.Instrument):
    """Looks at everything after each step of a task. The first thing that is wrong ends the run."""

    def __init__(self, faults: Faults, checks: Checks) -> None:
        self.scope: Final = trio.CancelScope()
        """What is cancelled when something is wrong."""
        self.failure: BaseException | None = None
        """The first thing that was wrong."""
        self.count = 0
        """Steps so far."""
        self.tasks: Final[dict[trio.lowlevel.Task, None]] = {}
        """All that live, in the order in which they began."""
        self._faults = faults
        self._checks = checks

    def fail(self, error: BaseException) -> None:
        """End the run: *error* is what was wrong, unless something was before."""
        if self.failure is None:
            self.failure = error
            self.scope.cancel()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Note a task."""
        self.tasks[task] = None

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Forget it."""
        self.tasks.pop(task, None)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Look at what the step has changed, and let come what is to come after it."""
        if self.failure is not None:
            return
        self.count += 1
        if self.count > MOST_STEPS:
            self.fail(EndlessError(f"it has no end in sight: after {MOST_STEPS:,} steps of tasks it still goes on"))
        try:
            self._checks.after_step(self.tasks, store_is_sound=self._store_is_sound)
        except Exception as error:  # noqa: BLE001  # trio would only log it
            self.fail(error)
            return
        self._strike(task)

    def _store_is_sound(self) -> bool:
        return not self._faults.has_come(*STORE_FAULTS)

    def _strike(self, task: trio.lowlevel.Task) -> None:
        """Cancel what *task* is part of, if it is time for that."""
        this = task.context.get(life)
        if this is not None and this.crashed:
            return
        scope = task.context.get(patience)
        if scope is not None and not scope.cancel_called and self._faults.comes(FaultKind.CANCEL) is not None:
            scope.cancel()
        if this is not None and self._faults.comes(FaultKind.CRASH) is not None:
            this.crash()
