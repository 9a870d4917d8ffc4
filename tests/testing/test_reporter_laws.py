"""The laws of Reporters, for those that are here: one that does nothing, and one that keeps everything."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import Reporter
from alpineagents.testing import ReporterLaws


class Keeps(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_run_start(self, *given: Any) -> None:
        self.told.append(("run_start", given))

    def on_text(self, *given: Any) -> None:
        self.told.append(("text", given))

    def on_model_event(self, *given: Any) -> None:
        self.told.append(("event", given))

    def on_tool_end(self, *given: Any) -> None:
        self.told.append(("tool_end", given))

    def on_entry(self, *given: Any) -> None:
        self.told.append(("entry", given))

    def on_run_end(self, *given: Any) -> None:
        self.told.append(("run_end", given))


class TestNone(ReporterLaws):
    @pytest.fixture
    def reporter(self) -> Reporter:
        return Reporter()


class TestKeeps(ReporterLaws):
    @pytest.fixture
    def reporter(self) -> Reporter:
        return Keeps()
