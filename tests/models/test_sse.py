"""Server-sent events: whatever the split and the line ends, the events are the standard's (WHATWG HTML, 9.2.6)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from alpineagents.models._sse import Event, SSEDecoder


def decode(*chunks: bytes) -> list[Event]:
    decoder = SSEDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def data_of(*chunks: bytes) -> list[bytes]:
    return [event.data for event in decode(*chunks)]


def test_only_lf_cr_and_crlf_end_a_line():
    """U+2028 and its kind end lines for str.splitlines and httpx's aiter_lines, and would cut the JSON (B1)."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei"

    assert data_of(f"data: {text}\n\n".encode()) == [text.encode()]


def test_crlf_split_between_chunks_is_one_line_end():
    assert data_of(b"data: a\r", b"\ndata: b\r\n\r", b"\n") == [b"a\nb"]


def test_an_event_is_there_as_soon_as_its_blank_line_is():
    assert data_of(b"data: x\n\r\n") == [b"x"]
    assert data_of(b"data: x\r\r") == [b"x"]
    assert data_of(b"data: x\r\n\r") == [b"x"]


def test_a_character_may_be_split():
    assert data_of("data: é".encode()[:-1], "data: é".encode()[-1:], b"\n\n") == ["é".encode()]


def test_a_leading_bom_is_taken_off_in_any_split():
    stream = b"\xef\xbb\xbfdata: x\n\n"

    assert data_of(stream) == [b"x"]
    assert data_of(*[stream[i : i + 1] for i in range(len(stream))]) == [b"x"]


def test_a_bom_elsewhere_is_text():
    assert data_of(b"data: \xef\xbb\xbfx\n\n") == [b"\xef\xbb\xbfx"]
    assert data_of(b"\xef", b"data: x\n\n") == []  # The field is named "\xefdata".


def test_the_space_behind_the_colon_may_be_missing_and_only_one_is_taken():
    assert data_of(b"data:x\n\ndata:  y\n\n") == [b"x", b" y"]


def test_comments_and_pings_never_surface():
    """Not after an id either, where httpx-sse gives an empty event for each."""
    assert decode(b": ping\n\nid: 1\ndata: x\n\n: ping\n\nevent: ping\n\n:\n\n") == [Event("", b"x")]


def test_an_event_keeps_its_name_and_the_next_has_none():
    assert decode(b"event: error\ndata: x\n\nevent:b\ndata: y\n\ndata: z\n\n") == [
        Event("error", b"x"),
        Event("b", b"y"),
        Event("", b"z"),
    ]


def test_a_name_without_data_is_no_event_and_names_no_later_one():
    assert decode(b"event: ping\n\ndata: x\n\n") == [Event("", b"x")]


def test_data_lines_are_joined_by_lf():
    assert data_of(b"data: a\ndata\ndata: b\n\n") == [b"a\n\nb"]


def test_unknown_fields_are_ignored():
    assert data_of(b"retry: 10\nfoo: bar\nfoo\ndata: x\ndatas: y\n\n") == [b"x"]


def test_an_unterminated_last_event_is_dropped():
    assert data_of(b"data: x\n\ndata: [DONE]") == [b"x"]
    assert data_of(b"data: x\n\ndata: [DONE]\n") == [b"x"]


def test_empty_chunks_change_nothing():
    assert data_of(b"", b"data: a\r", b"", b"\n", b"", b"\r\n") == [b"a"]


PIECES = ["data: a", "data:é", "data", ": c", "event: e", "id: 1", "\n", "\r", "\r\n", "\u2028", "\ufeff", "x", ""]


@given(st.lists(st.sampled_from(PIECES)), st.data())
def test_any_split_gives_the_same_events(pieces, data):
    stream = "".join(pieces).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    bounds = [0, *cuts, len(stream)]

    split = decode(*[stream[start:end] for start, end in pairwise(bounds)])

    assert split == decode(stream)
    assert split == decode(*[bytes([byte]) for byte in stream])


@given(st.lists(st.sampled_from(PIECES)))
def test_all_line_ends_mean_the_same(pieces):
    stream = "".join(pieces).replace("\r", "").encode()

    assert decode(stream.replace(b"\n", b"\r\n")) == decode(stream)
    assert decode(stream.replace(b"\n", b"\r")) == decode(stream)


def test_a_long_line_in_small_chunks_is_joined_once():
    """Linear: the pieces of a line wait in a list. With a buffer that grows by += this takes minutes."""
    decoder = SSEDecoder()
    decoder.feed(b"data: ")
    for _ in range(300_000):
        decoder.feed(b"0123456789")

    assert [len(event.data) for event in decoder.feed(b"\n\n")] == [3_000_000]
