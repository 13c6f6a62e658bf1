"""A resume does what its plan says, whatever people did before: edits of files and of the state, rewinds, adoptions."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pausepoint import Engine
from tests.artifacts.pipeline import FILES, Desk, Finding, calls, in_folder

STEPS = ["research", "draft", "header", "finalize"]

paths, steps = st.sampled_from(FILES), st.sampled_from(STEPS)
reruns = st.lists(steps, max_size=2, unique=True)
fields = st.sampled_from(["company", "header", "memo", "research", "outline"])
actions = st.one_of(
    st.tuples(st.just("edit"), paths),
    st.tuples(st.just("delete"), paths),
    st.tuples(st.just("change"), fields),
    st.tuples(st.just("rewind"), steps),
    st.tuples(st.just("adopt"), st.none()),
    st.tuples(st.just("resume"), reruns, st.one_of(st.none(), steps)),
)


class World:
    """One session, and a person who does things to its folder and to its state."""

    def __init__(self, desk: Desk, engine: Engine) -> None:
        self.desk, self.engine, self.count = desk, engine, 0

    async def edit(self, path: str) -> None:
        if self.desk.file(path).exists():
            text = f"## edit {self.count} of {path}, by hand and long enough\n"
            self.desk.file(path).write_text(json.dumps([{"claim": text}]) if path.endswith(".json") else text)

    async def delete(self, path: str) -> None:
        self.desk.file(path).unlink(missing_ok=True)

    async def change(self, field: str) -> None:
        text = f"## state {self.count}\n"
        special: dict[str, Any] = {"research": [Finding(claim=text)], "outline": [f"0{self.count % 3}-new", "02-team"]}
        planned = await self.engine.session("s1").plan_edit({field: special.get(field, text)})
        await self.engine.session("s1").edit({field: special.get(field, text)})
        assert planned == await self.engine.session("s1").plan()

    async def rewind(self, step: str) -> None:
        if step in [
            each.step for each in await self.engine.session("s1").checkpoints(limit=None) if not each.left_behind
        ]:
            await self.engine.session("s1").rewind(step)

    async def adopt(self, _: None) -> None:
        await self.engine.session("s1").adopt()

    async def resume(self, rerun: list[str], until: str | None) -> None:
        before: Any = await self.engine.session("s1").state()
        plan = await self.engine.session("s1").plan(rerun=rerun)
        planned = [each.step for each in plan if each.verdict in ("next", "will run")]
        session = await self.engine.session("s1").resume(edits="accept", rerun=rerun, pause_after=until)
        ended = (await session.outcome()).status.value == "completed"
        ran = [name for name in calls.taken() if name in STEPS]
        assert ran == (planned if ended else planned[: len(ran)]), f"{plan}"
        await self._check(ended)
        after: Any = await self.engine.session("s1").state()
        assert (after.company, after.outline) == (before.company, before.outline), "no step writes these"

    async def _check(self, ended: bool) -> None:
        found = await self.engine.session("s1").artifacts()
        assert {each.state for each in found} <= {"valid"}
        if ended:
            assert {each.verdict for each in await self.engine.session("s1").plan()} == {"done"}
            assert {each.path for each in found} <= {*in_folder(self.desk.folder)}


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(actions, min_size=2, max_size=8))
def test_a_resume_runs_what_its_plan_says_and_keeps_what_was_edited(sequence: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Desk(Path(folder)), sequence))


async def _live(desk: Desk, sequence: list[tuple[Any, ...]]) -> None:
    async with desk.engine() as engine:
        await (await engine.start(desk.workflow, company="Fern", session_id="s1", folder=desk.folder)).outcome()
        calls.taken()
        world = World(desk, engine)
        for what, *given_to in [*sequence, ("resume", [], None)]:
            world.count += 1
            await getattr(world, what)(*given_to)
