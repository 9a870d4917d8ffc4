"""A history for people to read: Markdown, and a page of HTML without scripts. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final, NamedTuple

from ..record import (
    ContextChangeEntry,
    Entry,
    ErrorEntry,
    ExchangeEntry,
    ExtraDataEntry,
    File,
    Image,
    Json,
    Message,
    MessageEntry,
    ModelReplyEntry,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResultBlock,
    ToolResultEntry,
    freeze,
)
from ..record._codec import encode_entry, unknown_parts
from ..record._json import loads
from ..state import State
from ..state._show import describe

TIME: Final = "%Y-%m-%d %H:%M:%S UTC"

_ABOVE: Final = {"seq", "kind", "turn", "at", "format", "exact"}
"""Fields of a saved entry that its heading shows, or that say how the others are written."""

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "pre{background:#8881;padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere}"
    "h2{font-size:1rem;margin:1.5rem 0 .3rem}h2 small{font-weight:normal;opacity:.6}"
)


class Part(NamedTuple):
    """A piece of an entry: prose as somebody wrote it, or something to be shown as it is."""

    text: str
    verbatim: bool = False


def markdown(state: State) -> str:
    """Return the whole history as Markdown, an entry a section."""
    sections = [f"# State {state.id}"]
    for entry in state.history:
        sections.append(f"## {heading(entry)}\n\n*{entry.at.strftime(TIME)}*")
        sections.extend(_fenced(part.text) if part.verbatim else part.text for part in parts(entry))
    return "\n\n".join(sections) + "\n"


def html(state: State) -> str:
    """Return the whole history as a page of HTML: no script, nothing loaded from elsewhere, everything escaped."""
    title = escape(f"State {state.id}")
    sections = []
    for entry in state.history:
        sections.append(f"<h2>{escape(heading(entry))} <small>{entry.at.strftime(TIME)}</small></h2>")
        sections.extend(f"<pre>{escape(part.text)}</pre>" for part in parts(entry))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def heading(entry: Entry) -> str:
    """Return what happened, in a few words."""
    what = entry.kind.replace("_", " ")
    if isinstance(entry, ToolResultEntry):
        what += f": {entry.call.name}, {entry.outcome}{', late' if entry.late else ''}"
    return f"[turn {entry.turn}] {what}"


def parts(entry: Entry) -> Iterator[Part]:
    """Return what an entry holds."""
    match entry:
        case MessageEntry():
            yield from _message(entry.content)
        case ModelReplyEntry():
            yield from _blocks(entry.content.blocks)
        case ToolResultEntry():
            yield from _blocks(entry.full or entry.content)
        case ExchangeEntry():
            yield Part(entry.content.question)
            yield Part(_json(entry.content.answer), verbatim=True)
        case ContextChangeEntry():
            yield Part(describe(entry))
            for message in entry.content.messages:
                yield Part(f"{message.role}:")
                yield from _message(message)
            if entry.content.summary:
                yield Part(entry.content.summary)
        case ExtraDataEntry():
            yield Part(_json(entry.content), verbatim=True)
            if entry.removed:
                yield Part(f"removed: {', '.join(entry.removed)}")
        case ErrorEntry():
            yield Part(entry.content, verbatim=True)
        case _:
            yield Part(describe(entry))
            yield Part(_json(_saved(entry)), verbatim=True)
            return
    if unknown_parts(entry):
        yield Part("Of a newer version, as it was saved:")
        yield Part(_json(_saved(entry)), verbatim=True)


def _saved(entry: Entry) -> Json:
    """Return all that is saved of an entry but what stands above it."""
    fields = loads(encode_entry(entry))
    return freeze({name: value for name, value in fields.items() if name not in _ABOVE})


def _message(message: Message) -> Iterator[Part]:
    return _blocks(message.blocks)


def _blocks(blocks: Iterable[object]) -> Iterator[Part]:
    for block in blocks:
        match block:
            case TextBlock():
                yield Part(block.text)
            case ThinkingBlock():
                yield Part(f"(thinking) {block.text}")
            case ToolCall():
                args = block.raw_args if block.args is None else _json(block.args)
                yield Part(f"{block.name}({args or ''})", verbatim=True)
            case ToolResultBlock():
                yield from _blocks(block.content)
            case Image() | File():
                yield Part(f"({block!r})")
            case _:
                yield Part(f"({type(block).__name__})")


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) if isinstance(value, dict | list) else json.dumps(value)


def _fenced(text: str) -> str:
    """Return a code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
