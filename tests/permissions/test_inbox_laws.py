"""Whatever is asked, answered and loaded again, in any order: each yes lets one call run, and no other runs."""

from __future__ import annotations

from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from alpineagents import DecideByHuman, Inbox, MemoryStore, Message, State

from ..run.runs import assert_whole
from .agents import Tools, an_agent, call, results

STEPS = st.lists(
    st.tuples(st.just("call"), st.integers(0, 2))
    | st.tuples(st.sampled_from(["yes", "no", "always"]), st.integers(0, 2))
    | st.tuples(st.just("reload"), st.just(0)),
    max_size=12,
)


class Reference:
    """What has to happen, without States and stores."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.answers: dict[int, str] = {}
        self.always = False

    def call(self, n: int) -> str:
        if self.always:
            return f"write did {n}"
        if n in self.answers:
            return f"write did {n}" if self.answers.pop(n) == "yes" else "(denied by the user)"
        if n not in self.open:
            self.open.append(n)
        return "(waiting for approval"

    def answer(self, said: str, which: int) -> int | None:
        if which >= len(self.open):
            return None
        n = self.open.pop(which)
        if said == "always":
            self.always = True
        else:
            self.answers[n] = said
        return n


@given(steps=STEPS)
def test_an_inbox_and_its_reference_agree(steps: list[tuple[str, int]]) -> None:
    trio.run(compare, steps)


async def compare(steps: list[tuple[str, int]]) -> None:
    reference, tools, store, inbox = Reference(), Tools("write"), MemoryStore(), Inbox(wait=False)
    state = State(messages=[Message.user("go")])
    may_have_run: list[str] = []
    for step, n in steps:
        if step == "call":
            text = reference.call(n)
            may_have_run += [f"write {n}"] if "did" in text else []
            script: list[Any] = [call("write", n=n), "done"]
            await an_agent(tools, script, [DecideByHuman()], human=inbox, store=store).run(state)
            assert results(state)[-1][2].startswith(text)
            state.add_message(Message.user("go on"))
        elif step == "reload":
            if await store.has(state.id):
                await store.save(state)
                state, inbox = await store.load(state.id), Inbox(wait=False)
                inbox.add(state)
        elif (number := reference.answer(step, n)) is not None:
            question = next(q for q in inbox.open if q.call is not None and q.call.args == {"n": number})
            await inbox.answer(question.id, step)
        assert sorted(q.call.args["n"] for q in inbox.open) == sorted(reference.open)
        assert tools.ran == may_have_run
    assert_whole(state)
