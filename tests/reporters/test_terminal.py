"""Terminal where there is no terminal: plain lines, and questions answered from a pipe. Its laws, in both ways."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from io import StringIO, TextIOWrapper
from typing import Literal

import pyte
import pytest
import trio
import trio.testing

from alpineagents import (
    Agent,
    Budget,
    DecideByHuman,
    Denied,
    DenyPermission,
    Image,
    Message,
    Model,
    ModelEvent,
    NoHumanError,
    Progress,
    Question,
    RateLimitError,
    Reply,
    State,
    Terminal,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolCall,
    ToolError,
    Usage,
    default_loop,
    loop,
    reporters,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, ReporterLaws, tool_call


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def read(path: str) -> str:
    """Read."""
    if path == "gone":
        raise ToolError("(there is no such file)")
    return "one\ntwo\n" * 200


@tool
async def count(progress: Progress) -> str:
    """Count."""
    progress(1, 3, "one")
    return "counted"


class Never(DenyPermission):
    """Refuses, and stops."""

    def check(self, state: State, call: ToolCall, tool: Tool) -> Denied:
        return Denied("(never)", stop=True)

    def __repr__(self) -> str:
        return "Never()"


def shown(agent: Agent, prompt: str | State = "Go on", **settings: bool) -> list[str]:
    """The lines that a run of *agent* prints where there is no terminal."""
    output = StringIO()
    agent.copy(reporter=Terminal(file=output, **settings)).run_sync(prompt)
    return output.getvalue().splitlines()


def on_a_screen(output: StringIO) -> list[str]:
    """What a terminal of 80 by 24 shows of it."""
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(output.getvalue().replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")


def test_a_run_is_plain_lines():
    calls = [tool_call("add", a=1, b=2), tool_call("read", path="gone"), tool_call("read", path="a.txt")]
    agent = Agent(model=FakeModel([["Let me\nlook.", *calls], "It is 3.\n"]), tools=[add, read])

    lines = shown(agent)

    assert lines[:2] == ["Let me", "look."]
    assert sorted(lines[2:5]) == [
        '! read(path="gone") -> (there is no such file)',
        "* add(a=1, b=2) -> 3",
        '* read(path="a.txt") -> one… (1.6 KB)',
    ]
    assert lines[5:] == ["It is 3.", "- done: 2 turns, 40 tokens"]


def test_progress_is_for_a_frame():
    agent = Agent(model=FakeModel([tool_call("count"), "Done."]), tools=[count])

    assert shown(agent) == ["* count() -> counted", "Done.", "- done: 2 turns, 40 tokens"]


@pytest.mark.parametrize(
    ("settings", "last"),
    [
        ({"loop": default_loop.copy(limit=1)}, "- stopped by limit of 1 turns: 1 turn, 20 tokens"),
        ({"budget": Budget(requests=1)}, "- stopped by budget of requests: 1 of 1: 1 turn, 20 tokens"),
        (
            {"permissions": [Never()]},
            "- stopped by Never() refused add: 1 turn, 20 tokens",
        ),
    ],
)
def test_the_last_line_says_why_a_run_stopped(settings: dict[str, object], last: str):
    agent = Agent(model=FakeModel([tool_call("add", a=1, b=2), "Done."]), tools=[add], **settings)

    assert shown(agent)[-1] == last


def test_the_last_line_says_what_it_cost():
    used = [Usage(input_tokens=1_000, output_tokens=20, requests=1, cost=Decimal(cost)) for cost in ("0.0123", "1.5")]
    replies = [Reply((TextBlock("Done."),), "fake/fake", "stop", usage=usage) for usage in used]

    assert shown(Agent(model=FakeModel(replies[:1])))[-1] == "- done: 1 turn, 1,020 tokens, $0.0123"
    assert shown(Agent(model=FakeModel(replies[1:])))[-1] == "- done: 1 turn, 1,020 tokens, $1.50"


async def test_the_last_line_says_how_long_it_took(autojump_clock):
    @tool
    async def wait() -> None:
        """Wait."""
        await trio.sleep(75)

    output = StringIO()
    agent = Agent(model=FakeModel([tool_call("wait"), "Done."]), tools=[wait], reporter=Terminal(file=output))
    await agent.run("Go on")

    assert output.getvalue().splitlines() == [
        "* wait() -> (done) (1 min 15 s)",
        "Done.",
        "- done: 2 turns, 40 tokens, 1 min 15 s",
    ]


def test_a_finished_run_says_so():
    @tool
    async def end(state: State) -> None:
        """End."""
        state.finish("all")

    agent = Agent(model=FakeModel([tool_call("end"), "never"]), tools=[end])

    assert shown(agent)[-1] == "- stopped by finish('all'): 1 turn, 20 tokens"


def test_a_failed_run_names_the_class_and_leaves_the_rest_to_the_error():
    output = StringIO()
    agent = Agent(model=FakeModel([RateLimitError("sk-secret", status=429)]), reporter=Terminal(file=output))
    with pytest.raises(RateLimitError):
        agent.run_sync("Go on")

    assert output.getvalue() == "! failed with RateLimitError: 0 turns\n"


async def test_a_cancelled_run_says_so(autojump_clock):
    output = StringIO()
    agent = Agent(model=FakeModel(["Late."], delay=5), reporter=Terminal(file=output))
    with trio.move_on_after(2):
        await agent.run("Go on")

    assert output.getvalue() == "- cancelled: 0 turns, 2.0 s\n"


def test_turns_and_tokens_are_those_of_the_run():
    agent, state = Agent(model=FakeModel(["One.", "Two."])), State(messages=[Message.user("Go on")])
    shown(agent, state)
    state.add_message(Message.user("And now?"))

    assert shown(agent, state) == ["Two.", "- done: 1 turn, 20 tokens"]


def test_nothing_reaches_the_output_that_a_terminal_would_obey():
    evil = "\x1b]0;title\x07\x1b[2Jclear\x9b31m\r\u202eback\x00"

    @tool
    async def speak(text: str) -> str:
        """Speak."""
        return text

    output = StringIO()
    terminal = Terminal(file=output)
    agent = Agent(model=FakeModel([[evil, tool_call("speak", text=evil)], evil]), tools=[speak], name=evil)
    agent.copy(reporter=terminal).run_sync("Go on")
    terminal.print(evil)

    text = output.getvalue()
    assert all(char == "\n" or (char.isprintable() and char != "\u202e") for char in text)
    assert text.splitlines()[0] == r"\x1b]0;title\x07\x1b[2Jclear\x9b31m\u202eback\x00"


class _Events(Model):
    """Tells of a retry."""

    name = "fake/events"

    async def respond(self, request, emit):
        await trio.lowlevel.checkpoint()
        emit(ModelEvent("retry", "overloaded, trying again in 2 s", {"restarted": True}))
        return Reply((ThinkingBlock("Hm."), TextBlock("Hello.")), self.name, "stop")


def test_a_retry_is_a_line():
    assert shown(Agent(model=_Events())) == [
        "- retry: overloaded, trying again in 2 s",
        "Hello.",
        "- done: 1 turn",
    ]


def test_notices_and_changes_of_the_context_are_lines():
    state = State(messages=[Message.user("Go on")])

    @tool
    async def tell(state: State) -> str:
        """Tell."""
        state.add_message(Message.notice("the build is green"))
        return "told"

    lines = shown(Agent(model=FakeModel([tool_call("tell"), "Done."]), tools=[tell]), state)

    assert lines[:2] == ["- [notice] the build is green", "* tell() -> told"]


def test_compactions_are_lines():
    state = State(messages=[Message.user("Go on"), Message.assistant("Yes?"), Message.user("Go on")])

    @loop(until=waiting_for_user, limit=1)
    async def body(agent: Agent, state: State) -> None:
        state.compact("All of it.")
        state.add_message(Message.user("And?"))
        await agent.think(state)

    assert shown(Agent(model=FakeModel(["Yes."]), loop=body), state)[0] == "- compact: All of it."


async def test_a_result_that_comes_late_is_a_line():
    """A thread that goes on when its call has timed out; the next turn waits until it has ended."""
    output = StringIO()
    release = threading.Event()

    @tool(timeout=0.01)
    def slow() -> str:
        """Take long."""
        release.wait()
        return "late"

    @loop(until=waiting_for_user, limit=2)
    async def body(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)
        release.set()
        while not any(entry.kind == "tool_result" and entry.late for entry in state.history):
            await trio.lowlevel.checkpoint()

    agent = Agent(model=FakeModel([tool_call("slow"), "Done."]), tools=[slow], loop=body)
    await agent.copy(reporter=Terminal(file=output)).run("Go on")

    assert "- slow has ended after all: late" in output.getvalue().splitlines()


def test_a_result_that_is_no_text_has_a_size():
    @tool
    async def draw() -> Image:
        """Draw."""
        return Image(b"\x89PNG\r\n\x1a\n")

    assert shown(Agent(model=FakeModel([tool_call("draw"), "Done."]), tools=[draw]))[0] == "* draw() -> 1 attachment"


def test_a_loop_of_ones_own_is_done_when_it_ends():
    async def once(agent: Agent, state: State) -> None:
        await agent.think(state)

    assert shown(Agent(model=FakeModel(["Yes."]), loop=once)) == ["Yes.", "- done: 1 turn, 20 tokens"]


def test_the_end_of_a_run_whose_beginning_was_not_told_is_a_line():
    output = StringIO()
    Terminal(file=output).on_run_end(State(), KeyboardInterrupt())

    assert output.getvalue() == "- interrupted\n"


def test_empty_lines_at_the_ends_of_a_text_that_streams_are_left_out():
    output = StringIO()
    terminal = Terminal(file=output, live=True, color=False, thinking=True)
    state = State()
    terminal.on_thinking(state, "Hm.\n")
    for piece in ("\n \n", "\nOne", "\n\n", "\n", "two.", "\n\n"):
        terminal.on_text(state, piece)
    terminal.on_reply(state, Reply((), "fake/fake"))

    assert on_a_screen(output) == ["Hm.", "One", "", "", "two."]


def test_a_narrow_width_is_kept_where_the_terminal_has_more():
    output = StringIO()
    terminal = Terminal(file=output, live=True, color=False, width=10)
    terminal.on_text(State(), "one two three ")
    terminal.print("four five six")

    assert on_a_screen(output) == ["one two", "three", "four five", "six"]


def test_two_agents_are_told_apart():
    output = StringIO()
    terminal = Terminal(file=output)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name in ("writer", "critic"):
                agent = Agent(model=FakeModel([tool_call("add", a=1, b=2), "Done."]), tools=[add], name=name)
                nursery.start_soon(agent.copy(reporter=terminal).run, "Go on")

    trio.run(main)

    for name in ("writer", "critic"):
        assert f"* {name}: add(a=1, b=2) -> 3\n" in output.getvalue()
        assert f"{name}:\nDone.\n" in output.getvalue()
        assert f"- {name}: done: 2 turns, 40 tokens\n" in output.getvalue()


def test_text_is_not_wrapped_where_there_is_no_terminal_unless_a_width_is_given():
    agent = Agent(model=FakeModel(["word " * 50]))
    narrow = StringIO()
    agent.copy(reporter=Terminal(file=narrow, width=20), model=FakeModel(["word " * 50])).run_sync("Go on")

    assert len(shown(agent)) == 2
    assert max(map(len, narrow.getvalue().splitlines())) <= 20


def test_what_an_encoding_lacks_is_a_question_mark():
    raw = io.BytesIO()
    terminal = Terminal(file=TextIOWrapper(raw, encoding="ascii"))
    terminal.print("naïve 🐛")

    assert raw.getvalue() == b"na?ve ?\n"


def test_it_writes_to_where_standard_output_is_at_the_time(capsys: pytest.CaptureFixture[str], monkeypatch):
    terminal = Terminal()
    terminal.print("one")
    monkeypatch.setattr(sys, "stdout", StringIO())
    terminal.print("two")
    monkeypatch.setattr(sys, "stdout", None)
    terminal.print("three")
    monkeypatch.undo()

    assert capsys.readouterr().out == "one\n"


def test_a_width_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"1 column or more \(got 0\)"):
        Terminal(width=0)


class _Counting(StringIO):
    """Counts writes."""

    count = 0

    def write(self, text: str) -> int:
        self.count += 1
        return super().write(text)


async def test_numbers_are_drawn_at_most_twenty_times_a_second(mock_clock):
    output = _Counting()
    terminal, state, call = Terminal(file=output, live=True), State(), tool_call("count")
    terminal.on_tool_start(state, call)
    before = output.count
    for number in range(1_000):
        terminal.on_tool_progress(state, call, number, 1_000, None)
        mock_clock.jump(0.001)

    assert 15 <= output.count - before <= 21


async def test_text_is_written_when_it_comes(mock_clock):
    output = _Counting()
    terminal, state = Terminal(file=output, live=True), State()
    for _ in range(100):
        terminal.on_text(state, "a")

    assert output.count == 100


async def test_with_many_agents_the_frame_is_drawn_now_and_then_and_is_gone_at_the_end():
    output = _Counting()
    terminal = Terminal(file=output, live=True, color=False)
    async with trio.open_nursery() as nursery:
        for number in range(150):
            agent = Agent(model=FakeModel(["Done."]), name=f"agent {number}", reporter=terminal)
            nursery.start_soon(agent.run, "Go on")

    assert output.getvalue().count(": done: 1 turn, 20 tokens") == 150
    assert "more" in output.getvalue()
    assert on_a_screen(output)[-1].endswith(": done: 1 turn, 20 tokens")


class _Closed(StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_pipe_that_nobody_reads_ends_the_run():
    state = State(messages=[Message.user("Go on")])
    with pytest.raises(BrokenPipeError):
        Agent(model=FakeModel(["Hello."]), reporter=Terminal(file=_Closed())).run_sync(state)

    assert state.history[-1].kind == "error"
    assert not state.running


class Typed:
    """A person at a pipe."""

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        self.keyboard = os.fdopen(read_end)
        self.output = StringIO()
        self.terminal = Terminal(file=self.output, keyboard=self.keyboard)

    def types(self, text: str) -> None:
        os.write(self._write_end, text.encode())

    def leaves(self) -> None:
        if self._write_end != -1:
            os.close(self._write_end)
        self._write_end = -1

    @property
    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def person() -> Iterator[Typed]:
    typed = Typed()
    yield typed
    typed.leaves()
    typed.keyboard.close()


def question(text: str, number: int = 1) -> Question:
    return Question(text, id=str(number), state=State())


async def test_a_question_is_a_line_and_its_answer_the_next_line_that_is_typed(person: Typed):
    person.types("maybe\nyes\nrest\n")

    assert await person.terminal.ask(question("Sure?"), bool) is True
    assert person.lines == ["? Sure?", "Answer yes or no.", "> maybe", "Answer yes or no.", "> yes"]
    assert await person.terminal.ask(question("And?"), str) == "rest"


async def test_choices_are_listed(person: Typed):
    person.types("2\n")

    assert await person.terminal.ask(question("Which?"), Literal["a.txt", "b.txt"]) == "b.txt"
    assert person.lines[:4] == ["? Which?", "  1) a.txt", "  2) b.txt", "Type a number or a name."]


async def test_questions_are_asked_one_after_another(person: Typed):
    answers: dict[int, object] = {}

    async def ask(number: int) -> None:
        answers[number] = await person.terminal.ask(question(f"{number}?", number), int)

    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
        assert person.lines == ["? 1?", "Type an integer."]
        person.types("10\n20\n30\n")

    assert answers == {1: 10, 2: 20, 3: 30}


async def test_a_question_that_is_cancelled_makes_room_for_the_next(person: Typed):
    answers: list[object] = []

    async def ask(number: int) -> None:
        answers.append(await person.terminal.ask(question(f"{number}?", number), str))

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as first:
            first.start_soon(ask, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, 2)
            await trio.testing.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        person.types("two\n")

    assert answers == ["two"]
    assert person.lines == ["? 1?", "(no answer)", "? 2?", "> two"]


async def test_at_the_end_of_input_nobody_can_be_asked(person: Typed):
    person.leaves()

    with pytest.raises(NoHumanError, match="Sure"):
        await person.terminal.ask(question("Sure?"), bool)


async def test_a_keyboard_that_is_no_file_is_at_its_end():
    with pytest.raises(NoHumanError):
        await Terminal(file=StringIO(), keyboard=StringIO("yes")).ask(question("Sure?"), bool)


async def test_a_call_that_nobody_can_be_asked_about_is_refused(person: Typed):
    person.leaves()
    agent = Agent(
        model=FakeModel([tool_call("add", a=1, b=2), "Well."]),
        tools=[add],
        permissions=[DecideByHuman()],
        reporter=person.terminal,
        human=person.terminal,
        name="adder",
    )
    await agent.run("Go on")

    assert person.lines == [
        '? adder asks: Allow add with {"a":1,"b":2}?',
        "Answer yes, no or always.",
        "(no answer)",
        "! add(a=1, b=2) denied -> (denied by the user)",
        "Well.",
        "- done: 2 turns, 40 tokens",
    ]


async def test_lines_that_are_typed_come_one_by_one_until_the_end(person: Typed):
    person.types("one\ntwo")
    person.leaves()

    async with person.terminal.lines() as lines:
        assert [line async for line in lines] == ["one", "two"]

    assert person.lines == ["> one", "> two"]


async def test_answers_are_not_among_the_lines(person: Typed):
    """Whoever waits reads for all: the one that wants lines, for the question."""
    taken: list[str] = []

    async def take() -> None:
        async with person.terminal.lines() as lines:
            async for line in lines:
                taken.append(line)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        person.types("one\n")
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as asking:
            asking.start_soon(person.terminal.ask, question("Sure?"), bool)
            await trio.testing.wait_all_tasks_blocked()
            person.types("yes\ntwo\n")
        person.leaves()

    assert taken == ["one", "two"]


async def test_a_line_is_not_lost_when_who_waits_for_it_is_cancelled(person: Typed):
    async with person.terminal.lines() as lines:
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(lines)
        person.types("one\n")
        assert await anext(lines) == "one"


async def test_lines_are_for_one_at_a_time(person: Typed):
    async with person.terminal.lines():
        with pytest.raises(RuntimeError, match="one lines"):
            async with person.terminal.lines():
                raise AssertionError("it was entered")
    person.types("one\n")
    async with person.terminal.lines() as lines:
        assert await anext(lines) == "one"


async def test_lines_are_over_with_their_block(person: Typed):
    async with person.terminal.lines() as lines:
        pass

    with pytest.raises(StopAsyncIteration):
        await anext(lines)


class _Picky:
    def __init__(self, size: int) -> None:
        self.size = size


async def test_a_type_that_nobody_can_type_is_refused_before_anything_is_asked(person: Typed):
    with pytest.raises(TypeError):
        await person.terminal.ask(question("What?"), _Picky)

    assert person.lines == []


def test_it_works_in_one_trio_run_after_another(person: Typed):
    person.types("1\n2\n")

    assert [trio.run(person.terminal.ask, question("?"), int) for _ in range(2)] == [1, 2]


def test_without_rich_it_says_what_to_install():
    program = "import sys; sys.modules['rich'] = None; import alpineagents; alpineagents.Terminal"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1] == "ImportError: Terminal needs rich: pip install rich"


def test_the_package_cannot_be_had_without_rich(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ImportError, match="pip install rich"):
        importlib.reload(importlib.import_module("alpineagents.reporters._terminal"))


def test_other_names_are_no_reporters():
    with pytest.raises(AttributeError, match="no attribute 'Television'"):
        _ = reporters.Television


class TestPlain(ReporterLaws):
    @pytest.fixture
    def reporter(self) -> Terminal:
        return Terminal(file=StringIO(), thinking=True)


class TestLive(ReporterLaws):
    @pytest.fixture
    def reporter(self) -> Terminal:
        return Terminal(file=StringIO(), live=True, color=True, thinking=True)


class TestWithoutUnicode(ReporterLaws):
    @pytest.fixture
    def reporter(self) -> Iterator[Terminal]:
        with TextIOWrapper(io.BytesIO(), encoding="ascii") as file:
            yield Terminal(file=file, live=True)
