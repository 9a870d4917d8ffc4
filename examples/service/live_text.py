"""Hands the text that models are writing to who follows the conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

from alpineagents import Reporter, State


@final
class LiveText(Reporter):
    """The Agent's Reporter. Whoever follows is told on the thread that runs trio, and must not block."""

    def __init__(self) -> None:
        self._followers: dict[str, list[Callable[[str], None]]] = {}

    def on_text(self, state: State, text: str) -> None:
        """Hand it on."""
        for follower in self._followers.get(state.id, ()):
            follower(text)

    @contextmanager
    def followed(self, state: State, follower: Callable[[str], None]) -> Iterator[None]:
        """Hand text of *state* to *follower* while the block lasts."""
        followers = self._followers.setdefault(state.id, [])
        followers.append(follower)
        try:
            yield
        finally:
            followers.remove(follower)
            if not followers:
                del self._followers[state.id]
