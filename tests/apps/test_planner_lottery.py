"""The documents that a lottery drew to measure the planner: the committed list, its result and the tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apps.planner_lottery import (
    README,
    RESULT,
    SEATS,
    SEED,
    candidates,
    draw,
    lottery,
    normalised,
    rejected,
    same,
    tables,
    written,
)

LISTED = lottery()
DOCUMENTS: list[dict[str, Any]] = LISTED["document"]


def test_the_seed_draws_the_listed_documents_from_the_candidates() -> None:
    assert LISTED["seed"] == SEED
    fields = ("kind", "source", "package", "version", "path")
    drawn = draw(candidates(), rejected(LISTED))
    assert [tuple(document[field] for field in fields) for document in DOCUMENTS] == [
        (each.kind, each.source, each.package, each.version, each.path) for each in drawn
    ]


def test_the_documents_are_of_many_languages_and_half_of_them_have_no_outline() -> None:
    assert len(DOCUMENTS) == sum(SEATS.values()) >= 40
    assert sum(not document["outline"] for document in DOCUMENTS) * 2 >= len(DOCUMENTS)
    assert len({document["language"] for document in DOCUMENTS}) >= 10
    assert len({document["sha256"] for document in DOCUMENTS}) == len(DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["package"])
def test_the_topics_of_a_document_are_in_its_order_and_inside_it(document: dict[str, Any]) -> None:
    places = [("".join(topic[2:]), topic[1]) for topic in document["topics"]]
    assert places
    assert places == sorted(places)
    assert all(1 <= at <= document.get("pages", document.get("lines")) for _, at in places)
    titles = [normalised(topic[0]) for topic in document["topics"]]
    assert all(titles)
    assert len(set(titles)) == len(titles)


def test_the_tables_of_the_readme_are_those_of_the_stored_result() -> None:
    results = json.loads(RESULT.read_text(encoding="utf-8"))
    assert [(result["package"], result["path"], result["topics"]) for result in results] == [
        (document["package"], document["path"], len(document["topics"])) for document in DOCUMENTS
    ]
    page = README.read_text(encoding="utf-8")
    assert written(page, tables(LISTED, results)) == page


@pytest.mark.parametrize(
    ("topic", "title", "is_right"),
    [
        ("Chapter 3. EELS", "Eels", True),
        ("Chương 1. Chào mừng", "Chào mừng", True),
        ("A simple factorization", "simple factorization", False),
        ("Eels (2 of 2)", "Eels", False),
        ("Long eels", "Eels", False),
    ],
)
def test_a_topic_is_right_by_its_title_without_its_number(topic: str, title: str, is_right: bool) -> None:
    assert same(topic, title) is is_right
