"""Laws about leases: one run of a State at a time, whoever asks, and whatever becomes of who had it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from ..._contracts import Store
from ..._errors import ConflictError, RunningElsewhereError
from ._kit import INFO, cancelled_after, entries_of, infos_of, law, moments, raw, raws


async def assert_free(store: Store, state_id: str = "bug-1") -> None:
    """Nobody holds it."""
    async with store.lease(state_id):
        pass


async def assert_held(store: Store, state_id: str = "bug-1") -> None:
    """Somebody holds it."""
    with pytest.raises(RunningElsewhereError, match=state_id):
        async with store.lease(state_id):
            raise AssertionError("a State was leased twice")  # pragma: no cover


class LeaseLaws:
    """What ``lease`` and ``renew`` must do, and what they mean for ``append`` and ``remove``."""

    @law
    async def test_a_state_is_leased_once_at_a_time(self, store: Store) -> None:
        """A second lease of a State is a RunningElsewhereError with its id, until the first has ended."""
        async with store.lease("bug-1"), store.lease("bug-2"):
            await assert_held(store)
            await assert_held(store)
        await assert_free(store)

    @law
    async def test_of_many_who_want_a_lease_at_once_one_gets_it(self, store: Store) -> None:
        """However many ask for the lease of a State at once, one has it; the others get RunningElsewhereError."""
        taken: list[int] = []
        tried: list[int] = []
        all_tried = trio.Event()

        async def take(number: int) -> None:
            try:
                async with store.lease("bug-1"):
                    taken.append(number)
                    has_tried(number)
                    await all_tried.wait()
            except RunningElsewhereError:
                has_tried(number)

        def has_tried(number: int) -> None:
            tried.append(number)
            if len(tried) == 10:
                all_tried.set()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(take, number)

        assert len(taken) == 1

    @law
    async def test_a_lease_that_writes_nothing_leaves_no_state(self, store: Store) -> None:
        """A lease makes no State: neither while it is held nor afterwards is there one."""
        async with store.lease("bug-1"):
            assert not await store.has("bug-1")
            assert list(await store.infos()) == []

        assert not await store.has("bug-1")
        assert list(await store.infos()) == []

    @law
    async def test_a_lease_ends_with_its_block_however_that_ends(self, store: Store) -> None:
        """A lease ends with its block, also by an exception or by cancellation."""
        with pytest.raises(KeyError):
            async with store.lease("bug-1"):
                raise KeyError
        await assert_free(store)
        with trio.CancelScope() as scope:
            async with store.lease("bug-1"):
                scope.cancel()
                await trio.lowlevel.checkpoint()
        await assert_free(store)

    @law
    async def test_a_lease_that_was_cancelled_while_it_was_taken_is_free(self, store: Store) -> None:
        """Whenever the taking of a lease is cancelled: if the block wasn't entered, nobody holds the State."""

        async def take() -> None:
            async with store.lease("bug-1"):
                pass

        rounds = moments()
        was_too_late = False
        while not was_too_late:
            was_too_late = await cancelled_after(next(rounds), take)
            await assert_free(store)

    @law
    def test_a_lease_may_be_left_in_another_trio_run(self, store: Store) -> None:
        """A lease lasts from where it was entered to where it is left, even if that is another trio run."""
        trio.run(store.append, "bug-1", 0, raws(1), INFO)
        lease = store.lease("bug-1")

        trio.run(lease.__aenter__)
        trio.run(assert_held, store)
        trio.run(store.append, "bug-1", 1, raws(1, 1), INFO)
        trio.run(lease.__aexit__, None, None, None)

        trio.run(assert_free, store)
        assert list(trio.run(store.read, "bug-1")) == raws(2)

    @law
    async def test_a_lease_may_be_left_in_another_task(self, store: Store) -> None:
        """A lease belongs to the store object: a task may leave it that didn't enter it, and that one may be gone."""
        lease = store.lease("bug-1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease.__aenter__)
        await assert_held(store)
        await store.append("bug-1", 0, raws(1), INFO)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease.__aexit__, None, None, None)

        await assert_free(store)

    @law
    async def test_under_a_lease_one_appends_and_everybody_reads(self, store: Store) -> None:
        """While a store object holds a State, ``append`` through it writes, and ``read`` and ``infos`` work as ever."""
        async with store.lease("bug-1"):
            await store.append("bug-1", 0, raws(2), INFO)
            await store.append("bug-1", 2, raws(2, 2), INFO)

            assert list(await store.read("bug-1")) == raws(4)
            assert list(await infos_of(store)) == ["bug-1"]
        assert list(await store.read("bug-1")) == raws(4)

    @law
    async def test_a_lease_is_no_reason_to_write_what_does_not_fit(self, store: Store) -> None:
        """Gaps and other entries are a ConflictError under a lease, too."""
        async with store.lease("bug-1"):
            await store.append("bug-1", 0, raws(2), INFO)

            with pytest.raises(ConflictError):
                await store.append("bug-1", 3, raws(1, 3), INFO)
            with pytest.raises(ConflictError):
                await store.append("bug-1", 1, [raw(1, by="another")], INFO)

        assert list(await store.read("bug-1")) == raws(2)

    @law
    async def test_a_held_state_is_not_removed(self, store: Store) -> None:
        """``remove`` and ``delete`` of a State that is held are a RunningElsewhereError; it stays."""
        await store.append("bug-1", 0, raws(1), INFO)

        async with store.lease("bug-1"):
            with pytest.raises(RunningElsewhereError, match="bug-1"):
                await store.remove("bug-1")
            with pytest.raises(RunningElsewhereError, match="bug-1"):
                await store.delete("bug-1")

            assert list(await store.read("bug-1")) == raws(1)
            await store.append("bug-1", 1, raws(1, 1), INFO)
        await store.remove("bug-1")
        assert not await store.has("bug-1")

    @law
    async def test_a_lease_that_is_held_is_renewed(self, store: Store) -> None:
        """``renew`` of a lease that this object holds returns, and the State stays held."""
        async with store.lease("bug-1"):
            await store.renew("bug-1")
            await store.renew("bug-1")

            await assert_held(store)
            await store.append("bug-1", 0, raws(1), INFO)
        await assert_free(store)

    # ---- Two store objects

    @law
    async def test_what_one_store_object_wrote_another_reads(self, store: Store, other: Store) -> None:
        """What is appended through one store object is there for another one, at once and with its info."""
        await store.append("bug-1", 0, raws(2), b'{"turn":1}')
        assert list(await other.read("bug-1")) == raws(2)

        await other.append("bug-1", 2, raws(1, 2), b'{"turn":2}')
        await store.append("bug-1", 3, raws(1, 3), b'{"turn":3}')

        assert list(await other.read("bug-1")) == list(await store.read("bug-1")) == raws(4)
        assert await infos_of(other) == await infos_of(store) == {"bug-1": {"turn": 3}}

    @law
    async def test_two_store_objects_can_not_hold_the_same_state(self, store: Store, other: Store) -> None:
        """A State that one store object holds can't be leased through another one, until the first lets go."""
        async with store.lease("bug-1"):
            await assert_held(other)
            async with other.lease("bug-2"):
                pass
        async with other.lease("bug-1"):
            await assert_held(store)

    @law
    async def test_only_who_holds_a_state_writes_it(self, store: Store, other: Store) -> None:
        """While one store object holds a State, ``append`` and ``remove`` through another one are refused."""
        await other.append("bug-1", 0, raws(1), INFO)

        async with store.lease("bug-1"), store.lease("bug-2"):
            for state_id, length in (("bug-1", 1), ("bug-2", 0)):
                with pytest.raises(RunningElsewhereError, match=state_id):
                    await other.append(state_id, length, raws(1, length), INFO)
            with pytest.raises(RunningElsewhereError, match="bug-1"):
                await other.remove("bug-1")

            assert list(await other.read("bug-1")) == raws(1), "reading needs no lease"
            assert list(await infos_of(other)) == ["bug-1"]
            await store.append("bug-1", 1, raws(1, 1), INFO)
        await other.append("bug-1", 2, raws(1, 2), INFO)
        assert list(await store.read("bug-1")) == raws(3)

    @law
    async def test_a_state_that_nobody_holds_is_written_without_a_lease(self, store: Store, other: Store) -> None:
        """``append`` without a lease works where nobody has one, and leaves none behind."""
        await store.append("bug-1", 0, raws(1), INFO)
        await assert_free(other)
        await other.append("bug-1", 1, raws(1, 1), INFO)
        await assert_free(store)

        assert list(await store.read("bug-1")) == raws(2)

    # ---- Leases that run out

    @law
    async def test_a_lease_that_ran_out_is_free(
        self, store: Store, other: Store, expire: Callable[[str], None]
    ) -> None:
        """A lease that wasn't renewed in time can be taken by somebody else."""
        async with store.lease("bug-1"):
            expire("bug-1")

            await assert_free(other)

    @law
    async def test_a_lease_that_ran_out_is_not_held_twice_through_one_object(
        self, store: Store, expire: Callable[[str], None]
    ) -> None:
        """While a lease hasn't ended, the same object doesn't give another one, nor removes, though it ran out."""
        async with store.lease("bug-1"):
            await store.append("bug-1", 0, raws(1), INFO)
            expire("bug-1")

            await assert_held(store)
            with pytest.raises(RunningElsewhereError, match="bug-1"):
                await store.remove("bug-1")
            await store.append("bug-1", 1, raws(1, 1), INFO)
            await store.renew("bug-1")
            await assert_held(store)

        await assert_free(store)
        assert await entries_of(store) == raws(2)

    @law
    async def test_who_lost_the_lease_can_not_write(
        self, store: Store, other: Store, expire: Callable[[str], None]
    ) -> None:
        """Once somebody else took a lease that ran out, its old holder writes nothing, now or later."""
        async with store.lease("bug-1"):
            await store.append("bug-1", 0, raws(1), INFO)
            expire("bug-1")

            async with other.lease("bug-1"):
                await other.append("bug-1", 1, raws(1, 1), INFO)
                for first in (1, 2):
                    with pytest.raises(RunningElsewhereError, match="bug-1"):
                        await store.append("bug-1", first, raws(2, first), INFO)
                with pytest.raises(RunningElsewhereError, match="bug-1"):
                    await store.renew("bug-1")
            with pytest.raises(RunningElsewhereError, match="bug-1"):
                await store.append("bug-1", 2, raws(1, 2), INFO)
            assert await entries_of(other) == raws(2)

        await store.append("bug-1", 2, raws(1, 2), INFO)  # the lost lease is over
        assert await entries_of(other) == raws(3)

    @law
    async def test_who_lost_the_lease_does_not_end_that_of_another(
        self, store: Store, other: Store, expire: Callable[[str], None]
    ) -> None:
        """Leaving the block of a lease that ran out leaves the lease of who has it now alone."""
        async with store.lease("bug-1"):
            expire("bug-1")
            lease = other.lease("bug-1")
            await lease.__aenter__()

        await assert_held(store)
        await other.append("bug-1", 0, raws(1), INFO)
        await lease.__aexit__(None, None, None)
        await assert_free(store)

    @law
    async def test_a_lease_that_ran_out_and_nobody_took_is_renewed(
        self, store: Store, other: Store, expire: Callable[[str], None]
    ) -> None:
        """A lease that ran out while nobody else wanted it can still be renewed, and then lasts."""
        async with store.lease("bug-1"):
            expire("bug-1")
            await store.renew("bug-1")

            await assert_held(other)
            await store.append("bug-1", 0, raws(1), INFO)
