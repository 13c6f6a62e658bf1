"""A copy of the project in which mutants are tried.

The copy has its own virtual environment: links to the packages of this one, and the copied sources as Pausepoint. So
every process that a test starts imports the mutated code, whatever it does with ``PYTHONPATH``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from tests.mutants import guard
from tests.mutants.mutant import ROOT, Mutant, mutated
from tools.suite import MARKS

COPIED = ("src", "tests", "tools", "benchmarks", "docs", "pyproject.toml", "README.md")

Verdict = Literal["caught", "timed out", "survived", "no result"]

FAILED = 1
"""The exit code of pytest if a test has failed. Others than this and 0 say nothing about the mutant."""


class Trial(NamedTuple):
    """How the tests judge a mutant. ``said`` is the line of pytest that names the failure, or its last lines."""

    verdict: Verdict
    seconds: float
    said: str = ""


class Workshop:
    """A copy of the project, as a context manager that deletes it at the end."""

    def __init__(self, timeout: float, tier: str = "all") -> None:
        self.timeout = timeout
        self.marks = MARKS[tier]
        self.root = Path(tempfile.mkdtemp(prefix="mutants-")).resolve()
        self._clock = int(time.time())

    def __enter__(self) -> Self:
        try:
            self.root.chmod(0o755)  # Postgres runs as another user if this is root
            ignored = shutil.ignore_patterns(".postgres", "pictures")
            for name in COPIED:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, self.root / name, ignore=ignored)
                else:
                    shutil.copy2(ROOT / name, self.root / name)
            self._make_environment()
            self._check_environment()
        except BaseException:
            self._delete()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._delete()

    def _delete(self) -> None:
        with suppress(OSError, ValueError, IndexError):  # a server that a test left behind when its time was over
            os.kill(int((self.root / ".postgres" / "postmaster.pid").read_text("utf-8").split()[0]), signal.SIGQUIT)
        shutil.rmtree(self.root, ignore_errors=True)

    # the environment

    @property
    def python(self) -> Path:
        """The Python that has the copy as Pausepoint."""
        return self.root / ".venv" / "bin" / "python"

    def _make_environment(self) -> None:
        """Link the packages of this environment, and replace the entry that names this checkout by the copy."""
        present = Path(sysconfig.get_path("purelib"))
        packages = self.root / ".venv" / present.relative_to(sys.prefix)
        packages.mkdir(parents=True)
        for each in present.iterdir():
            if each.name == "__pycache__":
                continue
            if each.suffix == ".pth" and str(ROOT) in each.read_text("utf-8"):
                (packages / each.name).write_text(f"{self.root / 'src'}\n", "utf-8")
            else:
                (packages / each.name).symlink_to(each)
        shutil.copy2(Path(sys.prefix) / "pyvenv.cfg", self.root / ".venv" / "pyvenv.cfg")
        self.python.parent.mkdir()
        self.python.symlink_to(Path(sys.executable).resolve())

    def imported(self, **variables: str) -> Path:
        """Return the folder from which a new process of the copy imports Pausepoint, with these variables set."""
        command = [str(self.python), "-c", "import pausepoint; print(pausepoint.__file__)"]
        environment = {name: value for name, value in _variables().items() if name != "PYTHONPATH"} | variables
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
        return Path(done.stdout.strip()).parent

    def _check_environment(self) -> None:
        found = self.imported()
        if found != self.root / "src" / "pausepoint":
            raise RuntimeError(
                f"The copy in {self.root} imports Pausepoint from {found}, so its mutants would not be tried. Rebuild"
                " the environment with make venv."
            )

    # trials

    def try_out(self, mutant: Mutant) -> Trial:
        """Run the tests of a mutant with its fault, and put the file back."""
        path, text = mutated(mutant, self.root)
        before = path.read_text("utf-8")
        self._write(path, text)
        try:
            return self.run(mutant.chosen)
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time that no earlier version had: Python compares seconds to reuse compiled code."""
        path.write_text(text, "utf-8")
        self._clock += 2
        os.utime(path, (self._clock, self._clock))

    def run(self, chosen: Sequence[tuple[str, list[str]]]) -> Trial:
        """Run tests in the copy until one fails. See `Mutant.chosen`."""
        command = [str(self.python), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", guard.__name__]
        command += ["--tb=line", "-m", self.marks, *dict.fromkeys(test for test, _ in chosen)]
        environment = _variables() | {
            "PYTHONPATH": os.pathsep.join((str(self.root / "src"), str(self.root))),
            guard.CHOSEN: json.dumps(chosen),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # plugins of other packages take longer to import than most tests
        }
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with suppress(ProcessLookupError):  # also what the tests have started and left running
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        return Trial(_verdict(code), time.monotonic() - started, _said(text))


def _verdict(code: int | None) -> Verdict:
    if code is None:
        return "timed out"
    return "survived" if code == 0 else "caught" if code == FAILED else "no result"


def _said(output: str) -> str:
    """Return the line that names the failed test; without one, the last lines."""
    lines = [line for line in output.splitlines() if line.strip()]
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR tests", "ERROR src"))]
    return failed[0] if failed else "\n".join(lines[-15:])


def _variables() -> dict[str, str]:
    """Return the environment variables without those that measure coverage: the copy is gone when they are read."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
