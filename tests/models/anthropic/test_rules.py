"""The scripted Anthropic: what it refuses, and how it answers."""

import httpx
import pytest

from alpineagents import Image, RawBlock, Reply, TextBlock, ThinkingBlock, ToolCall, Usage
from alpineagents.testing._formats._anthropic import MessagesFormat
from alpineagents.testing._formats._anthropic_rules import problems
from alpineagents.testing._formats._anthropic_signature import is_signed, signature, signed
from alpineagents.testing._formats._format import ReceivedRequest
from alpineagents.testing._provider_server import Fault, ProviderServer

VERSION = {"anthropic-version": "2026-10-21"}
BINDING = {**VERSION, "anthropic-beta": "thinking-binding-controls-2026-08-01"}
USER = {"role": "user", "content": "Hi"}
TEXT = {"type": "text", "text": "x"}
CALL = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
TOOL = {"name": "read", "input_schema": {"type": "object"}}
THOUGHT = {"type": "thinking", "thinking": "So.", "signature": signature("So.", "m")}
MARK = {"cache_control": {"type": "ephemeral"}}
ENABLED = {"type": "enabled", "budget_tokens": 1024}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}
NOTES = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "n"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def found(headers=VERSION, **body):
    return list(problems({"model": "m", "max_tokens": 2_000, "messages": [USER], **body}, headers))


def turn(*blocks, results=(RESULT,)):
    return {"messages": [USER, assistant(*blocks), user(*results)]}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"top_k": 3}, "top_k: Extra inputs are not permitted"),
        ({"temperature": 1.0}, "temperature: Extra inputs are not permitted"),
        ({"model": "\ud800"}, "no low surrogate"),
        ({"max_tokens": 0}, "max_tokens: must be greater"),
        ({"max_tokens": True}, "max_tokens: must be greater"),
        ({"messages": []}, "at least one message"),
        ({"messages": ["Hi"]}, "messages.0.role: Input should be 'user' or 'assistant'"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
        ({"messages": [assistant(TEXT), USER]}, 'first message must use the "user" role'),
        ({"messages": [USER, USER]}, "roles must alternate"),
        ({"messages": [{**USER, "name": "x"}]}, "messages.0.name: Extra inputs"),
        ({"messages": [user()]}, "must have non-empty content"),
        ({"messages": [{"role": "user", "content": 1}]}, "must have non-empty content"),
        ({"messages": [{"role": "user", "content": " "}]}, "must contain non-whitespace text"),
        ({"messages": [user({"type": "text", "text": ""})]}, "messages.0.content.0.text: text content blocks"),
        ({"messages": [user({**TEXT, "note": 1})]}, "text.note: Extra inputs"),
        ({"messages": [user({**TEXT, "citations": [1]})]}, "text.citations: not allowed in a user message"),
        ({"messages": [user("x")]}, "type: Input tag None is not allowed in a user message"),
        ({"messages": [user(THOUGHT)]}, "Input tag 'thinking' is not allowed in a user message"),
        ({"messages": [user({**TEXT, "cache_control": {"type": "forever"}})]}, "text.cache_control"),
        ({"messages": [user({**TEXT, "cache_control": {"type": "ephemeral", "ttl": "2h"}})]}, "text.cache_control"),
        ({"messages": [user(*[{**TEXT, **MARK}] * 5)]}, "A maximum of 4 blocks with cache_control may be provided"),
        ({"messages": [user({**PNG, "source": {"type": "url", "url": "x"}})]}, "image.source"),
        ({"messages": [user({**PDF, "source": None})]}, "document.source"),
        ({"messages": [user({**NOTES, "source": {**NOTES["source"], "data": ""}})]}, "document.source"),
        ({"messages": [user({**NOTES, "title": ""})]}, "document.title"),
        ({"messages": [USER, assistant(TEXT)]}, "does not support assistant message prefill"),
        ({"messages": [USER, assistant({**TEXT, "text": "x "})]}, "cannot end with trailing whitespace"),
        ({"messages": [USER, assistant(THOUGHT), USER]}, "final block in an assistant message cannot be `thinking`"),
        ({"messages": [USER, assistant(PNG, TEXT), USER]}, "Input tag 'image' is not allowed in an assistant message"),
        ({"messages": [USER, assistant("x", TEXT), USER]}, "Input tag None is not allowed in an assistant message"),
        (
            {"messages": [USER, assistant({**THOUGHT, "signature": ""}, TEXT), USER]},
            "thinking.signature: Field required",
        ),
        ({"messages": [USER, assistant({**THOUGHT, "thinking": "No."}, TEXT), USER]}, "Invalid `signature`"),
        ({"messages": [USER, assistant({**THOUGHT, **MARK}, TEXT), USER]}, "thinking.cache_control: Extra inputs"),
        ({"messages": [USER, assistant({"type": "redacted_thinking", "data": "x"}, TEXT), USER]}, "Invalid `data`"),
        ({"messages": [USER, assistant(SEARCH, TEXT), USER]}, "without a corresponding tool result block"),
        ({"messages": [USER, user(RESULT)]}, "unexpected `tool_use_id`"),
        ({"messages": [USER, assistant(CALL)]}, "without `tool_result` blocks: c1"),
        ({"messages": [USER, assistant(CALL), USER]}, "without `tool_result` blocks immediately after: c1"),
        (turn(CALL, results=(TEXT, RESULT)), "must come before all other content"),
        (turn(CALL, results=(RESULT, RESULT)), "Found multiple `tool_result` blocks"),
        (turn(CALL, CALL), "`tool_use` ids must be unique"),
        ({"messages": [*turn(CALL)["messages"], *turn(CALL)["messages"][1:]]}, "`tool_use` ids must be unique"),
        ({**turn(CALL), "model": "claude-haiku-4-5"}, "must define tools"),
        (turn(CALL, results=[{**RESULT, "is_error": True, "content": [PNG]}]), "all content must be type `text` if"),
        (turn({**CALL, "id": "c:1"}), "tool_use.id: String should match pattern"),
        (turn({**CALL, "name": "a b"}), "tool_use.name: String should match pattern"),
        (turn({**CALL, "input": "{}"}), "tool_use.input: Input should be a valid dictionary"),
        (turn(CALL, results=({**RESULT, "tool_use_id": ""},)), "tool_result.tool_use_id: String should match"),
        (turn(CALL, results=({**RESULT, "is_error": 1},)), "tool_result.is_error"),
        (turn(CALL, results=({**RESULT, "content": [CALL]},)), "tool_result.content.0: Input should be text"),
        (turn(CALL, results=({**RESULT, "content": [{**TEXT, "text": ""}]},)), "tool_result.content.0.text"),
        ({"system": " "}, "system: text content blocks must be non-empty"),
        ({"system": [PNG]}, "system.0: only text blocks"),
        ({"system": [{**TEXT, "text": ""}]}, "system.0.text: text content blocks"),
        ({"tools": ["x"]}, "tools.0: Input should be an object"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools.0.custom.name"),
        ({"tools": [{**TOOL, "input_schema": {}}]}, "input_schema.type: Input should be 'object'"),
        ({"tools": [{**TOOL, "parameters": {}}]}, "tools.0.custom.parameters: Extra inputs"),
        ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
        ({"tool_choice": {"type": "auto"}}, "only be specified while providing tools"),
        ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice: Input tag None"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice: Input tag 'some'"),
        ({"tools": [TOOL], "tool_choice": {"type": "any", "name": "read"}}, "tool_choice.any.name: Extra inputs"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "Tool 'x' not found"),
        ({"thinking": {"type": "deep"}}, "thinking: Input tag 'deep'"),
        ({"thinking": True}, "thinking: Input tag None"),
        ({"thinking": {"type": "adaptive", "budget_tokens": 1024}}, "thinking.adaptive.budget_tokens: Extra inputs"),
        ({"thinking": {"type": "adaptive", "block_binding": {}}}, "requires the beta header"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled"}}, "greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "`max_tokens` must be greater than"),
        ({"thinking": ENABLED, "tools": [TOOL], "tool_choice": {"type": "any"}}, "may not be enabled when tool_choice"),
        ({"thinking": ENABLED, **turn(CALL)}, "must start with a thinking block"),
        ({"thinking": ENABLED, "messages": turn(CALL)["messages"][1:]}, "must start with a thinking block"),
        ({"stop_sequences": ["\n"]}, "must contain non-whitespace"),
        ({"model": "claude-opus-5-5", "temperature": 0.5}, "does not support sampling"),
        ({"model": "claude-opus-5-5", "thinking": ENABLED}, '"enabled" is not supported'),
        ({"model": "claude-opus-4-5-20251101", "thinking": {"type": "adaptive"}}, "adaptive thinking is not supported"),
        ({"model": "claude-opus-5-5", "thinking": {"type": "disabled"}}, '"disabled" is not supported'),
        ({"model": "claude-sonnet-5-5", "thinking": {"type": "disabled"}}, '"disabled" is not supported'),
        ({"model": "claude-fable-5", "thinking": {"type": "disabled"}}, '"disabled" is not supported'),
        ({"model": "claude-opus-5", "thinking": {"type": "between_tools"}}, '"between_tools" is not supported'),
        ({"model": "claude-opus-5-5", "tools": [TOOL], "tool_choice": {"type": "any"}}, "forcing tool use"),
        ({"output_config": 1}, "output_config: Input should be an object"),
        ({"output_config": {"mode": 1}}, "output_config.mode: Extra inputs"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            "explicitly set to false",
        ),
        (
            {
                "output_config": {
                    "format": {
                        "type": "json_schema",
                        "schema": {"anyOf": [{"type": "array", "items": {"type": "integer", "minimum": 1}}]},
                    }
                }
            },
            "property 'minimum' is not supported",
        ),
    ],
)
def test_what_the_api_would_refuse_is_found(body, problem):
    assert [message for message in found(**body) if problem in message]


def test_what_is_missing_is_found():
    assert list(problems({}, VERSION)) == [
        "max_tokens: Field required",
        "messages: Field required",
        "model: Field required",
        "messages: at least one message is required",
    ]
    assert list(problems(None, {})) == [
        "anthropic-version: None is not a valid version",
        "The request body is not valid JSON",
    ]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("model", "changed", "dropped", "refused"),
    [
        ("claude-opus-5-5", True, False, True),
        ("claude-opus-5-5", True, True, False),
        ("claude-opus-5-5", False, False, False),
        ("claude-opus-5", True, False, False),
    ],
)
def test_thinking_is_bound_to_the_conversation_before_it(model, changed, dropped, refused, streamed):
    """The marks of the cache are no change, nor is another form of the same text."""
    format, reply = MessagesFormat(), Reply([ThinkingBlock("Hm."), TextBlock("Hello")])
    body = {"model": model, "max_tokens": 2_000, "messages": [USER]}
    request = ReceivedRequest("POST", "/v1/messages", BINDING, body)
    content = MessagesFormat().document(reply, request)["content"]
    if streamed:
        format.events(reply, request)
    else:
        format.document(reply, request)
    first = user({**TEXT, **MARK, "text": "something else" if changed else "Hi"})
    later = {**body, "messages": [first, assistant(*content), USER]}
    if dropped:
        later["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}

    found = list(format.problems(ReceivedRequest("POST", "/v1/messages", BINDING, later)))
    assert bool(found) == refused
    assert not refused or "bound to another conversation" in found[0]


def test_sampling_is_of_the_older_version_and_not_with_thinking():
    older = {"anthropic-version": "2023-06-01"}

    assert found(older, temperature=0.5, top_k=3) == []
    assert found(older, temperature=1, thinking=ENABLED) == []
    assert "may only be set to 1" in found(older, temperature=0.5, thinking={"type": "adaptive"})[0]


@pytest.mark.parametrize(
    "body",
    [
        {"system": "Be brief.", "stop_sequences": ["x"], "stream": True, "metadata": {}},
        {
            "system": [{**TEXT, **MARK}],
            "tools": [{**TOOL, **MARK, "description": "x"}],
            "tool_choice": {"type": "none"},
        },
        {"messages": [user(TEXT, PNG, PDF, NOTES)]},
        turn(THOUGHT, CALL, results=({**RESULT, "content": [TEXT, PNG, NOTES], **MARK}, TEXT)),
        turn({"type": "redacted_thinking", "data": signed("x", "m")}, {**CALL, "caller": {"type": "direct"}}),
        turn(SEARCH, FOUND, {**TEXT, "citations": [{}]}, CALL, results=({"type": "tool_result", "tool_use_id": "c1"},)),
        {"messages": [USER, assistant(SEARCH)]},
        {"messages": [USER, assistant(TEXT, THOUGHT)]},
        {"thinking": ENABLED, **turn(THOUGHT, CALL)},
        {"thinking": ENABLED, "messages": [USER, assistant(TEXT), USER]},
        {"thinking": {"type": "between_tools"}, "output_config": {"effort": "max"}},
    ],
)
def test_what_is_right_is_taken(body):
    assert found(BINDING, **body) == []


def test_a_signature_holds_for_its_text_and_model_only():
    assert signature("a", "m") == signature("a", "m")
    assert len({signature("a", "m"), signature("b", "m"), signature("a", "n")}) == 3
    assert is_signed(signed("é", "m"), "m")
    assert not is_signed(signed("é", "m"), "n")
    assert not is_signed("é.x", "m")
    assert not is_signed("", "m")


async def post(server, **body):
    headers = {**VERSION, "x-api-key": "k"}
    body = {"model": "m", "max_tokens": 9, "messages": [USER], **body}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(f"{server.origin}/v1/messages?beta=true", json=body, headers=headers)


async def test_a_refusal_is_in_anthropics_form():
    async with ProviderServer([Fault(status=529), Fault(status=500)]) as server:
        responses = [await post(server, top_k=1), await post(server), await post(server)]

    assert [response.status_code for response in responses] == [400, 529, 500]
    assert [response.json()["error"]["type"] for response in responses] == [
        "invalid_request_error",
        "overloaded_error",
        "api_error",
    ]
    assert responses[0].json()["type"] == "error"


async def test_a_wrong_key_is_refused_and_a_right_one_taken_in_either_header():
    async with ProviderServer(["Hi", "Hi"], api_key="right") as server, httpx.AsyncClient(trust_env=False) as client:
        statuses = []
        for headers in ({}, {"x-api-key": "k"}, {"x-api-key": "right"}, {"authorization": "Bearer right"}):
            body = {"model": "m", "max_tokens": 9, "messages": [USER]}
            response = await client.post(f"{server.origin}/v1/messages", json=body, headers={**VERSION, **headers})
            statuses.append(response.status_code)

    assert statuses == [401, 401, 200, 200]


async def test_without_streaming_it_answers_in_one_document():
    blocks = [
        ThinkingBlock("So."),
        ThinkingBlock("", raw={"redacted": "x"}),
        TextBlock("I look."),
        ToolCall("c1", "read", None, "{"),
        RawBlock("anthropic", FOUND),
    ]
    async with ProviderServer([Reply(blocks, usage=Usage(9, 3, 2, 1, requests=1))]) as server:
        document = (await post(server)).json()

    assert document["content"] == [
        THOUGHT,
        {"type": "redacted_thinking", "data": signed("x", "m")},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
        FOUND,
    ]
    assert document["stop_reason"] == "tool_use"
    assert document["usage"] == {
        "input_tokens": 6,
        "cache_creation_input_tokens": 1,
        "cache_read_input_tokens": 2,
        "output_tokens": 3,
    }


async def test_a_script_with_what_no_claude_writes_is_a_mistake():
    picture = Image(b"\x89PNG\r\n\x1a\n")

    async def use():
        async with ProviderServer([Reply([picture])]) as server:
            with pytest.raises(httpx.RemoteProtocolError):
                await post(server)

    with pytest.raises(TypeError, match="a Claude writes no Image"):
        await use()
