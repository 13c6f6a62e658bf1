"""What docs/cli.md shows of three commands: a session of `brief.py` (docs/tour.md) is killed halfway, and goes on.

    python -m tests.cli.captures FOLDER

makes them anew in a folder that must not be there, and writes them into the page.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from pausepoint import Engine
from tests.cli.kit import Process, run, screen
from tests.cli.samples import STORE, within
from tests.docs.pages import DOCS, blocks
from tests.support.loop import PATIENCE
from tools.cli_reference import PAGE

COMMANDS = (("doctor",), ("plan", "squid"), ("resume",))
BEGIN, END = "<!-- captures: written by tests/cli/captures.py -->", "<!-- end of captures -->"


def made(folder: Path) -> dict[str, str]:
    """Command → what a terminal of 80 columns shows."""
    folder.mkdir(parents=True)
    source = blocks(DOCS / "tour.md")[0].source
    (folder / "brief.py").write_text(re.sub(r"\n +print\(\"looking up.*", "", source))
    (folder / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nbrief = "brief.py:brief"\n')
    while not _is_killed(folder):  # on a busy machine, a kill may come too late
        shutil.rmtree(folder / STORE.partition("/")[0])
    name = socket.gethostname()
    harbour = ("quay" * 20)[: len(name)]  # as wide as this machine's own name
    shown = {}
    for words in COMMANDS:
        done = run(*words, cwd=folder, tty=True)
        assert done.code == 0, done
        shown[" ".join(words)] = screen(done.stdout).replace(f" on {name} ", f" on {harbour} ")
    return shown


def _is_killed(folder: Path) -> bool:
    """Kill a run in its second visit of a step. Return False if it had ended by then."""
    with Process("run", "brief", "--topic", "squid", "--session-id", "squid-1", cwd=folder) as process:
        process.until("Running step: research#2")
        while not _remembers(folder, "research", 3):
            time.sleep(0.02)
        process.signal(signal.SIGKILL)
        process.child.wait(PATIENCE)
    with closing(sqlite3.connect(f"file:{folder / STORE}?mode=ro", uri=True)) as db:  # an engine would note the death
        return bool(db.execute("SELECT status FROM workflow_states").fetchall() != [("completed",)])


def _remembers(folder: Path, step: str, count: int) -> bool:
    """Whether so many operations of a step are remembered, in all of its visits."""

    async def look(engine: Engine) -> int:
        found = [
            event async for event in engine.session("squid-1").events() if event.event_type == "operation.completed"
        ]
        return sum(event.agent_name == step for event in found)

    return bool(within(folder / STORE, look) >= count)


def printed(page: str) -> dict[str, str]:
    """Command → what the page shows."""
    part = page.partition(BEGIN)[2].partition(END)[0]
    found = re.findall(r"```text\n\$ pausepoint ([^\n]*)\n(.*?)```", part, re.DOTALL)
    return {name: text.strip("\n") for name, text in found}


def alike(text: str) -> str:
    """Without what differs from run to run: times, sizes, versions, places, and where lines end for them."""
    text = re.sub(r"[█ ]*█[█ ]*", " █ ", text)
    text = re.sub(
        r"; \d+ operations? (?:(?:is|are) remembered|of \w+)", "", text
    )  # as far as it got when it was killed
    text = re.sub(r"the results of (?:all )?\d+ (?:of \d+ )?items are kept", "some results are kept", text)
    text = re.sub(r"\n· will run  look_up .*", "", text)
    text = re.sub(r"(?<![\w-])\d[\d.]*( min| [smhd]s?\b| [KMG]?i?B)?", "N", text)
    text = re.sub(r"(?:N min )?N", "N", text)
    text = re.sub(r"\bN ago\b", "now", text)
    text = re.sub(r"\w+(?=, a local file system)", "N", text)
    return " ".join(re.sub(r"/\S*?(?=/\.pausepoint|[, ]|$)", "PATH", text, flags=re.MULTILINE).split())


def write(folder: Path) -> None:
    """Into the page."""
    parts = [f"```text\n$ pausepoint {name}\n{text}\n```" for name, text in made(folder).items()]
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n\n".join([before + BEGIN, *parts, END]) + after, "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
