"""Measure in new processes: the resume of a long session, and the import."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks import workloads
from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Engine

SESSION = "long"

# resuming


def resume(folder: Path, scale: Scale) -> list[Figure]:
    """Measure from opening the engine to the loaded state, in a process that has imported everything."""
    path = folder / "resume.db"
    asyncio.run(_make_long(path, scale.checkpoints))
    command = [sys.executable, "-m", "benchmarks.fresh", str(path), str(scale.checkpoints)]
    for _ in range(scale.warm_ups):
        _output(command)
    runs = [json.loads(_output(command)) for _ in range(scale.processes)]
    notes = {f"{name} ms": median(run[name] for run in runs) for name in ("open", "load", "cpu", "running")}
    for _ in range(scale.warm_ups):
        _output([*command, "--run"])
    begun = tuple(json.loads(_output([*command, "--run"]))["running"] for _ in range(scale.processes))
    what = f"resume with {scale.checkpoints:,} checkpoints:"
    return [
        Figure("resume", f"{what} state ready after import", "ms", 20.0, tuple(run["ready"] for run in runs), notes),
        Figure("resume-running", f"{what} the step runs after import", "ms", None, begun),
    ]


async def _make_long(path: Path, checkpoints: int) -> None:
    """Make a session that was interrupted in the step after its last checkpoint."""
    workloads.reached = asyncio.Event()
    async with Engine(path, signals=False) as engine:
        session = await engine.start(workloads.standing, session_id=SESSION, target=checkpoints)
        await workloads.reached.wait()
        assert len(await session.checkpoints(limit=None)) == checkpoints


async def _resume_here(path: Path, checkpoints: int) -> dict[str, float]:
    """Measure a resume: ``ready`` includes open and load; ``running`` ends when the resumed step's code runs."""
    workloads.reached = asyncio.Event()
    cpu, begin = time.process_time(), time.perf_counter()
    async with Engine(path, workflows=[workloads.standing]) as engine:
        opened = time.perf_counter()
        session = engine.session(SESSION)
        state: workloads.Stand = await session.state()
        ready, used = time.perf_counter(), time.process_time() - cpu
        assert state.n == checkpoints
        await session.resume()
        await workloads.reached.wait()
        running = time.perf_counter()
    seconds = {
        "open": opened - begin, "load": ready - opened, "ready": ready - begin, "cpu": used, "running": running - ready,
    }  # fmt: skip
    return {name: value * 1e3 for name, value in seconds.items()}


async def _run_here(path: Path) -> dict[str, float]:
    """Measure from opening the engine until the resumed step's code runs."""
    workloads.reached = asyncio.Event()
    begin = time.perf_counter()
    async with Engine(path, workflows=[workloads.standing]) as engine:
        await engine.session(SESSION).resume()
        await workloads.reached.wait()
        running = time.perf_counter()
    return {"running": (running - begin) * 1e3}


# importing

_MODEL = "\nclass Model(BaseModel):\n    name: str\n    items: list[int] = []\n"
_PROGRAMS = {
    "pydantic": "from pydantic import BaseModel" + _MODEL,
    "pausepoint": "import pausepoint",
    "names": "from pausepoint import Context, Engine, Workflow, step",
    "names and model": "from pausepoint import Context, Engine, Workflow, step\nfrom pydantic import BaseModel"
    + _MODEL,
}


def imports(folder: Path, scale: Scale) -> list[Figure]:
    """Measure the processor time of an import in a new interpreter, as a ratio to Pydantic and one model class."""
    for program in list(_PROGRAMS.values()) * scale.warm_ups:
        import_seconds(program, folder)
    rounds = [{name: import_seconds(text, folder) for name, text in _PROGRAMS.items()} for _ in range(scale.processes)]
    base = median(found["pydantic"] for found in rounds)
    notes = {f"{name} ms": median(found[name] for found in rounds) * 1e3 for name in _PROGRAMS}

    def figure(name: str, key: str, what: str, limit: float | None, notes: dict[str, float]) -> Figure:
        return Figure(name, what, "×", limit, tuple(found[key] / base for found in rounds), notes)

    return [
        figure("import", "pausepoint", "import pausepoint, to pydantic and one model", 1.3, notes),
        figure("import-names", "names and model", "its main names and one model, to the same", None, {}),
    ]


def import_seconds(program: str, folder: Path) -> float:
    """Return the processor time of an import alone.

    The start of the interpreter is left out, because it is the same for all and would flatter the ratio. Compilation
    is left out too after a first run, whatever the environment says, because an installed package is compiled.
    """
    text = f"import time\nbegin = time.process_time()\n{program}\nprint(time.process_time() - begin)"
    return float(_output([sys.executable, "-c", text], compiling(folder)))


def compiling(folder: Path) -> dict[str, str]:
    """Return an environment whose processes keep their compiled modules in this folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


if __name__ == "__main__":
    place, count = Path(sys.argv[1]), int(sys.argv[2])
    print(json.dumps(asyncio.run(_run_here(place) if "--run" in sys.argv else _resume_here(place, count))))
