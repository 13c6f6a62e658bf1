"""Folders in all the states in which a command prints what a person can do next."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from pausepoint import Engine, Parked, Session, Workflow
from pausepoint.cli.app import app
from pausepoint.cli.exits import guarded
from tests.cli import ways
from tests.cli.kit import run
from tests.cli.samples import STORE, execute
from tests.support.killed import copy_as_killed, harm

CODE = """
import asyncio
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Artifact, Context, Workflow, guard, step


class Job(BaseModel):
    topic: str = ""
    text: str = ""
    score: int = 0


@step(writes="text")
async def begin(topic: str, ctx: Context) -> str:
    if topic == "fail" and not Path("healed").exists():
        raise ValueError("no ink" + "\\nno pen" * 12)
    if topic == "sleep":
        await ctx.sleep(timedelta(hours=3))
    if topic == "wait":
        return await ctx.receive(str)
    if topic.startswith("ask"):
        return await ctx.ask("Which tone?", str, expires=None)
    if topic == "confirm":
        await ctx.confirm("Ship it?")
    if topic == "call":
        return (await ctx.call(job, topic="wait")).text
    if topic == "spend":
        ctx.spend(usd=2)
    while topic == "hold" and not Path("go").exists():
        await asyncio.sleep(0.02)
    return "text"


@step(writes="score")
async def review(text: str) -> int:
    return len(text)


@guard(after="review")
def good(topic: str) -> str | None:
    return "too dull" if topic == "guard" else None


class Paper(BaseModel):
    facts: str = ""
    text: str = ""


@step(writes="facts", publishes=Artifact("facts.md", min_bytes=1))
async def collect() -> str:
    return "facts"


@step(writes="text", publishes=Artifact("paper.md", min_bytes=1))
async def write(facts: str) -> str:
    return facts + " in a paper"


job = Workflow("job", state=Job, steps=[begin, review], guards=[good])
paper = Workflow("paper", state=Paper, steps=[collect, write])
"""

NAMED = '[tool.pausepoint.workflows]\njob = "job.py:job"\npaper = "job.py:paper"\n'

FILLED = {"MESSAGE": "hello", "USD": "9"}
"""Values for what a printed command leaves to the person."""

WORKS = (0, 3)
"""The exit codes of a command that did what it says: done, or the session needs a person."""


def ended(folder: Path, words: Sequence[str], file: Path | None = None) -> tuple[int, str]:
    """Run a command in this process if that is possible, and return its exit code and what it printed.

    ``file``: where to record the commands that it makes.
    """
    if {"--json", "--detach"} & {*words}:  # both change the streams of the process
        done = run(*words, cwd=folder, env={} if file is None else {ways.RECORD: str(file)})
        return done.code, done.stdout + done.stderr
    with (
        chdir(folder),
        CliRunner().isolation(env={"EDITOR": "true", **_at_home(folder)}) as (out, err, _),
        pytest.MonkeyPatch.context() as at,
    ):
        at.setattr(sys, "argv", ["pausepoint", *words])
        at.setattr(sys, "path", [*sys.path])
        stop = ways.record(file) if file is not None else lambda: None
        try:
            guarded(app)
        except SystemExit as end:
            return int(end.code or 0), click.unstyle((out.getvalue() + err.getvalue()).decode())
        finally:
            stop()


def _at_home(folder: Path) -> dict[str, str]:
    """The settings of this user's agents must not change."""
    return {"CLAUDE_CONFIG_DIR": str(folder / ".user"), "CODEX_HOME": str(folder / ".user")}


class Page(BaseModel):
    text: str = ""


class Scene(NamedTuple):
    """A folder in some state, the commands that print ways out there, and what differs when they are followed."""

    prepare: Callable[[Path], Any]
    says: tuple[str, ...] = ()
    heal: Callable[[Path], Any] = lambda _: None
    codes: dict[str, int] = {}
    target: str = "job.py:job"


def workflows(folder: Path) -> tuple[Workflow[Any], Workflow[Any]]:
    found: dict[str, Any] = {"__name__": "job"}
    exec(compile(CODE, str(folder / "job.py"), "exec"), found)
    return found["job"], found["paper"]


def project(folder: Path, named: bool = True) -> Path:
    (folder / "job.py").write_text(CODE)
    (folder / "pyproject.toml").write_text(NAMED if named else "[tool.pausepoint]\n")
    return folder


def stored(folder: Path, act: Callable[[Engine, Any, Any], Any], store: str = STORE) -> None:
    """Do something with an engine of this process in a store of the folder."""

    async def main() -> None:
        job, paper = workflows(folder)
        async with Engine(folder / store, workflows=[job, paper]) as engine:
            await act(engine, job, paper)

    with chdir(folder):
        asyncio.run(main())


async def begun(engine: Engine, job: Any, topic: str, session_id: str = "", **how: Any) -> Session[Any]:
    """Start a session, and wait until it has ended or waits."""
    session = await engine.start(job, topic=topic, session_id=session_id or f"{topic}1", **how)
    while not how.get("paused") and str((await session.info()).status) in ("running", "created", "ready"):
        await asyncio.sleep(0.01)
    return session


def topics(*names: str, named: bool = True, **how: Any) -> Callable[[Path], None]:
    """A project with a session for each topic."""

    def prepare(folder: Path) -> None:
        async def act(engine: Engine, job: Any, _: Any) -> None:
            for name in names:
                await begun(engine, job, name, **how)

        stored(project(folder, named), act)

    return prepare


def empty(folder: Path) -> None:
    topics("")(folder)
    execute(folder / STORE, "SELECT 1")


def healed(folder: Path) -> None:
    (folder / "healed").touch()


def cancelled(folder: Path) -> None:
    async def act(engine: Engine, job: Any, _: Any) -> None:
        await begun(engine, job, "ask")
        await engine.session("ask1").cancel()

    stored(project(folder), act)


def artifacts(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """A session with published files, of which one was edited and the edit accepted; then the change."""

    def prepare(folder: Path) -> None:
        async def act(engine: Engine, _: Any, paper: Any) -> None:
            session = await engine.start(paper, session_id="p1", folder=folder / "out")
            await session.outcome()
            (folder / "out" / "paper.md").write_text("a paper of my own")
            await session.resume(edits="accept")
            await session.outcome()

        stored(project(folder), act)
        change(folder / "out")

    return prepare


def everything_paused(folder: Path) -> None:
    """A pause of everything, over sessions with and without a pause of their own, and a failed one."""

    async def act(engine: Engine, job: Any, _: Any) -> None:
        await begun(engine, job, "fail")
        await engine.session("fail1").pause()
        await begun(engine, job, "", "own", paused=True)
        for number in range(101):
            await begun(engine, job, "", f"s{number}", paused=True)
            await engine.store.unpause(f"s{number}", None, 1)
        await engine.pause_all()

    stored(project(folder, named=False), act)


def interrupted(folder: Path, *failed: str, named: bool = False) -> None:
    """A session whose process was killed, and others that had failed before."""

    async def act(engine: Engine, job: Any, _: Any) -> None:
        for topic in failed:
            await begun(engine, job, topic)
        await engine.start(job, session_id="hold1", topic="hold")
        while (await engine.session("hold1").info()).seq < 1:
            await asyncio.sleep(0.01)
        copy_as_killed(folder / "alive.db", folder / STORE)
        (folder / "go").touch()

    project(folder, named)
    (folder / STORE).parent.mkdir()
    stored(folder, act, "alive.db")


def crashed(folder: Path) -> None:
    topics("hold", named=True, paused=True)(folder)
    execute(folder / STORE, "UPDATE sessions SET crashes = 2")


def damaged_row(folder: Path) -> None:
    topics("", "ask")(folder)
    execute(folder / STORE, "UPDATE sessions SET step = 'elsewhere' WHERE session_id = 'ask1'")


def damaged_and_left(folder: Path) -> None:
    interrupted(folder)
    execute(folder / STORE, "UPDATE sessions SET step = 'elsewhere'")


def damaged_log(folder: Path) -> None:
    async def act(engine: Engine, job: Any, _: Any) -> None:
        for number in range(3):
            await begun(engine, job, "ask", f"a{number}")
        copy_as_killed(folder / "alive.db", folder / STORE)

    project(folder)
    (folder / STORE).parent.mkdir()
    stored(folder, act, "alive.db")
    harm(folder / STORE)


def changed(folder: Path) -> None:
    """A session whose step is no longer in the code."""
    topics("ask")(folder)
    (folder / "job.py").write_text(CODE.replace("steps=[begin, review]", "steps=[review]"))
    ended(folder, ["answer", "ask1", "formal", "--run"])


def changed_elsewhere(folder: Path) -> None:
    changed(folder)
    project(folder, named=False)


def newer(folder: Path) -> None:
    """A session of an older version, without a migration to the present one."""
    topics("ask")(folder)
    (folder / "job.py").write_text(CODE.replace("guards=[good]", "guards=[good], version=2"))
    ended(folder, ["answer", "ask1", "formal", "--run"])


def exported(folder: Path) -> None:
    async def act(engine: Engine, job: Any, paper: Any) -> None:
        await begun(engine, job, "ask")
        await engine.session("ask1").export(folder / "ask.jsonl")
        session = await engine.start(paper, session_id="p1", folder=folder / "out")
        await session.outcome()
        await engine.session("p1").export(folder / "p1.jsonl")

    project(folder)
    stored(folder, act, "other.db")


def removed(folder: Path) -> None:
    async def act(engine: Engine, job: Any, _: Any) -> None:
        await begun(engine, job, "", "gone")
        await engine.session("gone").remove()
        await begun(engine, job, "ask")

    stored(project(folder), act)


def answered(folder: Path) -> None:
    async def act(engine: Engine, job: Any, _: Any) -> None:
        session = await begun(engine, job, "ask")
        (question,) = await engine.questions()
        await session.answer("formal")
        await session.outcome()
        (folder / "question").write_text(question.id)

    stored(project(folder), act)


def guest(folder: Path) -> None:
    """A guest session that was paused during a visit."""

    async def act(engine: Engine, _: Any, __: Any) -> None:
        with suppress(Parked):
            async with engine.visit(Workflow.guest("web", state=Page), session_id="web1") as ctx:
                await engine.session("web1").pause()
                await ctx.safe_point()

    stored(project(folder), act)


def nothing(_: Path) -> None:
    pass


def tagged(folder: Path) -> None:
    topics("", paused=True, tags=["program:shop"])(folder)
    (folder / "pyproject.toml").write_text("[tool.pausepoint]\n")
    (folder / "shop.py").write_text("print('resumed')\n")


def declined(folder: Path) -> None:
    async def act(engine: Engine, job: Any, _: Any) -> None:
        session = await begun(engine, job, "confirm")
        await session.answer("no")
        await session.outcome()

    stored(project(folder), act)


EVERY_KIND = ("", "fail", "sleep", "wait", "ask", "call", "guard")


def gated(folder: Path) -> None:
    """A project with the gate in its own settings and in those of the user."""
    project(folder)
    for words in (["--user"], []):
        assert ended(folder, ["gate", "install", "claude", "--yes", *words])[0] == 0


def scheduled(folder: Path) -> None:
    async def act(engine: Engine, job: Any, _: Any) -> None:
        await engine.schedule("daily", job, cron="0 7 * * *")
        await engine.schedules.pause("daily")

    stored(project(folder), act)


SCENES = {
    "a gate": Scene(gated, ("gate install claude --yes", "gate check", "gate uninstall --yes"), codes={"gate": 1}),
    "no gate": Scene(project, ("gate spend --usd 1", "gate check")),
    "a guest": Scene(guest, ("show web1", "resume web1 --json", "ls")),
    "nothing": Scene(nothing, ("ls", "status", "inbox", "doctor", "verify", "show x", "init")),
    "a file of my own": Scene(project, ("init", "skill")),
    "an empty store": Scene(lambda folder: stored(project(folder), _removed_all), ("ls", "answer --later", "resume")),
    "sessions of every kind": Scene(
        topics(*EVERY_KIND),
        (
            *(f"show {topic}1" for topic in EVERY_KIND if topic),
            "ls",
            "inbox",
            "workflows --mermaid",
            "inbox --json",
            "show ask1 --json",
            "answer ask1 --later",
            "answer ask1 formal",
            "answer wait1 yes",
            "answer nosuch yes",
            "show nosuch",
            "diff wait1",
            "why 1 begin",
            "send wait1 hello",
            "run job --topic fail",
            "run job --topic ask2 --session-id ask1",
            "run job --topic ask3 --json",
            "run job --topic ask4",
            "pause wait1",
            "edit guard1 --set topic=fun",
            "edit guard1 --set topic=guard --json",
            "resume",
            "export ask1 ask.jsonl",
        ),
        healed,
    ),
    "many of a kind": Scene(
        lambda folder: stored(project(folder), _many),
        ("ls", "status", "answer --later", "run job --topic fail", "resume"),
        healed,
    ),
    "a question that was declined": Scene(
        declined, ("show confirm1", "resume confirm1", "ask-again confirm1"), codes={"resume": 1}
    ),
    "without the code": Scene(
        topics("fail", "sleep", "guard", named=False),
        ("show fail1", "show sleep1", "show guard1", "why fail1", "resume --target job.py:job"),
        healed,
    ),
    "paused without the code": Scene(
        topics("ask", "", named=False, paused=True), ("show ask1", "pause ask1", "resume ask1"), target="job.py:job"
    ),
    "a budget": Scene(topics("spend", budget=1), ("show spend1",)),
    "cancelled": Scene(cancelled, ("show ask1",)),
    "nothing to resume": Scene(topics("ask", "wait"), ("resume",)),
    "one to resume": Scene(topics("fail", "guard"), ("resume --dry-run",), healed),
    "answered": Scene(answered, ("answer QUESTION --later",)),
    "removed": Scene(removed, ("show gone",)),
    "everything is paused": Scene(
        everything_paused,
        ("ls", "status", "doctor --target job.py", "show s1", "pause --all", "resume --all"),
        healed,
    ),
    "a batch whose process was killed": Scene(
        lambda folder: interrupted(folder, "fail", named=True),
        (
            "resume --status failed --workflow job",
            "resume --status failed --workflow job --hand-over",
            "pause --workflow job",
        ),
        healed,
    ),
    "the process was killed": Scene(interrupted, ("doctor", "show hold1", "ls --stranded")),
    "no schedule yet": Scene(project, ("schedule ls",)),
    "a schedule": Scene(scheduled, ("schedule resume daily", "schedule trigger daily")),
    "it was killed, and the session is damaged": Scene(damaged_and_left, ("doctor",), codes={"verify": 1}),
    "it crashes": Scene(crashed, ("doctor",)),
    "a damaged session": Scene(damaged_row, ("doctor",), codes={"verify": 1}),
    "a damaged log": Scene(damaged_log, ("doctor --loss accept",)),
    "changed code": Scene(changed, ("show ask1", "why ask1 review", "plan ask1"), project),
    "a newer version": Scene(newer, ("show ask1",)),
    "changed code that is not here": Scene(changed_elsewhere, ("show ask1",)),
    "imported": Scene(exported, ("import ask.jsonl", "import p1.jsonl"), lambda folder: _import_paper(folder)),
    "an edited artifact": Scene(
        artifacts(lambda out: (out / "facts.md").write_text("other facts")),
        ("artifacts adopt p1 facts.md",),
        codes={"resume": 6},
        target="job.py:paper",
    ),
    "a missing artifact": Scene(artifacts(lambda out: (out / "facts.md").unlink()), ("resume p1",)),
    "in the background": Scene(project, ("run job --session-id b1 --detach",)),
    "a program of its own": Scene(tagged, ("resume 1",)),
}


async def _removed_all(engine: Engine, job: Any, _: Any) -> None:
    await begun(engine, job, "", "gone")
    await engine.session("gone").remove()


async def _many(engine: Engine, job: Any, _: Any) -> None:
    for number in range(12):
        await begun(engine, job, "ask", f"ask{number}")
        await begun(engine, job, "fail", f"fail{number}")


def _import_paper(folder: Path) -> None:
    ended(folder, ["import", "p1.jsonl", "--folder", "in"])
