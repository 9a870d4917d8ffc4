"""JSON text and values, exactly: integers of any length, and text that orjson refuses."""

from __future__ import annotations

import pytest

from alpineagents.record._json import dumps, loads

LONG = 2**70


@pytest.mark.parametrize("value", [LONG, -LONG, {"a": [LONG, 1.5]}, 10**18, "x", "\ud83d"])
def test_every_value_comes_back(value):
    assert loads(dumps(value)) == value
    assert type(loads(dumps(value))) is type(value)


def test_text_without_long_numbers_is_on_one_line_without_blanks():
    assert dumps({"a": [1, None]}) == b'{"a":[1,null]}'
    assert dumps({"a": [LONG]}) == b'{"a":[%d]}' % LONG


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"12345678901234567890 x", "Extra data"),
        (b"[" * 100_000, "recursion depth"),
    ],
)
def test_what_is_not_json_is_a_value_error(text, said):
    with pytest.raises(ValueError, match=said):
        loads(text)
