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
    found = (await client.get(f"/conversations/{name}/approvals"))["approvals"]
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
        answers.append(await client.post(question["answer_at"], answer="yes"))  # as who had no answer does
        other = await client.post(question["answer_at"], answer="no")
        entries = await client.history("a")

    assert wrong.status_code == 422
    assert "'yes', 'no' or 'always'" in wrong.json()["error"]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert other.status_code == 404
    assert "it may have another answer" in other.json()["error"]
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


async def test_a_question_is_answered_in_a_process_that_did_not_ask_it(tmp_path: Path) -> None:
    """That one has had the conversation before, too, and knows an older history."""
    path = tmp_path / "s.db"
    async with serving(SQLiteStore(path)) as (client, _), serving(SQLiteStore(path)) as (other, _):
        await start(other, "a", "hello")
        await answered(other, "a")
        await client.post("/conversations/a/messages", message="please refund order 7")
        await client.until("a", "tool_result")
        (question,) = (await other.get("/conversations/a/approvals"))["approvals"]
        with trio.fail_after(60):
            while (allowed := await other.post(question["answer_at"], answer="yes")).status_code == 503:
                pass  # the first process gives its lease back
        said = await answered(other, "a")
        again = await client.post(question["answer_at"], answer="no")
        left = (await client.get("/conversations/a/approvals"))["approvals"]

    assert allowed.status_code == 200
    assert said.startswith("I see: refunded order 7")
    assert again.status_code == 404
    assert left == []


async def test_a_finished_conversation_asks_nothing_any_more() -> None:
    async with serving(MemoryStore()) as (client, _):
        question = await asked(client)
        await client.post("/conversations/a/finish")
        late = await client.post(question["answer_at"], answer="yes")
        left = (await client.get("/approvals"))["approvals"]

    assert late.status_code == 404
    assert left == []


async def test_a_question_is_no_other_conversations() -> None:
    async with serving(MemoryStore()) as (client, _):
        question = await asked(client)
        await start(client, "b")
        wrong = await client.post(question["answer_at"].replace("/a/", "/b/"), answer="yes")
        still = (await client.get("/conversations/a/approvals"))["approvals"]

    assert wrong.status_code == 404
    assert still == [question]


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
        said = await answered(client, "a", comes_back=True)  # the run that was refused may have it loaded anew
        entries = await client.history("a")

    assert refused.status_code == 503
    assert said.startswith("I see: refunded order 7")
    assert [entry["outcome"] for entry in entries if entry["kind"] == "tool_result"] == ["denied", "done"]
