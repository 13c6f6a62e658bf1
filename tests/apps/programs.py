"""The five applications as programs whose processes a test can kill, interrupt and pause at named points.

Each class is one session in its own folder, run by one process after another. It says at which points its processes
are met, which calls an undisturbed session makes, and what a session leaves. `tests.apps.test_faults` does to all of
them what can happen to a process.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from pausepoint import Engine, Status
from pausepoint.apps.aura import get_workflow_state
from pausepoint.apps.aura.models import CurrentStep, WorkflowState
from pausepoint.apps.aura.workflow import POSITIONS
from pausepoint.apps.helpdesk import helpdesk
from pausepoint.apps.memo import AGENTS
from tests.apps.devs_kit import NEEDS, alive, effects, in_order, lines, pids, small, write_plan
from tests.apps.helpdesk_kit import contents
from tests.apps.helpdesk_kit import effects as shop_effects
from tests.apps.helpdesk_watched import TOOLS, WRITES
from tests.apps.memo_kit import FILES, WRITTEN, Memo
from tests.apps.pdfs import make_pdf
from tests.support.forkserver import Child, Forks
from tests.support.held import Driven, Held
from tests.support.waits import until


class App(Driven):
    """One session of an application."""

    start_args: list[str]
    """The arguments that start the session."""
    resume_args: list[str]
    """The arguments that resume it."""
    session_id = "s1"

    once: ClassVar[Counter[str]]
    """The calls of an undisturbed session."""
    kills: ClassVar[dict[str, list[str]]]
    """The sessions that are killed, by a name, and the points at which one process after another is killed."""
    killed: ClassVar[tuple[str, ...]] = ()
    """The items of the acceptance list that the kills prove."""
    interrupts: ClassVar[dict[str, list[tuple[str, str]]]]
    """The sessions that are interrupted, by a name: at which points one process after another, and by which signals."""
    pauses: ClassVar[dict[str, list[str]]]
    """The sessions that are paused, by a name, and the points at which another process pauses them."""
    paused: ClassVar[tuple[str, ...]] = ()
    """The items of the acceptance list that the pauses prove."""
    last: ClassVar[str] = ""
    """The point of the last call: a pause there comes too late."""

    def start(self, at: str = "", by: signal.Signals = signal.SIGKILL) -> str:
        return self.run(*self.start_args, at=at, by=by)

    def resume(self, at: str = "", by: signal.Signals = signal.SIGKILL) -> str:
        return self.run(*self.resume_args, at=at, by=by)

    def run_again(self, at: str = "") -> str:
        """Continue a session whose process was killed."""
        return self.resume(at)

    def hold(self, point: str, is_paused: bool = False) -> Child:
        """Start a process, or resume the paused session in one, that waits at a point."""
        return self.begin(*(self.resume_args if is_paused else self.start_args), at=point)

    def release(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        """Pause the session from another process."""
        self.run("pause", self.session_id, "--reason", "lunch", "--by", "ann")

    def result(self) -> object:
        """Return everything that a completed session leaves, apart from names of folders and times."""
        raise NotImplementedError

    def check_undisturbed(self, said: str) -> None:
        """Check the session that no one disturbed."""

    def check_killed(self, point: str) -> None:
        """Check what a kill left."""

    def check_resumed(self, point: str, until: str, said: str) -> None:
        """Check what the process printed that resumed a killed session. ``until``: where it was killed, too."""

    def check_cost(self, *points: str) -> None:
        """Check which calls were repeated after kills at these points."""
        assert self.calls == self.once + Counter(points)

    def check_interrupted(self, point: str, by: str, said: str) -> None:
        """Check what an interrupted process printed."""

    def repeatable(self, point: str) -> set[str]:
        """Return the calls of which an interrupt may cost one."""
        return set()

    def check_paused(self, point: str, said: str) -> None:
        """Check a paused session, and what its process printed."""


COURSES = ("math", "bio", "hist", "astro")
AURA = ("sync hist", "analyze", "plan", "report")
"""A call of every agent. The sync of one course, while the others may be done or not."""
POSITIONS_SAID = {position: f"at {step}#1" for step, position in POSITIONS.items()}
POSITIONS_SAID[CurrentStep.COMPLETED] = "after the session completed"


class Aura(Held, App):
    job = "tests.apps.aura_watched:job"
    once = Counter([*(f"sync {course}" for course in COURSES), "analyze", "plan", "report"])
    kills = {"even": [*AURA[::2]], "odd": [*AURA[1::2]]}
    killed = ("S1.37",)
    interrupts = {"agents": [("sync hist", "SIGINT"), ("plan", "SIGINT")]}
    pauses = {"agents": [*AURA]}
    last = "report"

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        self.start_args = ["--session-id", "s1", "--reports", str(folder / "reports")]
        self.resume_args = ["resume", "s1"]

    @property
    def document(self) -> WorkflowState:
        found = get_workflow_state("s1", store=self.store)
        assert found is not None
        return found

    def result(self) -> object:
        document = self.document
        assert document.report is not None
        files = {path.name: path.read_bytes() for path in sorted((self.folder / "reports").iterdir())}
        return document.model_dump(exclude={"reports": True, "report": {"markdown", "html", "mail"}}), files

    def check_undisturbed(self, said: str) -> None:
        assert "Session s1 of aura completed" in said

    def check_killed(self, point: str) -> None:
        assert self.document.current_step is list(CurrentStep)[AURA.index(point)]
        assert self.document.status == "ready"

    def check_cost(self, *points: str) -> None:
        """Other courses may be fetched at the same time: a kill costs what was in flight."""
        again = self.calls - self.once - Counter(points)
        assert self.once + Counter(points) <= self.calls
        assert set(again) <= ({f"sync {each}" for each in COURSES} if "sync hist" in points else set())
        assert max(self.calls.values()) == 2

    def check_interrupted(self, point: str, by: str, said: str) -> None:
        assert "resume s1" in said
        assert f"Interrupted {POSITIONS_SAID[self.document.current_step]}. Finished work is kept." in said

    def repeatable(self, point: str) -> set[str]:
        here = AURA.index(point)
        return set(AURA[here : here + 2])  # it may have got to the next step before it heard

    def check_paused(self, point: str, said: str) -> None:
        # In the sync of the courses a pause takes effect inside of the step, behind those that were begun.
        done = AURA.index(point) + (point != "sync hist")
        assert self.document.status == "paused"
        assert self.document.current_step in list(CurrentStep)[done : done + 1 + (point == "sync hist")]


LINES = (
    "Where is A-1001, and change the address of A-1002",
    "Harbour Road 7",
    "24105 Kiel",
    "sounds good",
    "退款 B-2001，坏了",
    "hm",
    "yes",
    "book a repair next Monday at 3pm, ann@example.com",
    "go ahead",
    "cancel my order B-2002",
    "👍",
    "a human please 🐙",
    "bye",
)
CALLS = [f"{when} {tool}" for tool in TOOLS for when in ("before", "after")]
SAID = [f"said {line}" for line in LINES]
SHOP_EFFECTS = Counter({"address_changes": 1, "refunds": 1, "appointments": 1, "cancellations": 1, "tickets": 1})


class Helpdesk(Held, App):
    job = "tests.apps.helpdesk_watched:job"
    session_id = "c1"
    once = Counter([*CALLS, *SAID])
    kills = {
        "before": [CALLS[0], *(f"before {tool}" for tool in WRITES)],
        "after": ["after change_address", *(f"after {tool}" for tool in WRITES)],
        SAID[1]: [SAID[1]],
        SAID[4]: [SAID[4]],
    }
    killed = ("S2.40", "S2.55")
    interrupts = {"tools": [("before quote_refund", "SIGINT"), ("before pay_refund", "SIGINT")]}
    pauses = {"tools": [SAID[1], "before change_address", "after pay_refund", "before book"]}

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        script = folder / "script.txt"
        script.write_text("\n".join(LINES), "utf-8")
        self.resume_args = ["--session-id", "c1", "--play", str(script)]
        self.start_args = [*self.resume_args, "--now", "2030-03-04T09:00", "--time-zone", "UTC"]

    def result(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return what was said, and the shop."""

        async def look() -> list[dict[str, Any]]:
            async with Engine(self.store, workflows=[helpdesk], signals=False) as engine:
                assert (await engine.session("c1").info()).status is Status.COMPLETED
                assert (await engine.verify()).ok
                state: Any = await engine.session("c1").state()
                return [message.model_dump() for message in state.messages]

        return asyncio.run(look()), contents(self.folder / "shop.db")

    def check_undisturbed(self, said: str) -> None:
        assert shop_effects(self.folder / "shop.db") == SHOP_EFFECTS

    def check_cost(self, *points: str) -> None:
        """Check that only the tool that was running, or had ended without a record, ran once more."""
        again = self.calls - self.once
        if points[0] in SAID:  # the tool that answers may have begun before the kill
            assert len({each.split()[-1] for each in again}) <= 1
            assert max(again.values(), default=0) <= 1
        else:
            ran = [point.replace("after", "before") for point in points]
            assert again == Counter([*ran, *(point for point in points if point.startswith("after"))])

    def check_interrupted(self, point: str, by: str, said: str) -> None:
        assert f"--session-id c1 --store {self.store}" in said
        assert said.splitlines()[-1].startswith("Continue: ")

    def check_paused(self, point: str, said: str) -> None:
        assert "paused: lunch" in said
        assert said.splitlines()[-1].endswith(f"resume c1 --store {self.store}")
        assert "lunch" in self.run(*self.resume_args, code=3)  # as long as it is paused, no one gets an answer
        self.run("resume", "c1", code=3)


CHUNKS = 5
PLAN = ["--course", "calc2:Calculus II:2030-02-21", "--course", "hist:History:2030-02-26", "--start", "2030-02-08"]
PLAN += ["--time-zone", "UTC", "--max-minutes", "15", "--rest-day", "Sunday"]
READS = [f"chunk .pdf:{index}" for index in range(CHUNKS)]
STAGES = ["estimate", "plan", "review", "finish"]


class Planner(Held, App):
    """A plan that is revised once, from a book and some notes."""

    job = "tests.apps.planner_watched:job"
    once = Counter(
        [f"{what} {kind}" for what in ("pages", "outline") for kind in (".pdf", ".md")]
        + [*READS, "chunk .md:0", *STAGES, "plan", "review"]
    )
    _points: ClassVar = ["outline .pdf", *READS, "outline .md", "chunk .md:0", *STAGES]
    kills = {"even": _points[::2], "odd": _points[1::2]}
    interrupts = {"stages": [("chunk .pdf:3", "SIGINT"), ("plan", "SIGTERM")]}
    pauses = {"stages": ["chunk .pdf:3", "estimate"]}

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        book, notes = folder / "book.pdf", folder / "notes.md"
        if not book.exists():
            self.material(book, notes)
        self.start_args = ["--session-id", "s1", *PLAN, "--file", f"calc2:{book}", "--file", f"hist:{notes}"]
        self.resume_args = ["resume", "s1"]
        self.peak = 0

    def material(self, book: Path, notes: Path) -> None:
        words = [f"a line of words about series number {number} and its limit" for number in range(25)]
        titles = [(f"Chapter {number + 1}", number * 20) for number in range(CHUNKS)]
        make_pdf(book, [[f"Page {number}", *words] for number in range(20 * CHUNKS - 7)], titles)
        text = "some words about the matter " * 60
        notes.write_text("".join(f"## Topic {name}\n\n{text}\n\n" for name in "ABC"))

    def ends(self, child: Child, *codes: int) -> str:
        found = super().ends(child, *codes)
        if child.code != -signal.SIGKILL:
            self.peak = child.hear()["peak"]
        return found

    def document(self) -> dict[str, Any]:
        to = self.folder / "document.json"
        child = self.server.start("tests.apps.planner_watched:look", store=str(self.store), session_id="s1", to=str(to))
        assert child.wait() == 0
        found: dict[str, Any] = json.loads(to.read_text())
        return found

    def result(self) -> object:
        found = self.document()
        for name in ("created_at", "updated_at", "artifacts"):
            del found[name]
        del found["planning_state"]["made_at"]
        assert (found["status"], found["planning_state"]["plan_version"]) == ("completed", 2)
        found["events"] = [(event["agent_name"], event["event_type"], event["summary"]) for event in found["events"]]
        outputs = self.folder / "planner" / "s1"
        files = {path.name: path.read_bytes() for path in sorted(outputs.iterdir())}
        assert set(files) == {"study_plan.md", "study_plan.csv", "study_plan.html", "study_plan.ics"}
        files["study_plan.ics"] = files["study_plan.ics"].replace(b"\r\n ", b"")  # lines are folded at other places
        files = {name: text.replace(bytes(self.store), b"STORE") for name, text in files.items()}
        files["study_plan.ics"], count = re.subn(rb"DTSTAMP:\d{8}T\d{6}Z", b"", files["study_plan.ics"])
        assert count == files["study_plan.ics"].count(b"BEGIN:VEVENT") > 0
        return found, files

    def repeatable(self, point: str) -> set[str]:
        """What is being done is finished; the step's own code, outside of operations, may run again."""
        return {"plan"} if point == "plan" else set()


DRAFTS = [f"draft {name}" for name in WRITTEN]
ORDER = [name for agent in AGENTS for name in (DRAFTS if agent == "draft" else [agent])]
"""The calls of an undisturbed memo, in order."""
STRUCK = [each for each in ORDER if each not in DRAFTS or each in (DRAFTS[0], DRAFTS[1], DRAFTS[7], DRAFTS[9])]
"""The calls in which a memo is killed."""


class MemoApp(Held, Memo, App):
    session_id = "Fernstone-v0.0.1"
    once = Counter(ORDER)
    kills = {"even": STRUCK[::2], "odd": STRUCK[1::2]}
    killed = ("S4.4", "S4.7", "S4.61", "S4.65", "S4.73", "S4.98", "S4.99", "S4.114")
    interrupts = {"agents": [("research", "SIGTERM"), (DRAFTS[3], "SIGINT")]}
    pauses = {"agents": [DRAFTS[3], "cite"]}
    start_args = ["Fernstone"]
    resume_args = ["Fernstone", "--resume"]

    def result(self) -> object:
        assert [path.name for path in (self.folder / "output").iterdir()] == ["Fernstone-v0.0.1"]
        found = self.desk.contents()
        assert list(found) == FILES
        return found

    def check_undisturbed(self, said: str) -> None:
        assert self.order == ORDER
        assert "✓ Memo complete: output/Fernstone-v0.0.1/4-final-draft.md" in said

    def check_killed(self, point: str) -> None:
        if point in DRAFTS:
            assert not (self.desk.folder / "2-sections").exists(), "a half set of sections is never shown"

    def check_resumed(self, point: str, until: str, said: str) -> None:
        agent, last = point.split()[0], (until or AGENTS[-1]).split()[0]
        first = f"✓ Resuming from checkpoint: {agent}" if agent != AGENTS[0] else "⚠️  No checkpoints found"
        assert first in said
        expected = [*AGENTS[AGENTS.index(agent) : AGENTS.index(last) + 1]]
        named = re.findall(r"^Running agent: (\w+)$", said, re.MULTILINE)
        assert named == (expected[: len(named)] if until else expected), "a killed process names its last agents or not"

    def check_cost(self, *points: str) -> None:
        order, begins = list[str](), 0
        for here in map(ORDER.index, points):
            order, begins = [*order, *ORDER[begins : here + 1]], here
        assert self.order == [*order, *ORDER[begins:]]

    def check_interrupted(self, point: str, by: str, said: str) -> None:
        kept, resume = said.splitlines()[-2:]
        assert kept == f"{'Interrupted' if by == 'SIGINT' else 'Terminated'}. Finished work is kept."
        assert re.fullmatch(r"Resume: .* Fernstone --resume --version v0\.0\.1", resume)

    def repeatable(self, point: str) -> set[str]:
        here = ORDER.index(point)
        return set(ORDER[here : here + 2])


MOMENTS = [f"{moment} {id}" for id in NEEDS if id != "c" for moment in ("begin", "during", "end")]
"""The moments of each task but c, which runs beside b and is like it."""


class Devs(App):
    """One plan, by default the small one."""

    job = "tests.apps.devs_watched:job"
    session_id = "plan.json"
    once = Counter(list(NEEDS))
    kills = {moment: [each for each in MOMENTS if each.startswith(moment)] for moment in ("begin", "during", "end")}
    # One point for each session: the file that holds a task would be an edit of a workspace that was left in order.
    interrupts = {
        "begin a": [("begin a", "SIGTERM")], "during b": [("during b", "SIGINT")],
        "during d": [("during d", "SIGTERM")],
    }  # fmt: skip
    pauses = {at: [at] for at in ("begin a", "during a", "begin b", "during b", "during d")}
    paused = ("S5.45",)
    last = "during d"
    start_args = ["run", "plan.json"]
    resume_args = ["resume", "plan.json"]

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        self.work = folder / "work"
        if not (folder / "plan.json").exists():
            write_plan(folder, small())

    def met(self, *args: str, at: str) -> Child:
        """Start a process, and return when it has come to a moment. The process continues."""
        child = self.begin(*args, at=at)
        child.hear()
        return child

    @property
    def all_said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("said-*")))

    def hold_task(self, id: str) -> Path:
        """Let the command of a task wait until the file is deleted."""
        path = self.work / f"hold-{id}"
        path.touch()
        return path

    def start(self, at: str = "", by: signal.Signals = signal.SIGKILL) -> str:
        if at.startswith("during"):
            self.hold_task(at.split()[1])
        return super().start(at, by)

    def run_again(self, at: str = "") -> str:
        return self.start(at) if at else self.resume()  # the same command continues it, too

    def hold(self, point: str, is_paused: bool = False) -> Child:
        assert not is_paused
        self.hold_task(point.split()[1])
        return self.met(*self.start_args, at=point)

    def release(self) -> None:
        for path in self.work.glob("hold-*"):
            path.unlink()

    @property
    def calls(self) -> Counter[str]:
        return Counter(line.split()[0] for line in lines(self.folder, "began"))

    def result(self) -> object:
        """Check that each task took effect once and in order, and that no command outlives the process that ran it."""
        assert in_order(effects(self.folder)), effects(self.folder)
        assert not any(map(alive, pids(self.folder)))
        return True

    def check_killed(self, point: str) -> None:
        until(lambda: not any(map(alive, pids(self.folder))))  # the command is not left behind
        self.release()

    def check_cost(self, *points: str) -> None:
        again = self.calls - self.once
        assert again.pop("c", 0) <= any(point[-1] == "b" for point in points)  # it may run then, and is like b
        assert again == Counter(id for moment, id in map(str.split, points) if moment != "begin")

    def check_interrupted(self, point: str, by: str, said: str) -> None:
        assert "Finished work is kept" in said
        assert f"resume plan.json --store {self.store}" in said

    def check_paused(self, point: str, said: str) -> None:
        """1_PRD-REQ-UI-008, with the snapshot in <workspace>/.devs/state_snapshot.json."""
        snapshot = json.loads((self.work / ".devs" / "state_snapshot.json").read_text())
        assert {"pausedAt", "activeAgents", "pendingTasks"} == set(snapshot)
        pending = {each["id"] for each in snapshot["pendingTasks"]}
        assert "d" in pending
        assert not pending & set(effects(self.folder))
        assert "lunch (by ann)" in said
        self.run(*self.start_args, code=3)  # a pause is taken back by a resume alone


APPS: dict[str, type[App]] = {"aura": Aura, "helpdesk": Helpdesk, "planner": Planner, "memo": MemoApp, "devs": Devs}
