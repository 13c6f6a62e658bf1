"""The handlers of runs: graphs of tasks, and the agents of an orchestrator that work on them.

A run is read from the store, so it may be driven by another process whose code this server does not have. The
orchestrator is imported when a request needs it, because that takes long and most servers have no runs.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from pausepoint.errors import UnknownSession
from pausepoint.model.sessions import Status
from pausepoint.server import bodies, run_documents
from pausepoint.server.calls import Call, Reply
from pausepoint.server.problems import Problem

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.stores import Holder
    from pausepoint.model.views import SessionInfo
    from pausepoint.orchestrator import RunReader, RunReport


REMEMBERED = 16
"""The number of runs of which the next request reads only what is new."""


MOST = 50
"""The most agents at the gate that are listed."""


class Readers:
    """The readers of the runs that were requested last. A page that follows a run requests it again and again."""

    def __init__(self) -> None:
        self._found: dict[str, RunReader] = {}

    def of(self, engine: Engine, session_id: str) -> RunReader:
        """Return the reader of a run."""
        from pausepoint.orchestrator import RunReader

        reader = self._found.pop(session_id, None) or RunReader(engine, session_id)
        self._found[session_id] = reader  # the last one
        if len(self._found) > REMEMBERED:
            del self._found[next(iter(self._found))]
        return reader


async def index(call: Call) -> Reply:
    """List runs, newest first, without their tasks."""
    from pausepoint.orchestrator import runs

    query = call.query(bodies.Runs)
    infos = await runs(
        call.engine, owner=call.access.owner_of(query.owner), status=query.status or None, limit=query.limit,
        after=query.after,
    )  # fmt: skip
    return Reply(run_documents.runs(infos))


async def agents(call: Call) -> Reply:
    """List the agents at the gate that have not ended, with what each was told last and waits to do."""
    from pausepoint.gate import AGENTS, agent_note

    over = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    infos = await call.engine.sessions(
        workflow=AGENTS.name, owner=call.access.owner_of(None), status=[each for each in Status if each not in over],
        sort="updated", limit=MOST,
    )  # fmt: skip
    notes = [(info, await agent_note(call.engine, info)) for info in infos if info.guest]
    return Reply(run_documents.agents(notes))


async def show(call: Call) -> Reply:
    """Return a run: its phase, tasks, agents and open questions, and which process drives it."""
    _, found = await _read(call)
    return await _reply(call, found)


async def pause(call: Call) -> Reply:
    """Stop all agents of a run after their current step."""
    asked: bodies.Pause = call.body
    reader, found = await _read(call)
    await call.engine.session(found.info.session_id).pause(
        reason=asked.reason, by=call.by, mode=asked.mode, freeze=asked.freeze
    )
    return await _reply(call, await reader.read())


async def resume(call: Call) -> Reply:
    """Resume all agents of a run, or withdraw a pause that has not taken effect. The answer says what drives it."""
    asked: bodies.ResumeRun = call.body
    reader, found = await _read(call)
    info = found.info
    elsewhere = info.holder is not None and info.session_id not in call.engine.running
    here = _drives(call, info) and not elsewhere
    await call.engine.session(info.session_id).resume(by=call.by, budget=asked.budget, here=here)
    return await _reply(call, await reader.read())


async def _read(call: Call) -> tuple[RunReader, RunReport]:
    """Return a run that the person may see, and its reader.

    Raises a 404 for all other sessions, before anything is done to them: any session may have the tag of a run.
    """
    try:
        info = await call.access.info(call.session_id)
        reader = call.desk.readers.of(call.engine, info.session_id)
        return reader, await reader.read()
    except UnknownSession:
        text = f"There is no run {call.session_id!r}. List the runs with GET /runs."
        raise Problem(404, text, "unknown-run", session_id=call.session_id) from None


async def _reply(call: Call, report: RunReport) -> Reply:
    drivers = await _drivers(call, report.info)
    return Reply(await run_documents.run(report, drivers, _note(call, report.info, drivers)))


def _drives(call: Call, info: SessionInfo) -> bool:
    return call.desk.drives and info.workflow in call.engine.workflows


async def _drivers(call: Call, info: SessionInfo) -> list[run_documents.RunEngine]:
    """Return the open engines that drive a run, or would after a resume."""

    def drives(each: Holder) -> bool:
        return each.picks_up(info.workflow, info.session_id, info.queue) or info.session_id in each.sessions

    return [run_documents.RunEngine.of(engine) for engine in await call.engine.engines() if drives(engine)]


def _note(call: Call, info: SessionInfo, drivers: list[run_documents.RunEngine]) -> str:
    """Say which process drives a run, or what to do if none does."""
    from pausepoint.cli.context import program_of

    if info.status.value in ("completed", "cancelled"):
        return "The run has ended."
    if info.status.value == "failed":
        return "The run has failed. A resume does not repeat failed tasks: retry or skip them with its program."
    # What was read may be a moment old: this engine may have parked the run since.
    own = info.holder is None or run_documents.RunEngine(os.getpid(), socket.gethostname()) in drivers
    if info.session_id in call.engine.running or (_drives(call, info) and own):
        return "This server drives the run."
    if drivers:
        return f"Process {drivers[0].pid} on {drivers[0].host} drives the run."
    program = program_of(info.tags)
    command = "" if program is None else f": python -m {program} resume {info.session_id}"
    return f"No process drives the workflow {info.workflow!r}. Start the program of the run again{command}."
