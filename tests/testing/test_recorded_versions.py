"""Sessions that released versions wrote, in tests/recorded: they load, fold and rehearse, whatever changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pausepoint import Status, testing
from pausepoint.engine import bundle
from pausepoint.errors import InputConflict
from tests.recorded import make
from tests.recorded.workflows import WORKFLOWS
from tests.support.loop import on_loop

FILES = sorted(make.HERE.glob("*/*.jsonl"))
STATUS = {
    "completed": Status.COMPLETED, "held-back": Status.PAUSED, "long": Status.COMPLETED, "waiting": Status.WAITING,
    "woken": Status.COMPLETED, "asked": Status.WAITING, "answered": Status.COMPLETED,
}  # fmt: skip


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_recorded_session_is_whole_and_folds_to_the_state_it_had(path: Path) -> None:
    kept = bundle.read(path)
    workflow = WORKFLOWS[kept.workflow]
    expected = workflow.model.model_validate_json(path.with_suffix(".state.json").read_text("utf-8"))
    assert testing.load(path, workflow) == expected
    assert kept.row().status is STATUS[path.stem]


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_recorded_session_rehearses_without_a_difference(path: Path) -> None:
    testing.replay(path, WORKFLOWS[bundle.read(path).workflow])


@pytest.mark.parametrize("path", FILES, ids=name_of)
@on_loop
async def test_a_recorded_session_can_be_put_into_a_store_and_goes_on_there(path: Path) -> None:
    kept = bundle.read(path)
    async with testing.engine(*WORKFLOWS.values()) as engine:
        row = await bundle.import_(engine.store, kept)
        assert (row.status, row.seq, row.digest) == (STATUS[path.stem], kept.records[-1].seq, kept.records[-1].digest)
        assert (row.owner, row.tags, row.spent_usd) == (kept.row().owner, kept.row().tags, kept.row().spent_usd)
        assert await engine.store.records(row.key, 1) == kept.records
        expected = path.with_suffix(".state.json").read_text("utf-8")
        assert await engine.session(row.session_id).state() == WORKFLOWS[kept.workflow].model.model_validate_json(
            expected
        )
        with pytest.raises(InputConflict):
            await bundle.import_(engine.store, kept)


@on_loop
async def test_a_session_that_waited_goes_on_after_it_was_imported() -> None:
    path = make.HERE / "0.1" / "waiting.jsonl"
    async with testing.engine(*WORKFLOWS.values()) as engine:
        row = await bundle.import_(engine.store, bundle.read(path))
        session = engine.session(row.session_id)
        await session.send("hello again")  # the engine takes it up by itself
        while await session.status() is not Status.COMPLETED:
            await asyncio.sleep(0)
        assert (await session.outcome()).state.said == "hello again"


@pytest.mark.long
@on_loop
async def test_what_is_recorded_today_is_in_the_same_conditions(tmp_path: Path) -> None:
    await make.record_all(tmp_path)
    written = {path.stem: bundle.read(path).row().status for path in tmp_path.glob("*.jsonl")}
    assert written == STATUS


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_there_are_files_of_every_version(version: str) -> None:
    assert {path.stem for path in FILES if path.parent.name == version} == STATUS.keys()
