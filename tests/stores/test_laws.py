"""What every store does, whatever it keeps its entries in."""

from __future__ import annotations

import json
import sys

import pytest
import trio
import trio.testing

from alpineagents import ConflictError, RunningElsewhereError, StateNotFoundError, Store

from .histories import INFO, batches, conversation, encoded, infos_of, put, raw, raws

# ---- Entries


async def test_what_was_appended_is_read_in_its_order(store: Store) -> None:
    await store.append("bug-1", 0, raws(3), INFO)
    await store.append("bug-1", 3, raws(2, 3), INFO)

    assert list(await store.read("bug-1")) == raws(5)


async def test_read_begins_behind_the_entries_one_has_seen(store: Store) -> None:
    await store.append("bug-1", 0, raws(5), INFO)

    assert [list(await store.read("bug-1", after=after)) for after in (3, 5, 9)] == [raws(2, 3), [], []]


async def test_what_was_read_stays_as_it_was(store: Store) -> None:
    await store.append("bug-1", 0, raws(2), INFO)
    seen = await store.read("bug-1")

    await store.append("bug-1", 2, raws(2, 2), INFO)

    assert list(seen) == raws(2)


async def test_appending_again_changes_nothing(store: Store) -> None:
    for _ in range(3):
        await store.append("bug-1", 0, raws(3), INFO)

    assert list(await store.read("bug-1")) == raws(3)


async def test_an_append_that_overlaps_adds_what_is_new(store: Store) -> None:
    await store.append("bug-1", 0, raws(3), INFO)
    await store.append("bug-1", 1, raws(4, 1), INFO)

    assert list(await store.read("bug-1")) == raws(5)


async def test_appending_nothing_writes_nothing(store: Store) -> None:
    await store.append("bug-1", 0, [], INFO)

    assert not await store.has("bug-1")
    assert list(await store.infos()) == []


async def test_another_entry_at_a_position_is_a_conflict_that_names_it(store: Store) -> None:
    await store.append("bug-1", 0, raws(3), INFO)

    with pytest.raises(ConflictError, match=r"bug-1.* another entry 1;.*store\.load\('bug-1'\)"):
        await store.append("bug-1", 1, [raw(1, by="me"), raw(2), raw(3)], INFO)
    assert list(await store.read("bug-1")) == raws(3)


async def test_entries_are_compared_byte_by_byte(store: Store) -> None:
    await store.append("bug-1", 0, [b'{"seq":0,"n":1}'], INFO)

    with pytest.raises(ConflictError):
        await store.append("bug-1", 0, [b'{"seq":0,"n":1.0}'], INFO)


@pytest.mark.parametrize("there", [0, 2])
async def test_a_gap_is_a_conflict(store: Store, there: int) -> None:
    await store.append("bug-1", 0, raws(there), INFO)

    with pytest.raises(ConflictError, match=f"bug-1: entry 3 can't follow the {there} entries"):
        await store.append("bug-1", 3, raws(1, 3), INFO)
    assert await store.has("bug-1") is (there > 0)


@pytest.mark.parametrize(
    "text",
    [
        "naïve 🐛 日本",
        "NUL \0, and \x1f",
        "line separators \u2028 \u2029 \x85 \r\n",
        'a lone surrogate: "\ud83d"',
        ',"info":{"turn":9}}',
        '"\\\\",\\"info\\":{}}',
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
async def test_any_text_comes_back_byte_by_byte(store: Store, text: str, ascii_only: bool) -> None:
    ascii_only = ascii_only or "\ud83d" in text  # as the codec escapes it
    entry = json.dumps({"seq": 0, "text": text, text: 1}, ensure_ascii=ascii_only, separators=(",", ":")).encode()

    await store.append("bug-1", 0, [entry], INFO)

    assert list(await store.read("bug-1")) == [entry]


@pytest.mark.parametrize(
    "fields",
    [
        {"info": {"turn": 9}},
        {"args": {"x": 1, "info": {"turn": 9}}},
        {"args": [{"x": 1, "info": [{"turn": 9}]}], "info": None},
        {"info": "x", "text": ',"info":{'},
    ],
)
async def test_an_entry_may_have_an_info_of_its_own(store: Store, fields: dict[str, object]) -> None:
    entries = raws(3, **fields)

    await store.append("bug-1", 0, entries, INFO)

    assert list(await store.read("bug-1")) == entries
    assert await infos_of(store) == {"bug-1": json.loads(INFO)}


async def test_an_entry_of_a_mebibyte_comes_back(store: Store) -> None:
    entries = [raw(seq, text="x" * 2**20) for seq in range(3)]

    await store.append("bug-1", 0, entries, INFO)

    assert list(await store.read("bug-1")) == entries
    assert await infos_of(store) == {"bug-1": json.loads(INFO)}


@pytest.mark.parametrize("entry", [b"", b"{}", b"[1]", b"null", b'{"seq":0', b'{"seq":0,\n"x":1}', b'{"seq":0}\n'])
async def test_what_is_no_object_on_one_line_is_refused(store: Store, entry: bytes) -> None:
    with pytest.raises(ValueError, match="entry 1 is not a JSON object on one line"):
        await store.append("bug-1", 0, [raw(0), entry], INFO)
    assert not await store.has("bug-1")


@pytest.mark.parametrize("about", [b"", b"[]", b"{", b"null"])
async def test_an_info_that_is_no_object_is_refused(store: Store, about: bytes) -> None:
    with pytest.raises(ValueError, match="info must be a JSON object"):
        await store.append("bug-1", 0, raws(1), about)
    assert not await store.has("bug-1")


async def test_negative_positions_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="first_seq"):
        await store.append("bug-1", -1, raws(2, -1), INFO)
    with pytest.raises(ValueError, match="after"):
        await store.read("bug-1", after=-1)
    with pytest.raises(ValueError, match="limit"):
        await store.infos(limit=-1)


@pytest.mark.parametrize("state_id", ["", "..", "../runs", "a/b", "a\0b", ".hidden", "a.b", "é", "x" * 129])
async def test_an_id_that_no_state_can_have_is_refused_by_every_method(store: Store, state_id: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 128 letters"):
        await store.append(state_id, 0, raws(1), INFO)
    with pytest.raises(ValueError, match="use 1 to 128 letters"):
        await store.read(state_id)
    with pytest.raises(ValueError, match="use 1 to 128 letters"):
        await store.delete(state_id)
    with pytest.raises(ValueError, match="use 1 to 128 letters"):
        async with store.lease(state_id):
            pass


# ---- Which States there are


async def test_a_state_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(StateNotFoundError, match="no State bug-1 in "):
        await store.read("bug-1")
    assert not await store.has("bug-1")


async def test_not_finding_a_state_names_near_ids(store: Store) -> None:
    for state_id in ("parser-bug-1", "parser-bug-2", "poem"):
        await store.append(state_id, 0, raws(1), INFO)

    with pytest.raises(StateNotFoundError, match=r"near it: parser-bug-\d, parser-bug-\d$"):
        await store.read("parser-bug-3")


async def test_a_state_that_is_there_is_found_without_reading_it(store: Store) -> None:
    await store.append("bug-1", 0, raws(1), INFO)

    assert await store.has("bug-1")
    assert list(await store.read("bug-1", after=sys.maxsize)) == []


async def test_states_are_kept_apart(store: Store) -> None:
    await store.append("a", 0, raws(2, by="a"), INFO)
    await store.append("A", 0, raws(3, by="A"), INFO)

    assert list(await store.read("a")) == raws(2, by="a")
    assert list(await store.read("A")) == raws(3, by="A")


async def test_a_deleted_state_is_gone_and_its_id_free(store: Store) -> None:
    await store.append("bug-1", 0, raws(3), INFO)
    await store.delete("bug-1")

    assert not await store.has("bug-1")
    assert list(await store.infos()) == []
    await store.append("bug-1", 0, raws(1, by="another"), INFO)
    assert list(await store.read("bug-1")) == raws(1, by="another")


async def test_deleting_what_is_not_there_is_no_error(store: Store) -> None:
    await store.delete("bug-1")

    assert list(await store.infos()) == []


async def test_after_a_deletion_the_next_append_has_a_gap(store: Store) -> None:
    await store.append("bug-1", 0, raws(3), INFO)
    await store.delete("bug-1")

    with pytest.raises(ConflictError, match="the 0 entries"):
        await store.append("bug-1", 3, raws(1, 3), INFO)


# ---- Infos


async def test_the_info_is_that_of_the_last_append(store: Store) -> None:
    for first, entries, info in batches(conversation(turns=3), 1):
        await store.append("bug-1", first, entries, info)

        assert await infos_of(store) == {"bug-1": json.loads(info)}


@pytest.mark.parametrize(
    "about",
    [
        {"answer": {"x": 1, "info": {"info": [1]}}, "info": 2},
        {"text": ',"info":{"a":1}}\n"', "surrogate": "\ud83d", "naïve": "🐛\u2028\0"},
        {"long": 10**40, "small": 1e-300, "one": 1.0, "none": None},
        {},
    ],
)
async def test_an_info_comes_back_whatever_is_in_it(store: Store, about: dict[str, object]) -> None:
    for seq, fields in enumerate([{"turn": 1}, about, about | {"turn": True}, {"turn": 1} | about, about]):
        await store.append("bug-1", seq, raws(1, seq), json.dumps(fields).encode())

        (listed,) = (await infos_of(store)).values()
        assert repr(sorted(listed.items())) == repr(sorted(fields.items()))  # type: ignore[attr-defined]  # a dict


async def test_an_append_that_adds_nothing_leaves_the_info(store: Store) -> None:
    """It is the second try of one that was thought lost: what was saved since is newer."""
    await store.append("bug-1", 0, raws(1), b'{"turn":1}')
    await store.append("bug-1", 1, raws(1, 1), b'{"turn":2}')
    await store.append("bug-1", 0, raws(1), b'{"turn":1}')

    assert await infos_of(store) == {"bug-1": {"turn": 2}}


async def test_infos_come_newest_created_first_in_pages(store: Store) -> None:
    times = {"a": "T10:00:00Z", "b": "T10:00:00.5Z", "c": "T11:00:00+02:00", "d": "T12:00:00Z", "e": "T12:00:00Z"}
    for state_id, time in times.items():
        await store.append(state_id, 0, raws(1), json.dumps({"created_at": f"2026-01-02{time}"}).encode())
    await store.append("c", 1, raws(1, 1), json.dumps({"created_at": "2026-01-02T11:00:00+02:00", "turn": 1}).encode())
    await store.append("undated", 0, raws(1), b'{"created_at":"yesterday"}')

    async def ids(limit: int | None = None, before: str | None = None) -> list[str]:
        return [state_id for state_id, _ in await store.infos(limit=limit, before=before)]

    assert await ids() == ["e", "d", "b", "a", "c", "undated"]
    assert await ids(limit=2) == ["e", "d"]
    assert await ids(limit=2, before="d") == ["b", "a"]
    assert await ids(before="undated") == await ids(limit=0) == []
    with pytest.raises(StateNotFoundError):
        await ids(before="x")


# ---- Leases


async def test_a_state_is_leased_once_at_a_time(store: Store) -> None:
    async with store.lease("bug-1"), store.lease("bug-2"):
        with pytest.raises(RunningElsewhereError, match=r"State bug-1 in .* held by another run.*fork"):
            async with store.lease("bug-1"):
                raise AssertionError("leased twice")
    async with store.lease("bug-1"):
        pass


async def test_a_lease_that_writes_nothing_leaves_no_state(store: Store) -> None:
    async with store.lease("bug-1"):
        assert not await store.has("bug-1")
        assert list(await store.infos()) == []

    assert not await store.has("bug-1")


async def test_a_lease_ends_with_its_block_however_that_ends(store: Store) -> None:
    with pytest.raises(KeyError):
        async with store.lease("bug-1"):
            raise KeyError
    with trio.CancelScope() as scope:
        async with store.lease("bug-1"):
            scope.cancel()
            await trio.lowlevel.checkpoint()

    async with store.lease("bug-1"):
        pass


async def test_under_a_lease_one_appends_and_everybody_reads(store: Store) -> None:
    async with store.lease("bug-1"):
        await store.append("bug-1", 0, raws(2), INFO)
        await store.append("bug-1", 2, raws(2, 2), INFO)

        assert list(await store.read("bug-1")) == raws(4)
        assert await infos_of(store) == {"bug-1": json.loads(INFO)}
    assert list(await store.read("bug-1")) == raws(4)


async def test_a_leased_state_is_not_deleted(store: Store) -> None:
    await store.append("bug-1", 0, raws(1), INFO)

    async with store.lease("bug-1"):
        with pytest.raises(RunningElsewhereError):
            await store.delete("bug-1")
    assert await store.has("bug-1")


# ---- Concurrency


async def test_readers_see_whole_entries_in_order_while_one_writes(store: Store) -> None:
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


async def test_many_states_are_written_at_once(store: Store) -> None:
    states = [conversation(f"bug-{number}", turns=3) for number in range(50)]

    async with trio.open_nursery() as nursery:
        for state in states:
            nursery.start_soon(put, store, state)

    assert [list(await store.read(state.id)) for state in states] == [encoded(state) for state in states]


async def test_two_who_append_at_once_can_not_interleave(store: Store) -> None:
    lost = 0

    async def write(who: str) -> None:
        nonlocal lost
        try:
            for seq in range(20):
                await store.append("bug-1", seq, [raw(seq, by=who)], INFO)
        except (ConflictError, RunningElsewhereError):
            lost += 1

    async with trio.open_nursery() as nursery:
        for who in ("a", "b", "c"):
            nursery.start_soon(write, who)

    found = [json.loads(entry) for entry in await store.read("bug-1")]
    assert [entry["seq"] for entry in found] == list(range(20))
    assert len({entry["by"] for entry in found}) == 1
    assert lost == 2


async def test_every_method_is_a_checkpoint(store: Store) -> None:
    state = conversation()
    checkpoints = trio.testing.assert_checkpoints
    with checkpoints():
        await store.append("bug-1", 0, raws(1), INFO)
    with checkpoints():
        await store.append("bug-1", 0, raws(1), INFO)
    with checkpoints():
        await store.read("bug-1")
    with checkpoints():
        await store.has("bug-1")
    with checkpoints():
        await store.infos()
    with checkpoints():
        async with store.lease("bug-1"):
            pass
    with checkpoints():
        await store.delete("bug-1")
    with checkpoints():
        await store.save(state)


async def test_a_cancelled_append_has_happened_or_not(store: Store) -> None:
    with trio.move_on_after(0) as scope:
        await store.append("bug-1", 0, raws(2), INFO)

    assert scope.cancelled_caught
    await store.append("bug-1", 0, raws(3), INFO)
    assert list(await store.read("bug-1")) == raws(3)


def test_its_repr_says_which_one_it_is(store: Store) -> None:
    assert type(store).__name__ in repr(store)


def test_it_works_in_one_trio_run_after_another(store: Store) -> None:
    for count in range(1, 4):
        trio.run(store.append, "bug-1", 0, raws(count), INFO)

    assert list(trio.run(store.read, "bug-1")) == raws(3)
