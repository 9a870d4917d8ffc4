"""What is on in the runs that a Terminal watches, and what is to be shown of it. Pure: no clock, no terminal.

Invariant: a State has rows only while a run of it, or one of its calls, is on. Text streams for one State at a time;
while that is in the middle of a reply, what others have to show for good waits until the reply is over, so that no text
stands in the middle of another. Where nothing streams (``streams=False``), nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import attrs

from ...record._blocks import ToolCall
from ...record._entries import ToolOutcome
from ...record._messages import Reply
from ._shown import Ended, EndOfText, Label, Note, Piece, Printed, Row, Said, Shown, one_line

_REQUEST: Final = "waiting for the model"


@final
@attrs.define
class _Call:
    """A tool call that is on."""

    call: ToolCall
    began: float
    done: float | None = None
    total: float | None = None
    text: str = ""


@final
@attrs.define
class _Work:
    """What is known of a State."""

    key: str
    name: str = ""
    parent: str | None = None
    parent_call: str | None = None
    runs: int = 0
    """How many of its runs are on: 0 where somebody acts on it outside of one, 1, or more where States share an id."""
    status: str = ""
    tokens: int = 0
    calls: dict[str, _Call] = attrs.Factory(dict)
    order: dict[str, int] = attrs.Factory(dict)
    """Places of the last reply's calls in it: tasks start in any order."""
    thought: list[str] = attrs.Factory(list)
    """Reasoning of the reply under way, which will be shown with it."""
    is_missed: bool = False
    """Whether some of the reply under way was not shown as it came, so that it will be shown when it is whole."""

    def new_reply(self) -> None:
        """Forget the reply under way."""
        self.thought.clear()
        self.is_missed = False


@final
class Board:
    """Takes what a Reporter hears; gives what is new to be shown for good (``take``), and what is on (``rows``).

    Args:
        streams: Whether a reply's text is given as it comes, for one State at a time; if not, when it is whole.
        thinking: Whether reasoning is shown.
    """

    def __init__(self, *, streams: bool, thinking: bool = False) -> None:
        self.is_urgent = False
        """Whether rows came or went since that was set back last."""
        self.streams = streams
        """Whether text is given as it comes; may be set."""
        self._thinking = thinking
        self._works: dict[str, _Work] = {}
        self._shown: list[Shown] = []
        self._waiting: list[Shown] = []
        self._streaming: str | None = None
        """Key of the State whose text streams."""
        self._speaker: tuple[str, str] | None = None
        """Key and name of whose text was shown last, if a line with the name is not to be shown again."""
        self._roots: set[str] = set()
        """Keys of the States that are run, but for those of subagents."""
        self._are_several = False
        """Whether there was more than one at a time, since there was none."""

    def take(self) -> list[Shown]:
        """Return what came since the last time, in order."""
        taken, self._shown = self._shown, []
        return taken

    def __len__(self) -> int:
        """Return how many States are known now: roughly those that have rows."""
        return len(self._works)

    def rows(self) -> list[Row]:
        """Return what is on, as a tree from the top: the oldest first, each above what it has started.

        Below it are the lines that a person has typed meanwhile, and that wait.
        """
        typed = [what for what in self._waiting if isinstance(what, Printed) and what.is_typed]
        return [
            *_Tree(self._works, self._are_several, self._streaming).rows(),
            *(Row(0, None, "", f"queued: {one_line(what.text)}") for what in typed),
        ]

    def start(self, key: str, name: str, parent: str | None = None, parent_call: str | None = None) -> None:
        """A run starts, of the State *key*; with *parent*, inside its call *parent_call*."""
        work = self._work(key)
        work.runs += 1
        work.name = one_line(name)
        if parent != key and (above := self._works.get(parent or "")) is not None and not self._is_below(above, key):
            work.parent, work.parent_call = above.key, parent_call
        else:
            self._roots.add(key)
        self._are_several |= len(self._roots) > 1
        self.is_urgent = True

    def think(self, key: str) -> None:
        """A request goes to the model."""
        work = self._work(key)
        work.status = _REQUEST
        work.new_reply()
        self.is_urgent = True

    def say(self, key: str, text: str, *, is_thinking: bool = False) -> None:
        """A piece of text came."""
        work = self._work(key)
        if work.status != (status := "thinking" if is_thinking else "writing"):
            work.status = status
            self.is_urgent = True
        if not text or (is_thinking and not self._thinking):
            return
        if self._streaming is None and self.streams and self._depth(work) == 0 and not work.is_missed:
            self._streaming = key
            self._label(work, self._shown)
        if self._streaming == key:
            self._shown.append(Piece(text, is_thinking))
            self.is_urgent = True
            return
        work.is_missed = True
        if is_thinking:
            work.thought.append(text)

    def event(self, key: str, kind: str, text: str, *, is_restart: bool) -> None:
        """Something happened on the way to the reply; with *is_restart*, the text so far is void."""
        work = self._work(key)
        work.status = one_line(f"{kind}: {text}" if text else kind)
        void = " (the text above is void)" if self._streaming == key and is_restart else ""
        if is_restart:
            work.new_reply()
            if self._streaming == key:
                self._end_text()
        self._tell(work, Note(f"{work.status}{void}", name=self._name(work)))

    def reply(self, key: str, reply: Reply) -> None:
        """The whole reply is there."""
        work = self._work(key)
        work.status = ""
        work.order = {call.id: place for place, call in enumerate(reply.tool_calls)}
        work.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        if self._streaming == key:
            self._end_text()
        elif self._depth(work) == 0:
            said = [Said(text, thinking) for text, thinking in (("".join(work.thought), True), (reply.text, False))]
            shown = [each for each in said if each.text.strip()]
            target = self._target(work)
            if shown:
                self._label(work, target)
            target.extend(shown)
        work.new_reply()
        self.is_urgent = True
        self._forget_idle(work)

    def start_call(self, key: str, call: ToolCall, now: float) -> None:
        """A tool starts; *now* in seconds of any clock."""
        work = self._work(key)
        work.status = ""
        work.calls[call.id] = _Call(call, now)
        self.is_urgent = True

    def progress(self, key: str, call: ToolCall, done: float, total: float | None, text: str | None) -> None:
        """A tool tells how far it is."""
        if (known := self._work(key).calls.get(call.id)) is not None:
            known.done, known.total, known.text = done, total, one_line(text or "")
        self._forget_idle(self._work(key))

    def end_call(self, key: str, call: ToolCall, result: str, outcome: ToolOutcome, now: float) -> None:
        """A call got its result, of which *result* is the first line, or its size."""
        work = self._work(key)
        known = work.calls.pop(call.id, None)
        seconds = None if known is None else now - known.began
        self._tell(work, Ended(call, outcome, result, seconds, self._name(work), self._depth(work)))
        self._forget_idle(work)

    def end(self, key: str, note: str, *, is_error: bool) -> None:
        """A run ended; *note* tells how, of one that isn't a subagent's."""
        work = self._work(key)
        if self._streaming == key:
            self._end_text()
        if self._depth(work) == 0:
            self._tell(work, Note(note, is_error, self._name(work)))
        work.runs = max(work.runs - 1, 0)
        work.status = ""
        work.calls.clear()
        work.new_reply()
        if not work.runs:
            self._roots.discard(key)
            self._are_several = self._are_several and bool(self._roots)
        self.is_urgent = True
        self._forget_idle(work)

    def note(self, key: str, text: str) -> None:
        """Something was recorded that is worth a line."""
        work = self._work(key)
        self._tell(work, Note(text, name=self._name(work)))
        self._forget_idle(work)

    def name(self, key: str) -> str:
        """Return what a State's Agent is called; empty where that isn't known."""
        work = self._works.get(key)
        return "" if work is None else work.name

    def print(self, what: Printed) -> None:
        """The program, or the person, has something to show: unless it can wait at once, even amid a text."""
        target = self._target(None) if what.can_wait else self._shown
        if self._streaming is not None and target is self._shown:
            self._shown.append(EndOfText())
        target.append(what)
        self.is_urgent = True

    def _work(self, key: str) -> _Work:
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = _Work(key)
        return work

    def _forget_idle(self, work: _Work) -> None:
        """Forget a State of which nothing is on. What it has started and is still on stands by itself then."""
        if not (work.runs or work.calls or self._streaming == work.key):
            del self._works[work.key]

    def _end_text(self) -> None:
        """Let others' things be shown, and another State's text stream."""
        self._streaming = None
        self._shown.append(EndOfText())
        if self._waiting:
            self._shown.extend(self._waiting)
            self._waiting.clear()
            self._speaker = None
        self.is_urgent = True

    def _target(self, work: _Work | None) -> list[Shown]:
        """Return where what is shown of *work*, or of none, for good goes now."""
        streaming = self._works.get(self._streaming or "")
        if streaming is None or streaming is work:
            return self._shown
        if not streaming.runs:  # Outside of a run nobody tells how a request ended.
            self._end_text()
            return self._shown
        return self._waiting

    def _tell(self, work: _Work, what: Note | Ended) -> None:
        if self._streaming == work.key:  # Another of its calls has ended meanwhile.
            self._shown.append(EndOfText())
        self._target(work).append(what)
        self.is_urgent = True

    def _label(self, work: _Work, target: list[Shown]) -> None:
        """Have the name above a text, unless it is plain whose that is."""
        name = self._name(work)
        speaker = (work.key, _named(work))
        if name and (self._speaker != speaker or target is self._waiting):
            target.append(Label(name))
        if target is self._shown:
            self._speaker = speaker

    def _name(self, work: _Work) -> str:
        """Return what tells *work* from the others; empty where there is no other."""
        is_new = work.name != "" and self._speaker is not None and self._speaker[1] != work.name
        return _named(work) if self._are_several or is_new or self._depth(work) else ""

    def _depth(self, work: _Work) -> int:
        depth = 0
        while (above := self._works.get(work.parent or "")) is not None:
            work, depth = above, depth + 1
        return depth

    def _is_below(self, work: _Work, key: str) -> bool:
        """Whether *work* is the State *key*, or below it."""
        while work.key != key:
            above = self._works.get(work.parent or "")
            if above is None:
                return False
            work = above
        return True


@final
class _Tree:
    """The rows of all that is on."""

    def __init__(self, works: dict[str, _Work], are_several: bool, streaming: str | None) -> None:
        self._are_several = are_several
        self._streaming = streaming
        self._below: dict[str | None, list[_Work]] = {}
        for work in works.values():
            self._below.setdefault(work.parent if work.parent in works else None, []).append(work)

    def rows(self) -> Iterator[Row]:
        for root in self._below.get(None, []):
            yield from self._rows_of(root, 0)

    def _rows_of(self, work: _Work, depth: int) -> Iterator[Row]:
        """Return the rows of a State: one for itself where it says something, and below it those of its calls."""
        if not (work.runs or work.calls):
            return
        is_below = work.parent is not None and work.parent in self._below
        name = _named(work) if is_below or self._are_several else ""
        if name or (work.status and self._streaming != work.key):
            yield Row(depth, None, name, _status(work) if is_below else work.status)
        yield from self._rows_of_calls(work, depth + 1 if name else depth)

    def _rows_of_calls(self, work: _Work, depth: int) -> Iterator[Row]:
        below = self._below.get(work.key, [])
        for known in sorted(work.calls.values(), key=lambda known: work.order.get(known.call.id, 0)):
            started = [other for other in below if other.parent_call == known.call.id]
            match started:
                case [one] if one.name == known.call.name:  # An Agent as a tool: one row for both.
                    yield Row(depth, known.call, known.call.name, _status(one), known.done, known.total)
                    yield from self._rows_of_calls(one, depth + 1)
                case _:
                    yield Row(depth, known.call, known.call.name, known.text, known.done, known.total)
                    for other in started:
                        yield from self._rows_of(other, depth + 1)
        for other in below:
            if other.parent_call not in work.calls:
                yield from self._rows_of(other, depth)


def _named(work: _Work) -> str:
    return work.name or f"agent {work.key[-6:]}"


def _status(work: _Work) -> str:
    tokens = f"{work.tokens:,} tokens" if work.tokens else ""
    return ", ".join([part for part in (tokens, work.status) if part])
