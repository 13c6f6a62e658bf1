"""pyright infers the same types of a user's program as mypy."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = (ROOT / "tests/typing/program.py").read_text()

if find_spec("basedpyright") is None:
    pytest.skip(
        "basedpyright is not installed. Install the development tools with 'make venv', or run"
        " '.venv/bin/python -m pip install basedpyright'.",
        allow_module_level=True,
    )


def errors(folder: Path, text: str) -> list[str]:
    """Return what pyright finds wrong in a program: the text of each line, and the rule."""
    (folder / "program.py").write_text(text)
    rules = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error", "include": ["program.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(rules | {"extraPaths": [str(ROOT / "src")]}))
    command = [sys.executable, "-m", "basedpyright", "--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    lines = text.splitlines()
    return [f"{lines[each['range']['start']['line']].strip()}: {each['rule']}" for each in found["generalDiagnostics"]]


def test_pyright_infers_the_types_that_the_program_states(tmp_path: Path) -> None:
    assert errors(tmp_path, PROGRAM) == []


def test_wrong_arguments_and_a_wrong_type_of_the_result_are_errors(tmp_path: Path) -> None:
    lines = [line.partition("  # type: ignore")[0] for line in PROGRAM.splitlines()]
    assert errors(tmp_path, "\n".join(lines)) == [
        "await brief(3, ctx): reportArgumentType",
        'count("octopus", blocking, 3): reportCallIssue',
        "await refund(order=1): reportArgumentType",
        'return run(count, topic="octopus").result: reportReturnType',
    ]


def test_a_regressed_type_would_be_noticed(tmp_path: Path) -> None:
    broken = PROGRAM.replace('topic="octopus").result, list[int])', 'topic="octopus").result, list[str])')
    assert errors(tmp_path, broken) == [
        'assert_type(run(brief, topic="octopus").result, list[str]): reportAssertTypeFailure'
    ]
