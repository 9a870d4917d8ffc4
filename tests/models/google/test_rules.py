"""The scripted provider's side of Gemini: what it refuses, and in what form it answers."""

import httpx
import pytest

from alpineagents import Reply, TextBlock, ThinkingBlock, ToolCall, Usage
from alpineagents.testing._formats._google_rules import SIGNED_END, problems, thought_signature
from alpineagents.testing._provider_server import Fault, ProviderServer

NEW, OLD = "gemini-3-pro-preview", "gemini-2.5-flash"
USER = {"role": "user", "parts": [{"text": "Hi"}]}
SAID = {"role": "model", "parts": [{"text": "Hello."}]}
SIGNATURE = thought_signature(NEW, {"p": 1})
THOUGHT = {"text": "So.", "thought": True}
SAID_4 = {"text": "4"}
OTHERS = thought_signature("gemini-3-pro", "So.")
CALL = {"functionCall": {"id": "c1", "name": "read", "args": {"p": 1}}, "thoughtSignature": SIGNATURE}
SECOND = {"functionCall": {"id": "c2", "name": "now"}}
CALLS = {"role": "model", "parts": [CALL, SECOND]}
ANSWER = {"functionResponse": {"id": "c1", "name": "read", "response": {"result": "x"}}}
ANSWER_2 = {"functionResponse": {"id": "c2", "name": "now", "response": {"result": "y"}}}
ANSWERS = {"role": "user", "parts": [ANSWER, ANSWER_2]}
TOOLS = [{"functionDeclarations": [{"name": "read", "parametersJsonSchema": {"type": "object"}}, {"name": "now"}]}]
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "eA=="}}


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


def with_signature(part, signature):
    return {**part, "thoughtSignature": signature}


def without_signature(part):
    return {key: value for key, value in part.items() if key != "thoughtSignature"}


def answer_with(**fields):
    return {"functionResponse": {**ANSWER["functionResponse"], **fields}}


def config(**fields):
    return {"generationConfig": fields}


def declared(**fields):
    return {"tools": [{"functionDeclarations": [{"name": "read", **fields}]}]}


def calling(**fields):
    return {"tools": TOOLS, "toolConfig": {"functionCallingConfig": fields}}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"contents": [USER, CALLS, ANSWERS]},
        {"contents": [USER, CALLS, ANSWERS, USER]},
        {"contents": [USER, CALLS, ANSWERS, CALLS, ANSWERS, SAID, USER]},
        {"contents": [USER, model(CALL), user(answer_with(parts=[PICTURE]))]},
        {"contents": [USER, model(without_signature(CALL)), user(ANSWER), USER]},  # Of a turn before.
        {"contents": [USER, model(with_signature(CALL, "skip_thought_signature_validator")), user(ANSWER)]},
        {"contents": [USER, model({"text": "", "thoughtSignature": thought_signature(NEW, SIGNED_END)})]},
        {"contents": [USER, model(with_signature(THOUGHT, thought_signature(NEW, "So.")), {"text": "4"})]},
        {"contents": [USER, model({"executableCode": {"language": "PYTHON", "code": "1"}})]},
        {"contents": [user(PICTURE, {"text": "see"})], "systemInstruction": {"parts": [{"text": "s"}]}},
        {"tools": TOOLS},
        calling(mode="ANY", allowedFunctionNames=["read"]),
        calling(mode="NONE"),
        {"tools": TOOLS, **config(responseMimeType="application/json", responseJsonSchema={"type": "object"})},
        config(temperature=2, maxOutputTokens=1, stopSequences=["a"], thinkingConfig={"thinkingLevel": "low"}),
        declared(description="d", parametersJsonSchema={"properties": {"a": {"anyOf": [True, {"$ref": "#"}]}}}),
    ],
)
def test_what_is_right_is_taken(body):
    assert list(problems({"contents": [USER], **body}, NEW)) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"moon": 1}, 'Unknown name "moon": Cannot find field'),
        ({"contents": []}, "contents is not specified"),
        ({"contents": "Hi"}, "contents is not specified"),
        ({"contents": ["Hi"]}, "Invalid value"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "valid role: user, model"),
        ({"contents": [{"parts": [{"text": "x"}]}]}, "valid role: user, model"),
        ({"contents": [{**USER, "text": "x"}]}, "Unknown name \"text\" at 'contents'"),
        ({"contents": [user()]}, "parts must not be empty"),
        ({"contents": [user("x")]}, "Invalid value"),
        ({"contents": [user({"text": " "})]}, "text must not be empty"),
        ({"contents": [user({"text": None})]}, "text must not be empty"),
        ({"contents": [USER, model({"text": ""})]}, "text must not be empty"),
        ({"contents": [user({"text": "x", "type": "text"})]}, "Unknown name \"type\" at 'parts'"),
        ({"contents": [user({"text": "x", **PICTURE})]}, "oneof field 'data'"),
        ({"contents": [user({})]}, "oneof field 'data'"),
        ({"contents": [user({"text": "x", "thought": True})]}, "only the model writes this"),
        ({"contents": [user(CALL)]}, "only the model writes this"),
        ({"contents": [user({"inlineData": "x"})]}, "Invalid value"),
        ({"contents": [user({"inlineData": {"mimeType": "image/gif", "data": "eA=="}})]}, "MIME type: image/gif"),
        ({"contents": [user({"inlineData": {"mimeType": "image/png", "data": "x"}})]}, "Base64 decoding failed"),
        ({"contents": [user({"inlineData": {**PICTURE["inlineData"], "name": "x"}})]}, 'Unknown name "name"'),
        ({"contents": [SAID, USER]}, "start with a user role"),
        ({"contents": [USER, model(ANSWER)]}, "the role must be 'user'"),
        ({"contents": [USER, CALLS]}, "is followed by its function responses"),
        ({"contents": [USER, CALLS, USER]}, "number of function response parts is equal"),
        ({"contents": [USER, CALLS, user(ANSWER)]}, "number of function response parts is equal"),
        ({"contents": [USER, CALLS, user(ANSWER, ANSWER_2, {"text": "x"})]}, "number of function response parts"),
        ({"contents": [USER, CALLS, user(ANSWER), user(ANSWER_2)]}, "number of function response parts"),
        ({"contents": [USER, CALLS, user(ANSWER_2, ANSWER)]}, "function responses of other calls"),
        ({"contents": [USER, model(CALL), user(answer_with(id="c9"))]}, "function responses of other calls"),
        ({"contents": [USER, ANSWERS]}, "immediately after a function call turn"),
        ({"contents": [USER, SAID, CALLS, ANSWERS]}, "function call turn comes immediately after a user turn"),
        ({"contents": [USER, model({"functionCall": {"name": "1st"}}), USER]}, "Invalid function name '1st'"),
        ({"contents": [USER, model({"functionCall": {"name": "f", "args": "{}"}}), USER]}, "args: must be an object"),
        ({"contents": [USER, model({"functionCall": {"name": "f", "arguments": {}}}), USER]}, '"arguments"'),
        ({"contents": [USER, model(CALL), user(answer_with(response="x"))]}, "response: must be an object"),
        ({"contents": [USER, model(CALL), user(answer_with(response={}))]}, "response: must be an object"),
        ({"contents": [USER, model(CALL), user(answer_with(name=""))]}, "Invalid function name ''"),
        ({"contents": [USER, model(CALL), user(answer_with(output=1))]}, 'Unknown name "output"'),
        ({"contents": [USER, model(CALL), user(answer_with(parts=[]))]}, "function_response.parts: Invalid value"),
        ({"contents": [USER, model(CALL), user(answer_with(parts=[{"text": "x"}]))]}, "parts: Invalid value"),
        ({"contents": [USER, model(without_signature(CALL)), user(ANSWER)]}, "missing a thought_signature"),
        ({"contents": [USER, model(SECOND, CALL), user(ANSWER_2, ANSWER)]}, "missing a thought_signature"),
        ({"contents": [USER, model(with_signature(CALL, "eA==")), user(ANSWER)]}, "signature is not valid"),
        ({"contents": [USER, model(with_signature(SECOND, SIGNATURE)), user(ANSWER_2)]}, "not valid"),
        ({"contents": [USER, model(with_signature({"text": "x"}, "eA==")), USER]}, "signature is not valid"),
        ({"contents": [USER, model(with_signature(THOUGHT, "eA=="), SAID_4), USER]}, "signature is not valid"),
        (
            {"contents": [USER, model(with_signature(THOUGHT, OTHERS), SAID_4), USER]},
            "signature is not valid",
        ),
        ({"systemInstruction": "Be brief."}, "system_instruction.parts: must not be empty"),
        ({"systemInstruction": {"parts": [{"text": ""}]}}, "system_instruction: it holds text only"),
        ({"systemInstruction": {"parts": [PICTURE]}}, "system_instruction: it holds text only"),
        ({"contents": [user({"text": "\ud83d"})]}, "Half of a surrogate pair"),
        ({"generationConfig": []}, "generation_config: Invalid value"),
        (config(max_tokens=1), 'Unknown name "max_tokens"'),
        (config(temperature=2.1), "range [0.0, 2.0]"),
        (config(maxOutputTokens=0), "must be positive"),
        (config(stopSequences=list("abcdef")), "maximum number of stop sequences is 5"),
        (config(responseJsonSchema={}), "needs response_mime_type"),
        (config(responseJsonSchema=1, responseMimeType="application/json"), "schema: Invalid value"),
        (config(responseJsonSchema={"pattern": "a"}, responseMimeType="application/json"), 'Unknown name "pattern"'),
        (config(thinkingConfig={"budget": 1}), 'Unknown name "budget"'),
        (config(thinkingConfig={"thinkingBudget": 1, "thinkingLevel": "LOW"}), "only one of thinking budget and"),
        (config(thinkingConfig={"thinkingLevel": "much"}), "Invalid value at 'thinking_config.thinking_level'"),
        ({"tools": [{"functionDeclarations": ["read"]}]}, "Invalid function name"),
        ({"tools": [{"functionDeclarations": [{"name": "x" * 65}]}]}, "maximum length of 64"),
        ({"tools": TOOLS * 2}, "Duplicate function declaration found: now"),
        (declared(input_schema={}), 'Unknown name "input_schema"'),
        (declared(parameters={}, parametersJsonSchema={}), "mutually exclusive"),
        (declared(parametersJsonSchema={"properties": {"a": {"const": 1}}}), "\"const\" at 'schema.properties.a'"),
        (declared(parametersJsonSchema={"items": {"exclusiveMinimum": 1}}), "at 'schema.items'"),
        (declared(parametersJsonSchema={"anyOf": [{"not": {}}]}), "at 'schema.anyOf[0]'"),
        (declared(parametersJsonSchema={"$ref": "#", "description": "x"}), "$ref can't have other fields"),
        (declared(parametersJsonSchema={"enum": [True]}), "enum holds strings and numbers"),
        (calling(mode="SOMETIMES"), "Invalid value at 'tool_config"),
        (calling(mode="AUTO", allowedFunctionNames=["read"]), "only when function calling mode is ANY"),
        (calling(mode="ANY", allowedFunctionNames=["x"]), "no function is declared with the name 'x'"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "without function_declarations"),
    ],
)
def test_what_the_api_would_refuse_is_found(body, problem):
    found = list(problems({"contents": [USER], **body}, NEW))

    assert any(problem in message for message in found), found


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"contents": [USER, model(without_signature(CALL)), user(answer_with(parts=[PICTURE]))]}, "not supported"),
        (config(thinkingConfig={"thinkingLevel": "LOW"}), "Thinking level is not supported"),
        ({"tools": TOOLS, **config(responseMimeType="application/json")}, "'application/json' is unsupported"),
        ({"contents": [USER, CALLS, ANSWERS]}, "signature is not valid"),
    ],
)
def test_models_before_gemini_3_take_less(body, problem):
    assert problem in " ".join(problems({"contents": [USER], **body}, OLD))
    assert list(problems({"contents": [USER, model(without_signature(CALL)), user(ANSWER)]}, OLD)) == []


def test_a_body_that_is_no_object_is_refused():
    assert list(problems([], NEW)) == ["Invalid JSON payload received."]


# ---- Answers


async def post(server, path=f"/v1beta/models/{NEW}:generateContent", key=None, **body):
    headers = {} if key is None else {"x-goog-api-key": key}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(f"{server.origin}{path}", json={"contents": [USER], **body}, headers=headers)


async def test_it_refuses_in_googles_form():
    async with ProviderServer(["never"]) as server:
        response = await post(server, moon=1)

    assert response.status_code == 400
    message = 'Invalid JSON payload received. Unknown name "moon": Cannot find field.'
    assert response.json() == {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


async def test_a_wrong_key_is_refused():
    async with ProviderServer(["Hi"], api_key="right") as server:
        statuses = [(await post(server, key=key)).status_code for key in (None, "wrong", "right")]

    assert statuses == [401, 401, 200]


async def test_a_failure_is_a_status_of_googles():
    async with ProviderServer([Fault(status=429), Fault(status=418)]) as server:
        answers = [(await post(server)).json()["error"] for _ in range(2)]

    assert [(answer["code"], answer["status"]) for answer in answers] == [(429, "RESOURCE_EXHAUSTED"), (418, "UNKNOWN")]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1beta/models/m:generateContent", 200),
        ("/v1/models/m:generateContent", 200),
        ("/v1beta/models/a%2Fb:streamGenerateContent?alt=sse", 200),
        ("/v1beta/models/m:countTokens", 404),
        ("/v1beta/models/a/b:generateContent", 404),
        ("/v1beta/m:generateContent", 404),
    ],
)
async def test_it_speaks_by_its_path(path, status):
    async with ProviderServer(["Hi"]) as server:
        response = await post(server, path)

    assert response.status_code == status


async def test_without_alt_sse_the_answer_is_one_document():
    usage = Usage(7, 5, cache_read_tokens=4, thinking_tokens=3, requests=1)
    reply = Reply([ThinkingBlock("So it is. ", "c2ln"), TextBlock("Hi")], usage=usage)
    async with ProviderServer([reply]) as server:
        document = (await post(server, f"/v1beta/models/{NEW}:streamGenerateContent")).json()

    assert document == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "So ", "thought": True},
                        {"text": "it ", "thought": True},
                        {"text": "is. ", "thought": True, "thoughtSignature": thought_signature(NEW, "is. ")},
                        {"text": "Hi"},
                        {"text": "", "thoughtSignature": thought_signature(NEW, SIGNED_END)},
                    ],
                    "role": "model",
                },
                "index": 0,
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 7,
            "candidatesTokenCount": 2,
            "totalTokenCount": 12,
            "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 4,
        },
        "modelVersion": NEW,
        "responseId": "scripted",
    }


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply([TextBlock("a")]), "STOP"),
        (Reply([]), "STOP"),
        (Reply([TextBlock("a")], cut_off=True), "MAX_TOKENS"),
        (Reply([], refusal=True), "SAFETY"),
        (Reply([ToolCall("c1", "f", None, "{")]), "MALFORMED_FUNCTION_CALL"),
        (Reply([ToolCall("c1", "f", None, "{")], cut_off=True), "MAX_TOKENS"),
        (Reply([TextBlock("a")], stop_reason="OTHER"), "OTHER"),
    ],
)
async def test_the_finish_reason_is_what_the_api_would_give(reply, reason):
    async with ProviderServer([reply]) as server:
        candidate = (await post(server)).json()["candidates"][0]

    assert candidate["finishReason"] == reason
