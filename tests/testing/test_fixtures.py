"""The pytest plugin, in a run of pytest of its own: what it offers, and that nobody gets it unasked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import LEAN
from tests.support.loop import PATIENCE

TESTS = """
import asyncio

import pytest
from pydantic import BaseModel

from pausepoint import Context, Workflow, step

tops = []


class Doc(BaseModel):
    text: str = ""


async def say() -> str:
    return "said"


@step(writes="text", retry=2)
async def work(ctx: Context) -> str:
    tops.append("top")
    if ctx.attempt == 1:
        raise ConnectionError("again")
    return await ctx.do(say)


workflow = Workflow("work", state=Doc, steps=[work])


def test_async(pausepoint_engine, pausepoint_clock):
    async def main():
        async with pausepoint_engine as engine:
            assert (await engine.run(workflow)).state.text == "said"

    tops.clear()
    asyncio.run(main())
    assert len(pausepoint_clock.slept) == 1
    assert len(tops) == EXPECTED


def test_blocking(pausepoint_engine):
    with pausepoint_engine as engine:
        assert engine.start(workflow).outcome().state.text == "said"


@pytest.mark.no_always_replay("counts")
def test_that_counts(pausepoint_engine):
    tops.clear()
    with pausepoint_engine as engine:
        engine.start(workflow).outcome()
    assert len(tops) == 2
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "pytest", "-q", "-rs", "--strict-markers", "-p", "no:cacheprovider", *LEAN, *options]
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "tops", "verdict"),
    [
        ((), 2, "3 passed"),
        (("--pausepoint-always-replay",), 3, "2 passed, 1 skipped"),
    ],
    ids=["plain", "always replay"],
)
def test_the_fixtures_and_the_option_do_what_they_say(
    tmp_path: Path, options: tuple[str, ...], tops: int, verdict: str
) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pausepoint.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(TESTS.replace("EXPECTED", str(tops)))
    result = run_pytest(tmp_path, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert verdict in result.stdout
    assert ("--pausepoint-always-replay: counts" in result.stdout) == bool(options)


@pytest.mark.long
def test_who_does_not_ask_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\n"
        "def test_it():\n"
        "    assert not [name for name in sys.modules if name.startswith('pausepoint')]\n"
    )
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout
    assert run_pytest(tmp_path, "--pausepoint-always-replay").returncode == 4


@pytest.mark.long
def test_a_mark_without_a_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pausepoint.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text("import pytest\n\n\n@pytest.mark.no_always_replay()\ndef test_it(): ...\n")
    result = run_pytest(tmp_path, "--pausepoint-always-replay")
    assert result.returncode != 0
    assert "no_always_replay needs a reason" in result.stdout + result.stderr


@pytest.mark.long
def test_only_the_fixtures_and_the_store_suite_import_pytest() -> None:
    program = (
        "import sys, pkgutil, importlib, pausepoint.testing as t\n"
        "names = [m.name for m in pkgutil.iter_modules(t.__path__, 'pausepoint.testing.')]\n"
        "for name in names:\n"
        "    if not name.endswith(('.fixtures', '.suite')):\n"
        "        importlib.import_module(name)\n"
        "print('pytest' in sys.modules, len(names) > 5)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]
