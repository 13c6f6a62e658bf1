"""The demo, run as a person runs it: as a process, and compared with the store that it leaves."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Event, SessionId, Status
from holdfast.demo.pipeline import PRICES, Report, primes_below, report


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
    words = [sys.executable, "-m", "holdfast.demo", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


async def look(folder: Path, text: str) -> Shown:
    async with Engine(folder / "holdfast.db", workflows=[report]) as engine:
        (info,) = await engine.sessions()
        session = await engine.session(info.session_id)
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
    kept = [event for event in shown.events if event.event_type == "spent" and event.at < first_resume.at]
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
        assert resumed.data["saved_seconds"] >= 0.15 * len(before)  # each piece waits that long


def test_money_is_spent_once_for_every_piece_of_work(shown: Shown) -> None:
    pieces = {name for name, _ in shown.calls}
    price = sum((PRICES[name.split()[0]] for name in pieces), Decimal())
    assert shown.spent == pytest.approx(float(price))
    assert shown.found(r"^   spent +\$([\d.]+)$") == [f"{price:.2f}"]


def test_the_pause_comes_from_another_process_and_says_who_and_why(shown: Shown) -> None:
    (asked,) = shown.of_type("pause.requested")
    assert f"by {asked.agent_name}: {asked.data['reason']}." in shown.text
    (pid,) = shown.found(r"Process (\d+) \(this one\) asks for a pause")
    assert int(pid) not in {worker for _, worker in shown.calls}


def test_the_report_is_right_and_shown(shown: Shown) -> None:
    assert shown.status == "completed"
    assert shown.state.total == shown.state.recount == len(primes_below(shown.state.upto))
    for line in shown.state.text.splitlines():
        assert f"   {line}\n" in shown.text


def test_output_that_is_no_terminal_is_plain_text(shown: Shown) -> None:
    assert "\033" not in shown.text
    assert "\r" not in shown.text


def test_help_names_the_options() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in ("--fast", "--store", "--keep"))


def test_a_folder_that_cannot_hold_a_store_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_text("something else")
    done = run("--fast", "--store", tmp_path)
    assert done.returncode == 1
    assert "is not a database" in done.stdout
    assert "Traceback" not in done.stderr
