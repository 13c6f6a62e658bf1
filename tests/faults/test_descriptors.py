"""A process that runs out of file descriptors gets an error of Pausepoint, at whatever call that happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, json, os, resource, sys
from pydantic import BaseModel
from pausepoint import Engine, Workflow, step

class State(BaseModel):
    n: int = 0

@step(writes="n")
async def count() -> int:
    return 1

workflow = Workflow("counting", state=State, steps=[count])

async def once(path):
    async with Engine(path, workflows=[workflow]) as engine:
        await (await engine.start(workflow)).outcome()

async def main(folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    await once(f"{folder}/first.db")  # everything is imported now
    os.close(lowest := os.open(os.devnull, os.O_RDONLY))
    met = []
    for extra in range(16):
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + extra, hard))
        try:
            await once(f"{folder}/{extra}.db")
            met.append([])
        except Exception as error:
            met.append([kind.__name__ for kind in type(error).__mro__])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(json.dumps(met))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.long
def test_every_limit_of_open_files_is_store_unavailable(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    met = json.loads(done.stdout)
    assert [kinds for kinds in met if kinds and "StoreUnavailable" not in kinds] == []
    assert any("StoreReadOnly" in kinds for kinds in met), "no limit was met after the store had opened"
    assert met[0] != []
    assert met[-1] == []
