"""The page's section "Create a State"."""

from __future__ import annotations

import pytest

from alpineagents import FileStore, Message, State

from ..states import values
from .moments import agent, answered, said, texts


def test_a_state_starts_with_the_id_messages_and_extra_data_it_is_given():
    """Section 2 "Create a State", claim 2."""
    state = State(id="bug-1", messages=[Message.user("Find the bug in main.py")], extra_data={"repo": "api"})

    assert (state.id, texts(state), state.extra_data) == ("bug-1", ["Find the bug in main.py"], {"repo": "api"})


@pytest.mark.parametrize("argument", ["bug-1", [Message.user("go")], {"repo": "api"}], ids=type)
def test_arguments_are_by_keyword_only(argument):
    """Section 2 "Create a State", claim 3."""
    with pytest.raises(TypeError, match="positional"):
        State(argument)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"id": "bug-1"}, {"messages": [Message.user("go")]}, {"extra_data": {"a": 1}}, {"history": []}],
    ids=lambda arguments: ", ".join(arguments) or "none",
)
def test_every_argument_can_be_left_out(arguments):
    """Section 2 "Create a State", claim 4."""
    assert len(State(**arguments).history) == len({"messages", "extra_data"} & set(arguments))


def test_messages_are_message_objects_and_not_a_text():
    """Section 2 "Create a State", claim 5."""
    with pytest.raises(TypeError, match=r"messages=\[Message\.user\("):
        State(messages="Find the bug in main.py")
    with pytest.raises(TypeError, match=r"Message\.user\("):
        State(messages=["Find the bug in main.py"])


async def test_the_id_is_the_name_a_store_saves_the_state_under(tmp_path):
    """Section 2 "Create a State", claim 6."""
    store = FileStore(tmp_path)
    await store.save(State(id="bug-1", messages=[Message.user("go")]))

    assert [info.id for info in await store.list()] == ["bug-1"]
    assert texts(await store.load("bug-1")) == ["go"]


def test_an_id_has_letters_digits_and_two_signs():
    """Section 2 "Create a State", claim 7."""
    assert State(id="Bug_1-a").id == "Bug_1-a"
    for other in ("", "a b", "a/b", "a.b", "é"):
        with pytest.raises(ValueError, match="letters, digits, _ and -"):
            State(id=other)


def test_an_id_that_is_left_out_is_a_random_one():
    """Section 2 "Create a State", claim 8."""
    ids = {State().id for _ in range(1_000)}

    assert len(ids) == 1_000
    assert all(State(id=state_id).id == state_id for state_id in ids)


def test_a_history_rebuilds_the_state_it_comes_from():
    """Section 2 "Create a State", claim 9."""
    state = answered()

    rebuilt = State(history=state.history)

    assert values(rebuilt) == values(state)
    assert rebuilt.id != state.id


@pytest.mark.parametrize("other", [{"messages": [Message.user("go")]}, {"extra_data": {"a": 1}}], ids=list)
def test_a_history_goes_with_neither_messages_nor_extra_data(other):
    """Section 2 "Create a State", claim 10."""
    with pytest.raises(ValueError, match="history"):
        State(history=said().history, **other)


async def test_a_state_may_start_empty_and_run():
    """Section 2 "Create a State", claim 11."""
    state = State()
    assert not state.messages
    assert not state.history

    state.add_message(Message.user("hi"))

    assert await agent("hello").run(state) == "hello"


async def test_think_needs_a_message():
    """Section 2 "Create a State", claim 12."""
    state, talker = State(), agent("hello")
    with pytest.raises(ValueError, match="no messages"):
        await talker.think(state)
    assert not state.history

    state.add_message(Message.user("hi"))

    assert (await talker.think(state)).text == "hello"
