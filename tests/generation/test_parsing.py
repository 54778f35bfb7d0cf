"""Tests of parsing replies in many forms."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.generation.parsing import (
    AnswerPieces,
    ParsedAnswer,
    answer_so_far,
    choice_text,
    find_choice,
    is_not_answerable,
    parse_answer,
)

FORMS = {
    "as asked": ('{"answer": "42 million", "pages": ["3"]}', "42 million", ("3",)),
    "in a code fence": ('```json\n{"answer": "42", "pages": ["3"]}\n```', "42", ("3",)),
    "with stray text around": ('Sure!\n{"answer": "42", "pages": [3]} Hope it helps', "42", ("3",)),
    "a number": ('{"answer": 42.5, "pages": [3]}', "42.5", ("3",)),
    "yes or no as JSON has it": ('{"answer": true, "pages": []}', "true", ()),
    "a list": ('{"answer": ["A", "B"], "pages": [1, 2]}', "A, B", ("1", "2")),
    "an object": ('{"answer": {"2023": 5, "2024": 6}, "pages": []}', "2023: 5, 2024: 6", ()),
    "one page instead of a list": ('{"answer": "x", "pages": 7}', "x", ("7",)),
    "pages in words": ('{"answer": "x", "pages": ["page 7", "p. 9", "7"]}', "x", ("7", "9")),
    "pages of several documents": (
        '{"answer": "x", "pages": ["2:7", "[page 1:3]"]}',
        "x",
        ("2:7", "1:3"),
    ),
    "without pages": ('{"answer": "x"}', "x", ()),
    "several objects": (
        '{"answer": "a", "pages": [1]}\n{"answer": "b", "pages": [2]}',
        "b",
        ("2",),
    ),
    "another object before it": ('{"note": {"x": 1}} {"answer": "b", "pages": [2]}', "b", ("2",)),
    "after its thoughts": (
        '<think>{"answer": "no"}</think>{"answer": "yes", "pages": []}',
        "yes",
        (),
    ),
    "with line ends inside": ('{"answer": "one\ntwo", "pages": []}', "one\ntwo", ()),
    "a brace in stray text": ('{well} {"answer": "x", "pages": []}', "x", ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_is_found_in_every_form(form: str) -> None:
    reply, text, pages = FORMS[form]
    assert parse_answer(reply) == ParsedAnswer(text, pages, well_formed=True)


CODE = "Run this [1]:\n\n```bash\nmake demo\n```\n\nThen open the page [1]."


def test_code_blocks_inside_an_answer_are_kept() -> None:
    assert parse_answer(CODE).text == CODE
    assert parse_answer(f"```markdown\n{CODE.partition('```')[0]}```").text == "Run this [1]:"


@pytest.mark.parametrize(
    "reply",
    [
        '{"answer": "Not answerable", "pages": []}',
        '{"answer": "not answerable.", "pages": [3]}',
        '{"answer": null, "pages": []}',
        '{"answer": "", "pages": []}',
        "Not answerable",
        "",
    ],
)
def test_a_reply_without_an_answer_has_no_text_and_no_pages(reply: str) -> None:
    parsed = parse_answer(reply)
    assert (parsed.text, parsed.pages) == ("", ())


@pytest.mark.parametrize(
    ("reply", "text", "well_formed"),
    [
        ('{"Answer": "42 million"}', "42 million", True),
        ('```json\n{"Answer": ["A", "B"]}\n```', "A, B", True),
        ('{"Answer": "The rate rose', "The rate rose", False),
        ("Forty-two.", "Forty-two.", False),
        # The prompt offers no refusal: what the model writes of its own accord is its answer.
        ('{"Answer": "Not answerable"}', "Not answerable", True),
        ('{"Answer": ""}', "", True),
    ],
)
def test_a_reply_to_the_papers_prompt_is_always_an_answer(
    reply: str, text: str, well_formed: bool
) -> None:
    assert parse_answer(reply, may_refuse=False) == ParsedAnswer(text, (), well_formed)


def test_a_plain_reply_is_the_answer() -> None:
    assert parse_answer("Forty-two.") == ParsedAnswer("Forty-two.", (), well_formed=False)


def test_the_answer_is_found_in_an_object_that_is_cut_off() -> None:
    cut = '{"answer": "The rate rose to \\"19 %\\" in'
    assert parse_answer(cut) == ParsedAnswer('The rate rose to "19 %" in', (), well_formed=False)


def test_control_characters_are_removed_from_answers() -> None:
    reply = json.dumps({"answer": "a\x1b[2Jb\x07\u202ec\x9b", "pages": []})
    assert parse_answer(reply).text == "a[2Jbc"


def test_deeply_nested_replies_are_parsed() -> None:
    assert parse_answer('{"a":' * 5000).well_formed is False


@given(st.text())
def test_any_reply_can_be_parsed(reply: str) -> None:
    parse_answer(reply)
    answer_so_far(reply)


@given(st.text(), st.lists(st.integers(1, 999), unique=True), st.text(alphabet="ab \n`"))
def test_well_formed_replies_are_parsed_exactly(text: str, pages: list[int], around: str) -> None:
    parsed = parse_answer(around + json.dumps({"answer": f"is {text}", "pages": pages}) + around)
    assert parsed.well_formed
    assert parsed.pages == tuple(map(str, pages))


@given(st.text(alphabet=st.characters(categories=["L", "N"]), min_size=1))
def test_the_streamed_text_grows_to_the_answer(text: str) -> None:
    reply = json.dumps({"answer": text, "pages": []})
    steps = [answer_so_far(reply[:end]) for end in range(len(reply) + 1)]
    assert steps[-1] == text
    assert all(before == after[: len(before)] for before, after in pairwise(steps))


SHOWN = {
    "text before the object": ('Sure: {"answer": "42", "pages": []}', "Sure:\n42"),
    "in a code fence": ('```json\n{"answer": "a b", "pages": []}\n```', "a b"),
    "after its thoughts": ('<think>hm {"answer": "x</think>{"answer": "yes"}', "yes"),
    "a number": ('{"answer": 42, "pages": [1]}', "42"),
    "pages first": ('{"pages": [1], "answer": "42"}', "42"),
    "corrected": ('{"answer": "a"} {"answer": "b"}', "a\nb"),
    "plain, with signs of JSON": ("f(x) = {x < 3} `y`", "f(x) = {x < 3} `y`"),
    "escapes": (r'{"answer": "a\n\u00e9\ud83c\udf89\"", "pages": []}', 'a\né🎉"'),
    "no answer": ('{"answer": "Not answerable", "pages": []}', "Not answerable"),
    "after text, in a code fence": ('Sure: ```json\n{"answer": "42"}\n```', "Sure:\n42"),
    "code": (CODE, CODE),
    "nothing to act upon": (r'{"answer": "a\u001b[2J\u202eb"}', "a[2Jb"),
}


@pytest.mark.parametrize("case", SHOWN)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_of_a_reply_become_pieces_of_its_answer(case: str, size: int) -> None:
    reply, shown = SHOWN[case]
    answer = AnswerPieces()
    pieces = [answer.add(reply[at : at + size]) for at in range(0, len(reply), size)]
    whole = "".join([*pieces, answer.end(parse_answer(reply).text)])
    # A reply in one piece has nothing to replace.
    assert whole == shown or (size > 1 and shown.endswith(f"\n{whole}"))


@given(st.text(alphabet='ab {}"\\\n:`<think>answer'))
def test_the_streamed_text_ends_with_the_answer(reply: str) -> None:
    answer, text = AnswerPieces(), parse_answer(reply).text
    shown = "".join(map(answer.add, reply)) + answer.end(text)
    assert shown.endswith(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Not answerable", True),
        ("The question cannot be answered from the given pages.", True),
        ("This question can't be answered.", True),
        ("unanswerable", True),
        (" - ", True),
        ("", True),
        ("None", False),
        ("N/A", False),
        ("Not answerable in 1994, but 4 later", False),
        ("0", False),
    ],
)
def test_texts_without_an_answer_are_recognized(text: str, expected: bool) -> None:
    assert is_not_answerable(text) is expected


VERDICTS = ("correct", "incorrect")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('```json\n{"choice": "correct"}\n```', "correct"),
        ('<think>{"choice": "incorrect"}?</think>{"choice": "correct"}', "correct"),
        ('{"reason": "{x", "choice": "incorrect"}', "incorrect"),
        ("**Correct**", "correct"),
        ("not correct", None),
        ('{"choice": "correct"} or {"choice": "incorrect"}', None),
        ('{"choice": ["correct"]}', None),
        ("{" * 20_000, None),
        ('{"a":' * 9_000, None),
    ],
)
def test_choices_are_found_in_replies(said: str, found: str | None) -> None:
    assert find_choice(said, VERDICTS) == found


@given(st.lists(st.text('ab {}"\\\n:é', min_size=1), min_size=1, unique=True), st.data())
def test_every_choice_round_trips(choices: list[str], data: st.DataObject) -> None:
    """Choices can contain any JSON syntax."""
    choice = data.draw(st.sampled_from(choices))
    assert find_choice(choice_text(choice), choices) == choice
