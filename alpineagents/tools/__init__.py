"""What the model may do: functions made tools, their arguments read, their results turned into blocks."""

from typing import TYPE_CHECKING

from ._call import read_args, run_call
from ._call_tasks import call_tasks
from ._results import Ending, failed
from ._tool import FunctionTool, tool, tools_of

if TYPE_CHECKING:
    from ._by_human import DecideByHuman
    from ._permissions import (
        AllowByDefault,
        AllowByName,
        AllowByReadOnly,
        Allowed,
        AllowPermission,
        DecidePermission,
        Denied,
        DenyByName,
        DenyPermission,
        Permission,
        Verdict,
    )

__all__ = [
    "AllowByDefault",
    "AllowByName",
    "AllowByReadOnly",
    "AllowPermission",
    "Allowed",
    "DecideByHuman",
    "DecidePermission",
    "Denied",
    "DenyByName",
    "DenyPermission",
    "Ending",
    "FunctionTool",
    "Permission",
    "Verdict",
    "call_tasks",
    "failed",
    "read_args",
    "run_call",
    "tool",
    "tools_of",
]


def __getattr__(name: str) -> object:
    """Import permissions when one is first named: a program that doesn't use them needn't wait for them."""
    if name == "DecideByHuman":
        from ._by_human import DecideByHuman

        return DecideByHuman
    if name in __all__:
        from . import _permissions

        return getattr(_permissions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
