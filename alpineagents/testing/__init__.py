"""Fakes and laws for tests of programs that use alpineagents."""

from typing import TYPE_CHECKING

from ._cassette import UnrecordedRequestError, record_model
from ._fake_human import FakeHuman
from ._fake_model import FakeModel, ScriptEndedError, tool_call
from ._formats._format import ReceivedRequest
from ._harness import LiveConnectionError
from ._history import assert_history
from ._provider_server import Fault, ProviderServer
from ._replay_run import Replay, replay_run
from ._replaying._difference import Difference
from ._simulate import SimulationError, SimulationReport, simulate
from ._simulation._faults import FaultKind, InjectedFault
from ._simulation._world import Simulation

if TYPE_CHECKING:
    from ._laws._model import ModelLaws
    from ._laws._reporter import ReporterLaws
    from ._laws._tool import ToolLaws
    from ._laws._wire import WireLaws
    from ._store_laws import StoreLaws

__all__ = [
    "Difference",
    "FakeHuman",
    "FakeModel",
    "Fault",
    "FaultKind",
    "InjectedFault",
    "LiveConnectionError",
    "ModelLaws",
    "ProviderServer",
    "ReceivedRequest",
    "Replay",
    "ReporterLaws",
    "ScriptEndedError",
    "Simulation",
    "SimulationError",
    "SimulationReport",
    "StoreLaws",
    "ToolLaws",
    "UnrecordedRequestError",
    "WireLaws",
    "assert_history",
    "record_model",
    "replay_run",
    "simulate",
    "tool_call",
]


_LAWS = {
    "ModelLaws": "_laws._model",
    "ReporterLaws": "_laws._reporter",
    "StoreLaws": "_store_laws",
    "ToolLaws": "_laws._tool",
    "WireLaws": "_laws._wire",
}


def __getattr__(name: str) -> object:
    """Import pytest, and what needs it, when that is first named."""
    if name in _LAWS:
        import sys
        from importlib import import_module

        if f"{__name__}._laws" not in sys.modules:
            import pytest

            pytest.register_assert_rewrite(f"{__name__}._laws")  # so that a failing law shows its values
        return getattr(import_module(f".{_LAWS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
