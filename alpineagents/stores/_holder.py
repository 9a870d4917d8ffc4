"""Who holds a lease that is a row in a database: written into it, and asked whether they still live."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

import attrs
import orjson

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


@attrs.frozen
class Holder:
    """A process, such that it is known again, and another of the same number is told apart."""

    machine: str
    """The host's name."""
    world: str
    """This boot of it, and its space of process ids (a container has its own); empty where the system can't say."""
    process: int
    started: str
    """When the process started, as the system counts it; empty where it can't say."""

    def encoded(self) -> str:
        """Return it as JSON, for the row."""
        return orjson.dumps(attrs.asdict(self)).decode()

    def is_gone(self) -> bool:
        """Whether it is known to have ended: it ran here, and doesn't any more."""
        here = this_process()
        if not (self.world and self.started) or (self.machine, self.world) != (here.machine, here.world):
            return False
        return _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.machine}"


def decoded(text: str) -> Holder | None:
    """Return the Holder of a row; None for one of a form that this version doesn't know."""
    try:
        return Holder(**orjson.loads(text))
    except (ValueError, TypeError):
        return None


def this_process() -> Holder:
    """Return the running process."""
    return Holder(platform.node(), _world(), os.getpid(), _started(os.getpid()))


@cache
def _world() -> str:
    """This boot and space of process ids, from Linux's /proc (see proc(5) and pid_namespaces(7))."""
    try:
        return f"{_BOOT.read_text(encoding='ascii').strip()} {_PROCESSES.readlink()}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """Field 22 of /proc/PID/stat: clock ticks from boot to the start of the process; empty if there is none such."""
    try:
        stat = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()  # behind the name, which may hold anything
    return fields[19].decode() if fields[0] not in (b"Z", b"X") else ""
