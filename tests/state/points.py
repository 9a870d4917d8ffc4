"""Something done at each point where CPython looks at signals, one after the other.

That is on entering a function and after a call of C code (and at a jump back, which the next call stands for). A
profile function is called at just these points, so real signals can be raised at every single one of them, and a test
doesn't depend on luck.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import alpineagents

_PACKAGE = str(Path(alpineagents.__file__).parent)


@contextmanager
def at_point(number: int, action: Callable[[], object]) -> Iterator[list[str]]:
    """Call *action* at point *number* of the library's code in the block; give where that was, nothing if not reached.

    What *action* raises is raised there, as from a signal handler.
    """
    reached: list[str] = []
    left = number

    def look(frame: FrameType, event: str, called: object) -> None:
        nonlocal left
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(_PACKAGE):
            return
        if left == 0:
            sys.setprofile(None)
            reached.append(f"{frame.f_code.co_qualname}:{frame.f_lineno} {event} {getattr(called, '__name__', '')}")
            action()
        left -= 1

    sys.setprofile(look)
    try:
        yield reached
    finally:
        sys.setprofile(None)
