"""Reading the last items of a list: the possible requests, the results, and a cost that depends on the window only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Append, Engine, Merge, Replace, Scope, Status, Workflow, guard, route, step
from pausepoint.definition import At
from pausepoint.errors import DefinitionError
from pausepoint.log.state import SEGMENT_BYTES
from pausepoint.stores.sqlite import SqliteStore
from tests.support.chat import WINDOW, Chatting, CountingStore
from tests.support.loop import on_loop
from tests.support.status import settled


class Line(BaseModel):
    at: datetime
    text: str
    tags: set[str] = set()


class Room(BaseModel):
    lines: Annotated[list[Line], Append] = []
    names: list[str] = []
    guests: list[str] | None = None


class Talk(BaseModel):
    topic: str = ""
    room: Room = Room()
    annex: Room | None = None
    numbers: Annotated[list[int], Append] = []
    plain: list[str] = []
    pair: tuple[int, ...] = ()
    book: Annotated[dict[str, int], Merge] = {}
    last: list[int] = []
    note: str = ""


def line(n: int) -> Line:
    return Line(at=datetime(2024, 2, 29, tzinfo=UTC), text=f"line {n}", tags={"b", f"{n}"})


def refused(*steps: Any, **options: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        Workflow("talk", state=Talk, steps=list(steps), **options)
    return str(caught.value)


# requests


@pytest.mark.parametrize(
    "path",
    [
        "numbers[-0:]", "numbers[0]", "numbers[-1]", "numbers[:5]", "numbers[5:]", "numbers[-5:-1]", "numbers[-5::2]",
        "numbers[]", "numbers[-5:", "numbers-5:]", "numbers[- 5:]", "numbers[-5 :]", "numbers[-05:]", "[-5:]",
        "numbers[-5:].text", "room[-5:].lines", "numbers[-5:][-2:]", "numbers[-٣:]", "numbers[-9999999999:]",
    ],
)  # fmt: skip
def test_another_slice_is_refused_with_what_is_possible(path: str) -> None:
    @step
    def wrong(some: Annotated[list[int], At(path)]) -> None: ...

    text = refused(wrong)
    assert f"step 'wrong': parameter 'some': At({path!r}) is not valid." in text
    assert "or the last items of a list, as in At('" in text
    assert "[-20:]')" in text


@pytest.mark.parametrize(
    ("path", "kind"), [("topic", "str"), ("book", "dict[str, int]"), ("pair", "tuple[int, ...]"), ("room", "Room")]
)
def test_a_window_of_what_is_no_list_is_refused(path: str, kind: str) -> None:
    @step
    def wrong(some: Annotated[Any, At(f"{path}[-3:]")]) -> None: ...

    text = refused(wrong)
    assert f"step 'wrong': parameter 'some' reads the last 3 items of {path!r}, but that is {kind}, not a list" in text
    assert f"Read it as a whole: At({path!r})" in text


def test_a_window_has_the_type_of_its_list() -> None:
    @step
    def wrong(some: Annotated[list[str], At("numbers[-3:]")], one: Annotated[int, At("numbers[-1:]")]) -> None: ...

    text = refused(wrong)
    assert "parameter 'some' is list[str], but Talk.numbers is list[int]" in text
    assert "parameter 'one' is int, but Talk.numbers is list[int]" in text


def test_a_window_of_an_unknown_place_is_refused_with_the_nearest_one() -> None:
    @step
    def wrong(some: Annotated[list[int], At("nubmers[-3:]")]) -> None: ...

    assert "Talk has no field 'nubmers'. Did you mean 'numbers'?" in refused(wrong)


def test_a_window_cannot_be_written_or_owned() -> None:
    @step(writes="numbers[-3:]")
    def wrong() -> list[int]:
        return []

    told = "'numbers[-3:]' is not a field. A window can only be read, with At('numbers[-3:]'). Name 'numbers' here."
    assert f"step 'wrong': writes='numbers[-3:]': {told}" in refused(wrong)
    scope = Scope("Agent", reads=["numbers[-3:]"])

    @scope.step
    def fine() -> None: ...

    assert f"scope 'Agent': {told}" in refused(fine)


def test_a_window_is_read_by_whoever_may_read_its_list() -> None:
    scope = Scope("Agent", reads=["room"])

    @scope.step
    def fine(some: Annotated[list[Line], At("room.lines[-3:]")]) -> None: ...

    @scope.step
    def wrong(some: Annotated[list[int], At("numbers[-3:]")]) -> None: ...

    assert Workflow("talk", state=Talk, steps=[fine]).step("fine").fields == {"room"}
    assert "parameter 'some' reads 'numbers', which the scope may not read" in refused(wrong)


# results


@pytest.mark.parametrize("count", [1, 3, 20])
@on_loop
async def test_steps_guards_routes_and_whens_read_the_end_of_a_list(count: int, tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {"guard": [], "route": [], "when": []}

    def few(some: Annotated[list[int], At(f"numbers[-{count}:]")]) -> bool:
        seen["when"].append(some)
        return True

    @step(writes=["numbers", "last"], when=few)
    def grow(some: Annotated[list[int], At(f"numbers[-{count}:]")]) -> dict[str, object]:
        first = some[-1] + 1 if some else 0
        return {"numbers": [first, first + 1], "last": some}

    @guard(after=grow)
    def never(some: Annotated[list[int], At(f"numbers[-{count}:]")]) -> str | None:
        seen["guard"].append(some)
        return None

    @route(after=grow)
    def again(some: Annotated[list[int], At(f"numbers[-{count}:]")]) -> Literal["grow", None]:
        seen["route"].append(some)
        return "grow" if some[-1] < 19 else None

    workflow = Workflow("talk", state=Talk, steps=[grow], guards=[never], routes=[again])
    async with Engine(tmp_path / "h.db") as engine:
        outcome = await (await engine.start(workflow)).outcome()
        assert outcome.state.numbers == list(range(20))
        assert outcome.state.last == list(range(18))[-count:]
        before = [list(range(2 * n))[-count:] for n in range(10)]
        after = [list(range(2 * n))[-count:] for n in range(1, 11)]
        assert seen == {"when": before, "guard": after, "route": after}


@on_loop
async def test_windows_of_parts_of_plain_lists_and_of_models_come_back_as_what_they_are() -> None:
    found: list[Any] = []

    @step(writes="room.lines")
    def fill() -> list[Line]:
        return [line(n) for n in range(5)]

    @step
    def look(
        lines: Annotated[list[Line], At("room.lines[-2:]")],
        names: Annotated[list[str], At("room.names[-2:]")],
        plain: Annotated[list[str], At("plain[-1:]")],
        nobody: Annotated[list[str] | None, At("room.guests[-1:]")],
        nowhere: Annotated[list[str] | None, At("annex.names[-1:]")],
        all_of_it: Annotated[list[Line], At("room.lines[-100:]")],
    ) -> None:
        found.extend((lines, names, plain, nobody, nowhere, all_of_it))

    workflow = Workflow("talk", state=Talk, steps=[fill, look])
    async with Engine(":memory:") as engine:
        room = Room(names=["ann", "bob", "cy"])
        outcome = await (await engine.start(workflow, room=room, plain=["a", "b"])).outcome()
        assert outcome.status is Status.COMPLETED
    assert found == [[line(3), line(4)], ["bob", "cy"], ["b"], None, None, [line(n) for n in range(5)]]


@on_loop
async def test_a_window_of_a_list_that_is_none_pauses_unless_none_may_be_read() -> None:
    @step
    def look(some: Annotated[list[str], At("room.guests[-3:]")]) -> None: ...

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("talk", state=Talk, steps=[look]))).outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "missing")
        assert "look needs 'room.guests', which is None" in outcome.pauses[0].reason


@on_loop
async def test_what_was_lent_in_a_window_must_stay_as_it_was() -> None:
    @step(writes="note")
    def meddle(
        some: Annotated[list[Line], At("room.lines[-2:]")], numbers: Annotated[list[int], At("numbers[-2:]")]
    ) -> str:
        if numbers[-1] == 1:
            some[0].tags.add("mine")
        elif numbers[-1] == 2:
            some.pop()
        return "done"

    workflow = Workflow("talk", state=Talk, steps=[meddle])
    async with Engine(":memory:") as engine:
        room = Room(lines=[line(n) for n in range(5)])
        for number, failure in ((0, None), (1, "LentValueChanged"), (2, "LentValueChanged")):
            outcome = await (await engine.start(workflow, room=room, numbers=[9, number])).outcome()
            assert (outcome.failure and outcome.failure.type) == failure
            assert outcome.state.room == room


@on_loop
async def test_a_window_sees_what_replaced_the_list_and_nothing_of_before() -> None:
    seen: list[list[int]] = []

    @step(writes="numbers")
    def grow(some: Annotated[list[int], At("numbers[-4:]")]) -> list[int] | Replace[list[int]]:
        seen.append(some)
        return Replace([100]) if len(seen) == 3 else [len(seen)]

    @route(after=grow)
    def again() -> Literal["grow", None]:
        return "grow" if len(seen) < 6 else None

    async with Engine(":memory:") as engine:
        await (await engine.start(Workflow("talk", state=Talk, steps=[grow], routes=[again]))).outcome()
    assert seen == [[], [1], [1, 2], [100], [100, 4], [100, 4, 5]]


@on_loop
async def test_a_window_of_a_part_that_is_younger_than_what_is_stored_is_that_of_its_default(tmp_path: Path) -> None:
    class OldRoom(BaseModel):
        name: str = "old"

    class OldTalk(BaseModel):
        room: OldRoom = OldRoom()
        note: str = ""

    class NewRoom(OldRoom):
        names: list[str] = ["ann", "bob", "cy"]

    class NewTalk(BaseModel):
        room: NewRoom = NewRoom()
        note: str = ""

    @step(writes="note")
    def old() -> str:
        return ""

    @step(writes="note", name="old")
    def new(some: Annotated[list[str], At("room.names[-2:]")]) -> str:
        return ",".join(some)

    async with Engine(tmp_path / "h.db") as engine:
        await engine.start(Workflow("talk", state=OldTalk, steps=[old]), session_id="s", paused=True)
    async with Engine(tmp_path / "h.db", workflows=[Workflow("talk", state=NewTalk, steps=[new])]) as engine:
        outcome = await (await engine.session("s").resume()).outcome()
        assert (outcome.failure, outcome.state.note) == (None, "bob,cy")


@on_loop
async def test_a_part_that_grew_although_it_is_younger_than_what_is_stored_is_told_and_not_guessed(
    tmp_path: Path,
) -> None:
    class OldTalk(BaseModel):
        room: dict[str, str] = {"name": "old"}

    class NewRoom(BaseModel):
        name: str
        names: Annotated[list[str], Append] = ["ann"]

    class NewTalk(BaseModel):
        room: NewRoom = NewRoom(name="new")

    @step
    def old() -> None: ...

    @step(writes="room.names", name="old")
    def new() -> list[str]:
        return ["bob"]

    @step
    def look(some: Annotated[list[str], At("room.names[-1:]")], every: Annotated[list[str], At("room.names")]) -> None:
        raise AssertionError

    async with Engine(tmp_path / "h.db") as engine:
        await engine.start(Workflow("talk", state=OldTalk, steps=[old]), session_id="s", paused=True)
    async with Engine(tmp_path / "h.db", workflows=[Workflow("talk", state=NewTalk, steps=[new, look])]) as engine:
        outcome = await (await engine.session("s").resume()).outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "definition")
        assert (
            "Field 'room': a nested field was added to its model after this session started" in outcome.pauses[0].reason
        )


# cost


async def turns(chatting: Chatting, count: int, text: str) -> list[Sequence[int]]:
    """Return what each turn of a chat reads from the store: records, their bytes, and bytes of large values.

    No line is kept in memory, so each turn reads what the first one in another process would read.
    """
    store = CountingStore(SqliteStore(":memory:"))
    found: list[Sequence[int]] = []
    async with Engine(store, workflows=[chatting.workflow]) as engine:
        engine._service.driver.lines.keep = lambda *line: None  # type: ignore[method-assign]
        session = await engine.start(chatting.workflow)
        await settled(session)
        for n in range(count):
            store.counted()
            await session.send(f"{n:04}{text}")
            await settled(session)
            found.append(store.counted())
    return found


def most(found: list[Sequence[int]]) -> list[int]:
    return [max(counts) for counts in zip(*found, strict=True)]


@pytest.mark.long
@pytest.mark.no_always_replay("measures what is read, and a replay reads more")
@on_loop
async def test_a_turn_of_a_long_chat_reads_no_more_of_the_store_than_one_of_a_young_one() -> None:
    chatting = Chatting(padding=2_500)
    found = await turns(chatting, 600, "?" * 2_500)  # a window of 20 is larger than a segment
    early, late = most(found[90:260]), most(found[-170:])  # a key frame is written about every 86 turns
    assert 0 < late[0] <= early[0] * 1.1
    assert 0 < late[1] <= early[1] * 1.1
    assert 0 < late[2] <= early[2] * 1.1 < 4 * SEGMENT_BYTES
    assert [text.removeprefix("re: ")[:4] for text in chatting.views[-1]] == [
        f"{n:04}" for n in range(589, 599) for _ in range(2)
    ]
    assert len(chatting.views[-1]) == WINDOW


@pytest.mark.long
@on_loop
async def test_without_a_window_what_a_turn_reads_grows_with_the_chat() -> None:
    """Proves that the counts of the previous test would reveal growth."""
    found = await turns(Chatting(reads_all=True, padding=1_500), 180, "?" * 1_500)
    assert most(found[90:100])[2] > 3 * SEGMENT_BYTES
    assert most(found[-5:])[2] > 1.8 * most(found[90:100])[2]
