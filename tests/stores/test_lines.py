"""Entries and infos as the lines of a log: exact, whatever is in them."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from alpineagents.stores._lines import (
    Info,
    decode_log,
    encode_batch,
    encode_info,
    entry_of,
    find_info,
)

from .histories import conversation, encoded, raw

texts = st.text(st.characters(codec=None), max_size=6) | st.sampled_from(
    ["info", ',"info":', ',"info":{"a":1}}', '"info":', '\\","info":{', ',"\\u0069nfo":', "}\n", "\0"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=4
)
objects = st.dictionaries(texts, values, max_size=3)


def dumped(value: object, ascii_only: bool) -> bytes:
    text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    return text.encode() if ascii_only else text.encode(errors="replace")


@st.composite
def batch_lists(draw: st.DrawFn) -> list[tuple[list[bytes], Info]]:
    """Batches of entries, each with its info."""
    seq = 0
    found = []
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        entries = [dumped({"seq": n} | draw(objects) | {"seq": n}, draw(st.booleans())) for n in range(seq, seq + size)]
        found.append((entries, draw(objects)))
        seq += size
    return found


def logged(batches: list[tuple[list[bytes], Info]], whole: list[bool]) -> bytes:
    """The log of these batches; where *whole* says so the whole info is written."""
    data = b""
    base = None
    for number, (entries, info) in enumerate(batches):
        text = encode_info(info, None if whole[number % len(whole)] else base)
        base = info if text.startswith(b"{") else base
        data += encode_batch(entries, text)
    return data


@settings(max_examples=60)
@given(batch_lists(), st.lists(st.booleans(), min_size=1, max_size=4), st.data())
def test_every_entry_is_recovered_byte_by_byte_and_the_info_of_the_last_batch(
    batches: list[tuple[list[bytes], Info]], whole: list[bool], data: st.DataObject
) -> None:
    log = logged(batches, whole)

    entries = [entry for batch, _ in batches for entry in batch]
    assert [entry_of(line) for line in log.split(b"\n")[:-1]] == entries
    read = decode_log(log)
    assert (read.entries, read.size, read.damage) == (entries, len(log), None)
    info = find_info(log, is_all=True)
    assert info is not None
    assert repr(sorted(info.items())) == repr(sorted(batches[-1][1].items()))
    end = log[data.draw(st.integers(0, len(log))) :]
    assert repr(find_info(end, is_all=False)) in (repr(info), "None"), "the end of a log has it or asks for more"


@settings(max_examples=60)
@given(batch_lists(), st.data())
def test_a_log_cut_anywhere_has_the_entries_before(
    batches: list[tuple[list[bytes], Info]], data: st.DataObject
) -> None:
    whole = logged(batches, [True, False])
    cut = data.draw(st.integers(0, len(whole)))

    log = decode_log(whole[:cut])

    lines = whole[:cut].split(b"\n")
    complete = len(lines) - 1 + (whole[cut : cut + 1] == b"\n")
    assert log.damage is None
    assert log.entries == [entry for batch, _ in batches for entry in batch][:complete]
    assert whole[: log.size].removesuffix(b"\n").count(b"\n") + 1 == complete or complete == log.size == 0


@given(st.binary(), st.binary(max_size=3))
def test_any_bytes_that_end_in_a_brace_are_recovered(middle: bytes, info: bytes) -> None:
    """Not even JSON is needed, as long as there is no newline in it."""
    entry = b'{"' + middle.replace(b"\n", b"") + b"}"

    lines = encode_batch([entry, entry], info.replace(b"\n", b"")).split(b"\n")

    assert [entry_of(line) for line in lines] == [entry, entry, b""]


def test_a_log_of_real_entries_is_their_lines_with_infos_beside_them() -> None:
    entries = encoded(conversation(turns=1))

    data = encode_batch(entries, b'{"turn":1}')

    lines = [json.loads(line) for line in data.splitlines()]
    assert [line.pop("info", None) for line in lines] == [None, None, {"turn": 1}, {"turn": 1}, None, {"turn": 1}]
    assert lines == [json.loads(entry) for entry in entries]


def test_changes_are_as_small_as_what_changed() -> None:
    base = {"id": "bug-1", "turn": 1, "stopped": {"type": "limit", "turns": 3}}

    assert encode_info(base | {"turn": 2}, base) == b'[{"turn":2}]'
    assert encode_info(base, base) == b"[{}]"
    assert encode_info({"id": "bug-1", "turn": 2}, base) == b'{"id":"bug-1","turn":2}'


def test_equal_numbers_of_different_types_are_changes() -> None:
    assert (
        encode_info({"x": True, "y": 1.0, "z": [1]}, {"x": 1, "y": 1, "z": [True]}) == b'[{"x":true,"y":1.0,"z":[1]}]'
    )


def test_an_entry_without_fields_of_an_info_has_none() -> None:
    assert entry_of(raw(0, text="x")) == raw(0, text="x")
