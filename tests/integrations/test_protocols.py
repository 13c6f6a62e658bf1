"""Questions in the shapes of other protocols, and their answers back."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from pausepoint.integrations.ag_ui import ag_ui_outcome, from_ag_ui, from_ag_ui_resume, to_ag_ui
from pausepoint.integrations.answers import Said
from pausepoint.integrations.langchain import from_langchain, to_langchain
from pausepoint.integrations.mcp import from_mcp, to_mcp
from pausepoint.model.questions import Question
from pausepoint.model.sessions import QuestionStatus

ADDRESS = {
    "type": "object",
    "title": "Address",
    "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["street"],
}
NESTED = {"type": "object", "properties": {"at": ADDRESS}}
NOW = datetime(2026, 2, 28, tzinfo=UTC)


def made(**changes: Any) -> Question:
    values: dict[str, Any] = {
        "id": "q1", "session_id": "s", "workflow_id": "w", "sub_chain_id": None, "llm_node_id": "serve",
        "pause_reason": "WAITING_USER_INPUT", "current_round": 1, "max_rounds": 5, "next_question": "Well?",
        "status": QuestionStatus.WAITING, "created_at": NOW, "updated_at": NOW, "expired_at": None, "digest": "d1",
    }  # fmt: skip
    return Question(**(values | changes))


TEXT = made()
CONFIRM = made(kind="confirm", pending_tool_id="pay", pending_tool_name="pay")
COLLECT = made(
    kind="collect", answer_schema=ADDRESS, pending_tool_id="t1", pending_tool_name="change",
    collected_params_json='{"street":"Quay"}', current_round=2, complaint="number: missing",
)  # fmt: skip


# AG-UI


INTERRUPT = {
    "id": str, "reason": str, "message": str, "toolCallId": str, "responseSchema": dict, "expiresAt": str,
    "metadata": dict,
}  # fmt: skip
"""The fields of an interrupt in AG-UI, as of its core package 0.0.58; all but the first two may be missing."""


def test_a_question_is_an_interrupt() -> None:
    found = to_ag_ui(made(expired_at=NOW, answer_schema=ADDRESS, pending_tool_id="t1", complaint="no"))
    assert found == {
        "id": "q1", "reason": "input_required", "message": "Well?", "responseSchema": ADDRESS, "toolCallId": "t1",
        "expiresAt": "2026-02-28T00:00:00+00:00",
        "metadata": {"pausepoint": {"digest": "d1", "round": 1, "rounds": 5, "complaint": "no"}},
    }  # fmt: skip
    assert to_ag_ui(TEXT)["responseSchema"] == {"type": "string"}
    assert to_ag_ui(made(answer_schema={}))["responseSchema"] == {}
    assert {"toolCallId", "expiresAt"} & to_ag_ui(TEXT).keys() == set()


@pytest.mark.parametrize("question", [TEXT, CONFIRM, COLLECT, made(expired_at=NOW, answer_schema=NESTED)])
def test_an_interrupt_has_the_fields_of_the_protocol_and_no_others(question: Question) -> None:
    found = to_ag_ui(question)
    assert found.keys() >= {"id", "reason"}
    assert all(isinstance(value, INTERRUPT[name]) for name, value in found.items())


def test_a_decision_about_a_call_says_which_and_one_about_a_mere_name_does_not() -> None:
    bound = to_ag_ui(made(kind="confirm", pending_tool_id="call-7", pending_tool_name="pay"))
    assert (bound["reason"], bound["toolCallId"]) == ("tool_call", "call-7")
    free = to_ag_ui(CONFIRM)
    assert (free["reason"], free["metadata"]["pausepoint"]["tool"]) == ("confirmation", "pay")
    assert "toolCallId" not in free
    assert to_ag_ui(COLLECT)["toolCallId"] == "t1"


def test_open_questions_are_the_outcome_of_a_turn() -> None:
    assert ag_ui_outcome([]) == {"type": "success"}
    outcome = ag_ui_outcome([TEXT, CONFIRM])
    assert (outcome["type"], len(outcome["interrupts"])) == ("interrupt", 2)


@pytest.mark.parametrize(
    ("question", "entry", "said"),
    [
        (TEXT, {"status": "resolved", "payload": "so"}, Said("q1", "so")),
        (COLLECT, {"status": "resolved", "payload": {"number": 7}}, Said("q1", {"number": 7})),
        (CONFIRM, {"status": "resolved", "payload": {"approved": True}}, Said("q1", {"approved": True})),
        (CONFIRM, {"status": "resolved", "payload": {"approved": False}}, Said("q1", {"approved": False})),
        (TEXT, {"status": "resolved", "payload": "so", "metadata": {"pausepoint": {"digest": "d1"}}},
         Said("q1", "so", "d1")),
        (TEXT, {"status": "resolved", "payload": "so", "metadata": {"other": 1}}, Said("q1", "so")),
        (CONFIRM, {"status": "cancelled"}, None),
        (TEXT, {"status": "cancelled"}, None),
    ],
)  # fmt: skip
def test_a_resume_entry_is_an_answer(question: Question, entry: dict[str, Any], said: Said | None) -> None:
    assert from_ag_ui(question, entry | {"interruptId": "q1"}) == said


def test_an_entry_for_another_interrupt_or_of_no_known_status_is_refused() -> None:
    with pytest.raises(ValueError, match="answers 'q2', not question q1"):
        from_ag_ui(TEXT, {"interruptId": "q2", "status": "resolved"})
    with pytest.raises(ValueError, match="Use 'resolved' or 'cancelled'"):
        from_ag_ui(TEXT, {"interruptId": "q1", "status": "maybe"})


def test_a_resume_addresses_every_open_interrupt_and_no_other() -> None:
    other = made(id="q2")
    so, nothing = {"interruptId": "q1", "status": "resolved", "payload": "so"}, {"status": "cancelled"}
    assert from_ag_ui_resume([TEXT, other], [so, {"interruptId": "q2", **nothing}]) == [Said("q1", "so")]
    with pytest.raises(ValueError, match="does not address q2"):
        from_ag_ui_resume([TEXT, other], [so])
    with pytest.raises(ValueError, match="addresses 'q3', which is not open"):
        from_ag_ui_resume([TEXT], [so, {"interruptId": "q3", **nothing}])


# MCP

ABOUT = {"type", "title", "description"}
FORM_FIELDS = {
    "2025-06-18": {
        "string": {*ABOUT, "minLength", "maxLength", "format", "enum", "enumNames"},
        "number": {*ABOUT, "minimum", "maximum"},
        "integer": {*ABOUT, "minimum", "maximum"},
        "boolean": {*ABOUT, "default"},
    },
}
"""What a field of a form may say, by version of MCP. Later versions add defaults, titled and multiple choices."""
FORM_FIELDS["2025-11-25"] = {kind: {*names, "default"} for kind, names in FORM_FIELDS["2025-06-18"].items()}
FORM_FIELDS["2026-07-28"] = FORM_FIELDS["2025-11-25"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Booking(BaseModel):
    """As rich as a flat model can be."""

    name: str = Field(min_length=1, max_length=80, pattern="^[A-Z]", description="who it is for")
    on: date
    at: time
    mail: str = Field(json_schema_extra={"format": "email"})
    guests: int = Field(gt=0, le=12)
    price: float | None = None
    colour: Colour
    second: Colour | None = None
    size: Literal[1, 2]
    sure: bool
    only: Literal["this"]


@pytest.mark.parametrize("version", FORM_FIELDS)
def test_a_form_says_only_what_the_protocol_has(version: str) -> None:
    form = to_mcp(made(answer_schema=Booking.model_json_schema()))["requestedSchema"]
    fields = form["properties"]
    assert fields.keys() == Booking.model_fields.keys()
    for field in fields.values():
        assert field.keys() <= FORM_FIELDS[version][field["type"]]
        assert field.get("format", "date") in ("email", "uri", "date", "date-time")
        assert all(type(each) is str for each in field.get("enum", ()))
    assert (fields["guests"]["maximum"], fields["on"]["format"], fields["price"]["type"]) == (12, "date", "number")
    assert (fields["colour"]["enum"], fields["second"]["enum"]) == (["red", "blue"], ["red", "blue"])
    assert (fields["size"]["enum"], fields["only"]["enum"]) == (["1", "2"], ["this"])
    assert set(form["required"]) == Booking.model_fields.keys() - {"price", "second"}


def test_what_has_parts_of_its_own_is_a_text_of_json() -> None:
    class Tagged(BaseModel):
        tags: list[str]

    for schema in (Tagged.model_json_schema(), {"type": "array", "items": {"type": "string"}}, {}):
        form = to_mcp(made(answer_schema=schema))["requestedSchema"]
        assert form["properties"] == {"answer": {"type": "string", "description": "JSON"}}


@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        (None, {"answer": {"type": "string"}}, ["answer"]),
        ({"type": "integer"}, {"answer": {"type": "integer"}}, ["answer"]),
        ({"enum": ["a", 1]}, {"answer": {"type": "string", "enum": ["a", "1"]}}, ["answer"]),
        (ADDRESS, ADDRESS["properties"], ["street"]),
        (NESTED, {"answer": {"type": "string", "description": "JSON"}}, ["answer"]),
    ],
    ids=["text", "number", "choices", "model", "nested"],
)
def test_a_question_is_an_elicitation_with_a_flat_form(schema: Any, properties: Any, required: list[str]) -> None:
    found = to_mcp(made(answer_schema=schema))
    assert (found["mode"], found["message"]) == ("form", "Well?")
    assert found["requestedSchema"] == {"type": "object", "properties": properties, "required": required}


@pytest.mark.parametrize(
    ("question", "result", "said"),
    [
        (TEXT, {"action": "accept", "content": {"answer": "so"}}, Said("q1", "so", "d1")),
        (COLLECT, {"action": "accept", "content": {"number": 7}}, Said("q1", {"number": 7}, "d1")),
        (made(answer_schema={"enum": ["a", 1]}), {"action": "accept", "content": {"answer": "1"}}, Said("q1", 1, "d1")),
        (
            made(answer_schema=Booking.model_json_schema()),
            {"action": "accept", "content": {"size": "2", "only": "this", "second": "red", "guests": 3}},
            Said("q1", {"size": 2, "only": "this", "second": "red", "guests": 3}, "d1"),
        ),
        (CONFIRM, {"action": "decline"}, Said("q1", {"approved": False, "reason": ""})),
        (TEXT, {"action": "decline"}, None),
        (CONFIRM, {"action": "cancel"}, None),
    ],
)
def test_an_elicitation_result_is_an_answer(question: Question, result: dict[str, Any], said: Said | None) -> None:
    assert from_mcp(question, result) == said


def test_the_reason_for_asking_again_is_shown_and_unknown_actions_are_refused() -> None:
    assert to_mcp(COLLECT)["message"] == "Well? (number: missing)"
    with pytest.raises(ValueError, match="Use 'accept', 'decline' or 'cancel'"):
        from_mcp(TEXT, {"action": "later"})


# LangChain


def test_a_question_is_a_review_request() -> None:
    assert to_langchain(COLLECT) == {
        "action_requests": [{"name": "change", "args": {"street": "Quay"}, "description": "Well?"}],
        "review_configs": [{"action_name": "change", "allowed_decisions": ["edit", "respond"]}],
    }
    assert to_langchain(CONFIRM)["review_configs"][0]["allowed_decisions"] == ["approve", "reject"]
    assert to_langchain(TEXT)["action_requests"][0]["name"] == "serve"


@pytest.mark.parametrize(
    ("question", "decision", "said"),
    [
        (CONFIRM, {"type": "approve"}, Said("q1", {"approved": True})),
        (CONFIRM, {"type": "reject", "message": "too dear"}, Said("q1", {"approved": False, "reason": "too dear"})),
        (
            COLLECT,
            {"type": "edit", "edited_action": {"name": "change", "args": {"number": 7}}},
            Said("q1", {"number": 7}),
        ),
        (TEXT, {"type": "respond", "message": "so"}, Said("q1", "so")),
        (TEXT, {"type": "reject"}, None),
    ],
)
def test_a_decision_is_an_answer(question: Question, decision: dict[str, Any], said: Said | None) -> None:
    assert from_langchain(question, decision) == said


@pytest.mark.parametrize(
    ("question", "kind"), [(TEXT, "approve"), (CONFIRM, "edit"), (CONFIRM, "respond"), (TEXT, "x")]
)
def test_a_decision_that_does_not_fit_the_question_is_refused(question: Question, kind: str) -> None:
    with pytest.raises(ValueError, match=r"Question q1 .* does not take the decision"):
        from_langchain(question, {"type": kind})
