"""What the names in string annotations mean. Pure.

``from __future__ import annotations`` makes every hint a string, and ``typing`` looks names up in the module alone. A
class that is local to a function is only to be found in the frames of the functions around, while they run.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from types import FrameType, SimpleNamespace
from typing import Any, final

import attrs


@final
@attrs.frozen(eq=False, repr=False)
class Scope:
    """Where names are looked up: first in *locals*, then in *globals*."""

    globals: dict[str, Any] = attrs.field(factory=dict[str, Any], repr=False)
    locals: Mapping[str, Any] = attrs.field(factory=dict[str, Any], repr=False)


def names_around(frame: FrameType | None, module: str, qualname: str) -> dict[str, Any]:
    """Return the local names that the function or class *qualname* of *module* sees where it stands: inner ones win.

    Its surroundings are found among the callers of *frame*, as long as they run.
    """
    names: dict[str, Any] = {}
    while frame is not None and "<locals>" in qualname:
        if qualname.startswith(f"{frame.f_code.co_qualname}.") and frame.f_globals.get("__name__") == module:
            names = frame.f_locals | names
        frame = frame.f_back
    return names


def resolve(hint: Any, scope: Scope, place: str) -> Any:
    """Return *hint* with every string in it replaced by what it names.

    Args:
        hint: A type hint, or a string that holds one.
        scope: Where its names are.
        place: What the error calls it.

    Raises:
        TypeError: it can't be evaluated.
    """
    holder = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return typing.get_type_hints(holder, scope.globals, scope.locals, include_extras=True)["hint"]
    except NameError as error:
        raise TypeError(
            f"{place}: the name {error.name!r} in the type hint {hint!r} isn't defined here; define or import it"
            " before, and not only if TYPE_CHECKING"
        ) from None
    except Exception as error:  # evaluating a hint runs whatever is in it
        raise TypeError(f"{place}: the type hint {hint!r} can't be evaluated: {error}") from error
