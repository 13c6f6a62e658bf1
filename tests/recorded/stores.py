"""Record whole stores, and read what a store shows. ``python -m tests.recorded.make 0.2`` calls this.

A store is kept as ``NAME.tar.xz``: its database, its files and its folders, byte by byte. ``stores.json`` has what the
version that wrote it showed, and the states with which its sessions ended.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import to_builtins

from pausepoint import Engine, errors
from pausepoint.engine import documents, history_documents
from pausepoint.engine.store_documents import ScheduleDocument
from tests.recorded.scenes import SCENES, doors, engine_at

SHOWN = "stores.json"
ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("-ballast", "-shm")
"""Files that a store makes again: space that it reserves, and the index of the write-ahead log."""


def pack(folder: Path, archive: Path) -> None:
    """Write a folder to an archive that is the same for the same files, on every machine."""
    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(folder.rglob("*")):
            if not path.name.endswith(LEFT_OUT):
                tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(archive: Path, folder: Path) -> Path:
    """Copy a recorded store to a folder, in which it may change."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


async def shown(folder: Path) -> dict[str, Any]:
    """Return what the store of a folder shows. Nothing is driven."""
    async with engine_at(folder, drives="none") as engine:
        sessions = sorted(await engine.sessions(), key=lambda info: info.session_id)
        found = {
            "sessions": {info.session_id: await _session(engine, info.session_id) for info in sessions},
            "schedules": [to_builtins(ScheduleDocument.of(info)) for info in await engine.schedules.list()],
            "standing_pause": to_builtins(documents.standing_pause(await engine.standing_pause())),
            "drawers": [each.name for each in await engine.drawers()],
            "verified": str(await engine.verify()),
        }
    return _plain(found)


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same as JSON, with a hash in the place of a long text."""
    shape: dict[str, Any] = json.loads(json.dumps(_short(found), default=str))
    return shape


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    if isinstance(value, str) and len(value) > 500:
        return f"{value[:20]}… sha256 {hashlib.sha256(value.encode()).hexdigest()}"
    return value


async def _session(engine: Engine, session_id: str) -> dict[str, Any]:
    session = engine.session(session_id)
    info = await session.info()
    pauses, stored = await session.pauses(), await session.stored()
    questions = [documents.QuestionDocument.of(each, answer="") for each in await session.questions(status=None)]
    try:
        artifacts = await session.artifacts() if info.workflow == "press" else []
        there = [each.path for each in artifacts]
    except errors.FolderRefused:  # its folder is on another machine
        there = []
    document: dict[str, Any] = to_builtins(documents.shown(info, pauses, questions, None, stored, ""))
    if "words" in document["state"]:  # a set has no order
        document["state"] = document["state"] | {"words": sorted(document["state"]["words"])}
    return document | {
        "checkpoints": [
            to_builtins(history_documents.CheckpointDocument.of(each)) for each in await session.checkpoints()
        ],
        "events": [to_builtins(history_documents.EventDocument.of(event)) async for event in session.events()],
        "children": sorted(each.session_id for each in await session.children()),
        "files": [file.entry() for file in await session.files.list()],
        "drawers": [each.name for each in await engine.drawers(session_id)],
        "artifacts": there,
    }


async def finished(name: str, archive: Path, scratch: Path) -> dict[str, Any]:
    """Bring the sessions of a recorded store to their end, in a copy for each way, and return how they ended."""
    doors["open"] = True
    try:
        found = {}
        for finish in SCENES[name].finish:
            folder = unpack(archive, scratch / finish.__name__)
            async with engine_at(folder) as engine:
                found[finish.__name__] = await finish(engine, folder)
                found_whole = await engine.verify()
                assert found_whole.ok, found_whole
        return _plain(found)
    finally:
        doors["open"] = False


async def record_stores(folder: Path) -> None:
    """Record every scene, and what it shows and ends with."""
    folder.mkdir(exist_ok=True)
    kept: dict[str, Any] = {"migrations": released_migrations(), "stores": {}}
    with TemporaryDirectory() as place:
        for name, scene in SCENES.items():
            print(f"recording {name}", flush=True)
            made, archive = Path(place) / name, folder / f"{name}.tar.xz"
            made.mkdir()
            await scene.record(made)
            pack(made, archive)
            (Path(place) / "ends" / name).mkdir(parents=True)
            kept["stores"][name] = {
                "shows": await shown(unpack(archive, Path(place) / f"{name}-shown")),
                "ends": await finished(name, archive, Path(place) / "ends" / name),
            }
    (folder / SHOWN).write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def released_migrations() -> dict[str, str]:
    """Return the hash of each migration. Once a version is released, its migrations never change."""
    stores = ROOT / "src" / "pausepoint" / "stores"
    return {
        path.relative_to(stores).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(stores.glob("*/migrations/*.sql"))
    }


def missing(recorded: Any, now: Any, where: str = "") -> list[str]:
    """Return the places where something that was recorded is gone or different. A newer version may show more.

    >>> missing({"a": 1, "b": [1]}, {"a": 1, "b": [1], "c": 3})
    []
    >>> missing({"a": 1, "b": [{"d": 1}]}, {"b": [{"d": 2}]})
    ['.a: 1 is gone', '.b[0].d: 1 became 2']
    """
    if isinstance(recorded, dict) and isinstance(now, dict):
        gone = [f"{where}.{key}: {value!r} is gone" for key, value in recorded.items() if key not in now]
        both = [missing(recorded[key], now[key], f"{where}.{key}") for key in recorded if key in now]
        return gone + [each for some in both for each in some]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = enumerate(zip(recorded, now, strict=True))
        return [each for n, (before, after) in pairs for each in missing(before, after, f"{where}[{n}]")]
    return [] if recorded == now else [f"{where}: {recorded!r} became {now!r}"]
