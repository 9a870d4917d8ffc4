"""The page's first lines: what a State is."""

from __future__ import annotations

from alpineagents import Message, State
from alpineagents.testing import tool_call

from ..run.runs import kinds
from .moments import agent, roles


async def test_a_state_holds_the_messages_everything_that_happened_and_the_answer():
    """Section 0 "State and history", claim 1."""
    state = State(messages=[Message.user("1 + 2?")])

    await agent(tool_call("add", a=1, b=2), "It is 3.").run(state)

    assert roles(state) == ["user", "assistant", "tool", "assistant"]
    turn = ["model_request", "model_reply"]
    assert kinds(state) == ["context_change", "run_start", *turn, "tool_result", *turn, "stop"]
    assert state.answer == "It is 3."


async def test_a_chat_is_one_state_with_a_run_for_each_message():
    """Section 0 "State and history", claim 2."""
    chat, bot = State(), agent("Hello Ann.", "You are Ann.")

    for text in ("I am Ann", "Who am I?"):
        chat.add_message(Message.user(text))
        await bot.run(chat)

    assert kinds(chat).count("run_start") == 2
    assert [message.text for message in bot.model.requests[1].messages] == ["I am Ann", "Hello Ann.", "Who am I?"]
    assert chat.answer == "You are Ann."
