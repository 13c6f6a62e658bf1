"""A fleet of workers over one Postgres server, and faults drawn by a seed. Nothing may be lost or run twice.

    python -m tests.faults.fleet.chaos --seconds 3600 --seed 1 --json build/chaos.json

Each round has a store of its own, four workers and a steady supply of sessions. The faults are: ``kill -9``, SIGSTOP
for longer than the lease, an immediate restart of Postgres, a connection that is cut before COMMIT or before its
answer, and in every fourth round the promotion of a replica. The clocks of two thirds of the workers are wrong by an
hour. Half of the workers see no lock files of the other half. After each round the notes of all operations are compared
with the logs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.fleet.oracle import Note, Verdict
from tests.faults.fleet.site import Site, Worker
from tests.faults.tally import Tally, main
from tests.support.cluster import Server, binaries, running, server_folder
from tests.support.relay import Relay, listening
from tests.support.waits import async_until

Enough = Callable[[list[Note]], bool]
FAULTS = ("kill", "kill", "stop", "restart", "cut before", "cut after")
WORKERS = 4
SESSIONS = 12
"""How many sessions are unfinished at least while faults happen."""


class Round:
    """One store, from its first session to the verdict."""

    def __init__(self, site: Site, tally: Tally, enough: Enough | None = None) -> None:
        """``enough``: notes with which all workers are killed and judged, even if sessions are unfinished."""
        self.site, self.draw, self.tally, self.enough = site, tally.draw, tally, enough
        self.busy = True
        self.stops: list[asyncio.Task[None]] = []

    async def play(self, faults: Sequence[str], promote: Callable[[], Any] | None = None) -> Verdict:
        async with self.site.engine() as engine:
            for _ in range(WORKERS):
                await self.site.hire()
            await self.site.begin(engine, SESSIONS // 2)
            supply = asyncio.create_task(self._supply(engine))
            await self.site.working()
            for fault in faults:
                await asyncio.sleep(self.draw.uniform(0.1, 0.5))
                await self._inject(fault)
            if promote is not None:
                await promote()
            self.busy = False
            await supply
            await asyncio.gather(*self.stops)
            await self.site.look_for_sessions()
            await self.site.end(engine, self.enough)
            if self.enough is not None:
                await self.site.close()  # nothing changes any more
            return await self.site.verdict(engine)

    async def _supply(self, engine: Any) -> None:
        while self.busy:
            tally = await engine.tally()
            unfinished = sum(count for (_, status), count in tally.items() if status != "completed")
            if unfinished < SESSIONS:
                await self.site.begin(engine, 2)
            else:
                await asyncio.sleep(0.1)

    async def _inject(self, fault: str) -> None:
        site = self.site
        if fault == "restart":
            await site.restart()
        elif fault.startswith("cut"):
            await site.cut("before" if fault == "cut before" else "after")
        elif fault == "kill":
            while not await site.kill(await self._victim()):
                pass  # it had ended
        else:
            while not await site.stop(victim := await self._victim()):
                pass
            self.stops.append(asyncio.create_task(site.wake(victim)))
        self.tally.done[f"faults: {fault}"] += 1

    async def _victim(self) -> Worker:
        """Choose a worker that is not stopped, when there are two."""
        await async_until(lambda: len(self.site.awake()) > 1)
        return self.draw.choice(self.site.awake())


def judge(tally: Tally, site: Site, verdict: Verdict, loses: bool = False) -> None:
    """Count what a round did, and the faults that its verdict names. ``loses``: acknowledged work may be gone."""
    tally.done["sessions"] += len(site.sessions)
    tally.done["operations"] += verdict.runs
    tally.done["paused sessions that were resumed"] += site.resumed
    for fault, count in verdict.in_flight.items():
        tally.done[f"ran again, in flight at a {fault}"] += count
    for text in verdict.missing:
        tally.fail(text, "lost")
    for text in verdict.doubled:
        tally.fail(text, "doubled")
    if verdict.doubled:
        print(site.deaths(), flush=True)
    gone = [*(f"operation {name}" for name in verdict.forgotten), *(f"session {name}" for name in site.vanished)]
    if loses:
        tally.done["promotions of an asynchronous replica"] += 1
        tally.done["acknowledged, and lost by asynchronous replicas"] += len(gone)
        print(f"lost by the asynchronous replica: {', '.join(gone) or 'nothing'}", flush=True)
    else:
        for text in gone:
            tally.fail(f"{text} was acknowledged and is not in the store", "lost")


class Lab:
    """A server behind a relay, for any number of rounds."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        programs = binaries()
        assert programs is not None
        self.folder, self.stack, self._programs, self._copies = folder, stack, programs, 0
        self.server = Server(folder, "first", programs)
        self.server.init()
        stack.enter_context(running(self.server))
        self.relay = self._relay(self.server)

    def _relay(self, server: Server) -> Relay:
        relay = Relay(listening(), server.address)
        self.stack.callback(relay.close)
        return relay

    def replica(self) -> tuple[Server, Relay]:
        """Start a replica, which follows the server through a relay of its own."""
        self._copies += 1
        relay = self._relay(self.server)
        made = Server(self.folder, f"replica{self._copies}", self._programs)
        made.copy(relay.port, "replica")
        self.stack.enter_context(running(made))
        self.server.until("SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")
        return made, relay

    def synchronous(self, on: bool) -> None:
        """Let commits wait for the replica, or for nothing."""
        self.server.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{'replica' if on else ''}'")
        self.server.ask(f"ALTER SYSTEM SET synchronous_commit = '{'remote_apply' if on else 'on'}'")
        self.server.ask("SELECT pg_reload_conf()")


def play(
    lab: Lab, tally: Tally, faults: Sequence[str], twin: str = "none", enough: Enough | None = None
) -> Verdict:  # fmt: skip
    """Play a round without a promotion."""
    site = Site(lab.server, lab.relay, lab.folder, twin)

    async def round() -> Verdict:
        try:
            verdict = await Round(site, tally, enough).play(faults)
            judge(tally, site, verdict)
            tally.done["rounds"] += 1
            for hours in await site.skews() & {1, -1}:
                tally.done[f"rounds with records of a clock {hours:+.0f} h off"] += 1
            return verdict
        finally:
            await site.close()

    verdict = asyncio.run(round())
    lab.server.ask(f'DROP SCHEMA "{site.schema}" CASCADE')
    return verdict


def play_promotion(lab: Lab, tally: Tally, synchronous: bool, faults: Sequence[str] = ("kill", "cut after")) -> None:
    """Play a round at whose end a replica takes the place of the server."""
    replica, replication = lab.replica()
    lab.synchronous(synchronous)
    site = Site(lab.server, lab.relay, lab.folder)

    async def round() -> None:
        try:
            promote = lambda: site.promote(replica, replication, synchronous)  # noqa: E731
            judge(tally, site, await Round(site, tally).play(faults, promote), loses=not synchronous)
            tally.done["rounds"] += 1
            if synchronous:
                tally.done["promotions of a synchronous replica"] += 1
        finally:
            await site.close()

    asyncio.run(round())
    lab.server = replica
    lab.synchronous(False)
    lab.server.ask(f'DROP SCHEMA "{site.schema}" CASCADE')


def run(tally: Tally) -> None:
    with server_folder() as folder, ExitStack() as stack:
        lab = Lab(folder, stack)
        while tally.has_time():
            faults = [*FAULTS, *tally.draw.choices(FAULTS, k=tally.draw.randint(0, 6))]
            tally.draw.shuffle(faults)
            play(lab, tally, faults)
            if tally.done["rounds"] % 4 == 3:
                promotions = tally.done["rounds"] // 4
                play_promotion(lab, tally, synchronous=promotions % 2 == 1)
            left = tally.seconds - (time.monotonic() - tally.started)
            print(
                f"round {tally.done['rounds']}, {tally.done['operations']:,} operations, {left:.0f} s left", flush=True
            )


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
