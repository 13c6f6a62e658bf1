"""A process that drives a session which does not end. It imports little, because each test that uses it starts one."""

from __future__ import annotations

import asyncio
import sys

from pydantic import BaseModel

from pausepoint import Engine, Workflow, step


class Held(BaseModel):
    topic: str = ""
    out: str = ""


@step(writes="out")
async def stay(topic: str) -> str:
    print("holds", flush=True)
    await asyncio.sleep(600)  # the test ends the process
    return topic


async def main(path: str) -> None:
    async with Engine(path, signals=False) as engine:
        held = Workflow("held", state=Held, steps=[stay])
        await (await engine.start(held, session_id="held", topic="x")).outcome()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
