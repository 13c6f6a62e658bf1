"""The sentences of refusals are for a client of the API: they name requests, never Python or commands."""

from __future__ import annotations

import msgspec
import pytest

from pausepoint import errors
from pausepoint.integrations.words import names_code
from pausepoint.server.bodies import Sessions, Start
from pausepoint.server.calls import decoded, query_of
from pausepoint.server.problems import STATUS, TITLES, Problem, problem_of, status_of
from pausepoint.server.words import LINES, NEXT, detail_of

KINDS = {each.__name__: each for each in vars(errors).values()
         if isinstance(each, type) and issubclass(each, errors.PausepointError)}  # fmt: skip
FIELDS = {"session_id": "one", "question_id": "q", "holder": "process 1", "paths": ["a.md", "b.md"], "owner": "ann"}


@pytest.mark.parametrize("name", sorted({*LINES, *NEXT, *STATUS}))
def test_every_line_is_for_an_error_that_exists_and_reads_well(name: str) -> None:
    kind = KINDS[name]
    error = kind("Something happened. Call engine.session('one').resume(steal=True) or `pausepoint resume`.", **FIELDS)
    said = detail_of(error)
    assert said.endswith((".", "?"))
    assert not names_code(said)
    assert "{" not in said
    assert "Something happened." in said or name in LINES


def test_every_error_of_a_session_or_the_store_has_a_status() -> None:
    for kind in KINDS.values():
        if issubclass(kind, errors.SessionError | errors.StoreError) and kind is not errors.SessionError:
            assert kind in (errors.Parked, errors.QuestionError) or status_of(kind("x.")) in TITLES, kind


def test_a_message_without_code_stays_as_it_is() -> None:
    said = "Question 7 does not accept this answer: it must be one of 'a', 'b'. The session asks again."
    assert detail_of(errors.AnswerRefused(said, session_id="one", question_id="7", reason="x")) == said


@pytest.mark.parametrize(
    "text", ["See engine.sessions().", "Pass steal=True.", "Use `pausepoint ls`.", "Add --target x.", "Call outcome()."]
)
def test_code_is_recognised(text: str) -> None:
    assert names_code(text)


@pytest.mark.parametrize("text", ["List them with GET /inbox.", "Session 'a-1' is paused (by ann).", "Retry in 5 s."])
def test_plain_sentences_are_recognised(text: str) -> None:
    assert not names_code(text)


def test_an_unexpected_error_is_reported_by_an_id_only(caplog: pytest.LogCaptureFixture) -> None:
    found = problem_of(RuntimeError("the password is hunter2"))
    document = found.document("/x")
    assert (found.status, "hunter2" in str(document)) == (500, False)
    assert document["id"] in caplog.text
    assert "hunter2" in caplog.text


def test_places_on_the_disk_are_not_sent() -> None:
    error = errors.StoreReadOnly("The disk is full. Free some space.", path="/secret/store.db", full=True)
    found = problem_of(error)
    assert (found.status, "path" in found.fields) == (507, False)


def test_a_problem_is_its_own_problem() -> None:
    problem = Problem(404, "Nothing is there.")
    assert problem_of(problem) is problem


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "the member 'workflow' is missing."),
        ({"workflow": 7}, "expected str, got int, at 'workflow'."),
        ({"workflow": "x", "by": "eve"}, "it has the unknown member 'by'. The name of the signed-in person is"),
        ({"workflow": "x", "tags": [1]}, "expected str, got int, at 'tags[0]'."),
        ([], "expected object, got array."),
    ],
)
def test_a_body_that_does_not_fit_is_explained_in_a_sentence(body: object, said: str) -> None:
    with pytest.raises(Problem) as refused:
        decoded(lambda: msgspec.json.decode(msgspec.json.encode(body), type=Start), "body")
    assert f"The body is not accepted: {said}" in refused.value.detail


def test_a_query_that_does_not_fit_is_explained_in_a_sentence() -> None:
    for query, said in ((b"status=runing", "'runing' is not one of the known values, at 'status[0]'."),
                        (b"limit=201", "expected int <= 200, at 'limit'.")):  # fmt: skip
        with pytest.raises(Problem) as refused:
            query_of({"query_string": query}, Sessions)
        assert f"The query is not accepted: {said}" in refused.value.detail
