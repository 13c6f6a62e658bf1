"""What two engines do at the same time: each verb as the calls that an engine makes, and the sessions it is used on.

A verb gets all it needs from the results of its calls, so it can be repeated on another store, call by call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from pausepoint.errors import UnknownSession
from pausepoint.log.replay import WaitBody, to_payload
from pausepoint.model.commits import ChildReport, NewSession, Report
from pausepoint.model.drawers import Change, DrawerId
from pausepoint.model.limits import StoredLimit
from pausepoint.model.questions import Answer, Asked, digest
from pausepoint.model.records import first_digest, seal
from pausepoint.model.schedules import Schedule
from pausepoint.model.sessions import Filter, QuestionFacts, QuestionStatus, SessionRow
from pausepoint.model.stores import Whole
from pausepoint.stores.base import Store
from pausepoint.testing.suite.base import Driver, new_session, operator, started


@dataclass
class Scene:
    """The sessions of one run, as they were prepared. ``run`` is the beginning of their ids, and their workflow."""

    run: str
    now: int
    moved: Sequence[Whole] = ()

    def id(self, name: str) -> str:
        """Return the id of a session of this run."""
        return f"{self.run}{name}"

    @property
    def question(self) -> str:
        """The id of the main session's question."""
        return str(uuid5(NAMESPACE_OID, self.run))

    def new(self, name: str, **changes: Any) -> NewSession:
        """Return a session of this run to create."""
        return new_session(self.id(name), workflow=self.run, **changes)


@dataclass
class Actor:
    """One of the two engines, and the person for whom it acts."""

    store: Store
    scene: Scene
    by: str

    @property
    def at(self) -> int:
        """The time of the requests."""
        return self.scene.now

    def id(self, name: str = "main") -> str:
        """Return the id of a session of this run."""
        return self.scene.id(name)

    async def seen(self) -> SessionRow:
        """Return the main session as it is now."""
        row = await self.store.get(self.id())
        if row is None:
            raise UnknownSession(f"Session {self.id()!r} was removed.", session_id=self.id())
        return row

    async def held(self) -> Driver:
        """Return a driver for the main session as it is now, whether or not this engine holds it."""
        return Driver(self.store, await self.seen())


# the sessions before the verbs


async def _main(store: Store, scene: Scene) -> Driver:
    """Create the main session with a parked child and an open question. Return its driver."""
    driver = Driver(store, await _created(store, scene.new("main", budget_usd=1000)))
    child = Driver(store, await _created(store, scene.new("child", parent=driver.key)))
    await child.commit(release=True, waiting="message")
    asked = Asked(scene.question, "Well?")
    facts = QuestionFacts(asked.id, "", 0, QuestionStatus.WAITING, 1, digest(asked), driver.at, driver.at, None)
    await driver.commit(to_payload(WaitBody("/ask", "ask", ask=asked)), kind="wait", asks=(facts,))
    return driver


async def _created(store: Store, new: NewSession) -> SessionRow:
    row = await store.create(new)
    assert row is not None, f"{new.session_id} already exists"
    return row


async def ready(store: Store, scene: Scene) -> None:
    """No engine drives the session, and it waits for nothing."""
    await (await _main(store, scene)).commit(release=True)


async def waiting(store: Store, scene: Scene) -> None:
    """The session waits for an answer, a message or its child."""
    await (await _main(store, scene)).commit(release=True, waiting="answer,message,child")


async def sleeping(store: Store, scene: Scene) -> None:
    """The session's timer is due."""
    await (await _main(store, scene)).commit(release=True, waiting="timer", wakes_at=scene.now - 10)


async def paused(store: Store, scene: Scene) -> None:
    """Someone has paused the session and its child."""
    await waiting(store, scene)
    await store.pause(
        Filter(session_id=scene.id("main"), tree=True), operator(by="eve", at=scene.now - 100, freeze=True)
    )


async def driven(store: Store, scene: Scene) -> None:
    """The engine drives the session, and a message has arrived."""
    await _main(store, scene)
    await store.send(scene.id("main"), "eve", scene.now - 100, b'{"value":0}')


async def pausing(store: Store, scene: Scene) -> None:
    """The engine drives the session, and someone has paused it."""
    await driven(store, scene)
    await store.pause(Filter(session_id=scene.id("main"), tree=True), operator(by="eve", at=scene.now - 100))


async def kept(store: Store, scene: Scene) -> None:
    """The session is paused, and the engine keeps its step in memory."""
    driver = await _main(store, scene)
    await store.pause(Filter(session_id=scene.id("main"), tree=True), operator(by="eve", at=scene.now - 100))
    await driver.commit(release=True, kept=True, only_if_paused=True)


async def failed(store: Store, scene: Scene) -> None:
    """The session has failed."""
    await (await _main(store, scene)).commit(release=True, ended="failed")


async def under_everything(store: Store, scene: Scene) -> None:
    """Everything is paused, and the engine has parked the session because of it."""
    driver = await _main(store, scene)
    await store.pause(Filter(unended=True), operator(by="eve", at=scene.now - 100, standing=True))
    await driver.commit(release=True, only_if_paused=True)


async def limited(store: Store, scene: Scene) -> None:
    """Two sessions are ready, and one of them may be at work."""
    await ready(store, scene)
    await Driver(store, await _created(store, scene.new("second"))).commit(release=True)
    await store.set_limit(StoredLimit("workflow", scene.run, 1))


async def siblings(store: Store, scene: Scene) -> None:
    """The session waits for two children, one of which each engine drives."""
    driver = Driver(store, await _created(store, scene.new("main", budget_usd=1000)))
    for by in ("ann", "ben"):
        child = Driver(store, await _created(store, scene.new(f"child-{by}", parent=driver.key)))
        await child.commit(release=True)
    await driver.commit(release=True, waiting="child")


Setting = Callable[[Store, Scene], Awaitable[None]]
SETTINGS: dict[str, Setting] = {
    each.__name__: each
    for each in (ready, waiting, sleeping, paused, driven, pausing, kept, failed, under_everything, limited)
}  # fmt: skip


async def prepare_move(store: Store, scene: Scene) -> None:
    """Keep a copy of a session that is then removed, so that it can be imported."""
    await (await started(store, scene.id("moved"), workflow=scene.run)).commit(release=True)
    scene.moved = await store.whole(scene.id("moved"))
    await store.remove(scene.id("moved"), "eve", "it moves", 4000)
    await strip(store)


async def strip(store: Store) -> None:
    """Complete all removals."""
    for removal in await store.removing():
        while await store.strip(removal.key, 1000) is None:
            pass


# the verbs


async def pause(actor: Actor) -> None:
    """Pause the session and its child. Ben also aborts their steps and stops their timers."""
    harder: dict[str, Any] = {"mode": "abort", "freeze": True} if actor.by == "ben" else {}
    request = operator("stop", actor.by, actor.at, **harder)
    await actor.store.pause(Filter(session_id=actor.id(), tree=True), request)


async def pause_everything(actor: Actor) -> None:
    """Pause everything, then list what is stopped."""
    await actor.store.pause(Filter(unended=True), operator("fire drill", actor.by, actor.at, standing=True))
    await actor.store.find(Filter(workflow=actor.scene.run, sort="id"))


async def lift(actor: Actor) -> None:
    """Lift the pause of everything."""
    await actor.store.lift(actor.by, actor.at)


async def resume(actor: Actor) -> None:
    """Withdraw the pauses, then drive the session."""
    await actor.store.unpause(actor.id(), actor.by, actor.at)
    row = await actor.store.claim(actor.id(), paused=True)
    await Driver(actor.store, row).commit(b"resumed", thaw=True)


async def start_again(actor: Actor) -> None:
    """Do what a start with the id of this session does: resume it, but not while everything is paused."""
    await actor.store.unpause(actor.id(), actor.by, actor.at, exempt=False)
    row = await actor.store.claim(actor.id())
    await Driver(actor.store, row).commit(b"started again", thaw=True)


async def take_up(actor: Actor) -> None:
    """Drive the session as it was seen."""
    row = await actor.seen()
    row = await actor.store.claim(actor.id(), fence=row.fence)
    await Driver(actor.store, row).commit(b"taken up", release=True, waiting="message")


async def take(actor: Actor) -> None:
    """Pick up a ready session, as a worker does."""
    for row in await actor.store.take(actor.scene.now, [actor.scene.run], 1):
        await Driver(actor.store, row).commit(b"taken", spend_usd=3)


async def reap(actor: Actor) -> None:
    """Free the sessions of engines that died. Both engines live."""
    await actor.store.reap()


async def steal(actor: Actor) -> None:
    """Take the session over from the engine that drives it."""
    row = await actor.store.claim(actor.id(), steal=True, paused=True)
    await Driver(actor.store, row).commit(b"stolen")


async def commit(actor: Actor) -> None:
    """Record a step: its spending, and the mail that it has read."""
    driver = await actor.held()
    await driver.commit(b"worked", consume=(1,), spend_usd=7)


async def park(actor: Actor) -> None:
    """Stop because of a pause, and keep the step in memory."""
    driver = await actor.held()
    await driver.commit(b"parked", release=True, kept=True, only_if_paused=True)


async def end(actor: Actor) -> None:
    """Complete the session."""
    driver = await actor.held()
    await driver.commit(b"done", release=True, ended="completed", settles=True, closed_by=actor.by)


async def end_child(actor: Actor) -> None:
    """Complete the child session. It reports to its parent, and its cost is added to the parent's."""
    row = await actor.store.claim(actor.id("child"))
    report = Report("completed", msgspec.json.encode(ChildReport(row.session_id, "completed")), True)
    await Driver(actor.store, row).commit(
        b"done", release=True, ended="completed", parent=row.parent, report=report, spend_usd=5
    )


async def spend(actor: Actor) -> None:
    """Drive a child, whose cost is added to the parent's, and look at the parent's purse."""
    row = await actor.store.claim(actor.id(f"child-{actor.by}"))
    driver = Driver(actor.store, row)
    for usd in (3, 4):
        await driver.commit(b"worked", parent=row.parent, spend_usd=usd, spend_tokens=1, spend_operations=1)
    await actor.store.purses(row.key)


async def create(actor: Actor) -> None:
    """Start a session. Both engines use the same id."""
    await actor.store.create(actor.scene.new("new", owner=actor.by))


async def fire(actor: Actor) -> None:
    """Start the due session of a schedule. Both engines have read the same run."""
    due = Schedule(actor.scene.run, actor.scene.run, "0 3 * * *", "UTC", "skip", "newest", b"{}", None, (), 1, None, 2)
    await actor.store.set_schedule(None, due)
    await actor.store.set_schedule(due, msgspec.structs.replace(due, next_at=3), actor.scene.new("fired"))


async def spawn(actor: Actor) -> None:
    """Start another child of the session."""
    row = await actor.seen()
    await actor.store.create(actor.scene.new("spawned", parent=row.key))


async def fork(actor: Actor) -> None:
    """Start a session from the state of this one."""
    row = await actor.seen()
    state = b"a fork of %d records" % row.seq
    first = seal(first_digest(actor.id("fork")), 1, 0, "key", row.step or "", row.visit, actor.scene.now, state)
    await actor.store.create(actor.scene.new("fork", records=(first,), step=row.step, visit=row.visit))


async def send(actor: Actor) -> None:
    """Send a message to the session."""
    await actor.store.send(actor.id(), actor.by, actor.at, b'{"value":"from %b"}' % actor.by.encode())


async def answer(actor: Actor) -> None:
    """Answer the session's question."""
    said = b'"by %b"' % actor.by.encode()
    await actor.store.answer(Answer(value=said, at=actor.at, by=actor.by, question=actor.scene.question))


async def cancel(actor: Actor) -> None:
    """Cancel the session and its child."""
    await actor.store.cancel(actor.id(), actor.by, "no longer needed", actor.at)


async def edit(actor: Actor) -> None:
    """Change the state of the session, and cancel its question."""
    driver = await actor.held()
    await actor.store.revise(driver.next(b"edited", kind="edit", release=True, closed_by=actor.by, settles=True))


async def rewind(actor: Actor) -> None:
    """Rewind the session, and cancel its child."""
    driver = await actor.held()
    change = driver.next(
        b"rewound", kind="rewind", step="first", release=True, closed_by=actor.by, settles=True, thaw=True,
        cancel_children="rewound",
    )  # fmt: skip
    await actor.store.revise(change)


async def remove(actor: Actor) -> None:
    """Remove the session and its child."""
    await actor.store.remove(actor.id(), actor.by, "old", actor.at)


async def import_(actor: Actor) -> None:
    """Import a session."""
    await actor.store.import_(actor.scene.moved)


async def append(actor: Actor) -> None:
    """Append to a stream of the session's drawer, whose note counts the writers, and read the stream."""
    drawer = DrawerId("lg", actor.id())
    for n in (1, 2):
        entry = b"%b %d" % (actor.by.encode(), n)
        await actor.store.drawer_append(drawer, "s", [entry], lambda old, now: (old or b"") + actor.by[:1].encode())
    await actor.store.drawer_read(drawer, "s")


async def pop(actor: Actor) -> None:
    """Take the last entries of the stream away."""
    for _ in range(2):
        await actor.store.drawer_pop(DrawerId("lg", actor.id()), "s")


async def replace(actor: Actor) -> None:
    """Replace a value in the session's drawer under the version that was read."""
    drawer = DrawerId("lg", actor.id())
    found = (await actor.store.drawer_get(drawer, ["k"])).get("k")
    await actor.store.drawer_put(drawer, [Change("k", actor.by.encode(), 0 if found is None else found.version)])


Verb = Callable[[Actor], Awaitable[None]]
VERBS: dict[str, Verb] = {
    each.__name__.strip("_"): each
    for each in (
        pause, pause_everything, lift, resume, take_up, take, reap, steal, commit, park, end, end_child, create, fire,
        spawn, fork, send, answer, cancel, edit, rewind, remove, import_,
    )
}  # fmt: skip

OTHER_SETTINGS: dict[str, Setting] = {"siblings": siblings}
OTHER_VERBS: dict[str, Verb] = {
    "spend": spend, "start_again": start_again, "append": append, "pop": pop, "replace": replace,
}  # fmt: skip
"""What is not tried with everything else, but in a test of its own."""

_NEEDS: dict[str, tuple[str, ...]] = {
    "commit": ("driven", "pausing"),
    "park": ("pausing",),
    "end": ("driven",),
    "steal": ("driven", "kept"),
    "reap": ("driven", "pausing"),
    "take": ("ready", "sleeping", "under_everything", "limited"),
    "take_up": ("ready", "sleeping", "waiting", "limited"),
    "lift": ("under_everything",),
    "answer": ("waiting", "driven"),
    "edit": ("ready", "waiting", "paused", "kept"),
    "rewind": ("ready", "waiting", "paused", "kept"),
}


def settings_for(verb: str) -> tuple[str, ...]:
    """Return the settings in which a verb can take effect."""
    return _NEEDS.get(verb, tuple(SETTINGS))
