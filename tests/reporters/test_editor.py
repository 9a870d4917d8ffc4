"""What keys make of a line, and what is shown of it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size

from alpineagents.reporters._terminal._editor import Draft, Edit, EndOfInput, Entered, LineEditor, Redraw
from alpineagents.reporters._terminal._splitter import LineSplitter

LEFT, RIGHT, UP, DOWN = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B"
HOME, END, DELETE = "\x1b[H", "\x1b[F", "\x1b[3~"
CTRL_LEFT, CTRL_RIGHT = "\x1b[1;5D", "\x1b[1;5C"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"

EDITING = [
    ("typed", "hello", "hello|"),
    ("letters of other scripts", "héllo 世界 🎉", "héllo 世界 🎉|"),
    ("Backspace", "abc\x7f", "ab|"),
    ("Ctrl+H", "abc\x08", "ab|"),
    ("Backspace at the beginning", f"abc{HOME}\x7f", "|abc"),
    ("Backspace takes the accent with its letter", "ae\u0301\x7f", "a|"),
    ("Backspace takes a family whole", "a👨\u200d👩\u200d👧\x7f", "a|"),
    ("Delete", f"abc{LEFT}{LEFT}{DELETE}", "a|c"),
    ("Delete at the end", f"abc{DELETE}", "abc|"),
    ("Ctrl+D in a line", "abc\x01\x04", "|bc"),
    ("Left and Right", f"abc{LEFT}{LEFT}{RIGHT}x", "abx|c"),
    ("Left over an accent", f"e\u0301{LEFT}x", "x|e\u0301"),
    ("Left at the beginning", f"a{LEFT}{LEFT}{LEFT}x", "x|a"),
    ("Right at the end", f"a{RIGHT}x", "ax|"),
    ("arrows of application mode", "abc\x1bOD\x1bOD\x1bOC", "ab|c"),
    ("Ctrl+B and Ctrl+F", "abc\x02\x02\x06", "ab|c"),
    ("Home and End", f"abc{HOME}x{END}y", "xabcy|"),
    ("Home and End of the Linux console", "abc\x1b[1~x\x1b[4~y", "xabcy|"),
    ("Home and End of rxvt", "abc\x1b[7~x\x1b[8~y", "xabcy|"),
    ("Home and End of application mode", "abc\x1bOHx\x1bOFy", "xabcy|"),
    ("Ctrl+A and Ctrl+E", "abc\x01x\x05y", "xabcy|"),
    ("Ctrl+Left", f"one two{CTRL_LEFT}", "one |two"),
    ("Ctrl+Left twice", f"one, two{CTRL_LEFT}{CTRL_LEFT}", "|one, two"),
    ("Ctrl+Right", f"one, two{HOME}{CTRL_RIGHT}", "one|, two"),
    ("Ctrl+Right twice", f"one, two{HOME}{CTRL_RIGHT}{CTRL_RIGHT}", "one, two|"),
    ("Alt+Left and Alt+Right", "one two\x1b[1;3D\x1b[1;3D\x1b[1;3C", "one| two"),
    ("Shift+Left is Left", "ab\x1b[1;2D", "a|b"),
    ("Alt+B and Alt+F", "one two\x1bb\x1bb\x1bf", "one| two"),
    ("Ctrl+Left and Ctrl+Right of rxvt", "one two\x1bOd\x1bOd\x1bOc", "one| two"),
    ("Ctrl+Left over an accent", f"one cafe\u0301{CTRL_LEFT}", "one |cafe\u0301"),
    ("Ctrl+U", f"one two{LEFT}\x15", "|o"),
    ("Ctrl+K", f"one two{LEFT}\x0b", "one tw|"),
    ("Ctrl+W", "one two-three\x17", "one |"),
    ("Ctrl+W behind blanks", "one two  \x17", "one |"),
    ("Alt+Backspace", "one two-three\x1b\x7f", "one two-|"),
    ("Alt+D", f"one two{HOME}\x1bd", "| two"),
    ("Ctrl+Delete", f"one two{HOME}\x1b[3;5~", "| two"),
    ("Alt+Enter", "one\x1b\rtwo", "one\ntwo|"),
    ("Alt+Enter where Enter is a line feed", "one\x1b\ntwo", "one\ntwo|"),
    ("Shift+Enter where the terminal says so", "one\x1b[13;2utwo\x1b[27;2;13~", "one\ntwo\n|"),
    ("Tab", "a\tb", "ab|"),
    ("pasted", f"a{PASTE}b{PASTED}c", "abc|"),
    ("pasted lines", f"{PASTE}one\rtwo\r\nthree\n{PASTED}", "one\ntwo\nthree\n|"),
    ("a pasted tab stays, other controls don't", f"{PASTE}a\tb\x07\x1b\x9bc{PASTED}", "a\tbc|"),
    ("pasted colours", f"{PASTE}\x1b[1;31mred\x1b[0m{PASTED}", "red|"),
    ("keys in what is pasted aren't pressed", f"{PASTE}a\x04\x17b{PASTED}", "ab|"),
    ("pasted in the middle", f"ad{LEFT}{PASTE}bc{PASTED}", "abc|d"),
    ("F1 to F5", "a\x1bOP\x1b[12~\x1b[[C\x1b[1;2S\x1b[15~b", "ab|"),
    ("Page Up, Insert", "a\x1b[5~\x1b[2~b", "ab|"),
    ("Shift+Tab", "a\x1b[Zb", "ab|"),
    ("Alt with a letter that means nothing", "a\x1bqb", "ab|"),
    ("Escape twice, then Left", "ab\x1b\x1b[D", "a|b"),
    ("a long sequence", f"a\x1b[{'1;' * 200}Ab", "ab|"),
    ("an answer about colours", "a\x1b]11;rgb:0000/0000/0000\x07b\x1b]10;rgb:ff/ff/ff\x1b\\c", "abc|"),
    ("a device status", "a\x1bP>|XTerm(390)\x1b\\b\x1b[?62;22cc", "abc|"),
    ("a mouse that is reported", "a\x1b[<0;10;20Mb", "ab|"),
    ("a sequence that is broken off by a letter of another script", "a\x1b[1éb", "aéb|"),
    ("a sequence that is broken off by a key", "ab\x1b[1\x7f", "a|"),
    ("a sequence in a sequence", f"ab\x1b[1{LEFT}", "a|b"),
    ("the Linux console's, broken off", "ab\x1b[[\x7f", "a|"),
    ("one of the keypad's, broken off", "ab\x1bO5\x7f", "a|"),
    ("bytes that are not UTF-8", b"a\xff\xc3b", "a\ufffd\ufffdb|"),
]


def keys(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def edits(editor: LineEditor | LineSplitter, parts: Iterable[bytes]) -> list[Edit]:
    """Return what the keys did, used as who reads a keyboard uses it."""
    found = []
    for part in parts:
        edit = editor.feed(part)
        while edit is not None:
            found.append(edit)
            edit = editor.feed(b"")
    return found


def with_cursor(editor: LineEditor) -> str:
    return f"{editor.text[: editor.cursor]}|{editor.text[editor.cursor :]}"


def edited(*parts: str | bytes) -> LineEditor:
    editor = LineEditor()
    assert edits(editor, map(keys, parts)) == []
    return editor


@pytest.mark.parametrize(("typed", "line"), [case[1:] for case in EDITING], ids=[case[0] for case in EDITING])
def test_editing(typed, line):
    assert with_cursor(edited(typed)) == line


@pytest.mark.parametrize(("typed", "line"), [case[1:] for case in EDITING], ids=[case[0] for case in EDITING])
def test_editing_by_the_byte(typed, line):
    data = keys(typed)

    assert with_cursor(edited(*[data[at : at + 1] for at in range(len(data))])) == line


@pytest.mark.parametrize("enter", ["\r", "\n", "\x1bOM", "\x1b[13u"])
def test_enter_gives_the_line_and_begins_another(enter):
    editor = LineEditor()

    assert edits(editor, [keys(f"one{LEFT}{enter}two")]) == [Entered("one")]
    assert editor.draft == Draft("two", 3)


def test_what_is_typed_ahead_waits_for_who_reads_on():
    """A question that is put behind the first line is answered by the second."""
    editor = LineEditor()

    assert editor.feed(b"hello\ryes\rhalf") == Entered("hello")
    assert editor.text == ""
    assert editor.feed(b"") == Entered("yes")
    assert editor.feed(b"") is None
    assert editor.text == "half"


def test_ctrl_d_on_an_empty_line_is_the_end_of_input():
    assert edits(LineEditor(), [b"a\x7f\x04"]) == [EndOfInput()]
    assert LineEditor().end() == EndOfInput()


def test_ctrl_l_asks_for_the_screen_to_be_drawn():
    editor = LineEditor()

    assert edits(editor, [b"ab\x0c"]) == [Redraw()]
    assert editor.text == "ab"


def test_a_draft_is_put_aside_for_a_question():
    editor = edited(f"half typed{LEFT}")
    kept, editor.draft = editor.draft, Draft()

    assert edits(editor, [b"yes\r"]) == [Entered("yes")]
    editor.draft = kept
    assert with_cursor(editor) == "half type|d"


def test_a_drafts_cursor_is_in_its_text():
    editor = LineEditor()

    editor.draft = Draft("abc", 100)
    assert editor.cursor == 3
    editor.draft = Draft("e\u0301x", 1)
    assert editor.cursor == 2


def test_what_was_typed_is_forgotten_but_that_a_paste_is_under_way():
    """Else what is left of it would be keys, an Enter among them."""
    editor = LineEditor()
    editor.feed(keys(f"one\rtwo\r{PASTE}three"))
    editor.clear()

    assert editor.feed(keys("four\r" + PASTED)) is None
    assert editor.draft.text == "threefour\n"


def entering(*lines: str) -> LineEditor:
    editor = LineEditor()
    for line in lines:
        editor.remember(line)
    return editor


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (UP, "two|"),
        (UP * 2, "one|"),
        (UP * 9, "one|"),
        (f"new{UP}{UP}{DOWN}", "two|"),
        (f"new{UP}{UP}{DOWN}{DOWN}", "new|"),
        (f"new{UP}{DOWN}{DOWN}{DOWN}", "new|"),
        (f"{UP}x{UP}{DOWN}", "two|"),
        ("\x10\x10\x0e", "two|"),
    ],
)
def test_what_was_entered_is_found_again(typed, line):
    editor = entering("one", "two", "two", "  ")

    assert edits(editor, [keys(typed)]) == []
    assert with_cursor(editor) == line


def test_a_line_found_again_is_entered():
    editor = entering("one", "two")

    assert edits(editor, [keys(f"{UP}{UP}!\r")]) == [Entered("one!")]
    assert edits(editor, [keys(UP)]) == []
    assert editor.text == "two"


SHOWN = [
    ("abc|", 10, "abc", 3),
    ("ab|c", 10, "abc", 2),
    ("abc|", 4, "abc", 3),
    ("ab|c", 3, "abc", 2),
    ("世界|", 10, "世界", 4),
    ("e\u0301|x", 10, "e\u0301x", 1),
    ("one\ntwo\tx|", 20, "one↵two x", 9),
    ("0123456789abc|", 10, "…6789abc", 8),
    ("|0123456789abc", 10, "01234567…", 0),
    ("01234567|89abcdef", 10, "…23456789…", 7),
    ("0123456789abc|", 4, "abc", 3),
    ("|世界", 1, "", 0),
    ("abc|", 0, "", 0),
]


@pytest.mark.parametrize(("line", "width", "text", "cursor"), SHOWN)
def test_what_is_shown(line, width, text, cursor):
    editor = LineEditor()
    before, _, after = line.partition("|")
    editor.draft = Draft(before + after, len(before))

    shown = editor.shown(width)

    assert (shown.text, shown.cursor) == (text, cursor)


PIECES = st.one_of(
    st.binary(max_size=8),
    st.text(max_size=8).map(str.encode),
    st.sampled_from([keys(typed) for _, typed, _ in EDITING]),
    st.sampled_from([LEFT, UP, DOWN, HOME, CTRL_LEFT, PASTE, PASTED, "\r", "\x04", "\x0c", "\x1b", "\x1b["]).map(keys),
)
BYTES = st.lists(PIECES, max_size=12).map(b"".join)


def split(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return *data* in parts."""
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(BYTES, st.lists(st.integers(0, 1000), max_size=12))
@example(keys(f"{PASTE}世\r\n{PASTED}\r"), list(range(100)))
def test_any_split_of_the_bytes_gives_the_same(data, places):
    whole, parted = entering("one", "two"), entering("one", "two")

    assert edits(whole, [data]) == edits(parted, split(data, places))
    assert whole.draft == parted.draft


@given(BYTES, st.integers(1, 100))
def test_what_is_shown_fits_and_holds_the_cursor(data, width):
    editor = LineEditor()
    for at in range(len(data)):
        edits(editor, [data[at : at + 1]])
        shown = editor.shown(width)

        assert 0 <= editor.cursor <= len(editor.text)
        assert 0 <= shown.cursor < width
        assert cells(shown.text) <= width
        assert all(unicodedata.category(char) != "Cc" for char in shown.text)
        assert all(char in "\n\t" or unicodedata.category(char) != "Cc" for char in editor.text)


def cells(text: str) -> int:
    return sum(map(get_character_cell_size, text))


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.text(st.characters(exclude_categories=["Cc", "Cs"])))
@example("two", "👨\u200d👩\u200d")
def test_typing_in_front_of_a_text_is_inserting(text, typed):
    editor = LineEditor()
    editor.draft = Draft(text, 0)

    assert edits(editor, [typed.encode()]) == []
    assert with_cursor(editor) == f"{typed}|{text}"


@given(BYTES, st.sampled_from([LEFT, RIGHT, CTRL_LEFT, CTRL_RIGHT, DELETE, "\x17"]))
def test_no_key_moves_into_a_character(data, key):
    editor = LineEditor()
    edits(editor, [data, keys(PASTED)])
    edits(editor, [keys(key)])

    rest = editor.text[editor.cursor :]
    assert not rest or not editor.cursor or rest[0] in "\n\t" or cells(rest[0]) > 0


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))), st.booleans())
def test_lines_of_a_pipe(lines, is_ended):
    """The last needs no end; a carriage return before a line's end goes with it."""
    data = "\n".join([*lines, ""] if is_ended else lines).encode()
    splitter = LineSplitter()

    found = edits(splitter, [data[at : at + 1] for at in range(len(data))])
    while found[-1:] != [EndOfInput()]:
        found.append(splitter.end())

    wanted = lines if is_ended or lines[-1:] != [""] else lines[:-1]
    assert found == [*[Entered(line.removesuffix("\r")) for line in wanted], EndOfInput()]


def test_a_pipe_that_is_no_utf_8():
    splitter = LineSplitter()

    assert edits(splitter, [b"a\xff\nb\xc3"]) == [Entered("a\ufffd")]
    assert [splitter.end(), splitter.end(), splitter.end()] == [Entered("b\ufffd"), EndOfInput(), EndOfInput()]


def test_lines_that_nobody_has_taken_come_before_the_end():
    splitter = LineSplitter()

    assert splitter.feed(b"one\ntwo\nthree") == Entered("one")
    assert [splitter.end(), splitter.end(), splitter.end()] == [Entered("two"), Entered("three"), EndOfInput()]
