"""What the tests share: a shop, and the desk with everything around it replaced."""

import pytest
from alpineagents import Agent
from alpineagents.testing import FakeHuman

from helpdesk import Order, Shop, help_desk


@pytest.fixture
def shop() -> Shop:
    orders = {"A-7": Order(1250, "lost in the post"), "B-2": Order(900, "delivered")}
    return Shop(orders, seconds=0)


@pytest.fixture
def colleague() -> FakeHuman:
    """Agrees to everything."""
    return FakeHuman(lambda question: "yes")


@pytest.fixture
def desk(shop, fake_model, agent_store, colleague) -> Agent:
    return help_desk(shop).copy(model=fake_model, store=agent_store, human=colleague)
