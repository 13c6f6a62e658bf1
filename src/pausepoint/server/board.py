"""The facts of the present: counts, the sessions that need attention, and spending, read from the store together."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from pausepoint.errors import PausepointError, UnknownSession
from pausepoint.model.sessions import Pause, Status
from pausepoint.server import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo

SHOWN = 50
"""The most sessions in one list."""

HELD = (Status.RUNNING, Status.PAUSING)
"""The statuses of sessions that an engine drives."""

FAST = 0.05
"""Seconds. If reading took longer the last time, requests get the last facts while they are read again."""

SHARE = 10
"""How many times longer than reading took the next reading waits."""

REMEMBERED = 10_000
"""How many sign-ins are remembered that have changed something. The one that did so first is forgotten first."""


class Acts:
    """When each sign-in has last changed something, so that what it reads next has that change."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, float] = OrderedDict()

    def note(self, who: str) -> None:
        """Remember that a sign-in has changed something now."""
        self._times[who] = time.monotonic()
        self._times.move_to_end(who)
        if len(self._times) > REMEMBERED:
            self._times.popitem(last=False)

    def last(self, who: str) -> float:
        """Return when a sign-in has last changed something, in the seconds of `time.monotonic`; 0 if it never has."""
        return self._times.get(who, 0.0)


class Facts(NamedTuple):
    """What was read at one moment. Heads are encoded once, for all requests."""

    counts: dict[str, dict[str, int]]
    failures: dict[str, int]
    questions: int
    oldest: datetime | None
    spent: dict[str, float]
    running: list[SessionInfo]
    paused: list[msgspec.Raw]
    failed: list[msgspec.Raw]
    waking: list[msgspec.Raw]


class Board:
    """The present facts of all sessions, or of one owner's.

    ``turn`` is the hub's number of the last change in them, and ``begun`` the time at which their reading began.
    """

    def __init__(self, engine: Engine, owner: str | None) -> None:
        self.owner = owner
        self.facts: Facts | None = None
        self.turn = -1
        self.mark = ""
        self.used = 0.0
        self.begun = 0.0
        self.took = 0.0
        self._engine = engine
        self._encoded: dict[str, tuple[SessionInfo, Any, msgspec.Raw]] = {}
        self._again_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_slow(self) -> bool:
        return self.facts is not None and self.took > FAST

    async def refresh(self, turn: int, mark: str) -> None:
        """Read the facts. Several callers at the same time share one reading."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(turn, mark), name="hub: the present")
        await asyncio.shield(self._reading)

    async def wait(self) -> None:
        """Wait until it is time to read again."""
        await asyncio.sleep(max(self._again_at - time.monotonic(), 0))

    async def _read(self, turn: int, mark: str) -> None:
        begin = time.monotonic()
        self.facts = await read(self._engine, self.owner)
        self.turn, self.mark = turn, mark
        self._encoded.clear()
        now = time.monotonic()
        self.begun, self.took = begin, now - begin
        self._again_at = now + SHARE * self.took

    def running(self, progress: Mapping[Any, tuple[int, int]]) -> list[msgspec.Raw]:
        """Return the heads of the sessions that run, with their present progress."""
        assert self.facts is not None
        return [self._head(info, progress.get(info.session_id, info.progress)) for info in self.facts.running]

    def _head(self, info: SessionInfo, progress: tuple[int, int] | None) -> msgspec.Raw:
        kept = self._encoded.get(info.session_id)
        if kept is None or kept[0] is not info or kept[1] != progress:
            kept = self._encoded[info.session_id] = (info, progress, head(replace(info, progress=progress)))
        return kept[2]


class Boards:
    """The boards that people ask for, by owner.

    ``turn`` returns the hub's number of the last change, and its mark. ``tell`` is called when facts were read that
    are newer than those that requests got before.
    """

    def __init__(
        self, engine: Engine, turn: Callable[[], tuple[int, str]], tell: Callable[[Board], None]
    ) -> None:  # fmt: skip
        self._engine = engine
        self._turn = turn
        self._tell = tell
        self._boards: dict[str | None, Board] = {}
        self._later: dict[str | None, asyncio.Task[None]] = {}

    async def get(self, owner: str | None, since: float = 0.0) -> Board:
        """Return the present facts. They are read again if something has changed.

        If that takes long, the last ones are returned at once, and read again afterwards. But nobody gets facts from
        before ``since``, the time at which they have last changed something themselves.
        """
        board = self._boards.setdefault(owner, Board(self._engine, owner))
        board.used = time.monotonic()
        while board.begun < since:  # a reading that others wait for may have begun before
            await board.refresh(*self._turn())
        if board.turn != self._turn()[0]:
            if not board.is_slow:
                wanted = self._turn()[0]
                await board.refresh(*self._turn())
                if board.turn < wanted:  # the reading that it shared had begun before the last change
                    await board.refresh(*self._turn())
            elif owner not in self._later or self._later[owner].done():
                self._later[owner] = asyncio.create_task(self._refresh(board), name="hub: newer facts")
        return board

    async def _refresh(self, board: Board) -> None:
        await board.wait()
        with suppress(PausepointError, OSError):  # the next request reports it
            await board.refresh(*self._turn())
            self._tell(board)

    def forget(self, before: float) -> None:
        """Forget the boards that no request has asked for since a time."""
        for owner in [owner for owner, board in self._boards.items() if board.used < before]:
            del self._boards[owner]

    def clear(self) -> None:
        for task in self._later.values():
            task.cancel()
        self._later.clear()
        self._boards.clear()


def head(info: SessionInfo) -> msgspec.Raw:
    """Return the encoded head of a session."""
    return msgspec.Raw(msgspec.json.encode(documents.HeadDocument.of(info)))


async def read(engine: Engine, owner: str | None) -> Facts:
    """Read the facts of all sessions, or of those of an owner. A failure that a pause hides is counted too."""
    counts: dict[str, dict[str, int]] = {}
    for (workflow, status), count in (await engine.tally(owner=owner)).items():
        counts.setdefault(workflow, {})[status.value] = count
    failures: dict[str, int] = {}
    for (workflow, _), count in (await engine.tally(owner=owner, failed=True)).items():
        failures[workflow] = failures.get(workflow, 0) + count
    asked = await engine.questions(owner=owner, limit=1)
    return Facts(
        counts, failures, sum((await engine.tally_questions(owner=owner)).values()),
        asked[0].created_at if asked else None, await engine.spending(owner=owner),
        list(await engine.sessions(owner=owner, status=HELD, limit=SHOWN)),
        [head(each) for each in await _paused(engine, owner)],
        [head(each) for each in await engine.sessions(owner=owner, failed=True, limit=SHOWN)],
        [head(each) for each in await engine.waking(owner=owner, limit=SHOWN)],
    )  # fmt: skip


async def _paused(engine: Engine, owner: str | None) -> list[SessionInfo]:
    """Return the sessions that are paused individually, each with the reason of its own pause."""
    found = await engine.sessions(owner=owner, own_pause=True, status=Status.PAUSED, limit=SHOWN)
    infos = [await _with_own_reason(engine, each) for each in found]
    return [each for each in infos if each.pause is not None]  # a pause may be withdrawn while it is read


async def _with_own_reason(engine: Engine, info: SessionInfo) -> SessionInfo:
    if info.pause is None or not info.pause.standing:
        return info
    own: list[Pause] = []
    with suppress(UnknownSession):  # it was removed meanwhile
        own = [each for each in await engine.session(info.session_id).pauses() if not each.standing]
    return replace(info, pause=own[0]) if own else info
