"""A conversation with the real model, recorded once, and cases from production that go as they went."""

from pathlib import Path

import pytest
from alpineagents import FileStore
from alpineagents.testing import record_model, replay_run

from helpdesk import agent, help_desk

HERE = Path(__file__).parent
CASES = HERE / "cases"


async def test_the_model_gets_the_customer_their_money(shop, colleague):
    """Its replies come from the file; pytest --agents-record asks the provider, and writes it anew."""
    desk = help_desk(shop)
    model = record_model(desk.model, HERE / "recorded" / "lost_parcel.json")

    answer = await desk.copy(model=model, human=colleague).run("Parcel A-7 never came. I want my money back!")

    assert shop.payments == [("A-7", 1250)]
    assert "12.50" in answer


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.jsonl")))
async def test_a_case_goes_as_it_went(case):
    """Put there by: alpineagents store copy helpdesk.db tests/cases ID."""
    replay = await replay_run(await FileStore(CASES).load(case), agent)

    assert not replay.differs, str(replay)
