"""The service over HTTP: routes, and an answer to every error that says what is right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, final
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from alpineagents import ConflictError, Question, RunningElsewhereError, State, StateNotFoundError, StoreError

from .bodies import ProblemError, count, idempotency_key, last_event_id, read_body, read_object
from .events import EventStream
from .service import KeyUsedError, RefusedError, Service
from .views import entry_view, info_view, question_view, state_view

MOST_LISTED: Final = 100
"""Conversations in a page of the list."""
MOST_ENTRIES: Final = 1000
"""Entries in a page of a history."""

ANSWERED: Final = (
    HTTPException,
    ProblemError,
    ClientDisconnect,
    RefusedError,
    KeyUsedError,
    StateNotFoundError,
    RunningElsewhereError,
    StoreError,
    Exception,
)
"""The errors that ``_answered`` has an answer to: all. Starlette takes the nearest base class that is listed."""


def make_app(service: Service) -> Starlette:
    """Return the service as an ASGI app, for a server that runs trio. Its lifespan is the service's own."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service.open():
            yield

    api = Api(service)
    conversation = "/conversations/{id}"
    return Starlette(
        routes=[
            Route("/health", api.health),
            Route("/conversations", api.conversations),
            Route("/conversations", api.start, methods=["POST"]),
            Route(conversation, api.conversation),
            Route(f"{conversation}/messages", api.say, methods=["POST"]),
            Route(f"{conversation}/history", api.history),
            Route(f"{conversation}/events", api.events),
            Route(f"{conversation}/cancel", api.cancel, methods=["POST"]),
            Route(f"{conversation}/finish", api.finish, methods=["POST"]),
            Route(f"{conversation}/approvals", api.approvals),
            Route(f"{conversation}/approvals/{{question}}", api.answer, methods=["POST"]),
            Route("/approvals", api.all_approvals),
        ],
        lifespan=lifespan,
        middleware=[Middleware(Gate, service=service)],
        exception_handlers=dict.fromkeys(ANSWERED, _answered),
    )


class Answer(JSONResponse):
    """JSON with a newline behind it, for who reads it in a terminal."""

    def render(self, content: object) -> bytes:
        """Return the body."""
        return super().render(content) + b"\n"


@final
class Api:
    """One method for each route."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def health(self, request: Request) -> Response:
        return Answer({"status": "ok"})

    async def conversations(self, request: Request) -> Response:
        limit = count(request, "limit", 20, 1, MOST_LISTED)
        infos = await self._service.infos(limit, request.query_params.get("before"))
        after = infos[-1].id if infos and len(infos) == limit else None
        return Answer({"conversations": [info_view(info) for info in infos], "next_before": after})

    async def start(self, request: Request) -> Response:
        body = await read_object(request, "message", optional=("id",))
        key = idempotency_key(request)
        if key is not None and "id" not in body:
            raise ProblemError(
                422, 'to send this again safely, choose the id yourself: {"id": "...", "message": "..."}'
            )
        try:
            state, seq = await self._service.start(body.get("id"), body["message"], key or uuid4().hex)
        except ValueError as error:
            if isinstance(error, RunningElsewhereError):
                raise
            raise ProblemError(422, str(error)) from error
        return self._accepted(state, seq)

    async def say(self, request: Request) -> Response:
        body = await read_object(request, "message")
        state = await self._found(request)
        key = idempotency_key(request) or uuid4().hex
        return self._accepted(state, await self._service.say(state, body["message"], key))

    def _accepted(self, state: State, seq: int) -> Response:
        place = f"/conversations/{state.id}"
        return Answer({"id": state.id, "seq": seq}, 202, headers={"Location": place})

    async def conversation(self, request: Request) -> Response:
        state = await self._found(request)
        return Answer(state_view(state, running=self._service.is_running(state)))

    async def history(self, request: Request) -> Response:
        state = await self._found(request)
        after = count(request, "after", 0, 0, 10**9)
        end = min(state.saved, after + count(request, "limit", MOST_ENTRIES, 1, MOST_ENTRIES))
        entries = [entry_view(entry) for entry in state.history[after:end]]
        return Answer({"entries": entries, "next_after": end if end < state.saved else None})

    async def events(self, request: Request) -> Response:
        state = await self._found(request)
        after = last_event_id(request)
        if state.finished and after >= len(state.history):
            return Response(status_code=204)  # tells an EventSource not to come back
        if after > len(state.history):  # it would wait for what comes behind something that there has never been
            last = len(state.history) - 1
            raise ProblemError(422, f"Last-Event-ID {after - 1} is none of {state.id}'s: the last event is {last}")
        service = self._service
        return EventStream(state, after, service.live_text, service.stopping, service.is_current)

    async def cancel(self, request: Request) -> Response:
        await read_body(request)
        return Answer({"cancelled": await self._service.cancel(await self._found(request))})

    async def finish(self, request: Request) -> Response:
        await read_body(request)
        state = await self._found(request)
        await self._service.finish(state)
        return Answer(state_view(state, running=self._service.is_running(state)))

    async def all_approvals(self, request: Request) -> Response:
        return self._asked(await self._service.all_questions())

    async def approvals(self, request: Request) -> Response:
        return self._asked(self._service.questions(await self._found(request)))

    def _asked(self, questions: list[Question]) -> Response:
        return Answer({"approvals": [question_view(question) for question in questions]})

    async def answer(self, request: Request) -> Response:
        body = await read_object(request, "answer")
        state = await self._found(request)
        try:
            await self._service.answer(state, request.path_params["question"], body["answer"])
        except StoreError:
            raise
        except LookupError as error:
            raise ProblemError(404, str(error.args[0])) from error
        except ValueError as error:
            raise ProblemError(422, str(error)) from error
        return Answer({"conversation": state.id, "answer": body["answer"]})

    async def _found(self, request: Request) -> State:
        return await self._service.find(request.path_params["id"])


@final
class Gate:
    """Lets no request in when the service stops: a client that keeps its connection shall look for the next one."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or turn it away."""
        if scope["type"] == "http" and self._service.stopping.is_set():
            headers = {"Connection": "close", "Retry-After": "1"}
            await Answer({"error": "the service stops; send it again"}, 503, headers)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def _answered(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed."""
    match error:
        case ProblemError():
            return Answer({"error": error.text}, error.status, error.headers)
        case StateNotFoundError():
            return Answer({"error": f"there is no such conversation: {request.url.path}"}, 404)
        case RefusedError():
            return Answer({"error": str(error)}, 409)
        case KeyUsedError():
            return Answer({"error": str(error)}, 422)
        case RunningElsewhereError() | ConflictError():
            text = "another process of the service has this conversation; send it again, with the same Idempotency-Key"
            return Answer({"error": text}, 503, {"Retry-After": "1"})
        case StoreError() if request.method == "GET":
            return Answer({"error": "the store can't be read; ask again"}, 503, {"Retry-After": "1"})
        case StoreError():
            text = "that couldn't be saved, or may have been; send it again, with the same Idempotency-Key"
            return Answer({"error": text}, 503, {"Retry-After": "1"})
        case HTTPException():  # no route, so nobody has read the body
            text = f"{request.method} isn't for {request.url.path}"
            if error.status_code == 404:
                text = f"nothing is at {request.url.path}; GET /conversations is a beginning"
            return Answer({"error": text}, error.status_code, {**(error.headers or {}), "Connection": "close"})
        case ClientDisconnect():
            return Response(status_code=400)  # nobody reads it
        case _:
            return Answer({"error": "the service failed; its log says why"}, 500)
