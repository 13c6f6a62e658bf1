"""Copies of sessions in another store. A move pauses the originals, so that only the copies continue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from pausepoint.engine import flags
from pausepoint.engine.bundle import Bundle, collect, import_
from pausepoint.engine.engine import Engine
from pausepoint.engine.stores import store_from
from pausepoint.engine.verify import Inspector
from pausepoint.errors import (
    DamagedRecord,
    DrawerRefused,
    FileRefused,
    InputConflict,
    PausepointError,
    ScheduleRefused,
    StoreMissing,
    UnknownSchedule,
    VerbRefused,
)
from pausepoint.model.limits import StoredLimit
from pausepoint.model.records import SignalRecord
from pausepoint.model.schedules import Schedule
from pausepoint.model.sessions import Filter, Pause, Status
from pausepoint.name import NAME
from pausepoint.stores.base import Store
from pausepoint.stores.found import FoundSchedules

MOVER = f"{NAME} move"
"""The author of the pause of an original. The copy does not get this pause."""

PAGE = 500

KEPT_FOR = timedelta(days=36_500)
"""How long a store remembers schedules and limits that were moved to it, so that one that was removed stays removed."""

DIFFERENT = (
    "The other store has a different drawer of this name, which stays as it is. Empty one of the two, and repeat the"
    " move."
)

Place = Literal["moved", "there", "removed"]
"""What a move has done with a session, named as in `Move`."""


@dataclass
class Move:
    """What a move has done, or would do: ids of sessions without a parent. Children move along.

    ``there`` are sessions that the other store has already. ``removed`` are those that it had and that were removed
    there. ``running`` are those that a planned move would have to stop. ``refused`` maps sessions, schedules, limits
    and drawers that cannot be moved to the reason. ``total`` is the number of sessions. ``schedules`` are the names of
    the schedules that were moved, ``limits`` are the moved limits, such as ``"queue gpu"``, and ``drawers`` the names
    of the store's own drawers. Those of sessions move along.
    """

    total: int = 0
    moved: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    schedules: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    drawers: list[str] = field(default_factory=list)


async def run(
    engine: Engine, to: str | Path | Store, reason: str, timeout: float, dry_run: bool,
    on_progress: Callable[[Move], None],
) -> Move:  # fmt: skip
    """Carry out `Engine.move`."""
    target = store_from(to, engine.clock, create=not (dry_run and isinstance(to, str | Path)))
    try:
        await target.open(lambda keys: None)
    except StoreMissing:
        if not dry_run:
            raise
        return await planned(engine, None)
    try:
        return await (planned(engine, target) if dry_run else move(engine, target, reason, timeout, on_progress))
    finally:
        await target.close()


async def planned(engine: Engine, target: Store | None) -> Move:
    """Return what would be moved. There may be no target yet."""
    result, ids = Move(), await _roots(engine)
    result.total = len(ids)
    for session_id, damage in ids.items():
        try:
            if damage:
                result.refused[session_id] = damage
            else:
                getattr(result, await _planned_place(engine, target, session_id)).append(session_id)
        except PausepointError as error:
            result.refused[session_id] = str(error)
    await _move_limits(engine, target, result, dry_run=True)
    await _move_drawers(engine, target, result, dry_run=True)
    await _move_schedules(await engine.store.schedules(), engine, target, result, dry_run=True)
    running = {info.session_id for info in await engine.sessions(status=["running", "pausing"], level="root")}
    result.running = [each for each in result.moved if each in running]
    return result


async def _planned_place(engine: Engine, target: Store | None, session_id: str) -> Place:
    if target is None or not (await _is_known(target, session_id) or target.files_of(session_id) is None):
        return "moved"
    found = await collect(engine.store, session_id)
    place = await _place(target, found)
    if place == "moved":
        _check_files(target, found)
    return "moved" if place == "there" and await _is_left(target, found) else place


async def _is_known(target: Store, session_id: str) -> bool:
    return await target.get(session_id) is not None or bool(await target.tombstones(session_id))


async def move(
    engine: Engine, target: Store, reason: str, timeout: float, on_progress: Callable[[Move], None]
) -> Move:  # fmt: skip
    """Pause everything and copy all sessions, also those that are started meanwhile."""
    result, seen = Move(), set[str]()
    await engine.pause_all(reason=reason, by=MOVER, wait=True, timeout=timeout)
    while True:
        # Schedules are paused first, so that each session that they have started is among those that follow.
        schedules = await _paused_schedules(engine)
        ids = await _roots(engine)
        new = {session_id: damage for session_id, damage in ids.items() if session_id not in seen}
        if not new:
            break
        result.total = len(ids)
        for session_id, damage in new.items():
            seen.add(session_id)
            try:
                if damage:
                    result.refused[session_id] = damage
                else:
                    getattr(result, await _move_one(engine, target, session_id, reason)).append(session_id)
            except PausepointError as error:
                result.refused[session_id] = str(error)
            on_progress(result)
    await _move_limits(engine, target, result)
    await _move_drawers(engine, target, result)
    await _move_schedules(schedules, engine, target, result)  # after their sessions, so that an unfinished one is there
    await _reopen(target, engine.clock.now())
    return result


async def _reopen(target: Store, now: int) -> None:
    """Lift the pause of everything that an earlier move from this store has left there."""
    pause = await target.standing_pause()
    if pause is not None and pause.by == MOVER:
        await target.lift(MOVER, now)
        await flags.show(target)


async def _move_limits(engine: Engine, target: Store | None, result: Move, dry_run: bool = False) -> None:
    """Copy the limits that the other store lacks. Those of the code are stored by the programs that use the store."""
    found = await engine.store.limits()
    known = {} if target is None else {(each.target, each.declared): each for each in await target.limits()}
    for damage in found.damaged:
        result.refused[f"limit of {damage.fields['scope']} {damage.fields['name']}"] = str(damage)
    for here in found:
        there, key = known.get((here.target, here.declared)), _limit_key(here)
        before = None if target is None else await target.recall(key)
        if before is not None and before.answer is not None:
            continue  # the other store has it, perhaps with changes, or it was removed there
        if there is None:
            if target is not None and not dry_run:
                await _copy_limit(engine, target, here, key)
            result.limits.append(f"{here.scope} {here.name}")
        elif not here.declared and (there.most, there.per) != (here.most, here.per):
            result.refused[f"limit of {here.scope} {here.name}"] = (
                "The other store has a different limit, which stays as it is. Set both alike, or remove the one here,"
                " and repeat the move."
            )


async def _copy_limit(engine: Engine, target: Store, here: StoredLimit, key: str) -> None:
    """Copy a limit. The key is taken first, so that a move that is killed meanwhile is completed by the next."""
    until = engine.clock.now() + KEPT_FOR // timedelta(microseconds=1)
    await target.remember(key, MOVER.encode(), None, until)
    await target.set_limit(here)
    await target.remember(key, MOVER.encode(), b"moved", until)


def _limit_key(limit: StoredLimit) -> str:
    """Return the key of a limit that was moved. A limit that is changed here after the move has another."""
    facts = repr((*limit.target, limit.most, limit.per, limit.declared))
    return f"{MOVER} limit {sha256(facts.encode()).hexdigest()}"


async def _move_drawers(engine: Engine, target: Store | None, result: Move, dry_run: bool = False) -> None:
    """Copy the store's own drawers that the other store lacks."""
    for info in await engine.store.drawers():
        try:
            if await _move_drawer(engine, target, info.name, dry_run):
                result.drawers.append(info.name)
        except PausepointError as error:
            result.refused[f"drawer {info.name}"] = str(error)


async def _move_drawer(engine: Engine, target: Store | None, name: str, dry_run: bool) -> bool:
    """Copy a drawer, and return whether the other store did not have it."""
    here = await engine.store.whole_drawer(name)
    if here is None or here.is_empty or target is None:
        return here is not None and not here.is_empty
    key = f"{MOVER} drawer {name} {here.changed} {here.version}"  # one that changes after the move has another key
    before = await target.recall(key)
    if before is not None and before.answer is not None:
        return False  # the other store has it, perhaps with changes
    there = await target.whole_drawer(name)
    is_new = there is None or there.is_empty
    if there is not None and not is_new and (there.streams, there.values) != (here.streams, here.values):
        raise DrawerRefused(DIFFERENT)
    if not dry_run:
        until = engine.clock.now() + KEPT_FOR // timedelta(microseconds=1)
        await target.remember(key, MOVER.encode(), None, until)
        if is_new and not await target.import_drawer(here):  # a program there has begun to use it meanwhile
            await target.forget(key)
            raise DrawerRefused(DIFFERENT)
        await target.remember(key, MOVER.encode(), b"moved", until)
    return is_new


async def _paused_schedules(engine: Engine) -> FoundSchedules:
    """Return all schedules. Each is paused: by the move, unless it was before."""
    for each in await engine.store.schedules():
        with suppress(UnknownSchedule):
            await engine.schedules.pause(each.name, by=MOVER)
    found = await engine.store.schedules()
    return FoundSchedules([each for each in found if each.paused_at is not None], found.damaged)


async def _move_schedules(
    found: FoundSchedules, engine: Engine, target: Store | None, result: Move, dry_run: bool = False
) -> None:  # fmt: skip
    for damage in found.damaged:
        result.refused[f"schedule {damage.fields['name']}"] = str(damage)
    for here in found:
        try:
            left = next((each for each in result.refused if each.startswith(f"{here.name}@")), None)
            if await _is_new(target, here, left) and (
                target is None or dry_run or await _copy_schedule(engine, target, here)
            ):
                result.schedules.append(here.name)
        except PausepointError as error:
            result.refused[f"schedule {here.name}"] = str(error)


async def _is_new(target: Store | None, here: Schedule, left: str | None) -> bool:
    """Return whether a schedule must be moved. Raises `ScheduleRefused` if it cannot be: ``left`` is its session."""
    if target is None:
        return True
    known, there = await target.recall(_moved_key(here)), await target.schedule(here.name)
    if known is not None and known.answer is not None:
        return False  # the other store has it, perhaps with changes, or it was removed there
    if known is not None and known.took_effect:
        return True  # the copy is there, and the rest of the move is not
    if there is not None and not _is_older(there, here):
        if _settings(there) != _settings(here):
            raise ScheduleRefused(
                "The other store has a different schedule of this name. The one here is paused. Remove one of the two,"
                " and repeat the move.",
                name=here.name,
            )
        return False
    if left is not None:
        raise ScheduleRefused(
            f"Its session {left!r} was not moved, so another run could overlap with it. The schedule here is paused."
            " Repeat the move when that session can be moved.",
            name=here.name,
        )
    return True


def _is_older(there: Schedule, here: Schedule) -> bool:
    """Return whether the other store's schedule was moved away from there before this move, so that this one counts."""
    return there.paused_by == MOVER and (here.paused_at is None or (there.paused_at or 0) < here.paused_at)


async def _copy_schedule(engine: Engine, target: Store, here: Schedule) -> bool:
    """Copy a paused schedule, once. A pause by the move is not copied, and a trigger is moved."""
    key, there = _moved_key(here), await target.schedule(here.name)
    until = engine.clock.now() + KEPT_FOR // timedelta(microseconds=1)
    known = await target.remember(key, MOVER.encode(), None, until)
    if not known.claimed:
        raise ScheduleRefused(
            "Another process is copying this schedule to the other store. Repeat the move when it has ended.",
            name=here.name,
        )
    if not known.took_effect:
        copied = replace(here, paused_at=None, paused_by=None) if here.paused_by == MOVER else here
        with target.once(key):
            written = await target.set_schedule(there, copied)
        if not written.written:
            await target.forget(key)
            raise ScheduleRefused("The schedule has changed in the other store. Repeat the move.", name=here.name)
    await engine.store.set_schedule(here, replace(here, triggered_at=None, triggered_by=None))
    await target.remember(key, MOVER.encode(), b"moved", until)
    return True


def _moved_key(schedule: Schedule) -> str:
    """Return the key of this move of a schedule. One that is moved back, and later again, has another pause."""
    return f"{MOVER} schedule {schedule.name} {schedule.created_at} {schedule.paused_at}"


def _settings(each: Schedule | None) -> object:
    names = ("workflow", "cron", "zone", "overlap", "catch_up", "input", "owner", "tags", "queue", "priority",
             "lane")  # fmt: skip
    return None if each is None else [getattr(each, name) for name in names]


async def _move_one(engine: Engine, target: Store, session_id: str, reason: str) -> Place:
    """Give the original a pause of its own, which stays if the pause of everything is lifted, and copy it."""
    if (await engine.session(session_id).info()).status not in (Status.COMPLETED, Status.CANCELLED):
        found = await engine.session(session_id).pause(reason=reason, by=MOVER, wait=True, timeout=0)
        if found.working:
            raise VerbRefused(
                f"Session {session_id!r} is still running, so it was not moved. It stops at its next safe point; repeat"
                " the move then.",
                session_id=session_id, status=found[0].status.value,
            )  # fmt: skip
    return await copy(engine.store, target, session_id, engine.clock.now())


async def _roots(engine: Engine) -> dict[str, str]:
    """Return the ids of all sessions without a parent, each with its damage, if there is any."""
    found: dict[str, str] = {}
    after = None
    while True:
        page = await engine.sessions(level="root", sort="id", limit=PAGE, after=after)
        found |= {str(info.session_id): "" for info in page}
        found |= {str(each.fields["session_id"]): str(each) for each in page.damaged}
        if (after := page.next) is None:
            return found


async def copy(source: Store, target: Store, session_id: str, now: int) -> Place:
    """Copy a session and its children into another store, unless they are or were there.

    If they were moved from there before, those that are there continue.
    """
    original = await collect(source, session_id)
    found = _released(original)
    if (place := await _place(target, found)) != "moved":
        if place == "there" and await _is_left(target, original):
            await _take_back(target, original, now)
            return "moved"
        return place
    _check_files(target, found)
    for store in (source, target):
        await _note_drawers(store, found, now)
    try:
        await import_(target, found)
    except InputConflict as error:
        raise InputConflict(
            f"Another process is copying session {session_id!r} to the other store. Repeat the move when it has ended.",
            session_id=session_id,
        ) from error
    for each in found.sessions:
        report = await Inspector(target, lambda report: None).session(each.session_id)
        if not report.ok:
            raise DamagedRecord(
                f"The copy of session {each.session_id!r} in the other store is damaged: {report.problems[0]} Check the"
                " disk of that store. The original is intact and paused.",
                session_id=each.session_id,
            )
    return "moved"


def _check_files(target: Store, bundle: Bundle) -> None:
    for each in bundle.sessions:
        if each.uploads() and target.files_of(each.session_id) is None:
            raise FileRefused(
                f"Session {each.session_id!r} has files, but the other store has no folder for files. Name one in the"
                " URL of a Postgres store, such as postgresql://…?files=/srv/files, and repeat the move.",
                session_id=each.session_id,
            )


def _released(bundle: Bundle) -> Bundle:
    """Return a session and its children without the pauses of the move."""
    first, *others = [_without_mover(each) for each in bundle.sessions]
    return replace(first, called=others)


def _without_mover(bundle: Bundle) -> Bundle:
    pauses = [each for each in bundle.pauses if not _is_of_mover(each)]
    if len(pauses) == len(bundle.pauses):
        return bundle
    left = [each for each in pauses if each.closed_at is None and each.kind == "operator"]
    mode = "abort" if any(each.mode == "abort" for each in left) else "finish"
    return replace(bundle, pauses=pauses, facts=bundle.facts | {"pause_requested": bool(left), "pause_mode": mode})


def _is_of_mover(pause: Pause) -> bool:
    return pause.by == MOVER and pause.closed_at is None


async def _place(target: Store, bundle: Bundle) -> Place:
    """Return whether the store has these sessions, exactly as they are or further on, has removed them, or lacks them.

    Raises `InputConflict` if it has different ones.
    """
    known = [await target.get(each.session_id) for each in bundle.sessions]
    if known[0] is None:
        if taken := next((row for row in known if row is not None), None):
            raise InputConflict(
                f"The other store has a session {taken.session_id!r}, but not its parent {bundle.session_id!r}. Nothing"
                " was copied. Remove that session, and repeat the move.",
                session_id=bundle.session_id,
            )
        return "removed" if await _is_removed(target, bundle) else "moved"
    for each, row in zip(bundle.sessions, known, strict=True):
        last = each.records[-1]
        same = row is not None and [each.digest for each in await target.records(row.key, last.seq, last.seq)]
        if same != [last.digest]:
            raise InputConflict(
                f"The other store has a different session {each.session_id!r}. Nothing was copied. Either the session"
                " continued here after it was moved, or another one has the same id. Remove one of the two.",
                session_id=each.session_id,
            )
        if row is not None and await _has_more(each, target, row.key):
            raise InputConflict(
                f"Session {each.session_id!r} received messages or other requests here after it was moved, and the"
                " other store does not have them. Send them again there, and remove the session here.",
                session_id=each.session_id,
            )
        if await _has_other_drawers(each, target, bundle.session_id):
            raise InputConflict(
                f"The drawers of session {each.session_id!r} were written here, and the other store has the session"
                " without these changes. Nothing was copied. Remove the session in one of the two stores.",
                session_id=each.session_id,
            )
    return "there"


async def _has_other_drawers(bundle: Bundle, target: Store, root: str) -> bool:
    """Return whether drawers of a session have content that its copy lacks and that no move has copied."""
    filled = [each for each in bundle.drawers if not each.is_empty]
    if not filled or await target.recall(_drawers_key(bundle)) is not None:
        return False
    copies = next(each.drawers for each in await target.whole(root) if each.row.session_id == bundle.session_id)
    there = {each.name: (each.streams, each.values) for each in copies}
    return any(there.get(each.name) != (each.streams, each.values) for each in filled)


async def _note_drawers(store: Store, bundle: Bundle, now: int) -> None:
    """Let a store remember drawers as they are moved, so that a later move knows whether they have changed since."""
    until = now + KEPT_FOR // timedelta(microseconds=1)
    for each in bundle.sessions:
        if each.drawers:
            await store.remember(_drawers_key(each), MOVER.encode(), b"moved", until)


def _drawers_key(bundle: Bundle) -> str:
    facts = bundle.session_id, bundle.row().created_at, bundle.drawers
    return f"{MOVER} drawers {sha256(msgspec.msgpack.encode(facts)).hexdigest()}"


async def _has_more(bundle: Bundle, target: Store, key: int) -> bool:
    """Return whether a session has signals that its copy lacks, other than those of the moves themselves."""
    sent = [each for each in bundle.signals if not _is_of_move(each)]
    if not sent:
        return False
    last = sent[-1]
    if [each.body for each in await target.signals(key, last.n - 1, last.n)] == [last.body]:
        return False
    there = {each.body for each in await target.signals(key, 0)}
    return any(each.body not in there for each in sent)


def _is_of_move(signal: SignalRecord) -> bool:
    """Return whether a signal needs no copy: a pause of the move, or a resume, also that of a lifted pause."""
    return (signal.kind == "pause" and signal.by == MOVER) or (signal.kind == "resume" and signal.payload == b"{}")


async def _take_back(target: Store, original: Bundle, now: int) -> None:
    """Let the other store's session continue. What else it is paused for, such as a guard, stays."""
    tree = await target.find(Filter(session_id=original.session_id, tree=True, unended=True))
    pauses = [pause for row in tree for pause in await target.pauses(row.key)]
    held = any(each.kind != "operator" for each in pauses)
    await target.unpause(original.session_id, MOVER, now, wake=original.row().ended != "failed" and not held)


async def _is_left(target: Store, original: Bundle) -> bool:
    """Return whether the other store's session is paused only because it was moved away, to here, before this move.

    A pause that a person has lifted here since does not count. A session that was moved on from there, to a third
    store, has the later pause of the two, and stays paused.
    """
    row = await target.get(original.session_id)
    there = [] if row is None else _own(await target.pauses(row.key))
    closed = {each.id for each in original.pauses if each.closed_at is not None}
    left_at = max((each.created_at for each in there if _is_of_mover(each)), default=0)
    here_at = max((each.created_at for each in _own(original.pauses)), default=None)  # None before a planned move
    return (
        bool(there)
        and all(_is_of_mover(each) or each.id in closed for each in there)
        and (here_at is None or left_at < here_at)
    )


def _own(pauses: list[Pause]) -> list[Pause]:
    """Return the open pauses that were requested for this session alone."""
    return [each for each in pauses if each.kind == "operator" and not each.standing and each.closed_at is None]


async def _is_removed(target: Store, bundle: Bundle) -> bool:
    """Return whether this session, as it is or further on, was removed in the store.

    A session that was moved back and forth is further on here than where it was removed.
    """
    created_at, records = bundle.row().created_at, len(bundle.records)
    return any(
        stone.created_at == created_at and stone.records >= records
        for stone in await target.tombstones(bundle.session_id)
    )
