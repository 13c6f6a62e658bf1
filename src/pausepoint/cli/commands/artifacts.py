"""`artifacts`: list and verify the files that steps published, and adopt or restore the edited ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DECISION, DONE, FAILED, Refused
from pausepoint.cli.options import SESSIONS, OneOf, common, reason_and_by
from pausepoint.cli.plans import COLOURS, artifact_counts, rerun_cost
from pausepoint.cli.prompts import at_terminal
from pausepoint.cli.sessions import find_session, session_to_change
from pausepoint.cli.text import counted, one_line, size

if TYPE_CHECKING:
    from pausepoint.artifacts.status import ArtifactState
    from pausepoint.engine.plans import Plan
    from pausepoint.model.views import SessionInfo, Stale

ACTIONS = ("ls", "verify", "adopt", "restore")


@click.command()
@click.argument("action", metavar="ls|verify|adopt|restore", type=OneOf(ACTIONS))
@click.argument("session", shell_complete=SESSIONS)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@reason_and_by
@common(target=True)
def artifacts(cli: Cli, action: str, session: str, paths: tuple[str, ...], reason: str, by: str | None) -> int:
    """Check, adopt or restore the files that the steps of a session published.

    \b
    ls       list the artifacts: valid, edited, invalid, missing or stale
    verify   the same, and exit with 1 unless all are valid
    adopt    record edited files, and show which steps become stale
    restore  write the recorded content back; old files go to .pausepoint/bin

    No step runs. A resume runs stale steps again.
    """
    if paths and action in ("ls", "verify"):
        raise click.UsageError(f"{action} always covers all artifacts. Give PATH only for adopt and restore.")
    code: int = run_async(_artifacts(cli, action, session, paths, reason, by))
    return code


async def _artifacts(cli: Cli, action: str, text: str, paths: tuple[str, ...], reason: str, by: str | None) -> int:
    async with cli.engine(code=True, quiet=True) as engine:
        info = await (session_to_change if action in ("adopt", "restore") else find_session)(engine, text)
        cli.check_code(engine, info)
        changed: list[str] = []
        stale: list[Stale] = []
        if action == "adopt":
            before = {each.path for each in await engine.session(info.session_id).artifacts() if each.state == "edited"}
            stale = await engine.session(info.session_id).adopt(paths, by=by, reason=reason)
            changed = sorted(before & set(paths) if paths else before)
        elif action == "restore":
            changed = await engine.session(info.session_id).restore(paths, by=by, reason=reason)
        states = await engine.session(info.session_id).artifacts()
    if cli.out.as_json:
        from pausepoint.engine.documents import ArtifactsDocument

        cli.out.document(ArtifactsDocument(info.session_id, states, changed, stale))
    else:
        _report(cli, action, info, states, changed, stale)
    bad = action == "verify" and any(each.state != "valid" for each in states)
    return FAILED if bad else DONE


def _report(
    cli: Cli, action: str, info: SessionInfo, found: list[ArtifactState], changed: list[str], stale: list[Stale]
) -> None:
    out = cli.out
    if action in ("adopt", "restore"):
        out.line(f"{'Adopted' if action == 'adopt' else 'Restored'}: {', '.join(changed) or 'nothing'}")
        for each in stale:
            out.say(f"stale: {rerun_cost(each)}: {one_line(each.why)}", 2)
        if stale:
            out.note(cli.resume_line(info, "Run the stale steps again"))
        return
    if not found:
        out.line("The session has published no artifacts.")
        return
    rows = [
        [out.paint(each.state, COLOURS[each.state]), each.path, each.step, size(each.size), _about(each)]
        for each in found
    ]
    out.table(["STATE", "PATH", "STEP", "SIZE", "WHY"], rows)


def print_step_artifacts(cli: Cli, found: Iterable[ArtifactState]) -> None:
    """Print the artifacts of one step: each one that is not valid, or their number."""
    states = list(found)
    for each in states:
        if each.state != "valid":
            cli.out.say(f"{each.path} is {cli.out.paint(each.state, COLOURS[each.state])}: {_about(each)}", 2)
    if states and all(each.state == "valid" for each in states):
        cli.out.line(f"Artifacts: {artifact_counts(states)}")


def _about(each: ArtifactState) -> str:
    return one_line(each.why + (f"; edited by {each.by}" if each.by else ""))


# before a resume


def decide_edits(cli: Cli, plan: Plan, edits: str | None) -> str | None:
    """Return the decision about edited artifacts: the option ``edits``, or what the person at the terminal says.

    Print what needs no decision: edits that no finished step depends on, and steps whose code has changed.
    """
    chosen = _decision(cli, plan, edits)
    for step in plan.changed:
        cli.out.note(f"The code of {step} has changed, but its artifacts are kept. To run it again:  --rerun {step}")
    for each in plan.artifacts if chosen != "discard" else ():
        if each.state == "edited" and each.path not in plan.undecided and plan[each.step].verdict == "done":
            cli.out.note(f"Adopting {each.path}: {one_line(each.why)}")
    return chosen


def _decision(cli: Cli, plan: Plan, edits: str | None) -> str | None:
    broken = any(each.state == "invalid" for each in plan.artifacts if each.path in plan.undecided)
    if not plan.needs_decision or edits == "discard" or (edits == "accept" and not broken):
        return edits
    _print_edits(cli, plan)
    ways = ["discard", "stop"] if broken else ["accept", "discard", "stop"] if plan.undecided else ["accept", "stop"]
    if at_terminal(cli.out):
        chosen = click.prompt("What should happen to the edits?", type=OneOf(ways), default="stop")
        if chosen != "stop":
            return str(chosen)
    if not plan.undecided:
        raise _replacing(cli, plan)
    options = "--edits discard" if broken else "--edits accept or --edits discard"
    fix = ", fix the invalid files, or run their steps again with --rerun STEP" if broken else ""
    files = counted(len(plan.undecided), "edited artifact")
    raise Refused(
        f"Session {plan.session_id!r} has {files}: {', '.join(plan.undecided)}. Nothing was changed. Decide with"
        f" {options}{fix}.",
        DECISION,
    )


def _replacing(cli: Cli, plan: Plan) -> Refused:
    """Return the refusal for a resume that would replace accepted edits although no file was edited since."""
    paths = [each.path for each in plan.replaces if each.accepted and not each.decided]
    missing = any(each.state == "missing" for each in plan.artifacts)
    restore = cli.command("artifacts restore", plan.session_id)
    back = f", or write the missing files again: `{restore}`" if missing else ""
    return Refused(
        f"Session {plan.session_id!r} would replace {counted(len(paths), 'accepted edit')}: {', '.join(paths)}. Nothing"
        f" was changed. Let its steps run with --edits accept{back}.",
        DECISION,
    )


def _print_edits(cli: Cli, plan: Plan) -> None:
    for each in plan.artifacts:
        if each.path in plan.undecided:
            cli.out.note(f"{each.path} is {each.state}: {one_line(each.why)}")
    for cost in plan.stale:
        cli.out.note(f"  {rerun_cost(cost)} would run again: {one_line(cost.why)}")
    for edit in plan.replaces:
        cli.out.note(f"  {one_line(str(edit))}")
