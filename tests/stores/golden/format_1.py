"""What the files of format 1 beside this one hold: every kind of entry, block, outcome and stop, every field in use.

Written once, by scripts/golden.py; neither these values nor the files change any more.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from alpineagents import (
    AgentInfo,
    ContextChange,
    ContextChangeEntry,
    Entry,
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
)

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def at(seq: int) -> datetime:
    """When the entry of this position was recorded."""
    return START + timedelta(minutes=seq, microseconds=seq)


EDGES = 'naïve 日本 🐛 \0 \x01 \t\n\r " \\ / \x7f \x85 \u2028 \u2029 \ufeff \ufffd \uffff e\u0301 <&> ,"info":{}'
"""Characters that JSON, UTF-8, UTF-16 or whoever reads lines may stumble over."""
LONE = "\ud83d alone, and \udc1b"
"""Lone surrogates: JSON has them as escapes, UTF-8 hasn't."""
LONG = 10**40 + 1
NUMBERS = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, LONG, -LONG, 0.1, -0.0, 1.0, 1e300, 5e-324, 1.5e-7]
DEEP = {"": {"a b": [[], {}, None, True, False, "", {"type": "text", "info": {"turn": 9}}]}, "kind": "user", "seq": 7}

PNG = Image(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
)
JPEG = Image(b"\xff\xd8\xff\xe0\0\x10JFIF\0")
GIF = Image(b"GIF89a\1\0\1\0\0\0\0;")
WEBP = Image(b"RIFF\x1a\0\0\0WEBPVP8L")
PDF = File(b"%PDF-1.7\n\xe2\xe3\xcf\xd3\n", name="report.pdf")
TEXT = File(EDGES.encode(), name="notes.txt")
CSV = File(b"a,b\r\n1,2\r\n", "text/csv", "table.csv")

USAGE = Usage(1_200_000, 34_000, 1_000_000, 50_000, 20_000, 3, Decimal("0.000123450"))
UNPRICED = Usage(7, 6, 5, 4, 3, 2, None)

THINKING = ThinkingBlock("Hm. " + EDGES, "c2lnbmVk", "openai", {"id": "rs_1", "summary": [{"n": LONG}]})
REDACTED = ThinkingBlock("", None, None, None)
SEARCH = RawBlock("anthropic", {"type": "server_tool_use", "input": {"query": LONE, "n": NUMBERS}})

IMPORTED = (
    Message("user", (TextBlock(EDGES), PNG, JPEG, GIF, WEBP, PDF, TEXT, CSV)),
    Message("assistant", (THINKING, TextBlock("Looking."), SEARCH, ToolCall("old_1", "look", {"deep": DEEP}))),
    Message("tool", (ToolResultBlock("old_1", (TextBlock("It was there."), PNG, PDF), True),)),
    Message("assistant", (REDACTED, TextBlock("It was there, and th")), True),
    Message.notice("The run was continued."),
    Message.user("Go on."),
)

CALLS = {
    outcome: ToolCall(f"call_{number}", "edit_file", {"path": "main.py", "text": EDGES, "n": number})
    for number, outcome in enumerate(ToolOutcome)
} | {ToolOutcome.INPUT_ERROR: ToolCall("call_bad", "edit_file", None, '{"path": "ma' + LONE)}

SMALL_CALL = ToolCall("call_small", "count", {})
AGENT = AgentInfo(
    name="worker",
    model="openai/gpt-5",
    system_sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    tools=("count", "edit_file"),
    mcp_servers=("files", "web"),
)


def _results(seq: int) -> list[Entry]:
    """One per outcome, each with other fields; then one that came late."""
    done, error, wrong, aborted, interrupted, denied, cancelled = CALLS.values()
    parts = (TextBlock("1 line changed"), PNG, TEXT)
    return [
        ToolResultEntry(
            seq,
            2,
            at(seq),
            parts,
            done,
            ToolOutcome.DONE,
            ("child-1", "child-2"),
            USAGE,
            "allow('edit_file')",
            full=parts * 2,
        ),
        ToolResultEntry(seq + 1, 2, at(seq + 1), (), error, ToolOutcome.ERROR, usage=UNPRICED),
        ToolResultEntry(seq + 2, 2, at(seq + 2), (TextBlock(EDGES),), wrong, ToolOutcome.INPUT_ERROR),
        ToolResultEntry(seq + 3, 2, at(seq + 3), (TextBlock("(aborted)"),), aborted, ToolOutcome.ABORTED),
        ToolResultEntry(seq + 4, 2, at(seq + 4), (TextBlock("(interrupted)"),), interrupted, ToolOutcome.INTERRUPTED),
        ToolResultEntry(
            seq + 5, 2, at(seq + 5), (TextBlock("no"),), denied, ToolOutcome.DENIED, decided_by="deny(...)"
        ),
        ToolResultEntry(seq + 6, 2, at(seq + 6), (TextBlock("(cancelled)"),), cancelled, ToolOutcome.CANCELLED),
        ToolResultEntry(seq + 7, 2, at(seq + 7), (TextBlock("it had worked"),), aborted, ToolOutcome.DONE, late=True),
    ]


def _changes(seq: int) -> list[Entry]:
    """How the messages are made shorter, and what is taken back."""
    compacted = ContextChange(
        kind="compact", summary="They looked. " + EDGES, covers=4, tokens_before=9_000, tokens_after=800, usage=USAGE
    )
    cleared = ContextChange(
        kind="clear_tool_results", cleared=("call_0", "call_bad"), tokens_before=800, tokens_after=700
    )
    return [
        ContextChangeEntry(seq, 2, at(seq), cleared),
        ContextChangeEntry(seq + 1, 2, at(seq + 1), compacted),
        ContextChangeEntry(seq + 2, 2, at(seq + 2), ContextChange(kind="restore", restored_to=seq + 1)),
    ]


def _stops(seq: int) -> list[Entry]:
    """Every way to stop; an outer loop takes the first back."""
    stops = [
        StoppedByUntil("waiting_for_user"),
        None,
        StoppedByLimit(20),
        StoppedByPermission(CALLS[ToolOutcome.DENIED], "deny('edit_file')"),
        StoppedByBudget("cost", "0.50", "0.5123"),
        StoppedByBudget("tokens", 10**6, 1_000_123),
    ]
    return [StopEntry(number, 3, at(number), stop) for number, stop in enumerate(stops, seq)]


HISTORY: list[Entry] = [
    ContextChangeEntry(0, 0, at(0), ContextChange(kind="import", messages=IMPORTED)),
    ExtraDataEntry(1, 0, at(1), {"numbers": NUMBERS, "deep": DEEP, EDGES: LONE, "gone": 1}),
    ExtraDataEntry(2, 0, at(2), {"kept": None}, ("gone", "never there")),
    RunStartEntry(3, 0, at(3), AGENT, "parent-1", "call_of_parent"),
    MessageEntry(4, 0, at(4), Message.user(EDGES, PNG, PDF)),
    MessageEntry(5, 0, at(5), Message.notice("Code says: " + EDGES)),
    ModelRequestEntry(6, 1, at(6), "openai/gpt-5", ("count", "edit_file")),
    ModelEventEntry(7, 1, at(7), ModelEvent("retry", "overloaded, again in 1 s", {"status": 529, "n": LONG}), UNPRICED),
    MessageEntry(8, 1, at(8), Message.user("Are you there?")),
    ErrorEntry(9, 0, at(9), "OverloadedError: " + EDGES, "think", usage=USAGE),
    ModelRequestEntry(10, 1, at(10), "openai/gpt-5"),
    ModelReplyEntry(
        11, 1, at(11), Reply((THINKING, TextBlock("I count."), SMALL_CALL), "gpt-5-1", "tool_calls", USAGE, True, True)
    ),
    ToolResultEntry(12, 1, at(12), (TextBlock("3"),), SMALL_CALL),
    ModelRequestEntry(13, 2, at(13), "openai/gpt-5", ()),
    ModelReplyEntry(14, 2, at(14), Reply((SEARCH, *CALLS.values()), "gpt-5-1", "tool_calls", UNPRICED)),
    MessageEntry(15, 2, at(15), Message.user("Stop that.")),
    *_results(16),
    ErrorEntry(24, 2, at(24), "TimeoutError: took too long", "use_tools", CALLS[ToolOutcome.ABORTED], USAGE),
    ErrorEntry(25, 2, at(25), "ProviderError", "ask"),
    ErrorEntry(26, 2, at(26), "ProviderError", "compact"),
    ErrorEntry(27, 2, at(27), "KeyError: 'x'"),
    ExchangeEntry(28, 2, at(28), "ask", Exchange("How many? " + EDGES, {"n": NUMBERS, "who": LONE}), USAGE),
    ExchangeEntry(29, 2, at(29), "human", Exchange("May I?", None)),
    *_changes(30),
    ModelRequestEntry(33, 3, at(33), "ollama/qwen3", ("count",)),
    ModelReplyEntry(34, 3, at(34), Reply((TextBlock("Done: "), TextBlock(EDGES)))),
    *_stops(35),
    StopEntry(41, 3, at(41), StoppedByFinish({"answer": NUMBERS, EDGES: LONE, "info": DEEP})),
]

INFO = StateInfo(
    id="golden-1",
    first_message=EDGES,
    created_at=at(0),
    updated_at=at(41),
    turn=3,
    stopped=StoppedByFinish({"answer": NUMBERS, EDGES: LONE, "info": DEEP}),
    finished=True,
    parent_id="parent-1",
)
