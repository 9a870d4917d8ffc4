"""How a list of what was expected lies beside a list of what happened, with as little difference as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar, final

import attrs

A = TypeVar("A")
B = TypeVar("B")

_MOST_COMPARED: Final = 1_000_000
"""Pairs. Where both lists are longer, what lies between their equal ends is told as different in whole."""


@final
@attrs.frozen
class Step(Generic[A, B]):
    """One place in the two lists; both sides are there where they fit, and ``...`` is beside each that it covers."""

    expected: A | None
    happened: B | None
    differs: bool


def aligned(expected: Sequence[A], happened: Sequence[B], fits: Callable[[A, B], bool]) -> list[Step[A, B]]:
    """Return the steps through both lists; ``...`` in *expected* stands for any number of what happened."""
    start, most = 0, min(len(expected), len(happened))
    while start < most and expected[start] is not ... and fits(expected[start], happened[start]):
        start += 1
    end, most = 0, most - start
    while end < most and expected[-1 - end] is not ... and fits(expected[-1 - end], happened[-1 - end]):
        end += 1
    before = [_same(*pair) for pair in zip(expected[:start], happened[:start], strict=True)]
    after = zip(expected[len(expected) - end :], happened[len(happened) - end :], strict=True)
    between = _between(expected[start : len(expected) - end], happened[start : len(happened) - end], fits)
    return _beside([*before, *between, *[_same(*pair) for pair in after]])


def _beside(steps: list[Step[A, B]]) -> list[Step[A, B]]:
    """Take from ``...`` what lies beside something that is missing: it is what came in its place, most likely."""
    steps = list(steps)
    at = 0
    while at < len(steps):
        start = at
        while at < len(steps) and _is_missing(steps[at]):
            at += 1
        before, after = range(start - 1, -1, -1), range(at, len(steps))
        for near, other in ((before, after), (after, before)):
            if at > start and not (other and steps[other[0]].expected is ...):
                for place in near[: at - start]:
                    if steps[place].expected is not ... or steps[place].happened is None:
                        break
                    steps[place] = Step(None, steps[place].happened, True)
        at = max(at, start + 1)
    return steps


def _is_missing(step: Step[A, B]) -> bool:
    return step.differs and step.happened is None


def _same(expected: A, happened: B) -> Step[A, B]:
    return Step(expected, happened, False)


def _between(expected: Sequence[A], happened: Sequence[B], fits: Callable[[A, B], bool]) -> list[Step[A, B]]:
    if list(expected) == [...]:
        return [Step(expected[0], one, False) for one in happened] or [Step(expected[0], None, False)]
    if len(expected) * len(happened) > _MOST_COMPARED:
        missing: list[Step[A, B]] = [Step(item, None, item is not ...) for item in expected]
        return missing + [Step(None, one, True) for one in happened]
    return _cheapest(expected, happened, _costs(expected, happened, fits))


_Fit = tuple[int, bool]


def _costs(expected: Sequence[A], happened: Sequence[B], fits: Callable[[A, B], bool]) -> list[list[_Fit]]:
    """For each place, how many differences the rest has at least, and whether the two there fit."""
    width = len(happened)
    rows: list[list[_Fit]] = [[(width - at, False) for at in range(width + 1)]]
    for item in reversed(expected):
        below = rows[-1]
        if item is ...:
            row = [(below[width][0], False)] * (width + 1)
            for at in reversed(range(width)):
                row[at] = (min(below[at][0], row[at + 1][0]), False)
        else:
            row = [(below[width][0] + 1, False)] * (width + 1)
            for at in reversed(range(width)):
                fit = fits(item, happened[at])
                cost = min(below[at][0] + 1, row[at + 1][0] + 1)
                row[at] = (min(cost, below[at + 1][0]) if fit else cost, fit)
        rows.append(row)
    return rows[::-1]


def _cheapest(expected: Sequence[A], happened: Sequence[B], costs: list[list[_Fit]]) -> list[Step[A, B]]:
    steps: list[Step[A, B]] = []
    row, column = 0, 0
    while row < len(expected) or column < len(happened):
        cost, fit = costs[row][column]
        item = expected[row] if row < len(expected) else None
        if item is ...:
            if column < len(happened) and costs[row][column + 1][0] == cost:
                steps.append(Step(item, happened[column], False))
                column += 1
            else:
                if not (steps and steps[-1].expected is ...):
                    steps.append(Step(item, None, False))
                row += 1
        elif fit and costs[row + 1][column + 1][0] == cost:
            steps.append(Step(item, happened[column], False))
            row, column = row + 1, column + 1
        elif item is not None and costs[row + 1][column][0] + 1 == cost:
            steps.append(Step(item, None, True))
            row += 1
        else:
            steps.append(Step(None, happened[column], True))
            column += 1
    return steps
