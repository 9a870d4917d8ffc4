"""What tests say about States: all values of one, and whether replaying its history gives them again."""

from __future__ import annotations

from alpineagents import State, StateSnapshot
from alpineagents.record._codec import decode_history, encode_entry

PROPERTIES = (
    "messages",
    "history",
    "answer",
    "finished",
    "stopped",
    "pending_calls",
    "turn",
    "usage",
    "extra_data",
    "created_at",
    "updated_at",
    "parent_id",
    "parent_call_id",
)


def values(state: State | StateSnapshot) -> dict[str, object]:
    """Every value but the id, copied out of the lists that go on growing."""
    found = {name: getattr(state, name) for name in PROPERTIES}
    return found | {"messages": list(state.messages), "history": list(state.history)}


def assert_replays(state: State) -> None:
    """Replayed from its entries, and from their bytes, the State has the same values."""
    live = values(state)
    assert values(State(history=state.history)) == live
    raws = [encode_entry(entry) for entry in state.history]
    loaded = State(history=decode_history(raws))
    assert values(loaded) == live
    assert [encode_entry(entry) for entry in loaded.history] == raws
    assert loaded.snapshot() == state.snapshot()
