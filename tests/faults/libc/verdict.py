"""Judge the files that a power loss left: everything that was acknowledged is there, and what was removed is not."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from pausepoint import Engine, Status
from pausepoint.engine import bundle
from pausepoint.errors import PausepointError
from pausepoint.orchestrator.snapshot import FileStateStore
from pausepoint.stores.folders import session_folder
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.libc.scenarios import WORKFLOWS, Fact, Paper, Places, decode
from tests.support.forkserver import say

ARTIFACTS = {"draft.md": "text", "notes/verdict.md": "verdict"}
MOST = 20  # complaints that are reported about one state


def warm_up() -> None:
    """Judge an empty folder once, which imports everything."""
    with tempfile.TemporaryDirectory() as root:
        judge = Judge(Places(Path(root)), [])
        asyncio.run(judge.everything())
        assert not judge.wrong


def check(root: str, notes: Sequence[str]) -> None:
    """Say what is wrong with the files in a folder, as a job of the fork server."""
    judge = Judge(Places(Path(root)), [decode(note) for note in notes])
    try:
        asyncio.run(judge.everything())
    except Exception as error:
        judge.wrong.append(f"{type(error).__name__}: {error}")
    say({"wrong": [text[:150] for text in judge.wrong[:MOST]]})


class Judge:
    """Compares a folder with the facts that were noted before the power loss."""

    def __init__(self, places: Places, facts: Sequence[Fact]) -> None:
        self.places = places
        self.folders = Path(f"{places.database}.sessions")
        self.facts = facts
        self.wrong: list[str] = []

    def all(self, *what: str) -> Iterator[Fact]:
        return (fact for fact in self.facts if fact.what in what)

    def about(self, *what: str) -> set[str]:
        return {fact.about for fact in self.all(*what)}

    def last(self, *what: str) -> Fact | None:
        return next((fact for fact in reversed(self.facts) if fact.what in what), None)

    async def everything(self) -> None:
        self.check_removals()
        self.check_redactions()
        self.check_exports()
        self.check_copies()
        await self.check_snapshot()
        store = SqliteStore(self.places.database, ballast=4096, create=not self.about("opened"))
        async with Engine(store, workflows=WORKFLOWS, signals=False, drives="asked") as engine:
            await self.check_records(engine)
            await self.check_files(engine)
            await self.check_completed(engine)
            await self.check_health(engine)
            await self.go_on(engine)

    # before an engine touches the folder

    def check_removals(self) -> None:
        for session_id in self.about("removed"):
            if session_folder(self.folders, session_id).exists():
                self.wrong.append(f"{session_id} was removed, but its folder is back")

    def check_redactions(self) -> None:
        for session_id, file_id in map(str.split, self.about("redacted")):
            if any((session_folder(self.folders, session_id) / "files").glob(f"{file_id}*")):
                self.wrong.append(f"the redacted file of {session_id} is back")
        files = [path for path in self.places.root.rglob("*") if path.is_file()]
        for secret in self.about("erased"):
            found = [path.name for path in files if secret.encode() in path.read_bytes()]
            self.wrong += [f"{name} contains erased bytes" for name in found]

    def check_exports(self) -> None:
        for name in self.about("exported"):
            path, last = self.places.exports / name, [fact for fact in self.facts if fact.about == name][-1]
            try:
                bundle.read(path)
            except (OSError, PausepointError) as error:
                self.wrong.append(f"the export {name} is lost: {error}")
                continue
            if last.what == "exported" and sha256(path.read_bytes()).hexdigest() != last.digest:
                self.wrong.append(f"the export {name} is an older one")

    def check_copies(self) -> None:
        for fact in self.all("accepted"):
            copy = self.places.damaged.with_name(fact.about)
            if not copy.exists() or sha256(copy.read_bytes()).hexdigest() != fact.digest:
                self.wrong.append("the copy of the damaged log is lost")

    async def check_snapshot(self) -> None:
        saved, saving = self.last("saved"), self.last("saving")
        if saved is None or saving is None:
            return
        found = await FileStateStore(self.places.workspace).load_snapshot()
        if found is None or found.paused_at not in range(saved.number, saving.number + 1):
            self.wrong.append(f"snapshot {saved.number} is lost: {found}")

    # before a session is resumed

    async def check_records(self, engine: Engine) -> None:
        acknowledged = {fact.about: fact for fact in self.all("record")}
        for session_id in acknowledged.keys() - self.about("removing"):
            fact, row = acknowledged[session_id], await engine.store.get(session_id)
            if row is None:
                self.wrong.append(f"session {session_id} is lost")
                continue
            found = await engine.store.records(row.key, fact.number, fact.number)
            if [record.digest.hex() for record in found] != [fact.digest]:
                self.wrong.append(f"record {fact.number} of {session_id} is lost")
        for session_id in self.about("removed"):
            if await engine.store.get(session_id) is not None:
                self.wrong.append(f"session {session_id} was removed and is back")

    async def check_files(self, engine: Engine) -> None:
        for fact in self.all("file"):
            session_id, file_id = fact.about.split()
            if session_id in self.about("removing") or fact.about in self.about("redacting"):
                continue
            try:
                with await engine.session(session_id).files.open(file_id) as file:
                    content = file.read()
            except PausepointError as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
                continue
            if sha256(content).hexdigest() != fact.digest:
                self.wrong.append(f"file {fact.about} has other bytes")

    async def check_completed(self, engine: Engine) -> None:
        for fact in self.all("completed"):
            if fact.about in self.about("removing"):
                continue
            later = self.facts[self.facts.index(fact) + 1 :]
            if any(each.about == fact.about and each.what in ("completed", "rewinding") for each in later):
                continue
            info, state = await engine.session(fact.about).info(), await engine.session(fact.about).state()
            if info.status is not Status.COMPLETED or state != Paper.model_validate_json(fact.digest):
                self.wrong.append(f"{fact.about} was completed and is {info.status}: {state!r:.60}")
            await self.check_artifacts(engine, fact.about)

    async def check_artifacts(self, engine: Engine, session_id: str) -> None:
        if session_id != "paper":
            return
        session = engine.session(session_id)
        found = {each.path: each.state for each in await session.artifacts()}
        if found != dict.fromkeys(ARTIFACTS, "valid"):
            self.wrong.append(f"artifacts of {session_id}: {found}")
            return
        (folder,), state = self.about("publishing"), await session.state()
        for path, field in ARTIFACTS.items():
            if (self.places.artifacts / folder / path).read_text() != getattr(state, field):
                self.wrong.append(f"{path} of {session_id} has other bytes")

    async def check_health(self, engine: Engine) -> None:
        self.wrong += [f"verify: {problem}" for problem in (await engine.verify()).problems]

    # what comes next

    async def go_on(self, engine: Engine) -> None:
        """Resume every session, complete removals, and check everything again."""
        for info in await engine.sessions():
            session_id = str(info.session_id)
            outcome = await (await engine.session(session_id).resume()).outcome()
            if outcome.status is not Status.COMPLETED:
                self.wrong.append(f"resumed, {session_id} is {outcome.status}")
            await self.check_artifacts(engine, session_id)
        await engine.gc(apply=True)
        await self.check_health(engine)
        if left := await engine.store.removing():
            self.wrong.append(f"removals were not completed: {left}")
