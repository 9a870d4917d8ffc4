"""What earlier versions saved: it loads for ever, and is written back as it was.

A new format gets files of its own, from ``scripts/golden.py``; those that are there don't change any more.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
import trio

from alpineagents import (
    CorruptStoreError,
    FileStore,
    MemoryStore,
    Message,
    State,
    StoppedByFinish,
    StoppedByLimit,
    Store,
    ToolOutcome,
    Usage,
)
from alpineagents.record._codec import decode_entry, decode_history, decode_info, encode_entry, encode_info

from .golden import format_1

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import golden

FOLDER = Path(__file__).parent / "golden"

FILES = {
    "format_1/history.jsonl": "b86edf0684f7d0925c079b9ab8bb65f954b9de8e8c504ba4801d2b8ca48d751c",
    "format_1/info.json": "2872d6730a6fe48515a80eff181c7967ff8544a1734a192a2cab486a1d331d13",
    "format_1/files/golden-1.jsonl": "dd0b36db14d36046e12b10fd7c2aa756aafbf3121f737d73bcbd3ce9553feca9",
}
"""SHA-256 of each."""


def raws_of(version: str) -> list[bytes]:
    return (FOLDER / version / "history.jsonl").read_bytes().split(b"\n")[:-1]


def types_of(value: object) -> object:
    """The exact types in a value, at every depth: 1, 1.0 and True are equal."""
    if attrs.has(type(value)):
        return type(value), [types_of(getattr(value, field.name)) for field in attrs.fields(type(value))]
    if isinstance(value, dict):
        return type(value), [(key, types_of(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [types_of(part) for part in value]
    return type(value)


@pytest.mark.parametrize("file", FILES)
def test_the_files_are_those_that_were_written(file: str) -> None:
    assert hashlib.sha256((FOLDER / file).read_bytes()).hexdigest() == FILES[file]


def test_format_1_has_the_entries_that_were_recorded() -> None:
    history = decode_history(raws_of("format_1"))

    assert len(history) == 42
    for entry, expected in zip(history, format_1.HISTORY, strict=True):
        assert entry == expected
        assert entry.at == expected.at
        assert types_of(entry) == types_of(expected)


def test_format_1_is_written_back_byte_by_byte() -> None:
    raws = raws_of("format_1")
    info = (FOLDER / "format_1" / "info.json").read_bytes().removesuffix(b"\n")

    assert [encode_entry(entry) for entry in decode_history(raws)] == raws
    assert [encode_entry(entry) for entry in format_1.HISTORY] == raws
    assert decode_info(info) == format_1.INFO
    assert encode_info(decode_info(info)) == info


def assert_is_the_golden_one(state: State) -> None:
    assert state.snapshot() == State(id="golden-1", history=format_1.HISTORY).snapshot()
    assert (state.turn, state.parent_id, state.parent_call_id) == (3, "parent-1", "call_of_parent")
    assert state.stopped == StoppedByFinish(state.answer)
    answer = state.answer
    assert isinstance(answer, dict)
    assert answer["answer"] == format_1.NUMBERS
    assert [type(number) for number in answer["answer"]] == [type(number) for number in format_1.NUMBERS]
    assert state.extra_data["deep"] == format_1.DEEP
    assert state.extra_data[format_1.EDGES] == format_1.LONE
    assert "gone" not in state.extra_data
    assert state.usage.cost is None
    assert attrs.evolve(state.usage, cost=Decimal(0)) == Usage(7_200_021, 204_018, 6_000_015, 300_012, 120_009, 24)
    assert [message.role for message in state.messages] == [
        *("user", "assistant", "tool", "assistant", "user", "user"),
        *("user", "user", "user", "assistant", "tool", "assistant", "tool", "user", "assistant"),
    ]
    assert state.messages[0].blocks == format_1.IMPORTED[0].blocks
    assert state.messages[-1].text == "Done: " + format_1.EDGES
    assert [str(entry.outcome) for entry in state.history if entry.kind == "tool_result"] == [
        "done",
        *ToolOutcome,
        "done",
    ]


async def test_a_folder_of_format_1_loads_and_lists(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER / "format_1" / "files", tmp_path / "files")
    store = FileStore(folder)

    assert list(await store.list()) == [format_1.INFO]
    assert list(await store.read("golden-1")) == raws_of("format_1")
    state = await store.load("golden-1")
    assert_is_the_golden_one(state)
    state.add_message(Message.user("Thank you."))
    await store.save(state)
    assert (await FileStore(folder).load("golden-1")).snapshot() == state.snapshot()
    assert list(await store.read("golden-1"))[:42] == raws_of("format_1")


async def test_every_store_keeps_format_1(store: Store) -> None:
    info = (FOLDER / "format_1" / "info.json").read_bytes().removesuffix(b"\n")

    await store.append("golden-1", 0, raws_of("format_1"), info)

    assert list(await store.read("golden-1")) == raws_of("format_1")
    assert_is_the_golden_one(await store.load("golden-1"))
    assert list(await store.list()) == [format_1.INFO]


@pytest.mark.parametrize("version", [2, 10**20])
async def test_a_newer_format_is_refused_with_both_numbers(version: int) -> None:
    first, *rest = raws_of("format_1")
    newer = first.replace(b'"format":1', b'"format":%d' % version)
    info = (FOLDER / "format_1" / "info.json").read_bytes().replace(b'"format":1', b'"format":%d' % version)
    both = rf"format {version}, .* reads up to 1"
    store = MemoryStore()
    await store.append("golden-1", 0, [newer, *rest], info)

    with pytest.raises(ValueError, match=both):
        decode_entry(newer)
    with pytest.raises(ValueError, match=both):
        decode_info(info)
    with pytest.raises(CorruptStoreError, match=both):
        await store.load("golden-1")
    with pytest.warns(UserWarning, match=both):
        assert list(await store.list()) == []


# ---- The script that writes them


def test_golden_files_are_never_written_again() -> None:
    with pytest.raises(SystemExit, match="never written again"):
        golden.main()


def test_a_history_that_leaves_something_out_is_not_golden(tmp_path: Path) -> None:
    without_late = [entry for entry in format_1.HISTORY if not getattr(entry, "late", False)]

    with pytest.raises(ValueError, match=r"not in the history: ToolResultEntry\.late$"):
        golden.write(tmp_path / "format_1", without_late, format_1.INFO)
    with pytest.raises(ValueError, match="StoppedByLimit"):
        golden.write(
            tmp_path / "format_1",
            [entry for entry in format_1.HISTORY if not isinstance(entry.content, StoppedByLimit)],
            format_1.INFO,
        )
    assert list(tmp_path.iterdir()) == []


def test_the_script_writes_what_is_there(tmp_path: Path) -> None:
    golden.write(tmp_path / "format_1", format_1.HISTORY, format_1.INFO)

    for name in ("history.jsonl", "info.json"):
        assert (tmp_path / "format_1" / name).read_bytes() == (FOLDER / "format_1" / name).read_bytes()
    assert list(trio.run(FileStore(tmp_path / "format_1" / "files").read, "golden-1")) == raws_of("format_1")
