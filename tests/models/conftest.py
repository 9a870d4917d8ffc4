"""What the tests of a model's transport share."""

import contextlib
import os
from collections.abc import Callable

import pytest

pytest.register_assert_rewrite("tests.models.corpus")


def _sockets() -> int:
    """Open sockets of this process."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # The listing's own is closed by now.
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@pytest.fixture
def sockets() -> Callable[[], int]:
    """Return a function that counts the open sockets of this process."""
    return _sockets


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment decides nothing here unless a test says so: no key, no base URL, no proxy."""
    keys = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY")
    urls = ("ANTHROPIC_BASE_URL", "GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "OPENAI_BASE_URL")
    for name in (*keys, *urls, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
