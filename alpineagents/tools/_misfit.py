"""How a value is read; and what is wrong with one, and where, in words that a model can use. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, final

import attrs

from .._errors import ToolInputError

JSON_TYPES: Mapping[type, str] = MappingProxyType(
    {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
)
"""The types of JSON values, each with JSON Schema's name for it."""

LONGEST_EXCERPT = 60
"""Characters of a value that a message shows."""
LONGEST_PATH = 40
"""Steps of a path that a message shows; of a longer one the first and the last."""
MOST_PROBLEMS = 50
"""Problems that a message lists; the rest are counted."""


@final
@attrs.frozen(eq=False, repr=False)
class Problem:
    """One thing that is wrong, and where."""

    path: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.text}" if self.path else self.text


class Misfit(Exception):
    """A value that a Shape refuses. It never leaves this package: ``read`` makes a ToolInputError of it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems

    def under(self, key: str | int) -> list[Problem]:
        """Return the problems as seen from one level up."""
        return [Problem((key, *problem.path), problem.text) for problem in self.problems]


@final
class Reading:
    """One reading of a value, forgiving or not, with what unions have found out on the way.

    A union tries its members, and those the unions below them. Without a memory each level would multiply the work.

    Args:
        forgives: Whether what models get wrong is taken, too.
    """

    __slots__ = ("_strictly", "forgives", "known")

    def __init__(self, *, forgives: bool) -> None:
        self.forgives: bool = forgives
        self.known: dict[tuple[int, int], tuple[object, object, Misfit | None]] = {}
        """``id`` of the union, ``id`` of the value → the value, which so stays alive, and what came of it."""
        self._strictly: Reading | None = None

    @property
    def strictly(self) -> Reading:
        """Of the same value, without forgiving."""
        if not self.forgives:
            return self
        if self._strictly is None:
            self._strictly = Reading(forgives=False)
        return self._strictly


def is_a(kind: type, value: object) -> bool:
    """Return ``isinstance(value, kind)``, without a type checker's conclusions about what is in *value*."""
    return isinstance(value, kind)


def json_type(value: object) -> type[object]:
    """Return the JSON type of *value*, one of those that Shapes take."""
    for kind in (dict, list):
        if isinstance(value, kind):
            return kind
    return type(value)


def misfit(expected: str, value: Any) -> Misfit:
    """Return the Misfit for a value of the wrong kind."""
    name = JSON_TYPES.get(json_type(value))
    got = "null" if value is None else f"{name} {excerpt(value)}" if name else excerpt(value)
    return Misfit([Problem((), f"expected {expected}, got {got}")])


def excerpt(value: Any) -> str:
    """Return the beginning of *value* as JSON."""
    if isinstance(value, str) and len(value) > LONGEST_EXCERPT:
        value = value[:LONGEST_EXCERPT]
        return json.dumps(value, ensure_ascii=False) + "..."
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST_EXCERPT else text[:LONGEST_EXCERPT] + "..."


def path_text(path: tuple[str | int, ...]) -> str:
    """Return a path as it is written: ``filters[0].name``."""
    parts: list[str] = []
    for key in path:
        if isinstance(key, str) and key.isidentifier() and len(key) <= LONGEST_EXCERPT:
            parts.append(f".{key}" if parts else key)
        else:
            parts.append(f"[{excerpt(key)}]")
    if len(parts) > LONGEST_PATH:
        parts[LONGEST_PATH // 2 : -LONGEST_PATH // 2] = ["..."]
    return "".join(parts)


def problems_text(problems: Sequence[Problem], what: str) -> str:
    """Return one message that lists *problems*."""
    lines = [str(problem) for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"and {len(problems) - MOST_PROBLEMS} more problems")
    if len(lines) == 1:
        return f"wrong {what}: {lines[0]}"
    return "\n- ".join([f"wrong {what}, {len(problems)} problems:", *lines])


def error_text(error: BaseException) -> str:
    """Return the message of *error*; its class name if that is blank or can't be had."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # whatever a class of the user's does there
        text = ""
    return text if text.strip() else type(error).__name__


def read(shape: Any, value: Any, *, what: str = "arguments", strict: bool = False) -> Any:
    """Return the JSON *value* as the Python value that *shape* stands for.

    Args:
        shape: What is wanted.
        value: What came.
        what: What the error calls it.
        strict: Whether only what the schema accepts is taken.

    Raises:
        ToolInputError: it doesn't fit; the message lists every problem, for the model to read.
    """
    try:
        return shape.read(value, Reading(forgives=not strict))
    except Misfit as error:
        raise ToolInputError(problems_text(error.problems, what)) from error.__cause__
    except RecursionError as error:
        raise ToolInputError(f"wrong {what}: nested too deep") from error
