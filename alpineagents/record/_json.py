"""JSON text to values and back, exactly: orjson, and ``json`` for what orjson rounds or refuses.

Those are integers beyond 64 bits, which orjson reads as floats, and lone surrogates, which it refuses both ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import orjson

_LONG_NUMBER: Final = re.compile(rb"\d{19}")


def loads(text: bytes) -> Any:
    """Return a JSON value; ValueError if it isn't one."""
    if _LONG_NUMBER.search(text):
        return loads_slowly(text)
    return loads_rounded(text)


def loads_rounded(text: bytes) -> Any:
    """Return a JSON value of which no long integer matters; ValueError if it isn't one."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return loads_slowly(text)


def loads_slowly(text: bytes) -> Any:
    """Return a JSON value with every integer exact; ValueError if it isn't one."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def dumps(value: object) -> bytes:
    """Return the text of a JSON value, on one line and without blanks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return dumps_slowly(value)


def dumps_slowly(value: object, default: Callable[[Any], object] | None = None) -> bytes:
    """Return the same, with every integer exact, and what *default* makes of a value that isn't JSON."""
    return json.dumps(value, separators=(",", ":"), default=default).encode()
