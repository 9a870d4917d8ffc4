"""Laws about the entries of one State: what was appended is read, and nothing else."""

from __future__ import annotations

import json
import random

import pytest
import trio

from ..._contracts import Store
from ..._errors import ConflictError
from ._kit import INFO, entries_of, infos_of, law, raw, raws

_TEXTS = {
    "letters": "naïve 🐛 日本",
    "NUL": "NUL \0, and \x1f",
    "line ends": "line separators \u2028 \u2029 \x85 \r\n",
    "lone surrogate": 'a lone surrogate: "\ud83d"',
    "JSON": ',"info":{"turn":9}}',
    "JSON in JSON": '"\\\\",\\"info\\":{}}',
    "quotes": "it's \\ 100% $1 :x ?",
}


class EntryLaws:
    """What ``append`` and ``read`` must do."""

    @law
    async def test_what_was_appended_is_read_in_its_order(self, store: Store) -> None:
        """``read`` returns what was appended, all of it, in its order."""
        await store.append("bug-1", 0, raws(3), INFO)
        await store.append("bug-1", 3, raws(2, 3), INFO)

        assert list(await store.read("bug-1")) == raws(5)

    @law
    async def test_read_begins_behind_the_entries_one_has_seen(self, store: Store) -> None:
        """``read(state_id, after=n)`` leaves the first n entries out; with as many as there are, or more, all."""
        await store.append("bug-1", 0, raws(5), INFO)

        assert [list(await store.read("bug-1", after=after)) for after in (3, 5, 9)] == [raws(2, 3), [], []]

    @law
    async def test_what_was_read_stays_as_it_was(self, store: Store) -> None:
        """What ``read`` has returned doesn't change with later appends."""
        await store.append("bug-1", 0, raws(2), INFO)
        seen = await store.read("bug-1")

        await store.append("bug-1", 2, raws(2, 2), INFO)

        assert list(seen) == raws(2)

    @law
    async def test_appending_does_not_keep_the_list_it_was_given(self, store: Store) -> None:
        """``append`` keeps what it was given at that moment, whatever its caller does with the list afterwards."""
        entries = raws(2)
        await store.append("bug-1", 0, entries, INFO)

        entries.append(raw(2))

        assert list(await store.read("bug-1")) == raws(2)

    @law
    async def test_appending_again_changes_nothing(self, store: Store) -> None:
        """An append of the same entries at the same place is the second try of one: it succeeds and adds nothing."""
        for _ in range(3):
            await store.append("bug-1", 0, raws(3), INFO)

        assert list(await store.read("bug-1")) == raws(3)

    @law
    async def test_an_append_that_overlaps_adds_what_is_new(self, store: Store) -> None:
        """Of entries some of which are there already, ``append`` adds the others, each at its place."""
        await store.append("bug-1", 0, raws(3), INFO)
        await store.append("bug-1", 1, raws(4, 1), INFO)

        assert list(await store.read("bug-1")) == raws(5)

    @law
    async def test_appending_nothing_writes_nothing(self, store: Store) -> None:
        """An append without entries makes no State."""
        await store.append("bug-1", 0, [], INFO)

        assert not await store.has("bug-1")
        assert list(await store.infos()) == []

    @law
    async def test_another_entry_at_a_taken_position_is_a_conflict(self, store: Store) -> None:
        """Another entry at a position that is taken is a ConflictError with the State's id; nothing changes."""
        await store.append("bug-1", 0, raws(3), INFO)

        with pytest.raises(ConflictError, match="bug-1"):
            await store.append("bug-1", 1, [raw(1, by="me"), raw(2), raw(3)], INFO)
        with pytest.raises(ConflictError, match="bug-1"):
            await store.append("bug-1", 1, [raw(1), raw(2, by="me"), raw(3)], INFO)

        assert list(await store.read("bug-1")) == raws(3)

    @law
    async def test_entries_are_compared_byte_by_byte(self, store: Store) -> None:
        """An entry is another one if its bytes are: JSON that is equal otherwise is a ConflictError."""
        await store.append("bug-1", 0, [b'{"seq":0,"n":1}'], INFO)

        for other in (b'{"seq":0,"n":1.0}', b'{"seq":0,"\\u006e":1}', b'{"n":1,"seq":0}'):
            with pytest.raises(ConflictError):
                await store.append("bug-1", 0, [other], INFO)

        assert list(await store.read("bug-1")) == [b'{"seq":0,"n":1}']

    @pytest.mark.parametrize("there", [0, 2])
    @law
    async def test_a_gap_is_a_conflict(self, store: Store, there: int) -> None:
        """Entries that would leave a gap behind those that are there are a ConflictError; nothing changes."""
        await store.append("bug-1", 0, raws(there), INFO)

        with pytest.raises(ConflictError, match="bug-1"):
            await store.append("bug-1", 3, raws(1, 3), INFO)

        assert await entries_of(store) == raws(there)
        assert await store.has("bug-1") is (there > 0)

    @pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS)
    @pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "plain"])
    @law
    async def test_any_text_comes_back_byte_by_byte(self, store: Store, text: str, ascii_only: bool) -> None:
        """An entry's bytes come back as they were, whatever characters they hold, escaped or as UTF-8."""
        ascii_only = ascii_only or "\ud83d" in text  # as the codec escapes it
        entry = json.dumps({"seq": 0, "text": text, text: 1}, ensure_ascii=ascii_only, separators=(",", ":")).encode()

        await store.append("bug-1", 0, [entry], INFO)

        assert list(await store.read("bug-1")) == [entry]

    @pytest.mark.parametrize(
        "entry",
        [
            b'{"seq":0,"n":123456789012345678901234567890123456789012345678901234567890}',
            b'{"seq":0,"n":[-0.0,1.0,1e300,1E-7,5e-324,0.10000000000000001]}',
            b'{"b":1,"a":2,"seq":0}',
            b'{"seq":0,"":{"":""}}',
            b'{"seq":0,"n":' + b"[" * 200 + b"]" * 200 + b"}",
        ],
        ids=["long integer", "numbers", "order of keys", "empty keys", "deep"],
    )
    @law
    async def test_an_entry_is_not_read_and_written_anew(self, store: Store, entry: bytes) -> None:
        """An entry's bytes come back as they were: how numbers are written and the order of keys too."""
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
    @law
    async def test_an_entry_may_have_an_info_of_its_own(self, store: Store, fields: dict[str, object]) -> None:
        """Entries may hold anything, also what a State's info is made of: the two aren't mixed up."""
        entries = raws(3, 0, **fields)

        await store.append("bug-1", 0, entries, INFO)

        assert list(await store.read("bug-1")) == entries
        assert await infos_of(store) == {"bug-1": json.loads(INFO)}

    @law
    async def test_an_entry_of_64_mebibytes_comes_back(self, store: Store) -> None:
        """An entry may be long: 64 MiB at least."""
        entries = [raw(0), raw(1, text="x" * 2**26), raw(2)]

        await store.append("bug-1", 0, entries, INFO)

        found = list(await store.read("bug-1"))
        is_same = found == entries  # Not in the assertion: it would show them.
        assert is_same, f"read entries of {[len(entry) for entry in found]} bytes"
        assert await infos_of(store) == {"bug-1": json.loads(INFO)}

    @law
    async def test_a_history_of_100_000_entries_comes_back(self, store: Store) -> None:
        """A history may be long: 100,000 entries at least."""
        entries = raws(100_000)

        for first in range(0, len(entries), 5_000):
            await store.append("bug-1", first, entries[first : first + 5_000], INFO)

        found = list(await store.read("bug-1"))
        is_same = found == entries
        assert is_same, f"read {len(found)} entries"
        assert list(await store.read("bug-1", after=99_998)) == raws(2, 99_998)
        await store.append("bug-1", 99_999, raws(2, 99_999), INFO)
        assert list(await store.read("bug-1", after=99_999)) == raws(2, 99_999)

    @law
    def test_it_works_in_one_trio_run_after_another(self, store: Store) -> None:
        """A store outlives a trio run: it works in the next one."""
        for count in range(1, 4):
            trio.run(store.append, "bug-1", 0, raws(count), INFO)

        assert list(trio.run(store.read, "bug-1")) == raws(3)

    @pytest.mark.parametrize("seed", range(5))
    @law
    async def test_any_sequence_of_calls_does_what_it_does_to_a_list(self, store: Store, seed: int) -> None:
        """Whatever was called before, a store does what a dict of lists would do."""
        await any_sequence([store], random.Random(seed))

    @pytest.mark.parametrize("seed", range(5))
    @law
    async def test_any_sequence_of_calls_may_be_made_through_two_store_objects(
        self, store: Store, other: Store, seed: int
    ) -> None:
        """It doesn't matter through which store object something was written: the others know of it."""
        await any_sequence([store, other], random.Random(seed))


async def any_sequence(stores: list[Store], chance: random.Random) -> None:
    """Call the stores, which have the same data, at random, and compare them with a dict."""
    saved: dict[str, list[bytes]] = {}
    infos: dict[str, object] = {}
    for number in range(60):
        store, state_id = chance.choice(stores), chance.choice("ab")
        there = saved.get(state_id, [])
        first = chance.randrange(len(there) + 1)
        again = there[first : first + chance.randrange(4)]
        match chance.choice(["append", "append", "again", "conflict", "gap", "remove"]):
            case "append":
                new = raws(chance.randrange(1, 4), len(there), n=number, text="ü" * chance.choice([0, 1, 9_000]))
                info = {"created_at": f"2026-01-0{1 + 'ab'.index(state_id)}T00:00:00Z", "n": number}
                await store.append(state_id, first, [*there[first:], *new], json.dumps(info).encode())
                saved[state_id], infos[state_id] = [*there, *new], info
            case "again":
                await store.append(state_id, first, again, INFO)
            case "conflict" if there:
                seq = chance.randrange(len(there))
                with pytest.raises(ConflictError):
                    await store.append(state_id, seq, raws(2, seq, by="another"), INFO)
            case "gap":
                with pytest.raises(ConflictError):
                    await store.append(state_id, len(there) + 1, raws(1, len(there) + 1), INFO)
            case "remove":
                await store.remove(state_id)
                saved.pop(state_id, None)
                infos.pop(state_id, None)
            case _:
                pass
        reader = chance.choice(stores)
        assert {each: found for each in "ab" if (found := await entries_of(reader, each))} == saved
        assert list((await infos_of(reader)).items()) == sorted(infos.items(), reverse=True)
        if there := saved.get(state_id, []):
            after = chance.randrange(len(there) + 1)
            assert list(await reader.read(state_id, after)) == there[after:]
