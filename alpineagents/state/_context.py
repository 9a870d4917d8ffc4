"""Which tool calls the running code is part of, in tasks and in the threads trio starts for them."""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import NamedTuple

import trio

from ..record._snapshot import Snapshot
from ._recorder import Recorder


class Surrounding(NamedTuple):
    """A tool call, or a request, that the running code is part of."""

    state: Recorder
    call_id: str | None
    """``None`` for a request."""
    task: weakref.ref[trio.lowlevel.Task]
    """What runs it. Not held: a task holds its context, and that holds this and the State."""
    nurseries: int
    """How many nurseries that task had open before."""
    run: object
    """What the run around works with, for the runs below it."""

    def is_above(self, task: trio.lowlevel.Task) -> bool:
        """Whether *task* is part of it, not only started from inside it: it runs below a nursery that is."""
        nursery, own = None, self.task()
        while task is not own:
            nursery = task.parent_nursery
            if nursery is None:
                return False
            task = nursery.parent_task
        return nursery is None or nursery in task.child_nurseries[self.nurseries :]


current_calls: ContextVar[tuple[Surrounding, ...]] = ContextVar("alpineagents.current_calls", default=())
"""What is around this code, outermost first."""


def surrounded(state: Recorder, call_id: str | None, run: object) -> tuple[Surrounding, ...]:
    """Return what is around the code of a call, or of a request, that begins here."""
    task = trio.lowlevel.current_task()
    return (*current_calls.get(), Surrounding(state, call_id, weakref.ref(task), len(task.child_nurseries), run))


def surrounded_as(other: trio.lowlevel.Task) -> tuple[Surrounding, ...]:
    """Return what is around this code if the running task counts as a part of all that *other* is part of."""
    task = trio.lowlevel.current_task()
    nurseries = len(task.child_nurseries)
    return tuple(
        around._replace(task=weakref.ref(task), nurseries=nurseries) if around.is_above(other) else around
        for around in current_calls.get()
    )


def parent_call(state: Recorder) -> Surrounding | None:
    """Return the call that a run of *state*, beginning here, is a subagent of."""
    calls = current_calls.get()
    task = trio.lowlevel.current_task() if calls else None
    for around in reversed(calls):
        owner, call_id = around.state, around.call_id
        is_part = call_id is not None and owner is not state and task is not None and around.is_above(task)
        if is_part and call_id is not None and owner.snapshot_now().is_pending(call_id):
            return around
    return None


def waits_for_itself(state: object, snapshot: Snapshot) -> bool:
    """Whether the running code is part of what *snapshot* waits for: a pending call, or the open request.

    A task can outlive the call it was started in: then it isn't.
    """
    for around in current_calls.get():
        call_id = around.call_id
        if around.state is state and (snapshot.request_open if call_id is None else snapshot.is_pending(call_id)):
            return True
    return False
