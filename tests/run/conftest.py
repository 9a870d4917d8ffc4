"""Stores to run with."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpineagents import FileStore, MemoryStore, Store


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "states")
