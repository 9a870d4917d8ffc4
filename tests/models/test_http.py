"""The transport, over real sockets against a scripted provider."""

import gc
import gzip
import json
import socket
import traceback
from decimal import Decimal

import httpx
import pytest
import trio

from alpineagents import (
    AuthError,
    BadRequestError,
    BrokenStreamError,
    ContextTooLongError,
    Message,
    ModelEvent,
    ModelNotFoundError,
    OverloadedError,
    Price,
    ProviderError,
    RateLimitError,
    Reply,
    Request,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    UnreachableError,
    Usage,
)
from alpineagents.models import Anthropic, Google, OpenAI, OpenAICompatible
from alpineagents.testing._provider_server import Fault, ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])
KEY = "sk-" + "very-secret" * 2


def ignore(event):
    """An emit that drops everything."""


def model_at(server, **options):
    """Sends once: what is sent again is the matter of test_retries."""
    return OpenAICompatible("m", base_url=server.base_url, **{"retries": 0, **options})


def event(content, finish=None):
    delta = {} if content is None else {"content": content}
    reason = "null" if finish is None else f'"{finish}"'
    body = str(delta).replace("'", '"')
    return f'data: {{"choices":[{{"index":0,"delta":{body},"finish_reason":{reason}}}]}}\n\n'


async def test_a_reply_is_streamed_and_whole():
    emitted = []
    call = ToolCall("c1", "read", {"path": "a"})
    answer = Reply([ThinkingBlock("Let me look. "), TextBlock("I look."), call], usage=Usage(7, 5, requests=1))
    async with ProviderServer([answer]) as server:
        reply = await model_at(server).respond(REQUEST, emitted.append)

    assert (reply.text, reply.tool_calls, reply.model, reply.stop_reason) == ("I look.", (call,), "m", "tool_calls")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.requests) == (7, 5, 1)
    assert emitted == [ThinkingDelta(word) for word in ("Let ", "me ", "look. ")] + [
        TextDelta("I "),
        TextDelta("look."),
    ]


@pytest.mark.parametrize("chunk_size", [1, 3, 1_000])
async def test_the_size_of_the_pieces_does_not_matter(chunk_size):
    async with ProviderServer(["Wörld 😀"], chunk_size=chunk_size) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Wörld 😀"


async def test_the_key_and_extra_headers_are_sent():
    async with ProviderServer(["Hi"], api_key=KEY) as server:
        await model_at(server, api_key=f"{KEY}\n", extra_headers={"X-Title": "tests"}).respond(REQUEST, ignore)

    headers = server.requests[0].headers
    assert (headers["authorization"], headers["x-title"]) == (f"Bearer {KEY}", "tests")


async def test_the_key_is_read_from_the_environment_when_the_request_is_made(monkeypatch):
    async with ProviderServer(["Hi", "Hi", "Hi"]) as server:
        model = model_at(server)
        await model.respond(REQUEST, ignore)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        await model.respond(REQUEST, ignore)
        await model_at(server, api_key="").respond(REQUEST, ignore)

    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [None, f"Bearer {KEY}", None]


async def test_nothing_is_connected_before_the_first_request():
    async with ProviderServer() as server, model_at(server).session():
        await trio.testing.wait_all_tasks_blocked()
        assert server.accepted == 0


async def test_a_session_keeps_its_connection_for_all_models_of_the_base_url(sockets):
    before = sockets()
    async with ProviderServer(["1", "2", "3"]) as server:
        async with model_at(server).session(), model_at(server, seed=1).session():
            await model_at(server).respond(REQUEST, ignore)
            await model_at(server, api_key="other").respond(REQUEST, ignore)
        assert server.accepted == 1
        await model_at(server).respond(REQUEST, ignore)
        assert server.accepted == 2
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 0
    assert sockets() == before


async def test_requests_at_the_same_time_share_one_client_and_do_not_wait_for_each_other(autojump_clock):
    start = trio.current_time()
    async with ProviderServer([Fault(wait=1)] * 110) as server:
        model = model_at(server)
        async with trio.open_nursery() as nursery, model.session():
            for _ in range(110):
                nursery.start_soon(model.respond, REQUEST, ignore)
        assert server.accepted == 110
    assert trio.current_time() - start < 2


async def test_a_refused_connection_names_the_url_and_the_fix(sockets):
    before = sockets()
    async with ProviderServer() as server:
        model = model_at(server)
    with pytest.raises(UnreachableError, match="Connection refused - is the server running") as caught:
        await model.respond(REQUEST, ignore)

    assert model.base_url in str(caught.value)
    assert (caught.value.status, caught.value.provider) == (None, "local")
    assert isinstance(caught.value.__cause__, httpx.ConnectError)
    assert sockets() == before


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (Fault(status=401), AuthError, "OPENAI_API_KEY"),
        (Fault(status=404), ModelNotFoundError, "'m'"),
        (Fault(status=429, headers={"Retry-After": "7"}), RateLimitError, "wait 7 s"),
        (
            Fault(status=503, body="<html><title>Down</title>", headers={"content-type": "text/html"}),
            OverloadedError,
            "Down",
        ),
        (
            Fault(status=307, headers={"Location": "https://x.example/v1"}, body=""),
            BadRequestError,
            "https://x.example/v1",
        ),
        (Fault(body="<html><title>Shop</title>"), ModelNotFoundError, "Shop"),
        (Fault(body={"error": {"message": "slow down", "code": 429}}), RateLimitError, "slow down"),
        (Fault(body=b""), BrokenStreamError, "before the finish reason"),
        (Fault(cut_after=250), BrokenStreamError, "without sending complete message body"),
        (Fault(cut_after=250, chunked=False), BrokenStreamError, "before the finish reason"),
        (Fault(cut_after=0), BrokenStreamError, "without sending complete message body"),
    ],
)
async def test_a_failure_is_an_error_of_its_class(fault, kind, text, sockets):
    before = sockets()
    async with ProviderServer([fault]) as server:
        with pytest.raises(kind) as caught:
            await model_at(server).respond(REQUEST, ignore)
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 0

    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert len(server.requests) == 1
    assert sockets() == before


async def test_retry_after_and_the_request_id_are_on_the_error():
    async with ProviderServer([Fault(status=429, headers={"retry-after-ms": "1500"})]) as server:
        with pytest.raises(RateLimitError) as caught:
            await model_at(server).respond(REQUEST, ignore)

    assert (caught.value.retry_after, caught.value.request_id, caught.value.status) == (1.5, "req_scripted", 429)


async def test_a_connection_closed_before_the_answer_is_tried_again_at_once(autojump_clock):
    """llama.cpp closes connections it promised to keep: the request on it was never answered."""
    emitted = []
    async with ProviderServer(["first", Fault(drop=True), "second"]) as server:
        model = model_at(server)
        async with model.session():
            replies = [await model.respond(REQUEST, emitted.append) for _ in range(2)]
    assert trio.current_time() < 1

    assert [reply.text for reply in replies] == ["first", "second"]
    assert [reply.usage.requests for reply in replies] == [1, 2]
    retries = [event for event in emitted if isinstance(event, ModelEvent)]
    assert [(retry.kind, retry.data["attempt"]) for retry in retries] == [("retry", 2)]
    assert "Server disconnected" in retries[0].text


async def test_a_server_that_closes_kept_connections_does_no_harm():
    """Whichever comes first, its goodbye or the next request."""
    async with ProviderServer([Fault(close=True)] * 50) as server:
        model = model_at(server)
        async with model.session():
            replies = [await model.respond(REQUEST, ignore) for _ in range(25)]

    assert {reply.text for reply in replies} == {"Hello."}


async def test_a_connection_closed_twice_is_an_error(sockets):
    before = sockets()
    emitted = []
    async with ProviderServer([Fault(drop=True)] * 2) as server:
        with pytest.raises(
            BrokenStreamError, match=r"closed the connection without an answer.*[(]tried 2 times[)]"
        ) as caught:
            await model_at(server).respond(REQUEST, emitted.append)

    assert type(caught.value) is BrokenStreamError
    assert isinstance(caught.value.__cause__, httpx.RemoteProtocolError)
    assert [event.kind for event in emitted] == ["retry"]
    assert sockets() == before


@pytest.mark.parametrize("price", [None, Price(1, 1)])
async def test_the_tokens_of_an_attempt_that_failed_are_on_the_error(price):
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    async with ProviderServer([Fault(body=event("Hi") + usage), Fault(body=event("Hi"))]) as server:
        model = model_at(server, provider="x", price=price)
        with pytest.raises(BrokenStreamError) as told:
            await model.respond(REQUEST, ignore)
        with pytest.raises(BrokenStreamError) as untold:
            await model.respond(REQUEST, ignore)

    cost = Decimal(5) / 1_000_000 if price else Decimal(0)  # A local server is free.
    assert told.value.usage == Usage(3, 2, requests=1, cost=cost)
    # How many tokens half an answer had, nobody knows.
    assert untold.value.usage == Usage(requests=1, cost=None if price else 0)


async def test_an_answer_that_began_is_not_sent_again():
    async with ProviderServer([Fault(cut_after=1)]) as server:
        with pytest.raises(BrokenStreamError):
            await model_at(server).respond(REQUEST, ignore)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "seconds", "limit"),
    [
        (Fault(wait=10_000), 600, "first_byte"),
        (Fault(stall=True, cut_after=0), 600, "first_byte"),
        (Fault(stall=True, cut_after=250), 120, "read"),
    ],
)
async def test_a_silent_server_is_given_up_and_the_error_names_the_limit(
    fault, seconds, limit, autojump_clock, sockets
):
    before = sockets()
    async with ProviderServer([fault]) as server:
        with pytest.raises(BrokenStreamError, match=f"{seconds} s [(]limit: {limit}[)]"):
            await model_at(server).respond(REQUEST, ignore)
    assert seconds <= trio.current_time() < seconds + 2
    assert sockets() == before


async def test_comments_keep_a_slow_answer_alive(autojump_clock):
    body = ": ping\n\n" * 10 + event("slow", "stop")
    async with ProviderServer([Fault(body=body, chunk_size=8)], delay=100) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "slow"
    assert trio.current_time() > 1_000


async def test_an_error_answer_that_never_ends_is_read_for_a_while_only(autojump_clock):
    fault = Fault(status=503, stall=True, body='{"error": {"message": "half', cut_after=100)
    async with ProviderServer([fault]) as server:
        with pytest.raises(OverloadedError, match="half"):
            await model_at(server).respond(REQUEST, ignore)
    assert trio.current_time() < 11


async def test_an_endless_error_answer_is_not_read_to_its_end():
    async with ProviderServer([Fault(status=500, body=b"x" * 1_000_000, chunk_size=10_000)]) as server:
        with pytest.raises(OverloadedError):
            await model_at(server).respond(REQUEST, ignore)


async def test_after_the_finish_reason_a_socket_that_stays_open_costs_half_a_second(autojump_clock, sockets):
    before = sockets()
    async with ProviderServer([Fault(body=event("Hi", "stop"), stall=True)]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)
    assert trio.current_time() <= 0.51
    assert reply.text == "Hi"
    assert sockets() == before


def google_event(text, finish=None):
    reason = "" if finish is None else f',"finishReason":"{finish}"'
    usage = '"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":5}'
    return f'data: {{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}]}}{reason}}}],{usage}}}\n\n'


def one_by_one(*events):
    """The events, as long as each other, and that length: the size of an HTTP chunk."""
    size = max(map(len, events))
    return "".join([text[:-2] + " " * (size - len(text)) + "\n\n" for text in events]), size


@pytest.mark.parametrize("pause", [0.2, 5.0])
@pytest.mark.parametrize("make", [event, google_event], ids=["chat", "google"])
@pytest.mark.parametrize("reasons", ["every", "empty ones first"])
async def test_a_finish_reason_that_more_content_follows_ends_nothing(reasons, make, pause, autojump_clock):
    """Some servers put one on every chunk, or on empty ones before all content. Who errs once isn't believed again."""
    stop = "STOP" if make is google_event else "stop"
    words = [f"word{number} " for number in range(10)]
    if reasons == "every":
        events = [make(word, stop) for word in ["", *words]]
    else:
        events = [make("", stop), make("", stop), *[make(word) for word in words], make("", stop)]
    body, size = one_by_one(*events)
    async with ProviderServer([body.encode()], delay=pause, chunk_size=size) as server:
        if make is google_event:
            model = Google("gemini-2.5-flash", base_url=server.origin, api_key="k", retries=0)
        else:
            model = model_at(server)
        reply = await model.respond(REQUEST, ignore)

    assert reply.text == "".join(words)


async def test_content_may_come_a_while_behind_a_chunk_with_usage(autojump_clock):
    usage = ',"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    events = [event(word, "stop").removesuffix("}\n\n") + usage for word in ("one ", "two")]
    body, size = one_by_one(*events)
    async with ProviderServer([body.encode()], delay=0.2, chunk_size=size) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "one two"


async def test_where_finish_reasons_are_on_every_chunk_a_broken_connection_is_a_broken_answer(autojump_clock):
    body, size = one_by_one(*[event(word, "stop") for word in ("one ", "two ", "three")])
    fault = Fault(body=body, cut_after=2 * size, chunk_size=size)
    async with ProviderServer([fault]) as server:
        with pytest.raises(BrokenStreamError, match="broke off its answer"):
            await model_at(server).respond(REQUEST, ignore)


async def test_usage_alone_behind_a_finish_reason_ends_the_answer_at_once(autojump_clock):
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    body = event("Hi") + event(None, "stop") + usage
    async with ProviderServer([Fault(body=body, stall=True)]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)
    assert trio.current_time() <= 0.06
    assert (reply.text, reply.usage.output_tokens) == ("Hi", 2)


async def test_done_without_a_finish_reason_is_called_what_it_is(autojump_clock):
    """Not a silence of so many seconds: it took 0.05 s."""
    async with ProviderServer([Fault(body=event("Hi") + "data: [DONE]\n\n", stall=True)]) as server:
        with pytest.raises(BrokenStreamError, match="ended its answer before the finish reason"):
            await model_at(server).respond(REQUEST, ignore)
    assert trio.current_time() <= 0.06


def chunked(*pieces, end=b"zz\r\n"):
    """An HTTP answer whose chunks come in one segment with what is none."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]) + end


async def test_what_emit_raised_comes_out_whatever_becomes_of_the_connection(autojump_clock):
    class UIError(Exception):
        pass

    def emit(event):
        if isinstance(event, TextDelta):
            raise UIError

    async with ProviderServer([Fault(garbage=chunked(event("Hi").encode())), "Again."]) as server:
        with pytest.raises(UIError):
            await model_at(server, retries=4).respond(REQUEST, emit)

    assert len(server.requests) == 1


async def test_an_error_that_was_stated_is_the_error_whatever_becomes_of_the_connection(autojump_clock):
    stated = b'data: {"error":{"message":"maximum context length is 10","code":"context_length_exceeded"}}\n\n'
    async with ProviderServer([Fault(garbage=chunked(event("Hi").encode(), stated)), "Again."]) as server:
        with pytest.raises(ContextTooLongError):
            await model_at(server, retries=4).respond(REQUEST, ignore)

    assert len(server.requests) == 1


DEEP = "[" * 1_000 + "]" * 1_000
GARBAGE = [
    (
        OpenAICompatible,
        '{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1e999}}',
    ),
    (OpenAICompatible, f'{{"error":{{"x":{DEEP}}}}}'),
    (OpenAICompatible, f'{{"error":{{"message":"x","code":{DEEP}}}}}'),
    (OpenAICompatible, f'{{"choices":[{{"delta":{{"content":"Hi"}},"finish_reason":{DEEP}}}]}}'),
    (OpenAICompatible, '{"error":{"message":"\\ud800","code":400}}'),
    (
        OpenAICompatible,
        '{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":'
        + DEEP
        + '}}}]},"finish_reason":"stop"}]}',
    ),
    (Anthropic, '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1e999}}'),
    (Anthropic, f'{{"type":"message_delta","delta":{{"stop_reason":{DEEP}}},"usage":{{}}}}'),
    (
        Anthropic,
        '{"type":"content_block_start","index":0,"content_block":'
        f'{{"type":"tool_use","id":"a","name":"f","input":{{"x":{DEEP}}}}}}}',
    ),
    (Google, '{"candidates":[{"finishReason":"SAFETY"}],"usageMetadata":{"promptTokenCount":1e999}}'),
    (Google, f'{{"candidates":[{{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":{DEEP}}}]}}'),
    (Google, f'{{"error":{{"status":"INTERNAL","message":{DEEP}}}}}'),
    (OpenAI, f'{{"type":"error","message":{DEEP}}}'),
    (
        OpenAI,
        '{"type":"response.completed","response":{"output":[{"type":"web_search_call","x":1e999}],'
        f'"usage":{{"input_tokens":1e999,"output_tokens":{DEEP}}}}}}}',
    ),
]


@pytest.mark.parametrize(("kind", "document"), GARBAGE, ids=lambda value: getattr(value, "__name__", str(value)[:40]))
@pytest.mark.parametrize("status", [200, 500])
async def test_no_garbage_gives_another_error_than_the_providers(kind, document, status):
    """Infinite numbers, lists a thousand deep, half a character: a reply, or a ProviderError that can be shown."""
    body = f"data: {document}\n\n" if status == 200 else document
    async with ProviderServer([Fault(status=status, body=body)]) as server:
        url = server.base_url if kind in (OpenAI, OpenAICompatible) else server.origin
        model = kind("m", base_url=url, api_key="", retries=0)
        try:
            told = (await model.respond(REQUEST, ignore)).stop_reason or ""
        except ProviderError as error:
            told = f"{error} {error.body}"

    assert told.encode()


LONG_KEY = "sk-proj-ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@pytest.mark.parametrize("before", [150, 170, 180, 190, 460, 470, 490, 1_920, 1_980])
@pytest.mark.parametrize(
    "answer",
    [
        'data: {"error":{"message":"@","code":"invalid_api_key"}}\n\n',
        'data: {"error":{"message":"bad","code":"invalid_api_key","param":"@"}}\n\n',
        "data: @\n\n",
        "event: error\ndata: @\n\n",
        "<html><p>@</p></html>",
        '{"error":{"message":"@"}}',
    ],
)
@pytest.mark.parametrize("kind", [OpenAICompatible, OpenAI, Anthropic, Google], ids=lambda kind: kind.__name__)
async def test_no_error_shows_a_part_of_the_key(kind, answer, before):
    """Whatever is shortened, the key is taken out first."""
    body = answer.replace("@", f"{'y' * before} {LONG_KEY} {'y' * 3_000}")
    async with ProviderServer([body.encode()]) as server:
        url = server.base_url if kind in (OpenAI, OpenAICompatible) else server.origin
        with pytest.raises(ProviderError) as caught:
            await kind("m", base_url=url, api_key=LONG_KEY, retries=0).respond(REQUEST, ignore)

    assert "sk-proj" not in f"{caught.value} {caught.value.body}"


async def test_no_broken_connection_shows_a_part_of_the_key():
    garbage = b"HTTP/1.1 200 OK\r\n" + b"y" * 440 + b" " + LONG_KEY.encode() + b"\r\n\r\n"
    async with ProviderServer([Fault(garbage=garbage)] * 2) as server:
        with pytest.raises(ProviderError) as caught:
            await model_at(server, api_key=LONG_KEY).respond(REQUEST, ignore)

    assert "sk-proj" not in str(caught.value)


@pytest.mark.parametrize("body", [event("Hi"), 'data: {"error":{"message":"melted","code":500}}\n\n'])
async def test_an_error_in_a_stream_has_the_id_of_its_request(body):
    async with ProviderServer([Fault(body=body)]) as server:
        with pytest.raises(ProviderError) as caught:
            await model_at(server).respond(REQUEST, ignore)

    assert caught.value.request_id == "req_scripted"


async def test_an_error_answer_whose_body_stalls_is_that_error_when_the_time_is_over(autojump_clock):
    async with ProviderServer([Fault(status=401, body='{"error":', stall=True)]) as server:
        with pytest.raises(AuthError) as caught:
            await model_at(server, timeout=5).respond(REQUEST, ignore)

    assert caught.value.status == 401
    assert trio.current_time() == pytest.approx(5, abs=0.1)


async def cancelled_after(seconds, model):
    """Return what a cancelled request says it used."""
    told = []
    with trio.move_on_after(seconds):
        try:
            await model.respond(REQUEST, ignore)
        except BaseException as error:  # Connecting, trio puts Cancelled into a group.
            told.append(getattr(error, "usage", None))
            raise
    return told


async def test_a_request_that_is_cancelled_before_the_answer_counts(autojump_clock):
    """G2: the server has it, and what it bills for it, nobody knows."""
    async with ProviderServer([Fault(wait=60)]) as server:
        model = model_at(server, provider="x", price=Price(1, 1))
        assert await cancelled_after(30, model) == [Usage(requests=1, cost=None)]
        assert len(server.requests) == 1


async def test_a_request_that_is_cancelled_while_it_connects_does_not_count(autojump_clock):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        told = await cancelled_after(1, OpenAICompatible("m", base_url=url))
        for one in waiting:
            one.close()

    assert told == [None]


async def test_the_cost_of_an_attempt_whose_tokens_nobody_told_is_not_known(autojump_clock):
    """G2: None, not 0, and so in the sum with it. An error answer costs nothing."""
    whole = Reply([TextBlock("ok")], usage=Usage(10, 5, requests=1))
    async with ProviderServer([Fault(body=event("Hi")), whole, Fault(status=503), whole]) as server:
        model = model_at(server, provider="x", price=Price(3, 15), retries=1)
        unknown, known = [await model.respond(REQUEST, ignore) for _ in range(2)]

    assert unknown.usage == Usage(10, 5, requests=2, cost=None)
    assert known.usage == Usage(10, 5, requests=2, cost=Price(3, 15).cost(Usage(10, 5)))


async def test_a_reply_names_the_model_that_was_asked_where_the_server_names_none():
    async with ProviderServer([event("Hi", "stop").encode()]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.model == "m"


CALL = {"type": "function_call", "id": "fc", "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": [CALL]}
FILTERED_CALLS = {
    OpenAICompatible: [
        {"choices": [{"delta": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "content_filter"}]},
    ],
    Google: [
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}, "finishReason": "SAFETY"}]},
    ],
    OpenAI: [
        {"type": "response.output_item.done", "output_index": 0, "item": CALL},
        {"type": "response.incomplete", "response": FILTERED},
    ],
    Anthropic: [
        {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "a", "name": "f", "input": {}}},
        {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {}},
        {"type": "message_stop"},
    ],
}


@pytest.mark.parametrize("kind", FILTERED_CALLS, ids=lambda kind: kind.__name__)
async def test_calls_of_a_reply_that_a_filter_ended_do_not_run(kind):
    body = "".join([f"data: {json.dumps(document)}\n\n" for document in FILTERED_CALLS[kind]])
    async with ProviderServer([body.encode()]) as server:
        url = server.base_url if kind in (OpenAI, OpenAICompatible) else server.origin
        reply = await kind("gemini-2.5-flash", base_url=url, api_key="k", retries=0).respond(REQUEST, ignore)

    assert reply.refusal
    assert reply.blocks == ()


async def test_an_empty_refusal_beside_an_answer_is_none():
    """Some servers send the field with every delta."""
    said = {"choices": [{"delta": {"content": "Hi", "refusal": ""}, "finish_reason": "stop"}]}
    async with ProviderServer([f"data: {json.dumps(said)}\n\n".encode()]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert (reply.text, reply.refusal) == ("Hi", False)


async def test_after_done_the_reply_is_there_at_once(autojump_clock):
    async with ProviderServer([Fault(body=event("Hi", "stop") + "data: [DONE]\n\n", stall=True)]) as server:
        await model_at(server).respond(REQUEST, ignore)
    assert trio.current_time() <= 0.06


async def test_usage_behind_the_finish_reason_is_waited_for(autojump_clock):
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    finish = event("Hi", "stop")
    async with ProviderServer([Fault(body=finish + usage, chunk_size=len(finish), stall=True)], delay=0.4) as server:
        reply = await model_at(server).respond(REQUEST, ignore)
    assert reply.usage.output_tokens == 2
    assert trio.current_time() <= 0.46


async def test_a_connection_that_breaks_behind_the_finish_reason_breaks_nothing():
    body = event("Hi", "stop") + ": and then"
    async with ProviderServer([Fault(body=body, cut_after=len(body))]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)
    assert reply.text == "Hi"


@pytest.mark.parametrize("fault", [Fault(stall=True, cut_after=250), Fault(wait=1_000), Fault(stall=True, cut_after=0)])
async def test_cancelling_a_request_closes_its_connection_at_once(fault, autojump_clock, sockets):
    before = sockets()
    async with ProviderServer([fault]) as server:
        model = model_at(server)
        async with model.session():
            open_before = sockets()
            with trio.move_on_after(5) as scope:
                await model.respond(REQUEST, ignore)
            assert scope.cancelled_caught
            assert trio.current_time() == 5
            assert sockets() <= open_before + 1  # The server's end, which sees it as soon as it runs.
            if not fault.wait:
                await trio.testing.wait_all_tasks_blocked()
                assert server.connections == 0
    assert sockets() == before


async def test_cancelling_many_requests_leaves_no_connection(autojump_clock, sockets):
    before = sockets()
    async with ProviderServer([Fault(stall=True, cut_after=250)] * 30) as server:
        model = model_at(server)
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(model.respond, REQUEST, ignore)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(server.requests), server.connections) == (30, 0)
    assert sockets() == before


async def test_a_session_that_is_cancelled_closes_its_connections(sockets):
    before = sockets()
    async with ProviderServer(["Hi"]) as server:
        model = model_at(server)
        with trio.CancelScope() as scope:
            async with model.session():
                await model.respond(REQUEST, ignore)
                scope.cancel()
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == 0
    assert sockets() == before


async def test_what_emit_raises_comes_out_as_it_is(sockets):
    before = sockets()
    gc.collect()

    emitted = []

    def emit(event):
        emitted.append(event)
        raise LookupError("mine")

    async with ProviderServer(["Hello there, you all. " * 20]) as server:
        with pytest.raises(LookupError, match="mine"):
            await model_at(server).respond(REQUEST, emit)
    gc.collect()  # A generator left half read would warn here.
    assert len(emitted) == 1
    assert sockets() == before


async def test_what_emit_raises_for_a_whole_document_comes_out_as_it_is():
    def emit(event):
        raise LookupError("mine")

    message = {"role": "assistant", "content": "Hi"}
    async with ProviderServer([Fault(body={"choices": [{"message": message, "finish_reason": "stop"}]})]) as server:
        with pytest.raises(LookupError, match="mine"):
            await model_at(server).respond(REQUEST, emit)


async def test_a_server_that_does_not_stream_is_understood():
    message = {"role": "assistant", "content": "Hi"}
    async with ProviderServer([Fault(body={"choices": [{"message": message, "finish_reason": "stop"}]})]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)
    assert reply.text == "Hi"


async def test_compressed_answers_are_not_asked_for_but_understood():
    body = gzip.compress(event("Hi", "stop").encode())
    async with ProviderServer([Fault(body=body, headers={"content-encoding": "gzip"})]) as server:
        reply = await model_at(server).respond(REQUEST, ignore)

    assert reply.text == "Hi"
    assert server.requests[0].headers["accept-encoding"] == "identity"


# httpx leaves its own generators half read when it can't decode, and trio says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_answer_that_is_wrongly_compressed_is_a_broken_stream():
    async with ProviderServer([Fault(body="this is no gzip", headers={"content-encoding": "gzip"})]) as server:
        with pytest.raises(BrokenStreamError, match="incorrect header"):
            await model_at(server).respond(REQUEST, ignore)


def echo_key(request):
    return Fault(status=401, body={"error": {"message": f"wrong key: {request.headers['authorization']}", "x": KEY}})


@pytest.mark.parametrize(
    "answer",
    [
        echo_key,
        Fault(status=401, body=f"{'x' * 1_990}{KEY}"),
        f'data: {{"error": {{"message": "wrong key {KEY}"}}}}\n\n'.encode(),
        Fault(drop=True),
        Fault(cut_after=250),
    ],
)
async def test_the_key_is_in_no_error_nor_in_what_caused_it(answer):
    async with ProviderServer([answer, answer]) as server:
        model = model_at(server, api_key=KEY, extra_headers={"x-key": KEY + "2"})
        with pytest.raises(ProviderError) as caught:
            await model.respond(REQUEST, ignore)

    assert_hidden(caught.value)
    assert KEY[:-3] not in repr(model)


async def test_the_key_is_not_in_the_error_of_a_refused_connection():
    async with ProviderServer() as server:
        model = model_at(server, api_key=KEY)
    with pytest.raises(ProviderError) as caught:
        await model.respond(REQUEST, ignore)

    assert_hidden(caught.value)


def assert_hidden(error):
    """Not in texts, fields, requests, nor the local variables of any frame that a crash reporter would send."""
    shown = f"{error.body} {error.request_id}"
    link = error
    while link is not None:
        shown += f"{link} {link!r} {link.args} {vars(link)}"
        if isinstance(link, httpx.HTTPError):
            shown += f"{link.request.headers.raw} {link.request.url}"
        frames = traceback.StackSummary.extract(traceback.walk_tb(link.__traceback__), capture_locals=True)
        shown += "".join([f"{frame.name} {frame.locals}" for frame in frames if frame.filename != __file__])
        link = link.__cause__ or link.__context__
    assert "exchange" in shown  # The frames are there.
    assert KEY[:-3] not in shown


async def test_an_error_does_not_reach_into_what_the_caller_is_handling():
    """The chain of causes ends in the caller's own exception, whose traceback is the caller's."""
    async with ProviderServer() as server:
        model = model_at(server)
    mine = KeyError("mine")

    async def respond_while_handling():
        try:
            raise mine
        except KeyError:
            await model.respond(REQUEST, ignore)

    with pytest.raises(ProviderError) as caught:
        await respond_while_handling()

    assert mine.__traceback__ is not None
    assert "mine" not in str(caught.value)


async def test_a_proxy_that_is_down_is_a_provider_error(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(ProviderError, match="no connection"):
        await OpenAICompatible("m", base_url="http://model.invalid/v1", retries=0).respond(REQUEST, ignore)


async def test_a_host_that_does_not_exist_is_a_provider_error():
    with pytest.raises(ProviderError, match=r"no connection to http://model\.invalid/v1"):
        await OpenAICompatible("m", base_url="http://model.invalid/v1", retries=0).respond(REQUEST, ignore)


@pytest.mark.parametrize("host", ["\u2603.example", "xn--"])
async def test_a_host_that_no_dns_can_have_is_a_provider_error(host):
    with pytest.raises(ProviderError, match="the request can't be sent"):
        await OpenAICompatible("m", base_url=f"http://{host}/v1", retries=0).respond(REQUEST, ignore)


async def test_a_connection_that_is_not_taken_is_given_up_and_the_error_names_the_limit(autojump_clock, sockets):
    before = sockets()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]  # They fill the queue, so that no more come in.
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        model = OpenAICompatible("m", base_url=f"http://127.0.0.1:{address[1]}/v1", retries=0)
        with pytest.raises(UnreachableError, match=r"none within 10 s [(]limit: connect[)]"):
            await model.respond(REQUEST, ignore)
        for one in waiting:
            one.close()
    assert 10 <= trio.current_time() < 11
    assert sockets() == before


async def test_plain_http_spoken_to_an_https_url_is_a_provider_error():
    async with ProviderServer() as server:
        url = server.base_url.replace("http:", "https:")
        with pytest.raises(ProviderError, match=r"no connection .*SSL"):
            await OpenAICompatible("m", base_url=url, retries=0).respond(REQUEST, ignore)


async def test_respond_is_a_checkpoint():
    async with ProviderServer(["Hi"]) as server:
        with trio.testing.assert_checkpoints():
            await model_at(server).respond(REQUEST, ignore)
