"""Everything outside the engine: the workflows that run a program for real, and a record of what began and when.

The record is independent of the store. It says which operations began although they were committed, and what began
while everything was supposed to be paused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from pausepoint import Append, Context, Merge, Retry, Workflow, route, step
from pausepoint.errors import ChildFailed
from pausepoint.log.replay import OperationBody, body_of
from pausepoint.model.commits import Commit, Flags
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.interpreter.program import (
    NAP,
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
from tests.faults.interpreter.reference import joined, mixed
from tests.support.mortal import MortalStore

Key = tuple[str, str, int, str]
"""An operation: the session, the step, the visit and the id under which the engine remembers it."""


class Trouble(Exception):
    """An error of the program itself."""


class Page(BaseModel):
    """The state of every program."""

    path: str
    total: int = 0
    log: Annotated[list[str], Append] = []
    rounds: Annotated[dict[str, int], Merge] = {}


class OpenBox:
    """An open resource. It lives only in memory, so it shows whether a step continued in place."""

    def __init__(self) -> None:
        self.count = 0  # operations that began while it was open
        self.is_open = True


class WitnessedStore(MortalStore):
    """A store that can die, and reports the operations that it has committed and the steps that are held."""

    world: World

    async def commit(self, commit: Commit) -> Flags | None:
        return await self._write(lambda: self._commit(commit))

    async def _commit(self, commit: Commit) -> Flags | None:
        flags = await SqliteStore.commit(self, commit)
        if flags is not None:
            self.world.note_commit(commit)
            self.world.held += commit.kept
        return flags

    async def claim(self, *args: Any, **options: Any) -> SessionRow:
        row = await super().claim(*args, **options)
        self.world.fences[row.key] = row.fence
        return row

    async def unkeep(self, key: int, fence: int) -> None:
        self.world.let_go += 1  # before others can see that the step is not kept
        await super().unkeep(key, fence)


class World:
    """The outside of one trial."""

    def __init__(self, children: Sequence[Program], at_point: Callable[[Context], asyncio.Event | None]) -> None:
        self.at_point = at_point
        self.children = [self.workflow(child) for child in children]
        self.begun: Counter[Key] = Counter()
        self.committed: Counter[tuple[int, str, int, str]] = Counter()  # by the session's key in the store
        self.doubled: list[Key] = []
        self.fences: Counter[int] = Counter()  # by the session's key: the fence of the last claim
        self.zombies = 0
        self.intruders: list[str] = []
        self.troubles: Counter[Key] = Counter()
        self.boxes: Counter[tuple[tuple[str, str, int], str, int]] = Counter()
        self.paused: set[str] = set()  # the root sessions in which nothing may begin
        self.points = 0
        self.held = 0  # how often a step was held in place
        self.let_go = 0  # how often a held step exited, because its time was over or its engine needed it no more

    # what began

    def note_commit(self, commit: Commit) -> None:
        for record in commit.records:
            body = body_of(record)
            if isinstance(body, OperationBody):
                self.committed[commit.key, record.step, record.visit, body.id] += 1

    def may_run(self, session_id: str) -> bool:
        return session_id.partition(".")[0] not in self.paused

    async def begin(self, ctx: Context, what: str) -> None:
        """Begin a step or an operation, which may be the point of a fault."""
        await self.alive(ctx)
        self.points += 1
        if not self.may_run(ctx.session_id):
            self.intruders.append(f"{ctx.session_id} {ctx.step}#{ctx.visit} {what}".rstrip())
        if what:
            self._begin_operation(ctx)
        if (released := self.at_point(ctx)) is not None:
            await released.wait()
        await self.alive(ctx)

    def _begin_operation(self, ctx: Context) -> None:
        scope = ctx._frame.scope
        key = (ctx.session_id, ctx.step, ctx.visit, scope)
        self.begun[key] += 1
        host = ctx._visit.host
        if (host.row.key, ctx.step, ctx.visit, scope) not in self.committed:
            return
        if host.fence < self.fences[host.row.key]:
            self.zombies += 1  # it does not know yet that the session was taken over, and cannot commit anything
        else:
            self.doubled.append(key)

    async def alive(self, ctx: Context) -> None:
        """Never return in a process that has died."""
        store = ctx._visit.host.ledger.store
        if isinstance(store, MortalStore) and store.dead:
            await asyncio.Event().wait()

    # the workflows

    def workflow(self, program: Program) -> Workflow[Page]:
        """Return the workflow that runs a program."""
        count = len(program.steps)
        steps = [self._step(program, index) for index in range(count)]
        routes = [_route(program, index) for index in range(count) if program.steps[index].jump is not None]
        return Workflow(program.name, state=Page, steps=steps, routes=routes)

    def _step(self, program: Program, index: int) -> Any:
        spec = program.steps[index]

        def wanted(total: int) -> bool:
            return total % spec.skipped_if != 0

        @step(
            name=f"step{index}", writes=["total", "log", "rounds"], pause=spec.pause,
            retry=Retry(attempts=spec.attempts, first=0.001, on=(Trouble, ChildFailed)),
            when=wanted if spec.skipped_if else None,
        )  # fmt: skip
        async def run(total: int, path: str, ctx: Context) -> dict[str, object]:
            await self.begin(ctx, "")
            total = await Playing(self, path, ctx, ()).play(spec.body, total)
            await self.alive(ctx)
            return {"total": total, "log": [f"{ctx.step}#{ctx.visit}={total}"], "rounds": {ctx.step: ctx.visit}}

        return run


def _route(program: Program, index: int) -> Any:
    jump, names = program.steps[index].jump, [f"step{number}" for number in range(len(program.steps))]
    assert jump is not None

    def name(number: int) -> str | None:
        return names[number] if number < len(names) else None

    def choose(total: int, rounds: dict[str, int]) -> str | None:
        goes = rounds.get(names[index], 0) <= jump.times if jump.times else total % 2
        return name(jump.to) if goes else name(index + 1)

    targets = tuple({name(jump.to), name(index + 1)})
    choose.__annotations__ = {"total": int, "rounds": dict[str, int], "return": Literal[targets]}
    return route(after=names[index])(choose)


class Playing:
    """Runs statements with one context: that of a step, of an operation or of a map item."""

    def __init__(self, world: World, path: str, ctx: Context, boxes: tuple[OpenBox, ...]) -> None:
        self.world = world
        self.path = path
        self.ctx = ctx
        self.boxes = boxes

    async def play(self, body: Body, total: int) -> int:
        for statement in body:
            total = await self.statement(statement, total)
        return total

    async def statement(self, statement: Statement, total: int) -> int:
        ctx = self.ctx
        match statement:
            case Do(label):
                key = str(total) if statement.keyed else None
                return await ctx.do(self._operation(statement, label), total, key=key)
            case Refused(label):
                return await self._refused(label, total)
            case Nest(label, body):
                return await ctx.do(self._nest(label, body), total)
            case Map():
                return await self._map(statement, total)
            case Fork():
                return joined(total, await self._side_by_side(statement, total))
            case Repeat(times, body):
                for _ in range(times):
                    total = await self.play(body, total)
                return total
            case If(modulus, then, otherwise):
                return await self.play(otherwise if total % modulus else then, total)
            case Box(label, body):
                async with self._open(label) as box:
                    return await Playing(self.world, self.path, ctx, (*self.boxes, box)).play(body, total)
            case Call(label, child):
                given = Page(path=f"{self.path}/{label}.{total}", total=total)
                return (await ctx.call(self.world.children[child], given)).total
            case Ask(label):
                return joined(total, [await ctx.ask(f"{self.path} {label} {total}", int, expires=None)])
            case Receive():
                return joined(total, [await ctx.receive(int)])
            case Sleep():
                await ctx.sleep(NAP)
                return total
            case SafePoint():
                await ctx.safe_point()
                return total

    async def begin(self, ctx: Context, label: str) -> None:
        """Begin an operation, and count it in the boxes that are open around it."""
        for box in self.boxes:
            box.count += 1
            assert box.is_open, f"{label} began in a box that is closed"
        await self.world.begin(ctx, label)

    def fails(self, ctx: Context, times: int) -> bool:
        """Return whether this run of an operation must fail. Each operation fails at most ``times`` times."""
        key = (ctx.session_id, ctx.step, ctx.visit, ctx._frame.scope)
        self.world.troubles[key] += 1
        return self.world.troubles[key] <= times

    def _operation(self, do: Do, label: str) -> Any:
        async def operation(total: int, ctx: Context) -> int:
            await self.begin(ctx, label)
            for _ in range(do.ticks):
                await asyncio.sleep(0)
            if do.fails and self.fails(ctx, do.fails):
                raise Trouble(label)
            await self.world.alive(ctx)
            if do.spends:
                ctx.spend(usd=0.01)
            return mixed(total, label)

        return _named(operation, label)

    async def _refused(self, label: str, total: int) -> int:
        async def operation(total: int, ctx: Context) -> int:
            await self.world.begin(ctx, label)
            raise Trouble(label)

        try:
            await self.ctx.do(_named(operation, label), total)
        except Trouble:
            return mixed(total, f"no {label}")
        raise AssertionError(f"{label} must raise")

    def _nest(self, label: str, body: Body) -> Any:
        async def operation(total: int, ctx: Context) -> int:
            await self.begin(ctx, label)
            inner = Playing(self.world, self.path, ctx, self.boxes)
            total = await inner.play(body, mixed(total, label))
            await self.world.alive(ctx)
            return total

        return _named(operation, label)

    async def _map(self, fan: Map, total: int) -> int:
        items = [[item, total] for item in range(fan.items)]
        if not fan.refused:
            results = await self.ctx.map(self._item(fan), items, concurrency=fan.concurrency)
            return joined(total, results)
        batch = await self.ctx.map(self._item(fan), items, concurrency=fan.concurrency, on_error="collect")
        assert all(isinstance(error, Trouble) for error in batch.failed.values()), batch.failed
        return joined(total, [batch.done.get(item, -1) for item in range(fan.items)])

    def _item(self, fan: Map) -> Any:
        async def item(given: list[int], ctx: Context) -> int:
            number, total = given
            if number in fan.refused:
                await self.world.begin(ctx, fan.label)
                raise Trouble(fan.label)
            await self.begin(ctx, fan.label)
            if number == 0 and fan.fails and self.fails(ctx, fan.fails):
                raise Trouble(fan.label)
            inner = Playing(self.world, self.path, ctx, self.boxes)
            total = await inner.play(fan.body, mixed(total, f"{fan.label}.{number}"))
            await self.world.alive(ctx)
            return total

        return _named(item, fan.label)

    async def _side_by_side(self, fork: Fork, total: int) -> list[int]:
        branches = [self.play(branch, total) for branch in fork.branches]
        if not fork.group:
            return list(await asyncio.gather(*branches))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch) for branch in branches]
        return [task.result() for task in tasks]

    @asynccontextmanager
    async def _open(self, label: str) -> AsyncIterator[OpenBox]:
        box = OpenBox()
        place = (self.path, self.ctx.step, self.ctx.visit)
        try:
            yield box
        finally:
            box.is_open = False
            self.world.boxes[place, label, box.count] += 1


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    return function
