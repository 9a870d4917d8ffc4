"""What a person reads who got something wrong: what it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from alpineagents import (
    Agent,
    AuthError,
    ContextTooLongError,
    ModelNotFoundError,
    ProviderError,
    UnreachableError,
    resolve_model,
)
from alpineagents.models import Anthropic, Google, OpenAI, OpenAICompatible
from alpineagents.testing import Fault, ProviderServer
from tests.models.every import KEY, PROVIDERS, Provider, by_id

CLASSES = (Anthropic, Google, OpenAI, OpenAICompatible)
each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)


async def message_of(model: Any, kind: type[Exception] = ProviderError) -> str:
    """What the error says that a run with this model ends with."""
    with pytest.raises(kind) as caught:
        await Agent(model=model).run("Hi")
    return str(caught.value)


# ---- The key


@each_provider
async def test_who_has_set_no_key_is_told_that_none_was_sent(provider: Provider) -> None:
    async with ProviderServer(api_key=KEY) as server:
        said = await message_of(provider.at(server, api_key=None), AuthError)

    assert provider.key_variable in said
    assert "pass api_key=" in said
    assert said.endswith("(no key was sent)")


@each_provider
async def test_who_has_set_a_wrong_key_is_told_to_check_it(provider: Provider) -> None:
    async with ProviderServer(api_key=KEY) as server:
        by_argument = await message_of(provider.at(server, api_key="wrong-key"), AuthError)
        by_header = await message_of(provider.at(server, api_key=None, extra_headers={"x-key": "wrong"}), AuthError)

    for said in (by_argument, by_header):
        assert "check the key and what it may do" in said
        assert "no key was sent" not in said


# ---- The base URL, and the model's name


@pytest.mark.parametrize(
    ("model_class", "path", "off"),
    [
        (Anthropic, "/v1", "/v1"),
        (Anthropic, "/v1/messages", "/v1/messages"),
        (Google, "/v1beta", "/v1beta"),
        (OpenAI, "/v1/responses", "/responses"),
        (OpenAI, "/v1/chat/completions", "/chat/completions"),
        (OpenAICompatible, "/v1/chat/completions", "/chat/completions"),
        (OpenAICompatible, "/v1/models", "/models"),
        (OpenAICompatible, "/v1/responses/", "/responses"),
    ],
)
def test_the_url_of_a_request_is_not_the_base_url(model_class: Any, path: str, off: str) -> None:
    with pytest.raises(ValueError, match=rf"leave {off} off; it looks like 'http"):
        model_class("m", base_url=f"https://host{path}")


@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize("path", ["", "/gateway", "/v10", "/openai/deployments/gpt"])
def test_other_urls_are_taken(model_class: Any, path: str) -> None:
    assert model_class("m", base_url=f"https://host{path}/").base_url == f"https://host{path}"


@each_provider
async def test_a_url_that_is_not_the_apis_is_told_with_one_that_is(provider: Provider) -> None:
    async with ProviderServer() as server:
        said = await message_of(provider.at(server, base_url=f"{server.origin}/elsewhere"), ModelNotFoundError)

    assert f"either no model is called {provider.name!r} there, or {server.origin}/elsewhere is not" in said
    assert ", which looks like 'http" in said


async def test_a_url_that_can_only_be_right_is_not_explained() -> None:
    url = "https://api.openai.com/v1"

    failure = OpenAI("gpt-9")._wire.failure(404, {}, b'{"error":{"message":"no such model"}}', None)

    assert str(failure).endswith(f"or {url} is not the API's base URL")


def test_any_name_is_a_models_where_the_url_says_whose() -> None:
    """Such as vLLM's, which are those of the weights."""
    model = resolve_model("meta-llama/Llama-3.3-70B", base_url="http://10.0.0.7:8000/v1")

    assert type(model) is OpenAICompatible
    assert model.name == "10.0.0.7/meta-llama/Llama-3.3-70B"
    assert type(resolve_model("claude-sonnet-5", base_url="https://gateway")) is Anthropic
    with pytest.raises(ValueError, match="and any other with base_url="):
        resolve_model("meta-llama/Llama-3.3-70B")
    with pytest.raises(ValueError, match="unknown model ''"):
        resolve_model("", base_url="http://10.0.0.7:8000/v1")


# ---- The way there


async def test_who_has_no_network_is_asked_for_it() -> None:
    said = await message_of(OpenAICompatible("m", base_url="http://host.invalid/v1", retries=0), UnreachableError)

    assert said.startswith("no connection to http://host.invalid/v1: ")
    assert said.endswith(" - is there a network, and is base_url right?")


@pytest.mark.parametrize(
    ("variable", "url", "shown"),
    [
        ("HTTP_PROXY", "http://127.0.0.1:9", "http://127.0.0.1:9 (HTTP_PROXY)"),
        ("ALL_PROXY", "http://me:proxy-password@127.0.0.1:9", "127.0.0.1:9 (ALL_PROXY)"),
    ],
)
async def test_a_proxy_that_is_down_is_named(
    variable: str, url: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, url)
    said = await message_of(OpenAICompatible("m", base_url="http://model.invalid/v1", retries=0), UnreachableError)

    assert f"no connection to http://model.invalid/v1 by the proxy {shown}: " in said
    assert "is the proxy running, and the right one? NO_PROXY names hosts" in said
    assert "proxy-password" not in said


async def test_a_proxy_that_is_not_used_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    said = await message_of(OpenAICompatible("m", base_url="http://127.0.0.1:9/v1", retries=0), UnreachableError)

    assert "proxy" not in said
    assert said.endswith(" - is the server running, and is base_url right?")


async def test_https_where_there_is_none_is_asked_for() -> None:
    async with ProviderServer() as server:
        url = server.base_url.replace("http:", "https:")
        said = await message_of(OpenAICompatible("m", base_url=url, retries=0))

    assert said.endswith(" - does the server speak TLS? If not, base_url begins with http://")


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_read_are_named(
    content: str | None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    said = await message_of(OpenAICompatible("m", base_url="https://127.0.0.1:9/v1"), ValueError)

    assert said.startswith(f"SSL_CERT_FILE={str(file)!r}: no certificates can be read from there: ")


# ---- What doesn't fit


@each_provider
async def test_who_has_too_long_a_conversation_reads_what_makes_it_shorter(provider: Provider) -> None:
    body = provider.format().error(400, provider.too_long)
    async with ProviderServer([Fault(status=400, body=body)], api_key=KEY) as server:
        said = await message_of(provider.at(server), ContextTooLongError)

    assert provider.too_long in said
    assert "await agent.compact(state)" in said


def _anthropic(**settings: Any) -> Anthropic:
    return Anthropic("claude-sonnet-5", **settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _anthropic(temperature=0.5), "temperature=0.5: claude-sonnet-5 takes none, .*; leave it out"),
        (lambda: _anthropic(seed=7), "seed=7: Anthropic's API has none; leave it out"),
        (lambda: OpenAI("gpt-5", temperature=0.5), "temperature=0.5: gpt-5 takes none while it reasons; leave it out"),
    ],
)
def test_a_setting_that_is_not_taken_is_to_be_left_out(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("model_class", CLASSES)
def test_what_has_the_wrong_type_is_named(model_class: Any) -> None:
    with pytest.raises(TypeError, match="name must be str, not NoneType"):
        model_class(None)
    for headers in ([1], "x-key: 1"):
        with pytest.raises(TypeError, match=f"extra_headers must be a dict or None, not {type(headers).__name__}"):
            model_class("m", extra_headers=headers)
    with pytest.raises(ValueError, match="extra_headers: 1 is no header name"):
        model_class("m", extra_headers={1: "x"})


async def test_no_error_has_more_than_one_line(autojump_clock: Any) -> None:
    faults = [Fault(status=status, body="first\nsecond\r\nthird") for status in (400, 401, 404, 429, 500)]
    async with ProviderServer(faults) as server:
        for _ in faults:
            said = await message_of(OpenAICompatible("m", base_url=server.base_url, retries=0))
            assert len(said.splitlines()) == 1
    assert trio.current_time() < 1
