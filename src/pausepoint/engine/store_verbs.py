"""The verbs of `Engine` over the store as a whole: overview, questions, schedules, limits, clean-up and transfer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service
from pausepoint.engine.filters import QuestionStatuses, Statuses, When
from pausepoint.engine.limits import StoreLimits, set_limit
from pausepoint.engine.remembered import RequestKeys
from pausepoint.engine.retention import QUESTIONS_KEPT_FOR, CleanUp
from pausepoint.engine.schedules import StoreSchedules
from pausepoint.model.changes import Change
from pausepoint.model.drawers import DrawerInfo
from pausepoint.model.ids import SessionId
from pausepoint.model.limits import LimitKey
from pausepoint.model.questions import Question, QuestionSort, Receipt
from pausepoint.model.schedules import CatchUp, Overlap, ScheduleInfo
from pausepoint.model.sessions import Level, QuestionStatus
from pausepoint.model.stores import Holder, Tombstone
from pausepoint.model.views import Health, LimitInfo, Listing, SessionInfo
from pausepoint.runtime.drawers import Drawer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pausepoint.engine.parts import Parts
    from pausepoint.engine.verify import Verification
    from pausepoint.model.descriptions import Description


class StoreVerbs:
    """The verbs over the store as a whole. Each is carried out by a part of the engine."""

    _parts: Parts
    _service: Service

    async def health(self) -> Health:
        """Return the store's health: its errors, the other processes that have it open, and crashed sessions.

        Changes nothing, and reads no session but the crashed ones: `verify` checks all of them.
        """
        return await self._parts.overview.health()

    async def engines(self) -> list[Holder]:
        """Return the engines that have the store open, this one included: the sessions they hold, and what they drive.

        An engine with ``drives="none"`` may be left out until it writes.

        If no engine has a workflow in its ``workflows``, its sessions stay ready until you start one::

            driven = any("brief" in each.workflows for each in await engine.engines())
        """
        return await self._parts.overview.engines()

    async def stranded(self, *, limit: int = 100) -> Listing[SessionInfo]:
        """Return sessions that are ready, but that no open engine picks up, the last updated first.

        Start a process that has their code and drives their queue, such as a worker. Engines announce the names of
        their workflows and queues, so a session that needs a newer version of a workflow is not found here.
        """
        return await self._parts.overview.stranded(limit=limit)

    async def waking(self, *, owner: str | None = None, limit: int = 100) -> Listing[SessionInfo]:
        """Return the sessions that wake up on their own, the next one first.

        A timer ends then, or the time for an answer or a message. Paused sessions are left out, because a pause keeps
        them from waking up.
        """
        return await self._parts.overview.waking(owner=owner, limit=limit)

    async def spending(
        self, *, workflow: str | None = None, owner: str | None = None, tag: str | None = None,
        status: Statuses = None, failed: bool | None = None, since: When | None = None, until: When | None = None,
        text: str | None = None, level: Level = "root", queue: str | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Return the dollars that the matching sessions have spent, by workflow, without reading the sessions.

        The filters are those of `sessions`. By default children are left out, because what they spend is part of their
        parent's figure. The figures cover all sessions of the store, ended ones too; removed ones are not counted.

        >>> import asyncio
        >>> from pausepoint import Context, Engine, workflow
        >>> @workflow
        ... async def greet(name: str, ctx: Context) -> str:
        ...     ctx.spend(usd=0.25)
        ...     return f"Hello, {name}!"
        >>> async def main() -> dict[str, float]:
        ...     async with Engine(":memory:") as engine:
        ...         for name in ("Ada", "Grace"):
        ...             await (await engine.start(greet, name=name)).outcome()
        ...         return await engine.spending()
        >>> asyncio.run(main())
        {'greet': 0.5}
        """
        return await self._parts.overview.spending(
            workflow=workflow, owner=owner, tag=tag, status=status, failed=failed, since=since, until=until, text=text,
            level=level, queue=queue,
        )  # fmt: skip

    async def progress(self) -> dict[SessionId, tuple[int, int]]:
        """Return what the steps that this engine runs have last reported with ``ctx.progress``, by session.

        It is the present: `info` returns what was stored with the last record. Reads nothing from the store.
        """
        return await self._parts.overview.progress()

    async def questions(
        self, *, status: QuestionStatuses = QuestionStatus.WAITING, workflow: str | None = None,
        owner: str | None = None, tree: str | None = None, key: str | int | None = None, prefix: str = "",
        sort: QuestionSort = "asked", reverse: bool = False, limit: int | None = None, after: str | None = None,
    ) -> Listing[Question]:  # fmt: skip
        """Return the open questions of all sessions that match, oldest first.

        - ``status``: one or more statuses instead of ``WAITING``; None returns questions in every status.
        - ``workflow``, ``owner``, ``key``: further filters. ``tree``: the id of a session, for its questions and those
          of its children. ``prefix``: the beginning of the question's id.
        - ``sort``: ``"asked"``: the oldest first. ``"expires"``: the time limit that ends first comes first, questions
          without one last. ``"updated"``: the last updated first. ``reverse`` turns the order around.
        - ``limit``: the most questions to return. If there are more, ``next`` of the result is a cursor; pass it as
          ``after``, with the same sort and filters, to get the next page.

        Unreadable questions are listed in ``damaged`` of the result.
        """
        return await self._parts.questions.questions(
            status=status, workflow=workflow, owner=owner, tree=tree, key=key, prefix=prefix, sort=sort,
            reverse=reverse, limit=limit, after=after,
        )  # fmt: skip

    async def tally_questions(
        self, *, status: QuestionStatuses = QuestionStatus.WAITING, workflow: str | None = None,
        owner: str | None = None, tree: str | None = None, key: str | int | None = None,
    ) -> dict[QuestionStatus, int]:  # fmt: skip
        """Return the number of questions by status; by default only of open ones. See `questions` for the filters."""
        return await self._parts.questions.tally_questions(
            status=status, workflow=workflow, owner=owner, tree=tree, key=key,
        )  # fmt: skip

    async def question(self, question_id: str) -> Question:
        """Return one question, with the state, the step's finished operations and the chat history at that time.

        Raises `UnknownQuestion` if there is no question with this id.
        """
        return await self._parts.questions.question(question_id)

    async def answer(
        self, question_id: str, value: Any, *, by: str | None = None, channel: str = "", seen: str | None = None
    ) -> Receipt:
        """Answer a question and return a receipt.

        The first answer counts. The same answer again gets the same receipt; a different one raises `AnswerConflict`.

        Without the question's id, use `Session.answer`.

        - ``by``, ``channel``: the person who answers, and how. Both are recorded.
        - ``seen``: the `Question.digest` that the person saw. If the session asks something else by now,
          `QuestionChanged` is raised.

        Raises a `QuestionError` if the answer is not accepted, for example `UnknownQuestion`, `QuestionClosed` or
        `AnswerRefused`. Refused answers are recorded in the session's history.
        """
        return await self._parts.questions.answer(
            question_id, value, by=by, channel=channel, seen=seen,
        )  # fmt: skip

    def changes(
        self, after: str | None = "", *, follow: bool = False, types: Collection[str] | None = None
    ) -> AsyncIterator[Change]:
        """Yield what changed in all sessions after a mark, in the order in which it was stored.

        Each `Change` names one session and has its new events: of every process, each event once. Only facts without
        an event, such as the end of the process that drove a session, are not changes.

        - ``after``: the ``mark`` of the last change that you have handled. ``""`` is the beginning of the store. None
          is the present.
        - ``follow``: keep yielding changes until the engine closes.
        - ``types``: the event types that you want. Other events are left out; the changes remain, so that your mark
          moves on. With ``()``, no events are read.

        **Reset.** The first change after ``None`` has ``reset=True`` and no session: read what you need from the store
        now, then handle the changes that follow. The same change comes if a mark is lost. That happens if the session
        that changed last before the mark was removed since, or if the mark belongs to another store.

        Raises `ValueError` if ``after`` is not a mark.

        >>> import asyncio
        >>> from pausepoint import Context, Engine, workflow
        >>> @workflow
        ... async def greet(name: str, ctx: Context) -> str:
        ...     return f"Hello, {name}!"
        >>> async def main() -> None:
        ...     async with Engine(":memory:") as engine:
        ...         await (await engine.start(greet, name="Ada", session_id="ada")).outcome()
        ...         async for change in engine.changes(types=["session.completed"]):
        ...             print(change.session_id, change.seq, [event.event_type for event in change.events])
        ...             mark = change.mark
        ...         print([change async for change in engine.changes(mark)])
        >>> asyncio.run(main())
        ada 2 ['session.completed']
        []
        """
        return self._parts.changes.changes(after, follow=follow, types=types)

    async def description(self, workflow: str, *, version: int | None = None) -> Description:
        """Return the description of a workflow: its steps, routes, guards and scopes, and the schema of its state.

        The code is not needed: an engine that starts or resumes a session stores the description of its workflow. If
        the workflow is registered with this engine, its own definition is described. ``version`` selects an older
        version; by default the newest. Raises `DefinitionError` if there is no description.

        >>> import asyncio
        >>> from pausepoint import Engine, run, workflow
        >>> @workflow
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}!"
        >>> async def main() -> None:
        ...     async with Engine(":memory:", workflows=[greet]) as engine:
        ...         found = await engine.description("greet")
        ...         print(found.outline, found.steps[0].reads, sorted(found.state["properties"]))
        >>> asyncio.run(main())
        ('greet',) ('name',) ['name', 'result']
        """
        return await self._parts.descriptions.description(workflow, version=version)

    async def descriptions(self) -> list[Description]:
        """Return the newest description of each workflow that has one, ordered by name."""
        return await self._parts.descriptions.descriptions()

    async def schedule(
        self, name: str, workflow: Workflow[Any], state: BaseModel | None = None, /, *, cron: str, zone: str = "UTC",
        overlap: Overlap = "skip", catch_up: CatchUp = "newest", owner: str | None = None,
        tags: str | Sequence[str] = (), by: str | None = None, queue: str | None = None, priority: int | None = None,
        lane: str | None = None, **input: Any,
    ) -> ScheduleInfo:  # fmt: skip
        """Start a session of a workflow at the times of a cron expression, and return the schedule.

        The schedule is stored. Every open engine that has the workflow, and drives all due sessions, starts its
        sessions; the id of a session is like ``digest@20261115T060000Z``. A program can call this whenever it starts: a
        schedule that is stored like this stays as it is, and another one with this name is replaced. A pause of the
        schedule stays.

        - ``cron``: five fields, such as ``"0 7 * * 1-5"``: 07:00 from Monday to Friday, in ``zone``.
        - ``overlap``: if the previous session has not ended, ``"skip"`` the run, ``"queue"`` it until that session has
          ended, or ``"allow"`` both. A failed session has ended; a paused one has not.
        - ``catch_up``: of the runs that no engine could start in time, start the ``"newest"``, ``"all"`` or ``"none"``.
        - ``state`` or ``input``: the input of each session, as for `start`.
        - ``owner``, ``tags``, ``queue``, ``priority``, ``lane``: those of each session, as for `start`.

        Raises `ScheduleRefused` if an argument is not valid, and stores nothing.
        """
        return await self._parts.scheduler.schedule(
            name, workflow, state, cron=cron, zone=zone, overlap=overlap, catch_up=catch_up, owner=owner, tags=tags,
            by=by, queue=queue, priority=priority, lane=lane, **input,
        )  # fmt: skip

    @property
    def schedules(self) -> StoreSchedules:
        """The schedules of the store, to list, pause, resume, trigger and remove them. `schedule` stores one."""
        return self._parts.schedules

    async def limit(
        self, *, queue: str | None = None, workflow: str | Workflow[Any] | None = None, lane: str | None = None,
        most: int | None, per: timedelta | None = None, by: LimitKey | None = None,
    ) -> LimitInfo:  # fmt: skip
        """Limit the sessions of a queue, a workflow or a lane, in all engines of the store. Return the limit.

        ``await engine.limit(queue="gpu", most=4)`` lets four sessions of the queue be at work at once. Others that
        start are stored ready, and an engine picks them up when a slot is free. A session that waits, is paused or has
        ended uses no slot. Sessions that are at work already stay at work.

        - ``most``: how many. None lifts the limit that the code of the workflow declares, with the same ``by``.
        - ``per``: with a time, how many may get to work in it, started or picked up again. A queue that was quiet lets
          ``most`` through at once.
        - ``by``: ``"owner"`` or ``"lane"``: each of them has its own limit.

        A limit with the same ``by``, and with or without ``per``, is replaced. Raises `ValueError` for arguments that
        are not valid, and stores nothing.
        """
        return await set_limit(self._service, queue, workflow, lane, most, per, by)

    @property
    def limits(self) -> StoreLimits:
        """The limits and the queues of the store, to list them and to remove limits. `limit` sets one."""
        return self._parts.limits

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        """Return the tombstones of removed sessions in the order of removal, of all sessions or of one id."""
        return await self._parts.retention.tombstones(session_id)

    async def gc(
        self, *, apply: bool = False, now: datetime | None = None, keep_for: timedelta | None = None,
        keep_questions_for: timedelta = QUESTIONS_KEPT_FOR,
        on_progress: Callable[[CleanUp], None] | None = None,
    ) -> CleanUp:  # fmt: skip
        """Report what could be cleaned up; with ``apply=True``, clean it up.

        Completes interrupted removals, removes expired sessions, deletes large values that nothing references and what
        drawers keep only for a time, and gives the space back to the file system. It works in small batches, so
        sessions keep running, and it can be cancelled between two batches.

        - ``now``: the time to compare with; by default the present.
        - ``keep_for``: how long completed and cancelled sessions without a ``keep_for`` of their own are kept after
          their last update. By default they do not expire.
        - ``keep_questions_for``: how long closed questions stay listed. What was asked and answered stays in the log;
          open questions are always kept.
        - ``on_progress``: called with the report between batches.
        """
        return await self._parts.retention.gc(
            apply=apply, now=now, keep_for=keep_for, keep_questions_for=keep_questions_for, on_progress=on_progress,
        )  # fmt: skip

    async def verify(self, *, on_progress: Callable[[Verification], None] | None = None) -> Verification:
        """Check the whole store for damage, and return what was found. Changes nothing. See also `Session.verify`.

        ``on_progress`` is called with the report so far.
        """
        return await self._parts.retention.verify(on_progress=on_progress)

    async def import_session(
        self, path: str | Path, *, session_id: str | None = None, folder: str | Path | None = None
    ) -> SessionInfo:
        """Import a session with its children from an exported file, and return its facts.

        The session is as it was at the export. It runs when it is resumed or becomes due. Pass ``session_id`` to import
        it under another id.

        A session that publishes artifacts needs a ``folder`` for them on this machine; the folder in the file is not
        used. Copy the artifact files there before the import, or write them again afterwards with `restore`.

        The file may come from anyone: every name in it is checked, and nothing outside of the store is written.

        Raises `DamagedRecord` if the file is damaged or names something that could lead out of the store,
        `InputConflict` if the id exists, and `FolderRefused` if the folder is missing or belongs to another session.
        Nothing is stored then.
        """
        return await self._parts.transfer.import_session(path, session_id=session_id, folder=folder)

    @property
    def keys(self) -> RequestKeys:
        """The keys of requests that must have one effect, such as a repeated POST."""
        return self._parts.keys

    def drawer(self, name: str, *, session: str | None = None, keep_for: timedelta | None = None) -> Drawer:
        """Return a drawer: durable streams of bytes and versioned values beside the sessions. Provisional.

        It is for adapters that keep what another framework stores: a transcript, a checkpoint. The state of your own
        workflow belongs in its session.

        - ``name``: 1 to 64 of ``a-z``, ``0-9``, ``_`` and ``-``. The drawer exists from its first write on.
        - ``session``: the id of a session. Its drawers are its own: they are removed, exported, forked and moved with
          it, and `redact` empties them.
        - ``keep_for``: streams and values of this drawer that have not changed for this time are deleted by `gc`.
          It is stored with the next write, for all engines; without it, what is stored stays. At first a drawer is kept
          for ever, as with ``timedelta.max``. The drawers of a session are kept as long as the session.

        >>> import asyncio
        >>> from pausepoint import Engine
        >>> async def main() -> None:
        ...     async with Engine(":memory:") as engine:
        ...         drawer = engine.drawer("notes")
        ...         print(await drawer.append("day-1", [b"rain", b"sun"]), await drawer.read("day-1", last=1))
        ...         version = await drawer.put("mood", b"good")
        ...         await drawer.put("mood", b"better", if_version=version)
        ...         print((await drawer.get("mood")).data)
        >>> asyncio.run(main())
        2 [b'sun']
        b'better'
        """
        return self._parts.drawers.drawer(name, session=session, keep_for=keep_for)

    async def drawers(self, session: str | None = None) -> list[DrawerInfo]:
        """Return facts about the store's own drawers, or those of a session, ordered by name."""
        return await self._parts.drawers.drawers(session)
