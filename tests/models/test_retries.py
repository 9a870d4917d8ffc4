"""What is sent again, when, and what is told of it: over real sockets, in virtual time."""

import email.utils
import math
import time
from decimal import Decimal

import pytest
import trio

from alpineagents import (
    Agent,
    AuthError,
    BadRequestError,
    BrokenStreamError,
    ContextTooLongError,
    Message,
    ModelEvent,
    ModelEventEntry,
    ModelNotFoundError,
    OverloadedError,
    Price,
    ProviderError,
    RateLimitError,
    Reply,
    Reporter,
    Request,
    State,
    TextBlock,
    TextDelta,
    UnreachableError,
    Usage,
)
from alpineagents.models import Anthropic, Google, OpenAI, OpenAICompatible
from alpineagents.models._retry import Policy, backoff
from alpineagents.testing import Fault, ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])


def ignore(event):
    """An emit that drops everything."""


def model_at(server, **options):
    return OpenAICompatible("m", base_url=server.base_url, **options)


@pytest.fixture
def longest_backoff(monkeypatch):
    """Backoff without chance: always the longest."""
    monkeypatch.setattr("random.random", lambda: 1.0)


def retries_in(emitted):
    return [event for event in emitted if isinstance(event, ModelEvent)]


def sse(*documents):
    return "".join([f"data: {document}\n\n" for document in documents])


TEXT = '{"choices":[{"index":0,"delta":{"content":"half an answer"},"finish_reason":null}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":4}}'


def error_event(code, kind="server_error"):
    return f'{{"error":{{"message":"scripted","type":"{kind}","code":{code}}}}}'


# ---- What is sent again


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 524, 529])
async def test_what_may_pass_is_sent_again(status, autojump_clock):
    emitted = []
    async with ProviderServer([Fault(status=status), "Done."]) as server:
        reply = await model_at(server).respond(REQUEST, emitted.append)

    assert reply.text == "Done."
    assert reply.usage.requests == len(server.requests) == 2
    assert [event.kind for event in retries_in(emitted)] == ["retry"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthError),
        (402, BadRequestError),
        (403, AuthError),
        (404, ModelNotFoundError),
        (413, BadRequestError),
        (418, BadRequestError),
        (422, BadRequestError),
        (307, BadRequestError),
    ],
)
async def test_what_the_request_itself_is_to_blame_for_is_not_sent_again(status, kind, autojump_clock):
    emitted = []
    async with ProviderServer([Fault(status=status, body="no")]) as server:
        with pytest.raises(kind) as caught:
            await model_at(server).respond(REQUEST, emitted.append)

    assert len(server.requests) == 1
    assert emitted == []
    assert "tried" not in str(caught.value)
    assert trio.current_time() < 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 500, "message": "image input is not supported - hint: mmproj", "type": "server_error"}},
        {"error": {"code": 500, "message": "Failed to parse messages: unsupported content part", "type": "x"}},
        {"error": {"code": 500, "message": "Conversation roles must alternate user/assistant", "type": "x"}},
        {"error": "model does not support tools"},
    ],
)
@pytest.mark.parametrize("in_stream", [False, True])
async def test_a_500_that_blames_the_request_is_not_sent_again(body, in_stream, autojump_clock):
    """llama.cpp answers 500 for what others call a bad request."""
    async with ProviderServer([Fault(status=200 if in_stream else 500, body=body)]) as server:
        with pytest.raises(OverloadedError):
            await model_at(server).respond(REQUEST, ignore)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body", ["<html><title>Unsupported</title>", {"error": {"message": "The server had an error"}}]
)
async def test_a_500_that_blames_nobody_is_sent_again(body, autojump_clock):
    async with ProviderServer([Fault(status=500, body=body), "Done."]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Done."


async def test_a_429_that_only_money_mends_is_not_sent_again(autojump_clock):
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota", "type": "x"}}
    async with ProviderServer([Fault(status=429, body=body)]) as server:
        with pytest.raises(RateLimitError):
            await model_at(server).respond(REQUEST, ignore)

    assert len(server.requests) == 1


async def test_a_server_that_says_not_to_is_not_asked_again(autojump_clock):
    async with ProviderServer([Fault(status=503, headers={"x-should-retry": "false"})]) as server:
        with pytest.raises(OverloadedError):
            await model_at(server).respond(REQUEST, ignore)

    assert len(server.requests) == 1


async def test_a_conversation_that_is_too_long_is_not_sent_again_whatever_the_status(autojump_clock):
    body = {"error": {"message": "This model's maximum context length is 10 tokens", "code": 500}}
    async with ProviderServer([Fault(status=500, body=body)]) as server:
        with pytest.raises(ContextTooLongError):
            await model_at(server).respond(REQUEST, ignore)

    assert len(server.requests) == 1


async def test_a_refusal_is_a_reply_and_not_sent_again(autojump_clock):
    refusal = '{"choices":[{"index":0,"delta":{"refusal":"No."},"finish_reason":"stop"}]}'
    async with ProviderServer([Fault(body=sse(refusal))]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.refusal
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_after=250),
        Fault(cut_after=250, chunked=False),
        Fault(cut_after=0),
        Fault(stall=True, cut_after=250),
        Fault(wait=700),
        Fault(status=503, cut_after=5),
        Fault(body=sse(error_event(529))),
        Fault(body=sse(TEXT, error_event(429))),
        Fault(body=sse(TEXT, error_event('"x"', "overloaded_error"))),
        Fault(body=sse(TEXT, "{")),
        Fault(body=b""),
    ],
)
async def test_an_answer_that_breaks_or_stalls_is_thrown_away_and_asked_for_again(fault, autojump_clock, sockets):
    before = sockets()
    emitted = []
    async with ProviderServer([fault, "A whole answer."]) as server:
        reply = await model_at(server).respond(REQUEST, emitted.append)

    assert reply.text == "A whole answer."
    assert reply.usage.requests == 2
    told = retries_in(emitted)
    assert len(told) == 1
    first = emitted[: emitted.index(told[0])]
    assert told[0].data["restarted"] == bool(first)
    assert "".join([event.text for event in emitted[len(first) + 1 :]]) == "A whole answer."
    assert sockets() == before


async def test_the_text_of_a_broken_answer_is_announced_as_thrown_away(autojump_clock, longest_backoff):
    """B6 b: a UI drops what it has shown when the event says ``restarted``."""
    emitted = []
    broken = Fault(body=sse(TEXT, error_event(529)))
    async with ProviderServer([broken, "Done."]) as server:
        await model_at(server).respond(REQUEST, emitted.append)

    text, event, *rest = emitted
    assert text == TextDelta("half an answer")
    assert dict(event.data) == {"attempt": 2, "error": "OverloadedError", "wait": 1.0, "restarted": True}
    assert "sent again in 1.0 s from the start" in event.text
    assert rest == [TextDelta("Done.")]


async def test_an_error_that_is_the_first_event_is_as_an_error_answer(autojump_clock, longest_backoff):
    """B6 a: nothing was shown, so there is nothing to drop."""
    emitted = []
    async with ProviderServer([Fault(body=sse(error_event(429, "rate_limit_error"))), "Done."]) as server:
        await model_at(server).respond(REQUEST, emitted.append)

    assert dict(emitted[0].data) == {"attempt": 2, "error": "RateLimitError", "wait": 1.0, "restarted": False}


async def test_a_server_that_is_not_up_yet_is_asked_again(autojump_clock, longest_backoff, sockets):
    before = sockets()
    emitted = []
    async with ProviderServer() as server:
        model = model_at(server, retries=2)
    with pytest.raises(UnreachableError, match=r"Connection refused.*[(]tried 3 times[)]") as caught:
        await model.respond(REQUEST, emitted.append)

    assert [event.data["error"] for event in emitted] == ["UnreachableError"] * 2
    assert caught.value.usage is None  # Nothing was ever sent.
    assert trio.current_time() == pytest.approx(1 + 2, abs=0.1)
    assert sockets() == before


async def test_a_server_without_tls_is_not_tried_again(autojump_clock):
    """As nginx does it: what TLS itself refuses, it will refuse the next time too."""
    connections = []

    async def answer_in_the_clear(stream):
        connections.append(stream)
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await stream.receive_some()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, answer_in_the_clear, 0)
        port = listeners[0].socket.getsockname()[1]
        model = OpenAICompatible("m", base_url=f"https://127.0.0.1:{port}/v1")
        with pytest.raises(ProviderError, match="SSL") as caught:
            await model.respond(REQUEST, ignore)
        nursery.cancel_scope.cancel()

    assert type(caught.value) is ProviderError
    assert len(connections) == 1


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\x02 no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/9.9 x\r\n\r\n"]
)
async def test_what_is_no_http_is_sent_again(garbage, autojump_clock):
    async with ProviderServer([Fault(garbage=garbage), Fault(garbage=garbage), "Done."]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert reply.usage.requests == 3


async def test_a_connection_that_is_dead_costs_no_retry(autojump_clock):
    """It is sent again at once, once; what breaks after that is a failure like any other."""
    emitted = []
    async with ProviderServer([Fault(drop=True), Fault(status=503), "Done."]) as server:
        reply = await model_at(server, retries=1).respond(REQUEST, emitted.append)

    assert reply.text == "Done."
    assert [(event.data["attempt"], event.data["error"]) for event in retries_in(emitted)] == [
        (2, "BrokenStreamError"),
        (3, "OverloadedError"),
    ]


# ---- How often, and after how long


async def test_after_the_last_attempt_the_last_error_is_raised_and_says_how_often(autojump_clock, longest_backoff):
    emitted = []
    async with ProviderServer([Fault(status=500)] * 4 + [Fault(status=529)]) as server:
        with pytest.raises(OverloadedError, match=r"answered 529.*[(]tried 5 times[)]") as caught:
            await model_at(server).respond(REQUEST, emitted.append)

    assert len(server.requests) == caught.value.usage.requests == 5
    assert [event.data["wait"] for event in emitted] == [1, 2, 4, 8]
    assert [event.data["attempt"] for event in emitted] == [2, 3, 4, 5]
    assert trio.current_time() == pytest.approx(15, abs=0.5)


async def test_without_retries_nothing_is_sent_again(autojump_clock):
    async with ProviderServer([Fault(status=503)]) as server:
        with pytest.raises(OverloadedError):
            await model_at(server, retries=0).respond(REQUEST, ignore)

    assert len(server.requests) == 1


def in_http():
    """A date, of whole seconds, that is 100 s ahead."""
    return email.utils.formatdate(time.time() + 100, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "90"}, 90),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "2500"}, 2.5),
        ({"retry-after-ms": "2500", "Retry-After": "90"}, 2.5),
        ({"Retry-After": in_http}, 100),
        ({"Retry-After": "Tue, 01 Dec 2026 00:00:00 GMT"}, 1),
        ({"Retry-After": "0"}, 1),
        ({"Retry-After": "-5"}, 1),
        ({"Retry-After": "nan"}, 1),
        ({"Retry-After": "inf"}, 1),
        ({"Retry-After": "1e999"}, 1),
        ({"Retry-After": "soon"}, 1),
        ({"Retry-After": ""}, 1),
        ({"retry-after-ms": "garbage", "Retry-After": "3"}, 3),
    ],
)
async def test_the_wait_is_what_the_server_asked_for(headers, seconds, autojump_clock, longest_backoff):
    """B23. What can't be read, or asks for nothing, is our own backoff: here 1 s."""
    sent = {name: value() if callable(value) else value for name, value in headers.items()}
    async with ProviderServer([Fault(status=429, headers=sent), "Done."]) as server:
        await model_at(server).respond(REQUEST, ignore)

    assert trio.current_time() == pytest.approx(seconds, abs=2 if seconds == 100 else 0.2)


@pytest.mark.parametrize(("status", "kind"), [(429, RateLimitError), (503, OverloadedError)])
async def test_a_wait_that_is_too_long_is_raised_at_once(status, kind, autojump_clock):
    """B23: never sent earlier than asked; whoever called can do something else meanwhile."""
    emitted = []
    async with ProviderServer([Fault(status=status, headers={"Retry-After": "3600"})]) as server:
        with pytest.raises(kind, match="3600 s is longer than max_wait=120") as caught:
            await model_at(server).respond(REQUEST, emitted.append)

    assert caught.value.retry_after == 3600
    assert (len(server.requests), emitted) == (1, [])
    assert trio.current_time() < 1


async def test_the_longest_wait_can_be_set(autojump_clock):
    async with ProviderServer([Fault(status=429, headers={"Retry-After": "3600"}), "Done."]) as server:
        await model_at(server, max_wait=3600).respond(REQUEST, ignore)

    assert 3600 <= trio.current_time() < 3601


async def test_backoff_is_never_longer_than_the_longest_wait(autojump_clock, longest_backoff):
    async with ProviderServer([Fault(status=503)] * 4 + ["Done."]) as server:
        await model_at(server, max_wait=3).respond(REQUEST, ignore)

    assert trio.current_time() == pytest.approx(1 + 2 + 3 + 3, abs=0.2)


def test_backoff_doubles_up_to_a_minute_and_any_part_of_it_may_be_drawn():
    assert [backoff(failures, 1.0) for failures in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff(10_000, 1.0) == 60
    assert [backoff(3, draw) for draw in (0.0, 0.25, 0.5)] == [0, 1, 2]


async def test_clients_that_fail_together_come_back_one_by_one(autojump_clock):
    """Full jitter: 50 waits lie anywhere between nothing and the longest."""
    waits = []

    def note(event):
        if isinstance(event, ModelEvent):
            waits.append(event.data["wait"])

    async with ProviderServer([Fault(status=503)] * 50 + ["Done."] * 50) as server:
        model = model_at(server)
        async with model.session(), trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(model.respond, REQUEST, note)

    assert len(waits) == 50
    assert 0 <= min(waits) < 0.2
    assert 0.8 < max(waits) <= 1
    assert len(set(waits)) > 30


# ---- In every format


def base_url_for(kind, server):
    return server.base_url if kind in (OpenAI, OpenAICompatible) else server.origin


MODELS = {Anthropic: "claude-sonnet-5", Google: "gemini-2.5-flash", OpenAI: "gpt-5", OpenAICompatible: "m"}
LONG = "A whole answer, long enough to be cut. " * 20


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429),
        Fault(status=500),
        Fault(status=503),
        Fault(status=529),
        Fault(drop=True),
        Fault(answer=LONG, cut_after=2_500),
        Fault(answer=LONG, cut_after=2_500, chunked=False),
        Fault(answer=LONG, cut_after=2_500, stall=True),
    ],
    ids=["429", "500", "503", "529", "dropped", "cut", "cut without a trace", "stalled"],
)
async def test_every_format_is_sent_again(kind, fault, autojump_clock, sockets):
    before = sockets()
    emitted = []
    async with ProviderServer([fault, LONG]) as server:
        model = kind(MODELS[kind], base_url=base_url_for(kind, server), api_key="sk-test-key")
        reply = await model.respond(REQUEST, emitted.append)

    assert reply.text == LONG
    assert reply.usage.requests == len(server.requests) == 2
    told = retries_in(emitted)
    assert [event.kind for event in told] == ["retry"]
    assert told[0].data["restarted"] == (fault.answer == LONG)
    last = emitted[emitted.index(told[0]) + 1 :]
    assert "".join([event.text for event in last if isinstance(event, TextDelta)]) == LONG
    assert sockets() == before


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("status", "error"), [(400, BadRequestError), (401, AuthError), (404, ModelNotFoundError)])
async def test_no_format_sends_again_what_cannot_pass(kind, status, error, autojump_clock):
    async with ProviderServer([Fault(status=status)]) as server:
        model = kind(MODELS[kind], base_url=base_url_for(kind, server), api_key="sk-test-key")
        with pytest.raises(error):
            await model.respond(REQUEST, ignore)

    assert len(server.requests) == 1


async def test_what_an_anthropic_stream_told_before_it_broke_counts(autojump_clock):
    """G2: the input tokens come first, with ``message_start``."""
    async with ProviderServer([Fault(answer=LONG, cut_after=2_500), "Done."]) as server:
        model = Anthropic("claude-sonnet-5", base_url=server.origin, api_key="sk-test-key")
        reply = await model.respond(REQUEST, ignore)
        alone = await _usage_of_one(model, server)

    assert reply.usage.input_tokens == 2 * alone.input_tokens > 0


async def _usage_of_one(model, server):
    server.add("Done.")
    return (await model.respond(REQUEST, ignore)).usage


# ---- What it cost


@pytest.mark.parametrize("price", [None, Price(1, 10)])
async def test_the_tokens_of_attempts_that_were_thrown_away_are_in_the_usage(price, autojump_clock):
    """G2, in both outcomes."""
    broken, whole = Fault(body=sse(TEXT, USAGE)), Reply([TextBlock("Done.")], usage=Usage(7, 5, requests=1))
    async with ProviderServer([broken, Fault(status=503), whole, *[broken] * 2, Fault(status=400)]) as server:
        model = model_at(server, provider="x", price=price)
        reply = await model.respond(REQUEST, ignore)
        with pytest.raises(BadRequestError) as caught:
            await model.respond(REQUEST, ignore)

    def cost(read, written):
        return Decimal(read + 10 * written) / 1_000_000 if price else Decimal(0)  # A local server is free.

    assert reply.usage == Usage(37, 9, requests=3, cost=cost(37, 9))
    assert caught.value.usage == Usage(60, 8, requests=3, cost=cost(60, 8))


async def test_a_failure_without_tokens_costs_nothing(autojump_clock):
    """Its cost is known to be 0, so a State's sum stays known."""
    async with ProviderServer([Fault(status=503)]) as server:
        with pytest.raises(OverloadedError) as caught:
            await model_at(server, retries=0, price=Price(1, 1)).respond(REQUEST, ignore)

    assert caught.value.usage == Usage(requests=1)


async def test_a_cancelled_request_says_what_it_cost(autojump_clock):
    """G2: the State's usage has it."""
    async with ProviderServer([Fault(body=sse(USAGE, TEXT), stall=True)]) as server:
        state = State(messages=[Message.user("Hi")])
        agent = Agent(model=model_at(server, price=Price(1, 1)))
        with trio.move_on_after(1):
            await agent.think(state)

    assert (state.usage.input_tokens, state.usage.output_tokens, state.usage.requests) == (30, 4, 1)
    assert state.usage.cost == Decimal(34) / 1_000_000


async def test_retries_are_in_the_history_and_in_the_usage_of_the_state(autojump_clock):
    async with ProviderServer([Fault(body=sse(TEXT, USAGE)), Fault(status=500), "Done."]) as server:
        state = State(messages=[Message.user("Hi")])
        await Agent(model=model_at(server)).think(state)

    events = [entry.content for entry in state.history if isinstance(entry, ModelEventEntry)]
    assert [(event.kind, event.data["error"], event.data["restarted"]) for event in events] == [
        ("retry", "BrokenStreamError", True),
        ("retry", "OverloadedError", False),
    ]
    assert state.usage.requests == 3
    assert state.usage.input_tokens > 30
    assert state.messages[-1].text == "Done."


# ---- What isn't the provider's failure


@pytest.mark.parametrize("kind", [LookupError, RateLimitError, BrokenStreamError])
async def test_what_a_reporter_raises_is_no_reason_to_send_again(kind, autojump_clock, sockets):
    before = sockets()
    mine = kind("mine")

    class Broken(Reporter):
        def on_text(self, state, text):
            raise mine

    async with ProviderServer(["Hello there."] * 2) as server:
        with pytest.raises(kind) as caught:
            await Agent(model=model_at(server), reporter=Broken()).think(State(messages=[Message.user("Hi")]))

    assert caught.value is mine
    assert str(mine) == "mine"
    assert len(server.requests) == 1
    assert sockets() == before


@pytest.mark.parametrize("cut", [0, 300, 900])
async def test_a_reporter_that_shows_text_as_it_comes_can_throw_away_what_broke_off(cut, autojump_clock):
    class Screen(Reporter):
        shown = ""

        def on_text(self, state, text):
            self.shown += text

        def on_model_event(self, state, event):
            assert state.history[-1].content is event
            if event.data.get("restarted"):
                self.shown = ""

    screen = Screen()
    async with ProviderServer([Fault(answer="One two three four", cut_after=cut), "Hello there."]) as server:
        await Agent(model=model_at(server), reporter=screen).run("Hi")

    assert screen.shown == "Hello there."


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(drop=True)])
async def test_what_emit_raises_for_a_retry_comes_out_as_it_is(fault, autojump_clock):
    mine = RateLimitError("mine")

    def emit(event):
        raise mine

    async with ProviderServer([fault] * 2) as server:
        with pytest.raises(RateLimitError) as caught:
            await model_at(server).respond(REQUEST, emit)

    assert caught.value is mine
    assert caught.value.usage == Usage(requests=1)
    assert len(server.requests) == 1


async def test_cancelling_while_it_waits_ends_it_at_once(autojump_clock, sockets):
    before = sockets()
    async with ProviderServer([Fault(status=503, headers={"Retry-After": "100"})]) as server:
        with trio.move_on_after(50) as scope:
            await model_at(server).respond(REQUEST, ignore)

    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(50, abs=0.1)
    assert len(server.requests) == 1
    assert sockets() == before


# ---- Settings


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"retries": -1}, ValueError, "retries must be 0 or more"),
        ({"retries": 1.5}, TypeError, "retries must be int, not float"),
        ({"retries": True}, TypeError, "retries must be int, not bool"),
        ({"max_wait": -1}, ValueError, "max_wait must be 0 seconds or more"),
        ({"max_wait": math.nan}, ValueError, "max_wait must be 0 seconds or more"),
        ({"max_wait": "1"}, TypeError, "max_wait must be seconds, not str"),
        ({"max_wait": True}, TypeError, "max_wait must be seconds, not bool"),
        ({"rate_limit": 5}, TypeError, "rate_limit must be a RateLimit or None, not int"),
    ],
)
def test_settings_are_checked_when_the_model_is_made(options, kind, text):
    with pytest.raises(kind, match=text):
        OpenAICompatible("m", base_url="http://127.0.0.1:1/v1", **options)


def test_the_defaults_are_those_of_the_docs():
    model = OpenAICompatible("m", base_url="http://127.0.0.1:1/v1")

    assert (model.retries, model.max_wait, model.rate_limit) == (4, 120.0, None)
    assert (Policy().retries, Policy().max_wait) == (4, 120.0)
