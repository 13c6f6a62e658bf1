"""Session ids are short, random, and safe as folder names."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.errors import InvalidSessionId
from pausepoint.model.ids import check_session_id, new_session_id


def test_a_new_id_is_legal_short_and_hard_to_misread() -> None:
    for _ in range(200):
        made = new_session_id()
        assert check_session_id(made) == made
        assert len(made) == 12
        assert not set(made) & set("ilouILOU")


def test_new_ids_do_not_repeat_and_differ_from_the_first_character_on() -> None:
    made = [new_session_id() for _ in range(2_000)]
    assert len(set(made)) == len(made)
    assert len({each[0] for each in made}) == 32


@pytest.mark.parametrize("text", ["a", "7", "student-7", "A.b_c@d:e+f-g", "x" * 128, "a.b.c"])
def test_an_id_that_a_person_would_choose_is_taken_as_it_is(text: str) -> None:
    assert check_session_id(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "a b",
            "../x",
            "a/../b",
            "a..b",
            "/etc",
            "a/b",
            "a\\b",
            ".hidden",
            "-x",
            "_x",
            "x\n",
            "x\0",
            "é",
            "٣",
        ),
        *("x" * 129, None, 7, b"a", ["a"]),
    ],
    ids=repr,
)
def test_what_cannot_be_an_id_is_refused_with_the_rule(text: object) -> None:
    with pytest.raises(InvalidSessionId, match=r"is not a valid session id\. Use 1 to 128 letters") as refused:
        check_session_id(text)
    assert refused.value.session_id == str(text)


@given(st.text(max_size=140) | st.text("ab./\\:@+-_~", max_size=12))
def test_an_accepted_id_can_never_leave_its_folder(text: str) -> None:
    try:
        accepted = check_session_id(text)
    except InvalidSessionId:
        return
    assert PurePosixPath(accepted).parts == (accepted,)
    assert "\\" not in accepted
    assert ".." not in PureWindowsPath(accepted).parts
    assert accepted.isascii()
    assert 1 <= len(accepted) <= 128


def test_a_huge_id_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidSessionId) as refused:
        check_session_id("x" * 10_000_000)
    assert len(str(refused.value)) < 300
    assert len(refused.value.session_id) <= 1000
