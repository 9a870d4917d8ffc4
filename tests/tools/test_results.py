"""What a tool returns, as the model gets it."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import File, Image, TextBlock, ToolError, ToolOutcome, tool
from alpineagents.tools import failed
from alpineagents.tools._results import to_blocks

from .calls import ending, text

PNG = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NOTE = File(b"a note")


@dataclasses.dataclass
class Place:
    city: str
    since: datetime.date | None = None


class Word(enum.StrEnum):
    YES = "yes"


def returning(value: Any) -> Any:
    @tool
    async def give() -> Any:
        return value

    return give


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        (Word.YES, "yes"),
        (None, "(done)"),
        ("", "(empty)"),
        (" \n", "(empty)"),
        (3, "3"),
        (10**30, "1" + "0" * 30),
        (True, "true"),
        (0.5, "0.5"),
        ([], "[]"),
        (["a", 1], '["a",1]'),
        (("a", None), '["a",null]'),
        ({"a": "größe"}, '{"a":"größe"}'),
        ("\ud800", "\ufffd"),
        (["\ud800"], '["\ufffd"]'),
        (Place("Bern", datetime.date(2026, 1, 2)), '{"city":"Bern","since":"2026-01-02"}'),
        (TextBlock("a"), "a"),
    ],
)
async def test_a_result_becomes_text(value: Any, expected: str) -> None:
    result = await ending(returning(value))

    assert result.content == (TextBlock(expected),)
    assert (result.outcome, result.full, result.error) == (ToolOutcome.DONE, None, None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (PNG, (PNG,)),
        (NOTE, (NOTE,)),
        ([PNG], (PNG,)),
        (["look:", PNG, {"a": 1}, NOTE], (TextBlock("look:"), PNG, TextBlock('{"a":1}'), NOTE)),
        (("", PNG), (PNG,)),
        ([TextBlock("a"), TextBlock("b")], (TextBlock("a"), TextBlock("b"))),
        ((TextBlock("a"),), (TextBlock("a"),)),
        (["a", TextBlock("b"), 1], (TextBlock("a"), TextBlock("b"), TextBlock("1"))),
    ],
)
async def test_blocks_stay_what_they_are(value: Any, expected: Any) -> None:
    assert (await ending(returning(value))).content == expected


def holding_itself(*others: Any) -> list[Any]:
    value: list[Any] = [*others]
    value.append(value)
    return value


class Unspeakable:
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"x", "the result of tool give: bytes is not JSON"),
        ({1, 2}, "the result of tool give: set is not JSON; use a list"),
        ({"a": [datetime.date(2026, 1, 2)]}, r'the result of tool give\["a"\]\[0\]: date is not JSON; use x.isoformat'),
        ([PNG, {"a": float("nan")}], r'the result of tool give\[1\]\["a"\]: nan is not JSON'),
        ({1: 2}, "the result of tool give: key 1 is int"),
        (ValueError("x"), "ValueError is not JSON"),
        (iter([1]), "list_iterator is not JSON"),
        (Unspeakable(), "Unspeakable is not JSON"),
        (holding_itself(), "circular: it holds itself"),
        (holding_itself(PNG), "the result of tool give: nested too deep, or circular: it holds itself"),
    ],
)
async def test_what_is_not_json_stops_the_run_and_says_where_it_is(value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        await ending(returning(value))


async def test_a_long_result_is_cut_in_the_middle_and_kept_whole() -> None:
    whole = "start" + "x" * 1000 + "end"

    @tool(max_result_bytes=100)
    async def give() -> str:
        return whole

    result = await ending(give)

    (block,) = result.content
    assert isinstance(block, TextBlock)
    head, line, tail = block.text.split("\n")
    assert line == f"({len(whole) - len(head) - len(tail)} bytes are missing here)"
    assert head.startswith("start")
    assert tail.endswith("end")
    assert len(block.text.encode()) <= 100
    assert result.full == (TextBlock(whole),)
    assert result.outcome is ToolOutcome.DONE


async def test_the_default_limit_is_64_kib() -> None:
    assert len(await text(returning("x" * 65_536))) == 65_536
    assert len(await text(returning("ü" * 32_768))) == 32_768
    assert "bytes are missing here" in await text(returning("x" * 65_537))


async def test_what_is_kept_whole_ends_at_16_mib() -> None:
    result = await ending(returning("x" * (20 * 2**20)))

    assert result.full is not None
    (block,) = result.full
    assert isinstance(block, TextBlock)
    assert len(block.text) <= 16 * 2**20
    assert "bytes are missing here" in block.text


def test_text_is_cut_across_the_blocks_of_a_list_and_images_stay() -> None:
    content, full = to_blocks(["a" * 100, PNG, "b" * 100, "c" * 100, NOTE], 150, "t")

    assert full == (TextBlock("a" * 100), PNG, TextBlock("b" * 100), TextBlock("c" * 100), NOTE)
    first, image, last, note = content
    assert isinstance(first, TextBlock)
    assert isinstance(last, TextBlock)
    assert (image, note) == (PNG, NOTE)
    assert first.text.startswith("aaa")
    assert "bytes are missing here" in first.text
    assert set(last.text) == {"c"}


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=4), st.integers(1, 300))
def test_a_cut_keeps_characters_whole_and_counts_what_is_missing(texts: list[str], max_bytes: int) -> None:
    content, full = to_blocks([*texts, PNG], max_bytes, "t")

    kept = "".join(block.text for block in content if isinstance(block, TextBlock))
    whole = "".join(block.text for block in full or () if isinstance(block, TextBlock))
    assert PNG in content
    if full is None:
        assert len(kept.encode()) <= max(max_bytes, len("(empty)"))
    else:
        assert len(whole.encode()) > max_bytes
        assert len(kept.encode()) <= max_bytes + len("\n(1,000 bytes are missing here)\n")


def test_a_long_error_is_cut_too() -> None:
    result = failed(ToolError("x" * 100_000), returning(None))

    assert result.full is not None
