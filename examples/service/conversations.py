"""The conversations that somebody uses right now: one State object each, which leaves memory when nobody does."""

from __future__ import annotations

from typing import Final, NoReturn, final
from weakref import WeakValueDictionary

import trio

from alpineagents import Inbox, State, StateNotFoundError, Store, StoreError

KEEP_SECONDS: Final = 60.0
"""How long a State stays in memory after its last use, at least; twice that at most."""


@final
class Conversations:
    """States by id, loaded when they are wanted.

    Invariant: at most one State object of an id is the current one; whatever is done to a conversation is done to that.
    It is current as long as anybody has it: a run, a request, an event stream, or the Inbox with a question about it.
    """

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self.store = store
        self._inbox = inbox
        self._current: WeakValueDictionary[str, State] = WeakValueDictionary()
        self._used: set[State] = set()
        self._used_before: set[State] = set()

    async def get(self, conversation_id: str, *, keep: bool = True) -> State:
        """Return the conversation, with *keep* also for the next who asks. Checkpoint: where the store is asked.

        Raises:
            StateNotFoundError: there is none.
            StoreError: it can't be read.
        """
        state = self._current.get(conversation_id)
        if state is not None and await self._is_outdated(state):
            self.forget(state)
            state = self._current.get(conversation_id)
        if state is None:
            loaded = await self.store.load(conversation_id)
            state = self._current.setdefault(conversation_id, loaded)  # somebody else may have been faster
            if state is loaded:
                self._inbox.add(state)
        if keep:
            self._used.add(state)
        return state

    def add(self, state: State) -> bool:
        """Take in a new conversation; False where there is one of its id, and then nothing changes."""
        if self._current.setdefault(state.id, state) is not state:
            return False
        self._used.add(state)
        return True

    async def is_current(self, state: State) -> bool:
        """Whether *state* is what others get, too. Checkpoint: where the store is asked."""
        try:
            if await self._is_outdated(state):
                self.forget(state)
        except StateNotFoundError:
            return False
        except StoreError:
            pass  # nobody can tell; the next time
        return self._current.get(state.id) is state

    async def _is_outdated(self, state: State) -> bool:
        """Whether another process has gone on with it."""
        saved = state.saved
        if state.store is None or state.is_at_work():  # who holds the lease knows the newest
            return False
        new = await self.store.read(state.id, saved)
        return bool(new) and state.saved == saved and not state.is_at_work()  # else they may be our own

    def forget(self, state: State) -> None:
        """Let the next who asks load it anew: another process has written to it."""
        if self._current.get(state.id) is state:
            del self._current[state.id]
        self._used.discard(state)
        self._used_before.discard(state)

    async def let_go(self) -> NoReturn:
        """Let go of what nobody has used for a while, for ever. Runs as a task of the service."""
        while True:
            await trio.sleep(KEEP_SECONDS)
            self._used_before, self._used = self._used, set()
