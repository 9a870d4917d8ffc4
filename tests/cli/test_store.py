"""``alpineagents store``, as typed in a shell."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from alpineagents import (
    Agent,
    FileStore,
    Image,
    Message,
    OverloadedError,
    RawBlock,
    SQLiteStore,
    State,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    tool,
)
from alpineagents.cli import main
from alpineagents.record import ModelEvent, ModelEventEntry, ModelReplyEntry, ModelRequestEntry, Reply
from alpineagents.record._codec import encode_entry
from alpineagents.stores import open_store
from alpineagents.testing import FakeModel, tool_call

from ..stores.postgres import cluster

__all__ = ["cluster"]  # the fixture

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


@tool
async def read(name: str) -> str:
    """Read a file."""
    return "```\n<b>x = 1</b>\n```"


async def fill(store: FileStore) -> None:
    """Two conversations, one of them with a tool call, and a State that is in the middle of one."""
    agent = Agent(model=FakeModel([tool_call("read", name="a.py"), "It <i>is</i> short."]), tools=[read], store=store)
    await agent.run(State(id="bug-1", messages=[Message.user("Read\na.py", Image(PNG))]))
    done = State(id="chat", messages=[Message.user("hi")], extra_data={"repo": "api"})
    done.finish({"a": 1})
    await store.save(done)
    waiting = State(id="waiting", messages=[Message.user("go")])
    await Agent(model=FakeModel([tool_call("read", name="b.py")]), tools=[read], store=store).think(waiting)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trio.run(fill, FileStore(tmp_path / "runs"))
    return tmp_path / "runs"


def run(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["store", *map(str, args)])
    return code, *capfd.readouterr()


def test_list_shows_a_line_for_each_state_the_newest_first(folder, capfd):
    code, out, err = run(capfd, "list", folder)

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["waiting", "chat", "bug-1"]
    assert lines[1].endswith("finish({'a': 1})          hi")
    assert lines[2].endswith("until waiting_for_user    Read a.py")
    assert " turn 2 " in lines[2]

    assert run(capfd, "list", folder, "--limit", 1)[1].split()[0] == "waiting"


def test_list_can_leave_out_subagents(folder, capfd):
    async def add_a_child() -> None:
        child = State(id="child", messages=[Message.user("part")])

        @tool
        async def delegate() -> str:
            """Delegate."""
            return await Agent(model=FakeModel(["done"]), store=store).run(child)

        store = FileStore(folder)
        lead = Agent(model=FakeModel([tool_call("delegate"), "all done"]), tools=[delegate], store=store)
        await lead.run(State(id="lead", messages=[Message.user("all")]))

    trio.run(add_a_child)

    assert "child " in run(capfd, "list", folder)[1]
    assert "child " not in run(capfd, "list", folder, "--top")[1]


def test_show_prints_the_history_and_leaves_open_what_is_open(folder, capfd):
    code, out, _ = run(capfd, "show", folder, "waiting")

    assert code == 0
    assert out.splitlines()[-2:] == ["[turn 1] model_reply read(name='b.py')", "1 pending call: read"]
    assert len(trio.run(FileStore(folder).read, "waiting")) == len(out.splitlines()) - 1


def test_copy_is_byte_by_byte_and_again_copies_only_what_is_new(folder, tmp_path, capfd):
    other = tmp_path / "other"
    assert run(capfd, "copy", folder, other)[1].startswith("3 States, ")

    for state_id in ("bug-1", "chat", "waiting"):
        assert trio.run(FileStore(other).read, state_id) == trio.run(FileStore(folder).read, state_id)
    assert trio.run(FileStore(other).list) == trio.run(FileStore(folder).list)
    assert run(capfd, "copy", folder, other)[1] == "3 States, 0 new entries\n"

    async def go_on() -> None:
        state = await FileStore(folder).load("bug-1")
        await state.add_message(Message.user("And b.py?"))

    trio.run(go_on)
    assert run(capfd, "copy", folder, other, "bug-1")[1] == "1 States, 1 new entries\n"
    assert trio.run(FileStore(other).read, "bug-1") == trio.run(FileStore(folder).read, "bug-1")


def test_copy_leaves_a_state_that_went_on_differently_and_says_so(folder, tmp_path, capfd):
    other = tmp_path / "other"
    run(capfd, "copy", folder, other, "chat")

    async def differently(place: Path, text: str) -> None:
        state = await FileStore(place).load("chat")
        await state.add_message(Message.notice(text))

    trio.run(differently, other, "one")
    trio.run(differently, folder, "two")
    before = trio.run(FileStore(other).read, "chat")

    code, out, err = run(capfd, "copy", folder, other)

    assert code == 1
    assert "chat: State chat" in err
    assert "another entry 3" in err
    assert out.startswith("2 States, ")
    assert out.endswith("; 1 couldn't be copied\n")
    assert trio.run(FileStore(other).read, "chat") == before


def test_copy_counts_a_state_that_is_left_out_of_the_list(folder, tmp_path, capfd):
    spoil_the_info(folder)

    code, out, err = run(capfd, "copy", folder, tmp_path / "other.db")

    assert code == 1
    assert out.endswith("; 1 couldn't be copied\n")
    assert err.startswith("warning: ")
    assert "bug-1.jsonl is left out of the list" in err
    assert len(err.splitlines()) == 1
    assert run(capfd, "copy", folder, tmp_path / "other.db", "chat")[:2] == (0, "1 States, 0 new entries\n")


def spoil_the_info(folder: Path) -> None:
    """Damage what bug-1 is listed by."""
    log = folder / "bug-1.jsonl"
    log.write_bytes(log.read_bytes()[:-9] + b"xxxxxxxx\n")


class Live(FileStore):
    """Somebody writes a State each time its history is read."""

    async def read(self, state_id, after=0):
        if state_id == "chat":
            await write_on(self.folder)
        return await super().read(state_id, after)


async def write_on(folder: Path) -> None:
    store = FileStore(folder)
    state = await store.load("chat")
    await state.add_message(Message.notice("more"))


def live(folder: Path, monkeypatch: pytest.MonkeyPatch, times: int | None) -> None:
    """Let the State be written so often while a command looks at it; None: each time."""
    written = 0

    def opened(where: str) -> FileStore:
        nonlocal written
        if where != str(folder):
            return open_store(where)
        written = 0
        return Counted(folder)

    class Counted(Live):
        async def read(self, state_id, after=0):
            nonlocal written
            written += state_id == "chat"
            if times is not None and written > times:
                return await FileStore(self.folder).read(state_id, after)
            return await super().read(state_id, after)

    monkeypatch.setattr("alpineagents.cli._place.open_store", opened)


@pytest.mark.parametrize("times", [1, 2, None])
def test_check_finds_nothing_in_a_store_that_is_being_written(folder, capfd, monkeypatch, times):
    live(folder, monkeypatch, times)

    assert run(capfd, "check", folder) == (0, "3 States checked, none damaged\n", "")


def test_check_finds_a_list_that_is_behind_though_another_state_is_being_written(folder, tmp_path, capfd, monkeypatch):
    other = SQLiteStore(tmp_path / "other.db")
    run(capfd, "copy", folder, other.path)
    with closing(sqlite3.connect(other.path)) as connection:
        (info,) = connection.execute("SELECT info FROM states WHERE id = 'bug-1'").fetchone()
        connection.execute("UPDATE states SET info = ? WHERE id = 'bug-1'", (info.replace(b'"turn":2', b'"turn":1'),))
        connection.commit()

    code, out, _ = run(capfd, "check", other.path)

    assert code == 1
    assert out == (
        "bug-1: the list says something else of it than its history; the next save of it sets that right\n"
        "3 States checked, 1 damaged\n"
    )


def test_a_list_that_is_damaged_is_found_by_check_and_mended_by_copy(folder, tmp_path, capfd):
    other = SQLiteStore(tmp_path / "other.db")
    run(capfd, "copy", folder, other.path)
    with closing(sqlite3.connect(other.path)) as connection:
        connection.execute("UPDATE states SET info = '{' WHERE id = 'bug-1'")
        connection.commit()

    code, out, _ = run(capfd, "check", other.path)
    assert (code, out.splitlines()[-1]) == (1, "3 States checked, 1 damaged")
    assert out.startswith("bug-1: ")

    assert run(capfd, "copy", other.path, tmp_path / "mended.db")[0] == 0
    assert run(capfd, "check", tmp_path / "mended.db") == (0, "3 States checked, none damaged\n", "")


def test_check_names_a_state_that_is_not_in_the_list(folder, capfd, monkeypatch):
    class Forgetful(FileStore):
        async def infos(self, *, limit=None, before=None):
            return [found for found in await super().infos(limit=limit, before=before) if found[0] != "chat"]

    monkeypatch.setattr("alpineagents.cli._place.open_store", Forgetful)

    assert run(capfd, "check", folder, "chat")[:2] == (
        1,
        "chat: it isn't in the list\n1 States checked, 1 damaged\n",
    )


def test_check_does_not_miss_a_state_that_is_deleted_meanwhile(folder, capfd, monkeypatch):
    class Deleting(FileStore):
        async def read(self, state_id, after=0):
            await FileStore(self.folder).delete("chat")
            return await super().read(state_id, after)

    monkeypatch.setattr("alpineagents.cli._place.open_store", Deleting)

    assert run(capfd, "check", folder)[0] == 0
    code, out, _ = run(capfd, "check", folder, "chat")
    assert (code, out.splitlines()[-1]) == (1, "1 States checked, 1 damaged")


def test_a_copy_of_a_store_that_is_being_written_is_whole(folder, tmp_path, capfd, monkeypatch):
    live(folder, monkeypatch, None)

    assert run(capfd, "copy", folder, tmp_path / "copy.db")[0] == 0

    assert run(capfd, "check", tmp_path / "copy.db") == (0, "3 States checked, none damaged\n", "")


def test_check_of_some_states_says_nothing_of_the_others(folder, capfd):
    spoil_the_info(folder)

    assert run(capfd, "check", folder, "chat") == (0, "1 States checked, none damaged\n", "")
    code, out, err = run(capfd, "check", folder, "bug-1")
    assert (code, out.splitlines()[-1], err) == (1, "1 States checked, 1 damaged", "")


def test_check_finds_nothing_in_a_whole_store(folder, capfd):
    assert run(capfd, "check", folder) == (0, "3 States checked, none damaged\n", "")


@pytest.mark.parametrize("where", ["begin", "middle", "end"])
def test_check_names_what_is_damaged(folder, capfd, where):
    log = folder / "bug-1.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    at = {"begin": 0, "middle": len(lines) // 2, "end": -1}[where]
    lines[at] = b'{"kind":"user"}\n'
    log.write_bytes(b"".join(lines))

    code, out, err = run(capfd, "check", folder)

    assert code == 1
    assert "bug-1" in out + err
    assert out.endswith("1 damaged\n")


def test_check_names_a_history_that_can_not_have_happened(folder, capfd):
    log = folder / "chat.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"turn":0', b'"turn":7'))

    code, out, _ = run(capfd, "check", folder, "chat")

    assert code == 1
    assert "chat: State chat can't be read: entry 0: turn 7 should be 0" in out


def test_export_as_jsonl_is_what_the_store_holds(folder, capfd):
    code, out, _ = run(capfd, "export", folder, "chat")

    assert code == 0
    assert out.encode().splitlines() == trio.run(FileStore(folder).read, "chat")


def test_export_as_markdown_shows_everything_in_fences_that_hold(folder, tmp_path, capfd):
    target = tmp_path / "bug.md"
    assert run(capfd, "export", folder, "bug-1", "--format", "markdown", "-o", target) == (0, "", "")

    text = target.read_text(encoding="utf-8")
    assert text.startswith("# State bug-1\n\n## [turn 0] context change\n")
    assert 'read({\n  "name": "a.py"\n})' in text
    assert "## [turn 1] tool result: read, done" in text
    assert "\n```\n<b>x = 1</b>\n```\n" in text
    assert "It <i>is</i> short." in text
    assert "image/png" in text


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_export_shows_the_end_of_whatever_is_long(tmp_path, capfd, form):
    long = "a" * 1_000

    async def save() -> None:
        state = State(id="long", messages=[Message.user(f"{long} of the message")])
        for make in (
            lambda snap, at: ModelRequestEntry(snap.length, 1, at, "fake/fake", tools=[long, "of-the-tools"]),
            lambda snap, at: ModelEventEntry(snap.length, 1, at, ModelEvent("retry", f"{long} of the event")),
            lambda snap, at: ModelReplyEntry(snap.length, 1, at, Reply([TextBlock(f"{long} of the reply")])),
        ):
            state.commit(make)
        state.finish({"long": long, "last": "of the answer"})
        entries = [encode_entry(entry) for entry in state.history]
        entries.append(
            b'{"kind":"verdict","seq":%d,"turn":1,"at":"2126-01-02T03:04:05Z","content":["%s","of a newer version"]}'
            % (len(entries), long.encode())
        )
        await FileStore(tmp_path).append("long", 0, entries, b'{"format":1,"id":"long"}')

    trio.run(save)

    code, out, err = run(capfd, "export", tmp_path, "long", "--format", form)

    assert (code, err) == (0, "")
    for end in (
        "of the message",
        "of-the-tools",
        "of the event",
        "of the reply",
        "of the answer",
        "of a newer version",
    ):
        assert end in out


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_export_has_every_kind_of_entry_and_of_block(tmp_path, capfd, form):
    async def play():
        model = FakeModel(
            [
                Reply([ThinkingBlock("well"), TextBlock("Both."), *tool_calls]),
                "Done.",
                "yes",
                "a summary",
                OverloadedError("refused by all"),
            ]
        )
        agent = Agent(model=model, tools=[read], store=FileStore(tmp_path))
        await agent.run(state)
        await agent.ask(state, "Sure?")
        await agent.compact(state)
        with state.edit_extra_data() as data:
            del data["repo"]
        with pytest.raises(OverloadedError):
            await agent.think(state)
        await FileStore(tmp_path).save(state)

    tool_calls = [tool_call("read", name="a.py"), ToolCall("c2", "read", None, '{"name": "b'), RawBlock("x", {"y": 1})]
    state = State(id="all", messages=[Message.user("Look", Image(PNG))], extra_data={"repo": "api", "n": 1})
    trio.run(play)

    code, out, _ = run(capfd, "export", tmp_path, "all", "--format", form)

    assert code == 0
    for part in (
        "(thinking) well",
        "Both.",
        "Sure?",
        "a summary",
        "removed: repo",
        "refused by all",
        "(Image(",
        "{&quot;name&quot;: &quot;b" if form == "html" else '{"name": "b',
        "(RawBlock)",
    ):
        assert part in out


def test_export_as_html_is_one_page_in_which_nothing_is_markup_but_its_own(folder, capfd):
    out = run(capfd, "export", folder, "bug-1", "--format", "html")[1]

    assert out.startswith("<!DOCTYPE html>")
    assert "&lt;b&gt;x = 1&lt;/b&gt;" in out
    assert "<b>" not in out
    assert "<i>" not in out
    assert "<script" not in out
    assert "http" not in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["list", "nowhere"], "there is no "),
        (["show", "{folder}", "bug-2"], "no State bug-2"),
        (["show", "{folder}", "../x"], "state id"),
        (["copy", "{folder}", "other", "nobody"], "nobody: no State nobody"),
        (["export", "{folder}", "chat", "-o", "no/such/folder/x"], "no/such/folder/x"),
        (["check", "{folder}/.."], "holds other files, and no State"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(folder, tmp_path, monkeypatch, capfd, args, said):
    monkeypatch.chdir(tmp_path)

    code, _, err = run(capfd, *[arg.replace("{folder}", str(folder)) for arg in args])

    assert code == 1
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["mysql://app:secret@db/app", ""])
def test_a_name_that_no_store_can_have_is_a_wrong_command_line(folder, capfd, name):
    code, _, err = run(capfd, "copy", str(folder), name)

    assert code == 2
    assert "secret" not in err
    assert "postgresql://host/database" in err
    assert len(err.splitlines()) == 1


def test_what_needs_psycopg_says_so_where_it_is_missing(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "alpineagents.stores._postgres_connections", raising=False)

    code, out, err = run(capfd, "list", "postgresql://host/runs")

    assert (code, out) == (1, "")
    assert "pip install 'psycopg[binary]'" in err


@pytest.mark.parametrize("command", ["list", "export"])
def test_a_standard_output_that_is_closed_is_an_error_in_one_line(folder, command):
    shell = f"'{sys.executable}' -m alpineagents store {command} '{folder}' {'chat' if command == 'export' else ''} >&-"

    done = subprocess.run(shell, shell=True, capture_output=True, check=False)

    assert done.returncode == 1
    assert done.stderr == b"error: standard output is closed; send it to /dev/null instead\n"


def test_what_a_terminal_would_act_on_or_can_not_show_is_not_printed_as_it_is(tmp_path):
    state = State(id="odd", messages=[Message.user("\x1b[31mred\x07 \x9b \u202e 日本")])
    trio.run(FileStore(tmp_path).save, state)

    command = [sys.executable, "-m", "alpineagents", "store", "list", tmp_path]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})

    assert done.stdout.endswith(b"?[31mred? ? ? \\u65e5\\u672c\n")


def test_a_wrong_command_line_is_exit_code_2(capfd):
    code, out, err = run(capfd, "lost")

    assert (code, out) == (2, "")
    assert err.startswith('error: Unknown command "lost". Did you mean "list"?')
    assert err.count("\n") == 1


def test_it_is_a_program_and_a_module_and_a_reader_may_stop_early(folder):
    shell = f"'{sys.executable}' -m alpineagents store export '{folder}' bug-1 | head -c 1"
    assert subprocess.run(shell, shell=True, capture_output=True, check=True).stdout == b"{"
    done = subprocess.run([Path(sys.executable).with_name("alpineagents"), "--help"], capture_output=True, check=True)
    assert b"store" in done.stdout


def test_a_schema_is_named_in_the_address_and_reading_makes_none(folder, capfd, cluster):
    cluster.sql("CREATE DATABASE schemas")
    server = f"postgresql://postgres@127.0.0.1:{cluster.port}/schemas"
    named = "SELECT nspname FROM pg_namespace WHERE nspname IN ('alpineagents', 'app')"

    assert run(capfd, "list", server) == (0, "", "")
    assert run(capfd, "check", f"{server}?schema=app") == (0, "0 States checked, none damaged\n", "")
    assert cluster.sql(named, dbname="schemas") == []

    assert run(capfd, "copy", folder, f"{server}?connect_timeout=9&schema=app")[0] == 0
    assert cluster.sql(named, dbname="schemas") == [("app",)]
    assert run(capfd, "check", f"{server}?schema=app")[1] == "3 States checked, none damaged\n"


def test_a_state_that_went_through_every_store_is_byte_identical(folder, tmp_path, capfd, cluster):
    cluster.sql("CREATE DATABASE trip")
    server = f"postgresql://postgres@127.0.0.1:{cluster.port}/trip"
    back = tmp_path / "back"

    for source, target in [(folder, tmp_path / "trip.db"), (tmp_path / "trip.db", server), (server, back)]:
        assert run(capfd, "copy", source, target)[:2] == (0, "3 States, 14 new entries\n")
        assert run(capfd, "check", target) == (0, "3 States checked, none damaged\n", "")

    for state_id in ("bug-1", "chat", "waiting"):
        assert trio.run(FileStore(back).read, state_id) == trio.run(FileStore(folder).read, state_id)
    assert trio.run(FileStore(back).list) == trio.run(FileStore(folder).list)
