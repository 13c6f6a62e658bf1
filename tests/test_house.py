"""The project speaks of itself alone, and what it needs at run time is in its wheel."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]

# Folders of somebody's machine, and package indexes: an install must work with whatever the reader's pip is set to.
FOREIGN = {
    "a folder of one machine": re.compile(r"(?<![\w.~$}-])/(?:root|home|Users|work)/[\w.]"),
    "a package index": re.compile(r"pypi\.org/simple|files\.pythonhosted|index[-_]url|find[-_]links", re.IGNORECASE),
}


def tracked_files() -> list[Path]:
    """What is in the repository, or would be after ``git add``."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listing.returncode:
        pytest.skip("not a git checkout, so nothing says which files belong to the project")
    names = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in names if path.is_file() and path != Path(__file__).resolve()]


def foreign(text: str) -> list[str]:
    return [f"{what}: {found[0]}" for what, pattern in FOREIGN.items() for found in pattern.finditer(text)]


@pytest.mark.parametrize(
    "text",
    [
        "see /home/ada/notes",
        "cd /work/x",
        '"/root/cache"',
        "--index-url=x",
        "find-links = y",
        "https://pypi.org/simple/",
    ],
)
def test_what_belongs_to_one_machine_is_recognised(text: str) -> None:
    assert foreign(text)


@pytest.mark.parametrize("text", ["src/work/x", "the root/leaf", "https://example.org/home/page", "pip install x"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert foreign(text) == []


@pytest.mark.long
def test_no_file_names_a_machine_or_an_index() -> None:
    files = tracked_files()
    assert ROOT / "pyproject.toml" in files
    found = {str(path.relative_to(ROOT)): foreign(path.read_text("utf-8", "replace")) for path in files}
    assert {name: what for name, what in found.items() if what} == {}


def test_there_is_no_lock_file() -> None:
    names = {path.name for path in tracked_files()}
    assert names & {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml"} == set()


def test_development_tools_are_pinned_by_name_and_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = project["optional-dependencies"]["dev"]
    loose = [pin for pin in pins if not re.fullmatch(r"[a-z][a-z0-9-]*==[\d.]+", pin)]
    assert loose == []


def test_the_wheel_contains_the_package_with_its_sql_and_nothing_else() -> None:
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    package = ROOT / "src" / "pausepoint"
    needed = {f"pausepoint/{path.relative_to(package).as_posix()}" for path in package.rglob("*.sql")}
    assert needed | {"pausepoint/py.typed", "pausepoint/__init__.py"} <= files
    assert [name for name in files if not name.startswith("pausepoint/")] == []


def test_the_source_archive_contains_what_the_tests_look_at() -> None:
    files = {file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {".ci/run", ".github/workflows/ci.yml", "tools/venv", "Makefile", "SECURITY.md", "zensical.toml"} <= files
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")} <= files


def test_scripts_can_be_executed() -> None:
    assert [name for name in (".ci/run", "tools/venv") if not (ROOT / name).stat().st_mode & 0o100] == []


# front ends

FRONT_ENDS = ("cli", "server", "workers", "integrations", "apps", "orchestrator", "gate")
INTERNAL = frozenset({"store"})
"""Public attributes of an engine that only its own room may use."""


def reached_for(source: str) -> list[str]:
    """Return the places where code uses an engine's parts, or its private names, instead of a verb."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = name_of(owner)
            is_part = isinstance(owner, ast.Attribute) and name_of(owner.value).strip("_") == "engine"
            is_engine = name.strip("_") in ("engine", "wrapped")
            if (is_engine and node.attr in INTERNAL) or ((is_engine or is_part) and node.attr.startswith("_")):
                found.append(f"line {node.lineno}: {name}.{node.attr}")
    return found


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_reaching_below_the_verbs_is_recognised() -> None:
    source = "engine._parts.x\nself._engine._row(id)\nengine.store.find(q)\nengine._wrapped.y\nengine.keys._service"
    assert len(reached_for(source)) == 5
    assert reached_for("self.store, engine.standing_pause(), engine.workflows, cli._engine") == []


@pytest.mark.long
@pytest.mark.parametrize("room", FRONT_ENDS)
def test_front_ends_use_public_verbs_only(room: str) -> None:
    package = ROOT / "src" / "pausepoint"
    found = {
        str(path.relative_to(package)): places
        for path in (package / room).rglob("*.py")
        if (places := reached_for(path.read_text("utf-8")))
    }
    assert found == {}


def test_no_test_file_is_longer_than_600_lines() -> None:
    """Not counting the marks that `tools.marks` sets."""
    sizes = {
        str(path.relative_to(ROOT)): sum(
            "@pytest.mark.long" not in line for line in path.read_text("utf-8").splitlines()
        )
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert {name: lines for name, lines in sizes.items() if lines > 600} == {}


@pytest.mark.long
def test_the_former_name_stands_in_the_changelog_and_in_one_decision_only() -> None:
    former = "hold" + "fast"
    named = {path.relative_to(ROOT).as_posix() for path in tracked_files()
             if former in path.read_text("utf-8", "replace").lower()}  # fmt: skip
    assert named <= {"CHANGELOG.md", "docs/decisions/0036-the-name.md"}
