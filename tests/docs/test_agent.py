"""The agent of docs/agent.md: whenever it is killed, it ends as if it had not been."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.kit import Process
from tests.docs.pages import EXAMPLES
from tests.docs.programs import NEVER, Folder

TASK = "Book a hotel in Lisbon."
START = ("run", "agent.py", "--task", TASK, "--session-id", "trip", "--budget", "tokens=20000,operations=100")
RESUME = ("resume", "trip", "--target", "agent.py")
FIND, BOOK = "hotels: find Lisbon", "hotels: 2 nights, Hotel Astoria in Lisbon"
PAUSEPOINT = ("-m", "pausepoint")


class Trip(NamedTuple):
    """What has come of a session of the agent."""

    status: str
    result: str | None
    tokens: int
    operations: int
    shown: str
    bookings: list[str]


def trip(folder: Folder) -> Trip:
    with folder.desk() as desk:
        info, values = desk.session("trip").info(), desk.session("trip").stored().values
    return Trip(
        info.status, values["result"], info.spent_tokens, info.spent_operations,
        folder.shown("trip"), folder.orders("hotels"),
    )  # fmt: skip


def command(folder: Folder, *words: str) -> list[str]:
    """Run a command of Pausepoint, and return what it prints."""
    return folder.python(*PAUSEPOINT, *words)


def answer(folder: Folder, value: object) -> None:
    with folder.desk() as desk:
        desk.session("trip").answer(value)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trip:
    folder = Folder(tmp_path_factory.mktemp("undisturbed"))
    command(folder, *START)
    answer(folder, True)
    command(folder, *RESUME)
    return trip(folder)


def killed_while_booking(folder: Folder) -> list[str]:
    """Kill the agent after the service has booked and before it answers. Return what the next run prints."""
    folder.set(takes=NEVER)
    with folder.running(*PAUSEPOINT, *RESUME) as program:
        program.until(BOOK)
        program.killed()
    folder.set()
    return command(folder, *RESUME)


def test_the_agent_is_shorter_than_50_lines() -> None:
    lines = (EXAMPLES / "agent.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) < 50


@pytest.mark.long
def test_the_agent_does_what_the_page_says(undisturbed: Trip) -> None:
    booking = "2 nights, Hotel Astoria in Lisbon"
    assert (undisturbed.status, undisturbed.result) == ("completed", f"The booking: done, {booking}.")
    assert undisturbed.bookings == [booking]
    assert undisturbed.shown.splitlines() == [
        "I will look for a hotel in Lisbon.",
        "I found Hotel Astoria in Lisbon: 120 euros a night. I will book it.",
        undisturbed.result,
    ]
    assert undisturbed.tokens > 300
    assert undisturbed.operations == 8  # three answers of the model, two tools, their results, one question


@pytest.mark.long
def test_a_killed_agent_ends_as_if_it_had_not_been_killed(tmp_path: Path, undisturbed: Trip) -> None:
    folder = Folder(tmp_path)
    folder.set(pace=NEVER)
    with folder.running(*PAUSEPOINT, *START) as program:
        folder.until_words("trip")
        program.killed()
    folder.set(takes=NEVER)
    with folder.running(*PAUSEPOINT, *RESUME) as program:
        program.until(FIND)
        program.killed()
    folder.set()
    with Process(*RESUME, cwd=tmp_path, tty=True) as asking:
        assert FIND in asking.until("Book Hotel Astoria in Lisbon?")
        asking.child.kill()
    answer(folder, True)
    printed = killed_while_booking(folder)
    assert BOOK in printed  # the fault fired: the result was not stored, so the tool was called again
    assert FIND not in printed
    assert trip(folder) == undisturbed


@pytest.mark.long
def test_an_agent_without_an_idempotency_key_is_caught(tmp_path: Path, undisturbed: Trip) -> None:
    folder = Folder(tmp_path)
    folder.replace("agent.py", "key=current().idempotency_key", "key=__import__('uuid').uuid4().hex")
    command(folder, *START)
    answer(folder, True)
    killed_while_booking(folder)
    found = trip(folder)
    assert found.bookings == undisturbed.bookings * 2
    assert found != undisturbed


@pytest.mark.long
def test_only_a_resume_continues_a_paused_agent(tmp_path: Path, undisturbed: Trip) -> None:
    folder = Folder(tmp_path)
    gate = folder.gate()
    with folder.running(*PAUSEPOINT, *START) as program:
        program.until(FIND)
        with folder.desk() as desk:
            assert desk.session("trip").pause(reason="lunch")[0].status == "pausing"
        gate.touch()
        assert any("lunch" in line for line in program.lines())
    assert trip(folder).operations == 3  # the model, the tool that was in progress, and its result
    command(folder, *RESUME)
    with folder.desk() as desk:
        desk.session("trip").pause(reason="more lunch")
    answer(folder, True)
    paused = trip(folder)
    assert (paused.status, paused.bookings) == ("paused", [])
    command(folder, *RESUME)
    assert trip(folder) == undisturbed


@pytest.mark.long
def test_a_spent_budget_pauses_the_agent_and_a_no_reaches_the_model(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    command(folder, *START[:-1], "operations=1")
    assert (trip(folder).status, trip(folder).operations) == ("paused", 1)
    command(folder, *RESUME, "--budget", "operations=100")
    answer(folder, {"approved": False, "reason": "too expensive"})
    command(folder, *RESUME)
    found = trip(folder)
    assert (found.result, found.bookings) == ("The booking: declined, too expensive.", [])


@pytest.mark.long
def test_the_error_of_a_tool_reaches_the_model_and_a_forgotten_one_is_tried_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.replace("stand_in.py", 'return f"done, {what}"', 'raise OSError("no room")')
    command(folder, *START)
    answer(folder, True)
    assert command(folder, *RESUME).count(BOOK) == 3
    found = trip(folder)
    assert (found.status, found.result) == ("completed", "The booking: OSError: no room.")
    folder.set()
    command(folder, "forget", "trip", "result_of", "--target", "agent.py")
    command(folder, *RESUME)
    assert trip(folder).result == "The booking: done, 2 nights, Hotel Astoria in Lisbon."
