"""Laws about much at once: readers and writers, threads, cancellation, and who watches."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial

import pytest
import trio
import trio.testing

from ..._contracts import Store
from ..._errors import ConflictError, RunningElsewhereError, StateNotFoundError
from ...state import State
from ._kit import (
    INFO,
    cancelled_after,
    conversation,
    encoded,
    entries_of,
    infos_of,
    law,
    moments,
    put,
    raw,
    raws,
)


class TogetherLaws:
    """What a store must do while it does something else, too."""

    @law
    async def test_readers_see_whole_entries_in_order_while_one_writes(self, store: Store) -> None:
        """Whenever somebody reads while another writes, what they get is a beginning of the history."""
        state = conversation(turns=30)
        entries = encoded(state)
        await store.append("bug-1", 0, entries[:1], INFO)
        seen: list[list[bytes]] = []

        async def read_all() -> None:
            while not seen or len(seen[-1]) < len(entries):
                seen.append(list(await store.read("bug-1")))
                assert list(await infos_of(store)) == ["bug-1"]

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read_all)
            await put(store, state, size=3)

        assert all(found == entries[: len(found)] for found in seen)

    @law
    async def test_many_states_are_written_at_once(self, store: Store) -> None:
        """Many States may be written at the same time, each under its lease."""
        states = [conversation(f"bug-{number}", turns=3) for number in range(50)]

        async def write(number: int) -> None:
            async with store.lease(states[number].id):
                await put(store, states[number])

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(write, number)

        assert [list(await store.read(state.id)) for state in states] == [encoded(state) for state in states]
        assert len(await infos_of(store)) == 50

    @law
    async def test_those_who_append_at_once_can_not_interleave(self, store: Store) -> None:
        """Of those who append different entries to one State at once, one goes on and the others are refused."""
        await self._fight([store])

    @law
    async def test_those_who_append_through_two_objects_can_not_interleave(self, store: Store, other: Store) -> None:
        """The same, where they do it through several store objects."""
        await self._fight([store, other])

    async def _fight(self, stores: Sequence[Store]) -> None:
        lost: list[str] = []

        async def write(who: str, store: Store) -> None:
            try:
                for seq in range(20):
                    await store.append("bug-1", seq, [raw(seq, by=who)], INFO)
            except (ConflictError, RunningElsewhereError):
                lost.append(who)

        async with trio.open_nursery() as nursery:
            for number, who in enumerate("abcd"):
                nursery.start_soon(write, who, stores[number % len(stores)])

        found = [json.loads(entry) for entry in await entries_of(stores[0])]
        assert [entry["seq"] for entry in found] == list(range(len(found)))
        assert len({entry["by"] for entry in found}) <= 1, "entries of several writers"
        # Without a lease each append takes it for a moment: where all were refused, nobody lost anything.
        assert len(lost) >= 3
        assert len(lost) == 4 or len(found) == 20

    @law
    async def test_appends_of_the_same_entries_at_once_add_them_once(self, store: Store) -> None:
        """The same append, several times at once: each succeeds, and the entries are there once."""
        async with store.lease("bug-1"), trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(store.append, "bug-1", 0, raws(3), INFO)

        assert list(await store.read("bug-1")) == raws(3)

    @law
    async def test_several_threads_may_each_run_trio(self, store: Store) -> None:
        """One store object may be used by several threads at once, each of which runs trio."""
        states = [conversation(f"bug-{number}", turns=5) for number in range(4)]

        def write(state: State) -> None:
            trio.run(put, store, state)

        async with trio.open_nursery() as nursery:
            for state in states:
                nursery.start_soon(trio.to_thread.run_sync, write, state)

        assert [list(await store.read(state.id)) for state in states] == [encoded(state) for state in states]

    @law
    async def test_every_method_is_a_checkpoint(self, store: Store) -> None:
        """Every async method is a checkpoint: cancellation gets in, and other tasks get their turn."""
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(store.append, "bug-1", 0, raws(1), INFO),
            partial(store.append, "bug-1", 0, raws(1), INFO),
            partial(store.read, "bug-1"),
            partial(store.has, "bug-1"),
            partial(store.has, "bug-2"),
            store.infos,
            store.list,
            partial(self._take, store),
            partial(store.remove, "bug-1"),
            partial(store.remove, "bug-1"),
            partial(store.save, conversation()),
            partial(store.load, "bug-1"),
            partial(store.delete, "bug-1", children=True),
        ]
        for call in calls:
            with trio.testing.assert_checkpoints():
                await call()

    async def _take(self, store: Store) -> None:
        async with store.lease("bug-1"):
            await store.renew("bug-1")

    # ---- Cancellation

    @pytest.mark.parametrize("leased", [False, True], ids=["alone", "under a lease"])
    @law
    async def test_an_append_cancelled_at_any_moment_can_be_done_again(self, store: Store, leased: bool) -> None:
        """Whenever an append is cancelled: it has happened or not, and the same append again succeeds."""
        rounds = moments()
        was_too_late = False
        while not was_too_late:
            moment = next(rounds)
            state_id = f"bug-{moment}"
            async with store.lease(state_id) if leased else nullcontext():
                was_too_late = await cancelled_after(moment, partial(store.append, state_id, 0, raws(3), INFO))
                found = await entries_of(store, state_id)
                assert found == raws(len(found))

                await store.append(state_id, 0, raws(3), INFO)
                await store.append(state_id, 2, raws(2, 2), b'{"turn":2}')

            assert list(await store.read(state_id)) == raws(4)
            assert (await infos_of(store))[state_id] == {"turn": 2}
            async with store.lease(state_id):
                pass  # nothing was left behind

    @law
    async def test_whatever_is_cancelled_the_store_can_be_used_on(self, store: Store) -> None:
        """A call that was cancelled, whichever and whenever, costs nothing: no connection, no lock, no State."""
        await store.append("bug-1", 0, raws(3), INFO)
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(store.read, "bug-1"),
            store.infos,
            partial(store.append, "bug-1", 0, raws(3), INFO),
            partial(store.append, "bug-2", 0, raws(3), INFO),
            partial(store.remove, "bug-2"),
            partial(self._take, store),
        ]
        for call in calls:
            for moment in (0, 1, 2, 3, 4, 5, 8, 16, 50, 100) * 3:
                await cancelled_after(moment, call)

                assert list(await store.read("bug-1")) == raws(3)
        async with trio.open_nursery() as nursery:
            for number in range(3, 53):
                nursery.start_soon(put, store, conversation(f"bug-{number}", turns=1))
        await store.remove("bug-2")
        assert len(await infos_of(store)) == 51

    # ---- Watching

    @pytest.fixture(autouse=True)
    def _polls_quickly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Store, "poll_seconds", 0.01)

    @law
    async def test_who_watches_sees_what_is_there_and_what_comes(self, store: Store) -> None:
        """``watch`` gives every entry once, in order: those that are there, then those that come."""
        await store.append("bug-1", 0, raws(3), INFO)
        seen: list[bytes] = []

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, store, 1, seen, 9, nursery.cancel_scope)
            for first in range(3, 10):
                while not seen:
                    await trio.lowlevel.checkpoint()
                await store.append("bug-1", first, raws(1, first), INFO)

        assert seen == raws(9, 1)

    @law
    async def test_who_watches_sees_what_another_store_object_writes(self, store: Store, other: Store) -> None:
        """``watch`` gives what is written through other store objects, too, whoever holds the State."""
        await store.append("bug-1", 0, raws(1), INFO)
        seen: list[bytes] = []

        async with other.lease("bug-1"), trio.open_nursery() as nursery:
            nursery.start_soon(watch, store, 0, seen, 4, nursery.cancel_scope)
            for first in range(1, 4):
                while len(seen) < first:
                    await trio.lowlevel.checkpoint()
                await other.append("bug-1", first, raws(1, first), INFO)

        assert seen == raws(4)

    @law
    async def test_watching_a_state_that_is_not_there_says_so(self, store: Store) -> None:
        """``watch`` of a State that isn't there, or was removed meanwhile, ends with a StateNotFoundError."""
        with pytest.raises(StateNotFoundError, match="bug-1"):
            await anext(store.watch("bug-1"))

        await store.append("bug-1", 0, raws(1), INFO)
        watching = store.watch("bug-1")
        assert await anext(watching) == raw(0)
        await store.remove("bug-1")
        with pytest.raises(StateNotFoundError, match="bug-1"):
            await anext(watching)


async def watch(store: Store, after: int, seen: list[bytes], count: int, scope: trio.CancelScope) -> None:
    """Watch bug-1 into *seen* until it has so many entries, then cancel *scope*, which also ends those that write."""
    async for entry in store.watch("bug-1", after=after):
        seen.append(entry)
        if len(seen) == count:
            scope.cancel()
