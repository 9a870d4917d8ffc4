"""What a docstring says, in the three forms that people write."""

from __future__ import annotations

import pytest

from alpineagents.tools._docstring import Documentation, read_docstring

GOOGLE = """
Find files.

More about it.

Args:
    pattern (str): A glob, such as
        ``*.py``: relative.

        It may be long.
    limit: At most this many.
    odd (dict[str, (int)]): Nested.
    nothing:
    *rest: More.

Returns:
    result: Not a parameter.
"""

NUMPY = """Find files.

Parameters
----------
pattern : str, optional
    A glob, such as
    ``*.py``.
low, high : int
    A range.
bare
    No type.

Returns
-------
result : list
    Not a parameter.
"""

SPHINX = """Find files.

:param pattern: A glob, such as
    ``*.py``.
:param int limit: At most this many.
:type pattern: str
:returns: Not a parameter.
"""


def test_google_sections_are_read() -> None:
    assert read_docstring(GOOGLE) == Documentation(
        "Find files.",
        {
            "pattern": "A glob, such as ``*.py``: relative. It may be long.",
            "limit": "At most this many.",
            "odd": "Nested.",
            "rest": "More.",
        },
    )


def test_numpy_sections_are_read() -> None:
    assert read_docstring(NUMPY) == Documentation(
        "Find files.",
        {"pattern": "A glob, such as ``*.py``.", "low": "A range.", "high": "A range.", "bare": "No type."},
    )


def test_sphinx_fields_are_read() -> None:
    assert read_docstring(SPHINX) == Documentation(
        "Find files.", {"pattern": "A glob, such as ``*.py``.", "limit": "At most this many."}
    )


@pytest.mark.parametrize(
    ("docstring", "summary"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("Two\n    lines.\n\n    More.", "Two lines."),
        ("Args:\n    x: Y.", ""),
        ("Do it.\nArgs:\n    x: Y.", "Do it."),
        ("Do it.\n:param x: Y.", "Do it."),
        ("Do it.\nParameters\n----------\nx\n    Y.", "Do it."),
        ("Beware: this ends in a colon:\nand goes on.", "Beware: this ends in a colon: and goes on."),
    ],
)
def test_the_summary_is_the_first_paragraph_before_any_section(docstring: str | None, summary: str) -> None:
    assert read_docstring(docstring).summary == summary


def test_a_section_inside_an_indented_block_is_no_section() -> None:
    assert read_docstring("Do it.\n\n    Args:\n        x: Y.\n\nEnd.").parameters == {}


def test_a_field_without_a_name_is_passed_over() -> None:
    assert read_docstring("Do it.\n\n:param: nothing\n:param  : nothing").parameters == {"": "nothing"}
