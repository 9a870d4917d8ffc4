"""What answers in a replay: in place of the model, the tools and the person, with what was recorded of them."""

from __future__ import annotations

import sys
from typing import Any, Final, final

import attrs
import trio

from ..._contracts import Emit, Model
from ..._errors import ToolInputError
from ..._human import Human, Question
from ..._tool_contract import Hints, Tool, ToolContext
from ...record._blocks import ResultBlock, TextBlock
from ...record._entries import (
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ModelReplyEntry,
    StopEntry,
    StoppedByPermission,
    ToolOutcome,
    ToolResultEntry,
)
from ...record._frozen import FrozenDict
from ...record._json import dumps
from ...record._messages import Message, Reply, Request
from ...run._budget import Budget
from ...run._compact import INSTRUCTIONS
from ...run._setup import Setup
from ...state import Recorder, State
from ...tools import DecideByHuman, read_args
from ...tools._permissions import Rule
from ._errors import error_of, waiting
from ._fits import CUT, is_by_model, is_closed, is_interrupt
from ._judging import out_of_time
from ._record import Over, Record


@final
class StandIns:
    """Puts stand-ins into the settings of whatever acts on the State that is replayed."""

    def __init__(self, record: Record, *, has_human_above: bool) -> None:
        self._record = record
        self._has_human_above = has_human_above

    def __call__(self, setup: Setup, state: Recorder) -> Setup:
        """Return *setup* with nothing in it that would be called; as it is where it acts on another State."""
        if state is not self._record.state or isinstance(setup.model, StandInModel):
            return setup
        record = self._record
        has_human = setup.human is not None or self._has_human_above
        rules = setup.rules
        return attrs.evolve(
            setup,
            model=StandInModel(setup.model, record),
            tool_map={name: StandInTool(tool, record) for name, tool in setup.tool_map.items()},
            reporter=None,
            store=None,
            human=StandInHuman(record) if has_human else None,
            budget=self._timeless(setup.budget),
            max_parallel_tools=sys.maxsize,  # the record says in which order calls ended
            rules=None if rules is None else tuple([_rule(rule, record) for rule in rules]),
        )

    def _timeless(self, budget: Budget | None) -> Budget | None:
        """Return what of a budget can be counted again: time passes otherwise now."""
        if budget is None or budget.seconds is None:
            return budget
        self._record.seconds = budget.seconds
        return attrs.evolve(budget, seconds=None, requests=budget.requests or sys.maxsize)


def _rule(rule: Rule, record: Record) -> Rule:
    permission = rule.permission
    if isinstance(permission, DecideByHuman) and permission.human is not None:
        permission = DecideByHuman(StandInHuman(record))
    return attrs.evolve(rule, permission=permission, human=rule.human and StandInHuman(record))


async def raised(record: Record, entry: ErrorEntry) -> Exception:
    """Do what the recorded error did: return it, to be raised; or be interrupted."""
    if entry.content.startswith(CUT):
        record.cut()
    elif entry.content == "Cancelled":
        await _cancelled(record, entry)
    else:
        error = error_of(entry)
        record.raised.append(error)
        if isinstance(error, Exception):
            return error
        raise error
    raise Over


async def _cancelled(record: Record, entry: ErrorEntry) -> None:
    """Wait to be cancelled: with the whole run, or by a deadline of the loop's own."""
    if record.run_ended_with(entry.seq):
        record.scope.cancel()
    elif trio.current_effective_deadline() == float("inf"):
        record.differ_here("nothing cancels this, and then something did")
        return
    else:
        record.waits_for_deadline = True
    try:
        await trio.sleep_forever()
    finally:
        record.waits_for_deadline = False


# The model


@final
class StandInModel(Model):
    """Gives the recorded replies."""

    def __init__(self, model: Model, record: Record) -> None:
        self.name: str = model.name
        self.context_window: int | None = model.context_window
        self.max_tokens: int | None = model.max_tokens
        self.price = model.price
        self.structured_output: bool = model.structured_output
        self._record = record
        self._asked: list[Entry] = []

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Return what was recorded. Checkpoint: yes."""
        record = self._record
        text = request.messages[-1].text
        if not isinstance(request.messages, tuple):  # think sends the State's own
            entry = await record.turn_of(_ends_think)
        elif text.startswith(INSTRUCTIONS):
            entry = await record.turn_of(_ends_compact)
        else:
            entry = await record.turn_of(lambda entry: _ends_ask(entry, text))
        if entry is None and any(record.next() is asked for asked in self._asked):  # not good enough today
            record.differ_here(f"the recorded answer is refused: {text}")
            raise Over
        match entry:
            case ModelReplyEntry():
                return entry.content
            case ExchangeEntry():
                self._asked.append(entry)
                answer = entry.content.answer
                text = answer if isinstance(answer, str) else dumps(answer).decode()
                return Reply((TextBlock(text),), self.name, "stop", entry.usage)
            case ContextChangeEntry():
                return Reply((TextBlock(entry.content.summary or ""),), self.name, "stop", entry.content.usage)
            case ErrorEntry():
                raise await raised(record, entry)
            case _ if (error := out_of_time(record)) is not None:
                raise error
            case _:
                record.differ_here(f"the model is asked:\n{text}")
                raise Over


def _ends_think(entry: Entry) -> bool:
    return isinstance(entry, ModelReplyEntry) or (isinstance(entry, ErrorEntry) and entry.action == "think")


def _ends_compact(entry: Entry) -> bool:
    return is_by_model(entry) or (isinstance(entry, ErrorEntry) and entry.action == "compact")


def _ends_ask(entry: Entry, text: str) -> bool:
    if isinstance(entry, ExchangeEntry) and entry.kind == "ask":
        return text.startswith(Message.user(entry.content.question).text)
    return isinstance(entry, ErrorEntry) and entry.action == "ask"


# The tools


class _Told(Exception):
    """What the model got of a call that failed."""

    def __init__(self, content: tuple[ResultBlock, ...]) -> None:
        super().__init__("recorded")
        self.content = content


@final
class StandInTool(Tool):
    """Reads arguments as the tool does today, and gives the recorded result."""

    def __init__(self, tool: Tool, record: Record) -> None:
        self.name: str = tool.name
        self.description: str = tool.description
        self.input_schema = tool.input_schema
        self.parallel: bool = tool.parallel
        self.abandon_on_cancel: bool = tool.abandon_on_cancel
        self.max_result_bytes: int = tool.max_result_bytes
        self.is_subagent: bool = tool.is_subagent
        self.hints: Hints = tool.hints
        self.from_mcp: bool = tool.from_mcp
        self._tool: Final = tool
        self._record = record

    def __repr__(self) -> str:
        return repr(self._tool)

    def hints_for(self, args: FrozenDict) -> Hints:
        """Return what the tool itself says."""
        return self._tool.hints_for(args)

    def read_args(self, args: FrozenDict) -> Any:
        """Read them as the tool does; ToolInputError where it refuses them."""
        return read_args(self._tool, args)

    async def run(self, args: Any, state: State) -> object:
        """Not called: ``call`` is."""
        raise AssertionError("a stand-in has to know its call")

    async def call(self, args: Any, context: ToolContext) -> object:
        """Return what was recorded. Checkpoint: yes."""
        call, record = context.call, self._record
        if not record.state.snapshot_now().is_pending(call.id):
            return None  # its result is there: then it ended before others that run first now
        entry = await record.turn_of(lambda entry: _ends_call(entry, call.id))
        match entry:
            case ErrorEntry():
                raise await raised(record, entry)
            case ToolResultEntry(outcome=ToolOutcome.DONE):
                return list(entry.full or entry.content)
            case ToolResultEntry(outcome=ToolOutcome.ERROR):
                raise _Told(entry.full or entry.content)
            case ToolResultEntry(outcome=ToolOutcome.INPUT_ERROR):
                raise ToolInputError("".join([block.text for block in entry.content if isinstance(block, TextBlock)]))
            case ToolResultEntry() if is_closed(entry):
                await self._cut_short(entry)
            case _:
                record.differ_here(f"{call.name} is called, and wasn't then")
        raise Over

    async def _cut_short(self, entry: ToolResultEntry) -> None:
        """The call was closed with the run. Nothing said why before it, so that comes next, or the process died."""
        record = self._record
        if entry.outcome is ToolOutcome.ABORTED:
            record.cut()
            return
        record.put_in()
        following = record.next()
        if isinstance(following, ErrorEntry) and is_interrupt(following):
            raise await raised(record, following)
        if record.is_awaited():
            await trio.sleep_forever()  # another call comes to it
        record.cut()  # what was interrupted is told before: a side question that the tool asked
        raise Over

    def answer_to(self, error: Exception) -> object:
        """Return what the model got; other exceptions stopped the run."""
        if isinstance(error, _Told):
            return list(error.content)
        raise error


def _ends_call(entry: Entry, call_id: str) -> bool:
    if isinstance(entry, ToolResultEntry):
        return entry.call.id == call_id and not entry.late
    if not isinstance(entry, ErrorEntry) or entry.action != "use_tools":
        return False
    return entry.call is None or entry.call.id == call_id


# The person


@final
class StandInHuman(Human):
    """Gives the recorded answers."""

    def __init__(self, record: Record) -> None:
        self._record = record

    async def ask(self, question: Question, returns: object) -> object:
        """Return what was recorded. Checkpoint: yes."""
        record = self._record
        entry = await record.turn_of(lambda entry: _ends_question(entry, question))
        match entry:
            case ExchangeEntry():
                return entry.content.answer
            case StopEntry():
                raise waiting(_refusal(record, entry))
            case ErrorEntry():
                raise await raised(record, entry)
            case _:
                record.differ_here(f"a person is asked:\n{question}")
                raise Over


def _ends_question(entry: Entry, question: Question) -> bool:
    match entry:
        case ExchangeEntry(kind="human"):
            return entry.content.question == str(question)
        case StopEntry(content=StoppedByPermission(call)):
            return question.call is not None and call.id == question.call.id
        case ErrorEntry(action="use_tools"):
            return question.call is not None and (entry.call is None or entry.call.id == question.call.id)
        case ErrorEntry(action="run"):
            return question.call is None
        case _:
            return False


def _refusal(record: Record, stop: StopEntry) -> str:
    """Return what the model was told of the call whose refusal stopped the run."""
    for entry in record.entries[stop.seq + 1 :]:
        if isinstance(entry, ToolResultEntry) and entry.outcome is ToolOutcome.DENIED:
            return "".join([block.text for block in entry.content if isinstance(block, TextBlock)])
    return "(denied)"
