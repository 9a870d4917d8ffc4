"""What the pytest plugin has in the library's way: where models may connect, and which States a test had to do with."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, final

import attrs

from .._errors import AlpineAgentsError
from .._hooks import may_connect, witness
from ..record._entries import ErrorEntry
from ..record._snapshot import Snapshot
from ..state import State, StateSnapshot
from ..state._show import standing
from ._lines import entry_line

MOST_KEPT: Final = 100
"""States of a test that are remembered, the latest; with their histories, where nobody else has them any more."""
MOST_STATES: Final = 10
"""Those that are shown: with an error in them, and the latest."""
MOST_FIRST: Final = 10
MOST_LAST: Final = 40
"""Entries shown of a State, from its beginning and its end."""


class LiveConnectionError(AlpineAgentsError):
    """In a test that isn't marked ``live``, a model would have connected to another machine."""


@final
class Harness:
    """One pytest session's. ``begin`` and ``end`` are around each test."""

    def __init__(self, *, allowed_hosts: Collection[str] = (), allow_all: bool = False) -> None:
        self._allowed_hosts = frozenset(map(_plain, allowed_hosts))
        self._allow_all = allow_all
        self._test: _Test | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the library ask and tell this one while the block lasts, in what is started in it, too."""
        connecting, telling = may_connect.get(), witness.get()
        may_connect.set(self.check)
        witness.set(self.note)
        try:
            yield
        finally:  # not by tokens, which another Context, such as that of a hook in a thread, refuses
            may_connect.set(connecting)
            witness.set(telling)

    def begin(self, name: str, *, live: bool) -> None:
        """Say which test runs now, and whether it may connect to anything."""
        if self._test is None or self._test.name != name:
            self._test = _Test(name, live)

    def end(self) -> None:
        """Say that it has ended."""
        self._test = None

    def check(self, host: str, endpoint: str) -> None:
        """Raise LiveConnectionError where the running test may not connect to *host*, on its way to *endpoint*."""
        __tracebackhide__ = True
        test = self._test
        if test is None or test.live or self._allow_all or _plain(host) in self._allowed_hosts:
            return
        if is_here_or_nowhere(host):
            return
        by_proxy = "" if host in endpoint else f"\n{host} must be a proxy: NO_PROXY=localhost,127.0.0.1"
        raise LiveConnectionError(
            f"this test would connect to {host}, for {endpoint}.\n"
            "To do without: FakeModel([...]), a ProviderServer, or record_model(model, path), recorded once with"
            " pytest --agents-record\n"
            f'To allow it: @pytest.mark.live, or agents_allowed_hosts = ["{host}"] in pytest\'s configuration{by_proxy}'
        )

    def note(self, state: object) -> None:
        """Remember a State of the running test."""
        if self._test is not None and isinstance(state, State):
            self._test.note(state)

    def conversations(self) -> Iterator[tuple[str, str]]:
        """Titles and texts that show what happened in the running test's States."""
        if self._test is not None:
            yield from self._test.conversations()


@final
class _Test:
    """The running test, and what is known of its States."""

    def __init__(self, name: str, live: bool) -> None:
        self.name = name
        self.live = live
        self._states: dict[str, _Seen] = {}
        self._forgotten = 0

    def note(self, state: State) -> None:
        self._states[state.id] = _Seen(weakref.ref(state), state.snapshot_now())
        if len(self._states) > MOST_KEPT:
            del self._states[next(iter(self._states))]
            self._forgotten += 1

    def conversations(self) -> Iterator[tuple[str, str]]:
        now = {state_id: seen.now() for state_id, seen in self._states.items()}
        shown = sorted(now, key=lambda state_id: _has_failed(now[state_id]))[-MOST_STATES:]
        for state_id, snapshot in now.items():
            if state_id in shown:
                yield _title(state_id, snapshot), conversation(snapshot)
        if left_out := len(now) - len(shown) + self._forgotten:
            yield "more States", f"{left_out} more States had to do with this test"


@final
@attrs.frozen
class _Seen:
    state: weakref.ref[State]
    last: Snapshot
    """As it was when a run last began or ended."""

    def now(self) -> Snapshot:
        state = self.state()
        return self.last if state is None else state.snapshot_now()


def _has_failed(snapshot: Snapshot) -> bool:
    return any(isinstance(entry, ErrorEntry) for entry in snapshot.history[-5:])


def _title(state_id: str, snapshot: Snapshot) -> str:
    parent = StateSnapshot(state_id, snapshot).parent_id
    return f"conversation of State {state_id}" + ("" if parent is None else f", subagent of {parent}")


def conversation(snapshot: Snapshot) -> str:
    """What ``print(state)`` shows, without the middle of a long one."""
    history = snapshot.history
    first = min(MOST_FIRST, len(history))
    last = max(first, len(history) - MOST_LAST)
    lines = [entry_line(entry) for entry in history[:first]]
    if last > first:
        lines.append(f"... {last - first} entries")
    return "\n".join([*lines, *[entry_line(entry) for entry in history[last:]], standing(snapshot)])


def _plain(host: str) -> str:
    return host.strip("[]").partition("%")[0].rstrip(".").lower()


def is_here_or_nowhere(host: str) -> bool:
    """Whether *host* is this machine, or a name that nobody can have, for tests of what happens then.

    This machine: loopback addresses, the unspecified one, which servers print that listen on all, and ``localhost``.
    Nobody's: names below ``test``, ``example`` and ``invalid`` (RFC 6761, sections 6.2 to 6.5).
    """
    from ipaddress import IPv6Address, ip_address  # only for who connects

    name = _plain(host)
    if name.rpartition(".")[2] in ("localhost", "test", "example", "invalid"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_loopback or address.is_unspecified
