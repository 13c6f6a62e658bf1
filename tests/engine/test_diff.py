"""The difference between two checkpoints, field by field."""

from __future__ import annotations

import json

import pytest

from pausepoint import Engine
from tests.engine.essay import COUNTING, Desk, Spy
from tests.support.loop import on_loop


@on_loop
async def test_a_diff_tells_field_by_field_what_differs() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        found = await session.diff("write#1", "review#2")
        assert [each.path for each in found] == ["rounds", "log", "draft"]
        assert (found["rounds"].before, found["rounds"].after) == (0, 2)
        assert found["log"].added == ("review 1", "write 2", "review 2")
        assert "rounds: 0 → 2" in str(found)
        assert 'log: 3 items added: ["review 1","write 2","review 2"]' in str(found)
        assert json.loads(json.dumps(found.to_json()))["changes"][0] == {
            "path": "rounds", "kind": "changed", "before": 0, "after": 2,
        }  # fmt: skip
        assert "<table" in found._repr_html_()
        assert "squid, draft 2" in found._repr_html_()


@on_loop
async def test_a_diff_is_against_now_by_default_and_empty_for_the_same() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        assert [each.path for each in await session.diff("review#3")] == ["final"]
        nothing = await session.diff("finish")
        assert (len(nothing), list(nothing)) == (0, [])
        assert "no difference" in str(nothing)
        backwards = await session.diff("finish", 1)
        assert backwards["log"].kind == "changed"
        assert backwards["notes.squid"].kind == "removed"


@on_loop
async def test_a_diff_knows_parts_and_keys() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = (await session.info()).session_id, (await session.checkpoints())[-1].seq
        await session.edit({"plan.title": "Arms", "notes": {"squid": "lost", "ink": "black"}, "log": []})
        found = await session.diff(before[1])
        assert str(found["plan.title"]) == 'plan.title: "" → "Arms"'
        assert str(found["notes.ink"]) == 'notes.ink: added "black"'
        assert str(found["notes.squid"]) == 'notes.squid: "found" → "lost"'
        assert found["log"].after == []


@on_loop
async def test_a_diff_reads_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING, ballast="x" * 100_000)
        await session.outcome()
        spy = Spy(engine, monkeypatch)
        found = await session.diff("count#600", "count#640")
        assert [each.path for each in found] == ["n", "items"]
        assert found["items"].added == tuple(f"{n:0300}" for n in range(601, 641))
        assert spy.blobs <= 1  # reads neither the large field nor the sealed part of the list
        far = await session.diff("count#100", "count#650")
        assert far["items"].added == tuple(f"{n:0300}" for n in range(101, 651))
