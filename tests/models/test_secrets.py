"""A key, or the value of an extra header, shows nowhere: whatever fails, and wherever one looks."""

import gc
import logging
import traceback
import warnings

import pytest
import trio

from alpineagents import Agent, AlpineAgentsError, Message, ModelEvent, Request, State
from alpineagents.models import Anthropic, Fallback, Google, OpenAI, OpenAICompatible, RateLimit
from alpineagents.record._codec import encode_entry
from alpineagents.testing import Fault, ProviderServer

KEY = "sk-" + "-".join(["quite", "secret", "key"])  # Put together: no frame's source line shows it.
HEADER = "-".join(["other", "secret", "header"])
TOKEN = "-".join(["third", "secret", "token"])
SECRETS = (KEY, HEADER, TOKEN, KEY[3:], "secret-key", "secret-header", "secret-token")


def model_at(url, **options):
    headers = {"X-Other": HEADER, "X-Auth": f"Bearer {TOKEN}"}
    return OpenAICompatible("m", base_url=url, api_key=KEY, extra_headers=headers, **options)


def echo(request):
    """What a careless server says."""
    sent = f"{request.headers['authorization']} {request.headers['x-other']} {TOKEN}"
    return Fault(status=401, body={"error": {"message": f"refused: {sent}", "code": sent}})


def echo_and_stay(request):
    return Fault(status=503, body=f"refused: {KEY} {HEADER} {TOKEN}", stall=True)


def echo_in_stream(request):
    return f'data: {{"error": {{"message": "refused {KEY} {HEADER} {TOKEN}", "code": 529}}}}\n\n'.encode()


FAILURES = {
    "refused": [echo],
    "refused, all attempts": [echo_and_stay] * 2,
    "in a stream": [echo_in_stream] * 2,
    "limited": [Fault(status=429, headers={"Retry-After": "3600"}, body=KEY)],
    "dropped": [Fault(drop=True)] * 3,
    "no HTTP": [Fault(garbage=f"{KEY} {HEADER}\r\n\r\n".encode())] * 3,
    "cut": [Fault(cut_after=250)] * 2,
    "cut at once": [Fault(cut_after=0)] * 2,
    "stalled": [Fault(stall=True, cut_after=250)] * 2,
    "no answer": [Fault(wait=700)] * 2,
    "badly compressed": [Fault(body="this is no gzip", headers={"content-encoding": "gzip"})] * 2,
    "redirected": [Fault(status=307, headers={"Location": f"https://x.example/?key={KEY}"}, body="")],
    "page": [Fault(body=f"<html><title>{KEY}</title>")],
    "no JSON": [Fault(body=f"data: {{{KEY} {HEADER}\n\n")] * 2,
    "large": [Fault(status=400, body="x" * 1_990 + KEY)],
}


LOGGED_BY_HTTPCORE = ("no HTTP", "redirected")
"""Where a server repeats a key in the head of its answer: httpcore's own DEBUG log has all of that."""


def shown_by(error):
    """All that a crash reporter could send of an exception: its chain, notes, fields, and every frame's variables."""
    seen, texts, waiting = set(), [], [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        waiting += [link.__cause__, link.__context__, *getattr(link, "exceptions", ())]
        texts += [str(link), repr(link), repr(link.args), repr(vars(link)), repr(getattr(link, "__notes__", ""))]
        if request := getattr(link, "_request", None):
            texts.append(repr(request.headers.raw))
        for frame, _ in traceback.walk_tb(link.__traceback__):
            if frame.f_code.co_filename != __file__:
                texts += [repr(value) for value in frame.f_locals.values()]
    formatted = traceback.TracebackException.from_exception(error, capture_locals=True, compact=True)
    texts += [line for line in formatted.format() if __file__ not in line]
    return "\n".join(texts)


def assert_hidden(text):
    assert text
    for secret in SECRETS:
        assert secret not in text


class Log(logging.Handler):
    """Every record, as it is and as it is formatted."""

    def __init__(self):
        super().__init__(0)
        self.texts = []

    def emit(self, record):
        self.texts += [self.format(record), repr(vars(record))]


@pytest.fixture
def logged():
    """What is logged, at any level, by anybody."""
    root, handler = logging.getLogger(), Log()
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield handler.texts
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpx's, for what it can't decode.
@pytest.mark.parametrize("name", FAILURES)
async def test_no_failure_shows_a_secret(name, autojump_clock, logged):
    state = State(messages=[Message.user("Hi")])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with ProviderServer(FAILURES[name]) as server:
            model = model_at(server.base_url, retries=1, rate_limit=RateLimit(concurrent=1))
            with pytest.raises(AlpineAgentsError) as caught:
                await Agent(model=model).think(state)
        gc.collect()

    assert_hidden(shown_by(caught.value))
    assert_hidden("\n".join([f"{entry} {entry!r} {encode_entry(entry).decode()}" for entry in state.history]))
    assert_hidden("\n".join([repr(model), str(model), repr(model.rate_limit)]))
    assert_hidden("\n".join(["warnings:", *[str(warning) for warning in warned]]))
    if name not in LOGGED_BY_HTTPCORE:
        assert_hidden("\n".join(["logs:", *logged]))
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"  # It was there to be shown.


async def test_no_connection_shows_no_secret(autojump_clock, logged):
    async with ProviderServer() as server:
        url = server.base_url
    for base_url in (url, url.replace("http:", "https:"), "http://model.invalid/v1", "http://\u2603.example/v1"):
        with pytest.raises(AlpineAgentsError) as caught:
            await model_at(base_url, retries=1).respond(Request(messages=[Message.user("Hi")]), lambda event: None)

        assert_hidden(shown_by(caught.value))
    assert_hidden("\n".join(["logs:", *logged]))


@pytest.mark.parametrize(
    "fault",
    [Fault(stall=True, cut_after=250), Fault(wait=700), Fault(stall=True, cut_after=0), Fault(status=503, stall=True)],
)
async def test_a_cancelled_request_shows_no_secret(fault, autojump_clock, logged):
    """httpx's frames, through which a Cancelled comes, hold the headers."""
    caught = []

    async def ask(model):
        try:
            await model.respond(Request(messages=[Message.user("Hi")]), lambda event: None)
        except trio.Cancelled as error:
            caught.append(error)
            raise

    async with ProviderServer([fault]) as server:
        with trio.move_on_after(5):
            await ask(model_at(server.base_url))

    assert_hidden(shown_by(caught[0]))
    assert_hidden("\n".join(["logs:", *logged]))


async def test_what_emit_raises_shows_no_secret(autojump_clock):
    def emit(event):
        raise LookupError("mine")

    async with ProviderServer(["Hello.", Fault(status=503)]) as server:
        for _ in range(2):
            with pytest.raises(LookupError) as caught:
                await model_at(server.base_url).respond(Request(messages=[Message.user("Hi")]), emit)
            assert_hidden(shown_by(caught.value))


async def test_events_and_notes_of_retries_and_fallbacks_show_no_secret(autojump_clock):
    events = []
    async with ProviderServer([echo_in_stream] * 4) as server:
        model = Fallback(model_at(server.base_url, retries=1), model_at(server.base_url, retries=1))
        with pytest.raises(AlpineAgentsError) as caught:
            await model.respond(Request(messages=[Message.user("Hi")]), events.append)

    assert [event.kind for event in events if isinstance(event, ModelEvent)] == ["retry", "fallback", "retry"]
    assert_hidden("\n".join([repr(event) for event in events]))
    assert_hidden(shown_by(caught.value))
    assert_hidden(repr(model))


@pytest.mark.parametrize(
    ("kind", "name", "header"),
    [
        (Anthropic, "claude-sonnet-5", "x-api-key"),
        (Google, "gemini-2.5-flash", "x-goog-api-key"),
        (OpenAI, "gpt-5", "authorization"),
    ],
)
@pytest.mark.parametrize("failure", ["refused", "in a stream", "dropped", "cut", "stalled"])
async def test_no_provider_shows_a_secret(kind, name, header, failure, autojump_clock, logged):
    def refuse(request):
        return Fault(status=401, body={"error": {"message": f"refused {KEY} {HEADER}", "status": KEY, "type": KEY}})

    def fail_in_stream(request):
        error = f'{{"type": "error", "error": {{"message": "refused {KEY}", "type": "overloaded_error", "code": 503}}}}'
        return f"event: error\ndata: {error}\n\n".encode()

    script = {"refused": [refuse], "in a stream": [fail_in_stream] * 2}.get(failure) or FAILURES[failure]
    async with ProviderServer(script) as server:
        url = server.base_url if kind is OpenAI else server.origin
        model = kind(name, base_url=url, api_key=KEY, extra_headers={"X-Other": HEADER}, retries=1)
        with pytest.raises(AlpineAgentsError) as caught:
            await model.respond(Request(messages=[Message.user("Hi")]), lambda event: None)

    assert_hidden(shown_by(caught.value))
    assert_hidden(repr(model))
    assert_hidden("\n".join(["logs:", *logged]))
    assert KEY in server.requests[0].headers[header]  # It was there to be shown.


async def test_a_key_of_the_environment_that_can_be_none_is_not_shown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY} and more")
    model = OpenAICompatible("m", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(ValueError, match="characters that no key has") as caught:
        await model.respond(Request(messages=[Message.user("Hi")]), lambda event: None)

    assert_hidden(shown_by(caught.value))
