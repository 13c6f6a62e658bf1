"""Exports and artifact folders of a stranger: nothing outside of the store changes, and each layer of checks holds."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pausepoint.artifacts import detection, folder
from pausepoint.engine import bundle, retention
from pausepoint.errors import FileRefused, FolderRefused
from pausepoint.model.sessions import Filter
from pausepoint.stores import disk, files, folders
from pausepoint.stores.sql import transfer
from tests.faults.hostile import INSIDE, Sandbox, Trials, changed, imported, pages, rebuilt, sealed
from tests.support.loop import on_loop

SAMPLE = 30

Twin = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def trials() -> Trials:
    return Trials(random.Random(11))


@pytest.fixture
def box(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path / "box")


# the checks, layer by layer


def no_admission(patch: pytest.MonkeyPatch) -> None:
    """Break the check of an export."""
    patch.setattr(bundle, "_admit", lambda *given: None)


def no_store_check(patch: pytest.MonkeyPatch) -> None:
    """Break the check of the store."""
    patch.setattr(transfer, "check_names", lambda whole: None)


def no_disk_check(patch: pytest.MonkeyPatch) -> None:
    """Break the check of names in folders of files."""
    patch.setattr(disk, "check_name", lambda name, hidden=False: name)


def no_folder_check(patch: pytest.MonkeyPatch) -> None:
    """Break the check of the id that names a session's folder."""
    patch.setattr(files, "check_session_id", lambda id: id)
    patch.setattr(retention, "check_session_id", lambda id: id)


def no_removal_check(patch: pytest.MonkeyPatch) -> None:
    """Break the check that only a child of the folder of sessions is deleted."""
    keep = folders._remove
    patch.setattr(folders, "_remove", lambda found, root, id: keep(found, found.parent, id))


def no_note_check(patch: pytest.MonkeyPatch) -> None:
    """Break the check of completion records."""
    patch.setattr(detection, "unfit_work", lambda work, step: "")


def no_path_check(patch: pytest.MonkeyPatch) -> None:
    """Break the check of paths in an artifact folder."""

    def around(self: folder.ArtifactFolder, path: str) -> tuple[disk.Folder, str]:
        *parts, name = path.split("/")
        return disk.Folder(self.path.joinpath(*parts), len(parts), folder.OPEN), name

    patch.setattr(folder.ArtifactFolder, "_around", around)


def hostile_file(trials: Trials) -> bytes:
    """Return an export with a file whose id leads to the victim's keys."""
    lines = list(trials.lines)
    number = next(number for number, line in enumerate(lines) if line.get("signal", {}).get("kind") == "file")
    way = ("signal", "payload", INSIDE)
    for name, text in (("id", "../../../../home/authorized"), ("ending", "keys")):
        lines[number] = changed(lines[number], (*way, name), text)
    return sealed(lines)


def hostile_session(trials: Trials) -> bytes:
    """Return an export of an expired session whose id leads to the victim's photos."""
    session = trials.lines[1]["session"] | {
        "session_id": "../../home/photos", "keep_for": 1, "waiting": None, "wakes_at": None, "mail": False,
        "pause_requested": False,
    }  # fmt: skip
    records = [each for each in trials.lines[2:] if "record" in each][: session["seq"]]
    blobs = [each for each in trials.lines if "blob" in each]
    return sealed([trials.lines[0], {"session": session}, *records, *blobs, {}])


def hostile_note(trials: Trials) -> dict[str, bytes]:
    """Return a folder with a completion record that names the victim's secret as an artifact."""
    name = ".pausepoint/done/write.json"
    note = changed(trials.notes[name], ("work", "files", 0, "path"), "../../secret.md")
    return {**trials.files, name: json.dumps(note).encode()}


@pytest.mark.long
@pytest.mark.parametrize("twins", [
    (), (no_admission,), (no_admission, no_store_check), (no_admission, no_store_check, no_disk_check),
])  # fmt: skip
def test_a_file_whose_id_is_a_path_is_refused_by_each_layer_alone(
    trials: Trials, box: Sandbox, monkeypatch: pytest.MonkeyPatch, twins: tuple[Twin, ...]
) -> None:
    for twin in twins:
        twin(monkeypatch)
    report = asyncio.run(imported(box, hostile_file(trials)))
    keys = (box.home / "authorized.keys").read_text()
    if no_disk_check in twins:  # without any check the attack works, and the trial notices it
        assert keys == "attached\n"
        assert "home/authorized.keys changed" in report.failures
        return
    assert report.failures == []
    assert report.refused == ("FileRefused" if twins else "DamagedRecord")
    assert "the private key" in keys


@pytest.mark.parametrize("twins", [
    (), (no_admission,), (no_admission, no_store_check), (no_admission, no_store_check, no_folder_check),
    (no_admission, no_store_check, no_folder_check, no_removal_check),
])  # fmt: skip
def test_a_session_whose_id_is_a_path_deletes_no_folder(
    trials: Trials, box: Sandbox, monkeypatch: pytest.MonkeyPatch, twins: tuple[Twin, ...]
) -> None:
    for twin in twins:
        twin(monkeypatch)
    report = asyncio.run(imported(box, hostile_session(trials)))
    there = (box.home / "photos" / "wedding.jpg").exists()
    if no_removal_check in twins:
        assert not there
        assert "home/photos changed" in report.failures
        return
    assert there
    assert [each for each in report.failures if "changed" in each] == []
    if len(twins) < 2:
        assert report.refused == ("InvalidSessionId" if twins else "DamagedRecord")


@on_loop
async def test_a_forged_row_deletes_nothing_and_the_cleanup_says_why(
    trials: Trials, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    (box.root / "gift.jsonl").write_bytes(hostile_session(trials))
    async with box.engine() as engine:
        with monkeypatch.context() as patch:
            no_admission(patch)
            no_store_check(patch)
            await engine.import_session(box.root / "gift.jsonl", folder=box.out)
        [row] = await engine.store.find(Filter())
        assert row.session_id == "../../home/photos"
        report = await engine.gc(apply=True, now=None)
        assert list(report.kept) == ["../../home/photos"]
        assert "is not a valid session id" in next(iter(report.kept.values()))
        assert not (await engine.verify()).ok
    assert (box.home / "photos" / "wedding.jpg").exists()


@pytest.mark.parametrize("twins", [(), (no_note_check,), (no_note_check, no_path_check, no_disk_check)])
def test_a_completion_record_that_names_a_file_outside_is_not_followed(
    trials: Trials, box: Sandbox, monkeypatch: pytest.MonkeyPatch, twins: tuple[Twin, ...]
) -> None:
    for twin in twins:
        twin(monkeypatch)
    report = asyncio.run(rebuilt(box, hostile_note(trials)))
    if no_disk_check in twins:
        assert any("secret" in each for each in report.failures), report
        return
    assert report.failures == []
    if not twins:
        assert report.refused == "FolderRefused"


@on_loop
async def test_the_message_names_the_record_and_the_path(trials: Trials, box: Sandbox) -> None:
    for name, data in hostile_note(trials).items():
        (box.out / name).parent.mkdir(parents=True, exist_ok=True)
        (box.out / name).write_bytes(data)
    async with box.engine() as engine:
        with pytest.raises(
            FolderRefused, match=r"done/write\.json cannot be used: it names the file '../../secret.md'"
        ):
            await engine.rebuild(box.out, pages)


# names on their way to the disk


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "", "/etc/passwd", "nul\0", "..\\x", ".hidden"])
def test_a_name_that_is_not_plain_never_reaches_the_disk(tmp_path: Path, name: str) -> None:
    inside = disk.Folder(tmp_path / "store" / "s1" / "files")
    (tmp_path / "store").mkdir()
    with disk.Upload(inside) as upload:
        upload.write(b"x")
        upload.finish()
        acts: list[Callable[[str], object]] = [upload.publish, inside.read, inside.remove]
        for act in acts:
            with pytest.raises(FileRefused, match="is not a plain file name"):
                act(name)
    assert inside.damage(name, "0" * 64, 1) == "has a stored name that may lead out of its folder"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("path", ["../x.md", "a/../../x.md", "/etc/passwd", "a//b", "", ".", "a/.."])
def test_an_artifact_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    artifacts = folder.ArtifactFolder(tmp_path)
    with pytest.raises(FolderRefused, match="leads out of folder"):
        artifacts.read(path)
    with pytest.raises(FolderRefused, match="leads out of folder"):
        artifacts.publish(path, "0" * 64, [])


# the sample


@pytest.mark.long
def test_a_sample_of_hostile_texts_changes_nothing_outside(trials: Trials) -> None:
    refused = accepted = 0
    for _ in range(SAMPLE):
        what, report = trials.one()
        assert report.failures == [], what
        refused, accepted = refused + bool(report.refused), accepted + (not report.refused)
    assert refused > SAMPLE // 8
    assert accepted > SAMPLE // 8


@pytest.mark.long
def test_the_unchanged_originals_are_accepted(trials: Trials, tmp_path: Path) -> None:
    report = asyncio.run(imported(Sandbox(tmp_path / "one"), sealed(trials.lines)))
    assert (report.refused, report.failures) == ("", [])
    report = asyncio.run(rebuilt(Sandbox(tmp_path / "two"), trials.files))
    assert (report.refused, report.failures) == ("", [])
