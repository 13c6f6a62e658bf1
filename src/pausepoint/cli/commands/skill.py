"""``skill``: teach a coding agent how to put a script under Pausepoint."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

import click

from pausepoint.cli.console import Output
from pausepoint.cli.exits import CONFLICT, USAGE, Refused
from pausepoint.name import NAME

SKILLS = Path(".claude") / "skills"
"""Where Claude Code looks for skills, in a project and in the home folder."""


@click.command()
@click.option("--user", is_flag=True, help="For all projects of this user, in ~/.claude/skills.")
@click.option("--into", metavar="FOLDER", help="The folder where another agent looks for skills.")
@click.option("--replace", is_flag=True, help="Replace a SKILL.md that differs, such as that of an earlier version.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def skill(user: bool, into: str | None, replace: bool, as_json: bool) -> None:
    """Teach a coding agent how to put a script under Pausepoint.

    Writes pausepoint/SKILL.md below .claude/skills of this folder, where Claude Code finds it in its next session. For
    another agent, name its folder of skills with --into. Then ask the agent, for example, "Put fetch.py under
    Pausepoint".
    """
    if user and into:
        raise click.UsageError("--user and --into exclude each other. Leave one out.")
    file = (Path(into) if into else (Path.home() if user else Path.cwd()) / SKILLS) / NAME / "SKILL.md"
    done = _write(file, files(f"{NAME}.cli").joinpath("templates", "SKILL.md").read_text(encoding="utf-8"), replace)
    out = Output(as_json)
    if as_json:
        from pausepoint.cli.documents import SkillDocument

        out.document(SkillDocument(str(file), done))
    out.line(f"{done:<8} {file}")


def _write(file: Path, text: str, replace: bool) -> Literal["created", "replaced", "kept"]:
    """Write the skill, and return what was done."""
    try:
        before = file.read_text(encoding="utf-8", errors="replace") if file.exists() else None
        if before == text:
            return "kept"
        if before is not None and not replace:
            raise Refused(f"{file} differs from the skill of this version. To replace it, add --replace", CONFLICT)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror}. Name another folder with --into", USAGE) from error
    return "created" if before is None else "replaced"
