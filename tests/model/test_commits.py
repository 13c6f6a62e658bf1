"""The facts that the author of a record may set."""

from __future__ import annotations

from typing import get_type_hints

from msgspec.structs import fields

from pausepoint.model.commits import Commit, Facts


def test_the_facts_of_a_record_are_members_of_a_commit_with_the_same_types() -> None:
    members = {field.name: field.type for field in fields(Commit)}
    facts = get_type_hints(Facts)
    assert facts
    assert {name: members.get(name) for name in facts} == facts
