"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pausepoint.cli.context import Cli
from pausepoint.cli.host import STORE
from pausepoint.cli.project import VARIABLE
from pausepoint.errors import did_you_mean, said
from pausepoint.name import DEFAULT_STORE, NAME

F = TypeVar("F", bound=Callable[..., Any])


class OneOf(click.Choice[str]):
    """One of some names; a mistyped one gets the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(f"there is no {value!r}{did_you_mean(str(value), self.choices)}", param, ctx)
        return str(value)


class Usd(click.ParamType[float]):
    """An amount of money."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = float(value)
        except ValueError:
            amount = -1.0
        if not 0 <= amount < float("inf"):
            self.fail(f"{value!r} is no amount of dollars; write 2.50", param, ctx)
        return amount


def completed(kind: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """For an argument or an option: what a shell offers there, by the name of a function in `pausepoint.cli.completion`.

    That is imported when a shell asks.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from pausepoint.cli.completion import complete

        return complete(kind, ctx, incomplete)

    return complete


SESSIONS, WORKFLOWS, TARGETS, STEPS, QUESTIONS = map(
    completed, ("sessions", "workflows", "targets", "steps", "questions")
)


def common(*, lines: bool = False, target: bool = False) -> Callable[[F], F]:
    """``--store`` and ``--json``, if asked also ``--jsonl`` and ``--target``. The command gets a `Cli` first."""

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def call(*args: Any, **given: Any) -> Any:
            store = given.pop("store") or click.get_current_context().meta.get(STORE)
            cli = Cli(store, given.pop("target", ()), given.pop("as_json"), given.pop("as_lines", False))
            return fn(cli, *args, **given)

        wrapped: Any = call
        if target:
            wrapped = click.option(
                "--target",
                multiple=True,
                metavar="TARGET",
                shell_complete=TARGETS,
                help="Where a workflow is: file.py, file.py:name, module:name.",
            )(wrapped)
        if lines:
            wrapped = click.option(
                "--jsonl", "as_lines", is_flag=True, help="Print a line of JSON for each, as it comes."
            )(wrapped)
        wrapped = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(wrapped)
        wrapped = click.option(
            "--store",
            metavar="PATH",
            help=f"The store; else {VARIABLE}, [tool.{NAME}], {DEFAULT_STORE}.",
        )(wrapped)
        result: F = wrapped
        return result

    return decorate


def _told(ctx: click.Context, option: click.Parameter, text: str | None) -> str | None:
    if text is not None and said(ValueError(text)) != text:
        raise click.BadParameter("at most 10,000 characters, in UTF-8", ctx, option)
    return text


by_whom = click.option(
    "--by",
    metavar="NAME",
    callback=lambda ctx, option, name: _told(ctx, option, name) or who(),
    help="Who asks; else you.",
)
"""``--by``: kept in the history; by default the login name."""


def signed(fn: F) -> F:
    """``--reason`` and ``--by``."""
    return click.option("--reason", metavar="TEXT", default="", callback=_told, help="Why; kept in the history.")(
        by_whom(fn)
    )


def who() -> str | None:
    """The login name: who asks, where nobody says otherwise."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        return None
