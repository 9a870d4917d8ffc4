"""A State's log as bytes: entries and infos to lines and back. Pure.

A line is an entry, as it was encoded once. In the last line of every batch, and in those that need it to be read back
exactly, the info stands behind the entry's own fields::

    {"kind":"user","seq":0,"turn":0,"at":"...","content":{...}}
    {"kind":"run_start","seq":1,...,"info":{"format":1,"id":"bug-1","created_at":"...","updated_at":"..."}}
    {"kind":"model_reply","seq":2,...,"info":[{"updated_at":"...","turn":1}]}

An object is the whole info; an array holds what has changed since the nearest whole one above. Whole ones in every
batch would nearly double a log of short entries; with one every WHOLE_INFO_EVERY bytes, a list still finds it near the
end.

Why the entry's bytes can be recovered: an info is written such that ``,"info":`` isn't in it, and an entry that has it,
wherever, gets an info behind it too. So the last one in a line, if there is one, is where the entry was cut. (In JSON
without blanks it is always a key, a quotation mark inside a text having a backslash before it: so it can be escaped.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs

from ..record._codec import FORMAT
from ..record._json import dumps, loads, loads_rounded
from ._rules import looks_whole

Info: TypeAlias = dict[str, Any]

WHOLE_INFO_EVERY: Final = 16 * 1024
"""Bytes of a log behind a whole info, from where on the next one is whole again."""

_INFO: Final = b',"info":'
_SAME_KEY: Final = b',"\\u0069nfo":'


# Writing


def encode_info(info: Info, base: Info | None) -> bytes:
    """Return *info* as a line has it: an array of its changes since *base*, the last whole one, or an object."""
    if base is None or base.keys() - info.keys():
        return _dumps(info)
    # By their repr, since 1, 1.0 and True are equal.
    return _dumps([{key: value for key, value in info.items() if key not in base or repr(base[key]) != repr(value)}])


def encode_batch(entries: Sequence[bytes], info: bytes) -> bytes:
    """Return the lines of a batch, the last of which has *info*."""
    with_info = len(entries) - 1
    lines: list[bytes] = []
    for position, entry in enumerate(entries):
        if position == with_info or _INFO in entry:
            entry = b"".join((entry[:-1], _INFO, info, b"}"))
        lines.append(entry)
    lines.append(b"")
    return b"\n".join(lines)


def _dumps(value: object) -> bytes:
    return dumps(value).replace(_INFO, _SAME_KEY)


# Reading entries


@attrs.frozen
class Log:
    """What the bytes of a log hold."""

    entries: list[bytes]
    size: int
    """Bytes up to the end of the last entry. What follows is a torn line, or damage."""
    lacks_newline: bool = False
    """The last entry is whole but for its newline, which *size* doesn't count."""
    damage: str | None = None
    """What is wrong with the line behind the last entry; ``None`` if that is only the torn end of a write."""


def decode_log(data: bytes, first: int = 0) -> Log:
    """Return the entries of a log, or of its end from position *first* on, up to the first line that isn't one."""
    lines = data.split(b"\n")
    tail = lines.pop()
    entries: list[bytes] = []
    for line in lines:
        if fault := fault_of(line, first + len(entries)):
            return Log(entries, sum(map(len, lines[: len(entries)])) + len(entries), damage=fault)
        entries.append(entry_of(line))
    if tail and fault_of(tail, first + len(entries)) is None:
        return Log([*entries, entry_of(tail)], len(data), lacks_newline=True)
    return Log(entries, len(data) - len(tail))


def entry_of(line: bytes) -> bytes:
    """Return the entry of a line, without its newline."""
    at = line.rfind(_INFO)
    return line if at < 0 else line[:at] + b"}"


def fault_of(line: bytes, seq: int) -> str | None:
    """Return why this line isn't that of the entry of position *seq*; ``None`` if it is."""
    at = line.rfind(_INFO)
    try:
        if at >= 0:
            line, info = line[:at] + b"}", line[at + len(_INFO) :]
            loads_rounded(info[:-1])
            if not info.endswith(b"}"):
                return "not JSON: cut short"
        fields = loads_rounded(line)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(fields, dict):
        return "not a JSON object"
    if fields.get("seq") != seq:
        return f"seq is {fields.get('seq')!r:.40}, should be {seq}"
    return None


def newer_format(line: bytes) -> int | None:
    """Return the format of a log whose first line this is, if it is newer than the one this version reads."""
    try:
        version = loads_rounded(line).get("format", FORMAT)
    except (AttributeError, ValueError):
        return None
    return version if isinstance(version, int) and version > FORMAT else None


# Reading the info


def find_info(end: bytes, *, is_all: bool) -> Info | None:
    """Return the info that a log ends with; ``None`` if more of the log is needed to tell.

    Args:
        end: The last bytes of the log. It may begin inside a line.
        is_all: It is the whole log.

    Raises:
        ValueError: damaged, and how.
    """
    lines, newline, tail = end.rpartition(b"\n")
    if not newline and not is_all:
        return None
    if looks_whole(tail) and _is_json(tail):  # lacks only its newline; else it is torn
        lines = end
    changes: Info | None = None
    while (at := lines.rfind(_INFO)) >= 0:
        line_end = lines.find(b"\n", at)
        value = _info_value(lines[at + len(_INFO) : line_end if line_end >= 0 else len(lines)])
        if changes is None:
            _check_lines_behind(lines, line_end)
        if isinstance(value, dict):
            return value | (changes or {})
        if changes is None:
            changes = value[0]
        lines = lines[: max(lines.rfind(b"\n", 0, at), 0)]
    if is_all:
        raise ValueError("it has no line with an info")
    return None


def _is_json(text: bytes) -> bool:
    try:
        loads_rounded(text)
    except ValueError:
        return False
    return True


def _info_value(text: bytes) -> Info | list[Info]:
    """Return what stands between the key and the end of its line: an info, or the changes of one."""
    try:
        value = loads(text[:-1])
    except ValueError as error:
        raise ValueError(f"not an info: {error}: {text[:80]!r}") from None
    changes = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(changes, dict) or not text.endswith(b"}"):
        raise ValueError(f"not an info: {text[:80]!r}")
    return value  # type: ignore[no-any-return]  # checked just now


def _check_lines_behind(lines: bytes, line_end: int) -> None:
    """Raise ValueError unless those behind *line_end* look like entries: a batch torn before its last line."""
    if line_end >= 0:
        for line in lines[line_end + 1 :].split(b"\n"):
            if not looks_whole(line):
                raise ValueError(f"not an entry: {line[:80]!r}")
