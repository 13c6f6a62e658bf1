"""The promises of `holdfast.store.Store`, on a file and in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    AlreadyRunning,
    DamagedRecord,
    HoldLost,
    SessionEnded,
    StoreClosed,
    UnknownSession,
)
from holdfast.model import Failure, Filter, Pause, SessionRow, Status, seal
from holdfast.store import Store
from holdfast.stores.sqlite import SqliteStore
from tests.stores.kit import Driver, new_session, on_loop, opened, operator, payloads, started, stored


@pytest.fixture(params=[":memory:", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == ":memory:" else str(tmp_path / "store.db")


def on_disk(store: SqliteStore, statement: str) -> None:
    """Change the store behind its own back."""
    store._writer.inline.connection.execute(statement)


@pytest.mark.covers("S1.22")
def test_the_store_answers_every_verb_of_the_protocol_as_the_protocol_says() -> None:
    verbs = {name: verb for name, verb in vars(Store).items() if inspect.isfunction(verb) and name[0] != "_"}
    assert {"create", "claim", "commit", "pause"} < verbs.keys()
    for name, verb in verbs.items():
        assert inspect.signature(getattr(SqliteStore, name)) == inspect.signature(verb), name


# creating and reading


@on_loop
async def test_a_created_session_reads_back_as_it_was_given(place: str) -> None:
    async with opened(place) as store:
        new = new_session(owner="ann", tags=("a", "b"), budget_usd=5_000_000, visit=3, version=2)
        row = await store.create(new)
        assert row == await store.get("s1")
        assert row is not None
        assert (row.owner, row.tags, row.budget_usd, row.visit, row.version) == ("ann", ("a", "b"), 5_000_000, 3, 2)
        assert (row.created_at, row.updated_at, row.seq, row.key_frame) == (1000, 1000, 1, 1)
        assert (row.fence, row.live, row.status) == (1, True, Status.RUNNING)
        assert await store.records(row.key, 1) == list(new.records)


@on_loop
async def test_a_session_created_without_a_claim_is_held_by_nobody(place: str) -> None:
    async with opened(place) as store:
        row = await store.create(new_session(claim=False))
        assert row is not None
        assert (row.holder, row.fence, row.status) == (None, 0, Status.CREATED)
        with pytest.raises(HoldLost):
            await Driver(store, row).commit()


@on_loop
async def test_a_taken_id_creates_nothing(place: str) -> None:
    async with opened(place) as store:
        first = await store.create(new_session())
        assert await store.create(new_session(workflow="other", pause=operator())) is None
        assert await store.get("s1") == first
        assert len(await store.find(Filter())) == 1


@on_loop
async def test_an_unknown_session_is_none(place: str) -> None:
    async with opened(place) as store:
        assert await store.get("nobody") is None


@on_loop
async def test_find_combines_what_is_given_and_lists_the_newest_first(place: str) -> None:
    async with opened(place) as store:
        await store.create(new_session("a", owner="ann", tags=("x",), created_at=1))
        await store.create(new_session("b", owner="ben", tags=("x", "y"), created_at=3))
        done = await started(store, "c", workflow="other", owner="ann", created_at=2)
        await done.commit(ended="completed", release=True)

        async def ids(**query: Any) -> list[str]:
            return [row.session_id for row in await store.find(Filter(**query))]

        assert await ids() == ["b", "c", "a"]
        assert await ids(owner="ann") == ["c", "a"]
        assert await ids(owner="ann", workflow="brief") == ["a"]
        assert await ids(tag="x") == ["b", "a"]
        assert await ids(tag="y") == ["b"]
        assert await ids(unended=True) == ["b", "a"]
        assert await ids(limit=1) == ["b"]
        assert await ids(session_id="a") == ["a"]
        assert await ids(session_id="a", owner="ben") == []


@on_loop
async def test_filter_values_are_never_sql(place: str) -> None:
    async with opened(place) as store:
        await started(store)
        assert await store.find(Filter(owner="' OR 1=1 --", tag="'")) == []


# committing


@on_loop
async def test_a_commit_sets_the_facts_it_carries(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        failure = Failure("first", "ValueError", "no", 3, "trace")
        first = driver.next(spend_usd=5, spend_tokens=7, progress=(1, 4), key_frame=2, leaving=True, version=9)
        await store.commit(first)
        row = await stored(store)
        assert (row.seq, row.digest, row.key_frame) == (2, driver.digest, 2)
        assert (row.step, row.leaving, row.version, row.progress) == ("second", True, 9, (1, 4))
        await driver.commit(spend_usd=1, ended="failed", failure=failure, release=True)
        row = await stored(store)
        assert (row.spent_usd, row.spent_tokens, row.version, row.progress) == (6, 7, 9, None)
        assert (row.failure, row.holder, row.status) == (failure, None, Status.FAILED)
        assert [record.seq for record in await store.records(row.key, 2)] == [2, 3]


@on_loop
async def test_a_commit_with_several_records_stores_them_all(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        one, two = driver.next(b"1"), driver.next(b"2")
        await store.commit(driver.next(b"3", base_seq=1, records=(*one.records, *two.records)))
        assert await payloads(store, driver.key) == [b"{}", b"1", b"2"]
        assert (await stored(store)).seq == 3


@pytest.mark.covers("S3.88")
@pytest.mark.parametrize("changes", [{"fence": 0}, {"fence": 2}, {"base_seq": 0}, {"base_seq": 2}, {"key": 99}])
@on_loop
async def test_a_commit_that_does_not_fit_writes_nothing(place: str, changes: dict[str, Any]) -> None:
    async with opened(place) as store:
        driver = await started(store)
        before = await stored(store)
        blob = (sha256(b"x").digest(), b"x")
        with pytest.raises(HoldLost, match="nothing was written"):
            await driver.commit(blobs=(blob,), open_pauses=(operator(),), release=True, **changes)
        assert await stored(store) == before
        assert await payloads(store, driver.key) == [b"{}"]
        with pytest.raises(DamagedRecord):
            await store.blobs([blob[0]])


@pytest.mark.covers("S3.88")
@on_loop
async def test_of_two_simultaneous_commits_one_takes_effect(place: str) -> None:
    async with opened(place) as store:
        driver, rival = await started(store), Driver(store, await stored(store))
        results = await asyncio.gather(driver.commit(b"one"), rival.commit(b"two"), return_exceptions=True)
        assert [type(result) for result in results].count(HoldLost) == 1
        kept = await payloads(store, driver.key)
        assert kept in ([b"{}", b"one"], [b"{}", b"two"])


@on_loop
async def test_after_a_release_the_old_fence_writes_nothing(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        await driver.commit(release=True)
        with pytest.raises(HoldLost, match="nobody"):
            await driver.commit()


@on_loop
async def test_commits_of_one_session_take_effect_in_the_order_given(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        commits = [driver.next(b"%d" % n) for n in range(20)]
        await asyncio.gather(*map(store.commit, commits))
        assert await payloads(store, driver.key) == [b"{}", *(b"%d" % n for n in range(20))]


@on_loop
async def test_a_commit_only_if_paused_waits_for_a_pause(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        parked = driver.next(only_if_paused=True, release=True)
        assert await store.commit(parked) is None
        assert (await stored(store)).seq == 1
        await store.pause(Filter(), operator())
        flags = await store.commit(parked)
        assert flags is not None
        assert flags.pause_requested
        assert (await stored(store)).status == Status.PAUSED


@on_loop
async def test_a_conditional_commit_says_none_even_if_the_next_one_follows_at_once(place: str) -> None:
    async with opened(place) as store:
        await started(store, "other")
        driver = await started(store)
        twin = Driver(store, await stored(store))
        results = await asyncio.gather(
            driver.commit(only_if_paused=True), twin.commit(b"went on"), return_exceptions=True
        )
        assert results[0] is None
        assert await payloads(store, driver.key) == [b"{}", b"went on"]


@pytest.mark.covers("S1.14", "S3.9")
@on_loop
async def test_updated_at_rises_with_writes_and_never_falls(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store, created_at=1000)
        seen = [(await stored(store)).updated_at]
        for now in (2000, 500, 3000, -5):  # the machine's clock goes back twice
            await driver.commit(updated_at=now)
            seen.append((await stored(store)).updated_at)
        assert seen == [1000, 2000, 2000, 3000, 3000]
        assert (await stored(store)).created_at == 1000


@on_loop
async def test_a_commit_opens_and_closes_pause_records(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        guard = Pause("p1", "guard", "no sources yet", None, 10, step="first")
        await driver.commit(open_pauses=(guard,))
        row = await stored(store)
        assert (row.open_pauses, row.status) == (1, Status.PAUSING)
        assert await store.pauses(row.key) == [guard]
        await driver.commit(close_pauses=("p1",), closed_by="ann", updated_at=7000)
        assert await store.pauses(row.key) == []
        [closed] = await store.pauses(row.key, open_only=False)
        assert (closed.closed_at, closed.closed_by) == (7000, "ann")


@on_loop
async def test_a_large_value_is_stored_once(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        blob = (sha256(b"large").digest(), b"large")
        await driver.commit(blobs=(blob,))
        await driver.commit(blobs=(blob,))
        assert await store.blobs([blob[0]]) == dict([blob])


# holding


@on_loop
async def test_a_claim_raises_the_fence_and_the_older_fence_is_told(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        with pytest.raises(AlreadyRunning) as refusal:
            await store.claim("s1")
        assert str(refusal.value.holder) == store.describe_holder((await stored(store)).holder)
        row = await store.claim("s1", steal=True)
        assert (row.fence, row.crashes) == (2, 0)
        with pytest.raises(HoldLost):
            await driver.commit()
        assert await Driver(store, row).commit()


@on_loop
async def test_a_failed_session_can_be_claimed_and_keeps_its_failure_until_it_moves(place: str) -> None:
    async with opened(place) as store:
        failure = Failure("first", "ValueError", "no")
        await (await started(store)).commit(ended="failed", failure=failure, release=True)
        row = await store.claim("s1")
        assert (row.ended, row.failure, row.status) == (None, failure, Status.RUNNING)
        await Driver(store, row).commit()
        assert (await stored(store)).failure is None


@pytest.mark.parametrize("ended", ["completed", "cancelled"])
@on_loop
async def test_a_session_at_its_end_is_not_claimed(place: str, ended: str) -> None:
    async with opened(place) as store:
        await (await started(store)).commit(ended=ended, release=True)
        with pytest.raises(SessionEnded) as refusal:
            await store.claim("s1", steal=True)
        assert refusal.value.status == ended


# from outside


@pytest.mark.covers("S1.49")
@pytest.mark.parametrize(
    "verb",
    [
        lambda store: store.pause(Filter(session_id="nobody"), operator()),
        lambda store: store.unpause("nobody", "ann", 1),
        lambda store: store.cancel("nobody", "ann", "", 1),
        lambda store: store.claim("nobody"),
    ],
)
@on_loop
async def test_an_unknown_session_is_refused_by_name(place: str, verb: Callable[[SqliteStore], Any]) -> None:
    async with opened(place) as store:
        with pytest.raises(UnknownSession, match=r"'nobody'.*start the session first") as refusal:
            await verb(store)
        assert refusal.value.session_id == "nobody"


@on_loop
async def test_a_pause_is_a_flag_a_record_and_a_signal(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        [row] = await store.pause(Filter(session_id="s1"), operator())
        assert (row.pause_requested, row.pause_mode, row.open_pauses, row.status) == (True, "finish", 1, Status.PAUSING)
        [pause] = await store.pauses(row.key)
        assert (pause.kind, pause.by, pause.reason, pause.at, pause.step) == ("operator", "ann", "lunch", 5000, "first")
        [signal] = await store.signals(row.key, 0)
        assert (signal.n, signal.after, signal.kind, signal.by, signal.at) == (1, 1, "pause", "ann", 5000)
        assert signal.payload == b'{"reason":"lunch","mode":"finish"}'
        flags = await driver.commit()
        assert flags is not None
        assert flags.pause_requested
        assert (await store.flags([row.key, 99])) == {row.key: (1, flags)}


@pytest.mark.covers("S1.50")
@on_loop
async def test_a_second_pause_changes_nothing(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        first = await store.pause(Filter(), operator())
        before = await store.pauses(driver.key), await store.signals(driver.key, 0)
        assert await store.pause(Filter(), operator("again", "ben", 9000)) == first
        assert (await store.pauses(driver.key), await store.signals(driver.key, 0)) == before


@on_loop
async def test_abort_overrides_finish_and_never_the_other_way(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        await store.pause(Filter(), operator())
        await store.pause(Filter(), operator(by="ben", mode="abort"))
        await store.pause(Filter(), operator(by="cid", mode="finish"))
        assert (await stored(store)).pause_mode == "abort"
        [pause] = await store.pauses(driver.key)
        assert (pause.by, pause.mode) == ("ann", "abort")
        assert [signal.by for signal in await store.signals(driver.key, 0)] == ["ann", "ben"]


@on_loop
async def test_a_pause_by_filter_reaches_all_but_those_at_their_end(place: str) -> None:
    async with opened(place) as store:
        await started(store, "a", owner="ann")
        await (await started(store, "b", owner="ann")).commit(ended="failed", release=True)
        await (await started(store, "c", owner="ann")).commit(ended="completed", release=True)
        await started(store, "d", owner="ben")
        rows = await store.pause(Filter(owner="ann"), operator())
        assert {row.session_id: row.status for row in rows} == {
            "a": Status.PAUSING, "b": Status.PAUSED, "c": Status.COMPLETED,
        }  # fmt: skip
        assert not (await stored(store, "d")).pause_requested
        assert not (await stored(store, "c")).pause_requested


@on_loop
async def test_a_session_can_be_created_paused(place: str) -> None:
    async with opened(place) as store:
        row = await store.create(new_session(pause=operator("not yet"), claim=False))
        assert row is not None
        assert row.status == Status.PAUSED
        assert [pause.reason for pause in await store.pauses(row.key)] == ["not yet"]
        assert [signal.kind for signal in await store.signals(row.key, 0)] == ["pause"]


@on_loop
async def test_unpause_withdraws_the_operators_pauses_only(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        await driver.commit(open_pauses=(Pause("g", "guard", "no sources yet", None, 10),))
        await store.pause(Filter(), operator(mode="abort"))
        row = await store.unpause("s1", "ben", 8000)
        assert (row.pause_requested, row.pause_mode, row.open_pauses) == (False, "finish", 1)
        closed = [pause for pause in await store.pauses(row.key, open_only=False) if pause.closed_at is not None]
        assert [(pause.by, pause.closed_by, pause.closed_at) for pause in closed] == [("ann", "ben", 8000)]
        assert [signal.kind for signal in await store.signals(row.key, 0)] == ["pause", "resume"]


@on_loop
async def test_unpause_with_nothing_to_withdraw_leaves_no_trace_unless_it_sets_a_budget(place: str) -> None:
    async with opened(place) as store:
        before = (await started(store)).key, await stored(store)
        assert await store.unpause("s1", "ann", 1) == before[1]
        assert await store.signals(before[0], 0) == []
        row = await store.unpause("s1", "ann", 1, budget_usd=9)
        assert row.budget_usd == 9
        assert [signal.payload for signal in await store.signals(row.key, 0)] == [b'{"budget_usd":9}']


@on_loop
async def test_cancel_is_a_flag_and_one_signal(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        [row] = await store.cancel("s1", "ann", "too slow", 6000)
        assert row.cancel_requested
        assert await store.cancel("s1", "ben", "again", 7000) == [row]
        [signal] = await store.signals(row.key, 0)
        assert (signal.kind, signal.by, signal.payload) == ("cancel", "ann", b'{"reason":"too slow"}')
        flags = await driver.commit(ended="cancelled", release=True)
        assert flags is not None
        assert flags.cancel_requested
        assert await store.cancel("s1", "ann", "late", 8000) == [await stored(store)]


@pytest.mark.covers("S1.21")
@on_loop
async def test_a_commit_does_not_erase_a_pause_that_came_meanwhile(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        ahead = driver.next()  # made before the pause, committed after it
        await store.pause(Filter(), operator())
        flags = await store.commit(ahead)
        assert flags is not None
        assert flags.pause_requested
        assert (await stored(store)).pause_requested


# proof


@on_loop
async def test_records_are_read_in_part(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        for n in range(5):
            await driver.commit(b"%d" % n)

        async def seqs(since: int, until: int | None = None) -> list[int]:
            return [record.seq for record in await store.records(driver.key, since, until)]

        assert await seqs(1) == [1, 2, 3, 4, 5, 6]
        assert await seqs(3) == [3, 4, 5, 6]
        assert await seqs(3, 4) == [3, 4]
        assert await seqs(7) == []
        assert await seqs(1, 99) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("damage", "bad"),
    [
        ("UPDATE log SET payload = x'7b7c' WHERE seq = 3", 3),
        ("UPDATE log SET step = 'other' WHERE seq = 4", 4),
        ("UPDATE log SET at = at + 1 WHERE seq = 2", 2),
        ("UPDATE log SET digest = zeroblob(32) WHERE seq = 3", 3),
        ("UPDATE log SET body = zeroblob(32) WHERE seq = 3", 3),
        ("DELETE FROM log WHERE seq = 3", 3),
        ("DELETE FROM log WHERE seq = 5", 5),
        ("DELETE FROM log", 5),
        ("UPDATE sessions SET digest = zeroblob(32)", 5),
    ],
)
@on_loop
async def test_a_damaged_record_is_named_and_never_handed_out(place: str, damage: str, bad: int) -> None:
    async with opened(place) as store:
        driver = await started(store)
        for _ in range(4):
            await driver.commit()
        on_disk(store, damage)
        with pytest.raises(DamagedRecord, match=rf"session s1: record {bad} ") as refusal:
            await store.records(driver.key, 1)
        assert (refusal.value.fields["session_id"], refusal.value.fields["seq"]) == ("s1", bad)


@on_loop
async def test_the_first_record_of_a_part_is_proved_against_the_one_before(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        for _ in range(3):
            await driver.commit()
        # A forged record that fits its own digest but not its place in the chain.
        forged = seal(b"\0" * 32, 3, 2, "checkpoint", "first", 1, 1, b"forged")
        values = f"payload = x'{forged.payload.hex()}', salt = x'{forged.salt.hex()}', body = x'{forged.body.hex()}'"
        on_disk(store, f"UPDATE log SET {values}, digest = x'{forged.digest.hex()}' WHERE seq = 3")
        with pytest.raises(DamagedRecord, match="record 3 "):
            await store.records(driver.key, 3, 3)


@pytest.mark.parametrize(
    ("damage", "bad"),
    [
        ("UPDATE signals SET payload = x'7b7b' WHERE n = 2", 2),
        ("UPDATE signals SET \"by\" = 'eve' WHERE n = 1", 1),
        ("DELETE FROM signals WHERE n = 1", 1),
        ("DELETE FROM signals WHERE n = 3", 3),
        ("DELETE FROM signals", 1),
    ],
)
@on_loop
async def test_a_damaged_signal_is_named(place: str, damage: str, bad: int) -> None:
    async with opened(place) as store:
        driver = await started(store)
        await store.pause(Filter(), operator())
        await store.unpause("s1", "ann", 2)
        await store.pause(Filter(), operator())
        on_disk(store, damage)
        with pytest.raises(DamagedRecord, match=f"session s1: signal {bad} "):
            await store.signals(driver.key, 0)


@on_loop
async def test_signals_are_read_from_a_number_on(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        await store.pause(Filter(), operator())
        await store.unpause("s1", "ann", 2)
        assert [signal.kind for signal in await store.signals(driver.key, 1)] == ["resume"]
        assert await store.signals(driver.key, 2) == []


@pytest.mark.parametrize("damage", ["UPDATE blobs SET data = x'00'", "DELETE FROM blobs"])
@on_loop
async def test_a_damaged_large_value_is_named(place: str, damage: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        blob = (sha256(b"large").digest(), b"large")
        await driver.commit(blobs=(blob,))
        on_disk(store, damage)
        with pytest.raises(DamagedRecord, match=blob[0].hex()):
            await store.blobs([blob[0]])


# life


@on_loop
async def test_a_store_that_is_not_open_says_so(place: str) -> None:
    store = SqliteStore(place)
    with pytest.raises(StoreClosed, match="not open yet"):
        await store.get("s1")
    await store.open(lambda: None)
    with pytest.raises(StoreClosed, match=r"opened before; make another Engine \(or SqliteStore\)"):
        await store.open(lambda: None)
    driver = await started(store)
    await asyncio.gather(store.close(), store.close())
    await store.close()
    for verb in (store.get("s1"), driver.commit(), store.claim("s1"), store.find(Filter())):
        with pytest.raises(StoreClosed, match="is closed"):
            await verb
    with pytest.raises(StoreClosed):
        store.describe_holder(1)


@on_loop
async def test_a_store_that_was_never_opened_closes_quietly(place: str) -> None:
    store = SqliteStore(place)
    await store.close()
    with pytest.raises(StoreClosed):
        await store.get("s1")


@on_loop
async def test_closing_finishes_what_was_submitted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open(lambda: None)
    drivers = [await started(store, f"s{n}") for n in range(5)]
    commits = [asyncio.ensure_future(driver.commit(b"last")) for driver in drivers]
    await asyncio.sleep(0)  # they are submitted now, and not yet done
    await store.close()
    assert all(commit.done() and commit.result() is not None for commit in commits)
    async with opened(tmp_path / "store.db") as again:
        rows: list[SessionRow] = await again.find(Filter())
        assert [row.seq for row in rows] == [2] * 5


def test_an_unknown_synchronous_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="SOMETIMES"):
        SqliteStore(":memory:", synchronous="SOMETIMES")


@on_loop
async def test_what_is_asked_about_a_session_that_does_not_exist_is_an_error(place: str) -> None:
    async with opened(place) as store:
        with pytest.raises(UnknownSession):
            await store.records(99, 1)
        with pytest.raises(UnknownSession):
            await store.signals(99, 0)


@pytest.mark.parametrize(
    ("column", "value"),
    [("pause_mode", "'never'"), ("tags", "'['"), ("progress", "'[1]'"), ("failure", "'{}'"), ("ended", "'soon'")],
)
@on_loop
async def test_facts_that_cannot_have_been_written_are_reported_not_served(place: str, column: str, value: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        on_disk(store, "PRAGMA ignore_check_constraints = ON")
        on_disk(store, f"UPDATE sessions SET {column} = {value}")
        with pytest.raises(DamagedRecord, match="facts about a session"):
            await store.get("s1")
        if column == "pause_mode":
            with pytest.raises(DamagedRecord, match="facts about a session"):
                await store.flags([driver.key])


@on_loop
async def test_a_log_that_lacks_the_record_before_is_reported(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        await driver.commit()
        await driver.commit()
        on_disk(store, "DELETE FROM log WHERE seq = 2")
        with pytest.raises(DamagedRecord, match="2"):
            await store.records(driver.key, 3)
