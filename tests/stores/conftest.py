"""Stores to test."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpineagents import FileStore, MemoryStore, Store


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each store: what is asked of it is asked of all."""
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "runs")


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    """A FileStore whose folder isn't there yet."""
    return FileStore(tmp_path / "runs")
