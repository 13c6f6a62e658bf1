"""Sessions move between machines that share nothing but a Postgres server."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.failures import SAID
from tests.support.loop import PATIENCE
from tests.support.machines import Machine, Machines, two_machines
from tests.support.postgres import schema_of, sql
from tests.support.relay import address_of
from tests.support.waits import until
from tests.workers.tour import GATE, STOPS

CODE = str(Path(__file__).with_name("tour.py"))
PAUSED = 3
"""The exit code of ``pausepoint run`` if its session is paused."""
LONGEST = 12.0
"""Seconds until another machine continues a session whose process was killed, if nothing else uses the processors."""


class Fleet:
    """Two machines with one store."""

    def __init__(self, machines: Machines, url: str, store: str, folder: Path) -> None:
        self.machines, self.url, self.store, self.folder = machines, url, store, folder

    def words(self, command: str, *words: str) -> list[str]:
        return ["-m", "pausepoint", command, *words, "--store", self.store]

    def tell(self, machine: Machine, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Pausepoint on a machine."""
        with machine.python(*self.words(command, *words)) as process:
            output, _ = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def place(self, session_id: str) -> Path:
        found = self.folder / session_id
        found.mkdir(exist_ok=True)
        return found

    def running(self, machine: Machine, session_id: str) -> AbstractContextManager[subprocess.Popen[str]]:
        place = str(self.place(session_id))
        return machine.python(*self.words("run", "--session-id", session_id), CODE, "--place", place)

    def visits(self, session_id: str) -> list[list[str]]:
        file = self.place(session_id) / "visits"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def fleet_of(folder: Path, namespaces: bool = True) -> Iterator[Fleet]:
    with (
        schema_of() as url,
        two_machines(folder, namespaces) as machines,
        machines.database(address_of(url)) as (host, port),
    ):
        yield Fleet(machines, url, through(url, host, port), folder)


@pytest.mark.long
@pytest.mark.covers("S1.61")
@pytest.mark.parametrize("namespaces", [True, False], ids=["namespaces", "without namespaces"])
def test_a_session_that_was_paused_on_one_machine_continues_on_another(tmp_path: Path, namespaces: bool) -> None:
    with fleet_of(tmp_path, namespaces) as fleet:
        one, two = fleet.machines.one, fleet.machines.two
        if fleet.machines.separate:
            reach = f"import socket; socket.create_connection(({one.address!r}, 5432), timeout=0.2)"
            with pytest.raises(subprocess.CalledProcessError):
                two.do(sys.executable, "-c", reach)  # the database is nowhere but behind the cable
            fleet.machines.plug()
        with fleet.running(one, "tour") as first:
            until(lambda: len(fleet.visits("tour")) == GATE + 1)
            assert fleet.tell(two, "pause", "tour").returncode == 0
            (fleet.place("tour") / "gate").touch()
            assert first.wait(PATIENCE) == PAUSED
        assert len(fleet.visits("tour")) == GATE + 1
        resumed = fleet.tell(two, "resume", "tour", "--target", CODE)
        assert resumed.returncode == 0, resumed.stdout
        hosts = ["m1", "m2"] if fleet.machines.separate else [socket.gethostname()] * 2
        assert fleet.visits("tour") == [
            [str(stop), machine, host]
            for stop in range(STOPS)
            for machine, host in [("m1", hosts[0]) if stop <= GATE else ("m2", hosts[1])]
        ]
        places = sql(fleet.url, "SELECT DISTINCT host, boot FROM engines")
        assert len({place for _, place in places}) == 2  # neither sees the lock files of the other
        assert {host for host, _ in places} == set(hosts)


@pytest.mark.long
@pytest.mark.covers("S1.61")
def test_a_session_of_a_killed_process_runs_on_another_machine_when_its_lease_ends(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with fleet_of(tmp_path) as fleet:
        one, two = fleet.machines.one, fleet.machines.two
        fleet.machines.plug()
        with fleet.running(one, "tour") as first, two.python(*fleet.words("worker", "--target", CODE)):
            until(lambda: len(fleet.visits("tour")) == GATE + 1)
            until(lambda: len(sql(fleet.url, "SELECT 1 FROM engines WHERE state <> 'dead'")) == 2)
            first.kill()
            killed = time.monotonic()
            assert first.wait(PATIENCE) == -signal.SIGKILL
            assert "m1" in who(fleet)
            (fleet.place("tour") / "gate").touch()
            until(lambda: len(fleet.visits("tour")) > GATE + 1)
            took = time.monotonic() - killed
            record_property(SAID, f"takeover after kill -9 on another machine: {took:.1f} s")
            until(lambda: sql(fleet.url, "SELECT ended FROM sessions") == [("completed",)])
        assert took < 3 * LONGEST, "on a machine that is three times slower"
        stops = [(int(stop), machine) for stop, machine, _ in fleet.visits("tour")]
        before, after = range(GATE + 1), range(GATE, STOPS)
        assert stops == [*((stop, "m1") for stop in before), *((stop, "m2") for stop in after)]


def who(fleet: Fleet) -> list[str]:
    """Return the hosts of the engines that hold sessions."""
    return [host for (host,) in sql(fleet.url, "SELECT host FROM engines WHERE id IN (SELECT holder FROM sessions)")]


def through(url: str, host: str, port: int) -> str:
    """Return the URL of a store, reached at another address."""
    given = conninfo_to_dict(url.partition("schema=")[0].rstrip("&?"))
    user, password, database = (str(given.get(name) or "") for name in ("user", "password", "dbname"))
    login = f"{quote(user)}:{quote(password)}" if password else quote(user)
    schema = url.partition("schema=")[2]
    return f"postgresql://{login}@{host}:{port}/{database}?sslmode=disable&gssencmode=disable&schema={schema}"


@pytest.mark.parametrize(("user", "ends"), [(0, pytest.fail.Exception), (1000, pytest.skip.Exception)])
def test_without_namespaces_the_proof_fails_for_root_on_linux_and_is_skipped_with_the_reason_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, ends: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without `unshare`
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ends, match=r"no network namespaces here: .*unshare"), two_machines(tmp_path):
        pass
