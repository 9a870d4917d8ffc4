"""Does what the command line says."""

from __future__ import annotations

import inspect
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper, UnsupportedOperation

import trio

from ..run import stop_on_sigterm
from ._exit import ANSWER, ERROR, INTERRUPTED, TERMINATED, USAGE, UsageError, code_of, line_of
from ._warn import say_on_error, warnings_told


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says and return the exit code; ``_exit`` lists them. Nothing comes out of it.

    Args:
        argv: The arguments; those of the process when left out.
    """
    try:
        return _done(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        # The process is about to end: from now on Ctrl+C shows no traceback.
        if argv is None and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _done(tokens: Sequence[str]) -> int:
    if sys.stdout is None:  # >&-: what is opened next may get its number
        say_on_error("error: standard output is closed; send it to /dev/null instead")
        return ERROR
    try:
        import cyclopts  # noqa: F401  # as the next line needs it, and rich whoever prints help or a table
        import rich  # noqa: F401
    except ModuleNotFoundError:
        say_on_error("error: the command line needs two more packages: pip install cyclopts rich")
        return ERROR
    from ._app import parsed

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what this terminal can't show
    try:
        command, shows_traceback = parsed(tokens)
    except UsageError as error:
        say_on_error(line_of(error))
        return USAGE
    return _run(command, shows_traceback)


def _run(command: Callable[[], object], shows_traceback: bool) -> int:
    try:
        with warnings_told(say_on_error):
            code = _result(command)
        sys.stdout.flush()
    except SystemExit as error:  # a tool's own
        return error.code if isinstance(error.code, int) else ERROR
    except BaseException as error:  # noqa: BLE001  # here is where all of them end
        is_lost = isinstance(error, OSError) and _is_output_lost()
        if is_lost and isinstance(error, BrokenPipeError):
            return ANSWER  # who reads, such as head, has seen enough
        code = code_of(error)
        if shows_traceback:
            sys.excepthook(type(error), error, error.__traceback__)
        elif code != INTERRUPTED:
            say_on_error(line_of(error))
    return code


def _is_output_lost() -> bool:
    """Whether standard output takes no more: its reader is gone, or the disk full. Then nothing more goes there."""
    try:
        sys.stdout.flush()
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        if not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            return False
    except UnsupportedOperation:  # an object of the caller's
        return False
    except OSError:
        pass  # what is still to be written is what goes nowhere below
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
    return True


def _result(command: Callable[[], object]) -> int:
    """Return the exit code of a command that has ended normally."""
    if not inspect.iscoroutinefunction(inspect.unwrap(getattr(command, "func", command))):
        try:
            code = command()
        except SystemExit:  # rich, where the pipe is closed that help is printed to
            return ANSWER
    else:
        code = trio.run(_until_sigterm, command, strict_exception_groups=True)
    return code if isinstance(code, int) else ANSWER


async def _until_sigterm(command: Callable[[], object]) -> object:
    """Await a command. SIGTERM cancels it, so that what runs is closed and saved as at Ctrl+C."""
    code: object = TERMINATED
    async with stop_on_sigterm():
        code = await command()  # type: ignore[misc]  # a coroutine function
    return code  # noqa: RET504  # still the first, where SIGTERM has ended the block
