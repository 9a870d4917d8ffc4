"""Shapes of values that are written as text: times, ids, numbers kept exactly, paths, bytes. Pure.

Times are those of RFC 3339, without leap seconds, which Python's ``datetime`` doesn't have.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, final
from uuid import UUID

import attrs

from ._misfit import Reading, misfit
from ._shapes import Schema, Shape

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_OFFSET = r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_IS_DATE = re.compile(_DATE)
_IS_TIME = re.compile(f"{_CLOCK}{_OFFSET}")
_IS_DATETIME = re.compile(f"{_DATE}[Tt]{_CLOCK}{_OFFSET}")
_IS_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

# No months and years: how long they are depends. As many digits as a timedelta holds in any case.
_CLOCK_PART = r"T(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?(?:[0-9]{1,9}(?:\.[0-9]{1,9})?S)?"
_DURATION = rf"^-?P(?:[0-9]{{1,7}}W)?(?:[0-9]{{1,8}}D)?(?:{_CLOCK_PART})?$"
_IN_SECONDS: Mapping[str, int] = MappingProxyType({"W": 604_800, "D": 86_400, "H": 3_600, "M": 60, "S": 1})

_DECIMAL = r"^-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?$"
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@final
@attrs.frozen(eq=False, repr=False)
class TextShape(Shape):
    """A value that JSON has no type for."""

    kind: type[Any]
    words: str
    """What a message says is expected."""
    keywords: Mapping[str, str]
    """What the schema says, besides that it is text."""
    parse: Callable[[str], Any]
    """Takes exactly the text that the schema accepts; ValueError for any other."""
    guess: Callable[[Any], Any]
    """Takes text and numbers that have one reading all the same; ValueError for any other."""
    takes_any: bool = False
    """Whether every text fits."""

    def schema(self, defs: dict[str, Schema]) -> Schema:
        return {"type": "string", **self.keywords}

    def read(self, value: Any, how: Reading) -> Any:
        try:
            if type(value) is str:
                return self.parse(value)
        except ValueError:
            pass
        try:
            if how.forgives and type(value) in (str, int, float):
                return self.guess(value)
        except (ValueError, ArithmeticError):
            pass
        raise misfit(self.words, value)

    def mended(self, value: Any, how: Reading) -> str:
        try:
            if type(value) is str:
                self.parse(value)
                return value
        except ValueError:
            pass
        return _text_of(self.read(value, how))

    def wanted(self) -> str:
        return self.words

    def kinds(self) -> Mapping[type[Any], int]:
        return {str: 2 if self.takes_any else 1}


def _text_of(value: Any) -> str:
    """What is to be parsed as *value*, which was guessed."""
    match value:
        case date() | time():
            return value.isoformat()
        case timedelta():
            size = abs(value)
            return f"{'-' if value < timedelta() else ''}P{size.days}DT{size.seconds}.{size.microseconds:06}S"
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def overlap(one: TextShape, two: TextShape) -> bool:
    """Whether a text can be both, and neither of them is the more special one."""
    return one is not two and (bytes in (one.kind, two.kind) or (one.takes_any and two.takes_any))


def _only(value: Any, is_text: re.Pattern[str]) -> str:
    if type(value) is not str or not is_text.fullmatch(value):
        raise ValueError(value)
    return value


def _found(value: str, pattern: str) -> str:
    """*value* if a schema's ``pattern`` accepts it, without the line break that may follow: ``$`` lets it."""
    if not re.search(pattern, value):
        raise ValueError(value)
    return value.removesuffix("\n")


def _refuse(value: Any) -> Any:
    raise ValueError(value)


def _date(value: str) -> date:
    return date.fromisoformat(_only(value, _IS_DATE))


def _time(value: str) -> time:
    return time.fromisoformat(_only(value, _IS_TIME).upper())


def _datetime(value: str) -> datetime:
    return datetime.fromisoformat(_only(value, _IS_DATETIME).upper())


def _loose(kind: type[Any], must_have: str, value: Any) -> Any:
    """What Python reads of ISO 8601: no offset, no seconds, a space for the T. A part that is missing is refused."""
    if type(value) is not str or not re.search(must_have, value):
        raise ValueError(value)
    return kind.fromisoformat(value.strip().upper())


def _timedelta(value: str) -> timedelta:
    text = _found(value, _DURATION)
    parts = re.findall(r"([0-9.]+)([WDHMS])", text)
    length = sum([timedelta(seconds=float(number) * _IN_SECONDS[unit]) for number, unit in parts], timedelta())
    return -length if text.startswith("-") else length


def _uuid(value: str) -> UUID:
    return UUID(_only(value, _IS_UUID))


def _loose_uuid(value: Any) -> UUID:
    if type(value) is not str:
        raise ValueError(value)
    digits = value.strip().lower().removeprefix("urn:uuid:").strip("{}").replace("-", "")
    return UUID(_only(digits, re.compile("[0-9a-f]{32}")))


def _decimal(value: str) -> Decimal:
    return Decimal(_found(value, _DECIMAL))


def _loose_decimal(value: Any) -> Decimal:
    return _decimal(value.strip()) if type(value) is str else Decimal(repr(value))


def _bytes(value: str) -> bytes:
    return base64.b64decode(_found(value, _BASE64), validate=True)


def _loose_bytes(value: Any) -> bytes:
    """Base64 in lines, without padding, or in the alphabet for URLs."""
    if type(value) is not str:
        raise ValueError(value)
    text = "".join(value.split()).rstrip("=").replace("-", "+").replace("_", "/")
    return _bytes(text + "=" * (-len(text) % 4))


def _path(kind: type[PurePath]) -> TextShape:
    return TextShape(kind, "path", {}, kind, _refuse, takes_any=True)


TEXTS: Mapping[type[Any], TextShape] = MappingProxyType(
    {
        date: TextShape(date, "date like 2026-12-31", {"format": "date"}, _date, partial(_loose, date, "^")),
        time: TextShape(time, "time like 23:59:59Z", {"format": "time"}, _time, partial(_loose, time, ":")),
        datetime: TextShape(
            datetime,
            "date and time like 2026-12-31T23:59:59Z",
            {"format": "date-time"},
            _datetime,
            partial(_loose, datetime, "[0-9][Tt ][0-9]"),
        ),
        timedelta: TextShape(
            timedelta,
            "duration like P1DT2H30M or PT45S",
            {"format": "duration", "pattern": _DURATION},
            _timedelta,
            lambda value: _timedelta(value.strip().upper()) if type(value) is str else _refuse(value),
        ),
        UUID: TextShape(UUID, "UUID", {"format": "uuid"}, _uuid, _loose_uuid),
        Decimal: TextShape(Decimal, "decimal number as a string", {"pattern": _DECIMAL}, _decimal, _loose_decimal),
        bytes: TextShape(
            bytes, "bytes in base64", {"contentEncoding": "base64", "pattern": _BASE64}, _bytes, _loose_bytes
        ),
        **{kind: _path(kind) for kind in (Path, PurePath, PurePosixPath, PureWindowsPath)},
    }
)
"""Types that are written as text."""
