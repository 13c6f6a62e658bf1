"""A small pipeline whose steps publish artifacts, with ways to run it, count its calls and read its folder.

The order is research → draft → finalize; finalize reads what draft and header wrote. The output of a step contains the
number of the call, so a test sees in an artifact whether its step ran again.
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
    """The steps that ran, in order. With `file` set they are kept in a file and outlive the process."""

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
        """Return the steps that ran since the last call of this method."""
        found, self.names = self.names, []
        return found


calls = Calls()


@step(writes="research", publishes=Artifact("1-research.json", min_bytes=10))
async def research(company: str) -> list[Finding]:
    return [Finding(claim=f"{company} grows ferns, call {calls('research')}.", weight=2)]


def write(name: str, findings: list[Finding]) -> str:
    return f"## {name}\n\n{findings[0].claim} Written in call {calls(name)}.\n"


@step(writes="sections", publishes=Artifact("2-sections/*.md", count="outline", min_bytes=10))
async def draft(outline: list[str], research: list[Finding], ctx: Context) -> dict[str, str]:
    calls("draft")
    there = await ctx.artifact("2-sections/*.md").spared()
    missing = [name for name in outline if name not in there]
    made = {name: await ctx.do(write, name, research, key=name) for name in missing}
    return {name: (there | made)[name] for name in outline}


@step(writes="header", publishes=Artifact("header.md", min_bytes=1))
async def header(company: str) -> str | None:
    return None if company == "Nameless" else f"# {company}, call {calls('header')}\n"


@step(writes="memo", publishes=Artifact("4-final.md", holds=lambda text: "##" in text, min_bytes=20))
async def finalize(header: str | None, sections: dict[str, str]) -> str:
    return f"{header or ''}{''.join(sections.values())}Final call {calls('finalize')}.\n"


@step(writes="score")
async def rate(memo: str) -> float:
    calls("rate")
    return float(len(memo))


memo = Workflow("memo", state=Memo, steps=[research, draft, header, finalize])
rated = Workflow("rated", state=Memo, steps=[research, draft, header, finalize, rate])


@step(writes="research", publishes=Artifact("1-research.json"))
async def look(company: str) -> list[Finding]:
    return [Finding(claim=f"{company} grows ferns.")]


@step(writes="sections", publishes=Artifact("2-sections/*.md", count="outline"))
async def tell(outline: list[str], research: list[Finding]) -> dict[str, str]:
    return {name: f"{name}: {research[0].claim}" for name in outline}


@step(writes="header", publishes=Artifact("header.md"))
async def head(company: str) -> str | None:
    return f"# {company}, call {calls('head')}"


quiet = Workflow("quiet", state=Memo, steps=[look, tell])
"""Publishes the same content whenever it runs."""
counted = Workflow("counted", state=Memo, steps=[look, head])
"""Publishes different content in every run."""

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
        """Start or resume the session and run it until it stops."""
        async with self.engine() as engine:
            given: dict[str, Any] = {"company": "Fern", "folder": self.folder, **options}
            session = await engine.start(self.workflow, session_id="s1", **given)
            return await session.outcome()

    async def resume(self, **options: Any) -> Outcome[Memo]:
        async with self.engine() as engine:
            session: Session[Memo] = await engine.session("s1").resume(**options)
            return await session.outcome()

    async def ask(self, what: Callable[[Engine], Any]) -> Any:
        async with self.engine() as engine:
            return await what(engine)

    async def states(self) -> dict[str, str]:
        """Return the state of each artifact by its path."""
        return {each.path: each.state for each in await self.ask(lambda engine: engine.session("s1").artifacts())}

    async def plan(self) -> dict[str, str]:
        """Return the verdict of the plan for each step."""
        return {each.step: each.verdict for each in await self.ask(lambda engine: engine.session("s1").plan())}

    async def events(self) -> list[tuple[str, str]]:
        async with self.engine() as engine:
            return [(each.event_type, each.summary) async for each in engine.session("s1").events()]

    def file(self, path: str) -> Path:
        return self.folder / path

    def edit_research(self, claim: str = "Fern was edited by hand, and grows moss.") -> None:
        """Change the first claim and reformat the file, as a person's editor would."""
        findings = json.loads(self.file("1-research.json").read_text())
        findings[0]["claim"] = claim
        self.file("1-research.json").write_text(json.dumps(findings))

    def bin(self) -> list[bytes]:
        """Return the content of the files that were set aside."""
        folder = self.folder / OWN / "bin"
        return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []


def in_folder(folder: Path) -> list[str]:
    """List the files in a folder, without those of the engine."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if OWN not in path.parts)
