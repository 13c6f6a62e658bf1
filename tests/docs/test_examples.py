"""What the documentation prints, runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import run as run_command
from tests.docs.pages import DOCS, EXAMPLES, PAGES, ROOT, Block, blocks, name_of, section
from tests.support.loop import PATIENCE
from tests.support.telemetry import no_providers

README, TOUR = ROOT / "README.md", DOCS / "tour.md"
WITH_PYTHON = [page for page in PAGES if any(block.runs for block in blocks(page))]


WAITS = "await asyncio.sleep(0.5)  # a model or a service that takes its time"
"""What the first programs do instead of work. A test that kills none of them need not wait."""


def run_block(block: Block, page: Path, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """As a notebook would: ``await`` may stand outside of functions. Line numbers are those of the page."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile("\n" * (block.line - 1) + hurried(block.source), str(page), "exec", flags=flags, dont_inherit=True)
    waiting = eval(code, names)
    if inspect.iscoroutine(waiting):
        runner.run(waiting)


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_on_a_page_runs_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if any(block.file for block in blocks(page)):
        beside_the_examples(tmp_path, monkeypatch)
    names: dict[str, Any] = {"__name__": "__main__"}
    with no_providers(), asyncio.Runner() as runner:
        for block in blocks(page):
            if block.runs:
                run_block(block, page, names, runner)


def hurried(program: str) -> str:
    """Return a program without what it waits for."""
    return program.replace(WAITS, WAITS.replace("0.5", "0"))


def beside_the_examples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page import the files that it shows, as a program in the same folder does."""
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, folder)
        monkeypatch.setitem(sys.modules, file.stem, None)  # so that the module is gone after the test
        del sys.modules[file.stem]
    monkeypatch.syspath_prepend(folder)


def test_hardly_any_python_is_left_out() -> None:
    left_out = [
        f"{name_of(page)}:{block.line}" for page in PAGES for block in blocks(page) if not (block.runs or block.file)
    ]
    assert len(left_out) <= 1, left_out


def test_an_error_in_a_block_is_noticed_at_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```python\nx = 1\nawait nothing\n```\n")
    with asyncio.Runner() as runner, pytest.raises(NameError, match="nothing") as caught:
        run_block(blocks(page)[0], page, {}, runner)
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == (page, 5)


def commands_of_the_tour() -> list[list[str]]:
    """What the page has people type, word by word."""
    shown = section(TOUR, "From the command line").partition("```console\n")[2].partition("```")[0]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in shown.splitlines()]


@pytest.mark.covers("S4.57", "S4.113")
def test_the_commands_of_the_tour_do_what_is_said(tmp_path: Path) -> None:
    source = blocks(TOUR)[0].source
    assert WAITS in source
    (tmp_path / "brief.py").write_text(hurried(source))
    typed = commands_of_the_tour()
    assert {words[0] for words in typed} == {"pausepoint"}
    assert {"run", "resume", "pause", "plan"} <= {words[1] for words in typed}
    for words in typed:
        done = run_command(*words[1:], cwd=tmp_path)
        needs_somebody = "--paused" in words
        assert done.code == (3 if needs_somebody else 0), (words, done)


def shown_applications() -> dict[str, list[str]]:
    """The lines that the tour shows of each application, by its name."""
    text = section(TOUR, "A program of your own, and five applications")
    found = re.findall(
        r"^\*\*\[\w+\]\(\.\./src/pausepoint/apps/(\w+)/\).*?^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    return {name: shown.splitlines() for name, shown in found}


def test_each_application_is_shown_in_five_lines() -> None:
    programs = {path.parent.name for path in (ROOT / "src" / "pausepoint" / "apps").glob("*/__main__.py")}
    assert {name: len(lines) for name, lines in shown_applications().items()} == dict.fromkeys(programs - {"demo"}, 5)


@pytest.mark.long
@pytest.mark.parametrize("application", shown_applications())
def test_an_application_prints_what_the_tour_shows(application: str, tmp_path: Path) -> None:
    """What is typed goes to a shell; every line that is shown below it is one that it prints, in that order."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAUSEPOINT_")}
    environment = kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed: Iterator[str] = iter(())
    for line in shown_applications()[application]:
        if not line.startswith("$ "):
            assert line in printed, line
            continue
        done = subprocess.run(
            ["sh", "-c", line.removeprefix("$ ")], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode in (0, 3), done  # 3: it waits for somebody
        printed = iter((done.stdout + done.stderr).splitlines())


def start(program: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, program.name], cwd=program.parent, stdout=subprocess.PIPE, text=True)


def printed_on(page: Path, name: str) -> tuple[list[str], list[str]]:
    """The lines that the page shows for the run that is killed and for the one after it."""
    _, _, after = page.read_text("utf-8").partition(f"$ python {name}\n")
    killed, _, rest = after.partition("^Z\n")
    _, _, second = rest.partition(f"$ python {name}\n")
    return killed.splitlines(), second.partition("```")[0].splitlines()


@pytest.mark.long
@pytest.mark.parametrize(("page", "name"), [(README, "answer.py"), (TOUR, "brief.py")], ids=["README", "tour"])
def test_the_program_of_a_page_goes_on_after_a_kill_as_shown(tmp_path: Path, page: Path, name: str) -> None:
    program = tmp_path / name
    program.write_text(blocks(page)[0].source)
    killed, second = printed_on(page, name)
    with start(program) as first:
        assert first.stdout is not None
        assert [first.stdout.readline().rstrip() for _ in killed] == killed
        first.kill()
    assert first.returncode == -signal.SIGKILL
    with start(program) as again:
        output, _ = again.communicate(timeout=PATIENCE)
    assert output.splitlines() == second


def test_the_readme_fits_on_two_screens_and_has_what_a_first_look_needs() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 120
    assert text.count("![") == 2, "the gate and the page"
    assert "\nmake demo\nmake test\n" in text
    assert len(blocks(README)) == 1, "the first program"
    assert {"start", "tour", "agent", "concepts", "api", "deployment", "why", "index"} <= set(
        re.findall(r"\(docs/([\w-]+)\.md", text)
    )
