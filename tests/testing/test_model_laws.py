"""The laws of models, for ours: the four providers, a fake, a cassette, a Fallback, those behind a RateLimit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from alpineagents import Model, ProviderError, RateLimitError
from alpineagents.models import Anthropic, Fallback, Google, OpenAI, OpenAICompatible, RateLimit
from alpineagents.testing import FakeModel, Fault, ModelLaws, ProviderServer, record_model

KEY = "sk-do-not-show-me-0123456789"
Make = Callable[[ProviderServer], Model]


@asynccontextmanager
async def at_server(make: Make, *answers: Any) -> AsyncIterator[Model]:
    async with ProviderServer(list(answers or ["Hello, you."]) * 500, api_key=KEY, chunk_size=13) as server:
        yield make(server)


async def never(request: object) -> str:
    await trio.sleep_forever()
    raise AssertionError


def slow(request: object) -> Exception:
    return RateLimitError("slow")


class BehindHTTP(ModelLaws):
    """A model whose provider is a server."""

    made: Callable[..., Model]
    url: str

    def make(self, **options: Any) -> Make:
        return lambda server: type(self).made("any", base_url=getattr(server, self.url), api_key=KEY, **options)

    @pytest.fixture
    def model(self) -> AbstractAsyncContextManager[Model]:
        return at_server(self.make())

    @pytest.fixture
    def failing(self) -> AbstractAsyncContextManager[Model]:
        return at_server(
            self.make(retries=0), Fault(status=500, body=f"broken {KEY}"), Fault(status=401), Fault(drop=True)
        )

    @pytest.fixture
    def silent(self) -> AbstractAsyncContextManager[Model]:
        return at_server(self.make(), Fault(cut_after=20, stall=True))

    @pytest.fixture
    def secret(self) -> str:
        return KEY


class TestAnthropic(BehindHTTP):
    made, url = Anthropic, "origin"


class TestGoogle(BehindHTTP):
    made, url = Google, "origin"


class TestOpenAI(BehindHTTP):
    made, url = OpenAI, "base_url"


class TestOpenAICompatible(BehindHTTP):
    made, url = OpenAICompatible, "base_url"


class TestBehindARateLimit(BehindHTTP):
    made, url = OpenAICompatible, "base_url"

    def make(self, **options: Any) -> Make:
        return super().make(rate_limit=RateLimit(concurrent=3), **options)


class TestFakeModel(ModelLaws):
    secret = None

    @pytest.fixture
    def model(self) -> Model:
        return FakeModel(lambda request: "Hello.")

    @pytest.fixture
    def failing(self) -> Model:
        return FakeModel(lambda request: ProviderError("no"))

    @pytest.fixture
    def silent(self) -> Model:
        return FakeModel(never)


class TestFallback(ModelLaws):
    secret = None

    @pytest.fixture
    def model(self) -> Model:
        return Fallback(FakeModel(slow), FakeModel(lambda request: "Hello."))

    @pytest.fixture
    def failing(self) -> Model:
        return Fallback(FakeModel(slow), FakeModel(lambda request: ProviderError("no")))

    @pytest.fixture
    def silent(self) -> Model:
        return Fallback(FakeModel(never), FakeModel())


class TestARecordingModel(BehindHTTP):
    made, url = Anthropic, "origin"

    def make(self, **options: Any) -> Make:
        return lambda server: record_model(
            super(TestARecordingModel, self).make(**options)(server), self.path, "record"
        )

    @pytest.fixture(autouse=True)
    def _path(self, tmp_path: Path) -> None:
        self.path = tmp_path / "tape.json"


class TestARecordedModel(ModelLaws):
    """Everything is asked of a FakeModel first, then of its tape."""

    secret = silent = None

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        return Lasting(FakeModel(lambda request: "Hello."), tmp_path)

    @pytest.fixture
    def failing(self, tmp_path: Path) -> Model:
        return Lasting(FakeModel(lambda request: ProviderError("no")), tmp_path)


class Lasting(Model):
    """Records what it hasn't yet, each time on a tape of its own, and replays that."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.name = model.name
        self.real = model
        self.folder = folder
        self.count = 0

    async def respond(self, request: Any, emit: Any) -> Any:
        self.count += 1
        path = self.folder / f"{self.count}.json"
        with suppress(ProviderError):
            await record_model(self.real, path, "record").respond(request, lambda event: None)
        return await record_model(self.real, path, "replay").respond(request, emit)
