"""A conversation, without the terminal around it: who types, when, and what Ctrl+C does."""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from alpineagents import Agent, MemoryStore, Message, Reporter, State, tool
from alpineagents.cli import _conversation, _ctrl_c
from alpineagents.cli._conversation import AGAIN, ELSEWHERE, HELP, LEAVING, Conversation
from alpineagents.cli._ctrl_c import ctrl_c_calls, end_by_ctrl_c
from alpineagents.testing import FakeModel, tool_call


class Desk(Reporter):
    """Where somebody sits: lines come when the test says so, and what is printed is kept."""

    def __init__(self) -> None:
        self.keys, self._lines = trio.open_memory_channel[str](100)
        self.printed: list[str] = []
        self.replies: list[str] = []

    @asynccontextmanager
    async def lines(self):
        yield self._lines

    def print(self, text: str) -> None:
        self.printed.append(text)

    def on_reply(self, state, reply):
        self.replies.append(reply.text)

    async def type(self, *lines: str) -> None:
        """Type lines, each when all that came of the one before has happened."""
        for line in lines:
            await self.keys.send(line)
            await trio.testing.wait_all_tasks_blocked()

    async def ctrl_c(self) -> None:
        signal.raise_signal(signal.SIGINT)
        await trio.testing.wait_all_tasks_blocked()


class Visit:
    """A conversation that is on in the background."""

    def __init__(self, *script, tools=(), state=None, loop=None) -> None:
        self.desk = Desk()
        self.model = FakeModel(script)
        self.state = State() if state is None else state
        self.store = MemoryStore()
        self.code: int | None = None
        self.set_back = 0
        self.greeting: list[str] = []
        agent = Agent(model=self.model, tools=tools, reporter=self.desk, store=self.store)
        self.agent = agent if loop is None else agent.copy(loop=loop)

    def _set_back(self) -> None:
        self.set_back += 1

    async def hold(self, goes_on: bool = False) -> None:
        self.code = await Conversation(self.agent, self.state, self.desk, self._set_back).hold(self.greeting, goes_on)


@tool
async def wait() -> str:
    """Wait for ever."""
    return await trio.sleep_forever()


async def begin(nursery, visit, goes_on=False):
    nursery.start_soon(visit.hold, goes_on)
    await trio.testing.wait_all_tasks_blocked()
    return visit.desk


async def test_each_line_is_answered_and_saved_until_the_end_of_input(nursery):
    visit = Visit("One.", "Two.")
    desk = await begin(nursery, visit)

    await desk.type("first", "", "second")
    await desk.keys.aclose()
    await trio.testing.wait_all_tasks_blocked()

    assert (desk.replies, visit.code) == (["One.", "Two."], 0)
    loaded = await visit.store.load(visit.state.id)
    assert [message.text for message in loaded.messages] == ["first", "One.", "second", "Two."]


async def test_it_greets_and_can_be_left_by_a_word(nursery):
    visit = Visit()
    visit.greeting = ["Hello", "again."]
    desk = await begin(nursery, visit)
    assert desk.printed == visit.greeting
    desk.printed.clear()

    await desk.type("/help", " /nothing ", "/exit")

    assert desk.printed == [HELP, f"there is no /nothing; {HELP}"]
    assert (visit.code, len(visit.state.history)) == (0, 0)


async def test_one_that_somebody_else_works_on_is_left_with_a_line(nursery):
    first = Visit(tool_call("wait"), tools=[wait])
    await (await begin(nursery, first)).type("hi")
    second = Visit(state=State(id=first.state.id, history=first.state.history))
    second.agent = second.agent.copy(store=first.store)

    desk = await begin(nursery, second)
    await desk.type("me too")

    (line,) = desk.printed
    assert line.startswith(f"error: State {first.state.id} in MemoryStore")
    assert line.endswith(f" is held by another run or save, in this process or another one; {ELSEWHERE}")
    assert second.code == 1
    await first.desk.ctrl_c()
    await first.desk.type("/exit")


async def test_one_that_somebody_else_went_on_with_is_left_with_a_line(nursery):
    first, second = Visit("One.", "Two."), Visit("Never.")
    await (await begin(nursery, first)).type("one")
    second.state = await first.store.load(first.state.id)
    second.agent = second.agent.copy(store=first.store)
    desk = await begin(nursery, second)
    await first.desk.type("two")

    await desk.type("two, too")
    await first.desk.type("/exit")

    (line,) = desk.printed
    assert line == f"error: State {first.state.id} has been gone on with elsewhere; {ELSEWHERE}"
    assert second.code == 1
    saved = await first.store.load(first.state.id)
    assert [message.text for message in saved.messages] == ["one", "One.", "two", "Two."]


async def test_a_line_that_only_begins_with_a_slash_is_a_message(nursery):
    visit = Visit("A path.")
    desk = await begin(nursery, visit)

    await desk.type("/etc/passwd is what?", "/exit")

    assert desk.replies == ["A path."]


async def test_what_is_typed_while_the_agent_works_is_read_at_its_next_step(nursery):
    free = trio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await free.wait()
        return "worked"

    visit = Visit(tool_call("work"), "Both.", tools=[work])
    desk = await begin(nursery, visit)
    await desk.type("first", "second")
    assert desk.replies == [""]

    free.set()
    await trio.testing.wait_all_tasks_blocked()
    await desk.type("/exit")

    assert desk.replies == ["", "Both."]
    assert [message.text for message in visit.model.requests[1].messages if message.role == "user"] == [
        "first",
        "second",
    ]
    assert len([entry for entry in visit.state.history if entry.kind == "run_start"]) == 1


async def test_an_error_is_a_line_and_enter_tries_again(nursery):
    visit = Visit(RuntimeError("broken"), "Whole.")
    desk = await begin(nursery, visit)

    await desk.type("hi")
    assert desk.printed == ["error: RuntimeError: broken", AGAIN]
    await desk.type("", "/exit")

    assert desk.replies == ["Whole."]


async def test_ctrl_c_stops_the_turn_and_nothing_that_was_typed_before_starts_another(nursery):
    visit = Visit(tool_call("wait"), "Again.", tools=[wait])
    desk = await begin(nursery, visit)

    await desk.type("first", "typed while it works")
    await desk.ctrl_c()
    assert (visit.code, desk.replies, visit.state.pending_calls) == (None, [""], ())
    assert desk.printed == [AGAIN]
    await desk.type("after", "/exit")

    assert (desk.replies, visit.code) == (["", "Again."], 0)


async def test_ctrl_c_that_comes_when_the_answer_is_there_is_one_at_the_prompt(nursery):
    class Pressing(Desk):
        def on_run_end(self, state, error):
            signal.raise_signal(signal.SIGINT)

    visit = Visit("One.")
    visit.desk = Pressing()
    visit.agent = visit.agent.copy(reporter=visit.desk)
    desk = await begin(nursery, visit)

    await desk.type("hi")
    assert desk.printed == ["Ctrl+C again leaves."]
    await desk.ctrl_c()

    assert (desk.replies, visit.code) == (["One."], 130)


async def test_ctrl_c_twice_at_the_prompt_leaves(nursery):
    visit = Visit("One.")
    desk = await begin(nursery, visit)

    await desk.ctrl_c()
    assert desk.printed == ["Ctrl+C again leaves."]
    await desk.type("hi")
    await desk.ctrl_c()
    assert (desk.printed[1:], visit.code) == (["Ctrl+C again leaves."], None)
    await desk.ctrl_c()

    assert visit.code == 130


async def test_ctrl_c_again_leaves_a_turn_that_does_not_end_and_a_third_ends_the_process(nursery, monkeypatch):
    ended = []
    monkeypatch.setattr(_conversation, "end_by_ctrl_c", lambda: ended.append(visit.set_back))
    free = trio.Event()

    @tool
    async def shielded() -> str:
        """Don't end."""
        with trio.CancelScope(shield=True):
            await free.wait()
        return ""

    visit = Visit(tool_call("shielded"), tools=[shielded])
    desk = await begin(nursery, visit)
    await desk.type("hi")

    await desk.ctrl_c()
    await desk.ctrl_c()
    assert (visit.code, ended, desk.printed) == (None, [], [LEAVING])
    await desk.ctrl_c()
    assert ended == [1]
    free.set()
    await trio.testing.wait_all_tasks_blocked()

    assert visit.code == 130


async def test_a_tool_that_gives_nobody_a_turn_is_broken_by_the_second_ctrl_c_and_the_visit_goes_on(nursery):
    @tool
    async def hang() -> str:
        """Hang."""
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("was not broken")

    visit = Visit(tool_call("hang"), "Still here.", tools=[hang])
    desk = await begin(nursery, visit)

    await desk.type("hi", "and now?", "/exit")

    assert (desk.replies, visit.code) == (["", "Still here."], 0)


async def test_an_agent_that_finishes_the_conversation_ends_it(nursery):
    @tool
    async def end(state: State) -> str:
        """End."""
        state.finish("over")
        return ""

    visit = Visit(tool_call("end"), tools=[end])
    desk = await begin(nursery, visit)

    await desk.type("hi")

    assert (desk.printed, visit.code) == (["The conversation is finished."], 0)


async def test_one_that_was_cut_short_goes_on_by_itself(nursery):
    visit = Visit("Here it is.", state=State(messages=[Message.user("What?")]))
    desk = await begin(nursery, visit, goes_on=True)

    assert desk.replies == ["Here it is."]
    await desk.type("", "/exit")
    assert desk.replies == ["Here it is."]


# ---- Ctrl+C


async def test_each_ctrl_c_is_heeded_and_the_handler_is_set_back():
    heeded = []
    before = signal.getsignal(signal.SIGINT)

    with ctrl_c_calls(lambda: heeded.append(1), lambda: None):
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            await trio.testing.wait_all_tasks_blocked()

    assert heeded == [1, 1, 1]
    assert signal.getsignal(signal.SIGINT) is before


async def test_the_second_that_nobody_heeds_does_not_break_what_is_protected_and_the_third_ends(monkeypatch):
    ended = []
    monkeypatch.setattr(_ctrl_c, "end_by_ctrl_c", lambda: ended.append("ended"))

    @trio.lowlevel.enable_ki_protection
    def protected():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)

    with ctrl_c_calls(lambda: None, lambda: ended.append("set back")):
        protected()
        await trio.testing.wait_all_tasks_blocked()

    assert ended == ["set back", "ended"]


def test_the_end_is_that_of_a_program_which_never_took_over_the_signal(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    raised = []
    monkeypatch.setattr(signal, "raise_signal", lambda number: raised.append((number, signal.getsignal(number))))
    try:
        end_by_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, before)

    assert raised == [(signal.SIGINT, signal.SIG_DFL)]


pytestmark = pytest.mark.filterwarnings("error")
