"""Count the instructions of a step with valgrind; noise of the machine does not affect them.

    python -m benchmarks.instructions          needs valgrind (Debian: apt install valgrind)
    python -m benchmarks.instructions --check  compare with the published figures in instructions.json
    python -m benchmarks.instructions --only crowd

Each workload of `benchmarks.steps`, and a turn of the chat, runs with few and with many steps; the difference per step
is the result.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks import workloads
from benchmarks.chat import parked
from pausepoint import Engine
from pausepoint.runtime import loop_watch
from pausepoint.stores.sqlite import SqliteStore, writer

PUBLISHED = Path(__file__).with_name("instructions.json")
ALLOWED = 1.03
FEW, MANY = 200, 800
TURNS = 86, 172  # a chat has a key frame every 86 turns, so the difference is one whole period
CROWD = 20


async def lone(engine: Engine, steps: int) -> None:
    """Run one session that counts."""
    await (await engine.start(workloads.counting, target=steps)).outcome()


async def growth(engine: Engine, steps: int) -> None:
    """Run one session whose list grows by 1 KiB per step."""
    await (await engine.start(workloads.growing, target=steps)).outcome()


async def ballast(engine: Engine, steps: int) -> None:
    """Run one session that changes 100 bytes next to a field of 1 MB."""
    await (await engine.start(workloads.beside, target=steps, ballast="x" * 1_000_000)).outcome()


async def crowd(engine: Engine, steps: int) -> None:
    """Run many sessions at the same time, each with ten steps."""

    async def one() -> None:
        await (await engine.start(workloads.counting, target=10)).outcome()

    for _ in range(steps // (10 * CROWD)):
        await asyncio.gather(*[one() for _ in range(CROWD)])


async def chat(engine: Engine, turns: int) -> None:
    """Run turns of a chat that nobody follows: a message, the answer, and the session is parked again."""
    session = await engine.start(workloads.chatting, session_id="chat")
    await engine.idle("chat")
    for n in range(turns):
        await session.send(f"{n:08}" * 16)
        await engine.idle("chat")


async def followed(engine: Engine, turns: int) -> None:
    """Run turns of a chat whose events a task follows."""
    session = await engine.start(workloads.chatting, session_id="chat")
    events = session.events(follow=True)
    await parked(events)
    for n in range(turns):
        await session.send(f"{n:08}" * 16)
        await parked(events)


WORKLOADS: dict[str, Callable[[Engine, int], Awaitable[None]]] = {
    "lone": lone, "crowd": crowd, "growth": growth, "ballast": ballast, "chat": chat, "chat-followed": followed,
}  # fmt: skip


async def run(name: str, steps: int) -> None:
    """Run one workload in a separate store."""
    writer.CHEAP = 1.0  # seconds; under valgrind every commit is slow, and would go to the thread as on a slow disk
    loop_watch.LOOK = 3600.0  # looks by the clock would count the time, not the work
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.db", poll=3600.0)  # as does a poll
        async with Engine(store, signals=False) as engine:
            gc.collect()
            gc.freeze()  # one full collection of all modules would count as 25,000 instructions for each step
            await WORKLOADS[name](engine, steps)


def counted(name: str, steps: int) -> int:
    """Return the number of instructions of a process that runs the workload."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-m", __spec__.name]
    # The same order of sets, and the same code for hashes: OpenSSL has faster one for some processors.
    same = {"PYTHONHASHSEED": "0", "OPENSSL_ia32cap": "0:0"}
    done = subprocess.run([*command, "--run", name, str(steps)], env=os.environ | same, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"valgrind failed for {name}: {done.stderr[-2000:]}")
    return int(found[1])


def each_step(name: str) -> int:
    """Return the number of instructions of one step, or of one turn of the chat."""
    few, many = TURNS if name.startswith("chat") else (FEW, MANY)
    return (counted(name, many) - counted(name, few)) // (many - few)


def main(words: Sequence[str] | None = None) -> int:
    """Measure all workloads, or some."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.instructions", description="Count the instructions of a step with valgrind."
    )
    parser.add_argument("--check", action="store_true", help="fail if a figure is over 3 %% above the published one")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="measure this workload; may be repeated")
    parser.add_argument("--run", nargs=2, metavar=("WORKLOAD", "STEPS"), help="run a workload, and count nothing")
    options = parser.parse_args(words)
    if options.run:
        asyncio.run(run(options.run[0], int(options.run[1])))
        return 0
    if shutil.which("valgrind") is None:
        print("valgrind is not installed. Install it first; on Debian: apt install valgrind.", file=sys.stderr)
        return 2
    # Compile the modules first. If only one of two processes did it, the difference would count as steps.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", __spec__.name, "--run", "lone", "1"], check=True, env=usual)
    each = {}
    for name in options.only or WORKLOADS:
        print(f"{name:14}", end="", file=sys.stderr, flush=True)
        each[name] = each_step(name)
        print(f"{each[name]:>12,}", file=sys.stderr)
    print(json.dumps(each))
    return check(each) if options.check else 0


def check(each: dict[str, int]) -> int:
    """Compare with the published figures. Return 1 if a workload needs over 3 % more instructions."""
    published = json.loads(PUBLISHED.read_text())
    known = {name: count for name, count in each.items() if name in published}
    for name in each.keys() - known.keys():
        print(f"{name} has no published figure, so it is not compared. Publish it in benchmarks/instructions.json.")
    worse = {name: count / published[name] - 1 for name, count in known.items() if count > published[name] * ALLOWED}
    for name, share in worse.items():
        print(f"{name} needs {share:.1%} more instructions per step than published ({published[name]:,}).")
    if worse:
        print("Make it cheaper, or publish the new figures in benchmarks/instructions.json and docs/benchmarks.md.")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
