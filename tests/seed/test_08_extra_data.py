"""The page's section "extra_data: your notepad"."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from alpineagents import ExtraDataEntry, FileStore, Message, State

from ..run.runs import kinds
from .moments import agent, edit, said


def test_extra_data_holds_your_own_values():
    """Section 8 "extra_data: your notepad", claim 1."""
    state = State(extra_data={"repo": "api", "tries": 0})
    edit(state, tries=1)

    assert state.extra_data == {"repo": "api", "tries": 1}


async def test_the_model_never_sees_extra_data():
    """Section 8 "extra_data: your notepad", claim 2."""
    state = State(messages=[Message.user("go")], extra_data={"key": "s3cret"})
    talker = agent("one", "two", "three", system="You add.")

    await talker.run(state)
    await talker.ask(state, "Sure?")
    await talker.compact(state)

    assert len(talker.model.requests) == 3
    assert "s3cret" not in repr(talker.model.requests)
    assert "You add." in repr(talker.model.requests)


def test_extra_data_is_read_only():
    """Section 8 "extra_data: your notepad", claim 3."""
    state = State(extra_data={"notes": {}})
    with pytest.raises(TypeError, match="read-only"):
        state.extra_data["x"] = 1
    with pytest.raises(TypeError, match="read-only"):
        state.extra_data["notes"]["bug"] = "b.py"
    assert state.extra_data == {"notes": {}}


def test_the_block_gives_a_plain_dict_that_is_a_copy():
    """Section 8 "extra_data: your notepad", claim 5."""
    state = State(extra_data={"notes": {"bug": ["b.py"]}})

    with state.edit_extra_data() as data:
        assert type(data) is dict
        assert type(data["notes"]["bug"]) is list
        data["notes"]["bug"].append("c.py")
        assert state.extra_data == {"notes": {"bug": ["b.py"]}}
    data["later"] = 1

    assert state.extra_data == {"notes": {"bug": ["b.py", "c.py"]}}


def test_the_changes_of_a_block_that_ends_normally_are_one_entry():
    """Section 8 "extra_data: your notepad", claim 6."""
    state = State(extra_data={"a": 1, "b": 2, "c": 3})

    with state.edit_extra_data() as data:
        data["a"] = 10
        data["d"] = 4
        del data["b"]

    entry = state.history[-1]
    assert kinds(state) == ["extra_data", "extra_data"]
    assert isinstance(entry, ExtraDataEntry)
    assert (entry.content, entry.removed) == ({"a": 10, "d": 4}, ("b",))
    assert state.extra_data == {"a": 10, "c": 3, "d": 4}


async def test_a_task_edits_with_async_with():
    """Section 8 "extra_data: your notepad", claim 7."""
    state = State()

    async with state.edit_extra_data() as data:
        data.setdefault("notes", {})["bug"] = "b.py"

    assert kinds(state) == ["extra_data"]
    assert state.extra_data == {"notes": {"bug": "b.py"}}


async def test_a_block_that_raises_changes_nothing():
    """Section 8 "extra_data: your notepad", claim 8."""
    state = State(extra_data={"a": 1})

    def in_a_script() -> None:
        with state.edit_extra_data() as data:
            data["a"] = 2
            data["b"] = data["x"]

    async def in_a_task() -> None:
        async with state.edit_extra_data() as data:
            data["a"] = 2
            data["b"] = data["x"]

    with pytest.raises(KeyError):
        in_a_script()
    with pytest.raises(KeyError):
        await in_a_task()

    assert kinds(state) == ["extra_data"]
    assert state.extra_data == {"a": 1}


def test_two_threads_that_edit_at_once_take_turns():
    """Section 8 "extra_data: your notepad", claim 9."""
    state, inside, most = State(), [], []
    together = threading.Barrier(2, timeout=60)

    def count() -> None:
        together.wait()
        for _ in range(500):
            with state.edit_extra_data() as data:
                inside.append(threading.get_ident())
                data["n"] = data.get("n", 0) + 1
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=count, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert set(most) == {1}
    assert [entry.content["n"] for entry in state.history] == list(range(1, 1_001))


async def test_two_tasks_that_edit_at_once_take_turns():
    """Section 8 "extra_data: your notepad", claim 10."""
    state, let_go = State(), trio.Event()

    async def first() -> None:
        async with state.edit_extra_data() as data:
            await let_go.wait()
            data["order"] = ["first"]

    async def second() -> None:
        async with state.edit_extra_data() as data:
            data["order"].append("second")

    async with trio.open_nursery() as nursery:
        for task in (first, second):
            nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
        let_go.set()

    assert state.extra_data == {"order": ["first", "second"]}


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "x", [1, [2]], {"a": {"b": []}}], ids=repr)
def test_json_values_can_be_noted(value):
    """Section 8 "extra_data: your notepad", claim 11."""
    state = State()

    edit(state, key=value)

    assert state.extra_data == {"key": value}


@pytest.mark.parametrize("value", [{1}, frozenset(), object(), b"x"], ids=type)
def test_a_set_or_another_object_is_a_type_error_that_names_the_key(value):
    """Section 8 "extra_data: your notepad", claim 12."""
    state = State()
    with pytest.raises(TypeError, match=r'extra_data\["notes"\]\["tags"\]'):
        edit(state, notes={"tags": value})
    with pytest.raises(TypeError, match=r'extra_data\["tags"\]'):
        State(extra_data={"tags": value})
    assert not state.history


def test_instead_of_a_set_a_list_is_to_be_used():
    """Section 8 "extra_data: your notepad", claim 13."""
    state = State()
    with pytest.raises(TypeError, match="use a list"):
        edit(state, tags={"a"})

    edit(state, tags=["a"])

    assert state.extra_data == {"tags": ["a"]}


async def test_extra_data_is_saved_with_the_state(tmp_path):
    """Section 8 "extra_data: your notepad", claim 14."""
    store, state = FileStore(tmp_path), State(extra_data={"repo": "api"})
    edit(state, tries=1)

    await store.save(state)

    assert (await store.load(state.id)).extra_data == {"repo": "api", "tries": 1}


def test_restore_takes_extra_data_back_too():
    """Section 8 "extra_data: your notepad", claim 15."""
    state = said()
    edit(state, tries=1)
    before = state.snapshot()
    edit(state, tries=2, more=True)

    state.restore(before)

    assert state.extra_data == {"tries": 1}
