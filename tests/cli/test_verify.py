"""`verify`, `redact`, `doctor` and `gc`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest

from pausepoint import Engine, File
from pausepoint.cli import findings
from pausepoint.cli.commands import doctor as examining
from pausepoint.cli.commands.verify import Duration, Ticker
from pausepoint.cli.console import Output
from pausepoint.model.sessions import Status
from pausepoint.model.stores import About, Holder
from pausepoint.model.views import Health
from pausepoint.testing import ManualClock
from tests.cli.kit import plain, run
from tests.cli.samples import CODE, execute, letter, letters, project, within

HOLDING = """
import asyncio, sys
from pausepoint import Engine, Workflow, step
from pydantic import BaseModel

class Nothing(BaseModel):
    done: bool = False

@step(writes="done")
async def hang() -> bool:
    print("running", flush=True)
    await asyncio.sleep(600)
    return True

async def main():
    async with Engine(sys.argv[1]) as engine:
        await (await engine.start(Workflow("hanging", state=Nothing, steps=[hang]), session_id="stuck")).outcome()

asyncio.run(main())
"""


# verify


def test_verify_says_what_was_looked_at(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada", bob="Bob")
    done = run("verify", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == "ok   everything is intact\n     checked: 2 sessions, 6 records\n"
    one = run("verify", "ad", "--json", cwd=tmp_path)
    found = json.loads(one.stdout)
    assert (one.code, found["ok"], found["session_id"], found["sessions"]) == (0, True, "ada", 1)


def test_verify_names_the_first_bad_record_and_exits_with_1(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada", bob="Bob")
    execute(store, "UPDATE log SET payload = x'7b7c' WHERE seq >= 2 AND session = 1")
    found = json.loads((every := run("verify", "--json", cwd=tmp_path)).stdout)
    assert every.code == 1
    first = found["problems"][0]
    assert (first["session_id"], first["seq"]) == ("ada", 2)
    told = run("verify", "ada", cwd=tmp_path, tty=True)
    assert told.code == 1
    assert "bad  " in plain(told.stdout)
    assert "record 2" in " ".join(plain(told.stdout).split())
    assert run("verify", "bob", cwd=tmp_path).code == 0


def with_file(folder: Path, content: bytes = b"a secret") -> tuple[Path, File]:
    """A session with a file."""
    store = letters(folder, ada="Ada")
    found: File = within(store, lambda engine: engine.session("ada").files.add(content, "secret.txt"))
    return store, found


def test_verify_counts_files_and_names_one_that_was_changed(tmp_path: Path) -> None:
    store, file = with_file(tmp_path)
    done = run("verify", cwd=tmp_path)
    assert (done.code, done.stdout.splitlines()[1]) == (0, "     checked: 1 session, 3 records, 1 signal, 1 file")
    assert json.loads(run("verify", "--json", cwd=tmp_path).stdout)["files"] == 1
    stored = store.parent / file.storage_uri
    stored.chmod(0o600)
    stored.write_bytes(b"a Secret")
    bad = run("verify", "ada", cwd=tmp_path)
    assert bad.code == 1
    assert file.file_id in bad.stdout
    assert "does not match its hash" in bad.stdout


# redact


def test_redact_takes_a_file_away_for_good(tmp_path: Path) -> None:
    store, file = with_file(tmp_path)
    other = run("redact", "ada", "--file", "file_0", cwd=tmp_path)
    assert (other.code, other.stderr.startswith("pausepoint: Session 'ada' has no file 'file_0'")) == (4, True)
    done = run("redact", "ada", "--file", file.file_id, "--reason", "asked for by Ada", "--by", "dpo", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, f"ada: redacted file {file.file_id} in 1 signal.\n")
    assert not (store.parent / file.storage_uri).exists()
    assert b"secret" not in store.read_bytes()
    assert within(store, lambda engine: engine.session("ada").files.list()) == []
    assert run("verify", cwd=tmp_path).code == 0
    told = json.loads(run("events", "ada", "--json", cwd=tmp_path).stdout)
    assert "asked for by Ada" in json.dumps(told)


@pytest.mark.long
def test_redact_takes_a_drawer_away_and_doctor_and_gc_know_those_of_the_store(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.drawer("lg", session="ada").put("k", b"secret"))
    within(store, lambda engine: engine.drawer("claude", keep_for=timedelta(0)).append("s", [b"1", b"2"]))
    found = next(line for line in run("doctor", cwd=tmp_path).stdout.splitlines() if "drawers" in line)
    assert "claude (1 stream, 0 values, 2 B)" in plain(found)
    done = run("redact", "ada", "--drawer", "lg", "--by", "dpo", cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "ada: redacted drawer lg.\n")
    assert within(store, lambda engine: engine.drawers("ada")) == []
    assert b"secret" not in store.read_bytes()
    again = run("redact", "ada", "--drawer", "lg", cwd=tmp_path)
    assert (again.code, "Session 'ada' has no drawer 'lg'" in again.stderr) == (5, True)
    swept = plain(run("gc", "--apply", cwd=tmp_path).stdout)
    assert "1 old stream or value in drawers" in swept
    assert within(store, lambda engine: engine.drawer("claude").read("s")) is None


@pytest.mark.long
def test_redact_takes_a_field_a_record_or_an_event_away(tmp_path: Path) -> None:
    project(tmp_path)
    store = letters(tmp_path, ada="Ada", bob="Bob")
    needed = run("redact", "ada", "--field", "name", cwd=tmp_path)
    assert (needed.code, "'name' has no default. Pass value=" in needed.stderr) == (2, True)
    done = run("redact", "ada", "--field", "name", "--value", "Anonymous", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.code, found["session_id"], found["erased"]) == (0, "ada", True)
    assert within(store, lambda engine: engine.session("ada").state()).name == "Anonymous"
    assert json.loads(run("redact", "bob", "--seq", "2", "--json", cwd=tmp_path).stdout)["records"] == [2]
    assert json.loads(run("redact", "bob", "--event", "3.0.0", "--json", cwd=tmp_path).stdout)["records"] == [3]
    wrong = run("redact", "bob", "--event", "soon", cwd=tmp_path)
    assert (wrong.code, wrong.stderr.startswith("pausepoint: 'soon' is not a cursor")) == (2, True)
    assert run("verify", cwd=tmp_path).code == 0


def test_redact_wants_one_thing_and_the_code_for_a_field(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada")
    for args in ([], ["--seq", "2", "--field", "name"]):
        done = run("redact", "ada", *args, cwd=tmp_path)
        assert (done.code, done.stdout) == (2, "")
        assert "Name exactly one thing to redact: --field, --file, --drawer, --seq or --event." in done.stderr
    assert run("redact", "ada", "--field", "text", cwd=tmp_path).code == 2
    assert "Add --field." in run("redact", "ada", "--seq", "2", "--value", "x", cwd=tmp_path).stderr
    assert run("redact", "nobody", "--seq", "2", cwd=tmp_path).code == 4


def test_verify_proves_what_is_left_of_a_removed_session(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    within(store, lambda engine: engine.session("ada").remove())
    done = run("verify", "ada", "--json", cwd=tmp_path)
    assert (done.code, json.loads(done.stdout)["tombstones"]) == (0, 1)
    other = run("verify", "nobody", cwd=tmp_path)
    assert (other.code, other.stdout) == (4, "")
    assert other.stderr.startswith("pausepoint: There is no session 'nobody' in this store.")


def test_without_a_store_there_is_nothing_to_look_at_and_none_is_made(tmp_path: Path) -> None:
    for command in ("verify", "gc"):
        done = run(command, "--json", cwd=tmp_path)
        assert done.code == 0, done
    assert run("verify", "ada", cwd=tmp_path).code == 4
    named = run("doctor", "--store", "missing.db", cwd=tmp_path)
    assert (named.code, named.stderr.count("\n")) == (4, 1)
    assert "There is no store at" in named.stderr
    assert list(tmp_path.iterdir()) == []


def test_progress_of_a_long_run_is_one_line_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tick = Ticker(Output())
    tick("too early")
    tick.next = 0
    tick("3 sessions checked …")
    tick("too soon")
    tick.end()
    out, err = capsys.readouterr()
    assert (out, plain(err)) == ("", "\r3 sessions checked …\r")
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert not Ticker(Output()).shows


# doctor


def test_doctor_finds_nothing_wrong_with_a_project_that_is_well(tmp_path: Path) -> None:
    letters(project(tmp_path), ada="Ada")
    done = run("doctor", cwd=tmp_path)
    assert done.code == 0, done
    lines = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert {line.split()[0] for line in lines.values()} == {"ok"}
    assert lines.keys() == {
        "versions", "project", "store", "sqlite", "disk", "ballast", "engines", "sessions", "fit", "code",
    }  # fmt: skip
    assert "1 waiting" in lines["sessions"]
    assert "letter.py:letter: letter, version 1, 2 steps" in lines["code"]
    assert "schema 1" in lines["store"]


def test_doctor_fits_a_terminal_and_prints_whole_lines_to_a_pipe(tmp_path: Path) -> None:
    letters(tmp_path, ada="Ada")
    told = run("doctor", cwd=tmp_path, tty=True, env={"NO_COLOR": "1"})
    assert told.code == 0
    assert "\x1b" not in told.stdout
    long = [line for line in plain(told.stdout).splitlines() if len(line) > 80 and " " in line.strip()[16:]]
    assert not long, long
    assert "warn  fit" in told.stdout
    assert "but its code is not loaded" in plain(told.stdout).replace("\n" + " " * 16, " ")


@pytest.mark.long
def test_doctor_says_who_holds_a_session_and_who_died_with_one(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    program = tmp_path / "holding.py"
    program.write_text(HOLDING)
    with subprocess.Popen([sys.executable, program, store], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "running\n"
        try:
            found = json.loads(run("doctor", "--json", cwd=tmp_path).stdout)
        finally:
            holder.kill()
    assert [(each["pid"], each["sessions"]) for each in found["store"]["engines"]] == [(holder.pid, ["stuck"])]
    assert found["store"]["gone"] == []
    after = run("doctor", cwd=tmp_path)
    assert after.code == 0  # worth a look, and nothing is wrong
    assert f"process {holder.pid} on " in after.stdout
    assert "ended without finishing 1 session (stuck)" in after.stdout
    assert "pausepoint resume stuck" in after.stdout


def test_doctor_finds_sessions_that_no_longer_fit_the_code(tmp_path: Path) -> None:
    letters(project(tmp_path, CODE.replace("steps=[write, post]", "steps=[post]")), ada="Ada")
    done = run("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "bad   fit" in done.stdout
    assert "ada does not fit the code" in done.stdout
    assert "1 problem, 0 warnings" in done.stdout
    project(tmp_path, "import nothing_of_that_name")
    broken = json.loads((named := run("doctor", "--json", cwd=tmp_path)).stdout)
    assert (named.code, broken["ok"]) == (1, False)
    assert [each["about"] for each in broken["checks"] if each["level"] == "bad"] == ["code"]


def test_doctor_names_a_way_out_where_the_engine_knows_none_and_commands_instead_of_calls(tmp_path: Path) -> None:
    store = letters(project(tmp_path, CODE.replace("steps=[write, post]", "steps=[post]")), ada="Ada", bob="Bob")
    execute(store, "UPDATE log SET payload = x'7b7c' WHERE seq >= 2 AND session = 1")
    found = json.loads(run("doctor", "--json", cwd=tmp_path).stdout)
    ways = {each["text"].split()[0]: each["way_out"] for each in found["checks"] if each["about"] == "fit"}
    assert "`pausepoint verify ada`" in ways["ada"]
    assert "`pausepoint cancel ada`" in ways["ada"]
    assert "`pausepoint resume bob --code accept`" in ways["bob"]


def test_doctor_says_why_a_store_cannot_be_used(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada")
    execute(store, "PRAGMA user_version = 99")
    done = run("doctor", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.code, found["store"]) == (1, None)
    [bad] = [each for each in found["checks"] if each["level"] == "bad"]
    assert "newer Pausepoint" in bad["way_out"]


@pytest.mark.long
def test_doctor_runs_nothing_that_is_due(tmp_path: Path) -> None:
    store = letters(project(tmp_path), ada="Ada")

    async def write_back(engine: Engine) -> None:
        await engine._service.waker.stop()
        engine.workflows.clear()
        await engine.session("ada").send("thanks")

    within(store, write_back)
    assert "1 ready" in run("doctor", cwd=tmp_path).stdout
    assert within(store, lambda engine: _seq(engine)) == 3


async def _seq(engine: Engine) -> int:
    engine.workflows.clear()
    return (await engine.session("ada").info()).seq


def health(**changes: object) -> Health:
    about = About("sqlite", "x.db", 1, 1, 0, {}, (), "ext4", 10**12, 2**20, 2**20)
    values = {name: changes.pop(name) for name in list(changes) if name in About.__struct_fields__}
    about = About(**({name: getattr(about, name) for name in About.__struct_fields__} | values))
    known: dict[str, object] = {
        "store": about,
        "trouble": None,
        "sessions": {},
        "engines": (),
        "gone": (),
        "crashes": {},
    }
    return Health(**(known | changes))  # type: ignore[arg-type]  # the values are of a test's choosing


def test_doctor_warns_of_a_full_disk_before_it_is_full_and_says_when_it_is() -> None:
    def levels(found: Health) -> dict[str, str]:
        return {each.about: each.level for each in findings._store(found, examining._ways())}

    assert levels(health()) == {"store": "ok", "disk": "ok", "ballast": "ok"}
    assert levels(health(disk_free=1000))["disk"] == "warn"
    assert levels(health(ballast=None))["ballast"] == levels(health(ballast=5))["ballast"] == "warn"
    assert levels(health(trouble="read-only since noon"))["writing"] == "bad"


def test_doctor_tells_of_crashes_and_of_damaged_facts() -> None:
    sick = health(crashes={"ada": 2}, damaged=("bob is broken",), sessions={Status.READY: 1})
    found = list(findings._sessions(sick, examining._ways()))
    assert [(each.level, each.text) for each in found] == [
        ("ok", "1 ready"), ("bad", "bob is broken"), ("warn", "the process of ada died 2 times in a row"),
    ]  # fmt: skip
    many = Holder(7, 0, "", 0, False, ("a", "b", "c", "d"))
    assert findings._session_list(many.sessions) == "4 sessions (a, b, c, …)"
    assert findings._holder_name(many) == "engine 7"


# gc


@pytest.mark.long
def test_gc_shows_what_could_go_and_apply_does_it(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada", bob="Bob", eve="Eve")

    async def end(engine: Engine) -> None:
        await engine.session("ada").cancel()
        await engine.start(letter, session_id="old", name="Old", keep_for=timedelta(0))
        await engine.session("old").outcome()

    within(store, end)
    shown = run("gc", cwd=tmp_path)
    assert shown.code == 0
    assert "to remove     1 expired session, " in shown.stdout
    assert "\n              old\n" in shown.stdout
    assert "Nothing was changed. Clean up with --apply." in shown.stderr
    more = json.loads(run("gc", "--keep-for", "0d", "--json", cwd=tmp_path).stdout)
    assert (more["applied"], more["expired"]) == (False, ["ada", "old"])
    assert more["expired_bytes"] > 500
    done = run("gc", "--apply", cwd=tmp_path, tty=True)
    assert done.code == 0
    assert "removed       1 expired session" in plain(done.stdout)
    left = json.loads(run("ls", "--json", cwd=tmp_path).stdout)
    assert {each["session_id"] for each in left["sessions"]} == {"ada", "bob", "eve"}
    run("gc", "--apply", "--keep-for", "0d", cwd=tmp_path)
    left = json.loads(run("ls", "--json", cwd=tmp_path).stdout)
    assert {each["session_id"] for each in left["sessions"]} == {"bob", "eve"}


def test_sessions_without_a_term_go_only_when_they_have_ended_and_are_old_enough() -> None:
    clock = ManualClock()

    async def main() -> None:
        async with Engine(":memory:", workflows=[letter], clock=clock) as engine:
            for session_id in ("ada", "bob"):
                await (await engine.start(letter, session_id=session_id, name=session_id)).outcome()
            await engine.session("ada").cancel()
            week = timedelta(weeks=1)
            assert (await engine.gc(keep_for=week)).expired == []
            clock.advance(week)
            assert (await engine.gc()).expired == []
            assert (await engine.gc(keep_for=week)).expired == ["ada"]
            assert (await engine.gc(apply=True, keep_for=week)).expired == ["ada"]
            assert [each.session_id for each in await engine.sessions()] == ["bob"]

    asyncio.run(main())


def test_a_time_span_is_a_number_and_a_unit(tmp_path: Path) -> None:
    spans = {"30m": timedelta(minutes=30), "12h": timedelta(hours=12), "2w": timedelta(weeks=2)}
    assert {text: Duration().convert(text, None, None) for text in spans} == spans
    for text in ("soon", "5", "d", "-3d", "1.5h"):
        with pytest.raises(click.BadParameter, match="not a duration"):
            Duration().convert(text, None, None)
    assert run("gc", "--keep-for", "soon", cwd=tmp_path).code == 2
