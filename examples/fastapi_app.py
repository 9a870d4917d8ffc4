"""A chat service on FastAPI: agents run in one trio thread, beside uvicorn's asyncio loop.

pip install fastapi uvicorn
MODEL=ollama/qwen3 uvicorn --app-dir examples --timeout-graceful-shutdown 5 fastapi_app:app

curl -X POST localhost:8000/chat -H 'Content-Type: application/json' -d '{"text": "Hello!"}'
curl -N localhost:8000/chat/ID/events
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from alpineagents import (
    Agent,
    ErrorEntry,
    Message,
    MessageEntry,
    Model,
    ModelReplyEntry,
    SQLiteStore,
    State,
    StateNotFoundError,
    aio,
)


class Text(BaseModel):
    """What a person writes."""

    text: str = Field(pattern=r"\S")


def create_app(model: Model | str, store: SQLiteStore) -> FastAPI:
    """Return the service: POST /chat begins a conversation, POST /chat/ID goes on, GET /chat/ID/events follows it."""
    agent = Agent(model=model, system="You are a helpful assistant.", store=store)
    states: dict[str, State] = {}
    runs: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aio.Portal() as app.state.portal:
            yield
            for run in runs.values():  # each ends with its State closed and saved
                run.cancel()
            await asyncio.gather(*runs.values(), return_exceptions=True)
            await app.state.portal.run(store.aclose)

    app = FastAPI(lifespan=lifespan)

    async def answer(state: State) -> None:
        try:
            while state.messages[-1].role == "user":  # what was written during the last turn is answered, too
                await app.state.portal.run(agent.run, state)
        finally:
            del runs[state.id]

    async def accept(state: State, text: str) -> dict[str, str]:
        state.add_message(Message.user(text))
        await app.state.portal.run(store.save, state)  # 202 is a promise
        if state.id not in runs:  # it belongs to the service: a client that goes away doesn't stop it
            runs[state.id] = asyncio.create_task(answer(state))
        return {"id": state.id}

    async def found(chat: str) -> State:
        if chat not in states:
            try:
                loaded = await app.state.portal.run(store.load, chat)
            except StateNotFoundError as error:
                raise HTTPException(404, "no such chat") from error
            states.setdefault(chat, loaded)
        return states[chat]

    @app.post("/chat", status_code=202)
    async def begin(body: Text) -> dict[str, str]:
        state = State()
        states[state.id] = state
        return await accept(state, body.text)

    @app.post("/chat/{chat}", status_code=202)
    async def go_on(chat: str, body: Text) -> dict[str, str]:
        return await accept(await found(chat), body.text)

    @app.get("/chat/{chat}/events")
    async def events(chat: str, last_event_id: int = Header(-1)) -> StreamingResponse:
        watch = (await found(chat)).watch

        async def lines() -> AsyncIterator[str]:
            async with app.state.portal.iterate(watch, after=last_event_id + 1) as entries:
                async for entry in entries:
                    if isinstance(entry, MessageEntry | ModelReplyEntry):
                        yield f"id: {entry.seq}\ndata: {json.dumps({entry.kind: entry.content.text})}\n\n"
                    elif isinstance(entry, ErrorEntry):  # what it says isn't for clients
                        yield f"id: {entry.seq}\ndata: {json.dumps({entry.kind: 'try again'})}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    return app


app = create_app(os.environ.get("MODEL", "ollama/qwen3"), SQLiteStore("chats.db"))
