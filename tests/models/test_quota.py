"""Laws of the ledger behind RateLimit, for any schedule: pure, so time is a number."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from alpineagents.models._quota import WINDOW_SECONDS, Ledger
from alpineagents.models._quota_headers import Left

SHORT = st.floats(0, 4.9)  # On the way to the server: it counts within 5 s.
REQUESTS = st.lists(st.tuples(SHORT, st.floats(0, 90), st.integers(0, 500), st.floats(0, 20)), min_size=1, max_size=40)


def run(ledger, requests, max_wait=1e9):
    """Send *requests* one after the other as early as the ledger lets them; return when the server counted each.

    Each is (seconds until the server counts it, from then until it answers, tokens, seconds before the next one).
    """
    now, counted, answers = 0.0, [], []
    for way, thinking, tokens, pause in requests:
        while (wait := ledger.wait(now, tokens, max_wait)) > 0:
            until = min([now + wait, *[at for at, _ in answers]])
            assert until < float("inf"), "nothing would ever let it go"
            now = max(until, now)
            now = _answer(ledger, answers, now)
        entry = ledger.take(now, tokens)
        counted.append((now + way, tokens))
        answers.append((now + way + thinking, entry))
        now = _answer(ledger, answers, now + pause)
    for at, entry in sorted(answers, key=lambda answer: answer[0]):
        ledger.answered(entry, at, well=True, left={})
        ledger.release(entry, at)
    return counted


def _answer(ledger, answers, now):
    """Give the answers that are due, in their order."""
    for answer in sorted(answers, key=lambda answer: answer[0]):
        if answer[0] <= now:
            ledger.answered(answer[1], answer[0], well=True, left={})
            ledger.release(answer[1], answer[0])
            answers.remove(answer)
    return now


@given(st.integers(1, 6), REQUESTS)
def test_no_minute_of_the_server_has_more_requests_than_the_limit(limit, requests):
    counted = sorted([at for at, _ in run(Ledger(limit, None, None), requests)])

    for first, after in zip(counted, counted[limit:], strict=False):
        assert after - first >= 60


@given(st.integers(1, 600), REQUESTS)
def test_no_minute_of_the_server_has_more_tokens_than_the_limit_but_for_one_that_is_larger(limit, requests):
    counted = sorted(run(Ledger(None, limit, None), requests))

    for position, (start, tokens) in enumerate(counted):
        together = [more for at, more in counted[position:] if at < start + 60 and more]
        assert sum(together) <= limit or len(together) == 1 or tokens == 0


@given(st.integers(1, 5), REQUESTS)
def test_never_more_are_under_way_than_the_limit(limit, requests):
    ledger = Ledger(None, None, limit)
    run(ledger, requests)

    assert ledger.wait(1e9, 0, 0) == 0  # All places are free again.


@given(REQUESTS)
def test_in_the_end_nothing_counts_any_more(requests):
    ledger = Ledger(1, 100, 1)
    run(ledger, requests)

    later = 1e9
    assert ledger.wait(later, 100, 0) == 0
    ledger.take(later, 100)
    assert ledger.wait(later, 1, 0) > 0


FRACTIONS = st.lists(st.tuples(st.floats(0, 1_000), st.integers(0, 1_000)), min_size=1, max_size=40)


@given(st.integers(1, 3_000), FRACTIONS)
def test_fractions_of_tokens_leave_no_rest_behind(limit, costs):
    """An estimate is no whole number. A request as large as the limit goes when it is alone: nothing counts then."""
    ledger = Ledger(None, limit, None)
    for number, (estimated, told) in enumerate(costs):
        counted = ledger.take(float(number), estimated)
        ledger.answered(counted, float(number), well=True, left={})
        ledger.settle(counted, float(number), told)
        ledger.release(counted, float(number))

    assert ledger.wait(1e9, 2.0 * limit, 0) == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=10))
def test_a_hold_ends_when_the_longest_does(holds):
    ledger = Ledger(None, None, None)
    for at, (_, seconds) in enumerate(holds):
        ledger.hold(at, seconds)

    end = max([at + seconds for at, (_, seconds) in enumerate(holds)])
    now = len(holds) - 1
    assert ledger.wait(now, 0, 1e9) == max(end - now, 0)
    assert ledger.wait(end, 0, 1e9) == 0


@given(st.integers(0, 5), st.floats(0.1, 100))
def test_no_more_go_than_the_provider_says_are_left(left, seconds):
    ledger = Ledger(None, None, None)
    first = ledger.take(0.0, 0)
    ledger.answered(first, 0.0, well=True, left={"requests": Left(left, seconds)})
    for _ in range(left):
        assert ledger.wait(0.0, 0, 1e9) == 0
        ledger.take(0.0, 0)

    assert ledger.wait(0.0, 0, 1e9) == seconds
    assert ledger.wait(seconds, 0, 1e9) == 0


def test_the_window_is_a_little_longer_than_a_minute():
    """Two clocks that differ by a thousandth are no reason for a 429."""
    assert all(earlier < later for earlier, later in pairwise([60, WINDOW_SECONDS, 61]))
