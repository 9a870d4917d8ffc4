"""The page's section "Add a message"."""

from __future__ import annotations

import pytest

from alpineagents import Image, Message, State, TextBlock, waiting_for_user
from alpineagents.testing import tool_call

from .moments import agent, replied, said, texts

PIXEL = Image(b"\x89PNG\r\n\x1a\n and more")


async def shown(*messages: Message) -> list[Message]:
    """What the model sees of a State with these messages."""
    talker = agent("ok")
    await talker.think(State(messages=messages))
    return list(talker.model.requests[0].messages)


async def test_the_model_sees_the_text_of_a_message_from_the_person():
    """Section 3 "Add a message", claim 1."""
    [message] = await shown(Message.user("Find the bug"))

    assert (message.role, message.text) == ("user", "Find the bug")


async def test_the_model_sees_the_images_of_a_message_from_the_person():
    """Section 3 "Add a message", claim 2."""
    [message] = await shown(Message.user("What is this?", PIXEL, PIXEL))

    assert message.blocks == (TextBlock("What is this?"), PIXEL, PIXEL)


async def test_the_model_sees_the_text_of_a_notice_behind_a_prefix():
    """Section 3 "Add a message", claim 3."""
    [message] = await shown(Message.notice("The tests fail"))

    assert (message.role, message.text) == ("user", "[notice] The tests fail")


async def test_a_state_can_start_from_a_conversation_that_has_replies():
    """Section 3 "Add a message", claim 4."""
    conversation = [Message.user("hi"), Message.assistant("hello"), Message.user("bye")]

    assert await shown(*conversation) == conversation


def test_a_reply_is_only_for_the_messages_a_state_starts_with():
    """Section 3 "Add a message", claim 5."""
    state = said()
    with pytest.raises(ValueError, match="assistant"):
        state.add_message(Message.assistant("hello"))
    assert texts(state) == ["go"]


def test_messages_from_the_person_and_notices_can_be_added():
    """Section 3 "Add a message", claim 6."""
    state = State()

    state.add_message(Message.user("hi"))
    state.add_message(Message.notice("It is Monday"))

    assert texts(state) == ["hi", "[notice] It is Monday"]
    assert [entry.kind for entry in state.history] == ["user", "notice"]


async def test_a_message_can_be_added_while_the_state_runs():
    """Section 3 "Add a message", claim 7."""
    state = said()

    def answer(request):
        state.add_message(Message.user("quick!"))
        return tool_call("add", a=1, b=2)

    talker = agent(answer, "3")
    await talker.run(state)

    assert [message.role for message in talker.model.requests[1].messages] == ["user", "assistant", "tool", "user"]
    assert talker.model.requests[1].messages[-1].text == "quick!"


def test_a_message_can_be_added_between_runs_in_a_plain_script():
    """Section 3 "Add a message", claim 8."""
    state, talker = said(), agent("one", "two")
    talker.run_sync(state)

    state.add_message(Message.user("more"))

    assert talker.run_sync(state) == "two"
    assert texts(state) == ["go", "one", "more", "two"]


def test_a_message_behind_the_answer_makes_the_stop_condition_false_again():
    """Section 3 "Add a message", claim 9."""
    state = replied()
    assert waiting_for_user(state)

    state.add_message(Message.notice("The tests fail"))

    assert not waiting_for_user(state)


async def test_a_message_behind_the_answer_makes_the_loop_go_on():
    """Section 3 "Add a message", claim 10."""
    state = said()

    def answer(request):
        state.add_message(Message.notice("The tests fail"))
        return "done"

    talker = agent(answer, "fixed")

    assert await talker.run(state) == "fixed"
    assert talker.model.requests[1].messages[-1].text == "[notice] The tests fail"
