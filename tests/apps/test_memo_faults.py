"""The memo as real processes, killed in every agent, then resumed by another process: every call is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pausepoint.apps.memo import AGENTS
from tests.apps.memo_kit import FILES, SECTIONS, Memo
from tests.support.forkserver import Forks

WRITES = [f"draft {name}" for name in SECTIONS]
ONCE = [name for agent in AGENTS for name in (WRITES if agent == "draft" else [agent])]
"""The calls of an undisturbed run, in order."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> dict[str, bytes]:
    memo = Memo(tmp_path_factory.mktemp("undisturbed"), forks)
    said = memo.write()
    assert memo.order == ONCE
    assert "✓ Memo complete: output/Fernstone-v0.0.1/4-final-draft.md" in said
    found = memo.desk.contents()
    assert list(found) == FILES
    return found


@pytest.fixture
def memo(tmp_path: Path, forks: Forks) -> Memo:
    return Memo(tmp_path, forks)


@pytest.mark.covers("S4.4", "S4.7", "S4.61", "S4.65", "S4.73", "S4.114")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_kill_in_any_agent_costs_that_agent_alone(memo: Memo, agent: str, undisturbed: dict[str, bytes]) -> None:
    where = WRITES[0] if agent == "draft" else agent
    memo.write(at=where)
    said = memo.write("--resume")
    assert memo.calls - Counter(ONCE) == Counter([where])
    assert memo.desk.contents() == undisturbed
    first = f"✓ Resuming from checkpoint: {agent}" if agent != AGENTS[0] else "⚠️  No checkpoints found"
    assert first in said
    later = AGENTS[AGENTS.index(agent) :]
    assert [line.removeprefix("Running agent: ") for line in said.splitlines() if line.startswith("Running")] == [
        *later
    ]


@pytest.mark.long
@pytest.mark.covers("S4.98", "S4.99")
@pytest.mark.parametrize("done", [1, 7, 9])
def test_a_kill_within_the_draft_keeps_the_sections_that_are_written(
    memo: Memo, done: int, undisturbed: dict[str, bytes]
) -> None:
    memo.write(at=WRITES[done])
    assert not (memo.desk.folder / "2-sections").exists(), "a half set of sections is never shown"
    memo.write("--resume")
    assert [call for call in memo.order if call in WRITES] == [*WRITES[: done + 1], *WRITES[done:]]
    assert memo.desk.contents() == undisturbed


@pytest.mark.long
def test_killed_in_every_agent_in_turn_it_comes_to_the_same_end(memo: Memo, undisturbed: dict[str, bytes]) -> None:
    places = [WRITES[7] if agent == "draft" else agent for agent in AGENTS]
    memo.write(at=places[0])
    for where in places[1:]:
        memo.write("--resume", at=where)
    memo.write("--resume")
    assert memo.calls == Counter(ONCE) + Counter(places)
    assert memo.desk.contents() == undisturbed
    assert [path.name for path in (memo.folder / "output").iterdir()] == ["Fernstone-v0.0.1"]


@pytest.mark.long
def test_a_kill_while_an_edit_is_worked_in_loses_neither(memo: Memo, undisturbed: dict[str, bytes]) -> None:
    memo.write()
    header = memo.desk.file("header.md")
    header.write_text(header.read_text().replace("Investment memo", "Confidential memo"))
    memo.write("--resume", "--edits", "accept", at="fact_check")
    memo.write("--resume")
    assert memo.order[len(ONCE) :] == ["cite", "validate_citations", "fact_check", "fact_check", "validate", "finalize"]
    assert b"Confidential memo" in memo.desk.contents()["header.md"]
    assert "Confidential memo" in memo.desk.read("4-final-draft.md")
    assert memo.write("--resume").startswith("✓ Memo already complete: ")
