"""Fallback: a Model made of several, the next one where one fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, final

import attrs

from .._contracts import Emit, Model
from .._logs import MODELS
from ..record._entries import ModelEvent
from ..record._messages import NO_USAGE, Price, Reply, Request, TextDelta, ThinkingDelta
from ._log_lines import with_status
from ._retry import PASSING, tell_usage, usage_of
from ._wire import one_line

FALL_BACK_ON: Final = PASSING
"""What may pass with another model: too many requests, overload, a broken answer, no connection."""


@final
class Fallback(Model):
    """A Model that asks the first of *models*, the next one where that fails, and so on.

    Each request begins with the first again. A model first does all its own retries: give it fewer, ``retries=1``, to
    change over sooner. Each change is a ModelEvent ``fallback``; where its data say ``restarted``, what was emitted of
    the failed answer is thrown away. ``Reply.model`` says which one answered, and ``Reply.usage`` is that of all.

    ``name`` is the first one's, ``context_window`` the smallest that is known, ``max_tokens`` the largest where all
    have one, ``price`` what the dearest asks, where all are known, so that budgets reserve enough: each model has put
    its own cost into its usage. ``structured_output`` is true where all have it.

    Args:
        *models: One or more Models, Fallbacks included.
        on: The errors that call for the next model. The default is RateLimitError, OverloadedError, BrokenStreamError
            and UnreachableError; not what another model can't mend or shouldn't hide: a wrong key, a malformed
            request. Add ContextTooLongError where a later one has a larger window.

    Raises:
        TypeError: one of *models* is no Model, or *on* holds something that is no class of exceptions.
        ValueError: there is no model, or no error.

    Example:
        >>> from alpineagents.testing import FakeModel
        >>> Fallback(FakeModel(name="here/large"), FakeModel(name="there/small")).name
        'here/large'
    """

    def __init__(self, *models: Model, on: type[Exception] | Iterable[type[Exception]] = FALL_BACK_ON) -> None:
        for model in models:
            if not isinstance(model, Model):
                raise TypeError(f"Fallback takes Models, not {type(model).__name__}: resolve_model('...') makes one")
        if not models:
            raise ValueError("Fallback needs a Model: Fallback(first, second)")
        self.models = models
        """All, in order."""
        self.on: tuple[type[Exception], ...] = (on,) if isinstance(on, type) else tuple(on)
        """The errors that call for the next model."""
        given: tuple[object, ...] = self.on
        for kind in given:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(f"on holds {kind!r:.80}; it takes classes of exceptions: on=(RateLimitError,)")
        if not self.on:
            raise ValueError("on is empty: no error would call for the next model; on=(RateLimitError,)")
        windows = [model.context_window for model in models if model.context_window is not None]
        self.name: str = models[0].name
        self.context_window: int | None = min(windows, default=None)
        limits = [model.max_tokens for model in models if model.max_tokens is not None]
        self.max_tokens: int | None = max(limits) if len(limits) == len(models) else None
        prices = [model.price for model in models if model.price is not None]
        self.price: Price | None = _dearest(prices) if len(prices) == len(models) else None
        self.structured_output: bool = all(model.structured_output for model in models)

    def __repr__(self) -> str:
        return f"Fallback({', '.join([repr(model) for model in self.models])})"

    def session(self) -> AbstractAsyncContextManager[None]:
        """Return what enters the sessions of all models."""
        return self._sessions()

    @asynccontextmanager
    async def _sessions(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for model in self.models:
                await stack.enter_async_context(model.session())
            yield

    async def respond(self, request: Request, emit: Emit) -> Reply:
        """Return the reply of the first model that gives one; its usage has what the others spent.

        Checkpoint: yes. Cancelled: the request is given up and its connection closed.

        Raises:
            Exception: what the last model raised, or one before it that isn't in ``on``. Its notes tell of those that
                failed before, and its ``usage`` is that of all.
        """
        spent, told = NO_USAGE, list[str]()
        for position, model in enumerate(self.models, 1):
            watch = _Watch(emit)
            try:
                reply = await model.respond(request, watch)
            except BaseException as error:
                spent += usage_of(error)
                if position == len(self.models) or not isinstance(error, self.on) or error is watch.raised:
                    tell_usage(error, spent)
                    for note in told:
                        error.add_note(note)
                    raise
                text, kind, status = one_line(str(error)), type(error).__name__, getattr(error, "status", None)
            else:
                reply = attrs.evolve(reply, model=reply.model or model.name)
                return attrs.evolve(reply, usage=spent + reply.usage) if told else reply
            told.append(f"before that, {model.name} failed: {kind}: {text}")
            following = self.models[position].name
            data = {"from": model.name, "to": following, "error": kind, "restarted": watch.shown}
            event = ModelEvent("fallback", f"{model.name} failed ({kind}: {text}); {following} is asked instead", data)
            try:
                emit(event)
            except BaseException as error:
                tell_usage(error, spent)
                raise
            MODELS.warning("%s failed (%s): %s is asked instead", model.name, with_status(kind, status), following)
        raise AssertionError("the last model neither answered nor failed")


def _dearest(prices: list[Price]) -> Price:
    """Return a price that none of *prices* is above, in whatever part."""
    return Price(
        max(price.input for price in prices),
        max(price.output for price in prices),
        max(price.input if price.cache_read is None else price.cache_read for price in prices),
        max(price.input if price.cache_write is None else price.cache_write for price in prices),
    )


@final
class _Watch:
    """An Emit that remembers what went through it."""

    def __init__(self, emit: Emit) -> None:
        self.shown = False
        """Whether a piece of an answer did that wasn't thrown away yet."""
        self.raised: Exception | None = None
        """What the other one raised: no failure of a model."""
        self._emit = emit

    def __call__(self, event: TextDelta | ThinkingDelta | ModelEvent) -> None:
        if not isinstance(event, ModelEvent):
            self.shown = True
        elif event.data.get("restarted"):
            self.shown = False
        try:
            self._emit(event)
        except Exception as error:
            self.raised = error
            raise
