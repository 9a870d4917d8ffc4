"""ModelLaws: the test class that any Model must pass, ours and yours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest
import trio
import trio.testing

from ..._contracts import Model
from ..._errors import ProviderError
from ...record._entries import ModelEvent
from ...record._messages import Price, Reply, Request, TextDelta, ThinkingDelta
from ._asking import CHOICES, CONVERSATIONS, OTHER_TOOL, SCHEMA, TOOL, asking, request_of
from ._kit import cancelled_after, law, leave_out, moments, system_tasks

Told: TypeAlias = TextDelta | ThinkingDelta | ModelEvent
Opens: TypeAlias = Model | AbstractAsyncContextManager[Model]
"""A Model, or an ``async with`` block that gives one."""


class ModelLaws:
    """What a Model must do, as tests: subclass it beside a fixture that makes yours.

    They are plain test functions, each of which runs trio itself: no pytest plugin is needed, and none minds. A law
    that fails says what a model must do.

    ``model`` is all that is needed: a Model that answers whatever it is asked, as often as it is asked; or, where it
    needs a server, an ``async with`` block that gives one. Three more make more laws run:

    * ``failing``: a Model, or a block, each of whose requests fails.
    * ``silent``: one whose answers never come.
    * ``secret``: a text that must not show anywhere, such as its key.

    A law that needs one that you leave out is skipped; say ``silent = None`` where there can't be one.

    Example::

        import pytest

        from alpineagents.testing import ModelLaws, ProviderServer


        class TestMyModel(ModelLaws):
            @pytest.fixture
            def model(self):
                return open_model()


        @asynccontextmanager
        async def open_model():
            async with ProviderServer(["Hello."] * 500) as server:
                yield MyModel(base_url=server.base_url)
    """

    def __init_subclass__(cls) -> None:
        """Leave out the laws that need what this model can't have."""
        leave_out(cls, ModelLaws, ("failing", "silent", "secret"))

    @pytest.fixture
    def failing(self) -> Opens:
        """A Model each of whose requests fails."""
        pytest.skip("needs the fixture `failing`: a Model each of whose requests fails")

    @pytest.fixture
    def silent(self) -> Opens:
        """A Model whose answers never come."""
        pytest.skip("needs the fixture `silent`: a Model whose answers never come")

    @pytest.fixture
    def secret(self) -> str:
        """A text that must not show."""
        pytest.skip("needs the fixture `secret`: a text that must not show, such as the key")

    # What it says of itself

    @law
    async def test_its_name_says_provider_and_model(self, model: Opens) -> None:
        """``name`` is text, ``provider/model``, and stays the same."""
        async with opened(model) as one:
            provider, slash, name = one.name.partition("/")
            assert provider.strip(), one.name
            assert slash, one.name
            assert name.strip(), one.name
            await one.respond(asking(), _deaf)

            assert one.name == f"{provider}/{name}"

    @law
    async def test_what_it_says_of_itself_is_of_the_right_kind(self, model: Opens) -> None:
        """``context_window`` and ``max_tokens`` are tokens, more than 0, or None; ``price`` is a Price or None."""
        async with opened(model) as one:
            for tokens in (one.context_window, one.max_tokens):
                assert tokens is None or (type(tokens) is int and tokens > 0)
            assert one.price is None or isinstance(one.price, Price)
            assert isinstance(one.structured_output, bool)

    # What it answers

    @law
    async def test_it_answers_with_a_reply(self, model: Opens) -> None:
        """``respond`` returns a Reply that says something, which model gave it, and that a request was sent."""
        async with opened(model) as one:
            reply = await one.respond(asking(), _deaf)

        assert isinstance(reply, Reply)
        assert reply.blocks or reply.refusal
        assert reply.model
        assert reply.usage.requests >= 1

    @law
    async def test_what_it_tells_is_what_it_answers(self, model: Opens) -> None:
        """The pieces of text that ``emit`` gets are the reply's text: those behind the last restart, none left out."""
        async with opened(model) as one:
            reply, told = await told_by(one, asking())

        assert all(isinstance(event, TextDelta | ThinkingDelta | ModelEvent) for event in told)
        assert _text_of(told) in ("", reply.text)

    @law
    async def test_it_tells_nothing_behind_its_answer(self, model: Opens) -> None:
        """Once ``respond`` has returned, ``emit`` isn't called any more."""
        async with opened(model) as one:
            _, told = await told_by(one, asking())
            count = len(told)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()

            assert len(told) == count

    @law
    async def test_what_emit_raises_comes_out(self, model: Opens) -> None:
        """An exception that ``emit`` raises comes out of ``respond`` as it is, and the request isn't sent again."""
        raised = KeyError("of the Reporter")
        calls: list[Told] = []
        came_out: list[KeyError] = []

        def refuse(event: Told) -> None:
            calls.append(event)
            raise raised

        async with opened(model) as one:
            try:
                await one.respond(asking(), refuse)
            except KeyError as error:
                came_out.append(error)

        assert len(calls) <= 1
        assert [error is raised for error in came_out] == [True] * len(calls)

    @pytest.mark.parametrize("name", CONVERSATIONS)
    @law
    async def test_it_takes_any_conversation(self, model: Opens, name: str) -> None:
        """Every well-formed conversation is answered, whoever had it before: parts of others' are left out."""
        async with opened(model) as one:
            reply = await one.respond(request_of(name, system="You find bugs."), _deaf)

        assert isinstance(reply, Reply)

    @pytest.mark.parametrize("choice", CHOICES)
    @law
    async def test_it_takes_tools_and_every_choice_of_one(self, model: Opens, choice: str) -> None:
        """A request may offer tools, and say that one, a certain one or none has to be called."""
        async with opened(model) as one:
            reply = await one.respond(asking(tools=(TOOL, OTHER_TOOL), tool_choice=choice), _deaf)

        assert all(isinstance(call.args, dict) or call.raw_args is not None for call in reply.tool_calls)

    @law
    async def test_it_takes_a_schema_for_its_answer(self, model: Opens) -> None:
        """A request may ask for an answer that fits a schema: what comes is text, not a call of some tool."""
        async with opened(model) as one:
            reply = await one.respond(asking(returns=SCHEMA), _deaf)

        assert not reply.tool_calls

    @law
    async def test_the_request_stays_as_it_is(self, model: Opens) -> None:
        """A request is only read: its messages are those of the State."""
        messages = list(CONVERSATIONS["calls"])
        request = Request(messages=messages, tools=(TOOL, OTHER_TOOL), system="You find bugs.")
        before = repr(request)
        async with opened(model) as one:
            await one.respond(request, _deaf)

        assert repr(request) == before
        assert messages == list(CONVERSATIONS["calls"])

    # How it answers

    @law
    async def test_answering_is_a_checkpoint(self, model: Opens) -> None:
        """``respond`` is a checkpoint: others get their turn, and it can be cancelled."""
        async with opened(model) as one:
            with trio.testing.assert_checkpoints():
                await one.respond(asking(), _deaf)

    @law
    async def test_a_cancelled_request_is_none(self, model: Opens) -> None:
        """In a scope that is cancelled already ``respond`` raises Cancelled."""
        async with opened(model) as one:
            with trio.CancelScope() as scope:
                scope.cancel()
                await one.respond(asking(), _deaf)

            assert scope.cancelled_caught

    @law
    async def test_a_request_cancelled_at_any_moment_leaves_it_usable(self, model: Opens) -> None:
        """A request may be cancelled wherever it is; the next one is answered."""
        async with opened(model) as one:
            for rounds in moments():
                if await cancelled_after(rounds, lambda: one.respond(asking(), _deaf)):
                    break
                assert isinstance(await one.respond(asking(), _deaf), Reply)

    @law
    async def test_it_answers_many_at_once(self, model: Opens) -> None:
        """Any number of requests may be under way at a time, each with its own ``emit``."""
        found: list[tuple[Reply, list[Told]]] = []

        async def ask(one: Model) -> None:
            found.append(await told_by(one, asking()))

        async with opened(model) as one, trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask, one)

        assert len(found) == 20
        assert all(_text_of(told) in ("", reply.text) for reply, told in found)

    @law
    async def test_it_starts_no_task_that_outlives_the_request(self, model: Opens) -> None:
        """No task of the model's goes on, hidden among trio's own, when it has answered."""
        async with opened(model) as one:
            await one.respond(asking(), _deaf)
            before = system_tasks()
            await one.respond(asking(), _deaf)

            assert system_tasks() == before

    @law
    async def test_a_session_may_be_around_requests_or_not(self, model: Opens) -> None:
        """``session()`` may be entered again and again, within itself and at the same time; or not at all."""
        async with opened(model) as one:
            await one.respond(asking(), _deaf)
            async with one.session(), one.session():
                await one.respond(asking(), _deaf)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(_in_session, one)
            async with one.session():
                reply = await one.respond(asking(), _deaf)

        assert isinstance(reply, Reply)

    @law
    def test_it_works_in_one_trio_run_after_another(self, model: Opens) -> None:
        """A model outlives a trio run: it works in the next one."""
        if not isinstance(model, Model):
            return  # the block that gives it belongs to one

        for _ in range(3):
            assert isinstance(trio.run(model.respond, asking(), _deaf), Reply)

    # How it fails

    @law
    async def test_a_failure_is_a_provider_error(self, failing: Opens) -> None:
        """Where the provider fails, or can't be reached, ``respond`` raises a ProviderError that says so."""
        async with opened(failing) as one:
            for _ in range(2):
                with pytest.raises(ProviderError) as caught:
                    await one.respond(asking(), _deaf)
                assert str(caught.value).strip()

    @law
    async def test_an_answer_that_never_comes_can_be_given_up(self, silent: Opens) -> None:
        """A request that waits is given up at once when it is cancelled."""
        async with opened(silent) as one:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.respond, asking(), _deaf)
                await trio.testing.wait_all_tasks_blocked(0.05)
                nursery.cancel_scope.cancel()
                with trio.move_on_after(2, shield=True) as patience:
                    while nursery.child_tasks:
                        await trio.lowlevel.checkpoint()

            assert not patience.cancelled_caught

    @law
    async def test_its_secret_does_not_show(self, model: Opens, secret: str) -> None:
        """Neither ``repr`` nor ``str`` of the model shows the secret, nor does what it answers or tells."""
        async with opened(model) as one:
            reply, told = await told_by(one, asking())

            assert secret not in f"{one!r} {one} {one.name} {reply!r} {told!r}"

    @law
    async def test_its_secret_does_not_show_in_failures(self, failing: Opens, secret: str) -> None:
        """No exception shows the secret, nor does its cause, or what it was told with."""
        told: list[Told] = []
        async with opened(failing) as one:
            with pytest.raises(ProviderError) as caught:
                await one.respond(asking(), told.append)

        error: BaseException | None = caught.value
        while error is not None:
            assert secret not in f"{error!r} {error} {vars(error)!r} {getattr(error, '__notes__', '')} {told!r}"
            error = error.__cause__ or error.__context__


@asynccontextmanager
async def opened(given: Opens) -> AsyncIterator[Model]:
    """Give the Model of a fixture."""
    if isinstance(given, Model):
        yield given
    else:
        async with given as model:
            yield model


async def told_by(model: Model, request: Request) -> tuple[Reply, list[Told]]:
    """Return the reply, and what was told while it came."""
    told: list[Told] = []
    reply = await model.respond(request, told.append)
    return reply, told


def _text_of(told: list[Told]) -> str:
    """The text that was told, but for what was thrown away."""
    pieces: list[str] = []
    for event in told:
        if isinstance(event, TextDelta):
            pieces.append(event.text)
        elif isinstance(event, ModelEvent) and event.data.get("restarted"):
            pieces.clear()
    return "".join(pieces)


def _deaf(event: Told) -> None:
    """Hear nothing."""


async def _in_session(model: Model) -> None:
    async with model.session():
        await model.respond(asking(), _deaf)
