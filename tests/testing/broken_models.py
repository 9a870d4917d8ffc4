"""Models that break one law each, and one that breaks none. Run by test_laws.py in a process of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from alpineagents import Model, ModelEvent, ProviderError, Reply, Request, TextBlock, TextDelta, ToolCall, Usage
from alpineagents.testing import ModelLaws

BROKEN: dict[type[HonestModel], list[str]] = {}
"""Each with the laws it must fail."""
SECRET = "sk-0123456789"


def breaks(*laws: str) -> Any:
    def register(broken: type[HonestModel]) -> type[HonestModel]:
        BROKEN[broken] = [f"test_{law}" for law in laws]
        return broken

    return register


class HonestModel(Model):
    """Does what a model must do."""

    name = "honest/small"
    key = SECRET

    def __init__(self, *, fails: bool = False, is_silent: bool = False) -> None:
        self.fails = fails
        self.is_silent = is_silent

    async def respond(self, request: Request, emit: Any) -> Reply:
        await self.connect()
        self.look_at(request)
        if self.is_silent:
            await self.be_silent()
        if self.fails:
            raise self.failure()
        emit(TextDelta("Hel"))
        emit(ModelEvent("retry", "again", {"restarted": True}))
        emit(TextDelta("Hello"))
        await trio.lowlevel.checkpoint()
        emit(TextDelta(", you."))
        return self.reply(request)

    async def connect(self) -> None:
        await trio.lowlevel.checkpoint()

    async def be_silent(self) -> None:
        await trio.sleep_forever()

    def look_at(self, request: Request) -> None:
        pass

    def failure(self) -> Exception:
        return ProviderError("the server failed", status=500)

    def reply(self, request: Request) -> Reply:
        return Reply((TextBlock("Hello, you."),), "small-1", "stop", Usage(1, 1, requests=1))


@breaks("its_name_says_provider_and_model")
class HasNoProvider(HonestModel):
    name = "small"


@breaks("its_name_says_provider_and_model")
class IsRenamed(HonestModel):
    def reply(self, request):
        self.name = "honest/small-1"
        return super().reply(request)


@breaks("what_it_says_of_itself_is_of_the_right_kind")
class HasNoWindow(HonestModel):
    context_window = 0


@breaks("it_answers_with_a_reply")
class DoesNotCount(HonestModel):
    def reply(self, request):
        return Reply((TextBlock("Hello, you."),), "small-1")


@breaks("it_answers_with_a_reply", "a_session_may_be_around_requests_or_not")
class AnswersWithText(HonestModel):
    def reply(self, request):
        return "Hello, you."


@breaks("what_it_tells_is_what_it_answers")
class TellsOfNoRestart(HonestModel):
    async def respond(self, request, emit):
        return await super().respond(request, lambda event: isinstance(event, ModelEvent) or emit(event))


@breaks("it_tells_nothing_behind_its_answer", "it_starts_no_task_that_outlives_the_request")
class TellsLater(HonestModel):
    async def respond(self, request, emit):
        async def later():
            for _ in range(5):
                await trio.lowlevel.checkpoint()
            emit(TextDelta("!"))
            await trio.sleep(0.2)

        trio.lowlevel.spawn_system_task(later)
        return await super().respond(request, lambda event: None)


@breaks("what_emit_raises_comes_out")
class HidesWhatEmitRaises(HonestModel):
    async def respond(self, request, emit):
        def quiet(event):
            with suppress(Exception):
                emit(event)

        return await super().respond(request, quiet)


@breaks("it_takes_any_conversation")
class KnowsOnlyText(HonestModel):
    def look_at(self, request):
        for message in request.messages:
            if any(not isinstance(block, TextBlock) for block in message.blocks):
                raise ProviderError("unknown block", status=400)


@breaks("it_takes_tools_and_every_choice_of_one")
class KnowsNoChoice(HonestModel):
    def look_at(self, request):
        if request.tool_choice not in ("auto", "none"):
            raise ProviderError("unknown tool_choice", status=400)


@breaks("it_takes_a_schema_for_its_answer")
class AnswersWithAForcedCall(HonestModel):
    def reply(self, request):
        if request.returns is None:
            return super().reply(request)
        return Reply((ToolCall("c", "answer", {"answer": 1}),), "small-1")


@breaks("the_request_stays_as_it_is")
class ChangesTheMessages(HonestModel):
    def look_at(self, request):
        if isinstance(request.messages, list):
            request.messages.pop()


@breaks("answering_is_a_checkpoint", "a_cancelled_request_is_none")
class IsNoCheckpoint(HonestModel):
    async def respond(self, request, emit):
        return self.reply(request)


@breaks("a_cancelled_request_is_none")
class IsShielded(HonestModel):
    async def respond(self, request, emit):
        with trio.CancelScope(shield=True):
            return await super().respond(request, emit)


@breaks("an_answer_that_never_comes_can_be_given_up")
class WaitsWhateverComes(HonestModel):
    async def be_silent(self):
        with trio.move_on_after(4, shield=True):
            await trio.sleep_forever()


@breaks("a_request_cancelled_at_any_moment_leaves_it_usable", "it_answers_many_at_once")
class HoldsAConnection(HonestModel):
    is_used = False

    async def connect(self):
        if self.is_used:
            raise ProviderError("no connection is left")
        self.is_used = True
        await trio.lowlevel.checkpoint()

    def reply(self, request):
        self.is_used = False
        return super().reply(request)


@breaks("it_answers_many_at_once")
class HasOneEmit(HonestModel):
    async def respond(self, request, emit):
        self.emit = emit
        return await super().respond(request, lambda event: self.emit(event))


@breaks("it_starts_no_task_that_outlives_the_request")
class StartsATaskForEach(HonestModel):
    async def connect(self):
        trio.lowlevel.spawn_system_task(trio.sleep, 0.5)
        await trio.lowlevel.checkpoint()


@breaks("a_session_may_be_around_requests_or_not")
class NeedsASession(HonestModel):
    sessions = 0

    @asynccontextmanager
    async def session(self):
        assert not self.sessions, "a session is open already"
        self.sessions += 1
        yield
        self.sessions -= 1


@breaks("it_works_in_one_trio_run_after_another")
class IsBoundToItsFirstRun(HonestModel):
    run = None

    async def connect(self):
        self.run = self.run or trio.lowlevel.current_trio_token()
        if self.run is not trio.lowlevel.current_trio_token():
            raise trio.RunFinishedError
        await trio.lowlevel.checkpoint()


@breaks("a_failure_is_a_provider_error")
class RaisesWhatItsLibraryRaises(HonestModel):
    def failure(self):
        return OSError(104, "connection reset")


@breaks("its_secret_does_not_show")
class ShowsItsKey(HonestModel):
    def __repr__(self):
        return f"ShowsItsKey(key={self.key!r})"


@breaks("its_secret_does_not_show_in_failures")
class ShowsItsKeyInErrors(HonestModel):
    def failure(self):
        error = ProviderError("refused", status=401)
        error.__cause__ = ValueError(f"header Authorization: Bearer {self.key}")
        return error


def tests_of(kind: type[HonestModel]) -> type[ModelLaws]:
    """The class a user would write."""

    class Tests(ModelLaws):
        @pytest.fixture
        def model(self) -> Model:
            return kind()

        @pytest.fixture
        def failing(self) -> Model:
            return kind(fails=True)

        @pytest.fixture
        def silent(self) -> Model:
            return kind(is_silent=True)

        @pytest.fixture
        def secret(self) -> str:
            return SECRET

    return Tests


TestHonestModel = tests_of(HonestModel)
globals().update({f"Test{kind.__name__}": tests_of(kind) for kind in BROKEN})
