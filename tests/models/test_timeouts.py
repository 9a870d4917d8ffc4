"""How long a request may take, limit by limit: over real sockets, in virtual time (B25)."""

import math

import pytest
import trio

from alpineagents import BrokenStreamError, Message, ModelEvent, OverloadedError, Request, UnreachableError
from alpineagents.models import OpenAICompatible, RateLimit, Timeout
from alpineagents.testing import Fault, ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])
TEXT = 'data: {"choices":[{"index":0,"delta":{"content":"slow"},"finish_reason":null}]}\n\n'
END = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
ENDLESS = Fault(body=": ping\n\n" * 1_000, chunk_size=8)


def ignore(event):
    """An emit that drops everything."""


def model_at(server, **options):
    return OpenAICompatible("m", base_url=server.base_url, **{"retries": 0, **options})


async def test_a_model_may_think_for_minutes_before_it_writes(autojump_clock):
    """B25: httpx's default of 5 s would end it."""
    async with ProviderServer([Fault(wait=599), Fault(body=TEXT + END, chunk_size=len(TEXT))], delay=119) as server:
        replies = [await model_at(server).respond(REQUEST, ignore) for _ in range(2)]

    assert [reply.text for reply in replies] == ["Hello.", "slow"]


@pytest.mark.parametrize(
    ("fault", "setting", "limit", "seconds"),
    [
        (Fault(wait=1_000), Timeout(first_byte=3), "no byte of its answer in 3 s [(]limit: first_byte[)]", 3),
        (Fault(stall=True, cut_after=250), Timeout(read=0.2), "silent .* for 0.2 s [(]limit: read[)]", 0.2),
        (Fault(stall=True, cut_after=250), Timeout(read=30), "silent .* for 30 s [(]limit: read[)]", 30),
        (Fault(wait=1_000), Timeout(total=40), "in 40 s [(]limit: total[)]", 40),
        (Fault(stall=True, cut_after=250), Timeout(total=40), "in 40 s [(]limit: total[)]", 40),
        (ENDLESS, Timeout(total=1_000), "in 1000 s [(]limit: total[)]", 1_000),
        (ENDLESS, 1_000, "in 1000 s [(]limit: total[)]", 1_000),
        (Fault(wait=1_000), Timeout(first_byte=None, total=900), "limit: total", 900),
        (Fault(stall=True, cut_after=250), Timeout(read=None, total=900), "limit: total", 900),
        (Fault(wait=1_000), None, "in 600 s [(]limit: first_byte[)]", 600),
    ],
)
async def test_the_error_names_the_limit(fault, setting, limit, seconds, autojump_clock, sockets):
    before = sockets()
    async with ProviderServer([fault], delay=50) as server:
        with pytest.raises(BrokenStreamError, match=limit):
            await model_at(server, timeout=setting).respond(REQUEST, ignore)
    assert seconds * 0.9 <= trio.current_time() <= seconds + 51
    assert sockets() == before


async def test_pings_move_the_read_limit_only(autojump_clock):
    """A server that only says it is alive is waited for, but not longer than the total."""
    async with ProviderServer([ENDLESS], delay=50) as server:
        with pytest.raises(BrokenStreamError, match="limit: total"):
            await model_at(server, timeout=Timeout(read=60, first_byte=60, total=900)).respond(REQUEST, ignore)
    assert 900 <= trio.current_time() <= 950


@pytest.mark.parametrize("limit", [Timeout(first_byte=10), Timeout(read=10)])
async def test_a_stall_is_sent_again(limit, autojump_clock):
    stall = Fault(wait=100) if limit.first_byte == 10 else Fault(stall=True, cut_after=250)
    emitted = []
    async with ProviderServer([stall, "Done."]) as server:
        reply = await model_at(server, retries=1, timeout=limit).respond(REQUEST, emitted.append)

    assert reply.text == "Done."
    assert [event.data["error"] for event in emitted if isinstance(event, ModelEvent)] == ["BrokenStreamError"]


async def test_the_total_is_for_all_attempts_together(autojump_clock):
    async with ProviderServer([Fault(status=503), Fault(stall=True, cut_after=250), "Done."]) as server:
        with pytest.raises(BrokenStreamError, match=r"in 60 s [(]limit: total[)] [(]tried 2 times[)]") as caught:
            await model_at(server, retries=4, timeout=60).respond(REQUEST, ignore)

    assert trio.current_time() == pytest.approx(60, abs=0.1)
    assert len(server.requests) == caught.value.usage.requests == 2


async def test_a_wait_that_would_end_behind_the_total_is_not_begun(autojump_clock):
    async with ProviderServer([Fault(status=503, headers={"Retry-After": "90"})]) as server:
        with pytest.raises(OverloadedError, match=r"not sent again: the next attempt, in 90.0 s, .* limit: total"):
            await model_at(server, retries=4, timeout=60).respond(REQUEST, ignore)

    assert trio.current_time() < 1


async def test_an_answer_that_is_whole_in_time_is_a_reply_although_the_socket_stays_open(autojump_clock):
    async with ProviderServer([Fault(body=TEXT + END, stall=True)]) as server:
        reply = await model_at(server, timeout=0.1).respond(REQUEST, ignore)

    assert reply.text == "slow"


async def test_waiting_for_a_rate_limit_is_not_part_of_the_total(autojump_clock):
    limit = RateLimit(requests_per_minute=1)
    async with ProviderServer(["One.", "Two."]) as server:
        model = model_at(server, timeout=5, rate_limit=limit)
        replies = [await model.respond(REQUEST, ignore) for _ in range(2)]

    assert [reply.text for reply in replies] == ["One.", "Two."]
    assert trio.current_time() > 60


async def test_no_connection_in_time_names_the_limit(autojump_clock, full_socket):
    model = OpenAICompatible("m", base_url=full_socket, retries=1, timeout=Timeout(connect=2))
    with pytest.raises(UnreachableError, match=r"none within 2 s [(]limit: connect[)].*[(]tried 2 times[)]"):
        await model.respond(REQUEST, ignore)

    assert 4 <= trio.current_time() < 6


@pytest.fixture
def full_socket():
    """The base URL of a server that takes no more connections."""
    import socket

    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}/v1"
        for one in waiting:
            one.close()


# ---- Settings


def test_a_number_is_the_total():
    model = OpenAICompatible("m", base_url="http://127.0.0.1:1/v1", timeout=30)

    assert model.timeout == Timeout(connect=10.0, first_byte=600.0, read=120.0, total=30)


def test_none_is_the_defaults():
    assert OpenAICompatible("m", base_url="http://127.0.0.1:1/v1").timeout == Timeout()
    assert OpenAICompatible("m", base_url="http://127.0.0.1:1/v1", timeout=None).timeout == Timeout()


def test_a_timeout_does_not_change():
    with pytest.raises(AttributeError):
        Timeout().read = 5


@pytest.mark.parametrize("field", ["connect", "first_byte", "read", "total"])
@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, ValueError, "more than 0 seconds [(]got 0[)]"),
        (-1, ValueError, "more than 0 seconds"),
        (math.nan, ValueError, "more than 0 seconds"),
        ("5", TypeError, "must be seconds or None, not str"),
        (True, TypeError, "must be seconds or None, not bool"),
    ],
)
def test_limits_are_checked(field, value, kind, text):
    with pytest.raises(kind, match=f"{field} .*{text}"):
        Timeout(**{field: value})


@pytest.mark.parametrize(("value", "kind"), [(0, ValueError), (math.nan, ValueError), ("5", TypeError)])
def test_the_setting_of_a_model_is_checked(value, kind):
    with pytest.raises(kind, match="timeout must be"):
        OpenAICompatible("m", base_url="http://127.0.0.1:1/v1", timeout=value)
