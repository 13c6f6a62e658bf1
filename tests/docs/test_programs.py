"""The pages show the programs of docs/examples as they are, and these print what the pages show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, EXAMPLES, PAGES, blocks
from tests.docs.programs import Folder

AS_TYPED = {"pausepoint": ("-m", "pausepoint"), "python": ()}
"""What the first word of a command means."""


def test_every_program_is_shown_as_it_is() -> None:
    shown = {block.file: block.source for page in PAGES for block in blocks(page) if block.file}
    stored = {path.name: path.read_text("utf-8") for path in EXAMPLES.glob("*.py")}
    del stored["stand_in.py"]
    assert shown == stored, "A page differs from its file in docs/examples. Copy the one that is right."


def transcript(page: Path) -> list[str]:
    """Return the lines of all consoles on a page."""
    found = re.findall(r"^```console\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return "".join(found).splitlines()


@pytest.mark.long
@pytest.mark.parametrize("page", ["agent.md", "chat.md", "pydantic-ai.md"])
def test_the_commands_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    """Every line below a command is, or ends, a line that the command prints, in that order."""
    folder, typed = Folder(tmp_path), 0
    printed: Iterator[str] = iter(())
    for line in transcript(DOCS / page):
        if line.startswith("$ "):
            first, *words = shlex.split(line.removeprefix("$ "))
            printed, typed = iter(folder.python(*AS_TYPED[first], *words)), typed + 1
        else:
            assert any(line in each for each in printed), line
    assert typed >= 8


def test_the_commands_of_the_web_app_name_its_paths() -> None:
    paths = set(re.findall(r"@app\.\w+\(\"(/[^\"]+)\"\)", (EXAMPLES / "app.py").read_text("utf-8")))
    typed = [re.search(r"localhost:8000(/\S+)", line) for line in transcript(DOCS / "web-app.md") if "curl" in line]
    called = {found[1].replace("trip", "{run}").replace("QUESTION", "{question}") for found in typed if found}
    assert called == paths
