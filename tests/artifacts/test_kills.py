"""Real processes, killed before every single write of an artifact: nothing is lost, invented, or done twice."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pausepoint.definition.artifacts import OWN
from pausepoint.testing import every_crash_point
from tests.artifacts.jobs import BROKEN, OUTLINE
from tests.artifacts.pipeline import FILES, Desk, calls, counted, in_folder, quiet
from tests.support.forkserver import ForkServer

ALL = Counter(["research", "draft", *OUTLINE, "header", "finalize"])
LEFT = [path for path in FILES if "03" not in path]
JOB = "tests.artifacts.jobs:live"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.artifacts.jobs") as server:
        yield server


@pytest.fixture(scope="module")
def edited(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that has completed, whose research somebody has edited since.

    It is reached through a link, ``now``: a copy of it, that the link leads to, stands for the whole.
    """
    path = tmp_path_factory.mktemp("edited")
    (path / "first").mkdir()
    (path / "now").symlink_to("first")
    assert lives(server, path / "now", 0) > 0
    Desk(path / "now").edit_research()
    return path


def lives(server: ForkServer, path: Path, dies_at: int, edits: str | None = None, broken: str = "") -> int:
    """One process. How many writes there were; 0 if it was killed, as it should be."""
    child = server.start(JOB, path=str(path), dies_at=dies_at, edits=edits, broken=broken)
    code = child.wait()
    if dies_at and code == -signal.SIGKILL:
        return 0
    assert code == 0
    said = child.hear()
    assert said["status"] == "completed"
    return int(said["writes"])


def told(path: Path) -> Counter[str]:
    return Counter((path / "calls").read_text().split())


def check(
    path: Path, claim: str = "grows ferns", *, edited: bool = False, binned: Sequence[bytes] = ()
) -> Counter[str]:
    """The files are what the state says, all are valid, and nothing is left over. Which steps ran comes back."""
    desk = Desk(path)
    calls.file = None

    async def look() -> None:
        async with desk.engine() as engine:
            state = await engine.session("s1").state()
            assert {each.state for each in await engine.session("s1").artifacts()} == {"valid"}
            assert {each.verdict for each in await engine.session("s1").plan()} == {"done"}
            assert desk.file("4-final.md").read_text() == state.model_dump()["memo"]
            assert claim in state.model_dump()["memo"]
            assert claim in state.model_dump()["research"][0]["claim"]
            for name, text in state.model_dump()["sections"].items():
                assert desk.file(f"2-sections/{name}.md").read_text() == text
            kinds = [event.event_type async for event in engine.session("s1").events()]
            assert "artifact.set_aside" not in kinds
            assert ("artifact.edited" in kinds) == edited, "no edit is invented, none is lost"

    asyncio.run(look())
    assert in_folder(desk.folder) == LEFT
    assert list((desk.folder / OWN / "staged").iterdir()) == []
    assert desk.bin() == [*binned]
    return told(path)


@pytest.mark.long
@pytest.mark.covers("S4.4", "S4.90", "S4.114")
@pytest.mark.parametrize("first", [1, pytest.param(4, marks=pytest.mark.long)])
def test_killed_before_every_seventh_write_of_its_artifacts_it_comes_to_the_same_end(
    server: ForkServer, tmp_path: Path, first: int
) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    writes = lives(server, undisturbed, 0)
    assert check(undisturbed) == ALL
    assert writes > 50, "otherwise this is a test of nothing"
    for at in range(first, writes + 1, 7):
        path = tmp_path / str(at)
        path.mkdir()
        assert lives(server, path, at) == 0
        lives(server, path, 0)
        extra = check(path) - ALL
        assert extra.total() <= 1, (at, extra)  # the step whose checkpoint was not there yet
        shutil.rmtree(path)


@pytest.mark.covers("S4.81", "S4.114")
@pytest.mark.parametrize("decision", ["accept", "discard"])
def test_killed_before_every_fourth_write_of_a_resume_that_decides_about_an_edit_the_edit_is_not_lost(
    server: ForkServer, edited: Path, decision: str
) -> None:
    before = Desk(edited / "first").file("1-research.json").read_bytes()
    writes = lives(server, copied(edited, f"{decision}-undisturbed"), 0, edits=decision)
    assert writes > 5
    for at in range(1 + 2 * (decision == "discard"), writes + 1, 4):
        path = copied(edited, f"{decision}-{at}")
        assert lives(server, path, at, edits=decision) == 0
        lives(server, path, 0, edits=decision)
        if decision == "accept":
            again = check(path, "grows moss", edited=True) - ALL
            assert again["draft"] + again["finalize"] <= 3, (at, again)
            assert not again["research"] + again["header"], (at, again)
        else:
            assert check(path, "grows ferns", binned=[before]) == ALL, at
        shutil.rmtree(edited / f"{decision}-{at}")


def copied(edited: Path, name: str) -> Path:
    shutil.copytree(edited / "first", edited / name)
    (edited / "now").unlink()
    (edited / "now").symlink_to(name)
    return edited / "now"


@pytest.mark.long
@pytest.mark.parametrize("broken", BROKEN)
def test_a_twin_that_breaks_a_promise_is_found_out(server: ForkServer, tmp_path: Path, broken: str) -> None:
    found = False
    for at in range(8, 40):
        path = tmp_path / str(at)
        path.mkdir()
        if lives(server, path, at, broken=broken):
            break
        try:
            lives(server, path, 0, broken=broken)
            found = (check(path) - ALL).total() > 1
        except (AssertionError, FileNotFoundError):
            found = True
        if found:
            return
    pytest.fail(f"nobody noticed: {broken}")


def test_a_crash_before_or_after_any_write_to_the_store_changes_neither_state_nor_artifacts(tmp_path: Path) -> None:
    points = every_crash_point(quiet, company="Fern", folder=tmp_path)
    assert len(points) == 6
    assert list(tmp_path.iterdir()) == []


def test_a_crash_that_makes_a_difference_in_an_artifact_is_noticed(tmp_path: Path) -> None:
    calls.taken()
    with pytest.raises(AssertionError, match="artifacts is"):
        every_crash_point(counted, company="Fern", folder=tmp_path, compare=lambda state: state.company)
