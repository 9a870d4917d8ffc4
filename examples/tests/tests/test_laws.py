"""What any tool and any Reporter must do, of ours."""

import pytest
from alpineagents.testing import ReporterLaws, ToolLaws

from helpdesk import Tally


class TestFindOrder(ToolLaws):
    @pytest.fixture
    def tool(self, shop):
        return shop.find_order

    @pytest.fixture
    def calls(self):
        return [{"order": "A-7"}, {"order": "no such order"}]

    @pytest.fixture
    def wrong(self):
        return [{}, {"order": ["A-7", "B-2"]}, {"order": "A-7", "customer": "Ada"}]


class TestRefund(TestFindOrder):
    @pytest.fixture
    def tool(self, shop):
        return shop.refund


class TestTally(ReporterLaws):
    @pytest.fixture
    def reporter(self):
        return Tally()
