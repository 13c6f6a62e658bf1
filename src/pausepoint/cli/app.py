"""The group of all commands. Each is imported when it is called, or asked for its help."""

from __future__ import annotations

from importlib import import_module

import click

from pausepoint.cli.failing import Unknown
from pausepoint.errors import did_you_mean

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "init": ("setup", "Make this folder a Pausepoint project."),
        "demo": ("setup", "Watch a session being killed, resumed and paused."),
        "run": ("running", "Start a session and show it until it ends or needs somebody."),
        "resume": ("running", "Go on with an interrupted, paused or failed session."),
        "worker": ("working", "Drive whatever is ready or due in this store."),
    },
    "Look": {
        "ls": ("listing", "List sessions."),
        "inbox": ("inbox", "List the questions that wait for somebody."),
        "show": ("showing", "Show a session and its state, now or at a checkpoint."),
        "status": ("listing", "Who is running, and who is still finishing which step."),
        "watch": ("watching", "Follow a session live until it ends or needs somebody."),
        "events": ("watching", "Show the history of a session."),
        "plan": ("showing", "What a resume would do with every step, and why."),
        "why": ("showing", "Why a step would run, or would not."),
        "checkpoints": ("showing", "List the checkpoints of a session."),
        "diff": ("showing", "What differs between two checkpoints."),
        "artifacts": ("artifacts", "The files that steps left, and how they stand."),
    },
    "Act": {
        "answer": ("answering", "Answer a question."),
        "pause": ("acting", "Stop one session, some, or everything, at the next safe point."),
        "cancel": ("acting", "End a session for good."),
        "send": ("acting", "Send a message to a session."),
        "edit": ("changing", "Change the state of a parked session."),
        "rewind": ("changing", "Redo a step and what follows."),
        "fork": ("changing", "Begin a new session from a checkpoint of another."),
    },
    "Keep": {
        "verify": ("keeping", "Prove that everything stored is intact."),
        "doctor": ("keeping", "Look at the store, the disk, the holds and the code."),
        "gc": ("keeping", "Show what could be cleaned up; --apply does it."),
        "redact": ("redacting", "Take content out of a session for good."),
        "export": ("moving", "Write a session to one file."),
        "import": ("moving", "Read a session from such a file."),
        "completion": ("setup", "Print the completion script of a shell."),
    },
}
"""Section → command → module of `pausepoint.cli` and what the list of commands says about it."""

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
        module = import_module(f"pausepoint.cli.{COMMANDS[name][0]}")
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
@click.version_option(package_name="pausepoint", message="pausepoint %(version)s")
def app() -> None:
    """The pause button for long-running agent work.

    A session is a durable run of a workflow. It can be paused, killed and resumed at any time, from any process.
    """
