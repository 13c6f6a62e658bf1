"""Scopes: the fields that an agent reads and the fields that it owns."""

from __future__ import annotations

from typing import Annotated

import pytest

from pausepoint.definition.fields import At
from pausepoint.definition.workflow import Scope
from tests.definition.kit import Brief, Plan, made, refused, refused_once, write


@pytest.mark.covers("S3.74")
def test_each_workflow_has_its_own_table_of_who_owns_what() -> None:
    ingestion = Scope("IngestionAgent", reads=["topic"], writes=["facts", "plan"])
    review = Scope("ReviewAgent", reads="*", writes=["verdict"])

    @ingestion.step(writes="facts")
    def ingest(topic: str, facts: list[str]) -> list[str]:
        return facts

    @ingestion.step(writes="plan.title")
    def name_it(pages: Annotated[int, At("plan.pages")]) -> str:
        return ""

    @review.step(writes="verdict", when=lambda score: score > 3)
    def look(everything: Brief) -> str:
        return ""

    workflow = made(ingest, name_it, look)
    assert workflow.scopes == (ingestion, review)
    assert [each.agent for each in workflow.steps] == ["IngestionAgent", "IngestionAgent", "ReviewAgent"]
    assert made(write).scopes == ()
    assert ingest.agent == "IngestionAgent"
    assert "in scope IngestionAgent" in repr(ingest)


def test_a_write_outside_a_scope_is_refused() -> None:
    estimation = Scope("EstimationAgent", reads=["topic"], writes=["score", "plan.pages"])

    @estimation.step(writes="verdict")
    def wrong(topic: str) -> str:
        return topic

    @estimation.step(writes="plan")
    def too_much(topic: str) -> Plan:
        return Plan()

    message = refused_once(wrong)
    assert "step 'wrong', scope 'EstimationAgent': the step writes 'verdict', which the scope may not write" in message
    assert "Allowed: score, plan.pages" in message
    assert "the step writes 'plan', which the scope may not write" in refused_once(too_much)


@pytest.mark.covers("S3.73")
def test_a_read_outside_a_scope_is_refused() -> None:
    scope = Scope("Agent", reads=["plan.title"], writes=["score"])

    @scope.step
    def wrong(draft: str) -> None: ...

    @scope.step
    def too_much(plan: Plan) -> None: ...

    @scope.step(when=lambda draft: bool(draft))
    def asking() -> None: ...

    @scope.step
    def fine(name: Annotated[str, At("plan.title")], score: int) -> None: ...

    assert "scope 'Agent': parameter 'draft' reads 'draft', which the scope may not read" in refused_once(wrong)
    assert "parameter 'plan' reads 'plan'" in refused_once(too_much)
    assert "parameter 'draft' reads 'draft'" in refused_once(asking)
    assert made(fine).first == "fine"


def test_the_whole_state_is_only_for_scopes_that_read_everything() -> None:
    scope = Scope("Agent", reads=["topic", "draft"])

    @scope.step
    def wrong(everything: Brief) -> None: ...

    assert "parameter 'everything' reads the whole state" in refused_once(wrong)


def test_unknown_fields_of_a_scope_are_refused_once() -> None:
    scope = Scope("Agent", reads=["topci"], writes=["drafft"])

    @scope.step
    def one() -> None: ...

    @scope.step
    def two() -> None: ...

    message = refused(one)
    assert "scope 'Agent': Brief has no field 'topci'. Did you mean 'topic'?" in message
    assert "scope 'Agent': Brief has no field 'drafft'. Did you mean 'draft'?" in message
    assert refused(one, two).count("topci") == 1


def test_a_scope_cannot_own_everything() -> None:
    scope = Scope("Agent", writes=["*"])

    @scope.step
    def one() -> None: ...

    assert 'writes=["*"] is not allowed' in refused_once(one)


def test_a_scope_shows_itself() -> None:
    assert repr(Scope("Agent", reads="topic")) == "Scope('Agent', reads=['topic'], writes=[])"
