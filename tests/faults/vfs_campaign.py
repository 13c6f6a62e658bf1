"""Kill points, power losses and flipped bits, in numbers that are too slow for the suite.

    python -m tests.faults.vfs_campaign --seconds 600

Every trial is named by its program and its point or seed, so it can be repeated. Points and bits are counted
once, however often they are tried; states once per recording, and every worker makes its own recordings.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle
from threading import local
from typing import NamedTuple

from tests.faults.bench_server import Server
from tests.faults.bit_flips import wrong_answers
from tests.faults.tally import Fault, Tally, main
from tests.faults.trials import Point, bad

PROGRAMS = ("loop", "folding", "threaded", "first run")
BATCH = 500


class Done(NamedTuple):
    """What a trial did: the points, states or bits that it tried, and the failures."""

    tried: list[Hashable]
    wrong: list[str]


Trial = Callable[[Server], Done]


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
    def trial(server: Server) -> Done:
        wrong = bad([server.bench(program).kill_at(point)])
        return Done([(program, point)], [f"{program}: {report}" for report in wrong])

    return trial


def losses(rng: random.Random) -> Iterator[Trial]:
    """Yield batches of states after a power loss, each batch with its own seed."""
    return (_lose(program, rng.randrange(10**9)) for program in cycle(PROGRAMS))


def _lose(program: str, seed: int) -> Trial:
    def trial(server: Server) -> Done:
        losses = server.bench(program).lose_power(seed, 2 * BATCH)
        wrong = [f"{program}, seed {seed}, {loss.name}: {loss.complaints}" for loss in losses if loss.complaints]
        return Done([(program, loss.digest) for loss in losses], wrong)

    return trial


def flips(rng: random.Random) -> Iterator[Trial]:
    """Yield batches of flipped bits."""
    return (_flip(rng.randrange(10**9)) for _ in count())


def _flip(seed: int) -> Trial:
    def trial(server: Server) -> Done:
        found = server.bench("loop").flip(seed, BATCH)
        wrong = [f"seed {seed}: {flip}" for flip in wrong_answers(found)]
        return Done([(flip.offset, flip.bit) for flip in found], wrong)

    return trial


TRIALS: dict[str, Callable[[random.Random], Iterator[Trial]]] = {
    "kill points": kills,
    "power-loss states": losses,
    "flipped bits": flips,
}


def fault_of(name: str, complaint: str) -> Fault:
    """Return the kind of fault that a complaint of these trials describes."""
    if name == "flipped bits":
        return "undetected"
    if "lost: " in complaint:
        return "lost"
    return "doubled" if re.search(r" ran [2-9] times", complaint) else "other"


def run(tally: Tally, workers: int = os.cpu_count() or 2) -> None:
    """Run trials of each kind for a third of the time, on ``workers`` servers."""
    own, tried = local(), set[Hashable]()
    servers: list[Server] = []

    def act(trial: Trial) -> Done:
        if not hasattr(own, "server"):
            own.server = Server()
            servers.append(own.server)
        return trial(own.server)

    with ThreadPoolExecutor(workers) as pool:
        for part, (name, draw) in enumerate(TRIALS.items(), 1):
            trials = draw(random.Random(tally.seed))
            while tally.has_time(part / len(TRIALS)):
                for done in pool.map(act, [next(trials) for _ in range(2 * workers)]):
                    new = {(name, each) for each in done.tried} - tried
                    tried |= new
                    tally.done[name] += len(new)
                    for text in done.wrong:
                        tally.fail(f"{name}: {text}", fault_of(name, text))
    for server in servers:
        server.close()


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
