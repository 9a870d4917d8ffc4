"""Fakes and laws for tests of programs that use alpineagents."""

from ._fake_model import FakeModel, ScriptEndedError, tool_call
from ._provider_server import Fault, ProviderServer, ReceivedRequest

__all__ = ["FakeModel", "Fault", "ProviderServer", "ReceivedRequest", "ScriptEndedError", "tool_call"]
