"""The Agent that a command line describes, and what MODULE:NAME on it means."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FunctionType
from typing import Any, Final

from .._contracts import Model, Tool
from .._human import Human
from ..record import ToolCall
from ..run import Agent, Loop
from ..state import State
from ..tools import AllowByDefault, AllowByReadOnly, DecideByHuman, DecidePermission, Denied, Permission, Verdict, tool
from ._exit import UsageError
from ._options import AgentOptions

MODEL_VARIABLE: Final = "ALPINEAGENTS_MODEL"
KEYS: Final = {
    "ANTHROPIC_API_KEY": "anthropic/claude-sonnet-5",
    "OPENAI_API_KEY": "openai/gpt-5",
    "GEMINI_API_KEY": "google/gemini-2.5-flash",
    "GOOGLE_API_KEY": "google/gemini-2.5-flash",
}
"""Variables that a provider's key is read from, each with a model to name as an example."""


class NobodyToAsk(DecidePermission):
    """Refuses what a person would have to decide about, and stops the run: there is no terminal."""

    def check(self, state: State, call: ToolCall, tool: Tool) -> Verdict:
        """Refuse the call."""
        return Denied("(refused: a person would have to allow this call, and there is nobody to ask)", stop=True)


def agent_of(options: AgentOptions, human: Human | None, last_model: str | None = None) -> Agent:
    """Return the Agent that *options* describe; it has no store and no reporter of the command's yet.

    Args:
        options: What was typed.
        human: Who is asked; ``None`` where there is no terminal.
        last_model: The name of the model to take where none is named: the one that a State has run with.

    Raises:
        UsageError: a model, a tool or an amount is none, or no model is named, or MODULE:NAME can't be imported.
    """
    base = None if options.agent is None else agent_called(options.agent)
    try:
        model = _model(options.model, base, last_model)
        agent = Agent(model=model) if base is None else base.copy(model=model)
        tools = [item for name in options.tools for item in _tools_called(name)]
        changes: dict[str, Any] = {
            "system": agent.system if options.system is None else options.system,
            "tools": [*agent.tools, *tools],
            "permissions": _permissions(agent, options.yes, human),
            "human": agent.human or human,
        }
        if options.limit is not None:
            changes["loop"] = _limited(agent.loop, options.limit)
        if options.budget is not None:
            changes["budget"] = _budget(options.budget)
        return agent.copy(**changes)
    except (TypeError, ValueError) as error:  # a tool without a docstring, two of one name, an unknown model, ...
        raise UsageError(str(error)) from error


def _model(given: str | None, base: Agent | None, last: str | None) -> Model:
    from ..models import resolve_model  # httpx comes with it

    if given is None and base is not None:
        return base.model
    if name := given or os.environ.get(MODEL_VARIABLE):
        return resolve_model(name)
    if last is not None and (model := _again(last)) is not None:
        return model
    keys = [key for key in KEYS if os.environ.get(key)]
    example = KEYS[keys[0]] if keys else "anthropic/claude-sonnet-5"
    told = f"the environment has {', '.join(keys)}" if keys else "the environment has no provider's key"
    raise UsageError(f"no model is named: write --model {example}, or set {MODEL_VARIABLE}; {told}")


def _again(name: str) -> Model | None:
    """Return the model that has this name in a history, which may say of another server only where it is."""
    from ..models import resolve_model

    for spelling in (name, f"compatible/{name.partition('/')[2]}"):
        try:
            model = resolve_model(spelling)
        except ValueError:
            continue
        if model.name == name:
            return model
    return None


def _permissions(agent: Agent, yes: bool, human: Human | None) -> list[Permission] | None:
    """Return who decides about calls: the Agent's own permissions, or else that what changes something is asked about.

    Whoever typed ``--yes`` has decided already, and where there is no terminal nobody will.
    """
    if yes and agent.permissions is None:
        return None
    own: Sequence[Permission] = [AllowByReadOnly(), DecideByHuman()] if agent.permissions is None else agent.permissions
    asks_terminal = agent.human is None
    return [
        _decided(one, yes, human) if isinstance(one, DecideByHuman) and one.human is None and asks_terminal else one
        for one in own
    ]


def _decided(permission: DecideByHuman, yes: bool, human: Human | None) -> Permission:
    if yes:
        return AllowByDefault()
    return NobodyToAsk() if human is None else permission


def _limited(loop: Any, limit: int) -> Loop:
    if not isinstance(loop, Loop):
        raise UsageError("--limit needs a loop made with @loop, and the Agent's is another function")
    if limit < 1:
        raise UsageError(f"--limit must be 1 or more (got {limit})")
    return loop.copy(limit=limit)


def _budget(amount: str) -> object:
    from .. import Budget

    try:
        return Budget(cost=amount)
    except (TypeError, ValueError, ArithmeticError):
        raise UsageError(f"--budget takes an amount of US dollars, such as 0.50 (got {amount!r:.80})") from None


# What MODULE:NAME means


def agent_called(name: str) -> Agent:
    """Return the Agent that ``module:agent`` names, imported from the current directory first.

    Raises:
        UsageError: it isn't written like that, can't be imported, or is no Agent.
    """
    found = _called(name, "Agent", "MODULE:AGENT, such as app.agents:reader")
    if not isinstance(found, Agent):
        raise UsageError(f"{name} is a {type(found).__name__}, not an Agent")
    return found


def _tools_called(name: str) -> list[object]:
    """Return what the Agent is given as tools: one object, or those in a list; plain functions made tools."""
    found = _called(name, "tool", "MODULE:NAME, such as app.tools:read_file")
    items = list(found) if isinstance(found, list | tuple) else [found]
    return [tool(item) if isinstance(item, FunctionType) else item for item in items]


def _called(name: str, what: str, example: str) -> object:
    """Return what ``module:name`` names, imported from the current directory first.

    Args:
        name: As typed.
        what: What it is to be, for a message.
        example: How it is written, for a message.

    Raises:
        UsageError: it isn't written like that; or there is no such module, or nothing of this name in it.
    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise UsageError(f"{name!r} names no {what}; write {example}")
    if "/" in module or module.endswith(".py"):
        dotted = module.removesuffix(".py").strip("./").replace("/", ".")
        raise UsageError(f"{module!r} is a file; write the module: {dotted}:{path}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: object = import_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{module} can't be imported: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{module} has no {path!r}; it is looked for from the current directory on") from None
    return found
