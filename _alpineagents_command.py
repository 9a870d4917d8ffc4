"""The program ``alpineagents``. Outside the package, so that Ctrl+C shows no traceback while that is being imported."""

from __future__ import annotations

import signal


def main() -> int:
    """Do what the command line says and return the exit code."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends the process at once; nothing has begun yet
    from alpineagents.cli import main as command

    signal.signal(signal.SIGINT, before)
    return command()
