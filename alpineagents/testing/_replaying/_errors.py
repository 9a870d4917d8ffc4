"""Exceptions made again from what a history says of them: the name of the class, and the text."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import trio

from ... import _errors
from ..._errors import ProviderError, WaitingForAnswerError
from ...record._entries import ErrorEntry
from ...record._messages import NO_USAGE
from ...state import error_text


def error_of(entry: ErrorEntry) -> BaseException:
    """Return an exception of the recorded class and text. A State that was never saved has the very one."""
    error = entry.error if entry.error is not None else _made(*_parts(entry.content))
    if entry.usage != NO_USAGE and not hasattr(error, "usage"):
        error.usage = entry.usage  # type: ignore[attr-defined]  # what a budget counts
    elif isinstance(error, ProviderError) and error.usage is None:
        error.usage = entry.usage
    return error.with_traceback(None)


def waiting(text: str) -> WaitingForAnswerError:
    """Return the exception of a person who answers later; *text* ends with the question's id: ``(... ID)``."""
    return WaitingForAnswerError(text.rstrip(")").rpartition(" ")[2])


def _parts(content: str) -> tuple[str, str]:
    name, _, text = content.partition(": ")
    return name, text


def _made(name: str, text: str) -> BaseException:
    if name == "WaitingForAnswerError":
        return waiting(text)
    kind = _class_called(name)
    try:
        error = kind(text) if text else kind()
    except Exception:  # noqa: BLE001  # a class that takes other arguments
        error = None
    if isinstance(error, kind) and error_text(error) == (f"{name}: {text}" if text else name):
        return error
    return _like(kind, name, text)


def _like(kind: type[BaseException], name: str, text: str) -> BaseException:
    """Return an exception that is one of *kind*, with the name and the text that were recorded."""
    fields: dict[str, Any] = {"__init__": _nothing, "__str__": lambda self: text, "__module__": kind.__module__}
    made: type[BaseException] = type(name, (kind,), fields)
    error: BaseException = kind.__new__(made)
    error.args = (text,)
    return error


def _nothing(self: BaseException, *args: object) -> None:
    """Stand for the ``__init__`` of a class whose arguments nobody knows."""


def _class_called(name: str) -> type[BaseException]:
    """Return the class of this name: the library's, Python's, trio's, or one of those that are loaded."""
    for place in (_errors, builtins, trio):
        found = getattr(place, name, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    return next((kind for kind in _below(Exception) if kind.__name__ == name), Exception)


def _below(kind: type[Exception]) -> Iterator[type[Exception]]:
    seen = {kind}
    left = [kind]
    while left:
        for each in left.pop().__subclasses__():
            if each not in seen:
                seen.add(each)
                left.append(each)
                yield each
