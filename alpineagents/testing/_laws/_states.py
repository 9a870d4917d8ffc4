"""Laws about States and agents, as a program saves and loads them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import trio

from ..._contracts import Store, info_of
from ..._errors import ConflictError, CorruptStoreError, RunningElsewhereError
from ...record._blocks import ToolCall
from ...record._codec import FORMAT
from ...record._entries import ErrorEntry, ToolOutcome, ToolResultEntry
from ...record._messages import Message
from ...run import Agent
from ...state import State
from ...tools import tool
from .._fake_model import FakeModel, tool_call
from ._kit import INFO, conversation, encoded, entries_of, law, put, raws, reply, request, subagent


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.lowlevel.checkpoint()
    return a + b


class StateLaws:
    """What ``save``, ``load`` and an Agent with this store must do."""

    @law
    async def test_a_loaded_state_has_the_values_of_the_saved_one(self, store: Store) -> None:
        """``load`` gives the State that was saved: the same id, the same history, so the same values."""
        state = conversation(text="naïve \0 \u2028 🐛")
        state.finish({"line": 1, "info": {"certain": True}, "long": 10**30})

        await store.save(state)
        loaded = await store.load(state.id)

        assert loaded.snapshot() == state.snapshot()
        assert encoded(loaded) == encoded(state)
        assert loaded.id == state.id
        assert (loaded.answer, loaded.turn, loaded.usage) == (state.answer, state.turn, state.usage)
        assert [message.text for message in loaded.messages] == [message.text for message in state.messages]

    @law
    async def test_loading_twice_gives_equal_states(self, store: Store) -> None:
        """Loading changes nothing that is saved."""
        await store.save(conversation())

        assert (await store.load("bug-1")).snapshot() == (await store.load("bug-1")).snapshot()

    @law
    async def test_a_state_is_saved_bit_by_bit(self, store: Store) -> None:
        """Each save adds what is new, and what is awaited is saved without one."""
        state = State(id="bug-1")
        for number in range(5):
            await store.save(state)
            state.add_message(Message.user(f"message {number}"))
        await store.save(state)
        await state.add_message(Message.user("message 5"))
        async with state.edit_extra_data() as data:
            data["seen"] = 1

        loaded = await store.load("bug-1")
        assert [message.text for message in loaded.messages] == [f"message {number}" for number in range(6)]
        assert loaded.extra_data == {"seen": 1}

    @law
    async def test_loading_closes_what_was_open(self, store: Store) -> None:
        """What a crash left open is closed by ``load``: requests are taken back, calls aborted; saving keeps that."""
        asked = State(id="asked", messages=[Message.user("hello")])
        request(asked)
        called = State(id="called", messages=[Message.user("hello")])
        request(called)
        reply(called, ToolCall("a", "read_file", {}), ToolCall("b", "read_file", {}))
        for state in (asked, called):
            await store.save(state)

            loaded = await store.load(state.id)

            assert not loaded.pending_calls
            assert list(await store.read(state.id)) == encoded(state), "loading writes nothing"
            assert (await store.load(state.id)).snapshot() == loaded.snapshot()
            await store.save(loaded)
            assert (await store.load(state.id)).snapshot() == loaded.snapshot()
        assert isinstance((await store.load("asked")).history[-1], ErrorEntry)
        last = (await store.load("called")).history[-1]
        assert isinstance(last, ToolResultEntry)
        assert last.outcome is ToolOutcome.ABORTED

    @law
    async def test_saving_another_state_under_a_taken_id_is_a_conflict(self, store: Store) -> None:
        """A State can't be saved over another one; two loaded copies can't both go on."""
        await store.save(conversation())

        with pytest.raises(ConflictError, match="bug-1"):
            await store.save(conversation(text="Another bug."))
        one, two = await store.load("bug-1"), await store.load("bug-1")
        await one.add_message(Message.user("this way"))
        with pytest.raises(ConflictError, match="bug-1"):
            await two.add_message(Message.user("no, that way"))

        assert [message.text for message in (await store.load("bug-1")).messages][-1] == "this way"

    @law
    async def test_list_has_one_info_per_state(self, store: Store) -> None:
        """``list`` gives each State's StateInfo, the newest first, by parent and in pages."""
        old, sub, new = conversation("old", text="x" * 300), subagent("sub", "old"), State(id="new", extra_data={})
        new.add_message(Message.user("go"))
        new.finish("done")
        for state in (new, old, sub):
            await put(store, state)

        listed = await store.list()

        assert list(listed) == [info_of(state.id, state.snapshot_now()) for state in (new, sub, old)]
        assert [info.id for info in await store.list(parent_id="old")] == ["sub"]
        assert [info.id for info in await store.list(parent_id=None, limit=1)] == ["new"]
        assert [info.id for info in await store.list(before="new", limit=1)] == ["sub"]
        assert [info.id for info in await store.list(before="new", parent_id=None)] == ["old"]

    # ---- Agents

    @law
    async def test_an_agent_saves_what_it_does(self, store: Store) -> None:
        """After a run the store has all of it; a loaded State is gone on with by any Agent."""
        model = FakeModel([[tool_call("add", a=1, b=2), tool_call("add", a=3, b=4)], "3 and 7."])
        state = State(id="sums", messages=[Message.user("What are 1 + 2 and 3 + 4?")])

        assert await Agent(model=model, tools=[add], store=store).run(state) == "3 and 7."
        loaded = await store.load("sums")
        assert loaded.snapshot() == state.snapshot()
        loaded.add_message(Message.user("And 5 + 6?"))
        again = Agent(model=FakeModel([tool_call("add", a=5, b=6), "11."]), tools=[add], store=store)
        assert await again.run(loaded) == "11."

        assert (await store.load("sums")).snapshot() == loaded.snapshot()
        assert encoded(loaded)[: len(state.history)] == encoded(state)
        (info,) = await store.list()
        assert info == info_of("sums", loaded.snapshot_now())

    @law
    async def test_many_agents_run_at_once(self, store: Store) -> None:
        """Many Agents may save to one store at once; of each every entry is there."""
        states = [State(id=f"sum-{number}", messages=[Message.user("Add.")]) for number in range(20)]

        async def run(state: State) -> None:
            script: list[str | ToolCall | list[str | ToolCall]] = [
                [tool_call("add", a=1, b=2), tool_call("add", a=3, b=4)],
                tool_call("add", a=5, b=6),
                "done",
            ]
            await Agent(model=FakeModel(script), tools=[add], store=store).run(state)

        async with trio.open_nursery() as nursery:
            for state in states:
                nursery.start_soon(run, state)

        for state in states:
            assert (await store.load(state.id)).snapshot() == state.snapshot()

    @law
    async def test_a_state_runs_once_at_a_time(self, store: Store) -> None:
        """While a State runs, a run of another copy of it is a RunningElsewhereError; afterwards it isn't."""
        await store.save(State(id="bug-1", messages=[Message.user("go")]))
        first, second = await store.load("bug-1"), await store.load("bug-1")
        asked, let_go = trio.Event(), trio.Event()

        async def answer(_: object) -> str:
            asked.set()
            await let_go.wait()
            return "done"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(Agent(model=FakeModel(answer), store=store).run, first)
            await asked.wait()
            with pytest.raises(RunningElsewhereError, match="bug-1"):
                await Agent(model=FakeModel(["me too"]), store=store).run(second)
            let_go.set()

        loaded = await store.load("bug-1")
        assert loaded.answer == "done"
        loaded.add_message(Message.user("And now?"))
        assert await Agent(model=FakeModel(["done again"]), store=store).run(loaded) == "done again"

    @law
    async def test_a_cancelled_run_is_saved_and_goes_on(self, store: Store) -> None:
        """A run that is cancelled inside a tool call is saved with that call's result, and its lease is given back."""
        started = trio.Event()

        @tool
        async def hang() -> str:
            """Hang."""
            started.set()
            await trio.sleep_forever()

        state = State(id="bug-1", messages=[Message.user("go")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Agent(model=FakeModel([tool_call("hang")]), tools=[hang], store=store).run, state)
            await started.wait()
            nursery.cancel_scope.cancel()

        loaded = await store.load("bug-1")
        assert loaded.snapshot() == state.snapshot()
        assert not loaded.pending_calls
        assert await Agent(model=FakeModel(["it hung"]), tools=[hang], store=store).run(loaded) == "it hung"

    # ---- Versions and damage

    @law
    async def test_a_newer_format_is_refused_with_both_numbers(self, store: Store) -> None:
        """A history in a newer format is a CorruptStoreError with its number and the newest one that is read."""
        first, *rest = encoded(conversation())
        await store.append("bug-1", 0, [first.replace(b'"format":1', b'"format":7'), *rest], INFO)

        with pytest.raises(CorruptStoreError, match=rf"\b7\b.*\b{FORMAT}\b"):
            await store.load("bug-1")

    @law
    async def test_a_history_that_can_not_have_happened_is_corrupt(self, store: Store) -> None:
        """A history that can't be replayed is a CorruptStoreError with the State's id; it is left as it is."""
        entries = encoded(conversation())
        twice = [*entries[:2], entries[1].replace(b'"seq":1', b'"seq":2')]
        await store.append("bug-1", 0, twice, INFO)

        with pytest.raises(CorruptStoreError, match=r"bug-1.*entry 2"):
            await store.load("bug-1")

        assert list(await store.read("bug-1")) == twice

    @law
    async def test_a_state_whose_info_can_not_be_read_is_left_out_of_the_list(self, store: Store) -> None:
        """``list`` leaves out what it can't read, with a warning that names it, and lists the rest."""
        await store.save(conversation("good"))
        await store.append("odd", 0, raws(1), b'{"created_at":"2026-01-02T00:00:00Z"}')
        await store.append("newer", 0, raws(1), b'{"format":7,"id":"newer","created_at":"2026-01-02T00:00:00Z"}')

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            listed = await store.list()

        assert [info.id for info in listed] == ["good"]
        said = sorted(str(warning.message) for warning in caught)
        assert len(said) == 2
        assert "newer" in said[0]
        assert "odd" in said[1]

    @law
    async def test_what_is_damaged_is_an_error_and_not_an_empty_state(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        """What was damaged is a CorruptStoreError with the State's id: not missing, not shorter, not written over."""
        await put(store, conversation("bug-1"))
        await put(store, conversation("bug-2"))

        damage("bug-1")

        with pytest.raises(CorruptStoreError, match="bug-1"):
            await store.load("bug-1")
        with pytest.raises((CorruptStoreError, ConflictError), match="bug-1"):
            await store.append("bug-1", 0, raws(1), INFO)
        with pytest.raises(CorruptStoreError, match="bug-1"):
            await store.load("bug-1")
        assert await entries_of(store, "bug-2") == encoded(await store.load("bug-2"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert "bug-2" in [info.id for info in await store.list()]
