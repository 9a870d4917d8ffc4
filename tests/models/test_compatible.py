"""OpenAICompatible as a value, and the strings it is made from."""

import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import alpineagents
from alpineagents import Message, Price, Reply, Request, TextBlock, Usage
from alpineagents.models import Anthropic, Google, OpenAI, OpenAICompatible, resolve_model
from alpineagents.testing._provider_server import ProviderServer

PACKAGE = Path(alpineagents.__file__).parent
REQUEST = Request(messages=[Message.user("Hi")])
LOCAL = "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://127.0.0.1:8080/v1", "local/m"),
        ("http://localhost/v1", "local/m"),
        ("http://[::1]:80/v1/", "local/m"),
        ("https://api.openai.com/v1", "openai/m"),
        ("https://openrouter.ai/api/v1", "openrouter.ai/m"),
    ],
)
def test_the_name_begins_with_the_provider_that_the_url_says(url, name):
    assert OpenAICompatible("m", base_url=url).name == name


def test_the_provider_can_be_named():
    model = OpenAICompatible("a/b", base_url=LOCAL, provider="mine")

    assert (model.name, model.provider, model.model) == ("mine/a/b", "mine", "a/b")


def test_the_base_url_comes_from_the_environment_and_else_is_openais(monkeypatch):
    assert OpenAICompatible("m").base_url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", f"{LOCAL}/")
    assert OpenAICompatible("m").base_url == LOCAL


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:8080/v1", "must begin with http:// or https://"),
        ("ftp://host/v1", "must begin with http:// or https://"),
        ("http:///v1", "no valid host"),
        ("http://ho st/v1", "no valid host"),
        ("http://a..b/v1", "no valid host"),
        (f"http://{'a' * 64}/v1", "no valid host"),
        ("http://%zz/v1", "no valid host"),
        ("http://host:port/v1", "port"),
        ("http://host:99999/v1", "range"),
        ("http://[::1/v1", "IPv6"),
        ("http://user:word@host/v1", "would show in errors"),
        ("http://host/v1?key=1", "query"),
        ("http://host/v1#x", "fragment"),
        ("http://host/v1/chat/completions", "leave /chat/completions off"),
    ],
)
def test_a_url_that_cannot_be_is_refused_when_the_model_is_made(url, problem):
    with pytest.raises(ValueError, match="base_url") as caught:
        OpenAICompatible("m", base_url=url)

    assert problem in str(caught.value)
    assert "http://127.0.0.1:8080/v1" in str(caught.value)


@pytest.mark.parametrize("url", ["http://user:sesame@host/v1", "http://host/v1?key=sesame", "user:sesame@host/v1"])
def test_a_password_in_the_url_is_not_shown(url):
    with pytest.raises(ValueError, match="base_url") as caught:
        OpenAICompatible("m", base_url=url)

    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_refused(name):
    with pytest.raises(ValueError, match="name is empty"):
        OpenAICompatible(name, base_url=LOCAL)


def test_a_wrong_type_is_refused():
    with pytest.raises(TypeError, match="name must be str, not int"):
        OpenAICompatible(1, base_url=LOCAL)
    with pytest.raises(TypeError, match="base_url must be str, not int"):
        OpenAICompatible("m", base_url=1)
    with pytest.raises(TypeError, match="extra_body"):
        OpenAICompatible("m", base_url=LOCAL, extra_body=[1])


@pytest.mark.parametrize("key", ["sk-\u2026", "sk-a b", "sk-a\nb"])
def test_a_key_that_cannot_be_one_is_refused_without_showing_it(key):
    with pytest.raises(ValueError, match="api_key") as caught:
        OpenAICompatible("m", base_url=LOCAL, api_key=key)

    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"": "x"}, {"x-a": "line\nbreak"}, {"x-a": "é"}, {"x-a": 1}])
def test_a_header_that_cannot_be_one_is_refused(headers):
    with pytest.raises(ValueError, match="extra_headers"):
        OpenAICompatible("m", base_url=LOCAL, extra_headers=headers)


def test_the_key_and_the_headers_are_not_in_the_repr():
    model = OpenAICompatible("m", base_url=LOCAL, api_key="sk-secret", extra_headers={"x-key": "sk-other"})

    assert "sk-" not in repr(model)
    assert "local/m" in repr(model)


def test_it_is_frozen():
    model = OpenAICompatible("m", base_url=LOCAL)
    with pytest.raises(AttributeError):
        model.seed = 1


def test_a_local_server_is_free_and_another_is_of_unknown_price():
    assert OpenAICompatible("m", base_url=LOCAL).price == Price(0, 0)
    assert OpenAICompatible("m", base_url="https://host/v1").price is None
    assert OpenAICompatible("m", base_url=LOCAL, price=Price(1, 2)).price == Price(1, 2)


async def test_the_cost_is_counted_where_price_and_tokens_are_known():
    told = Reply([TextBlock("Hi")], usage=Usage(1_000_000, 2_000_000, requests=1))
    untold = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    async with ProviderServer([told, told, untold, untold]) as server:
        priced = OpenAICompatible("m", base_url=server.base_url, price=Price(1, 2))
        free = OpenAICompatible("m", base_url=server.base_url)
        costs = [(await model.respond(REQUEST, print)).usage.cost for model in (priced, free, priced, free)]

    assert costs == [Decimal(5), Decimal(0), None, Decimal(0)]


async def test_the_settings_are_sent():
    settings = {"max_tokens": 5, "temperature": 0.5, "seed": 1, "extra_body": {"top_p": 0.1}}
    async with ProviderServer(["Hi"]) as server:
        await OpenAICompatible("m", base_url=server.base_url, stop="x", **settings).respond(REQUEST, print)

    body = server.requests[0].body
    assert [body[key] for key in ("model", "stop", "max_tokens", "temperature", "seed", "top_p")] == [
        "m",
        ["x"],
        5,
        0.5,
        1,
        0.1,
    ]


def test_ollama_is_on_this_machine_free_and_gets_no_key():
    model = resolve_model("ollama/qwen3:8b")

    assert (model.name, model.base_url, model.price) == ("ollama/qwen3:8b", "http://127.0.0.1:11434/v1", Price(0, 0))
    assert model.api_key == ""


def test_options_go_to_the_model_and_win():
    model = resolve_model("ollama/qwen3", base_url="http://10.0.0.7:11434/v1", seed=3)

    assert (model.name, model.base_url, model.seed) == ("ollama/qwen3", "http://10.0.0.7:11434/v1", 3)


def test_a_compatible_server_is_named_by_its_url():
    assert resolve_model("compatible/org/m", base_url=LOCAL).name == "local/org/m"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("openai/gpt-5", "openai/gpt-5"),
        ("gpt-5-mini", "openai/gpt-5-mini"),
        ("o3", "openai/o3"),
        ("google/gemini-2.5-flash", "google/gemini-2.5-flash"),
        ("gemini-2.5-flash", "google/gemini-2.5-flash"),
    ],
)
def test_a_name_says_whose_model_it_is(text, name):
    model = resolve_model(text, max_tokens=100, retries=0)

    assert model.name == name
    assert type(model) is {"anthropic": Anthropic, "openai": OpenAI, "google": Google}[name.partition("/")[0]]


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ({"max_tokens": 1_000.0}, TypeError),
        ({"max_tokens": math.inf}, TypeError),
        ({"max_tokens": True}, TypeError),
        ({"max_tokens": 0}, ValueError),
        ({"context_window": 1.5}, TypeError),
        ({"temperature": math.inf}, ValueError),
        ({"temperature": math.nan}, ValueError),
        ({"seed": "x"}, TypeError),
        ({"effort": 3}, TypeError),
        ({"thinking": "high"}, TypeError),
        ({"parallel_tool_calls": 1}, TypeError),
        ({"cache": "no"}, TypeError),
        ({"price": 3}, TypeError),
        ({"provider": 5}, TypeError),
        ({"api_key": 5}, TypeError),
        ({"stop": ""}, ValueError),
        ({"stop": ["a", ""]}, ValueError),
        ({"stop": 5}, TypeError),
        ({"stop": [5]}, TypeError),
    ],
    ids=str,
)
@pytest.mark.parametrize("model_class", [Anthropic, Google, OpenAI, OpenAICompatible])
def test_a_setting_that_every_request_would_fail_with_is_refused(model_class, setting, kind):
    """When the model is made, and the error names it."""
    with pytest.raises(kind, match=next(iter(setting))):
        model_class("m", **setting)


@pytest.mark.parametrize("thinking", [True, False, 1_000])
def test_a_setting_that_the_format_does_not_have_is_refused(thinking):
    with pytest.raises(ValueError, match=r"thinking: Chat Completions has no field.*effort=.*extra_body="):
        OpenAICompatible("m", base_url=LOCAL, thinking=thinking)


@pytest.mark.parametrize("text", ["", "smollm2", "ollama/", "acme/m", "/m", "olmo", "my-gpt-5", "claude"])
def test_an_unknown_string_is_refused_with_what_is_known(text):
    with pytest.raises(ValueError, match="unknown model") as caught:
        resolve_model(text)

    assert "ollama/NAME" in str(caught.value)
    assert "compatible/NAME" in str(caught.value)


def test_a_model_of_ones_own_server_never_goes_to_openai(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    for unset in (
        lambda: monkeypatch.delenv("OPENAI_BASE_URL", False),
        lambda: monkeypatch.setenv("OPENAI_BASE_URL", ""),
    ):
        unset()
        with pytest.raises(ValueError, match=r"'compatible/llama' doesn't say which server: set OPENAI_BASE_URL, or"):
            resolve_model("compatible/llama")

    assert resolve_model("compatible/llama", base_url=LOCAL).name == "local/llama"
    monkeypatch.setenv("OPENAI_BASE_URL", LOCAL)
    assert resolve_model("compatible/llama").name == "local/llama"


def test_an_unknown_option_is_refused_with_what_is_known():
    with pytest.raises(TypeError, match="unknown option heat") as caught:
        resolve_model("ollama/m", heat=1)

    assert "temperature" in str(caught.value)
    assert "name" not in str(caught.value)


def test_a_string_is_demanded():
    with pytest.raises(TypeError, match="model must be str, not int"):
        resolve_model(1)


def test_importing_and_making_a_model_loads_no_http_client():
    code = f"""
import sys
from alpineagents.models import OpenAICompatible
OpenAICompatible("m", base_url={LOCAL!r})
loaded = {{"httpx", "httpcore", "ssl", "h11", "email"}} & set(sys.modules)
assert "httpx" not in loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "module",
    [
        *("_sse", "_wire", "_openai_chat", "_anthropic_wire", "_anthropic_stream"),
        *("_google_wire", "_google_stream", "_responses_wire", "_responses_stream"),
    ],
)
def test_the_wires_are_pure(module):
    """They and what they import from this package; import-linter holds the whole of it."""
    code = f"""
import sys, types
for name, path in {{"alpineagents": {str(PACKAGE)!r}, "alpineagents.models": {str(PACKAGE / "models")!r}}}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import alpineagents.models.{module}
assert not {{"trio", "httpx", "ssl"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
