"""``doctor``: check the versions, the store and its disk, the running processes, the sessions and the code."""

from __future__ import annotations

import asyncio
import glob
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import Output
from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, FAILED, Refused, error_message
from pausepoint.cli.findings import Finding, Ways, damaged, findings_of
from pausepoint.cli.host import command_line, how_to_start
from pausepoint.cli.options import OneOf, common
from pausepoint.cli.project import check_exists
from pausepoint.cli.text import counted, size, wrap_after
from pausepoint.cli.ways import with_commands
from pausepoint.errors import DamagedRecord, PausepointError
from pausepoint.name import NAME

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import Health


PACKAGES = (NAME, "pydantic", "msgspec", "apsw", "click", "rich")


@dataclass
class Known:
    """The facts of the report for ``--json``."""

    place: str
    python: str
    packages: dict[str, str]
    health: Health | None = None


async def examine(cli: Cli, accept_loss: bool = False) -> tuple[list[Finding], Known]:
    """Check everything. Nothing runs, and nothing is changed unless ``accept_loss`` is true and the log is damaged."""
    known = Known(cli.place.shown, sys.version.split()[0], _packages())
    findings = [_versions(known)]
    findings.append(_project(cli))
    code, workflows = _code(cli)
    try:
        if not cli.place.exists:
            findings.append(Finding("ok", "store", f"none yet at {cli.place.shown}", how_to_start().rstrip(".")))
            return findings + code, known
        if accept_loss:
            findings.append(await asyncio.to_thread(_loss_accepted, cli))
        findings += _kept_logs(cli)
        findings += await _opened(cli, known, workflows)
    except PausepointError as error:
        findings.append(Finding("bad", "store", f"{cli.place.shown} cannot be used", error_message(error)))
    return findings + code, known


async def _drawers(engine: Engine) -> list[Finding]:
    """Return what the store keeps for other programs, beside its sessions."""
    found = [
        f"{each.name} ({counted(each.streams, 'stream')}, {counted(each.values, 'value')}, {size(each.bytes)})"
        for each in await engine.drawers()
    ]
    return [Finding("ok", "drawers", ", ".join(found))] if found else []


def _loss_accepted(cli: Cli) -> Finding:
    from pausepoint.engine.stores import accept_loss

    copy = accept_loss(cli.place.url)
    if copy is None:
        return Finding("ok", "log", "the write-ahead log is not damaged, so nothing was changed")
    way = f"`{command_line('verify', *cli.store_words(own=True))}` checks the rest"
    return Finding("warn", "log", f"the loss was accepted; the damaged log was copied to {copy}", way)


def _kept_logs(cli: Cli) -> Iterator[Finding]:
    if cli.place.path is None:
        return
    path = cli.place.path.resolve()
    for copy in sorted(path.parent.glob(f"{glob.escape(path.name)}-wal-damaged-*")):
        way = "it contains data of sessions: delete it when you no longer need it"
        yield Finding("warn", "log", f"{copy} is a copy of a damaged write-ahead log", way)


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _versions(known: Known) -> Finding:
    text = f"Python {known.python}, " + ", ".join(f"{name} {version}" for name, version in known.packages.items())
    if missing := [name for name, version in known.packages.items() if version == "not installed"]:
        return Finding("bad", "versions", text, f"pip install {' '.join(missing)}")
    return Finding("ok", "versions", text)


def _project(cli: Cli) -> Finding:
    if cli.host.workflows:
        return Finding("ok", "program", f"{cli.host.name}: {', '.join(cli.host.workflows_by_name)}")
    if cli.project.found:
        return Finding(
            "ok", "project", f"{cli.project.root}, {counted(len(cli.project.targets), 'workflow')} in pyproject.toml"
        )
    return Finding("ok", "project", f"none; using {cli.project.root}", f"`{command_line('init')}` creates one")


def _code(cli: Cli) -> tuple[list[Finding], list[Workflow[Any]]]:
    """Return findings about the named workflows, and the workflows that can be imported."""
    from pausepoint.cli.targets import load_named

    findings, workflows = [], []
    for target in cli.host.workflows_by_name or (*cli.project.targets.values(), *cli.targets):
        try:
            _, workflow = load_named(target, cli.project)
        except Refused as error:
            way = "fix it, or remove it from [tool.pausepoint.workflows]"
            findings.append(Finding("bad", "code", error.message, way))
        else:
            workflows.append(workflow)
            steps = counted(len(workflow.steps), "step")
            findings.append(Finding("ok", "code", f"{target}: {workflow.name}, version {workflow.version}, {steps}"))
    return findings, list({workflow.name: workflow for workflow in workflows}.values())


async def _opened(cli: Cli, known: Known, workflows: list[Workflow[Any]]) -> list[Finding]:
    from pausepoint.engine.engine import Engine

    async with Engine(cli.place.url, workflows=workflows, drives="none") as engine:
        known.health = health = await engine.health()
        left = {holder.number: await _resumes(cli, engine, holder.sessions[0]) for holder in health.gone}
        findings = [*findings_of(health, left, _ways()), *await _drawers(engine)]
        return findings + [finding async for finding in _misfits(cli, engine, health.damaged)]


def _ways() -> Ways:
    return Ways(
        clean_up=f"`{command_line('gc')}`",
        verify=f"`{command_line('verify')}`",
        lift=f"`{command_line('resume', '--all')}`",
        show=_showing,
    )


def _showing(session_id: str) -> str:
    return f"`{command_line('show', session_id)}`"


async def _resumes(cli: Cli, engine: Engine, session_id: str) -> str:
    """Return how a session can continue whose process has ended."""
    try:
        info = await engine.session(session_id).info()
    except DamagedRecord:
        return f"`{command_line('verify', session_id)}` shows the damage"
    worker = cli.command("worker", workflow=info.workflow)
    return f"`{cli.resume(info)}`, or run `{worker}`{cli.to_add(info)}"


async def _misfits(cli: Cli, engine: Engine, known: Collection[str]) -> Any:
    """Yield one finding per workflow whose code is not loaded, and one per session that does not fit its code.

    Also those that cannot be read, unless they are ``known``.
    """
    misfits = await engine.misfits()
    for finding in damaged((error for error in misfits.damaged if str(error) not in known), _ways()):
        yield finding
    unknown = Counter(each.session.workflow for each in misfits if each.session.workflow not in engine.workflows)
    for workflow, count in unknown.items():
        which = counted(count, f"resumable session of {workflow!r}", f"resumable sessions of {workflow!r}")
        way = f'add {workflow} = "file.py:name" to [tool.pausepoint.workflows], or pass --target file.py:name'
        yield Finding("warn", "fit", f"{which}, but its code is not loaded", way)
    for each in misfits:
        if each.session.workflow in engine.workflows:
            text = f"{each.session.session_id} does not fit the code: {'; '.join(each.reasons)}"
            ways = with_commands("; or ".join(each.ways), cli, each.session)
            yield Finding("bad", "fit", text, ways or _way_out(each.session.session_id))
    if not misfits:
        yield Finding("ok", "fit", "all resumable sessions fit the code")


def _way_out(session_id: str) -> str:
    """Return what to do about a session if the engine knows no way to make it fit."""
    verify, cancel = command_line("verify", session_id), command_line("cancel", session_id)
    return f"run the former code and resume; or check for damage: `{verify}`; or end the session: `{cancel}`"


LEVELS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command()
@click.option(
    "--loss", type=OneOf(["accept"]),
    help="Make a store with a damaged write-ahead log usable again, without the commits that cannot be read.",
)  # fmt: skip
@common(target=True)
def doctor(cli: Cli, loss: str | None) -> int:
    """Check the store, the disk, the processes and the code.

    Each finding is healthy (ok), a warning (warn) or a problem (bad), with what to do about it. Nothing runs, and
    without --loss nothing is repaired. Exits with 1 if there is a problem.
    """
    if cli.place.explicit and cli.place.path is not None:  # about a server, the report says more
        check_exists(cli.place)
    return int(run_async(_doctor(cli, loss == "accept")))


async def _doctor(cli: Cli, accept_loss: bool) -> int:
    findings, known = await examine(cli, accept_loss)
    bad = any(finding.level == "bad" for finding in findings)
    if cli.out.as_json:
        from pausepoint.engine.store_documents import ExaminationDocument, health

        cli.out.document(ExaminationDocument(
            not bad, [finding.document() for finding in findings], known.place, known.python, known.packages,
            None if known.health is None else health(known.health),
        ))  # fmt: skip
    show_findings(cli.out, findings)
    return FAILED if bad else DONE


def show_findings(out: Output, findings: list[Finding]) -> None:
    """Print findings, one below the other, and how many problems there are."""
    width = max(len(finding.about) for finding in findings)
    last = ""
    for finding in findings:
        level = out.paint(finding.level.ljust(4), LEVELS[finding.level], bold=finding.level != "ok")
        about = finding.about if finding.about != last else ""
        last = finding.about
        wrap_after(out, f"{level}  {about.ljust(width)}  ", width + 8, finding.text)
        if finding.way_out:
            wrap_after(out, " " * (width + 8) + "→ ", width + 10, finding.way_out)
    count = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    if count["bad"] or count["warn"]:
        out.line()
        out.line(f"{counted(count['bad'], 'problem')}, {counted(count['warn'], 'warning')}")
