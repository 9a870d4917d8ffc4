"""The laws of models, wires, tools and Reporters themselves: each fails for one that breaks it, and says so."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from alpineagents.testing import ModelLaws, ReporterLaws, ToolLaws, WireLaws

from . import broken_models, broken_reporters, broken_tools, broken_wires

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

KINDS: dict[str, tuple[ModuleType, type]] = {
    "Model": (broken_models, ModelLaws),
    "Wire": (broken_wires, WireLaws),
    "Tool": (broken_tools, ToolLaws),
    "Reporter": (broken_reporters, ReporterLaws),
}
LAWS = {
    kind: {name: inspect.getdoc(test) or "" for name, test in inspect.getmembers(laws) if name.startswith("test_")}
    for kind, (_, laws) in KINDS.items()
}
BREAKS = [
    (kind, broken.__name__, name)
    for kind, (module, _) in KINDS.items()
    for broken, names in module.BROKEN.items()
    for name in names
]
Failures = dict[tuple[str, str], list[str]]


def failures_of(kind: str, folder: Path) -> Failures:
    """How each of a kind failed each law that it breaks; the honest one ran all of them."""
    file = KINDS[kind][0].__file__
    nodes = [f"{file}::Test{broken}::{name}" for each, broken, name in BREAKS if each == kind]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={folder / 'report.xml'}"]
    done = subprocess.run(
        [*command, f"{file}::TestHonest{kind}", *nodes], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: Failures = defaultdict(list)
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        broken, name = case.attrib["classname"].rpartition(".Test")[2], case.attrib["name"].partition("[")[0]
        found[broken, name].extend(failure.text or "" for failure in case if failure.tag in ("failure", "error"))
    return found


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Failures]:
    return {kind: failures_of(kind, tmp_path_factory.mktemp("laws")) for kind in KINDS}


@pytest.mark.parametrize(("kind", "broken", "name"), BREAKS, ids=lambda text: text.removeprefix("test_"))
def test_who_breaks_a_law_fails_it_and_is_told_what_it_says(
    failures: dict[str, Failures], kind: str, broken: str, name: str
) -> None:
    texts = failures[kind][broken, name]
    assert texts
    for text in texts:
        said = " ".join(re.sub(r"^\s*(?:E  |\|)?\s*", "", line) for line in text.split("The law:")[1].splitlines())
        assert LAWS[kind][name].splitlines()[0] in " ".join(said.split())


@pytest.mark.parametrize("kind", KINDS)
def test_who_breaks_none_passes_all(failures: dict[str, Failures], kind: str) -> None:
    passed = {name for (who, name), texts in failures[kind].items() if who == f"Honest{kind}" and not texts}

    assert passed == set(LAWS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_every_law_can_be_broken(kind: str) -> None:
    assert {name for each, _, name in BREAKS if each == kind} == set(LAWS[kind])


class TestAlone:
    """The fixtures of classes that have only what is needed."""

    failing = ModelLaws.failing
    silent = ModelLaws.silent
    secret = ModelLaws.secret
    wrong = ToolLaws.wrong

    @pytest.mark.parametrize("name", ["failing", "silent", "secret", "wrong"])
    def test_a_law_that_needs_more_is_skipped_and_says_what_it_needs(
        self, request: pytest.FixtureRequest, name: str
    ) -> None:
        with pytest.raises(pytest.skip.Exception, match=f"needs the fixture `{name}`: "):
            request.getfixturevalue(name)
