"""Random programs: what their steps do, as plain data, and how to draw, print and shorten them.

A program is a list of steps. The body of a step is a list of statements. Every statement takes a number, the
*total* so far, and gives another one, so a result that is lost, doubled or taken from elsewhere changes the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Literal

NAP = 100.0
"""Seconds that a program sleeps. Only a trial advances the clock."""


@dataclass(frozen=True)
class Do:
    """One operation. The first ``fails`` of its runs raise an error."""

    label: str
    keyed: bool = False
    ticks: int = 0
    fails: int = 0
    spends: bool = False


@dataclass(frozen=True)
class Refused:
    """An operation that always raises an error, which the step catches."""

    label: str


@dataclass(frozen=True)
class Nest:
    """An operation that runs other operations with its own context."""

    label: str
    body: Body


@dataclass(frozen=True)
class Map:
    """A fan-out. Each item runs the body. Items in ``refused`` always fail; their errors are collected."""

    label: str
    items: int
    concurrency: int
    body: Body = ()
    refused: tuple[int, ...] = ()
    fails: int = 0


@dataclass(frozen=True)
class Fork:
    """Branches that run side by side, in a task group or in ``asyncio.gather``."""

    branches: tuple[Body, ...]
    group: bool = True


@dataclass(frozen=True)
class Repeat:
    times: int
    body: Body


@dataclass(frozen=True)
class If:
    """Choose a body by the total so far."""

    modulus: int
    then: Body
    otherwise: Body


@dataclass(frozen=True)
class Box:
    """A resource that is open while the body runs (``async with``)."""

    label: str
    body: Body


@dataclass(frozen=True)
class Call:
    """Run another program of the trial as a child session."""

    label: str
    child: int


@dataclass(frozen=True)
class Ask:
    label: str


@dataclass(frozen=True)
class Receive:
    """Wait for the next message."""


@dataclass(frozen=True)
class Sleep:
    """Wait for a timer."""


@dataclass(frozen=True)
class SafePoint:
    """Let a pause take effect."""


Statement = Do | Refused | Nest | Map | Fork | Repeat | If | Box | Call | Ask | Receive | Sleep | SafePoint
Body = tuple[Statement, ...]
WAITS = (Call, Ask, Receive, Sleep)


@dataclass(frozen=True)
class Jump:
    """A route after a step: back to a step for the first ``times`` visits, or forward if the total is odd."""

    to: int
    times: int = 0


@dataclass(frozen=True)
class StepSpec:
    body: Body
    pause: Literal["operation", "step"] = "operation"
    attempts: int = 3
    skipped_if: int = 0  # skip the step if this number, above 1, divides the total
    jump: Jump | None = None


@dataclass(frozen=True)
class Program:
    """A workflow. The name of a step is ``step`` and its index."""

    name: str
    steps: tuple[StepSpec, ...]


def bodies(statement: Statement) -> tuple[Body, ...]:
    """Return the bodies inside a statement."""
    match statement:
        case Fork(branches):
            return branches
        case If(_, then, otherwise):
            return then, otherwise
        case Nest() | Map() | Repeat() | Box():
            return (statement.body,)
        case _:
            return ()


def inside(body: Body) -> Iterator[Statement]:
    """Yield all statements of a body, including those inside of others."""
    for statement in body:
        yield statement
        for inner in bodies(statement):
            yield from inside(inner)


def may_fail(body: Body) -> bool:
    """Return whether an error can end the body before its end. A child can fail, too."""
    return any(isinstance(each, Call) or getattr(each, "fails", 0) for each in inside(body))


def waits(body: Body) -> bool:
    """Return whether a step with this body may be parked at a wait, and then starts again at its top."""
    return any(isinstance(each, WAITS) for each in inside(body))


# drawing


class Drawing:
    """Draws programs. Labels are unique within one drawing."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.labels = 0

    def label(self, letter: str) -> str:
        self.labels += 1
        return f"{letter}{self.labels}"

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def program(self, name: str, size: int, children: range) -> Program:
        """Draw a program that may call the children with these numbers."""
        count = self.random.randint(1, size)
        return Program(name, tuple(self.step(index, count, children) for index in range(count)))

    def step(self, index: int, count: int, children: range) -> StepSpec:
        body = self.body(2, children, can_fail=not self.chance(3), can_wait=not self.chance(3), alone=True)
        if not may_fail(body):
            body = self.spending(body)
        jump = self.jump(index, count) if self.chance(2) else None
        skips = self.random.choice((2, 3)) if self.chance(5) and (jump is None or not jump.times) else 0
        return StepSpec(
            body, self.random.choice(("operation", "operation", "step")), self.random.randint(1, 4), skips, jump
        )

    def jump(self, index: int, count: int) -> Jump:
        if self.chance(2):
            return Jump(self.random.randint(0, index), self.random.randint(1, 2))
        return Jump(self.random.randint(index + 1, count))

    def spending(self, body: Body) -> Body:
        """Let some operations of a body spend money. In steps that can fail, every attempt would spend again."""
        return tuple(replace(each, spends=True) if isinstance(each, Do) and self.chance(3) else each for each in body)

    def body(self, depth: int, children: range, *, can_fail: bool, can_wait: bool, alone: bool) -> Body:
        """Draw a body. ``alone``: no other branch runs at the same time, so the order of messages is known."""
        count = self.random.randint(1, 4 - depth // 2)
        return tuple(self.statement(depth, children, can_fail, can_wait, alone) for _ in range(count))

    def statement(self, depth: int, children: range, can_fail: bool, can_wait: bool, alone: bool) -> Statement:
        random = self.random

        def body(alone: bool = alone, can_wait: bool = can_wait, can_fail: bool = can_fail) -> Body:
            return self.body(depth - 1, children, can_fail=can_fail, can_wait=can_wait, alone=alone)

        simple = ["do"] * 8 + ["refused", "point"]
        waiting = ["ask", "sleep"] + ["receive"] * alone + ["call"] * 2 * bool(children)
        nested = ["nest", "map", "fork", "fork", "repeat", "if", "box", "box"]
        match random.choice(simple + waiting * can_wait + nested * (depth > 0)):
            case "do":
                fails = random.randint(1, 2) if can_fail and self.chance(5) else 0
                return Do(self.label("d"), self.chance(4), random.randrange(4), fails)
            case "refused":
                return Refused(self.label("r"))
            case "point":
                return SafePoint()
            case "ask":
                return Ask(self.label("q"))
            case "sleep":
                return Sleep()
            case "receive":
                return Receive()
            case "call":
                return Call(self.label("c"), random.choice(children))
            case "nest":
                return Nest(self.label("n"), body())
            case "map":
                items = random.randint(1, 5)
                refused = tuple(item for item in range(items) if self.chance(5))
                fails = random.randint(1, 2) if can_fail and not refused and self.chance(4) else 0
                inner = body(alone=False, can_fail=False) if self.chance(2) else ()
                return Map(self.label("m"), items, random.randint(1, 3), inner, refused, fails)
            case "fork":
                branches = tuple(body(alone=False) for _ in range(random.randint(2, 3)))
                return Fork(branches, any(map(may_fail, branches)) or self.chance(2))
            case "repeat":
                return Repeat(random.randint(2, 3), body())
            case "if":
                return If(random.choice((2, 3)), body(), body())
            case _:
                return Box(self.label("b"), body(can_wait=can_wait and self.chance(4)))


# printing


def render(program: Program) -> str:
    """Return a program as text, one statement per line."""
    lines = [f"program {program.name}:"]
    for index, spec in enumerate(program.steps):
        jump = f", {_jump(spec.jump)}" if spec.jump else ""
        skips = f", skipped if the total is divisible by {spec.skipped_if}" if spec.skipped_if else ""
        lines.append(f"  step{index} (pause={spec.pause!r}, attempts={spec.attempts}{skips}{jump}):")
        lines += _lines(spec.body, "    ")
    return "\n".join(lines)


def _jump(jump: Jump) -> str:
    return f"back to step{jump.to} {jump.times} times" if jump.times else f"to step{jump.to} if the total is odd"


def _lines(body: Body, indent: str) -> Iterator[str]:
    for statement in body or (None,):
        if statement is None:
            yield f"{indent}pass"
            continue
        shown = [
            f"{each.name}={getattr(statement, each.name)!r}"
            for each in fields(statement)
            if each.name not in ("body", "branches", "then", "otherwise")
        ]
        yield f"{indent}{type(statement).__name__}({', '.join(shown)})"
        for number, inner in enumerate(bodies(statement)):
            if number:
                yield f"{indent}  --"
            yield from _lines(inner, indent + "  ")


# shortening


def smaller(program: Program) -> Iterator[Program]:
    """Yield programs that are one cut smaller, the biggest cuts first."""
    for index in range(len(program.steps) - 1, -1, -1):
        if len(program.steps) > 1:
            yield replace(program, steps=_without(program.steps, index))
    for index, spec in enumerate(program.steps):
        for less in _smaller_step(spec):
            yield replace(program, steps=(*program.steps[:index], less, *program.steps[index + 1 :]))


def _without(steps: tuple[StepSpec, ...], index: int) -> tuple[StepSpec, ...]:
    """Remove a step, and move the jumps so that they stay inside the program."""
    kept = []
    for number, spec in enumerate((*steps[:index], *steps[index + 1 :])):
        jump = spec.jump
        if jump is not None:
            jump = replace(
                jump, to=min(jump.to, number) if jump.times else max(jump.to - (jump.to > index), number + 1)
            )
        kept.append(replace(spec, jump=jump))
    return tuple(kept)


def _smaller_step(spec: StepSpec) -> Iterator[StepSpec]:
    if spec.jump is not None:
        yield replace(spec, jump=None)
    if spec.skipped_if:
        yield replace(spec, skipped_if=0)
    for less in _smaller_body(spec.body):
        yield replace(spec, body=less)


def _smaller_body(body: Body) -> Iterator[Body]:
    for index in range(len(body)):
        yield (*body[:index], *body[index + 1 :])
    for index, statement in enumerate(body):
        for instead in _smaller_statement(statement):
            yield (*body[:index], *instead, *body[index + 1 :])


def _smaller_statement(statement: Statement) -> Iterator[Body]:
    yield from (inner for inner in bodies(statement) if inner)
    match statement:
        case Fork(branches):
            for index, branch in enumerate(branches):
                for less in _smaller_body(branch):
                    yield (replace(statement, branches=(*branches[:index], less, *branches[index + 1 :])),)
        case If(_, then, otherwise):
            yield from ((replace(statement, then=less),) for less in _smaller_body(then))
            yield from ((replace(statement, otherwise=less),) for less in _smaller_body(otherwise))
        case Map(items=items) if items > 1:
            yield (replace(statement, items=items - 1),)
            yield from ((replace(statement, body=less),) for less in _smaller_body(statement.body))
        case Nest() | Repeat() | Box() | Map():
            yield from ((replace(statement, body=less),) for less in _smaller_body(statement.body))
        case Do(fails=fails) if fails:
            yield (replace(statement, fails=0),)
        case _:
            return
