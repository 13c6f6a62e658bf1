"""After a change of the code, every way out that a command prints is executed, and each helps."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.kit import run

HEAD = """
from pydantic import BaseModel
from pausepoint import Context, Workflow, step

class Memo(BaseModel):
    topic: str
    notes: str = ""
    draft: str = ""
    signed: bool = False
    checked: str = ""

@step(writes="notes")
async def collect(topic: str) -> str:
    return f"about {{topic}}"

@step(writes="draft")
async def write(notes: str) -> str:
    return notes.upper()

@step(writes="signed")
async def sign(draft: str, ctx: Context) -> bool:
    return bool(await ctx.ask(f"Sign {{draft}}?", str))

@step(writes="signed")
async def approve(draft: str) -> bool:
    return True

@step(writes="checked")
async def check(topic: str) -> str:
    return "ok"

memo = Workflow("memo", state=Memo, steps=[{steps}], version={version})
"""

FIRST = HEAD.format(steps="collect, write, sign", version=1)

CHANGED = {
    "the session's step is gone": ("collect, write, approve", 1),
    "a finished step is gone": ("collect, sign", 1),
    "a new step comes before": ("collect, check, write, sign", 1),
    "a migration is missing": ("collect, write, sign", 2),
    "a migration is missing, and a finished step is gone": ("collect, sign", 2),
}

COMMAND = re.compile(r"`(pausepoint [^`]*)`|^[\w' ]+:  +(pausepoint .*)$", re.MULTILINE)
"""A command in a text, and one on a line of its own after what it is for."""


def folder_of(tmp_path: Path, code: str, *, named: bool) -> Path:
    """A project with a session that waits for an answer. ``named``: pyproject.toml names the workflow."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "memo.py").write_text(FIRST)
    workflows = '[tool.pausepoint.workflows]\nmemo = "memo.py:memo"\n' if named else "[tool.pausepoint]\n"
    (tmp_path / "pyproject.toml").write_text(workflows)
    started = run("run", "memo.py", "--topic", "tides", "--session-id", "m1", cwd=tmp_path)
    assert started.code == 3, started
    (tmp_path / "memo.py").write_text(code)
    return tmp_path


def commands(text: str) -> list[str]:
    return list(dict.fromkeys(one or other.strip() for one, other in COMMAND.findall(text)))


def said_about(project: Path, *target: str) -> dict[str, str]:
    """What the commands say about the session after its code has changed. The first one pauses it."""
    inbox = run("answer", "m1", "yes", "--run", *target, cwd=project)
    found = {"answer --run": inbox.stdout + inbox.stderr}
    for words in (["plan", "m1"], ["show", "m1"], ["why", "m1", "collect"], ["doctor"]):
        done = run(*words, *target, cwd=project)
        found[words[0]] = done.stdout + done.stderr
    return found


def helps(project: Path, command: str) -> bool:
    """Execute a way out. It helps if its session, or the new one, can run afterwards."""
    words = shlex.split(command)[1:]
    done = run(*words, cwd=project)
    if done.code not in (0, 3):
        return False
    if words[0] in ("rewind", "fork"):
        (again,) = (each for each in commands(done.stdout + done.stderr) if each.startswith("pausepoint resume"))
        done = run(*shlex.split(again)[1:], cwd=project)
    return "does not fit" not in done.stdout + done.stderr and "(definition)" not in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("case", CHANGED)
def test_every_way_out_after_a_change_of_the_code_helps(tmp_path: Path, case: str) -> None:
    steps, version = CHANGED[case]
    named = version == 1
    project = folder_of(tmp_path / "p", HEAD.format(steps=steps, version=version), named=named)
    target = () if named else ("--target", "memo.py")
    said = said_about(project, *target)
    for where, text in said.items():
        assert "session." not in text, f"{where} speaks Python:\n{text}"
        assert "or or" not in text
        assert not re.search(r"\bTARGET\b", text), text
    assert not any(command.startswith("pausepoint plan") for command in commands(said["plan"]))
    ways = {way: where for where, text in said.items() for way in commands(text)}
    assert ways
    for number, (way, where) in enumerate(ways.items()):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(project, copy)
        if f"Resume with fitting code:  {way}" in re.sub("code: +", "code:  ", said[where]):
            (copy / "memo.py").write_text(FIRST)
        assert helps(copy, way), f"{where} said {way!r}:\n{said[where]}"


@pytest.mark.long
def test_with_the_former_code_back_the_commands_say_what_a_resume_does(tmp_path: Path) -> None:
    project = folder_of(tmp_path / "p", HEAD.format(steps="collect, write, approve", version=1), named=True)
    said = said_about(project)
    assert "no longer has" in said["plan"]
    assert "no longer has" in said["show"]
    (project / "memo.py").write_text(FIRST)
    for words in (["plan", "m1"], ["why", "m1", "sign"]):
        text = run(*words, cwd=project).stdout
        assert "no longer has" not in text, text
    shown = run("show", "m1", cwd=project).stdout
    assert "That is no longer so: a resume continues the session." in shown
    assert "Resume:  pausepoint resume m1" in shown
    done = run("resume", "m1", cwd=project)
    assert done.code == 0, done


@pytest.mark.long
def test_a_lost_step_cannot_be_accepted_and_no_command_says_so(tmp_path: Path) -> None:
    code = HEAD.format(steps="collect, write, approve", version=2)
    project = folder_of(tmp_path / "p", code, named=True)
    for where, text in said_about(project).items():
        assert "--code accept" not in text, (where, text)
