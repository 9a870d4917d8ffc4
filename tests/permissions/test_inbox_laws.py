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
    st.tuples(st.just("call"), st.lists(st.integers(0, 2), min_size=1, max_size=3))
    | st.tuples(st.sampled_from(["yes", "no", "always"]), st.integers(0, 2))
    | st.tuples(st.just("reload"), st.just(0)),
    max_size=12,
)


class Reference:
    """What has to happen, without States and stores."""

    def __init__(self) -> None:
        self.items: list[tuple[int, str | None]] = []
        """Arguments and, once it is there, the answer."""
        self.always = False

    @property
    def open(self) -> list[int]:
        return [n for n, said in self.items if said is None]

    def call(self, ns: list[int]) -> list[str]:
        """How the texts begin that the calls of one reply end with."""
        texts = ["(cancelled"] * len(ns)
        allowed: list[int] = []
        used: list[tuple[int, str | None]] = []
        for index, n in enumerate(ns):
            item = next((item for item in self.items if item[0] == n and item[1] is not None), None)
            if self.always or (item is not None and item[1] == "yes"):
                texts[index] = f"write did {n}"
                allowed.append(index)
            elif item is not None:
                texts[index] = "(denied by the user)"
            else:
                if n not in self.open:
                    self.items.append((n, None))
                for other in allowed:
                    texts[other] = "(cancelled"
                texts[index] = "(waiting for approval"
                self.items += used  # an approval counts until its call has run
                return texts
            if item is not None and not self.always:
                self.items.remove(item)
                used += [item] if item[1] == "yes" else []
        return texts

    def answer(self, said: str, which: int) -> int | None:
        if which >= len(self.open):
            return None
        n = self.open[which]
        place = [index for index, item in enumerate(self.items) if item[1] is None][which]
        if said == "always":
            self.always = True
            del self.items[place]
        else:
            self.items[place] = (n, said)
        return n


@given(steps=STEPS)
def test_an_inbox_and_its_reference_agree(steps: list[tuple[str, Any]]) -> None:
    trio.run(compare, steps)


async def compare(steps: list[tuple[str, Any]]) -> None:
    reference, tools, store, inbox = Reference(), Tools("write"), MemoryStore(), Inbox(wait=False)
    state = State(messages=[Message.user("go")])
    may_have_run: list[str] = []
    for step, given_with in steps:
        if step == "call":
            texts = reference.call(given_with)
            may_have_run += [text.replace(" did", "") for text in texts if "did" in text]
            script: list[Any] = [[call("write", n=n) for n in given_with], "done"]
            await an_agent(tools, script, [DecideByHuman()], human=inbox, store=store).run(state)
            for (_, _, told, _), text in zip(results(state)[-len(texts) :], texts, strict=True):
                assert told.startswith(text)
            state.add_message(Message.user("go on"))
        elif step == "reload":
            if await store.has(state.id):
                await store.save(state)
                state, inbox = await store.load(state.id), Inbox(wait=False)
                inbox.add(state)
        elif (number := reference.answer(step, given_with)) is not None:
            question = next(q for q in inbox.open if q.call is not None and q.call.args == {"n": number})
            await inbox.answer(question.id, step)
        assert sorted(q.call.args["n"] for q in inbox.open) == sorted(reference.open)
        assert sorted(tools.ran) == sorted(may_have_run)
    assert_whole(state)
