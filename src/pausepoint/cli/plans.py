"""Print a plan: what a resume would do with every step, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pausepoint.cli.console import money, span
from pausepoint.cli.context import Cli
from pausepoint.cli.text import counted, one_line

if TYPE_CHECKING:
    from pausepoint.artifacts.status import ArtifactState
    from pausepoint.engine.plans import Plan, PlannedStep
    from pausepoint.model.views import Stale


def paragraph(cli: Cli, lines: Sequence[str]) -> None:
    """Print an empty line and then the lines, if there are any."""
    for line in ["", *lines] if lines else ():
        cli.out.say(line)


VERDICTS = {
    "done": "green",
    "next": "yellow",
    "will run": None,
    "may run": "blue",
    "left out": "bright_black",
    "waits": "yellow",
    "runs again": "red",
}


MARKS = {"done": "✓", "next": "▸", "will run": "·", "may run": "?", "left out": "–", "waits": "…", "runs again": "!"}


def print_plan(cli: Cli, found: Plan, ways: Sequence[str] = ()) -> None:
    """Print a plan for a person. ``ways``: lines about what the person can do."""
    out = cli.out
    out.line(f"{found.session_id} {out.status_phrase(found.status.value)}: {_step_counts(found)}")
    print_steps(cli, found)
    paragraph(cli, ways)


def print_steps(cli: Cli, found: Plan) -> None:
    """Print what a plan does with every step."""
    out = cli.out
    for obstacle in found.obstacles:
        out.say(out.paint(f"! {obstacle}", "red"), 2)
    for edit in found.replaces:
        out.say(out.paint(f"! {one_line(str(edit))}", "yellow"), 2)
    out.line()
    rows = [
        [out.paint(f"{MARKS[each.verdict]} {each.verdict}", VERDICTS[each.verdict]), each.step, why_of(each)]
        for each in found
    ]
    out.table(["", "STEP", "WHY"], rows)
    _print_operations(cli, found)
    if found.stale or found.artifacts:
        lines = {"Runs again": ", ".join(map(rerun_cost, found.stale)), "Artifacts": artifact_counts(found.artifacts)}
        for name, said in lines.items():
            if said:
                out.say(f"{name}: {said}")


def _print_operations(cli: Cli, found: Plan) -> None:
    out = cli.out
    rows = [
        [out.paint(f"{MARKS[each.verdict]} {each.verdict}", VERDICTS[each.verdict]), each.operation, one_line(each.why)]
        for each in found.operations
    ]
    if rows:
        out.line()
        out.table(["", "OPERATION", "WHY"], rows)


def why_of(planned: PlannedStep) -> str:
    return one_line(planned.why)


def _step_counts(found: Plan) -> str:
    counts = Counter(each.verdict for each in found)
    running = counts["next"] + counts["will run"]
    perhaps = f", {counts['may run']} may run" if counts["may run"] else ""
    visits = counted(sum(each.visits for each in found), "visit")
    return f"{visits} done, {counted(running, 'step')} to run{perhaps}"


def artifact_counts(found: Iterable[ArtifactState]) -> str:
    """Return how many artifacts are in each state; empty if there are none."""
    counts: Counter[str] = Counter(each.state for each in found)
    return ", ".join(f"{counts[state]:,} {state}" for state in COLOURS if counts[state])


def rerun_cost(each: Stale) -> str:
    """Return a step that runs again, with the time and cost of its last run."""
    cost = f", {money(each.usd)}" if each.usd else ""
    return f"{each.step} (last run: {span(timedelta(seconds=each.seconds))}{cost})"


COLOURS = {"valid": "green", "edited": "yellow", "invalid": "red", "missing": "red", "stale": "bright_black"}
