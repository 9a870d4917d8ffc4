"""Fallback: the next model where one fails."""

from contextlib import asynccontextmanager
from decimal import Decimal

import pytest
import trio

from alpineagents import (
    Agent,
    AuthError,
    BadRequestError,
    BrokenStreamError,
    ContextTooLongError,
    Message,
    Model,
    ModelEvent,
    ModelEventEntry,
    OverloadedError,
    Price,
    ProviderError,
    RateLimitError,
    Reply,
    Request,
    State,
    TextBlock,
    TextDelta,
    UnreachableError,
    Usage,
)
from alpineagents.models import Fallback, OpenAICompatible
from alpineagents.testing import FakeModel, Fault, ProviderServer

REQUEST = Request(messages=[Message.user("Hi")])
TEXT = 'data: {"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":null}]}\n\n'


def ignore(event):
    """An emit that drops everything."""


def model_at(server, name="m", **options):
    return OpenAICompatible(name, base_url=server.base_url, **{"retries": 0, **options})


def events_in(emitted):
    return [event for event in emitted if isinstance(event, ModelEvent)]


async def test_the_first_answers_where_it_can():
    emitted = []
    second = FakeModel(["not asked"])
    reply = await Fallback(FakeModel(["One."], name="a/one"), second).respond(REQUEST, emitted.append)

    assert (reply.text, reply.model, second.remaining) == ("One.", "a/one", 1)
    assert reply.usage == Usage(10, 10, requests=1)
    assert emitted == [TextDelta("One.")]


@pytest.mark.parametrize("kind", [RateLimitError, OverloadedError, BrokenStreamError, UnreachableError])
async def test_the_next_answers_where_one_fails(kind):
    emitted = []
    first, second = FakeModel([kind("no luck")], name="a/one"), FakeModel(["Two."], name="b/two")
    reply = await Fallback(first, second).respond(REQUEST, emitted.append)

    assert (reply.text, reply.model) == ("Two.", "b/two")
    event = events_in(emitted)[0]
    assert (event.kind, event.text) == (
        "fallback",
        f"a/one failed ({kind.__name__}: no luck); b/two is asked instead",
    )
    assert dict(event.data) == {"from": "a/one", "to": "b/two", "error": kind.__name__, "restarted": False}


@pytest.mark.parametrize("error", [AuthError("x"), BadRequestError("x"), ContextTooLongError("x"), LookupError("x")])
async def test_what_no_other_model_mends_is_raised(error):
    second = FakeModel(["not asked"])
    with pytest.raises(type(error)) as caught:
        await Fallback(FakeModel([error]), second).respond(REQUEST, ignore)

    assert caught.value is error
    assert second.remaining == 1


async def test_the_errors_are_ones_own_to_choose():
    on = (ContextTooLongError, LookupError)
    models = [FakeModel([ContextTooLongError("x")]), FakeModel([LookupError("y")]), FakeModel(["Three."])]
    reply = await Fallback(*models, on=on).respond(REQUEST, ignore)
    with pytest.raises(RateLimitError):
        await Fallback(FakeModel([RateLimitError("x")]), FakeModel(), on=LookupError).respond(REQUEST, ignore)

    assert reply.text == "Three."


async def test_where_all_fail_the_last_error_is_raised_and_tells_of_the_others():
    last = OverloadedError("third")
    models = [
        FakeModel([error], name=name)
        for name, error in [("a/1", RateLimitError("first")), ("b/2", BrokenStreamError("second")), ("c/3", last)]
    ]
    with pytest.raises(OverloadedError) as caught:
        await Fallback(*models).respond(REQUEST, ignore)

    assert caught.value is last
    assert last.__notes__ == [
        "before that, a/1 failed: RateLimitError: first",
        "before that, b/2 failed: BrokenStreamError: second",
    ]
    assert last.__context__ is None


async def test_an_error_that_ends_it_tells_of_those_before():
    wrong_key = AuthError("wrong key")
    with pytest.raises(AuthError) as caught:
        await Fallback(FakeModel([RateLimitError("x")], name="a/1"), FakeModel([wrong_key])).respond(REQUEST, ignore)

    assert caught.value.__notes__ == ["before that, a/1 failed: RateLimitError: x"]


async def test_over_real_sockets_usage_and_cost_of_all_are_in_the_reply(autojump_clock, sockets):
    """Each model prices its own."""
    before = sockets()
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":4}}\n\n'
    whole = Reply([TextBlock("Done.")], usage=Usage(7, 5, requests=1))
    emitted = []
    async with ProviderServer([Fault(body=TEXT + usage)]) as one, ProviderServer([whole]) as two:
        model = Fallback(model_at(one, price=Price(1, 1)), model_at(two, "other", price=Price(100, 100)))
        async with model.session():
            reply = await model.respond(REQUEST, emitted.append)

    assert (reply.text, reply.model) == ("Done.", "other")
    assert reply.usage == Usage(37, 9, requests=2, cost=Decimal(34 + 1_200) / 1_000_000)
    assert [event.data["restarted"] for event in events_in(emitted)] == [True]
    assert emitted[0] == TextDelta("half")
    assert sockets() == before


async def test_the_usage_of_all_is_on_the_error(autojump_clock):
    async with ProviderServer([Fault(status=503)] * 3) as server:
        model = Fallback(model_at(server, retries=1), model_at(server))
        with pytest.raises(OverloadedError) as caught:
            await model.respond(REQUEST, ignore)

    assert caught.value.usage == Usage(requests=3)


async def test_a_server_that_is_down_is_passed_over(autojump_clock):
    async with ProviderServer() as gone:
        down = model_at(gone)
    async with ProviderServer(["Done."]) as server:
        reply = await Fallback(down, model_at(server)).respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert reply.usage.requests == 1


async def test_a_wait_that_is_too_long_passes_on_at_once(autojump_clock):
    """B23: fallback may take over."""
    busy = Fault(status=429, headers={"Retry-After": "3600"})
    async with ProviderServer([busy, "Done."]) as server:
        reply = await Fallback(model_at(server, retries=4), model_at(server)).respond(REQUEST, ignore)

    assert reply.text == "Done."
    assert trio.current_time() < 1


async def test_text_that_a_retry_has_thrown_away_is_not_thrown_away_again(autojump_clock):
    emitted = []
    async with ProviderServer([Fault(body=TEXT), Fault(status=503), "Done."]) as server:
        await Fallback(model_at(server, retries=1), model_at(server)).respond(REQUEST, emitted.append)

    assert [(event.kind, event.data["restarted"]) for event in events_in(emitted)] == [
        ("retry", True),
        ("fallback", False),
    ]


async def test_fallbacks_nest():
    inner = Fallback(FakeModel([RateLimitError("1")], name="a/1"), FakeModel([OverloadedError("2")], name="b/2"))
    emitted = []
    reply = await Fallback(inner, FakeModel(["Three."], name="c/3")).respond(REQUEST, emitted.append)

    assert reply.model == "c/3"
    assert [(event.data["from"], event.data["to"]) for event in events_in(emitted)] == [("a/1", "b/2"), ("a/1", "c/3")]


@pytest.mark.parametrize("kind", [LookupError, RateLimitError])
async def test_what_emit_raises_is_no_failure_of_a_model(kind):
    mine = kind("mine")

    def emit(event):
        raise mine

    second = FakeModel(["not asked"])
    with pytest.raises(kind) as caught:
        await Fallback(FakeModel(["One."]), second).respond(REQUEST, emit)

    assert caught.value is mine
    assert second.remaining == 1


async def test_a_state_records_the_change_and_goes_on(autojump_clock):
    models = [FakeModel([RateLimitError("x"), "Again me."], name="a/1"), FakeModel(["Two."], name="b/2")]
    agent = Agent(model=Fallback(*models))
    state = State(messages=[Message.user("Hi")])
    await agent.run(state)
    state.add_message(Message.user("And now?"))
    await agent.run(state)

    assert [message.text for message in state.messages] == ["Hi", "Two.", "And now?", "Again me."]
    assert [entry.content.kind for entry in state.history if isinstance(entry, ModelEventEntry)] == ["fallback"]


async def test_a_cancelled_request_says_what_those_before_did_cost(autojump_clock):
    spent = RateLimitError("x")
    spent.usage = Usage(3, 4, requests=1)
    state = State(messages=[Message.user("Hi")])
    agent = Agent(model=Fallback(FakeModel([spent]), FakeModel(["late"], delay=10)))
    with trio.move_on_after(1):
        await agent.think(state)

    assert state.usage == Usage(3, 4, requests=1)


class Opened(Model):
    """Says when its session is open."""

    def __init__(self, name, log):
        self.name = name
        self._log = log

    @asynccontextmanager
    async def session(self):
        self._log.append(f"+{self.name}")
        try:
            yield
        finally:
            self._log.append(f"-{self.name}")

    async def respond(self, request, emit):
        raise AssertionError("not asked")


async def test_the_sessions_of_all_are_entered_and_left():
    log = []
    async with Fallback(Opened("a", log), Opened("b", log)).session():
        log.append("in")

    assert log == ["+a", "+b", "in", "-b", "-a"]


def test_what_it_says_of_itself():
    one, two = FakeModel(name="a/1", context_window=9_000, price=Price(1, 1)), FakeModel(name="b/2", context_window=800)
    model = Fallback(one, two, FakeModel())

    assert (model.name, model.context_window, model.price, model.structured_output) == ("a/1", 800, None, False)
    assert model.models[:2] == (one, two)
    assert Fallback(FakeModel()).context_window is None
    assert repr(model).startswith("Fallback(<")


def test_its_price_is_that_of_the_dearest_part_by_part_where_all_are_known():
    """What a reply can cost at most, for budgets that reserve it."""

    def priced(*price):
        return FakeModel(price=Price(*price))

    assert Fallback(priced(1, 9), priced(3, 4)).price == Price(3, 9, 3, 3)
    assert Fallback(priced(1, 9, "0.1", 2), priced(3, 4, "0.2", 1)).price == Price(3, 9, "0.2", 2)
    assert Fallback(priced(1, 9), Fallback(priced(2, 2))).price == Price(2, 9, 2, 2)
    assert Fallback(priced(1, 9), FakeModel()).price is None


def test_answers_are_held_to_a_schema_only_where_all_hold_to_it():
    sure, unsure = FakeModel(), FakeModel()
    sure.structured_output = True

    assert Fallback(sure, sure).structured_output
    assert not Fallback(sure, unsure).structured_output


@pytest.mark.parametrize(
    ("models", "options", "kind", "text"),
    [
        ([], {}, ValueError, "needs a Model"),
        (["anthropic/x"], {}, TypeError, "takes Models, not str: resolve_model"),
        ([FakeModel(), None], {}, TypeError, "takes Models, not NoneType"),
        ([FakeModel()], {"on": ()}, ValueError, "on is empty"),
        ([FakeModel()], {"on": ["RateLimitError"]}, TypeError, "classes of exceptions"),
        ([FakeModel()], {"on": [ProviderError("x")]}, TypeError, "classes of exceptions"),
        ([FakeModel()], {"on": trio.Cancelled}, TypeError, "classes of exceptions"),
        ([FakeModel()], {"on": [int]}, TypeError, "classes of exceptions"),
    ],
)
def test_arguments_are_checked(models, options, kind, text):
    with pytest.raises(kind, match=text):
        Fallback(*models, **options)
