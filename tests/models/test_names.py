"""Names and ids that a provider takes, whatever a model or another provider made up."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from alpineagents.models._names import sendable_id, sendable_name

TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=80)  # Lone surrogates too.


@given(TEXTS)
@example("read file")
def test_a_name_is_one_that_a_tool_can_have(text):
    name = sendable_name(text)

    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert sendable_name(name) == name


@given(TEXTS, st.integers(20, 64))
@example("call_1", 40)
def test_an_id_that_fits_stays_and_another_is_made_one_that_does(text, limit):
    made = sendable_id(text, limit)

    assert re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{limit}}}", made)
    assert (made == text) == bool(re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{limit}}}", text))


@given(TEXTS)
@example("abcDEF123")
def test_an_id_for_mistral_is_nine_letters_and_digits(text):
    made = sendable_id(text, 9, alphanumeric=True)

    assert re.fullmatch(r"[a-zA-Z0-9]{9}", made)
    assert (made == text) == bool(re.fullmatch(r"[a-zA-Z0-9]{9}", text))


@given(st.lists(TEXTS, unique=True, max_size=20))
@example(["a.b", "a:b", "a_b", ""])
@example(["x" * 70, "x" * 71])
def test_two_ids_never_become_one(texts):
    assert len({sendable_id(text) for text in texts}) == len(texts)
    assert len({sendable_id(text, 9, alphanumeric=True) for text in texts}) == len(texts)
