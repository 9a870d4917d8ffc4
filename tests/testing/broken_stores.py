"""Stores that break one law each, and one that breaks none. Run by test_store_laws.py in a process of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from alpineagents import ConflictError, CorruptStoreError, RunningElsewhereError, StateNotFoundError, Store, StoreError
from alpineagents.stores._rules import Listed, created_at, page
from alpineagents.testing import StoreLaws


class Data:
    """What store objects share."""

    def __init__(self) -> None:
        self.entries: dict[str, list[bytes]] = {}
        self.infos: dict[str, bytes] = {}
        self.tokens: dict[str, int] = {}
        """Of the lease that was taken last."""
        self.held: set[str] = set()
        self.expired: set[str] = set()
        self.damaged: set[str] = set()


class Lease(AbstractAsyncContextManager):
    def __init__(self, store: HonestStore, state_id: str) -> None:
        self.store = store
        self.state_id = state_id

    async def __aenter__(self) -> None:
        await trio.lowlevel.checkpoint()
        self.store.take(self.state_id)

    async def __aexit__(self, kind: object, *_: object) -> None:
        self.store.end(self.state_id)


class HonestStore(Store):
    """Does what a store must do; several objects of it may share their data, and leases run out."""

    lease_seconds = 30.0

    def __init__(self, data: Data) -> None:
        self.data = data
        self.mine: dict[str, int] = {}
        """Tokens of the leases that this object took."""

    async def append(self, state_id: str, first_seq: int, entries: Sequence[bytes], info: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.check_holder(state_id)
        there = self.there(state_id)
        self.check_gap(state_id, first_seq, there)
        self.check_same(state_id, first_seq, entries, there)
        if new := self.additions(first_seq, entries, there):
            self.put(state_id, there, new, info)

    def there(self, state_id: str) -> list[bytes]:
        if state_id in self.data.damaged:
            raise CorruptStoreError(f"{state_id} is damaged")
        return self.data.entries.get(state_id, [])

    def check_gap(self, state_id: str, first_seq: int, there: list[bytes]) -> None:
        if first_seq > len(there):
            raise ConflictError(f"{state_id}: a gap")

    def check_same(self, state_id: str, first_seq: int, entries: Sequence[bytes], there: list[bytes]) -> None:
        if any(not self.same(new, old) for new, old in zip(entries, there[first_seq:], strict=False)):
            raise ConflictError(f"{state_id}: another entry")

    def same(self, new: bytes, old: bytes) -> bool:
        return new == old

    def additions(self, first_seq: int, entries: Sequence[bytes], there: list[bytes]) -> list[bytes]:
        return [self.kept(entry) for entry in entries[len(there) - first_seq :]]

    def kept(self, entry: bytes) -> bytes:
        return entry

    def put(self, state_id: str, there: list[bytes], new: list[bytes], info: bytes) -> None:
        self.data.entries[state_id] = there + new
        self.data.infos[state_id] = info

    async def read(self, state_id: str, after: int = 0) -> Sequence[bytes]:
        await trio.lowlevel.checkpoint()
        if state_id not in self.data.entries:
            raise StateNotFoundError(f"no {state_id}")
        return self.there(state_id)[after:]

    async def infos(self, *, limit: int | None = None, before: str | None = None) -> Sequence[tuple[str, bytes]]:
        await trio.lowlevel.checkpoint()
        return page(self, [self.listed(*item) for item in self.data.infos.items()], limit, before)

    def listed(self, state_id: str, info: bytes) -> Listed:
        return Listed(state_id, info, created_at(json.loads(info)))

    async def remove(self, state_id: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_held(state_id) or state_id in self.mine:
            raise RunningElsewhereError(f"{state_id} is held")
        self.data.entries.pop(state_id, None)
        self.data.infos.pop(state_id, None)

    # Leases

    def lease(self, state_id: str) -> AbstractAsyncContextManager[None]:
        return Lease(self, state_id)

    def is_held(self, state_id: str) -> bool:
        return state_id in self.data.held and state_id not in self.data.expired

    def is_mine(self, state_id: str) -> bool:
        return state_id in self.data.held and self.mine.get(state_id) == self.data.tokens[state_id]

    def take(self, state_id: str) -> None:
        if self.is_held(state_id) or state_id in self.mine:
            raise RunningElsewhereError(f"{state_id} is held")
        self.data.held.add(state_id)
        self.data.expired.discard(state_id)
        self.mine[state_id] = self.data.tokens[state_id] = self.data.tokens.get(state_id, 0) + 1

    def end(self, state_id: str) -> None:
        if self.is_mine(state_id):
            self.data.held.discard(state_id)
        del self.mine[state_id]

    def check_holder(self, state_id: str) -> None:
        if not self.is_mine(state_id) and (state_id in self.mine or self.is_held(state_id)):
            raise RunningElsewhereError(f"{state_id} is held")

    async def renew(self, state_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.check_holder(state_id)
        self.data.expired.discard(state_id)


# ---- Broken ones


BROKEN: dict[type[Store], Sequence[str]] = {}
"""Each with the laws it must fail."""


def breaks(*laws: str) -> Callable[[type[Store]], type[Store]]:
    def register(broken: type[Store]) -> type[Store]:
        BROKEN[broken] = [f"test_{law}" for law in laws]
        return broken

    return register


@breaks(
    "what_was_appended_is_read_in_its_order",
    "a_loaded_state_has_the_values_of_the_saved_one",
    "a_state_is_saved_bit_by_bit",
    "loading_closes_what_was_open",
    "an_agent_saves_what_it_does",
    "a_cancelled_run_is_saved_and_goes_on",
    "any_sequence_of_calls_does_what_it_does_to_a_list",
)
class LosesTheLastEntry(HonestStore):
    async def read(self, state_id, after=0):
        return (await super().read(state_id))[:-1][after:]


@breaks("what_was_appended_is_read_in_its_order", "a_loaded_state_has_the_values_of_the_saved_one")
class Reorders(HonestStore):
    def put(self, state_id, there, new, info):
        super().put(state_id, there, new[::-1], info)


@breaks(
    "read_begins_behind_the_entries_one_has_seen",
    "who_watches_sees_what_is_there_and_what_comes",
    "who_watches_sees_what_another_store_object_writes",
)
class IgnoresAfter(HonestStore):
    async def read(self, state_id, after=0):
        return await super().read(state_id)


@breaks("what_was_read_stays_as_it_was")
class HandsOutItsOwnList(HonestStore):
    def put(self, state_id, there, new, info):
        self.data.entries.setdefault(state_id, there).extend(new)
        self.data.infos[state_id] = info

    async def read(self, state_id, after=0):
        entries = await super().read(state_id, after)
        return entries if after else self.data.entries[state_id]


@breaks("appending_does_not_keep_the_list_it_was_given")
class KeepsTheListItWasGiven(HonestStore):
    def additions(self, first_seq, entries, there):
        return super().additions(first_seq, entries, there) if there else entries

    def put(self, state_id, there, new, info):
        super().put(state_id, there, new, info)
        if not there:
            self.data.entries[state_id] = new


@breaks("appending_again_changes_nothing", "an_append_cancelled_at_any_moment_can_be_done_again")
class IsNotIdempotent(HonestStore):
    def check_same(self, *_):
        pass

    def additions(self, first_seq, entries, there):
        return list(entries)


@breaks("an_append_that_overlaps_adds_what_is_new")
class TakesAnOverlapForASecondTry(HonestStore):
    def additions(self, first_seq, entries, there):
        return super().additions(first_seq, entries, there) if first_seq == len(there) else []


@breaks("appending_nothing_writes_nothing")
class MakesStatesOfNothing(HonestStore):
    async def append(self, state_id, first_seq, entries, info):
        await super().append(state_id, first_seq, entries, info)
        self.data.entries.setdefault(state_id, [])
        self.data.infos.setdefault(state_id, info)


@breaks(
    "another_entry_at_a_taken_position_is_a_conflict",
    "those_who_append_at_once_can_not_interleave",
    "those_who_append_through_two_objects_can_not_interleave",
    "saving_another_state_under_a_taken_id_is_a_conflict",
)
class KeepsTheFirst(HonestStore):
    def same(self, new, old):
        return True


@breaks("another_entry_at_a_taken_position_is_a_conflict", "any_sequence_of_calls_does_what_it_does_to_a_list")
class Overwrites(HonestStore):
    def check_same(self, state_id, first_seq, entries, there):
        there[first_seq : first_seq + len(entries)] = entries[: len(there) - first_seq]


@breaks("entries_are_compared_byte_by_byte")
class ComparesJson(HonestStore):
    def same(self, new, old):
        return json.loads(new) == json.loads(old)


@breaks("a_gap_is_a_conflict")
class AcceptsGaps(HonestStore):
    def check_gap(self, *_):
        pass


@breaks("any_text_comes_back_byte_by_byte", "a_loaded_state_has_the_values_of_the_saved_one")
class SplitsLinesAsTextDoes(HonestStore):
    def kept(self, entry):
        return "\n".join(entry.decode().splitlines()).encode()


@breaks("any_text_comes_back_byte_by_byte")
class RefusesNul(HonestStore):
    def kept(self, entry):
        if b"\\u0000" in entry:
            raise StoreError("unsupported Unicode escape sequence")
        return entry


@breaks("an_entry_is_not_read_and_written_anew")
class WritesJsonAnew(HonestStore):
    def kept(self, entry):
        return json.dumps(json.loads(entry), separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


@breaks("an_entry_may_have_an_info_of_its_own")
class FindsTheInfoByItsKey(HonestStore):
    def kept(self, entry):
        head, key, _ = entry.partition(b',"info":')
        return head + b"}" if key else entry


@breaks("an_entry_of_64_mebibytes_comes_back")
class LimitsEntries(HonestStore):
    def kept(self, entry):
        return entry[: 2**24]


@breaks("a_history_of_100_000_entries_comes_back")
class LimitsHistories(HonestStore):
    def there(self, state_id):
        return super().there(state_id)[:65_536]


@breaks("it_works_in_one_trio_run_after_another")
class IsBoundToItsFirstRun(HonestStore):
    run = None

    async def append(self, *args):
        self.run = self.run or trio.lowlevel.current_trio_token()
        if self.run is not trio.lowlevel.current_trio_token():
            raise trio.RunFinishedError
        await super().append(*args)


@breaks("several_threads_may_each_run_trio")
class IsBoundToAThread(HonestStore):
    def __init__(self, data):
        super().__init__(data)
        self.thread = threading.get_ident()

    async def append(self, *args):
        if self.thread != threading.get_ident():
            raise StoreError("objects created in a thread can only be used in that same thread")
        await super().append(*args)


@breaks(
    "what_one_store_object_wrote_another_reads",
    "what_one_store_object_removed_is_gone_for_the_others",
    "any_sequence_of_calls_may_be_made_through_two_store_objects",
)
class BelievesWhatItHasRead(HonestStore):
    def __init__(self, data):
        super().__init__(data)
        self.cache = {}

    async def read(self, state_id, after=0):
        if state_id not in self.cache:
            self.cache[state_id] = await super().read(state_id)
        await trio.lowlevel.checkpoint()
        return self.cache[state_id][after:]

    def put(self, state_id, there, new, info):
        super().put(state_id, there, new, info)
        self.cache[state_id] = there + new


# Which States there are


@breaks("a_state_that_is_not_there_is_not_found", "a_gap_is_a_conflict")
class HasEveryState(HonestStore):
    async def read(self, state_id, after=0):
        return await super().read(state_id, after) if state_id in self.data.entries else []


@breaks("watching_a_state_that_is_not_there_says_so", "a_state_that_is_not_there_is_not_found")
class RaisesWhatTheDictRaises(HonestStore):
    async def read(self, state_id, after=0):
        await trio.lowlevel.checkpoint()
        return self.data.entries[state_id][after:]


@breaks("an_empty_store_lists_nothing")
class IsNotThereUntilWrittenTo(HonestStore):
    async def infos(self, *, limit=None, before=None):
        if not self.data.entries:
            raise StoreError("no such folder")
        return await super().infos(limit=limit, before=before)


@breaks("states_are_kept_apart")
class IgnoresCase(HonestStore):
    async def append(self, state_id, *args):
        await super().append(state_id.lower(), *args)

    async def read(self, state_id, after=0):
        return await super().read(state_id.lower(), after)


@breaks("the_info_is_that_of_the_last_append")
class KeepsTheFirstInfo(HonestStore):
    def put(self, state_id, there, new, info):
        super().put(state_id, there, new, self.data.infos.get(state_id, info))


@breaks("an_info_comes_back_whatever_is_in_it")
class MergesInfos(HonestStore):
    def put(self, state_id, there, new, info):
        merged = json.loads(self.data.infos.get(state_id, b"{}")) | json.loads(info)
        super().put(state_id, there, new, json.dumps(merged).encode())


@breaks("an_append_that_adds_nothing_leaves_the_info")
class TakesTheInfoOfASecondTry(HonestStore):
    async def append(self, state_id, first_seq, entries, info):
        await super().append(state_id, first_seq, entries, info)
        if state_id in self.data.infos:
            self.data.infos[state_id] = info


@breaks("infos_come_newest_created_first", "list_has_one_info_per_state")
class ListsTheOldestFirst(HonestStore):
    async def infos(self, *, limit=None, before=None):
        return (await super().infos())[::-1]


@breaks("infos_come_newest_created_first")
class SortsTimesAsText(HonestStore):
    async def infos(self, *, limit=None, before=None):
        await trio.lowlevel.checkpoint()
        return sorted(self.data.infos.items(), key=lambda item: json.loads(item[1])["created_at"], reverse=True)


@breaks("infos_come_in_pages")
class IgnoresBefore(HonestStore):
    async def infos(self, *, limit=None, before=None):
        return await super().infos(limit=limit)


@breaks("pages_are_stable_while_states_come_and_change")
class ListsTheLastChangedFirst(HonestStore):
    async def infos(self, *, limit=None, before=None):
        await trio.lowlevel.checkpoint()
        found = sorted(self.data.infos.items(), key=lambda item: json.loads(item[1]).get("turn", 0), reverse=True)
        start = [state_id for state_id, _ in found].index(before) + 1 if before else 0
        return found[start:][:limit]


@breaks("listing_reads_no_history")
class ListsByReading(HonestStore):
    async def infos(self, *, limit=None, before=None):
        for state_id in list(self.data.infos):
            await self.read(state_id)
        return await super().infos(limit=limit, before=before)


@breaks("listing_takes_no_memory_for_histories")
class ListsByLookingThroughHistories(HonestStore):
    def listed(self, state_id, info):
        assert [json.loads(entry) for entry in self.data.entries[state_id]]
        return super().listed(state_id, info)


@breaks("a_removed_state_is_gone_and_its_id_free")
class LeavesTheInfo(HonestStore):
    async def remove(self, state_id):
        info = self.data.infos.get(state_id)
        await super().remove(state_id)
        if info is not None:
            self.data.infos[state_id] = info


@breaks("removing_what_is_not_there_is_no_error")
class RemovesOnlyWhatIsThere(HonestStore):
    async def remove(self, state_id):
        await self.read(state_id)
        await super().remove(state_id)


@breaks("after_a_removal_the_next_append_has_a_gap")
class RemembersHowLongAStateWas(HonestStore):
    longest = 0

    def check_gap(self, state_id, first_seq, there):
        self.longest = max(self.longest, len(there))
        super().check_gap(state_id, first_seq, [b""] * self.longest)

    def put(self, state_id, there, new, info):
        super().put(state_id, there, new, info)
        self.longest = max(self.longest, len(there) + len(new))


@breaks("a_state_is_deleted_with_those_of_its_subagents")
class DeletesNoChildren(HonestStore):
    async def delete(self, state_id, children=False):
        await self.remove(state_id)


@breaks("what_a_held_child_left_can_be_deleted_later")
class DeletesParentsFirst(HonestStore):
    async def delete(self, state_id, children=False):
        for each in [state_id, *await self._below(state_id)] if children else [state_id]:
            await self.remove(each)


# Leases


@breaks(
    "a_state_is_leased_once_at_a_time",
    "of_many_who_want_a_lease_at_once_one_gets_it",
    "a_state_runs_once_at_a_time",
    "two_store_objects_can_not_hold_the_same_state",
    "a_lease_that_is_held_is_renewed",
    "a_lease_may_be_left_in_another_task",
)
class LeasesTwice(HonestStore):
    def take(self, state_id):
        self.data.held.discard(state_id)
        self.mine.pop(state_id, None)
        super().take(state_id)

    def end(self, state_id):
        if state_id in self.mine:
            super().end(state_id)


@breaks("of_many_who_want_a_lease_at_once_one_gets_it")
class LooksBeforeItLeases(HonestStore):
    @asynccontextmanager
    async def lease(self, state_id):
        if self.is_held(state_id):
            raise RunningElsewhereError(f"{state_id} is held")
        await trio.lowlevel.checkpoint()
        self.data.held.add(state_id)
        yield
        self.data.held.discard(state_id)


@breaks("a_lease_that_writes_nothing_leaves_no_state")
class MakesAStateToLease(HonestStore):
    def take(self, state_id):
        super().take(state_id)
        self.data.entries.setdefault(state_id, [])


class EndsWhenAllIsWell(Lease):
    async def __aexit__(self, kind, *_):
        if kind is None:
            self.store.end(self.state_id)


@breaks("a_lease_ends_with_its_block_however_that_ends")
class KeepsTheLeaseOfAFailure(HonestStore):
    def lease(self, state_id):
        return EndsWhenAllIsWell(self, state_id)


class TakesThenWaits(Lease):
    async def __aenter__(self):
        self.store.take(self.state_id)
        await trio.lowlevel.checkpoint()


@breaks("a_lease_that_was_cancelled_while_it_was_taken_is_free", "whatever_is_cancelled_the_store_can_be_used_on")
class LeaksALeaseThatWasCancelled(HonestStore):
    def lease(self, state_id):
        return TakesThenWaits(self, state_id)


@breaks("a_lease_may_be_left_in_another_trio_run")
class EndsLeasesWithTheTrioRun(HonestStore):
    @asynccontextmanager
    async def lease(self, state_id) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        self.take(state_id)
        try:
            yield
        finally:
            self.end(state_id)


@breaks("a_lease_may_be_left_in_another_task")
class RenewsLeasesInANursery(HonestStore):
    @asynccontextmanager
    async def lease(self, state_id) -> AsyncIterator[None]:
        async with trio.open_nursery():
            self.take(state_id)
            try:
                yield
            finally:
                self.end(state_id)


@breaks("under_a_lease_one_appends_and_everybody_reads", "many_states_are_written_at_once")
class RefusesItsHolder(HonestStore):
    def check_holder(self, state_id):
        if self.is_held(state_id):
            raise RunningElsewhereError(f"{state_id} is held")


@breaks("a_lease_is_no_reason_to_write_what_does_not_fit")
class TrustsItsHolder(HonestStore):
    def check_gap(self, state_id, first_seq, there):
        if not self.is_mine(state_id):
            super().check_gap(state_id, first_seq, there)


@breaks("a_held_state_is_not_removed")
class RemovesWhatItHolds(HonestStore):
    async def remove(self, state_id):
        if self.is_mine(state_id):
            self.data.held.discard(state_id)
        await super().remove(state_id)


@breaks("a_lease_that_is_held_is_renewed")
class RenewsNothing(HonestStore):
    async def renew(self, state_id):
        raise RunningElsewhereError(f"{state_id} is held")


@breaks("only_who_holds_a_state_writes_it")
class WritesWhoeverHoldsIt(HonestStore):
    def check_holder(self, state_id):
        pass


@breaks("a_state_that_nobody_holds_is_written_without_a_lease")
class WritesOnlyUnderALease(HonestStore):
    def check_holder(self, state_id):
        if not self.is_mine(state_id):
            raise RunningElsewhereError(f"{state_id} must be leased first")


@breaks("a_state_that_nobody_holds_is_written_without_a_lease")
class KeepsTheLeaseOfAnAppend(HonestStore):
    def check_holder(self, state_id):
        if not self.is_mine(state_id):
            self.take(state_id)


@breaks("a_lease_that_ran_out_is_free")
class LeasesForEver(HonestStore):
    def is_held(self, state_id):
        return state_id in self.data.held


@breaks("who_lost_the_lease_can_not_write")
class BelievesItStillHoldsTheLease(HonestStore):
    def is_mine(self, state_id):
        return state_id in self.mine


@breaks("who_lost_the_lease_can_not_write")
class ForgetsThatItLostTheLease(HonestStore):
    """Refused while another one has the lease, not any more afterwards."""

    def check_holder(self, state_id):
        if self.is_held(state_id) and not self.is_mine(state_id):
            raise RunningElsewhereError(f"{state_id} is held")


@breaks("who_lost_the_lease_does_not_end_that_of_another")
class EndsTheLeaseOfAnother(HonestStore):
    def end(self, state_id):
        self.data.held.discard(state_id)
        del self.mine[state_id]


@breaks("a_lease_that_ran_out_and_nobody_took_is_renewed")
class RenewsNoLeaseThatRanOut(HonestStore):
    async def renew(self, state_id):
        if state_id in self.data.expired:
            raise RunningElsewhereError(f"{state_id} ran out")
        await super().renew(state_id)


# Much at once


@breaks("readers_see_whole_entries_in_order_while_one_writes")
class ShowsWhatItIsWriting(HonestStore):
    async def append(self, state_id, first_seq, entries, info):
        there = self.data.entries.get(state_id, [])
        if entries and first_seq == len(there):
            self.data.entries[state_id] = [*there, entries[0][:-1]]
            await trio.lowlevel.checkpoint()
            self.data.entries[state_id] = there
        await super().append(state_id, first_seq, entries, info)


@breaks("many_states_are_written_at_once", "many_agents_run_at_once")
class IsLockedWhileItWrites(HonestStore):
    locked = False

    async def append(self, *args):
        if self.locked:
            raise StoreError("database is locked")
        self.locked = True
        try:
            await super().append(*args)
        finally:
            self.locked = False


@breaks("appends_of_the_same_entries_at_once_add_them_once")
class WritesAtTheEndItSaw(HonestStore):
    async def append(self, state_id, first_seq, entries, info):
        new = self.additions(first_seq, entries, self.there(state_id))
        await trio.lowlevel.checkpoint()
        self.put(state_id, self.there(state_id), new, info)


@breaks("every_method_is_a_checkpoint")
class NeverYields(HonestStore):
    async def append(self, state_id, first_seq, entries, info):
        there = self.there(state_id)
        self.check_gap(state_id, first_seq, there)
        self.put(state_id, there, self.additions(first_seq, entries, there), info)


@breaks("an_append_cancelled_at_any_moment_can_be_done_again")
class StaysLockedWhenCancelled(IsLockedWhileItWrites):
    async def append(self, state_id, *args):
        if state_id in self.data.damaged:
            raise StoreError("database is locked")
        self.data.damaged.add(state_id)
        await trio.lowlevel.checkpoint()
        self.data.damaged.discard(state_id)
        await HonestStore.append(self, state_id, *args)


@breaks("an_append_cancelled_at_any_moment_can_be_done_again")
class WritesHalfWhenCancelled(HonestStore):
    async def append(self, state_id, first_seq, entries, info):
        self.check_same(state_id, first_seq, entries, self.there(state_id))
        if entries and first_seq == len(self.there(state_id)):
            self.put(state_id, self.there(state_id), [entries[0][:-1]], info)
            await trio.lowlevel.checkpoint()
            self.data.entries[state_id].pop()
        await super().append(state_id, first_seq, entries, info)


@breaks("whatever_is_cancelled_the_store_can_be_used_on")
class LosesConnectionsThatAreCancelled(HonestStore):
    connections = 3

    async def read(self, state_id, after=0):
        if not self.connections:
            raise StoreError("no connection is free")
        self.connections -= 1
        await trio.lowlevel.checkpoint()
        self.connections += 1
        return await super().read(state_id, after)


# States


@breaks("loading_twice_gives_equal_states")
class ForgetsWhatWasRead(HonestStore):
    async def read(self, state_id, after=0):
        entries = await super().read(state_id, after)
        if not after:
            self.data.entries[state_id] = self.data.entries[state_id][:-1]
        return entries


@breaks("a_newer_format_is_refused_with_both_numbers")
class WritesItsOwnFormat(HonestStore):
    def kept(self, entry):
        return entry.replace(b'"format":7', b'"format":1')


@breaks("a_history_that_can_not_have_happened_is_corrupt")
class LeavesOutWhatDoesNotFit(HonestStore):
    async def read(self, state_id, after=0):
        return list(dict.fromkeys(await super().read(state_id)))[:2][after:]


@breaks("a_state_whose_info_can_not_be_read_is_left_out_of_the_list")
class FailsForOneBadInfo(HonestStore):
    def listed(self, state_id, info):
        if "id" not in json.loads(info):
            raise CorruptStoreError(f"{state_id} is damaged")
        return super().listed(state_id, info)


@breaks("what_is_damaged_is_an_error_and_not_an_empty_state")
class TakesDamageForTheEnd(HonestStore):
    def there(self, state_id):
        return self.data.entries.get(state_id, [])[: 1 if state_id in self.data.damaged else None]


@breaks("what_is_damaged_is_an_error_and_not_an_empty_state")
class TakesDamageForNothing(HonestStore):
    async def read(self, state_id, after=0):
        if state_id in self.data.damaged:
            raise StateNotFoundError(f"no {state_id}")
        return await super().read(state_id, after)


@breaks("a_lease_that_ran_out_is_not_held_twice_through_one_object")
class GivesItsOwnLeaseAgain(HonestStore):
    def take(self, state_id):
        if state_id in self.data.expired:
            self.mine.pop(state_id, None)
        super().take(state_id)

    def end(self, state_id):
        if state_id in self.mine:
            super().end(state_id)


@breaks("a_page_of_the_list_is_full_whatever_is_damaged")
class CutsThePageBeforeItLooks(HonestStore):
    async def list(self, *, parent_id=..., limit=None, before=None):
        asked = await self.infos(limit=limit, before=before)
        known = {info.id: info for info in await super().list(parent_id=parent_id)}
        return [known[state_id] for state_id, _ in asked if state_id in known]


def tests_of(kind: type[HonestStore]) -> type[StoreLaws]:
    """The class a user would write."""

    class Tests(StoreLaws):
        @pytest.fixture
        def data(self) -> Data:
            return Data()

        @pytest.fixture
        def store(self, data: Data) -> Store:
            return kind(data)

        @pytest.fixture
        def other(self, data: Data) -> Store:
            return kind(data)

        @pytest.fixture
        def expire(self, data: Data) -> Callable[[str], None]:
            return data.expired.add

        @pytest.fixture
        def damage(self, data: Data) -> Callable[[str], None]:
            return data.damaged.add

    return Tests


TestHonestStore = tests_of(HonestStore)
globals().update({f"Test{kind.__name__}": tests_of(kind) for kind in BROKEN})
