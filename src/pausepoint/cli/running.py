"""`run` and `resume`: drive a session here, show it, and say how it stands and how to go on.

The exit code is the session's: 0 completed, 1 failed or cancelled, 3 if it needs somebody, 130 and 143 if this program
was interrupted or terminated.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pausepoint.cli.common import SESSIONS, STEPS, TARGETS, Cli, Usd, by_whom, common, needs_somebody, run_async
from pausepoint.cli.failing import CONFLICT, DONE, FAILED, INTERRUPTED, NOT_FOUND, PERSON, TERMINATED, USAGE, Refused
from pausepoint.cli.host import Start, spoken
from pausepoint.cli.inputs import Field, described, fields_of, gathered, given_as, options_for
from pausepoint.cli.output import ago, facts, money, span
from pausepoint.cli.project import find_project
from pausepoint.cli.prompting import Later, at_terminal, prompted
from pausepoint.cli.values import typed
from pausepoint.cli.words import RUN, counted
from pausepoint.errors import QuestionError, did_you_mean

if TYPE_CHECKING:
    from pausepoint.api import Engine
    from pausepoint.outcome import Outcome, SessionInfo
    from pausepoint.plan import Plan
    from pausepoint.session import Session
    from pausepoint.workflow import Workflow

CANDIDATES = ("ready", "created"), ("failed",), ("paused",)
"""What `resume` goes on with if nobody says which: what was interrupted before what failed before what was paused."""

LISTED = 20
"""How many candidates are listed."""

INTERRUPTED_ONES = [status for group in CANDIDATES for status in group]


class Loaded(NamedTuple):
    """What TARGET led to. ``begin``: makes the start of a state from fields that are not the state's own."""

    target: str
    workflow: Workflow[Any]
    fields: dict[str, Field]
    begin: Callable[[dict[str, Any], Start], dict[str, Any]] | None = None
    arguments: Sequence[str] = ()

    def start(self, cli: Cli, given: dict[str, Any]) -> dict[str, Any]:
        """The values to start with, from all that was given."""
        values = gathered(given, given["pairs"], self.fields)
        if self.begin is None:
            return typed(self.workflow, values)
        return self.begin(values, cli.start(given["owner"], given["session_id"]))


class RunCommand(click.Command):
    """A command whose options also are the fields of the workflow that its argument names."""

    META = "pausepoint.cli.running"

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *ctx.meta.get(f"{self.META}.options", ())]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            target = self._target(ctx, args)
            if target is not None:
                self._take_in(ctx, _loaded(target), args)
        except click.ClickException:
            if not ctx.resilient_parsing:  # a shell that completes a line gets what there is
                raise
        return super().parse_args(ctx, args)

    def _take_in(self, ctx: click.Context, loaded: Loaded, args: list[str]) -> None:
        taken = [name for param in super().get_params(ctx) for name in (*param.opts, *param.secondary_opts)]
        ctx.meta[f"{self.META}.options"] = options_for(loaded.fields.values(), taken, loaded.arguments)
        ctx.meta[self.META] = loaded, list(args)

    def _target(self, ctx: click.Context, args: list[str]) -> str | None:
        """The first word that neither is an option nor the value of one."""
        known = {name: param for param in super().get_params(ctx) for name in param.opts}
        words = iter(args)
        for word in words:
            if word == "--":
                return next(words, None)
            if not word.startswith("-"):
                return word
            name, mark, _ = word.partition("=")
            option = known.get(name)
            if option is None:
                raise click.UsageError(f"{name} comes before TARGET: fields are given behind it", ctx)
            if not mark and isinstance(option, click.Option) and not option.is_flag:
                next(words, None)
        return None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[--FIELD VALUE]..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        own = [record for option in options if (record := option.get_help_record(ctx))]
        if self.META in ctx.meta:
            loaded: Loaded = ctx.meta[self.META][0]
            written = {path.partition(".")[0] for step in loaded.workflow.steps for path in step.places}
            groups: dict[str, list[tuple[str, str]]] = {}
            for field in loaded.fields.values():
                title = "steps write" if field.name in written and not field.required else "input"
                groups.setdefault(title, []).append((field.usage, described(field)))
            for title, what in (("input", "Fields"), ("steps write", "Fields that steps write, and that may be given")):
                if title in groups:
                    with formatter.section(f"{what} ({loaded.workflow.name})"):
                        formatter.write_dl(groups[title])
        with formatter.section("Options"):
            formatter.write_dl(own)


def _loaded(target: str) -> Loaded:
    from pausepoint.cli.targets import load_named

    place, workflow = load_named(target, find_project())
    return Loaded(place, workflow, fields_of(workflow.model))


@click.command(cls=RunCommand, options_metavar="[OPTIONS]", short_help="Start a session.")
@click.argument("where", metavar="TARGET", shell_complete=TARGETS)
@click.option("--field", "pairs", multiple=True, metavar="NAME=VALUE", help="A field, whatever its name is.")
@click.option("--paused", is_flag=True, help="Store it, and let it stand still.")
@click.option("--session-id", metavar="ID", help="Its id. One that exists goes on, if the input is the same.")
@click.option("--owner", metavar="NAME", help="Whom it belongs to.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="To find it by; repeatable.")
@click.option("--budget", type=Usd(), metavar="USD", help="Pause before it spends more.")
@click.option("--at", metavar="STEP", shell_complete=STEPS, help="Begin at a later step.")
@click.option("--folder", metavar="PATH", help="Where its artifacts go, if its steps leave any.")
@click.option("--resume", "again", is_flag=True, help="Go on with an interrupted one of the same input.")
@click.option("--force-restart", is_flag=True, help="Begin anew; do not ask about an interrupted one.")
@click.option("--detach", is_flag=True, help="Return once it is stored; it runs in the background.")
@click.option("--detached-as", metavar="ID", hidden=True)
@by_whom
@common(lines=True)
def run(cli: Cli, **given: Any) -> int:
    """Start a session and show it until it ends or needs somebody.

    TARGET is file.py, file.py:name, package.module:name, or the name of a workflow in [tool.pausepoint.workflows]. The
    fields of its state are options behind it: pausepoint run TARGET --help lists them.

    At a terminal, what it asks is asked in place. Ctrl+C finishes the operation that runs and prints the command that
    goes on; twice aborts it.
    """
    loaded, args = click.get_current_context().meta[RunCommand.META]
    cli.targets = (loaded.target,)
    values = loaded.start(cli, given)
    if given["again"] and given["force_restart"]:
        raise click.UsageError("--resume goes on, --force-restart begins anew: give one of them")
    options = {name: given[name] for name in ("session_id", "owner", "tags", "budget", "at", "paused", "by", "folder")}
    if given["detached_as"]:
        options["session_id"] = given["detached_as"]
    elif options["session_id"] is None and not given["force_restart"]:
        former = _former(cli, loaded.workflow, values, options["at"], given["again"], asks=not given["detach"])
        if former is not None:
            return _resumed(cli, loaded.workflow, former, by=options["by"], owner=options["owner"])
    if given["detach"] and not given["detached_as"]:
        from pausepoint.cli.detaching import detach

        return detach(cli, loaded.workflow.name, args, options["session_id"])
    ride = Ride(cli, loaded.workflow, options["by"])
    return ride.driven(lambda engine: ride.start(engine, values, options))


# an interrupted session with the same input


def _former(
    cli: Cli, workflow: Workflow[Any], values: dict[str, Any], at: str | None, again: bool, asks: bool
) -> SessionInfo | None:
    """The session to go on with instead of a fresh one, if there is one and somebody wants that."""
    alike = run_async(_alike(cli, workflow, values, at)) if cli.place.exists else []
    interrupted = [info for info in alike if info.status.value in INTERRUPTED_ONES]
    if again:
        complete = [info for info in alike if info.status.value == "completed"]
        if not interrupted and not complete:
            cli.out.note("No checkpoints found, starting from scratch")
        return next(iter(interrupted or complete), None)
    if not interrupted:
        return None
    last = interrupted[0]
    more = f"; {len(interrupted) - 1} more like it: {spoken('ls')}" if len(interrupted) > 1 else ""
    what = f"session {last.session_id} of {workflow.name} has the same input: {_where(last)}{more}"
    if asks and cli.out.for_people and cli.out.terminal and sys.stdin.isatty():
        cli.out.line(f"{what[0].upper()}{what[1:]}.")
        return last if click.confirm("Go on with it?", default=True) else None
    cli.out.note(f"hint: {what}; to go on with it: {cli.command('resume', last.session_id, workflow.name)}")
    return None


async def _alike(cli: Cli, workflow: Workflow[Any], values: dict[str, Any], at: str | None) -> list[SessionInfo]:
    async with cli.engine() as engine:
        state, fields = given_as(workflow, values)
        return await engine.same_input(workflow, state, at=at, **fields)


def _where(info: SessionInfo) -> str:
    """``failed at write, 5 min ago``."""
    from pausepoint.cli.words import at

    return f"{info.status.value}{at(info)}, {ago(info.updated_at)}"


# resume


@click.command()
@click.argument("session", required=False, shell_complete=SESSIONS)
@click.option("--dry-run", is_flag=True, help="Show the plan and run nothing.")
@click.option("--from", "start", metavar="STEP", shell_complete=STEPS, help="Rewind first: redo it and what follows.")
@click.option("--until", metavar="STEP", shell_complete=STEPS, help="Pause once this step has ended.")
@click.option("--force", is_flag=True, help="Take it over from a process that holds it and does not move.")
@click.option("--accept", is_flag=True, help="Take what the code has changed behind the session as it is.")
@click.option("--accept-edits", "edits", flag_value="accept", help="Take in artifacts that somebody has edited.")
@click.option("--discard-edits", "edits", flag_value="discard", help="Put edited or damaged artifacts back.")
@click.option("--rerun", multiple=True, metavar="STEP", shell_complete=STEPS,
              help="Run a finished step again, with all that reads what it wrote; repeatable.")  # fmt: skip
@click.option("--wake", is_flag=True, help="End what it sleeps for now.")
@click.option("--budget", type=Usd(), metavar="USD", help="A new budget.")
@click.option("--owner", metavar="NAME", help="Refuse if it belongs to somebody else.")
@click.option("--all", "everything", is_flag=True, help="Lift a `pause --all`: what it stopped goes on.")
@by_whom
@common(lines=True, target=True)
def resume(
    cli: Cli, session: str | None, dry_run: bool, start: str | None, everything: bool, **how: Any
) -> int:  # fmt: skip
    """Go on with an interrupted, paused or failed session, and show it until it ends or needs somebody.

    SESSION is its id or the beginning of it. Without one it is the last interrupted session of this project; if there
    are several, they are listed. At a terminal, what it asks is asked in place.

    With --all everything that a `pause --all` stopped goes on, and new sessions run again; what was paused by itself
    stays paused. What this project has the code of is driven here, the rest by whoever has it open, or a worker.
    """
    if everything:
        from pausepoint.cli.lifting import lift

        if session or dry_run or start or any(value for name, value in how.items() if name != "by"):
            raise click.UsageError("--all is for everything at once: name no session, and give no option but --by")
        return lift(cli, how["by"])
    chosen = run_async(_chosen(cli, session, start, dry_run, how))
    if isinstance(chosen, int):
        return chosen
    info, workflow = chosen
    return _resumed(cli, workflow, info, start, steal=how.pop("force"), **how)


async def _chosen(
    cli: Cli, session: str | None, start: str | None, dry_run: bool, how: dict[str, Any]
) -> tuple[SessionInfo, Workflow[Any]] | int:
    """The session that is meant, with its code; or an exit code, if that was all."""
    until = how["until"]
    what = "nothing to resume" if session is None else f"session {session!r}"
    async with cli.engine(what=what, code=True, quiet=True) as engine:
        found = await candidates(cli, engine) if session is None else [await cli.session(engine, session)]
        if len(found) > 1:
            return await listed(cli, engine, found)
        info = found[0]
        cli.check_code(engine, info)
        leaves = bool(engine.workflows[info.workflow].leaves) and info.holder is None
        if dry_run or until is not None or leaves:
            id, again = info.session_id, how["rerun"]
            plan = await (engine.plan(id, rerun=again) if start is None else engine.plan_rewind(id, start, rerun=again))
            if until is not None:
                _check_until(plan, until)
            if dry_run:
                return _planned(cli, plan, start, until)
            if leaves:
                from pausepoint.cli.artifacts import decided

                how["edits"] = decided(cli, plan, how["edits"])
        return info, engine.workflows[info.workflow]


async def candidates(cli: Cli, engine: Engine) -> list[SessionInfo]:
    """What was interrupted; without such what failed, or was paused. Those that nobody drives any more."""
    counts: Counter[str] = Counter()
    for (workflow, status), count in (await engine.tally(level="root")).items():
        if workflow in engine.workflows or not (cli.targets or cli.host.workflows):
            counts[status.value] += count
    for group in CANDIDATES:
        if not any(counts[status] for status in group):
            continue
        found = await _newest(cli, engine, group)
        if len(found) == 1:
            others = sum(counts[status] for status in INTERRUPTED_ONES) - 1
            more = f"; {others:,} more stand still: {spoken('ls')}" if others else ""
            cli.out.note(f"The last one: {found[0].session_id} of {found[0].workflow}, {_where(found[0])}{more}")
        return found
    running = sum(counts[status] for status in ("running", "pausing", "sleeping", "waiting"))
    more = f"; {running} run or wait: {spoken('ls')}" if running else ""
    if await engine.questions(limit=1):
        more += f"; somebody is asked something: {spoken('inbox')}"
    raise Refused(f"nothing to resume: no session of this store was interrupted{more}", NOT_FOUND)


async def _newest(cli: Cli, engine: Engine, statuses: Sequence[str]) -> list[SessionInfo]:
    """The newest of them, as many as a person looks at."""
    names = list(engine.workflows) if cli.targets or cli.host.workflows else [None]
    found: list[SessionInfo] = []
    for name in names:
        found += await engine.sessions(workflow=name, status=statuses, level="root", limit=LISTED + 1)
    return sorted(found, key=lambda info: info.created_at, reverse=True)


async def listed(cli: Cli, engine: Engine, found: list[SessionInfo]) -> int:
    """Several could be meant: the newest of them, for somebody to name one."""
    from pausepoint.cli import shapes
    from pausepoint.cli.words import place, shortened

    some = found[:LISTED]
    if not cli.out.for_people:
        cli.out.document(shapes.candidates(some))
        return USAGE
    short = await shortened(cli, engine, [info.session_id for info in some])
    ids = [short.get(info.session_id, info.session_id) for info in some]
    stand = [[cli.out.status(info.status.value), place(info), ago(info.updated_at)] for info in some]
    rows = [[id, info.workflow, *how] for id, info, how in zip(ids, some, stand, strict=True)]
    cli.out.table(["SESSION", "WORKFLOW", "STATUS", "STEP", "MOVED"], rows)
    many = f"More than {LISTED}" if len(found) > LISTED else len(found)
    cli.out.note(f"{many} sessions could go on; name one: {spoken('resume', ids[0])}")
    return USAGE


def _check_until(plan: Plan, until: str) -> None:
    steps = {each.step: each for each in plan}
    if until not in steps:
        raise Refused(f"there is no step {until!r}{did_you_mean(until, steps)}", USAGE)
    if steps[until].verdict in ("done", "left out"):
        raise Refused(
            f"{until} would not run any more ({steps[until].why}), so the session would not stop behind it;"
            f" --from {until} redoes it",
            USAGE,
        )


def _planned(cli: Cli, plan: Plan, start: str | None, until: str | None) -> int:
    from pausepoint.cli.showing import print_steps

    if not cli.out.for_people:
        cli.out.document(plan.to_json())
        return DONE
    rewound = f", rewound to before {start}" if start else ""
    cli.out.line(f"Session {plan.session_id} {cli.out.stands(plan.status.value)}{rewound}. A resume would do this:")
    print_steps(cli, plan)
    if until is not None:
        cli.out.line(f"It would pause behind {until}.")
    cli.out.note("Nothing was run.")
    return DONE


def _resumed(
    cli: Cli, workflow: Workflow[Any], info: SessionInfo, start: str | None = None, **how: Any
) -> int:  # fmt: skip
    ride = Ride(cli, workflow, how["by"])
    return ride.driven(lambda engine: ride.resume(engine, info.session_id, start, how))


# driving


class Ride:
    """One session that is driven from here until it ends, needs somebody, or this program has to end.

    At a terminal somebody is there: what it asks is asked in place, by ``by``.
    """

    def __init__(self, cli: Cli, workflow: Workflow[Any], by: str | None) -> None:
        from pausepoint.cli.live import View

        self.cli = cli
        self.out = cli.out
        self.workflow = workflow
        self.view = View(workflow.name, list(workflow.outline))
        self.by = by
        self.session_id: str | None = None
        self.complete = False
        self.asked: Outcome[Any] | None = None

    def driven(self, begin: Callable[[Engine], Awaitable[Session[Any]]]) -> int:
        """To the end, whichever it is; returns its exit code."""
        try:
            code: int = run_async(self._drive(begin))
            while self.asked is not None:
                code = self._ask(self.asked)
        except KeyboardInterrupt:
            return self._left("Interrupted", INTERRUPTED)
        except SystemExit as end:  # SIGTERM; or a step that ended the program
            if end.code == TERMINATED:
                return self._left("Terminated", TERMINATED)
            return self._left(f"A step ended the program ({end.code})", FAILED)
        return code

    async def _drive(self, begin: Callable[[Engine], Awaitable[Session[Any]]]) -> int:
        from pausepoint.api import Engine
        from pausepoint.cli.live import follow, show_for

        engine = Engine(self.cli.place.url, workflows=self.cli.host.workflows or [self.workflow])
        engine.waker.only = ""  # this session alone, as soon as it is known: a worker is for the others
        async with engine:
            if self.session_id is None:
                self.view.began = time.monotonic()
            session = await begin(engine)
            self.session_id = engine.waker.only = session.id
            engine.waker.poke()
            until = asyncio.ensure_future(session.outcome())
            try:
                outcome = await follow(engine, session.id, self.view, show_for(self.out), until)
            finally:
                until.cancel()
            if engine.driver.ending:
                return INTERRUPTED  # leaving the engine's block says how this program ends
            self.asked = outcome if outcome.questions and at_terminal(self.out) else None
            return PERSON if self.asked else await self._told(engine, outcome)

    def _ask(self, outcome: Outcome[Any]) -> int:
        """Put the first question, and go on with its answer. No engine is open meanwhile: waiting holds nothing."""
        question = outcome.questions[0]
        try:
            value = prompted(self.out, question)
        except Later:
            self.asked = None
            return int(run_async(self._told_later(outcome)))

        async def begin(engine: Engine) -> Session[Any]:
            try:
                await engine.answer(question.id, value, by=self.by, channel="cli", seen=question.digest)
            except QuestionError as error:  # answered elsewhere, or over: how the session stands now is shown
                self.out.note(str(error))
            assert self.session_id is not None
            return await engine.session(self.session_id)

        code: int = run_async(self._drive(begin))
        return code

    async def _told_later(self, outcome: Outcome[Any]) -> int:
        async with self.cli.engine() as engine:
            return await self._told(engine, outcome)

    async def start(self, engine: Engine, values: dict[str, Any], options: dict[str, Any]) -> Session[Any]:
        """A new session, or the one that has the id."""
        from pausepoint.cli.live import catch_up
        from pausepoint.errors import AlreadyRunning, UnknownSession

        try:
            if options["session_id"] is not None:
                self.complete = (await engine.info(options["session_id"])).status.value == "completed"
                await catch_up(engine, options["session_id"], self.view)
        except UnknownSession:
            pass
        try:
            state, fields = given_as(self.workflow, values)
            session = await engine.start(self.workflow, state, **options, **fields)
        except AlreadyRunning as error:
            raise self._elsewhere(options["session_id"], error) from error
        if not self.out.terminal:
            self.out.line(f"Session {session.id} of {self.workflow.name}")
        return session

    async def resume(self, engine: Engine, session_id: str, start: str | None, how: dict[str, Any]) -> Session[Any]:
        """A stored session; from an earlier step on, if asked."""
        from pausepoint.cli.live import catch_up
        from pausepoint.errors import AlreadyRunning

        if start is not None:
            await engine.rewind(session_id, start, by=how["by"], reason="resume --from")
        before = await engine.info(session_id)
        await catch_up(engine, session_id, self.view)
        try:
            session = await engine.resume(session_id, **how)
            self.complete = before.status.value == "completed" and (await session.info()).seq == before.seq
            self.view.resuming = (await session.status()).value == "running"
            return session
        except AlreadyRunning as error:
            raise self._elsewhere(session_id, error) from error

    def _elsewhere(self, session_id: str, error: Any) -> Refused:
        watch, pause = (self.cli.command(verb, session_id) for verb in ("watch", "pause"))
        return Refused(
            f"session {session_id} is driven by {error.holder}; follow it: {watch}; stop it: {pause};"
            " or take it over with --force",
            CONFLICT,
        )

    # how it stands

    async def _told(self, engine: Engine, outcome: Outcome[Any]) -> int:
        from pausepoint.cli import shapes

        info = self.view.info
        assert info is not None
        code = needs_somebody(info.status.value)
        if not self.out.for_people:
            asked = [
                shapes.question(each, self.cli.command("answer", each.id, self.workflow.name) + RUN)
                for each in outcome.questions
            ]
            document = shapes.outcome(outcome, info, self._command() if code != DONE else None, asked)
            (self.out.record if self.out.as_lines else self.out.document)(document)
            return code
        self._summary(outcome, info)
        if info.status.value == "completed":
            self._results(outcome)
        elif info.status.value == "failed":
            self._failure(info)
        else:
            await self._ways(engine, info)
        return code

    def _command(self) -> str:
        assert self.session_id is not None
        return self.cli.command("resume", self.session_id, self.workflow.name)

    def _summary(self, outcome: Outcome[Any], info: SessionInfo) -> None:
        from pausepoint.cli.live import chart

        if self.out.terminal:
            for line in chart(self.out, self.view):
                self.out.line(line)
        name = f"Session {info.session_id} of {info.workflow}"
        if self.complete:
            self.out.line(f"{name} is already complete")
            return
        spent = f", {money(info.spent_usd)}" if info.spent_usd else ""
        is_over = info.status.value in ("completed", "failed", "cancelled")
        self.out.line(
            f"{name} {'' if is_over else 'is '}{self.out.status(info.status.value)}"
            f" after {span(self.view.elapsed)}{spent}"
        )
        if outcome.skipped_visits or outcome.saved_time or outcome.saved_usd:
            cost = f" and {money(outcome.saved_usd)}" if outcome.saved_usd else ""
            visits = counted(outcome.skipped_visits, "visit") if outcome.skipped_visits else "operations"
            self.out.line(f"Saved by resuming: {span(outcome.saved_time)}{cost} ({visits} done before)")

    def _results(self, outcome: Outcome[Any]) -> None:
        from pausepoint.cli import shapes
        from pausepoint.cli.words import value

        host = self.cli.host
        if host.result is not None and self.workflow is host.workflows[0]:
            self.out.line(host.result(outcome))
            return
        written = {path.partition(".")[0]: None for step in self.workflow.steps for path in step.places}
        room = self.out.width - max(map(len, written), default=0) - 2 if self.out.terminal else None
        state = shapes.state(outcome.state)
        facts(self.out, {name: value(state[name], room) for name in written if name in state})

    def _failure(self, info: SessionInfo) -> None:
        from pausepoint.cli.showing import traceback
        from pausepoint.cli.words import one_line

        failure = info.failure
        if failure is not None:
            for line in traceback(self.cli, info):
                self.out.note(line, as_it_is=True)
            tries = f" after {failure.attempts} attempts" if failure.attempts > 1 else ""
            self.out.note(one_line(f"{failure.step} failed{tries}: {failure.type}: {failure.message}"))
        self.out.note(f"Resume: {self._command()}")

    async def _ways(self, engine: Engine, info: SessionInfo) -> None:
        from pausepoint.cli.words import standing

        for line in await standing(self.cli, engine, info, then=self._command()):
            self.out.note(line)

    def _left(self, why: str, code: int) -> int:
        """This program has to end. What is done is kept; the last line is the command that goes on."""
        from pausepoint.cli import shapes

        info = self.view.info
        if self.session_id is None:
            self.out.note(f"{why} before anything was stored")
        elif self.out.for_people:
            ended = info is not None and info.status.value == "completed"
            at = f" at {info.step}#{info.visit}" if info is not None and info.step else ""
            self.out.note(f"{why}{' when it had completed' if ended else at}; what is done is kept.")
            self.out.note(f"Resume: {self._command()}")
        elif info is not None:
            document = shapes.stopped(info, self._command())
            (self.out.record if self.out.as_lines else self.out.document)(document)
        return code
