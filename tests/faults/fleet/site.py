"""A fleet of workers over one Postgres server: what the chaos campaign starts, hits and asks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from pausepoint import Engine, Status
from pausepoint.errors import UnknownSession
from tests.faults.fleet.errands import OPERATIONS, errand
from tests.faults.fleet.oracle import FOREVER, Hit, Note, Verdict, judge, read_notes
from tests.faults.fleet.worker import LEASE, MARGIN
from tests.support.children import ROOT, environment
from tests.support.cluster import Server
from tests.support.forked import Program
from tests.support.loop import PATIENCE
from tests.support.relay import Relay, When
from tests.support.waits import async_until

TOKEN = re.compile(rb"\w+/\d+=[0-9a-f]{12}")
"""The result of an operation, as its record in the log has it."""

UNREACHED = 1
"""The exit code of a worker that cannot reach its store when it starts."""

CRASHED = "Traceback (most recent call last)"
"""What a worker that crashed has written to its log. Its exit code is `UNREACHED`, too."""

FENCES = "fences"
"""The file in which workers note that their lease has ended, and why."""

DEATHS = "deaths"
"""The file in which workers note which engines they take for dead by their locks."""

HOUR = 3600.0
LATE = 0.1
"""Seconds between the look at the lease and the note that an operation has begun."""

SKEWS = (0.0, HOUR, -HOUR)


class Worker:
    """A worker in a process of its own. ``machine`` is the folder of its locks."""

    def __init__(self, url: str, folder: Path, skew: float, machine: str, twin: str) -> None:
        own = folder / machine
        own.mkdir(exist_ok=True)
        settings = environment() | {"XDG_RUNTIME_DIR": str(own), "PYTHONWARNINGS": "ignore"}
        words = ["-m", "tests.faults.fleet.worker", url, str(skew), twin, str(folder / FENCES), str(folder / DEATHS)]
        self._log = folder / "workers.log"
        with open(os.devnull) as nothing, self._log.open("a") as log:
            self._program = Program(words, [nothing.fileno(), log.fileno(), log.fileno()], ROOT, settings)
        self.pid = self._program.pid
        self.skew, self.machine = skew, machine
        self.stopped = False

    def kill(self) -> bool:
        """Kill the process. Return False if it had ended: a worker that cannot reach the server when it starts does."""
        self._program.kill()
        code = self._program.wait()
        if code == -signal.SIGKILL:
            return True
        self._must_not_have_crashed(code)
        return False

    def _must_not_have_crashed(self, code: int) -> None:
        said = self._log.read_text()
        assert code == UNREACHED, f"a worker ended with {code}: {said[-3000:]}"
        assert CRASHED not in said, said[-3000:]

    def stop(self) -> bool:
        """Stop the process. Return False if it had ended: see `kill`."""
        self._program.send_signal(signal.SIGSTOP)
        try:
            self._program.child.wait_stopped()
        except AssertionError:
            self._must_not_have_crashed(self._program.wait())
            return False
        self.stopped = True
        return True

    def wake(self) -> None:
        self._program.send_signal(signal.SIGCONT)
        self.stopped = False


class Site:
    """One store with its workers, from the first session to the verdict."""

    def __init__(self, server: Server, relay: Relay, folder: Path, twin: str = "none") -> None:
        self.server, self.relay, self.folder, self.twin = server, relay, folder, twin
        self.schema = f"chaos_{uuid.uuid4().hex[:12]}"
        self.url = (
            f"postgresql://postgres@127.0.0.1:{relay.port}/postgres?sslmode=disable&gssencmode=disable"
            f"&schema={self.schema}"
        )
        self.book = folder / f"{self.schema}.notes"
        self.workers: list[Worker] = []
        self.hits: list[Hit] = []
        self.forgot_leases_at: list[float] = []  # when an asynchronous replica took over
        self.sessions: list[str] = []
        self.vanished: list[str] = []
        self.resumed = 0
        self.state: dict[str, int] = {}
        self._n = 0

    # the fleet

    async def hire(self) -> None:
        """Start a worker. Its clock and its machine change from one to the next."""
        self._n += 1
        skew, machine = SKEWS[self._n % 3], f"machine-{self._n % 2}"
        self.workers.append(await asyncio.to_thread(Worker, self.url, self.folder, skew, machine, self.twin))

    def awake(self) -> list[Worker]:
        return [worker for worker in self.workers if not worker.stopped]

    async def kill(self, worker: Worker) -> bool:
        """Kill a worker, and start another one. Return False if it had ended: see `Worker.kill`."""
        was_alive = await self._kill(worker)
        await self.hire()
        return was_alive

    async def _kill(self, worker: Worker) -> bool:
        self.workers.remove(worker)
        was_alive = await asyncio.to_thread(worker.kill)
        now = time.monotonic()
        if was_alive:
            self.hits.append(Hit("kill", now, now, worker.pid))
        return was_alive

    async def stop(self, worker: Worker) -> bool:
        """Stop a worker, for `wake`. Start another one and return False if it had ended: see `Worker.kill`."""
        since = time.monotonic()
        if not await asyncio.to_thread(worker.stop):
            self.workers.remove(worker)
            await self.hire()
            return False
        self.hits.append(Hit("stop", since, FOREVER, worker.pid))  # until `wake`
        return True

    async def wake(self, worker: Worker) -> None:
        """Let a stopped worker continue when its lease has ended and others have taken its sessions."""
        await asyncio.sleep(LEASE)
        await async_until(lambda: self._is_dead(worker.pid))
        await asyncio.sleep(1)  # the others have time to take its sessions
        await asyncio.to_thread(worker.wake)
        # It may have been stopped between the look at its lease and the note that an operation has begun.
        ended = time.monotonic() + LATE
        self.hits = [hit._replace(until=min(hit.until, ended)) if hit.pid == worker.pid else hit for hit in self.hits]

    async def _is_dead(self, pid: int) -> bool:
        alive = "SELECT count(*) FROM {}.engines WHERE pid = %s AND state <> 'dead' AND lease_until > clock_timestamp()"
        return bool(await self.ask(alive.format(self.schema), pid) == 0)

    async def restart(self) -> None:
        """Let the server end at once, as if it had crashed, and start it again. Engines wait: it excuses nothing."""
        before = self.server.pid
        await asyncio.to_thread(self.server.stop, "immediate")
        await asyncio.to_thread(self.server.start)
        assert self.server.pid not in (None, before)

    async def promote(self, replica: Server, replication: Relay, synchronous: bool) -> None:
        """Cut a replica off from the server, end the server, and let the replica take its place.

        While the replica is cut off, an asynchronous server acknowledges what the replica will never have; a
        synchronous one acknowledges nothing. Both is checked, so the fault is real.
        """
        replication.hold()
        since, before = time.monotonic(), self._acknowledged()
        if synchronous:
            await asyncio.sleep(1.5)
            settled = self._acknowledged()
            await asyncio.sleep(0.5)
            assert self._acknowledged() == settled
        else:
            await async_until(lambda: self._acknowledged() >= before + 10)
        await asyncio.to_thread(self.server.stop, "immediate")
        await asyncio.to_thread(replica.promote)
        self.server = replica
        self.relay.switch(replica.address)
        assert replica.ask("SELECT NOT pg_is_in_recovery()")
        now = time.monotonic()
        # An engine that holds a session by a claim that is gone learns it when it is connected again.
        self.hits.append(Hit("promotion", since, now + (0 if synchronous else 1)))
        if not synchronous:
            self.forgot_leases_at.append(now)

    async def working(self) -> None:
        """Wait for the first operation."""
        await async_until(lambda: self._acknowledged() > 0)

    def _acknowledged(self) -> int:
        return self.book.read_text().count(" acknowledged ") if self.book.exists() else 0

    async def look_for_sessions(self) -> None:
        """Move sessions that the server no longer has from ``sessions`` to ``vanished``."""
        known = {row[0] for row in await self.rows(f"SELECT session_id FROM {self.schema}.sessions")}
        self.vanished += [name for name in self.sessions if name not in known]
        self.sessions = [name for name in self.sessions if name in known]

    async def cut(self, when: When) -> None:
        """Cut the connection of the next worker that commits."""
        before = self.relay.cuts[when]
        self.relay.arm(when)
        await async_until(lambda: self.relay.cuts[when] > before)

    # the work

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        async with Engine(self.url, workflows=[errand], drives="none") as engine:
            yield engine

    async def begin(self, engine: Engine, count: int) -> None:
        """Store sessions that are ready."""
        for _ in range(count):
            name = f"s{len(self.sessions)}"
            self.sessions.append(name)
            await engine.start(errand, session_id=name, paused=True, book=str(self.book), who=name)
            with suppress(UnknownSession):  # `vanished` names it
                await engine.session(name).resume(here=False)

    async def finished(self, engine: Engine) -> bool:
        """Return whether all sessions have completed. Those that are paused, as after three crashes, are resumed."""
        found = await engine.sessions(status=[Status.PAUSED, Status.FAILED])
        for info in found:
            assert info.status is Status.PAUSED, f"session {info.session_id} has failed"
            self.resumed += 1
            await engine.session(info.session_id).resume(here=False)
        tally = await engine.tally()
        self.state = {str(status): count for (_, status), count in tally.items()}
        return all(status is Status.COMPLETED for _, status in tally)

    def notes(self) -> list[Note]:
        return read_notes(self.book.read_text())

    async def end(self, engine: Engine, enough: Callable[[list[Note]], bool] | None = None) -> None:
        """Wait until all sessions have completed, or until the notes are ``enough``."""

        async def over() -> bool:
            return (enough is not None and enough(self.notes())) or await self.finished(engine)

        try:
            await async_until(over, "the fleet did not get there", pause=0.05)
        except AssertionError as error:
            held = await self.rows(f"SELECT session_id, holder, seq, fence, ready_at FROM {self.schema}.sessions")
            engines = await self.rows(f"SELECT id, pid, state, lease_until FROM {self.schema}.engines")
            log = (self.folder / "workers.log").read_text()[-6000:]
            raise AssertionError(f"{self.state} {held} {engines}\n{log}") from error

    async def verdict(self, engine: Engine) -> Verdict:
        """Compare what ran with the logs, and check that the logs are intact.

        Only sessions that have completed must have a result for each operation.
        """
        checked = await engine.verify()
        assert checked.ok, str(checked)[:2000]
        logged: dict[str, list[str]] = defaultdict(list)
        for (payload,) in await self.rows(f"SELECT payload FROM {self.schema}.log WHERE kind = 'operation'"):
            for token in TOKEN.findall(bytes(payload)):
                logged[token.partition(b"=")[0].decode()].append(token.decode())
        completed = {info.session_id for info in await engine.sessions(status=[Status.COMPLETED])}
        operations = [f"{name}/{n}" for name in self.sessions if name in completed for n in range(OPERATIONS)]
        notes = [note for note in self.notes() if note.session not in self.vanished]
        return judge(notes, logged, operations, [*self.hits, *self._fences()])

    def _fences(self) -> list[Hit]:
        """Return the ends of leases. What began less than `MARGIN` before one of them has no excuse.

        After the promotion of an asynchronous replica, leases that it does not know end at once.
        """
        file = self.folder / FENCES
        lines = [line.split(maxsplit=2) for line in file.read_text().splitlines()] if file.exists() else []
        found = []
        for at, pid, why in [(float(at), int(pid), why) for at, pid, why in lines]:
            is_forgotten = any(since <= at <= since + LEASE for since in self.forgot_leases_at)
            found.append(Hit("fence", at, at - (0 if is_forgotten else MARGIN) + LATE, pid, why))
        return found

    def deaths(self) -> str:
        """Return the last lines about engines that workers took for dead."""
        file = self.folder / DEATHS
        return "".join(file.read_text().splitlines(keepends=True)[-20:]) if file.exists() else ""

    async def skews(self) -> set[float]:
        """Return how wrong the clocks of the workers were, in hours, as the logs show it."""
        hours = "SELECT DISTINCT round((at / 1e6 - extract(epoch FROM clock_timestamp())) / 3600) FROM {}.log"
        return {float(hour) for (hour,) in await self.rows(hours.format(self.schema))}

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        def read() -> list[tuple[Any, ...]]:
            with psycopg.connect(self.server.url, autocommit=True) as connection:
                return connection.execute(statement, values or None).fetchall()

        return await asyncio.to_thread(read)

    async def ask(self, statement: str, *values: object) -> Any:
        """Return one value. A server that restarts is asked again."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return (await self.rows(statement, *values))[0][0]
            except psycopg.OperationalError:
                assert time.monotonic() < end
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Kill all workers. What they have in flight has an excuse then."""
        for worker in [*self.workers]:
            await self._kill(worker)
