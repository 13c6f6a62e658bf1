"""What type checkers infer of the public API is part of it. The files in tests/typing say what that is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def mypy(path: str | Path) -> subprocess.CompletedProcess[str]:
    """Run mypy with the cache of `make check`, which has most of the answer already."""
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_mypy_infers_the_types_that_the_typing_tests_state() -> None:
    checked = mypy("tests/typing")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.long
def test_a_regressed_type_would_be_noticed(tmp_path: Path) -> None:
    text = (ROOT / "tests/typing/definitions.py").read_text()
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace('assert_type(plain("a"), None)', 'assert_type(plain("a"), int)'))
    checked = mypy(broken)
    assert checked.returncode == 1
    assert "assert-type" in checked.stdout
