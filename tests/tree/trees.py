"""Trees of Agents for tests: leads whose models ask for subagents, and what is told of them."""

from __future__ import annotations

from alpineagents import Agent, Message, Reply, State, TextBlock, Usage
from alpineagents.testing import FakeModel, tool_call


def helper(*answers, name: str = "helper", **settings) -> Agent:
    """An Agent that can be a tool; its model plays *answers*, or a function of the request."""
    script = answers[0] if len(answers) == 1 and callable(answers[0]) else answers
    return Agent(model=FakeModel(script), name=name, description=f"The {name}.", **settings)


def lead(*tools, calls: int = 1, **settings) -> Agent:
    """An Agent that calls the first of its tools so many times at once, and then answers with the results."""
    asked = [tool_call(getattr(tools[0], "name", None), prompt=f"part {number}") for number in range(calls)]
    return Agent(model=FakeModel([asked, results]), tools=tools, **settings)


def results(request) -> str:
    """What the tools gave, as the model sees it: a line each."""
    texts = [
        block.content[0].text for message in request.messages if message.role == "tool" for block in message.blocks
    ]
    return "\n".join(texts)


def asked(text: str = "all") -> State:
    return State(messages=[Message.user(text)])


def said(text: str, tokens: int = 10, cost: str | None = "0") -> Reply:
    return Reply((TextBlock(text),), "fake/fake", "stop", Usage(input_tokens=tokens, requests=1, cost=cost))


def closed(state: State):
    """The entries of the results, in the order in which the calls were closed."""
    return [entry for entry in state.history if entry.kind == "tool_result" and not entry.late]


def told(state: State) -> list[tuple[str, str]]:
    """Outcome and text of each result."""
    return [(str(entry.outcome), entry.content[0].text) for entry in closed(state)]


def child_of(state: State, number: int = 0) -> State:
    [child_id] = closed(state)[number].child_ids
    return state.child(child_id)
