"""What every command uses: the project, the store, the open engine, the output, and commands to print."""

from __future__ import annotations

import asyncio
import re
import shlex
import socket
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.console import Output
from pausepoint.cli.exits import NOT_FOUND, PERSON, USAGE, Refused
from pausepoint.cli.host import NAMED_STORE, PAUSEPOINT, VERBOSE, Host, Start, host
from pausepoint.cli.project import (
    TARGET_VARIABLE,
    Place,
    Project,
    check_exists,
    find_project,
    find_store,
    remembered_targets,
)
from pausepoint.errors import did_you_mean
from pausepoint.name import FOLDER

if TYPE_CHECKING:
    from pausepoint.engine.base import Drives
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo


LOOK_EVERY = 0.1
"""Seconds between two looks at a session whose pause was withdrawn."""

PICK_UP_LOOKS = 15
"""The number of looks until a session counts as left alone. Open engines look for sessions at least once a second."""

ADD = " (add --target file.py:name)"
"""What a person must add to a command that needs code which the command line does not know."""


class Cli:
    """One call of a command: its program, project, store and output."""

    def __init__(self, store: str | None, targets: tuple[str, ...], as_json: bool, as_lines: bool) -> None:
        self.host: Host = host()
        self.project: Project = find_project()
        self.place: Place = find_store(store, self.project, self.host.store)
        has_own = bool(self.host.workflows) or self.host.drives
        self.targets = targets or (() if has_own else remembered_targets())
        self.named_store = store
        shows_steps = not self.host.quiet
        if (context := click.get_current_context(silent=True)) is not None:
            context.meta[NAMED_STORE] = store
            shows_steps |= context.meta.get(VERBOSE, False)
        self.out = Output(as_json, as_lines, shows_steps)
        self.may_import = self.targets == targets
        """Whether a command to print may import the code of its targets, to name only the target that is needed."""
        self.drivers: dict[str, str] = {}

    def start(self, owner: str | None = None, session_id: str | None = None) -> Start:
        """Return what a program's own functions get to know about the session to start."""
        return Start(self.place.url, self.folder, owner, session_id, self.named_store)

    @property
    def folder(self) -> Path:
        """The folder for files beside the store: the folder that contains it, or the project's if it is on a server."""
        path = self.place.path
        return self.project.root / FOLDER if path is None else path.absolute().parent

    @asynccontextmanager
    async def engine(self, *, code: bool = False, create: bool = False, quiet: bool = False) -> AsyncIterator[Engine]:
        """Open the store.

        - ``code``: load the project's workflows and those of ``--target``, and drive their sessions.
        - ``create``: create the store if it does not exist. Otherwise a missing store is refused.
        - ``quiet``: load the workflows but do not drive any session.
        """
        from pausepoint.engine.engine import Engine

        if not create:
            check_exists(self.place)
        workflows = [workflow for _, workflow in self.known().values()] if code else []
        drives: Drives = "none" if quiet or not code else "all"
        async with Engine(self.place.url, workflows=workflows, create=create, drives=drives) as engine:
            yield engine

    def known(self) -> dict[str, Any]:
        """Return the workflows of the project and of ``--target``: name → target and workflow."""
        from pausepoint.cli.targets import load_known

        return load_known(self.project, self.targets)

    def check_code(self, engine: Engine, info: SessionInfo) -> None:
        """Refuse with a way out if the code of the session's workflow is not loaded."""
        if info.workflow in engine.workflows:
            return
        if self.host.drives or program_of(info.tags) is not None:
            raise Refused(
                f"The code of session {info.session_id!r} is part of a program. Resume the session with"
                f" `{self.resume(info)}`.",
                USAGE,
            )
        if self.host.workflows:
            raise Refused(
                f"Session {info.session_id!r} belongs to workflow {info.workflow!r}, which this program does not"
                f" have. Its workflows are: {', '.join(self.host.workflows_by_name)}. You can still look at the"
                f" session: `{self.command('show', info.session_id)}`.",
                USAGE,
            )
        settings = self.project.root / "pyproject.toml"
        raise Refused(
            f"Session {info.session_id!r} needs the code of workflow {info.workflow!r}, which is not loaded. Add"
            f" --target file.py:name, set {TARGET_VARIABLE}=file.py:name, or add the workflow to {settings} under"
            f" [tool.pausepoint.workflows]{did_you_mean(info.workflow, engine.workflows)}",
            USAGE,
        )

    def resume(self, info: SessionInfo) -> str:
        """Return the exact command that resumes a session: of this program, or of the one that a tag names."""
        program = program_of(info.tags)
        if program is None or program in self.host.words:
            return self.command("resume", info.session_id, info.workflow)
        return shlex.join(["python", "-m", program, "resume", info.session_id, *self.store_words()])

    def resume_line(self, info: SessionInfo, label: str = "Resume") -> str:
        """Return a line with the command that resumes a session, and with what a person must add to it."""
        return f"{label}{self.to_add(info)}:  {self.resume(info)}"

    def to_add(self, info: SessionInfo) -> str:
        """Return what must be added to a command that needs the session's code; empty if the code is known here.

        An operator's pause can be withdrawn without the code, and so can every pause of a guest.
        """
        if program_of(info.tags) is not None or info.pause_requested or info.kept_by is not None or info.guest:
            return ""
        return "" if self.has_code(info.workflow) else ADD

    def note_driver(self, info: SessionInfo) -> None:
        """Remember the command line of the process that drives a session, to name it when the process has stopped."""
        if info.holder is not None and not self.has_code(info.workflow) and (found := command_of(info.holder)):
            self.drivers[info.session_id] = found

    def has_code(self, workflow: str) -> bool:
        """Return whether a command with the words that `command` returns has the code of a workflow."""
        if self.host.drives or workflow in self.host.workflows_by_name:
            return True
        return bool(self._targets_of(workflow)) if self.targets else workflow in self.project.targets

    def _targets_of(self, workflow: str) -> list[str]:
        """Return the targets of this call that have a workflow; all of them if nothing may be imported to find out."""
        if not self.targets or not self.may_import:
            return list(self.targets)
        known = self.known()
        return [known[workflow][0]] if workflow in known else []

    def command(self, verb: str, session_id: str | None = None, workflow: str | None = None) -> str:
        """Return the exact command for a session, with the store and the workflow's target where they are needed.

        ``verb`` may consist of several words, such as ``artifacts restore``. ``session_id``: None for a command about
        the whole store.
        """
        brought = bool(self.host.workflows) and (workflow is None or workflow in self.host.workflows_by_name)
        own = brought or self.host.drives
        named = [] if session_id is None else [session_id]
        words = [*(self.host if own else PAUSEPOINT).words, *verb.split(), *named]
        if not own and workflow is not None:  # without a target, the command says what to name
            words += [word for target in self._targets_of(workflow) for word in ("--target", target)]
        return shlex.join([*words, *self.store_words(own)])

    def store_words(self, own: bool = False) -> list[str]:
        """Return the options that make a command find the same store. ``own``: the command is one of this program."""
        if self.named_store is not None:
            return ["--store", self.place.given]
        return ["--store", self.place.shown] if not own and self.host.store is not None else []

    @property
    def lift(self) -> str:
        """The exact command that lifts a pause of everything: Pausepoint's, as a program may have its own `resume`."""
        named = (self.named_store and self.place.given) if self.host is PAUSEPOINT else self.place.shown
        return shlex.join([*PAUSEPOINT.words, "resume", "--all", *([] if named is None else ["--store", named])])


def program_of(tags: Iterable[str]) -> str | None:
    """Return the module whose ``resume`` command resumes a session, if one of the session's tags names it.

    The name is printed and never run. Only a plain module name is accepted, because tags can come from anywhere.

    >>> program_of(["night", "program:shop.desk"]), program_of(["program:x; rm -rf /"])
    ('shop.desk', None)
    """
    found = (re.fullmatch(r"program:([A-Za-z_][\w.]*)", tag, re.ASCII) for tag in tags)
    return next((match[1] for match in found if match is not None), None)


async def picked_up(engine: Engine, infos: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Return the sessions that an open process picks up after a resume."""
    engines = await engine.engines() if infos else []
    found = [(info, (info.workflow, info.session_id, info.queue)) for info in infos]
    return [info for info, facts in found if any(each.picks_up(*facts) for each in engines)]


async def when_picked_up(engine: Engine, session_id: str) -> SessionInfo:
    """Return a session once a process drives it, or after a time in which every open engine would have noticed it."""
    for _ in range(PICK_UP_LOOKS):
        if (await engine.session(session_id).info()).status.value not in ("ready", "created"):
            break
        await asyncio.sleep(LOOK_EVERY)
    return await engine.session(session_id).info()


def command_of(holder: str) -> str:
    """Return the command line of a process of this machine, from the text about a holder; empty if it is not known."""
    found = re.search(r"process (\d+)\b.* on (\S+?)[,)]?(?:\s|$)", holder)
    if found is None or found[2] != socket.gethostname():
        return ""
    try:
        words = Path(f"/proc/{found[1]}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return ""
    return shlex.join(word.decode(errors="replace") for word in words)


def run_async(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a command's coroutine. While an engine is open, it handles Ctrl+C and SIGTERM."""
    return asyncio.run(work)


def exit_code_of(status: str) -> int:
    """Return the exit code of a session's status."""
    return {"completed": 0, "failed": 1, "cancelled": 1}.get(status, PERSON)


def not_found(message: str) -> Refused:
    """Return the refusal of an id, a checkpoint or a step that does not exist."""
    return Refused(message, NOT_FOUND)
