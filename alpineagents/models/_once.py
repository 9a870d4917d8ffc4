"""What a message becomes in a provider's format, made once and used in every later request."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar, final

from ..record._messages import Message

T = TypeVar("T")


@final
class OncePerMessage(Generic[T]):
    """Calls *make* once for each message, and keeps what it returned while the message lives.

    By identity: comparing messages would cost more than making anew.
    """

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[weakref.ref[Message], T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, messages: Iterable[Message]) -> list[T]:
        """Return what each of *messages* becomes."""
        known = self._known.get
        found: list[T] = []
        for message in messages:
            kept = known(id(message))
            found.append(kept[1] if kept is not None and kept[0]() is message else self._made(message))
        return found

    def make_anew(self, messages: Sequence[Message], make: Callable[[Message], T]) -> bool:
        """Put what *make* returns for each of *messages* in place of what it became; return whether any differs."""
        before = self.of(messages)
        return before != [self._made(message, make) for message in messages]

    def _made(self, message: Message, make: Callable[[Message], T] | None = None) -> T:
        key, forget = id(message), self._known.pop
        made = (make or self._make)(message)
        self._known[key] = weakref.ref(message, lambda _: forget(key, None)), made
        return made
