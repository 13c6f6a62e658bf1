"""Power loss below libc: every file of a real program, in the states that the rules of fsync allow.

`test_write_order` does the same for the database alone, at the level of SQLite's file system.
"""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from tests.faults.libc.lab import Lab, Recording
from tests.faults.libc.scenarios import decode

STATES = 20  # drawn for each scenario; equal states are checked once


def first_wrong(lab: Lab, recording: Recording, what: str) -> list[str]:
    """Return what is wrong with the first bad state right after a fact, if nothing unsynced survives."""
    found = (lab.judge(recording, state) for state in recording.strict(what))
    return next((wrong for wrong in found if wrong), [])


@pytest.mark.long
@pytest.mark.covers("S1.53", "S3.89")
@pytest.mark.parametrize("scenario", ["publishing", "retention"])
def test_no_power_loss_takes_files_artifacts_exports_or_snapshots(power: Lab, scenario: str) -> None:
    recording = power.record(scenario)
    assert recording.is_complete
    judged = list(power.judged(recording, 1, STATES))
    assert len(judged) >= STATES * 3 // 4
    assert [(state.name, wrong) for state, wrong in judged if wrong] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "where", ["into a new folder", "into a numbered folder", "into an unsynced folder", "below an unsynced folder"]
)
def test_no_power_loss_takes_the_folder_of_artifacts(power: Lab, where: str) -> None:
    assert first_wrong(power, power.record(f"publishing {where}"), "completed") == []


@pytest.mark.long
def test_an_older_export_under_the_same_name_is_noticed(power: Lab) -> None:
    recording = power.record("publishing")
    *_, state = recording.strict("exported")
    assert power.judge(recording, state) == []
    another = msgspec.structs.replace(decode(state.notes[-1]), digest="0" * 64)
    told = replace(state, notes=(*state.notes[:-1], msgspec.json.encode(another).decode()))
    assert power.judge(recording, told) == ["the export paper.jsonl is an older one"]


@pytest.mark.parametrize("scenario", ["accepting a loss", "accepting a loss after a kill"])
def test_no_power_loss_takes_the_copy_of_a_damaged_log(power: Lab, scenario: str) -> None:
    # The name of the copy survives even without a sync of its own: SQLite syncs the folder before it empties the log.
    recording = power.record(scenario)
    assert [fact.what for fact in recording.facts].count("accepted") == 1
    assert first_wrong(power, recording, "accepted") == []


TWINS = [
    ("stores.disk:Upload.finish", "publishing", "file", "has 0 bytes instead of 3072"),
    ("stores.disk:Upload.publish", "publishing", "file", "is missing"),
    ("stores.disk:new_folder", "publishing", "opened", "There is no store"),
    ("stores.disk:new_folder", "publishing", "file", "is missing"),
    ("stores.disk:new_folder", "publishing into a numbered folder", "completed", "is missing or empty"),
    ("stores.disk:make_folder", "publishing below an unsynced folder", "completed", "is missing or empty"),
    ("artifacts.folder:ArtifactFolder.make", "publishing into an unsynced folder", "completed", "is missing or empty"),
    ("artifacts.folder:ArtifactFolder.publish", "publishing", "completed", "verdict.md"),
    ("engine.bundle:write", "publishing", "exported", "the export paper.jsonl is lost"),
    ("stores.disk:_inside", "retention", "file", "is missing"),
    ("stores.disk:_shared", "retention", "file", "Session 'fork'"),
    ("stores.disk:Folder.remove", "retention", "redacted", "the redacted file of source is back"),
    ("stores.sqlite.schema:fold", "retention", "erased", "store.db-wal contains erased bytes"),
    ("stores.folders:_remove", "retention", "removed", "its folder is back"),
    ("stores.sqlite.schema:_fill", "publishing", "opened", "There is no store"),
    ("stores.sqlite.recovery:_write", "accepting a loss", "accepted", "the copy of the damaged log is lost"),
]
"""The site of the sync that is left out, the scenario, the fact after which the power fails, and the complaint."""


@pytest.mark.long
@pytest.mark.parametrize(("site", "scenario", "what", "complaint"), TWINS)
def test_an_engine_that_leaves_out_one_sync_is_caught(
    power: Lab, site: str, scenario: str, what: str, complaint: str
) -> None:
    recording = power.record(scenario, skip=site)
    assert recording.asked[site]
    assert complaint in " ".join(first_wrong(power, recording, what))


def durable_before_sqlite(recording: Recording) -> bool:
    """Return whether the database's name was durable before SQLite made its log next to it."""
    disk = recording.until(lambda call: call.kind == "create" and call.name == "store.db-wal")
    left = disk.crash("synced", "synced", random.Random(0))["data"]
    assert isinstance(left, dict)
    return set(left["new"]) == {"store.db"}


@pytest.mark.long
def test_the_name_of_a_new_database_is_durable_before_sqlite_depends_on_it(power: Lab) -> None:
    # SQLite syncs the folder for its log, which hides a missing sync from the states after that.
    assert durable_before_sqlite(power.record("publishing"))
    twin = power.record("publishing", skip="stores.sqlite.schema:_make_file")
    assert twin.asked["stores.sqlite.schema:_make_file"]
    assert not durable_before_sqlite(twin)


@pytest.mark.long
def test_every_sync_of_the_engine_has_a_twin(power: Lab) -> None:
    scenarios = ("publishing", "retention", "accepting a loss")
    asked = {site for scenario in scenarios for site in power.record(scenario).asked if not site.startswith("tests.")}
    twins = {site for site, *_ in TWINS} | {"stores.sqlite.schema:_make_file"}
    assert asked - twins == set(), "add a twin that leaves this sync out"
