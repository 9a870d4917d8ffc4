"""Agents behind FastAPI on uvicorn, over real HTTP: what a service does with a Portal, as docs/asyncio.md shows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from alpineagents import Agent, FileStore, Message, State, TextDelta, ToolStart, aio, tool
from alpineagents.testing import FakeModel, tool_call

from .kit import LONG, Gate, assert_closed, outcomes, run, waiting_agent


class Server(uvicorn.Server):
    """Tells when it serves."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(app, port=0, ws="none", lifespan="on", log_level="error", timeout_graceful_shutdown=5)
        )
        self.serving = asyncio.Event()

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.serving.set()


class Service:
    """An app with a Portal, and the runs that go on without a client."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.states: dict[str, State] = {}
        self.runs: set[asyncio.Task[object]] = set()
        self.app = FastAPI(lifespan=self.lifespan)
        self.app.post("/run")(self.run)
        self.app.post("/stream/{name}")(self.stream)
        self.app.post("/message/{name}", status_code=202)(self.message)
        self.app.post("/start/{name}", status_code=202)(self.start)
        self.app.get("/watch/{name}")(self.watch)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        async with aio.Portal() as self.portal:
            yield

    def state(self, name: str) -> State:
        state = State(messages=[Message.user(name)])
        self.states[name] = state
        return state

    async def run(self, prompt: str) -> dict[str, object]:
        return {"answer": await self.portal.run(self.agent.run, prompt)}

    async def stream(self, name: str) -> StreamingResponse:
        state = self.state(name)

        async def lines() -> AsyncIterator[str]:
            async with self.portal.stream(self.agent, state) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        yield f"data: {json.dumps(event.text)}\n\n"
                    elif isinstance(event, ToolStart):
                        yield f"data: {json.dumps(event.call.name)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def message(self, name: str, text: str) -> None:
        self.states[name].add_message(Message.user(text))

    async def start(self, name: str) -> None:
        task = asyncio.create_task(self.portal.run(self.agent.run, self.state(name)))
        self.runs.add(task)
        task.add_done_callback(self.runs.discard)

    async def watch(self, name: str) -> StreamingResponse:
        state = self.states[name]

        async def lines() -> AsyncIterator[str]:
            async for entry in self.portal.iterate(state.watch):
                yield f"data: {entry.kind}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    server = Server(service.app)
    serving = asyncio.create_task(server.serve())
    await server.serving.wait()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=LONG, limits=httpx.Limits(max_connections=None)
        ) as client:
            yield client
    finally:
        server.should_exit = True
        await serving


async def data(response: httpx.Response) -> AsyncIterator[str]:
    """The data of a stream's events."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


@pytest.mark.slow
def test_200_requests_at_once():
    async def main():
        async def answer(request):
            return request.messages[0].text.upper()

        async with served(Service(Agent(model=FakeModel(answer)))) as client:
            done = await asyncio.gather(*[client.post("/run", params={"prompt": f"run {n}"}) for n in range(200)])
        return [response.json()["answer"] for response in done]

    assert run(main()) == [f"RUN {n}" for n in range(200)]


def test_a_run_is_streamed_and_a_message_added_meanwhile_is_read():
    async def main():
        gate = Gate()
        model = FakeModel([tool_call("wait"), lambda request: f"You said {request.messages[-1].text}."])
        service = Service(waiting_agent(gate).copy(model=model))
        async with served(service) as client, client.stream("POST", "/stream/one") as response:
            events = data(response)
            seen = [await anext(events)]
            added = await client.post("/message/one", params={"text": "stop"})
            await service.portal.run(gate.open)
            seen += [event async for event in events]
        assert added.status_code == 202
        assert_closed(service.states["one"])
        return seen

    assert run(main()) == ['"wait"', '"You said stop."']


def test_a_client_that_goes_away_cancels_the_run_that_streams_to_it(tmp_path):
    async def main():
        gate, ended = Gate(), asyncio.Event()
        store = FileStore(tmp_path)
        loop = asyncio.get_running_loop()

        @tool
        async def wait() -> str:
            """Wait."""
            try:
                return await gate.wait()
            finally:
                loop.call_soon_threadsafe(ended.set)

        service = Service(Agent(model=FakeModel([tool_call("wait"), "done"]), tools=[wait], store=store))
        async with served(service) as client:
            async with client.stream("POST", "/stream/one") as response:
                assert await anext(data(response)) == '"wait"'
                await gate.reached.wait()
            await ended.wait()  # with the service going on
            state = service.states["one"]
        assert_closed(state)
        assert outcomes(state) == ["interrupted"]
        async with aio.Portal() as portal:
            assert (await portal.run(store.load, state.id)).history == state.history

    run(main())


def test_a_run_that_belongs_to_the_service_goes_on_when_its_watcher_goes_away():
    async def main():
        gate = Gate()
        service = Service(waiting_agent(gate))
        async with served(service) as client:
            await client.post("/start/one")
            async with client.stream("GET", "/watch/one") as response:
                async for kind in data(response):
                    if kind == "model_reply":
                        break
            await gate.reached.wait()
            (task,) = service.runs
            assert service.states["one"].running
            await service.portal.run(gate.open)
            return await task

    assert run(main()) == "done"


def test_a_service_that_ends_closes_the_states_of_its_runs():
    async def main():
        gates = [Gate() for _ in range(10)]
        waiting = iter(gates)

        @tool
        async def wait() -> str:
            """Wait."""
            return await next(waiting).wait()

        def answer(request):
            return tool_call("wait")

        service = Service(Agent(model=FakeModel(answer), tools=[wait]))
        async with served(service) as client:
            for n in range(10):
                await client.post(f"/start/{n}")
            for gate in gates:
                await gate.reached.wait()
            tasks = list(service.runs)
        for state in service.states.values():
            assert_closed(state)
            assert outcomes(state) == ["interrupted"]
        return [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)]

    assert len({*run(main())}) == 1
