"""docs/design/seed.md and the tests say the same: each claim has its test, and each test its claim."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "design" / "seed.md"
EXAMPLES = HERE.parent / "test_seed_examples.py"
SECTIONS = sorted(HERE.glob("test_[0-9][0-9]_*.py"))

HEADING = re.compile(r"## (\d+)\. (.+)")
ROW = re.compile(r"\| (\d+)\.(\d+) \| (\S.*) \| `(test_\w+\.py)::(test_\w+)` \| (?:(record level) )?\|")


class Claim(NamedTuple):
    """A row of the table."""

    section: int
    number: int
    words: str
    test: tuple[str, str]


def lines() -> list[str]:
    return TABLE.read_text(encoding="utf-8").splitlines()


def titles() -> dict[int, str]:
    return {int(found[1]): found[2] for line in lines() if (found := HEADING.fullmatch(line))}


def claims() -> list[Claim]:
    found = [ROW.fullmatch(line) for line in lines()]
    return [Claim(int(row[1]), int(row[2]), row[3], (row[4], row[5])) for row in found if row]


@functools.cache
def found_in(path: Path) -> dict[tuple[str, str], str | None]:
    """The tests of a file, in its order, each with its docstring."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {(path.name, node.name): ast.get_docstring(node) for node in functions if node.name.startswith("test_")}


def seed_tests() -> dict[tuple[str, str], str | None]:
    return {test: text for path in SECTIONS for test, text in found_in(path).items()}


def test_every_row_of_the_table_is_a_claim():
    rows = [line for line in lines() if line.startswith("|") and not line.startswith(("| Claim |", "| --- |"))]

    assert [row for row in rows if not ROW.fullmatch(row)] == []
    assert len(rows) == len(claims()) > 100


def test_every_claim_names_a_test_that_exists():
    assert {claim.test for claim in claims()} - seed_tests().keys() - found_in(EXAMPLES).keys() == set()


def test_every_test_is_in_the_table_once():
    listed = Counter(claim.test for claim in claims())

    assert listed == Counter([*seed_tests(), *found_in(EXAMPLES)])


def test_claims_are_numbered_without_gaps_in_every_section():
    assert list(titles()) == list(range(len(SECTIONS)))
    numbers = [(claim.section, claim.number) for claim in claims()]
    counts = Counter(section for section, _ in numbers)
    assert numbers == [(section, number + 1) for section in titles() for number in range(counts[section])]


def test_every_test_says_which_claim_it_is():
    docstrings, expected = seed_tests(), titles()
    said = {claim: docstrings[claim.test] for claim in claims() if claim.test in docstrings}

    assert said == {c: f'Section {c.section} "{expected[c.section]}", claim {c.number}.' for c in said}


def test_the_tests_of_a_section_are_in_its_file_in_the_order_of_its_claims():
    tests = seed_tests()
    listed = [claim for claim in claims() if claim.test in tests]

    assert [claim.test for claim in listed] == list(tests)
    assert [claim for claim in listed if int(claim.test[0][5:7]) != claim.section] == []
