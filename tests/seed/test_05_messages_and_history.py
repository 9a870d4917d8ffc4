"""The page's section "messages and history"."""

from __future__ import annotations

import pytest

from alpineagents import FileStore, Message

from ..run.runs import kinds
from .moments import agent, answered, roles, texts

SHRINKING = {
    "compact": lambda state: state.compact("They asked for a sum."),
    "clear_tool_results": lambda state: state.clear_tool_results(keep_last=0),
}


def result_text(message: Message) -> str:
    return message.blocks[0].content[0].text


def test_a_history_holds_everything_that_happened_though_the_messages_do_not():
    """Section 5 "messages and history", claim 1."""
    state = answered()
    before = kinds(state)

    state.compact("They asked for a sum.")

    assert kinds(state) == [*before, "context_change"]
    assert [entry.content.text for entry in state.history if entry.kind == "model_reply"] == ["", "It is 3."]


async def test_messages_hold_what_the_model_sees_at_the_next_request():
    """Section 5 "messages and history", claim 2."""
    state, talker = answered(), agent("ok")
    state.compact("They asked for a sum.")
    messages = list(state.messages)

    await talker.think(state)

    assert list(talker.model.requests[0].messages) == messages


@pytest.mark.parametrize("name", SHRINKING)
def test_a_history_can_not_shrink(name):
    """Section 5 "messages and history", claim 3."""
    state = answered()
    before = list(state.history)

    SHRINKING[name](state)

    assert list(state.history)[:-1] == before


def test_compact_makes_messages_fewer():
    """Section 5 "messages and history", claim 4."""
    state = answered()
    assert len(state.messages) == 4

    state.compact("They asked for a sum.")

    assert len(state.messages) == 2


def test_clear_tool_results_makes_messages_smaller():
    """Section 5 "messages and history", claim 5."""
    state = answered()
    assert result_text(state.messages[2]) == "3"

    state.clear_tool_results(keep_last=0)

    assert roles(state) == ["user", "assistant", "tool", "assistant"]
    assert result_text(state.messages[2]).startswith("(cleared")


async def test_the_history_is_what_to_look_at_to_log_and_to_save(tmp_path):
    """Section 5 "messages and history", claim 6."""
    store, state = FileStore(tmp_path), answered()
    state.compact("They asked for a sum.")

    *log, _ = str(state).splitlines()
    await store.save(state)

    assert [line.split()[2] for line in log] == kinds(state)
    assert "tool_result add" in log[3]
    assert list((await store.load(state.id)).history) == list(state.history)


def test_messages_say_what_the_model_knows_right_now():
    """Section 5 "messages and history", claim 7."""
    state = answered()
    assert any("3" in text for text in texts(state))

    state.compact("Nothing is known.")

    assert not any("3" in text for text in texts(state))


def test_after_a_compaction_messages_hold_the_first_message_and_a_summary():
    """Section 5 "messages and history", claim 8."""
    state = answered()
    first = state.messages[0]

    state.compact("They asked for a sum.")

    kept, summary = state.messages
    assert kept == first
    assert summary.role == "user"
    assert summary.is_summary
    assert summary.text.endswith("They asked for a sum.")


def test_after_a_compaction_the_history_still_holds_every_message_reply_and_result():
    """Section 5 "messages and history", claim 9."""
    state = answered()
    state.add_message(Message.user("Thanks"))

    state.compact("They asked for a sum.")

    held = {entry.kind: entry.content for entry in state.history}
    assert state.history[0].content.messages == (Message.user("go"),)
    assert held["user"] == Message.user("Thanks")
    assert held["model_reply"].text == "It is 3."
    assert held["tool_result"][0].text == "3"
