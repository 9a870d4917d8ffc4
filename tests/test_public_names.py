"""What `import alpineagents` offers: a sorted list, complete, and each name says what it is."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
from pathlib import Path
from types import ModuleType

import pytest

import alpineagents

ROOT = Path(alpineagents.__file__).parent
PACKAGES = sorted(
    ".".join(("alpineagents", *path.parent.relative_to(ROOT).parts)) for path in ROOT.rglob("__init__.py")
)


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> ModuleType:
    module = importlib.import_module(request.param)
    if module is not alpineagents and not hasattr(module, "__all__"):
        pytest.skip("offers nothing")
    return module


def test_names_are_sorted_and_listed_once(package: ModuleType) -> None:
    assert list(package.__all__) == sorted(set(package.__all__))


def test_every_name_is_there_and_has_a_docstring(package: ModuleType) -> None:
    undocumented = [name for name in package.__all__ if not documentation(name, getattr(package, name))]

    assert not undocumented


def test_nothing_public_is_left_out_of_the_list(package: ModuleType) -> None:
    values = vars(package).items()
    unlisted = {name for name, value in values if not name.startswith("_") and not isinstance(value, ModuleType)}

    assert unlisted - {"annotations", "TYPE_CHECKING"} - set(package.__all__) == set()


def test_the_library_offers_something() -> None:
    assert {"Agent", "State", "tool"} <= set(alpineagents.__all__)


def documentation(name: str, value: object) -> str | None:
    """Return the docstring of a class or function; of a constant or an alias, the string below its assignment."""
    return value.__doc__ if inspect.isroutine(value) or isinstance(value, type) else below_assignment().get(name)


@functools.cache
def below_assignment() -> dict[str, str]:
    found = {}
    for path in ROOT.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, text in itertools.pairwise(body):
            match statement, text:
                case (
                    ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(docstring))),
                ):
                    found[name] = docstring
                case _:
                    pass
    return found
