"""Any sequence of what one can do to a store, compared with plain lists of entries."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from alpineagents import ConflictError, FileStore, MemoryStore, RunningElsewhereError, StateNotFoundError, Store

from .histories import infos_of, raw

T = TypeVar("T")
ids = st.sampled_from(["a", "b"])
texts = st.sampled_from(["", "ü", "x" * 9_000, ',"info":{"n":1}'])


class StoreMachine(RuleBasedStateMachine):
    """Invariant: ``saved`` and ``infos`` are what the store should have."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make()
        self.saved: dict[str, list[bytes]] = {}
        self.infos: dict[str, dict[str, object]] = {}
        self.count = 0

    def make(self) -> Store:
        return MemoryStore()

    def run(self, call: Callable[..., Awaitable[T]], *args: object) -> T:
        return trio.run(call, *args)

    def new(self, state_id: str, texts: list[str]) -> tuple[list[bytes], dict[str, object]]:
        self.count += 1
        length = len(self.saved.get(state_id, []))
        entries = [raw(seq, text=text, n=self.count, args={"info": 1}) for seq, text in enumerate(texts, length)]
        return entries, {"id": state_id, "n": self.count, "text": texts[0], "answer": {"x": 1, "info": {"y": 2}}}

    @rule(state_id=ids, texts=st.lists(texts, min_size=1, max_size=4), again=st.integers(0, 3))
    def append(self, state_id: str, texts: list[str], again: int) -> None:
        saved = self.saved.get(state_id, [])
        entries, info = self.new(state_id, texts)
        repeated = saved[len(saved) - again :] if again <= len(saved) else []
        first = len(saved) - len(repeated)
        self.run(self.store.append, state_id, first, [*repeated, *entries], json.dumps(info).encode())
        self.saved[state_id] = [*saved, *entries]
        self.infos[state_id] = info

    @rule(state_id=ids, back=st.integers(1, 3))
    def append_again(self, state_id: str, back: int) -> None:
        saved = self.saved.get(state_id, [])[-back:]
        self.run(self.store.append, state_id, len(self.saved.get(state_id, [])) - len(saved), saved, b"{}")

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def append_something_else(self, data: st.DataObject) -> None:
        state_id = data.draw(st.sampled_from(sorted(self.saved)))
        seq = data.draw(st.integers(0, len(self.saved[state_id]) - 1))
        with pytest.raises(ConflictError):
            self.run(self.store.append, state_id, seq, [raw(seq, by="another")], b"{}")

    @rule(state_id=ids)
    def append_behind_a_gap(self, state_id: str) -> None:
        seq = len(self.saved.get(state_id, [])) + 1
        with pytest.raises(ConflictError):
            self.run(self.store.append, state_id, seq, [raw(seq)], b"{}")

    @rule(state_id=ids)
    def delete(self, state_id: str) -> None:
        self.run(self.store.delete, state_id)
        self.saved.pop(state_id, None)
        self.infos.pop(state_id, None)

    @rule(state_id=ids, texts=st.lists(texts, max_size=3))
    def run_under_a_lease(self, state_id: str, texts: list[str]) -> None:
        async def under_a_lease() -> None:
            async with self.store.lease(state_id):
                with pytest.raises(RunningElsewhereError):
                    await self.store.lease(state_id).__aenter__()
                with pytest.raises(RunningElsewhereError):
                    await self.store.delete(state_id)
                for text in texts:
                    entries, info = self.new(state_id, [text])
                    length = len(self.saved.get(state_id, []))
                    await self.store.append(state_id, length, entries, json.dumps(info).encode())
                    self.saved.setdefault(state_id, []).extend(entries)
                    self.infos[state_id] = info

        self.run(under_a_lease)

    @rule(state_id=ids, after=st.integers(0, 5))
    def read_some(self, state_id: str, after: int) -> None:
        if state_id in self.saved:
            assert list(self.run(self.store.read, state_id, after)) == self.saved[state_id][after:]

    @invariant()
    def it_has_what_was_saved(self) -> None:
        self.run(self.check)

    async def check(self) -> None:
        for state_id in ("a", "b"):
            if state_id in self.saved:
                assert list(await self.store.read(state_id)) == self.saved[state_id]
            else:
                with pytest.raises(StateNotFoundError):
                    await self.store.read(state_id)
        assert await infos_of(self.store) == self.infos


class FileMachine(StoreMachine):
    """The same, with what can happen to files."""

    def make(self) -> Store:
        self.folder = Path(tempfile.mkdtemp())
        return FileStore(self.folder, fsync=False)

    @rule()
    def open_anew(self) -> None:
        self.store = FileStore(self.folder, fsync=False)

    @rule(state_id=ids, texts=st.lists(texts, min_size=1, max_size=4))
    def another_process_appends(self, state_id: str, texts: list[str]) -> None:
        entries, info = self.new(state_id, texts)
        other = FileStore(self.folder, fsync=False)
        self.run(other.append, state_id, len(self.saved.get(state_id, [])), entries, json.dumps(info).encode())
        self.saved.setdefault(state_id, []).extend(entries)
        self.infos[state_id] = info

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), text=texts)
    def a_crash_leaves_a_torn_line(self, data: st.DataObject, text: str) -> None:
        state_id = data.draw(st.sampled_from(sorted(self.saved)))
        line = raw(len(self.saved[state_id]), text=text, args={"x": 1, "info": {"n": -1}})
        path = self.folder / f"{state_id}.jsonl"
        if path.read_bytes().endswith(b"\n"):
            with path.open("ab") as file:
                file.write(line[: data.draw(st.integers(1, len(line) - 1))])

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def the_last_newline_gets_lost(self, data: st.DataObject) -> None:
        path = self.folder / f"{data.draw(st.sampled_from(sorted(self.saved)))}.jsonl"
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestMemoryStore = StoreMachine.TestCase
TestFileStore = FileMachine.TestCase
TestMemoryStore.settings = settings(max_examples=20, stateful_step_count=15)
TestFileStore.settings = settings(max_examples=30, stateful_step_count=15)
