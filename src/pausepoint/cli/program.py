"""`program`: workflows as a program of their own, with the commands of ``pausepoint``.

The commands are the same ones. What differs is in the `Host` that they find: which workflows there are, where the
store is, what the program is called.
"""

from __future__ import annotations

import copy
import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, iscoroutinefunction, signature
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from pausepoint.cli.app import COMMANDS, App, app
from pausepoint.cli.commands.run import Loaded, RunCommand, run
from pausepoint.cli.context import Cli
from pausepoint.cli.drive import DrivenSession
from pausepoint.cli.exits import DONE, USAGE, Refused, Unknown, guarded
from pausepoint.cli.fields import collect_values, fields_of, options_for
from pausepoint.cli.host import STORE, Host, Start, started_by
from pausepoint.cli.options import common
from pausepoint.cli.project import VARIABLE, check_exists
from pausepoint.definition.binding import resolve
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import DefinitionError, PausepointError, did_you_mean
from pausepoint.model.views import Outcome, SessionInfo

S = TypeVar("S", bound=BaseModel)

Ending = int | None | tuple[int, Any]
"""How a program's own function ended: an exit code (None: 0), if it has one with the document for ``--json``."""

RUN = """Start a session and show it until it ends or needs somebody.

At a terminal, what it asks is asked in place. Ctrl+C finishes the operation that runs and prints the command that
goes on; twice aborts it.
"""


def program(
    workflow: Workflow[S] | None = None, *others: Workflow[Any],
    begin: Callable[..., S | Mapping[str, Any]] | None = None, result: Callable[[Outcome[S]], str] | None = None,
    instead: Callable[..., Ending] | None = None, without: Sequence[str] = (), arguments: Sequence[str] = (),
    name: str | None = None, help: str = "", store: str | Path | None = None, step_word: str = "step",
) -> Program:  # fmt: skip
    """Make workflows a program: ``if __name__ == "__main__": program(brief)()``.

    Without a command it runs a session of ``workflow``; its other commands are those of ``pausepoint``. ``others`` are
    run by name, and by `Context.call`.

    ``begin`` makes the starting state. Its parameters become the options, as fields of the state do without it; an
    `Annotated` description is their help. One that is annotated `Start` is told the store and the owner instead. It
    returns a state, or a mapping of fields, and refuses with a `ValueError` that says what is wrong. ``result`` makes
    the text that is printed when a session has completed. ``instead`` takes the place of ``run``: a function of its own
    drives sessions, a chat say. Its parameters become options as those of ``begin`` do; it returns the exit code, or
    that and the document that ``--json`` prints. With a ``name`` it needs no workflow, if it makes its own. ``without``
    are commands of ``pausepoint`` that the program does not have, or brings its own of. ``arguments`` are options that
    are given by their place instead. What Python keeps for itself has an underscore behind it: ``from_`` is ``--from``.
    ``store`` is used unless ``--store`` or ``PAUSEPOINT_STORE`` names another; without it, the project's.
    ``step_word`` is what the program calls a step when it prints progress, such as ``"agent"``.

    >>> from pydantic import BaseModel
    >>> from pausepoint import Workflow, program, step
    >>> class Greeting(BaseModel):
    ...     name: str
    ...     text: str = ""
    >>> @step(writes="text")
    ... def greet(name: str) -> str:
    ...     return f"Hello, {name}!"
    >>> main = program(Workflow("greeting", state=Greeting, steps=[greet]), result=lambda outcome: outcome.state.text)
    >>> main.name
    'greeting'
    """
    called = name or (workflow.name if workflow is not None else "")
    if instead is not None and (begin is not None or result is not None):
        raise DefinitionError(f"program {called}: begin and result are for run; instead replaces it")
    start: _Begin | None = None
    if instead is not None and called:
        fields = _parameters(instead, called, "instead")[0].model_fields
    elif workflow is not None:
        start = None if begin is None else _Begin(begin, workflow, arguments)
        fields = (workflow.model if start is None else start.model).model_fields
    else:
        raise DefinitionError("program(): give it a workflow to run; or a name, and what it does instead of that")
    _check_arguments(arguments, fields, called)
    brought = () if workflow is None else (workflow, *others)
    made = Program(brought, start, result, tuple(arguments), called, help, store, step_word)
    made.leave_out(without)
    if instead is not None:
        made.replace_run(_Instead(instead, called, made))
    return made


def _check_arguments(arguments: Sequence[str], fields: Mapping[str, Any], name: str) -> None:
    for number, each in enumerate(arguments):
        if each not in fields:
            raise DefinitionError(f"program {name}: no option {each!r} to be an argument{did_you_mean(each, fields)}")
        if each in arguments[:number]:
            raise DefinitionError(f"program {name}: the argument {each!r} is named twice")


class Program(App):
    """A click group: call it, and it ends the process. Commands of its own can be added as to any group."""

    left_out = frozenset({"init", "demo", "completion"})

    def __init__(
        self, workflows: tuple[Workflow[Any], ...], begin: _Begin | None,
        result: Callable[[Outcome[Any]], str] | None, arguments: tuple[str, ...], name: str, help: str,
        store: str | Path | None, step_word: str,
    ) -> None:  # fmt: skip
        super().__init__(name, help=help, context_settings=dict(app.context_settings))
        self.workflows = workflows
        self.begin = begin
        self.result = result
        self.arguments = arguments
        self.store = None if store is None else str(store)
        self.step_word = step_word
        self.first: str = "run"

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command of the program's own. One that would hide another, or never be reached, is refused."""
        taken, here = name or cmd.name or "", getattr(cmd.callback, "__name__", "a group")
        if taken in self.commands:
            other = f"another command of it, {getattr(self.commands[taken].callback, '__name__', 'a group')}"
            way = "give it another name"
        elif taken in COMMANDS and taken not in self.left_out:
            other = f"`pausepoint {taken}` ({COMMANDS[taken][1].rstrip('.').lower()}), which this program has as well"
            way = f"give it another name, or make the program without={[taken]!r}"
        else:
            super().add_command(cmd, name)
            return
        raise DefinitionError(f"program {self.name}: its command {taken!r} ({here}) has the name of {other}; {way}")

    def leave_out(self, names: Sequence[str]) -> None:
        """Do without commands of ``pausepoint``; those of the program's own may have their names."""
        for each in names:
            if each not in COMMANDS:
                raise DefinitionError(f"program {self.name}: pausepoint has no command {each!r} to be without"
                                      f"{did_you_mean(each, COMMANDS)}")  # fmt: skip
        self.left_out = self.left_out | set(names)

    def replace_run(self, command: click.Command) -> None:
        """Have a command of the program's own take the place of ``run``."""
        self.left_out = self.left_out | {"run"}
        self.first = str(command.name)
        self.add_command(command)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, complete_var: str | None = None,
        standalone_mode: bool = True, **extra: Any,
    ) -> Any:  # fmt: skip
        """Run as the process that this is, and end it with the exit code that fits."""
        words, launch = started_by()
        if "obj" not in extra:
            drives = not self.workflows
            extra["obj"] = Host(
                str(self.name), words, launch, self.store, self.workflows, self.result, drives, self.step_word
            )
        called = prog_name or shlex.join(words)

        def call(standalone_mode: bool) -> Any:
            return super(Program, self).main(args, called, complete_var, standalone_mode, **extra)

        return guarded(call, str(self.name)) if standalone_mode else call(False)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command it is ``run``, or what takes its place. ``--store`` may come before the command."""
        if args and args[0].partition("=")[0] == "--store":
            given, equals, path = args[0].partition("=")
            if not equals and len(args) < 2:
                raise click.BadOptionUsage(given, f"Option {given!r} requires an argument.", ctx)
            ctx.meta[STORE], args = (path, args[1:]) if equals else (args[1], args[2:])
        named = args[0] if args else ""
        if named not in (*self.list_commands(ctx), *ctx.help_option_names):
            self._check_word(ctx, named)
            args = [self.first, *args]
        return super().parse_args(ctx, args)

    def _check_word(self, ctx: click.Context, word: str) -> None:
        names = [workflow.name for workflow in self.workflows[1:]] if self.first == "run" else []
        if word and not word.startswith("-") and word not in names and not self.arguments:
            raise Unknown(f"no command {word!r}{did_you_mean(word, [*self.list_commands(ctx), *names])}")

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The workflows are known: no command has to be told where they are."""
        if name == "run" == self.first and name not in self.commands:
            return _Run(self)
        found = super().get_command(ctx, name)
        if found is None or name in self.commands:
            return found
        found = copy.copy(found)
        found.params = self.fitting(found.params)
        return found

    def fitting(self, params: Sequence[click.Parameter]) -> list[click.Parameter]:
        """Parameters of a command of ``pausepoint`` as they are here."""
        kept = [copy.copy(param) for param in params if param.name not in ("target", "where")]
        for param in kept:
            if param.name == "store" and self.store is not None and isinstance(param, click.Option):
                param.help = f"The store; else {VARIABLE}, {self.store}."
        return kept

    def verb(self, name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
        """A command of the program's own about its sessions, with ``--store`` and ``--json`` like the others.

        The function gets an open `BlockingEngine` or a `Start`, as its first parameter is annotated, then what click's
        decorators on it bring. It returns a text for people and a document for ``--json`` (a model, or what JSON can
        hold); or a session, which is then gone on with and shown as ``resume`` does; or an exit code, if it has one
        with a document, and has told people itself. It refuses with a `ValueError`.
        """

        def decorate(fn: Callable[..., Any]) -> click.Command:
            @functools.wraps(fn)
            def call(cli: Cli, **given: Any) -> int:
                return _told(cli, fn, given)

            return self.command(name or fn.__name__.replace("_", "-"))(common()(call))

        return decorate

    def loaded(self, name: str) -> Loaded:
        """A workflow and how a session of it is started."""
        workflow = next(each for each in self.workflows if each.name == name)
        if workflow is not self.workflows[0]:
            return Loaded(name, workflow, fields_of(workflow.model))
        if self.begin is None:
            return Loaded(name, workflow, fields_of(workflow.model), None, self.arguments)
        return Loaded(name, workflow, fields_of(self.begin.model), self.begin, self.arguments)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        with self._run(ctx) as inner:
            return ["[COMMAND]", *inner.command.collect_usage_pieces(inner)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Those of ``run``, which needs no name, then the commands."""
        with self._run(ctx) as inner:
            inner.command.format_options(inner, formatter)
        self.format_commands(ctx, formatter)

    def _run(self, ctx: click.Context) -> click.Context:
        command = self.get_command(ctx, self.first)
        assert command is not None
        return command.make_context(self.first, [], parent=ctx, resilient_parsing=True)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        if self.commands:
            with formatter.section("More"):
                rows = [(name, command.get_short_help_str(100)) for name, command in self.commands.items()]
                formatter.write_dl(rows)


def _told(cli: Cli, fn: Callable[..., Any], given: dict[str, Any]) -> int:
    """Do what a verb does, say what came of it, and go on with the session that it returns."""
    from pausepoint.engine.blocking import BlockingSession

    found, goes_on = _done(cli, fn, given)
    if goes_on is not None:
        driven = DrivenSession(cli, cli.host.workflows_by_name[goes_on.workflow], None)
        return driven.drive(lambda engine: driven.resume(engine, goes_on.session_id, None, {}))
    assert not isinstance(found, BlockingSession)
    what, document = found if isinstance(found, tuple) else (found, None)
    if not isinstance(what, int):
        cli.out.line(what)
    if cli.out.as_json and document is not None:
        cli.out.document(document.model_dump(mode="json") if isinstance(document, BaseModel) else document)
    return what if isinstance(what, int) else DONE


def _done(cli: Cli, fn: Callable[..., Any], given: dict[str, Any]) -> tuple[Any, SessionInfo | None]:
    """What a verb returns; if that is a session, what is known of it."""
    from pausepoint.engine.blocking import BlockingSession
    from pausepoint.engine.engine import Engine

    first = next(iter(signature(fn).parameters.values()), None)
    if first is not None and first.annotation in (Start, "Start"):
        with _refusing():
            return fn(cli.start(), **given), None
    check_exists(cli.place)
    with Engine(cli.place.url, workflows=list(cli.host.workflows), create=False, drives="asked") as engine:
        with _refusing():
            found = fn(engine, **given)
        return found, engine.info(found.id) if isinstance(found, BlockingSession) else None


class _Run(RunCommand):
    """``run`` of a program: its workflow is known, others are named first."""

    def __init__(self, program: Program) -> None:
        params = program.fitting(run.params)
        super().__init__("run", callback=run.callback, params=params, help=RUN, options_metavar="[OPTIONS]")
        self.program = program

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        main, *others = [workflow.name for workflow in self.program.workflows]
        named = bool(args) and args[0] in others
        self._take_in(ctx, self.program.loaded(args[0] if named else main), args)
        return click.Command.parse_args(self, ctx, args[1:] if named else args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        others = [workflow.name for workflow in self.program.workflows[1:]]
        return [*([f"[{'|'.join(others)}]"] if others else []), *super().collect_usage_pieces(ctx)]


class _Instead(click.Command):
    """What takes the place of ``run``: a function of the program's own, with its parameters as options."""

    def __init__(self, act: Callable[..., Ending], program_name: str, program: Program) -> None:
        self.act = act
        self.model, self.told = _parameters(act, program_name, "instead")
        self.fields = fields_of(self.model)
        shared: click.Command = click.command()(common()(self._call))
        params = program.fitting(shared.params)
        taken = [name for param in params for name in param.opts]
        own = options_for(self.fields.values(), taken, program.arguments)
        super().__init__(act.__name__, callback=shared.callback, params=[*own, *params], help=act.__doc__)

    def _call(self, cli: Cli, **given: Any) -> int:
        try:
            read = self.model.model_validate(collect_values(given, (), self.fields))
        except ValidationError as error:
            raise Refused(_said(error, self._named), USAGE) from error
        told = dict.fromkeys(self.told, cli.start())
        with _refusing():
            ended = self.act(**told, **{name: getattr(read, name) for name in read.model_fields_set})
        code, document = ended if isinstance(ended, tuple) else (ended, None)
        if not cli.out.for_people and document is not None:
            cli.out.document(document)
        return DONE if code is None else code

    def _named(self, name: str) -> str:
        return self.fields[name].usage.partition(" ")[0]


@contextmanager
def _refusing() -> Iterator[None]:
    """What a program's own function finds wrong is a refusal: one line, and a code that says so."""
    try:
        yield
    except (PausepointError, BrokenPipeError):
        raise  # it says itself what is wrong; or nobody reads any more, which is no fault of what was given
    except ValidationError as error:
        raise Refused(_said(error), USAGE) from error
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}" if error.filename else str(error), USAGE) from error
    except ValueError as error:
        raise Refused(str(error) or f"refused: {type(error).__name__}", USAGE) from error


class _Begin:
    """A program's ``begin``, with its parameters as a model: they are described and read as fields of a state are."""

    def __init__(self, make: Callable[..., Any], workflow: Workflow[Any], arguments: Sequence[str]) -> None:
        if iscoroutinefunction(make):
            raise DefinitionError(f"program {workflow.name}: begin is async; it has to be a plain function")
        self.make = make
        self.workflow = workflow
        self.arguments = arguments
        self.model, self.told = _parameters(make, workflow.name, "begin")

    def __call__(self, values: dict[str, Any], start: Start) -> dict[str, Any]:
        """The values that a session starts with. What cannot be one is refused before anything is stored."""
        try:
            given = self.model.model_validate(values)
        except ValidationError as error:
            raise Refused(_said(error, self._named), USAGE) from error
        try:
            told = dict.fromkeys(self.told, start)
            made = self.make(**told, **{name: getattr(given, name) for name in given.model_fields_set})
        except ValidationError as error:
            raise Refused(_said(error), USAGE) from error
        except OSError as error:
            raise Refused(f"{error.filename}: {error.strerror}" if error.filename else str(error), USAGE) from error
        except (ValueError, PausepointError) as error:
            raise Refused(str(error) or f"begin refuses it: {type(error).__name__}", USAGE) from error
        return self._values(made)

    def _named(self, name: str) -> str:
        return name.upper() if name in self.arguments else f"--{name.replace('_', '-')}"

    def _values(self, made: Any) -> dict[str, Any]:
        if isinstance(made, self.workflow.model):
            given = {name: getattr(made, name) for name in made.model_fields_set}
            # A list that was filled in place is not among them: a field counts as given once it is not its default.
            default = self.workflow.shape.start(given)
            others = {name: getattr(made, name) for name in default if name not in given}
            return given | {name: value for name, value in others.items() if value != default[name]}
        if isinstance(made, Mapping):
            return dict(made)
        raise DefinitionError(
            f"program {self.workflow.name}: begin returned {type(made).__name__}; it returns a"
            f" {self.workflow.model.__name__}, or a mapping of its fields"
        )


def _parameters(make: Callable[..., Any], name: str, role: str) -> tuple[type[BaseModel], list[str]]:
    """Those that become options, as a model; and who is told the `Start`."""
    try:
        hints = resolve(make)
    except DefinitionError as error:
        raise DefinitionError(f"program {name}: {role}: {error}") from error
    fields: dict[str, Any] = {}
    told: list[str] = []
    for each in signature(make).parameters.values():
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY):
            raise DefinitionError(f"program {name}: {role} takes {each}; only parameters with a name become options")
        if each.name not in hints:
            raise DefinitionError(f"program {name}: {role} does not say of which type {each.name!r} is")
        if hints[each.name] is Start:
            told.append(each.name)
        else:
            fields[each.name] = hints[each.name], ... if each.default is Parameter.empty else each.default
    return create_model("Input", __config__=ConfigDict(protected_namespaces=()), **fields), told


def _said(error: ValidationError, named: Callable[[str], str] = str) -> str:
    """Which values cannot be, and why: one line."""
    found = []
    for each in error.errors(include_url=False):
        first, *inner = each["loc"] or ("",)
        place = ".".join([named(str(first)) if first != "" else "", *map(str, inner)])
        found.append(f"{place}: {each['msg']}" if place else each["msg"])
    return "; ".join(found)
