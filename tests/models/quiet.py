"""A model's requests, in every way that they can end, in a process where nothing but Python itself would show them.

Run by test_no_traces.py, without pytest and its handlers: ``python -X dev -W error -m tests.models.quiet``.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from alpineagents import (
    BadRequestError,
    Fallback,
    Message,
    OverloadedError,
    ProviderError,
    Reply,
    Request,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolSpec,
    UnreachableError,
)
from alpineagents.testing import Fault, ProviderServer, ReceivedRequest
from tests.models.every import KEY, PROVIDERS, Provider

WORDS = "One two three four five six seven eight nine ten."
LOOK = ToolSpec("look", "Look at a place.", {"type": "object", "properties": {"place": {"type": "string"}}})
HI = Request(messages=[Message.user("Hi")], tools=[LOOK], system="Be brief.")
ANSWER = Reply([ThinkingBlock("Hm."), TextBlock("I look."), ToolCall("c1", "look", {"place": "Rome"})])


def ignore(event: object) -> None:
    """An emit that drops everything."""


def _given_up(provider: Provider) -> Callable[[ReceivedRequest], bytes]:
    def answer(request: ReceivedRequest) -> bytes:
        events = provider.format().events(Reply([TextBlock(WORDS)]), request)
        return b"".join(events[: len(events) // 2]) + provider.overloaded

    return answer


def ways(provider: Provider) -> dict[str, tuple[list[Any], type[ProviderError] | None]]:
    """How a request can end: what the provider answers, and what that is to its caller."""
    cut = Fault(answer=WORDS, cut_after=600)
    return {
        "answered": ([ANSWER], None),
        "answered in pieces": ([Fault(answer=WORDS, chunk_size=1)], None),
        "refused by the model": ([provider.refusal], None),
        "retried": ([Fault(status=503), Fault(drop=True), Fault(garbage=b"\0\r\n\r\n"), "Hi"], None),
        "begun again": ([_given_up(provider), cut, "Hi"], None),
        "given up in all attempts": ([_given_up(provider)] * 5, OverloadedError),
        "cut in all attempts": ([cut] * 5, ProviderError),
        "silent": ([Fault(answer=WORDS, cut_after=600, stall=True)] * 5, ProviderError),
        "wrong key": ([Fault(status=401)], ProviderError),
        "too long": ([Fault(status=400, body=provider.format().error(400, provider.too_long))], ProviderError),
        "bad": ([Fault(status=400)], BadRequestError),
        "page": ([Fault(body="<html><title>Sign in</title></html>")], ProviderError),
        "no JSON": ([b"data: {\n\n"] * 5, ProviderError),
    }


async def ask(provider: Provider, request: Request, script: list[Any], expected: type[ProviderError] | None) -> None:
    """Ask the scripted provider; it must end as *expected*."""
    async with ProviderServer(script, api_key=KEY) as server:
        with contextlib.nullcontext() if expected is None else pytest.raises(expected):
            await provider.at(server, **provider.thinking).respond(request, ignore)


async def ask_and_cancel(provider: Provider, request: Request) -> None:
    """Ask, and go away in the middle of the answer."""
    async with ProviderServer([Fault(answer=WORDS, cut_after=600, stall=True)], api_key=KEY) as server:
        with trio.CancelScope() as scope:
            await provider.at(server).respond(request, lambda event: scope.cancel())
        assert scope.cancelled_caught


async def _main() -> None:
    for provider in PROVIDERS:
        for script, expected in ways(provider).values():
            await ask(provider, HI, script, expected)
        await ask_and_cancel(provider, HI)
        async with ProviderServer([Fault(status=400), "Hi"], api_key=KEY) as server:
            first, second = provider.at(server), provider.at(server)
            await Fallback(first, second, on=(BadRequestError,)).respond(HI, ignore)
        with pytest.raises(UnreachableError):
            await provider.made().respond(HI, ignore)


if __name__ == "__main__":
    warnings.simplefilter("error")
    trio.run(_main, clock=trio.testing.MockClock(autojump_threshold=0))
