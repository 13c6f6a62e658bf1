"""A process that drives sessions in a loop of operations. As each begins, its session's id is added to a file.

    python -m tests.support.looper STORE BEGUN SESSION… [--deaf | --blocked]

With ``--deaf`` the process notices requests only when it polls: neither before an operation nor with a commit. With
``--blocked`` an operation blocks the event loop until the file BEGUN.go exists.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.model.commits import Flags
from pausepoint.runtime.requests import Requests


class Loop(BaseModel):
    path: str = ""
    rounds: int = 1_000_000


@step
async def turn(path: str, rounds: int, ctx: Context) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def work(number: int) -> int:
        os.write(file, f"{ctx.session_id} ".encode())  # one write, so ids of several processes do not mix
        while "--blocked" in sys.argv and not os.path.exists(f"{path}.go"):
            time.sleep(0.01)
        await asyncio.sleep(0.001)
        return number

    for number in range(rounds):
        await ctx.do(work, number)


looping = Workflow("looping", state=Loop, steps=[turn])


def make_deaf() -> None:
    """Break the drives: they see requests only when the store is polled."""

    def committed(self: Requests, flags: Flags) -> None:
        self.held.changed(self.held.session_id)

    Requests.may_have_news = lambda self: False  # type: ignore[method-assign]
    Requests._committed = committed  # type: ignore[method-assign]


async def main(store: str, path: str, names: list[str]) -> None:
    async with Engine(store, workflows=[looping]) as engine:
        for name in names:
            await engine.start(looping, session_id=name, path=path)
        await asyncio.Event().wait()


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--deaf" in sys.argv:
        make_deaf()
    asyncio.run(main(words[0], words[1], words[2:]))
