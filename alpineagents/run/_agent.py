"""Agent: settings, and the actions that use them on States."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, final, overload

import attrs

from .._contracts import Model, OfCall, Reporter, Store, Tool, ToolContext
from .._human import Human
from ..record._entries import AgentInfo
from ..record._frozen import Json
from ..record._messages import Reply, ToolSpec
from ..record._value import Value
from ..state import State
from ..tools import tools_of
from ._ask import ask
from ._compact import compact, context_used
from ._inherit import acted
from ._loops import Body, checked_loop, default_loop
from ._people import ask_human
from ._run import as_state, run
from ._setup import Setup
from ._sync import run_sync
from ._think import think
from ._tokens import context_tokens
from ._use_tools import use_tools

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ..tools._permissions import Permission, Rule
    from ._budget import Budget
    from ._stream import RunStream

T = TypeVar("T")


_TOOL_NAME: Final = r"[a-zA-Z0-9_-]{1,64}"


def _as_model(model: object) -> Model:
    if isinstance(model, str):
        from ..models import resolve_model  # httpx comes with it: only for who names a model

        return resolve_model(model)
    if not isinstance(model, Model):
        raise TypeError(f"model must be a Model or a string, not {type(model).__name__}: Agent(model='ollama/qwen3')")
    return model


def _as_tools(tools: object) -> tuple[Tool, ...]:
    if isinstance(tools, str | Tool) or not isinstance(tools, Iterable):
        raise TypeError(f"tools must be a list, not {type(tools).__name__}: Agent(..., tools=[read_file])")
    return tuple([tool for item in tools for tool in _tools_of(item)])


def _tools_of(item: object) -> list[Tool]:
    if not isinstance(item, Agent):
        return tools_of(item)
    from ._subagent import Subagent  # only for who has some

    return [Subagent(item._setup, item.name, item.description)]


def _as_budget(budget: object) -> Budget | None:
    if budget is None:
        return None
    from ._budget import Budget  # only for who has one

    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be Budget, not {type(budget).__name__}: Agent(..., budget=Budget(requests=50))")
    return budget


def _as_permissions(permissions: object) -> tuple[Permission, ...] | None:
    if permissions is None:
        return None
    from ..tools._permissions import checked_permissions  # only for who has some

    return checked_permissions(permissions)


def _instance_of(kind: type, example: str, *, optional: bool = True) -> Any:
    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if isinstance(value, bool) or not (isinstance(value, kind) or (optional and value is None)):
            if isinstance(value, type) and issubclass(value, kind):
                raise TypeError(
                    f"{field.name} must be {kind.__name__}, not the class {value.__name__}; write an object of it:"
                    f" {value.__name__}(...)"
                )
            raise TypeError(f"{field.name} must be {kind.__name__}, not {type(value).__name__}: {example}")

    return check


def _sha256(text: str) -> str:
    from hashlib import sha256  # only here, and slow to import

    return sha256(text.encode("utf-8", "replace")).hexdigest()


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Agent(Value, OfCall):
    """Settings for States to run with. Making one needs no network, no key and no event loop.

    Args:
        model: A Model, or a string such as ``"ollama/qwen3"``.
        system: The system prompt.
        tools: Functions made tools with ``@tool``, objects that have such methods, ``Tool`` objects, or Agents that
            have ``name`` and ``description``: subagents.
        loop: What a run does; see ``@loop``.
        reporter: Who watches.
        human: Who is asked by ``ask_human`` and ``DecideByHuman``.
        permissions: Who decides which tool calls run, asked in order; ``None`` = all run, ``[]`` = none.
        store: Where the States it runs are saved.
        name: What it is called in records.
        description: What it is for, in a line.
        budget: What a run of it may use, with all its subagents; ``None`` = no limit.
        max_parallel_tools: How many calls of one reply may run at the same time, 1 or more.

    Raises:
        TypeError: a setting of the wrong type.
        ValueError: two tools of one name, or one that providers refuse; an Agent as a tool without name or
            description; an unknown model string.

    Example:
        >>> from alpineagents.testing import FakeModel
        >>> Agent(model=FakeModel(["hello"])).run_sync("hi")
        'hello'
    """

    model: Model = attrs.field(converter=_as_model)
    system: str | None = attrs.field(default=None, validator=_instance_of(str, "Agent(..., system='You are ...')"))
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_as_tools)
    loop: Body = default_loop
    reporter: Reporter | None = attrs.field(
        default=None, validator=_instance_of(Reporter, "subclass alpineagents.Reporter")
    )
    human: Human | None = attrs.field(default=None, validator=_instance_of(Human, "subclass alpineagents.Human"))
    permissions: tuple[Permission, ...] | None = attrs.field(default=None, converter=_as_permissions)
    store: Store | None = attrs.field(
        default=None, validator=_instance_of(Store, "Agent(..., store=FileStore('states'))")
    )
    name: str | None = attrs.field(default=None, validator=_instance_of(str, "Agent(..., name='reader')"))
    description: str | None = attrs.field(default=None, validator=_instance_of(str, "Agent(..., description='...')"))
    budget: Budget | None = attrs.field(default=None, converter=_as_budget)
    max_parallel_tools: int = attrs.field(
        default=16, validator=_instance_of(int, "Agent(..., max_parallel_tools=16)", optional=False)
    )
    tool_map: Mapping[str, Tool] = attrs.field(init=False, repr=False, eq=False)
    """The tools by name, read-only."""
    _setup: Setup = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        checked_loop(self.loop, "loop")
        if self.max_parallel_tools < 1:
            raise ValueError(f"max_parallel_tools must be 1 or more (got {self.max_parallel_tools})")
        by_name: dict[str, Tool] = {}
        for one in self.tools:
            if not re.fullmatch(_TOOL_NAME, one.name):
                example = "Agent(..., name='reader')" if one.is_subagent else "'read_file'"
                raise ValueError(
                    f"tool name {one.name!r:.100} is none that providers take: use 1 to 64 letters, digits, _ and -,"
                    f" such as {example}"
                )
            if one.name in by_name:
                example = "agent.copy(name='...')" if one.is_subagent else "@tool(name='...')"
                raise ValueError(f"two tools are called {one.name!r}; give one another name: {example}")
            by_name[one.name] = one
        object.__setattr__(self, "tool_map", MappingProxyType(by_name))
        object.__setattr__(self, "_setup", self._made_setup())

    def _made_setup(self) -> Setup:
        digest = None if self.system is None else _sha256(self.system)
        return Setup(
            agent=self,
            model=self.model,
            system=self.system,
            tool_map=self.tool_map,
            tool_specs=tuple([ToolSpec(one.name, one.description, one.input_schema) for one in self.tools]),
            loop=self.loop,
            reporter=self.reporter,
            store=self.store,
            human=self.human,
            rules=self._rules(),
            budget=self.budget,
            max_parallel_tools=self.max_parallel_tools,
            info=AgentInfo(name=self.name, model=self.model.name, system_sha256=digest, tools=tuple(self.tool_map)),
        )

    def _rules(self) -> tuple[Rule, ...] | None:
        if self.permissions is None:
            return None
        from ..tools._permissions import Rule

        return tuple([Rule(permission, self.human) for permission in self.permissions])

    def copy(self, **changes: Any) -> Agent:
        """Return an Agent with other settings: ``agent.copy(model=...)``.

        Raises:
            TypeError: no such setting, or one of the wrong type.
        """
        return attrs.evolve(self, **changes)

    @classmethod
    def of_call(cls, context: ToolContext) -> object:
        """Return what a tool's parameter of this type gets: the Agent that the call is made for."""
        return context.agent

    async def run(self, prompt_or_state: str | State) -> Json:
        """Run the loop on a State and return its answer; a prompt makes a State.

        Checkpoint: yes. Cancelled, or Ctrl+C: the request is taken back, pending calls are closed as ``interrupted``,
        the State is saved, and the exception goes on. The State can be run again.

        Raises:
            TypeError: neither a prompt nor a State.
            ValueError: the State is finished, or in another run; or the store has another of its id.
            ResumeWarning: where warnings are errors and another Agent ran the State before.
            Exception: what the model, a tool or the loop raised, as it was raised; it is recorded, too.
        """
        return await run(self._setup, as_state(prompt_or_state))

    def run_sync(self, prompt_or_state: str | State) -> Json:
        """Run in a script, without an event loop; see ``run``.

        In the thread of a sync tool the run is part of the tool's call: it ends with it.

        Raises:
            RuntimeError: this thread runs an event loop already; or it belongs to a tool call that has ended.
        """
        return run_sync(run, self._setup, as_state(prompt_or_state))

    def stream(self, prompt_or_state: str | State) -> AbstractAsyncContextManager[RunStream]:
        """Return a block in which it runs and can be watched: ``async with agent.stream("hi") as run:``.

        ``async for event in run`` gives typed events, subagents' included: ``TextDelta``, ``ThinkingDelta``,
        ``ToolStart``, ``ToolProgress``, ``ToolEnd``, ``EntryAdded`` and ``RunEnd``, each with its ``state``. The run
        doesn't wait for who iterates. Leaving the block early cancels the run, as ``run`` is cancelled.

        Raises (``async with``): what ``run`` raises before it starts, nothing recorded.

        Raises (``async for``, or the end of the block where that came first; once): what the run raised.
        """
        from ._stream import StreamBlock  # only for who streams

        return StreamBlock(self._setup, as_state(prompt_or_state))

    async def think(self, state: State, tools: Iterable[str | Tool] | None = None, tool_choice: str = "auto") -> Reply:
        """Send one request to the model, record its reply and return it. Checkpoint: yes.

        Cancelled, or when the model fails: the request is taken back, and an ErrorEntry says why.

        Args:
            state: The conversation; it needs a message, and no pending calls.
            tools: Names of the tools the model sees; ``None`` = all.
            tool_choice: ``"auto"``, ``"required"``, ``"none"``, or the name of the tool to call.

        Raises:
            ValueError: no messages, pending calls, a finished State, another action on it; or a tool unknown here.
            ProviderError: the provider failed or couldn't be reached.
            CutOffError: the output limit came before any text or tool call.
            BudgetError: the budget of the run is used up.
        """
        return await acted(think, self._setup, state, tools, tool_choice, tells="think")

    async def use_tools(self, state: State) -> None:
        """Run the pending calls, each once, and record each result when it is there.

        Checkpoint: if a tool is one, and where nothing is pending.

        A call the model got wrong (arguments, name) gets an ``input_error`` result. A ``ToolError`` becomes the
        call's result. Any other exception cancels the other calls and is raised; what is finished stays.

        Raises:
            ValueError: a finished State, or another action on it.
            Exception: what a tool raised.
        """
        await acted(use_tools, self._setup, state, tells="use_tools")

    @overload
    async def ask(self, state: State, prompt: str, *, retries: int = 2) -> str: ...
    @overload
    async def ask(self, state: State, prompt: str, returns: type[T], retries: int = 2) -> T: ...
    async def ask(self, state: State, prompt: str, returns: Any = str, retries: int = 2) -> Any:
        """Ask a side question with the conversation in view; ``messages`` doesn't show it, the history does.

        Args:
            state: The conversation.
            prompt: The question.
            returns: The type of the answer: ``str``, ``bool``, ``int``, an attrs class, a dataclass, ...
            retries: How many more times to ask when the answer isn't of that type, 0 or more.

        Raises:
            OutputError: no answer of that type after the retries, or a refusal.
            TypeError: a type that no schema can be made for.
            ValueError: a finished State, or a blank prompt.
            ProviderError: the provider failed or couldn't be reached.
            BudgetError: the budget of the run is used up.
        """
        return await acted(ask, self._setup, state, prompt, returns, retries)

    @overload
    async def ask_human(self, state: State, prompt: str) -> str: ...
    @overload
    async def ask_human(self, state: State, prompt: str, returns: type[T]) -> T: ...
    async def ask_human(self, state: State, prompt: str, returns: Any = str) -> Any:
        """Ask the Agent's ``human`` and record question and answer. Checkpoint: as the Human is one.

        Other States go on meanwhile. Cancelled: nothing is recorded.

        Args:
            state: The conversation. ``messages`` doesn't show the answer; the history does.
            prompt: The question.
            returns: The type of the answer: ``str``, ``bool``, ``int``, an attrs class, a dataclass, ...

        Raises:
            NoHumanError: there is nobody to ask.
            WaitingForAnswerError: the person will answer later, and the run shall not wait.
            TypeError: a type that no answer can be read as.
            ValueError: a finished State, a blank prompt, or an answer that doesn't fit *returns*.
        """
        return await acted(ask_human, self._setup, state, prompt, returns)

    async def compact(self, state: State, instructions: str | None = None) -> None:
        """Have the model write a summary that replaces ``messages``. Messages added meanwhile stay behind it.

        Args:
            state: The conversation, between turns.
            instructions: What the summary should look after, besides the usual.

        Raises:
            OutputError: the model wrote nothing. The messages stay.
            ValueError: no messages, pending calls, an open request, or another action on the State.
            ProviderError: the provider failed or couldn't be reached.
            BudgetError: the budget of the run is used up.
        """
        await acted(compact, self._setup, state, instructions)

    def context_tokens(self, state: State) -> int:
        """Return about how many tokens the next request reads: the provider's last count, the rest estimated."""
        return context_tokens(self._setup, state)

    def context_used(self, state: State) -> float | None:
        """Return the fraction of the model's context window that is; ``None`` where the window is unknown."""
        return context_used(self._setup, state)
