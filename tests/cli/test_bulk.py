"""`resume`, `pause` and `cancel` with filters, as real commands."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import signal
import time
from collections import Counter
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from pausepoint import Engine, Status
from pausepoint.cli.filters import Filters, Moment
from pausepoint.model.records import first_digest, rechained
from pausepoint.model.stores import Whole
from tests.cli import night as sample
from tests.cli.kit import Process, plain, run
from tests.support.loop import PATIENCE, on_loop

FAILED = ("--status", "failed", "--tag", "night")
ONCE = {"night-0000": 1}
"""What was executed while sessions failed. The other sessions remember the same operation."""


class Night:
    """A project folder with sessions that failed last night."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(sample.__file__, folder / "night.py")
        (folder / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nnight = "night.py:night"\n')

    @property
    def store(self) -> Path:
        return self.folder / ".pausepoint/pausepoint.db"

    def fail(self, count: int) -> None:
        """Let one session fail, and store it under other ids too. Its operation has been executed once."""
        self.write("broken", "")
        with chdir(self.folder):
            asyncio.run(self._fail(count))
        (self.folder / "broken").unlink()
        assert (self.statuses(), self.calls) == ({"failed": count}, ONCE)

    async def _fail(self, count: int) -> None:
        async with Engine(self.store) as engine:
            session = await engine.start(sample.night, session_id="night-0000", tags="night", owner="ann")
            await session.outcome()
            [failed] = await engine.store.whole("night-0000")
            assert await engine.store.import_([renamed(failed, f"night-{n:04}") for n in range(1, count)])

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def statuses(self) -> dict[str, int]:
        async def counted() -> dict[str, int]:
            async with Engine(self.store, drives="none") as engine:
                found: Counter[str] = Counter()
                for (_, status), count in (await engine.tally()).items():
                    found[status.value] += count
                return dict(found)

        return asyncio.run(counted())

    @property
    def calls(self) -> Counter[str]:
        return Counter((self.folder / "calls.txt").read_text().split())

    def holds(self, count: int) -> None:
        """Wait until some sessions are in the middle of a step."""
        end = time.monotonic() + PATIENCE
        held = self.folder / "held.txt"
        while not held.exists() or len(set(held.read_text().split())) < count:
            assert time.monotonic() < end
            time.sleep(0.01)


def renamed(session: Whole, session_id: str) -> Whole:
    """Return a session with another id. A thousand of them cost less than a thousand sessions that fail."""
    records = rechained(session.records, first_digest(session_id))
    row = replace(session.row, session_id=session_id, digest=records[-1].digest)
    return replace(session, row=row, records=records)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


@pytest.mark.long
def test_a_thousand_failed_sessions_are_retried_by_one_command(night: Night) -> None:
    night.fail(1000)
    night.write("broken", "night-0007")
    done = run("resume", *FAILED, "--jobs", "8", cwd=night.folder)
    assert done.code == 1
    assert done.stdout.splitlines() == [
        "night-0007  night  failed     ConnectionError in keep: night-0007 cannot be kept",
        "1,000 sessions resumed: 999 completed, 1 failed.",
    ]
    assert night.statuses() == {"completed": 999, "failed": 1}
    assert night.calls == ONCE, "finished operations are not repeated"
    (night.folder / "broken").unlink()
    again = run("resume", *FAILED, "--json", cwd=night.folder)
    assert again.code == 0
    told = json.loads(again.stdout)
    assert [each["session_id"] for each in told["done"]] == ["night-0007"]
    assert (told["skipped"], told["failed"], told["left"], told["continue"]) == ([], [], 0, None)
    empty = run("resume", *FAILED, cwd=night.folder)
    assert (empty.code, empty.stdout) == (0, "There is nothing to resume: no session matches.\n")


@pytest.mark.long
def test_a_command_that_was_killed_can_be_run_again_and_nothing_is_doubled(night: Night) -> None:
    night.fail(30)
    night.write("hold", "")
    with Process("resume", *FAILED, "--jobs", "3", cwd=night.folder) as process:
        night.holds(3)
        process.signal(signal.SIGKILL)
        process.wait()
    (night.folder / "hold").unlink()
    assert night.statuses() == {"failed": 27, "ready": 3}
    again = run("resume", *FAILED, cwd=night.folder)
    assert (again.code, again.stdout) == (0, "27 sessions resumed: 27 completed.\n")
    assert "3 other sessions were interrupted before. Resume them:  pausepoint resume --status ready" in again.stderr
    rest = again.stderr.partition("Resume them:  pausepoint ")[2].split()
    assert run(*rest, cwd=night.folder).stdout == "3 sessions resumed: 3 completed.\n"
    assert night.statuses() == {"completed": 30}
    assert night.calls == ONCE


def test_ctrl_c_leaves_the_rest_as_it_was_and_says_how_to_continue(night: Night) -> None:
    night.fail(12)
    night.write("hold", "")
    with Process("resume", *FAILED, "--jobs", "2", cwd=night.folder, tty=True) as process:
        night.holds(2)
        process.until("0 of 12 sessions (2 running)")
        process.type("\x03")
        done = process.wait()
    (night.folder / "hold").unlink()
    said = plain(done.stdout)
    assert (done.code, "Interrupted: 0 sessions were resumed, 12 remain." in said) == (130, True), said
    assert night.statuses() == {"failed": 10, "ready": 2}
    [command] = re.findall(r"Continue:\s+pausepoint (.*)", said)
    rest = run(*shlex.split(command.strip()), cwd=night.folder)
    assert rest.stdout == "12 sessions resumed: 12 completed.\n"
    assert night.calls == ONCE


def test_a_dry_run_lists_what_would_happen_and_changes_nothing(night: Night) -> None:
    night.fail(3)
    for verb, count in (("resume", 3), ("cancel", 3), ("pause", 0)):
        done = run(verb, "--owner", "ann", "--dry-run", cwd=night.folder)
        *lines, last = done.stdout.splitlines()
        skipped = "" if count else " 3 skipped."
        past = {"resume": "resumed", "cancel": "cancelled", "pause": "paused"}[verb]
        assert last == f"{count} sessions would be {past}.{skipped} This is a dry run: nothing has changed."
        assert [line.split()[0] for line in lines] == ["night-0000", "night-0001", "night-0002"]
        assert ("skipped: It has failed, so it does not run." in lines[0]) == (verb == "pause")
        told = json.loads(run(verb, "--owner", "ann", "--dry-run", "--json", cwd=night.folder).stdout)
        assert (told["dry_run"], len(told["done"])) == (True, count)
    assert night.statuses() == {"failed": 3}


@pytest.mark.long
def test_sessions_are_handed_to_a_worker(night: Night) -> None:
    night.fail(5)
    done = run("resume", *FAILED, "--hand-over", "--jsonl", cwd=night.folder)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.code, {(line["result"], line["status"]) for line in lines}) == (3, {("done", "ready")})
    alone = run("resume", "--tag", "night", "--hand-over", cwd=night.folder)
    assert (alone.code, alone.stdout) == (3, "5 sessions handed over: 5 ready.\n")
    said = "No open process has the workflow 'night'. Its sessions are ready. Start a worker:  pausepoint worker"
    assert said in alone.stderr
    assert run("worker", "--once", cwd=night.folder).code == 0
    assert night.statuses() == {"completed": 5}


@pytest.mark.long
def test_one_session_is_handed_to_a_worker(night: Night) -> None:
    night.fail(1)
    with Process("worker", cwd=night.folder) as worker:
        worker.until("Driving night")
        done = run("resume", "night-0000", "--hand-over", cwd=night.folder)
        assert (done.code, done.stdout.startswith("night-0000 is handed over.")) == (0, True)
        worker.until("completed")
    refused = run("resume", "night-0000", "--hand-over", "--wake", "--detach", cwd=night.folder)
    assert (refused.code, refused.stderr) == (2, "pausepoint: --detach and --wake cannot be used with --hand-over.\n")


@pytest.mark.long
def test_what_was_paused_by_a_filter_is_resumed_by_the_printed_command(night: Night) -> None:
    night.fail(2)
    with chdir(night.folder):
        for n in (8, 9):
            args = ("run", "night", "--session-id", f"s{n}", "--tag", "late", "--paused")
            assert run(*args, cwd=night.folder).code == 3
    done = run("pause", "--tag", "late", "--reason", "lunch", "--wait", cwd=night.folder)
    assert done.code == 0
    assert done.stdout.splitlines() == ["s8  night  paused", "s9  night  paused", "2 sessions paused."]
    again = "pausepoint resume --status paused --status pausing --tag late"
    assert done.stderr.splitlines()[-1] == f"Resume them:  {again}"
    resumed = run(*shlex.split(again)[1:], cwd=night.folder)
    assert (resumed.code, resumed.stdout) == (0, "2 sessions resumed: 2 completed.\n")


def test_a_bulk_cancel_asks_at_a_terminal(night: Night) -> None:
    night.fail(2)
    no = run("cancel", "--tag", "night", cwd=night.folder, tty=True, typed="\n")
    assert no.code == 0
    assert "Cancel 2 sessions permanently? [y/N]:" in plain(no.stdout)
    assert plain(no.stdout).splitlines()[-1].endswith("Nothing was cancelled.")
    assert night.statuses() == {"failed": 2}
    yes = run("cancel", "--tag", "night", "--wait", cwd=night.folder, tty=True, typed="y\n")
    assert plain(yes.stdout).splitlines()[-1] == "2 sessions cancelled."
    assert night.statuses() == {"cancelled": 2}
    gone = run("cancel", "--tag", "night", "--yes", cwd=night.folder, tty=True)
    assert "There is nothing to cancel: all 2 matching sessions have ended." in plain(gone.stdout)


def test_without_a_terminal_a_bulk_cancel_reports_each_session(night: Night) -> None:
    night.fail(2)
    done = run("cancel", "--failed", "--reason", "no use", cwd=night.folder)
    lines = ["night-0000  night  cancelled", "night-0001  night  cancelled", "2 sessions cancelled."]
    assert (done.code, done.stdout.splitlines()) == (0, lines)


def test_sessions_whose_code_is_not_loaded_are_named(night: Night) -> None:
    night.fail(2)
    (night.folder / "pyproject.toml").unlink()
    done = run("resume", *FAILED, cwd=night.folder)
    assert done.code == 1
    assert "night-0000  night  failed     needs the code of workflow 'night', which is not loaded" in done.stdout
    assert "To load the code of night, add --target file.py:name." in done.stderr
    assert run("resume", *FAILED, "--target", "night.py", cwd=night.folder).code == 0


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A failed session that no test changes."""
    found = Night(tmp_path_factory.mktemp("untouched"))
    found.fail(1)
    return found


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("cancel",), 2, "Give sessions to cancel, or filters (--status"),
        (("cancel", "x", "--tag", "night"), 2, "Give sessions to cancel, or filters"),
        (("cancel", "x", "--dry-run"), 2, "--dry-run and --yes need filters."),
        (("pause",), 2, "Give exactly one of: a session, filters (--status"),
        (("pause", "x", "--dry-run"), 2, "--dry-run needs filters."),
        (("resume", "x", "--tag", "night"), 2, "Give a session or filters (--tag night), not both."),
        (("resume", "--tag", "night", "--steal"), 2, "--steal cannot be used with filters."),
        (("resume", "--tag", "night", "--pause-after", "keep"), 2, "--pause-after cannot be used with filters."),
        (("resume", "--tag", "night", "--hand-over", "--wake"), 2, "--wake cannot be used with --hand-over."),
        (("resume", "--tag", "nigth"), 4, "No session has the tag 'nigth'. Did you mean 'night'?"),
        (("resume", "--tag", "night", "--jobs", "0"), 2, "--jobs: '0' is not accepted."),
        (("ls", "--since", "yesterday"), 2, "--since: 'yesterday' is not a time."),
    ],
)
def test_what_is_meant_has_to_be_clear(untouched: Night, args: tuple[str, ...], code: int, said: str) -> None:
    done = run(*args, cwd=untouched.folder)
    assert (done.code, said in done.stderr) == (code, True), done
    assert untouched.statuses() == {"failed": 1}


def test_without_a_store_there_is_nothing_to_do(night: Night) -> None:
    for verb in ("resume", "pause", "cancel"):
        done = run(verb, "--tag", "x", cwd=night.folder)
        assert (done.code, done.stdout) == (0, f"There is no store here, so there is nothing to {verb}.\n")
        assert json.loads(run(verb, "--tag", "x", "--json", cwd=night.folder).stdout)["done"] == []


@on_loop
async def test_ls_lists_what_was_updated_in_a_time(night: Night) -> None:
    async with Engine(night.store) as engine:
        await engine.start(sample.night, session_id="one", paused=True)
        info = await engine.session("one").info()
        assert info.status is Status.PAUSED

    def listed(*args: str) -> list[str]:
        return [
            each["session_id"] for each in json.loads(run("ls", "--json", *args, cwd=night.folder).stdout)["sessions"]
        ]

    before = (info.updated_at - timedelta(seconds=2)).isoformat()
    after = (info.updated_at + timedelta(seconds=1)).isoformat()
    assert listed("--since", "1h") == listed("--since", before, "--until", after) == ["one"]
    assert listed("--until", "1h") == listed("--since", after) == listed("--until", before) == []


def test_a_time_is_local_unless_it_has_a_zone() -> None:
    moment = Moment()
    assert moment.convert("2026-03-01", None, None) == datetime(2026, 3, 1).astimezone()
    assert moment.convert("2026-03-01T22:00Z", None, None) == datetime(2026, 3, 1, 22, tzinfo=UTC)
    for text, ago in (("30m", timedelta(minutes=30)), ("2w", timedelta(weeks=2))):
        found = moment.convert(text, None, None)
        assert timedelta(0) <= datetime.now(UTC) - found - ago < timedelta(minutes=1)
    for text in ("tomorrow", "999999w", "12", ""):
        with pytest.raises(click.BadParameter, match="is not a time"):
            moment.convert(text, None, None)


def test_filters_are_printed_as_they_are_typed() -> None:
    when = datetime(2026, 3, 1, 22, tzinfo=UTC)
    filters = Filters(("failed", "ready"), True, "night", "ann", "two words", when, when)
    assert shlex.join(filters.words) == (
        "--status failed --status ready --failed --workflow night --owner ann --tag 'two words'"
        " --since 2026-03-01T22:00:00+00:00 --until 2026-03-01T22:00:00+00:00"
    )
