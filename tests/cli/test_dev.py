"""``pausepoint dev``: Postgres, a worker and the server as real processes, which stop with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import httpx
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from pausepoint import Engine, Workflow, step
from pausepoint.cli import host, postgres
from pausepoint.cli.app import app
from pausepoint.cli.commands.dev import _Dev
from pausepoint.cli.exits import Refused
from pausepoint.cli.postgres import Postgres, check_installed
from tests.cli.documents import check
from tests.cli.kit import Process, plain, run
from tests.support.loop import PATIENCE

CODE = """
import asyncio
import json
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Workflow, step


class Job(BaseModel):
    name: str
    text: str = ""


@step(writes="text")
async def hold(name: str) -> str:
    Path(f"{name}.began").touch()
    while not Path(f"{name}.go").exists():
        await asyncio.sleep(0.01)
    return name


job = Workflow("job", state=Job, steps=[hold])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A project. Postgres does not run as root, so its account must be able to reach the folder."""
    made = Path(tempfile.mkdtemp(prefix="dev-"))
    made.chmod(0o755)
    (made / "job.py").write_text(CODE)
    yield made
    shutil.rmtree(made)


class Job(BaseModel):
    name: str
    text: str = ""


@step(writes="text")
async def hold(name: str) -> str:
    raise AssertionError("the worker runs it")


job = Workflow("job", state=Job, steps=[hold])


class Dev(Process):
    """A call of ``dev``, with the store that it printed."""

    def __init__(self, folder: Path) -> None:
        super().__init__("dev", "job.py", "--port", "0", cwd=folder, tty=True, size=(400, 24))
        self.folder = folder

    def __enter__(self) -> Self:
        return self

    def ready(self) -> Self:
        said = self.until("Ctrl+C stops everything.")
        found = re.search(r"Page: +(\S+)[^$]*export PAUSEPOINT_STORE='(\S+)'\n  pausepoint (\w+)", said)
        assert found is not None, said
        self.page, self.store, self.verb = found.groups()
        return self

    def start(self, name: str) -> None:
        """Let the worker run a session that holds in its operation."""

        async def trigger() -> None:
            async with Engine(self.store, drives="none") as engine:
                await engine.schedule(name, job, cron="0 0 1 1 *", name=name)
                await engine.schedules.trigger(name)

        asyncio.run(trigger())
        wait_for(lambda: (self.folder / f"{name}.began").exists())


def sessions(store: str) -> dict[str, str]:
    async def read() -> dict[str, str]:
        async with Engine(store, drives="none") as engine:
            return {each.session_id.partition("@")[0]: each.status.value for each in await engine.sessions()}

    return asyncio.run(read())


def wait_for(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.02)


def left(folder: Path) -> dict[str, int]:
    """Return the living processes that name the folder in their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and int(path.parent.name) != os.getpid():
            found[words] = int(path.parent.name)
    return found


def pid_of(folder: Path, word: str) -> int:
    return next(pid for words, pid in left(folder).items() if word in words)


@pytest.mark.long
def test_everything_starts_stops_and_starts_again_with_its_data(folder: Path) -> None:
    half = folder / ".pausepoint/dev/postgres.new"  # a first start that was killed
    half.mkdir(parents=True)
    (half / "junk").touch()
    with Dev(folder) as dev:
        dev.ready()
        assert run(dev.verb, cwd=folder, env={"PAUSEPOINT_STORE": dev.store}).code == 0
        assert httpx.get(dev.page.partition("#")[0], timeout=PATIENCE).status_code == 200
        second = run("dev", "job.py", "--port", "0", cwd=folder)
        assert (second.code, "--folder" in second.stderr) == (5, True)
        dev.start("one")
        dev.type("\x03")
        dev.until("Stopping.")
        assert pid_of(folder, "worker")  # the operation has not ended
        (folder / "one.go").touch()
        done = dev.wait()
    assert (done.code, "Stopped. The data stays in" in plain(done.stdout)) == (130, True)
    assert left(folder) == {}

    with Process("dev", "job.py", "--port", "0", "--json", cwd=folder) as process:
        said = process.until("\n")
        check("dev", said)
        found = json.loads(said)
        assert sessions(found["store"]) == {"one": "completed"}
        assert set(found["processes"].values()) < set(left(folder).values())
        process.child.kill()
        wait_for(lambda: left(folder) == {})

    pid = folder / ".pausepoint/dev/postgres/postmaster.pid"
    pid.write_text(f"{os.getpid()}\n{pid.parent}\n")  # another process has the number of the server that was killed
    with Dev(folder) as dev:
        dev.ready().start("two")
        dev.type("\x03")
        dev.until("Stopping.")
        dev.type("\x03")
        assert dev.wait().code == 130  # although the operation never ends
    assert left(folder) == {}


class Fakes:
    """Shell scripts instead of the three parts, which start at once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.chdir(folder)
        monkeypatch.setattr(Postgres, "exists", True)
        monkeypatch.setattr(Postgres, "prepare", lambda server: None)
        monkeypatch.setattr(postgres, "ACCOUNT", None)  # the scripts run as the user of the test
        monkeypatch.setattr(Postgres, "serve", lambda server: self.script("Postgres"))
        monkeypatch.setattr(_Dev, "_answers", lambda run: asyncio.sleep(0))
        launch = tuple(self.script("$1"))
        monkeypatch.setattr(host, "PAUSEPOINT", replace(host.PAUSEPOINT, launch=launch))

    def script(self, name: str) -> list[str]:
        text = f"""
            echo Driving; echo '{{"address": "http://x", "workflows": []}}'; echo {name} works
            until [ -e "{self.folder}/{name}.dies" ]; do sleep 0.02; done
            exit 7"""
        return ["/bin/sh", "-c", text, "sh"]


@pytest.mark.parametrize(
    ("name", "said"), [("Postgres", "Postgres"), ("worker", "The worker"), ("serve", "The server")]
)
def test_if_a_part_dies_its_last_lines_are_shown_and_the_others_stop(
    name: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fakes(folder, monkeypatch)
    (folder / f"{name}.dies").touch()
    done = CliRunner().invoke(app, ["dev", "job.py", "--port", "0"], standalone_mode=False)
    assert isinstance(done.exception, Refused)
    assert (done.exception.exit_code, left(folder)) == (1, {})
    assert done.exception.message.startswith(f"{said} ended with exit code 7, so everything was stopped. Its last")
    assert done.exception.message.endswith(f"\n  {name} works")


def test_what_cannot_start_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("dev", cwd=folder)
    assert (done.code, "Name a TARGET" in done.stderr) == (2, True)
    done = run("--store", "x.db", "dev", "job.py", cwd=folder)
    assert (done.code, "--folder" in done.stderr) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("dev", "job.py", "--json", "--port", str(taken.getsockname()[1]), cwd=folder)
    assert (done.code, "in use. Choose another with --port" in done.stderr) == (2, True)
    monkeypatch.setattr(postgres, "find_spec", lambda name: None if name == "psycopg" else find_spec(name))
    with pytest.raises(Refused, match=r"dev needs psycopg. Install it with pip install 'pausepoint\[local\]'"):
        check_installed()


@pytest.mark.long
def test_output_that_is_not_read_ends_nothing(folder: Path) -> None:
    """Neither a pipe whose reader has gone, nor a stdout that was closed before the start."""
    text = (
        "from pathlib import Path; from pausepoint.cli.commands.dev import _Dev as Dev\n"
        "from pausepoint.cli.context import Cli\n"
        "dev = Dev(Cli(None, (), False, False), Path(), 0, False)\n"
        "for n in range(3): dev._line('line')"
    )
    theirs, ours = os.pipe()
    os.close(theirs)
    done = subprocess.run([sys.executable, "-c", text], stdout=ours, stderr=subprocess.PIPE, text=True, check=False)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, "")
    words = ["sh", "-c", 'exec "$0" -m pausepoint ls >&-', sys.executable]
    done = subprocess.run(words, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "No sessions yet" in done.stderr) == (0, True), done.stderr


def test_the_folders_of_the_server_are_its_own(folder: Path) -> None:
    deep = Postgres(folder / ("x" * 90))
    assert len(os.fsencode(deep.socket)) <= postgres.LONGEST
    assert deep.socket.parent != deep.data
    private = folder / "private"
    private.mkdir(mode=0o700)
    server = Postgres(private)
    server.account = "postgres"  # as if this process were root
    with pytest.raises(Refused, match=r"cannot enter .*private\. Run dev as another user, or name a folder"):
        server.prepare()
    server.account = None
    server.data.mkdir()
    server.data.chmod(0o755)
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o755
    with pytest.raises(Refused, match="Other users can reach"):
        server._own(server.data)
