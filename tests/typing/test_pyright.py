"""pyright infers the same types of a user's program as mypy."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import EXAMPLES, blocks
from tools import typed_names

ROOT = Path(__file__).parents[2]
PROGRAM = (ROOT / "tests/typing/program.py").read_text()

if find_spec("basedpyright") is None:
    pytest.skip(
        "basedpyright is not installed. Install the development tools with 'make venv', or run"
        " '.venv/bin/python -m pip install basedpyright'.",
        allow_module_level=True,
    )


def errors(folder: Path, programs: dict[str, str]) -> dict[str, list[str]]:
    """Return what pyright finds wrong in each program: the text of each line, and the rule."""
    for name, text in programs.items():
        (folder / name).write_text(text)
    rules = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error", "include": [*programs]}
    (folder / "pyrightconfig.json").write_text(json.dumps(rules | {"extraPaths": [str(ROOT / "src")]}))
    command = [sys.executable, "-m", "basedpyright", "--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(programs)
    found: dict[str, list[str]] = {name: [] for name in programs}
    for each in report["generalDiagnostics"]:
        name = Path(each["file"]).name
        line = programs[name].splitlines()[each["range"]["start"]["line"]]
        found[name].append(f"{line.strip()}: {each['rule']}")
    return found


@pytest.mark.long
def test_pyright_infers_the_types_that_the_program_states_and_passes_the_first_programs(tmp_path: Path) -> None:
    """The programs that people read first pass in strict mode. The other examples use libraries with incomplete types.

    One test, because pyright takes long to read Pausepoint.
    """
    strict = "\n".join(line.partition("  # type: ignore")[0] for line in PROGRAM.splitlines())
    regressed = PROGRAM.replace('topic="octopus").result, list[int])', 'topic="octopus").result, list[str])')
    first = {f"readme_{number}.py": block.source for number, block in enumerate(blocks(ROOT / "README.md")[:2])}
    first |= {name: (EXAMPLES / name).read_text("utf-8") for name in ("agent.py", "chat.py", "concierge.py")}
    (tmp_path / "stand_in.py").write_text((EXAMPLES / "stand_in.py").read_text("utf-8"))  # they import it
    assert errors(tmp_path, {"program.py": PROGRAM, "strict.py": strict, "regressed.py": regressed} | first) == {
        "program.py": [],
        "strict.py": [
            "await brief(3, ctx): reportArgumentType",
            'count("octopus", blocking, 3): reportCallIssue',
            "await refund(order=1): reportArgumentType",
            'return run(count, topic="octopus").result: reportReturnType',
        ],
        "regressed.py": ['assert_type(run(brief, topic="octopus").result, list[str]): reportAssertTypeFailure'],
        **{name: [] for name in first},
    }


@pytest.mark.long
def test_the_types_of_the_public_names_are_complete() -> None:
    found = typed_names.public(typed_names.asked())
    assert found.names > 400
    assert found.percentage >= typed_names.LEAST, "\n".join(f"{name}: {why}" for name, why in found.incomplete.items())


def test_a_public_name_without_a_type_is_counted() -> None:
    said = {"message": "Type is missing\n  type annotation"}
    known = {"isTypeKnown": True, "isTypeAmbiguous": False, "diagnostics": []}
    unknown = {"isTypeKnown": False, "isTypeAmbiguous": True, "diagnostics": [said]}
    symbols = [
        {"name": "pausepoint.engine.engine.Engine.start"} | known,
        {"name": "pausepoint.errors.StoreError.path"} | unknown,
        {"name": "pausepoint.engine.engine.Engineer"} | unknown,
    ]
    found = typed_names.public(symbols)
    assert found == (2, {"pausepoint.errors.StoreError.path": "Type is missing type annotation"})
    assert found.percentage == 50
