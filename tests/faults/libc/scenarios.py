"""The programs that are recorded: real engines on real files, with a note for everything that was acknowledged.

A scenario runs in one folder. The artifacts, exports and snapshots are outside of the database's folder, because a sync
of that folder would hide what is missing elsewhere. Every note is a `Fact`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Session, Workflow, step
from pausepoint.model.sessions import Commit, Flags, NewSession, SessionRow
from pausepoint.orchestrator.snapshot import FileStateStore, RunStateSnapshot
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.libc import skipped_syncs, trace
from tests.support.forkserver import say

SECRETS = {
    "file": "what only the redacted file contains ",
    "text": "what only the redacted field contains ",
    "session": "what only the removed session contains ",
}
UPLOAD = bytes(range(256)) * 12  # six sectors
LATER = b"later " * 300


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One note. ``what`` was acknowledged; a name that ends in "ing" was only begun."""

    what: str
    about: str = ""
    number: int = 0
    digest: str = ""


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Fact).decode


def note(what: str, about: str = "", number: int = 0, digest: str = "") -> None:
    trace.note(_encode(Fact(what, about, number, digest)).decode())


# the folder of a scenario


class Places:
    """Where a scenario keeps its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "data" / "new" / "store.db"
        self.exports = root / "exports"
        self.workspace = root / "projects" / "one"
        self.artifacts = root / "elsewhere"

    def make(self) -> None:
        """Create what is there before the program begins."""
        for folder in (self.database.parent.parent, self.exports, self.workspace.parent, self.artifacts / "paper"):
            folder.mkdir(parents=True)


# the workflow


class Paper(BaseModel):
    topic: str
    found: str = ""
    text: str = ""
    verdict: str = ""


async def look_up(topic: str) -> str:
    return f"{topic} has nine brains"


@step(writes="found")
async def gather(topic: str, ctx: Context) -> str:
    found = await ctx.do(look_up, topic)
    await ctx.files.add(found.encode() * 100, "found.txt")
    return found


@step(writes="text", publishes=Artifact("draft.md", min_bytes=1))
async def write(found: str) -> str:
    return f"{found}\n" * 100


@step(writes="verdict", publishes=Artifact("notes/verdict.md", min_bytes=1))
async def judge(text: str) -> str:
    return f"{len(text)} characters, {sha256(text.encode()).hexdigest()}\n"


@step(writes="found")
async def keep(topic: str, ctx: Context) -> str:
    return await ctx.do(look_up, topic)


papers = Workflow("papers", state=Paper, steps=[gather, write, judge])
plain = Workflow("plain", state=Paper, steps=[keep])
WORKFLOWS = [papers, plain]


class NotingStore(SqliteStore):
    """Notes every record that the store has acknowledged."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ballast=4096)
        self._ids: dict[int, str] = {}

    async def create(self, new: NewSession) -> SessionRow | None:
        row = await super().create(new)
        if row is not None:
            self._ids[row.key] = row.session_id
            note("record", row.session_id, new.records[-1].seq, new.records[-1].digest.hex())
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        flags = await super().commit(commit)
        if flags is not None:
            self._note(commit)
        return flags

    async def revise(self, commit: Commit) -> None:
        await super().revise(commit)
        self._note(commit)

    def _note(self, commit: Commit) -> None:
        last = commit.records[-1]
        note("record", self._ids[commit.key], last.seq, last.digest.hex())


class Author:
    """Drives an engine through a scenario and notes what it returns."""

    def __init__(self, engine: Engine, places: Places) -> None:
        self.engine = engine
        self.places = places

    async def add(self, session: Session[Any], content: bytes, name: str) -> str:
        file = await session.files.add(content, name)
        note("file", f"{session.id} {file.file_id}", len(content), sha256(content).hexdigest())
        return file.file_id

    async def complete(self, session: Session[Any]) -> None:
        state = (await session.outcome()).state
        note("completed", session.id, digest=state.model_dump_json())

    async def export(self, session_id: str) -> None:
        path = self.places.exports / f"{session_id}.jsonl"
        bundle = await self.engine.export_session(session_id, path)
        note("exported", path.name, digest=sha256(bundle.to_bytes()).hexdigest())

    async def fork(self, session: Session[Any], session_id: str) -> Session[Any]:
        fork = await session.fork(session_id=session_id, paused=True)
        for file in await session.files.list():
            note("file", f"{session_id} {file.file_id}", file.size_bytes, file.sha256)
        return fork

    async def redact(self, session: Session[Any], file_id: str) -> None:
        note("redacting", f"{session.id} {file_id}")
        assert (await session.redact(field="text", value="-", by="ann")).erased
        note("redacted", "text")
        assert (await session.redact(file=file_id, by="ann")).erased
        note("redacted", "file")

    async def remove(self, session_id: str) -> None:
        note("removing", session_id)
        await self.engine.remove(session_id, by="ann")
        note("removed", session_id)


async def publishing(author: Author, folder: str) -> None:
    """Upload, publish, publish again over it, export, and save snapshots of a run."""
    places = author.places
    note("publishing", folder)
    session = await author.engine.start(
        papers, session_id="paper", folder=places.artifacts / folder, topic="squid", paused=True
    )
    await author.add(session, UPLOAD, "upload.bin")
    await session.resume()
    await author.complete(session)
    await author.export("paper")
    note("rewinding", "paper")
    await session.rewind("write", found="a squid has ten arms")
    await session.resume()
    await author.complete(session)
    store = FileStateStore(places.workspace)
    for number in (1, 2):
        note("saving", number=number)
        await store.save_snapshot(RunStateSnapshot(number))
        note("saved", number=number)
    await author.export("paper")


async def retention(author: Author) -> None:
    """Upload, share files with a fork, redact, import, remove, and clean up."""
    engine = author.engine
    source = await engine.start(plain, session_id="source", topic="cuttlefish", paused=True)
    await author.add(source, UPLOAD, "upload.bin")
    fork = await author.fork(source, "fork")
    await source.edit(text=SECRETS["text"], verdict=SECRETS["session"])
    secret = await author.add(source, SECRETS["file"].encode() * 40, "secret.txt")
    await author.redact(source, secret)
    await author.add(fork, LATER, "later.txt")
    await author.export("fork")
    await fork.resume()
    await author.complete(fork)
    await author.remove("source")
    await engine.import_session(author.places.exports / "fork.jsonl", session_id="imported")
    for file in await (await engine.session("imported")).files.list():
        note("file", f"imported {file.file_id}", file.size_bytes, file.sha256)
    await author.remove("fork")
    note("cleaning")
    assert (await engine.gc(apply=True)).folded
    note("cleaned")
    note("redacted", "session")


SCENARIOS: dict[str, Callable[[Author], Coroutine[Any, Any, None]]] = {
    "publishing": lambda author: publishing(author, "paper"),
    "publishing into a new folder": lambda author: publishing(author, "new/deep/paper"),
    "retention": retention,
}


# jobs of the fork server


def warm_up() -> None:
    """Run the workflow once, in memory."""
    asyncio.run(_warm_up())


async def _warm_up() -> None:
    async with Engine(":memory:", workflows=WORKFLOWS, signals=False) as engine:
        await (await engine.start(plain, topic="squid")).outcome()


def record(scenario: str, root: str, path: str, skip: str) -> None:
    """Run a scenario under the recorder. ``skip`` is the site of the syncs that are left out."""
    asked = skipped_syncs.skip(skip)
    asyncio.run(_run(scenario, Places(Path(root)), path))
    say({"asked": asked})


async def _run(scenario: str, places: Places, path: str) -> None:
    trace.begin(path, str(places.root))
    async with Engine(NotingStore(places.database), workflows=WORKFLOWS, signals=False) as engine:
        note("opened")
        await SCENARIOS[scenario](Author(engine, places))
    note("closed")
