"""The example service: what a person has to allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from alpineagents import MemoryStore, SQLiteStore

from .kit import Client, answered, serving, start


async def asked(client: Client, name: str = "a") -> dict[str, Any]:
    """Begin a conversation whose run stops at a question, and return that."""
    await start(client, name, "please refund order 7")
    await client.until(name, "tool_result")
    found = (await client.get("/approvals", conversation=name))["approvals"]
    assert len(found) == 1
    return dict(found[0])


async def test_a_refund_waits_for_a_person_and_runs_when_it_is_allowed() -> None:
    async with serving(MemoryStore()) as (client, _):
        question = await asked(client)
        before = await client.history("a")
        allowed = await client.post(question["answer_at"], answer="yes")
        said = await answered(client, "a")
        after = (await client.get("/approvals"))["approvals"]

    assert (question["conversation"], question["tool"], question["args"]) == ("a", "refund", {"order": 7})
    assert question["question"] == 'Allow refund with {"order":7}?'
    assert [entry["outcome"] for entry in before if entry["kind"] == "tool_result"] == ["denied"]
    assert allowed.json() == {"conversation": "a", "answer": "yes"}
    assert said.startswith("I see: refunded order 7")
    assert after == []


async def test_a_refund_that_is_refused_does_not_run() -> None:
    async with serving(MemoryStore()) as (client, _):
        question = await asked(client)
        await client.post(question["answer_at"], answer="no")
        await answered(client, "a")
        entries = await client.history("a")

    assert [entry["outcome"] for entry in entries if entry["kind"] == "tool_result"] == ["denied"]
    assert any("The user refused refund" in entry.get("text", "") for entry in entries)


async def test_a_question_is_answered_once_and_with_what_it_asks_for() -> None:
    answers: list[httpx.Response] = []
    async with serving(MemoryStore()) as (client, _):
        question = await asked(client)
        wrong = await client.post(question["answer_at"], answer="maybe")

        async def answer() -> None:
            answers.append(await client.post(question["answer_at"], answer="yes"))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(answer)
        await answered(client, "a")
        entries = await client.history("a")

    assert wrong.status_code == 422
    assert "'yes', 'no' or 'always'" in wrong.json()["error"]
    assert sorted(answer.status_code for answer in answers) == [200, 404, 404]
    assert [entry["outcome"] for entry in entries if entry["kind"] == "tool_result"] == ["denied", "done"]


@pytest.mark.parametrize("answer", ["yes", "always"])
async def test_a_question_is_still_open_in_the_next_process(tmp_path: Path, answer: str) -> None:
    async with serving(SQLiteStore(tmp_path / "s.db")) as (client, _):
        question = await asked(client)
    async with serving(SQLiteStore(tmp_path / "s.db")) as (client, _):
        again = (await client.get("/approvals"))["approvals"]
        await client.post(question["answer_at"], answer=answer)
        said = await answered(client, "a")

    assert again == [question]
    assert said.startswith("I see: refunded order 7")


async def test_a_conversation_with_an_open_question_takes_messages() -> None:
    async with serving(MemoryStore()) as (client, _):
        question = await asked(client)
        await client.post("/conversations/a/messages", message="are you there?")
        said = await answered(client, "a")
        still = (await client.get("/approvals"))["approvals"]
        await client.post(question["answer_at"], answer="yes")
        done = await answered(client, "a")

    assert said == "You said: are you there?"
    assert still == [question]
    assert done.startswith("I see: refunded order 7")


async def test_an_answer_that_could_not_be_saved_leaves_the_question_open(tmp_path: Path) -> None:
    """Another process holds the conversation, and nobody asks for it here before the answer is sent again."""
    path = tmp_path / "s.db"
    async with serving(SQLiteStore(path), retry_seconds=0.01) as (client, _), SQLiteStore(path) as other:
        question = await asked(client)
        async with other.lease("a"):
            refused = await client.post(question["answer_at"], answer="yes")
        with trio.fail_after(60):
            while (await client.post(question["answer_at"], answer="yes")).status_code != 200:
                pass
        said = await answered(client, "a")
        entries = await client.history("a")

    assert refused.status_code == 503
    assert said.startswith("I see: refunded order 7")
    assert [entry["outcome"] for entry in entries if entry["kind"] == "tool_result"] == ["denied", "done"]
