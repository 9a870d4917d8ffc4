"""What the model may do: functions made tools, their arguments read, their results turned into blocks."""

from ._answer import AnswerShape, answer_shape
from ._call import run_call
from ._results import Ending, failed
from ._tool import FunctionTool, tool, tools_of

__all__ = ["AnswerShape", "Ending", "FunctionTool", "answer_shape", "failed", "run_call", "tool", "tools_of"]
