"""Whatever goes wrong, the log has no word of what was said, called, answered or asked, of an error, and no key."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trio

from alpineagents import (
    Agent,
    Budget,
    DecidePermission,
    Denied,
    Fallback,
    MemoryStore,
    Message,
    Reply,
    RunningElsewhereError,
    State,
    StoreError,
    TextBlock,
    Timeout,
    ToolCall,
    ToolError,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, Fault, ProviderServer, tool_call

from ..models.every import PROVIDERS, Provider, by_id

KEY = "sk-QUOTED-KEY-0123456789"
WORDS = {
    name: f"QUOTED-{name}-9876543210"
    for name in ("PROMPT", "SYSTEM", "ARGUMENT", "RESULT", "ANSWER", "ERROR", "DATA", "REASON", "HEADER", "TOOL")
}
SECRETS = [KEY, *WORDS.values()]
ALL = " ".join(SECRETS)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """Everything that any logger is told while a test lasts."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler(level=0)
    handler.emit = found.append  # type: ignore[method-assign]
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield found
    root.setLevel(before)
    root.removeHandler(handler)


def check(records: list[logging.LogRecord], *loggers: str) -> None:
    """Nothing is quoted; each of *loggers* has said something, so there was a chance to."""
    ours = [record for record in records if record.name.startswith("alpineagents")]
    assert {record.name.removeprefix("alpineagents.") for record in ours} == set(loggers)
    for record in ours:
        told = f"{record.getMessage()} {vars(record)}"
        assert not [secret for secret in SECRETS if secret in told], told
        assert record.exc_info is None
        assert "127.0.0.1" not in told
        assert "\n" not in record.getMessage()


def state_with_secrets() -> State:
    return State(messages=[Message.user(WORDS["PROMPT"])], extra_data={"data": WORDS["DATA"]})


async def run(agent: Agent, state: State | None = None) -> None:
    """Run it, and have what comes out of it quote everything, too."""
    try:
        await agent.run(state or state_with_secrets())
    except Exception as error:
        error.add_note(ALL)


# Providers

FAULTS = {
    **{str(status): Fault(status=status, body=f'{{"error":{{"message":"{ALL}"}}}}') for status in (400, 401, 403, 404)},
    **{str(status): Fault(status=status, body=f'{{"error":{{"message":"{ALL}"}}}}') for status in (429, 500, 503, 529)},
    "headers": Fault(status=503, body=ALL, headers={"x-request-id": ALL, "retry-after": "1", "x-should-retry": "true"}),
    "redirect": Fault(status=307, headers={"location": f"http://{KEY}@127.0.0.1/{WORDS['PROMPT']}"}),
    "dropped": Fault(drop=True),
    "garbage": Fault(garbage=ALL.encode() + b"\r\n\r\n"),
    "cut": Fault(answer=ALL, cut_after=300),
    "stalled": Fault(answer=ALL, cut_after=200, stall=True),
    "silent": Fault(wait=90),
    "no stream": Fault(body=ALL),
    "broken stream": Fault(body=f"data: {ALL}\n\n"),
}


@pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_provider_that_quotes_everything(provider: Provider, fault: str, records, autojump_clock):
    async with ProviderServer([FAULTS[fault]] * 6) as server:
        settings = {"api_key": KEY, "retries": 2, "timeout": Timeout(connect=5, first_byte=60, read=60)}
        model = provider.at(server, **settings, extra_headers={"x-more": WORDS["HEADER"]})
        await run(Agent(model=Fallback(model, FakeModel([WORDS["ANSWER"]]), on=Exception), system=WORDS["SYSTEM"]))

    check(records, "run", "models")


@pytest.mark.parametrize("provider", PROVIDERS, ids=by_id)
async def test_one_that_gives_up_in_the_middle(provider: Provider, records, autojump_clock):
    def given_up(request):
        events = provider.format().events(Reply([TextBlock(ALL)]), request)
        return b"".join(events[: len(events) // 2]) + provider.overloaded.replace(b"Overloaded", ALL.encode())

    async with ProviderServer([given_up] * 3) as server:
        model = provider.at(server, api_key=KEY, retries=1)
        await run(Agent(model=model, system=WORDS["SYSTEM"]))

    check(records, "run", "models")


# Tools, permissions, loops


@tool
async def leak(text: str) -> str:
    """Give everything back."""
    return f"{text} {ALL}"


@tool
async def fail(text: str) -> str:
    """Fail, for the model to read."""
    raise ToolError(ALL)


@tool
async def crash(text: str) -> str:
    """Fail, and stop the run."""
    raise KeyError(ALL)


@tool
async def hang(text: str) -> str:
    """Never end."""
    await trio.sleep_forever()
    raise AssertionError("unreachable")


@tool
async def finish(text: str, state: State) -> None:
    """Finish with it."""
    state.finish({"answer": ALL})


class Refuses(DecidePermission):
    """Refuses everything, and quotes it."""

    def __repr__(self) -> str:
        return f"Refuses({ALL!r})"

    def check(self, state, call, tool):
        return Denied(ALL, stop=True)


@loop(until=waiting_for_user, limit=1)
async def broken(agent, state):
    """Fails with a group."""
    raise ExceptionGroup(ALL, [OSError(ALL), KeyError(ALL)])


def calling(*names: str, **settings) -> Agent:
    script = [[tool_call(name, text=WORDS["ARGUMENT"]) for name in names], WORDS["ANSWER"], WORDS["ANSWER"]]
    part = Agent(model=FakeModel([OSError(ALL)]), name="part", description=WORDS["SYSTEM"])
    tools = [leak, fail, crash, hang, finish, part]
    return Agent(
        **{"model": FakeModel(script), "tools": tools, "system": WORDS["SYSTEM"], "name": "quoted", **settings}
    )


WAYS = {
    "results": calling("leak", "fail"),
    "an unknown tool": calling(WORDS["TOOL"]),
    "arguments that don't fit": calling(
        model=FakeModel([[ToolCall("c", "leak", {"wrong": ALL}), ToolCall("d", "leak", None, ALL)], "done"])
    ),
    "a crash": calling("leak", "crash"),
    "a finish": calling("finish"),
    "a refusal": calling("leak", permissions=[Refuses()]),
    "a broken loop": calling(loop=broken),
    "a model that fails": calling(model=FakeModel([OSError(ALL)])),
    "a budget": calling("leak", budget=Budget(requests=1)),
    "a subagent that fails": calling(model=FakeModel([[ToolCall("c", "part", {"prompt": ALL})], WORDS["ANSWER"]])),
    "cancelled": calling("leak", "hang"),
    "ended by Python": calling(model=FakeModel([SystemExit(ALL)])),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_quotes_everything(way: str, records, autojump_clock):
    with trio.move_on_after(5):
        try:
            await run(WAYS[way])
        except SystemExit:
            assert way == "ended by Python"

    check(records, "run")


# Stores


class Bad(MemoryStore):
    """Fails as it is told, and says everything."""

    lease_seconds = 3.0

    def __init__(self, renewing: list[Exception], writing: list[Exception]) -> None:
        super().__init__()
        self.renewing, self.writing = renewing, writing

    def __repr__(self) -> str:
        return f"Bad({ALL!r})"

    async def renew(self, state_id: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.renewing:
            raise self.renewing.pop(0)

    async def append(self, *given) -> None:
        await trio.lowlevel.checkpoint()
        if self.writing:
            raise self.writing.pop(0)
        await super().append(*given)


@pytest.mark.parametrize(
    ("renewing", "writing"),
    [
        ([StoreError(ALL), RunningElsewhereError(ALL)], []),
        ([], [StoreError(ALL)] * 3),
        ([], [RunningElsewhereError(ALL)] * 3),
        ([], [OSError(ALL)] * 100),
    ],
)
async def test_a_store_that_quotes_everything(renewing, writing, records, autojump_clock):
    store = Bad(list(renewing), list(writing))
    with trio.move_on_after(10):
        await run(calling("leak", "hang", store=store))

    check(records, "run", "stores")


def test_there_is_something_to_find(records):
    """The check itself finds a secret, wherever in a record it is."""
    for args in ((f"told {KEY}",), ("told %s", WORDS["PROMPT"])):
        logging.getLogger("alpineagents.run").info(*args)
        with pytest.raises(AssertionError):
            check(records, "run")
        records.clear()
