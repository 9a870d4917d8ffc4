"""``alpineagents list``: the States of a store, as a table."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
import trio

from alpineagents import Agent, FileStore, Message, SQLiteStore, State, tool
from alpineagents.cli._list import age, count, dollars, short_ids
from alpineagents.testing import FakeModel, tool_call

from ..stores.postgres import cluster
from .program import run_program

__all__ = ["cluster"]  # the fixture


def save(store, *states):
    async def go():
        for state in states:
            await store.save(state)

    trio.run(go)


def test_an_empty_or_missing_store_lists_nothing(here):
    (here.home / "empty").mkdir()

    assert here("list") == (0, "", "")
    assert here("list", "--json") == (0, "", "")
    assert here("list", "--store", "nowhere") == (0, "", "")
    assert here("list", "--store", "nowhere.db") == (0, "", "")
    assert here("list", "--store", "empty") == (0, "", "")
    assert not (here.home / "nowhere.db").exists()


def test_how_each_state_stands_is_said_in_a_word(here):
    for name in ("spender", "greeter", "writer", "breaker", "ender", "looper"):
        here.agent(name, *(["--limit", "1"] if name == "looper" else [] if name == "writer" else ["--yes"]))

    async def more():
        store = FileStore(here.states)

        @tool
        async def hang() -> str:
            """Hang."""
            return await trio.sleep_forever()

        with trio.move_on_after(0.1):
            await Agent(model=FakeModel([tool_call("hang")]), tools=[hang], store=store).run("cut short")
        await store.save(State(messages=[Message.user("not begun")]))
        await Agent(model=FakeModel([tool_call("hang")]), tools=[hang], store=store).think(
            state := State(messages=[Message.user("in the middle")])
        )
        assert state.pending_calls

    trio.run(more)

    code, out, err = here("list")
    assert (code, err) == (0, "")
    rows = [re.split(r"  +", line) for line in out.splitlines()]
    assert [row[2] for row in rows] == [
        "open",
        "open",
        "interrupted",
        "limit",
        "finished",
        "failed",
        "permission",
        "your turn",
        "budget",
    ]
    assert rows[-2][3:] == ["1", "20", "$0.00", "Go on"]
    assert {len(row[0]) for row in rows} == {26}


def test_a_rule_of_ones_own_is_named(here):
    (here.home / "rules.py").write_text(
        "from alpineagents import Agent, loop\nfrom alpineagents.testing import FakeModel\n"
        "def enough(state):\n    return state.turn == 1\n"
        "@loop(until=enough, limit=9)\nasync def body(agent, state):\n    await agent.think(state)\n"
        "agent = Agent(model=FakeModel(['x']), loop=body)\n"
    )
    assert here("run", "-a", "rules:agent", "x")[0] == 0

    assert json.loads(here("list", "--json")[1])["status"] == "enough"


def test_json_has_an_object_a_line(here):
    here.agent("reader")

    row = json.loads(here("list", "--json")[1])

    assert row.pop("id").isalnum()
    assert datetime.now(UTC) - datetime.fromisoformat(row.pop("updated_at")) < timedelta(minutes=5)
    assert datetime.fromisoformat(row.pop("created_at"))
    assert row == {
        "parent_id": None,
        "status": "your turn",
        "turns": 2,
        "input_tokens": 20,
        "output_tokens": 20,
        "cost": "0",
        "first_message": "Go on",
    }


def test_the_newest_come_first_so_many_as_are_asked_for_and_subagents_only_if_asked_for(here):
    async def fill():
        store = FileStore(here.states)
        for number in range(25):
            await store.save(State(id=f"state-{number:02}", messages=[Message.user("hi")]))
        worker = Agent(model=FakeModel(["done"]), name="worker", description="Works.")
        lead = Agent(model=FakeModel([tool_call("worker", prompt="part"), "all done"]), tools=[worker], store=store)
        await lead.run(State(id="lead", messages=[Message.user("all")]))

    trio.run(fill)

    ids = [line.split()[0] for line in here("list")[1].splitlines()]
    assert ids[:2] == ["lead", "state-24"]
    assert len(ids) == 20
    assert len(here("list", "-n", 3)[1].splitlines()) == 3
    assert len(here("list", "--all", "--limit", 100)[1].splitlines()) == 27


def test_a_store_is_named_by_the_option_or_the_environment(here, monkeypatch):
    here.agent("greeter", "--store", "runs.db")
    here.agent("greeter")

    assert len(here("list", "--store", "runs.db")[1].splitlines()) == 1
    monkeypatch.setenv("ALPINEAGENTS_STORE", str(here.home / "runs.db"))
    by_environment = here("list", "--json")[1]
    assert json.loads(by_environment)["id"] in [info.id for info in trio.run(listed, here.home / "runs.db")]


async def listed(path):
    async with SQLiteStore(path) as store:
        return await store.list()


def test_a_database_that_has_no_tables_yet_lists_nothing(here, cluster):
    cluster.sql("CREATE DATABASE listed")

    assert here("list", "--store", f"postgresql://postgres@127.0.0.1:{cluster.port}/listed") == (0, "", "")


@pytest.mark.parametrize("given", [None, "", "relative/folder"])
def test_the_state_directory_is_in_the_home_folder_where_the_variable_names_none(here, monkeypatch, given):
    if given is None:
        monkeypatch.delenv("XDG_STATE_HOME")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", given)

    here.agent("greeter")

    folder = here.home / ".local" / "state" / "alpineagents" / "states"
    assert len(list(folder.glob("*.jsonl"))) == 1
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_history_that_is_damaged_is_listed_as_that_with_a_warning(here):
    here.agent("greeter", "--store", "runs.db")
    with closing(sqlite3.connect("runs.db")) as connection:
        connection.execute("UPDATE entries SET entry = '{}' WHERE seq = 1")
        connection.commit()

    code, out, err = here("list", "--store", "runs.db")

    assert code == 0
    assert re.fullmatch(r"\w{26}  \d+ s  damaged  1  \?  \?  Go on\n", out)
    assert err.startswith("warning: ")
    assert "entry 1 of State" in err
    row = json.loads(here("list", "--store", "runs.db", "--json")[1])
    assert (row["status"], row["input_tokens"], row["cost"]) == ("damaged", None, None)


@pytest.fixture
def on_a_terminal(monkeypatch):
    """Return what a call prints on a terminal of so many columns: with its colours, and the lines without them."""

    def shown(columns, call):
        master, slave = os.openpty()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        with open(slave, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            call()
        text = os.read(master, 100_000).decode()
        os.close(master)
        return text, [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.splitlines()]

    return shown


def test_on_a_terminal_it_is_a_table_that_fits(here, on_a_terminal):
    save(
        FileStore(here.states),
        State(id="a", messages=[Message.user("one " * 40)]),
        State(messages=[Message.user("[bold]two")]),
    )
    here.agent("breaker", "-y")

    text, lines = on_a_terminal(80, lambda: here("list"))
    assert lines[0].split() == ["id", "changed", "status", "turns", "tokens", "cost", "first", "message"]
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith("…")
    assert lines[2].endswith("[bold]two")
    assert "\x1b[31mfailed" in text
    assert len(lines[2].split()[0]) == 12

    _, lines = on_a_terminal(40, lambda: here("list"))
    assert lines[0].split()[:4] == ["id", "changed", "status", "first"]
    assert max(map(len, lines)) <= 40
    assert len(lines[2].split()[0]) == 12


# ---- Its parts


def test_short_ids_are_as_long_as_they_have_to_be():
    ids = ["a", "01m8tyzwpdvpdv48wb69hn7svr", "01m8tyzwpdvpdv48xxxxxxxxxx", "01m9"]

    assert short_ids(ids) == {
        "a": "a",
        "01m8tyzwpdvpdv48wb69hn7svr": "01m8tyzwpdvpdv48w",
        "01m8tyzwpdvpdv48xxxxxxxxxx": "01m8tyzwpdvpdv48x",
        "01m9": "01m9",
    }


def test_times_tokens_and_amounts_are_short():
    assert [age(seconds) for seconds in (-3, 59.9, 60, 7_200, 90_000)] == ["0 s", "59 s", "1 min", "2 h", "1 d"]
    assert [count(number) for number in (0, 9_999, 10_000, 1_234_567, 12_345_678)] == [
        "0",
        "9999",
        "10k",
        "1235k",
        "12M",
    ]
    assert [dollars(cost) for cost in (None, 0, 1.5, 0.00123)] == ["?", "$0.00", "$1.50", "$0.0012"]


def test_the_program_prints_the_same(home):
    run_program(home, "run", "--agent", "app:greeter", "Hi")

    assert run_program(home, "list").stdout.endswith("  Hi\n")
