"""The batch: as the page says, and killed in the middle."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, EXAMPLES
from tests.docs.test_operations import BIN, environment, perform, shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLES / "batch.py", tmp_path)
    return tmp_path


def lines() -> list[str]:
    text = (DOCS / "batch.md").read_text("utf-8")
    return "".join(re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)).splitlines()


@pytest.mark.long
def test_the_commands_of_the_page_print_what_it_shows(folder: Path) -> None:
    perform(lines(), folder)
    assert "8" in shell("pausepoint ls --tag papers --status completed --json | grep -c session_id", folder)
    for verb in ("pause", "cancel"):  # nothing is left to do, but the commands exist
        shell(f"pausepoint {verb} --tag papers", folder)


@pytest.mark.long
def test_a_killed_batch_repeats_only_what_was_in_progress(folder: Path) -> None:
    for line in lines()[:2]:
        shell(line.removeprefix("$ "), folder)
    command = [str(BIN / "python"), "batch.py", "papers"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        begun = [first.stdout.readline().split()[-1] for _ in range(5)]  # four at a time: one has ended
        first.kill()
    done = re.findall(r"^papers-p(\d) ", shell("pausepoint ls --tag papers --status completed", folder), re.MULTILINE)
    assert len(done) >= 1
    assert set(done) <= set(begun)
    printed = shell("python batch.py papers", folder)
    again = re.findall(r"^summarizing Paper (\d)$", printed, re.MULTILINE)
    assert not set(done) & set(again)
    missing = {"1", "2", "3", "4", "5", "6", "7"} - set(done) - set(again)
    assert missing <= set(begun)  # the operation had ended, and its session had not
    assert "{'completed': 7}" in printed
