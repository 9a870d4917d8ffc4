"""Asking people: about calls, and in the middle of the work."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import attrs
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    AllowByDefault,
    AllowByName,
    DecideByHuman,
    DenyByName,
    FileStore,
    Human,
    MemoryStore,
    Message,
    NoHumanError,
    Question,
    State,
    StoppedByPermission,
    WaitingForAnswerError,
    tool,
)
from alpineagents.testing import FakeHuman, FakeModel, ScriptEndedError

from ..run.runs import assert_whole, errors, kinds, outcomes, saved_kinds
from .agents import Tools, an_agent, call, go, results

ALWAYS = "alpineagents.always"


def exchanges(state: State) -> list[tuple[str, object]]:
    return [(e.content.question, e.content.answer) for e in state.history if e.kind == "human"]


# DecideByHuman


def test_yes_lets_a_call_run_and_no_refuses_it() -> None:
    human = FakeHuman(["yes", "no"])

    state, tools = go([DecideByHuman()], call("write", n=1), call("delete"), human=human)

    assert tools.ran == ["write 1"]
    assert results(state) == [
        ("write", "done", "write did 1", "DecideByHuman()"),
        ("delete", "denied", "(denied by the user)", "DecideByHuman()"),
    ]
    assert exchanges(state) == [('Allow write with {"n":1}?', "yes"), ("Allow delete with no arguments?", "no")]
    assert state.extra_data == {}
    assert_whole(state)


def test_always_lets_this_tool_run_for_the_rest_of_the_state() -> None:
    human = FakeHuman(["always", "no"])
    tools = Tools()
    state = State(messages=[Message.user("go")], extra_data={"mine": 1})
    script = [[call("write"), call("write", n=2)], [call("write", n=3), call("delete")], "done"]

    an_agent(tools, script, [DecideByHuman()], human=human).run_sync(state)

    assert sorted(tools.ran) == ["write 0", "write 2", "write 3"]
    assert len(human.questions) == 2
    assert state.extra_data == {"mine": 1, ALWAYS: ["write"]}
    assert_whole(state)


def test_always_holds_for_this_state_and_its_forks_alone() -> None:
    human = FakeHuman(["always", "no"])
    state = State(messages=[Message.user("go")])
    agent = an_agent(Tools(), [[call("write")], "done"], [DecideByHuman()], human=human)
    agent.run_sync(state)
    fork = state.fork()
    fork.add_message(Message.user("again"))
    agent.copy(model=FakeModel([[call("write")], "done"])).run_sync(fork)

    other, _ = go([DecideByHuman()], call("write"), human=human)

    assert outcomes(fork) == [("write", "done")] * 2
    assert outcomes(other) == [("write", "denied")]


def test_a_restored_state_forgets_what_was_allowed_since() -> None:
    human = FakeHuman(["always", "no"])
    state = State(messages=[Message.user("go")])
    before = state.snapshot()
    agent = an_agent(Tools(), [[call("write")], "done", [call("write")], "done"], [DecideByHuman()], human=human)
    agent.run_sync(state)
    state.restore(before)
    agent.run_sync(state)

    assert outcomes(state) == [("write", "done"), ("write", "denied")]


@pytest.mark.parametrize("odd", [5, ["write", 7], {"write": True}, None])
def test_notes_that_somebody_else_wrote_under_the_key_allow_nothing_by_mistake(odd: Any) -> None:
    state = State(messages=[Message.user("go")], extra_data={ALWAYS: odd})
    human = FakeHuman(["always"])

    an_agent(Tools(), [[call("delete")], "done"], [DecideByHuman()], human=human).run_sync(state)

    assert len(human.questions) == 1
    assert "delete" in state.extra_data[ALWAYS]


def test_answers_are_recorded_and_saved_before_the_tools_run() -> None:
    store = MemoryStore()
    found: list[list[str]] = []

    @tool
    async def write(state: State) -> str:
        """Look what is saved."""
        found.append(await saved_kinds(store, state.id))
        return "done"

    agent = Agent(
        model=FakeModel([[call("write"), call("write")], "done"]),
        tools=[write],
        permissions=[DecideByHuman()],
        human=FakeHuman(["yes", "always"]),
        store=store,
    )
    agent.run_sync("go")

    assert found[0][-3:] == ["human", "human", "extra_data"]


def test_a_decision_asks_its_own_human_first() -> None:
    own, agents = FakeHuman(["no"]), FakeHuman([])

    state, _ = go([DecideByHuman(human=own)], call("write"), human=agents)

    assert outcomes(state) == [("write", "denied")]
    assert repr(DecideByHuman(human=own)) == "DecideByHuman()"


@pytest.mark.parametrize("answer", ["maybe", "", True, None, 1])
def test_an_answer_that_is_none_of_the_three_allows_nothing(answer: object) -> None:
    tools = Tools()

    with pytest.raises(ValueError, match="answer 'yes', 'no' or 'always'"):
        go([DecideByHuman()], call("write"), human=FakeHuman([answer]), tools=tools)

    assert tools.ran == []


def test_words_are_taken_as_people_type_them() -> None:
    state, tools = go([DecideByHuman()], call("write"), call("delete"), human=FakeHuman([" Yes\n", "NO"]))

    assert tools.ran == ["write 0"]
    assert [answer for _, answer in exchanges(state)] == ["yes", "no"]


def test_a_question_shows_every_argument_whole() -> None:
    human = FakeHuman(["no"])

    @tool
    async def write(text: str, size: int) -> str:
        """Write."""
        return text

    agent = Agent(
        model=FakeModel([[call("write", text="x" * 5_000 + "\x1b", size=2**70)], "done"]),
        tools=[write],
        permissions=[DecideByHuman()],
        human=human,
    )
    agent.run_sync("go")

    (question,) = human.questions
    assert "x" * 5_000 + "\\u001b" in question
    assert str(2**70) in question
    assert question.is_approval
    assert question.call is not None
    assert question.call.name == "write"


def test_without_a_human_nothing_starts() -> None:
    state = State(messages=[Message.user("go")])
    agent = an_agent(Tools(), [[call("write")]], [AllowByName("read"), DecideByHuman()])

    with pytest.raises(NoHumanError, match=r"Agent\(\.\.\., human=\.\.\.\)"):
        agent.run_sync(state)

    assert kinds(state) == ["context_change"]


async def test_without_a_human_use_tools_does_not_start_either() -> None:
    state = State(messages=[Message.user("go")])
    agent = an_agent(Tools(), [[call("write")]], [DecideByHuman()])
    await agent.think(state)
    before = list(state.history)

    with pytest.raises(NoHumanError):
        await agent.use_tools(state)

    assert list(state.history) == before
    with pytest.raises(NoHumanError):
        await DecideByHuman().check(state, state.pending_calls[0], agent.tool_map["write"])


def test_a_human_is_a_human() -> None:
    with pytest.raises(TypeError, match=r"human must be (a )?Human"):
        Agent(model=FakeModel([]), human=input)
    with pytest.raises(TypeError, match=r"human must be (a )?Human"):
        DecideByHuman(human=input)  # type: ignore[arg-type]


async def test_a_human_that_is_not_async_is_told_how_to_be() -> None:
    class Prompt(Human):
        def ask(self, question: Question, returns: object) -> str:  # type: ignore[override]
            return "yes"

    state = State(messages=[Message.user("go")])
    tools = Tools()
    agent = an_agent(tools, [call("write"), "done"], [DecideByHuman()]).copy(human=Prompt())

    with pytest.raises(TypeError, match=r"Prompt\.ask must be async def ask\(self, question, returns\)"):
        await agent.run(state)
    with pytest.raises(TypeError, match=r"Prompt\.ask must be async def ask\(self, question, returns\)"):
        await agent.ask_human(state, "What next?")

    assert outcomes(state) == [("write", "aborted")]
    assert not [entry for entry in state.history if entry.kind == "human"]


async def test_a_question_does_not_hold_up_other_states(autojump_clock: Any) -> None:
    """One of three States waits an hour for its person; the others are through at once."""
    ended: dict[str, float] = {}

    class Slow(Human):
        async def ask(self, question: Question, returns: object) -> object:
            await trio.sleep(3600 if question.state.id == "slow" else 0)
            return "yes"

    agent = an_agent(Tools(), lambda r: "done" if r.messages[-1].role == "tool" else call("write"), [DecideByHuman()])
    agent = agent.copy(human=Slow())

    async def run(name: str) -> None:
        await agent.run(State(id=name, messages=[Message.user("go")]))
        ended[name] = trio.current_time() - start

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for name in ("a", "slow", "b"):
            nursery.start_soon(run, name)

    assert ended == {"a": 0, "b": 0, "slow": 3600}


async def test_a_question_can_be_cancelled(autojump_clock: Any) -> None:
    state = State(messages=[Message.user("go")])
    human = FakeHuman(["yes", "yes"], delay=100)
    tools = Tools()
    agent = an_agent(tools, [[call("write"), call("read")], "done"], [AllowByName("read"), DecideByHuman()])

    with trio.move_on_after(5):
        await agent.copy(human=human).run(state)

    assert tools.ran == []
    assert outcomes(state) == [("write", "interrupted"), ("read", "interrupted")]
    assert errors(state) == ["Cancelled"]
    assert exchanges(state) == []
    assert_whole(state)
    assert await agent.copy(human=human).run(state) == "done"


def test_a_subagent_asks_the_human_above_and_a_deny_above_holds_below() -> None:
    human = FakeHuman(["yes"])
    inner = Tools("write", "delete")
    child = Agent(
        model=FakeModel([[call("write"), call("delete")], "below"]), tools=inner.all, permissions=[DecideByHuman()]
    )

    @tool
    async def delegate() -> str:
        """Delegate."""
        return str(await child.run("go"))

    lead = Agent(
        model=FakeModel([[call("delegate")], "above"]),
        tools=[delegate],
        permissions=[AllowByDefault(), DenyByName("delete", reason="never")],
        human=human,
    )
    state = State(messages=[Message.user("go")])
    lead.run_sync(state)

    entry = next(entry for entry in state.history if entry.kind == "tool_result")
    below = state.child(entry.child_ids[0])
    assert [(name, outcome) for name, outcome, *_ in results(below)] == [("write", "done"), ("delete", "denied")]
    assert human.questions[0].state is below


def test_a_subagent_without_a_list_has_the_one_above_and_asks_who_wrote_it() -> None:
    above, own = FakeHuman(["no"]), FakeHuman([])
    inner = Tools("write")
    child = Agent(model=FakeModel([[call("write")], "below"]), tools=inner.all, human=own)

    @tool
    async def delegate() -> str:
        """Delegate."""
        return str(await child.run("go"))

    lead = Agent(
        model=FakeModel([[call("delegate")], "above"]),
        tools=[delegate],
        permissions=[AllowByName("delegate"), DecideByHuman()],
        human=above,
    )
    lead.run_sync("go")

    assert inner.ran == []
    assert len(above.questions) == 1


# ask_human


@attrs.frozen
class Choice:
    file: str
    line: int = 1


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("returns", "given", "answer", "recorded"),
    [
        (str, "a.py", "a.py", "a.py"),
        (int, 3, 3, 3),
        (int, "3", 3, 3),
        (bool, False, False, False),
        (Literal["a", "b"], "b", "b", "b"),
        (Choice, Choice("a.py"), Choice("a.py"), {"file": "a.py", "line": 1}),
        (Choice, {"file": "a.py", "line": 2}, Choice("a.py", 2), {"file": "a.py", "line": 2}),
        (list[Choice], [Choice("b")], [Choice("b")], [{"file": "b", "line": 1}]),
        (Color, Color.RED, Color.RED, "red"),
    ],
)
async def test_ask_human_returns_what_was_asked_for(returns: Any, given: Any, answer: Any, recorded: Any) -> None:
    state = State()
    human = FakeHuman([given])

    got = await Agent(model=FakeModel([]), human=human).ask_human(state, "Which?", returns)

    assert got == answer
    assert type(got) is type(answer)
    assert exchanges(state) == [("Which?", recorded)]
    assert not state.messages
    assert human.questions[0].call is None
    assert not human.questions[0].is_approval
    assert_whole(state)


async def test_an_answer_of_the_wrong_type_is_the_humans_mistake() -> None:
    state = State()

    with pytest.raises(ValueError, match=r"FakeHuman gave no int: .*expected"):
        await Agent(model=FakeModel([]), human=FakeHuman(["many"])).ask_human(state, "How many?", int)

    assert exchanges(state) == []


async def test_mistakes_are_found_before_anybody_is_asked() -> None:
    human = FakeHuman(["x"])
    agent = Agent(model=FakeModel([]), human=human)
    finished = State()
    finished.finish()

    with pytest.raises(NoHumanError, match="nobody to ask"):
        await agent.copy(human=None).ask_human(State(), "Which?")
    with pytest.raises(ValueError, match="blank"):
        await agent.ask_human(State(), "  ")
    with pytest.raises(TypeError, match="must be str"):
        await agent.ask_human(State(), 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await agent.ask_human(State(), "Which?", type(None).__call__)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finished"):
        await agent.ask_human(finished, "Which?")

    assert human.questions == []


def test_questions_in_parallel_know_their_state_and_call_and_are_answered_in_any_order() -> None:
    answered: list[str] = []
    turns = trio.testing.Sequencer()

    class Backwards(Human):
        async def ask(self, question: Question, returns: object) -> object:
            assert question.call is not None
            async with turns(2 - question.call.args["n"]):  # type: ignore[index]
                answered.append(question)
                return f"for {question.call.args['n']} of {question.state.id}"  # type: ignore[index]

    @tool
    async def wonder(n: int, state: State) -> str:
        """Ask."""
        return await agent.ask_human(state, f"question {n}")

    agent = Agent(
        model=FakeModel([[call("wonder", n=0), call("wonder", n=1), call("wonder", n=2)], "done"]),
        tools=[wonder],
        human=Backwards(),
    )
    state = State(id="s", messages=[Message.user("go")])
    agent.run_sync(state)

    assert answered == ["question 2", "question 1", "question 0"]
    assert [text for _, _, text, _ in results(state)] == ["for 0 of s", "for 1 of s", "for 2 of s"]
    assert_whole(state)


def test_a_human_that_fails_fails_as_the_tool_that_asked() -> None:
    @tool
    async def wonder(state: State) -> str:
        """Ask."""
        return await agent.ask_human(state, "Which?")

    agent = Agent(model=FakeModel([[call("wonder")]]), tools=[wonder], human=FakeHuman([OSError("line is dead")]))
    state = State(messages=[Message.user("go")])

    with pytest.raises(OSError, match="line is dead"):
        agent.run_sync(state)

    assert errors(state) == ["OSError: line is dead"]
    assert_whole(state)


def test_an_answer_that_comes_later_is_an_error_result_in_a_tool() -> None:
    @tool
    async def wonder(state: State) -> str:
        """Ask."""
        return await agent.ask_human(state, "Which?")

    agent = Agent(
        model=FakeModel([[call("wonder")], "done"]), tools=[wonder], human=FakeHuman([WaitingForAnswerError("q1")])
    )
    state = State(messages=[Message.user("go")])
    agent.run_sync(state)

    assert results(state)[0][1:3] == ("error", "(waiting for the answer to q1)")


def test_a_decision_that_comes_later_stops_the_run() -> None:
    state, tools = go(
        [AllowByName("read"), DecideByHuman()],
        *[call("read"), call("write"), call("delete")],
        human=FakeHuman([WaitingForAnswerError("q1")]),
    )

    assert tools.ran == []
    assert [(outcome, text) for _, outcome, text, _ in results(state)][1] == ("denied", "(waiting for approval q1)")
    assert [outcome for _, outcome, *_ in results(state)] == ["cancelled", "denied", "cancelled"]
    assert isinstance(state.stopped, StoppedByPermission)
    assert exchanges(state) == []


async def test_ask_human_outside_a_run_saves(tmp_path: Any) -> None:
    store = FileStore(tmp_path)
    state = State(id="s", messages=[Message.user("go")])

    await Agent(model=FakeModel([]), human=FakeHuman(["a.py"]), store=store).ask_human(state, "Which?")

    assert await saved_kinds(store, "s") == ["context_change", "human"]


# FakeHuman


async def test_a_fake_human_answers_from_its_script() -> None:
    async def later(question: Question) -> str:
        await trio.lowlevel.checkpoint()
        return question.upper()

    human = FakeHuman(["plain", lambda question: len(question), later, KeyError("k")])
    question = Question("which?", id="q", state=State())

    with trio.testing.assert_checkpoints():
        assert await human.ask(question, str) == "plain"
    assert await human.ask(question, int) == 6
    assert await human.ask(question, str) == "WHICH?"
    with pytest.raises(KeyError):
        await human.ask(question, str)
    with pytest.raises(ScriptEndedError, match=r"asked 5 times, and its script had 4 answers; .*'which\?'"):
        await human.ask(question, str)
    assert human.remaining == 0
    assert human.questions == ["which?"] * 5


async def test_a_function_instead_of_a_script_answers_every_question() -> None:
    human = FakeHuman(lambda question: question.id)

    assert [await human.ask(Question("?", id=name, state=State()), str) for name in "ab"] == ["a", "b"]
    with pytest.raises(TypeError, match=r"FakeHuman\(\['yes'\]\)"):
        FakeHuman("yes")


def test_a_question_for_another_state_belongs_to_no_call() -> None:
    human = FakeHuman(["a.py"])
    other = State()

    @tool
    async def wonder() -> str:
        """Ask."""
        return await agent.ask_human(other, "Which?")

    agent = Agent(model=FakeModel([[call("wonder")], "done"]), tools=[wonder], human=human)
    agent.run_sync("go")

    assert human.questions[0].state is other
    assert human.questions[0].call is None
    assert exchanges(other) == [("Which?", "a.py")]


def test_a_subagent_asks_the_person_above() -> None:
    human = FakeHuman(["a.py"])

    @tool
    async def wonder(state: State) -> str:
        """Ask."""
        return await child.ask_human(state, "Which?")

    child = Agent(model=FakeModel([[call("wonder")], "below"]), tools=[wonder], name="child", description="Wonders.")
    lead = Agent(model=FakeModel([[call("child", prompt="go")], "above"]), tools=[child], human=human)

    assert lead.run_sync("go") == "above"
    assert human.questions == ["Which?"]


def test_a_subagent_that_nobody_can_decide_for_is_a_mistake_of_the_whole_run() -> None:
    inner = Tools("write")
    child = Agent(
        model=FakeModel([[call("write")]]),
        tools=inner.all,
        permissions=[DecideByHuman()],
        name="child",
        description="Writes.",
    )
    lead = Agent(model=FakeModel([[call("child", prompt="go")]]), tools=[child])
    state = State(messages=[Message.user("go")])

    with pytest.raises(NoHumanError):
        lead.run_sync(state)

    assert inner.ran == []
    assert_whole(state)
