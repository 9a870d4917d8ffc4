"""Hypothesis strategies for JSON values and for entries of every class, with every field set."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal

from hypothesis import strategies as st

from alpineagents import (
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    ErrorEntry,
    Exchange,
    ExchangeEntry,
    ExtraDataEntry,
    File,
    Image,
    Message,
    MessageEntry,
    ModelEvent,
    ModelEventEntry,
    ModelReplyEntry,
    ModelRequestEntry,
    RawBlock,
    Reply,
    RunStartEntry,
    StateInfo,
    StopEntry,
    StoppedByBudget,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolOutcome,
    ToolResultBlock,
    ToolResultEntry,
    Usage,
    freeze,
)

# Characters that break what reads lines, C strings, UTF-8 or UTF-16, among the others.
_characters = st.characters() | st.sampled_from("\x00\n\x1e\x85\u2028\u2029\ufeff\U0001f600\ud83d\udc00")


def _joined(text: str) -> str:
    """Surrogates that make a pair as the one character they are; lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts = st.text(_characters, max_size=8).map(_joined)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
_whole = st.integers() | st.integers(2**62, 2**70) | st.integers(-(2**70), -(2**62)) | st.sampled_from([10**40])
json_values = st.recursive(
    st.none() | st.booleans() | _whole | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
counts = st.integers(0, 2**40)
costs = st.none() | st.integers(0, 10**15).map(lambda micros: Decimal(micros) / 10**6)
usages = st.builds(Usage, counts, counts, counts, counts, counts, counts, costs)

_magic = st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"GIF87a", b"RIFF\x00\x01\x02\x03WEBP"])
images = st.builds(lambda magic, rest: Image(magic + rest), _magic, st.binary(max_size=20))
files = st.builds(
    File,
    st.binary(max_size=20).map(lambda rest: b"%PDF-" + rest) | st.text(max_size=8).map(str.encode),
    name=texts,
) | st.builds(File, st.text(max_size=8).map(str.encode), st.sampled_from(["text/csv", "text/markdown"]), texts)
text_blocks = st.builds(TextBlock, texts)
calls = st.builds(ToolCall, texts, texts, json_objects) | st.builds(ToolCall, texts, texts, st.none(), texts)
result_blocks = st.lists(text_blocks | images | files, max_size=3).map(tuple)
results = st.builds(ToolResultBlock, texts, result_blocks, st.booleans())
thinking = st.builds(ThinkingBlock, texts, st.none() | texts, st.none() | names, json_values)
raws = st.builds(RawBlock, names, json_values)
blocks = st.lists(text_blocks | images | files | calls | results | thinking | raws, max_size=4).map(tuple)

messages = st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), blocks, st.booleans())
people = texts.filter(str.strip).map(Message.user) | texts.filter(lambda text: text.strip()).map(Message.notice)
replies = st.builds(Reply, blocks, texts, st.none() | texts, usages, st.booleans(), st.booleans())
stops = (
    st.builds(StoppedByUntil, texts)
    | st.builds(StoppedByLimit, counts)
    | st.builds(StoppedByFinish, json_values)
    | st.builds(StoppedByPermission, calls, texts)
    | st.builds(StoppedByBudget, names, st.integers() | texts, st.integers() | texts)
)
_text_tuples = st.lists(texts, max_size=3).map(tuple)
context_changes = st.builds(
    ContextChange,
    kind=st.sampled_from(["import", "compact", "clear_tool_results", "restore"]),
    messages=st.lists(messages, max_size=2).map(tuple),
    summary=st.none() | texts,
    covers=st.none() | counts,
    cleared=_text_tuples,
    restored_to=st.none() | counts,
    tokens_before=st.none() | counts,
    tokens_after=st.none() | counts,
    usage=usages,
)
agent_infos = st.builds(
    AgentInfo,
    name=st.none() | texts,
    model=texts,
    system_sha256=st.none() | names,
    tools=_text_tuples,
    mcp_servers=_text_tuples,
)

times = st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0))
_turns = st.integers(0, 10**9)


def _errors() -> st.SearchStrategy[BaseException | None]:
    return st.none() | st.builds(ValueError, texts)


def entries_of(cls: type, **fields: st.SearchStrategy) -> st.SearchStrategy:
    """Strategy for entries of *cls* with its other fields as given."""
    seqs = st.integers(0, 10**9) | st.just(0)
    return st.builds(cls, seq=seqs, turn=_turns, at=times, **fields)


ENTRIES: dict[type, st.SearchStrategy] = {
    MessageEntry: entries_of(MessageEntry, content=people),
    ModelRequestEntry: entries_of(ModelRequestEntry, content=texts, tools=st.none() | _text_tuples),
    ModelReplyEntry: entries_of(ModelReplyEntry, content=replies),
    ModelEventEntry: entries_of(
        ModelEventEntry, content=st.builds(ModelEvent, texts, texts, json_objects), usage=usages
    ),
    ToolResultEntry: entries_of(
        ToolResultEntry,
        content=result_blocks,
        call=calls,
        outcome=st.sampled_from(ToolOutcome),
        child_ids=_text_tuples,
        usage=usages,
        decided_by=st.none() | texts,
        late=st.booleans(),
        full=st.none() | result_blocks,
        error=_errors(),
    ),
    ExchangeEntry: entries_of(
        ExchangeEntry,
        kind=st.sampled_from(["ask", "human"]),
        content=st.builds(Exchange, texts, json_values),
        usage=usages,
    ),
    ContextChangeEntry: entries_of(ContextChangeEntry, content=context_changes),
    RunStartEntry: entries_of(
        RunStartEntry, content=agent_infos, parent_id=st.none() | texts, parent_call_id=st.none() | texts
    ),
    StopEntry: entries_of(StopEntry, content=st.none() | stops),
    ExtraDataEntry: entries_of(ExtraDataEntry, content=json_objects.map(freeze), removed=_text_tuples),
    ErrorEntry: entries_of(
        ErrorEntry,
        content=texts,
        action=st.sampled_from(["think", "use_tools", "ask", "compact", "run"]),
        call=st.none() | calls,
        usage=usages,
        error=_errors(),
    ),
}
entries = st.one_of(*ENTRIES.values())
state_infos = st.builds(
    StateInfo,
    id=names,
    first_message=st.none() | texts,
    created_at=st.none() | times,
    updated_at=st.none() | times,
    turn=_turns,
    stopped=st.none() | stops,
    finished=st.booleans(),
    parent_id=st.none() | names,
)
