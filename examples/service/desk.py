"""The Agent that answers: the desk of a small shop. It looks orders up by itself; refunds a person has to allow."""

from __future__ import annotations

from alpineagents import (
    Agent,
    AllowByReadOnly,
    CallKey,
    DecideByHuman,
    Human,
    Model,
    Reporter,
    Store,
    ToolError,
    default_loop,
    tool,
)

ORDERS = {
    7: "a kettle, 30 EUR, delivered on Monday",
    8: "two cups, 12 EUR, on its way",
    9: "a lamp, 45 EUR, paid, not sent yet",
}


@tool(read_only=True)
def look_up_order(order: int) -> str:
    """Look up an order of the shop by its number."""
    return f"order {order}: {_order(order)}"


@tool
def refund(order: int, key: CallKey) -> str:
    """Give the customer the money of an order back."""
    return f"refunded order {order} ({_order(order)}), as transaction {key}"  # a payment provider would get the key


def _order(number: int) -> str:
    if number not in ORDERS:
        raise ToolError(f"there is no order {number}; there are {', '.join(map(str, ORDERS))}")
    return ORDERS[number]


def desk(model: Model | str, store: Store, human: Human, reporter: Reporter) -> Agent:
    """Return the Agent."""
    return Agent(
        model=model,
        system="You are the desk of a small shop. Look an order up before you speak of it. Be brief.",
        tools=[look_up_order, refund],
        permissions=[AllowByReadOnly(), DecideByHuman()],
        loop=default_loop.copy(limit=10),
        human=human,
        reporter=reporter,
        store=store,
        name="desk",
    )
