"""A small pipeline whose steps leave artifacts, and ways to run it, count its calls and look at its folder.

research → draft → finalize, and header beside them: finalize reads what draft and header wrote. What a step makes has
the number of the call in it, so that a step that ran again is seen in what it left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Outcome, Session, Workflow, step
from pausepoint.definition.artifacts import OWN
from pausepoint.stores.sqlite import SqliteStore


class Finding(BaseModel):
    claim: str
    weight: int = 1


class Memo(BaseModel):
    company: str
    outline: list[str] = ["01-intro", "02-team", "03-risks"]
    research: list[Finding] = []
    sections: dict[str, str] = {}
    header: str | None = None
    memo: str = ""
    score: float | None = None


class Calls:
    """Which steps ran, in order; kept in a file if it is given, so that it outlives a process."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.file: Path | None = None

    def __call__(self, name: str) -> int:
        if self.file is None:
            self.names.append(name)
            return self.names.count(name)
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{name}\n".encode())
        os.close(descriptor)
        return self.file.read_text().split().count(name)

    def taken(self) -> list[str]:
        """What ran since this was asked last."""
        found, self.names = self.names, []
        return found


calls = Calls()


@step(writes="research", leaves=Artifact("1-research.json", min_bytes=10))
async def research(company: str) -> list[Finding]:
    return [Finding(claim=f"{company} grows ferns, call {calls('research')}.", weight=2)]


def write(name: str, findings: list[Finding]) -> str:
    return f"## {name}\n\n{findings[0].claim} Written in call {calls(name)}.\n"


@step(writes="sections", leaves=Artifact("2-sections/*.md", count="outline", min_bytes=10))
async def draft(outline: list[str], research: list[Finding], ctx: Context) -> dict[str, str]:
    calls("draft")
    there = await ctx.artifact("2-sections/*.md").spared()
    missing = [name for name in outline if name not in there]
    made = {name: await ctx.do(write, name, research, key=name) for name in missing}
    return {name: (there | made)[name] for name in outline}


@step(writes="header", leaves=Artifact("header.md", min_bytes=1))
async def header(company: str) -> str | None:
    return None if company == "Nameless" else f"# {company}, call {calls('header')}\n"


@step(writes="memo", leaves=Artifact("4-final.md", holds=lambda text: "##" in text, min_bytes=20))
async def finalize(header: str | None, sections: dict[str, str]) -> str:
    return f"{header or ''}{''.join(sections.values())}Final call {calls('finalize')}.\n"


@step(writes="score")
async def rate(memo: str) -> float:
    calls("rate")
    return float(len(memo))


memo = Workflow("memo", state=Memo, steps=[research, draft, header, finalize])
rated = Workflow("rated", state=Memo, steps=[research, draft, header, finalize, rate])


@step(writes="research", leaves=Artifact("1-research.json"))
async def look(company: str) -> list[Finding]:
    return [Finding(claim=f"{company} grows ferns.")]


@step(writes="sections", leaves=Artifact("2-sections/*.md", count="outline"))
async def tell(outline: list[str], research: list[Finding]) -> dict[str, str]:
    return {name: f"{name}: {research[0].claim}" for name in outline}


@step(writes="header", leaves=Artifact("header.md"))
async def head(company: str) -> str | None:
    return f"# {company}, call {calls('head')}"


quiet = Workflow("quiet", state=Memo, steps=[look, tell])
"""Leaves the same whenever it runs."""
counted = Workflow("counted", state=Memo, steps=[look, head])
"""Does not."""

FILES = ["1-research.json", "2-sections/01-intro.md", "2-sections/02-team.md", "2-sections/03-risks.md",
         "4-final.md", "header.md"]  # fmt: skip


class Desk:
    """A folder, a store, and one session of the pipeline."""

    def __init__(self, path: Path, workflow: Workflow[Memo] = memo) -> None:
        self.path = path
        self.folder = path / "output"
        self.workflow = workflow
        calls.taken()

    def engine(self, name: str = "hold.db") -> Engine:
        store = SqliteStore(self.path / name, synchronous="OFF")
        return Engine(store, workflows=[self.workflow], signals=False)

    async def run(self, **options: Any) -> Outcome[Memo]:
        """Start it, or go on with it if it is there, to where it stops."""
        async with self.engine() as engine:
            given: dict[str, Any] = {"company": "Fern", "folder": self.folder, **options}
            session = await engine.start(self.workflow, session_id="s1", **given)
            return await session.outcome()

    async def resume(self, **options: Any) -> Outcome[Memo]:
        async with self.engine() as engine:
            session: Session[Memo] = await engine.resume("s1", **options)
            return await session.outcome()

    async def ask(self, what: Callable[[Engine], Any]) -> Any:
        async with self.engine() as engine:
            return await what(engine)

    async def states(self) -> dict[str, str]:
        """Path → state."""
        return {each.path: each.state for each in await self.ask(lambda engine: engine.artifacts("s1"))}

    async def plan(self) -> dict[str, str]:
        """Step → verdict."""
        return {each.step: each.verdict for each in await self.ask(lambda engine: engine.plan("s1"))}

    async def events(self) -> list[tuple[str, str]]:
        async with self.engine() as engine:
            return [(each.event_type, each.summary) async for each in engine.events("s1")]

    def file(self, path: str) -> Path:
        return self.folder / path

    def edit_research(self, claim: str = "Fern was edited by hand, and grows moss.") -> None:
        """As a person would, with an editor of their own taste."""
        findings = json.loads(self.file("1-research.json").read_text())
        findings[0]["claim"] = claim
        self.file("1-research.json").write_text(json.dumps(findings))

    def bin(self) -> list[bytes]:
        """The content of what was set aside."""
        folder = self.folder / OWN / "bin"
        return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []


def in_folder(folder: Path) -> list[str]:
    """What lies in a folder, without what is ours."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if OWN not in path.parts)
