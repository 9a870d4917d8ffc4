"""JSON as providers really write it: orjson, and the standard library for what orjson refuses.

orjson refuses lone surrogates (half an emoji in a streamed delta) and control characters inside strings, both of
which servers send, and makes floats of integers over 64 bits; writing, it refuses lone surrogates and such integers.
The slow path runs for those only.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

from ..record._blocks import clean_text
from ..record._frozen import FrozenDict, freeze_dict

_MANY_DIGITS = re.compile(rb"\d{19}")


def loads(data: bytes | str) -> Any:
    """Return the value of *data*. Its text may hold lone surrogates: the other half may come with the next delta.

    Raises:
        ValueError: it isn't JSON, or is nested too deep.
    """
    try:
        return loads_exactly(data.encode() if isinstance(data, str) else data)
    except ValueError:
        text = data if isinstance(data, str) else data.decode(errors="replace")
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def loads_exactly(data: bytes) -> Any:
    """Return what orjson does, but integers of any size as they are: a tool's arguments may be ids or amounts.

    Raises:
        ValueError: orjson refuses it.
    """
    value = orjson.loads(data)
    if _MANY_DIGITS.search(data) is None:
        return value
    try:
        return json.loads(data)
    except (ValueError, RecursionError):  # Thousands of digits, or nested deeper than Python likes.
        return value


def whole(value: object) -> int:
    """Return a count of tokens; 0 for what can't be one."""
    return int(value) if isinstance(value, int | float) and 0 < value < 2**63 else 0


def words(value: object) -> str:
    """Return what a server put where text belongs as text that can be shown and kept, whatever it is."""
    if isinstance(value, str):
        return clean_text(value)
    try:
        return dumps(value).decode()
    except ValueError:
        return "(nested too deep)"


def storable(value: dict[str, Any]) -> FrozenDict | None:
    """Return *value* as a history can hold it, without half characters; None where it can't, being nested too deep."""
    try:
        return freeze_dict(loads(dumps(value)))
    except (TypeError, ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def dumps(value: object) -> bytes:
    """Return the JSON of *value* in UTF-8; lone surrogates become U+FFFD.

    Raises:
        ValueError: it is nested too deep.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None


def dumps_object(members: dict[str, bytes]) -> bytes:
    """Return a JSON object whose values are JSON already."""
    pieces = [piece for key, value in members.items() for piece in (b",", dumps(key), b":", value)]
    return b"".join([b"{", *pieces[1:], b"}"])  # In one go: a request may be megabytes.


def dumps_array(items: list[bytes]) -> bytes:
    """Return a JSON array whose items are JSON already."""
    return b"".join([b"[", b",".join(items), b"]"])
