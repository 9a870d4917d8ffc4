"""The subagents of a State: which of its calls started them, and what they used."""

from __future__ import annotations

from typing import final

from ..record._messages import NO_USAGE, Usage
from ._snapshot import Values


@final
class Span:
    """What a child uses from the start of a run that a call started, until another run of it starts."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: Usage) -> None:
        self._before = before
        self._after: Usage | None = None

    def end(self, after: Usage) -> None:
        """Say that what comes after this isn't the call's."""
        self._after = after

    def used(self, now: Usage) -> Usage:
        """Return what was used, given what the child has used in all by now."""
        before, after = self._before, now if self._after is None else self._after
        return Usage(
            after.input_tokens - before.input_tokens,
            after.output_tokens - before.output_tokens,
            after.cache_read_tokens - before.cache_read_tokens,
            after.cache_write_tokens - before.cache_write_tokens,
            after.thinking_tokens - before.thinking_tokens,
            after.requests - before.requests,
            None if before.cost is None or after.cost is None else after.cost - before.cost,
        )


@final
class Children:
    """The subagents of one State that ran in this process. Grows only, so any thread may read it."""

    __slots__ = ("_by_call", "_by_id")

    def __init__(self) -> None:
        self._by_id: dict[str, Values] = {}
        self._by_call: dict[str, list[tuple[Values, Span]]] = {}

    def add(self, call_id: str, child: Values) -> Span:
        """Note that a call has started a run of *child*."""
        span = Span(child.usage)
        self._by_id[child.id] = child
        self._by_call.setdefault(call_id, []).append((child, span))
        return span

    def get(self, child_id: str) -> Values | None:
        """Return the child of this id."""
        return self._by_id.get(child_id)

    def of_call(self, call_id: str) -> tuple[tuple[str, ...], Usage]:
        """Return ids of the children that a call has started so far, and what they have used for it."""
        runs = self._by_call.get(call_id, ())
        ids = tuple(dict.fromkeys([child.id for child, _ in runs]))
        return ids, sum([span.used(child.usage) for child, span in runs], start=NO_USAGE)

    def copy(self) -> Children:
        """Return what a fork knows: its children, but no open calls."""
        other = Children()
        other._by_id.update(self._by_id)
        return other
