"""WireLaws: the test class that any wire format must pass, ours and yours."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from ..._errors import BrokenStreamError, ProviderError
from ...models._sse import SSEDecoder
from ...models._wire import Decoder, Delta, Wire
from ...record._messages import Reply, TextDelta, ThinkingDelta, Usage
from ._asking import CHOICES, CONVERSATIONS, OTHER_TOOL, SCHEMA, TOOL, asking, request_of
from ._kit import law

_STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)
_BODIES = {
    "nothing": b"",
    "a page": b"<html><body>Bad gateway</body></html>",
    "another object": b'{"detail": [{"loc": ["body"], "msg": "field required"}]}',
    "an error": b'{"error": {"message": "No.", "type": "invalid_request_error", "code": "no", "status": "INVALID"}}',
    "an error in words": b'{"error": "No."}',
    "a list": b"[1, 2]",
    "a text": b'"no"',
    "no text": b"\xff\xfe\x00",
    "half an object": b'{"error": {"message": ',
}
_GARBAGE = (
    b"data: {\n\n",
    b"data: []\n\n",
    b"data: null\n\n",
    b'data: "x"\n\n',
    b"data: {}\n\n",
    b'data: {"type": 1, "choices": 2, "candidates": 3, "delta": 4}\n\n',
    b'event: error\ndata: {"type": "error", "error": {"message": "No."}}\n\n',
    b"\xff\xfe\n\n",
    b": a comment\n\n",
)


class WireLaws:
    """What a wire format must do, as tests: subclass it beside two fixtures. See ``ModelLaws`` for how they run.

    * ``wire``: the Wire.
    * ``answers``: bodies of whole answers as the provider streams them, as bytes: recorded ones, with text, with
      thoughts, with calls.

    Example::

        class TestMyWire(WireLaws):
            @pytest.fixture
            def wire(self):
                return MyWire(Endpoint("mine", "https://example.com", "large"), Settings())

            @pytest.fixture
            def answers(self):
                return [path.read_bytes() for path in Path("streams").glob("*.sse")]
    """

    # Requests

    @pytest.mark.parametrize("name", CONVERSATIONS)
    @law
    def test_any_conversation_has_a_form(self, wire: Wire, name: str) -> None:
        """``encode`` makes a JSON object of every well-formed conversation: parts of other providers' are left out."""
        body = json.loads(wire.encode(request_of(name, system="You find bugs.")))

        assert isinstance(body, dict)
        assert "signature of another" not in json.dumps(body)

    @pytest.mark.parametrize("choice", CHOICES)
    @law
    def test_tools_and_every_choice_of_one_have_a_form(self, wire: Wire, choice: str) -> None:
        """``encode`` writes the tools that a request offers, with name, description and schema."""
        body = wire.encode(asking(tools=(TOOL, OTHER_TOOL), tool_choice=choice)).decode()

        assert isinstance(json.loads(body), dict)
        if choice != "none":
            for text in ("read_file", "Read a file.", "Which."):
                assert text in body

    @law
    def test_a_schema_has_a_form(self, wire: Wire) -> None:
        """``encode`` takes a request for structured output."""
        assert isinstance(json.loads(wire.encode(asking(returns=SCHEMA))), dict)

    @law
    def test_all_that_is_said_is_in_it(self, wire: Wire) -> None:
        """System prompt, messages, arguments and results stand in the JSON, each once, in their order."""
        body = wire.encode(request_of("calls", system="You find bugs.")).decode()

        for text in ("You find bugs.", "Find the bug.", "main.py", "x = 1"):
            assert text in body
        assert body.index("Find the bug.") < body.index("x = 1")

    @law
    def test_the_same_request_has_the_same_form(self, wire: Wire) -> None:
        """``encode`` is a function of the request: whatever came before it, the bytes are the same."""
        first = wire.encode(request_of("calls"))
        for name in CONVERSATIONS:
            wire.encode(request_of(name))

        assert wire.encode(request_of("calls")) == first

    @law
    def test_encoding_does_not_change_the_request(self, wire: Wire) -> None:
        """A request is only read."""
        for name in CONVERSATIONS:
            request = request_of(name, system="You find bugs.")
            before = repr(request)
            wire.encode(request)

            assert repr(request) == before

    @law
    def test_its_path_goes_behind_a_base_url(self, wire: Wire) -> None:
        """``path`` begins with a slash; ``endpoint`` says whom it is for."""
        assert wire.path.startswith("/")
        assert wire.endpoint.provider
        assert wire.endpoint.model

    # Answers

    @law
    def test_any_split_gives_the_same_answer(self, wire: Wire, answers: Sequence[bytes]) -> None:
        """However an answer is cut into pieces, the same deltas come in the same order, and the same Reply."""
        assert answers
        for body in answers:
            reply, deltas = _decoded(wire, [body])
            for pieces in _splits(body):
                again, others = _decoded(wire, pieces)
                assert again == reply
                assert _joined(others) == _joined(deltas)

    @law
    def test_the_deltas_are_the_reply(self, wire: Wire, answers: Sequence[bytes]) -> None:
        """The pieces of text, joined, are the text of the reply."""
        for body in answers:
            reply, deltas = _decoded(wire, [body])

            assert all(isinstance(delta, TextDelta | ThinkingDelta) for delta in deltas)
            assert "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)]) == reply.text

    @law
    def test_answers_do_not_mix(self, wire: Wire, answers: Sequence[bytes]) -> None:
        """Each ``decoder()`` is new: several answers can come at a time."""
        alone = [_decoded(wire, [body])[0] for body in answers]
        decoders = [(wire.decoder(), SSEDecoder()) for _ in answers]
        longest = max(map(len, answers))
        for start in range(0, longest, 64):
            for (decoder, sse), body in zip(decoders, answers, strict=True):
                decoder.feed(sse.feed(body[start : start + 64]))

        assert [decoder.reply() for decoder, _ in decoders] == alone

    @law
    def test_an_answer_that_breaks_off_is_none(self, wire: Wire, answers: Sequence[bytes]) -> None:
        """Before the end was told ``reply()`` raises, and ``finished`` is False: a part is never the whole."""
        for body in answers:
            whole, _ = _decoded(wire, [body])
            for cut in _places(body):
                decoder = wire.decoder()
                decoder.feed(SSEDecoder().feed(body[:cut]))
                try:
                    part = decoder.reply()
                except ProviderError:
                    assert not decoder.finished
                else:
                    assert part.blocks == whole.blocks

    @law
    def test_no_answer_is_none(self, wire: Wire) -> None:
        """A stream that ends before it said anything is a BrokenStreamError."""
        with pytest.raises(BrokenStreamError):
            wire.decoder().reply()

    @pytest.mark.parametrize("garbage", _GARBAGE)
    @law
    def test_feeding_never_raises(self, wire: Wire, answers: Sequence[bytes], garbage: bytes) -> None:
        """Whatever comes, ``feed`` returns: what is wrong is in ``failure``, and comes out of ``reply()``."""
        for body in [b"", *answers]:
            for place in {0, _behind_first(body), len(body)}:
                decoder = wire.decoder()
                sse = SSEDecoder()
                for piece in (body[:place], garbage, body[place:]):
                    decoder.feed(sse.feed(piece))
                _ends(decoder)

    @pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
    @law
    def test_a_body_that_is_no_stream_never_raises(self, wire: Wire, body: bytes) -> None:
        """``feed_document`` takes any body; what is no answer comes out of ``reply()`` as a ProviderError."""
        decoder = wire.decoder()
        decoder.feed_document(body)

        with pytest.raises(ProviderError):
            decoder.reply()

    @law
    def test_what_is_unknown_is_passed_over(self, wire: Wire, answers: Sequence[bytes]) -> None:
        """Events and fields that a later version of the provider may send change nothing."""
        news = b'event: weather\ndata: {"type": "weather", "object": "weather", "degrees": 21}\n\n'
        for body in answers:
            reply, deltas = _decoded(wire, [body])
            place = _behind_first(body)
            again, others = _decoded(wire, [body[:place], news, body[place:]])

            assert again == reply
            assert _joined(others) == _joined(deltas)

    @law
    def test_tokens_are_told_or_not(self, wire: Wire, answers: Sequence[bytes]) -> None:
        """``usage()`` is None before the provider told any tokens, and the reply's once it is there."""
        assert wire.decoder().usage() in (None, Usage())
        for body in answers:
            decoder = wire.decoder()
            decoder.feed(SSEDecoder().feed(body))
            told, reply = decoder.usage(), decoder.reply()

            assert told is None or told.output_tokens == reply.usage.output_tokens

    # Errors

    @pytest.mark.parametrize("status", _STATUSES)
    @pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
    @law
    def test_any_refusal_is_a_provider_error(self, wire: Wire, status: int, body: bytes) -> None:
        """``failure`` makes a ProviderError of any status and body, which says the status and how long to wait."""
        error = wire.failure(status, {"x-request-id": "r1", "content-type": "text/html"}, body, 7.0)

        assert isinstance(error, ProviderError)
        assert error.status == status
        assert error.retry_after == 7.0
        assert str(error).strip()
        assert "\n" not in str(error)

    @law
    def test_an_error_shows_no_more_than_it_may(self, wire: Wire) -> None:
        """What ``redacted`` takes out is in no error of a stream."""
        decoder = wire.decoder(lambda text: text.replace("hidden", "..."))
        decoder.feed(SSEDecoder().feed(b'event: error\ndata: {"type": "error", "error": {"message": "hidden"}}\n\n'))

        with pytest.raises(ProviderError) as caught:
            decoder.reply()
        assert "hidden" not in f"{caught.value} {vars(caught.value)}"


def _decoded(wire: Wire, pieces: Sequence[bytes]) -> tuple[Reply, list[Delta]]:
    decoder, sse = wire.decoder(), SSEDecoder()
    deltas = [delta for piece in pieces for delta in decoder.feed(sse.feed(piece))]
    return decoder.reply(), deltas


def _joined(deltas: Sequence[Delta]) -> list[tuple[type[Any], str]]:
    """Deltas with those of a kind that follow each other put together."""
    joined: list[tuple[type[Any], str]] = []
    for delta in deltas:
        if joined and joined[-1][0] is type(delta):
            joined[-1] = (type(delta), joined[-1][1] + delta.text)
        else:
            joined.append((type(delta), delta.text))
    return joined


def _behind_first(body: bytes) -> int:
    """Where the first event ends."""
    found = re.search(rb"\r?\n\r?\n", body)
    return found.end() if found else 0


def _splits(body: bytes) -> Iterator[list[bytes]]:
    yield [body[place : place + 1] for place in range(len(body))]
    yield [body[place : place + 7] for place in range(0, len(body), 7)]
    for place in _places(body):
        yield [body[:place], body[place:]]


def _places(body: bytes) -> list[int]:
    """Places to cut an answer at: some dozens, and the same each time."""
    draw = random.Random(len(body))
    return sorted({draw.randrange(len(body) + 1) for _ in range(40)})


def _ends(decoder: Decoder) -> None:
    """See that it gives a Reply or a ProviderError, and tokens or none."""
    with suppress(ProviderError):
        assert isinstance(decoder.reply(), Reply)
    assert decoder.usage() is None or isinstance(decoder.usage(), Usage)
