"""`program`: turn workflows into a program of their own, with the commands of ``pausepoint``.

The commands are the same ones. The `Host` tells them the program's name, its workflows and its store.
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
from pausepoint.cli.fields import collect_values, fields_of, input_of, options_for
from pausepoint.cli.host import STORE, Host, Start, started_by
from pausepoint.cli.options import common, verbose
from pausepoint.cli.project import VARIABLE, check_exists
from pausepoint.definition.binding import resolve
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import DefinitionError, PausepointError, did_you_mean
from pausepoint.model.views import Outcome, SessionInfo

S = TypeVar("S", bound=BaseModel)

Ending = int | None | tuple[int, Any]
"""The result of a program's own function: an exit code (None means 0), or a code and the document for ``--json``."""

RUN = """Start a session and show it until it ends or needs a person.

At a terminal, you can answer the session's questions directly. Ctrl+C finishes the current operation and prints the
command that resumes the session; a second Ctrl+C aborts the operation.
"""


def program(
    workflow: Workflow[S] | None = None, *others: Workflow[Any],
    begin: Callable[..., S | Mapping[str, Any]] | None = None, result: Callable[[Outcome[S]], str] | None = None,
    instead: Callable[..., Ending] | None = None, without: Sequence[str] = (), arguments: Sequence[str] = (),
    name: str | None = None, help: str = "", store: str | Path | None = None, step_word: str = "step",
    quiet: bool = False, site: Callable[..., Any] | None = None,
) -> Program:  # fmt: skip
    """Turn workflows into a program: ``if __name__ == "__main__": program(brief)()``.

    Without a command the program runs a session of ``workflow``. It has the commands of ``pausepoint``, too. ``others``
    are workflows that are run by name, or with `Context.call`.

    - ``begin``: a function that returns the starting state, or a mapping of fields. Its parameters become the options
      of ``run``, instead of the state's fields; an `Annotated` description is their help. A parameter annotated `Start`
      gets the store and the owner. It raises `ValueError` to refuse the input.
    - ``result``: a function that returns the text to print when a session has completed.
    - ``instead``: a function that replaces ``run`` and drives sessions itself, such as a chat. Its parameters become
      options. It returns the exit code, or the exit code and the document for ``--json``. With a ``name``, the program
      needs no workflow.
    - ``without``: commands of ``pausepoint`` that the program does not have, or replaces with its own.
    - ``arguments``: options that become positional arguments. For a Python keyword, append an underscore to the
      parameter: ``from_`` is ``--from``.
    - ``store``: the program's store. ``--store`` and ``PAUSEPOINT_STORE`` override it; the default is the project's.
    - ``step_word``: what progress lines call a step, such as ``"agent"``.
    - ``quiet``: print the result and what a person must know, and the steps only with ``--verbose`` (``-v``).
    - ``site``: a function that returns a `pausepoint.server.Site`, which ``serve`` adds to the server. Its first
      parameter gets the `Start`; the others become options of ``serve``.

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
        raise DefinitionError(
            f"Program {called!r} has instead=, which replaces run, so begin= and result= have no effect. Remove them."
        )
    start: _Begin | None = None
    if instead is not None and called:
        fields = _parameters(instead, called, "instead")[0].model_fields
    elif workflow is not None:
        start = None if begin is None else _Begin(begin, workflow, arguments)
        fields = start.model.model_fields if start is not None else _input_fields(workflow)
    else:
        raise DefinitionError("program() has nothing to run. Pass a workflow, or name= and instead=.")
    _check_arguments(arguments, fields, called)
    brought = () if workflow is None else (workflow, *others)
    made = Program(brought, start, result, tuple(arguments), called, help, store, step_word, quiet)
    made.site = None if site is None else _Site(site, called)
    made.leave_out(without)
    if instead is not None:
        made.replace_run(_Instead(instead, called, made))
    return made


def _input_fields(workflow: Workflow[Any]) -> dict[str, Any]:
    return {name: info for name, info in workflow.model.model_fields.items() if name != workflow.returns}


def _check_arguments(arguments: Sequence[str], fields: Mapping[str, Any], name: str) -> None:
    for number, each in enumerate(arguments):
        if each not in fields:
            raise DefinitionError(f"Program {name!r} has no option {each!r} for arguments={did_you_mean(each, fields)}")
        if each in arguments[:number]:
            raise DefinitionError(f"Program {name!r} names the argument {each!r} twice. Name it once in arguments=.")


class Program(App):
    """A click group. Calling it runs the program and exits the process. You can add commands as to any group."""

    left_out = frozenset({"init", "skill", "demo", "dev", "completion", "gate"})

    def __init__(
        self, workflows: tuple[Workflow[Any], ...], begin: _Begin | None,
        result: Callable[[Outcome[Any]], str] | None, arguments: tuple[str, ...], name: str, help: str,
        store: str | Path | None, step_word: str, quiet: bool,
    ) -> None:  # fmt: skip
        super().__init__(name, help=help, context_settings=dict(app.context_settings))
        self.workflows = workflows
        self.begin = begin
        self.result = result
        self.arguments = arguments
        self.store = None if store is None else str(store)
        self.step_word = step_word
        self.quiet = quiet
        self.first: str = "run"
        self.site: _Site | None = None

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command to the program. Raises `DefinitionError` if the name is already used."""
        taken, here = name or cmd.name or "", getattr(cmd.callback, "__name__", "a group")
        if taken in self.commands:
            other = f"by {getattr(self.commands[taken].callback, '__name__', 'a group')}"
            way = "Use another name."
        elif taken in COMMANDS and taken not in self.left_out:
            other = f"by `pausepoint {taken}` ({COMMANDS[taken][1].rstrip('.').lower()})"
            way = f"Use another name, or pass without={[taken]!r} to program()."
        else:
            super().add_command(cmd, name)
            return
        raise DefinitionError(
            f"Program {self.name!r}: the command name {taken!r} of {here} is already used {other}. {way}"
        )

    def leave_out(self, names: Sequence[str]) -> None:
        """Remove commands of ``pausepoint``. The program's own commands may use their names."""
        for each in names:
            if each not in COMMANDS:
                raise DefinitionError(f"Program {self.name!r}: without= names {each!r}, which is not a command of"
                                      f" pausepoint{did_you_mean(each, COMMANDS)}")  # fmt: skip
        self.left_out = self.left_out | set(names)

    def replace_run(self, command: click.Command) -> None:
        """Replace ``run`` with a command of the program."""
        self.left_out = self.left_out | {"run"}
        self.first = str(command.name)
        self.add_command(command)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, complete_var: str | None = None,
        standalone_mode: bool = True, **extra: Any,
    ) -> Any:  # fmt: skip
        """Run the program and exit the process with its exit code."""
        words, launch = started_by()
        if "obj" not in extra:
            drives = not self.workflows
            extra["obj"] = Host(
                str(self.name), words, launch, self.store, self.workflows, self.result, drives, self.step_word,
                self.quiet, frozenset(self.commands), self.site,
            )  # fmt: skip
        called = prog_name or shlex.join(words)

        def call(standalone_mode: bool) -> Any:
            return super(Program, self).main(args, called, complete_var, standalone_mode, **extra)

        return guarded(call, str(self.name)) if standalone_mode else call(False)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, use ``run`` or the command that replaces it. Accept ``--store`` before the command."""
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
            raise Unknown(f"There is no command {word!r}{did_you_mean(word, [*self.list_commands(ctx), *names])}")

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command without its TARGET and ``--target``, because the workflows are known."""
        if name == "run" == self.first and name not in self.commands:
            return _Run(self)
        found = super().get_command(ctx, name)
        if found is None or name in self.commands:
            return found
        found = copy.copy(found)
        found.params = self.fitting(found.params)
        if name == "resume" and self.quiet:
            found.params.append(verbose())
        if name == "serve" and self.site is not None:
            found.params += self.site.options(found.params)
        return found

    def fitting(self, params: Sequence[click.Parameter]) -> list[click.Parameter]:
        """Return the parameters of a command of ``pausepoint``, adapted to this program."""
        kept = [copy.copy(param) for param in params if param.name not in ("target", "where")]
        for param in kept:
            if param.name == "store" and self.store is not None and isinstance(param, click.Option):
                param.help = f"The store. Default: {VARIABLE}, or {self.store}."
        return kept

    def verb(self, name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
        """Add a command of the program about its sessions, with ``--store`` and ``--json``.

        The function gets an open `BlockingEngine`, or a `Start` if its first parameter has that annotation, then the
        parameters of its click decorators. It raises `ValueError` to refuse. It returns one of:

        - a text for people and a document for ``--json`` (a model or JSON data),
        - a session, which is then resumed and shown as ``resume`` does,
        - an exit code, or an exit code and a document, if the function has printed the text itself.
        """

        def decorate(fn: Callable[..., Any]) -> click.Command:
            @functools.wraps(fn)
            def call(cli: Cli, **given: Any) -> int:
                return _run_verb(cli, fn, given)

            made = self.command(name or fn.__name__.replace("_", "-"))(common()(call))
            made.params += [verbose()] if self.quiet else []
            return made

        return decorate

    def loaded(self, name: str) -> Loaded:
        """Return a workflow with the fields that start a session of it."""
        workflow = next(each for each in self.workflows if each.name == name)
        if workflow is not self.workflows[0]:
            return Loaded(name, workflow, input_of(workflow))
        if self.begin is None:
            return Loaded(name, workflow, input_of(workflow), None, self.arguments)
        return Loaded(name, workflow, fields_of(self.begin.model), self.begin, self.arguments)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        with self._run(ctx) as inner:
            return ["[COMMAND]", *inner.command.collect_usage_pieces(inner)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of ``run``, then the commands."""
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


def _run_verb(cli: Cli, fn: Callable[..., Any], given: dict[str, Any]) -> int:
    """Call a verb and print its result, or resume the session that it returns."""
    from pausepoint.engine.blocking import BlockingSession

    found, session = _called(cli, fn, given)
    if session is not None:
        driven = DrivenSession(cli, cli.host.workflows_by_name[session.workflow], None)
        return driven.drive(lambda engine: driven.resume(engine, session.session_id, None, {}))
    assert not isinstance(found, BlockingSession)
    what, document = found if isinstance(found, tuple) else (found, None)
    if not isinstance(what, int):
        cli.out.line(what)
    if cli.out.as_json and document is not None:
        cli.out.document(document.model_dump(mode="json") if isinstance(document, BaseModel) else document)
    return what if isinstance(what, int) else DONE


def _called(cli: Cli, fn: Callable[..., Any], given: dict[str, Any]) -> tuple[Any, SessionInfo | None]:
    """Return a verb's result, and the session's info if the result is a session."""
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
        return found, engine.session(found.id).info() if isinstance(found, BlockingSession) else None


class _Run(RunCommand):
    """``run`` of a program: it runs the main workflow, or another one that is named first."""

    def __init__(self, program: Program) -> None:
        params = [*program.fitting(run.params), *([verbose()] if program.quiet else [])]
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
    """The command that replaces ``run``: a function of the program, with its parameters as options."""

    def __init__(self, act: Callable[..., Ending], program_name: str, program: Program) -> None:
        self.act = act
        self.model, self.start_names = _parameters(act, program_name, "instead")
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
            raise Refused(_problems(error, self._named), USAGE) from error
        starts = dict.fromkeys(self.start_names, cli.start())
        with _refusing():
            ended = self.act(**starts, **{name: getattr(read, name) for name in read.model_fields_set})
        code, document = ended if isinstance(ended, tuple) else (ended, None)
        if not cli.out.for_people and document is not None:
            cli.out.document(document)
        return DONE if code is None else code

    def _named(self, name: str) -> str:
        return self.fields[name].usage.partition(" ")[0]


class _Site:
    """A program's ``site``, with the parameters after the first one as options of ``serve``."""

    def __init__(self, make: Callable[..., Any], program_name: str) -> None:
        self.make = make
        has_options = len(signature(make).parameters) > 1
        self.model = _parameters(make, program_name, "site")[0] if has_options else create_model("Input")
        self.fields = fields_of(self.model)

    def options(self, params: Sequence[click.Parameter]) -> list[click.Parameter]:
        """Return the options that ``serve`` gets."""
        return options_for(self.fields.values(), [name for param in params for name in param.opts])

    def __call__(self, start: Start, given: dict[str, Any]) -> Any:
        """Return the site, for the options of ``serve``."""
        with _refusing():
            read = self.model.model_validate(collect_values(given, (), self.fields))
            return self.make(start, **{name: getattr(read, name) for name in read.model_fields_set})


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn an error of a program's own function into a refusal: one line and an exit code."""
    try:
        yield
    except (PausepointError, BrokenPipeError):
        raise  # `guarded` handles both
    except ValidationError as error:
        raise Refused(_problems(error), USAGE) from error
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}" if error.filename else str(error), USAGE) from error
    except ValueError as error:
        raise Refused(str(error) or f"The input was refused: {type(error).__name__}", USAGE) from error


class _Begin:
    """A program's ``begin``, with its parameters as a model, so that they work like the fields of a state."""

    def __init__(self, make: Callable[..., Any], workflow: Workflow[Any], arguments: Sequence[str]) -> None:
        if iscoroutinefunction(make):
            raise DefinitionError(f"Program {workflow.name!r}: begin is async. Make it a plain function.")
        self.make = make
        self.workflow = workflow
        self.arguments = arguments
        self.model, self.start_names = _parameters(make, workflow.name, "begin")

    def __call__(self, values: dict[str, Any], start: Start) -> dict[str, Any]:
        """Return the values that a session starts with. Wrong input is refused before anything is stored."""
        try:
            given = self.model.model_validate(values)
        except ValidationError as error:
            raise Refused(_problems(error, self._named), USAGE) from error
        try:
            starts = dict.fromkeys(self.start_names, start)
            made = self.make(**starts, **{name: getattr(given, name) for name in given.model_fields_set})
        except ValidationError as error:
            raise Refused(_problems(error), USAGE) from error
        except OSError as error:
            raise Refused(f"{error.filename}: {error.strerror}" if error.filename else str(error), USAGE) from error
        except (ValueError, PausepointError) as error:
            raise Refused(str(error) or f"The input was refused: {type(error).__name__}", USAGE) from error
        return self._values(made)

    def _named(self, name: str) -> str:
        return name.upper() if name in self.arguments else f"--{name.replace('_', '-')}"

    def _values(self, made: Any) -> dict[str, Any]:
        if isinstance(made, self.workflow.model):
            given = {name: getattr(made, name) for name in made.model_fields_set}
            # `model_fields_set` lacks a list that was filled in place, so a field that differs from its default counts.
            default = self.workflow.shape.start(given)
            others = {name: getattr(made, name) for name in default if name not in given}
            return given | {name: value for name, value in others.items() if value != default[name]}
        if isinstance(made, Mapping):
            return dict(made)
        raise DefinitionError(
            f"Program {self.workflow.name!r}: begin returned {type(made).__name__}. Return a"
            f" {self.workflow.model.__name__}, or a mapping of its fields."
        )


def _parameters(make: Callable[..., Any], name: str, role: str) -> tuple[type[BaseModel], list[str]]:
    """Return the parameters that become options, as a model, and the names of those that get the `Start`."""
    try:
        hints = resolve(make)
    except DefinitionError as error:
        raise DefinitionError(f"Program {name!r}, {role}: {error}") from error
    fields: dict[str, Any] = {}
    start_names: list[str] = []
    for each in signature(make).parameters.values():
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY):
            raise DefinitionError(f"Program {name!r}: {role} takes {each}, which cannot become an option. Use"
                                  " ordinary named parameters.")  # fmt: skip
        if each.name not in hints:
            raise DefinitionError(f"Program {name!r}: parameter {each.name!r} of {role} has no type. Annotate it.")
        if hints[each.name] is Start:
            start_names.append(each.name)
        else:
            fields[each.name] = hints[each.name], ... if each.default is Parameter.empty else each.default
    return create_model("Input", __config__=ConfigDict(protected_namespaces=()), **fields), start_names


def _problems(error: ValidationError, named: Callable[[str], str] = str) -> str:
    """Return the wrong values and what is wrong with them, as one line."""
    found = []
    for each in error.errors(include_url=False):
        first, *inner = each["loc"] or ("",)
        place = ".".join([named(str(first)) if first != "" else "", *map(str, inner)])
        found.append(f"{place}: {each['msg']}" if place else each["msg"])
    return "; ".join(found)
