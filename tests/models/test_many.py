"""Many agents at once: one rate limit for a thousand, and nothing left open of those that are cancelled."""

import resource
from collections import Counter, deque

import pytest
import trio

from alpineagents import Agent, Message, Request, State
from alpineagents.models import OpenAICompatible, RateLimit
from alpineagents.testing import Fault, ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])


def ignore(event):
    """An emit that drops everything."""


@pytest.fixture(autouse=True)
def enough_files():
    """Both ends of every connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class StrictProvider:
    """Counts requests in a sliding minute, answers 429 beyond 600, and remembers whom."""

    LIMIT = 600

    def __init__(self):
        self.refused = Counter()
        self.most = 0
        self._times = deque()

    def __call__(self, request):
        now = trio.current_time()
        while self._times and self._times[0] <= now - 60:
            self._times.popleft()
        who = request.body["messages"][0]["content"]
        if len(self._times) >= self.LIMIT:
            self.refused[who] += 1
            return Fault(status=429, headers={"Retry-After": f"{self._times[0] + 60 - now:.3f}"})
        self._times.append(now)
        self.most = max(self.most, len(self._times))
        return Fault(answer=f"Hello, {who}.", wait=(self.most * 7 % 40) / 10)


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 300])
async def test_a_thousand_agents_share_a_limit_and_none_is_refused_twice(others, autojump_clock, sockets):
    """With *others*, somebody else has used up half of the minute, which nobody here can know."""
    before = sockets()
    provider = StrictProvider()
    provider._times.extend([0.0] * others)
    limit = RateLimit(requests_per_minute=600, concurrent=400)
    answers = {}

    async def work(agent, name):
        state = State(messages=[Message.user(name)])
        await agent.run(state)
        answers[name] = state.messages[-1].text

    async with ProviderServer([provider] * 3_000, strict=False) as server:
        agents = [
            Agent(model=OpenAICompatible("m", base_url=server.base_url, rate_limit=limit, api_key=""))
            for _ in range(10)
        ]
        async with trio.open_nursery() as nursery:
            for number in range(1_000):
                nursery.start_soon(work, agents[number % 10], f"agent {number}")

    assert answers == {f"agent {number}": f"Hello, agent {number}." for number in range(1_000)}
    assert provider.most <= 600
    assert len(server.requests) == 1_000 + provider.refused.total()
    if others:
        assert max(provider.refused.values()) == 1
    else:
        assert not provider.refused
    assert 60 <= trio.current_time() < 200
    assert sockets() == before


@pytest.mark.parametrize(
    "script",
    [
        [Fault(stall=True, cut_after=250)] * 500,
        [Fault(wait=5)] * 500,
        [Fault(status=503, headers={"Retry-After": "100"})] * 500,
        [Fault(stall=True, cut_after=250, status=503)] * 500,
    ],
    ids=["mid-reply", "before the reply", "in the wait for a retry", "in an error answer"],
)
async def test_five_hundred_cancelled_requests_leave_no_connection(script, autojump_clock, sockets):
    before = sockets()
    ended = []

    async def ask(model):
        try:
            await model.respond(REQUEST, ignore)
        finally:
            ended.append(trio.current_time())

    async with ProviderServer(script) as server:
        model = OpenAICompatible("m", base_url=server.base_url)
        with trio.move_on_after(2) as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(500):
                    nursery.start_soon(ask, model)
        assert scope.cancelled_caught
        assert ended == pytest.approx([2] * 500, abs=0.1)
        assert len(server.requests) == 500
        await trio.sleep(4)  # The server's end sees it when it next looks.
        assert server.connections == 0
    assert sockets() == before


async def test_five_hundred_requests_cancelled_in_line_leave_nothing(autojump_clock, sockets):
    before = sockets()
    limit = RateLimit(concurrent=3)
    async with ProviderServer([Fault(stall=True, cut_after=250)] * 3 + ["Done."]) as server:
        model = OpenAICompatible("m", base_url=server.base_url, rate_limit=limit)
        with trio.move_on_after(2):
            async with trio.open_nursery() as nursery:
                for _ in range(500):
                    nursery.start_soon(model.respond, REQUEST, ignore)
        assert len(server.requests) == 3
        with trio.fail_after(1):
            reply = await model.respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert sockets() == before
