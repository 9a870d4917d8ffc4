"""RateLimit: turns in order of arrival, limits as a server counts them, and what a 429 and headers teach."""

import math
from collections import deque
from datetime import UTC, datetime

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from alpineagents import Message, ModelEvent, RateLimitError, Reply, Request, TextBlock, Usage
from alpineagents.models import OpenAICompatible, RateLimit
from alpineagents.models._quota_headers import Left, left_by, seconds_until
from alpineagents.testing import Fault, ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])


def ignore(event):
    """An emit that drops everything."""


def model_at(server, limit, **options):
    return OpenAICompatible("m", base_url=server.base_url, rate_limit=limit, **options)


class Counter:
    """A provider's own count: requests in a sliding minute; beyond its limit a 429."""

    def __init__(self, per_minute, retry_after=None):
        self.times = deque()
        self.most = 0
        self.refused = 0
        self._limit = per_minute
        self._headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    def __call__(self, request):
        now = trio.current_time()
        while self.times and self.times[0] <= now - 60:
            self.times.popleft()
        if len(self.times) >= self._limit:
            self.refused += 1
            return Fault(status=429, headers=self._headers)
        self.times.append(now)
        self.most = max(self.most, len(self.times))
        return Fault()


async def hold(limit, seconds, log=None, name=None, **options):
    async with limit.turn(**options):
        if log is not None:
            log.append((name, trio.current_time()))
        await trio.sleep(seconds)


# ---- Order


async def test_requests_wait_in_order_of_arrival(autojump_clock):
    log = []
    limit = RateLimit(concurrent=2)
    async with trio.open_nursery() as nursery:
        for name in range(10):
            nursery.start_soon(hold, limit, 1, log, name)
            await wait_all_tasks_blocked()

    assert [name for name, _ in log] == list(range(10))
    assert [at for _, at in log] == pytest.approx([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])


async def test_a_small_request_does_not_pass_a_large_one(autojump_clock):
    """Else a stream of small ones would keep it waiting for ever."""
    log = []
    limit = RateLimit(tokens_per_minute=100)
    async with trio.open_nursery() as nursery:
        for name, tokens in enumerate([60, 90, 10, 10]):
            nursery.start_soon(lambda n=name, t=tokens: hold(limit, 0, log, n, size=0, max_tokens=t))
            await wait_all_tasks_blocked()

    assert [name for name, _ in log] == [0, 1, 2, 3]
    assert log[2][1] >= log[1][1] >= 60


async def test_a_cancelled_request_leaves_no_hole_in_the_line(autojump_clock):
    log = []
    limit = RateLimit(concurrent=1)
    scopes = [trio.CancelScope() for _ in range(6)]

    async def wait(name):
        with scopes[name]:
            await hold(limit, 1, log, name)

    async with trio.open_nursery() as nursery:
        for name in range(6):
            nursery.start_soon(wait, name)
            await wait_all_tasks_blocked()
        for name in (1, 2, 4):
            scopes[name].cancel()

    assert [name for name, _ in log] == [0, 3, 5]
    assert trio.current_time() == 3


async def test_the_first_in_line_may_be_cancelled(autojump_clock):
    log = []
    limit = RateLimit(requests_per_minute=1)
    await hold(limit, 0)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(10):
            await hold(limit, 0)
        nursery.start_soon(hold, limit, 0, log, "next")

    assert log == [("next", pytest.approx(60.1, abs=0.01))]


async def test_a_cancelled_request_frees_its_place(autojump_clock, sockets):
    before = sockets()
    limit = RateLimit(concurrent=1)
    async with ProviderServer([Fault(stall=True, cut_after=250), "Done."]) as server:
        model = model_at(server, limit)
        with trio.move_on_after(5):
            await model.respond(REQUEST, ignore)
        with trio.fail_after(1):
            reply = await model.respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert sockets() == before


async def test_a_request_that_failed_keeps_its_place(autojump_clock):
    """It came before the others, so it goes before them when it is sent again."""
    limit = RateLimit(concurrent=1)
    order = []
    async with ProviderServer([Fault(status=503, headers={"Retry-After": "2"})] + [Fault(wait=10)] * 3) as server:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                request = Request(messages=[Message.user(name)])
                nursery.start_soon(model_at(server, limit).respond, request, ignore)
                await wait_all_tasks_blocked(0.001)
        order = [request.body["messages"][-1]["content"] for request in server.requests]

    assert order in (["a", "a", "b", "c"], ["a", "b", "a", "c"])


# ---- Requests


async def test_a_burst_may_go_at_once_and_the_rest_a_minute_later(autojump_clock):
    log = []
    limit = RateLimit(requests_per_minute=3)
    async with trio.open_nursery() as nursery:
        for name in range(7):
            nursery.start_soon(hold, limit, 0, log, name)

    assert [at for _, at in log] == pytest.approx([0, 0, 0, 60.1, 60.1, 60.1, 120.2], abs=0.01)


async def test_no_minute_of_the_server_has_more_however_long_the_way_is(autojump_clock):
    """The window's edges: what was sent early may be counted late, and what is sent late at once."""
    arrivals = []
    limit = RateLimit(requests_per_minute=5)

    async def send(delay):
        async with limit.turn() as turn:
            await trio.sleep(delay)
            arrivals.append(trio.current_time())
            await trio.sleep(delay)
            turn.answered(200, {})
            await trio.sleep(30)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(send, (number * 7 % 13) / 10)

    assert len(arrivals) == 40
    arrivals.sort()
    assert all(later - earlier >= 60 for earlier, later in zip(arrivals, arrivals[5:], strict=False))


async def test_a_model_that_thinks_long_before_it_writes_does_not_hold_the_others_up(autojump_clock):
    """A server has counted a request long before a first byte that takes minutes."""
    log = []
    limit = RateLimit(requests_per_minute=1)

    async def think():
        async with limit.turn():
            await trio.sleep(500)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(think)
        await wait_all_tasks_blocked()
        nursery.start_soon(hold, limit, 0, log, "next")

    assert log[0][1] == pytest.approx(65.1, abs=0.01)


async def test_every_attempt_counts(autojump_clock):
    limit = RateLimit(requests_per_minute=2)
    async with ProviderServer([Fault(status=503), Fault(drop=True), "Done."]) as server:
        emitted = []
        reply = await model_at(server, limit).respond(REQUEST, emitted.append)

    assert reply.usage.requests == 3
    assert 60 < trio.current_time() < 62
    waits = [event for event in emitted if isinstance(event, ModelEvent) and event.kind == "rate_limited"]
    assert [event.data["seconds"] for event in waits] == [pytest.approx(60, abs=1.5)]


# ---- Tokens


async def test_tokens_are_estimated_before_and_corrected_after(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    log = []
    async with limit.turn(size=2_000, max_tokens=400) as turn:  # 2,000 bytes are 500 tokens at first.
        turn.used(100, 50)
    await hold(limit, 0, log, "fits", max_tokens=850)
    await hold(limit, 0, log, "waits", max_tokens=1)

    assert log == [("fits", 0), ("waits", pytest.approx(60.1, abs=0.01))]


async def test_a_reply_that_cost_more_than_the_estimate_counts_as_what_it_cost(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    log = []
    async with limit.turn(max_tokens=1) as turn:
        turn.used(600, 500)
    await hold(limit, 0, log, "waits", max_tokens=1)

    assert log[0][1] == pytest.approx(60.1, abs=0.01)


async def test_what_comes_at_the_end_of_a_long_reply_counts_then(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    log = []
    async with limit.turn(max_tokens=100) as turn:
        await trio.sleep(200)
        turn.used(0, 1_100)
    await hold(limit, 0, log, "waits", max_tokens=100)

    assert log[0][1] == pytest.approx(260.1, abs=0.01)


async def test_a_long_reply_that_cost_less_frees_nothing_twice(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    log = []
    async with limit.turn(max_tokens=900) as turn:
        await trio.sleep(200)
        turn.used(0, 10)
    await hold(limit, 0, log, "fits", max_tokens=1_000)
    await hold(limit, 0, log, "waits", max_tokens=1)

    assert [at for _, at in log] == pytest.approx([200, 260.1], abs=0.01)


async def test_a_request_larger_than_the_limit_is_sent_when_nothing_else_counts(autojump_clock):
    limit = RateLimit(tokens_per_minute=100)
    log = []
    await hold(limit, 0, log, "small", max_tokens=1)
    await hold(limit, 0, log, "huge", max_tokens=10_000)
    await hold(limit, 0, log, "next", max_tokens=1)

    assert [at for _, at in log] == pytest.approx([0, 60.1, 120.2], abs=0.01)


async def test_the_estimate_follows_what_requests_did_cost(autojump_clock):
    """A megabyte of image is no quarter of a million tokens."""
    limit = RateLimit(tokens_per_minute=100_000)
    for _ in range(20):
        async with limit.turn(size=1_000_000) as turn:
            turn.used(1_500, 200)
    start = trio.current_time()
    async with limit.turn(size=1_000_000) as turn:
        turn.used(1_500, 200)

    assert trio.current_time() == start


async def test_a_limit_of_tokens_holds_over_a_real_socket(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    answer = Reply([TextBlock("Done.")], usage=Usage(300, 300, requests=1))
    async with ProviderServer([answer] * 3) as server:
        model = model_at(server, limit, max_tokens=100)
        times = []
        for _ in range(3):
            await model.respond(REQUEST, ignore)
            times.append(trio.current_time())

    assert times == pytest.approx([0, 0, 60], abs=1)


async def test_an_error_answer_costs_no_tokens(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    async with ProviderServer([Fault(status=503, headers={"Retry-After": "2"}), "Done."]) as server:
        await model_at(server, limit, max_tokens=900).respond(REQUEST, ignore)

    assert trio.current_time() < 3


async def test_a_broken_answer_that_did_not_tell_counts_as_estimated(autojump_clock):
    limit = RateLimit(tokens_per_minute=1_000)
    async with ProviderServer([Fault(cut_after=250), "Done."]) as server:
        await model_at(server, limit, max_tokens=900).respond(REQUEST, ignore)

    assert trio.current_time() > 59


# ---- What the provider says


OPENAI = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}
ANTHROPIC_TIME = "2026-12-02T00:00:20Z"


async def spend(limit, headers, **options):
    """One request whose answer has these headers; return when the next may go."""
    async with limit.turn() as turn:
        turn.answered(200, headers)
    await hold(limit, 0, log := [], "next", **options)
    return log[0][1]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (OPENAI, 20),
        ({**OPENAI, "x-ratelimit-reset-requests": "1m30s"}, 90),
        ({**OPENAI, "x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({**OPENAI, "x-ratelimit-remaining-requests": "1"}, 0),
        ({**OPENAI, "x-ratelimit-remaining-requests": "-1"}, 0),
        ({**OPENAI, "x-ratelimit-reset-requests": "soon"}, 0),
        ({"x-ratelimit-remaining-tokens": "99", "x-ratelimit-reset-tokens": "5"}, 5),
        ({"x-ratelimit-remaining-tokens": "100", "x-ratelimit-reset-tokens": "5"}, 0),
        ({"x-ratelimit-limit-requests": "0", "retry-after": "5"}, 0),
        ({}, 0),
    ],
)
async def test_what_the_provider_says_is_left_is_heeded(headers, seconds, autojump_clock):
    assert await spend(RateLimit(), headers, max_tokens=100) == pytest.approx(seconds, abs=0.001)


async def test_what_is_left_is_shared_out(autojump_clock):
    limit = RateLimit()
    log = []
    async with limit.turn() as turn:
        turn.answered(200, {**OPENAI, "x-ratelimit-remaining-requests": "2"})
    async with trio.open_nursery() as nursery:
        for name in range(4):
            nursery.start_soon(hold, limit, 0, log, name)

    assert [at for _, at in log] == pytest.approx([0, 0, 20, 20], abs=0.001)


async def test_requests_under_way_may_not_be_in_what_is_left(autojump_clock):
    limit = RateLimit()
    log = []

    async def slow():
        async with limit.turn():
            await trio.sleep(4)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        await wait_all_tasks_blocked()
        async with limit.turn() as turn:
            turn.answered(200, {**OPENAI, "x-ratelimit-remaining-requests": "1"})
        nursery.start_soon(hold, limit, 0, log, "next")

    assert log[0][1] == pytest.approx(20, abs=0.001)


async def test_what_is_left_for_hours_is_not_waited_for(autojump_clock):
    """The provider shall say by a 429 that nothing is left until tomorrow: an error is better than a day's silence."""
    headers = {**OPENAI, "x-ratelimit-reset-requests": "20h"}

    assert await spend(RateLimit(), headers, max_wait=120) == 0


async def test_headers_are_read_from_real_answers(autojump_clock):
    async with ProviderServer([Fault(headers=OPENAI), "Done."]) as server:
        model = model_at(server, RateLimit())
        for _ in range(2):
            await model.respond(REQUEST, ignore)

    assert 20 <= trio.current_time() < 21


CLOCK = datetime(2026, 12, 2, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("2m59.56s", 179.56),
        ("150µs", 0.00015),
        ("17", 17),
        ("0", 0),
        (f"{CLOCK + 30:.0f}", 30),
        (f"{(CLOCK + 30) * 1000:.0f}", 30),
        (ANTHROPIC_TIME, 20),
        ("2026-12-02T01:00:20+01:00", 20),
        ("2026-12-02T00:00:20.500", 20.5),
        ("2026-12-01T23:00:00Z", 0),
        ("", None),
        (None, None),
        ("6m 0s", None),
        ("m", None),
        ("1s!", None),
        ("-1", None),
        ("nan", None),
        ("tomorrow", None),
    ],
)
def test_every_form_of_time_is_read(text, seconds):
    assert seconds_until(text, CLOCK) == (None if seconds is None else pytest.approx(seconds))


def test_anthropic_headers_are_read():
    headers = {
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": ANTHROPIC_TIME,
        "anthropic-ratelimit-tokens-remaining": "29000",
        "anthropic-ratelimit-tokens-reset": ANTHROPIC_TIME,
    }

    assert left_by(headers, CLOCK, 1_000.0) == {"requests": Left(49, 1_020.0), "tokens": Left(29_000, 1_020.0)}


# ---- A 429


@pytest.mark.parametrize(("headers", "seconds"), [({"Retry-After": "30"}, 30), ({}, 1)])
async def test_a_429_holds_all_not_only_its_own(headers, seconds, autojump_clock, monkeypatch):
    monkeypatch.setattr("random.random", lambda: 1.0)
    limit = RateLimit()
    script = [Fault(status=429, headers=headers)] + ["Done."] * 5
    async with ProviderServer(script) as server, trio.open_nursery() as nursery:
        nursery.start_soon(model_at(server, limit).respond, REQUEST, ignore)
        await wait_all_tasks_blocked(0.01)
        times = []
        for _ in range(4):
            nursery.start_soon(_timed, model_at(server, limit), times)

    assert len(server.requests) == 6
    assert len(times) == 4
    assert min(times) >= seconds
    assert max(times) < seconds + 1


async def _timed(model, times):
    await model.respond(REQUEST, ignore)
    times.append(trio.current_time())


async def test_after_a_429_one_goes_ahead_and_more_as_answers_come(autojump_clock):
    limit = RateLimit()
    log = []

    async def send(name):
        async with limit.turn() as turn:
            log.append((name, trio.current_time()))
            await trio.sleep(1)
            turn.answered(200, {})

    limit.slow_down(10)
    async with trio.open_nursery() as nursery:
        for name in range(15):
            nursery.start_soon(send, name)

    per_second = [sum(at == pytest.approx(second) for _, at in log) for second in range(10, 14)]
    assert per_second == [1, 2, 4, 8]


async def test_a_first_one_that_does_not_answer_holds_the_others_for_a_while_only(autojump_clock):
    limit = RateLimit()
    log = []
    limit.slow_down(1)
    async with trio.open_nursery() as nursery:
        for name in range(2):
            nursery.start_soon(hold, limit, 100, log, name)

    assert [at for _, at in log] == pytest.approx([1, 6], abs=0.01)


async def test_after_enough_answers_all_go_at_full_speed_again(autojump_clock):
    limit = RateLimit()
    limit.slow_down(1)
    for _ in range(70):
        async with limit.turn() as turn:
            turn.answered(200, {})
    log = []
    async with trio.open_nursery() as nursery:
        for name in range(500):
            nursery.start_soon(hold, limit, 1, log, name)

    assert [at for _, at in log] == pytest.approx([1] * 500)


async def test_a_wait_that_is_too_long_is_raised_for_all_that_wait(autojump_clock):
    """B23 for those in line: an hour's silence is no answer."""
    limit = RateLimit(concurrent=1)
    fault = Fault(status=429, headers={"Retry-After": "3600"}, wait=5)
    errors = []

    async def ask(model):
        with pytest.raises(RateLimitError) as caught:
            await model.respond(REQUEST, ignore)
        errors.append(caught.value)

    async with ProviderServer([fault]) as server, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask, model_at(server, limit))

    assert len(server.requests) == 1
    assert [error.retry_after for error in errors] == [pytest.approx(3600, abs=1)] * 5
    assert [error.usage for error in errors].count(None) == 4  # They weren't sent.
    assert "longer than max_wait=120" in str(errors[-1])
    assert trio.current_time() < 6


async def test_a_429_inside_a_stream_holds_all_too(autojump_clock, monkeypatch):
    monkeypatch.setattr("random.random", lambda: 1.0)
    limit = RateLimit()
    error = b'data: {"error": {"message": "slow", "type": "rate_limit_error", "code": 429}}\n\n'
    async with ProviderServer([error, "Done.", "Done."]) as server, trio.open_nursery() as nursery:
        nursery.start_soon(model_at(server, limit).respond, REQUEST, ignore)
        await wait_all_tasks_blocked(0.01)
        nursery.start_soon(_timed, model_at(server, limit), times := [])

    assert times[0] >= 1


# ---- Threads and trio runs


def test_a_limit_outlives_a_trio_run():
    """``run_sync`` in a loop is a trio run each time: the provider sees one client."""
    limit = RateLimit(requests_per_minute=2)

    async def ask():
        with trio.move_on_after(0.05) as scope:
            await hold(limit, 0)
        return not scope.cancelled_caught

    assert [trio.run(ask) for _ in range(3)] == [True, True, False]


async def test_a_limit_is_shared_by_threads():
    limit = RateLimit(concurrent=1)
    order = []

    async def inside():
        async with limit.turn():
            order.append("thread")

    async with trio.open_nursery() as nursery, limit.turn():
        nursery.start_soon(trio.to_thread.run_sync, trio.run, inside)
        while not limit._line:  # Until the other thread waits in line.
            await trio.lowlevel.checkpoint()
        order.append("here")

    assert order == ["here", "thread"]


async def test_who_waits_in_a_run_that_has_ended_is_passed_over():
    limit = RateLimit(concurrent=1)

    async def give_up():
        with trio.move_on_after(0.01):
            await hold(limit, 0)

    async with limit.turn():
        await trio.to_thread.run_sync(trio.run, give_up)
    with trio.fail_after(5):
        await hold(limit, 0)


# ---- Settings


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, ValueError, r"must be 1 or more \(got 0\)"),
        (-5, ValueError, "must be 1 or more"),
        (1.5, TypeError, "must be int or None, not float"),
        (math.inf, TypeError, "must be int or None, not float"),
        (True, TypeError, "must be int or None, not bool"),
        ("60", TypeError, "must be int or None, not str"),
    ],
)
def test_limits_are_checked(name, value, kind, text):
    with pytest.raises(kind, match=f"{name} {text}"):
        RateLimit(**{name: value})


def test_a_limit_shows_its_settings_and_no_more():
    assert repr(RateLimit()) == "RateLimit()"
    assert repr(RateLimit(requests_per_minute=1, tokens_per_minute=2, concurrent=3)) == (
        "RateLimit(requests_per_minute=1, tokens_per_minute=2, concurrent=3)"
    )


async def test_a_provider_that_allows_less_than_the_limit_is_found_out(autojump_clock):
    """Nobody fails, although the limit is set twice too high."""
    counter = Counter(10, retry_after=60)
    limit = RateLimit(requests_per_minute=20)
    async with ProviderServer([counter] * 200) as server:
        model = model_at(server, limit)
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(model.respond, REQUEST, ignore)

    assert len(counter.times) <= 10
    assert len(server.requests) - counter.refused == 40
