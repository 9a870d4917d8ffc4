"""What type checkers infer of a Portal: read by ``test_typing``, not run."""

from collections.abc import AsyncIterator
from typing import assert_type

from alpineagents import Agent, Entry, Event, MemoryStore, Message, Reply, State, aio


async def add(a: int, *, b: str = "") -> float:
    return a + len(b)


async def numbers(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


async def main(agent: Agent, state: State, store: MemoryStore) -> None:
    async with aio.Portal() as portal:
        assert_type(await portal.run(store.load, "id"), State)
        assert_type(await portal.run(agent.think, state), Reply)
        assert_type(await portal.run(agent.ask, state, "how many?"), str)
        assert_type(await portal.run(agent.ask, state, "how many?", returns=int), int)
        assert_type(await portal.run(add, 1, b="x"), float)
        assert_type(await portal.run(divmod, 3, 2), tuple[int, int])
        await portal.run(agent.run, state)
        await portal.run(state.add_message, Message.user("more"))

        await portal.run(add, "1")  # type: ignore[call-overload]
        await portal.run(agent.run, 3)  # type: ignore[call-overload]
        await portal.run(agent.run(state))  # type: ignore[call-overload]
        portal.iterate(agent.run, state)  # type: ignore[arg-type]

        async for entry in portal.iterate(state.watch, after=3):
            assert_type(entry, Entry)
        async for number in portal.iterate(numbers, 3):
            assert_type(number, int)
        async with portal.stream(agent, state) as run:
            assert_type(run, aio.PortalStream)
            async for event in run:
                assert_type(event, Event)
