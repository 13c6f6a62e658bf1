"""Trials: programs together with the faults under which the engine runs them. All of it is drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, get_args

from tests.faults.interpreter.program import Call, Drawing, Program, inside, render, smaller
from tests.faults.interpreter.reference import Expected, Reference

Kind = Literal["crash", "doom", "close", "steal", "pause", "everything"]
Then = Literal["withdraw", "rest", "outlast", "crash", "close", "change", "abort", "pause again"]


@dataclass(frozen=True)
class Fault:
    """A fault at the ``at``th point of a trial. A point is the beginning of a step or of an operation.

    - ``crash``: the process dies there; ``doom``: it dies ``writes`` writes later, before or ``after`` that write.
    - ``close``: the engine is closed. ``steal``: another engine takes the session over.
    - ``pause``: of the session, or of ``everything``. ``then`` says what happens before it is resumed.
    """

    at: int
    kind: Kind
    then: Then = "rest"
    wait: bool = False
    mode: Literal["finish", "abort"] = "finish"
    freeze: bool = False
    early: bool = False  # the operation at the point does not wait until the fault has happened
    asked_elsewhere: bool = False
    resumed_elsewhere: bool = False
    here: bool = True
    lasts: int = 2  # how often people look after the other sessions before the pause is withdrawn
    writes: int = 0
    after: bool = False


@dataclass(frozen=True)
class Trial:
    """Sessions that run side by side on one store, the programs of their children, and the faults.

    ``gentle``: nothing happens but pauses that are withdrawn in time, so every step must continue in place.
    """

    roots: tuple[Program, ...]
    children: tuple[Program, ...]
    faults: tuple[Fault, ...]
    hold: float
    engines: int = 2
    gentle: bool = False

    def expected(self) -> list[Expected]:
        """Return what the reference interpreter says, by session."""
        results = []
        for number, program in enumerate(self.roots):
            reference = Reference(self.children)
            reference.run(program, f"s{number}", number + 1)
            results.append(reference.expected)
        return results

    def called(self) -> list[Program]:
        """Return the children that the programs call, directly or not."""
        found: list[Program] = []
        for program in (*self.roots, *self.children):  # a child calls only children after it
            if program in self.roots or program in found:
                calls = [each.child for spec in program.steps for each in inside(spec.body) if isinstance(each, Call)]
                found += [self.children[number] for number in calls if self.children[number] not in found]
        return found

    def __str__(self) -> str:
        texts = [render(program) for program in (*self.roots, *self.called())]
        given = f"hold={self.hold:g}, engines={self.engines}, gentle={self.gentle}"
        return "\n".join((given, *texts, *(f"  {fault}" for fault in self.faults)))


LONG, SHORT, NONE = 600.0, 0.01, 0.0
POINTS = 120
"""The most steps and operations of a trial. A longer one, or one that does next to nothing, is drawn again."""


def draw(seed: str, most: int = POINTS) -> Trial:
    """Return the trial of a seed."""
    random = Random(seed)
    while True:
        drawing = Drawing(random)
        count = random.randint(0, 2)
        children = tuple(drawing.program(f"child{index}", 2, range(index + 1, count)) for index in range(count))
        roots = tuple(drawing.program(f"root{index}", 4, range(count)) for index in range(random.choice((1, 1, 2, 3))))
        gentle = random.randrange(4) == 0
        hold = LONG if gentle else random.choice((LONG, LONG, SHORT, SHORT, NONE))
        trial = Trial(roots, children, (), hold, random.randint(1, 3), gentle)
        points = sum(each.points for each in trial.expected())
        if 3 <= points <= most:
            break
    faults = [draw_fault(random, points, gentle) for _ in range(random.randint(1, 6))]
    return replace(trial, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def draw_fault(random: Random, points: int, gentle: bool) -> Fault:
    kinds: tuple[Kind, ...] = ("pause", "pause", "everything")
    thens: tuple[Then, ...] = ("withdraw", "rest", "rest", "pause again")
    if not gentle:
        kinds = (*kinds, "crash", "crash", "doom", "doom", "close", "steal")
        thens = (*thens, "outlast", *get_args(Then))

    def maybe(one_in: int) -> bool:
        return random.randrange(one_in) == 0

    return Fault(
        at=random.randint(1, points), kind=random.choice(kinds), then=random.choice(thens), wait=maybe(2),
        mode="abort" if not gentle and maybe(6) else "finish", freeze=maybe(4), early=maybe(2),
        asked_elsewhere=maybe(2), resumed_elsewhere=maybe(2), here=not maybe(4), lasts=random.randrange(4),
        writes=random.randrange(6), after=maybe(2),
    )  # fmt: skip


def shorter(trial: Trial) -> Iterator[Trial]:
    """Yield trials that are one cut shorter."""
    for index in range(len(trial.roots) if len(trial.roots) > 1 else 0):
        yield replace(trial, roots=(*trial.roots[:index], *trial.roots[index + 1 :]))
    for index in range(len(trial.faults)):
        yield replace(trial, faults=(*trial.faults[:index], *trial.faults[index + 1 :]))
    for index, program in enumerate(trial.roots):
        for less in smaller(program):
            yield replace(trial, roots=(*trial.roots[:index], less, *trial.roots[index + 1 :]))
    for index, program in enumerate(trial.children):
        for less in smaller(program):
            yield replace(trial, children=(*trial.children[:index], less, *trial.children[index + 1 :]))
    for index, fault in enumerate(trial.faults):
        if fault.at > 1:
            earlier = replace(fault, at=fault.at // 2)
            yield replace(trial, faults=(*trial.faults[:index], earlier, *trial.faults[index + 1 :]))
