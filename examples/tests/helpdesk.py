"""A help desk: an agent that looks up orders, and pays money back once a colleague agrees."""

from collections import Counter

import attrs
import trio
from alpineagents import Agent, AllowByReadOnly, DecideByHuman, Inbox, Reporter, State, ToolError, tool

SYSTEM = """\
You help the customers of a shop. Look an order up before you say anything about it. Pay money back
only for what got lost. Be brief."""


@attrs.define
class Order:
    """What somebody has bought."""

    cents: int
    status: str


class Shop:
    """The shop's orders and payments. A real one would ask a service; this one has them in memory."""

    def __init__(self, orders: dict[str, Order], *, seconds: float = 0.1) -> None:
        self.orders = orders
        self.seconds = seconds
        """How long each answer takes."""
        self.payments: list[tuple[str, int]] = []
        """Order and cents, of what was paid back."""

    @tool(read_only=True, timeout=30)
    async def find_order(self, order: str) -> str:
        """Look up what was bought, for how much, and where it is.

        Args:
            order: The number, such as "A-7".
        """
        found = await self._order(order)
        return f"{order}: {found.cents / 100:.2f} EUR, {found.status}"

    @tool(idempotent=True, timeout=30)
    async def refund(self, order: str) -> str:
        """Pay the money for an order back, once.

        Args:
            order: The number, such as "A-7".
        """
        found = await self._order(order)
        if order not in dict(self.payments):
            self.payments.append((order, found.cents))
        return f"{order}: {found.cents / 100:.2f} EUR are paid back"

    async def _order(self, order: str) -> Order:
        await trio.sleep(self.seconds)
        if order not in self.orders:
            raise ToolError(f"there is no order {order}")
        return self.orders[order]


class Tally(Reporter):
    """Counts how calls ended, for the page that shows how the desk is doing."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()

    def on_tool_end(self, state, call, result, outcome) -> None:
        self.ended[f"{call.name} {outcome}"] += 1


def help_desk(shop: Shop) -> Agent:
    """Return the agent. Its colleagues answer when they come by, so a run ends where it waits for one."""
    return Agent(
        name="help_desk",
        model="anthropic/claude-sonnet-5",
        system=SYSTEM,
        tools=[shop.find_order, shop.refund],
        permissions=[AllowByReadOnly(), DecideByHuman()],
        human=Inbox(wait=False),
    )


def letter(state: State) -> str:
    """Return what the customer gets by mail."""
    return f"{state.answer}\n\nIf you have questions, name number {state.id}."


agent = help_desk(Shop({}))
"""For `alpineagents replay STORE ID helpdesk:agent`, which calls no tool."""
