"""The page's section "Read the State"."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from decimal import Decimal

import attrs
import pydantic
import pytest

from alpineagents import (
    FileStore,
    Message,
    ModelReplyEntry,
    ModelRequestEntry,
    Reply,
    State,
    StoppedByFinish,
    StoppedByUntil,
    TextBlock,
    ToolCall,
    Usage,
)
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import kinds
from ..states import PROPERTIES, values
from .children import Family
from .moments import CALL, CHANGES, OTHER_CALL, agent, answered, asked, closed, replied, said, then, waiting


@pytest.mark.parametrize("name", [*PROPERTIES, "id"])
def test_every_property_is_read_only(name):
    """Section 4 "Read the State", claim 1."""
    with pytest.raises(AttributeError):
        setattr(said(), name, None)


def test_properties_read_the_current_snapshot():
    """Section 4 "Read the State", claim 2."""
    state = answered()
    for change in CHANGES.values():
        change(state)

        assert values(state) == values(state.snapshot())


async def test_messages_are_what_the_model_sees_at_the_next_request():
    """Section 4 "Read the State", claim 3."""
    state, talker = answered(), agent("ok")
    state.add_message(Message.notice("go on"))
    messages = list(state.messages)

    await talker.think(state)

    assert list(talker.model.requests[0].messages) == messages


async def test_the_history_is_everything_that_happened():
    """Section 4 "Read the State", claim 4."""
    state = said()
    talker = agent(tool_call("add", a=1, b=2), "3", "yes")
    await talker.run(state)
    await talker.ask(state, "Sure?")
    state.finish()

    turn = ["model_request", "model_reply"]
    assert kinds(state) == ["context_change", "run_start", *turn, "tool_result", *turn, "stop", "ask", "stop"]


@dataclasses.dataclass
class Bug:
    file: str
    lines: tuple[int, ...]


@attrs.define
class AttrsBug:
    file: str
    lines: tuple[int, ...]


class ModelBug(pydantic.BaseModel):
    file: str
    lines: tuple[int, ...]


@pytest.mark.parametrize("answer", [7, "b.py", ["b.py", None, 0.5], {"file": "b.py"}], ids=type)
def test_the_answer_is_the_value_given_to_finish(answer):
    """Section 4 "Read the State", claim 5."""
    state = replied("text")

    state.finish(answer)

    assert state.answer == answer


@pytest.mark.parametrize("kind", [Bug, AttrsBug, ModelBug])
def test_an_answer_of_a_class_is_a_read_only_dict(kind):
    """Section 4 "Read the State", claim 6."""
    state = said()

    state.finish(kind(file="b.py", lines=(3, 4)))

    assert state.answer == {"file": "b.py", "lines": [3, 4]}
    assert isinstance(state.answer, dict)
    with pytest.raises(TypeError, match="read-only"):
        state.answer["file"] = "a.py"


def test_without_such_a_value_the_answer_is_the_text_of_the_latest_reply_without_calls():
    """Section 4 "Read the State", claim 7."""
    state = then(replied("hello"), ModelRequestEntry, "fake/fake")
    state = then(state, ModelReplyEntry, Reply((TextBlock("let me see"), CALL)))
    assert state.answer == "hello"

    state = then(closed(state), ModelRequestEntry, "fake/fake")
    state = then(state, ModelReplyEntry, Reply((TextBlock("It is 3."),)))

    assert state.answer == "It is 3."


@pytest.mark.parametrize("make", [State, said, waiting, asked])
def test_without_either_the_answer_is_none(make):
    """Section 4 "Read the State", claim 8."""
    assert make().answer is None


def test_finished_says_whether_finish_was_called():
    """Section 4 "Read the State", claim 9."""
    state = replied()
    assert state.finished is False

    state.finish()

    assert state.finished is True


async def test_stopped_says_why_the_run_is_set_to_stop():
    """Section 4 "Read the State", claim 10."""
    state, seen = said(), []

    def answer(request):
        seen.append(state.stopped)
        return "hello"

    await agent(answer).run(state)
    assert (seen, state.stopped) == ([None], StoppedByUntil("waiting_for_user"))
    state.finish(1)

    assert state.stopped == StoppedByFinish(1)


def test_pending_calls_are_those_the_model_asked_for_that_have_no_result_yet():
    """Section 4 "Read the State", claim 11."""
    state = asked(CALL, OTHER_CALL)
    assert state.pending_calls == (CALL, OTHER_CALL)

    state = closed(state, CALL)
    assert state.pending_calls == (OTHER_CALL,)

    assert closed(state, OTHER_CALL).pending_calls == ()


async def test_turn_counts_the_replies_of_the_model():
    """Section 4 "Read the State", claim 12."""
    state = said()
    assert state.turn == 0

    await agent(tool_call("add", a=1, b=2), tool_call("add", a=3, b=4), "10").run(state)

    assert state.turn == kinds(state).count("model_reply") == 3


async def test_turn_is_one_more_while_a_request_waits_on_the_model():
    """Section 4 "Read the State", claim 13."""
    state, seen = replied(), []
    state.add_message(Message.user("more"))

    def answer(request):
        seen.append(state.turn)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await agent(answer).think(state)

    assert (seen, state.turn) == ([2], 1)


PRICED = Usage(input_tokens=5, output_tokens=7, requests=1, cost=Decimal("0.25"))


def priced(text: str) -> Reply:
    return Reply((TextBlock(text),), usage=PRICED)


async def test_usage_counts_every_think():
    """Section 4 "Read the State", claim 14."""
    state, talker = said(), agent(priced("one"), priced("two"))

    await talker.think(state)
    await talker.think(state)

    assert state.usage == PRICED + PRICED


async def test_usage_counts_every_ask():
    """Section 4 "Read the State", claim 15."""
    state = said()

    await agent(priced("yes")).ask(state, "Sure?")

    assert state.usage == PRICED


async def test_usage_counts_every_compact():
    """Section 4 "Read the State", claim 16."""
    state = said()

    await agent(priced("They said go.")).compact(state)

    assert state.usage == PRICED


async def test_usage_is_tokens_requests_and_cost():
    """Section 4 "Read the State", claim 17."""
    state = said()

    await agent(priced("hello")).think(state)

    used = state.usage
    assert (used.input_tokens, used.output_tokens, used.requests, used.cost) == (5, 7, 1, Decimal("0.25"))


async def test_usage_counts_that_of_subagents():
    """Section 4 "Read the State", claim 18."""
    family = Family(child_script=[priced("found")])
    await family.run()

    assert family.child.usage == PRICED
    assert family.state.usage == family.own_usage + PRICED
    assert State(history=family.state.history).usage == family.state.usage


def test_extra_data_is_your_notepad_and_is_changed_by_editing_it():
    """Section 4 "Read the State", claim 19."""
    state = State(extra_data={"repo": "api"})
    with pytest.raises(TypeError, match="read-only"):
        state.extra_data["repo"] = "web"

    with state.edit_extra_data() as data:
        data["repo"] = "web"

    assert state.extra_data == {"repo": "web"}


def test_created_at_is_when_the_first_entry_was_recorded():
    """Section 4 "Read the State", claim 20."""
    state = said()
    state.finish()

    assert state.created_at is state.history[0].at
    assert State().created_at is None


def test_updated_at_is_when_the_latest_entry_was_recorded():
    """Section 4 "Read the State", claim 21."""
    state = said()
    for change in CHANGES.values():
        change(state)

        assert state.updated_at is state.history[-1].at
    assert State().updated_at is None


def test_both_times_are_in_utc():
    """Section 4 "Read the State", claim 22."""
    state = answered()

    assert state.created_at.utcoffset() == state.updated_at.utcoffset() == timedelta(0)


async def test_id_is_the_name_a_store_saves_the_state_under(tmp_path):
    """Section 4 "Read the State", claim 23."""
    store, state = FileStore(tmp_path), said()

    await agent("hello", store=store).run(state)

    assert (await store.load(state.id)).snapshot() == state.snapshot()


async def test_parent_id_of_a_subagent_is_the_id_of_the_state_whose_call_started_it():
    """Section 4 "Read the State", claim 24."""
    family = Family()
    await family.run()

    assert family.child.parent_id == family.state.id


async def test_parent_call_id_of_a_subagent_is_the_id_of_that_call():
    """Section 4 "Read the State", claim 25."""
    family = Family(call=ToolCall("look", "explore", {}))
    await family.run()

    assert family.child.parent_call_id == "look"


async def test_a_state_that_no_call_started_has_no_parent():
    """Section 4 "Read the State", claim 26."""
    family = Family()
    await family.run()

    assert (family.state.parent_id, family.state.parent_call_id) == (None, None)


async def test_child_returns_the_state_of_a_subagent(tmp_path):
    """Section 4 "Read the State", claim 27."""
    family = Family(store=FileStore(tmp_path))
    await family.run()

    assert family.state.child(family.child.id) is family.child
    with pytest.raises(KeyError, match="nobody"):
        family.state.child("nobody")


async def test_a_subagent_of_a_loaded_state_is_opened_from_the_store(tmp_path):
    """Section 4 "Read the State", claim 28."""
    family = Family(store=FileStore(tmp_path))
    await family.run()
    loaded = await FileStore(tmp_path).load(family.state.id)

    with pytest.raises(ValueError, match="store"):
        loaded.child(family.child.id)
    opened = await loaded.load_child(family.child.id)

    assert values(opened) == values(family.child)


def test_how_full_the_context_is_is_asked_of_the_agent():
    """Section 4 "Read the State", claim 29."""
    state = said()
    small, large = (agent().copy(model=FakeModel(context_window=window)) for window in (100, 1_000))

    assert 0 < large.context_used(state) < small.context_used(state) < 1
    assert not hasattr(state, "context_used")
