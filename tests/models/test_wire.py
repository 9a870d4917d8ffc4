"""Answers that aren't event streams, and errors by their class."""

import json

import pytest

from alpineagents import (
    AuthError,
    BadRequestError,
    BrokenStreamError,
    ContextTooLongError,
    ModelNotFoundError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    Request,
    TextBlock,
    TextDelta,
    ToolCall,
)
from alpineagents.models._openai_chat import ChatWire
from alpineagents.models._sse import Event
from alpineagents.models._wire import MAX_EXCERPT, Endpoint, Settings, retry_after

URL = "http://127.0.0.1:8080/v1"
WIRE = ChatWire(Endpoint("here", URL, "smollm2", "pass api_key="), Settings())
PAGE = b"<!DOCTYPE html><html><head><title>502 Bad\n Gateway &amp; more</title></head><body>nginx</body></html>"


def failure(status: int, body: object, **headers: str) -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return WIRE.failure(status, headers, raw, None)


def openai_error(message: str, kind: str = "invalid_request_error", code: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


LLAMA_CONTEXT = {
    "error": {
        "code": 400,
        "message": "request (20031 tokens) exceeds the available context size (2048 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 20031,
        "n_ctx": 2048,
    }
}
VLLM_CONTEXT = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (401, openai_error("Incorrect API key provided."), AuthError, "Incorrect API key"),
        (403, {"error": {"code": 403, "message": "flagged"}}, AuthError, "flagged"),
        (404, openai_error("The model `x` does not exist", code="model_not_found"), ModelNotFoundError, "not exist"),
        (404, {"error": {"message": "File Not Found", "code": 404}}, ModelNotFoundError, "File Not Found"),
        (404, {"error": "model 'x' not found, try pulling it first"}, ModelNotFoundError, "try pulling"),
        (400, {"object": "error", "message": "Invalid model: x", "type": "invalid_model"}, ModelNotFoundError, "x"),
        (400, LLAMA_CONTEXT, ContextTooLongError, "n_prompt_tokens 20031, n_ctx 2048"),
        (400, openai_error("Too long.", code="context_length_exceeded"), ContextTooLongError, "Too long."),
        (400, {"object": "error", "message": VLLM_CONTEXT, "code": 400}, ContextTooLongError, "4096"),
        (400, [{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}], BadRequestError, "bad"),
        (402, {"error": {"code": 402, "message": "no credit"}}, BadRequestError, "no credit"),
        (408, {"error": {"message": "too slow"}}, OverloadedError, "too slow"),
        (413, b"Payload Too Large", BadRequestError, "Payload Too Large"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, BadRequestError, "field required"),
        (429, openai_error("Rate limit. Reduce the length of the messages."), RateLimitError, "Rate limit"),
        (500, {"error": {"code": 500, "message": "image input is not supported"}}, OverloadedError, "image input"),
        (502, PAGE, OverloadedError, "an HTML page, not JSON: 502 Bad Gateway & more"),
        (
            503,
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
            OverloadedError,
            "Load",
        ),
        (529, {"message": "busy"}, OverloadedError, "busy"),
        (500, b"", OverloadedError, "(no message)"),
        (500, b"<nginx>", OverloadedError, "<nginx>"),
        (500, b"[]", OverloadedError, "[]"),
        (500, {"error": {}}, OverloadedError, "{"),
        (500, {"error": {"code": None}}, OverloadedError, '{"code":null}'),
    ],
)
def test_an_error_answer_is_an_error_of_its_class(status, body, kind, text):
    error = failure(status, body)

    assert type(error) is kind
    assert text in str(error)
    assert str(status) in str(error)
    assert "\n" not in str(error)
    assert error.status == status


def test_an_error_names_what_is_asked_where_and_how_to_mend_it():
    assert "pass api_key=" in str(failure(401, openai_error("no")))
    not_found = str(failure(404, openai_error("no")))
    assert "'smollm2'" in not_found
    assert URL in not_found
    assert "base URL" in not_found
    assert "compact" in str(failure(400, LLAMA_CONTEXT))
    assert "it asks to wait 7 s" in str(WIRE.failure(429, {}, b"{}", 7.0))


def test_an_error_keeps_the_request_id_and_an_excerpt_of_the_body():
    error = failure(500, b"x" * 5_000, **{"x-request-id": "req_1"})

    assert (error.request_id, error.provider) == ("req_1", "here")
    assert len(error.body) == MAX_EXCERPT
    assert len(str(error)) < 700


def decode_document(body: object):
    decoder = WIRE.decoder()
    deltas = decoder.feed_document(body if isinstance(body, bytes) else json.dumps(body).encode())
    return decoder.reply(), deltas


def completion(message: dict[str, object], reason: str | None = "stop") -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def test_a_server_that_does_not_stream_is_understood():
    reply, deltas = decode_document(completion({"content": "Hello."}))

    assert reply.blocks == (TextBlock("Hello."),)
    assert deltas == [TextDelta("Hello.")]
    assert (reply.usage.input_tokens, reply.stop_reason) == (3, "stop")


@pytest.mark.parametrize("reason", ["tool_calls", "stop", None, ""])
def test_the_calls_of_a_whole_message_run_whatever_the_finish_reason(reason):
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": {"path": "a"}}}
    reply, deltas = decode_document(completion({"content": None, "tool_calls": [call]}, reason))

    assert reply.blocks == (ToolCall("c1", "read", {"path": "a"}),)
    assert (deltas, reply.stop_reason) == ([], reason)


def test_surrogates_in_a_whole_message_are_joined():
    body = json.dumps(completion({"content": "\ud83d\ude00 \ud83d"})).encode()
    reply, deltas = decode_document(body)

    assert reply.text == "😀 \ufffd"
    assert [delta.text for delta in deltas] == ["😀 ", "\ufffd"]


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (openai_error("slow down", code="rate_limit_exceeded"), RateLimitError, "slow down"),
        ({"detail": "no such route"}, OverloadedError, "no such route"),
        (b"\n <html><title>Sign in</title>", ModelNotFoundError, "Sign in - is the base URL right?"),
        (b"it works!", BrokenStreamError, "before the finish reason"),
        (b"[1]", BrokenStreamError, "before the finish reason"),
        ({"choices": []}, BrokenStreamError, "before the finish reason"),
        ({"choices": "none"}, BrokenStreamError, "before the finish reason"),
        (b"[" * 100_000, BrokenStreamError, "before the finish reason"),
        (b'{"choices": NaN}', BrokenStreamError, "before the finish reason"),
    ],
)
def test_a_200_that_is_no_answer_is_an_error(body, kind, text):
    with pytest.raises(kind, match=text.replace("?", "[?]")) as caught:
        decode_document(body)

    assert caught.value.status == 200
    assert caught.value.body


@pytest.mark.parametrize(
    ("complaint", "kind"),
    [
        ({"code": 429, "message": "x"}, RateLimitError),
        ({"code": "429", "message": "x"}, RateLimitError),
        ({"code": "insufficient_quota", "message": "x"}, RateLimitError),
        ({"type": "overloaded_error", "message": "x"}, OverloadedError),
        ({"type": "authentication_error", "message": "x"}, AuthError),
        ({"type": "NotFoundError", "message": "x"}, ModelNotFoundError),
        ({"type": "invalid_request_error", "message": "x"}, BadRequestError),
        ({"type": "BadRequestError", "message": "prompt is too long"}, ContextTooLongError),
        ({"code": 42, "message": "x"}, OverloadedError),
        ("some text", OverloadedError),
        (True, OverloadedError),
    ],
)
def test_an_error_inside_a_stream_is_of_the_class_its_words_say(complaint, kind):
    """B6: its HTTP status is 200, so retry and fallback go by the class."""
    decoder = WIRE.decoder()
    decoder.feed([Event("", json.dumps({"error": complaint}).encode())])
    with pytest.raises(kind) as caught:
        decoder.reply()

    assert decoder.complete
    assert caught.value.status == 200


def test_an_error_event_may_hold_anything():
    for data in (b'"boom"', b"boom", b'{"reason": "boom"}', b'{"message": "boom"}'):
        decoder = WIRE.decoder()
        decoder.feed([Event("error", data)])
        assert isinstance(decoder.failure, OverloadedError)
        assert "boom" in str(decoder.failure)


def test_what_comes_behind_a_failure_is_not_taken():
    decoder = WIRE.decoder()
    content = json.dumps({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}).encode()

    assert decoder.feed([Event("", b'{"error": "boom"}'), Event("", content)]) == []
    with pytest.raises(OverloadedError):
        decoder.reply()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 41 Jan 1970 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers, seconds):
    assert retry_after(headers, now=100.0) == seconds


def test_a_request_is_made_by_the_wire_alone():
    """Pure: no event loop, no client, no key."""
    assert json.loads(WIRE.encode(Request(messages=[])))["messages"] == [
        {"role": "user", "content": "(nothing said yet)"}
    ]
