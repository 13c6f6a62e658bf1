"""Real processes that are killed, stopped and paused at random, and races between them.

    python -m tests.faults.processes --seconds 600

The same seed draws the same trials.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pausepoint.model.sessions import PauseMode
from tests.faults import journeys
from tests.faults.contests import flips, races
from tests.faults.jobs import SLOW
from tests.faults.lab import Lab, Reference, undisturbed
from tests.faults.tally import Fault, Tally, main
from tests.faults.verdicts import ended_politely, killed, killed_at_times, paused, zombie
from tests.support.folders import scratch
from tests.support.forkserver import ForkServer
from tests.support.points import Action

TRIALS_PER_DATABASE = 300


class Processes:
    """Draws trials. Each trial returns the amount of work done and a list of failures."""

    def __init__(self, lab: Lab, draw: random.Random) -> None:
        self.lab = lab
        self.draw = draw
        self.reference: Reference = undisturbed(lab)
        self.journey = journeys.undisturbed(lab)
        self.kinds: dict[str, tuple[int, Callable[[], tuple[int, list[str]]]]] = {
            "trials with kills at two points": (8, self.kill),
            "trials with kills at two moments": (8, self.kill_at_times),
            "trials with kills on a journey": (8, self.kill_on_the_way),
            "SIGTERM or Ctrl+C": (4, self.end),
            "pauses": (4, self.pause),
            "zombies": (4, self.zombie),
            "races": (2, self.race),
            "flips": (1, self.flip),
        }

    def trial(self) -> tuple[str, int, list[str]]:
        names = list(self.kinds)
        (name,) = self.draw.choices(names, [self.kinds[name][0] for name in names])
        return name, *self.kinds[name][1]()

    def point(self, *beginnings: str) -> str:
        return self.draw.choice(self.reference.some(*beginnings or ("",)))

    def kill(self) -> tuple[int, list[str]]:
        return 1, killed(self.lab, self.reference, self.point(), also=self.point())

    def kill_at_times(self) -> tuple[int, list[str]]:
        delays = [self.draw.uniform(0.02, 0.8) * self.reference.took for _ in range(2)]
        return 1, killed_at_times(self.lab, self.reference, delays)

    def kill_on_the_way(self) -> tuple[int, list[str]]:
        points = self.draw.choices(self.journey.points, k=2)
        return 1, journeys.killed_on_the_way(self.lab, self.journey, *points)

    def end(self) -> tuple[int, list[str]]:
        actions: tuple[Action, ...] = ("term", "int")
        action = self.draw.choice(actions)
        return 1, ended_politely(self.lab, self.reference, self.point("after c", "before commit", "step", "op"), action)

    def pause(self) -> tuple[int, list[str]]:
        modes: tuple[PauseMode, ...] = ("finish", "abort")
        point = self.point("after c", "before commit", "step", "op")
        return 1, paused(self.lab, self.reference, point, self.draw.choice(modes))

    def zombie(self) -> tuple[int, list[str]]:
        point, overtake = self.point("step", "op", "before commit"), self.draw.choice(("ended", "claimed"))
        return 1, zombie(self.lab, self.reference, point, overtake, self.draw.choice((0.005, SLOW)))

    def race(self) -> tuple[int, list[str]]:
        return 10, races(self.lab, self.draw.randint(2, 8), 10, self.draw.choice(("start", "resume")))

    def flip(self) -> tuple[int, list[str]]:
        wrong, _ = flips(self.lab, 16, 20)
        return 320, wrong


@contextmanager
def fresh_lab(server: ForkServer) -> Iterator[Lab]:
    """Open a lab with its own database."""
    with scratch() as folder, Lab(server, folder) as lab:
        yield lab


def run(tally: Tally) -> None:
    """Run trials, at least one. Every database serves many of them."""
    with ForkServer("tests.faults.jobs") as server:
        while True:
            with fresh_lab(server) as lab:
                processes = Processes(lab, tally.draw)
                for _ in range(TRIALS_PER_DATABASE):
                    kills = lab.kills
                    name, count, wrong = processes.trial()
                    tally.done[name] += count
                    tally.done["processes that were killed"] += lab.kills - kills
                    for text in wrong:
                        tally.fail(f"{name}: {text}", fault_of(text))
                    if not tally.has_time():
                        return


SIGNS: dict[Fault, tuple[str, ...]] = {
    "doubled": ("run twice", "run again", "run more than once", "has two signals"),
    "lost": ("is lost", "was acknowledged, the log ends", "never run"),
}
"""What the complaints of the verdicts say, by the kind of fault."""


def fault_of(complaint: str) -> Fault:
    """Return the kind of fault that a complaint of the verdicts describes."""
    return next((fault for fault, signs in SIGNS.items() if any(sign in complaint for sign in signs)), "other")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
