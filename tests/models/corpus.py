"""The laws of recorded streams, for every wire format: each gives the reply it should, in any split of its bytes.

A format joins by a subclass of StreamLaws. The first line of each file in its ``streams/`` says where its form comes
from.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alpineagents import ProviderError, Reply, TextDelta, ThinkingBlock, ThinkingDelta
from alpineagents.models._sse import Event, SSEDecoder
from alpineagents.models._wire import Decoder, Delta, Endpoint


def streams_beside(module: str) -> dict[str, bytes]:
    """The streams of a test module, by their names."""
    return {path.stem: path.read_bytes() for path in sorted(Path(module).with_name("streams").glob("*.sse"))}


def outcome_of(decoder: Decoder) -> Any:
    """The reply, or the error as (class, text, body, status, usage)."""
    try:
        return decoder.reply()
    except ProviderError as error:
        return (type(error).__name__, str(error), error.body, error.status, decoder.usage())


# What a server may put in any place of its JSON, whatever belongs there.
DEEPEST = b"[" * 1_000 + b"]" * 1_000
WRONG: list[object] = ["@deep", "@huge", None, True, 0, -1, 1.5, 2**70, "", "x", "error", "null", "{}"]
WRONG += [[], {}, [None], ["x"], [[]], {"a": 1}]

Places = Sequence[tuple[int, object]]


def spoiled(data: bytes, places: Places) -> bytes:
    """The JSON of an event or a document with other values in some places; each place is a choice among all."""
    try:
        document = json.loads(data, strict=False)
    except ValueError:
        return data
    for place, value in places:
        holders = [(document, key) for key in keys_of(document)]
        for holder, key in holders:
            holders += [(holder[key], inner) for inner in keys_of(holder[key])]
        if holders:
            holder, key = holders[place % len(holders)]
            holder[key] = copy.deepcopy(value)
    return json.dumps(document).encode().replace(b'"@deep"', DEEPEST).replace(b'"@huge"', b"1e999")


def keys_of(value: Any) -> Iterable[Any]:
    return list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []


def names(among: Callable[[StreamLaws], Iterable[str]]) -> st.SearchStrategy[str]:
    """One stream among those of the format whose laws are tested."""
    return st.runner().flatmap(lambda laws: st.sampled_from(sorted(among(laws))))


def wrong_places() -> st.SearchStrategy[Places]:
    """Some places, and what is put there."""
    place = st.integers(0, 1_000)
    return st.runner().flatmap(
        lambda laws: st.lists(st.tuples(place, st.sampled_from([*WRONG, *laws.words])), max_size=3)
    )


# A law is one function, and each subclass tests it with streams of its own.
suppressed = [*settings().suppress_health_check, HealthCheck.differing_executors]
for_every_format = settings(suppress_health_check=suppressed)


class StreamLaws:
    """What holds for the streams of any format. A subclass says which they are, and what they must give."""

    streams: ClassVar[Mapping[str, bytes]]
    expected: ClassVar[Mapping[str, tuple[Any, ...]]]
    """What a stream must give: blocks, each in brief; the stop reason; flags; the tokens of ``counted``, where they
    aren't the ``usual_tokens``. An error is its class and part of its text."""
    endpoint: ClassVar[Endpoint]
    decoder: ClassVar[Callable[[Endpoint], Decoder]]
    brief: ClassVar[Callable[[object], object]]
    """Shortens a block; refuses one that says whose it is otherwise than it should."""
    document: ClassVar[object]
    """JSON of an answer that is no stream."""
    words: ClassVar[tuple[str, ...]]
    """Values that mean something in this format: what a server may put in a wrong place, too."""

    counted: ClassVar[tuple[str, ...]] = ("input_tokens", "output_tokens", "cache_read_tokens", "thinking_tokens")
    usual_tokens: ClassVar[tuple[int, ...]] = (0, 0, 0, 0)
    ends_with_the_body: ClassVar[bool] = False
    """Whether a finish reason may be the last only because the body ends behind it, and usage may come in between."""
    uncut: ClassVar[frozenset[str]] = frozenset()
    """Streams of which no one can say whether they are cut."""
    unspoiled: ClassVar[frozenset[str]] = frozenset()
    """Streams that are too long to be spoiled that often."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "name" in metafunc.fixturenames:
            metafunc.parametrize("name", self.streams)
        if "answered" in metafunc.fixturenames:
            answered = [name for name, expected in self.expected.items() if isinstance(expected[0], list)]
            metafunc.parametrize("answered", answered)

    def decode(self, chunks: Iterable[bytes]) -> tuple[Any, list[Delta]]:
        """The outcome, and the deltas."""
        sse, decoder = SSEDecoder(), self.decoder(self.endpoint)
        deltas = [delta for chunk in chunks for delta in decoder.feed(sse.feed(chunk))]
        return outcome_of(decoder), deltas

    def summary(self, reply: Reply) -> tuple[object, ...]:
        flags = " ".join(flag for flag in ("cut_off", "refusal") if getattr(reply, flag))
        tokens = tuple(getattr(reply.usage, kind) for kind in self.counted)
        return ([self.brief(block) for block in reply.blocks], reply.stop_reason, flags, tokens)

    def check_reply_or_error(self, decoder: Decoder) -> None:
        whole = decoder.finished and decoder.failure is None
        outcome = outcome_of(decoder)
        if isinstance(outcome, Reply):
            assert whole or (self.ends_with_the_body and decoder.failure is None)
        else:
            assert not whole
            assert str(self.endpoint) in outcome[1]

    def test_every_stream_says_where_its_form_comes_from_and_what_it_must_give(self):
        assert sorted(self.streams) == sorted(self.expected)
        for name, stream in self.streams.items():
            first = stream.removeprefix(b"\xef\xbb\xbf").splitlines()[0]
            assert first.startswith(b": "), name
            assert len(first) > 20, name

    def test_a_stream_gives_what_it_must(self, name):
        outcome, _ = self.decode([self.streams[name]])

        expected = self.expected[name]
        if isinstance(outcome, Reply):
            assert self.summary(outcome) == (*expected, self.usual_tokens)[:4]
            assert outcome.usage.requests == 1
        else:
            kind, text, body, status, _ = outcome
            assert (kind, status) == (expected[0], 200)
            assert expected[1] in text
            assert str(self.endpoint) in text
            assert body

    def test_a_stream_byte_by_byte_gives_the_same(self, name):
        stream = self.streams[name]

        assert self.decode([bytes([byte]) for byte in stream]) == self.decode([stream])

    @for_every_format
    @given(names(lambda laws: laws.streams), st.data())
    def test_any_split_of_any_stream_gives_the_same_reply_and_deltas(self, name, data):
        stream = self.streams[name]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
        bounds = [0, *cuts, len(stream)]

        split = self.decode([stream[start:end] for start, end in pairwise(bounds)])

        assert split == self.decode([stream])

    def test_the_deltas_of_a_stream_are_its_text(self, answered):
        reply, deltas = self.decode([self.streams[answered]])

        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == reply.text
        thinking = "".join(block.text for block in reply.blocks if isinstance(block, ThinkingBlock))
        assert "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta)) == thinking
        assert all(delta.text for delta in deltas)

    @for_every_format
    @given(names(lambda laws: laws.streams.keys() - laws.uncut), st.data())
    def test_a_stream_that_is_cut_gives_the_whole_reply_or_an_error(self, name, data):
        """Never a part of an answer (B4)."""
        stream = self.streams[name]
        whole, _ = self.decode([stream])

        outcome, _ = self.decode([stream[: data.draw(st.integers(0, len(stream)))]])

        if self.ends_with_the_body and isinstance(outcome, Reply):
            assert isinstance(whole, Reply)
            assert (outcome.blocks, outcome.stop_reason) == (whole.blocks, whole.stop_reason)
        else:
            assert outcome == whole or outcome[0] == "BrokenStreamError"

    @for_every_format
    @given(names(lambda laws: laws.streams.keys() - laws.unspoiled), st.lists(wrong_places(), min_size=1, max_size=9))
    def test_no_wrong_value_crashes_the_decoder(self, name, places):
        """Anything in any place of any event: the outcome is a reply or an error of ours."""
        events = SSEDecoder().feed(self.streams[name])
        decoder = self.decoder(self.endpoint)

        at = zip(events, cycle(places), strict=False)
        deltas = decoder.feed([Event(event.name, spoiled(event.data, where)) for event, where in at])

        assert all(delta.text for delta in deltas)
        self.check_reply_or_error(decoder)

    @for_every_format
    @given(wrong_places())
    def test_no_wrong_value_in_a_document_crashes_the_decoder(self, places):
        decoder = self.decoder(self.endpoint)

        decoder.feed_document(spoiled(json.dumps(self.document).encode(), places))

        self.check_reply_or_error(decoder)
