"""What commands share: their common options, the open engine, the session that somebody means."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pausepoint.cli.console import Output
from pausepoint.cli.exits import NOT_FOUND, PERSON, USAGE, Refused
from pausepoint.cli.host import PAUSEPOINT, Host, Start, host
from pausepoint.cli.project import Place, Project, check_exists, find_project, find_store
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pausepoint.engine.base import Drives
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo


class Cli:
    """One call of a command: whose it is, its project, its store, its way of speaking."""

    def __init__(self, store: str | None, targets: tuple[str, ...], as_json: bool, as_lines: bool) -> None:
        self.host: Host = host()
        self.project: Project = find_project()
        self.place: Place = find_store(store, self.project, self.host.store)
        self.targets = targets
        self.named_store = store
        self.out = Output(as_json, as_lines)

    def start(self, owner: str | None = None, session_id: str | None = None) -> Start:
        """What a program's own functions are told."""
        folder = self.project.root if self.place.path is None else self.place.path.parent
        return Start(self.place.url, folder, owner, session_id, self.named_store)

    @asynccontextmanager
    async def engine(
        self, *, what: str = "", code: bool = False, create: bool = False, quiet: bool = False
    ) -> AsyncIterator[Engine]:
        """The store, open. ``code``: with the project's workflows and those of ``--target``.

        ``create``: made if it is not there; otherwise ``what`` is refused without a store, and nothing is created.
        ``quiet``: with the code, but what is due stays for others, as it does without.
        """
        from pausepoint.engine.engine import Engine

        if not create:
            check_exists(self.place, what)
        workflows = [workflow for _, workflow in self.known().values()] if code else []
        drives: Drives = "none" if quiet or not code else "all"
        async with Engine(self.place.url, workflows=workflows, create=create, drives=drives) as engine:
            yield engine

    def known(self) -> dict[str, Any]:
        """The workflows that were named: name → target and workflow."""
        from pausepoint.cli.targets import load_known

        return load_known(self.project, self.targets)

    def check_code(self, engine: Engine, info: SessionInfo) -> None:
        """Refuse, with what to do, if nobody named the code of a session's workflow."""
        if info.workflow in engine.workflows:
            return
        if self.host.drives or program_of(info.tags) is not None:
            raise Refused(f"session {info.session_id} is gone on with by {self.resume(info)}", USAGE)
        if self.host.workflows:
            raise Refused(
                f"session {info.session_id} is one of workflow {info.workflow!r}, which is not of this program"
                f" ({', '.join(self.host.brought)}): {self.command('show', info.session_id)} shows it",
                USAGE,
            )
        raise Refused(
            f"session {info.session_id} is one of workflow {info.workflow!r}, and nobody said where its code is:"
            f" add --target file.py:name, or name it in {self.project.root / 'pyproject.toml'} under"
            f" [tool.pausepoint.workflows]{did_you_mean(info.workflow, engine.workflows)}",
            USAGE,
        )

    def resume(self, info: SessionInfo) -> str:
        """The exact command that goes on with a session: this program's, or that of the one which its tags name."""
        program = program_of(info.tags)
        if program is None or program in self.host.words:
            return self.command("resume", info.session_id, info.workflow)
        return shlex.join(["python", "-m", program, "resume", info.session_id, *self.store_words()])

    def command(self, verb: str, session_id: str, workflow: str | None = None) -> str:
        """The exact command for a session: with the store and, if a workflow is given, its target, where needed."""
        brought = bool(self.host.workflows) and (workflow is None or workflow in self.host.brought)
        own = brought or self.host.drives
        words = [*(self.host if own else PAUSEPOINT).words, verb, session_id]
        if not own and workflow is not None and (self.targets or workflow not in self.project.targets):
            known = self.known() if self.targets else {}
            words += ["--target", known[workflow][0] if workflow in known else "TARGET"]
        return shlex.join([*words, *self.store_words(own)])

    def store_words(self, own: bool = False) -> list[str]:
        """So that a command finds the same store. ``own``: it is one of this program."""
        if self.named_store is not None:
            return ["--store", self.named_store]
        return ["--store", str(self.place.path)] if not own and self.host.store is not None else []

    @property
    def lift(self) -> str:
        """The exact command that lifts a pause of everything. It is Pausepoint's: a program may have another `resume`."""
        named = self.named_store if self.host is PAUSEPOINT else str(self.place.path or self.place.url)
        return shlex.join([*PAUSEPOINT.words, "resume", "--all", *([] if named is None else ["--store", named])])


def program_of(tags: Iterable[str]) -> str | None:
    """The module whose ``resume`` goes on with a session, if a tag of it names one.

    It is told to people and never run, and nothing but the name of a module is: a tag may come from anywhere.

    >>> program_of(["night", "program:shop.desk"]), program_of(["program:x; rm -rf /"])
    ('shop.desk', None)
    """
    found = (re.fullmatch(r"program:([A-Za-z_][\w.]*)", tag, re.ASCII) for tag in tags)
    return next((match[1] for match in found if match is not None), None)


def run_async(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a command's coroutine. Ctrl+C and SIGTERM are the engine's business while one is open."""
    return asyncio.run(work)


def needs_somebody(status: str) -> int:
    """The exit code that tells a status."""
    return {"completed": 0, "failed": 1, "cancelled": 1}.get(status, PERSON)


def not_found(message: str) -> Refused:
    """An id, a checkpoint or a step that is not there."""
    return Refused(message, NOT_FOUND)
