"""Models of tests reach this machine only, unless the test, or the project, says otherwise."""

from __future__ import annotations

import contextlib
import contextvars

import pytest
import trio

from alpineagents import Agent, Message, OpenAICompatible, State
from alpineagents._hooks import may_connect, seen, witness
from alpineagents.testing import FakeModel, LiveConnectionError, ProviderServer
from alpineagents.testing._harness import Harness, is_here_or_nowhere

from .test_plugin import project, run

AT = "provider, model 'm' at "


@pytest.fixture(autouse=True)
def no_proxy_from_outside(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def harness():
    harness = Harness(allowed_hosts=["ollama", "[FD00::1]"])
    with harness.installed():
        harness.begin("a test", live=False)
        yield harness


HERE = "127.0.0.1 127.8.9.10 0.0.0.0 localhost LocalHost. api.localhost ::1 [::1] :: ::ffff:127.0.0.1"
NOBODYS = "provider.test x.example model.invalid"
ELSEWHERE = "api.anthropic.com example.com localhost.com notlocalhost 127.0.0.1.nip.io test.org 2130706433"
ADDRESSES_ELSEWHERE = "128.0.0.1 10.0.0.1 169.254.169.254 ::2 ::ffff:10.0.0.1 fe80::1%lo"


@pytest.mark.parametrize("host", f"{HERE} {NOBODYS}".split())
def test_this_machine_and_what_is_nobodys_may_be_connected_to(host):
    assert is_here_or_nowhere(host)


@pytest.mark.parametrize("host", f"{ELSEWHERE} {ADDRESSES_ELSEWHERE}".split())
def test_nothing_else_may(host, harness):
    assert not is_here_or_nowhere(host)
    with pytest.raises(LiveConnectionError, match=f"this test would connect to {host}, for provider"):
        harness.check(host, f"{AT}https://{host}/v1")


def test_the_message_says_how_to_do_without_and_how_to_allow_it(harness):
    with pytest.raises(LiveConnectionError) as caught:
        harness.check("api.x.ai", f"{AT}https://api.x.ai/v1")

    assert str(caught.value) == (
        "this test would connect to api.x.ai, for provider, model 'm' at https://api.x.ai/v1.\n"
        "To do without: FakeModel([...]), a ProviderServer, or record_model(model, path), recorded once with"
        " pytest --agents-record\n"
        'To allow it: @pytest.mark.live, or agents_allowed_hosts = ["api.x.ai"] in pytest\'s configuration'
    )


@pytest.mark.parametrize("host", ["ollama", "OLLAMA.", "fd00::1", "[fd00::1]"])
def test_a_project_may_allow_hosts(host, harness):
    harness.check(host, AT)


def test_a_test_may_be_live_and_what_is_no_test_may_do_anything(harness):
    harness.begin("another", live=True)
    harness.check("api.x.ai", AT)
    harness.end()
    harness.check("api.x.ai", AT)


async def test_a_model_is_refused_before_anything_is_sent_and_not_asked_again(harness):
    model = OpenAICompatible("m", base_url="http://192.0.2.1/v1", retries=4)
    state = State(messages=[Message.user("Hi")])

    with pytest.raises(LiveConnectionError):
        await Agent(model=model).run(state)

    assert [entry.kind for entry in state.history][-2:] == ["model_request", "error"]
    assert state.usage.requests == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_this_machine_is_reached(host, harness):
    async with ProviderServer(["Hello."]) as server:
        base_url = server.base_url.replace("127.0.0.1", host)

        assert await Agent(model=OpenAICompatible("m", base_url=base_url)).run("Hi") == "Hello."


async def test_a_proxy_elsewhere_is_refused_too(harness, monkeypatch):
    """httpx takes it for this machine as well, unless NO_PROXY says otherwise."""
    async with ProviderServer(["Hello."] * 2) as server:
        agent = Agent(model=OpenAICompatible("m", base_url=server.base_url))
        monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
        with pytest.raises(
            LiveConnectionError, match=r"connect to 192\.0\.2\.1.*\n.*\n.*\n192\.0\.2\.1 must be a proxy"
        ):
            await agent.run("Hi")
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")

        assert await agent.run("Hi") == "Hello."
        assert len(server.requests) == 1


async def test_a_proxy_here_leads_nowhere_else(harness, monkeypatch):
    async with ProviderServer() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.origin)
        with pytest.raises(LiveConnectionError, match=r"connect to api\.x\.ai"):
            await Agent(model=OpenAICompatible("m", base_url="https://api.x.ai/v1")).run("Hi")

        assert proxy.accepted == 0


async def test_what_runs_in_a_thread_is_held_to_it_too(harness):
    agent = Agent(model=OpenAICompatible("m", base_url="http://192.0.2.1/v1"))

    with pytest.raises(LiveConnectionError):
        await trio.to_thread.run_sync(agent.run_sync, "Hi")


def test_the_library_is_as_before_when_it_is_gone():
    before = may_connect.get(), witness.get()
    with Harness().installed():
        assert may_connect.get() is not before[0]

    assert (may_connect.get(), witness.get()) == before


def test_between_tests_nothing_is_remembered(harness):
    harness.end()
    Agent(model=FakeModel(["Hello."])).run_sync("Hi")

    assert list(harness.conversations()) == []


def test_in_a_program_nobody_is_told_of_a_state():
    assert contextvars.Context().run(seen, State()) is None


def test_a_state_that_is_gone_is_remembered_and_a_state_that_lives_is_shown_as_it_is(harness):
    state = State(id="alive", messages=[Message.user("Hi")])
    Agent(model=FakeModel(["Hello."])).run_sync(state)
    Agent(model=FakeModel(["Gone."])).run_sync(State(id="gone", messages=[Message.user("Hi")]))
    state.add_message(Message.user("more"))

    shown = dict(harness.conversations())

    assert list(shown) == ["conversation of State alive", "conversation of State gone"]
    assert shown["conversation of State alive"] == str(state)
    assert "model_reply Gone." in shown["conversation of State gone"]


async def test_actions_outside_a_run_are_seen_too(harness):
    state = State(id="acted", messages=[Message.user("Hi")])
    with contextlib.suppress(ZeroDivisionError):
        await Agent(model=FakeModel([ZeroDivisionError()])).think(state)

    assert dict(harness.conversations())["conversation of State acted"] == str(state)


def test_a_state_that_never_runs_is_seen_too(harness):
    state = State(id="made", messages=[Message.user("Hi")])
    state.finish("done")

    assert dict(harness.conversations())["conversation of State made"] == str(state)


# ---- In test runs


@pytest.mark.slow
def test_marks_options_and_settings_are_heeded(pytester, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # where nobody listens: nothing leaves this machine
    tests = """
MODEL = OpenAICompatible("m", base_url="http://192.0.2.1/v1", retries=0)

@pytest.fixture
def asked():
    with pytest.raises(AlpineAgentsError) as caught:
        Agent(model=MODEL).run_sync("Hi")
    return type(caught.value).__name__

def test_refused(asked):
    assert asked == "LiveConnectionError"

@pytest.mark.live
def test_allowed(asked):
    assert asked == "UnreachableError"
"""
    project(pytester, tests)
    run(pytester).assert_outcomes(passed=2)
    run(pytester, "--agents-record").assert_outcomes(passed=1, failed=1)
    run(pytester, "-o", "agents_allowed_hosts=192.0.2.1").assert_outcomes(passed=1, failed=1)


@pytest.mark.slow
def test_it_holds_under_anyio_where_a_fixture_of_the_module_started_trio(pytester):
    tests = """
pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend():
    return "trio"

@pytest.fixture(scope="module")
async def of_the_module():
    return Agent(model=OpenAICompatible("m", base_url="http://192.0.2.1:9/v1"))

async def test_first(of_the_module):
    with pytest.raises(LiveConnectionError):
        await of_the_module.run("Hi")

async def test_second(of_the_module):
    with pytest.raises(LiveConnectionError):
        await of_the_module.run("Hi")
"""
    project(pytester, tests)

    run(pytester, "-o", "trio_mode=false").assert_outcomes(passed=2)
