"""Checkpoints: the list of them, and the state at each one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.errors import UnknownCheckpoint
from pausepoint.model.views import Checkpoint
from tests.engine.essay import COUNTING, WHOLE, Desk, Essay, Spy
from tests.support.loop import on_loop

# the list


@on_loop
async def test_checkpoints_are_listed_with_what_they_wrote() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        listed = await session.checkpoints()
        assert [each.name for each in listed] == [name if "#" in name else f"{name}#1" for name in WHOLE]
        assert listed[0].fields == ("notes", "log")
        assert [each.seq for each in listed] == sorted(each.seq for each in listed)
        assert not any(each.left_behind for each in listed)


@on_loop
async def test_the_list_is_read_page_by_page_backwards() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        everything = await session.checkpoints(limit=None)
        pages: list[list[Checkpoint]] = []
        while page := await session.checkpoints(before=pages[0][0].seq if pages else None, limit=3):
            pages.insert(0, page)
        assert [len(page) for page in pages] == [2, 3, 3]
        assert [each for page in pages for each in page] == everything
        assert await session.checkpoints(limit=0) == []
        with pytest.raises(ValueError, match="limit must be"):
            await session.checkpoints(limit=-1)


@on_loop
async def test_a_page_of_a_long_session_reads_a_part_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING)
        await session.outcome()
        spy = Spy(engine, monkeypatch)
        assert [each.visit for each in await session.checkpoints(limit=5)] == [696, 697, 698, 699, 700]
        middle = await session.checkpoints(before=300, limit=5)
        assert [each.seq for each in middle] == [295, 296, 297, 298, 299]
        assert (await session.state(at_checkpoint=middle[-1].seq)).n == middle[-1].visit
        assert (await session.state(at_checkpoint="count#123")).n == 123
        assert 0 < spy.records < 2_400  # reads a few key-frame intervals; four times the whole log would be 2,800
        before = spy.records
        await session.checkpoints(limit=5)
        assert spy.records - before < 300


# the state at a checkpoint


@on_loop
async def test_the_state_is_known_at_every_checkpoint() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        assert (await session.state(at_checkpoint=1)) == Essay(topic="squid")
        first = await session.state(at_checkpoint="write#1")
        assert (first.draft, first.rounds, first.log) == ("squid, draft 1", 0, ["research squid", "write 1"])
        assert (await session.state(at_checkpoint="write")).draft == "squid, draft 3"
        for each in await session.checkpoints():
            assert await session.state(at_checkpoint=each.seq) == await session.state(at_checkpoint=each.name)
        assert await session.state(at_checkpoint="finish") == await session.state()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("wriet", "Did you mean 'write'"),
        ("write#7", "has no finished visit write#7. The last one is write#3"),
        ("write#0", "The last one is write#3"),
        ("finish#2", "The last one is finish#1"),
        (4711, r"has no record 4711. Its log has the records 1 to \d+. Nearby checkpoints: .*\(finish#1\)"),
        (0, r"Nearby checkpoints: \d+ \(research#1\)"),
        (-3, "has no record -3"),
    ],
)
@on_loop
async def test_an_unknown_checkpoint_is_refused_with_what_is_near(at: int | str, said: str) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        for verb in (session.state, session.diff):
            with pytest.raises(UnknownCheckpoint, match=said) as refused:
                await verb(at)
            assert (refused.value.at_checkpoint, refused.value.session_id) == (at, "one")
        with pytest.raises(UnknownCheckpoint):
            await session.rewind(at)


@pytest.mark.parametrize("at", [True, 1.5, "", ["write"]])
@on_loop
async def test_what_names_no_checkpoint_is_a_type_error(at: Any) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(TypeError, match="does not name a checkpoint"):
            await session.state(at_checkpoint=at)


@on_loop
async def test_a_record_that_is_no_checkpoint_cannot_be_redone() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(
            UnknownCheckpoint, match=r"has record 1, but it is not a checkpoint. Nearby checkpoints: 2 \(research#1\)"
        ):
            await session.rewind(1)


# forking


def test_stored_values_that_json_lacks_are_shown_as_they_are_stored() -> None:
    from pausepoint.log.diff import compare

    before, after = ({"$datetime": datetime(2024, 2, day).isoformat()} for day in (1, 2))
    (found,) = compare("when", before, after)
    assert (found.path, found.kind, found.after) == ("when", "changed", {"$datetime": "2024-02-02T00:00:00"})
    assert list(compare("n", 1, 1)) == []
    assert [each.kind for each in compare("n", 1, True)] == ["changed"]
