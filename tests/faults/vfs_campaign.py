"""Kill points, power losses, refused writes and flipped bits, in numbers that are too slow for the suite.

    python -m tests.faults.vfs_campaign --seconds 600

Every trial is named by its program and its point or seed, so it can be repeated.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle
from threading import local

from tests.faults.bench_server import Server
from tests.faults.tally import Fault, Tally, main
from tests.faults.trials import Point, bad

PROGRAMS = ("loop", "folding", "threaded", "first run")
READS_PROVED = ("state", "visits", "events")
BATCH = 500

Trial = Callable[[Server], tuple[int, list[str]]]  # the number of trials, and the failures


def kills(rng: random.Random) -> Iterator[Trial]:
    """Yield every point of every program in turn. From the second round on, the resuming process dies as well."""
    servers = Server()
    points = [(program, point) for program in PROGRAMS for point in servers.bench(program).points()]
    servers.close()
    rng.shuffle(points)
    for number, (program, point) in enumerate(cycle(points)):
        second = rng.randint(1, 8) if number >= len(points) else 0
        yield _kill(program, Point(point.touch, point.variant, second))


def _kill(program: str, point: Point) -> Trial:
    return lambda server: (1, [f"{program}: {report}" for report in bad([server.bench(program).kill(point)])])


def losses(rng: random.Random) -> Iterator[Trial]:
    """Yield batches of states after a power loss, each batch with its own seed."""
    return (_lose(program, rng.randrange(10**9)) for program in cycle(PROGRAMS))


def _lose(program: str, seed: int) -> Trial:
    def trial(server: Server) -> tuple[int, list[str]]:
        states = server.bench(program).lose_power(seed, 2 * BATCH)
        return len(states), [f"{program}, seed {seed}, {name}: {wrong}" for name, wrong in states if wrong]

    return trial


def flips(rng: random.Random) -> Iterator[Trial]:
    """Yield batches of flipped bits."""
    return (_flip(rng.randrange(10**9)) for _ in count())


def _flip(seed: int) -> Trial:
    def trial(server: Server) -> tuple[int, list[str]]:
        found = server.bench("loop").flip(seed, BATCH)
        wrong = [f for f in found if any(f.answers[read].startswith("wrong") for read in READS_PROVED)]
        return len(found), [f"seed {seed}: {flip}" for flip in wrong]

    return trial


TRIALS: dict[str, tuple[Callable[[random.Random], Iterator[Trial]], Fault]] = {
    "kill points": (kills, "other"),
    "power-loss states": (losses, "lost"),
    "flipped bits": (flips, "undetected"),
}


def run(tally: Tally, workers: int = os.cpu_count() or 2) -> None:
    """Run trials of each kind for a third of the time, on ``workers`` servers."""
    own = local()
    servers: list[Server] = []

    def act(trial: Trial) -> tuple[int, list[str]]:
        if not hasattr(own, "server"):
            own.server = Server()
            servers.append(own.server)
        return trial(own.server)

    with ThreadPoolExecutor(workers) as pool:
        for part, (name, (draw, fault)) in enumerate(TRIALS.items(), 1):
            trials = draw(random.Random(tally.seed))
            while tally.has_time(part / len(TRIALS)):
                for done, wrong in pool.map(act, [next(trials) for _ in range(2 * workers)]):
                    tally.done[name] += done
                    for text in wrong:
                        tally.fail(f"{name}: {text}", fault)
    for server in servers:
        server.close()


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
