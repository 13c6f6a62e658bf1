"""``make release``: what it lets through, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from pausepoint.gate.hooks import native_hook
from tools import installed, native, release
from tools.installed import Failed, Installed

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(built)


def without(wheel: Path, folder: Path, change: Callable[[str], str | None]) -> Path:
    """Copy a wheel with files renamed, or left out where ``change`` returns None."""
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(folder / wheel.name, "w") as part:
        kept = {name: after for name in whole.namelist() if (after := change(name)) is not None}
        for name, after in kept.items():
            content = whole.read(name)
            if name.endswith("/RECORD"):
                listed = [line.partition(",") for line in content.decode().splitlines()]
                content = "".join(f"{kept[name]},{rest}\n" for name, _, rest in listed if name in kept).encode()
            part.writestr(after, content)
    return folder / wheel.name


@pytest.mark.long
def test_the_wheel_is_let_through(wheel: Path) -> None:
    release.check_wheel(wheel)


@pytest.mark.long
def test_the_hook_of_the_gate_is_compiled_where_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, source = tmp_path / "gate-hook", ROOT / native.FOLDER / "gate.c"
    if compiled := shutil.which("cc") is not None:
        assert native.compile_hook(source, hook).startswith("py3-none-")
        done = subprocess.run([hook], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (1, b"usage: gate-hook PYTHON GATE.PY KIND\n")
    (tmp_path / "broken.c").write_text("int main(void) { return 0; }")
    assert native.compile_hook(tmp_path / "broken.c", hook) == "", "a program that does not answer is no hook"
    assert not hook.exists()
    monkeypatch.setenv("PAUSEPOINT_NATIVE_HOOK", "0")
    assert native.compile_hook(source, hook) == ""
    monkeypatch.delenv("PAUSEPOINT_NATIVE_HOOK")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.compile_hook(source, hook) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["broken.c"]
    assert compiled == (native_hook() != ""), "this installation has the hook if it could be compiled"


@pytest.mark.long
@pytest.mark.parametrize(
    "lost", ["pausepoint/py.typed", "pausepoint/stores/sqlite/queries.sql", "pausepoint/server/page/index.html"]
)
def test_a_wheel_without_a_file_that_it_needs_is_refused(lost: str, wheel: Path, tmp_path: Path) -> None:
    assert (ROOT / "src" / lost).exists()
    broken = without(wheel, tmp_path / "broken", lambda name: None if name == lost else name)
    with pytest.raises(Failed, match=re.escape(lost)):
        release.check_wheel(broken)


@pytest.mark.long
def test_a_wheel_with_a_second_package_is_refused(wheel: Path, tmp_path: Path) -> None:
    doubled = without(wheel, tmp_path / "doubled", lambda name: name.replace("pausepoint/apps/", "tests/"))
    with pytest.raises(Failed, match="check_wheel_contents ended with 1"):
        release.check_wheel(doubled)


def project(folder: Path, date: str, recorded: str) -> Path:
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - {date}\n", "utf-8")
    (folder / "tests" / "recorded" / recorded).mkdir(parents=True)
    (folder / "tests" / "recorded" / recorded / "stores.json").touch()
    return folder


def test_a_tag_of_a_dated_version_is_let_through(tmp_path: Path) -> None:
    release.check_notes("0.2.0", "v0.2.0", project(tmp_path, "2026-12-01", "0.2"))


@pytest.mark.parametrize(
    ("tag", "date", "recorded", "why"),
    [
        ("v0.2.1", "2026-12-01", "0.2", r"the tag is v0\.2\.1, but pyproject\.toml has version 0\.2\.0"),
        ("0.2.0", "2026-12-01", "0.2", r"the tag is 0\.2\.0"),
        ("v0.2.0", "unreleased", "0.2", "Write the date of the release"),
        ("v0.2.0", "2026-12-01", "0.1", r"no recorded stores of 0\.2"),
    ],
)
def test_a_tag_that_does_not_fit_is_refused(tag: str, date: str, recorded: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Failed, match=why):
        release.check_notes("0.2.0", tag, project(tmp_path, date, recorded))


def test_the_notes_of_this_version_are_there() -> None:
    release.check_notes(release.version(), None)
    with pytest.raises(Failed, match=r"no heading '## \[9\.9\.9\] - DATE'"):
        release.check_notes("9.9.9", None)


def test_a_python_that_is_not_at_hand_is_named_and_fails_if_it_was_asked_for() -> None:
    this = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert release.find_python(this) == Path(sys.executable)
    assert release.find_python("3.99") is None
    report = release.Report("0.2.0")
    report.missing.append("3.99")
    assert report.check("one", lambda: None)
    assert "absent  Python 3.99" in report.table()
    assert "can be published" in report.table()
    assert not report.check("wheel with Python 3.99", lambda: release._absent("3.99"))
    assert "must not be published" in report.table()
    assert report.document()["ok"] is False


@pytest.mark.long
def test_the_smoke_test_passes_here(tmp_path: Path) -> None:
    here = Installed(Path(sys.executable), tmp_path)
    installed.smoke(here)
    with pytest.raises(Failed, match="which is not in the new environment"):
        installed.version(here, version("pausepoint"))  # here it is the checkout


@pytest.mark.long
def test_an_operation_that_runs_again_fails_the_smoke_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "JOB", installed.JOB.replace('ctx.do(work, "one")', 'work("one")'))
    with pytest.raises(Failed, match=r"no remembered operation ran again; found \['one', 'one', 'two'\]"):
        installed.smoke(Installed(Path(sys.executable), tmp_path))


@pytest.mark.long
def test_a_readme_that_shows_something_else_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8").replace("octopus: 3 facts", "octopus: 4 facts", 1)
    with pytest.raises(Failed, match=r"octopus: 3 facts.* but README\.md shows .*octopus: 4 facts"):
        installed.readme(Installed(Path(sys.executable), tmp_path), text)


def test_a_failure_ends_the_command_with_1_and_a_report(tmp_path: Path) -> None:
    """A tag that does not fit, and nothing can be built, because the tool is gone."""
    program = (
        "import sys\nfrom tools import release\nsys.executable = '/bin/false'\n"
        "sys.exit(release.main(['--json', '--tag', 'v9', '--python', '3.11', '--folder', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "dist")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    assert [(check["name"], check["ok"]) for check in report["checks"]] == [
        ("version and notes", False), ("build sdist and wheel", False),
    ]  # fmt: skip


def test_the_workflows_pin_their_actions_and_cover_every_python() -> None:
    pythons = set(release.PYTHONS)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    assert {each.rpartition(" ")[2] for each in classifiers if re.search(r":: 3\.\d+$", each)} == pythons
    for path in WORKFLOWS.glob("*.yml"):
        text = path.read_text("utf-8")
        loose = [line for line in re.findall(r"uses: (.+)", text) if not re.search(r"@[0-9a-f]{40} # v\d", line)]
        assert loose == [], path.name
        assert pythons <= set(re.findall(r"\b3\.1\d\b", text)), path.name


def test_only_the_job_that_publishes_can_prove_who_it_is() -> None:
    build, _, publish = (WORKFLOWS / "release.yml").read_text("utf-8").partition("\n  publish:\n")
    assert "id-token" not in build
    for needed in ("id-token: write", "environment:", "needs: [test, build, wheels]", "pypa/gh-action-pypi-publish@"):
        assert needed in publish, needed
    assert "--tag $GITHUB_REF_NAME" in build
    assert "password" not in publish
