"""Which tool calls may run: verdicts, the three kinds of permissions, those built in, and how they are asked.

A call runs only if somebody allows it. Every DenyPermission is asked first, wherever it stands in the list; then the
others in list order, until one gives a verdict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeAlias, TypeVar, final

import attrs

from .._contracts import Tool
from .._human import Human
from ..record._blocks import ToolCall
from ..record._frozen import joined
from ..record._value import Value
from ..state import State


@final
@attrs.frozen(eq=False, repr=False)
class Allowed(Value):
    """The call may run."""


def _reason(reason: str) -> str:
    if not isinstance(reason, str):
        raise TypeError(
            f"reason must be str, not {type(reason).__name__}: Denied('only files in docs/ may be written')"
        )
    text = joined(reason)
    if not text.strip():
        raise ValueError("reason is blank, and the model reads it: Denied('only files in docs/ may be written')")
    return text


@final
@attrs.frozen(eq=False, repr=False)
class Denied(Value):
    """The call may not run."""

    reason: str = attrs.field(converter=_reason)
    """Why, for the model to read: it is the call's result."""
    stop: bool = False
    """Whether the run stops, too, and the turn's other calls are cancelled."""


Verdict: TypeAlias = Allowed | Denied
"""What a permission can say about a call."""

V = TypeVar("V")


class _Permission(ABC, Generic[V]):
    """What the three kinds have in common: a question about a call."""

    @abstractmethod
    def check(self, state: State, call: ToolCall, tool: Tool) -> V | Awaitable[V | None] | None:
        """Return a verdict, or ``None`` to leave it to those that come after. May be ``async def``.

        A plain ``def`` must not block: it runs on the thread that runs trio.

        Args:
            state: The conversation. Its ``pending_calls`` holds the call, as the model wrote it.
            call: What the model asks for. ``call.args`` fits the tool's schema: what is forgiven, such as a number or
                a list that came as text, is put right.
            tool: The tool that would run.

        Raises:
            ToolError: the call is refused, and the model reads the message.
            Exception: anything else stops the run; the call doesn't run.
        """

    def __repr__(self) -> str:  # it is recorded, so no address is in it
        return f"{type(self).__name__}()"


class DenyPermission(_Permission[Denied]):
    """Subclass it to refuse calls, whatever others allow. ``check`` returns ``Denied(reason)`` or ``None``.

    Example:
        >>> class NotAtNight(DenyPermission):
        ...     def check(self, state, call, tool):
        ...         return Denied("(denied: try again in the morning)") if is_night() else None
    """


class AllowPermission(_Permission[Allowed]):
    """Subclass it to let calls run. ``check`` returns ``Allowed()`` or ``None``."""


class DecidePermission(_Permission[Verdict]):
    """Subclass it to say yes or no. ``check`` returns ``Allowed()``, ``Denied(reason)`` or ``None``."""


Permission: TypeAlias = DenyPermission | AllowPermission | DecidePermission
"""One of an Agent's ``permissions``."""

_KINDS = (DenyPermission, AllowPermission, DecidePermission)


def _patterns(patterns: str | Iterable[str]) -> tuple[str, ...]:
    """As a tuple; one pattern may come without a list around."""
    given: object = patterns
    found: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    for pattern in found:
        if not isinstance(pattern, str):
            raise TypeError(
                f"patterns must be text, the names of tools, not {type(pattern).__name__}: ['read_*', 'search']"
            )
    return found


def _is_named(tool: Tool, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool.name, pattern) for pattern in patterns)


@final
@attrs.frozen(eq=False, repr=False)
class DenyByName(Value, DenyPermission):
    """Refuses tools by name: ``DenyByName(["delete_*", "run_command"])``."""

    patterns: tuple[str, ...] = attrs.field(converter=_patterns)
    """Names, in which ``*`` stands for any text, ``?`` for a character, ``[ab]`` for one of those."""
    reason: str = attrs.field(default="(denied: this tool may not be used)", converter=_reason, kw_only=True)
    """What the model reads. By keyword only: a second pattern that stands without a list is no reason."""

    def check(self, state: State, call: ToolCall, tool: Tool) -> Denied | None:
        """Refuse the call if the tool's name fits."""
        return Denied(self.reason) if _is_named(tool, self.patterns) else None


@final
@attrs.frozen(eq=False, repr=False)
class AllowByName(Value, AllowPermission):
    """Lets tools run by name: ``AllowByName(["read_*", "search"])``."""

    patterns: tuple[str, ...] = attrs.field(converter=_patterns)
    """Names, in which ``*`` stands for any text, ``?`` for a character, ``[ab]`` for one of those."""

    def check(self, state: State, call: ToolCall, tool: Tool) -> Allowed | None:
        """Allow the call if the tool's name fits."""
        return Allowed() if _is_named(tool, self.patterns) else None


@final
@attrs.frozen(eq=False, repr=False)
class AllowByReadOnly(Value, AllowPermission):
    """Lets calls run that change nothing, by the hint ``read_only`` of this very call: ``@tool(read_only=True)``."""

    trust_mcp: bool = False
    """Whether to believe MCP servers what they say of their own tools."""

    def check(self, state: State, call: ToolCall, tool: Tool) -> Allowed | None:
        """Allow the call if its hint says so."""
        if call.args is None or (tool.from_mcp and not self.trust_mcp):
            return None
        return Allowed() if tool.hints_for(call.args).read_only else None


@final
@attrs.frozen(eq=False, repr=False)
class AllowByDefault(Value, AllowPermission):
    """Lets every call run that nobody before it in the list has decided about. Stands last."""

    def check(self, state: State, call: ToolCall, tool: Tool) -> Allowed:
        """Allow the call."""
        return Allowed()


@final
@attrs.frozen(eq=False, repr=False)
class Rule:
    """A permission, with whom it asks."""

    permission: Permission
    human: Human | None
    """The person of the Agent that wrote it; ``None`` where that is the one of the run."""


def checked_permissions(permissions: object) -> tuple[Permission, ...]:
    """Return an Agent's ``permissions``.

    Raises:
        TypeError: they aren't a list of permissions.
    """
    if isinstance(permissions, _Permission | str | type) or not isinstance(permissions, Iterable):
        raise TypeError(
            f"permissions must be a list, not {type(permissions).__name__}: Agent(..., permissions=[AllowByReadOnly()])"
        )
    return tuple([_checked(one) for one in permissions])


def _checked(one: object) -> Permission:
    if isinstance(one, type):
        raise TypeError(f"permissions holds the class {one.__name__}; write an object of it: {one.__name__}()")
    if sum(isinstance(one, kind) for kind in _KINDS) != 1:
        raise TypeError(
            f"permissions holds a {type(one).__name__}; subclass one of DenyPermission, AllowPermission and"
            " DecidePermission"
        )
    return one  # type: ignore[return-value]  # just checked


def inherited(
    above: tuple[Rule, ...] | None, own: tuple[Rule, ...] | None, human: Human | None = None
) -> tuple[Rule, ...] | None:
    """Return the rules of a subagent: every deny above it, then its own list, or the list above if it has none.

    Args:
        above: The effective rules of the run above.
        own: The rules of the subagent's Agent.
        human: Whom the subagent's own rules ask that name nobody.
    """
    if own is not None:
        own = tuple([Rule(rule.permission, human if rule.human is None else rule.human) for rule in own])
    if above is None or own is None:
        return above if own is None else own
    return (*[rule for rule in above if isinstance(rule.permission, DenyPermission)], *own)


def in_order(rules: Sequence[Rule]) -> list[Rule]:
    """Return *rules* in the order in which they are asked."""
    denies = [rule for rule in rules if isinstance(rule.permission, DenyPermission)]
    return [*denies, *[rule for rule in rules if not isinstance(rule.permission, DenyPermission)]]


def checked_verdict(permission: Permission, verdict: object) -> Verdict | None:
    """Return what ``check`` has returned, if a permission of this kind may say that.

    Raises:
        TypeError: it may not. So a DenyPermission never allows, and nothing but ``Allowed()`` does.
    """
    if isinstance(permission, DenyPermission):
        legal: tuple[type, ...] = (Denied,)
    else:
        legal = (Allowed,) if isinstance(permission, AllowPermission) else (Allowed, Denied)
    if verdict is None or isinstance(verdict, legal):
        return verdict  # type: ignore[return-value]  # just checked
    names = " or ".join(f"{kind.__name__}({'...' if kind is Denied else ''})" for kind in legal)
    raise TypeError(f"{type(permission).__name__}.check must return {names} or None, not {verdict!r:.100}")
