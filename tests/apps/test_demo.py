"""The demo, run as a person runs it: as a process, and compared with the store that it leaves."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from pausepoint import Engine, Status
from pausepoint.apps.demo.pipeline import PRICES, Report, primes_below, report
from pausepoint.apps.demo.screen import Screen
from pausepoint.apps.demo.view import Row, View
from pausepoint.model import Event, SessionId
from tests.support.loop import PATIENCE


@dataclass(frozen=True)
class Shown:
    """What was printed, what the store says, and which calls the workers counted."""

    text: str
    session_id: SessionId
    status: Status
    state: Report
    spent: float
    events: list[Event]
    calls: list[tuple[str, int]]

    def found(self, pattern: str) -> list[Any]:
        """Strings, or tuples of strings if the pattern has several groups."""
        return re.findall(pattern, self.text, re.MULTILINE)

    def of_type(self, event_type: str) -> list[Event]:
        return [event for event in self.events if event.event_type == event_type]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pausepoint.apps.demo", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)


async def look(folder: Path, text: str) -> Shown:
    async with Engine(folder / "pausepoint.db", workflows=[report]) as engine:
        (info,) = await engine.sessions()
        session = engine.session(info.session_id)
        events = [event async for event in session.events()]
        state = await session.state()
    lines = (folder / f"{info.session_id}.calls.txt").read_text().splitlines()
    calls = [(name, int(pid)) for name, pid in (line.split("\t") for line in lines)]
    return Shown(text, info.session_id, info.status, state, info.spent_usd, events, calls)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    done = run("--fast", "--store", folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return asyncio.run(look(folder, done.stdout))


@pytest.mark.long
def test_a_worker_is_really_killed_and_others_take_over(shown: Shown) -> None:
    assert len(shown.found(r"^   \$ kill -9 (\d+)$")) == 1
    (killed,) = shown.found(r"Process (\d+) was ended by SIGKILL")
    workers = list(dict.fromkeys(pid for _, pid in shown.calls))
    assert len(workers) == 3
    assert int(killed) == workers[0]
    # A process that was asked to end says so; the killed one had no time for that.
    assert [
        event.event_type for event in shown.events if event.event_type in ("session.stopped", "session.paused")
    ] == ["session.paused"]
    assert len(shown.of_type("session.resumed")) == 2


def test_nothing_that_was_finished_is_called_again(shown: Shown) -> None:
    killed = shown.calls[0][1]
    before = [name for name, pid in shown.calls if pid == killed]
    again = {name for name, times in Counter(name for name, _ in shown.calls).items() if times > 1}
    first_resume = shown.of_type("session.resumed")[0]
    kept = [
        event for event in shown.events if event.event_type == "spent" and event.created_at < first_resume.created_at
    ]
    assert again <= set(before)
    assert len(before) == len(kept) + len(again)
    assert all(times <= 2 for times in Counter(name for name, _ in shown.calls).values())
    assert f"{len(shown.calls)} calls for {len({name for name, _ in shown.calls})} pieces of work" in shown.text


def test_the_savings_printed_are_those_of_the_store(shown: Shown) -> None:
    resumed = [event.data for event in shown.of_type("session.resumed")]
    rows = shown.found(r"^   (\w+) +(\d+) steps?, \d+ items? +([\d.]+) s +\$([\d.]+)$")
    expected = [
        (data["step"], str(data["skipped"]), f"{data['saved_seconds']:.2f}", f"{data['saved_usd']:.2f}")
        for data in resumed
    ]
    assert rows == expected
    ((seconds, usd),) = shown.found(r"^   saved +([\d.]+) s +\$([\d.]+)$")
    assert seconds == f"{sum(data['saved_seconds'] for data in resumed):.2f}"
    assert usd == f"{sum(data['saved_usd'] for data in resumed):.2f}"


def test_the_savings_are_the_work_that_was_finished_before_each_resume(shown: Shown) -> None:
    for resumed in shown.of_type("session.resumed"):
        before = [event for event in shown.events[: shown.events.index(resumed)] if event.event_type == "spent"]
        assert resumed.data["saved_usd"] == pytest.approx(float(sum(PRICES[event.agent_name] for event in before)))
        # Each piece of work waits that long; those of one step do so side by side, which counts once.
        assert resumed.data["saved_seconds"] >= 0.15 * len({event.agent_name for event in before})
        assert resumed.data["saved_seconds"] <= (resumed.created_at - shown.events[0].created_at) / 1e6


def test_money_is_spent_once_for_every_piece_of_work(shown: Shown) -> None:
    pieces = {name for name, _ in shown.calls}
    price = sum((PRICES[name.split()[0]] for name in pieces), Decimal())
    assert shown.spent == pytest.approx(float(price))
    assert shown.found(r"^   spent +\$([\d.]+)$") == [f"{price:.2f}"]


def test_the_pause_comes_from_another_process_and_says_who_and_why(shown: Shown) -> None:
    (asked,) = shown.of_type("pause.requested")
    assert f"by {asked.agent_name}: {asked.data['reason']}." in shown.text
    (pid,) = shown.found(r"Process (\d+) \(this one\) requests a pause")
    assert int(pid) not in {worker for _, worker in shown.calls}


def test_the_report_is_right_and_shown(shown: Shown) -> None:
    assert shown.status == "completed"
    assert shown.state.total == shown.state.recount == len(primes_below(shown.state.upto))
    for line in shown.state.text.splitlines():
        assert f"   {line}\n" in shown.text


def test_a_kept_store_is_named_with_the_command_that_shows_it(shown: Shown) -> None:
    assert "The store is kept. Look at it:\n   pausepoint ls --store " in shown.text


def test_output_that_is_no_terminal_is_plain_text(shown: Shown) -> None:
    assert "\033" not in shown.text
    assert "\r" not in shown.text


@pytest.mark.long
def test_help_names_the_options() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--fast", "--store", "--keep"))


@pytest.mark.long
def test_a_folder_that_cannot_hold_a_store_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pausepoint.db").write_text("something else")
    done = run("--fast", "--store", tmp_path)
    assert done.returncode == 1
    assert "is not a database" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("inside", ["", "folder"])
def test_a_place_where_no_folder_can_be_is_a_usage_error(tmp_path: Path, inside: str) -> None:
    place = tmp_path / "file"
    place.write_text("in the way")
    done = run("--fast", "--store", place / inside)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Cannot create a store in {place / inside}: " in done.stderr
    assert "Name another folder with --store" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pausepoint.apps.demo", "--fast", "--store", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        for _ in range(2):
            demo.stdout.readline()
        demo.stdout.close()
        assert demo.stderr.read() == ""  # its worker has this end too, so it is gone as well
    assert demo.returncode == 128 + signal.SIGPIPE


class Terminal(io.TextIOWrapper):
    """What would be on a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.seek(0)
        return self.read()


def a_view() -> View:
    """A step that is kept, one in the middle of its items with all there is to say, and those ahead."""
    view = View()
    view.rows["outline"] = Row("outline", done=True, kept=True, took=1.0, usd=0.05)
    view.rows["survey"] = Row("survey", total=8, items=5, kept_items=3, took=1.0, usd=0.6)
    return view


@pytest.mark.parametrize("columns", [20, 40, 60, 100])
def test_no_row_is_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    screen = Screen(terminal)
    view = a_view()
    for _ in range(2):
        screen.draw(view, running=True)
    rows = re.sub(r"\033\[\d*\w", "", terminal.text()).splitlines()
    assert len(rows) == 2 * len(view.rows)
    assert max(map(len, rows)) <= columns - 1
    assert columns < 100 or any(row.endswith("5 of 8, 3 kept from before, $0.60") for row in rows)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_an_encoding_without_the_signs_gets_plain_ones(
    encoding: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", kind)
    terminal = Terminal(encoding)
    screen = Screen(terminal)
    screen.say("kept in a folder called ∞")
    screen.draw(a_view(), running=True)
    shown = terminal.text()
    assert "folder called ?" in shown
    assert "#####..." in shown
    assert shown.count("?") == 1


@pytest.mark.long
def test_the_page_is_served_over_sessions_of_many_kinds(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pausepoint.apps.demo", "--serve", "--fast", "--store", str(tmp_path)]
    half = tmp_path / ".demo-unfinished" / "pausepoint.db"  # an earlier call was killed while it made the store
    half.parent.mkdir()
    half.write_text("half")
    for sessions in ("8 sessions", "12 sessions"):  # the second run finds the store of the first, with four children
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
            assert demo.stdout is not None
            try:
                assert sessions in demo.stdout.readline()
                address = demo.stdout.readline().strip()
                assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S+", address)
                base, token = address.split("/#token=")
                found = _settled(base, token)
            finally:
                os.killpg(demo.pid, signal.SIGINT)  # as Ctrl+C does
                rest = demo.stdout.read()
            assert demo.wait() == 130
            assert f"The store is kept: {tmp_path / 'pausepoint.db'}" in rest
            assert not half.parent.exists()
        assert found == {
            "report-done": "completed", "report-running": "completed", "series-running": "completed",
            "report-paused": "paused", "reminder-talk": "sleeping", "audit-primes": "failed",
            "notice-primes": "waiting", "notice-gaps": "waiting",
        }  # fmt: skip


@pytest.mark.long
def test_a_demo_that_is_ended_leaves_no_server_and_no_folder(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pausepoint.apps.demo", "--serve", "--fast"]
    found = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=found) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()
        demo.send_signal(signal.SIGTERM)  # which the server does not get
        demo.stdout.read()  # until the server has closed it too
        assert demo.wait() == 143
    assert list(tmp_path.iterdir()) == []


def _settled(base: str, token: str) -> dict[str, str]:
    """Return the sessions by status when the server has completed those that it drives."""
    end = time.monotonic() + PATIENCE
    while True:
        asked = Request(f"{base}/api/v1/sessions?level=root", headers={"Authorization": f"Bearer {token}"})
        with urlopen(asked, timeout=PATIENCE) as answer:
            found = {each["session_id"]: each["status"] for each in json.load(answer)["sessions"]}
        if found["series-running"] == found["report-running"] == "completed":
            return found
        assert time.monotonic() < end, found
        time.sleep(0.05)
