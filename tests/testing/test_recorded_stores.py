"""Stores that released versions wrote, in tests/recorded: they open, show what they showed, and resume to their end."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.errors import NewerSchema
from tests.recorded.make import HERE, record_version
from tests.recorded.scenes import DATABASE, SCENES, engine_at
from tests.recorded.stores import SHOWN, finished, missing, record_stores, released_migrations, shown, unpack
from tests.support.loop import on_loop

VERSIONS = sorted(
    (path.parent for path in HERE.glob(f"*/{SHOWN}")), key=lambda each: [int(part) for part in each.name.split(".")]
)
STORES = [archive for folder in VERSIONS for archive in sorted(folder.glob("*.tar.xz"))]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def recorded(archive: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((archive.parent / SHOWN).read_text("utf-8"))["stores"]
    kept: dict[str, Any] = found[archive.name.partition(".")[0]]
    return kept


@pytest.mark.parametrize("archive", STORES, ids=name_of)
@on_loop
async def test_a_store_of_an_earlier_version_shows_what_it_showed(archive: Path, tmp_path: Path) -> None:
    assert missing(recorded(archive)["shows"], await shown(unpack(archive, tmp_path / "store"))) == []


@pytest.mark.parametrize("archive", STORES, ids=name_of)
@on_loop
async def test_the_sessions_of_an_earlier_version_resume_to_the_same_end(archive: Path, tmp_path: Path) -> None:
    assert await finished(archive.name.partition(".")[0], archive, tmp_path) == recorded(archive)["ends"]


def test_there_are_stores_of_every_kind_of_this_version() -> None:
    this = HERE / ".".join(version("pausepoint").split(".")[:2])
    assert {archive.name for archive in this.glob("*.tar.xz")} == {f"{name}.tar.xz" for name in SCENES}, (
        f"Record the stores of this version: python -m tests.recorded.make {this.name}"
    )


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_the_migrations_of_a_released_version_have_not_changed(folder: Path) -> None:
    """A store in Postgres has run them, and no later version can run them again."""
    before = json.loads((folder / SHOWN).read_text("utf-8"))["migrations"]
    assert len(before) >= 2
    assert missing(before, released_migrations()) == [], "Add a migration with the next number instead."


@on_loop
async def test_a_changed_store_would_be_noticed(tmp_path: Path) -> None:
    archive = VERSIONS[-1] / "failed.tar.xz"
    folder = unpack(archive, tmp_path / "store")
    async with engine_at(folder, drives="none") as engine:
        await engine.session("s-1").cancel()
    changed = missing(recorded(archive)["shows"], await shown(folder))
    assert any("'failed' became 'cancelled'" in each for each in changed)


@pytest.mark.long
@on_loop
async def test_recording_again_gives_stores_that_end_alike(tmp_path: Path) -> None:
    await record_stores(tmp_path / "now")
    now = json.loads((tmp_path / "now" / SHOWN).read_text("utf-8"))["stores"]
    for archive in VERSIONS[-1].glob("*.tar.xz"):
        assert now[archive.name.partition(".")[0]]["ends"] == recorded(archive)["ends"]


@on_loop
async def test_what_is_recorded_is_never_recorded_again() -> None:
    with pytest.raises(SystemExit, match="The files of a released version never change"):
        await record_version(VERSIONS[-1])


@on_loop
async def test_a_recorded_store_in_a_newer_format_is_refused(tmp_path: Path) -> None:
    database = unpack(VERSIONS[-1] / "family.tar.xz", tmp_path / "store") / DATABASE
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')"
    subprocess.run([sys.executable, "-c", program, str(database)], check=True)
    before = database.read_bytes()
    with pytest.raises(NewerSchema, match=r"newer Pausepoint \(schema 99; this version supports \d+\).*Upgrade"):
        async with Engine(database):
            pass
    assert database.read_bytes() == before
