"""Real processes that are killed while they take a file in and work on its chunks; and how much memory that takes."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import run
from tests.files.kit import TEXT, everything_in
from tests.files.reader import CHUNKS
from tests.support.children import ROOT, run_child


class Runs:
    """The same session, in one process after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls = path / "calls"
        (path / "book.txt").write_bytes(TEXT)

    def run(self, *point: str) -> dict[str, Any] | None:
        """What it ended with; None if it was killed, as it should be."""
        places = [str(self.path / name) for name in ("hold.db", "book.txt", "calls")]
        path = {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        done = run(*places, *point, cwd=ROOT, env=path, program=("-m", "tests.files.reader"))
        if point:
            assert done.code == -signal.SIGKILL, done.stderr
            return None
        assert done.code == 0, done.stderr
        status, _, state = done.stdout.partition(" ")
        assert status == "completed"
        found: dict[str, Any] = json.loads(state)
        return found

    def counted(self) -> Counter[int]:
        return Counter(int(line.rpartition(":")[2]) for line in self.calls.read_text().split())


def without_times(state: dict[str, Any] | None) -> dict[str, Any]:
    assert state is not None
    for file in state["registry"].values():
        del file["created_at"]
    del state["source"]
    return state


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return without_times(Runs(tmp_path_factory.mktemp("undisturbed")).run())


@pytest.mark.covers("S3.77", "S3.81", "S3.82")
@pytest.mark.parametrize("where", ["work", "kept"])
def test_killed_at_every_chunk_it_goes_on_with_the_next(
    tmp_path: Path, where: str, undisturbed: dict[str, Any]
) -> None:
    """One session, killed at one chunk after the other. What was stored is never done again."""
    runs = Runs(tmp_path)
    for index in range(CHUNKS):
        runs.run(f"{where}:{index}")
    assert without_times(runs.run()) == undisturbed
    twice = 2 if where == "work" else 1
    assert runs.counted() == dict.fromkeys(range(CHUNKS), twice)


@pytest.mark.long
@pytest.mark.parametrize("point", ["pouring", "finishing", "publishing", "published", "recorded"])
def test_killed_in_the_middle_of_an_upload_it_is_done_again_and_leaves_nothing(
    tmp_path: Path, point: str, undisturbed: dict[str, Any]
) -> None:
    runs = Runs(tmp_path)
    runs.run(point)
    program = """
        async with Engine(args[0]) as engine:
            say(len(await engine.session("s1").files.list()))
    """
    assert run_child(program, tmp_path / "hold.db") == str(int(point == "recorded"))
    state = without_times(runs.run())
    assert state == undisturbed, "nor does it say that the file was there before"
    [file] = state["registry"].values()
    assert [name for name in everything_in(tmp_path) if "sessions" in name] == [file["storage_uri"]]


LARGE = """
    import resource
    from pydantic import BaseModel
    class Nothing(BaseModel): pass
    @step()
    def stand() -> None: pass
    flow = Workflow("flow", state=Nothing, steps=[stand])
    class Stream:
        left = int(args[1])
        def read(self, size, /):
            size = min(size, self.left)
            self.left -= size
            return bytes(size)
    def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform != "darwin" else 1)
    told = []
    async with Engine(args[0] + "/a.db") as engine, Engine(args[0] + "/b.db") as other:
        session = await engine.start(flow, session_id="s1", paused=True)
        await session.files.add(b"first", "warm.up")
        await engine.session("s1").export(args[0] + "/warm.jsonl")
        before = peak()
        file = await session.files.add(Stream(), "large.bin", on_progress=told.append)
        (await session.files.open(file.file_id)).close()
        assert (await session.verify()).ok
        await session.fork(session_id="s2", paused=True)
        say(file.size_bytes, peak() - before, len(told))
        if args[2:]:
            await engine.session("s1").export(args[0] + "/large.jsonl")
            await other.import_session(args[0] + "/large.jsonl")
            assert (await other.verify()).ok
            say(peak() - before)
"""


@pytest.mark.long
def test_a_file_of_200_mb_is_never_in_memory(tmp_path: Path) -> None:
    size, grown, told = map(int, run_child(LARGE, tmp_path, 200_000_000).split())
    assert size == 200_000_000
    assert grown < 20_000_000
    assert told == 200_000_000 // 2**23


@pytest.mark.long
def test_neither_is_one_that_moves_to_another_store(tmp_path: Path) -> None:
    *_, grown = map(int, run_child(LARGE, tmp_path, 60_000_000, "moves").split())
    assert grown < 25_000_000
