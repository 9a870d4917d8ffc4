"""Laws about which States there are: finding, listing and removing them."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from ..._contracts import Store
from ..._errors import ConflictError, RunningElsewhereError, StateNotFoundError
from ._kit import INFO, batches, conversation, entries_of, infos_of, law, put, raw, raws, subagent

_LEFT_IN_PEACE = 2**20


async def ids(store: Store, limit: int | None = None, before: str | None = None) -> list[str]:
    """The ids that ``infos`` returns."""
    return [state_id for state_id, _ in await store.infos(limit=limit, before=before)]


def created(time: str, **fields: object) -> bytes:
    """An info of a State created at this time of day."""
    return json.dumps({"created_at": f"2026-01-02T{time}", **fields}).encode()


class ListingLaws:
    """What ``infos``, ``list``, ``has``, ``remove`` and ``delete`` must do."""

    @law
    async def test_a_state_that_is_not_there_is_not_found(self, store: Store) -> None:
        """``read`` of a State that isn't there is a StateNotFoundError with its id, wherever reading shall begin."""
        await store.append("bug-2", 0, raws(1), INFO)

        for after in (0, 1, 10**6):
            with pytest.raises(StateNotFoundError, match="bug-1"):
                await store.read("bug-1", after=after)
        with pytest.raises(StateNotFoundError, match="bug-1"):
            await store.load("bug-1")
        assert not await store.has("bug-1")
        assert await store.has("bug-2")

    @law
    async def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        """``infos`` of a store that nothing was written to is empty, not an error."""
        assert list(await store.infos()) == list(await store.list()) == []
        assert not await store.has("bug-1")

    @law
    async def test_states_are_kept_apart(self, store: Store) -> None:
        """Ids are told apart by every character, small and capital letters too."""
        for state_id in ("a", "A", "-", "_", "a-", "x" * 128):
            await store.append(state_id, 0, raws(2, by=state_id), INFO)

        for state_id in ("a", "A", "-", "_", "a-", "x" * 128):
            assert list(await store.read(state_id)) == raws(2, by=state_id)
        assert not await store.has("a_")
        assert not await store.has("x" * 127)

    @law
    async def test_the_info_is_that_of_the_last_append(self, store: Store) -> None:
        """``infos`` returns what the last append that added something said."""
        for first, entries, info in batches(conversation(turns=3), 1):
            await store.append("bug-1", first, entries, info)

            assert await infos_of(store) == {"bug-1": json.loads(info)}

    @pytest.mark.parametrize(
        "info",
        [
            {"answer": {"x": 1, "info": {"info": [1]}}, "info": 2},
            {"text": ',"info":{"a":1}}\n"', "surrogate": "\ud83d", "naïve": "🐛\u2028\0"},
            {"long": 10**40, "small": 1e-300, "one": 1.0, "none": None},
            {},
        ],
        ids=["nested", "text", "numbers", "empty"],
    )
    @law
    async def test_an_info_comes_back_whatever_is_in_it(self, store: Store, info: dict[str, object]) -> None:
        """An info comes back as the JSON it was, whatever it holds and whatever the one before held."""
        first: dict[str, object] = {"turn": 1}
        for seq, fields in enumerate([first, info, info | {"turn": True}, first | info, info]):
            await store.append("bug-1", seq, raws(1, seq), json.dumps(fields).encode())

            ((_, listed),) = await store.infos()
            # By repr, since 1, 1.0 and True are equal.
            assert repr(sorted(json.loads(listed).items())) == repr(sorted(fields.items()))

    @law
    async def test_an_append_that_adds_nothing_leaves_the_info(self, store: Store) -> None:
        """The info of an append that adds no entry is passed over: what was saved since is newer."""
        await store.append("bug-1", 0, raws(1), b'{"turn":1}')
        await store.append("bug-1", 1, raws(1, 1), b'{"turn":2}')

        await store.append("bug-1", 0, raws(1), b'{"turn":1}')
        await store.append("bug-1", 2, [], b'{"turn":1}')

        assert await infos_of(store) == {"bug-1": {"turn": 2}}

    @law
    async def test_infos_come_newest_created_first(self, store: Store) -> None:
        """``infos`` is sorted by the time in ``created_at``, then by id, last first; undated States come at the end."""
        times = {"a": "10:00:00Z", "b": "10:00:00.5Z", "c": "11:00:00+02:00", "d": "12:00:00Z", "e": "12:00:00Z"}
        for state_id, time in times.items():
            await store.append(state_id, 0, raws(1), created(time))
        await store.append("c", 1, raws(1, 1), created("11:00:00+02:00", turn=1))  # a change moves nothing
        await store.append("undated", 0, raws(1), b'{"created_at":"yesterday"}')

        assert await ids(store) == ["e", "d", "b", "a", "c", "undated"]

    @law
    async def test_infos_come_in_pages(self, store: Store) -> None:
        """``limit`` and ``before`` cut a page out of what ``infos`` returns without them."""
        for hour in range(5):
            await store.append(f"bug-{hour}", 0, raws(1), created(f"1{hour}:00:00Z"))

        assert await ids(store, limit=2) == ["bug-4", "bug-3"]
        assert await ids(store, limit=2, before="bug-3") == ["bug-2", "bug-1"]
        assert await ids(store, limit=2, before="bug-1") == ["bug-0"]
        assert await ids(store, before="bug-0") == await ids(store, limit=0) == []
        assert await ids(store, limit=9) == await ids(store)
        with pytest.raises(StateNotFoundError, match="bug-9"):
            await ids(store, before="bug-9")

    @law
    async def test_pages_are_stable_while_states_come_and_change(self, store: Store) -> None:
        """Whoever turns pages sees each State once that was there all the time, whatever is written meanwhile."""
        for minute in range(9):
            await store.append(f"bug-{minute}", 0, raws(1), created(f"10:0{minute}:00Z"))
        seen: list[str] = []

        while page := await ids(store, limit=2, before=seen[-1] if seen else None):
            seen += page
            assert len(seen) <= 9, f"pages so far: {seen}"
            await store.append(f"new-{len(seen)}", 0, raws(1), created("11:00:00Z"))
            for state_id in ("bug-8", "bug-0"):
                length = len(await store.read(state_id))
                await store.append(state_id, length, raws(1, length), created(f"10:0{state_id[-1]}:00Z", turn=length))

        assert seen == [f"bug-{minute}" for minute in reversed(range(9))]

    @pytest.mark.filterwarnings("ignore:State bad")
    @law
    async def test_a_page_of_the_list_is_full_whatever_is_damaged(self, store: Store) -> None:
        """``list(limit=...)`` leaves out what can't be read and gives so many others: a short page is the last."""
        for hour in range(3):
            await store.append(f"bug-{hour}", 0, raws(1), created(f"1{hour}:00:00Z", format=1, id=f"bug-{hour}"))
            for number in range(3):
                await store.append(f"bad-{hour}{number}", 0, raws(1), created(f"1{hour}:30:00Z", turn="none"))
        seen: list[str] = []

        while page := await store.list(limit=1, before=seen[-1] if seen else None):
            seen += [info.id for info in page]

        assert seen == [info.id for info in await store.list()] == ["bug-2", "bug-1", "bug-0"]
        assert [info.id for info in await store.list(limit=2)] == ["bug-2", "bug-1"]
        assert list(await store.list(limit=0)) == []

    @law
    async def test_listing_reads_no_history(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """``infos`` and ``list`` don't ``read``: what they return is there without the histories."""
        await store.save(conversation())

        async def refuse(*_: object, **__: object) -> object:
            raise AssertionError("listing has called read()")

        monkeypatch.setattr(type(store), "read", refuse)

        assert [info.id for info in await store.list()] == list(await infos_of(store)) == ["bug-1"]

    @law
    async def test_listing_takes_no_memory_for_histories(self, store: Store) -> None:
        """``infos`` costs the same for long histories as for short ones: 8 MiB of one take no mebibyte to list."""
        entries = [raw(seq, text="x" * 2**10) for seq in range(2**13)]
        await store.append("bug-1", 0, entries, INFO)
        await store.append("bug-1", len(entries), raws(1, len(entries)), INFO)

        tracemalloc.start()
        try:
            listed = await infos_of(store)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert list(listed) == ["bug-1"]
        assert peak < _LEFT_IN_PEACE, f"listing took {peak} bytes"

    @law
    async def test_a_removed_state_is_gone_and_its_id_free(self, store: Store) -> None:
        """``remove`` leaves nothing of a State, and another one may take its id."""
        await store.append("bug-1", 0, raws(3), INFO)
        await store.append("bug-2", 0, raws(2), INFO)

        await store.remove("bug-1")

        assert not await store.has("bug-1")
        assert await ids(store) == ["bug-2"]
        assert list(await store.read("bug-2")) == raws(2)
        await store.append("bug-1", 0, raws(1, by="another"), b'{"turn":1}')
        assert list(await store.read("bug-1")) == raws(1, by="another")
        assert (await infos_of(store))["bug-1"] == {"turn": 1}

    @law
    async def test_removing_what_is_not_there_is_no_error(self, store: Store) -> None:
        """``remove`` and ``delete`` forgive a State that isn't there, or not any more."""
        await store.append("bug-1", 0, raws(1), INFO)
        for _ in range(2):
            await store.remove("bug-1")
            await store.delete("bug-1", children=True)

        assert list(await store.infos()) == []

    @law
    async def test_after_a_removal_the_next_append_has_a_gap(self, store: Store) -> None:
        """Whoever goes on with a State that was removed gets a ConflictError: its beginning is gone."""
        await store.append("bug-1", 0, raws(3), INFO)
        await store.remove("bug-1")

        with pytest.raises(ConflictError, match="bug-1"):
            await store.append("bug-1", 3, raws(1, 3), INFO)
        assert not await store.has("bug-1")

    @law
    async def test_a_state_is_deleted_with_those_of_its_subagents(self, store: Store) -> None:
        """``delete(state_id, children=True)`` removes the States below it too, and no others."""
        for state in (conversation("parent"), conversation("other")):
            await put(store, state)
        for state_id, parent_id in (("child", "parent"), ("twin", "parent"), ("grandchild", "child"), ("far", "other")):
            await store.save(subagent(state_id, parent_id))

        await store.delete("parent", children=True)

        assert sorted(await ids(store)) == ["far", "other"]
        await store.delete("other")
        assert await ids(store) == ["far"], "without children=True it is the one State"

    @law
    async def test_what_a_held_child_left_can_be_deleted_later(self, store: Store) -> None:
        """``delete(state_id, children=True)`` begins with the deepest: cut short, it can be done again."""
        await store.save(conversation("parent"))
        await store.save(subagent("child", "parent"))
        await store.save(subagent("grandchild", "child"))

        async with store.lease("child"):
            with pytest.raises(RunningElsewhereError, match="child"):
                await store.delete("parent", children=True)
        assert sorted(await ids(store)) == ["child", "parent"]

        await store.delete("parent", children=True)
        assert await ids(store) == []

    @law
    async def test_what_one_store_object_removed_is_gone_for_the_others(self, store: Store, other: Store) -> None:
        """A State removed through one store object is gone for another one that has just read it."""
        await store.append("bug-1", 0, raws(2), INFO)
        assert await entries_of(other) == raws(2)

        await store.remove("bug-1")

        assert not await other.has("bug-1")
        assert list(await other.infos()) == []
        await other.append("bug-1", 0, raws(1, by="other"), INFO)
        assert list(await store.read("bug-1")) == raws(1, by="other")
