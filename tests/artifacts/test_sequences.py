"""Random sequences of run, failing disk, edit, truncate, delete and resume: no edit lost, no damaged artifact accepted,
no needless call.

What has to run is predicted here from what reads what, not asked of the engine; its plan has to say the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pausepoint.artifacts.folder
import pausepoint.stores.disk
from pausepoint.definition.artifacts import OWN
from pausepoint.errors import PausepointError, UndecidedEdits
from tests.artifacts.jobs import WRITES
from tests.artifacts.pipeline import FILES, Desk, calls

STEPS = ["research", "draft", "header", "finalize"]
READERS = {"research": ["draft"], "draft": ["finalize"], "header": ["finalize"], "finalize": []}
OWNERS = {path: "draft" for path in FILES if path.startswith("2-")} | {
    "1-research.json": "research", "header.md": "header", "4-final.md": "finalize",
}  # fmt: skip


class FailingDisk:
    """The module `os` for who writes artifacts; from the n-th write on nothing works any more."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in WRITES:
            return found

        def act(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError(5, "the disk is gone")
            return found(*args, **kwargs)

        return act


@contextmanager
def failing_disk(left: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pausepoint.stores.disk, "os", disk := FailingDisk(left))
        patch.setattr(pausepoint.artifacts.folder, "os", disk)
        yield


class World:
    """One session, its folder, and a person who does things to it."""

    def __init__(self, path: Path) -> None:
        self.desk = Desk(path)
        self.count = 0
        self.edits: dict[str, bytes] = {}  # by path: what the person wrote and nobody has replaced since
        self.broken: dict[str, bytes] = {}
        self.whole: dict[str, bytes] = {}
        self.gone: set[str] = set()
        self.reformed: set[str] = set()
        self.sure = True  # nothing was cut off since it was last known how everything stands

    # what a person does

    def edit(self, path: str) -> None:
        if self._is_there(path) and path not in self.broken:
            self.count += 1
            text = f"## edit {self.count} of {path}, by hand and long enough\n"
            data = json.dumps([{"claim": text, "weight": 1}]) if path.endswith(".json") else text
            self.desk.file(path).write_text(data)
            self.edits[path] = data.encode()

    def reform(self, path: str) -> None:
        """As an editor does that formats what it saves: it says the same, and nothing may run for it."""
        if path.endswith(".json") and self._is_there(path) and path not in self.edits and path not in self.broken:
            self.count += 1
            value = json.loads(self.desk.file(path).read_text())
            self.desk.file(path).write_text(json.dumps(value, indent=self.count))
            self.reformed.add(path)

    def truncate(self, path: str) -> None:
        if self._is_there(path) and path not in {*self.edits, *self.broken, *self.reformed}:
            whole = self.whole[path] = self.desk.file(path).read_bytes()
            self.broken[path] = whole[: len(whole) * 2 // 3]
            self.desk.file(path).write_bytes(self.broken[path])

    def delete(self, path: str) -> None:
        if self._is_there(path) and path not in self.edits and path not in self.broken:
            self.desk.file(path).unlink()
            self.gone.add(path)

    def _is_there(self, path: str) -> bool:
        return self.sure and self.desk.file(path).exists()

    # what the engine does

    async def go_on(self, decision: str | None, breaks_at: int | None) -> None:
        done = await self._done()
        expected = self._expected(done, decision)
        before = await self._look()
        try:
            with failing_disk(10**9 if breaks_at is None else breaks_at):
                outcome = await (self.desk.resume(edits=decision) if done is not None else self.desk.run())
        except UndecidedEdits:
            assert expected is None or not self.sure, "nothing needed a decision"
            assert await self._look() == before, "nothing may change before a decision"
            assert calls.taken() == []
            return
        except (PausepointError, OSError):
            assert breaks_at is not None
            self._unsure()
            return
        ran = [name for name in calls.taken() if name in STEPS]
        if outcome.status.value != "completed":
            assert breaks_at is not None
            self._unsure()
            return
        if self.sure:
            assert ran == expected, "None: somebody had to decide"
        self._settle(ran, decision)
        await self._check()

    async def _done(self) -> set[str] | None:
        """The steps that have ended; None if the session was never stored."""
        try:
            async with self.desk.engine() as engine:
                return {
                    each.step for each in await engine.session("s1").checkpoints(limit=None) if not each.left_behind
                }
        except PausepointError:
            return None

    def _expected(self, done: set[str] | None, decision: str | None) -> list[str] | None:
        """The steps that have to run; None if somebody has to decide first."""
        if done is None:
            return STEPS
        again = _closure({OWNERS[path] for path in self.gone}) & done
        damaged = {path for path in self.broken if OWNERS[path] not in {OWNERS[path] for path in self.gone}}
        if damaged and decision != "discard":
            return None
        asked = {path for path in self.edits
                 if OWNERS[path] in again or any(step in done for step in READERS[OWNERS[path]])}  # fmt: skip
        if asked and decision is None:
            return None
        for path in self.edits if decision != "discard" else ():
            again |= _closure(set(READERS[OWNERS[path]])) & done
        return [step for step in STEPS if step in again or step not in done]

    async def _look(self) -> Any:
        files = {path: path.read_bytes() for path in self.desk.folder.rglob("*") if path.is_file()}
        try:
            async with self.desk.engine() as engine:
                return files, (await engine.session("s1").info()).seq
        except PausepointError:
            return files, 0

    def _unsure(self) -> None:
        """Something was cut off: what was done of it is for the next resume to find out, and to put right."""
        calls.taken()
        self.sure = False

    def _settle(self, ran: list[str], decision: str | None) -> None:
        kept = self._kept()
        for path, data in [*self.edits.items()]:
            assert self.desk.file(path).read_bytes() == data or data in kept, f"the edit of {path} is lost"
        for data in self.broken.values():
            assert data in kept or decision != "discard", "what was damaged is kept aside"
        if decision == "discard" and self.sure:
            for path, data in self.whole.items():
                assert self.desk.file(path).read_bytes() == data or OWNERS[path] in ran
        self.edits, self.broken, self.whole, self.gone, self.reformed, self.sure = {}, {}, {}, set(), set(), True

    def _kept(self) -> list[bytes]:
        own = self.desk.folder / OWN
        return [
            path.read_bytes() for name in ("bin", "edits") if (own / name).exists() for path in (own / name).iterdir()
        ]

    async def _check(self) -> None:
        """Every file is valid and what the state says, and what was made was made of what there is."""
        async with self.desk.engine() as engine:
            assert {each.state for each in await engine.session("s1").artifacts()} == {"valid"}
            assert {each.verdict for each in await engine.session("s1").plan()} == {"done"}
            state: Any = await engine.session("s1").state()
        assert self.desk.file("header.md").read_text() == state.header
        assert self.desk.file("4-final.md").read_text() == state.memo
        claim = json.loads(self.desk.file("1-research.json").read_text())[0]["claim"]
        assert claim == state.research[0].claim
        for name, text in state.sections.items():
            assert self.desk.file(f"2-sections/{name}.md").read_text() == text
            assert text.startswith("## edit") or claim in text, "a stale section"
        if not state.memo.startswith("## edit"):
            assert state.memo.startswith(state.header + "".join(state.sections.values())), "a stale memo"


def _closure(steps: set[str]) -> set[str]:
    found = set(steps)
    for step in STEPS:
        if step in found:
            found |= set(READERS[step])
    return found


paths = st.sampled_from(FILES)
decisions = st.sampled_from([None, "accept", "discard"])
actions = st.one_of(
    st.tuples(st.just("edit"), paths),
    st.tuples(st.just("reform"), paths),
    st.tuples(st.just("truncate"), paths),
    st.tuples(st.just("delete"), paths),
    st.tuples(st.just("resume"), decisions),
    st.tuples(st.just("break"), decisions, st.integers(0, 120)),
)


@pytest.mark.long
@pytest.mark.covers("S4.65", "S4.76", "S4.81", "S4.85", "S4.88")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(actions, max_size=8))
def test_whatever_happens_no_edit_is_lost_no_damage_accepted_and_nothing_runs_needlessly(
    sequence: list[tuple[Any, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(World(Path(folder)), sequence))


async def _live(world: World, sequence: list[tuple[Any, ...]]) -> None:
    for action in sequence:
        match action:
            case ("resume", decision):
                await world.go_on(decision, None)
            case ("break", decision, at):
                await world.go_on(decision, at)
            case (what, path):
                getattr(world, what)(path)
    await world.go_on("discard" if world.broken else "accept", None)
