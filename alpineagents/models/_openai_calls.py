"""Tool calls put together from the deltas of a Chat Completions stream, whichever way a server cuts and labels them.

A fragment belongs to: the call with its id; else, with a new id, to a new call, even if the index is taken; else to the
call at its index; else to the call currently open. A fragment that brings a name begins another call if the call it
would belong to has a different name, or whole arguments already: those can't go on. Seen so at OpenAI, Ollama (no id,
index always 0), Gemini (no index), vLLM, Mistral (whole calls), and gateways that repeat id and name every time.
"""

from __future__ import annotations

from typing import Any, final

from ..record._blocks import RawBlock, ToolCall, clean_text
from ..record._frozen import FrozenDict, freeze_dict
from ._json import loads, storable, words


@final
class _Call:
    __slots__ = ("extra", "id", "index", "name", "parts")

    def __init__(self, call_id: str | None, name: str, index: int | None) -> None:
        self.id = call_id
        self.name = name
        self.index = index
        self.parts: list[str] = []
        self.extra: dict[str, Any] | None = None

    def text(self) -> str:
        return clean_text("".join(self.parts))

    def is_whole(self) -> bool:
        """Whether its arguments are a whole object already. Asked for every repeated name, so the cheap look first."""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and parse_arguments(self.text()) is not None


@final
class CallCollector:
    """Takes fragments, returns the calls in the order in which they began."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self._open: _Call | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, fragment: dict[str, Any]) -> None:
        """Take one item of a delta's ``tool_calls``."""
        function = fragment.get("function")
        if not isinstance(function, dict):
            function = {}
        call_id = _text(fragment.get("id")) or None
        name = _text(function.get("name"))
        index = fragment.get("index")
        if not isinstance(index, int):
            index = None
        arguments = _arguments(function.get("arguments"))
        call = self._find(call_id, index, name)
        if call is not None and name and _begins_another(call, name, index, arguments):
            if call_id and call.id == call_id and call.index == index and (call.name, call.text()) == (name, arguments):
                return  # The same call once more, word for word.
            call = None
        if call is None:
            if not name and not arguments and call_id is None:
                return
            call = _Call(call_id, name, index)
            self._calls.append(call)
        self._extend(call, call_id, name, index, arguments)
        if isinstance(extra := fragment.get("extra_content"), dict):
            call.extra = extra

    def _find(self, call_id: str | None, index: int | None, name: str) -> _Call | None:
        if call_id is not None:
            if call := self._by_id.get(call_id):
                return call
            call = None if index is None else self._by_index.get(index)
            return call if call is not None and call.id is None else None
        if index is not None and (index in self._by_index or name):
            return self._by_index.get(index)
        return self._open

    def _extend(self, call: _Call, call_id: str | None, name: str, index: int | None, arguments: str) -> None:
        if call_id is not None:
            call.id = call.id or call_id
            self._by_id[call_id] = call
        if index is not None:
            self._by_index[index] = call
        call.name = call.name or name
        if arguments:
            call.parts.append(arguments)
        self._open = call

    def blocks(self, provider: str, cut_off: bool) -> list[ToolCall | RawBlock]:
        """Return the calls; behind a call that has one, its ``extra_content``, which goes back with it.

        Args:
            provider: Whose they are.
            cut_off: Whether the output limit ended the reply: then a call of whose arguments nothing came has none.
        """
        blocks: list[ToolCall | RawBlock] = []
        for number, call in enumerate(self._calls, 1):
            call_id = call.id or f"call_{number}"
            text = call.text()
            args = None if cut_off and not text.strip() else parse_arguments(text)
            blocks.append(ToolCall(call_id, call.name, args, None if args is not None else text))
            if call.extra is not None and (extra := storable({"extra_content": call.extra})) is not None:
                blocks.append(RawBlock(provider, extra))
        return blocks


def parse_arguments(text: str) -> FrozenDict | None:
    """Return the arguments in *text*: blank and ``null`` mean none; None for what isn't a JSON object."""
    if not text or text.isspace() or text.strip() == "null":
        return FrozenDict()
    try:
        value = loads(text)
        if isinstance(value, str):  # an object that was written as text once more
            value = loads(value)
        return freeze_dict(_clean(value)) if isinstance(value, dict) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which only an escape in JSON can have brought."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _begins_another(call: _Call, name: str, index: int | None, arguments: str) -> bool:
    if call.name and call.name != name:
        return True
    moved = index is not None and index != call.index
    return (moved or bool(arguments.strip())) and call.is_whole()


def _text(value: object) -> str:
    return "" if value is None else clean_text(value) if isinstance(value, str) else str(value)


def _arguments(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else words(value)
