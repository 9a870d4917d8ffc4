"""A Model that answers from a script."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, cast, final

import attrs
import trio

from .._contracts import Emit, Model
from .._errors import AlpineAgentsError
from ..record._blocks import Block, TextBlock, ToolCall
from ..record._conversation import Checker
from ..record._growing import Prefix
from ..record._messages import Message, Price, Reply, Request, TextDelta, Usage
from ..state._clock import new_id

Item: TypeAlias = "str | ToolCall | Reply | BaseException | list[str | ToolCall]"
"""One answer: text, a call, several of both, a whole Reply, or an exception to raise."""

Answer: TypeAlias = "Item | Callable[[Request], Item | Awaitable[Item]]"
"""An answer, or a plain or async function that makes it of the Request."""

Script: TypeAlias = "Iterable[Answer] | Callable[[Request], Item | Awaitable[Item]]"

USAGE = Usage(input_tokens=10, output_tokens=10, requests=1)
"""What each request costs, unless a Reply says otherwise."""


class ScriptEndedError(AlpineAgentsError):
    """A FakeModel or a FakeHuman was asked more often than its script has answers."""


def tool_call(name: str, /, **args: Any) -> ToolCall:
    """Return a ToolCall with a fresh id: ``tool_call("read_file", path="a.txt")``."""
    return ToolCall(f"call_{new_id()}", name, args)


@final
class FakeModel(Model):
    """A Model that answers from a script, without a network.

    It also checks every request as a provider would: each call followed by its results, in order, and no others.

    Args:
        script: The answers in order, each text, ``tool_call(...)``, a list of both, a Reply, an exception to raise, or
            a plain or async function of the Request that returns one of these. A function instead of a list answers
            every request.
        name: ``provider/model``.
        delay: Seconds that each answer takes.
        context_window: Tokens; ``None`` = unknown.
        price: ``None`` = unknown; the answers cost nothing either way unless a Reply says otherwise.

    Raises (when asked):
        ScriptEndedError: the script is at its end.
        AssertionError: a request is malformed.

    Example:
        >>> model = FakeModel([tool_call("add", a=1, b=2), "The sum is 3."])
        >>> model.remaining
        2
    """

    def __init__(
        self,
        script: Script = (),
        *,
        name: str = "fake/fake",
        delay: float = 0.0,
        context_window: int | None = None,
        price: Price | None = None,
    ) -> None:
        self.name = name
        self.delay = delay
        self.context_window = context_window
        self.price = price
        self.requests: list[Request] = []
        """Every request so far."""
        self._always = script if callable(script) else None
        self._script = deque() if callable(script) else deque(script)
        self._checker = Checker()
        self._checked: Prefix[Message] | None = None

    @property
    def remaining(self) -> int:
        """How many answers are left."""
        return len(self._script)

    def add(self, *answers: Answer) -> None:
        """Lengthen the script.

        Raises:
            TypeError: it is a function, which answers every request.
        """
        if self._always is not None:
            raise TypeError("this FakeModel's script is a function, which answers every request: FakeModel([...])")
        self._script.extend(answers)

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Return the next answer. Checkpoint: yes."""
        self._check(request)
        self.requests.append(request)
        item = self._always or self._next(request)
        if self.delay:
            await trio.sleep(self.delay)
        else:
            await trio.lowlevel.checkpoint()
        if callable(item):
            made = item(request)
            item = await made if inspect.isawaitable(made) else made
        if isinstance(item, BaseException):
            raise item
        reply = self._reply(cast("Item", item))
        if text := reply.text:
            emit(TextDelta(text))
        return reply

    def _next(self, request: Request) -> Any:
        if not self._script:
            last = request.messages[-1].text if len(request.messages) else ""
            raise ScriptEndedError(
                f"FakeModel got request {len(self.requests)}, and its script had {len(self.requests) - 1} answers;"
                f" the last message is: {last[:200]!r}"
            )
        return self._script.popleft()

    def _reply(self, item: object) -> Reply:
        if isinstance(item, Reply):
            return item if item.model else attrs.evolve(item, model=self.name)
        parts = item if isinstance(item, list | tuple) else [item]
        blocks: list[Block] = []
        for part in parts:
            if not isinstance(part, str | ToolCall):
                raise TypeError(
                    f"a FakeModel answers text, tool_call(...), a list of both, a Reply, an exception; not {part!r:.80}"
                )
            blocks.append(TextBlock(part) if isinstance(part, str) else part)
        calls = any(isinstance(block, ToolCall) for block in blocks)
        return Reply(tuple(blocks), self.name, "tool_calls" if calls else "stop", USAGE)

    def _check(self, request: Request) -> None:
        """Check what the last request hadn't shown; all of it where this is another conversation."""
        messages = request.messages
        if not (isinstance(messages, Prefix) and self._checked is not None and messages.extends(self._checked)):
            self._checker = Checker()
        fault = None
        for position in range(self._checker.position, len(messages)):
            fault = fault or self._checker.fault_in(messages[position])
        fault = fault or self._checker.fault_at_end()
        if fault is not None:
            said = "\n".join(
                f"  {message.role}: {[type(block).__name__ for block in message.blocks]}" for message in messages
            )
            raise AssertionError(f"malformed request: {fault}\n{said}")
        self._checked = messages if isinstance(messages, Prefix) else None
