"""A worker that drives sessions of the agent for Restate. Start it with: python restate_worker.py PORT"""

import asyncio
import sys

import restate
from agent import agent
from hypercorn.asyncio import serve
from hypercorn.config import Config

from pausepoint import Engine
from pausepoint.workers.restate import dispatcher


async def main(port: int) -> None:
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    async with Engine(workflows=[agent], drives="asked") as engine:
        await serve(restate.app([dispatcher(engine)]), config)


asyncio.run(main(int(sys.argv[1])))
