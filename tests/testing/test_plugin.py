"""The pytest plugin, in test runs of its own: fixtures, cassettes, snapshots, and what a failure shows."""

from __future__ import annotations

import json
import re
import sys

import pytest

from alpineagents import Agent, Message, State
from alpineagents.testing import FakeModel
from alpineagents.testing._syrupy import HistoryExtension

pytestmark = pytest.mark.slow

TRIO = """
[pytest]
trio_mode = true
addopts = --strict-markers --strict-config
filterwarnings = error
"""
ANYIO = TRIO.replace("trio_mode = true\n", "")

COMMON = """
import pytest
import trio
from alpineagents import *
from alpineagents.testing import *

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b
"""


def project(pytester: pytest.Pytester, tests: str, ini: str = TRIO) -> None:
    pytester.makeini(ini)
    pytester.makepyfile(COMMON + tests)


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """In this process; syrupy has only one session in each."""
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:syrupy", *args)


def run_apart(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *args)


def sections(result: pytest.RunResult) -> dict[str, list[str]]:
    """The lines of each section that the report shows, by its title."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in result.outlines:
        if title := re.fullmatch(r"[-_=]{2,} (.*?) [-_=]{2,}", line):
            lines = found.setdefault(title[1], [])
        else:
            lines.append(line)
    return found


def conversations(result: pytest.RunResult) -> list[list[str]]:
    return [lines for title, lines in sections(result).items() if title.startswith("conversation of State")]


# ---- Fixtures

FIXTURES = """
async def test_a_fake_model_gets_its_answers(fake_model, agent_store):
    fake_model.add(tool_call("add", a=1, b=2), "3")
    state = State(messages=[Message.user("1 + 2")])

    assert await Agent(model=fake_model, tools=[add], store=agent_store).run(state) == "3"
    assert (await agent_store.load(state.id)).answer == "3"

async def test_each_test_has_its_own(fake_model, agent_store):
    assert fake_model.remaining == 0
    assert await agent_store.infos() == []

async def test_a_provider_server_is_opened_by_the_test(provider_server):
    async with provider_server as server:
        server.add("Hello.")
        assert await Agent(model=OpenAICompatible("any", base_url=server.base_url)).run("Hi") == "Hello."

@pytest.mark.parametrize("round", [1, 2])
async def test_ids_and_times_are_the_same_each_time(frozen_ids, round):
    first, second = State(messages=[Message.user("a")]), State()

    assert (first.id, second.id) == ("01q3dcbd000000000000000001", "01q3dcbd000000000000000002")
    assert first.created_at.isoformat().startswith("2030-01-01T00:00:00")

async def test_time_passes_at_once(agent_clock, fake_model):
    fake_model.delay = 3600
    fake_model.add("late")
    began = trio.current_time()

    assert await Agent(model=fake_model).run("Hi") == "late"
    assert trio.current_time() - began >= 3600
"""


def test_the_fixtures_work_under_pytest_trio(pytester):
    project(pytester, FIXTURES)

    run(pytester).assert_outcomes(passed=6)


def test_the_fixtures_work_under_anyio(pytester):
    backend = """
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend(agent_clock):
    return "trio", {"clock": agent_clock}
"""
    project(pytester, backend + FIXTURES, ANYIO)

    run(pytester).assert_outcomes(passed=6)


def test_the_fixtures_work_without_any_plugin_for_async_tests(pytester):
    tests = """
def test_a_script(fake_model, frozen_ids):
    fake_model.add("Hello.")
    state = State(messages=[Message.user("Hi")])

    assert Agent(model=fake_model).run_sync(state) == "Hello."
    assert state.id == "01q3dcbd000000000000000001"
"""
    project(pytester, tests, ANYIO)

    run(pytester, "-p", "no:trio", "-p", "no:anyio").assert_outcomes(passed=1)


def test_frozen_ids_come_before_the_async_fixtures_of_anyio(pytester):
    """anyio runs them in the context of the first, which has to know already."""
    tests = """
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "trio"

@pytest.fixture
async def made_by_a_fixture():
    return State()

async def test_frozen(made_by_a_fixture, frozen_ids):
    assert made_by_a_fixture.id.endswith("01")
    assert State().id.endswith("02")
"""
    project(pytester, tests, ANYIO)

    run(pytester).assert_outcomes(passed=1)


def test_frozen_ids_say_when_they_cannot_reach_the_test(pytester):
    tests = """
pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend():
    return "trio"

@pytest.fixture(scope="module")
async def of_the_module():
    return 1

async def test_first(of_the_module):
    pass

async def test_frozen(of_the_module, frozen_ids):
    pass
"""
    project(pytester, tests, ANYIO)
    result = run(pytester)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(['*frozen_ids can\'t reach a test*give that fixture scope="function"'])


def test_answers_that_were_never_asked_for_fail_the_test(pytester):
    tests = """
async def test_one(fake_model):
    fake_model.add("Hello.", "Bye.")
    await Agent(model=fake_model).run("Hi")

async def test_none(fake_model):
    fake_model.add("Hello.", "Bye.")

async def test_that_failed_already(fake_model):
    fake_model.add("Hello.")
    raise ZeroDivisionError

async def test_of_somebody_elses_model():
    FakeModel(["Hello."])

@pytest.fixture
def own():
    return FakeModel(["Hello."])

async def test_of_a_fixture_of_ones_own(own):
    pass
"""
    project(pytester, tests)
    result = run(pytester)

    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "fake_model: an answer was never asked for; the next is: 'Bye.'",
            "fake_model: 2 answers were never asked for; the next is: 'Hello.'",
        ]
    )


async def test_a_fake_model_takes_answers_while_it_is_asked():
    model = FakeModel(["one"])
    agent = Agent(model=model)
    model.add("two", lambda request: request.messages[-1].text)

    assert [await agent.run(prompt) for prompt in ("a", "b", "c")] == ["one", "two", "c"]
    model.add("four")
    assert (model.remaining, await agent.run("d"), model.remaining) == (1, "four", 0)


def test_a_fake_model_that_is_a_function_takes_none():
    with pytest.raises(TypeError, match=r"script is a function, which answers every request: FakeModel\(\[\.\.\.\]\)"):
        FakeModel(lambda request: "always").add("one")


def test_a_fixture_of_the_project_takes_the_place_of_ours(pytester):
    tests = """
@pytest.fixture
def fake_model():
    return "mine"

def test_mine(fake_model):
    assert fake_model == "mine"
"""
    project(pytester, tests)

    run(pytester).assert_outcomes(passed=1)


# ---- What a failure shows


def test_a_failure_shows_the_conversation_of_a_state_that_is_gone(pytester):
    tests = """
async def test_wrong(fake_model):
    fake_model.add(tool_call("add", a=1, b=2), "3")
    assert await Agent(model=fake_model, tools=[add]).run("1 + 2") == "4"

async def test_right(fake_model):
    fake_model.add("Not shown.")
    await Agent(model=fake_model).run("Hi")
"""
    project(pytester, tests)
    (shown,) = conversations(run(pytester, "-rN"))

    assert shown[:9] == [
        "[turn 0] context_change import of 1 messages",
        "[turn 0] run_start agent with fake/fake",
        "[turn 1] model_request fake/fake",
        "[turn 1] model_reply add(a=1, b=2)",
        "[turn 1] tool_result add: 1 B",
        "[turn 2] model_request fake/fake",
        "[turn 2] model_reply 3",
        "[turn 2] stop until waiting_for_user",
        "stopped: until waiting_for_user",
    ]


def test_a_failure_shows_states_as_they_are_now_and_those_of_subagents(pytester):
    tests = """
async def test_wrong():
    helper = Agent(name="helper", description="Helps.", model=FakeModel(["helped"]))
    state = State(id="lead", messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("helper", prompt="help"), "done"]), tools=[helper]).run(state)
    state.add_message(Message.user("and then"))
    assert not state.messages
"""
    project(pytester, tests)
    result = run(pytester)
    lead, helper = conversations(result)

    assert "[turn 2] user and then" in lead
    assert "[turn 1] model_reply helped" in helper
    result.stdout.fnmatch_lines(["*conversation of State lead ---*", "*, subagent of lead ---*"])


def test_a_failure_outside_the_test_function_shows_it_too(pytester):
    tests = """
@pytest.fixture
def talked():
    Agent(model=FakeModel(["Hello."])).run_sync("Hi")
    raise ZeroDivisionError

@pytest.fixture
def fails_at_the_end():
    yield
    raise ZeroDivisionError

def test_setup(talked):
    pass

def test_teardown(fails_at_the_end):
    Agent(model=FakeModel(["Bye."])).run_sync("Hi")
"""
    project(pytester, tests)
    result = run(pytester)

    result.assert_outcomes(passed=1, errors=2)
    assert ["model_reply Hello." in " ".join(lines) for lines in conversations(result)] == [True, False]
    assert ["model_reply Bye." in " ".join(lines) for lines in conversations(result)] == [False, True]


def test_what_a_failure_shows_is_bounded(pytester):
    tests = """
@loop(until=waiting_for_user, limit=1000)
async def talkative(agent, state):
    for _ in range(500):
        state.add_message(Message.user("x" * 10_000))
    await agent.think(state)

async def test_wrong():
    for number in range(300):
        answer = ZeroDivisionError("bad") if number == 250 else "ok"
        try:
            await Agent(model=FakeModel([answer])).run(State(id=f"s{number}", messages=[Message.user("Hi")]))
        except ZeroDivisionError:
            pass
    await Agent(model=FakeModel(["ok"]), loop=talkative).run(State(id="long", messages=[Message.user("Hi")]))
    assert False
"""
    project(pytester, tests)
    result = run(pytester)

    titles = [title.removeprefix("conversation of State ") for title in sections(result) if "conversation" in title]
    assert titles == ["s250", *[f"s{number}" for number in range(292, 300)], "long"], "what failed, and the latest"
    assert "... 455 entries" in conversations(result)[-1]
    assert any("error ZeroDivisionError: bad" in line for line in conversations(result)[0])
    result.stdout.fnmatch_lines(["291 more States had to do with this test"])
    assert len(result.outlines) < 250
    assert max(map(len, result.outlines)) < 600


def test_states_of_a_test_before_are_not_shown(pytester):
    tests = """
kept = []

async def test_before():
    kept.append(State(id="before", messages=[Message.user("Hi")]))
    await Agent(model=FakeModel(["ok"])).run(kept[0])

async def test_wrong():
    assert False
"""
    project(pytester, tests)

    assert conversations(run(pytester)) == []


# ---- Snapshots and cassettes


def test_a_history_is_compared_with_a_saved_file(pytester):
    tests = """
async def test_talk(fake_model, history_snapshot):
    fake_model.add(tool_call("add", a=1, b=WITH), "3")
    state = State(messages=[Message.user("1 + 2")])
    await Agent(model=fake_model, tools=[add]).run(state)

    assert state == history_snapshot
    assert state.snapshot().history == history_snapshot
"""
    project(pytester, tests.replace("WITH", "2"))
    run_apart(pytester).assert_outcomes(failed=1)
    run_apart(pytester, "--snapshot-update").assert_outcomes(passed=1)
    run_apart(pytester).assert_outcomes(passed=1)
    saved = sorted(pytester.path.glob("__snapshots__/*/*.json"))
    project(pytester, tests.replace("WITH", "5"))
    result = run_apart(pytester)

    assert [path.name for path in saved] == ["test_talk.1.json", "test_talk.json"]
    entries = json.loads(saved[0].read_text())
    assert entries[1] == {"kind": "run_start", "turn": 0, "content": {"model": "fake/fake", "tools": ["add"]}}
    assert not any({"at", "seq", "format"} & entry.keys() for entry in entries)
    assert max(map(len, saved[0].read_text().splitlines())) < 120
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['*- *"args": {"a": 1, "b": 2}', '*+ *"args": {"a": 1, "b": 5}'])


def test_what_is_saved_is_json_with_short_lines():
    state = State(messages=[Message.user("Hi")], extra_data={"long": ["x" * 30] * 9, "empty": {}})
    text = HistoryExtension().serialize(state)

    assert [entry["kind"] for entry in json.loads(text)] == ["context_change", "extra_data"]
    assert max(map(len, text.splitlines())) < 120
    assert HistoryExtension().serialize(list(state.history)) == HistoryExtension().serialize(state.snapshot()) == text
    with pytest.raises(TypeError, match="takes a State"):
        HistoryExtension().serialize(3)


def test_without_syrupy_the_fixture_says_what_to_do(pytester):
    project(pytester, "def test_it(history_snapshot): pass")
    result = run(pytester)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*history_snapshot needs syrupy: pip install syrupy"])


CASSETTE = """
async def test_recorded(tmp_path_factory, request):
    model = record_model(FakeModel(["Hello."]), request.path.with_name("hello.json"))
    assert await Agent(model=model).run("Hi") == "Hello."
"""


def test_cassettes_are_recorded_and_replayed_by_options(pytester):
    project(pytester, CASSETTE)
    run(pytester, "--agents-replay").assert_outcomes(failed=1)
    result = run(pytester, "--agents-record")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["alpineagents: cassettes: record"])
    recorded = pytester.path / "hello.json"
    text = recorded.read_text()

    project(pytester, CASSETTE.replace('["Hello."]', "[]"))
    run(pytester, "--agents-replay").assert_outcomes(passed=1)
    run(pytester).assert_outcomes(passed=1)
    assert recorded.read_text() == text


def test_the_two_options_exclude_each_other(pytester):
    project(pytester, "def test_it(): pass")
    result = run(pytester, "--agents-record", "--agents-replay")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--agents-record and --agents-replay exclude each other"])


# ---- In projects that have nothing to do with us


def test_other_projects_do_not_import_the_library(pytester):
    pytester.makepyfile("def test_it(): pass")
    pytester.makeconftest("""
import sys

def pytest_unconfigure():
    print(sorted({name.split(".")[0] for name in sys.modules} & {"alpineagents", "httpx", "orjson"}))
""")
    result = run_apart(pytester, "-p", "no:trio", "-p", "no:anyio")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*[[][]]"])


def test_nothing_is_done_before_the_library_is_imported(pytester, monkeypatch):
    monkeypatch.delitem(sys.modules, "alpineagents")
    pytester.makepyfile("""
import sys

def test_it():
    assert "alpineagents" not in sys.modules
""")

    run(pytester).assert_outcomes(passed=1)


def test_a_project_may_have_a_copy_of_its_own_by_pythonpath(pytester):
    """So has this repository when it tests mutants: the plugin must not have imported another one before."""
    pytester.makeini("[pytest]\npythonpath = own_code\n")
    package = pytester.mkdir("own_code").joinpath("alpineagents")
    package.mkdir()
    package.joinpath("__init__.py").write_text("MARK = 'the copy'\n")
    pytester.makepyfile("""
def test_it():
    import alpineagents
    assert alpineagents.MARK == "the copy"
""")

    run_apart(pytester).assert_outcomes(passed=1)


def test_it_can_be_switched_off(pytester):
    project(pytester, "def test_it(fake_model): pass")
    result = run(pytester, "-p", "no:alpineagents")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'fake_model' not found*"])


def test_its_mark_and_fixtures_are_described(pytester):
    project(pytester, "")

    run(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.live: its models may connect to other machines*"])
    run(pytester, "--fixtures").stdout.fnmatch_lines(
        [f"{name} -- *" for name in ("fake_model", "agent_store", "provider_server", "agent_clock", "frozen_ids")]
    )
