"""The reference interpreter: runs a program in plain Python, without an engine, a store or a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tests.faults.interpreter.program import (
    Ask,
    Body,
    Box,
    Call,
    Do,
    Fork,
    If,
    Map,
    Nest,
    Program,
    Receive,
    Refused,
    Repeat,
    SafePoint,
    Sleep,
    Statement,
)

Place = tuple[str, str, int]
"""A visit: the path of the session, the step and the number of the visit."""


def mixed(total: int, text: str) -> int:
    """Return the result of an operation: a number that depends on everything before it."""
    return (total * 31 + crc32(text.encode())) % 9973


def joined(total: int, parts: Sequence[int]) -> int:
    """Return the total after branches or items that ran side by side."""
    for part in parts:
        total = (total * 17 + part + 1) % 9973
    return total


def message(number: int) -> int:
    """Return the content of the message that a session receives as its ``number``th."""
    return number * 37 % 101


def answer(question: str) -> int:
    """Return the answer that a person gives to a question."""
    return crc32(question.encode()) % 97


@dataclass
class Expected:
    """Everything that the engine must agree with, for one session and its children."""

    operations: Counter[tuple[Place, str, int | None]] = field(default_factory=Counter)
    states: Counter[tuple[str, int, tuple[str, ...]]] = field(default_factory=Counter)
    boxes: Counter[tuple[Place, str, int]] = field(default_factory=Counter)
    points: int = 0  # how many steps and operations begin
    cents: int = 0


@dataclass
class _Scope:
    """The operation that a statement runs in, and the keys that were used there."""

    place: Place
    keys: set[tuple[str, int]] = field(default_factory=set)


class Reference:
    """Interprets the programs of one trial."""

    def __init__(self, children: Sequence[Program]) -> None:
        self.children = children
        self.expected = Expected()
        self.received: Counter[str] = Counter()
        self.boxed: list[int] = []

    def run(self, program: Program, path: str, total: int = 0) -> int:
        """Run all steps of a program, and return its total."""
        visits: Counter[int] = Counter()
        log: list[str] = []
        at = 0
        while at < len(program.steps):
            spec, name = program.steps[at], f"step{at}"
            visits[at] += 1
            if not (spec.skipped_if and total % spec.skipped_if == 0):
                self.expected.points += 1
                total = self.play(spec.body, total, _Scope((path, name, visits[at])))
                log.append(f"{name}#{visits[at]}={total}")
            jump = spec.jump
            if jump is not None and (visits[at] <= jump.times if jump.times else total % 2):
                at = jump.to
            else:
                at += 1
        self.expected.states[path, total, tuple(log)] += 1
        return total

    def play(self, body: Body, total: int, scope: _Scope) -> int:
        for statement in body:
            total = self.statement(statement, total, scope)
        return total

    def statement(self, statement: Statement, total: int, scope: _Scope) -> int:
        match statement:
            case Do():
                return self.operation(statement, total, scope)
            case Refused(label):
                self.expected.points += 1
                return mixed(total, f"no {label}")
            case Nest(label, body):
                return self.finished(label, self.play(body, self.begun(label, total), _Scope(scope.place)), scope)
            case Map():
                return self.fan_out(statement, total, scope)
            case Fork(branches):
                return joined(total, [self.play(branch, total, scope) for branch in branches])
            case Repeat(times, body):
                for _ in range(times):
                    total = self.play(body, total, scope)
                return total
            case If(modulus, then, otherwise):
                return self.play(otherwise if total % modulus else then, total, scope)
            case Box(label, body):
                return self.boxing(label, body, total, scope)
            case Call(label, child):
                name = self.children[child].name
                self.record(f"call:{name}", None, scope)
                return self.run(self.children[child], f"{scope.place[0]}/{label}.{total}", total)
            case Ask(label):
                return joined(total, [self.record("ask", answer(f"{scope.place[0]} {label} {total}"), scope)])
            case Receive():
                self.received[scope.place[0]] += 1
                return joined(total, [self.record("receive", message(self.received[scope.place[0]]), scope)])
            case Sleep():
                self.record("sleep", None, scope)
                return total
            case SafePoint():
                return total

    def record(self, name: str, value: Any, scope: _Scope) -> Any:
        self.expected.operations[scope.place, name, value] += 1
        return value

    def begun(self, label: str, total: int) -> int:
        self.expected.points += 1
        self.boxed = [count + 1 for count in self.boxed]
        return mixed(total, label)

    def finished(self, label: str, total: int, scope: _Scope) -> int:
        return int(self.record(label, total, scope))

    def operation(self, do: Do, total: int, scope: _Scope) -> int:
        if do.keyed:
            if (do.label, total) in scope.keys:
                return mixed(total, do.label)  # remembered under the same key
            scope.keys.add((do.label, total))
        self.expected.cents += do.spends
        return self.finished(do.label, self.begun(do.label, total), scope)

    def fan_out(self, fan: Map, total: int, scope: _Scope) -> int:
        results = []
        for item in range(fan.items):
            if item in fan.refused:
                self.expected.points += 1
                results.append(-1)
                continue
            value = self.play(fan.body, self.begun(f"{fan.label}.{item}", total), _Scope(scope.place))
            results.append(self.finished(fan.label, value, scope))
        return joined(total, results)

    def boxing(self, label: str, body: Body, total: int, scope: _Scope) -> int:
        self.boxed.append(0)
        result = self.play(body, total, scope)
        self.expected.boxes[scope.place, label, self.boxed.pop()] += 1
        return result
