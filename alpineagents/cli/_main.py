"""Reads the command line and does what it says."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import trio

from .._errors import AlpineAgentsError
from . import _replay, _store


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says and return the exit code: 0, 1 where something failed, 2 where it is wrong.

    ``replay`` keeps 1 for a difference: there 2 is anything that failed.

    Args:
        argv: The arguments; those of the process when left out.
    """
    parser = argparse.ArgumentParser(prog="alpineagents", description="Look after saved States.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _replay.add_to(commands)
    _store.add_to(commands)
    args = parser.parse_args(argv)
    if sys.stdout is None:  # >&-: what is opened next may get its number
        print("error: standard output is closed; send it to /dev/null instead", file=sys.stderr)
        return 1
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what this terminal can't show
    try:
        code: int = trio.run(args.command, args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (AlpineAgentsError, ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return code
