"""The group of all commands. A command's module is imported when the command is called or its help is shown."""

from __future__ import annotations

from importlib import import_module

import click

from pausepoint.cli.exits import Unknown
from pausepoint.cli.host import STORE, WORDS
from pausepoint.errors import did_you_mean
from pausepoint.name import NAME

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "init": ("setup", "Set up a Pausepoint project in this folder."),
        "skill": ("skill", "Teach a coding agent how to put a script under Pausepoint."),
        "demo": ("setup", "Watch a session being killed, resumed and paused."),
        "run": ("run", "Start a session and show it until it ends or needs a person."),
        "resume": ("run", "Resume an interrupted, paused or failed session."),
        "worker": ("worker", "Drive all sessions of this store that are ready or due."),
        "dev": ("dev", "Start Postgres, a worker and the server, for development."),
        "schedule": ("schedule", "Start sessions at the times of a cron expression."),
        "serve": ("pausepoint.server.command", "Serve the store over HTTP: an API and a web page."),
        "notify": ("pausepoint.server.notify", "Send each question once by mail, chat or webhook."),
        "mcp": ("mcp", "Let a language model look at sessions and pause them (MCP)."),
        "mirror": ("mirror", "Let documents of Firestore follow the sessions."),
    },
    "Inspect": {
        "ls": ("ls", "List sessions."),
        "inbox": ("inbox", "List the questions that wait for an answer."),
        "show": ("show", "Show a session and its state, now or at a checkpoint."),
        "status": ("ls", "Show what is running, and which steps are still finishing."),
        "watch": ("watch", "Follow a session live until it ends or needs a person."),
        "events": ("watch", "Show the history of a session."),
        "plan": ("show", "Show what a resume would do with every step, and why."),
        "why": ("show", "Explain why a resume would run a step, or would not."),
        "checkpoints": ("checkpoints", "List the checkpoints of a session."),
        "diff": ("checkpoints", "Show the differences between two checkpoints."),
        "workflows": ("workflows", "List workflows, or show the steps of one."),
        "artifacts": ("artifacts", "Check, adopt or restore the files that steps published."),
    },
    "Control": {
        "answer": ("answer", "Answer a question."),
        "pause": ("pause", "Pause one session, several, or everything."),
        "cancel": ("pause", "End a session permanently."),
        "send": ("pause", "Send a message to a session."),
        "limit": ("limit", "Limit the sessions that may be at work."),
        "gate": ("gate", "Put agents that you start by hand under the pause button."),
        "edit": ("edit", "Change the state of a session that is not running."),
        "ask-again": ("edit", "Ask a question again that was declined; finished operations are kept."),
        "rewind": ("edit", "Redo a step and the steps after it."),
        "forget": ("edit", "Forget the result of an operation, and what came after it."),
        "fork": ("fork", "Start a new session from a checkpoint of another one."),
    },
    "Maintain": {
        "verify": ("verify", "Check that everything stored is intact."),
        "doctor": ("doctor", "Check the store, the disk, the processes and the code."),
        "gc": ("verify", "Show what can be cleaned up; --apply cleans it up."),
        "redact": ("redact", "Remove content from a session permanently."),
        "export": ("transfer", "Write a session to a file."),
        "import": ("transfer", "Read a session from an exported file."),
        "move": ("move", "Move all sessions to another store."),
        "completion": ("setup", "Print the completion script for a shell."),
    },
}
"""Section → command → module of `pausepoint.cli.commands` and the line in the list of commands.

The module of a command that is above this room is named in full.
"""

COMMANDS = {name: where for section in SECTIONS.values() for name, where in section.items()}


class App(click.Group):
    """A group of the commands in the table above."""

    left_out: frozenset[str] = frozenset()
    """Commands of the table that this group does not have."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name not in self.left_out] + super().list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS or name in self.left_out:
            return super().get_command(ctx, name)
        where = COMMANDS[name][0]
        module = import_module(where if "." in where else f"{__package__}.commands.{where}")
        found: click.Command = getattr(module, "import_command" if name == "import" else name.replace("-", "_"))
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise Unknown(f"There is no command {args[0]!r}{did_you_mean(args[0], known)}")
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
    help="The store to use. Works before and after the command.",
)
@click.version_option(package_name=NAME, message=f"{NAME} %(version)s")
def app() -> None:
    """The pause button for long-running agent work.

    A session is a durable run of a workflow. You can pause, kill and resume it at any time, from any process.
    """
