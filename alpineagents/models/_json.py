"""JSON as providers really write it: orjson, and the standard library for what orjson refuses.

orjson refuses lone surrogates (half an emoji in a streamed delta) and control characters inside strings, both of
which servers send; writing, it refuses lone surrogates and integers over 64 bits. The slow path runs for those only.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson

from ..record._blocks import clean_text


def loads(data: bytes | str) -> Any:
    """Return the value of *data*. Its text may hold lone surrogates: the other half may come with the next delta.

    Raises:
        ValueError: it isn't JSON, or is nested too deep.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        text = data if isinstance(data, str) else data.decode(errors="replace")
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def dumps(value: object) -> bytes:
    """Return the JSON of *value* in UTF-8; lone surrogates become U+FFFD."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def dumps_object(members: dict[str, bytes]) -> bytes:
    """Return a JSON object whose values are JSON already."""
    pieces = [piece for key, value in members.items() for piece in (b",", dumps(key), b":", value)]
    return b"".join([b"{", *pieces[1:], b"}"])  # In one go: a request may be megabytes.


def dumps_array(items: list[bytes]) -> bytes:
    """Return a JSON array whose items are JSON already."""
    return b"".join([b"[", b",".join(items), b"]"])
