"""Tests specific to the SQLite store, on a file and in memory. The general tests are in the suite for all stores."""

from __future__ import annotations

import asyncio
import inspect
from hashlib import sha256
from pathlib import Path

import pytest

from pausepoint.errors import (
    DamagedRecord,
    StoreClosed,
)
from pausepoint.model.records import seal
from pausepoint.model.sessions import Filter
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore
from tests.stores.kit import on_loop, opened, operator, started


@pytest.fixture(params=[":memory:", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == ":memory:" else str(tmp_path / "store.db")


def on_disk(store: SqliteStore, statement: str) -> None:
    """Change the database without using the store."""
    store._writer.inline.connection.execute(statement)


@pytest.mark.covers("S1.22")
def test_the_store_answers_every_verb_of_the_protocol_as_the_protocol_says() -> None:
    verbs = {name: verb for name, verb in vars(Store).items() if inspect.isfunction(verb) and name[0] != "_"}
    assert {"create", "claim", "commit", "pause"} < verbs.keys()
    for name, verb in verbs.items():
        assert inspect.signature(getattr(SqliteStore, name)) == inspect.signature(verb), name


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
        with pytest.raises(DamagedRecord, match=rf"Session 's1': record {bad} ") as refusal:
            await store.records(driver.key, 1)
        assert (refusal.value.fields["session_id"], refusal.value.fields["seq"]) == ("s1", bad)


@on_loop
async def test_the_first_record_of_a_part_is_proved_against_the_one_before(place: str) -> None:
    async with opened(place) as store:
        driver = await started(store)
        for _ in range(3):
            await driver.commit()
        # A forged record that fits its own digest, but not its position in the chain.
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
        with pytest.raises(DamagedRecord, match=f"Session 's1': signal {bad} "):
            await store.signals(driver.key, 0)


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


@on_loop
async def test_a_store_that_is_not_open_says_so(place: str) -> None:
    store = SqliteStore(place)
    with pytest.raises(StoreClosed, match="not open yet"):
        await store.get("s1")
    await store.open(lambda keys: None)
    with pytest.raises(StoreClosed, match=r"opened before and cannot be opened again\. Create another SqliteStore"):
        await store.open(lambda keys: None)
    driver = await started(store)
    await asyncio.gather(store.close(), store.close())
    await store.close()
    for verb in (store.get("s1"), driver.commit(), store.claim("s1"), store.find(Filter())):
        with pytest.raises(StoreClosed, match="is closed"):
            await verb
    with pytest.raises(StoreClosed):
        await store.describe_holders([1])


@on_loop
async def test_a_store_that_was_never_opened_closes_quietly(place: str) -> None:
    store = SqliteStore(place)
    await store.close()
    with pytest.raises(StoreClosed):
        await store.get("s1")


def test_an_unknown_synchronous_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="SOMETIMES"):
        SqliteStore(":memory:", synchronous="SOMETIMES")


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
        with pytest.raises(DamagedRecord, match=r"facts about a session|facts in its row"):
            await store.get("s1")
        if column == "pause_mode":
            with pytest.raises(DamagedRecord, match=r"facts about a session|facts in its row"):
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


@on_loop
async def test_statistics_about_the_tables_do_not_change_the_order_of_records(tmp_path: Path) -> None:
    async with opened(str(tmp_path / "store.db")) as store:
        driver = await started(store)
        for _ in range(4):
            await driver.commit()
        key = driver.key
        on_disk(store, "ANALYZE")  # as a database tool does; later connections plan with the statistics
    async with opened(str(tmp_path / "store.db")) as store:
        assert [record.seq for record in await store.records(key, 1)] == [1, 2, 3, 4, 5]


@on_loop
async def test_a_link_to_the_database_is_the_same_store_with_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")  # the target does not exist yet
    async with opened(tmp_path / "link.db") as linked, opened(tmp_path / "store.db") as store:
        await started(linked)
        assert (await store.get("s1")) == (await linked.get("s1"))
        one, other = linked.files_of("s1"), store.files_of("s1")
        assert one is not None
        assert other is not None
        assert one.where == other.where == str(tmp_path / "store.db.sessions" / "s1" / "files")
    assert not list(tmp_path.glob("link.db-*"))
