"""Hostile exports and artifact folders: every text in them is replaced by one that tries to lead out of the store.

A trial puts one hostile text into an export or into the notes of a folder, seals the digests again as an attacker
would, and then uses the session as a careless operator would: imports or rebuilds it, looks at it, resumes it, exports
it and cleans up. Nothing outside of the store's folders and the chosen artifact folder may change or leak, and every
error must be a `PausepointError`.

``python -m tests.faults.hostile --seconds 600 --seed 7`` draws trials until the time is over.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Session, Workflow, step
from pausepoint.clock import LATEST, to_datetime
from pausepoint.definition.artifacts import OWN
from pausepoint.errors import PausepointError
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.tally import Tally, main
from tests.support.folders import scratch
from tests.support.loop import PATIENCE

SECRET = "the private key of the victim"

Spot = tuple[str | int, ...]
"""The way to one text in a JSON document. `INSIDE` leads into JSON that is stored as a text, `NAME` to a key."""

INSIDE, NAME = "<json>", "<name>"


class Page(BaseModel):
    topic: str = "ferns"
    text: str = ""
    more: dict[str, str] = {}
    heard: list[str] = []


class Part(BaseModel):
    said: str = ""


@step(writes="said")
async def speak(ctx: Context) -> str:
    return await ctx.receive(str)


part = Workflow("part", state=Part, steps=[speak])


async def looked_up(topic: str) -> str:
    return f"{topic} " * 3000


@step(writes="text", publishes=Artifact("{topic}.md", min_bytes=1))
async def write(topic: str, ctx: Context) -> str:
    ctx.emit("written", "it was written", where="here")
    ctx.spend(usd=0.01)
    return (await ctx.do(looked_up, topic))[:200]


@step(writes="more", publishes=Artifact("more/*.md", min_bytes=1))
async def extend(text: str) -> dict[str, str]:
    return {"one": text + "one", "two": text + "two"}


@step(writes="heard")
async def listen(ctx: Context) -> list[str]:
    answer = await ctx.ask("Publish it?", key="publish")
    child = await ctx.call(part)
    return [answer, child.said, await ctx.receive(str)]


pages = Workflow("pages", state=Page, steps=[write, extend, listen], events=["written"])


# the sandbox


class Sandbox:
    """A folder with a store, a folder for artifacts, and the victim's files around them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.store, self.out = root / "home", root / "work" / "store.db", root / "work" / "out"
        (self.home / "photos").mkdir(parents=True)
        self.store.parent.mkdir()
        (root / "work" / "store.db.sessions").mkdir()
        for name in ("authorized.keys", "photos/wedding.jpg", "secret.md"):
            (self.home / name).write_text(f"{SECRET}: {name}\n")
        (root / "secret.md").write_text(SECRET)

    def engine(self) -> Engine:
        return Engine(SqliteStore(self.store, synchronous="OFF", ballast=0), workflows=[pages, part], signals=False)

    def outside(self) -> dict[str, bytes | None]:
        """Return everything around the store's folders and the artifact folder, with the content of files."""
        found: dict[str, bytes | None] = {}
        for folder, names, files in os.walk(self.root):
            here = Path(folder)
            names[:] = [name for name in names if not self._is_ours(here / name)]
            for name in (*names, *files):
                path = here / name
                if not self._is_ours(path):
                    found[str(path.relative_to(self.root))] = path.read_bytes() if path.is_file() else None
        return found

    def _is_ours(self, path: Path) -> bool:
        return path == self.out or (path.parent == self.store.parent and path.name.startswith(self.store.name))

    def leaked(self) -> list[str]:
        """Return the files of the store and the artifact folder that contain the victim's secret."""
        inside = [path for path in self.store.parent.rglob("*") if path.is_file() and not path.is_symlink()]
        return [str(path.relative_to(self.root)) for path in inside if SECRET.encode() in path.read_bytes()]

    def texts(self) -> list[str]:
        """Return texts that lead, or try to lead, to the victim's files."""
        ways = ["../" * depth for depth in (1, 2, 3, 4, 5)]
        return [
            *(f"{way}home/photos" for way in ways), *(f"{way}secret.md" for way in ways), "../", "..", ".", "", "/",
            str(self.home / "photos"), str(self.home / "authorized"), f"{OWN}/session.json", "a/../../b", "a//b",
            "..\\..\\home\\photos", "C:\\home", "nul\0byte", "\x1b[2Jclear", "\u202egnirts", "x" * 5000, "é" * 300,
            "lone \ud800 surrogate", "file_../../../../home/authorized", "~/x", "-rf", "{topic}", "*",
        ]  # fmt: skip


# the originals


async def original(root: Path) -> tuple[list[Any], dict[str, bytes]]:
    """Return an honest export that has a bit of everything, as JSON lines, and the notes and files of its folder."""
    sandbox = Sandbox(root)
    async with sandbox.engine() as engine:
        session = await engine.start(pages, session_id="gift", folder=sandbox.out, tags=["a"], owner="ann")
        await session.files.add(b"attached\n", "notes.txt", course="calc")
        await session.outcome()
        await _edited(engine, session, sandbox)
        await session.answer("yes")
        await session.outcome()
        [child] = await session.children()
        await engine.session(child.session_id).send("from the child")
        await session.outcome()
        await session.pause("lunch", by="ann")
        await session.send("unread", by="ben")
        await engine.session("gift").export(sandbox.root / "gift.jsonl")
    lines = [json.loads(line) for line in (sandbox.root / "gift.jsonl").read_text().splitlines()]
    files = {str(path.relative_to(sandbox.out)): path.read_bytes() for path in sandbox.out.rglob("*") if path.is_file()}
    return lines, files


async def _edited(engine: Engine, session: Session[Page], sandbox: Sandbox) -> None:
    """Edit an artifact and a field, so that the log and the folder's notes have edits."""
    (sandbox.out / "more" / "two.md").write_text("edited by a person, and longer than it was before " * 10)
    await session.adopt(by="ann")
    await session.edit(topic="ferns", by="ann", reason="same")
    await session.resume()
    await session.outcome()


def spots(value: Any, way: Spot = ()) -> Iterator[Spot]:
    """Yield the way to every text in a JSON document, also in JSON that is stored as a text, and to every key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*way, name, NAME)
            yield from spots(inner, (*way, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from spots(inner, (*way, number))
    elif isinstance(value, str):
        yield way
        if way and way[-1] == "payload" and value:
            yield from spots(json.loads(value), (*way, INSIDE))


def changed(value: Any, way: Spot, text: str) -> Any:
    """Return the document with another text at one place."""
    if not way:
        return text
    first, rest = way[0], way[1:]
    if first == INSIDE:
        return json.dumps(changed(json.loads(value), rest, text))
    if rest == (NAME,):
        return {text if name == first else name: inner for name, inner in value.items()}
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[first] = changed(value[first], rest, text)
    return copy


def sealed(lines: list[Any]) -> bytes:
    """Return the lines of an export with right digests, as an attacker would write them."""
    lines = [json.loads(json.dumps(line)) for line in lines[:-1]]
    facts: dict[str, Any] = {}
    digests: dict[str, bytes] = {}
    for line in lines:
        if isinstance(line.get("session"), dict):
            facts = line["session"]
            first = sha256(_bytes(str(facts.get("session_id")))).digest()
            digests = {"record": first, "signal": first}
        for kind, digest in digests.items():
            if isinstance(entry := line.get(kind), dict):
                digests[kind] = _seal(kind, entry, digest)
                if kind == "record":
                    facts["digest"] = digests[kind].hex()
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"end": {"lines": len(lines), "sha256": sha256(data).hexdigest()}}
    return data + json.dumps(end).encode() + b"\n"


def _seal(kind: str, entry: dict[str, Any], previous: bytes) -> bytes:
    names = ("seq", "parent", "kind", "step", "visit", "at") if kind == "record" else ("n", "after", "kind", "by", "at")
    try:
        body = sha256(bytes.fromhex(entry["salt"]) + _bytes(entry["payload"])).digest()
        head = "|".join(str(entry[name]) for name in names)
    except (KeyError, ValueError, TypeError):  # the text at hand spoils the entry itself
        return previous
    entry["body"] = body.hex()
    entry["digest"] = sha256(previous + body + _bytes(head)).hexdigest()
    return bytes.fromhex(entry["digest"])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# the trials


@dataclass
class Report:
    """What a trial did, and what was wrong. ``refused`` is the error of the first call, if it raised one of ours."""

    refused: str = ""
    errors: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    async def call(self, what: str, act: Callable[[], Awaitable[Any]]) -> bool:
        """Make a call. An error that is not ours is a failure."""
        try:
            async with asyncio.timeout(PATIENCE):
                await act()
        except PausepointError as error:
            self.errors[type(error).__name__] += 1
            if len(str(error)) > 2000:
                self.failures.append(f"{what}: a message of {len(str(error))} characters")
            return False
        except Exception as error:
            self.failures.append(f"{what}: {type(error).__name__}: {error}"[:300])
            return False
        return True


async def imported(sandbox: Sandbox, data: bytes) -> Report:
    """Import a file and use the session."""
    path, report = sandbox.root / "gift.jsonl", Report()
    path.write_bytes(data)
    before = sandbox.outside()
    async with sandbox.engine() as engine:
        if await report.call("import", lambda: engine.import_session(path, folder=sandbox.out)):
            await _used(engine, report, [each.session_id for each in await engine.sessions()])
        else:
            report.refused = next(iter(report.errors), "")
        await report.call("clean up", lambda: engine.gc(apply=True, now=to_datetime(LATEST // 2)))
    return _judged(sandbox, before, report)


async def rebuilt(sandbox: Sandbox, files: dict[str, bytes]) -> Report:
    """Rebuild a session from a folder and use it."""
    report = Report()
    for name, data in files.items():
        (sandbox.out / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox.out / name).write_bytes(data)
    before = sandbox.outside()
    async with sandbox.engine() as engine:
        if await report.call("rebuild", lambda: engine.rebuild(sandbox.out, pages)):
            await _used(engine, report, [each.session_id for each in await engine.sessions()])
        else:
            report.refused = next(iter(report.errors), "")
        await report.call("clean up", lambda: engine.gc(apply=True, now=to_datetime(LATEST // 2)))
    return _judged(sandbox, before, report)


async def _used(engine: Engine, report: Report, ids: list[Any]) -> None:
    verbs: dict[str, Callable[[str], Awaitable[Any]]] = {
        "info": lambda id: engine.session(id).info(), "plan": lambda id: engine.session(id).plan(),
        "artifacts": lambda id: engine.session(id).artifacts(), "restore": lambda id: engine.session(id).restore(),
        "files": partial(_read_files, engine), "events": partial(_read_events, engine),
        "resume": partial(_resumed, engine), "export": lambda id: engine.session(id).export(),
    }  # fmt: skip
    for id in ids:
        for name, verb in verbs.items():
            await report.call(name, partial(verb, id))
    await report.call("questions", engine.questions)
    await report.call("verify", engine.verify)
    for id in ids[:1]:
        await report.call("remove", partial(_removed, engine, id))


async def _read_files(engine: Engine, id: str) -> None:
    files = engine.session(id).files
    for each in await files.list():
        (await files.open(each.file_id)).close()


async def _read_events(engine: Engine, id: str) -> None:
    async for _ in engine.session(id).events():
        pass


async def _removed(engine: Engine, id: str) -> None:
    await engine.session(id).remove()


async def _resumed(engine: Engine, id: str) -> None:
    session = await engine.session(id).resume(edits="accept", code="accept")
    await session.outcome()


def _judged(sandbox: Sandbox, before: dict[str, bytes | None], report: Report) -> Report:
    after = sandbox.outside()
    report.failures += [f"{path} changed" for path in sorted(before.keys() | after.keys())
                        if before.get(path, b"absent") != after.get(path, b"absent")]  # fmt: skip
    report.failures += [f"{path} contains the victim's secret" for path in sandbox.leaked()]
    return report


@contextmanager
def sandbox() -> Iterator[Sandbox]:
    """Make a sandbox in a folder of its own."""
    with scratch() as root:
        yield Sandbox(root / "box")


class Trials:
    """Draws hostile texts and places for them."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        with sandbox() as box:
            self.lines, self.files = asyncio.run(original(box.root / "original"))
        self.in_lines = [(number, way) for number, line in enumerate(self.lines[:-1]) for way in spots(line)]
        notes = {name: json.loads(data) for name, data in self.files.items() if name.startswith(OWN) and "json" in name}
        self.notes = notes
        self.in_notes = [(name, way) for name, note in notes.items() for way in spots(note)]

    def in_export(self, number: int, way: Spot, text: str, box: Sandbox) -> Report:
        lines = list(self.lines)
        lines[number] = changed(lines[number], way, text)
        return asyncio.run(imported(box, sealed(lines)))

    def in_folder(self, name: str, way: Spot, text: str, box: Sandbox) -> Report:
        note = changed(self.notes[name], way, text)
        return asyncio.run(rebuilt(box, {**self.files, name: json.dumps(note).encode()}))

    def one(self) -> tuple[str, Report]:
        """Run one random trial. Return its description and its report."""
        with sandbox() as box:
            text = self.draw.choice(box.texts())
            if self.draw.random() < 0.6:
                number, way = self.draw.choice(self.in_lines)
                return f"line {number}, {way} = {text[:60]!r}", self.in_export(number, way, text, box)
            name, way = self.draw.choice(self.in_notes)
            return f"{name}, {way} = {text[:60]!r}", self.in_folder(name, way, text, box)


def run(tally: Tally) -> None:
    """Run trials until the time is up."""
    trials = Trials(tally.draw)
    while tally.has_time():
        what, report = trials.one()
        tally.done["refused" if report.refused else "accepted"] += 1
        for failure in report.failures:
            tally.fail(f"{what}: {failure}")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
