"""The notebook of docs/examples runs, and an edited cell does not strand its session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import EXAMPLES
from tests.support.loop import PATIENCE

INSTALL = "install the tools that run a notebook: pip install -e '.[dev]'"
pytest.importorskip("ipykernel", reason=INSTALL)
nbformat = pytest.importorskip("nbformat", reason=INSTALL)
nbclient = pytest.importorskip("nbclient", reason=INSTALL)

pytestmark = pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages

LOOKED_UP = ["looking up habitat", "looking up memory"]
PAUSED = "paused ['habitat of the octopus', 'memory of the octopus']"
COMMENT = ("# Finished look-ups are remembered.", "# This comment was edited.")
CODE = ('{len(facts)} facts"', '{len(facts)} facts, written again"')
RENAMED = ("research", "gather")


def cell(name: str, *edits: tuple[str, str]) -> Any:
    """Return a code cell of the notebook, with edits."""
    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    found = next(each for each in book.cells if each.id == name)
    for before, after in edits:
        assert before in found.source, before
        found.source = found.source.replace(before, after)
    return found


def printed(folder: Path, cells: Sequence[Any]) -> list[list[str]]:
    """Run cells in a new kernel, in order, and return the lines that each one prints."""
    book = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(
        book, timeout=PATIENCE, startup_timeout=PATIENCE, kernel_name="python3", resources=resources
    )
    asyncio.run(client.async_execute(env=os.environ | {"IPYTHONDIR": str(folder / ".ipython")}))
    return [
        "".join(output.text for output in each.outputs if output.output_type == "stream").splitlines()
        for each in book.cells
    ]


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbformat.validate(book)
    code = [each for each in book.cells if each.cell_type == "code"]
    assert [each for each in code if each.outputs or each.execution_count] == [], "clear the outputs before a commit"
    assert printed(tmp_path, code) == [[], [], [*LOOKED_UP, PAUSED], ["completed octopus: 2 facts"]]


@pytest.mark.long
def test_an_edited_cell_continues_the_session_in_a_new_kernel(tmp_path: Path) -> None:
    assert printed(tmp_path, [cell("imports"), cell("workflow"), cell("pause")])[-1] == [*LOOKED_UP, PAUSED]
    edited = [cell("imports"), cell("workflow", COMMENT, CODE), cell("pause"), cell("resume")]
    assert printed(tmp_path, edited)[2:] == [[PAUSED], ["completed octopus: 2 facts, written again"]]


@pytest.mark.long
def test_an_edited_cell_continues_the_session_in_the_same_kernel(tmp_path: Path) -> None:
    before = [cell("imports"), cell("workflow"), cell("pause")]
    edited = [cell("workflow", COMMENT, CODE), cell("pause"), cell("resume")]
    assert printed(tmp_path, [*before, *edited])[4:] == [[PAUSED], ["completed octopus: 2 facts, written again"]]


@pytest.mark.long
def test_a_renamed_step_pauses_the_session_and_the_way_out_that_it_names_works(tmp_path: Path) -> None:
    edited = cell("workflow", RENAMED)
    accepted = cell("resume", ('engine.session("octopus").resume()', 'engine.session("octopus").resume(code="accept")'))
    lines = printed(
        tmp_path, [cell("imports"), cell("workflow"), cell("pause"), edited, cell("resume"), accepted]
    )  # fmt: skip
    status, reason = lines[4][0], "".join(lines[4][1:])
    assert status == "paused "
    assert "step 'research' is finished, but 'report' no longer has it" in reason
    assert 'session.resume(code="accept")' in reason
    assert lines[5] == ["completed octopus: 2 facts"]


KEPT_OPEN = """
engine = await Engine(STORE, workflows=[report]).__aenter__()
session = await engine.start(report, session_id="octopus", topic="octopus", paused=True)
"""
REGISTERED_AGAIN = """
session = await engine.start(report, session_id="octopus", topic="octopus")
print((await session.outcome()).state.text)
await engine.close()
"""


@pytest.mark.long
def test_an_engine_that_stays_open_between_cells_takes_the_edited_workflow(tmp_path: Path) -> None:
    again = [nbformat.v4.new_code_cell(text) for text in (KEPT_OPEN, REGISTERED_AGAIN)]
    lines = printed(tmp_path, [cell("imports"), cell("workflow"), again[0], cell("workflow", CODE), again[1]])
    assert lines[4] == [*LOOKED_UP, "octopus: 2 facts, written again"]
