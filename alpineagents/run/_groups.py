"""How errors leave: what the library's own nurseries raise is made one exception again, here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from ..state import error_text


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the exceptions in a group, or over the one that is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def parts(error: BaseException) -> list[BaseException]:
    """Return what a nursery of the library's own has put in a group: one level, since a group inside is the user's."""
    return list(error.exceptions) if isinstance(error, BaseExceptionGroup) else [error]


def is_cancellation(error: BaseException) -> bool:
    """Whether it is trio's Cancelled, or a group of nothing else."""
    return all(isinstance(leaf, trio.Cancelled) for leaf in leaves(error))


def is_interrupt(error: BaseException) -> bool:
    """Whether it ends a run from outside: cancellation, Ctrl+C, exit."""
    return is_cancellation(error) or _is_exit(error)


def _is_exit(error: BaseException) -> bool:
    return any(isinstance(leaf, KeyboardInterrupt | SystemExit) for leaf in leaves(error))


def most_important(errors: list[BaseException]) -> BaseException:
    """Return the exception that leaves: KeyboardInterrupt or SystemExit first, then the first failure, then Cancelled.

    The failures that don't leave are added to it as notes: an error is never dropped.
    """
    ranked = sorted(errors, key=_rank)
    first = ranked[0]
    for other in ranked[1:]:
        if other is not first and not is_cancellation(other):
            first.add_note(f"also raised: {error_text(other)}")
    return next(leaves(first)) if is_cancellation(first) else first


def _rank(error: BaseException) -> int:
    if _is_exit(error):
        return 0
    return 2 if is_cancellation(error) else 1
