"""What a shell is to the one program of a pseudo-terminal: started by ``pty_screen``, and by path, so that it is fast.

It leads the session, so that the terminal keeps its settings when the program has ended: a Linux pseudo-terminal
forgets them with the end of its session's leader. The program is a job of its own in the foreground, as a shell has
it; Ctrl+Z stops it. What happens to it is written to the terminal behind all that it wrote: an escape sequence that
shows nothing.

Usage: ``python pty_shell.py COMMANDS_FD PROGRAM ARG ...``. A byte on COMMANDS_FD continues a stopped program; at its
end the shell ends with the program.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios


def tell(event: str, number: int) -> None:
    os.write(1, f"\x1b]777;{event};{number}\x07".encode())


def start(program: list[str]) -> int:
    """Start *program* in the foreground; return its process id."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            os.execvp(program[0], program)
        except OSError as error:
            os.write(2, f"{program[0]}: {error.strerror}\r\n".encode())
            os._exit(127)
    return child


def main(commands: int, program: list[str]) -> None:
    os.set_inheritable(commands, False)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # It writes from the background, too.
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    child = start(program)
    tell("started", child)
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        if not os.WIFSTOPPED(status):
            break
        tell("stopped", child)
        if os.read(commands, 1):
            os.tcsetpgrp(0, child)
            os.killpg(child, signal.SIGCONT)
    tell("ended", os.waitstatus_to_exitcode(status))
    os.read(commands, 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
