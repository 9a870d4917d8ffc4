"""record_model: a Model whose replies are kept in a file, and come from there the next time.

The file is JSON that a person can read and a diff shows well: requests beside what was answered, in the order in which
they were answered. A request says only what is new: ``after`` names the one before it in its conversation. It holds
what a model is sent and what it says, never a header or a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final, get_args

import trio

from .._contracts import Emit, Model
from .._errors import AlpineAgentsError, ProviderError
from ..record._entries import ModelEvent
from ..record._messages import Reply, Request, TextDelta, ThinkingDelta
from ._taped import PLAIN, Form, FormMaker, error_fields, error_of, reply_fields, reply_of, told_fields, told_of
from ._taped_diff import nearest

Mode: TypeAlias = Literal["auto", "record", "replay"]
"""``auto``: replay where the file is, record where it isn't."""

cassette_mode: Final[ContextVar[str | None]] = ContextVar("alpineagents.cassette_mode", default=None)
"""Taken in place of ``auto``: ``record`` or ``replay``. The pytest options ``--agents-record`` and ``--agents-replay``
set it.
"""

_HEAD: Final = '{{\n"cassette": 1,\n"model": {model},\n"exchanges": [\n'
_TAIL: Final = "\n]\n}\n"


class UnrecordedRequestError(AlpineAgentsError):
    """A cassette has no reply to a request; the message shows the recorded request that is most like it."""


def record_model(model: Model, path: str | Path, mode: Mode = "auto") -> Model:
    """Return a Model that keeps the replies of *model* in a file, and takes them from there the next time.

    A request is found by all that the model would be sent: messages, system prompt, tools, tool choice, schema of the
    answer. Equal ones get their replies in the order in which they were recorded. Replies come with their deltas; a
    ``ProviderError`` is recorded, too, and raised again; a request that was cancelled waits until it is cancelled
    again. Nothing connects, and no key is needed, where it replays.

    Args:
        model: The model to record. It is described by it, also where it isn't asked.
        path: The file. One recorded model at a time may write it: give several Agents the same one.
        mode: ``"auto"`` replays where the file is and records where it isn't; ``"record"`` begins the file anew;
            ``"replay"`` only replays. ``pytest --agents-record`` makes ``"auto"`` record.

    Raises:
        TypeError: *model* is no Model.
        ValueError: *mode* is none of the three.

    Raises (when asked):
        UnrecordedRequestError: it replays, and the file hasn't this request, or not so many of it.
        ValueError: the file is no cassette.

    Example:
        >>> from alpineagents.testing import FakeModel
        >>> record_model(FakeModel(["Hello."]), "hello.json").name
        'fake/fake'
    """
    if not isinstance(model, Model):
        raise TypeError(
            f"record_model takes a Model, not {type(model).__name__}: record_model(resolve_model('...'), 'tape.json')"
        )
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be 'auto', 'record' or 'replay', not {mode!r:.80}")
    return RecordedModel(model, Path(path), mode)


@final
class RecordedModel(Model):
    """Made by ``record_model``."""

    def __init__(self, model: Model, path: Path, mode: Mode) -> None:
        self.name: str = model.name
        self.context_window: int | None = model.context_window
        self.max_tokens: int | None = model.max_tokens
        self.price = model.price
        self.structured_output: bool = model.structured_output
        self._model = model
        self._path = path
        self._mode: Mode = mode
        self._forms = FormMaker()
        self._tape: Player | Writer | None = None

    def __repr__(self) -> str:
        return f"record_model({self._model!r}, {str(self._path)!r})"

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return what keeps connections open where it records."""
        return nullcontext() if isinstance(self._opened(), Player) else self._model.session()

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Return the recorded reply, or the model's, which is recorded. Checkpoint: yes.

        Raises:
            UnrecordedRequestError: it replays, and there is no such request.
            Exception: what *model* raised, now or when it was recorded; what *emit* raised.
        """
        form = self._forms.form_of(request)
        tape = self._opened()
        if isinstance(tape, Player):
            return await _replayed(tape.next(form), emit)
        return await _recorded(tape, form, request, emit, self._model)

    def _opened(self) -> Player | Writer:
        if self._tape is None:
            mode = cassette_mode.get() or "auto" if self._mode == "auto" else self._mode
            if mode == "replay" or (mode == "auto" and self._path.exists()):
                self._tape = Player(self._path)
            else:
                self._tape = Writer(self._path, self.name, anew=mode == "record")
        return self._tape


async def _replayed(exchange: dict[str, Any], emit: Emit) -> Reply:
    await trio.lowlevel.checkpoint()
    reply = reply_of(exchange["reply"]) if "reply" in exchange else None
    if "told" in exchange:
        for event in told_of(exchange["told"]):
            emit(event)
    elif reply is not None and reply.text:
        emit(TextDelta(reply.text))
    if exchange.get("cancelled"):
        await trio.sleep_forever()
    if reply is None:
        raise error_of(exchange["error"])
    return reply


async def _recorded(tape: Writer, form: Form, request: Request, emit: Emit, model: Model) -> Reply:
    told: list[TextDelta | ThinkingDelta | ModelEvent] = []

    def heard(event: TextDelta | ThinkingDelta | ModelEvent) -> None:
        told.append(event)
        emit(event)

    try:
        reply = await model.respond(request, heard)
    except ProviderError as error:
        tape.add(form, {"told": told_fields(told), "error": error_fields(error)})
        raise
    except trio.Cancelled:
        tape.add(form, {"told": told_fields(told), "cancelled": True})
        raise
    is_plain = told == ([TextDelta(reply.text)] if reply.text else [])
    tape.add(form, ({} if is_plain else {"told": told_fields(told)}) | {"reply": reply_fields(reply)})
    return reply


# The file


@final
class Writer:
    """Adds what was answered to a file, which is whole JSON all the time."""

    def __init__(self, path: Path, model: str, *, anew: bool) -> None:
        self._path = path
        self._model = model
        self._anew = anew
        self._size: int | None = None
        """Bytes of the file as it was left; None before the first exchange."""
        self._forms: dict[str, Form] = {}
        """The requests in the file, by the hash of their messages."""

    def add(self, form: Form, answer: dict[str, Any]) -> None:
        """Write a request and its answer behind the others."""
        exchange = {"id": form.id, "request": self._what_is_new(form), **answer}
        text = _lines(exchange)
        if self._size is None:
            self._begin(text)
        else:
            self._append(text)
        self._forms.setdefault(form.hashes[-1], form)

    def _what_is_new(self, form: Form) -> dict[str, Any]:
        for length in range(len(form.hashes) - 1, -1, -1):
            before = self._forms.get(form.hashes[length])
            if before is not None:
                new = {name: form.fields[name] for name in form.fields if form.fields[name] != before.fields[name]}
                return {"after": before.id, **new, "messages": form.messages[length + 1 :]}
        given = {name: value for name, value in form.fields.items() if value != PLAIN[name]}
        return {**given, "messages": form.messages}

    def _begin(self, text: str) -> None:
        if not self._anew and self._path.exists():
            raise self._shared()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        head = _HEAD.format(model=json.dumps(self._model))
        self._path.write_bytes((head + text + _TAIL).encode())
        self._size = self._path.stat().st_size

    def _append(self, text: str) -> None:
        with self._path.open("r+b") as file:
            file.seek(0, 2)
            if file.tell() != self._size:
                raise self._shared()
            file.seek(-len(_TAIL), 2)
            file.write(f",\n{text}{_TAIL}".encode())
            self._size = file.tell()

    def _shared(self) -> RuntimeError:
        return RuntimeError(
            f"somebody else writes {self._path}; let the Agents share one model:"
            f" model = record_model(..., {str(self._path)!r})"
        )


def _lines(exchange: dict[str, Any]) -> str:
    """As JSON with a line for each value, but what was told while it came in one."""
    told = exchange.get("told")
    text = json.dumps(exchange | ({} if told is None else {"told": "@told"}), indent=2, ensure_ascii=False)
    if told is not None:
        text = text.replace('"told": "@told"', f'"told": {json.dumps(told, ensure_ascii=False)}', 1)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, in a call's arguments
        return json.dumps(exchange, indent=2)
    return text


@final
class Player:
    """Finds the answers that a file has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._exchanges: dict[str, list[dict[str, Any]]] = {}
        self._given: dict[str, int] = {}
        self._requests: list[dict[str, Any]] = []
        for exchange, request in _exchanges(path):
            self._exchanges.setdefault(exchange["id"], []).append(exchange)
            self._requests.append(request)

    def next(self, form: Form) -> dict[str, Any]:
        """Return what was answered to this request, when it came for as many times as now.

        Raises:
            UnrecordedRequestError: it didn't.
        """
        found = self._exchanges.get(form.id, [])
        given = self._given.get(form.id, 0)
        if given < len(found):
            self._given[form.id] = given + 1
            return found[given]
        how = "pytest --agents-record, or record_model(..., mode='record')"
        if found:
            raise UnrecordedRequestError(
                f"{self._path} has {len(found)} {'reply' if len(found) == 1 else 'replies'} to this request, and it is"
                f" asked once more; record it anew: {how}"
            )
        if not self._path.exists():
            raise UnrecordedRequestError(f"there is no cassette {self._path}; record it: {how}")
        raise UnrecordedRequestError(
            f"{self._path} has no reply to this request; record it anew: {how}\n{nearest(form.whole(), self._requests)}"
        )


def _exchanges(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the exchanges of a file, each with its whole request."""
    if not path.exists():
        return
    known: dict[str, dict[str, Any]] = {}
    try:
        exchanges = json.loads(path.read_bytes())["exchanges"]
        for exchange in exchanges:
            new: dict[str, Any] = exchange["request"]
            before = known[new["after"]] if "after" in new else {**PLAIN, "messages": []}
            request = {**before, **new, "messages": [*before["messages"], *new["messages"]]}
            request.pop("after", None)
            known.setdefault(exchange["id"], request)
            yield exchange, request
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is no cassette ({reason}); delete it, and record it anew") from error
