"""The worker process. The demo starts it, kills it and starts it again.

``python -m pausepoint.apps.demo.worker start|resume STORE SESSION PACE CALLS``
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pausepoint import Engine
from pausepoint.apps.demo.pipeline import Desk, report


async def main(verb: str, store: str, session_id: str, pace: str, calls: str) -> None:
    """Drive the session until it ends or is paused."""
    Desk.pace, Desk.calls = float(pace), Path(calls)
    async with Engine(Path(store), workflows=[report]) as engine:
        if verb == "start":
            session = await engine.start(report, session_id=session_id)
        else:
            session = await engine.session(session_id).resume(by="the demo")
        await session.outcome()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:  # Ctrl+C reaches both processes; the demo prints the message
        sys.exit(130)
