"""Opening a store: what it creates and what it refuses. A refusal changes no byte of the file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from pausepoint import Engine
from pausepoint.errors import NewerSchema, StoreError, StoreUnavailable
from pausepoint.model.questions import Inquiry, QuestionSort
from pausepoint.model.sessions import Filter, Position, QuestionStatus, Sort, Status
from pausepoint.stores.sql import pauses, questions, sessions
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.statements import Migration
from pausepoint.stores.sqlite import SqliteStore, schema, sql
from pausepoint.stores.sqlite.connection import Connection
from tests.stores.kit import on_loop, opened, outside, started, stored, unbound


def shape(connection: Connection) -> set[tuple[object, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall())


def test_the_migrations_lead_to_todays_schema() -> None:
    road, today = Connection(":memory:"), Connection(":memory:")
    schema.migrate(road, sql.migrations())
    schema.create(today)
    assert shape(road) == shape(today)
    assert road.pragma("user_version") == today.pragma("user_version") == schema.VERSION
    assert road.pragma("application_id") == schema.APPLICATION_ID


def test_migrations_are_numbered_without_gaps_up_to_todays_version() -> None:
    assert [step.number for step in sql.migrations()] == list(range(1, schema.VERSION + 1))


def test_a_migration_and_its_number_are_one_transaction() -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    before = shape(connection)
    good = Migration(schema.VERSION + 1, "good", "CREATE TABLE good (a)")
    bad = Migration(schema.VERSION + 2, "bad", "CREATE TABLE half (a); CREATE TABLE sessions (a)")
    with pytest.raises(apsw.SQLError, match="already exists"):
        schema.migrate(connection, [good, bad])
    assert {name for _, name, _, _ in shape(connection) - before} == {"good"}
    assert connection.pragma("user_version") == schema.VERSION + 1
    assert not connection.in_transaction
    schema.migrate(connection, [good])  # already applied, so nothing happens


@on_loop
async def test_a_new_store_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "store.db"
    async with opened(path) as store:
        await started(store)
        files = sorted(path.parent.iterdir())
        assert [file.name.removeprefix("store.db") for file in files] == ["", "-ballast", "-holds", "-shm", "-wal"]
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        assert {folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)} == {0o700}
    left = sorted(file.name for file in path.parent.iterdir())
    assert left == ["store.db", "store.db-ballast", "store.db-holds"]


@on_loop
async def test_the_settings_are_the_durable_ones(path: Path) -> None:
    async with opened(path) as store:
        assert store._read is not None
        for connection in (store._read, store._writer.inline.connection, store._writer.threaded.connection):
            assert connection.pragma("journal_mode") == "wal"
            assert connection.pragma("synchronous") == 2
            assert connection.pragma("page_size") == schema.PAGE_SIZE


@pytest.mark.covers("S1.18", "S3.8")
@on_loop
async def test_a_store_is_found_again_as_it_was_left(path: Path) -> None:
    async with opened(path) as store:
        driver = await started(store)
        await driver.commit(b"kept", release=True)
        before = await stored(store)
    async with opened(str(path)) as again:
        assert await stored(again) == before
        assert [record.payload for record in await again.records(before.key, 1)] == [b"{}", b"kept"]


def digests(path: Path) -> dict[str, str]:
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(path.parent.iterdir())}


def in_process(path: Path, program: str) -> None:
    command = [sys.executable, "-c", "import os, sqlite3, sys\n" + program, str(path)]
    subprocess.run(command, check=True)


@on_loop
async def test_a_newer_schema_is_refused_with_no_byte_changed(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
    in_process(path, "sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')")
    before = digests(path)
    with pytest.raises(NewerSchema, match=r"newer Pausepoint \(schema 99; this version supports 1\).*Upgrade"):
        await SqliteStore(path).open(lambda keys: None)
    assert digests(path) == before


@on_loop
async def test_a_newer_schema_that_is_only_in_the_wal_is_refused_with_no_byte_changed(path: Path) -> None:
    async with opened(path) as store:
        await started(store)
    in_process(
        path,
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('PRAGMA user_version = 99')\n"
        "os._exit(0)",  # no WAL checkpoint: the new number stays in the WAL
    )
    wal = Path(f"{path}-wal")
    assert wal.stat().st_size
    before = digests(path)
    with pytest.raises(NewerSchema):
        await SqliteStore(path).open(lambda keys: None)
    after = digests(path)
    assert {name: after[name] for name in (path.name, wal.name)} == {
        name: before[name] for name in (path.name, wal.name)
    }


@pytest.mark.parametrize(
    "program",
    [
        "sqlite3.connect(sys.argv[1]).executescript('CREATE TABLE theirs (a)')",
        "sqlite3.connect(sys.argv[1]).executescript('PRAGMA application_id = 7; PRAGMA user_version = 1')",
        "open(sys.argv[1], 'w').write('dear diary, ' * 1000)",
    ],
)
@on_loop
async def test_a_file_of_somebody_else_is_refused_and_left_alone(path: Path, program: str) -> None:
    in_process(path, program)
    before = digests(path)
    with pytest.raises(StoreUnavailable, match=r"store\.db is (a database of another program|not a database)"):
        await SqliteStore(path).open(lambda keys: None)
    assert digests(path) == before


@on_loop
async def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"is a folder\. Name a file in it"):
        await SqliteStore(tmp_path).open(lambda keys: None)


@on_loop
async def test_a_folder_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(StoreError, match="/proc/pausepoint"):
        await SqliteStore("/proc/pausepoint.db").open(lambda keys: None)


@on_loop
async def test_a_store_that_could_not_open_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path):
        pass
    outside(path, "DROP TABLE engines")
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="no such table: engines"):
        await store.open(lambda keys: None)
    await store.close()
    shutil.rmtree(path.parent)


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/team\\040share rw,relatime - nfs4 server:/team rw
31 22 0:41 / /mnt/team\\040share/local rw - xfs /dev/sdb1 rw
32 22 0:42 / /people rw - ext4 /dev/sdc1 rw
33 22 0:43 / /people rw - fuse.sshfs me@there:/ rw
a line of another kind
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/store", "ext4"),
        ("/mnt/team share", "nfs4"),
        ("/mnt/team share/x/y", "nfs4"),
        ("/mnt/team share/local/x", "xfs"),
        ("/mnt/team sharedness", "ext4"),
        ("/people/me", "fuse.sshfs"),
    ],
)
def test_the_mount_table_tells_the_file_system(path: str, kind: str) -> None:
    assert schema.file_system(path, MOUNTS) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "fuse.sshfs", "ceph", "lustre"]
)
def test_a_network_file_system_is_refused(kind: str) -> None:
    with pytest.raises(StoreUnavailable, match=rf"network file system \({kind}\).*local disk"):
        schema.refuse_network(Path("/srv"), f"22 1 8:1 / / rw - {kind} somewhere rw")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuse.ext4"])
def test_a_local_file_system_is_accepted(kind: str) -> None:
    schema.refuse_network(Path("/srv"), f"22 1 8:1 / / rw - {kind} /dev/sda rw")


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.44.5", "3.45.0", "3.50.6", "3.51.0", "3.51.2"])
def test_a_sqlite_that_can_lose_pages_is_refused(version: str) -> None:
    with pytest.raises(StoreUnavailable, match=rf"SQLite {version}.*Upgrade apsw"):
        schema.refuse_affected_sqlite(version)


@pytest.mark.parametrize("version", ["3.44.6", "3.50.7", "3.51.3", "3.52.0", "3.54.1", "4.0.0"])
def test_a_repaired_sqlite_is_accepted(version: str) -> None:
    schema.refuse_affected_sqlite(version)


def test_every_named_query_can_be_prepared() -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    for name, query in sql.QUERIES.items():
        query = f"{sql.QUERIES['facts']} {query}" if name == "waking" else query
        assert connection.execute(f"EXPLAIN {query}", unbound(query)).fetchall(), name


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("signals", "sqlite_autoindex_signals_1"),
        ("records", "USING INTEGER PRIMARY KEY"),
        ("record_digest", "USING INTEGER PRIMARY KEY"),
        ("key_frame_after", "log_key_frames"),
        ("key_frame_before", "log_key_frames"),
        ("next_wake", "sessions_waking"),
        ("held_by", "sessions_held"),
        ("holders", "sessions_held"),
        ("charge_ancestors", "USING INTEGER PRIMARY KEY"),
        ("pauses", "pauses_session"),
        ("own_pauses", "pauses_open"),
        ("release_all", "sessions_held"),
        ("held_sessions", "sessions_held"),
        ("tally_ended", "USING COVERING INDEX sessions_ended"),
    ],
)
def test_queries_keep_their_index(query: str, index: str) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    text = sql.QUERIES[query]
    plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", unbound(text)).fetchall()
    assert any(index in str(line[3]) for line in plan), plan
    assert not any(str(line[3]).startswith("SCAN log") for line in plan), plan


@pytest.mark.parametrize("query", ["place", "move", "move_and_count", "append", "create", "flags"])
def test_what_a_session_does_most_needs_no_table_of_its_own(query: str) -> None:
    """A RETURNING, or a CHECK with a list of three values, needs a temporary table: a tenth of a checkpoint's cost."""
    connection = Connection(":memory:")
    schema.create(connection)
    text = sql.QUERIES[query]
    program = [line[1] for line in connection.execute(f"EXPLAIN {text}", unbound(text))]
    assert "Transaction" in program
    assert "OpenEphemeral" not in program


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Filter(prefix="ab"), "sqlite_autoindex_sessions_1 (session_id>? AND session_id<?)"),
        (Filter(statuses=(Status.RUNNING, Status.PAUSING)), "sessions_held"),
        (Filter(parent=1), "sessions_children"),
        (Filter(ids=("a", "b"), statuses=(Status.FAILED,)), "sqlite_autoindex_sessions_1 (session_id=?)"),
        (Filter(ids=("a", "b"), tag="night"), "sqlite_autoindex_sessions_1 (session_id=?)"),
        (Filter(ids=("a", "b"), tree=True), "sqlite_autoindex_sessions_1 (session_id=?)"),
        (Filter(statuses=(Status.FAILED,), workflow="w", since=1), "sessions_failed"),
        (Filter(failed=True, until=1), "sessions_failed"),
        (Filter(workflow="w", unended=True), "sessions_workflow (workflow=?)"),
        (Filter(workflow="w", statuses=(Status.PAUSED, Status.FAILED)), "sessions_workflow (workflow=?)"),
        (Filter(owner="ann", workflow="w", statuses=(Status.FAILED,)), "sessions_owner (owner=?)"),
        (Filter(tag="night", statuses=(Status.FAILED,)), "PRIMARY KEY (tag=?)"),
        (Filter(tag="night", owner="ann", unended=True), "PRIMARY KEY (tag=?)"),
        (Filter(unended=True), "sessions_open"),
        (Filter(unended=True, since=1, failed=False), "sessions_open"),
        (Filter(statuses=(Status.WAITING, Status.FAILED)), "sessions_open"),
        (Filter(crashed=True), "sessions_open"),
        (Filter(crashed=True, workflow="w"), "sessions_open"),
    ],
)
@pytest.mark.parametrize("order", ["", "ORDER BY created_at, key", "ORDER BY created_at DESC, key DESC LIMIT 20"])
def test_looking_for_sessions_keeps_its_index(query: Filter, index: str, order: str) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    where, bindings = sessions._where(connection, query, Present(lambda holder: True, lambda: 0))
    plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM sessions {where} {order}", bindings).fetchall()
    assert any(index in str(line[3]) for line in plan), plan
    assert not any(str(line[3]).startswith("SCAN sessions") and index not in str(line[3]) for line in plan), plan


@pytest.mark.parametrize("sort", ["created", "updated"])
def test_a_page_of_open_sessions_reads_no_ended_one_and_sorts_only_keys(sort: Sort) -> None:
    plans = plans_of(lambda connection: sessions.find(connection, Filter(unended=True, sort=sort, limit=9), NOW))
    page = next(plan for plan in plans if any("LIST SUBQUERY" in line for line in plan))
    assert "SCAN sessions USING INDEX sessions_open" in page, page
    assert any(line.startswith("SEARCH sessions USING INTEGER PRIMARY KEY") for line in page), page


@pytest.mark.parametrize(
    ("query", "indexes"),
    [
        (Filter(), {"SCAN sessions USING INDEX sessions_open", "SCAN sessions USING COVERING INDEX sessions_ended"}),
        (
            Filter(workflow="w"),
            {
                "SCAN sessions USING INDEX sessions_open",
                "SEARCH sessions USING COVERING INDEX sessions_ended (workflow=? AND ended=? AND removing=?)",
            },
        ),
        (Filter(statuses=(Status.COMPLETED,)), {"SCAN sessions USING COVERING INDEX sessions_ended"}),
        (Filter(statuses=(Status.WAITING,)), {"SCAN sessions USING INDEX sessions_open"}),
        (Filter(unended=True), {"SCAN sessions USING INDEX sessions_open"}),
        (Filter(failed=True), {"SCAN sessions USING INDEX sessions_failed"}),
    ],
)
def test_counting_reads_no_ended_session(query: Filter, indexes: set[str]) -> None:
    plans = plans_of(lambda connection: sessions.tally(connection, query, NOW))
    lines = {line for plan in plans for line in plan if line.split()[1] == "sessions" and "sessions_held" not in line}
    assert lines == indexes


NOW = Present(lambda holder: True, lambda: 0)


def plans_of(read: Callable[[Connection], object]) -> list[list[str]]:
    """Return the plan of each statement that a read executes."""
    connection = Connection(":memory:")
    schema.create(connection)
    asked: list[str] = []

    def traced(_: object, statement: str, bindings: object) -> bool:
        asked.append(statement)
        return True

    connection.exec_trace = traced
    read(connection)
    connection.exec_trace = None
    return [
        [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {each}", unbound(each))] for each in asked
    ]


def test_ready_sessions_are_read_in_the_order_of_their_index() -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    text = sql.QUERIES["ready"]
    plan = [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {text}", unbound(text))]
    index = "SEARCH sessions USING INDEX sessions_ready (queue=? AND workflow=? AND priority=? AND "
    assert any(line.startswith(index) for line in plan), plan
    assert not any("TEMP B-TREE FOR ORDER BY" in line for line in plan), plan


def test_due_sessions_are_found_without_reading_those_that_sleep() -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    text = f"{sql.QUERIES['facts']} WHERE {sql.PARTS['due']} ORDER BY wakes_at"
    plan = [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {text}", unbound(text))]
    assert "SEARCH sessions USING INDEX sessions_waking (wakes_at>? AND wakes_at<?)" in plan, plan
    assert not any("TEMP B-TREE FOR ORDER BY" in line for line in plan), plan


@pytest.mark.parametrize("statuses", [(Status.RUNNING,), (Status.PAUSING,), (Status.RUNNING, Status.PAUSING)])
@pytest.mark.parametrize("sort", ["created", "updated"])
def test_what_runs_is_found_without_reading_what_does_not(statuses: tuple[Status, ...], sort: Sort) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    asked: list[str] = []

    def traced(_: object, statement: str, bindings: object) -> bool:
        asked.append(statement) if "FROM sessions" in statement else None
        return True

    connection.exec_trace = traced
    present = Present(lambda holder: True, lambda: 0)
    sessions.find(connection, Filter(statuses=statuses, sort=sort, limit=10), present)
    sessions.tally(connection, Filter(statuses=statuses), present)
    connection.exec_trace = None
    for statement in [each for each in asked if "status" in each]:
        plan = [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {statement}", unbound(statement))]
        looked = [line for line in plan if "sessions" in line.split()[1]]
        assert any("sessions_held" in line for line in looked), plan
        assert not any("sessions_created" in line for line in plan), plan


def test_a_path_that_the_system_refuses_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "gone" / "store.db")
    (tmp_path / "file").touch()
    for name in ("link.db", "x" * 300, "file/folder/store.db"):
        with pytest.raises(StoreUnavailable, match=r"cannot be opened \(.+\)\. Check the path"):
            schema.prepare(schema.Place(str(tmp_path / name)))


@pytest.mark.parametrize("path", ["\0", "a\0b.db", "\ud800.db"], ids=["null", "null inside", "not UTF-8"])
def test_a_path_that_no_system_call_takes_is_refused(path: str) -> None:
    for given in (path, Path(path), f"sqlite:///{path}"):
        with pytest.raises(StoreUnavailable, match=r"is not a path that the system can open .* Name another file"):
            Engine(given)


_SINCE = "SEARCH sessions USING INDEX"


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Filter(after=(1, 1)), f"{_SINCE} sessions_created (created_at<?)"),
        (Filter(after=(1, 1), reverse=True), f"{_SINCE} sessions_created (created_at>?)"),
        (Filter(after=(1, 1), level="top"), f"{_SINCE} sessions_created (created_at<?)"),
        (Filter(after=(1, 1), workflow="w"), f"{_SINCE} sessions_workflow (workflow=? AND created_at<?)"),
        (Filter(after=(1, 1), owner="ann"), f"{_SINCE} sessions_owner (owner=? AND created_at<?)"),
        (Filter(after=(1, 1), failed=True), f"{_SINCE} sessions_failed (created_at<?)"),
        (Filter(after=("w", 1, 1), sort="workflow"), f"{_SINCE} sessions_workflow (workflow>?)"),
        (Filter(after=("a",), sort="id"), f"{_SINCE} sqlite_autoindex_sessions_1 (session_id>?)"),
        (Filter(after=("a",), sort="id", reverse=True), f"{_SINCE} sqlite_autoindex_sessions_1 (session_id<?)"),
    ],
)
def test_a_later_page_is_read_from_where_the_one_before_ended(query: Filter, index: str) -> None:
    plan = _plan_of(replace(query, limit=50))
    assert index in plan, plan
    assert not any("TEMP B-TREE FOR ORDER BY" in line for line in plan), plan


def _plan_of(query: Filter) -> list[str]:
    connection = Connection(":memory:")
    schema.create(connection)
    selected, bindings = sessions._selected(connection, query, Present(lambda holder: True, lambda: 0))
    statement = f"EXPLAIN QUERY PLAN {sql.QUERIES['facts']} {selected}"
    return [str(line[3]) for line in connection.execute(statement, bindings)]


@pytest.mark.parametrize("query", ["open_pauses", "pause_flags"])
def test_the_pauses_of_several_sessions_are_found_by_index(query: str) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    text = sql.QUERIES[query]
    plan = [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {text}", unbound(text))]
    index = "pauses USING INDEX pauses_open (session=?)" if query == "open_pauses" else "sessions USING INTEGER PRIMARY"
    assert any(index in line for line in plan), plan
    assert not any(line.startswith(("SCAN pauses", "SCAN sessions")) for line in plan), plan


def test_the_number_of_statements_does_not_depend_on_the_number_of_paused_sessions() -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    connection.execute("INSERT INTO standing_pause VALUES (1, 'p', 'fire', NULL, 1, 'finish', 0, 1, 1, 0)")
    connection.execute(
        "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 50) INSERT INTO sessions"
        " (session_id, workflow, version, input_digest, created_at, updated_at, seq, head, key_frame, digest, visit,"
        " signals_digest, given_sum, moved_sum) SELECT i, 'w', 1, x'', 1, 1, 1, 1, 1, x'', 1, x'', 0, 0 FROM n"
    )
    asked: list[str] = []

    def traced(_: object, statement: str, bindings: object) -> bool:
        asked.append(statement)
        return True

    connection.exec_trace = traced
    found = pauses.first(connection, range(1, 51))
    assert {each.reason for each in found.values()} == {"fire"}
    assert (len(found), len(asked)) == (50, 3)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (Filter(text="a"), "SCAN sessions"),
        (Filter(text="a", workflow="w"), f"{_SINCE} sessions_workflow (workflow=?)"),
        (Filter(text="a", owner="ann"), f"{_SINCE} sessions_owner (owner=?)"),
        (Filter(text="a", failed=True), "sessions_failed"),
    ],
)
def test_a_search_for_a_text_reads_no_more_than_it_must(query: Filter, index: str) -> None:
    plan = _plan_of(replace(query, limit=50))
    assert any(index in line for line in plan), plan
    assert "SEARCH tagged USING COVERING INDEX tagged_session (session=?)" in plan, plan
    assert "SCAN pauses USING INDEX pauses_open" in plan, "only open pauses are read, and once"


@pytest.mark.parametrize("sort", ["asked", "expires", "updated"])
@pytest.mark.parametrize("after", [None, (1, 1)])
def test_the_inbox_reads_what_waits_and_not_what_was_answered(sort: QuestionSort, after: Position | None) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    asked: list[tuple[str, Any]] = []

    def traced(_: object, statement: str, bindings: Any) -> bool:
        asked.append((statement, bindings))
        return True

    connection.exec_trace = traced
    at = after[:1] if after is not None and sort == "asked" else after
    questions.found(connection, Inquiry(statuses=(QuestionStatus.WAITING,), sort=sort, after=at, limit=20), now=0)
    connection.exec_trace = None
    ((statement, bindings),) = asked
    plan = [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)]
    assert any("questions USING" in line and "INDEX questions_waiting" in line for line in plan), plan
