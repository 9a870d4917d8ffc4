"""Questions that a service answers: listed, answered by id, and kept in the State until the answer is used.

Invariant: a question is open if ``extra_data["alpineagents.inbox"]`` of its State has it, without an answer. All that
an Inbox knows besides is in which States to look, and which questions a task waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final, final

import attrs
import trio

from .._errors import WaitingForAnswerError
from .._human import Human, Question
from ..record._blocks import ToolCall
from ..record._entries import Entry, ExtraDataEntry, MessageEntry, ModelReplyEntry
from ..record._frozen import FrozenDict, Json, freeze, freeze_dict, same
from ..record._json import dumps
from ..record._messages import Message
from ..record._snapshot import Snapshot
from ..state import Make, Receipt, State
from ..tools._by_human import allowing_always, approval

INBOX_KEY: Final = "alpineagents.inbox"
"""Key of ``extra_data``: questions by id, each with ``question``, ``call_id`` (``None`` where no tool call asks) and
``is_approval``; once it is there ``answer``.
"""


@attrs.frozen(eq=False, repr=False)
class _Known:
    """A question, and the type of its answer."""

    question: Question
    returns: object


@final
class Inbox(Human):
    """A Human whose questions a service lists and answers: ``inbox.open``, ``inbox.answer(id, value)``.

    Both work in any task and any thread. A question is kept in its State, in ``extra_data["alpineagents.inbox"]``, and
    saved before anybody waits for its answer. So it outlives the run that asked it, cancelled or not, and the process.

    Where nobody waits for an answer any more, the model is told of it with a notice. If then the same tool is called
    with the same arguments, or ``ask_human`` asks the same, the answer counts for that, once. It
    still does where another refusal of the same reply kept the call from running.

    Args:
        wait: Whether runs wait for their answers. If not, a call that needs one is refused with ``(waiting for
            approval ID)`` and the run stops; ``ask_human`` raises ``WaitingForAnswerError``.

    Example:
        >>> Inbox().open
        ()
    """

    def __init__(self, *, wait: bool = True) -> None:
        self.wait = wait
        self._lock = threading.RLock()
        self._known: dict[str, _Known] = {}
        self._awaited: set[str] = set()

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions without an answer, in the order in which they were asked. A finished State has none."""
        with self._lock:
            self._known = {key: known for key, known in self._known.items() if _is_open(known.question)}
            return tuple([known.question for known in self._known.values()])

    def add(self, state: State) -> None:
        """List the open questions of a State that a store has loaded.

        Args:
            state: The very object that will run on: the answers are recorded in it.

        Raises:
            TypeError: it is no State.
        """
        if not isinstance(state, State):
            raise TypeError(f"add takes a State, not {type(state).__name__}: inbox.add(await store.load('request-1'))")
        for question_id, item in _items(state.snapshot_now()).items():
            with self._lock:
                if question_id not in self._awaited and not self._is_of_another(question_id, state):
                    self._known[question_id] = _Known(_restored(state, question_id, item), object)

    def answer(self, question_id: str, value: object) -> Receipt:
        """Answer an open question. It takes effect at once; await the Receipt to know that the answer is saved.

        Args:
            question_id: The ``id`` of one of ``open``.
            value: An object of the type that was asked for, or its JSON form. To an approval: ``"yes"``, ``"no"`` or
                ``"always"``.

        Raises:
            LookupError: no such question is open: it may have been answered.
            TypeError: the value has no JSON form.
            ValueError: it isn't what was asked for. The question stays open.
        """
        known = self._known.get(question_id)
        if known is None:
            raise _no_such(question_id)
        from ..tools._answer import fitted_answer  # with the schema code: only for who answers

        question = known.question
        plain: Json = approval(value) if question.is_approval else fitted_answer(value, known.returns)[1]
        with self._lock:
            makes = [_answering(question, plain)]
            if question_id not in self._awaited:
                makes.append(_telling(question, plain))
                if question.is_approval and question.call is not None and plain == "always":
                    makes += [allowing_always(question.call.name), _removing(question_id)]
            entries = question.state.commit_all(makes)
            self._known.pop(question_id, None)
            return Receipt(question.state, entries[0])

    def withdraw(self, question_id: str) -> Receipt:
        """Take back a question that nobody waits for: it is gone, without an answer.

        Raises:
            LookupError: no such question is open.
            ValueError: a run waits for its answer.
        """
        with self._lock:
            known = self._known.get(question_id)
            if known is None or not _is_open(known.question):
                raise _no_such(question_id)
            if question_id in self._awaited:
                raise ValueError(f"a run waits for the answer to question {question_id}; answer it, or cancel the run")
            del self._known[question_id]
            return Receipt(known.question.state, known.question.state.commit(_removing(question_id)))

    async def ask(self, question: Question, returns: object) -> object:
        """List *question* and wait for its answer; return at once with one that came when nobody waited any more.

        Checkpoint: yes. Cancelled: the question stays open.

        Raises:
            WaitingForAnswerError: there is no answer yet, and ``wait`` is False; or nobody can give one any more, since
                the State was finished.
            StoreError: the question couldn't be saved. It stays open.
            RuntimeError: it was taken out of ``extra_data`` meanwhile.
        """
        state = question.state
        with self._asked(question, returns) as question_id:
            await state.wait_saved(state.snapshot_now().length)
            with state.waiter() as waiter:
                while not _is_answered(state, question_id):
                    if not self.wait or state.finished:
                        raise WaitingForAnswerError(question_id)
                    await waiter.wait()
            return self._taken(state, question_id)

    def give_back(self, question: Question, answer: object) -> None:
        """Keep an answer that was not used for the next time that the same call is asked about."""
        question.state.commit(_opening(question, answer=freeze(answer)))

    @contextmanager
    @trio.lowlevel.enable_ki_protection
    def _asked(self, question: Question, returns: object) -> Iterator[str]:
        """Have the question in the State, and in the list, for a block that waits for its answer under the id given.

        If the block ends without having taken an answer that is there by then, the model is told of it.
        """
        state = question.state
        with self._lock:
            question_id = self._twin_of(question)
            if question_id is None:
                question_id = question.id
                state.commit(_opening(question))
            else:
                question = _restored(state, question_id, _items(state.snapshot_now())[question_id], question.call)
            self._awaited.add(question_id)
            self._known[question_id] = _Known(question, returns)
        try:
            yield question_id
        finally:
            with self._lock:
                self._awaited.discard(question_id)
                if not _is_open(question):
                    self._known.pop(question_id, None)
                item = _items(state.snapshot_now()).get(question_id)
                if item is not None and "answer" in item:
                    state.commit(_telling(question, item["answer"]))

    def _twin_of(self, question: Question) -> str | None:
        """Return the id of a question that asks the same and that nobody waits for: an answered one if there is one."""
        state = question.state
        items = sorted(_items(state.snapshot_now()).items(), key=lambda item: "answer" not in item[1])
        for question_id, item in items:
            if question_id in self._awaited or self._is_of_another(question_id, state):
                continue
            other = _restored(state, question_id, item)
            if other.is_approval == question.is_approval and (
                _same_call(other.call, question.call) if question.is_approval else str(other) == str(question)
            ):
                return question_id
        return None

    def _is_of_another(self, question_id: str, state: State) -> bool:
        """Whether it is listed for another State, of which *state* is a fork."""
        known = self._known.get(question_id)
        return known is not None and known.question.state.id != state.id and _is_open(known.question)

    def _taken(self, state: State, question_id: str) -> Json:
        with self._lock:
            answer: Json = _items(state.snapshot_now())[question_id]["answer"]
            state.commit(_removing(question_id))
            return answer


def _items(snap: Snapshot) -> dict[str, FrozenDict]:
    """The questions in a State, by id."""
    items = snap.extra_data.get(INBOX_KEY)
    return {key: item for key, item in items.items() if isinstance(item, FrozenDict)} if isinstance(items, dict) else {}


def _entry(snap: Snapshot, at: datetime, items: Mapping[str, Json]) -> Entry:
    if not items:
        return ExtraDataEntry(snap.length, snap.turn, at, FrozenDict(), (INBOX_KEY,))
    return ExtraDataEntry(snap.length, snap.turn, at, freeze_dict({INBOX_KEY: dict(items)}))


def _opening(question: Question, **answer: Json) -> Make:
    call_id = None if question.call is None else question.call.id
    item = freeze_dict({"question": str(question), "call_id": call_id, "is_approval": question.is_approval, **answer})
    return lambda snap, at: _entry(snap, at, {**_items(snap), question.id: item})


def _answering(question: Question, answer: Json) -> Make:
    def make(snap: Snapshot, at: datetime) -> Entry:
        items = _items(snap)
        item = items.get(question.id)
        if item is None or "answer" in item or snap.finished:
            raise _no_such(question.id)
        return _entry(snap, at, {**items, question.id: freeze_dict({**item, "answer": answer})})

    return make


def _removing(question_id: str) -> Make:
    def make(snap: Snapshot, at: datetime) -> Entry:
        return _entry(snap, at, {key: item for key, item in _items(snap).items() if key != question_id})

    return make


def _telling(question: Question, answer: Json) -> Make:
    """Return what tells the model of an answer that nobody waits for."""
    notice = Message.notice(_told(question, answer))
    return lambda snap, at: MessageEntry(snap.length, snap.turn, at, notice)


def _told(question: Question, answer: Json) -> str:
    if not question.is_approval:
        return f"The question {str(question)!r} ({question.id}) was answered: {dumps(answer).decode()}"
    name = "the call" if question.call is None else question.call.name
    if answer == "no":
        return f"The user refused {name} (approval {question.id})."
    scope = "any call of it" if answer == "always" else "the same call, with the same arguments"
    return f"The user allowed {name} (approval {question.id}): {scope} may run now. Send it again."


def _is_open(question: Question) -> bool:
    snap = question.state.snapshot_now()
    item = _items(snap).get(question.id)
    return item is not None and "answer" not in item and not snap.finished


def _is_answered(state: State, question_id: str) -> bool:
    item = _items(state.snapshot_now()).get(question_id)
    if item is None:
        raise RuntimeError(
            f"question {question_id} is no longer in extra_data[{INBOX_KEY!r}] of State {state.id}, so it can't be"
            " answered; leave that key to the Inbox"
        )
    return "answer" in item


def _restored(state: State, question_id: str, item: Mapping[str, Json], call: ToolCall | None = None) -> Question:
    """Return the question that stands in a State."""
    if call is None:
        call = _find_call(state, item.get("call_id"))
    text, is_approval = item.get("question"), item.get("is_approval") is True
    return Question(
        text if isinstance(text, str) else "", id=question_id, state=state, call=call, is_approval=is_approval
    )


def _find_call(state: State, call_id: Json) -> ToolCall | None:
    for entry in reversed(state.history):
        if isinstance(entry, ModelReplyEntry):
            for call in entry.content.tool_calls:
                if call.id == call_id:
                    return call
    return None


def _same_call(a: ToolCall | None, b: ToolCall | None) -> bool:
    if a is None or b is None or a.name != b.name:
        return False
    return same(a.args or FrozenDict(), b.args or FrozenDict())  # None stands for a blank text: no arguments


def _no_such(question_id: str) -> LookupError:
    return LookupError(
        f"no question {question_id!r:.100} is open; it may be answered already: inbox.open lists those that are"
    )
