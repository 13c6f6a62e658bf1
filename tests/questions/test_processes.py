"""Questions over process boundaries: many answer at once, and who asked is dead by then."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.questions.jobs import polling
from tests.questions.kit import statuses, waits
from tests.support.forkserver import ForkServer

PROCESSES = 50


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.questions.jobs") as running:
        yield running


def lines(log: Path) -> list[str]:
    return log.read_text("utf-8").splitlines()


@pytest.mark.long
@pytest.mark.covers("S2.45")
def test_fifty_processes_answer_one_question_at_once_and_one_of_them_wins_and_it_is_executed_once(
    server: ForkServer, tmp_path: Path
) -> None:
    path, log, gate = str(tmp_path / "it.db"), tmp_path / "log", tmp_path / "gate"

    async def ask() -> str:
        async with Engine(path) as engine:
            return (await waits(await engine.start(polling, session_id="s", log=str(log)))).id

    question = asyncio.run(ask())
    racers = [
        server.start("tests.questions.jobs:answer", path=path, question=question, value=f"v{n}", gate=str(gate))
        for n in range(PROCESSES)
    ]
    for racer in racers:
        assert racer.hear() == {"ready": True}
    gate.touch()
    heard = [racer.hear() for racer in racers]
    assert [racer.wait() for racer in racers] == [0] * PROCESSES
    assert Counter(each["verdict"] for each in heard) == {"taken": 1, "AnswerConflict": PROCESSES - 1}
    [winner] = {each["by"] for each in heard}  # all losers name the same one, who is the one that was told so
    drivers = [server.start("tests.questions.jobs:drive", path=path, session="s") for _ in range(3)]
    assert [driver.hear() for driver in drivers] == [{"status": "completed", "said": winner}] * 3
    assert lines(log) == ["before", f"used {winner}"]


@pytest.mark.long
@pytest.mark.covers("S2.32", "S2.38")
def test_the_process_that_asked_is_killed_and_another_one_goes_on_with_the_answer(
    server: ForkServer, tmp_path: Path
) -> None:
    path, log = str(tmp_path / "it.db"), tmp_path / "log"
    asker = server.start("tests.questions.jobs:ask_and_die", path=path, session="s", log=str(log))
    asked = asker.hear()
    assert asked["text"] == "投票？🐙"
    assert asker.wait() == -signal.SIGKILL
    gate = tmp_path / "gate"
    gate.touch()
    person = server.start(
        "tests.questions.jobs:answer", path=path, question=asked["question"], value="שלום 好", gate=str(gate)
    )
    assert person.hear() == {"ready": True}
    assert person.hear() == {"verdict": "taken", "by": "שלום 好"}
    assert person.wait() == 0
    driver = server.start("tests.questions.jobs:drive", path=path, session="s")
    assert driver.hear() == {"status": "completed", "said": "שלום 好"}
    assert lines(log) == ["before", "used שלום 好"]

    async def look() -> None:
        async with Engine(path) as engine:
            session = engine.session("s")
            assert await statuses(session) == ["COMPLETED"]
            assert (await engine.verify()).ok

    asyncio.run(look())
