"""``workflows``: the workflows of the stored sessions, and what is known about each, without their code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from pausepoint.cli.context import Cli, not_found, run_async
from pausepoint.cli.exits import DONE, USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.cli.options import WORKFLOWS, common
from pausepoint.cli.text import counted, one_line
from pausepoint.errors import DefinitionError

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.descriptions import Description, StepDescription


@click.command()
@click.argument("name", required=False, metavar="[WORKFLOW]", shell_complete=WORKFLOWS)
@click.option("--mermaid", is_flag=True, help="Print the workflow as a Mermaid flowchart.")
@common(target=True)
def workflows(cli: Cli, name: str | None, mermaid: bool) -> int:
    """List the workflows of the stored sessions, or show the steps of one.

    The code is not needed: the description of a workflow is stored when a session of it starts or resumes.
    """
    if mermaid and name is None:
        raise Refused(f"--mermaid needs the name of a workflow. List them with `{command_line('workflows')}`.", USAGE)
    code: int = run_async(_list(cli) if name is None else _show(cli, name, mermaid))
    return code


async def _list(cli: Cli) -> int:
    async with cli.engine(code=bool(cli.targets), quiet=True) as engine:
        descriptions = {each.name: each for each in await engine.descriptions()}
        sessions = await _counts(engine)
    names = sorted({*descriptions, *sessions})
    if cli.out.as_json:
        from pausepoint.engine.store_documents import workflows

        cli.out.document(workflows([(name, descriptions.get(name), sessions[name]) for name in names]))
    elif not names:
        cli.out.note("This store has no sessions, so it knows no workflow.")
    else:
        rows = [_row(name, descriptions.get(name), sessions[name]) for name in names]
        cli.out.table(["WORKFLOW", "VERSION", "SESSIONS", "STEPS"], rows)
    return DONE


async def _counts(engine: Engine) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (workflow, _), count in (await engine.tally()).items():
        counts[workflow] += count
    return counts


def _row(name: str, found: Description | None, sessions: int) -> list[str]:
    if found is None:
        return [one_line(name), "", f"{sessions:,}", "(not described yet)"]
    return [one_line(name), str(found.version), f"{sessions:,}", ", ".join(found.outline)]


async def _show(cli: Cli, name: str, mermaid: bool) -> int:
    async with cli.engine(code=bool(cli.targets), quiet=True) as engine:
        try:
            found = await engine.description(name)
        except DefinitionError as error:
            raise not_found(str(error)) from None
    if cli.out.as_json:
        cli.out.document(found.to_json())
    elif mermaid:
        click.echo(found.mermaid(), nl=False)
    else:
        _print(cli, found)
    return DONE


def _print(cli: Cli, found: Description) -> None:
    out = cli.out
    out.line(f"{out.paint(found.name, bold=True)}, version {found.version}, {counted(len(found.steps), 'step')}")
    rows = [[each.name, _reads(each), ", ".join(each.writes), _next(found, each), _notes(found, each)]
            for each in found.steps]  # fmt: skip
    out.table(["STEP", "READS", "WRITES", "NEXT", "NOTE"], rows)
    for name, schema in ((found.state or {}).get("properties") or {}).items():
        kind = schema.get("type") or schema.get("$ref", "").rpartition("/")[2]
        out.line(f"  {out.paint(name, 'cyan')}  {one_line(kind)}  {one_line(schema.get('description', ''))}".rstrip())


def _reads(step: StepDescription) -> str:
    return "everything" if step.whole_state else ", ".join(step.reads)


def _next(found: Description, step: StepDescription) -> str:
    return " or ".join(target or "end" for target in found.targets(step.name))


def _notes(found: Description, step: StepDescription) -> str:
    notes = [f"when {step.when.name}"] if step.when else []
    notes += [f"guard {each.name}" for each in found.guards if each.after == step.name]
    notes += [f"up to {step.retry.attempts} attempts"] if step.retry and step.retry.attempts > 1 else []
    notes += [f"publishes {', '.join(each.path for each in step.publishes)}"] if step.publishes else []
    notes += [f"scope {step.scope}"] if step.scope else []
    return "; ".join(notes)
