"""`export` and `import`: a session as one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.cli.kit import plain, run
from tests.cli.samples import STORE, letter, letters, project, within


@pytest.mark.long
def test_a_session_moves_to_another_project_with_what_it_has_not_received_yet(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    store = letters(here, ada="Ada")

    async def write_back(engine: Engine) -> None:
        await engine.pause("ada", reason="moving", by="ann")
        await engine.send("ada", "thanks", by="ben")

    within(store, write_back)
    written = run("export", "ad", "--json", cwd=here)
    assert (written.code, written.stderr) == (0, "")
    told = json.loads(written.stdout)
    assert (told["session_id"], told["file"], told["sessions"]) == ("ada", "ada.pausepoint.jsonl", ["ada"])
    assert told["bytes"] == (here / told["file"]).stat().st_size

    taken = run("import", here / told["file"], cwd=project(there))
    assert (taken.code, taken.stdout) == (0, "Imported ada: paused, workflow letter\n")
    assert taken.stderr == "Resume:  pausepoint resume ada\n"

    async def go_on(engine: Engine) -> tuple[str, bool]:
        outcome = await (await engine.resume("ada")).outcome()
        return outcome.state.reply, (await engine.verify()).ok

    assert within(there / STORE, go_on) == ("thanks", True)


def test_a_folder_for_a_session_without_artifacts_is_refused_with_the_option_to_leave_out(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada")
    assert run("export", "ada", "ada.jsonl", cwd=tmp_path).code == 0
    refused = run("import", "ada.jsonl", "--folder", "out", "--store", "sqlite:///other.db", cwd=tmp_path)
    assert (refused.code, "Nothing was imported. Leave out --folder." in refused.stderr) == (5, True)


@pytest.mark.long
def test_a_file_that_is_there_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada")
    (tmp_path / "kept.jsonl").write_text("mine")
    refused = run("export", "ada", "kept.jsonl", cwd=tmp_path)
    assert (refused.code, refused.stdout) == (5, "")
    assert "The file kept.jsonl already exists" in refused.stderr
    assert (tmp_path / "kept.jsonl").read_text() == "mine"
    forced = run("export", "ada", "kept.jsonl", "--force", cwd=tmp_path, tty=True)
    assert forced.code == 0
    assert "Exported ada to kept.jsonl" in plain(forced.stdout)
    stdout = run("export", "ada", "-", cwd=tmp_path).stdout
    assert stdout == (tmp_path / "kept.jsonl").read_text()
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["kept.jsonl"]


@pytest.mark.long
def test_an_id_that_is_taken_is_a_conflict_and_another_id_is_not(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.export_session("ada", tmp_path / "ada.jsonl"))
    assert (taken := run("import", "ada.jsonl", "--json", cwd=tmp_path)).code == 5
    assert json.loads(taken.stderr)["exit_code"] == 5
    assert "--session-id" in taken.stderr
    copied = json.loads(run("import", "ada.jsonl", "--session-id", "copy", "--json", cwd=tmp_path).stdout)
    assert (copied["session"]["session_id"], copied["session"]["status"]) == ("copy", "waiting")

    async def both(engine: Engine) -> tuple[bool, str, str]:
        await engine.send("copy", "thanks")
        outcome = await engine.outcome("copy")
        return (await engine.verify()).ok, outcome.state.reply, (await engine.info("ada")).status.value

    assert within(store, both, letter) == (True, "thanks", "waiting")


@pytest.mark.long
def test_a_file_that_was_changed_or_is_missing_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    store = letters(tmp_path / "here", ada="Ada")
    path = tmp_path / "ada.jsonl"
    within(store, lambda engine: engine.export_session("ada", path))
    path.write_text(path.read_text().replace("Dear Ada", "Dear Eve"))
    changed = run("import", "ada.jsonl", cwd=tmp_path)
    assert (changed.code, changed.stdout) == (1, "")
    assert "is cut off or was changed" in changed.stderr
    assert run("import", "missing.jsonl", cwd=tmp_path).code == 2
    assert run("export", "ada", cwd=tmp_path).code == 4  # there is no store here, or no such session in it
    assert json.loads(run("ls", "--json", cwd=tmp_path).stdout)["sessions"] == []
