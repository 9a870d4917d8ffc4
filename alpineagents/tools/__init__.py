"""What the model may do: functions made tools, their arguments read, their results turned into blocks."""

from ._call import run_call
from ._results import Ending, failed
from ._tool import FunctionTool, tool, tools_of

__all__ = ["Ending", "FunctionTool", "failed", "run_call", "tool", "tools_of"]
