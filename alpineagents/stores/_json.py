"""JSON text to values and back, exactly: orjson, and ``json`` for what orjson rounds or refuses.

Those are integers beyond 64 bits and lone surrogates, which a State's answer may have.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import orjson

_LONG_NUMBER: Final = re.compile(rb"\d{19}")


def loads(text: bytes) -> Any:
    """Return a JSON value; ValueError if it isn't one."""
    if _LONG_NUMBER.search(text):
        return _loads_slowly(text)
    return loads_rounded(text)


def loads_rounded(text: bytes) -> Any:
    """Return a JSON value of which only small numbers matter; ValueError if it isn't one."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _loads_slowly(text)


def _loads_slowly(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def dumps(value: object) -> bytes:
    """Return the text of a JSON value, on one line and without blanks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()
