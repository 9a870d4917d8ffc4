"""Settings that all tests share."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.leaks"]

# A job in the background of a shell ignores Ctrl+C, and so would the programs that tests send it to.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine is shared: how long an example takes says nothing, and CI draws the same examples each time.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=2_000)
settings.load_profile("default")
