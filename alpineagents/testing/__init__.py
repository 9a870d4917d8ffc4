"""Fakes and laws for tests of programs that use alpineagents."""

from typing import TYPE_CHECKING

from ._fake_human import FakeHuman
from ._fake_model import FakeModel, ScriptEndedError, tool_call
from ._formats._format import ReceivedRequest
from ._provider_server import Fault, ProviderServer

if TYPE_CHECKING:
    from ._store_laws import StoreLaws

__all__ = [
    "FakeHuman",
    "FakeModel",
    "Fault",
    "ProviderServer",
    "ReceivedRequest",
    "ScriptEndedError",
    "StoreLaws",
    "tool_call",
]


def __getattr__(name: str) -> object:
    """Import pytest, and what needs it, when that is first named."""
    if name == "StoreLaws":
        import sys

        if f"{__name__}._laws" not in sys.modules:
            import pytest

            pytest.register_assert_rewrite(f"{__name__}._laws")  # so that a failing law shows its values
        from ._store_laws import StoreLaws

        return StoreLaws
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
