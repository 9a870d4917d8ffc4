"""Reporters: several that watch as one."""

from __future__ import annotations

import inspect

import pytest

from alpineagents import Agent, Message, Progress, Reporter, Reporters, State, tool
from alpineagents.run._tee import Tee
from alpineagents.run._telling import Teller
from alpineagents.testing import FakeModel, ReporterLaws, tool_call

from ..run.runs import tasks

METHODS = [name for name, _ in inspect.getmembers(Reporter, inspect.isfunction) if name.startswith("on_")]


class Keeps(Reporter):
    """Keeps what it is told, in a list that it may share with others."""

    def __init__(self, told: list | None = None, name: str = "") -> None:
        self.told = [] if told is None else told
        self.name = name

    def extra(self) -> int:
        """A method of its own."""
        return len(self.told)


def _kept(method: str):
    def keep(self, state, *given):
        self.told.append((self.name, method))

    return keep


for name in METHODS:
    setattr(Keeps, name, _kept(name))


class Raises(Keeps):
    """Raises the same whenever it is told that a run starts."""

    def __init__(self, told: list, name: str, error: BaseException) -> None:
        super().__init__(told, name)
        self.error = error

    def on_run_start(self, state, agent):
        super().on_run_start(state, agent)
        raise self.error


@tool
async def count(progress: Progress) -> int:
    """Tell how far it is."""
    progress(1)
    return 1


def asked() -> State:
    return State(messages=[Message.user("go")])


def agent_of(reporter: Reporter) -> Agent:
    return Agent(model=FakeModel([tool_call("count"), "done"]), tools=[count], reporter=reporter)


async def test_each_is_told_everything_in_the_order_in_which_they_are_given():
    told, alone = [], Keeps()
    await agent_of(alone).run(asked())
    await agent_of(Reporters(Keeps(told, "a"), Keeps(told, "b"))).run(asked())

    assert [name for name, _ in told] == ["a", "b"] * len(alone.told)
    assert [method for _, method in told[::2]] == [method for _, method in alone.told]
    assert [method for _, method in told[1::2]] == [method for _, method in alone.told]


async def test_reporters_may_hold_reporters_and_none():
    told: list = []
    several = Reporters(Keeps(told, "a"), Reporters(), Reporters(Keeps(told, "b"), Reporters(Keeps(told, "c"))))
    await agent_of(several).run(asked())

    assert [name for name, _ in told] == ["a", "b", "c"] * (len(told) // 3)
    assert told


def test_they_are_kept_as_they_are():
    one, two = Keeps(), Reporter()

    assert Reporters(one, two).reporters == (one, two)
    assert repr(Reporters(one)) == f"Reporters({one!r})"
    assert one.extra() == 0


@pytest.mark.parametrize("wrong", [None, "terminal", Reporter, [Reporter()]])
def test_what_is_no_reporter_is_refused(wrong):
    with pytest.raises(TypeError, match=r"Reporters takes Reporter objects, not .*: Reporters\(first, second\)"):
        Reporters(Reporter(), wrong)


async def test_all_are_told_though_one_raises_and_then_that_is_raised():
    told: list = []
    error = OSError("screen is gone")
    several = Reporters(Keeps(told, "a"), Raises(told, "b", error), Keeps(told, "c"))
    with pytest.raises(OSError, match="gone") as caught:
        await agent_of(several).run(asked())

    assert caught.value is error
    for method in ("on_run_start", "on_run_end"):
        assert [name for name, each in told if each == method] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("errors", "leaves"),
    [
        ([OSError("one"), KeyError("two")], 0),
        ([OSError("one"), KeyboardInterrupt()], 1),
        ([OSError("one"), SystemExit(3), KeyboardInterrupt()], 1),
        ([OSError("one"), BaseExceptionGroup("mine", [KeyboardInterrupt()])], 1),
        ([ExceptionGroup("mine", [OSError("one")]), KeyError("two")], 0),
    ],
)
async def test_where_several_raise_none_is_lost(errors: list[BaseException], leaves: int):
    several = Reporters(*[Raises([], "", error) for error in errors])
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # its identity is checked
        await agent_of(several).run(asked())

    assert caught.value is errors[leaves]
    others = [type(error).__name__ for error in errors if error is not errors[leaves]]
    assert [note.split(":")[1].strip() for note in caught.value.__notes__] == others


async def test_an_error_that_several_raise_is_no_note_on_itself():
    error = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        await agent_of(Reporters(Raises([], "", error), Raises([], "", error))).run(asked())

    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize(
    ("several", "hears"),
    [
        (Reporters(), False),
        (Reporters(Reporter(), Reporters(Reporter())), False),
        (Reporters(Reporter(), Keeps()), True),
        (Reporters(Reporter(), Reporters(Keeps())), True),
    ],
)
async def test_a_run_follows_the_history_only_for_one_that_hears_entries(several: Reporters, hears: bool):
    counts = []

    async def look(request):
        counts.append(tasks())
        return "done"

    await Agent(model=FakeModel([look])).run(asked())
    await Agent(model=FakeModel([look]), reporter=several).run(asked())

    assert several.hears_entries() is hears
    assert counts[1] - counts[0] == hears


async def test_a_reporter_of_a_program_that_passes_on_says_whether_it_hears_entries():
    class Passes(Reporter):
        def __init__(self, to: Reporter) -> None:
            self.to = to

        def on_entry(self, state, entry):
            self.to.on_entry(state, entry)

        def hears_entries(self):
            return self.to.hears_entries()

    hearing, deaf = Keeps(), Reporter()
    await agent_of(Reporters(Passes(hearing))).run(asked())

    assert ("", "on_entry") in hearing.told
    assert not Reporters(Passes(deaf)).hears_entries()


@pytest.mark.parametrize("kind", [Reporters, Tee, Teller])
def test_who_passes_on_leaves_no_method_out(kind: type[Reporter]):
    passed = [name for name in METHODS if name in vars(kind)]

    assert passed == [name for name in METHODS if kind is Reporters or name != "on_entry"]


class TestLaws(ReporterLaws):
    @pytest.fixture
    def reporter(self) -> Reporter:
        return Reporters(Keeps(), Reporters(Keeps(), Reporter()))
