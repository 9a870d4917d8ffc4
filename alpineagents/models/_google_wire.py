"""Gemini's ``generateContent``, streamed: a Request as JSON, and what decodes the answer.

Source: Google's API reference, models.streamGenerateContent, and its guide on function calling (v1beta, 2026). A
message is encoded once and its JSON reused in later requests, so a turn costs what is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, final
from urllib.parse import quote

from .._errors import ProviderError
from ..record._messages import Request, ToolSpec
from ._google_complaints import complaint_of_body
from ._google_message import ContentRole, Encoded, Recipient, Result, encode_message, function_name
from ._google_schema import sendable_schema
from ._google_settings import generation_config, is_before_gemini_3
from ._google_stream import GoogleDecoder
from ._json import dumps, dumps_object
from ._once import OncePerMessage
from ._openai_chat import NOTHING_SAID
from ._wire import Endpoint, Redact, Settings, error_of_answer


@final
class GoogleWire:
    """The generateContent format for one model at one endpoint. See ``_wire.Wire``.

    Raises:
        ValueError: the API has nothing for a setting.
    """

    def __init__(self, endpoint: Endpoint, settings: Settings) -> None:
        self.endpoint = endpoint
        name = quote(endpoint.model.removeprefix("models/"), safe="")
        self.path = f"/v1beta/models/{name}:streamGenerateContent?alt=sse"
        self._older = is_before_gemini_3(endpoint.model)
        self._config = generation_config(endpoint.model, settings)
        self._extra = {key: dumps(value) for key, value in (settings.extra_body or {}).items()}
        recipient = Recipient(endpoint.provider, endpoint.model, self._older)
        self._encoded = OncePerMessage(partial(encode_message, to=recipient))
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")  # Those of the last request, which hardly change.

    def decoder(self, redacted: Redact = str) -> GoogleDecoder:
        """Return a new decoder for one answer, whose errors are *redacted*."""
        return GoogleDecoder(self.endpoint, redacted)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, retry_after: float | None) -> ProviderError:
        """Return the error that an answer with this *status* stands for."""
        complaint, delay = complaint_of_body(body)
        wait = delay if retry_after is None else retry_after
        return error_of_answer(self.endpoint, complaint, status=status, headers=headers, body=body, retry_after=wait)

    def encode(self, request: Request) -> bytes:
        """Return the request's JSON."""
        fields = {"contents": _Contents().array(self._encoded.of(request.messages))}
        if request.system and not request.system.isspace():
            fields["systemInstruction"] = dumps({"parts": [{"text": request.system}]})
        # Models before Gemini 3 refuse tools together with a schema for the answer. Where no tool may be called
        # they can be left out: by the API reference, that is the same to the model.
        if request.tools and not (self._older and request.returns is not None and request.tool_choice == "none"):
            fields["tools"] = self._declarations(request.tools)
            if request.tool_choice != "auto":
                fields["toolConfig"] = dumps({"functionCallingConfig": _calling(request.tool_choice)})
        config = self._config
        if request.returns is not None:
            schema = sendable_schema(request.returns)
            config = {**config, "responseMimeType": "application/json", "responseJsonSchema": schema}
        if config:
            fields["generationConfig"] = dumps(config)
        return dumps_object({**fields, **self._extra})

    def _declarations(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] is not tools:
            self._tools = tools, dumps([{"functionDeclarations": [_declaration(tool) for tool in tools]}])
        return self._tools[1]


def _declaration(tool: ToolSpec) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": function_name(tool.name)}
    if tool.description:
        declaration["description"] = tool.description
    schema = tool.input_schema
    if schema.get("properties") or schema.get("additionalProperties") or schema.keys() & _COMPOSED:
        declaration["parametersJsonSchema"] = sendable_schema(schema)
    return declaration  # An object without properties was refused by some models: no parameters is the same.


_COMPOSED = frozenset(("$ref", "allOf", "anyOf", "oneOf"))


def _calling(choice: str) -> dict[str, Any]:
    if choice == "none":
        return {"mode": "NONE"}
    return {"mode": "ANY"} if choice == "required" else {"mode": "ANY", "allowedFunctionNames": [function_name(choice)]}


@final
class _Contents:
    """Puts parts into contents: the person first, and one content for all that the same speaker says in a row.

    The results of a turn come right behind its calls, in their order, in a content of their own: its parts are counted.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # Of the JSON, joined once in the end: nothing is copied before.
        self._role: ContentRole | None = None  # Of the content that may go on.
        self._calls: list[tuple[str, bytes]] = []
        self._results: list[Result] = []

    def array(self, messages: list[Encoded]) -> bytes:
        """Return the contents as a JSON array."""
        for message in messages:
            if message.results:
                self._results += message.results
            if message.parts:
                if self._results:
                    self._answer()
                self._extend(message.role, message.parts)
                self._calls += message.calls
        self._answer()
        if not self._pieces:
            self._extend("user", _NOTHING_SAID)
        self._pieces[0] = self._pieces[0].removeprefix(_END + b",")
        return b"".join([b"[", *self._pieces, _END, b"]"])

    def _answer(self) -> None:
        """Put the results that have come behind the calls that they answer."""
        attachments: list[bytes] = []
        opening, results = _NEXT["user"], self._results
        for call_id, name in self._calls:
            for result in results:
                if result.call_id == call_id:
                    results.remove(result)
                    self._pieces += (opening, result.before_name, name, result.behind_name)
                    self._role = None
                    opening = b","
                    attachments += result.attachments
                    break
        self._calls, self._results = [], []
        if attachments:
            self._extend("user", b",".join(attachments))

    def _extend(self, role: ContentRole, parts: bytes) -> None:
        if role == self._role:
            self._pieces += (b",", parts)
            return
        if role == "model" and not self._pieces:
            self._extend("user", _NOTHING_SAID)
        self._pieces += (_NEXT[role], parts)
        self._role = role


_NOTHING_SAID = dumps({"text": NOTHING_SAID})
_END = b"]}"
_NEXT = {role: b'%b,{"role":"%b","parts":[' % (_END, role.encode()) for role in ("user", "model")}
"""Ends a content and begins the next."""
