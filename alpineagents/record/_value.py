"""The base of all frozen values of the record.

Comparing, hashing and showing are written once, here, for every class: attrs would compile them anew for each, which
was a third of the time that ``import alpineagents`` took.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Final, Self, cast

import attrs

MOST_TEXT: Final = 200
MOST_SHOWN: Final = 1_000


class Value:
    """A frozen value: equal to one of its class with equal fields; whoever copies it, however deep, gets itself.

    Hashable where all its fields are. Its subclasses are attrs classes, with ``eq=False, repr=False``.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        key = _key_of(type(self))  # type: ignore[arg-type]  # mypy takes the hash of values for that of the class
        return bool(key(self) == key(other))

    def __hash__(self) -> int:
        return hash((type(self), _key_of(type(self))(self)))  # type: ignore[arg-type]  # as above

    def __repr__(self) -> str:
        fields = _shown_of(type(self))  # type: ignore[arg-type]  # as above
        shown = [f"{name}={show(getattr(self, name))}" for name, show in fields]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


@cache
def _key_of(cls: type[Any]) -> Callable[[object], object]:
    """What two values of a class are compared by."""
    names = [field.name for field in attrs.fields(cls) if field.eq]
    return attrgetter(*names) if names else type


@cache
def _shown_of(cls: type[Any]) -> list[tuple[str, Callable[[Any], str]]]:
    """The fields that a class shows, each with how."""
    shown: list[tuple[str, Callable[[Any], str]]] = []
    for field in attrs.fields(cls):
        if field.repr:
            how = cast("Callable[[Any], str]", field.repr) if callable(field.repr) else _short
            shown.append((field.name, how))
    return shown


def _short(value: object) -> str:
    """Return a ``repr`` that fits on a screen: long ones are cut."""
    if isinstance(value, str) and len(value) > MOST_TEXT:
        return f"{value[:MOST_TEXT]!r}... ({len(value)} characters)"
    shown = repr(value)
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
