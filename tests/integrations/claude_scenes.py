"""The Claude Agent SDK in processes of their own: its conformance suite, requests for tools, and programs that use it.

The wheel of the SDK contains Claude Code and has 164 MB, so it is no dependency of the tests. ``make programs``
installs the SDK without it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import claude_transcripts
from pausepoint import Engine
from pausepoint.integrations.claude import PausepointSessionStore, approve
from tests.docs.programs import job
from tests.support.forkserver import say

SDK = Path(__file__).parents[2] / "build" / "peers" / "python"
"""Where ``make programs`` installs the SDK."""

HOW = "The Claude Agent SDK is not installed. Run `make programs`."
COMMAND = {"command": "make release"}


def is_installed() -> bool:
    return (SDK / "claude_agent_sdk").exists()


def warm_up() -> None:
    sys.path.append(str(SDK))
    import claude_agent_sdk.testing  # noqa: F401


def conformance(folder: str) -> None:
    """Run the contracts of the SDK for stores, and say how many stores they wanted."""
    from claude_agent_sdk.testing import run_session_store_conformance

    async def main() -> None:
        async with AsyncExitStack() as engines:
            made: list[PausepointSessionStore] = []

            async def store() -> PausepointSessionStore:
                engine = await engines.enter_async_context(Engine(f"{folder}/{len(made)}.db"))
                made.append(PausepointSessionStore(engine))
                return made[-1]

            await run_session_store_conformance(store)
            say({"stores": len(made)})

    asyncio.run(main())


def sent_twice(folder: str) -> None:
    """Say what a transcript contains if the SDK repeats a batch whose success it did not hear of."""

    async def main() -> None:
        async with Engine(f"{folder}/p.db") as engine:
            store = PausepointSessionStore(engine)
            key: Any = {"project_key": "a/b", "session_id": "s"}
            batch: Any = [{"type": "user", "uuid": "u1"}, {"type": "title"}]
            for _ in range(2):
                await store.append(key, batch)
            await store.append({"project_key": "a", "session_id": "b/s"}, [{"type": "other"}])
            await store.append({**key, "subpath": ""}, [{"type": "last"}])
            assert await store.list_subkeys(key) == []
            say({"types": [entry["type"] for entry in await store.load(key) or []]})

    asyncio.run(main())


def request(
    folder: str, times: int = 1, expires: float | None = None, name: str | None = "chat", agent: str | None = None
) -> None:
    """Ask for a tool as the SDK does, and say each decision."""

    async def main() -> None:
        from claude_agent_sdk import ToolPermissionContext

        async with Engine(f"{folder}/p.db") as engine:
            limit = None if expires is None else timedelta(seconds=expires)
            can_use_tool = approve(engine, name, expires=limit)
            for _ in range(times):
                found = await can_use_tool("Bash", COMMAND, ToolPermissionContext(tool_use_id="t", agent_id=agent))
                say({"behavior": found.behavior, "message": getattr(found, "message", "")})

    asyncio.run(main())


def interrupt(folder: str) -> None:
    """Interrupt a request as the SDK does, and say what is left. Ask again, for another conversation."""

    async def main() -> None:
        from claude_agent_sdk import ToolPermissionContext

        async with Engine(f"{folder}/p.db") as engine:
            for name in ("chat", "Ünï 17/abc" * 20):
                asking = asyncio.ensure_future(approve(engine, name)("Bash", COMMAND, ToolPermissionContext()))
                while not await engine.questions():
                    await asyncio.sleep(0.02)
                asking.cancel()
                await asyncio.wait([asking])
                say({"cancelled": asking.cancelled(), "questions": len(await engine.questions())})

    asyncio.run(main())


def benchmark(folder: str) -> None:
    """Run the benchmark in short, and say how many figures each row has."""
    found = asyncio.run(claude_transcripts.measure(Path(folder), batches=2))
    say({name: len(figures) for name, figures in found.items()})


def program(words: list[str], cwd: str, output: str, environ: dict[str, str]) -> None:
    """Run ``python WORDS`` in this environment, which lets Claude Code talk to a local model only."""
    os.environ.clear()
    os.environ.update(environ)
    job(words, cwd, output)
