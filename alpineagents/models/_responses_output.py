"""Which item an event of a Responses stream is about, and what the answer consists of in the end.

Its id says it, or its ``output_index``: llama.cpp sends no index, and some gateways another id with every event.
What counts is ``response.output_item.done``: there alone the encrypted thoughts are sure to be whole, and the list at
the end of the stream is empty at some servers, and has other ids at vLLM. It is used for what no such event told.
"""

from __future__ import annotations

from typing import Any, final

from ..record._blocks import Block
from ._responses_items import CALL, MESSAGE, REASONING, REFUSAL, Item
from ._wire import Delta


@final
class Output:
    """The items of one answer, in the order in which they began."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._by_index: dict[int, Item] = {}
        self._by_id: dict[str, Item] = {}

    def add(self, event: dict[str, Any]) -> None:
        """Take ``response.output_item.added``."""
        told = _item_of(event)
        if told is not None:
            item = self._begun(event, told)
            if item is None or item.whole is not None or item.is_another(told):
                item = self._new(_kind(told), event, told)
            item.begin(told)

    def item(self, event: dict[str, Any], kind: str) -> Item | None:
        """Return the item that a piece belongs to; None for a piece of one that is whole already."""
        item = self._found(event, kind) or self._open(kind)
        if item is None:
            return self._new(kind, event, {})
        return item if item.whole is None else None

    def done(self, event: dict[str, Any]) -> list[Delta]:
        """Take ``response.output_item.done``; return what of the item wasn't shown yet."""
        told = _item_of(event)
        if told is None:
            return []
        item = self._begun(event, told) or self._open(_kind(told))
        if item is not None and item.whole is not None:
            if item.whole.get("id") == told.get("id"):
                return []  # The same once more.
            item = None
        return (item or self._new(_kind(told), event, told)).settle(told)

    def finish(self, output: object) -> list[Delta]:
        """Take the list of items at the end of the answer; return what wasn't shown yet."""
        told = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
        deltas: list[Delta] = []
        matches = self._matches(told)
        for item, whole in zip(matches, told, strict=True):
            if item.whole is None:
                deltas += item.settle(whole)
            elif item.kind == REASONING and not item.whole.get("encrypted_content"):
                item.whole = {**item.whole, "encrypted_content": whole.get("encrypted_content")}
        for item in self._items:
            deltas += item.end()
        return deltas

    def _matches(self, told: list[dict[str, Any]]) -> list[Item]:
        """The item that each is: by its id, else the next of its kind, else a new one."""
        known = [self._found({"item_id": whole.get("id")}, _kind(whole)) for whole in told]
        taken = {id(item) for item in known if item is not None}
        found: list[Item] = []
        for whole, item in zip(told, known, strict=True):
            kind = _kind(whole)
            if item is None:
                item = next((item for item in self._items if item.kind == kind and id(item) not in taken), None)
            if item is None:
                item = Item(kind)
                item.begin(whole)
                self._insert(item, after=found[-1] if found else None)
            taken.add(id(item))
            found.append(item)
        return found

    def _insert(self, item: Item, after: Item | None) -> None:
        """Put in what only the end of the stream told. Text that was shown stays before text that wasn't."""
        place = 0 if after is None else self._items.index(after) + 1
        if any(other.kind == item.kind for other in self._items[place:]):
            place = len(self._items)
        self._items.insert(place, item)

    def _begun(self, event: dict[str, Any], told: dict[str, Any]) -> Item | None:
        return self._found({"item_id": told.get("id"), **event}, _kind(told))

    def _found(self, event: dict[str, Any], kind: str) -> Item | None:
        """The item that the event names, if it is of this kind."""
        item_id, index = event.get("item_id"), event.get("output_index")
        by_id = self._by_id.get(item_id) if isinstance(item_id, str) else None
        by_index = self._by_index.get(index) if isinstance(index, int) else None
        if by_id is not None and by_id.kind == kind:
            return by_id
        return by_index if by_index is not None and by_index.kind == kind else None

    def _open(self, kind: str) -> Item | None:
        """The item of this kind that began last, if it isn't whole."""
        return next((item for item in reversed(self._items) if item.kind == kind and item.whole is None), None)

    def _new(self, kind: str, event: dict[str, Any], told: dict[str, Any]) -> Item:
        item = Item(kind)
        item.id = told.get("id") or event.get("item_id")
        self._items.append(item)
        if isinstance(index := event.get("output_index"), int):
            self._by_index[index] = item
        if isinstance(item.id, str):
            self._by_id[item.id] = item
        return item

    def is_refused(self) -> bool:
        """Whether the model refused in one of its messages."""
        return any(part.kind == REFUSAL for item in self._items if item.kind == MESSAGE for part in item.written())

    def blocks(self, provider: str, model: str, *, cut_off: bool) -> list[Block]:
        """Return the blocks of the reply.

        Args:
            provider: Whose it is.
            model: Whom it was asked of.
            cut_off: Whether a limit or a filter ended it.
        """
        blocks: list[Block] = []
        calls = 0
        for item in self._items:
            if item.kind == CALL:
                calls += 1
                blocks.append(item.call(calls, cut_off=cut_off, last=item is self._items[-1]))
            else:
                blocks += item.blocks(provider, model)
        return blocks


def _item_of(event: dict[str, Any]) -> dict[str, Any] | None:
    item = event.get("item")
    return item if isinstance(item, dict) else None


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else MESSAGE
