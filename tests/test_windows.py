"""Windows is refused with one sentence that names WSL2, by the import and by the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pausepoint.windows import WINDOWS

# What a process on Windows has that matters here: its name for the platform, and none of these modules.
PRETENDED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "pwd", "grp", "resource", "termios"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules.pop(name, None)
"""


def pretended(program: str, platform: str = "win32") -> subprocess.CompletedProcess[str]:
    """Run a program that takes itself to be on another platform."""
    text = f"{PRETENDED}sys.platform = {platform!r}\n{program}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "program", ["import pausepoint", "from pausepoint import Engine", "from pausepoint.stores.sqlite import store"]
)
def test_an_import_on_windows_is_refused_with_the_way_out(program: str) -> None:
    done = pretended(program)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {WINDOWS}"
    assert "WSL2" in WINDOWS
    assert "fcntl" not in done.stderr


@pytest.mark.parametrize("name", ["pausepoint", "C:\\env\\Scripts\\pausepoint.exe"])
def test_the_command_line_on_windows_prints_one_sentence_and_no_traceback(name: str) -> None:
    done = pretended(f"sys.argv = [{name!r}, 'ls']\nfrom pausepoint.cli import main\nmain()")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"pausepoint: {WINDOWS}\n")


@pytest.mark.parametrize("module", ["pausepoint", "pausepoint.apps.demo"])
def test_a_module_of_ours_that_is_run_on_windows_prints_one_sentence(module: str, tmp_path: Path) -> None:
    """Python sets the platform before it looks for the module: a ``sitecustomize`` does the same."""
    (tmp_path / "sitecustomize.py").write_text(f"{PRETENDED}sys.platform = 'win32'\n")
    done = subprocess.run(
        [sys.executable, "-m", module], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"pausepoint: {WINDOWS}\n")


@pytest.mark.long
def test_without_the_refusal_the_import_would_fail_at_a_missing_module() -> None:
    """The pretended machine lacks what Windows lacks, so the tests above would notice a refusal that is gone."""
    done = pretended("from pausepoint import Engine", "linux")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'fcntl'"
