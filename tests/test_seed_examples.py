"""The code examples of the State page, as they are printed there, in a plain script without an event loop."""

from __future__ import annotations

import subprocess
import sys

HISTORY_EXAMPLE = """\
from alpineagents import Message, State

state = State(messages=[Message.user("Find the bug in main.py")])
for entry in state.history:  # after a run, it also has replies and tool results
    if entry.kind == "model_reply":
        print(entry.content.tool_calls)
    elif entry.kind == "tool_result":
        print(entry.call.name, entry.outcome)
"""

EXTRA_DATA_EXAMPLE = """\
from alpineagents import State

state = State()
with state.edit_extra_data() as data:
    data.setdefault("notes", {})["bug"] = "b.py"
print(state.extra_data)
"""

CREATE_EXAMPLE = """\
from alpineagents import Message, State

state = State(
    id="bug-1",
    messages=[Message.user("Find the bug in main.py")],
    extra_data={"repo": "api"},
)
"""


def script(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_history_example_runs_as_printed():
    assert script(HISTORY_EXAMPLE) == ""


def test_the_history_example_prints_calls_and_results_after_a_run():
    """The loop of the example, on a State that a run went through."""
    loop = HISTORY_EXAMPLE[HISTORY_EXAMPLE.index("for entry") :]
    printed = script(
        "from alpineagents import Agent, Message, State, tool\n"
        "from alpineagents.testing import FakeModel\n"
        "from alpineagents import ToolCall\n"
        "@tool\n"
        "def read(path: str) -> str:\n"
        "    return 'x'\n"
        "state = State(messages=[Message.user('Find the bug in main.py')])\n"
        "Agent(model=FakeModel([ToolCall('c1', 'read', {'path': 'main.py'}), 'done']), tools=[read]).run_sync(state)\n"
        + loop
    )

    assert printed == (
        "(ToolCall(id='c1', name='read', args={'path': 'main.py'}, raw_args=None),)\n"  # the reply with the call
        "read done\n"
        "()\n"  # the last reply
    )


def test_the_extra_data_example_runs_as_printed():
    assert script(EXTRA_DATA_EXAMPLE) == "{'notes': {'bug': 'b.py'}}\n"


def test_the_create_example_runs_as_printed():
    assert script(CREATE_EXAMPLE + "print(state.id, state.messages[0].text, state.extra_data)") == (
        "bug-1 Find the bug in main.py {'repo': 'api'}\n"
    )
