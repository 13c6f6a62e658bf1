"""Folding the records of a session, and the next step after a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pausepoint import Workflow, guard, route, step
from pausepoint.codec.values import decode, encode
from pausepoint.definition.workflow import Check
from pausepoint.errors import DamagedRecord, IllegalTransition
from pausepoint.log.decisions import Settled, settle
from pausepoint.log.replay import (
    Body,
    CheckpointBody,
    DefinitionBody,
    Effect,
    EventBody,
    KeyBody,
    Line,
    OperationBody,
    body_of,
    fold,
    to_payload,
)
from pausepoint.log.state import Change, Inline, Slot
from pausepoint.model.records import Record, RecordKind, first_digest, seal
from pausepoint.model.sessions import Failure


def inline(value: object) -> Inline:
    return Inline(msgspec.Raw(encode(value, "")))


class Log:
    """A log under construction, and the line that its writer sees."""

    def __init__(self, **fields: object) -> None:
        self.records: list[Record] = []
        self.line = Line()
        slots: dict[str, Slot] = {name: inline(value) for name, value in fields.items()}
        self.add("key", KeyBody(slots, "a", created=True), "a")

    def add(
        self, kind: RecordKind, body: Body, step: str | None = None, visit: int | None = None, at: int = 1000
    ) -> Record:
        seq = len(self.records) + 1
        previous = self.records[-1].digest if self.records else first_digest("s")
        where = self.line.step or "" if step is None else step
        record = seal(
            previous, seq, seq - 1, kind, where, self.line.visit if visit is None else visit, at, to_payload(body)
        )
        self.records.append(record)
        self.line.fold(record, body)
        return record

    def checkpoint(self, next_: str | None, *changes: Change, **facts: Any) -> Record:
        return self.add("checkpoint", CheckpointBody(next_, changes, **facts))

    def operation(self, id: str, value: object = None, at: int = 1000, **facts: Any) -> Record:
        return self.add("operation", OperationBody(id, id, inline(value), **facts), at=at)

    def key_frame(self) -> Record:
        self.line.state.seal()
        return self.add("key", self.line.key_body())


def facts(line: Line) -> dict[str, Any]:
    return {
        "values": {name: decode(line.state.read(name) or b"") for name in line.state.slots},
        "step": line.step, "visit": line.visit, "held_by_guard": line.held_by_guard, "visits": line.visits,
        "took": line.took, "usd": line.usd, "operations": sorted(line.operations), "effects": sorted(line.effects),
        "opened": line.opened,
    }  # fmt: skip


# bodies


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("key", KeyBody({"a": inline([1])}, "a", True, {"a": 2}, 3, 4, True, "ann")),
        ("checkpoint", CheckpointBody("b", (Change("a.b", "append", inline([1])),), skipped="no", attempts=2)),
        ("checkpoint", CheckpointBody(None, failure=Failure("a", "ValueError", "no"), held_by_guard=True)),
        ("operation", OperationBody("/f#1", "f", inline({"$set": [1]}), "abc", 3, 4)),
        ("event", EventBody("said", "hello", "ann", msgspec.Raw(b'{"n":1}'), True, "b", True)),
        ("event", EventBody("spent", effects=(Effect("e", 5, "spent", usd=7, tokens=8),))),
        ("key", KeyBody({}, "a", version=3, outline=("a", "b"))),
        ("definition", DefinitionBody(2, ("b",), "session.migrated", renamed={"a": "b"}, fields={"a": inline(1)})),
    ],
)
def test_a_body_comes_back_as_it_was_written(kind: RecordKind, body: Body) -> None:
    record = seal(b"", 1, 0, kind, "a", 1, 0, to_payload(body))
    assert body_of(record) == body


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"next": 3}', b'{"changes": [["a", "explode", ["v", 1]]]}'])
def test_a_payload_that_cannot_be_read_names_its_record(payload: bytes) -> None:
    with pytest.raises(DamagedRecord, match="Record 7 \\(checkpoint\\)") as caught:
        body_of(seal(b"", 7, 6, "checkpoint", "a", 1, 0, payload))
    assert caught.value.fields == {"seq": 7}


# folding


def test_a_new_session_stands_before_its_first_step() -> None:
    line = fold(Log(topic="otters").records)
    assert (line.step, line.visit, line.held_by_guard, line.visits) == ("a", 1, False, {})
    assert decode(line.state.read("topic") or b"") == "otters"


def test_a_checkpoint_changes_the_state_and_moves_on() -> None:
    log = Log(items=[1])
    log.checkpoint("b", Change("items", "append", inline([2])))
    log.checkpoint("a")
    line = fold(log.records)
    assert (line.step, line.visit, line.visits) == ("a", 2, {"a": 1, "b": 1})
    assert decode(line.state.read("items") or b"") == [1, 2]


def test_a_change_that_the_state_has_already_is_not_applied_twice() -> None:
    log = Log(items=[1])
    line = fold(log.records)
    body = CheckpointBody("b", (Change("items", "append", inline([2])),))
    line.state.apply(body.changes[0])
    line.fold(seal(b"", 2, 1, "checkpoint", "a", 1, 0, to_payload(body)), body, applied=True)
    assert decode(line.state.read("items") or b"") == [1, 2]


def test_the_end_has_no_step_and_no_visit() -> None:
    log = Log()
    log.checkpoint(None)
    assert (log.line.step, log.line.visit) == (None, 0)


def test_a_step_that_may_not_be_left_yet_keeps_its_visit() -> None:
    log = Log()
    log.checkpoint(None, held_by_guard=True, refused="not yet")
    assert (log.line.step, log.line.visit, log.line.held_by_guard) == ("a", 1, True)
    log.add("event", EventBody("guard.passed", moved=True, next="b"))
    assert (log.line.step, log.line.visit, log.line.held_by_guard) == ("b", 1, False)


def test_operations_and_effects_are_remembered_until_their_visit_ends() -> None:
    log = Log()
    spent = Effect("spend#1", 5, "spent", usd=7)
    log.operation("/f#1", 1, effects=(spent,))
    log.add("event", EventBody("step.retried", effects=(Effect("emit#1", 6, "said"),)))
    log.operation("/f#2", 2)
    assert list(log.line.operations) == ["/f#1", "/f#2"]
    assert log.line.effects == {"spend#1", "emit#1"}
    log.checkpoint("b")
    assert (log.line.operations, log.line.effects, log.line.usd) == ({}, set(), 7)
    assert log.line.opened == len(log.records)


def test_an_event_that_does_not_move_leaves_the_visit_open() -> None:
    log = Log()
    log.operation("/f#1")
    opened = log.line.opened
    log.add("event", EventBody("session.resumed"))
    assert list(log.line.operations) == ["/f#1"]
    assert log.line.opened == opened


def test_another_definition_rearranges_the_state_and_leaves_the_visit_open() -> None:
    log = Log(topic="otters", facts=["one"], old=1)
    log.checkpoint("b", Change("facts", "append", inline(["two"])))
    log.operation("/f#1")
    opened = log.line.opened
    log.add("definition", DefinitionBody(
        2, ("start", "middle"), "session.migrated", renamed={"a": "start", "b": "middle"},
        fields={"topic": inline("eels"), "mood": inline("calm")}, moved={"notes": "facts"}, dropped=("old",),
    ))  # fmt: skip
    for line in (log.line, fold(log.records)):
        values = {name: decode(line.state.read(name) or b"") for name in line.state.slots}
        assert values == {"topic": "eels", "mood": "calm", "notes": ["one", "two"]}
        assert (line.version, line.outline, line.step, line.visits) == (2, ("start", "middle"), "middle", {"start": 1})
        assert (list(line.operations), line.opened) == (["/f#1"], opened)
    log.key_frame()
    again = fold(log.records[-1:])
    assert (again.version, again.outline, list(again.operations)) == (2, ("start", "middle"), ["/f#1"])


def test_time_spent_in_operations_is_not_counted_twice() -> None:
    log = Log()
    log.operation("/f#1", took=30, at=1000)
    log.operation("/f#2", took=30, at=1030)
    assert log.line.took == 60
    log.checkpoint("b", took=100)
    assert log.line.took == 100
    log.operation("/g#1", took=50)  # from an earlier run of the visit; its last run was shorter
    log.checkpoint("c", took=20)
    assert log.line.took == 150


def test_time_of_operations_that_ran_side_by_side_is_counted_once() -> None:
    log = Log()
    log.operation("/f#1", took=10, at=1010)
    log.operation("/f#2", took=15, at=1020)  # runs from 1005 on
    assert log.line.took == 20
    log.operation("/f#3", took=5, at=1030)
    assert log.line.took == 25
    log.operation("/f#4", took=40, at=1040)  # overlaps all of them
    assert log.line.took == 40
    log.operation("/f#5", took=10, at=1035)  # the clock was set back before
    assert log.line.took == 40
    log.checkpoint("b", took=50)
    assert log.line.took == 50
    log.operation("/g#1", took=7, at=1045)
    assert log.line.took == 57


@pytest.mark.long
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), max_size=8))
def test_time_of_operations_is_that_in_which_any_of_them_ran(steps: list[tuple[int, int]]) -> None:
    log, now, busy = Log(), 1000, set[int]()
    for n, (later, took) in enumerate(steps):
        now += later
        log.operation(f"/f#{n}", took=took, at=now)
        busy.update(range(now - took, now))
    assert log.line.took == len(busy)


def test_a_key_frame_stands_for_all_that_came_before_it() -> None:
    log = Log(items=[], n=0)
    log.checkpoint("b", Change("items", "append", inline([1])), took=5, effects=(Effect("e", 1, "spent", usd=3),))
    log.checkpoint(None, Change("n", "set", inline(9)), held_by_guard=True)
    before = facts(log.line)
    log.key_frame()
    assert facts(fold(log.records[-1:])) == before | {"opened": 4}
    assert facts(fold(log.records)) == before | {"opened": 4}


def test_records_and_bytes_since_the_last_key_frame_are_counted() -> None:
    log = Log()
    assert (log.line.records_since_key, log.line.bytes_since_key) == (0, 0)
    records = [log.operation("/f#1", "x" * 100), log.checkpoint("b")]
    assert log.line.records_since_key == 2
    assert log.line.bytes_since_key == sum(len(record.payload) for record in records)
    log.key_frame()
    assert (log.line.records_since_key, log.line.bytes_since_key) == (0, 0)


def test_what_a_line_goes_on_to_do_does_not_change_the_body_it_was_made_from() -> None:
    log = Log(items=[])
    log.checkpoint("b", Change("items", "append", inline([1])))
    record = log.key_frame()
    body = body_of(record)
    line = Line()
    line.fold(record, body)
    line.fold(seal(b"", 4, 3, "checkpoint", "b", 1, 0, b""), CheckpointBody("a"))
    assert body.visits == {"a": 1}
    assert line.visits == {"a": 1, "b": 1}


moves = st.tuples(
    st.just("checkpoint"),
    st.sampled_from(("a", "b", "c")),
    st.lists(st.tuples(st.sampled_from(("items", "book", "n")), st.integers(0, 9)), max_size=2),
    st.booleans(),
    st.integers(0, 3),
)
others = st.sampled_from((("operation",), ("retried",), ("moved",), ("key frame",)))
histories = st.lists(moves | others, max_size=20)


def change(field: str, n: int) -> Change:
    if field == "items":
        return Change(field, "append", inline([n]))
    return Change(field, "merge", inline({f"${n}": n})) if field == "book" else Change(field, "set", inline(n))


def write(log: Log, act: tuple[Any, ...]) -> None:
    n = len(log.records)
    if act[0] == "checkpoint":
        effects = (Effect(f"e{n}", n, "spent", usd=act[4]),)
        changes = [change(*one) for one in act[2]]
        log.checkpoint(act[1], *changes, held_by_guard=act[3], took=act[4], effects=effects)
    elif act[0] == "operation":
        log.operation(f"/f#{n}", n, took=1, effects=(Effect(f"e{n}", n, "said"),))
    elif act[0] == "retried":
        log.add("event", EventBody("step.retried"))
    elif act[0] == "moved":
        log.add("event", EventBody("guard.passed", moved=True, next="b"))
    elif log.records[-1].kind == "checkpoint":  # nothing is open that a key frame would have to carry
        log.key_frame()


@pytest.mark.long
@given(history=histories)
@settings(max_examples=150)
def test_folding_from_any_key_frame_gives_what_its_writer_sees(history: list[tuple[Any, ...]]) -> None:
    log = Log(items=[], book={}, n=0)
    for act in history:
        write(log, act)
    for record in log.records:
        if record.kind == "key":
            assert facts(fold(log.records[record.seq - 1 :])) == facts(log.line)


# the next step


class Doc(BaseModel):
    score: int = 0
    text: str = ""


@step(writes="text")
async def draft() -> str:
    return ""


@step(writes="score")
async def review(text: str) -> int:
    return 1


@step(writes="text")
async def publish(text: str) -> str:
    return text


@guard(after="draft")
def has_text(text: str) -> str | None:
    return None if text else "there is no text"


@guard(after="draft")
def is_short(text: str) -> str | None:
    return None if len(text) < 10 else "too long"


@route(after="review")
def verdict(score: int) -> Literal["draft", "publish", None]:
    return {0: "draft", 1: "publish"}.get(score)  # type: ignore[return-value]  # the tests choose the score


docs = Workflow(
    "docs", state=Doc, steps=[draft, review, publish], routes=[verdict], guards=[has_text, is_short]
)  # fmt: skip


def answering(**fields: Any) -> Callable[[Check], Any]:
    return lambda check: check(**{read.param: fields[read.place.path] for read in check.reads})


@pytest.mark.parametrize(
    ("after", "fields", "expected"),
    [
        ("draft", {"text": ""}, Settled(None, "there is no text", "has_text")),
        ("draft", {"text": "x" * 20}, Settled(None, "too long", "is_short")),
        ("draft", {"text": "fine"}, Settled("review")),
        ("review", {"score": 0}, Settled("draft")),
        ("review", {"score": 1}, Settled("publish")),
        ("review", {"score": 2}, Settled(None)),
        ("publish", {}, Settled(None)),
    ],
)
def test_guards_are_asked_in_order_then_the_route_then_the_list(
    after: str, fields: dict[str, Any], expected: Settled
) -> None:
    assert settle(docs, after, answering(**fields)) == expected


def test_a_route_that_is_not_listed_is_refused_with_the_list() -> None:
    with pytest.raises(
        IllegalTransition,
        match="returned 'elsewhere' after step 'review', but its return type allows only: draft, publish",
    ):
        settle(docs, "review", lambda check: "elsewhere")
