"""Whatever fails: a customer gets their money, and gets it once.

Each seed is a run in which other things fail: models, stores, payments, processes; and colleagues sleep.
"""

from alpineagents import Request, ToolResultBlock
from alpineagents.testing import FakeHuman, Simulation, simulate, tool_call

from helpdesk import Order, Shop, help_desk


def patient_model(request: Request):
    """Pay, and try again what went wrong. It goes by what it is shown, since it is asked again after a crash."""
    blocks = [block for message in request.messages for block in message.blocks]
    if any(isinstance(block, ToolResultBlock) and not block.is_error for block in blocks):
        return "Your money is on its way."
    return tool_call("refund", order="A-7")


async def a_refund(sim: Simulation) -> None:
    shop = Shop({"A-7": Order(1250, "lost in the post")})
    colleague = FakeHuman(lambda question: sim.random.choice(["yes", "yes", "no"]))
    desk = sim.agent(help_desk(shop).copy(human=colleague), patient_model)

    await sim.run(desk, "A-7 never came")

    assert shop.payments == [("A-7", 1250)]


def test_a_customer_gets_their_money_once_whatever_fails():
    simulate(a_refund, seeds=range(100))
