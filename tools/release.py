"""Build the sdist and the wheel, check them, and try them in clean environments: ``make release``.

The files are in build/dist. Each Python of 3.11 to 3.14 at hand gets a new environment with the wheel, the first of
them also one with the sdist. A Python that is not at hand is named, and left out. Nothing is published.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools import installed
from tools.installed import Failed, Installed

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "build" / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


class Check(NamedTuple):
    """One thing that was tried."""

    name: str
    ok: bool
    seconds: float
    detail: str = ""


class Report:
    """The checks so far. Each is printed when it has ended."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.checks: list[Check] = []
        self.files: list[str] = []
        self.missing: list[str] = []

    def check(self, name: str, act: Callable[[], object]) -> bool:
        """Try one thing. A failure is noted with its message."""
        print(f"{name} …", file=sys.stderr, flush=True)
        began, ok, detail = time.monotonic(), True, ""
        try:
            detail = str(act() or "")
        except (Failed, OSError, subprocess.SubprocessError) as error:
            ok, detail = False, str(error)
        self.checks.append(Check(name, ok, round(time.monotonic() - began, 1), detail))
        return ok

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.ok for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "version": self.version,
            "ok": self.ok,
            "files": self.files,
            "missing_pythons": self.missing,
            "checks": [check._asdict() for check in self.checks],
        }

    def table(self) -> str:
        """Return the report as lines."""
        width = max(len(check.name) for check in self.checks)
        lines = [
            f"{'ok' if ok else 'FAILED':6}  {name:{width}}  {seconds:6.1f} s  {detail}".rstrip()
            for name, ok, seconds, detail in self.checks
        ]
        lines += [f"absent  Python {name}: not found, so nothing was tried with it" for name in self.missing]
        said = "can be published" if self.ok else "must not be published"
        return "\n".join([*lines, f"pausepoint {self.version} {said}: {', '.join(self.files) or 'nothing was built'}"])


def version() -> str:
    """Return the version in pyproject.toml."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return found


def check_notes(version: str, tag: str | None, root: Path = ROOT) -> None:
    """Fail unless the tag, the changelog and the recorded stores are those of the version."""
    if tag is not None and tag != f"v{version}":
        raise Failed(
            f"the tag is {tag}, but pyproject.toml has version {version}. Tag v{version}, or change the version"
        )
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(rf"^## \[{re.escape(version)}\] - (\S+)$", changelog, re.MULTILINE)
    if heading is None:
        raise Failed(f"CHANGELOG.md has no heading '## [{version}] - DATE'")
    if tag is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        raise Failed(f"CHANGELOG.md says {version} is {heading[1]}. Write the date of the release there")
    minor = ".".join(version.split(".")[:2])
    if not (root / "tests" / "recorded" / minor / "stores.json").exists():
        raise Failed(f"there are no recorded stores of {minor}. Run: python -m tests.recorded.make {minor}")


def build(folder: Path) -> None:
    """Build the sdist, and the wheel out of the sdist. hatchling is one of the development tools."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]:
        old.unlink()
    _run("build", "--no-isolation", "--outdir", str(folder), str(ROOT))


def _run(module: str, *words: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{module} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Failed(f"{folder} has {len(found)} files {pattern}, not one")
    return found[0]


def check_wheel(wheel: Path) -> None:
    """Fail unless the wheel is sound and contains every file of the package: the code, SQL, the page, py.typed."""
    _run("check_wheel_contents", "--no-config", "--ignore", "W002", str(wheel))  # W002: files may be equal
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
    package = ROOT / "src"
    needed = {
        path.relative_to(package).as_posix()
        for path in (package / "pausepoint").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.name != "README.md"  # a page of the documentation
    }
    if lost := sorted(needed - there):
        raise Failed(f"{wheel.name} lacks {', '.join(lost[:5])}{' …' if len(lost) > 5 else ''}")


def find_python(name: str) -> Path | None:
    """Return a Python of this version that can make environments: from PATH, or from pyenv."""
    folders = [Path(place) for place in os.get_exec_path()]
    folders += sorted((Path.home() / ".pyenv" / "versions").glob(f"{name}.*/bin"), reverse=True)
    for python in (Path(sys.executable), *(folder / f"python{name}" for folder in folders)):
        program = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == name:
            return python
    return None


@contextmanager
def environment(python: Path) -> Iterator[Installed]:
    """Make a new environment that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="pausepoint-release-") as place:
        made = Path(place).resolve()
        (made / "work").mkdir()
        subprocess.run([python, "-m", "venv", made / "env"], check=True, capture_output=True)
        yield Installed(made / "env" / "bin" / "python", made / "work")


def try_out(python: Path, archive: Path, expected: str) -> None:
    """Install an archive into a new environment, and run the README and the smoke test there."""
    text = (ROOT / "README.md").read_text("utf-8")
    with environment(python) as made:
        made.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(archive), timeout=900)
        installed.version(made, expected)
        installed.readme(made, text)
        installed.smoke(made)


def try_uvx(wheel: Path) -> str:
    """Run a command from the wheel without installing it, as people try a tool. Says so if uv is not at hand."""
    uv = shutil.which("uv")
    if uv is None:
        return "uv not found, so nothing was tried"
    with tempfile.TemporaryDirectory(prefix="pausepoint-release-") as place:
        words = [uv, "tool", "run", "--isolated", "--from", str(wheel.resolve()), "pausepoint", "gate"]
        done = subprocess.run([*words, "check"], cwd=place, capture_output=True, text=True, check=False, timeout=900)
    if "pausepoint gate install" not in done.stdout + done.stderr:
        raise Failed(
            f"uvx --from {wheel.name} pausepoint gate check ended with {done.returncode}: {done.stderr.strip()}"
        )
    return ""


def release(report: Report, names: Sequence[str], required: bool, tag: str | None, folder: Path) -> None:
    """Do everything, and note it in the report. What cannot work any more after a failure is left out."""
    report.check("version and notes", lambda: check_notes(report.version, tag))
    if not report.check("build sdist and wheel", lambda: build(folder)):
        return
    report.files = sorted(path.name for path in folder.iterdir())
    sdist, wheel = only(folder, "*.tar.gz"), only(folder, "*.whl")
    report.check("twine check --strict", lambda: _run("twine", "check", "--strict", str(sdist), str(wheel)))
    report.check("content of the wheel", lambda: check_wheel(wheel))
    report.check("uvx --from the wheel", lambda: try_uvx(wheel))
    found = {name: find_python(name) for name in names}
    for name, python in found.items():
        if python is not None:
            report.check(f"wheel with Python {name}", lambda python=python: try_out(python, wheel, report.version))  # type: ignore[misc]
        elif required:
            report.check(f"wheel with Python {name}", lambda name=name: _absent(name))  # type: ignore[misc]
        else:
            report.missing.append(name)
    first = next((python for python in found.values() if python is not None), None)
    if first is None:
        report.check("sdist", lambda: _absent(" or ".join(names)))
    else:
        report.check("sdist", lambda: try_out(first, sdist, report.version))


def _absent(name: str) -> None:
    raise Failed(f"Python {name} was not found on PATH or in pyenv. Install it, or leave it out of --python")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if something failed."""
    parser = argparse.ArgumentParser(prog="make release", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", metavar="3.X", help="try this version, and fail without it")
    parser.add_argument("--tag", help="fail unless the version is that of this tag, such as v0.2.0")
    parser.add_argument("--folder", type=Path, default=DIST, help="where the files are built; it is emptied first")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    asked = parser.parse_args(arguments)
    report = Report(version())
    release(report, asked.python or PYTHONS, bool(asked.python), asked.tag, asked.folder)
    print(json.dumps(report.document(), indent=1) if asked.json else report.table())
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
