"""Append-only lists that many moments share.

A moment is (list, length): whoever holds it never sees what comes behind its length. The list belongs to one State.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar, TypeVar, final, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def grown(items: list[T], length: int, item: T) -> list[T]:
    """Return a list whose first *length* items are those of *items*, then *item*.

    It is *items* itself, unless something stands behind *length* already (a commit that was interrupted, a
    restore): nothing is ever cut, since an older moment may still look at it.
    """
    if len(items) != length:
        items = items[:length]
    items.append(item)
    return items


@final
class Prefix(Sequence[T_co]):
    """A read-only view of the first *length* items of a growing list; equal to any sequence of the same items."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T_co], length: int) -> None:
        self._items = items
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            return tuple(self._items[i] for i in range(*index.indices(self._length)))
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"index {index} of {self._length} items")
        return self._items[position]

    def __iter__(self) -> Iterator[T_co]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Prefix) and other._items is self._items:
            return other._length == self._length
        if isinstance(other, str | bytes) or not isinstance(other, Sequence):
            return NotImplemented
        return len(other) == self._length and all(a == b for a, b in zip(self, other, strict=True))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # equal to lists, which have no hash

    def __repr__(self) -> str:
        return repr(self._items[: self._length])

    def extends(self, earlier: Prefix[object]) -> bool:
        """Whether *earlier* is a view of the same list, and no longer."""
        return earlier._items is self._items and earlier._length <= self._length

    def prefix_of(self, other: Sequence[object]) -> bool:
        """Whether *other* begins with these items; at once where both are views of one list."""
        if len(other) < self._length:
            return False
        if isinstance(other, Prefix) and other.extends(self):
            return True
        return all(a == b for a, b in zip(self, other, strict=False))
