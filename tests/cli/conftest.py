"""What tests of the command line share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .program import APP, Here


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder, which is the current one, with an app in it."""
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def here(home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """The command line in this process, without keys and with a state directory of its own."""
    app = f"app_{home.parent.name}_{home.name}".replace("-", "_")
    (home / f"{app}.py").write_text(APP)
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith("ALPINEAGENTS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend("")
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield Here(home, app, capfd)
    sys.modules.pop(app, None)
