"""The laws of stores themselves: each fails for a store that breaks it, says so, and runs with any pytest plugin."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

import alpineagents.testing
from alpineagents.testing import StoreLaws
from alpineagents.testing._laws._kit import law

from .broken_stores import BROKEN

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("broken_stores.py")
LAWS = {name: inspect.getdoc(test) or "" for name, test in inspect.getmembers(StoreLaws) if name.startswith("test_")}
pytestmark = pytest.mark.slow

BUG = re.compile(r"^(E|\s*\|)\s+(TypeError|AttributeError|NameError)\b", re.MULTILINE)  # of the test, not of the store
BREAKS = [(broken.__name__, name) for broken, names in BROKEN.items() for name in names]


def pytest_run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[str]]:
    """How each store failed each law that it breaks; the honest one ran all of them."""
    report = tmp_path_factory.mktemp("laws") / "report.xml"
    nodes = [f"{FILE}::Test{store}::{name}" for store, name in BREAKS]
    done = pytest_run(f"--junit-xml={report}", f"{FILE}::TestHonestStore", *nodes)
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        store, name = case.attrib["classname"].rpartition(".Test")[2], case.attrib["name"].partition("[")[0]
        found[store, name].extend(failure.text or "" for failure in case if failure.tag in ("failure", "error"))
    return found


@pytest.mark.parametrize(("store", "name"), BREAKS, ids=lambda text: text.removeprefix("test_"))
def test_a_broken_store_fails_the_law_it_breaks_which_says_what_a_store_must_do(
    failures: dict[tuple[str, str], list[str]], store: str, name: str
) -> None:
    assert failures[store, name]
    for text in failures[store, name]:
        assert LAWS[name].splitlines()[0] in " ".join(text.split("The law:")[1].split("E   ")[0].split())
        assert not BUG.search(text), text


def test_a_store_that_breaks_none_passes_all(failures: dict[tuple[str, str], list[str]]) -> None:
    passed = {name for (store, name), texts in failures.items() if store == "HonestStore" and not texts}

    assert passed == set(LAWS)


def test_every_law_can_be_broken() -> None:
    assert {name for _, name in BREAKS} == set(LAWS)


def test_a_failing_law_shows_the_values(failures: dict[tuple[str, str], list[str]]) -> None:
    (text,) = failures["LosesTheLastEntry", "test_what_was_appended_is_read_in_its_order"]

    assert """assert [b'{"seq":0}',...] == [b'{"seq":0}',...]""" in " ".join(text.split()) or "Right contains" in text


@pytest.mark.parametrize(
    "options",
    [
        ["-p", "no:trio", "-p", "no:anyio"],
        ["-o", "trio_mode=true"],
        ["-o", "trio_mode=false", "-o", "anyio_mode=auto"],
    ],
    ids=["no plugin", "pytest-trio", "anyio"],
)
def test_the_laws_run_with_any_plugin_and_with_none(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_my_store.py").write_text(
        """
import pytest
from alpineagents import MemoryStore
from alpineagents.testing import StoreLaws

class TestMyStore(StoreLaws):
    damage = None

    @pytest.fixture
    def store(self):
        return MemoryStore()
"""
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error")
    if "-p" in options:
        options = [*options, "-c", str(tmp_path / "pytest.ini")]

    done = pytest_run(
        *options, "-rs", "--strict-markers", tmp_path / "test_my_store.py", "-k", "lease or order or damage"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, " in done.stdout
    assert "needs the fixture `other`: another store object" in done.stdout
    assert "damage" not in done.stdout


class TestAStoreAlone:
    """The fixtures of a class that has only ``store``."""

    other = StoreLaws.other
    expire = StoreLaws.expire
    damage = StoreLaws.damage

    @pytest.mark.parametrize("name", ["other", "expire", "damage"])
    def test_a_law_that_needs_more_is_skipped_and_says_what_it_needs(
        self, request: pytest.FixtureRequest, name: str
    ) -> None:
        with pytest.raises(pytest.skip.Exception, match=f"needs the fixture `{name}`: "):
            request.getfixturevalue(name)


def test_pytest_is_imported_when_the_laws_are_named() -> None:
    code = """
import sys
import alpineagents.testing
print("pytest" in sys.modules, "hypothesis" in sys.modules)
alpineagents.testing.StoreLaws
print("pytest" in sys.modules, "hypothesis" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False", "True", "False"]


def test_what_testing_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"alpineagents\.testing.* 'MoonLaws'"):
        alpineagents.testing.MoonLaws  # noqa: B018


def test_a_law_that_is_no_coroutine_function_says_what_it_is_too() -> None:
    @law
    def broken(number: int) -> None:
        """A number is even."""
        assert number % 2 == 0

    broken(2)
    with pytest.raises(AssertionError) as caught:
        broken(number=3)
    assert caught.value.__notes__ == ["The law: A number is even."]
