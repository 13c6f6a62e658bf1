"""What type checkers infer of the public API is part of it. The files in tests/typing say what that is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_mypy_notices_a_regressed_type(tmp_path: Path) -> None:
    """`make check` runs mypy on the files themselves. Here, one line of a copy is wrong, and nothing else may be."""
    text = (ROOT / "tests/typing/definitions.py").read_text()
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace('assert_type(plain("a"), None)', 'assert_type(plain("a"), int)'))
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(broken)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, checked.stdout
    assert "[assert-type]" in errors[0]
