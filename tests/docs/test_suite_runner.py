"""The command behind `make test`: two tiers, a reported second try, an exit code that says what was wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.loop import PATIENCE
from tools import acceptance, marks, suite

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = 'pytest_plugins = ["tests.covers", "tests.counting", "tests.failures"]\n'
SETTINGS = f"""\
[pytest]
pythonpath = {ROOT}
addopts = -p no:schemathesis -p no:playwright -p no:hypothesispytest -p no:cacheprovider
markers =
    long
    browser
    covers
"""
FLAKY = """\
    import pytest
    from pathlib import Path

    @pytest.mark.covers("S1.1")
    def test_flaky():
        seen = Path("seen")
        again = seen.exists()
        seen.touch()
        assert again, "only the first time"
"""


def project(folder: Path, **modules: str) -> Path:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(SETTINGS)
    for name, source in modules.items():
        (folder / f"test_{name}.py").write_text(textwrap.dedent(source))
    return folder


def run(folder: Path, tier: str, *words: str) -> tuple[int, str]:
    """Run the suite of a small project, and return the exit code and the last lines."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "tools.suite", tier, "--workers", "0", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    verdict = folder / "build" / "verdict.txt"
    assert verdict.exists(), done.stdout + done.stderr
    assert done.stdout.endswith(verdict.read_text("utf-8"))
    return done.returncode, verdict.read_text("utf-8")


@pytest.mark.long
def test_the_short_tier_leaves_out_long_tests_and_knows_their_items(tmp_path: Path) -> None:
    source = """\
        import pytest

        @pytest.mark.covers("S1.1")
        def test_brief(): pass

        @pytest.mark.long
        @pytest.mark.covers("S1.2")
        def test_long(): assert False
    """
    code, _ = run(project(tmp_path, both=source), "short")
    assert code == suite.ACCEPTANCE  # the other 413 items have no test here
    results = acceptance.read_results(tmp_path / "build" / "acceptance.json")
    assert results.passed == {"S1.1"}
    assert results.marked == {"S1.1", "S1.2"}
    code, lines = run(tmp_path, "all")
    assert code == suite.FAILED + 1
    assert "1 tests failed twice:\n  test_both.py::test_long\n      assert False" in lines


@pytest.mark.long
def test_a_test_that_passes_in_its_second_try_is_named_and_counts(tmp_path: Path) -> None:
    code, lines = run(project(tmp_path, flaky=FLAKY), "short", "--color=no")
    assert code == 0
    name = "test_flaky.py::test_flaky"
    assert f"1 unstable tests (failed, then passed alone; mend them today):\n  {name}\n" in lines
    assert "AssertionError: only the first time" in lines
    assert name in (tmp_path / "build" / "unstable.txt").read_text("utf-8")
    assert acceptance.read_results(tmp_path / "build" / "acceptance.json").covered == {"S1.1"}
    counts = json.loads((tmp_path / "build" / "tests.json").read_text("utf-8"))
    assert (counts["numPassedTests"], counts["numFailedTests"]) == (1, 0)


@pytest.mark.long
def test_the_last_lines_name_why_tests_were_skipped_and_what_others_measured(tmp_path: Path) -> None:
    source = """\
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        @pytest.mark.skipif(True, reason="PgBouncer is not installed.")
        def test_pooled(n): pass

        @pytest.mark.xfail(strict=False)
        def test_expected(): assert False

        def test_measured(record_property):
            record_property("said", "takeover: 9.0 s")
    """
    _, lines = run(project(tmp_path, some=source), "short", "--color=no")
    assert "takeover: 9.0 s\n2 tests were skipped:\n  2: PgBouncer is not installed.\n" in lines


def test_too_many_unstable_tests_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "repeat", lambda failed, build: {})
    failed = {f"test_it.py::test_{n}": {"error": "assert 0", "covers": []} for n in range(suite.MOST_UNSTABLE + 1)}
    code, lines = suite.judge(suite.Run(1, failed=failed), tmp_path)
    assert code == suite.UNSTABLE
    assert [line for line in lines if "::" in line] == [f"  {node}" for node in failed]


@pytest.mark.long
def test_many_failures_are_not_noise_and_are_not_repeated(tmp_path: Path) -> None:
    count = suite.MOST_REPEATED + 1
    source = f"import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_it(n): assert False\n"
    code, lines = run(project(tmp_path, many=source), "short", "--color=no")
    assert code == suite.FAILED + 9
    assert f"{count} tests failed, which is too many to run them again:" in lines


@pytest.mark.long
def test_a_file_that_cannot_be_collected_is_not_repeated(tmp_path: Path) -> None:
    folder = project(tmp_path, broken="import nothing_of_that_name\n", fine="def test_it(): pass\n")
    code, lines = run(folder, "short", "--color=no")
    assert code == suite.COLLECTION
    assert "test_broken.py\n      ModuleNotFoundError: No module named 'nothing_of_that_name'" in lines


@pytest.mark.long
def test_the_verdict_of_a_former_run_is_no_excuse_for_one_that_ended_early(tmp_path: Path) -> None:
    assert run(project(tmp_path, fine="def test_it(): pass\n"), "short", "--color=no")[0] == 0
    code, lines = run(tmp_path, "short", "--no-such-option")
    assert code == suite.COLLECTION
    assert lines.startswith("pytest ended with exit code 4 before it had run the tests.")
    assert not (tmp_path / "build" / "acceptance.json").exists()


def test_the_last_pass_of_all_tests_is_counted_in_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert suite.last_pass(passes=True).startswith("This is no clone")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q"], check=True)

    def commit() -> None:
        subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)

    commit()
    assert suite.last_pass(passes=False) == "All tests do not pass. They have not passed in this clone before."
    assert suite.last_pass(passes=True).startswith("All tests pass.")
    commit()
    commit()
    assert "They last passed 2 commits ago" in suite.last_pass(passes=False)
    (tmp_path / "new").touch()
    suite.last_pass(passes=True)
    assert "They last passed 2 commits ago" in suite.last_pass(passes=True), "with other files, it is not noted"


def test_slow_tests_are_named_and_the_slowest_comes_first() -> None:
    title, first, second = suite.slow_tests({"a": 2.5, "b": 0.1, "c": 7.0})
    assert title.startswith("2 tests of the short tier took more than 2 s")
    assert (first.split(), second.split()) == (["7.0", "s", "c"], ["2.5", "s", "a"])
    assert suite.slow_tests({"a": 1.9}) == []


# marks

MARKED = """\
from __future__ import annotations

import pytest


@pytest.mark.covers("S1.1")
def test_slow() -> None: ...


@pytest.mark.covers("S1.1", "S1.2")
def test_slower() -> None: ...


@pytest.mark.long
def test_quick_now() -> None: ...


class TestGroup:
    def test_slow(self) -> None: ...
"""


def test_marks_follow_the_measured_times_and_leave_one_proof_of_each_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "ROOT", tmp_path)
    module, times = tmp_path / "tests" / "test_it.py", tmp_path / "times.json"
    module.parent.mkdir()
    module.write_text(MARKED)
    names = {"test_slow[a]": 0.1, "test_slow[b]": 0.9, "test_slower": 3.0, "test_quick_now": 0.1}
    seconds = {f"tests/test_it.py::{name}": took for name, took in names.items()}
    times.write_text(json.dumps({"seconds": seconds | {"tests/test_it.py::TestGroup::test_slow": 0.6}}))
    marks.main([str(times)])
    assert module.read_text() == MARKED
    marks.main([str(times), "--write"])
    text = module.read_text()
    assert '@pytest.mark.long\n@pytest.mark.covers("S1.1")\ndef test_slow' in text
    assert '\n\n\n@pytest.mark.covers("S1.1", "S1.2")\ndef test_slower' in text  # the only proof of S1.2
    assert "\n\n\ndef test_quick_now" in text
    assert "    @pytest.mark.long\n    def test_slow(self)" in text
