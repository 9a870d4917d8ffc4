"""assert_history: what happened in a conversation against what a test expects, with a diff of lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import EllipsisType
from typing import Final, TypeAlias, cast, final

import attrs

from ..record._entries import Entry, EntryBase
from ..state import State, StateSnapshot
from ..state._show import standing
from ._aligned import Step, aligned
from ._lines import entry_line

Expected: TypeAlias = "str | type[Entry] | Entry | EllipsisType"
"""One entry: its line, its class, or an equal one; ``...`` for any number of entries."""

_TURN: Final = re.compile(r"\[turn [^\]]*\] ")
_KIND: Final = re.compile(
    "(user|notice|model_request|model_reply|model_event|tool_result|ask|human|context_change|run_start|stop|extra_data"
    r"|error)(?![\w:])"  # "stopped: ..." and "error: ..." are none
)
_ALL: Final = 40
"""Up to so many lines are all shown."""
_AROUND: Final = 3
"""Of more lines, those shown around the ones that differ."""
_MOST_FIELDS: Final = 5
_MOST_TEXT: Final = 200
"""Characters of a value of an entry."""


def assert_history(
    state: State | StateSnapshot | Sequence[Entry], expected: str | Sequence[str | type[Entry] | Entry | EllipsisType]
) -> None:
    """Check what happened in a conversation, entry by entry.

    Args:
        state: A State, a snapshot of one, or its history.
        expected: What ``print(state)`` shows, as one text or a list of lines. In a line ``*`` stands for any text, and
            ``[turn 1]`` may be left out. A last line that says how the State stands (``stopped: until ...``) may be
            there. ``...``, as an item or a line, stands for any number of entries. Items of a list may also be entry
            classes (``ModelRequestEntry``) and entries, which have to be equal (their times don't count).

    Raises:
        AssertionError: it is different; the text is a diff, ``-`` what was expected, ``+`` what happened.
        TypeError: *expected* holds something else.

    Example:
        >>> from alpineagents import Agent, Message, State
        >>> from alpineagents.testing import FakeModel
        >>> state = State(messages=[Message.user("hi")])
        >>> Agent(model=FakeModel(["hello"])).run_sync(state)
        'hello'
        >>> assert_history(state, [..., "model_request *", "model_reply hello", "stopped: until waiting_for_user"])
    """
    __tracebackhide__ = True
    items = _items(expected)
    happened = [Happened(entry_line(entry), entry) for entry in history_of(state)]
    if items and _says_how_it_stands(items[-1]):
        if not isinstance(state, State | StateSnapshot):
            raise TypeError(f"only a State stands somehow; leave this out for a history: {items[-1]!r:.100}")
        happened.append(Happened(standing(state._snap), None))
    steps = aligned(items, happened, fits)
    if any(step.differs for step in steps):
        name = f"State {state.id}" if isinstance(state, State | StateSnapshot) else "the history"
        diff = "\n".join(_shown(steps))
        raise AssertionError(f"{name} isn't as expected (- expected, + happened):\n{diff}")


@final
@attrs.frozen
class Happened:
    """A line of a State: that of an entry, or how it stands."""

    line: str
    entry: Entry | None


def _items(expected: object) -> list[Expected]:
    if isinstance(expected, str):
        return [... if line == "..." else line for line in map(_tidy, expected.splitlines()) if line]
    if isinstance(expected, EntryBase) or not isinstance(expected, Sequence):
        raise TypeError(f"expected must be a text or a list, not {type(expected).__name__}: ['model_request *', ...]")
    return [_item(item) for item in expected]


def _item(item: object) -> Expected:
    if isinstance(item, str):
        return _tidy(item)
    if item is ... or isinstance(item, EntryBase) or (isinstance(item, type) and issubclass(item, EntryBase)):
        return item  # type: ignore[return-value]  # mypy doesn't narrow to the union of entries
    raise TypeError(
        f"an item must be a line such as 'model_reply *', an entry class, an entry or ..., not {item!r:.100}"
    )


def _tidy(line: str) -> str:
    return " ".join(line.split())


def history_of(state: object) -> Sequence[Entry]:
    """Return the entries of a State, of a snapshot, or of a history; TypeError for anything else."""
    if isinstance(state, State | StateSnapshot):
        return state.history
    if isinstance(state, Sequence) and not isinstance(state, str):
        for entry in state:
            if not isinstance(entry, EntryBase):
                raise TypeError(f"a history holds entries, not {entry!r:.100}: assert_history(state, [...])")
        return state
    raise TypeError(f"assert_history takes a State or its history, not {type(state).__name__}")


def _says_how_it_stands(item: Expected) -> bool:
    """Whether it is the last line that ``print(state)`` shows."""
    return isinstance(item, str) and not item.startswith(("[", "*")) and _KIND.match(item) is None


def fits(item: Expected, happened: Happened) -> bool:
    """Whether *item* stands for what happened."""
    if isinstance(item, str):
        line = happened.line if item.startswith("[turn") or happened.entry is None else _without_turn(happened.line)
        pattern = ".*".join(map(re.escape, item.split("*")))
        return re.fullmatch(pattern, line) is not None
    return isinstance(happened.entry, item) if isinstance(item, type) else item == happened.entry


def _without_turn(line: str) -> str:
    return _TURN.sub("", line, count=1)


def _shown(steps: Sequence[Step[Expected, Happened]]) -> Iterator[str]:
    """The lines of the diff."""
    around = _AROUND if len(steps) > _ALL else len(steps)
    near = [any(step.differs for step in steps[max(0, at - around) : at + around + 1]) for at in range(len(steps))]
    hidden = 0
    for at, (step, is_near) in enumerate(zip(steps, near, strict=True)):
        if not is_near:
            hidden += 1
            continue
        if hidden:
            yield f"  ({hidden} as expected)"
            hidden = 0
        if not step.differs:
            yield f"  {step.happened.line if step.happened is not None else '...'}"
        elif not (at and steps[at - 1].differs):  # the first of those that differ: all of them, two by two
            yield from _differing(steps[at:])
    if hidden:
        yield f"  ({hidden} as expected)"


def _differing(steps: Sequence[Step[Expected, Happened]]) -> Iterator[str]:
    run = steps[: next((at for at, step in enumerate(steps) if not step.differs), len(steps))]
    expected = [step.expected for step in run if step.expected is not None]
    happened = [step.happened for step in run if step.happened is not None]
    for item, one in zip_longest(expected, happened):
        if item is not None:
            yield f"- {_text(item)}"
        if one is not None:
            yield f"+ {one.line}"
        if isinstance(item, str) and one is not None:
            yield from _pointer(item, one)
        elif isinstance(item, EntryBase) and type(item) is type(one and one.entry):
            yield from (f"    {line}" for line in list(_differences(item, one and one.entry))[:_MOST_FIELDS])


def _text(item: Expected) -> str:
    if isinstance(item, type):
        return item.__name__
    return entry_line(item) if isinstance(item, EntryBase) else str(item)


def _pointer(item: str, happened: Happened) -> Iterator[str]:
    """Where a line begins to differ, if it is in its middle and both lines begin alike on the screen."""
    same = next((at for at, (a, b) in enumerate(zip(item, happened.line, strict=False)) if a != b), 0)
    if same and "*" not in item:
        yield f"  {' ' * same}^"


def _differences(expected: object, happened: object, path: str = "") -> Iterator[str]:
    """The fields in which two values of one class differ."""
    if type(expected) is type(happened) and attrs.has(type(expected)):
        for field in attrs.fields(cast("type[attrs.AttrsInstance]", type(expected))):
            if field.eq:
                ours, theirs = getattr(expected, field.name), getattr(happened, field.name)
                if ours != theirs:
                    yield from _differences(ours, theirs, f"{path}.{field.name}" if path else field.name)
    else:
        yield f"{path}: expected {_short(expected)}, happened {_short(happened)}"


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MOST_TEXT else f"{shown[:_MOST_TEXT]}..."
