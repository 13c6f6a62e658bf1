"""Guest sessions: the step's code is a block of the user's own program, and runs in the user's own task.

The drive of a guest is an ordinary one in a task of its own. Its step waits until the block has ended. If the step must
exit, the block hears of it: an operation that waits raises `StepExited`, and so does every later one. If the block's
task waits for other tasks instead, it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from pausepoint.definition.workflow import BoundStep
from pausepoint.errors import StepExited
from pausepoint.runtime.blocking import BlockingContext
from pausepoint.runtime.context import Context
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.visit import Frame, Visit, Wait

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound="BaseModel")


class GuestContext(Context, Generic[S]):
    """The context of a guest session. ``state`` is its state at the start of the block.

    ``output`` are the fields that the end of the block writes, by name.
    """

    __slots__ = ("output", "state")

    def __init__(self, visit: Visit, frame: Frame, state: S) -> None:
        super().__init__(visit, frame)
        self.state = state
        self.output: dict[str, Any] = {}


class BlockingGuestContext(BlockingContext, Generic[S]):
    """The context of a guest session in blocking code. ``state`` and ``output`` are those of `GuestContext`."""

    __slots__ = ("output", "state")

    def __init__(self, visit: Visit, frame: Frame, state: S) -> None:
        super().__init__(visit, frame)
        self.state = state
        self.output: dict[str, Any] = {}


class Block:
    """The block of one visit. ``task`` runs it; None before the block has begun, and if a thread runs it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.task: asyncio.Task[Any] | None = None
        self.entered: asyncio.Future[tuple[Visit, Any]] = loop.create_future()
        self.ended: asyncio.Future[dict[str, Any] | None] = loop.create_future()
        self.exited = False  # the engine has made the step exit
        self.cancels = 0  # how often the engine has cancelled the task
        self.error: Exception | None = None  # why the session failed at the end of the block

    async def run(self, drive: GuestDrive, state: Any) -> dict[str, Any] | None:
        """Wait until the block has ended, and return its output. This is the code of the step."""
        assert drive.visit is not None
        visit = drive.visit
        self.entered.set_result((visit, state))
        try:
            return await self.ended
        except asyncio.CancelledError:
            self._exit(visit, abort=drive.interrupter.why != "exit")
            raise

    def end(self, output: dict[str, Any] | None, error: Exception | None = None) -> None:
        """End the step with the block's output, or with its error. Do nothing if the step has exited already."""
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(output)
        else:
            self.ended.set_exception(error)

    def _exit(self, visit: Visit, abort: bool) -> None:
        """Make the block hear that its step has exited."""
        self.exited = True
        hears = isinstance(visit, GuestVisit) and self.task in visit.stopped
        others = [*visit.halted, *visit.waits]
        for future in others:
            future.cancel()
        # A shutdown stops no operation. The block's own code continues until its next operation, or its end.
        if self.task is not None and not hears and (others or abort):
            self.cancels += 1
            self.task.cancel()


class GuestVisit(Visit):
    """A visit whose code runs in another task than its drive."""

    def __init__(self, host: Drive, step: BoundStep, number: int, attempt: int) -> None:
        super().__init__(host, step, number, attempt)
        assert isinstance(host, GuestDrive)
        self.block = host.block
        self.stopped: set[asyncio.Task[Any] | None] = set()  # tasks in operations that are halted or wait

    def check_open(self) -> None:
        if self.exited and self.block.exited:
            raise self._exit()
        super().check_open()

    async def halt(self, frame: Frame) -> None:
        await self._stop(super().halt(frame))

    async def wait(self, frame: Frame, *waits: Wait) -> None:
        await self._stop(super().wait(frame, *waits))

    async def _stop(self, work: Awaitable[None]) -> None:
        task = asyncio.current_task()
        self.stopped.add(task)
        try:
            await work
        except asyncio.CancelledError:
            if task is self.block.task and self.block.exited and task is not None and not task.cancelling():
                raise self._exit() from None
            raise
        finally:
            self.stopped.discard(task)

    def _exit(self) -> StepExited:
        return StepExited(f"session {self.host.session_id} must stop, so its block exits")


class GuestDrive(Drive):
    """A drive whose step is the block of a visit."""

    visits = GuestVisit

    def __init__(self, block: Block, *args: Any) -> None:
        super().__init__(*args)
        self.block = block
        self.interrupter.on_interrupt = self._exit_block

    @property
    def code_task(self) -> asyncio.Task[Any] | None:
        return self.block.task

    def _exit_block(self) -> None:
        """Make every operation of the block raise the signal from now on."""
        self.block.exited = self.block.exited or self.interrupter.in_step

    async def _run_visit(self, step: BoundStep) -> None:
        await super()._run_visit(replace(step, fn=self._run_block))

    async def _run_block(self, _state: Any, _ctx: Context) -> dict[str, Any] | None:
        return await self.block.run(self, _state)

    async def _retry(self, step: BoundStep, attempt: int, error: Exception) -> bool:
        self.block.error = error
        return await super()._retry(step, attempt, error)
