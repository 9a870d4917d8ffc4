"""What can be done with conversations, whoever asks for it. Nothing in here knows of HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, final

import trio

from alpineagents import (
    Agent,
    ConflictError,
    ExtraDataEntry,
    Human,
    Inbox,
    Message,
    MessageEntry,
    Question,
    Reporter,
    RunningElsewhereError,
    State,
    StateInfo,
    StateNotFoundError,
    Store,
    StoreError,
)

from .conversations import Conversations
from .live_text import LiveText
from .runs import Runs, wants_run

KEY: Final = "service.message."
"""Beginning of keys of ``extra_data``: behind it is the key that a client sent a message with; the value is its seq.

Message and key are recorded without a checkpoint in between, so a store writes them as one.
"""

QUESTIONS: Final = "alpineagents.inbox"
"""Where the Inbox keeps its questions in ``extra_data``: by id, with the ``answer`` once it is there."""

log = logging.getLogger("service")


class RefusedError(Exception):
    """The conversation is in a state in which this can't be done; the message says what can."""


class KeyUsedError(Exception):
    """The client has sent another message with this key."""


@final
class Service:
    """The conversations of one store, run by one Agent.

    Args:
        store: Where they are saved.
        make_agent: Makes the Agent, given who answers for it and who watches it.
        at_once: How many runs are on at the same time.
        finish_seconds: How long runs may go on when the service stops, before they are cancelled and saved.
        retry_seconds: How long to wait before asking again for what another process holds, or the store can't give.
    """

    def __init__(
        self,
        store: Store,
        make_agent: Callable[[Store, Human, Reporter], Agent],
        *,
        at_once: int = 64,
        finish_seconds: float = 2.0,
        retry_seconds: float = 5.0,
    ) -> None:
        self.live_text = LiveText()
        self._store = store
        self._inbox = Inbox(wait=False)  # nothing waits in memory for a person who may answer next week
        self._conversations = Conversations(store, self._inbox)
        agent = make_agent(store, self._inbox, self.live_text)
        self._retry_seconds = retry_seconds
        self._runs = Runs(
            agent,
            self._conversations,
            at_once=at_once,
            finish_seconds=finish_seconds,
            retry_seconds=retry_seconds,
        )
        self._has_looked = trio.Event()

    @property
    def stopping(self) -> trio.Event:
        """Set it to stop: nothing new is begun, event streams end, runs end or are cancelled and saved."""
        return self._runs.stopping

    @property
    def ended(self) -> trio.Event:
        """Set when it has stopped so far that nothing is left to save."""
        return self._runs.ended

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Do the service's own work while the block lasts: runs, what was cut short before, and forgetting."""
        async with self._store, self._runs.open(), trio.open_nursery() as nursery:
            nursery.start_soon(self._go_on)
            nursery.start_soon(self._conversations.let_go)
            yield
            nursery.cancel_scope.cancel()

    async def _go_on(self) -> None:
        """Run what the process before has left, and list the questions that are open."""
        while True:
            try:
                for info in await self._store.list(parent_id=None):
                    if not info.finished:
                        await self._look_at(info.id)
                break
            except StoreError as error:
                log.warning("the store can't be read: %s", type(error).__name__)
            await trio.sleep(self._retry_seconds)
        self._has_looked.set()

    async def _look_at(self, conversation_id: str) -> None:
        try:
            state = await self._conversations.get(conversation_id, keep=False)
        except StoreError as error:
            log.warning("%s is left alone: %s", conversation_id, type(error).__name__)
        else:
            if wants_run(state):
                self._runs.wake(state)

    # Looking

    async def find(self, conversation_id: str) -> State:
        """Return a conversation. Raises StateNotFoundError where there is none, or none yet."""
        try:
            state = await self._conversations.get(conversation_id)
        except ValueError:  # no id at all
            state = None
        if state is None or state.store is None:
            raise StateNotFoundError(f"there is no conversation {conversation_id!r}; GET /conversations lists them")
        return state

    async def infos(self, limit: int, before: str | None) -> Sequence[StateInfo]:
        """Return a page of the list, the newest first. A damaged record is left out, with a warning."""
        return await self._store.list(parent_id=None, limit=limit, before=before)

    def is_running(self, state: State) -> bool:
        """Whether a run is on, or about to begin."""
        return self._runs.is_running(state)

    async def is_current(self, state: State) -> bool:
        """Whether *state* still stands for its conversation."""
        return await self._conversations.is_current(state)

    async def all_questions(self) -> list[Question]:
        """Return what people are asked, as far as this process knows. Checkpoint: after a start, until it has looked.

        It has looked at all conversations then; of what other processes ask since, it learns when somebody asks for
        the conversation.
        """
        await self._has_looked.wait()
        return list(self._inbox.open)

    def questions(self, state: State) -> list[Question]:
        """Return what people are asked in one conversation."""
        return [question for question in self._inbox.open if question.state is state]

    # Changing. What these return for is durable.

    async def start(self, conversation_id: str | None, text: str, key: str) -> tuple[State, int]:
        """Begin a conversation with a message, and return it with the message's seq.

        Raises:
            ValueError: no good id, or a blank text.
            RefusedError: there is a conversation of this id, and it has no message with this key.
            StoreError: it couldn't be saved; it may be there or not.
        """
        state = State(id=conversation_id)
        message = Message.user(text)
        if await self._store.has(state.id) or not self._conversations.add(state):
            state = await self._conversations.get(state.id)
            if KEY + key not in state.extra_data:
                place = f"/conversations/{state.id}/messages"
                raise RefusedError(f"conversation {state.id} is there: POST {place} adds to it")
        return state, await self._say(state, message, key)

    async def say(self, state: State, text: str, key: str) -> int:
        """Add a message, once for each *key*, and return its seq. A run takes it up: the one that is on, or the next.

        Raises:
            ValueError: a blank text.
            RefusedError: the conversation is finished.
            KeyUsedError: the key was used for another message.
            StoreError: it couldn't be saved; it may be there or not. The same again, with the same key, settles that.
        """
        return await self._say(state, Message.user(text), key)

    async def _say(self, state: State, message: Message, key: str) -> int:
        with self._forgetting(state):
            async with state.edit_extra_data() as data:
                seq = data.get(KEY + key)
                if seq is None:
                    if state.finished:
                        raise RefusedError(f"conversation {state.id} is finished: POST /conversations begins another")
                    state.add_message(message)
                    seq = data[KEY + key] = len(state.history) - 1
                elif not _is_at(state, seq, message):
                    raise KeyUsedError(f"Idempotency-Key {key!r} was used for another message; take a new one for each")
                self._runs.wake(state)
            if state.store is None or state.saved <= seq:  # it is new, or what came first with this key isn't there yet
                await self._store.save(state)
            return seq

    async def cancel(self, state: State) -> bool:
        """Cancel the run that is on or waits; return whether there is one."""
        with self._forgetting(state):
            return await self._runs.cancel(state)

    async def finish(self, state: State) -> None:
        """End a conversation for good."""
        with self._forgetting(state):
            await state.finish()

    async def answer(self, state: State, question_id: str, value: object) -> None:
        """Answer a question of a conversation, and run that on. The same answer again changes nothing.

        Raises:
            LookupError: it isn't open, and wasn't answered with that.
            ValueError: that is no answer to it.
            StoreError: it couldn't be saved; it may be there or not. The same again settles that.
        """
        with self._forgetting(state):
            if question_id in [question.id for question in self.questions(state)]:
                receipt = self._inbox.answer(question_id, value)
                self._runs.wake(state)
                await receipt
            elif (seq := _answered_at(state, question_id, value)) is None:
                raise LookupError(
                    f"no question {question_id!r} is open; it may have another answer: GET /approvals lists them"
                )
            elif state.saved <= seq:
                await self._store.save(state)

    @contextmanager
    def _forgetting(self, state: State) -> Iterator[None]:
        """Forget what this process knows of a State that another one has changed, or holds."""
        try:
            yield
        except (ConflictError, RunningElsewhereError):
            self._conversations.forget(state)
            raise


def _answered_at(state: State, question_id: str, value: object) -> int | None:
    """Return the seq of the entry in which a question got that answer; None where it didn't."""
    for entry in reversed(state.history):
        if isinstance(entry, ExtraDataEntry):
            questions = entry.content.get(QUESTIONS)
            question = questions.get(question_id) if isinstance(questions, Mapping) else None
            if isinstance(question, Mapping) and "answer" in question:
                return entry.seq if question["answer"] == value else None
    return None


def _is_at(state: State, seq: int, message: Message) -> bool:
    entry = state.history[seq]
    return isinstance(entry, MessageEntry) and entry.content == message
