"""Who holds a lease: known again, told apart, and known to be gone only where that is sure."""

from __future__ import annotations

import os
import subprocess
import sys

import attrs

from alpineagents.stores._holder import Holder, decoded, this_process


def test_this_process_is_not_gone_and_survives_its_row():
    here = this_process()

    assert here.process == os.getpid()
    assert decoded(here.encoded()) == here
    assert not here.is_gone()
    assert str(here) == f"process {os.getpid()} on {here.machine}"


def holder_of_a_child() -> tuple[subprocess.Popen[bytes], Holder]:
    code = "from alpineagents.stores._holder import this_process; print(this_process().encoded(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    holder = decoded(child.stdout.readline().decode())
    assert holder is not None
    return child, holder


def test_a_process_is_gone_when_it_was_killed_even_before_anybody_has_waited_for_it():
    child, holder = holder_of_a_child()
    assert not holder.is_gone()

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and still a zombie

    assert holder.is_gone()
    child.communicate()
    assert holder.is_gone()


def test_a_process_of_the_same_number_that_started_later_is_another_one():
    here = this_process()

    assert attrs.evolve(here, started="1").is_gone()


def test_who_ran_elsewhere_is_never_known_to_be_gone():
    here = this_process()

    assert not attrs.evolve(here, started="1", machine="elsewhere").is_gone()
    assert not attrs.evolve(here, started="1", world="another boot").is_gone()
    assert not attrs.evolve(here, started="1", world="").is_gone()
    assert not attrs.evolve(here, started="").is_gone()


def test_a_row_of_another_form_is_of_nobody_known():
    assert decoded("not JSON") is None
    assert decoded('{"machine":"m"}') is None
    assert decoded("[]") is None
