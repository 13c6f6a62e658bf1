"""Exit codes, and how an error becomes one clear line.

0 done · 1 failed or cancelled · 2 usage · 3 not finished (paused, waiting, sleeping) · 4 not found ·
5 conflict (running elsewhere, wrong owner, different input) · 6 a decision about an artifact is
needed · 75 try later (the gate) · 130 interrupted · 143 terminated.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn

import click

from pausepoint.cli.host import PAUSEPOINT, TARGET, host, started_by
from pausepoint.errors import FolderRefused, PausepointError, StoreDamaged, did_you_mean
from pausepoint.name import NAME

DONE, FAILED, USAGE, PERSON, NOT_FOUND, CONFLICT, DECISION = 0, 1, 2, 3, 4, 5, 6
TRY_LATER, INTERRUPTED, TERMINATED = 75, 130, 143

# Names instead of classes, so that nothing has to be imported before an error is raised.
_CODES = {
    "UnknownSession": NOT_FOUND, "UnknownCheckpoint": NOT_FOUND, "UnknownOperation": NOT_FOUND,
    "StoreMissing": NOT_FOUND, "AmbiguousSession": USAGE,
    "InvalidSessionId": USAGE, "DefinitionError": USAGE, "ValueRefused": USAGE, "StateRefused": USAGE,
    "AlreadyRunning": CONFLICT, "HoldLost": CONFLICT, "WrongOwner": CONFLICT, "InputConflict": CONFLICT,
    "VerbRefused": CONFLICT, "SessionEnded": CONFLICT, "UnknownQuestion": NOT_FOUND, "SeveralQuestions": USAGE,
    "AnswerRefused": USAGE, "AnswerConflict": CONFLICT, "QuestionChanged": CONFLICT, "QuestionClosed": CONFLICT,
    "UnknownSchedule": NOT_FOUND, "ScheduleRefused": USAGE,
    "WrongSession": CONFLICT, "UnknownFile": NOT_FOUND, "UndecidedEdits": DECISION, "FolderRefused": CONFLICT,
}  # fmt: skip


_FOLDER_CALLS = {
    r"\brestore\(\)": "artifacts restore {}",
    r"\bresume\(edits='(\w+)'\)": "resume {} --edits {}",
    r"\bresume\(rerun=\['(\w+)'\]\)": "resume {} --rerun {}",
}
"""Calls in messages about a folder, and the words of the commands that do the same."""


class Unknown(click.UsageError):
    """A command that does not exist. The message has no hint to ``--help``, because it names the nearest command."""


class Refused(click.ClickException):
    """A refused command, with its own exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance


def code_of(error: BaseException) -> int:
    """Return the exit code of a Pausepoint error; 1 for any other error."""
    for cls in type(error).__mro__:
        if cls.__name__ in _CODES:
            return _CODES[cls.__name__]
    return FAILED


def stopped_by(end: BaseException) -> int:
    """Return the exit code of a command that Ctrl+C or SIGTERM has stopped. Raise any other ``SystemExit`` again."""
    if isinstance(end, SystemExit) and end.code != TERMINATED:
        raise end
    return TERMINATED if isinstance(end, SystemExit) else INTERRUPTED


def guarded(app: Callable[..., Any], name: str = NAME) -> NoReturn:
    """Run the app as a process and exit with the code of its outcome. A closed pipe is not an error.

    ``name`` is the prefix of error messages.
    """
    _open_streams()
    if wants_json():
        from pausepoint.cli.console import reserve_stdout

        reserve_stdout()
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else DONE)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            error.show()  # the help itself
        else:
            _print_error(error, name)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        discard_stdout()
        sys.exit(141)
    except Exception as error:
        if type(error).__module__ != PausepointError.__module__:
            raise
        code = code_of(error)
        _print_error(Refused(error_message(error), code), name)
        sys.exit(code)


def error_message(error: BaseException) -> str:
    """Return an error's message with commands instead of Python calls. Pydantic's words get a next step."""
    message, verb = str(error), "engine.sessions()"
    if type(error).__name__ == "StateRefused" and not message.endswith((".", "?")):
        return f"{message}. Correct the value, then run the command again."
    if verb in message:
        message = message.replace(verb, f"`{shlex.join([*started_by()[0], 'ls'])}`")
    if isinstance(error, StoreDamaged):
        command = shlex.join([*PAUSEPOINT.words, "doctor", "--loss", "accept", "--store", error.path])
        message = message.replace(f"pausepoint.engine.accept_loss({error.path!r})", f"`{command}`")
    if isinstance(error, FolderRefused) and error.session_id and host() is PAUSEPOINT:
        for call, words in _FOLDER_CALLS.items():
            message = re.sub(call, partial(_command, words, error.session_id), message)
    return message


def _command(words: str, session_id: str, found: re.Match[str]) -> str:
    """Return the command that does what a call does, in the store that this process was called with."""
    at = sys.argv.index("--store") if "--store" in sys.argv else len(sys.argv)
    named = words.format(session_id, *found.groups()).split()
    return f"`{shlex.join([*PAUSEPOINT.words, *named, *sys.argv[at : at + 2]])}`"


def wants_json() -> bool:
    """Return whether this process was asked for JSON."""
    return "--json" in sys.argv or "--jsonl" in sys.argv


def _open_streams() -> None:
    """Open what the program that started this one has closed. Otherwise a file of the store could get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def discard_stdout() -> None:
    """Discard buffered output after the reader has closed the pipe, so that the exit raises no second error."""
    from pausepoint.cli import console as output

    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, output.reserved):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def _print_error(error: click.ClickException, name: str) -> None:
    """Print an error on stderr: a line for a person, or JSON. Stdout is for results only."""
    message = _message(error)
    if wants_json():
        from msgspec.structs import asdict

        from pausepoint.cli.documents import ErrorDocument

        click.echo(json.dumps(asdict(ErrorDocument(message, error.exit_code))), err=True)
        return
    if sys.stderr.isatty():
        from pausepoint.cli.console import terminal_width, wrapped

        message = wrapped(f"{name}: {message}", terminal_width(), 2)
    else:
        message = f"{name}: {message}"
    click.echo(message, err=True)


def _message(error: click.ClickException) -> str:
    """Return the error message, with the command that shows the help if that is useful."""
    message = _plain(error)
    context = getattr(error, "ctx", None)
    if context is None or isinstance(error, Unknown):
        return message
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} See `{_help_of(context)}`."


def _plain(error: click.ClickException) -> str:
    """Return the message of an error; for the errors of click, in the words of the other messages."""
    message = error.format_message()
    match error:
        case click.NoSuchOption(ctx=click.Context() as context):
            options = [name for param in context.command.get_params(context) for name in param.opts if name[:2] == "--"]
            return f"There is no option {error.option_name}{did_you_mean(error.option_name, options)}"
        case click.MissingParameter(param=click.Option() as option):
            return f"The option {_name_of(option)} is missing."
        case click.MissingParameter(param=click.Argument() as argument, ctx=click.Context() as context):
            return f"The argument {argument.make_metavar(context)} is missing."
        case click.BadParameter(param=click.Option() as option):
            return f"{_name_of(option)}: {error.message}"
        case click.BadParameter():
            return error.message
        case click.BadOptionUsage() if "requires an argument" in message:
            return f"The option {error.option_name} needs a value."
    if found := re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message):
        return f"There are too many arguments. Remove: {found[1]}."
    return message


def _name_of(option: click.Option) -> str:
    return next((name for name in option.opts if name.startswith("--")), option.opts[0])


def not_one_of(value: object, names: Iterable[str]) -> str:
    """Return the refusal of a value that is not one of the names.

    >>> not_one_of("fishy", ["bash", "fish"]), not_one_of("?", ["bash", "fish"])
    ("'fishy' is not one of bash, fish. Did you mean 'fish'?", "'?' is not one of bash, fish.")
    """
    known = list(names)
    near = did_you_mean(str(value), known)
    return f"{value!r} is not one of {', '.join(known)}{near if 'Did you mean' in near else '.'}"


def _help_of(context: click.Context) -> str:
    loaded, _ = context.meta.get(TARGET, (None, None))  # the options of `run` depend on the target
    named = loaded is not None and any(param.name == "where" for param in context.command.params)
    return " ".join([context.command_path, *([loaded.target] if named else []), "--help"])
