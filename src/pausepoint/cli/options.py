"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pausepoint.cli.context import Cli
from pausepoint.cli.exits import NOT_FOUND, USAGE, Refused, not_one_of
from pausepoint.cli.host import STORE, VERBOSE, command_with
from pausepoint.cli.project import TARGET_VARIABLE, VARIABLE
from pausepoint.errors import UnknownQuestion, UnknownSession, error_text
from pausepoint.name import DEFAULT_STORE, NAME

if TYPE_CHECKING:
    from pausepoint.model.budgets import Budget

F = TypeVar("F", bound=Callable[..., Any])

NAMING = frozenset({"session", "question", "plan"})
"""The arguments that name one session, also as the question that waits in it, or as the plan of a run."""

PORT = 7333
"""The port of the server."""


class OneOf(click.Choice[str]):
    """A choice that suggests the nearest name for a mistyped one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(not_one_of(value, self.choices), param, ctx)
        return str(value)


class Whole(click.ParamType[int]):
    """A whole number that is not below ``least``."""

    name = "number"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if number < self.least:
            self.fail(f"{value!r} is not accepted. Give a whole number, {self.least} or more.", param, ctx)
        return number


class BudgetOption(click.ParamType["Budget"]):
    """A budget: a number of dollars, or limits such as ``usd=2.50,tokens=20000,operations=100``."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Budget:
        from pausepoint.model.budgets import Budget

        if isinstance(value, Budget):
            return value
        text = str(value)
        try:
            pairs = [part.strip().split("=", 1) for part in (text if "=" in text else f"usd={text}").split(",")]
            given = dict(pairs)
            limits: dict[str, Any] = {"usd": Decimal(given.pop("usd"))} if "usd" in given else {}
            limits |= {name: int(given.pop(name)) for name in ("tokens", "operations") if name in given}
            if given or len(limits) < len(pairs):
                raise ValueError(text)
            return Budget(**limits)
        except (ValueError, ArithmeticError):
            self.fail(
                f"{text!r} is not a budget. Write dollars, such as 2.50, or limits, such as"
                " usd=2.50,tokens=20000,operations=100.",
                param, ctx,
            )  # fmt: skip


class QueueOption(click.ParamType[str]):
    """The name of a queue."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from pausepoint.model.queues import check_queue

        try:
            return check_queue(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PriorityOption(click.ParamType[int]):
    """The priority of a session."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from pausepoint.model.queues import check_priority

        try:
            return check_priority(int(value))
        except ValueError:
            self.fail(f"{value!r} is not accepted. Give a whole number from -1000 (first) to 1000.", param, ctx)


CURSOR = click.option(
    "--after", metavar="CURSOR", help="List what comes after this cursor: `next` of the JSON of the page before."
)
"""``--after``: the next page of a list."""


def verbose() -> click.Option:
    """Return the option that shows the steps, for a program that shows none without it."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.meta[VERBOSE] = value

    return click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=keep, help="Show the steps.")


def not_a_cursor() -> Refused:
    """Return the refusal of a cursor that does not belong to the list."""
    return Refused(
        "--after is not a cursor of this list. Pass `next` of the JSON of the page before, with the same --sort and"
        " --reverse.",
        USAGE,
    )


def completion_of(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return the shell completion of an argument or option. ``kind`` names a function in `pausepoint.cli.completion`.

    That module is imported when a shell asks.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from pausepoint.cli.completion import complete

        return complete(kind, ctx, incomplete)

    return complete


SESSIONS, WORKFLOWS, TARGETS, STEPS, QUESTIONS = map(
    completion_of, ("sessions", "workflows", "targets", "steps", "questions")
)


def common(*, lines: bool = False, target: bool = False) -> Callable[[F], F]:
    """Add ``--store`` and ``--json``, and on request ``--jsonl`` and ``--target``. The command gets a `Cli` first."""

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def call(*args: Any, **given: Any) -> Any:
            store = given.pop("store") or click.get_current_context().meta.get(STORE)
            cli = Cli(store, given.pop("target", ()), given.pop("as_json"), given.pop("as_lines", False))
            cli.may_import |= target  # such a command imports the code in any case
            while True:
                try:
                    return fn(cli, *args, **given)
                except (UnknownSession, UnknownQuestion) as error:
                    if error.near is None:
                        raise
                    typed = error.question_id if isinstance(error, UnknownQuestion) else error.session_id
                    given = _with_whole_id(cli, given, typed, error.near)

        wrapped: Any = call
        if target:
            wrapped = click.option(
                "--target",
                multiple=True,
                metavar="TARGET",
                shell_complete=TARGETS,
                help=f"The code of a workflow: file.py, file.py:name or module:name. Default: {TARGET_VARIABLE}.",
            )(wrapped)
        if lines:
            wrapped = click.option(
                "--jsonl", "as_lines", is_flag=True, help="Print one line of JSON per item, as it comes."
            )(wrapped)
        wrapped = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(wrapped)
        wrapped = click.option(
            "--store",
            metavar="PATH",
            help=f"The store. Default: {VARIABLE}, [tool.{NAME}], or {DEFAULT_STORE}.",
        )(wrapped)
        result: F = wrapped
        return result

    return decorate


def _with_whole_id(cli: Cli, given: dict[str, Any], typed: str, near: str) -> dict[str, Any]:
    """Return the arguments with the whole id instead of its beginning, if the person at the terminal agrees.

    No engine is open here, so Ctrl+C ends the question.
    """
    from pausepoint.cli.prompts import at_terminal, confirmed

    whole: dict[str, Any] = {name: near for name in NAMING & given.keys() if given[name] == typed}
    if typed in given.get("sessions", ()):
        whole["sessions"] = tuple(near if word == typed else word for word in given["sessions"])
    if not whole or not at_terminal(cli.out):  # a program may name the argument otherwise
        command = command_with(typed, near)
        raise Refused(
            f"There is no {typed!r}, and a command that changes something needs the whole id. Nothing was changed. Did"
            f" you mean {near!r}? Then type:  {command}",
            NOT_FOUND,
        )
    if not confirmed(f"There is no {typed!r}. Did you mean {near}?", err=True, default=False):
        raise Refused("Nothing was changed.", NOT_FOUND)
    return given | whole


def _storable(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    if text is not None and error_text(ValueError(text)) != text:
        raise click.BadParameter("The text cannot be stored. Use at most 10,000 characters of UTF-8.", ctx, option)
    return text


TEXT = click.option(
    "--text",
    metavar="TEXT",
    callback=_storable,
    help="Only sessions with this text in their id, owner, a tag, their failure, or the reason of a pause.",
)
"""``--text``: a search."""

by_option = click.option(
    "--by",
    metavar="NAME",
    callback=lambda ctx, option, name: _storable(ctx, option, name) or login_name(),
    help="Your name for the history. Default: the login name.",
)
"""``--by``: recorded in the history."""


def reason_and_by(fn: F) -> F:
    """Add ``--reason`` and ``--by``."""
    reason = click.option(
        "--reason", metavar="TEXT", default="", callback=_storable, help="The reason, for the history."
    )
    return reason(by_option(fn))


def turn_options(what: str) -> Callable[[F], F]:
    """Add ``--queue``, ``--priority`` and ``--lane``. ``what`` begins their help: ``The session's``."""
    options = (
        click.option("--queue", type=QueueOption(), metavar="NAME",
                     help=f"{what} queue, which some workers drive. Default: that of the workflow."),
        click.option("--priority", type=PriorityOption(), metavar="N",
                     help=f"{what} priority: -1000 goes first, 1000 last. Default: that of the workflow."),
        click.option("--lane", metavar="NAME", callback=_storable,
                     help=f"{what} lane. Lanes of the same priority take turns. Default: the owner."),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def was_given(name: str) -> bool:
    """Return whether a parameter was typed, also if its value is 0 or the default."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def login_name() -> str | None:
    """Return the login name, or None if the account has none."""
    import getpass  # most commands do not ask for it

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # accounts without a name exist in some containers
        return None
