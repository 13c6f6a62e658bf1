"""What the tests of the memo share: a folder with a store, runs of the pipeline in it, and a count of its calls."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any

import pytest

from pausepoint import Engine, Outcome
from pausepoint.apps.memo import MemoState, memo
from pausepoint.apps.memo.settings import starting
from pausepoint.artifacts import VersionFolders
from pausepoint.stores.sqlite import SqliteStore
from tests.apps.calls import Call
from tests.apps.memo_watched import OWNERS, name_of
from tests.support.forkserver import Forks
from tests.support.held import Driven, watched
from tests.support.servers import serving

SECTIONS = [
    "01-executive-summary", "02-business-overview", "03-market-context", "04-team", "05-technology-product",
    "06-traction-milestones", "07-funding-terms", "08-risks-mitigations", "09-investment-thesis", "10-recommendation",
]  # fmt: skip
WRITTEN = [*SECTIONS[1:], SECTIONS[0]]
"""The sections in the order in which they are written: the summary comes last."""

FILES = [
    "0-deck-analysis.json", "1-research.json", "1-section-research.json",
    *(f"2-sections/{name}.md" for name in SECTIONS), "3-validation.json", "4-final-draft.html",
    "4-final-draft.md", "header.md", "memo.html", "state.json",
]  # fmt: skip


ONE = "output/Fernstone-v0.0.1"
"""Where the first memo about Fernstone lies."""


class Calls(list[str]):
    """Which agents were called, in order. A section that is written is an entry of its own."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> Calls:
        for agent, (owner, function) in OWNERS.items():
            called = partial(self._note, agent)
            monkeypatch.setattr(owner, function, watched(getattr(owner, function), called))
        return self

    def _note(self, agent: str, *args: Any) -> None:
        self.append(name_of(agent, *args))

    def taken(self) -> list[str]:
        """The agents that ran since this was asked last, each once."""
        found = list(dict.fromkeys(name.split()[0] for name in self))
        self.clear()
        return found

    def sections(self) -> list[str]:
        """The sections that were written since this was asked last."""
        found = [name.removeprefix("draft ") for name in self if name.startswith("draft ")]
        self.clear()
        return found


class Desk:
    """A store and one memo's session in a folder."""

    def __init__(self, path: Path, company: str = "Fernstone", **settings: Any) -> None:
        self.path = path
        self.folder = path / "output" / f"{company}-v0.0.1"
        self.company = company
        self.settings = settings

    def state(self) -> MemoState:
        return starting(self.company, **self.settings)

    def engine(self, name: str = "memo.db") -> Engine:
        return Engine(SqliteStore(self.path / name, synchronous="OFF"), workflows=[memo], signals=False)

    async def run(self, until: str | None = None, state: MemoState | None = None) -> Outcome[MemoState]:
        async with self.engine() as engine:
            session = await engine.start(
                memo, state or self.state(), session_id="s1", folder=self.folder, paused=until is not None
            )
            if until is not None:
                await session.resume(pause_after=until)
            return await session.outcome()

    async def resume(self, **options: Any) -> Outcome[MemoState]:
        async with self.engine() as engine:
            session = await engine.session("s1").resume(**options)
            return await session.outcome()

    def file(self, path: str) -> Path:
        return self.folder / path

    def read(self, path: str) -> str:
        return self.file(path).read_text("utf-8")

    def contents(self) -> dict[str, bytes]:
        """What the agents left."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and ".pausepoint" not in path.parts]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(found)}

    def forget(self) -> None:
        """As if the files had been copied here by hand: without completion records and without a store."""
        shutil.rmtree(self.folder / ".pausepoint")

    def keep(self, paths: Iterable[str]) -> None:
        """Leave only these files, without any records."""
        self.forget()
        wanted = set(paths)
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.folder)) not in wanted:
                path.unlink()


class Memo(Driven):
    """One company's memo in a folder, written by one process after another."""

    job = "tests.apps.memo_watched:job"

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        self.options = []
        self.desk = Desk(folder)

    def write(self, *args: str, at: str = "", by: Signals = SIGKILL, code: int = 0) -> str:
        return self.run("Fernstone", *args, at=at, by=by, code=code)


class Template:
    """A finished memo that every test gets as it was, at the same place."""

    def __init__(self, desk: Desk, backup: Path) -> None:
        self.desk, self.backup = desk, backup
        shutil.copytree(desk.path, backup, dirs_exist_ok=True)

    def restored(self) -> Desk:
        shutil.rmtree(self.desk.path)
        shutil.copytree(self.backup, self.desk.path)
        return self.desk


# a search service


class Searches(ThreadingHTTPServer):
    """Answers like a search service; ``script`` are the statuses of the next answers, then 200."""

    daemon_threads = True

    def __init__(self, pages: list[dict[str, str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Search)
        self.pages = pages
        self.script: list[int] = []
        self.queries: list[str] = []
        self.keys: list[str] = []


class _Search(BaseHTTPRequestHandler):
    server: Searches

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.queries.append(asked["query"])
        self.server.keys.append(self.headers["authorization"])
        status = self.server.script.pop(0) if self.server.script else 200
        data = json.dumps({"results": self.server.pages if self.path == "/search" else []}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def searched(monkeypatch: pytest.MonkeyPatch, pages: list[dict[str, str]]) -> Iterator[Searches]:
    with serving(Searches(pages)) as server:
        monkeypatch.setenv("PAUSEPOINT_SEARCH_KEY", "secret")
        monkeypatch.setenv("PAUSEPOINT_SEARCH_URL", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("PAUSEPOINT_SEARCH_PRICE", "0.01")
        yield server


PAGE = {
    "title": "Quietwater raises money", "url": "https://news.example/quietwater", "content": "short",
    "raw_content": "# Quietwater raises money\n\nQuietwater raised $5 million in a seed round in May 2029.\n\n"
    "The funding round of Quietwater was led by [Mosswood Partners](https://mosswood.example).",
}  # fmt: skip


class Program:
    """The program, called in this process."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.out = self.err = ""

    def __call__(self, *args: str | Path, code: int = 0) -> str:
        self.done = self.call(*args)
        self.out, self.err = self.done.out, self.done.err
        assert self.done.code == code, self.out + self.err
        return self.out

    def ran(self) -> list[str]:
        return re.findall(r"^Running agent: (\w+)$", self.out, re.MULTILINE)


def company(folder: Path, name: str, **fields: Any) -> None:
    """Data of a company, and one document about it."""
    (folder / "data" / "papers").mkdir(parents=True, exist_ok=True)
    (folder / "data" / "papers" / "note.md").write_text(f"# Note\n\n{name} raised $2 million in 2029.\n")
    path = folder / "data" / f"{VersionFolders('data', name).name}.json"
    path.write_text(json.dumps({"name": name, "documents": "papers"} | fields))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The calls of the agents of the memo, in this process."""
    return Calls().watch(monkeypatch)


@pytest.fixture
def program(call: Call) -> Program:
    """The memo, called in a folder of its own."""
    return Program(call)
