"""The library's loggers. A program that sets nothing up sees nothing of them.

What is logged names States, Agents, models, tools, counts, seconds and classes of errors. Never the text of an error,
which may quote contents or a key, and never what was said, called or answered, a prompt, a path or an address.
"""

from __future__ import annotations

import logging
from typing import Final

RUN: Final = logging.getLogger("alpineagents.run")
"""A line for each run, when it has ended."""
MODELS: Final = logging.getLogger("alpineagents.models")
"""A line for each request that is sent again, waits for its turn, or goes to another model."""
STORES: Final = logging.getLogger("alpineagents.stores")
"""A line for each lease that is lost, and for what couldn't be saved."""

logging.getLogger("alpineagents").addHandler(logging.NullHandler())  # Else warnings would go to stderr.
