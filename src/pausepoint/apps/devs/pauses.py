"""Tell the commands of a run what its pauses mean for them: to freeze, to continue, or to end."""

from __future__ import annotations

from pausepoint import Engine, Status
from pausepoint.apps.devs.commands import Commands
from pausepoint.errors import PausepointError


class Pauses:
    """The pauses of one run. Run `follow` while commands may run or are kept."""

    def __init__(self, engine: Engine, run: str, commands: Commands) -> None:
        self.engine = engine
        self.run = run
        self.commands = commands
        commands.keeps = self._keeps

    async def freezes(self) -> bool:
        """Return whether a pause freezes the commands of the run, and nothing ends them."""
        info = await self.engine.session(self.run).info()
        if info.status not in (Status.PAUSING, Status.PAUSED):
            return False
        return any(pause.freeze for pause in await self.engine.session(self.run).pauses()) and not await self._ends()

    async def _keeps(self, is_frozen: bool) -> bool:
        """Return whether a command is kept whose operation is cancelled: by a pause, or because the run has to wait."""
        if is_frozen:
            return await self.freezes()
        return self.run in self.engine.running and not await self._ends()

    async def _ends(self) -> bool:
        """Return whether commands must end: with this process, with a cancelled run, or by a pause."""
        info = await self.engine.session(self.run).info()
        aborts = any(pause.mode == "abort" for pause in await self.engine.session(self.run).pauses())
        return bool(self.engine.ending) or aborts or info.cancel_requested or info.status is Status.CANCELLED

    async def follow(self) -> None:
        """Heed the pauses of the run, from any process, until the run or the engine has ended."""
        try:
            async for info in self.engine.session(self.run).watch():
                if not (info.pause_requested or info.cancel_requested or self.commands.freezing.is_set()):
                    continue
                (self.commands.freezing.set if await self.freezes() else self.commands.freezing.clear)()
                if self.commands.kept and await self._ends():
                    await self.commands.end_kept()
        except PausepointError:
            return  # the driver of the run gets the same error
        finally:
            self.commands.freezing.clear()
