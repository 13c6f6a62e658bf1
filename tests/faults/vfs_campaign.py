"""Kill points, power losses, refused writes and flipped bits, in numbers that are too slow for the suite.

    python -m tests.faults.vfs_campaign --points 100000

Prints the trials and the failures, and exits with 1 if there are any. Every trial is named by its program and its
point or seed, so it can be repeated.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import local

from tests.faults.bench_server import Server
from tests.faults.trials import Point, bad

PROGRAMS = ("loop", "folding", "threaded", "first run")
READS_PROVED = ("state", "visits", "events")

Trial = Callable[[Server], tuple[int, list[str]]]  # the number of trials, and the failures


def kills(count: int, seed: int) -> Iterator[Trial]:
    """Yield every point of every program in turn. From the second round on, the resuming process dies as well."""
    rng = random.Random(seed)
    servers = Server()
    points = [(program, point) for program in PROGRAMS for point in servers.bench(program).points()]
    servers.close()
    rng.shuffle(points)
    for number, (program, point) in zip(range(count), cycle(points), strict=False):
        second = rng.randint(1, 8) if number >= len(points) else 0
        yield _kill(program, Point(point.touch, point.variant, second))


def _kill(program: str, point: Point) -> Trial:
    return lambda server: (1, [f"{program}: {report}" for report in bad([server.bench(program).kill(point)])])


def losses(count: int, seed: int) -> Iterator[Trial]:
    """Yield batches of states after a power loss, each batch with its own seed."""
    batches = -(-count // 500)
    return (_lose(program, seed + n) for n, program in zip(range(batches), cycle(PROGRAMS), strict=False))


def _lose(program: str, seed: int) -> Trial:
    def trial(server: Server) -> tuple[int, list[str]]:
        states = server.bench(program).lose_power(seed, 1000)
        return len(states), [f"{program}, seed {seed}, {name}: {wrong}" for name, wrong in states if wrong]

    return trial


def flips(count: int, seed: int) -> Iterator[Trial]:
    """Yield batches of flipped bits."""
    return (_flip(seed + n, min(500, count - n * 500)) for n in range(-(-count // 500)))


def _flip(seed: int, count: int) -> Trial:
    def trial(server: Server) -> tuple[int, list[str]]:
        found = server.bench("loop").flip(seed, count)
        wrong = [f for f in found if any(f.answers[read].startswith("wrong") for read in READS_PROVED)]
        return len(found), [f"seed {seed}: {flip}" for flip in wrong]

    return trial


def run(name: str, trials: Iterator[Trial], workers: int) -> list[str]:
    """Run all trials on ``workers`` servers, print totals, and return the failures."""
    own = local()
    servers: list[Server] = []

    def act(trial: Trial) -> tuple[int, list[str]]:
        if not hasattr(own, "server"):
            own.server = Server()
            servers.append(own.server)
        return trial(own.server)

    start = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(act, trials))
    for server in servers:
        server.close()
    done, wrong = sum(count for count, _ in results), [text for _, texts in results for text in texts]
    seconds = time.monotonic() - start
    print(f"{name:14} {done:9,} trials  {len(wrong):5} wrong  {seconds:8.1f} s  {done / max(seconds, 0.001):7.1f}/s")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=int, default=10_000, help="kill points")
    parser.add_argument(
        "--states", type=int, default=10_000, help="states after a power loss (about as many are drawn)"
    )
    parser.add_argument("--flips", type=int, default=10_000, help="flipped bits")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    given = parser.parse_args()
    wrong = run("kill points", kills(given.points, given.seed), given.workers)
    wrong += run("power losses", losses(given.states, given.seed), given.workers)
    wrong += run("flipped bits", flips(given.flips, given.seed), given.workers)
    for text in wrong[:20]:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
