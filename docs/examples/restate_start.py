"""Start the agent for Restate's workers: python restate_start.py SESSION TASK INGRESS-PORT"""

import asyncio
import sys

import httpx
from agent import agent

from pausepoint import Engine


async def main(session_id: str, task: str, ingress: str) -> None:
    async with Engine(drives="none") as engine:
        await engine.start(agent, session_id=session_id, task=task, paused=True)
        await engine.session(session_id).resume(here=False)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ingress}") as restate:
        (await restate.post(f"/pausepoint/{session_id}/drive/send")).raise_for_status()
    print(session_id, "is on its way")


asyncio.run(main(*sys.argv[1:]))
