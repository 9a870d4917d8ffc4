"""The scripted provider itself: what it refuses, what it records, how it ends."""

import httpx
import pytest
import trio

from alpineagents import Reply, TextBlock, ToolCall
from alpineagents.testing._formats._chat_rules import problems
from alpineagents.testing._provider_server import Fault, ProviderServer

from ..run.test_cancellation import interrupted_at_each_moment

USER = {"role": "user", "content": "Hi"}
FUNCTION = {"name": "read", "arguments": "{}"}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "x"}
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


LONG_CALL = {**CALLS, "tool_calls": [{**CALL, "id": "c" * 41}]}
LONG_RESULT = {**RESULT, "tool_call_id": "c" * 41}


def strict(schema):
    return {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}


async def post(server, **body):
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(f"{server.base_url}/chat/completions", json={"model": "m", "messages": [USER], **body})


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"max_token": 3}, "Unrecognized request argument supplied: max_token"),
        ({"model": ""}, "you must provide a model"),
        ({"messages": []}, "too short"),
        ({"messages": ["Hi"]}, "unknown role None"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "unknown role 'wizard'"),
        ({"messages": [{**USER, "text": "x"}]}, "unknown field 'text'"),
        ({"messages": [{"role": "user", "content": " "}]}, "non-empty"),
        ({"messages": [{"role": "user", "content": None}]}, "non-empty"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "non-empty"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "unsupported part"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "unsupported part"),
        ({"messages": [USER, {"role": "assistant", "content": None}]}, "non-empty"),
        ({"messages": [USER, {**CALLS, "content": ""}, RESULT]}, "non-empty"),
        ({"messages": [USER, RESULT]}, "must answer"),
        ({"messages": [USER, CALLS]}, "no tool message answers c1"),
        ({"messages": [USER, CALLS, USER, RESULT]}, "no tool message answers c1"),
        ({"messages": [USER, CALLS, RESULT, RESULT]}, "must answer"),
        ({"messages": [USER, CALLS, {**RESULT, "content": [{"type": "image_url", "image_url": {}}]}]}, "text only"),
        ({"messages": [USER, {**CALLS, "tool_calls": [CALL, CALL]}, RESULT, RESULT]}, "one id"),
        ({"messages": [USER, {**CALLS, "tool_calls": [{**CALL, "id": ""}]}, RESULT]}, "needs an id"),
        ({"messages": [USER, {**CALLS, "tool_calls": [{**CALL, "function": {}}]}, RESULT]}, "function name None"),
        (
            {
                "messages": [
                    USER,
                    {**CALLS, "tool_calls": [{**CALL, "function": {**FUNCTION, "arguments": "["}}]},
                    RESULT,
                ]
            },
            "JSON object",
        ),
        ({"messages": [USER, USER]}, "roles must alternate"),
        ({"model": "gpt-5", "max_tokens": 5}, "Use 'max_completion_tokens'"),
        ({"model": "openai/o3", "temperature": 0.2}, "'temperature' does not support 0.2"),
        ({"temperature": 5}, "from 0 to 2"),
        ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled"),
        ({"model": "gpt-4.1", "messages": [USER, LONG_CALL, LONG_RESULT]}, "longer than 40"),
        ({"response_format": strict({"type": "object"})}, "'additionalProperties' is required"),
        ({"response_format": strict({"type": "array", "items": {"type": "object"}})}, "'additionalProperties' is"),
        (
            {
                "response_format": strict(
                    {"type": "object", "properties": {"x": {"type": "null"}}, "additionalProperties": False}
                )
            },
            "'required' must include every key",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]}, "must be an object"),
        ({"tools": []}, "too short"),
        ({"tools": TOOLS * 2}, "one name"),
        ({"tool_choice": "auto"}, "only allowed"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "invalid tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "not found in 'tools'"),
    ],
)
async def test_what_a_provider_would_refuse_is_refused_in_its_form(body, problem):
    async with ProviderServer(["never"]) as server:
        response = await post(server, **body)

    assert response.status_code == 400
    error = response.json()["error"]
    assert problem in error["message"]
    assert error["type"] == "invalid_request_error"


def test_all_problems_of_a_request_are_found():
    assert list(problems([])) == ["the body is not a JSON object"]
    assert list(problems({"a": 1, "b": 2, "messages": []})) == [
        "Unrecognized request argument supplied: a",
        "Unrecognized request argument supplied: b",
        "you must provide a model parameter",
        "[] is too short - 'messages'",
    ]


async def test_a_wrong_key_is_refused():
    async with ProviderServer(["never"], api_key="sk-right") as server:
        response = await post(server)

    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_a_request_without_json_is_refused():
    async with ProviderServer(["never"]) as server, httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(f"{server.base_url}/chat/completions", content=b"{")

    assert response.status_code == 400


async def test_what_is_right_is_answered():
    choice = {"type": "function", "function": {"name": "read"}}
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": parts}, CALLS, RESULT, USER]
    async with ProviderServer(["Hi"]) as server:
        response = await post(server, messages=messages, tools=TOOLS, tool_choice=choice)

    assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "Hi"}
    assert server.requests[0].body["messages"] == messages


async def test_strictness_can_be_switched_off():
    async with ProviderServer(["Hi"], strict=False) as server:
        response = await post(server, top_k=3)

    assert response.status_code == 200


async def test_without_streaming_it_answers_in_one_document():
    call = ToolCall("c1", "read", None, "{")
    async with ProviderServer([["I look.", call]]) as server:
        choice = (await post(server)).json()["choices"][0]

    function = {"name": "read", "arguments": "{"}
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]


async def test_a_script_can_be_functions_and_can_be_lengthened():
    async with ProviderServer([lambda request: request.body["messages"][0]["content"]]) as server:
        server.add(Reply([TextBlock("cut")], cut_off=True))
        first, second = await post(server), await post(server)

    assert first.json()["choices"][0]["message"]["content"] == "Hi"
    assert second.json()["choices"][0]["finish_reason"] == "length"


async def test_a_request_too_many_is_refused_and_says_so():
    async with ProviderServer() as server:
        response = await post(server)

    assert response.status_code == 400
    assert "no answer to request 1" in response.json()["error"]["message"]


async def test_other_urls_are_not_found_and_models_are_listed():
    async with ProviderServer() as server, httpx.AsyncClient(trust_env=False) as client:
        missing = await client.get(f"{server.base_url}/nothing")
        models = await client.get(f"{server.base_url}/models")

    assert (missing.status_code, models.json()["data"][0]["id"]) == (404, "scripted")


async def test_a_mistake_in_the_script_comes_out_of_the_block():
    def script(request):
        raise LookupError("mine")

    async def use():
        async with ProviderServer([script]) as server:
            with pytest.raises(httpx.RemoteProtocolError):
                await post(server)

    with pytest.raises(LookupError, match="mine"):
        await use()


async def test_an_error_in_the_block_comes_out_as_it_is():
    async def use():
        async with ProviderServer():
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await use()


async def test_cancelling_the_block_ends_the_server(autojump_clock, sockets):
    before = sockets()
    with trio.move_on_after(1) as scope:
        async with ProviderServer([Fault(stall=True, cut_after=10)]) as server:
            await post(server, stream=True)

    assert scope.cancelled_caught
    assert sockets() == before


async def test_a_block_that_is_cancelled_before_it_begins_opens_nothing(sockets):
    before = sockets()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with ProviderServer(["Hi"]):
            raise AssertionError("it began")

    assert scope.cancelled_caught
    assert sockets() == before


def test_ctrl_c_at_any_moment_of_the_block_comes_out():
    async def main() -> None:
        async with ProviderServer(["Hi"]):
            pass

    assert interrupted_at_each_moment(main) > 5


async def test_a_client_that_speaks_no_http_does_no_harm():
    async with ProviderServer(["Hi"]) as server:
        stream = await trio.open_tcp_stream("127.0.0.1", int(server.base_url.split(":")[2].removesuffix("/v1")))
        async with stream:
            await stream.send_all(b"\x16\x03\x01 hello\r\n\r\n")
            await stream.receive_some()
        assert (await post(server)).status_code == 200


def test_a_server_that_is_not_open_has_no_address():
    """Instead of one where nobody answers, after all retries."""
    for address in ("origin", "base_url"):
        with pytest.raises(RuntimeError, match="async with provider_server as server"):
            getattr(ProviderServer(["Hi"]), address)
