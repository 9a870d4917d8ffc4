"""Every Python block of README.md and docs/ runs, a page from top to bottom in one process."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import trio

from alpineagents.testing import ProviderServer, tool_call

from .stores.postgres import cluster

__all__ = ["cluster"]  # the fixture

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> str:
    """The page's blocks, each where it stands, so that a traceback names the page's lines."""
    text = page.read_text(encoding="utf-8")
    lines = ["" for _ in text.splitlines()]
    for block in BLOCK.finditer(text):
        start = text[: block.start(1)].count("\n")
        code = block.group(1).splitlines()
        lines[start : start + len(code)] = code
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))], ids=lambda p: p.name
)
async def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    code = code_of(page)
    database = ""
    if "DATABASE_URL" in code:
        server = request.getfixturevalue("cluster")
        server.sql("CREATE DATABASE docs")
        database = server.dsn(dbname="docs")
    script = tmp_path / f"page_{page.stem}.py"  # no module's name: asyncio.md imports asyncio
    script.write_text(code, encoding="utf-8")
    shutil.copy(ROOT / "README.md", tmp_path)
    pytest_page = "def test_" in code
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "trio_mode=true",
        script,
    ]
    answers = [tool_call("count_words", path="README.md"), "It has some."]
    async with ProviderServer(answers) as server:
        done = await trio.run_process(
            command if pytest_page else [sys.executable, "-W", "error", script],
            cwd=tmp_path,
            env={
                "PATH": "/usr/bin:/bin",
                "OPENAI_BASE_URL": server.base_url,
                "OPENAI_API_KEY": "none",
                "DATABASE_URL": database,
            },
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )

    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    if not pytest_page:
        expected = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
        printed = done.stdout.decode()
        missing = set(expected) - set(printed.splitlines())
        assert not missing, f"not printed: {missing}\n{printed}"
