"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.leaks"]

# The machine is shared: how long an example takes says nothing, and CI draws the same examples each time.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=2_000)
settings.load_profile("default")
