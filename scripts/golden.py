"""Writes the files that every later version must load: ``tests/stores/golden/format_N``, for the format of today.

    python scripts/golden.py

Each format has a module beside its files, ``format_N.py``, which says in Python what they hold. What is there is never
written again: files that change prove nothing. A new format gets a module and files of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import attrs
import trio

from alpineagents import Entry, State, StateInfo, Stopped, ToolOutcome, UnknownEntry
from alpineagents.record._blocks import Block
from alpineagents.record._codec import FORMAT, encode_entry, encode_info
from alpineagents.stores import FileStore
from alpineagents.testing._laws._kit import batches

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "stores" / "golden"
NOT_SAVED = {"error", "raw"}
"""Fields that are not in the files of the version that writes them."""


def write(folder: Path, history: Sequence[Entry], info: StateInfo) -> None:
    """Write a history as the codec has it, and as a FileStore has it, in batches.

    Raises:
        FileExistsError: *folder* is there.
        ValueError: the history leaves something out.
    """
    if left_out := list(unused([*history, info])):
        raise ValueError(f"not in the history: {', '.join(left_out)}")
    folder.mkdir()
    entries = [encode_entry(entry) for entry in history]
    (folder / "history.jsonl").write_bytes(b"".join(entry + b"\n" for entry in entries))
    (folder / "info.json").write_bytes(encode_info(info) + b"\n")
    store = FileStore(folder / "files")
    for first, batch, about in batches(State(id=info.id, history=history), 5):
        trio.run(store.append, info.id, first, batch, about)


def unused(values: Iterable[object]) -> Iterator[str]:
    """Yield the classes, fields and outcomes that aren't used in *values*."""
    found = list(parts(values))
    kinds: set[Any] = {type(value) for value in found}
    for cls in {*get_args(Entry), *get_args(Block), *get_args(Stopped)} - {UnknownEntry}:
        if cls not in kinds:
            yield cls.__name__
    for cls in filter(attrs.has, kinds):
        for field in attrs.fields(cls):
            values_of = [getattr(value, field.name) for value in found if type(value) is cls]
            default = None if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
            if field.name not in NOT_SAVED and not any(value != default and value != () for value in values_of):
                yield f"{cls.__name__}.{field.name}"
    outcomes = {value for value in found if isinstance(value, ToolOutcome)}
    yield from (outcome.name for outcome in ToolOutcome if outcome not in outcomes)


def parts(value: object) -> Iterator[object]:
    """Yield *value* and what it is made of."""
    yield value
    cls: Any = type(value)
    if attrs.has(cls):
        for field in attrs.fields(cls):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from parts(part)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    expected = import_module(f"tests.stores.golden.format_{FORMAT}")
    folder = GOLDEN / f"format_{FORMAT}"
    try:
        write(folder, expected.HISTORY, expected.INFO)
    except FileExistsError:
        sys.exit(f"{folder} is there: golden files are never written again")
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
