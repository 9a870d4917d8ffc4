"""The scripted provider's side of the Responses API: what it refuses, and what it sends."""

import json

import httpx
import pytest

from alpineagents import RawBlock, Reply, TextBlock, ThinkingBlock, ToolCall, Usage
from alpineagents.models._responses_stream import ResponsesDecoder
from alpineagents.models._sse import SSEDecoder
from alpineagents.models._wire import Endpoint
from alpineagents.testing._formats._responses_rules import problems
from alpineagents.testing._formats._responses_thoughts import decrypted, encrypted
from alpineagents.testing._provider_server import Fault, ProviderServer

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "name": "read", "parameters": STRICT, "strict": True}
FORMAT = {"type": "json_schema", "name": "answer", "schema": STRICT, "strict": True}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "auto"}
PDF = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,eA=="}


def reasoning(follower="message", model="m", **fields):
    content = encrypted(model, "Hm.", follower)
    return {"type": "reasoning", "summary": [], "encrypted_content": content, **fields}


def body(*items, **fields):
    return {"model": "m", "input": list(items) or [USER], "store": False, **fields}


def user(*parts):
    return {**USER, "content": list(parts)}


def with_schema(**fields):
    return body(tools=[{**TOOL, "parameters": {**STRICT, **fields}}])


@pytest.mark.parametrize(
    ("request_body", "problem"),
    [
        ([], "not a JSON object"),
        (body(max_tokens=99), "Unknown parameter: 'max_tokens'."),
        (body(stop=["x"]), "Unknown parameter: 'stop'."),
        (body(seed=1), "Unknown parameter: 'seed'."),
        (body(model=""), "Missing required parameter: 'model'."),
        ({"model": "m"}, "Missing required parameter: 'input'."),
        ({"model": "m", "input": []}, "Missing required parameter: 'input'."),
        (body(user({"type": "input_text", "text": "\ud83d"})), "half of a surrogate pair"),
        (body(max_output_tokens=15), "Expected a value >= 16, but got 15"),
        (body(temperature=2.1), "Invalid 'temperature'"),
        (body(previous_response_id="resp_1"), "not found"),
        (body(instructions=""), "Invalid 'instructions'"),
        (body(include=["reasoning.content"]), "in 'include'"),
        (body(model="gpt-4o", include=["reasoning.encrypted_content"]), "Encrypted content is not supported"),
        (body(model="gpt-4o", reasoning={"effort": "low"}), "'reasoning' is not supported with this model"),
        (body(reasoning={"budget": 3}), "Unknown parameter: 'reasoning.budget'."),
        (body(reasoning={"effort": "huge"}), "Invalid value: 'huge'"),
        (body(reasoning={"summary": "long"}), "Invalid value: 'long'"),
        (body(text=[]), "Invalid 'text'"),
        (body(text={"format": {**FORMAT, "json_schema": 1}}), "Unknown parameter in 'text.format'"),
        (body(text={"format": {**FORMAT, "name": "a b"}}), "Invalid 'text.format.name'"),
        (body(text={"format": {**FORMAT, "schema": None}}), "'text.format.schema'"),
        (body(text={"format": {**FORMAT, "schema": {**STRICT, "required": []}}}), "Invalid schema for response_format"),
        (body(tools=["x"]), "Invalid value in 'tools'"),
        (body(tools=[{"type": "function", "function": {}}]), "Unknown parameter: 'tools.function'"),
        (body(tools=[{**TOOL, "name": "a b"}]), "Invalid 'tools.name'"),
        (body(tools=[{**TOOL, "parameters": None}]), "expected an object"),
        (body(tools=[TOOL, TOOL]), "Two tools have one name"),
        (body(tools=[{"type": "function", "name": "t", "parameters": {"type": "object"}}]), "'additionalProperties'"),
        (with_schema(type="string"), "schema must be a JSON Schema of 'type: \"object\"'"),
        (with_schema(additionalProperties=True), "'additionalProperties' is required"),
        (with_schema(required=[]), "'required' is required"),
        (with_schema(properties={"a": {"type": "string", "default": "x"}}), "'default' is not permitted"),
        (with_schema(properties={"a": {"type": "array", "items": {"oneOf": []}}}), "'oneOf' is not permitted"),
        (with_schema(**{"$defs": {"d": {"type": "object"}}}), "'additionalProperties' is required"),
        (with_schema(properties={"a": {"anyOf": [{"not": {}}]}}), "'not' is not permitted"),
        (body(tool_choice="auto"), "only allowed"),
        (body(tools=[TOOL], tool_choice="sometimes"), "Invalid value: 'sometimes'"),
        (body(tools=[TOOL], tool_choice={"type": "function", "name": "x"}), "not found in 'tools'"),
        (body(USER, "x"), "expected an object"),
        (body({"type": "tool_result"}), "It is the type of no item"),
        (body({"type": "item_reference", "id": "rs_1"}), "It is the type of no item"),
        (body(USER, {**SAID, "id": "msg_1"}), "Item with id 'msg_1' not found. Items are not persisted"),
        (body({**USER, "name": "x"}), "Unknown parameter: 'name'."),
        (body({**USER, "role": "tool"}), "It is the role of no message"),
        (body({**USER, "phase": "commentary"}), "for the 'phase'"),
        (body({**SAID, "phase": None}), "for the 'phase'"),
        (body(user()), "at least one part"),
        (body({**USER, "content": " "}), "not empty"),
        (body({**USER, "content": None}), "at least one part"),
        (body(user({"type": "output_text", "text": "x"})), "Invalid value: 'output_text'"),
        (body({**SAID, "content": USER["content"]}), "Invalid value: 'input_text'"),
        (body(user({"type": "input_text", "text": " "})), "not empty"),
        (body(user({"type": "input_text", "text": "x" * 10_485_761})), "string too long"),
        (body(user({"type": "input_text", "text": "x", "cache": 1})), "Unknown parameter: 'cache'."),
        (body(user({**IMAGE, "image_url": {"url": "data:"}})), "expected a URL of an image"),
        (body(user({**PDF, "filename": ""})), "'filename' and 'file_data'"),
        (body(user({**PDF, "file_data": "eA=="})), "'filename' and 'file_data'"),
        (body(USER, CALL), "No tool output found for function call c1."),
        (body(USER, RESULT), "No tool call found for function call output with call_id c1."),
        (body(USER, RESULT, CALL), "No tool call found"),
        (body(USER, CALL, RESULT, RESULT), "No tool call found"),
        (body(USER, CALL, CALL, RESULT), "Duplicate item found with call_id c1"),
        (body(USER, {**CALL, "call_id": "c" * 65}, {**RESULT, "call_id": "c" * 65}), "maximum length 64, but got 65"),
        (body(USER, {**CALL, "call_id": ""}), "Missing required parameter: 'call_id'."),
        (body(USER, {**CALL, "name": "a.b"}, RESULT), "Invalid 'name'"),
        (body(USER, {**CALL, "arguments": "[]"}, RESULT), "text of a JSON object"),
        (body(USER, {**CALL, "arguments": {}}, RESULT), "text of a JSON object"),
        (body(USER, {**CALL, "arguments": ""}, RESULT), "text of a JSON object"),
        (body(USER, CALL, {**RESULT, "output": ""}), "not empty"),
        (body(USER, CALL, {**RESULT, "output": []}), "at least one part"),
        (body(USER, CALL, {**RESULT, "output": [{"type": "text", "text": "x"}]}), "Invalid value: 'text'"),
        (body(USER, reasoning(id="rs_1"), SAID), "Item with id 'rs_1' not found"),
        (body(USER, reasoning(status="completed"), SAID), "Unknown parameter: 'status'."),
        (body(USER, reasoning(summary=None), SAID), "'summary'"),
        (body(USER, reasoning(encrypted_content=None), SAID), "could not be verified"),
        (body(USER, reasoning(encrypted_content="gAAAAA!"), SAID), "could not be verified"),
        (body(USER, reasoning(encrypted_content="gAAAAAxxxx" + "0" * 12), SAID), "could not be verified"),
        (body(USER, reasoning(model="m2"), SAID), "could not be verified"),
        (body(USER, reasoning(), CALL, RESULT), "without its required following item"),
        (body(USER, reasoning(), USER), "without its required following item"),
        (body(USER, reasoning()), "without its required following item"),
        (body(USER, reasoning(None), SAID), "without its required following item"),
    ],
)
def test_what_openai_would_refuse_is_refused(request_body, problem):
    found = list(problems(request_body))

    assert any(problem in message for message in found), found


@pytest.mark.parametrize(
    "request_body",
    [
        body(),
        body({"role": "user", "content": "Hi"}),
        body({"role": "developer", "content": "Be brief."}, USER),
        body(user(IMAGE, PDF)),
        body(USER, SAID, {**SAID, "phase": "final_answer", "status": "completed"}),
        body(USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}),
        body(USER, CALL, RESULT, USER),
        body(USER, CALL, {**RESULT, "output": [IMAGE, PDF]}),
        body(USER, reasoning("function_call"), reasoning("function_call"), CALL, RESULT),
        body(USER, reasoning(), SAID, CALL, RESULT),
        body(USER, reasoning("web_search_call"), {"id": "ws_1", "type": "web_search_call"}, SAID),
        body(tools=[TOOL, {**TOOL, "name": "b", "parameters": {"type": "object"}, "strict": False}]),
        body(tools=[TOOL], tool_choice={"type": "function", "name": "read"}, parallel_tool_calls=True),
        body(text={"format": FORMAT, "verbosity": "low"}),
        body(text={"format": {"type": "text"}}),
        body(text={"format": {**FORMAT, "schema": {"type": "object"}, "strict": False}}),
        body(instructions="x", max_output_tokens=16, temperature=0, reasoning={"effort": "xhigh", "summary": "auto"}),
        body(include=["reasoning.encrypted_content"], stream=True),
    ],
)
def test_what_is_right_is_taken(request_body):
    assert list(problems(request_body)) == []


def test_encrypted_thoughts_are_known_again():
    content = encrypted("m", "Hm.", "message")

    assert decrypted(content) == ("m", "Hm.", "message")
    assert decrypted(content.replace("gAAAAA", "")) is None
    assert decrypted(content[:-1] + "x") is None
    assert decrypted("gAAAAAabcde" + "0" * 12) is None
    assert decrypted(7) is None


async def post(server, key="", **request_body):
    async with httpx.AsyncClient(trust_env=False) as client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return await client.post(f"{server.base_url}/responses", json=request_body, headers=headers)


ASKED = body(include=["reasoning.encrypted_content"])
THOUGHT = Reply([ThinkingBlock("Let me think."), ToolCall("c1", "read", {"a": "x"})])


async def test_a_refusal_is_in_openais_form():
    async with ProviderServer(["never"]) as server:
        response = await post(server, **body(stop="x"))

    assert response.status_code == 400
    message = "Unknown parameter: 'stop'."
    assert response.json()["error"] == {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


@pytest.mark.parametrize(
    ("request_body", "key", "status", "code"),
    [
        (body(), "sk-wrong", 401, "invalid_api_key"),
        (body(USER, reasoning(model="x"), SAID), "sk-right", 400, "invalid_encrypted_content"),
        (body(), "sk-right", 429, "rate_limit_exceeded"),
    ],
)
async def test_errors_have_their_codes(request_body, key, status, code):
    async with ProviderServer([Fault(status=429)], api_key="sk-right") as server:
        response = await post(server, key, **request_body)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_a_call_without_the_thought_that_led_to_it_is_refused():
    async with ProviderServer([THOUGHT, "Fine."]) as server:
        first = (await post(server, **ASKED)).json()
        without = await post(server, **body(USER, CALL, RESULT))
        other_model = await post(server, **{**body(USER, CALL, RESULT), "model": "m2"})
        thought = {key: first["output"][0][key] for key in ("type", "summary", "encrypted_content")}
        server.add("Fine.")
        both = await post(server, **body(USER, thought, CALL, RESULT))

    assert "without its required 'reasoning' item" in without.json()["error"]["message"]
    assert (other_model.status_code, both.status_code) == (200, 200)


async def test_servers_remember_nothing_of_each_other_and_one_call_id_twice_is_no_ground():
    async with ProviderServer([THOUGHT]) as first, ProviderServer(["Fine."]) as second:
        await post(first, **ASKED)
        elsewhere = await post(second, **body(USER, CALL, RESULT))
        first.add(ToolCall("c1", "read", {}), "Fine.")
        await post(first, **ASKED)
        again = await post(first, **body(USER, CALL, RESULT))

    assert (elsewhere.status_code, again.status_code) == (200, 200)


async def test_thoughts_are_encrypted_only_for_who_asks():
    async with ProviderServer([THOUGHT, THOUGHT]) as server:
        asked = (await post(server, **ASKED)).json()["output"][0]
        not_asked = (await post(server, **body())).json()["output"][0]

    assert decrypted(asked["encrypted_content"]) == ("m", "Let me think.", "function_call")
    assert "encrypted_content" not in not_asked


REPLIES = [
    Reply([TextBlock("Hello, wörld.")]),
    Reply([ThinkingBlock("Hm."), TextBlock("Yes."), ToolCall("c1", "read", {"a": "x"}), ToolCall("c2", "read", {})]),
    Reply([ThinkingBlock(""), ThinkingBlock("So."), RawBlock("here", {"type": "web_search_call", "id": "ws_1"})]),
    Reply([RawBlock("here", {"type": "message", "phase": "commentary"}), TextBlock("I look."), TextBlock("There.")]),
    Reply([RawBlock("here", {"type": "refusal"}), TextBlock("I can't.")], refusal=True),
    Reply([], refusal=True, stop_reason="content_filter"),
    Reply([TextBlock("Once upon")], cut_off=True, stop_reason="max_output_tokens"),
    Reply([ThinkingBlock("Once")], cut_off=True, stop_reason="max_output_tokens"),
    Reply([ToolCall("c1", "read", None, '{"a')], cut_off=True, stop_reason="max_output_tokens"),
    Reply([ToolCall("c1", "read", None, "")], cut_off=True, stop_reason="max_output_tokens"),
    Reply([ToolCall("c1", "read", None, '{"a')]),
    Reply([TextBlock("Hi")], model="m-2025", usage=Usage(9, 8, 7, 1, 5, requests=1)),
    Reply([]),
]


def alike(reply):
    """What of a reply doesn't depend on how it was kept."""
    blocks = [block.text if isinstance(block, ThinkingBlock) else block for block in reply.blocks]
    return blocks, reply.cut_off, reply.refusal, reply.stop_reason or "completed"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("reply", REPLIES)
async def test_a_scripted_reply_comes_out_as_it_is(reply, streamed):
    async with ProviderServer([reply]) as server:
        response = await post(server, **ASKED, stream=streamed)
    decoder = ResponsesDecoder(Endpoint("here", server.base_url, "m"))

    if streamed:
        decoder.feed(SSEDecoder().feed(response.content))
    else:
        decoder.feed_document(response.content)

    assert alike(decoder.reply()) == alike(reply)
    assert decoder.reply().model == (reply.model or "m")
    if reply.usage.requests:
        assert decoder.reply().usage == reply.usage


async def test_blank_text_and_what_is_no_item_are_not_sent():
    async with ProviderServer(
        [Reply([TextBlock(" "), RawBlock("here", "x"), RawBlock("here", {"a": 1}), TextBlock("Hi")])]
    ) as server:
        response = await post(server, **ASKED)

    assert [item["type"] for item in response.json()["output"]] == ["message"]


async def test_the_stream_has_the_events_that_openais_has():
    async with ProviderServer([REPLIES[1]]) as server:
        response = await post(server, **ASKED, stream=True)

    events = SSEDecoder().feed(response.content)
    assert [event.name.removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    assert [json.loads(event.data)["type"] for event in events] == [event.name for event in events]
    assert [json.loads(event.data)["sequence_number"] for event in events] == list(range(len(events)))
