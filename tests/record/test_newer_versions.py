"""What a later version of the format added without a new number is kept, shown and written back."""

from __future__ import annotations

import json

import pytest

from alpineagents import FileStore, MemoryStore, Message, RawBlock, State, ToolCall, UnknownEntry
from alpineagents.record._codec import decode_entry, decode_history, encode_entry, unknown_parts
from alpineagents.testing import ProviderServer

AT = "2026-01-01T00:00:00Z"


def history(*later: dict) -> list[bytes]:
    """A history that begins with a message, and goes on with what *later* says."""
    first = {"format": 1, "kind": "user", "seq": 0, "turn": 0, "at": AT, "content": said("hi")}
    entries = [first]
    for seq, fields in enumerate(later, 1):
        entries.append({"kind": fields["kind"], "seq": seq, "turn": 0, "at": AT, **fields})
    return [json.dumps(fields, separators=(",", ":")).encode() for fields in entries]


def said(text: str, **more: object) -> dict:
    return {"role": "user", "blocks": [{"type": "text", "text": text}], **more}


MOOD = {"kind": "mood", "content": {"mood": ["good", 1]}, "since": 3}


def test_an_entry_of_an_unknown_kind_is_kept_and_passed_over():
    raws = history(MOOD, {"kind": "user", "content": said("and?")})
    state = State(history=decode_history(raws))

    entry = state.history[1]
    assert isinstance(entry, UnknownEntry)
    assert (entry.kind, entry.content) == ("mood", {"mood": ["good", 1]})
    assert [message.text for message in state.messages] == ["hi", "and?"]
    assert "[turn 0] mood (recorded by a newer version) {'mood': ['good', 1]}" in str(state)
    assert [encode_entry(entry) for entry in state.history] == raws


def test_an_unknown_kind_needs_no_content_but_its_place():
    entry = decode_entry(json.dumps({"kind": "mood", "seq": 1, "turn": 0, "at": AT}).encode())

    assert isinstance(entry, UnknownEntry)
    assert entry.content is None
    with pytest.raises(ValueError, match="seq"):
        decode_entry(json.dumps({"kind": "mood", "turn": 0, "at": AT}).encode())
    with pytest.raises(ValueError, match="turn 5 should be 0"):
        State(history=decode_history(history({**MOOD, "turn": 5})))


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"kind": "user", "content": said("x"), "mood": "good"}, ["mood"]),
        ({"kind": "user", "content": said("x", mood={"a": 1})}, ["content.mood"]),
        (
            {"kind": "user", "content": {"role": "user", "blocks": [{"type": "text", "text": "x", "lang": "en"}]}},
            ["content.blocks.lang"],
        ),
        ({"kind": "user", "content": said("x"), "format": 1, "mood": "good"}, ["mood"]),
        ({"kind": "stop", "content": {"type": "limit", "turns": 3, "why": "x"}}, ["content.why"]),
        ({"kind": "error", "content": "x", "usage": {"input_tokens": 3, "watts": 2}}, ["usage.watts"]),
        ({"kind": "ask", "content": {"question": "q", "answer": 1}, "judge": None}, ["judge"]),
    ],
)
def test_fields_that_are_unknown_are_kept_at_every_depth_and_named(fields, parts):
    raws = history(fields)
    state = State(history=decode_history(raws))

    assert unknown_parts(state.history[1]) == parts
    assert [encode_entry(entry) for entry in state.history] == raws
    assert f"(and of a newer version: {parts[0]})" in str(state)
    assert encode_entry(state.fork().history[1]) == raws[1]


def test_what_is_wholly_known_keeps_no_bytes():
    [first] = decode_history(history())

    assert first.raw is None
    assert unknown_parts(first) == []


def test_an_entry_that_is_made_from_one_is_not_taken_for_it():
    import attrs

    [_, entry] = decode_history(history({"kind": "error", "content": "x", "mood": 1}))
    other = attrs.evolve(entry, content="y")

    assert b'"y"' in encode_entry(other)
    assert entry.raw is not None
    assert other.raw is None


async def test_a_block_of_an_unknown_type_is_kept_and_sent_to_nobody():
    hologram = {"type": "hologram", "data": "AA=="}
    content = {"role": "user", "blocks": [{"type": "text", "text": "look"}, hologram]}
    raws = history({"kind": "user", "content": content})
    state = State(history=decode_history(raws))

    assert state.messages[1].blocks[1] == RawBlock("", hologram)
    assert [encode_entry(entry) for entry in state.history] == raws
    async with ProviderServer(["I can't see it."]) as server:
        from alpineagents import Agent, OpenAICompatible

        await Agent(model=OpenAICompatible("m", base_url=server.base_url)).run(state)
    assert "hologram" not in json.dumps(server.requests[0].body)
    assert state.answer == "I can't see it."


def test_a_block_of_an_unknown_type_in_a_result_is_told_of():
    call = {"id": "c", "name": "scan", "args": {}}
    raws = history(
        {"kind": "model_request", "turn": 1, "content": "m"},
        {"kind": "model_reply", "turn": 1, "content": {"blocks": [{"type": "tool_call", **call}]}},
        {"kind": "tool_result", "turn": 1, "content": [{"type": "hologram"}], "call": call},
    )
    state = State(history=decode_history(raws))

    assert "hologram" in state.history[3].content[0].text
    assert [encode_entry(entry) for entry in state.history] == raws


async def test_they_survive_a_store_a_run_of_ours_and_a_copy(tmp_path):
    store = FileStore(tmp_path)
    raws = history(MOOD, {"kind": "user", "content": said("x"), "mood": "good"})
    await store.append("s", 0, raws, b'{"format":1,"id":"s","turn":0,"mood":"good"}')

    state = await store.load("s")
    await state.add_message(Message.user("And?"))
    other = MemoryStore()
    await other.save(state)

    assert [info.id for info in await store.list()] == ["s"]
    assert list(await store.read("s"))[:3] == raws
    assert list(await other.read("s"))[:3] == raws


def test_the_results_of_a_history_share_the_calls_of_their_reply():
    call = {"id": "c", "name": "scan", "args": {"n": 1}}
    blocks = [{"type": "text", "text": "Let me see."}, {"type": "tool_call", **call}]
    requests = [
        {"kind": "model_request", "turn": 1, "content": "m"},
        {"kind": "model_reply", "turn": 1, "content": {"blocks": blocks}},
    ]
    entries = decode_history(history(*requests, {"kind": "tool_result", "turn": 1, "content": [], "call": call}))
    assert entries[3].call is entries[2].content.tool_calls[0]

    alike = {**call, "args": {"n": 1.0}}
    raws = history(*requests, {"kind": "tool_result", "turn": 1, "content": [], "call": alike})
    entries = decode_history(raws)
    assert entries[3].call == ToolCall("c", "scan", {"n": 1.0})
    assert json.loads(encode_entry(entries[3]))["call"]["args"] == {"n": 1.0}
    assert b"1.0" in encode_entry(entries[3])
