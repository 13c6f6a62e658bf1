"""``gate``: put agents such as Claude Code under the pause button, and scripts, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pausepoint.cli.context import Cli
from pausepoint.cli.exits import CONFLICT, DONE, FAILED, NOT_FOUND, TRY_LATER, USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.cli.options import OneOf, common
from pausepoint.cli.prompts import at_terminal, confirmed
from pausepoint.cli.text import one_line
from pausepoint.model.marks import marked_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pausepoint.cli.documents import FileChange
    from pausepoint.gate.callers import GateCaller
    from pausepoint.gate.installation import Installation
    from pausepoint.gate.settings import Change

AGENTS = ("claude", "codex")

_ON_LOSS = {
    "open": "While no server answers, tool calls run, unless everything is paused. To refuse them instead, install with"
    " --closed.",
    "closed": "While no server answers, tool calls are refused. To let them run instead, install with --open.",
}

_yes = click.option("--yes", is_flag=True, help="Write the change without asking.")
_dry = click.option("--dry-run", is_flag=True, help="Show the change and write nothing.")


@click.group()
def gate() -> None:
    """Put agents that you start by hand under the pause button.

    An agent such as Claude Code asks the gate before each tool call. While everything is paused, it waits there.
    """


@gate.command()
@click.argument("agent", type=OneOf(AGENTS), metavar="claude|codex")
@click.option("--local", is_flag=True, help="Use .claude/settings.local.json, which git ignores.")
@click.option("--user", is_flag=True, help="Use your own settings, which count in every project.")
@click.option(
    "--closed/--open", default=None, help="Refuse tool calls without a server, or let them run. Default: open."
)
@click.option("--restricted", multiple=True, metavar="PATTERN",
              help="A command or tool that needs approval, such as 'git push'; repeatable; '' for none.")  # fmt: skip
@_yes
@_dry
@common()
def install(
    cli: Cli, agent: Literal["claude", "codex"], local: bool, user: bool, closed: bool | None,
    restricted: tuple[str, ...], yes: bool, dry_run: bool,
) -> int:  # fmt: skip
    """Add the hooks of the gate to the settings of Claude Code or Codex.

    Shows the change first. Other hooks and settings stay as they are. The place of the gate is written to
    .pausepoint/gate.json. You can install again to change options, or after an upgrade of Python.
    """
    from pausepoint.gate.hooks import AGENT_KINDS
    from pausepoint.gate.settings import apply

    if local and user:
        raise Refused("--local and --user name different files. Give one of them.", USAGE)
    kind, where = AGENT_KINDS[agent], _installation(cli)
    with _refusals():
        changes = where.install(
            kind,
            "local" if local else "user" if user else "project",
            None if closed is None else "closed" if closed else "open",
            restricted or None,
        )
        written = _agreed(cli, changes, yes, dry_run)
        if written:
            apply(changes)
    said = where.settings() if written or not any(each.is_one for each in changes) else None
    if cli.out.as_json:
        from pausepoint.cli.documents import GateInstall

        cli.out.document(GateInstall(written, _shown(changes), agent, str(where.gate_file)))
    if said is not None:
        file = changes[-1].path
        cli.out.say(f"{kind.title} {'asks' if written else 'already asks'} the gate before each tool call: {file}.")
        cli.out.say(_ON_LOSS[said.on_loss])
        _hints(cli, agent, local or user)
    return DONE


def _hints(cli: Cli, agent: str, own: bool) -> None:
    if agent == "codex":
        cli.out.note("Codex skips new and changed hooks until you trust them: start codex and type /hooks.")
    if not own and agent == "claude":
        cli.out.note("The file names the Python of this machine. If you share it through git, use --local instead.")
    cli.out.note(f"Check it:  {command_line('gate', 'check')}")
    cli.out.note(f"Serve it:  {command_line('gate', 'serve')}")
    cli.out.note(f"Then stop all agents from any terminal:  {command_line('pause', '--all', '--wait')}")


@gate.command()
@click.argument("agent", type=OneOf(AGENTS), metavar="[claude|codex]", required=False)
@click.option("--user", is_flag=True, help="Also take the hooks out of your own settings.")
@_yes
@_dry
@common()
def uninstall(cli: Cli, agent: str | None, user: bool, yes: bool, dry_run: bool) -> int:
    """Take the hooks of the gate out of the project's settings, and remove .pausepoint/gate.json.

    Everything else in these files stays as it is. Without an agent, the hooks of all agents are taken out.
    """
    from pausepoint.gate.hooks import AGENT_KINDS
    from pausepoint.gate.installation import take_back

    where = _installation(cli)
    with _refusals():
        changes = where.uninstall([AGENT_KINDS[agent]] if agent else AGENT_KINDS.values(), user)
        written = _agreed(cli, changes, yes, dry_run)
        if written:
            take_back(changes)
    if cli.out.as_json:
        from pausepoint.cli.documents import GateUninstall

        cli.out.document(GateUninstall(written, _shown(changes)))
    if not changes:
        cli.out.line(f"The gate is not installed in {cli.project.root}.")
    for each in changes if written else ():
        cli.out.line(f"{'removed' if each.after is None else 'changed'}  {each.path}")
    for path in () if user else _of_user(where, changes):
        cli.out.note(
            f"{path} has hooks of the gate. Take them out, too:  {command_line('gate', 'uninstall', '--user')}"
        )
    return DONE


def _of_user(where: Installation, changes: Sequence[Change]) -> list[Path]:
    """Return the settings files of the user that have hooks of the gate."""
    from pausepoint.gate.hooks import AGENT_KINDS
    from pausepoint.gate.settings import SettingsRefused

    done = {each.path for each in changes}
    try:
        theirs = {kind.file("user", where.root) for kind in AGENT_KINDS.values()} - done
        return [file.path for file in where.files(AGENT_KINDS.values(), user=True) if file.path in theirs]
    except SettingsRefused:  # it is only a hint
        return []


@gate.command()
@common()
def check(cli: Cli) -> int:
    """Check the settings, the hook, the socket and the server.

    Each finding is healthy (ok), a warning (warn) or a problem (bad), with what to do about it. The hook runs once,
    with an event that changes nothing. Exits with 1 if there is a problem.
    """
    from pausepoint.cli.commands.doctor import show_findings
    from pausepoint.cli.commands.gate_check import findings_of

    findings = list(findings_of(_installation(cli)))
    has_errors = any(each.level == "bad" for each in findings)
    if cli.out.as_json:
        from pausepoint.engine.store_documents import GateCheck

        cli.out.document(GateCheck(not has_errors, [finding.document() for finding in findings]))
    show_findings(cli.out, findings)
    return FAILED if has_errors else DONE


@gate.command()
@click.option("--restricted", multiple=True, metavar="PATTERN",
              help="A command or tool that needs approval, besides those of the installation; repeatable.")  # fmt: skip
@click.option("--calls-only", is_flag=True, help="Do not store what agents are told and say, only their calls.")
@common()
def serve(cli: Cli, restricted: tuple[str, ...], calls_only: bool) -> int:
    """Hold the agents of this project under the pause button, until Ctrl+C.

    Each agent that has the hooks of the gate becomes a session of the store: `ls` lists it, `pause` stops it before
    its next tool call, and `inbox` asks about restricted commands.
    """
    from dataclasses import replace

    from pausepoint.cli.commands.gate_serve import serve

    with _refusals():
        settings = _installation(cli).settings()
        return serve(cli, replace(settings, restricted=(*settings.restricted, *restricted)), words=not calls_only)


@gate.command()
@click.option("--name", required=True, metavar="NAME", help="What is about to happen, such as deploy.")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="A detail of it; repeatable.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="How long to wait. Default: no limit.")
@common()
def before(cli: Cli, name: str, pairs: tuple[str, ...], timeout: float | None) -> int:
    """Ask the gate before a script does something: exit 0 to run, 1 refused, 75 to try later.

    It waits while everything is paused, and while a person is asked about a restricted command.
    """
    from pausepoint.gate.callers import Verdict

    arguments = dict(_pair(each) for each in pairs)
    caller = _caller(cli, name)
    if caller is None:
        verdict = Verdict("run", "this folder has no gate", served=False)
    else:
        with _refusals():
            verdict = caller.before(name, arguments, timeout, lambda why: cli.out.note(f"Waiting: {one_line(why)}"))
    if cli.out.as_json:
        from pausepoint.cli.documents import GateVerdict

        cli.out.document(GateVerdict(verdict.do, verdict.reason or None, verdict.approved))
    if verdict.do != "run" or not verdict.served:
        word = {"run": "Not asked", "refuse": "Refused", "later": "Try again later"}[verdict.do]
        cli.out.note(f"{word}: {one_line(verdict.reason)}")
    return {"run": DONE, "refuse": FAILED, "later": TRY_LATER}[verdict.do]


@gate.command()
@click.option("--name", default="script", show_default=True, metavar="NAME", help="The script, as in `gate before`.")
@click.option("--usd", type=click.FloatRange(min=0), default=0.0, metavar="AMOUNT", help="Dollars.")
@click.option("--tokens", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="Tokens.")
@common()
def spend(cli: Cli, name: str, usd: float, tokens: int) -> int:
    """Report what a script has spent. It counts against the budget: exit 0 recorded, 75 to try later."""
    if not usd and not tokens:
        raise Refused("There is no amount. Give --usd, --tokens, or both.", USAGE)
    caller = _caller(cli, name)
    if caller is None:
        raise Refused(
            f"{Path.cwd()} has no gate. Install it with `{command_line('gate', 'install', 'claude')}`.", NOT_FOUND
        )
    with _refusals():
        is_recorded = caller.spend(usd, tokens)
    if cli.out.as_json:
        from pausepoint.cli.documents import GateSpend

        cli.out.document(GateSpend(is_recorded))
    if not is_recorded:
        cli.out.note(f"Not recorded: no server answers at {caller.place.socket}.")
    return DONE if is_recorded else TRY_LATER


# what they share


class _refusals:
    """Turn what the settings refuse into a refusal of the command."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from pausepoint.gate.settings import SettingsRefused

        if isinstance(error, SettingsRefused):
            raise Refused(str(error), CONFLICT) from error


def _installation(cli: Cli) -> Installation:
    from pausepoint.gate.installation import Installation

    if cli.place.path is None:
        raise Refused(
            f"The gate needs a store in a file, and {cli.place.shown} is on a server. Name a file with --store.", USAGE
        )
    return Installation(cli.project.root, cli.place.path)


def _caller(cli: Cli, name: str) -> GateCaller | None:
    from pausepoint.gate.callers import GateCaller, find_place
    from pausepoint.gate.reports import SESSION

    if not re.match(SESSION, name):
        raise Refused(f"--name {name!r} is not a valid name. Use up to 128 letters, digits or . _ -.", USAGE)
    with _refusals():
        place = find_place(Path.cwd())
    return None if place is None else GateCaller(place, name)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Refused(f"--arg {text!r} has no value. Write NAME=VALUE.", USAGE)
    return name, value


def _agreed(cli: Cli, changes: Sequence[Change], yes: bool, dry_run: bool) -> bool:
    """Show the changes, and return whether to write them. Without a terminal, ``yes`` must say so."""
    wanted = [each for each in changes if each.is_one]
    if not wanted:
        return False
    for each in wanted:
        for line in each.diff():
            colour = {"+": "green", "-": "red"}.get(line[:1])
            cli.out.line(cli.out.paint(marked_line(line.expandtabs()), colour))
    if yes or dry_run:
        return not dry_run
    if not at_terminal(cli.out):
        raise Refused(
            "Nothing was changed, because no one can be asked here. Add --yes to write the change, or --dry-run to see"
            " it.",
            USAGE,
        )
    if not confirmed("Write this?"):
        raise Refused("Nothing was changed.", FAILED)
    return True


def _shown(changes: Sequence[Change]) -> list[FileChange]:
    from pausepoint.cli.documents import FileChange

    return [FileChange(str(change.path), "\n".join(change.diff())) for change in changes if change.is_one]
