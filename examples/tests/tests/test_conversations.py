"""What the desk does when the model does this or that. The model is a script, everything else is real."""

import trio
from alpineagents import Anthropic, Message, State, ToolResultEntry
from alpineagents.testing import FakeHuman, Fault, assert_history, tool_call

from helpdesk import Tally, help_desk, letter


def asked(text: str) -> State:
    return State(messages=[Message.user(text)])


async def test_an_order_is_looked_up_without_asking_anybody(desk, fake_model, colleague):
    fake_model.add(tool_call("find_order", order="B-2"), "It was delivered.")
    state = asked("Where is B-2?")

    answer = await desk.run(state)

    assert answer == "It was delivered."
    assert not colleague.questions
    assert_history(
        state,
        """
        context_change import of 1 messages
        run_start *
        [turn 1] model_request *
        [turn 1] model_reply find_order(order='B-2')
        [turn 1] tool_result find_order: *
        [turn 2] model_request *
        [turn 2] model_reply It was delivered.
        [turn 2] stop *
        stopped: until waiting_for_user
        """,
    )


async def test_money_is_paid_back_once_a_colleague_agrees(desk, shop, fake_model, colleague, agent_store):
    fake_model.add(tool_call("refund", order="A-7"), "The money is on its way.")
    state = asked("A-7 never came")
    tally = Tally()

    await desk.copy(reporter=tally).run(state)

    assert shop.payments == [("A-7", 1250)]
    assert colleague.questions[0].call.args == {"order": "A-7"}
    assert tally.ended == {"refund done": 1}
    assert (await agent_store.load(state.id)).answer == "The money is on its way."


async def test_what_a_colleague_refuses_is_not_paid(desk, shop, fake_model):
    fake_model.add(tool_call("refund", order="B-2"), "I am sorry.")
    state = asked("I don't like B-2")

    await desk.copy(human=FakeHuman(["no"])).run(state)

    assert shop.payments == []
    assert_history(state, [..., "tool_result refund (denied): *", ..., "model_reply I am sorry.", ...])


async def test_an_unknown_order_is_told_to_the_model(desk, fake_model):
    fake_model.add(tool_call("find_order", order="A-8"), "Is that the right number?")

    await desk.run("Where is A-8?")

    told = fake_model.requests[1].messages[-1].blocks[0]
    assert told.is_error
    assert told.content[0].text == "there is no order A-8"


async def test_a_shop_that_hangs_is_given_up(desk, shop, fake_model, agent_clock):
    """Half a minute passes at once: agent_clock jumps to where something happens."""
    shop.seconds = 3600
    fake_model.add(tool_call("find_order", order="A-7"), "Please ask again later.")
    state = asked("Where is A-7?")

    await desk.run(state)

    assert trio.current_time() >= 30
    assert_history(state, [..., ToolResultEntry, ..., "model_reply Please ask again later.", ...])


async def test_an_overloaded_provider_is_asked_again(shop, provider_server, agent_clock):
    """The real client, over real HTTP, against a server that fails like the provider's."""
    async with provider_server as server:
        server.add(Fault(status=529), Fault(cut_after=300), "How can I help?")
        model = Anthropic("claude-sonnet-5", base_url=server.origin, api_key="none")

        assert await help_desk(shop).copy(model=model).run("Hello") == "How can I help?"


async def test_a_letter_has_the_number_to_ask_with(desk, fake_model, frozen_ids):
    fake_model.add("It was delivered.")
    state = asked("Where is B-2?")

    await desk.run(state)

    assert letter(state).endswith("name number 01q3dcbd000000000000000001.")


async def test_the_whole_conversation_is_as_it_was(desk, fake_model, history_snapshot):
    """Compared with a file in __snapshots__; pytest --snapshot-update writes it anew."""
    fake_model.add(tool_call("refund", order="A-7"), "The money is on its way.")
    state = asked("A-7 never came")

    await desk.run(state)

    assert state == history_snapshot
