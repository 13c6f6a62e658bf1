"""What `PausepointSessionStore` costs: ``python -m benchmarks.claude_transcripts``.

The Claude Agent SDK sends a batch of transcript entries to its store about every 100 ms. The batch is appended to a
transcript in the store, and to a plain file that is synced to the disk. Then a whole transcript is loaded from both.
Needs the SDK: ``make programs``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from pausepoint import Engine
from pausepoint.integrations.claude import PausepointSessionStore

SDK = Path(__file__).parents[1] / "build" / "peers" / "python"
ENTRIES, SIZE = 5, 1000
"""How many entries a batch has, and how many bytes of text an entry has."""


def entries() -> list[Any]:
    """Return a batch as Claude Code writes them."""
    return [{"type": "user", "uuid": str(uuid4()), "message": {"content": "x" * SIZE}} for _ in range(ENTRIES)]


async def measure(folder: Path, batches: int) -> dict[str, list[float]]:
    """Return microseconds: of each batch, and of loading all of them."""
    found: dict[str, list[float]] = {name: [] for name in ("store", "file", "load", "read")}
    key: Any = {"project_key": "bench", "session_id": "s"}
    async with Engine(folder / "transcripts.db", signals=False) as engine:
        store = PausepointSessionStore(engine)
        with open(folder / "transcript.jsonl", "ab") as file:
            for _ in range(batches):
                batch = entries()
                began = time.perf_counter()
                await store.append(key, batch)
                stored = time.perf_counter()
                file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in batch))
                file.flush()
                os.fsync(file.fileno())
                found["store"].append((stored - began) * 1e6)
                found["file"].append((time.perf_counter() - stored) * 1e6)
        for _ in range(5):
            began = time.perf_counter()
            assert len(await store.load(key) or []) == batches * ENTRIES
            loaded = time.perf_counter()
            [json.loads(line) for line in (folder / "transcript.jsonl").read_bytes().splitlines()]
            found["load"].append((loaded - began) * 1e6)
            found["read"].append((time.perf_counter() - loaded) * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.claude_transcripts", description=__doc__)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to measure")
    options = parser.parse_args()
    sys.path.append(str(SDK))
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        found = asyncio.run(measure(Path(folder), options.batches))
    for name, about in (
        ("store", f"append {ENTRIES} entries to the store"),
        ("file", f"append {ENTRIES} lines to a file, and sync it"),
        ("load", f"load {options.batches * ENTRIES:,} entries from the store"),
        ("read", f"read {options.batches * ENTRIES:,} lines from the file"),
    ):
        low, *_, high = sorted(found[name])
        print(f"{about:42} {statistics.median(found[name]):8,.0f} µs ({low:,.0f}–{high:,.0f})")


if __name__ == "__main__":
    main()
