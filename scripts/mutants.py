"""Is there a line in the core that no test minds being wrong? ``make mutants`` changes them one by one, and asks.

mutmut does the work; ``[tool.mutmut]`` in pyproject.toml says what is mutated and which tests look at it. On top of
it this script mutates what mutmut leaves alone: a bare condition is negated, a call without a use is left out, a
return gives None, and the code of properties and other decorated functions is mutated too. Texts with a space in
them are messages for people, and stay.

A mutant that no test can tell from the original is listed in docs/design/mutants.md, by its function and the line
that is changed. The exit code is 0 when a test noticed every mutant that isn't listed.

``python scripts/mutants.py`` tests all of them afresh, in build/mutants; ``--again`` only those that survived.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import libcst as cst
import libcst.matchers as m
import pytest
from hypothesis import HealthCheck, Phase, settings
from mutmut import __main__ as mutmut
from mutmut.mutation import file_mutation, mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key
from mutmut.workers import isolation

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "mutants"
LISTED = ROOT / "docs" / "design" / "mutants.md"
WORKERS = 2

BODY = "__body"
"""What a decorated function's code is called, beside the function itself."""

PATIENCE = 15.0
"""Seconds that any test may take, on top of ten times what it takes on the code as it is."""

TIMEOUT = 36
SURVIVED, TIMED_OUT, NOT_TESTED = {0, 5, 33}, {-9, -24, TIMEOUT}, {None, 4, 255}
"""Exit codes of mutmut's workers; 5 and 33 mean that no test runs the code at all, 4 and 255 that pytest didn't run."""

Row = tuple[str, str, str]
"""A mutant as docs/design/mutants.md names it: file and function, the line, and what becomes of it."""


class Mutant(NamedTuple):
    """A mutant and what became of it."""

    key: str
    path: Path
    exit_code: int | None
    row: Row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--again", action="store_true", help="test only the mutants that survived, with today's tests")
    again = parser.parse_args().again
    start = time.monotonic()
    os.chdir(_laid_out(afresh=not again))
    _extend_mutmut()
    listed = set(_listed(LISTED.read_text(encoding="utf-8")))
    names = [mutant.key for mutant in _mutants() if mutant.exit_code in SURVIVED | NOT_TESTED] if again else []
    if not again or names:
        mutmut._run(names, WORKERS)
    return _report(list(_mutants()), listed, time.monotonic() - start)


# What is mutated, and where


def _laid_out(*, afresh: bool) -> Path:
    """Copy the library, with decorated methods taken apart, and its tests to where mutmut works."""
    if afresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    for tests in (FOLDER / "tests", FOLDER / "mutants" / "tests"):
        shutil.rmtree(tests, ignore_errors=True)  # those that are gone, too
    shutil.copytree(ROOT / "tests", FOLDER / "tests")
    shutil.copy2(ROOT / "pyproject.toml", FOLDER)
    for path in sorted((ROOT / "alpineagents").rglob("*")):
        if path.is_dir() or path.suffix == ".pyc":
            continue
        new = FOLDER / path.relative_to(ROOT)
        new.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        if path.suffix == ".py":
            content = cst.parse_module(content).visit(_TakeApart()).bytes
        if not new.exists() or new.read_bytes() != content:  # what is as it was keeps its results
            new.write_bytes(content)
            (FOLDER / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)  # nobody knows who tests a new function
    return FOLDER


class _TakeApart(cst.CSTTransformer):
    """Makes of a decorated method one that calls its body, a method of its own, which mutmut takes; and of a cast
    what it casts.
    """

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not m.matches(updated_node, m.Call(m.Name("cast"))):
            return updated_node
        return updated_node.args[1].value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        if not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        statements = [part for statement in updated_node.body.body for part in _taken_apart(statement)]
        return updated_node.with_changes(body=updated_node.body.with_changes(body=statements))


def _taken_apart(method: cst.BaseStatement) -> list[cst.BaseStatement]:
    if not isinstance(method, cst.FunctionDef) or not method.decorators or method.asynchronous:
        return [method]
    marks = {mark.decorator.value for mark in method.decorators if isinstance(mark.decorator, cst.Name)}
    if marks & {"overload", "staticmethod", "classmethod"} or method.params.kwonly_params:
        return [method]
    first, *others = [parameter.name.value for parameter in method.params.params]
    call = f"{first}.{method.name.value}{BODY}({', '.join(others)})"
    is_generator = bool(m.findall(method.body, m.Yield()))
    shell = cst.parse_statement(f"return (yield from {call})" if is_generator else f"return {call}")
    name = cst.Name(method.name.value + BODY)
    return [
        method.with_changes(body=cst.IndentedBlock([shell])),
        method.with_changes(name=name, decorators=[], leading_lines=[cst.EmptyLine()]),
    ]


# What mutmut does, and what it does besides here


def _extend_mutmut() -> None:
    replaced = {mutators.operator_string, mutators.operator_assignment}
    operators = [pair for pair in mutators.mutation_operators if pair[1] not in replaced]
    operators += [
        (cst.Assign, _assign),
        (cst.AnnAssign, _assign),
        (cst.SimpleString, _change_word),
        (cst.CSTNode, _negate),
        (cst.SimpleStatementLine, _leave_out_call),
        (cst.Return, _return_nothing),
    ]
    file_mutation.mutation_operators = operators  # type: ignore[attr-defined]  # where it is read
    isolation.PytestRunner = _Runner  # type: ignore[attr-defined]  # as above
    settings.register_profile(
        "mutants",
        deadline=None,
        derandomize=True,
        max_examples=20,
        stateful_step_count=20,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


class _Runner(PytestRunner):
    """Chooses tests after collecting them all: names on a command line are slower, and not all are the same twice."""

    def __init__(self) -> None:
        super().__init__()
        self._tests: Iterable[str] = ()

    def _pytest_args_regular_run(self, tests: Iterable[str]) -> list[str]:
        self._tests = tests
        return ["-x", "-q", *self._pytest_add_cli_args_test_selection]

    def execute_pytest(self, params: list[str], **kwargs: Any) -> int:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores Ctrl+C; the tests want it
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        plugins = [*kwargs.pop("plugins", ()), _Chosen(self._tests), _Failures()]
        return super().execute_pytest(params, plugins=plugins, **kwargs)


class _Chosen:
    """Runs these tests (none = all), the quick ones first, and ends the process when one takes far too long."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._chosen = {_name(test) for test in tests}
        self._seconds = {_name(test): seconds for test, seconds in state().duration_by_test.items()}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if not self._chosen or _name(item.nodeid) in self._chosen]
        items[:] = sorted(chosen, key=lambda item: self._seconds.get(_name(item.nodeid), 0.0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        seconds = self._seconds.get(_name(item.nodeid), math.inf)
        timer = threading.Timer(min(PATIENCE + 10 * seconds, threading.TIMEOUT_MAX), os._exit, [TIMEOUT])
        timer.daemon = True
        timer.start()
        try:
            return (yield)
        finally:
            timer.cancel()


class _Failures:
    """Prints what fails on the code as it is: mutmut says no more than that something does."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and "__mutmut_" not in os.environ.get("MUTANT_UNDER_TEST", "") and sys.__stdout__ is not None:
            print(f"\n{report.nodeid}\n{report.longreprtext}", file=sys.__stdout__)


def _name(test: str) -> str:
    """Return a test's name without addresses of objects, which are others in each process."""
    return re.sub("0x[0-9a-f]+", "", test)


def _change_word(node: cst.SimpleString) -> Iterator[cst.SimpleString]:
    """Change a text that isn't for people."""
    text = node.evaluated_value
    if isinstance(text, str) and " " not in text and not node.value.endswith('"""'):
        yield node.with_changes(value=repr(f"XX{text}XX"))


def _negate(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Negate a condition that has no operator of its own."""
    if isinstance(node, cst.If | cst.While | cst.CompIf) and isinstance(
        node.test, cst.Name | cst.Attribute | cst.Call | cst.NamedExpr
    ):
        test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def _leave_out_call(node: cst.SimpleStatementLine) -> Iterator[cst.SimpleStatementLine]:
    """Leave out a call, or an await of one, whose value nobody uses."""
    if m.matches(node, m.SimpleStatementLine([m.Expr(m.Call() | m.Await())])):
        yield node.with_changes(body=[cst.Pass()])


def _assign(node: cst.Assign | cst.AnnAssign) -> Iterator[cst.CSTNode]:
    """Assign None, where that isn't merely another way to say False."""
    if node.value is not None and not m.matches(node.value, m.Name("False")):
        yield from mutators.operator_assignment(node)


def _return_nothing(node: cst.Return) -> Iterator[cst.Return]:
    if node.value is not None and not m.matches(node.value, m.Name("None") | m.Name("False")):
        yield node.with_changes(value=cst.Name("None"))


# What became of them


def _mutants() -> Iterator[Mutant]:
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        for key, exit_code in data.exit_code_by_key.items():
            survived = exit_code in SURVIVED
            yield Mutant(key, path, exit_code, _row(key, path) if survived else ("", "", ""))


def _row(key: str, path: Path) -> Row:
    function, owner = orig_function_and_class_names_from_key(key)
    function = function.removesuffix(BODY)
    lines = get_diff_for_mutant(key, path=path).splitlines()[2:]
    old, new = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return f"{path.relative_to('alpineagents')} {owner + '.' if owner else ''}{function}", old, new


def _listed(text: str) -> Iterator[Row]:
    """Read the blocks of docs/design/mutants.md, which are written as _show shows a mutant."""
    for block in re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        function = old = ""
        for line in block.splitlines():
            if line.startswith("-"):
                old = line[1:].strip()
            elif line.startswith("+"):
                yield function, old, line[1:].strip()
            elif line:
                function = line


def _show(title: str, rows: Iterable[Row]) -> None:
    for function, old, new in rows:
        print(f"\n{title}:\n{function}\n- {old}\n+ {new}")


def _report(mutants: Iterable[Mutant], listed: set[Row], seconds: float) -> int:
    counts: dict[Path, Counter[str]] = {}
    open_: list[Row] = []
    gone = set(listed)
    for mutant in mutants:
        if mutant.exit_code in SURVIVED:
            kind = "equivalent" if mutant.row in listed else "survived"
        else:
            kind = "timeouts" if mutant.exit_code in TIMED_OUT else "killed"
        if mutant.exit_code in NOT_TESTED:
            kind = "not tested"
        counts.setdefault(mutant.path, Counter())[kind] += 1
        if kind == "survived":
            open_.append(mutant.row)
        if kind == "equivalent":
            gone.discard(mutant.row)
    kinds = ("killed", "timeouts", "equivalent", "survived", "not tested")
    print("\n" + " ".join([f"{'':36}", "mutants", *(f"{kind:>10}" for kind in kinds)]))
    for path, count in [*counts.items(), (Path("all"), sum(counts.values(), Counter()))]:
        print(f"{path!s:36} {sum(count.values()):7} " + " ".join(f"{count[kind]:10}" for kind in kinds))
    print(f"in {seconds / 60:.0f} minutes")
    _show("survived", open_)
    _show("listed, but noticed or not there", sorted(gone))
    untested = sum(count["not tested"] for count in counts.values())
    return 1 if open_ or untested else 0


if __name__ == "__main__":
    sys.exit(main())
