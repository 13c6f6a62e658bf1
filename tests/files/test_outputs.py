"""The folder for what a program leaves: the session's own, shut to others, and gone with it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Workflow, step
from pausepoint.errors import ContextClosed, FileRefused, StoreError
from tests.support.loop import on_loop


class Left(BaseModel):
    paths: list[Path] = []


@step(writes="paths")
async def leave(ctx: Context) -> list[Path]:
    path = ctx.files.outputs / "a.txt"
    path.write_text("a")
    return [path]


@step(writes="paths")
def leave_more(paths: list[Path], ctx: BlockingContext) -> list[Path]:
    path = ctx.files.outputs / "b.txt"
    path.write_text("b")
    return [*paths, path]


left = Workflow("left", state=Left, steps=[leave, leave_more])


def test_steps_and_everybody_else_have_the_same_folder_and_it_goes_with_the_session(tmp_path: Path) -> None:
    with Engine(tmp_path / "h.db") as engine:
        session = engine.start(left, session_id="s1")
        paths = session.outcome().state.paths
        folder = tmp_path / "h.db.sessions" / "s1" / "outputs"
        assert paths == [folder / "a.txt", folder / "b.txt"]
        assert session.files.outputs == engine.session("s1").files.outputs == folder
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert engine.gc(apply=True).strays == 0
        assert session.verify().ok
        assert [path.read_text() for path in paths] == ["a", "b"]
        engine.session("s1").remove()
        assert not folder.parent.exists()


def test_it_is_made_when_it_is_asked_for_and_not_before(tmp_path: Path) -> None:
    with Engine(tmp_path / "h.db") as engine:
        session = engine.start(left, session_id="s1", paused=True)
        assert not (tmp_path / "h.db.sessions").exists()
        assert session.files.outputs.is_dir()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    with Engine(tmp_path / "h.db") as engine:
        session = engine.start(left, session_id="s1", paused=True)
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "h.db.sessions" / "s1").mkdir(parents=True)
        (tmp_path / "h.db.sessions" / "s1" / "outputs").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(
            StoreError, match=r"The outputs of session 's1' in \S+/outputs .*Not a directory.*try again\.$"
        ):
            _ = session.files.outputs


@on_loop
async def test_neither_a_store_in_memory_nor_a_step_that_has_ended_has_one() -> None:
    kept: list[Context] = []

    @step
    async def keep(ctx: Context) -> None:
        kept.append(ctx)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("kept", state=Left, steps=[keep]))
        await session.outcome()
        with pytest.raises(FileRefused, match="no folder for files"):
            _ = session.files.outputs
        with pytest.raises(ContextClosed):
            _ = kept[0].files.outputs
