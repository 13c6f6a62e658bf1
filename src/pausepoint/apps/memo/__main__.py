"""``python -m pausepoint.apps.memo``: the command line. Without arguments it writes the memo of a made-up company."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import click
from pydantic import Field

from pausepoint import Question, program
from pausepoint.apps.endings import CONFLICT, Ending, at_terminal, ended
from pausepoint.apps.input import BadInput
from pausepoint.apps.memo.decisions import decision
from pausepoint.apps.memo.folders import Changes, check_agent
from pausepoint.apps.memo.models import InvestmentType, MemoMode
from pausepoint.apps.memo.program import Drive
from pausepoint.apps.memo.report import reported, shown
from pausepoint.apps.memo.settings import SAMPLES, starting
from pausepoint.apps.memo.workflow import AGENTS, memo
from pausepoint.artifacts import VersionFolders
from pausepoint.cli import Start
from pausepoint.errors import AlreadyRunning

LATER = "later"
"""What a reviewer answers at the terminal to leave a question open."""

HELP = f"""Write an investment memo with thirteen agents, from documents, a pitch deck and a company's data.

Every agent publishes its files in output/COMPANY-v0.0.x/. You can stop the program at any moment and continue with
--resume. You can also edit the files: a resume then repeats exactly the agents that have read an edited file.

The agents, as --from and --until name them: {", ".join(AGENTS)}.
"""


def write(
    start: Start,
    company: Annotated[str, Field(description="The company. Its data is data/COMPANY.json.")] = SAMPLES[0],
    resume: Annotated[bool, Field(description="Resume the latest version from its last checkpoint.")] = False,
    version: Annotated[str | None, Field(description="Resume this version, such as v0.0.3.")] = None,
    force_restart: Annotated[bool, Field(description="Always start a new version.")] = False,
    from_: Annotated[str | None, Field(description="Resume, and redo this agent and all after it.")] = None,
    until: Annotated[str | None, Field(description="Pause when this agent has finished.")] = None,
    type_: Annotated[InvestmentType | None, Field(description="The type of investment. Default: direct.")] = None,
    mode: Annotated[MemoMode | None, Field(description="The purpose of the memo. Default: consider.")] = None,
    data: Annotated[Path | None, Field(description="The company's data, a JSON file.")] = None,
    deck: Annotated[Path | None, Field(description="The pitch deck, a PDF.")] = None,
    documents: Annotated[Path | None, Field(description="The folder of documents.")] = None,
    outline: Annotated[Path | None, Field(description="The sections, a TOML file.")] = None,
    output: Annotated[Path, Field(description="The folder for all versions.")] = Path("output"),
    edits: Annotated[
        Literal["accept", "discard"] | None,
        Field(description="Accept edited files, or restore edited and damaged ones."),
    ] = None,
    incomplete: Annotated[
        Literal["accept"] | None, Field(description="Resume at the first gap if files are missing.")
    ] = None,
    budget: Annotated[float | None, Field(description="The cost limit in dollars.", gt=0)] = None,
    by: Annotated[str | None, Field(description="Your name, kept in the history.")] = None,
) -> Ending:
    """Write a memo, or resume one."""
    check_agent("--from", from_)
    check_agent("--until", until)
    if from_ is not None and until is not None and AGENTS.index(until) < AGENTS.index(from_):
        raise BadInput(f"--until: {until} comes before {from_}, the agent of --from. Name a later agent.")
    if force_restart and (version or from_):
        other = "--version" if version else "--from"
        raise BadInput(f"--force-restart cannot be combined with {other}. Pass only one of them.")
    drive = Drive(
        start, company, VersionFolders(output, company),
        lambda: starting(company, data=data, deck=deck, documents=documents, outline=outline, kind=type_ or "direct",
                         mode=mode or "consider"),
        Changes(type_, mode, outline, data, deck, documents),
        edits=edits, incomplete=incomplete, redo=from_, until=until, by=by, budget=budget,
    )  # fmt: skip
    goes_on = None if force_restart else resume or version is not None or from_ is not None
    return ended(lambda: _driven(drive, version, goes_on), lambda why, code: _ended_early(drive, why, code))


def _driven(drive: Drive, version: str | None, goes_on: bool | None) -> Ending:
    """Drive the memo. ``goes_on`` is None if it must start a new version.

    Prompts appear only while no engine is open, because an open engine handles Ctrl+C.
    """
    try:
        goes_on = goes_on is not None and (goes_on or drive.offered())
        stand = asyncio.run(drive.go_on(version) if goes_on else drive.begin())
        if stand.undecided is not None and stand.folder is not None:
            drive.edits = decision(stand.undecided, drive.same_command, stand.merged)
            stand = stand if drive.edits is None else asyncio.run(drive.taken_up(stand.folder))
        while stand.folder is not None and (stand.sent_back or (stand.question is not None and at_terminal())):
            if stand.question is None:
                stand = asyncio.run(drive.taken_up(stand.folder))
                continue
            click.echo(shown(stand.question.next_question))
            answer = _answer(stand.question)
            if answer == LATER:
                break
            stand = asyncio.run(drive.answer(stand.question, answer))
    except AlreadyRunning as error:
        click.echo(f"{drive.folder} is being written by {error.holder}.", err=True)
        click.echo(f"Stop it: {drive.start.command('pause', str(error.session_id))}", err=True)
        return CONFLICT, None
    return reported(stand, drive.start, drive.command)


def _answer(question: Question) -> str:
    """Ask the reviewer at the terminal."""
    if not question.choices:
        return str(click.prompt("Your reason"))
    return str(click.prompt("Your verdict", type=click.Choice([*map(str, question.choices), LATER])))


def _ended_early(drive: Drive, why: str, code: int) -> Ending:
    """Report that the program ends early. The last line is the command that resumes the memo."""
    if drive.folder is None:
        click.echo(f"{why} before any work was done.", err=True)
    else:
        click.echo(f"{why}. Finished work is kept.", err=True)
        click.echo(f"Resume: {drive.command}", err=True)
    return code, None


main = program(memo, instead=write, arguments=["company"], help=HELP, step_word="agent")


if __name__ == "__main__":
    main()
