"""Try an installed Pausepoint in a clean environment: the first program of the README, and a session that is killed.

The programs run with the environment's own Python, in an empty folder, so that nothing of the checkout is imported.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 120
"""Seconds after which a program that says nothing has failed."""

TRIES = 10
"""How often a program is started until it is killed where the README does. A busy machine may be late."""

JOB = """\
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from pausepoint import BlockingContext, Workflow, run, step


class Job(BaseModel):
    done: list[str] = []


def work(name: str) -> str:
    with open("ran.txt", "a") as file:
        file.write(name + "\\n")
    return name


def wait_for(name: str) -> str:
    print("waiting", flush=True)
    while not Path(name).exists():
        time.sleep(0.01)
    return name


@step(writes="done")
def first(ctx: BlockingContext) -> list[str]:
    return [ctx.do(work, "one"), ctx.do(wait_for, "go")]


@step(writes="done")
def second(done: list[str], ctx: BlockingContext) -> list[str]:
    return [*done, ctx.do(work, "two")]


job = Workflow("job", state=Job, steps=[first, second])

if __name__ == "__main__":
    print(run(job, store="job.db", session_id="s-1").status.value)
"""


class Failed(Exception):
    """Something did not work. The message says what was expected, and what happened."""


class Installed(NamedTuple):
    """An environment with Pausepoint in it, and an empty folder to work in."""

    python: Path
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a shell in which the environment is active."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("PAUSEPOINT", "PYTHON"))}
        return kept | {"PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}

    def run(self, *words: str, codes: tuple[int, ...] = (0,), timeout: float = PATIENCE) -> str:
        """Run a command of the environment and return what it prints."""
        command = [str(self.python.parent / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=self.folder, env=self.variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=timeout,
        )  # fmt: skip
        if done.returncode not in codes:
            raise Failed(f"`{' '.join(words)}` ended with {done.returncode}: {(done.stdout + done.stderr).strip()}")
        return done.stdout

    def start(self, name: str) -> subprocess.Popen[str]:
        """Start a Python program of the folder."""
        command = [str(self.python), name]
        return subprocess.Popen(command, cwd=self.folder, env=self.variables, stdout=subprocess.PIPE, text=True)


def version(installed: Installed, expected: str) -> None:
    """Fail unless the package is in the environment, with the version that was built."""
    program = "import pausepoint; print(pausepoint.__file__)"
    place = installed.run("python", "-c", program).strip()
    if not Path(place).is_relative_to(installed.python.parents[1]):
        raise Failed(f"`import pausepoint` imports {place}, which is not in the new environment")
    said = installed.run("pausepoint", "--version").strip()
    if said != f"pausepoint {expected}":
        raise Failed(f"`pausepoint --version` prints {said!r}, not 'pausepoint {expected}'")


class Shown(NamedTuple):
    """The first program of the README, what it prints until it is killed, and what it prints afterwards."""

    name: str
    source: str
    killed: list[str]
    again: list[str]


def first_program(readme: str) -> Shown:
    """Take the first program out of the README.

    >>> text = "Save this as `a.py`:\\n\\n```python\\nprint(1)\\n```\\n\\n```\\n$ python a.py\\none\\n^Z\\n"
    >>> first_program(text + "$ kill -9 %1\\n$ python a.py\\ntwo\\n```\\n")
    Shown(name='a.py', source='print(1)\\n', killed=['one'], again=['two'])
    """
    block = re.search(r"`(\w+\.py)`:?\s+```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if block is None:
        raise Failed("README.md has no Python block whose name stands before it, as in: Save this as `answer.py`:")
    name, source = block.groups()
    _, _, after = readme[block.end() :].partition(f"$ python {name}\n")
    killed, _, rest = after.partition("^Z\n")
    _, _, again = rest.partition(f"$ python {name}\n")
    if not killed or not again:
        raise Failed(f"README.md does not show what {name} prints before it is killed (^Z), and when it is run again")
    return Shown(name, source, killed.splitlines(), again.partition("```")[0].splitlines())


def readme(installed: Installed, text: str) -> None:
    """Run the first program of the README, kill it where the README does, and run it again."""
    shown = first_program(text)
    for number in range(TRIES):
        place = Installed(installed.python, installed.folder / f"readme-{number}")
        place.folder.mkdir()
        (place.folder / shown.name).write_text(shown.source, "utf-8")
        if killed_after(place, shown.name, shown.killed):
            break
    else:
        raise Failed(f"{shown.name} could not be killed where README.md does, because it went too fast")
    printed = place.run("python", shown.name).splitlines()
    if printed != shown.again:
        raise Failed(f"after the kill, {shown.name} prints {printed}, but README.md shows {shown.again}")


def killed_after(installed: Installed, name: str, lines: list[str]) -> bool:
    """Start a program, and kill it after it has printed these lines. Return False if it printed more before that."""
    with installed.start(name) as running:
        late = threading.Timer(PATIENCE, running.kill)
        late.start()
        try:
            assert running.stdout is not None
            printed = [running.stdout.readline().rstrip() for _ in lines]
        finally:
            late.cancel()
            running.kill()
        more = running.stdout.read()
    if printed != lines:
        raise Failed(f"{name} prints {printed} instead of {lines}")
    return not more and running.returncode == -signal.SIGKILL


def smoke(installed: Installed) -> None:
    """Start a session, kill it, pause it, resume it until it ends, and look at it with the command line."""
    (installed.folder / "job.py").write_text(JOB, "utf-8")
    _expect(killed_after(installed, "job.py", ["waiting"]), "job.py waits until it is killed", "another end")
    _expect(_session(installed)["status"] in ("ready", "created"), "the killed session is ready", _session(installed))
    installed.run("pausepoint", "pause", "s-1", "--reason", "lunch", "--store", "job.db")
    _expect(_session(installed)["status"] == "paused", "the session is paused", _session(installed))
    (installed.folder / "go").touch()
    installed.run("pausepoint", "resume", "s-1", "--store", "job.db", "--target", "job.py:job")
    after = _session(installed)
    _expect(after["status"] == "completed", "the resumed session is completed", after)
    shown = json.loads(installed.run("pausepoint", "show", "s-1", "--store", "job.db", "--json"))
    _expect(shown["state"] == {"done": ["one", "go", "two"]}, "its state is complete", shown["state"])
    ran = (installed.folder / "ran.txt").read_text("utf-8").split()
    _expect(ran == ["one", "two"], "no remembered operation ran again", ran)


def _session(installed: Installed) -> dict[str, Any]:
    """Return what ``ls --json`` says about the session, once no process holds it."""
    end = time.monotonic() + PATIENCE
    while True:
        listed = json.loads(installed.run("pausepoint", "ls", "--store", "job.db", "--json"))
        found: dict[str, Any] = listed["sessions"][0]
        if found["holder"] is None or time.monotonic() > end:
            return found


def _expect(true: bool, what: str, found: object) -> None:
    if not true:
        raise Failed(f"expected that {what}; found {found}")
