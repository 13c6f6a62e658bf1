"""`export` and `import`: a session as one file. `move`: all sessions of a store."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg
import pytest

from pausepoint import Engine
from pausepoint.cli.project import place_of
from tests.cli.kit import Process, plain, run
from tests.cli.samples import STORE, letter, letters, post_letters, project, within
from tests.support.loop import PATIENCE
from tests.support.postgres import schema_of, sql


def test_a_session_moves_to_another_project_with_what_it_has_not_received_yet(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    store = letters(here, ada="Ada")

    async def write_back(engine: Engine) -> None:
        await engine.session("ada").pause(reason="moving", by="ann")
        await engine.session("ada").send("thanks", by="ben")

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
        outcome = await (await engine.session("ada").resume()).outcome()
        return outcome.state.reply, (await engine.verify()).ok

    assert within(there / STORE, go_on) == ("thanks", True)


def test_a_folder_for_a_session_without_artifacts_is_refused_with_the_option_to_leave_out(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada")
    assert run("export", "ada", "ada.jsonl", cwd=tmp_path).code == 0
    refused = run("import", "ada.jsonl", "--folder", "out", "--store", "sqlite:///other.db", cwd=tmp_path)
    assert (refused.code, "Nothing was imported. Leave out --folder." in refused.stderr) == (5, True)


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


def test_an_id_that_is_taken_is_a_conflict_and_another_id_is_not(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.session("ada").export(tmp_path / "ada.jsonl"))
    assert (taken := run("import", "ada.jsonl", "--json", cwd=tmp_path)).code == 5
    assert json.loads(taken.stderr)["exit_code"] == 5
    assert "--session-id" in taken.stderr
    copied = json.loads(run("import", "ada.jsonl", "--session-id", "copy", "--json", cwd=tmp_path).stdout)
    assert (copied["session"]["session_id"], copied["session"]["status"]) == ("copy", "waiting")

    async def both(engine: Engine) -> tuple[bool, str, str]:
        await engine.session("copy").send("thanks")
        outcome = await engine.session("copy").outcome()
        return (await engine.verify()).ok, outcome.state.reply, (await engine.session("ada").info()).status.value

    assert within(store, both, letter) == (True, "thanks", "waiting")


def test_a_file_that_was_changed_or_is_missing_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    store = letters(tmp_path / "here", ada="Ada")
    path = tmp_path / "ada.jsonl"
    within(store, lambda engine: engine.session("ada").export(path))
    path.write_text(path.read_text().replace("Dear Ada", "Dear Eve"))
    changed = run("import", "ada.jsonl", cwd=tmp_path)
    assert (changed.code, changed.stdout) == (1, "")
    assert "is cut off or was changed" in changed.stderr
    assert run("import", "missing.jsonl", cwd=tmp_path).code == 2
    assert run("export", "ada", cwd=tmp_path).code == 4  # there is no store here, or no such session in it
    assert json.loads(run("ls", "--json", cwd=tmp_path).stdout)["sessions"] == []


@pytest.mark.long
@pytest.mark.parametrize(("source", "target"), [("file", "file"), ("file", "server"), ("server", "file")])
def test_a_killed_move_is_repeated_and_every_session_is_in_the_new_store_once(
    tmp_path: Path, source: str, target: str
) -> None:
    names = {f"s{number:03}": "Ada" for number in range(100)}
    with ExitStack() as stack:
        folder, old, new, before = _partly_moved(tmp_path, source, target, names, stack)
        assert 5 <= before < 100, before  # the fault fired in the middle

        done = json.loads(run("move", old, new, "--json", cwd=folder).stdout)
        assert (len(done["there"]), len(done["moved"]), done["refused"]) == (before, 100 - before, {})
        assert _sessions(new) == dict.fromkeys(names, "waiting")
        assert _sessions(old) == dict.fromkeys(names, "paused")
        again = run("move", old, new, cwd=folder)
        assert (again.code, again.stdout.splitlines()) == (0, [
            f"Moved 0 sessions to {place_of(new).given}. 100 sessions are there already.",
            f"Everything in {place_of(old).given} is paused and stays there.",
        ])  # fmt: skip

        async def go_on(engine: Engine) -> tuple[str, bool]:
            await engine.session("s007").send("thanks")
            return (await engine.session("s007").outcome()).state.reply, (await engine.verify()).ok

        assert within(new, go_on) == ("thanks", True)


def _partly_moved(
    tmp_path: Path, source: str, target: str, names: dict[str, str], stack: ExitStack
) -> tuple[Path, str, str, int]:
    """Kill a move in its middle. Return its folder, both stores, and how many sessions are in the new one."""
    attempt = 0
    while True:  # on a busy machine, a kill may come when all of them are there
        folder = tmp_path / str(attempt)
        folder.mkdir()
        old = _store_on(source, folder / "old.db", stack)
        new = _store_on(target, folder / "new.db", stack)
        post_letters(old, **names)
        planned = run("move", old, new, "--dry-run", "--json", cwd=folder)
        assert (planned.code, json.loads(planned.stdout)["moved"]) == (0, sorted(names))
        assert not place_of(new).exists
        if (before := _killed(folder, old, new)) < len(names):
            return folder, old, new, before
        attempt += 1
        assert attempt < 10, "every kill came too late"


def _store_on(kind: str, file: Path, stack: ExitStack) -> str:
    """Return the path or the URL of a store that does not exist yet."""
    return stack.enter_context(schema_of(new=True)) if kind == "server" else str(file)


def _killed(folder: Path, old: str, new: str) -> int:
    """Kill a move when it has moved some sessions, and return how many are in the new store then."""
    with Process("move", old, new, cwd=folder) as process:
        end = time.monotonic() + PATIENCE
        while _stored(new) < 5 and time.monotonic() < end:
            time.sleep(0.002)
        process.child.send_signal(signal.SIGKILL)
        process.child.wait(PATIENCE)
    return len(_sessions(new))


def _stored(store: str) -> int:
    """Return how many sessions a store has. It is read without an engine, because the process is to be killed soon."""
    count = "SELECT count(*) FROM sessions"
    if "://" in store:
        with suppress(psycopg.errors.UndefinedTable):
            return int(sql(store, count)[0][0])
        return 0
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        return int(db.execute(count).fetchone()[0])
    return 0


def _sessions(store: str | Path) -> dict[str, str]:
    async def look(engine: Engine) -> dict[str, str]:
        return {str(info.session_id): info.status.value for info in await engine.sessions()}

    return within(store, look) if place_of(str(store)).exists else {}


@pytest.mark.long
def test_a_move_names_what_it_cannot_move_and_how_to_repeat_it(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada", ben="Ben")
    (tmp_path / "other").mkdir()
    letters(tmp_path / "other", ada="Another")
    refused = run("move", STORE, f"other/{STORE}", cwd=tmp_path)
    assert refused.code == 5
    assert "Not moved: ada. The other store has a different session 'ada'." in plain(refused.stdout)
    assert refused.stderr == f"Repeat it when these are solved:  pausepoint move {STORE} other/{STORE}\n"
    assert _sessions(tmp_path / "other" / STORE).keys() == {"ada", "ben"}

    for words, code, said in (
        ((STORE, STORE), 2, "FROM and TO are the same store"),
        (("nothing.db", "new.db"), 4, "Check FROM."),
        ((STORE, ":memory:"), 2, "is in memory and ends with its process"),
    ):
        found = run("move", *words, cwd=tmp_path)
        assert (found.code, said in found.stderr) == (code, True), found.stderr
    assert run("--store", STORE, "move", STORE, "new.db", cwd=tmp_path).code == 2
    assert not (tmp_path / "new.db").exists()
