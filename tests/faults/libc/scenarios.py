"""The programs that are recorded: real engines on real files, with a note for everything that was acknowledged.

A scenario runs in one folder. The artifacts, exports and snapshots are outside of the database's folder, because a sync
of that folder would hide what is missing elsewhere. Every note is a `Fact`.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Session, Workflow, step
from pausepoint.artifacts import VersionFolders
from pausepoint.engine import accept_loss
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.sessions import SessionRow
from pausepoint.orchestrator.snapshot import FileStateStore, RunStateSnapshot
from pausepoint.stores.found import Found
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
        self.damaged = root / "damaged" / "store.db"

    def make(self) -> None:
        """Create what is there before the program begins."""
        for folder in (self.database.parent.parent, self.exports, self.workspace.parent, self.artifacts / "paper"):
            folder.mkdir(parents=True)
        self.damaged.parent.mkdir()


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

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:
        row = await super().claim(session_id, steal, fence, paused)
        self._ids[row.key] = row.session_id
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        flags = await super().commit(commit)
        if flags is not None:
            self._note(commit)
        return flags

    async def revise(self, commit: Commit) -> Found:
        below = await super().revise(commit)
        self._note(commit)
        return below

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
        note("exporting", path.name)
        bundle = await self.engine.session(session_id).export(path)
        note("exported", path.name, digest=sha256(bundle.to_bytes()).hexdigest())

    async def fork(self, session: Session[Any], session_id: str) -> Session[Any]:
        fork = await session.fork(session_id=session_id, paused=True)
        await self._note_files(fork)
        return fork

    async def import_(self, exported: str, session_id: str) -> Session[Any]:
        await self.engine.import_session(self.places.exports / f"{exported}.jsonl", session_id=session_id)
        row, session = await self.engine.store.get(session_id), self.engine.session(session_id)
        assert row is not None
        note("record", session_id, row.seq, row.digest.hex())
        await self._note_files(session)
        return session

    async def _note_files(self, session: Session[Any]) -> None:
        for file in await session.files.list():
            note("file", f"{session.id} {file.file_id}", file.size_bytes, file.sha256)

    async def save(self, number: int) -> None:
        note("saving", number=number)
        await FileStateStore(self.places.workspace).save_snapshot(RunStateSnapshot(number))
        note("saved", number=number)

    async def redact(self, session: Session[Any], file_id: str) -> None:
        note("redacting", f"{session.id} {file_id}")
        await session.redact(file=file_id, by="ann")
        note("redacted", f"{session.id} {file_id}")

    async def remove(self, session_id: str) -> None:
        note("removing", session_id)
        await self.engine.session(session_id).remove(by="ann")
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
    await author.save(1)
    await author.save(2)
    await author.export("paper")


async def publishing_below(author: Author, made: str, folder: str) -> None:
    """Publish where a person, or a process that was killed at once, has just created a folder without syncing it."""
    (author.places.artifacts / made).mkdir()
    await publishing(author, folder)


async def retention(author: Author) -> None:
    """Upload, share files with a fork, redact, import, remove, and clean up."""
    engine = author.engine
    source = await engine.start(plain, session_id="source", topic="cuttlefish", paused=True)
    await author.add(source, UPLOAD, "upload.bin")
    fork = await author.fork(source, "fork")
    await source.edit(text=SECRETS["text"], verdict=SECRETS["session"])
    secret = await author.add(source, SECRETS["file"].encode() * 40, "secret.txt")
    assert (await source.redact(field="text", value="-")).erased
    note("erased", SECRETS["text"])
    await author.redact(source, secret)
    note("erased", SECRETS["file"])
    await author.add(fork, LATER, "later.txt")
    await author.export("fork")
    await fork.resume()
    await author.complete(fork)
    await author.remove("source")
    await author.import_("fork", "imported")
    await author.remove("fork")
    note("cleaning")
    assert (await engine.gc(apply=True)).folded
    note("cleaned")
    note("erased", SECRETS["session"])


async def accepting(author: Author, folder_is_synced: bool = True) -> None:
    """Accept the loss of commits in a copy of the store, whose log is damaged."""
    session = await author.engine.start(plain, session_id="source", topic="nautilus", paused=True)
    for number in range(4):
        await session.edit(text=f"draft {number}")
    places = author.places
    content = bytearray(Path(f"{places.database}-wal").read_bytes())
    content[len(content) // 3] ^= 1
    _write_synced(places.damaged, places.database.read_bytes())
    _write_synced(Path(f"{places.damaged}-wal"), content)
    if not folder_is_synced:  # a process that found the damage was killed before it had synced the name of its copy
        _write_synced(Path(f"{places.damaged}-wal-damaged-{sha256(content).hexdigest()[:12]}"), content)
    copy = accept_loss(places.damaged)
    assert copy is not None
    note("accepted", Path(copy).name, digest=sha256(content).hexdigest())


def _write_synced(path: Path, content: bytes | bytearray) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


async def drawn(author: Author, seed: str) -> None:
    """Do random acts with random sessions."""
    rng = random.Random(seed)
    hand = Hand(author, rng)
    for number in range(rng.randint(4, 14)):
        await hand.act(number)


class Hand:
    """Draws acts that are possible, and does them."""

    def __init__(self, author: Author, rng: random.Random) -> None:
        self.author = author
        self.rng = rng
        self.sessions: dict[str, Session[Any]] = {}
        self.files: list[tuple[str, str]] = []
        self.exported: list[str] = []

    async def act(self, number: int) -> None:
        acts = [self.start, self.save, self.clean]
        acts += [self.add, self.add, self.fork, self.export, self.complete, self.remove] if self.sessions else []
        acts += [self.import_] if self.exported else []
        acts += [self.redact] if self.files else []
        await self.rng.choice(acts)(number)

    def any(self) -> Session[Any]:
        return self.sessions[self.rng.choice(sorted(self.sessions))]

    async def start(self, number: int) -> None:
        name, topic = f"s{number}", "squid" * self.rng.randint(1, 5_000)
        self.sessions[name] = await self.author.engine.start(plain, session_id=name, topic=topic, paused=True)

    async def add(self, number: int) -> None:
        """Upload several files at once."""
        session = self.any()
        contents = [self.rng.randbytes(self.rng.randint(0, 9_000)) for _ in range(self.rng.randint(1, 4))]
        adding = [self.author.add(session, content, f"{number}.bin") for content in contents]
        self.files += [(session.id, file_id) for file_id in await asyncio.gather(*adding)]

    async def fork(self, number: int) -> None:
        self.sessions[f"s{number}"] = await self.author.fork(self.any(), f"s{number}")

    async def export(self, number: int) -> None:
        session = self.any()
        await self.author.export(session.id)
        self.exported.append(session.id)

    async def import_(self, number: int) -> None:
        name = f"s{number}"
        self.sessions[name] = await self.author.import_(self.rng.choice(self.exported), name)

    async def complete(self, number: int) -> None:
        session = self.any()
        await session.resume()
        await self.author.complete(session)

    async def redact(self, number: int) -> None:
        session_id, file_id = self.files.pop(self.rng.randrange(len(self.files)))
        if session_id in self.sessions:
            self.files = [each for each in self.files if each != (session_id, file_id)]
            await self.author.redact(self.sessions[session_id], file_id)

    async def remove(self, number: int) -> None:
        session = self.any()
        del self.sessions[session.id]
        await self.author.remove(session.id)

    async def save(self, number: int) -> None:
        await self.author.save(number)

    async def clean(self, number: int) -> None:
        note("cleaning")
        await self.author.engine.gc(apply=True)
        note("cleaned")


SCENARIOS: dict[str, Callable[[Author], Coroutine[Any, Any, None]]] = {
    "publishing": lambda author: publishing(author, "paper"),
    "publishing into a new folder": lambda author: publishing(author, "new/deep/paper"),
    "publishing into an unsynced folder": lambda author: publishing_below(author, "made", "made"),
    "publishing below an unsynced folder": lambda author: publishing_below(author, "made", "made/deep/paper"),
    "publishing into a numbered folder": lambda author: publishing(
        author, f"out/{VersionFolders(author.places.artifacts / 'out', 'paper').make().name}"
    ),
    "retention": retention,
    "accepting a loss": accepting,
    "accepting a loss after a kill": lambda author: accepting(author, folder_is_synced=False),
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
        author = Author(engine, places)
        await (SCENARIOS[scenario](author) if scenario in SCENARIOS else drawn(author, scenario))
    note("closed")
