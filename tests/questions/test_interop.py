"""Questions in the shapes of other protocols, and their answers back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.interop import Said, ag_ui_outcome, from_ag_ui, from_langchain, from_mcp, to_ag_ui, to_langchain, to_mcp
from holdfast.model import QuestionStatus
from holdfast.questions import Question

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


def test_a_question_is_an_interrupt() -> None:
    found = to_ag_ui(made(expired_at=NOW, answer_schema=ADDRESS, pending_tool_id="t1", complaint="no"))
    assert found == {
        "id": "q1", "reason": "input_required", "message": "Well?", "responseSchema": ADDRESS, "toolCallId": "t1",
        "expiresAt": "2026-02-28T00:00:00+00:00", "metadata": {"digest": "d1", "round": 1, "complaint": "no"},
    }  # fmt: skip
    assert to_ag_ui(TEXT)["responseSchema"] == {"type": "string"}
    assert to_ag_ui(CONFIRM)["reason"] == "confirmation"
    assert {"toolCallId", "expiresAt"} & to_ag_ui(TEXT).keys() == set()


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
        (CONFIRM, {"status": "cancelled"}, Said("q1", {"approved": False, "reason": ""})),
        (TEXT, {"status": "cancelled"}, None),
    ],
)
def test_a_resume_entry_is_an_answer(question: Question, entry: dict[str, Any], said: Said | None) -> None:
    assert from_ag_ui(question, entry | {"interruptId": "q1"}) == said


def test_an_entry_for_another_interrupt_or_of_no_known_status_is_refused() -> None:
    with pytest.raises(ValueError, match="answers 'q2', not question q1"):
        from_ag_ui(TEXT, {"interruptId": "q2", "status": "resolved"})
    with pytest.raises(ValueError, match="resolved or cancelled"):
        from_ag_ui(TEXT, {"interruptId": "q1", "status": "maybe"})


# MCP


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
        (CONFIRM, {"action": "decline"}, Said("q1", {"approved": False, "reason": ""})),
        (TEXT, {"action": "decline"}, None),
        (CONFIRM, {"action": "cancel"}, None),
    ],
)
def test_an_elicitation_result_is_an_answer(question: Question, result: dict[str, Any], said: Said | None) -> None:
    assert from_mcp(question, result) == said


def test_the_reason_for_asking_again_is_shown_and_unknown_actions_are_refused() -> None:
    assert to_mcp(COLLECT)["message"] == "Well? (number: missing)"
    with pytest.raises(ValueError, match="accepted, declined or cancelled"):
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
    with pytest.raises(ValueError, match="no decision that question q1"):
        from_langchain(question, {"type": kind})
