"""Rules for the library's own code that no other tool checks. Each maps a module to what offends in it."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "alpineagents"

MOST_LINES = 450
MOST_FUNCTION_LINES = 60
MOST_PARAMETERS = 8
MAY_HAVE_MORE_PARAMETERS = {"Agent.__init__", "tool"}  # The two doors that users type at.
MAY_START_A_THREAD = "alpineagents.aio._thread"  # The one that runs trio for asyncio.
NOT_LOADED_BY_IMPORT = {"asyncio", "httpx", "mcp", "psycopg", "rich", "sqlite3"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One module of the library: its dotted name, its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool


Rule = Callable[[Module], Iterator[str]]


def module_of(name: str, text: str, is_package: bool = False) -> Module:
    return Module(name, text, ast.parse(text), is_package)


def library() -> list[Module]:
    modules = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules.append(module_of(name, path.read_text(encoding="utf-8"), is_package))
    return modules


LIBRARY = library()


# ---- What a module may be


def has_a_docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "no module docstring"


def is_short(module: Module) -> Iterator[str]:
    if (lines := len(module.text.splitlines())) >= MOST_LINES:
        yield f"{lines} lines, must be under {MOST_LINES}"


def has_no_to_do(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if found := re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{number}: {found[0]}"


def imports_asyncio_in_aio_only(module: Module) -> Iterator[str]:
    if not f"{module.name}.".startswith("alpineagents.aio."):
        for node, target in imported(module):
            if target.split(".")[0] == "asyncio":
                yield f"{node.lineno}: imports asyncio"


def neither_sleeps_nor_starts_threads(module: Module) -> Iterator[str]:
    forbidden = {"time.sleep"} if module.name == MAY_START_A_THREAD else {"time.sleep", "threading.Thread"}
    aliases = {
        alias.asname: alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{aliases.get(node.value.id, node.value.id)}.{node.attr}"
            if name in forbidden:
                yield f"{node.lineno}: {name}"
    for node, target in imported(module):
        if target in forbidden:
            yield f"{node.lineno}: imports {target}"


def swallows_nothing(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        match node:
            case ast.ExceptHandler(type=None):
                yield f"{node.lineno}: bare except"
            case ast.ExceptHandler(type=kind, body=body) if kind and catches_all(kind) and all(map(is_nothing, body)):
                yield f"{node.lineno}: {ast.unparse(kind)} is swallowed"
            case ast.Call(func=called, args=kinds) if ast.unparse(called).endswith("suppress"):
                if any(map(catches_all, kinds)):
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case _:
                pass


def catches_all(kind: ast.expr) -> bool:
    return not {"Exception", "BaseException"}.isdisjoint(
        name.id for name in ast.walk(kind) if isinstance(name, ast.Name)
    )


def is_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def has_short_functions(module: Module) -> Iterator[str]:
    for name, function in functions(module.tree):
        first, *rest = function.body
        start = rest[0].lineno if rest and ast.get_docstring(function, clean=False) else first.lineno
        assert function.end_lineno is not None
        lines = function.end_lineno - start + 1
        if lines > MOST_FUNCTION_LINES:
            yield f"{function.lineno}: {name} has {lines} lines, at most {MOST_FUNCTION_LINES}"


def has_narrow_functions(module: Module) -> Iterator[str]:
    for name, function in functions(module.tree):
        given = function.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        count = sum(parameter.arg not in {"self", "cls"} for parameter in named)
        if count > MOST_PARAMETERS and name not in MAY_HAVE_MORE_PARAMETERS and not is_overload(function):
            yield f"{function.lineno}: {name} has {count} parameters, at most {MOST_PARAMETERS}"


def documents_what_is_public(module: Module) -> Iterator[str]:
    for name, node in public(module.tree):
        if not ast.get_docstring(node) and not inherits_docstring(name):
            yield f"{node.lineno}: {name} has no docstring"


RULES: list[Rule] = [
    has_a_docstring,
    is_short,
    has_no_to_do,
    imports_asyncio_in_aio_only,
    neither_sleeps_nor_starts_threads,
    swallows_nothing,
    has_short_functions,
    has_narrow_functions,
    documents_what_is_public,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module(rule: Rule) -> None:
    offences = [f"{module.name}: {offence}" for module in LIBRARY for offence in rule(module)]

    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (has_a_docstring, "x = 1"),
        (is_short, "x = 1\n" * MOST_LINES),
        (has_no_to_do, "x = 1  # TODO: y"),
        (imports_asyncio_in_aio_only, "def f():\n    import asyncio.events"),
        (imports_asyncio_in_aio_only, "from asyncio import run"),
        (neither_sleeps_nor_starts_threads, "import time as t\nt.sleep(1)"),
        (neither_sleeps_nor_starts_threads, "from time import sleep"),
        (neither_sleeps_nor_starts_threads, "import threading\nthreading.Thread(target=f)"),
        (swallows_nothing, "try:\n    f()\nexcept:\n    raise"),
        (swallows_nothing, "try:\n    f()\nexcept (OSError, Exception):\n    pass"),
        (swallows_nothing, "try:\n    f()\nexcept BaseException as e:\n    ..."),
        (swallows_nothing, "with contextlib.suppress(Exception):\n    f()"),
        (has_short_functions, 'def f():\n    """Doc."""\n' + "    x = 1\n" * (MOST_FUNCTION_LINES + 1)),
        (has_narrow_functions, "def f(a, b, c, d, /, e, f, *g, h, **i): ..."),
        (has_narrow_functions, "class C:\n    def m(self, a, b, c, d, e, f, g, h, i): ..."),
        (documents_what_is_public, "def f(): ..."),
        (documents_what_is_public, "class C: ..."),
        (documents_what_is_public, 'class C:\n    """Doc."""\n    async def m(self): ...'),
    ],
)
def test_a_rule_reports_what_it_forbids(rule: Rule, text: str) -> None:
    assert list(rule(module_of("alpineagents.bad", text)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_allows_good_code(rule: Rule) -> None:
    text = '"""Doc."""\n\nimport time\n\n\ndef f():\n    """Doc."""\n    try:\n        return time.monotonic()\n'
    text += "    except Exception as error:\n        raise ValueError from error\n\n\ndef _g(): ...\n"

    assert not list(rule(module_of("alpineagents.good", text)))


# ---- How modules hang together


def test_no_module_takes_part_in_an_import_cycle() -> None:
    """Imports under TYPE_CHECKING and inside functions count: they couple as much as the others."""
    assert cycle(LIBRARY) == []


def test_a_cycle_is_found_however_the_import_is_hidden() -> None:
    one = module_of("alpineagents.one", "def f():\n    from alpineagents import two")
    two = module_of("alpineagents.two", "if TYPE_CHECKING:\n    from .three import x")
    three = module_of("alpineagents.three", "import alpineagents.one")

    assert set(cycle([one, two, three])) == {"alpineagents.one", "alpineagents.two", "alpineagents.three"}
    assert cycle([one, two]) == []


def test_import_loads_nothing_that_a_program_may_not_need() -> None:
    code = "import sys; before = set(sys.modules); import alpineagents; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "alpineagents" in done.stdout.split()
    assert not NOT_LOADED_BY_IMPORT.intersection(done.stdout.split())


# ---- What is in the repository


MACHINE = re.compile(
    r"(?<![\w.~$}])/(?:root|work|home|Users)/|\.\./shared\b"  # paths of one machine
    r"|\bpypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|index[-_]url"  # package registries
)


def test_no_file_names_a_machine_or_a_registry() -> None:
    files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(files, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]

    offences = [f"{path.relative_to(ROOT)}: {offence}" for path in paths for offence in machine_names(path)]

    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("before", "after"), [("see /root", "/x"), ("'/work", "/y'"), ("https://pypi", ".org/x"), ("--index", "-url x")]
)
def test_a_machine_or_a_registry_is_found(before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(before + after)

    assert list(machine_names(tmp_path / "file"))


def machine_names(path: Path) -> Iterator[str]:
    if path.is_file():
        text = path.read_bytes().decode(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if found := MACHINE.search(line):
                yield f"{number}: {found[0]}"


# ---- Reading syntax trees


def imported(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import statement's targets: modules, and for ``from m import n`` m.n, which may be a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - module.is_package
                parent = module.name.rsplit(".", up)[0] if up else module.name
                base = f"{parent}.{base}".rstrip(".")
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)


def cycle(modules: Iterable[Module]) -> list[str]:
    """Return the names of modules that import each other in a circle, or nothing."""
    graph: dict[str, set[str]] = {module.name: set() for module in modules}
    for module in modules:
        for _, target in imported(module):
            found = target if target in graph else target.rpartition(".")[0]
            if found in graph and found != module.name:
                graph[module.name].add(found)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield every function and method below *tree*, with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, Function):
            yield prefix + node.name, node
        if isinstance(node, Function | ast.ClassDef):
            inner = f"{prefix}{node.name}."
        yield from functions(node, inner)


def public(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield the public functions, classes and methods of *tree*, with their qualified names."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield prefix + node.name, node
                yield from public(node, f"{prefix}{node.name}.")
            elif not is_overload(node) and not is_setter(node):
                yield prefix + node.name, node


def is_overload(function: Function) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in function.decorator_list)


def is_setter(function: Function) -> bool:
    return any(isinstance(mark, ast.Attribute) and mark.attr == "setter" for mark in function.decorator_list)


CLASSES = {node.name: node for module in LIBRARY for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}


def inherits_docstring(name: str) -> bool:
    """Say whether method *name* ("Class.method") is documented in a base class of the library."""
    owner, _, method = name.rpartition(".")
    bases = [ast.unparse(base).partition("[")[0].split(".")[-1] for base in getattr(CLASSES.get(owner), "bases", [])]
    return any(
        inherits_docstring(f"{base}.{method}")
        or any(
            isinstance(node, Function) and node.name == method and ast.get_docstring(node)
            for node in CLASSES[base].body
        )
        for base in bases
        if base in CLASSES and base != owner
    )
