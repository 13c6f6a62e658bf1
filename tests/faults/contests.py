"""Trials in which many processes use the same session: races for the hold, and concurrent requests."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

from pausepoint import Status
from pausepoint.errors import DamagedRecord
from tests.faults.jobs import Waiting, waiting
from tests.faults.lab import Lab
from tests.support.forkserver import Child
from tests.support.loop import PATIENCE


def parked(lab: Lab) -> dict[str, str]:
    """Return the id of a new session that no process drives, and the files of its trial."""
    session = lab.new("race")
    return {
        "session": session,
        "gate": lab.gate(session),
        "end": lab.file(session, "end"),
        "runs": lab.file(session, "runs"),
    }


def store(lab: Lab, trial: dict[str, str]) -> None:
    """Create the session paused, so that it can be resumed."""
    given = Waiting(gate=trial["end"], runs=trial["runs"])
    lab.do(lab.engine.start(waiting, given, session_id=trial["session"], paused=True))


def races(lab: Lab, processes: int, rounds: int, verb: str, twin: str = "") -> list[str]:
    """Let all processes claim the same session at the same moment, once per round. Exactly one may succeed."""
    trials = [parked(lab) for _ in range(rounds)]
    if verb == "resume":
        for trial in trials:
            store(lab, trial)
    args: dict[str, Any] = {"path": lab.path, "rounds": trials, "verb": verb, "twin": twin}
    racers = [lab.server.start("tests.faults.jobs:race", **args) for _ in range(processes)]
    wrong = [f"{trial['session']}: {text}" for trial in trials for text in _race(lab, racers, trial)]
    return wrong + [f"a racer ended with {racer.code}" for racer in racers if racer.wait() != 0]


def _race(lab: Lab, racers: list[Child], trial: dict[str, str]) -> list[str]:
    for racer in racers:
        assert racer.hear() == {"ready": trial["session"]}
    with open(trial["gate"], "wb"):  # open until all processes have passed
        answers = _answers(lab, racers, trial)
    refused = [answer for answer in answers.values() if answer["result"] == "AlreadyRunning"]
    winners = [racer for racer, answer in answers.items() if answer["result"] == "completed"]
    if (len(winners), len(refused)) != (1, len(racers) - 1):
        return [f"of {len(racers)}: {[answer['result'] for answer in answers.values()]}"]
    named = f"process {winners[0].pid} on {socket.gethostname()}"
    wrong = [f"a refusal does not name {named}: {each['text']}" for each in refused if named not in each["holder"]]
    if (ran := lab.runs(trial["session"]).labels) != ["step stand#1"]:
        wrong.append(f"executed: {ran}")
    if (status := lab.row(trial["session"]).status) is not Status.COMPLETED:
        wrong.append(f"left {status}")
    lab.records(trial["session"])
    return wrong


def _answers(lab: Lab, racers: list[Child], trial: dict[str, str]) -> dict[Child, dict[str, Any]]:
    """Return the reply of each process. The winner stays in its step until all others are refused."""
    answers: dict[Child, dict[str, Any]] = {}
    standing: set[Child] = set()
    while len(answers) < len(racers):
        for racer in racers:
            while racer not in answers and racer.said:
                message = racer.said.pop(0)
                if "standing" in message:
                    standing.add(racer)
                else:
                    answers[racer] = message
        if standing and len(standing | answers.keys()) == len(racers):
            Path(trial["end"]).touch()
        left = [racer for racer in racers if racer not in answers]
        lab.server.until_any(left)
        assert all(racer.said or racer.code is None for racer in left), "a racer died"
    return answers


def flips(lab: Lab, processes: int, each: int, sessions: int = 4, twin: str = "") -> tuple[list[str], int]:
    """Let many processes pause and resume sessions that a driver holds. Return failures and the number of changes."""
    trials = [parked(lab) for _ in range(sessions)]
    driver = lab.server.start("tests.faults.jobs:hold", path=lab.path, sessions=trials)
    while driver.hear() != {"held": sessions}:
        pass
    requests = lab.new("flips")
    gate = lab.gate(requests)
    args: dict[str, Any] = {"count": each, "gate": gate, "runs": lab.file(requests, "runs"), "twin": twin}
    names = [trial["session"] for trial in trials]
    flippers = [
        lab.server.start("tests.faults.jobs:flip", path=lab.path, sessions=names, me=str(me), **args)
        for me in range(processes)
    ]
    for flipper in flippers:
        flipper.hear()
    with open(gate, "wb"):
        codes = [flipper.wait(PATIENCE) for flipper in flippers]
    wrong = [f"flippers ended with {codes}"] if any(codes) else []
    asked = [line.split() for line in lab.runs(requests).others]
    if len(asked) != processes * each:
        wrong.append(f"{len(asked)} of {processes * each} requests came back")
    took_effect = 0
    for trial in trials:
        mine = [request for request in asked if request[0] == trial["session"]]
        found, effective = _requests(lab, trial["session"], mine)
        wrong, took_effect = wrong + found, took_effect + effective
    wrong += _ends_as_asked_last(lab, trials, driver)
    return wrong, took_effect


def _requests(lab: Lab, session: str, asked: list[list[str]]) -> tuple[list[str], int]:
    """Check that every request left a signal, or that the session already had the wanted status during the call."""
    try:
        signals = lab.signals(session)
    except DamagedRecord as error:
        return [f"{session}: {error}"], 0
    kinds = ["resume", *(signal.kind for signal in signals)]
    authors = [signal.by for signal in signals]
    wrong = []
    if any(one == next_ for one, next_ in pairwise(kinds)):
        wrong.append(f"{session}: two signals in a row ask for the same")
    if len(set(authors)) != len(authors):
        wrong.append(f"{session}: a request has two signals")
    for _, verb, by, first, last, result in asked:
        if result not in ("ok", "AlreadyRunning"):
            wrong.append(f"{session}: {verb} by {by} got {result}")
        elif by not in authors and verb not in kinds[int(first) : int(last) + 1]:
            wrong.append(f"{session}: {verb} by {by} is lost")
    if lab.row(session).pause_requested != (kinds[-1] == "pause"):
        wrong.append(f"{session}: the flag is not what signal {len(signals)} asked for")
    return wrong, len(signals)


def _ends_as_asked_last(lab: Lab, trials: list[dict[str, str]], driver: Child) -> list[str]:
    """Release the sessions from their step. Each must be paused or completed, as its last signal requires."""
    asked = [lab.row(trial["session"]).pause_requested for trial in trials]
    for trial in trials:
        Path(trial["end"]).touch()
    if (code := driver.wait()) != 0:
        return [f"the driver ended with {code}"]
    left = [lab.row(trial["session"]) for trial in trials]
    wrong = [
        f"{row.session_id}: left {row.status}"
        for row, flag in zip(left, asked, strict=True)
        if row.status is not (Status.PAUSED if flag else Status.COMPLETED)
    ]
    changed = [row.session_id for row, flag in zip(left, asked, strict=True) if row.pause_requested != flag]
    return wrong + [f"{session}: the flag changed by itself" for session in changed]
