"""``python -m pausepoint.apps.memo``: the memo as a program. Without arguments it writes that of an invented company."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import click
from pydantic import Field

from pausepoint import program
from pausepoint.apps.input import BadInput
from pausepoint.apps.memo.decisions import decision
from pausepoint.apps.memo.folders import Changes, check_agent
from pausepoint.apps.memo.models import InvestmentType, MemoMode
from pausepoint.apps.memo.program import Drive
from pausepoint.apps.memo.report import CONFLICT, INTERRUPTED, TERMINATED, Ending, at_terminal, reported, shown
from pausepoint.apps.memo.settings import SAMPLES, starting
from pausepoint.apps.memo.workflow import AGENTS, memo
from pausepoint.artifacts import VersionFolders
from pausepoint.cli import Start
from pausepoint.errors import AlreadyRunning

HELP = f"""Write an investment memo with thirteen agents, from documents, a pitch deck and a company's data.

Every agent leaves its files in output/COMPANY-v0.0.x/. Stopped at any moment it goes on with --resume; what somebody
edits there is taken in, and exactly the agents that have read it run again.

The agents, as --from and --until name them: {", ".join(AGENTS)}.
"""


def write(
    start: Start,
    company: Annotated[str, Field(description="The company; its data is data/COMPANY.json.")] = SAMPLES[0],
    resume: Annotated[bool, Field(description="Go on with the latest version, from its last checkpoint.")] = False,
    version: Annotated[str | None, Field(description="Go on with this version, such as v0.0.3.")] = None,
    force_restart: Annotated[bool, Field(description="Begin anew, whatever there is.")] = False,
    from_: Annotated[str | None, Field(description="Go on, and redo this agent and all behind it.")] = None,
    until: Annotated[str | None, Field(description="Pause once this agent has ended.")] = None,
    type_: Annotated[InvestmentType | None, Field(description="What is invested in; else direct.")] = None,
    mode: Annotated[MemoMode | None, Field(description="What the memo is for; else consider.")] = None,
    data: Annotated[Path | None, Field(description="The company's JSON.")] = None,
    deck: Annotated[Path | None, Field(description="The pitch deck, a PDF.")] = None,
    documents: Annotated[Path | None, Field(description="The folder of documents.")] = None,
    outline: Annotated[Path | None, Field(description="The sections, a TOML file.")] = None,
    output: Annotated[Path, Field(description="Where versions go.")] = Path("output"),
    edits: Annotated[
        Literal["accept", "discard"] | None,
        Field(description="Take in files that somebody has edited, or put edited or damaged ones back."),
    ] = None,
    incomplete: Annotated[
        Literal["accept"] | None, Field(description="Go on at the first gap of files that do not add up.")
    ] = None,
    by: Annotated[str | None, Field(description="Who does this; kept in the history.")] = None,
) -> Ending:
    """Write a memo, or go on with one."""
    check_agent("--from", from_)
    check_agent("--until", until)
    if from_ is not None and until is not None and AGENTS.index(until) < AGENTS.index(from_):
        raise BadInput(f"--until: {until} comes before {from_}, which is that of --from; give a later one")
    if force_restart and (version or from_):
        raise BadInput(f"--force-restart begins anew; {'--version' if version else '--from'} goes on: give one of them")
    drive = Drive(
        start, company, VersionFolders(output, company),
        lambda: starting(company, data=data, deck=deck, documents=documents, outline=outline, kind=type_ or "direct",
                         mode=mode or "consider"),
        Changes(type_, mode, outline, data, deck, documents),
        edits=edits, incomplete=incomplete, redo=from_, until=until, by=by,
    )  # fmt: skip
    goes_on = None if force_restart else resume or version is not None or from_ is not None
    return _driven(drive, version, goes_on)


def _driven(drive: Drive, version: str | None, goes_on: bool | None) -> Ending:
    """``goes_on`` is None if it must begin anew. Nothing is asked while an engine is open, which minds Ctrl+C then."""
    try:
        goes_on = goes_on is not None and (goes_on or drive.offered())
        stand = asyncio.run(drive.go_on(version) if goes_on else drive.begin())
        if stand.undecided is not None and stand.folder is not None:
            drive.edits = decision(stand.undecided, drive.same_command)
            stand = stand if drive.edits is None else asyncio.run(drive.taken_up(stand.folder))
        while stand.question is not None and at_terminal():
            click.echo(shown(stand.question.next_question))
            answer = click.prompt("Your verdict", type=click.Choice(["approve", "reject", "later"]))
            if answer == "later":
                break
            stand = asyncio.run(drive.answer(stand.question, answer))
    except AlreadyRunning as error:
        click.echo(f"{drive.folder} is being written by {error.holder}", err=True)
        click.echo(f"Stop it: {drive.start.command('pause', str(error.session_id))}", err=True)
        return CONFLICT, None
    except (KeyboardInterrupt, click.Abort):
        return _left(drive, "Interrupted", INTERRUPTED)
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        return _left(drive, "Terminated", TERMINATED)
    return reported(stand, drive.start, drive.command)


def _left(drive: Drive, why: str, code: int) -> Ending:
    """This program has to end. The last line is the command that goes on."""
    if drive.folder is None:
        click.echo(f"{why} before anything was done.", err=True)
    else:
        click.echo(f"{why}; what is done is kept.", err=True)
        click.echo(f"Resume: {drive.command}", err=True)
    return code, None


main = program(memo, instead=write, arguments=["company"], help=HELP, step_word="agent")

if __name__ == "__main__":
    main()
