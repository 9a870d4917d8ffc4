"""The laws of stores, and what our own refuse beyond them, with the words they do it in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alpineagents import ConflictError, FileStore, MemoryStore, RunningElsewhereError, StateNotFoundError, Store
from alpineagents.testing import StoreLaws

from .histories import INFO, log_of, raw, raws, write_log


class TestMemoryStore(StoreLaws):
    other = expire = damage = None  # It is one object, in one process.

    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestFileStore(StoreLaws):
    expire = None  # Its leases end with who holds them.

    @pytest.fixture
    def store(self, tmp_path: Path) -> FileStore:
        return FileStore(tmp_path / "runs")

    @pytest.fixture
    def other(self, tmp_path: Path) -> FileStore:
        return FileStore(tmp_path / "runs")

    @pytest.fixture
    def damage(self, store: FileStore) -> Callable[[str], None]:
        def spoil_its_second_line(state_id: str) -> None:
            first, _, *rest = log_of(store, state_id).split(b"\n")
            write_log(store, b"\n".join([first, b"oops", *rest]), state_id)

        return spoil_its_second_line


# ---- What each of ours refuses, and its words


async def test_a_conflict_says_how_to_go_on(store: Store) -> None:
    await store.append("bug-1", 0, raws(3), INFO)

    with pytest.raises(ConflictError, match=r"bug-1.* another entry 1;.*store\.load\('bug-1'\), .*state\.fork\(\)$"):
        await store.append("bug-1", 1, [raw(1, by="me")], INFO)
    with pytest.raises(ConflictError, match=r"bug-1: entry 4 can't follow the 3 entries in .*; .*state\.fork\(\)$"):
        await store.append("bug-1", 4, raws(1, 4), INFO)


async def test_a_held_state_says_how_to_go_on(store: Store) -> None:
    async with store.lease("bug-1"):
        with pytest.raises(
            RunningElsewhereError, match=r"State bug-1 in .* is held by .*; wait until .*state\.fork\(\)$"
        ):
            async with store.lease("bug-1"):
                pass


async def test_not_finding_a_state_names_near_ids(store: Store) -> None:
    for state_id in ("parser-bug-1", "parser-bug-2", "poem"):
        await store.append(state_id, 0, raws(1), INFO)

    with pytest.raises(StateNotFoundError, match=r"^no State parser-bug-3 in .*near it: parser-bug-\d, parser-bug-\d$"):
        await store.read("parser-bug-3")


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
    with pytest.raises(ValueError, match="after"):
        store.watch("bug-1", after=-1)
    with pytest.raises(ValueError, match="limit"):
        await store.infos(limit=-1)


@pytest.mark.parametrize("state_id", ["", "..", "../runs", "a/b", "a\0b", ".hidden", "a.b", "é", "x" * 129])
async def test_an_id_that_no_state_can_have_is_refused_by_every_method(store: Store, state_id: str) -> None:
    for call in (
        store.append(state_id, 0, raws(1), INFO),
        store.read(state_id),
        store.has(state_id),
        store.remove(state_id),
        store.delete(state_id),
    ):
        with pytest.raises(ValueError, match="use 1 to 128 letters"):
            await call
    with pytest.raises(ValueError, match="use 1 to 128 letters"):
        async with store.lease(state_id):
            pass


def test_its_repr_says_which_one_it_is(store: Store) -> None:
    assert type(store).__name__ in repr(store)
