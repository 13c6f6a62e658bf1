"""The options that select sessions. ``ls`` and the bulk verbs have the same ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from pausepoint.cli.exits import NOT_FOUND, Refused
from pausepoint.cli.options import WORKFLOWS, OneOf
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pausepoint.cli.context import Cli
    from pausepoint.engine.engine import Engine

F = TypeVar("F", bound=Callable[..., Any])

STATUSES = (
    "running", "pausing", "waiting", "sleeping", "ready", "paused", "failed", "created", "completed", "cancelled",
)  # fmt: skip
"""The values of `Status`, the most urgent first. `Status` is not imported so that ``--help`` is fast."""

NAMES = "--status, --failed, --workflow, --owner, --tag, --queue, --since, --until"
"""The options, for messages."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[datetime]):
    """A time: how long ago it was (``30m``, ``12h``, ``7d``, ``2w``), a date, or a date with a time of day.

    >>> Moment().convert("2026-03-01T22:00+00:00", None, None).isoformat()
    '2026-03-01T22:00:00+00:00'
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            if found := re.fullmatch(r"(\d{1,6})([mhdw])", str(value)):
                return datetime.now().astimezone() - timedelta(**{_UNITS[found[2]]: int(found[1])})
            given = datetime.fromisoformat(str(value))
            return given if given.tzinfo else given.astimezone()  # without a time zone, it is local time
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time. Write how long ago it was, such as 30m, 12h or 7d, or a date, such as"
                " 2026-03-01 or 2026-03-01T22:00.",
                param, ctx,
            )  # fmt: skip


class Filters(NamedTuple):
    """Filters for sessions. A session must match all that are given."""

    statuses: tuple[str, ...] = ()
    failed: bool = False
    workflow: str | None = None
    owner: str | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    queue: str | None = None

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Filters:
        """Remove the filters from the options of a command, and return them."""
        return cls(**{name: given.pop(name) for name in cls._fields})

    @property
    def options(self) -> dict[str, Any]:
        """The filters as the engine's verbs take them."""
        found = self._asdict()
        return found | {"status": found.pop("statuses") or None, "failed": self.failed or None}

    @property
    def words(self) -> list[str]:
        """The filters as a person types them."""
        found = [word for status in self.statuses for word in ("--status", status)] + ["--failed"] * self.failed
        for name in ("workflow", "owner", "tag", "queue"):
            if (value := getattr(self, name)) is not None:
                found += [f"--{name}", value]
        for name, when in (("since", self.since), ("until", self.until)):
            if when is not None:
                found += [f"--{name}", when.isoformat(timespec="seconds")]
        return found

    async def check_names(self, cli: Cli, engine: Engine) -> None:
        """Refuse a name that no session has: nothing matches it, and that must not look like success."""
        every = await engine.sessions()
        known: dict[str, set[str]] = {
            "workflow": {info.workflow for info in every} | cli.project.targets.keys(),
            "tag": {tag for info in every for tag in info.tags},
            "queue": {info.queue for info in every},
            "owner": {info.owner for info in every if info.owner is not None},
        }
        for name in known:
            if (value := getattr(self, name)) is not None and value not in known[name]:
                raise Refused(f"No session has the {name} {value!r}{did_you_mean(value, known[name])}", NOT_FOUND)


def filter_options(what: str, without: Collection[str] = ()) -> Callable[[F], F]:
    """Add the options of `Filters`. ``what`` begins their help: ``Only sessions``. ``without``: not these options."""
    options = {
        "statuses": click.option(
            "--status", "statuses", multiple=True, type=OneOf(STATUSES), metavar="STATUS",
            help=f"{what} with this status; repeatable: {', '.join(STATUSES)}.",
        ),
        "failed": click.option("--failed", is_flag=True, help=f"{what} that have failed, also those paused since."),
        "workflow": click.option(
            "--workflow", metavar="NAME", shell_complete=WORKFLOWS, help=f"{what} of this workflow."
        ),
        "owner": click.option("--owner", metavar="NAME", help=f"{what} of this owner."),
        "tag": click.option("--tag", metavar="TAG", help=f"{what} with this tag."),
        "queue": click.option("--queue", metavar="NAME", help=f"{what} in this queue."),
        "since": click.option(
            "--since", type=Moment(), metavar="TIME",
            help=f"{what} updated since this time: 30m, 12h or 7d ago, 2026-03-01 or 2026-03-01T22:00.",
        ),
        "until": click.option("--until", type=Moment(), metavar="TIME", help=f"{what} last updated until this time."),
    }  # fmt: skip

    def decorate(command: F) -> F:
        for name, option in reversed(options.items()):
            if name not in without:
                command = option(command)
        return command

    return decorate
