"""The tests that docs/design/wires.md names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "wires.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| .*`[\w/]+\.py", line)]
NAMED = sorted({name for row in ROWS for name in re.findall(r"`([\w/]+\.py(?:::\w+)?)`", row)})


def functions_in(path: Path) -> set[str]:
    """The functions and methods of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_the_page_names_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "models" / file

    assert path.is_file()
    assert not function or function in functions_in(path)


def test_every_rule_and_case_has_a_test() -> None:
    cases = [row.split("|")[1].strip() for row in ROWS]

    assert len(ROWS) > 80
    for case in ("B1", "B2", "B3", "B4", "B6", "B7 to B11", "B13", "B15", "B16", "B17", "B18", "B19", "B20", "B21"):
        assert case in cases
    for case in ("B23", "B25", "G2", "G4", "G5"):
        assert case in cases
