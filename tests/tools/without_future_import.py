"""Tools whose hints are types. with_future_import.py has the same ones."""

# ruff: noqa: UP045

import dataclasses
from typing import Annotated, Literal, Optional

from alpineagents import State, ToolCall, tool


@dataclasses.dataclass
class Place:
    city: str
    zip: str | None = None


@tool
def module_tool(
    place: Place,
    state: State,
    call: ToolCall,
    n: Optional[int] = None,
    m: Literal["a", "b"] = "a",
) -> str:
    """Do it."""
    return f"{place} {state.id} {call.id} {n} {m}"


def local_tool():
    @dataclasses.dataclass
    class Part:
        name: str

    @dataclasses.dataclass
    class Whole:
        parts: list[Part]
        inner: Annotated["Optional[Whole]", "one more"] = None

    @tool
    def build(whole: Whole, first: Part) -> str:
        """Build."""
        return f"{whole} {first}"

    return build


def local_method_tool():
    @dataclasses.dataclass
    class Part:
        name: str

    class Box:
        @dataclasses.dataclass
        class Lid:
            part: Part

        @tool
        def close(self, lid: Lid, part: Part) -> str:
            """Close."""
            return f"{lid} {part}"

    return Box().close
