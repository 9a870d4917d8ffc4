"""The page's section "StateInfo"."""

from __future__ import annotations

import pytest

from alpineagents import FileStore, MemoryStore, Message, State, StateInfo, StoppedByFinish, StoppedByUntil, Store
from alpineagents.testing import tool_call

from .children import Family
from .moments import agent, said


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path)


async def info_of(store: Store, state: State) -> StateInfo:
    await store.save(state)
    [info] = await store.list()
    return info


async def test_a_list_has_one_info_for_each_saved_state(store):
    """Section 14 "StateInfo", claim 1."""
    for state_id in ("a", "b", "c"):
        state = State(id=state_id, messages=[Message.user(f"I am {state_id}")])
        await store.save(state)
        state.finish()
        await store.save(state)

    infos = await store.list()

    assert all(isinstance(info, StateInfo) for info in infos)
    assert sorted(info.id for info in infos) == ["a", "b", "c"]


class Unreadable(MemoryStore):
    """A store whose histories can't be read."""

    async def read(self, state_id, after=0):
        raise AssertionError(f"{state_id} was read")


async def test_a_list_loads_no_state():
    """Section 14 "StateInfo", claim 2."""
    store = Unreadable()
    await store.save(State(id="a", messages=[Message.user("go")]))

    assert [info.id for info in await store.list()] == ["a"]
    with pytest.raises(AssertionError, match="was read"):
        await store.load("a")


async def test_an_info_holds_the_id(store):
    """Section 14 "StateInfo", claim 3."""
    assert (await info_of(store, State(id="bug-1", messages=[Message.user("go")]))).id == "bug-1"


async def test_an_info_holds_the_first_message(store):
    """Section 14 "StateInfo", claim 4."""
    state = State(messages=[Message.user("Find the bug"), Message.user("please")])

    assert (await info_of(store, state)).first_message == "Find the bug"


async def test_an_info_holds_when_the_state_was_created(store):
    """Section 14 "StateInfo", claim 5."""
    state = said()
    state.finish()

    assert (await info_of(store, state)).created_at == state.created_at == state.history[0].at


async def test_an_info_holds_when_the_state_was_last_changed(store):
    """Section 14 "StateInfo", claim 6."""
    state = said()
    await store.save(state)
    state.finish()

    assert (await info_of(store, state)).updated_at == state.updated_at == state.history[-1].at


async def test_an_info_holds_the_turn(store):
    """Section 14 "StateInfo", claim 7."""
    state = said()
    await agent(tool_call("add", a=1, b=2), "3").run(state)

    assert (await info_of(store, state)).turn == 2


async def test_an_info_holds_why_the_state_is_stopped(store):
    """Section 14 "StateInfo", claim 8."""
    state = said()
    assert (await info_of(store, state)).stopped is None
    await agent("hello", store=store).run(state)
    assert (await info_of(store, state)).stopped == StoppedByUntil("waiting_for_user")
    state.finish({"sum": 3})

    assert (await info_of(store, state)).stopped == StoppedByFinish({"sum": 3})


async def test_an_info_holds_whether_the_state_is_finished(store):
    """Section 14 "StateInfo", claim 9."""
    state = said()
    assert (await info_of(store, state)).finished is False
    state.finish()

    assert (await info_of(store, state)).finished is True


async def test_an_info_holds_the_parent_id_of_the_state(store):
    """Section 14 "StateInfo", claim 10."""
    family = Family(store=store)
    await family.run()

    parents = {info.id: info.parent_id for info in await store.list()}

    assert family.child.parent_id == family.state.id
    assert parents == {family.state.id: None, family.child.id: family.state.id}


async def test_a_subagent_is_listed_beside_what_you_started(store):
    """Section 14 "StateInfo", claim 11."""
    family = Family(store=store)
    await family.run()

    assert {info.id for info in await store.list()} == {family.state.id, family.child.id}


async def test_no_parent_id_picks_what_you_started(store):
    """Section 14 "StateInfo", claim 12."""
    family = Family(store=store)
    await family.run()

    picked = [info.id for info in await store.list() if info.parent_id is None]

    assert picked == [info.id for info in await store.list(parent_id=None)] == [family.state.id]
