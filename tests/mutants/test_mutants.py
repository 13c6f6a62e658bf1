"""The list of mutants fits the code, and the runner tells a mutant that is caught from one that survives."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import apsw
import apsw.ext
import pytest

from pausepoint.stores.sql import statements
from pausepoint.stores.sqlite.sql import PARTS, QUERIES, schema
from tests.mutants.__main__ import main
from tests.mutants.catalogue import CATALOGUE, SHORT
from tests.mutants.mutant import ROOT, Misplaced, Mutant, mutated, place
from tests.mutants.workshop import Workshop

CAUGHT = next(mutant for mutant in CATALOGUE if mutant.name == "one-attempt-more")
HARMLESS = CAUGHT._replace(
    name="another-comment",
    before="# Logarithms are compared because the power itself may overflow a float.",
    after="# Logarithms are compared, because the power may overflow a float.",
    breaks="Nothing.",
)


@pytest.mark.parametrize("mutant", CATALOGUE, ids=[mutant.name for mutant in CATALOGUE])
def test_a_mutant_has_one_place_and_its_code_can_be_read(mutant: Mutant) -> None:
    path, text = mutated(mutant)
    assert text != path.read_text("utf-8")
    assert mutant.breaks.endswith(".")
    assert mutant.tests
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).is_file(), test


@pytest.mark.parametrize("mutant", [each for each in CATALOGUE if each.room == "stores/sqlite"], ids=lambda m: m.name)
def test_sqlite_can_prepare_what_a_mutant_makes_of_its_statements(mutant: Mutant) -> None:
    path, text = mutated(mutant)
    if path.suffix != ".sql":
        return  # Python, which is parsed above
    made = statements.named(text)
    changed = [query for name, query in made.queries.items() if query != QUERIES[name]]
    changed += [f"SELECT 1 FROM sessions WHERE {part}" for name, part in made.parts.items() if part != PARTS[name]]
    assert changed
    connection = apsw.Connection(":memory:")
    connection.execute(schema())
    for statement in changed:
        assert apsw.ext.query_info(connection, statement).query == statement


def test_there_are_at_least_sixty_mutants_in_all_rooms_that_must_lose_nothing() -> None:
    rooms = Counter(mutant.room.partition("/")[0] for mutant in CATALOGUE)
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE) >= 60
    assert rooms["stores"] >= 20
    assert rooms["runtime"] + rooms["log"] >= 20
    assert rooms["engine"] >= 15
    assert rooms["codec"] + rooms["definition"] + rooms["model"] >= 5


def test_the_short_tier_has_a_list_of_twenty() -> None:
    assert len(set(SHORT)) == 20
    assert set(SHORT) <= {mutant.name for mutant in CATALOGUE}


def test_a_fragment_that_occurs_twice_or_never_is_refused_with_its_places() -> None:
    with pytest.raises(Misplaced, match=r"occurs nowhere\. Give it a fragment"):
        place(CAUGHT._replace(before="no such text anywhere"))
    with pytest.raises(Misplaced, match=r"retry\.py \(\d+\)"):
        place(CAUGHT._replace(before="def "))


@pytest.mark.long
def test_the_runner_tells_a_caught_mutant_from_a_harmless_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "mutants.json"
    assert main(["--json", str(found), "--timeout", "600"], [CAUGHT, HARMLESS]) == 1
    verdicts = {each["name"]: each["verdict"] for each in json.loads(found.read_text("utf-8"))}
    assert verdicts == {"one-attempt-more": "caught", "another-comment": "survived"}
    said = capsys.readouterr().out
    assert "survived: another-comment (definition). Nothing." in said
    assert "1 of 2 mutants caught: 50.0 %" in said


@pytest.mark.long
def test_processes_of_the_copy_import_the_copy_whatever_their_path_says() -> None:
    with Workshop(60) as workshop:
        for path in ("", str(ROOT), str(ROOT / "docs")):
            assert workshop.imported(PYTHONPATH=path) == workshop.root / "src" / "pausepoint"
        root = workshop.root
    assert not root.exists()
