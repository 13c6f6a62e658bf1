"""A workflow about a person with a secret name, for the tests of removal and redaction."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Session, Status, Workflow, step

DAY = timedelta(days=1)
SECRET = "swordfish-7391"
LARGE = "-".join([SECRET] * 3000)


class Case(BaseModel):
    name: str
    facts: Annotated[list[str], Append] = []
    letter: str = ""
    score: int = 0


async def look_up(name: str) -> str:
    return f"about {name}"


@step(writes="facts")
async def research(name: str, ctx: Context) -> list[str]:
    ctx.spend(usd=0.25, tokens=7)
    return [await ctx.do(look_up, name)]


@step(writes="letter")
async def write(name: str, facts: list[str]) -> str:
    return f"Dear {name}, {facts[-1]}"


@step(writes="score")
async def rate() -> int:
    return 5


case = Workflow("case", state=Case, steps=[research, write, rate])


async def closed_case(engine: Engine, session_id: str = "c1", name: str = SECRET, **options: Any) -> Session[Case]:
    """Run a case until it ends."""
    session = await engine.start(case, session_id=session_id, name=name, **options)
    assert (await session.outcome()).status is Status.COMPLETED
    return session


def bytes_of(path: Path) -> bytes:
    """Return the current content of all files of a store."""
    files = [file for file in sorted(path.parent.glob(path.name + "*")) if file.is_file()]
    return subprocess.run(["cat", *files], check=True, capture_output=True).stdout  # the store may be open here
