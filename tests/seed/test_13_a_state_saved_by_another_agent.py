"""The page's section "A State saved by another Agent"."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from alpineagents import Agent, MemoryStore, Message, ResumeWarning, State, loop, tool, waiting_for_user
from alpineagents.testing import FakeModel, tool_call

from ..run.runs import outcomes
from .moments import said


@tool
async def search_web(query: str) -> str:
    """Search the web."""
    return "found"


@tool
async def search_docs(query: str) -> str:
    """Search the docs."""
    return "found"


def before_the_deploy(*script: Any, **settings: Any) -> Agent:
    model = FakeModel(script, name="anthropic/claude-sonnet-5")
    return Agent(**{"model": model, "tools": [search_web], "system": "You search.", **settings})


async def loaded(*script: Any) -> State:
    """A State that a store has loaded; an Agent had run it."""
    store, state = MemoryStore(), said()
    await before_the_deploy(*(script or ("hello",)), store=store).run(state)
    state = await store.load(state.id)
    state.add_message(Message.user("more"))
    return state


@contextmanager
def resume_warnings() -> Iterator[list[ResumeWarning]]:
    """Those that come in the block."""
    found: list[Any] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    assert all(warning.category is ResumeWarning for warning in caught)
    found.extend(warning.message for warning in caught)


async def test_another_agent_can_run_a_saved_state():
    """Section 13 "A State saved by another Agent", claim 1."""
    state = await loaded()
    with resume_warnings():
        answer = await Agent(model=FakeModel(["two"], name="openai/gpt-5"), tools=[search_docs]).run(state)

    assert answer == "two"


async def test_the_model_gets_an_error_result_when_it_calls_a_tool_that_was_removed():
    """Section 13 "A State saved by another Agent", claim 2."""
    state = await loaded(tool_call("search_web", query="x"), "hello")
    model = FakeModel([tool_call("search_web", query="y"), "sorry"])

    with resume_warnings():
        assert await Agent(model=model, tools=[search_docs]).run(state) == "sorry"

    assert outcomes(state) == [("search_web", "done"), ("search_web", "input_error")]
    result = model.requests[1].messages[-1].blocks[0]
    assert result.is_error
    assert "no tool 'search_web'" in result.content[0].text


async def test_the_first_run_of_a_loaded_state_compares_the_agents():
    """Section 13 "A State saved by another Agent", claim 3."""
    state = await loaded()
    with resume_warnings() as first:
        await before_the_deploy("two", name="another").run(state)
    state.add_message(Message.user("more"))
    with resume_warnings() as second:
        await before_the_deploy("three", name="a third").run(state)

    assert (len(first), len(second)) == (1, 0)


async def test_a_state_that_no_store_loaded_is_not_compared():
    """Section 13 "A State saved by another Agent", claim 4."""
    state = said()
    await before_the_deploy("one").run(state)
    state.add_message(Message.user("more"))

    with resume_warnings() as found:
        await before_the_deploy("two", name="another").run(state)

    assert found == []


async def test_an_agent_like_the_last_one_does_not_warn():
    """Section 13 "A State saved by another Agent", claim 5."""
    state = await loaded()

    with resume_warnings() as found:
        await before_the_deploy("two").run(state)

    assert found == []


@pytest.mark.parametrize(
    "settings",
    [{"name": "another"}, {"system": "You add."}, {"tools": []}, {"model": FakeModel(["two"], name="openai/gpt-5")}],
    ids=list,
)
async def test_each_difference_is_a_resume_warning(settings):
    """Section 13 "A State saved by another Agent", claim 6."""
    state = await loaded()

    with pytest.warns(ResumeWarning):
        assert await before_the_deploy("two", **settings).run(state) == "two"


async def test_the_warning_says_what_was_removed_added_and_replaced():
    """Section 13 "A State saved by another Agent", claim 7."""
    state = await loaded()
    other = before_the_deploy(model=FakeModel(["two"], name="openai/gpt-5"), tools=[search_docs])
    said = "tools: removed search_web, added search_docs; model: anthropic/claude-sonnet-5 -> openai/gpt-5"

    with pytest.warns(ResumeWarning, match=f"{re.escape(said)}$"):
        await other.run(state)


async def test_of_the_system_prompt_the_warning_says_only_that_it_changed():
    """Section 13 "A State saved by another Agent", claim 8."""
    state = await loaded()

    with resume_warnings() as found:
        await before_the_deploy("two", system="You add.").run(state)

    [warning] = found
    assert str(warning).endswith(": system: changed")


async def refused(state: State, other: Agent) -> ResumeWarning:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=ResumeWarning)
        with pytest.raises(ResumeWarning) as caught:
            await other.run(state)
    return caught.value


async def test_the_warning_can_be_made_an_exception_that_run_raises():
    """Section 13 "A State saved by another Agent", claim 9."""
    state = await loaded()
    before = list(state.history)

    warning = await refused(state, before_the_deploy("never said", name="another"))

    assert "another" in str(warning)
    assert list(state.history) == before


async def test_as_an_exception_it_comes_before_the_loop_starts():
    """Section 13 "A State saved by another Agent", claim 10."""
    turns = []

    @loop(until=waiting_for_user, limit=1)
    async def body(agent, state):
        turns.append(state.turn)
        await agent.think(state)

    state, other = await loaded(), before_the_deploy("two", name="another", loop=body)
    await refused(state, other)
    assert (turns, other.model.requests) == ([], [])

    with resume_warnings():
        await other.run(state)

    assert turns == [1]


async def test_its_changes_hold_the_saved_and_the_current_value_of_each_difference():
    """Section 13 "A State saved by another Agent", claim 11."""
    state = await loaded()
    other = before_the_deploy(name="another", model=FakeModel(name="openai/gpt-5"), tools=[search_docs, search_web])

    warning = await refused(state, other)

    assert warning.changes == {
        "name": (None, "another"),
        "tools": (("search_web",), ("search_docs", "search_web")),
        "model": ("anthropic/claude-sonnet-5", "openai/gpt-5"),
    }
