"""What the tests of Anthropic share."""

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_anthropics_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment decides nothing here unless a test says so."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
