"""Warnings as lines: for who sits at a terminal, where in the code they come from says nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from ..state._show import one_line


@contextmanager
def warnings_told(say: Callable[[str], object]) -> Iterator[None]:
    """Have each warning that would be printed given to *say*, as a line, in a block."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        say(f"warning: {one_line(str(message))}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def say_on_error(text: str) -> None:
    """Print a line on standard error; nothing where that is closed."""
    if sys.stderr is not None:  # else print would take standard output
        print(text, file=sys.stderr)
