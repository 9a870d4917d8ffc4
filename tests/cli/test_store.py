"""``alpineagents store``, as typed in a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from alpineagents import Agent, FileStore, Image, Message, State, tool
from alpineagents.cli import main
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
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(folder, tmp_path, monkeypatch, capfd, args, said):
    monkeypatch.chdir(tmp_path)

    code, _, err = run(capfd, *[arg.replace("{folder}", str(folder)) for arg in args])

    assert code == 1
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_wrong_command_line_is_exit_code_2(capfd):
    with pytest.raises(SystemExit) as exit_:
        main(["store", "lost"])
    assert exit_.value.code == 2


def test_it_is_a_program_and_a_module_and_a_reader_may_stop_early(folder):
    shell = f"'{sys.executable}' -m alpineagents store export '{folder}' bug-1 | head -c 1"
    assert subprocess.run(shell, shell=True, capture_output=True, check=True).stdout == b"{"
    done = subprocess.run([Path(sys.executable).with_name("alpineagents"), "--help"], capture_output=True, check=True)
    assert b"store" in done.stdout


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
