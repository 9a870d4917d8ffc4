"""One conversation and its record: State, and what its methods return."""

from ._closing import (
    close_after_crash,
    close_call,
    close_pending,
    close_stopped,
    closing,
    error_text,
    take_request_back,
)
from ._context import current_calls, parent_call, surrounded, surrounded_as
from ._extra_data import ExtraDataEdit
from ._receipts import Receipt
from ._recorder import Make, Recorder
from ._snapshot import StateSnapshot
from ._state import State
from ._waiters import runs_event_loop
from ._watch import Watch

__all__ = [
    "ExtraDataEdit",
    "Make",
    "Receipt",
    "Recorder",
    "State",
    "StateSnapshot",
    "Watch",
    "close_after_crash",
    "close_call",
    "close_pending",
    "close_stopped",
    "closing",
    "current_calls",
    "error_text",
    "parent_call",
    "runs_event_loop",
    "surrounded",
    "surrounded_as",
    "take_request_back",
]
