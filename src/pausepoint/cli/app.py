"""The group of all commands. Each is imported when it is called, or asked for its help."""

from __future__ import annotations

from importlib import import_module

import click

from pausepoint.cli.exits import Unknown
from pausepoint.cli.host import STORE
from pausepoint.errors import did_you_mean
from pausepoint.name import NAME

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "init": ("setup", "Make this folder a Pausepoint project."),
        "demo": ("setup", "Watch a session being killed, resumed and paused."),
        "run": ("run", "Start a session and show it until it ends or needs somebody."),
        "resume": ("run", "Go on with an interrupted, paused or failed session."),
        "worker": ("worker", "Drive whatever is ready or due in this store."),
    },
    "Look": {
        "ls": ("ls", "List sessions."),
        "inbox": ("inbox", "List the questions that wait for somebody."),
        "show": ("show", "Show a session and its state, now or at a checkpoint."),
        "status": ("ls", "Who is running, and who is still finishing which step."),
        "watch": ("watch", "Follow a session live until it ends or needs somebody."),
        "events": ("watch", "Show the history of a session."),
        "plan": ("show", "What a resume would do with every step, and why."),
        "why": ("show", "Why a step would run, or would not."),
        "checkpoints": ("checkpoints", "List the checkpoints of a session."),
        "diff": ("checkpoints", "What differs between two checkpoints."),
        "artifacts": ("artifacts", "The files that steps left, and how they stand."),
    },
    "Act": {
        "answer": ("answer", "Answer a question."),
        "pause": ("pause", "Stop one session, some, or everything, at the next safe point."),
        "cancel": ("pause", "End a session for good."),
        "send": ("pause", "Send a message to a session."),
        "edit": ("edit", "Change the state of a parked session."),
        "rewind": ("edit", "Redo a step and what follows."),
        "fork": ("edit", "Begin a new session from a checkpoint of another."),
    },
    "Keep": {
        "verify": ("verify", "Prove that everything stored is intact."),
        "doctor": ("doctor", "Look at the store, the disk, the holds and the code."),
        "gc": ("verify", "Show what could be cleaned up; --apply does it."),
        "redact": ("redact", "Take content out of a session for good."),
        "export": ("transfer", "Write a session to one file."),
        "import": ("transfer", "Read a session from such a file."),
        "completion": ("setup", "Print the completion script of a shell."),
    },
}
"""Section → command → module of `pausepoint.cli.commands` and what the list of commands says about it."""

COMMANDS = {name: where for section in SECTIONS.values() for name, where in section.items()}


class App(click.Group):
    """A group whose commands are found in the table above."""

    left_out: frozenset[str] = frozenset()
    """Commands of the table that it does not have."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name not in self.left_out] + super().list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS or name in self.left_out:
            return super().get_command(ctx, name)
        module = import_module(f"{__package__}.commands.{COMMANDS[name][0]}")
        found: click.Command = getattr(module, f"{name}_command" if name == "import" else name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise Unknown(f"no command {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            rows = [(name, help) for name, (_, help) in commands.items() if name not in self.left_out]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)


@click.group(cls=App, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--store",
    metavar="PATH",
    expose_value=False,
    callback=lambda ctx, _, path: ctx.meta.update({STORE: path}),
    help="The store, for any command. It may be given after the command, too.",
)
@click.version_option(package_name=NAME, message=f"{NAME} %(version)s")
def app() -> None:
    """The pause button for long-running agent work.

    A session is a durable run of a workflow. It can be paused, killed and resumed at any time, from any process.
    """
