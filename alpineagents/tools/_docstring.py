"""What a docstring says about a function and its parameters, in Google, NumPy or Sphinx form. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, final

import attrs

from ..record._value import Value

_GOOGLE_PARAMETERS = frozenset(
    ["args", "arguments", "params", "parameters", "keyword args", "keyword arguments", "other parameters", "attributes"]
)
_GOOGLE_OTHERS = frozenset(
    ["attention", "caution", "checkpoint", "example", "examples", "hint", "important", "note", "notes", "raises"]
) | frozenset(["references", "return", "returns", "see also", "tip", "todo", "warning", "warnings", "warns", "yields"])
_NUMPY_PARAMETERS = frozenset(["parameters", "other parameters", "attributes"])

_SPHINX_FIELD = re.compile(r":(?P<kind>\w+)(?:\s+(?P<rest>[^:]*))?:(?:\s+(?P<text>.*))?$")
_GOOGLE_ENTRY = re.compile(r"(?P<name>\*{0,2}\w+)\s*(?:\([^:]*\)|\(.*?\))?\s*:(?:\s+(?P<text>.*))?$")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_UNDERLINE = re.compile(r"-{3,}\s*$")

_NamesOf: TypeAlias = Callable[[str], "tuple[list[str], str] | None"]
"""Reads the names, and the text behind them, from a line that starts an entry; None for any other line."""


@final
@attrs.frozen(eq=False, repr=False)
class Documentation(Value):
    """What a docstring says."""

    summary: str = ""
    """The first paragraph on one line; empty if there is none before the first section."""
    parameters: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """What is said about each parameter, on one line each."""


def read_docstring(docstring: str | None) -> Documentation:
    """Return what *docstring* says; nothing for ``None``."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    parameters: dict[str, str] = {}
    for name, description in (*_google(lines), *_numpy(lines), *_sphinx(lines)):
        if description:
            parameters.setdefault(name.lstrip("*"), description)
    return Documentation(_summary(lines), parameters)


def _summary(lines: Sequence[str]) -> str:
    paragraph: list[str] = []
    for index, line in enumerate(lines):
        if not line.strip() or _starts_section(lines, index):
            break
        paragraph.append(line)
    return _joined(paragraph)


def _starts_section(lines: Sequence[str], index: int) -> bool:
    if _SPHINX_FIELD.match(lines[index]) or _is_numpy_header(lines, index):
        return True
    return _google_header(lines[index]) in _GOOGLE_PARAMETERS | _GOOGLE_OTHERS


def _google_header(line: str) -> str:
    """The section's name in lower case; empty if *line* starts none."""
    return line.rstrip().removesuffix(":").lower() if line.rstrip().endswith(":") and not line[:1].isspace() else ""


def _is_numpy_header(lines: Sequence[str], index: int) -> bool:
    return index + 1 < len(lines) and _UNDERLINE.match(lines[index + 1]) is not None and bool(lines[index].strip())


def _google(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, line in enumerate(lines):
        if _google_header(line) in _GOOGLE_PARAMETERS:
            yield from _entries(_indented(lines, index + 1), _google_names)


def _numpy(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, line in enumerate(lines):
        if _is_numpy_header(lines, index) and line.strip().lower() in _NUMPY_PARAMETERS:
            body = lines[index + 2 :]
            end = next((end for end in range(len(body)) if _is_numpy_header(body, end)), len(body))
            yield from _entries(body[:end], _numpy_names)


def _sphinx(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, line in enumerate(lines):
        match = _SPHINX_FIELD.match(line)
        if match and match["kind"] in ("param", "parameter", "arg", "argument", "key", "keyword", "ivar"):
            *_, name = (match["rest"] or "").split() or [""]
            yield name, _joined([match["text"] or "", *_indented(lines, index + 1)])


def _google_names(line: str) -> tuple[list[str], str] | None:
    match = _GOOGLE_ENTRY.match(line)
    return ([match["name"]], match["text"] or "") if match else None


def _numpy_names(line: str) -> tuple[list[str], str] | None:
    match = _NUMPY_ENTRY.match(line)
    return ([name.strip() for name in match["names"].split(",")], "") if match else None


def _entries(lines: Sequence[str], names_of: _NamesOf) -> Iterator[tuple[str, str]]:
    """Each name of a section with its text: the rest of its line and the deeper lines below it."""
    lines = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    for index, line in enumerate(lines):
        if line[:1].isspace() or (named := names_of(line)) is None:
            continue
        names, text = named
        description = _joined([text, *_indented(lines, index + 1)])
        for name in names:
            yield name, description


def _indented(lines: Sequence[str], start: int) -> list[str]:
    """The lines from *start* on that are indented or blank."""
    end = next((end for end in range(start, len(lines)) if lines[end].strip() and not lines[end][:1].isspace()), None)
    return list(lines[start:end])


def _joined(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())
