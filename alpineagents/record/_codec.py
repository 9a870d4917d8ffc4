"""The one converter between entries and their JSON bytes, format version 1.

An entry is a JSON object with ``seq``, ``kind``, ``turn``, ``at`` and ``content``, then what is not at its default;
blocks and the reasons a run stopped carry a ``type``. The first entry of a history (``seq`` 0) also says ``format``,
the version. What a later version added without a new number is kept: an entry of a kind that this one doesn't know is
an UnknownEntry, and one with fields or blocks it doesn't know remembers its bytes. Both are written as those.

Times are RFC 3339 text in UTC, bytes base64 (RFC 4648, section 4), amounts of dollars decimal text, the rest what JSON
(RFC 8259) has.

orjson rounds integers beyond 64 bits: an object with one has ``"exact":true`` in it and is read again by ``json``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeAlias, final, get_args, get_origin

import attrs
import cattrs
import orjson
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from . import _blocks as blocks
from . import _entries as entries
from ._entries import Entry, StateInfo, Stopped, UnknownEntry
from ._frozen import FrozenDict, Json, freeze, freeze_dict
from ._json import dumps_slowly, loads_rounded, loads_slowly
from ._messages import Message, Reply, Usage

FORMAT: Final = 1
"""Version of the JSON form that this library writes, and the newest it reads."""

Fields: TypeAlias = dict[str, Any]

_EXACT: Final = "exact"

_BLOCKS: Final[dict[str, type]] = {
    "text": blocks.TextBlock,
    "image": blocks.Image,
    "file": blocks.File,
    "tool_call": blocks.ToolCall,
    "tool_result": blocks.ToolResultBlock,
    "thinking": blocks.ThinkingBlock,
    "raw": blocks.RawBlock,
}
_STOPPED: Final[dict[str, type]] = {
    "until": entries.StoppedByUntil,
    "limit": entries.StoppedByLimit,
    "finish": entries.StoppedByFinish,
    "permission": entries.StoppedByPermission,
    "budget": entries.StoppedByBudget,
}
_ENTRIES: Final[dict[str, type]] = {
    "user": entries.MessageEntry,
    "notice": entries.MessageEntry,
    "model_request": entries.ModelRequestEntry,
    "model_reply": entries.ModelReplyEntry,
    "model_event": entries.ModelEventEntry,
    "tool_result": entries.ToolResultEntry,
    "ask": entries.ExchangeEntry,
    "human": entries.ExchangeEntry,
    "context_change": entries.ContextChangeEntry,
    "run_start": entries.RunStartEntry,
    "stop": entries.StopEntry,
    "extra_data": entries.ExtraDataEntry,
    "error": entries.ErrorEntry,
}
_VALUES: Final[tuple[type, ...]] = (
    Usage,
    Message,
    Reply,
    entries.Exchange,
    entries.ContextChange,
    entries.ModelEvent,
    entries.AgentInfo,
    StateInfo,
)


def encode_entry(entry: Entry) -> bytes:
    """Return the JSON object of *entry*; of one that this version doesn't wholly know, the bytes it came from."""
    if entry.raw is not None:
        return entry.raw
    fields = _converter().unstructure(entry)
    if entry.seq == 0:
        fields = {"format": FORMAT, **fields}
    return _dumps(fields)


def decode_entry(raw: bytes) -> Entry:
    """Return the entry of a JSON object.

    Raises:
        ValueError: it isn't an entry, or one of a newer format; the message says which part is wrong.
    """
    return _Decoder().decode(raw)


def decode_history(raws: Iterable[bytes]) -> list[Entry]:
    """Return the entries of these JSON objects.

    Raises:
        ValueError: one of them isn't an entry; the message has its position.
    """
    decoder = _Decoder()
    decoded: list[Entry] = []
    for raw in raws:
        try:
            decoded.append(decoder.decode(raw))
        except ValueError as error:
            raise ValueError(f"entry {len(decoded)}: {error}") from error
    return decoded


@final
class _Decoder:
    """Decodes a history, entry by entry. A tool result names its call in full: it gets the very call of the reply."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[bytes, blocks.ToolCall]] = {}
        """The calls of the latest reply by id, each with its JSON."""

    def decode(self, raw: bytes) -> Entry:
        fields = _loads(raw)
        if not isinstance(fields, dict):
            raise ValueError(f"an entry is a JSON object, not {raw[:80]!r}")
        _check_format(fields)
        kind = fields.get("kind")
        if type(kind) is not str:
            raise ValueError(f"kind {kind!r:.80} is not text")
        read = _readers().get(kind)
        if read is None:
            return _unknown(fields, raw)
        if kind == "tool_result" and self._calls:
            self._share_call(fields)
        try:
            entry: Entry = read(fields, None)
        except Exception:  # noqa: BLE001  # something is wrong, or new: the lenient converter knows
            entry = _structured(_loads(raw), _ENTRIES[kind], "an entry")
            entry.keep(raw)
        if type(entry) is entries.ModelReplyEntry:
            self._calls = _calls_of(entry, fields) if entry.content.tool_calls else {}
        return entry

    def _share_call(self, fields: Fields) -> None:
        given = fields.get("call")
        if type(given) is dict and type(call_id := given.get("id")) is str and call_id in self._calls:
            text, call = self._calls[call_id]
            if _dumps(given) == text:
                fields["call"] = call


def _calls_of(entry: entries.ModelReplyEntry, fields: Fields) -> dict[str, tuple[bytes, blocks.ToolCall]]:
    found: dict[str, tuple[bytes, blocks.ToolCall]] = {}
    for block, value in zip(entry.content.blocks, fields["content"]["blocks"], strict=True):
        if type(block) is blocks.ToolCall:
            found[block.id] = (_dumps(value), block)
    return found


def _unknown(fields: Fields, raw: bytes) -> UnknownEntry:
    known = {name: fields[name] for name in ("seq", "turn", "at", "kind", "content") if name in fields}
    entry: UnknownEntry = _structured(known, UnknownEntry, "an entry")
    entry.keep(raw)
    return entry


def unknown_parts(entry: Entry) -> list[str]:
    """Return the paths of what this version doesn't know of an entry, such as ``content.mood``."""
    if entry.raw is None or type(entry) is UnknownEntry:
        return []
    known = _converter().unstructure(entry)
    return list(_news(_loads(entry.raw), _loads(_dumps(known)), ""))


def _news(saved: Any, known: Any, path: str) -> Iterator[str]:
    if type(saved) is dict and type(known) is dict:
        for name, value in saved.items():
            if name in known:
                yield from _news(value, known[name], f"{path}{name}.")
            elif path or name not in ("format", _EXACT):
                yield f"{path}{name}"
    elif type(saved) is list and type(known) is list:
        for value, other in zip(saved, known, strict=False):
            yield from _news(value, other, path)


def encode_info(info: StateInfo) -> bytes:
    """Return the JSON object of *info*."""
    return _dumps({"format": FORMAT, **_converter().unstructure(info)})


def decode_info(raw: bytes) -> StateInfo:
    """Return the StateInfo of a JSON object.

    Raises:
        ValueError: it isn't one.
    """
    fields = _loads(raw)
    if not isinstance(fields, dict):
        raise ValueError(f"a StateInfo is a JSON object, not {raw[:80]!r}")
    _check_format(fields)
    try:
        info: StateInfo = _converter().structure(fields, StateInfo)
    except Exception:  # noqa: BLE001  # something is wrong, or new
        info = _structured(_loads(raw), StateInfo, "a StateInfo")
    return info


def _check_format(fields: Fields) -> None:
    """Take the version out of *fields*; ValueError if this version can't read it."""
    version = fields.pop("format", FORMAT)
    if type(version) is not int or version < 1:
        raise ValueError(f"format {version!r:.80} is not the number of a version")
    if version > FORMAT:
        raise ValueError(f"saved in format {version}, and this alpineagents reads up to {FORMAT}; install a newer one")


def _structured(fields: Any, cls: type, what: str) -> Any:
    """Structure, passing over what this version doesn't know; ValueError says where something is wrong."""
    try:
        return _converter(lenient=True).structure(fields, cls)
    except Exception as error:  # noqa: BLE001  # damage of any kind
        reasons = cattrs.transform_error(error, format_exception=_reason)
        raise ValueError(f"not {what}: {'; '.join(reasons)}") from None


@cache
def _readers() -> dict[str, Callable[[Any, Any], Any]]:
    """How each kind of entry is read, where nothing is wrong or new."""
    return {kind: _converter().get_structure_hook(cls) for kind, cls in _ENTRIES.items()}


def _reason(error: BaseException, cls: type | None) -> str:
    """What is wrong with one part; cattrs adds the path to it."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    kind = "" if type(error) in (TypeError, ValueError) else f"{type(error).__name__}: "
    return f"{kind}{error!s:.300}"


def _dumps(fields: Fields) -> bytes:
    try:
        return orjson.dumps(fields, option=orjson.OPT_UTC_Z)
    except TypeError:
        return dumps_slowly({_EXACT: True, **fields}, _time_text)


def _time_text(value: object) -> str:
    assert isinstance(value, datetime)
    return orjson.dumps(value, option=orjson.OPT_UTC_Z).decode().strip('"')


def _loads(raw: bytes) -> Any:
    try:
        fields = loads_rounded(raw)
        return loads_slowly(raw) if type(fields) is dict and _EXACT in fields else fields
    except ValueError as error:
        raise ValueError(f"not JSON: {error}: {raw[:80]!r}") from None


# The converter


@cache
def _converter(*, lenient: bool = False) -> cattrs.Converter:
    """The converter. The lenient one passes over fields and blocks it doesn't know; slower, it says what is wrong."""
    converter = cattrs.Converter(detailed_validation=lenient, forbid_extra_keys=not lenient)
    for kind, check in _CHECKS.items():
        converter.register_structure_hook(kind, check)
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook)
    converter.register_unstructure_hook(bytes, lambda data: base64.b64encode(data).decode())
    converter.register_unstructure_hook(Decimal, str)
    converter.register_unstructure_hook(datetime, lambda at: at)  # orjson writes it
    converter.register_structure_hook(FrozenDict, lambda value, _: freeze_dict(value))
    converter.register_unstructure_hook(FrozenDict, lambda value: value)
    converter.register_structure_hook_func(lambda hint: hint == Json, lambda value, _: freeze(value))
    converter.register_unstructure_hook_func(lambda hint: hint == Json, lambda value: value)
    # From the inside out: each class is compiled from the hooks of what it holds.
    _register_union(converter, blocks.ResultBlock, _BLOCKS, new=_new_result_block if lenient else None)
    _register_union(converter, blocks.Block, _BLOCKS, new=_new_block if lenient else None)
    _register_union(converter, Stopped, _STOPPED)
    read_call = converter.get_structure_hook(blocks.ToolCall)
    converter.register_structure_hook(
        blocks.ToolCall, lambda call, cls: call if type(call) is blocks.ToolCall else read_call(call, cls)
    )
    for cls in _VALUES:
        _register_class(converter, cls)
    for cls in dict.fromkeys(_ENTRIES.values()):
        _register_entry(converter, cls)
    _register_class(converter, UnknownEntry)
    return converter


def _new_block(fields: Fields) -> blocks.RawBlock:
    """A block of a type that a later version has: kept, and sent to nobody."""
    return blocks.RawBlock("", fields)


def _new_result_block(fields: Fields) -> blocks.TextBlock:
    """The same in a tool's result, which holds what every provider takes."""
    return blocks.TextBlock(f"({fields['type']}: a newer version of alpineagents shows it)")


def _register_class(converter: cattrs.Converter, cls: Any) -> None:
    converter.register_structure_hook(cls, make_dict_structure_fn(cls, converter))
    converter.register_unstructure_hook(cls, make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True))


def _register_union(
    converter: cattrs.Converter, union: Any, tags: dict[str, type], new: Callable[[Fields], Any] | None = None
) -> None:
    """Values of *union* are objects with a ``type``; *new* makes one of a type that isn't known."""
    for cls in get_args(union):
        _register_class(converter, cls)
    tag_of = {cls: tag for tag, cls in tags.items()}
    read = {tag: converter.get_structure_hook(cls) for tag, cls in tags.items() if cls in get_args(union)}
    write = {cls: converter.get_unstructure_hook(cls) for cls in get_args(union)}

    def structure(fields: Any, _: object) -> Any:
        tag = fields.pop("type")
        if type(tag) is str and tag in read:
            return read[tag](fields, tags[tag])
        if type(tag) is str and tag not in tags and new is not None:
            return new({"type": tag, **fields})
        raise ValueError(f"type {tag!r:.80} is not one of {', '.join(read)}")

    def unstructure(value: Any) -> Fields:
        return {"type": tag_of[type(value)], **write[type(value)](value)}

    def structure_optional(fields: Any, _: object) -> Any:
        return None if fields is None else structure(fields, _)

    def unstructure_optional(value: Any) -> Fields | None:
        return None if value is None else unstructure(value)

    optional = union | None
    converter.register_structure_hook_func(lambda hint: hint == union, structure)
    converter.register_unstructure_hook_func(lambda hint: hint == union, unstructure)
    converter.register_structure_hook_func(lambda hint: hint == optional, structure_optional)
    converter.register_unstructure_hook_func(lambda hint: hint == optional, unstructure_optional)


def _register_entry(converter: cattrs.Converter, cls: Any) -> None:
    """Entries have a ``kind``, and no ``error``: an exception isn't saved."""
    leave_out: dict[str, Any] = {"error": override(omit=True)} if hasattr(attrs.fields(cls), "error") else {}
    write = make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, **leave_out)
    read = make_dict_structure_fn(cls, converter, **leave_out)
    has_kind = hasattr(attrs.fields(cls), "kind")

    def structure(fields: Fields, _: object) -> Any:
        if not has_kind:
            del fields["kind"]
        fields.pop(_EXACT, None)
        return read(fields, cls)

    converter.register_structure_hook(cls, structure)
    converter.register_unstructure_hook(cls, lambda entry: {"kind": entry.kind, **write(entry)})


def _is_tuple(hint: Any) -> bool:
    return get_origin(hint) is tuple


def _tuple_hook(hint: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """Tuples are lists: text and objects, which can be iterated too, are not taken for one."""
    structure = homogenous_tuple_structure_factory(hint, converter)

    def structure_list(values: Any, _: Any) -> Any:
        if type(values) is not list:
            raise TypeError(f"{values!r:.80} is not a list")
        return structure(values, hint)

    return structure_list


def _str(value: object, _: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.80} is not text")
    return value


def _int(value: object, _: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.80} is not an integer")
    return value


def _bool(value: object, _: object) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r:.80} is not true or false")
    return value


def _time(text: object, _: object) -> datetime:
    if type(text) is not str:
        raise TypeError(f"{text!r:.80} is not a time")
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return at if at.tzinfo is UTC else at.astimezone(UTC)


def _bytes(text: object, _: object) -> bytes:
    if type(text) is not str:
        raise TypeError(f"{text!r:.80} is not base64 text")
    return base64.b64decode(text, validate=True)


def _decimal(text: object, _: object) -> Decimal:
    if type(text) is not str:
        raise TypeError(f"{text!r:.80} is not a number as text")
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text!r:.80} is not a number") from None
    if not number.is_finite():
        raise ValueError(f"{text!r:.80} is not a finite number")
    return number


def _outcome(text: object, _: object) -> entries.ToolOutcome:
    return entries.ToolOutcome(text)  # type: ignore[arg-type]  # ValueError for what is none


_CHECKS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    str: _str,
    int: _int,
    bool: _bool,
    bytes: _bytes,
    datetime: _time,
    Decimal: _decimal,
    entries.ToolOutcome: _outcome,
}
