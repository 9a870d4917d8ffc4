"""The command line, ``alpineagents``."""

from ._main import main

__all__ = ["main"]
