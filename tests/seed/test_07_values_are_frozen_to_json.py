"""The page's section "Values are frozen to JSON"."""

from __future__ import annotations

import dataclasses
import json

import pydantic
import pytest

from alpineagents import MemoryStore, State, ToolCall
from alpineagents.testing import tool_call

from .moments import agent, edit, said


@dataclasses.dataclass
class Bug:
    file: str
    lines: tuple[int, ...]


@dataclasses.dataclass
class Place:
    file: str
    lines: list[int]


class ModelBug(pydantic.BaseModel):
    file: str
    lines: tuple[int, ...]


NESTED = ToolCall("a", "add", {"path": "a.py", "lines": [3, {"n": 4}]})


def test_a_value_is_frozen_when_it_is_recorded_on_a_live_state():
    """Section 7 "Values are frozen to JSON", claim 1."""
    state, files = said(), ["a.py"]

    state.finish({"files": files})
    files.append("b.py")

    assert state.answer == {"files": ["a.py"]}
    with pytest.raises(TypeError, match="read-only"):
        state.answer["files"].append("b.py")


async def test_values_of_a_loaded_state_are_frozen_in_the_same_way():
    """Section 7 "Values are frozen to JSON", claim 2."""
    store, state = MemoryStore(), State(extra_data={"tags": ("x",)})
    state.finish({"files": ("a.py",)})
    await store.save(state)

    loaded = await store.load(state.id)

    assert (loaded.answer, loaded.extra_data) == (state.answer, state.extra_data)
    assert type(loaded.answer["files"]) is type(state.answer["files"])
    with pytest.raises(TypeError, match="read-only"):
        loaded.answer["files"].append("b.py")


def test_the_args_of_a_call_are_read_only_dicts_and_lists():
    """Section 7 "Values are frozen to JSON", claim 3."""
    args = NESTED.args

    assert isinstance(args, dict)
    assert isinstance(args["lines"], list)
    for change in (lambda: args.update(x=1), lambda: args["lines"].append(5), lambda: args["lines"][1].clear()):
        with pytest.raises(TypeError, match="read-only"):
            change()


async def test_a_recorded_answer_to_a_side_question_is_read_only():
    """Section 7 "Values are frozen to JSON", claim 4."""
    state = said()
    await agent('{"file": "b.py", "lines": [3]}').ask(state, "Where?", returns=Place)

    answer = state.history[-1].content.answer

    assert answer == {"file": "b.py", "lines": [3]}
    for change in (lambda: answer.pop("file"), lambda: answer["lines"].sort()):
        with pytest.raises(TypeError, match="read-only"):
            change()


def test_frozen_values_work_with_json_dumps():
    """Section 7 "Values are frozen to JSON", claim 5."""
    assert json.dumps(NESTED.args) == '{"path": "a.py", "lines": [3, {"n": 4}]}'


def test_frozen_values_work_with_indexing():
    """Section 7 "Values are frozen to JSON", claim 6."""
    assert NESTED.args["path"] == "a.py"
    assert NESTED.args["lines"][-1]["n"] == 4


def test_frozen_values_equal_plain_ones():
    """Section 7 "Values are frozen to JSON", claim 7."""
    plain = {"path": "a.py", "lines": [3, {"n": 4}]}

    assert NESTED.args == plain
    assert plain == NESTED.args
    assert NESTED.args["lines"] == plain["lines"]
    assert NESTED.args != {"path": "a.py"}


def test_setting_a_key_of_args_is_a_type_error():
    """Section 7 "Values are frozen to JSON", claim 8."""
    args = NESTED.args
    with pytest.raises(TypeError, match=r"dict\(x\)"):
        args["x"] = 1
    assert "x" not in args


def test_a_copy_of_args_can_be_changed():
    """Section 7 "Values are frozen to JSON", claim 9."""
    copy = dict(NESTED.args)

    copy["x"] = 1

    assert copy["x"] == 1
    assert "x" not in NESTED.args


def test_a_tuple_becomes_a_list():
    """Section 7 "Values are frozen to JSON", claim 10."""
    state = said()

    state.finish(("a.py", (3, 4)))

    assert state.answer == ["a.py", [3, 4]]


@pytest.mark.parametrize("kind", [Bug, ModelBug])
def test_a_dataclass_or_pydantic_model_becomes_a_dict(kind):
    """Section 7 "Values are frozen to JSON", claim 11."""
    state = said()
    edit(state, bug=kind(file="b.py", lines=(3,)))

    assert state.extra_data == {"bug": {"file": "b.py", "lines": [3]}}


def test_an_answer_of_a_class_is_a_dict_before_any_save():
    """Section 7 "Values are frozen to JSON", claim 12."""
    state = said()

    state.finish(Bug("b.py", (3,)))

    assert isinstance(state.answer, dict)
    assert state.answer == {"file": "b.py", "lines": [3]}


async def test_a_side_question_still_returns_the_object():
    """Section 7 "Values are frozen to JSON", claim 13."""
    state = said()

    place = await agent('{"file": "b.py", "lines": [3]}').ask(state, "Where?", returns=Place)

    assert place == Place("b.py", [3])
    assert state.history[-1].content.answer == {"file": "b.py", "lines": [3]}


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), b"x", float("nan"), {1: 2}], ids=lambda value: type(value).__name__
)
def test_what_is_not_json_is_a_type_error(value):
    """Section 7 "Values are frozen to JSON", claim 14."""
    state = said()

    for record in (state.finish, lambda value: edit(state, x=value), lambda value: tool_call("add", a=value)):
        with pytest.raises(TypeError):
            record(value)

    assert len(state.history) == 1
