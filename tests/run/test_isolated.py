"""What is awaited in a context of its own, where trio itself doesn't come: closed or thrown into from outside."""

from __future__ import annotations

import types
from collections.abc import Generator
from contextvars import ContextVar

import pytest

from alpineagents.run._isolated import Isolated

NAME: ContextVar[str] = ContextVar("name", default="outside")


@types.coroutine
def trap() -> Generator[str, object, object]:
    return (yield "waiting")


async def inside(seen: list[object]) -> str:
    NAME.set("inside")
    try:
        seen.append(await trap())
    finally:
        seen.append(NAME.get())
    return "done"


async def outside(seen: list[object]) -> str:
    return await Isolated(inside(seen))


async def test_what_is_sent_comes_in_and_what_is_returned_comes_out():
    seen: list[object] = []
    coroutine = outside(seen)

    assert coroutine.send(None) == "waiting"
    with pytest.raises(StopIteration) as ended:
        coroutine.send("sent")

    assert ended.value.value == "done"
    assert seen == ["sent", "inside"]
    assert NAME.get() == "outside"


async def test_it_is_closed_in_its_own_context():
    seen: list[object] = []
    coroutine = outside(seen)
    coroutine.send(None)
    coroutine.close()

    assert seen == ["inside"]


async def test_what_is_thrown_into_it_comes_out_as_it_is():
    error = KeyError("mine")
    seen: list[object] = []
    coroutine = outside(seen)
    coroutine.send(None)
    with pytest.raises(KeyError) as caught:
        coroutine.throw(error)

    assert caught.value is error
    assert seen == ["inside"]
