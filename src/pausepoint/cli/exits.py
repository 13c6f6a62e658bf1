"""Exit codes, and how an error becomes one clear line.

0 done · 1 failed or cancelled · 2 usage · 3 needs somebody (paused, waiting) · 4 not found ·
5 conflict (running elsewhere, wrong owner, other input) · 6 a decision about an artifact is
needed · 130 interrupted · 143 terminated.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from pausepoint.cli.host import TARGET
from pausepoint.errors import PausepointError, did_you_mean
from pausepoint.name import NAME

DONE, FAILED, USAGE, PERSON, NOT_FOUND, CONFLICT, DECISION = 0, 1, 2, 3, 4, 5, 6
INTERRUPTED, TERMINATED = 130, 143

# Names, not classes: an error is looked up when one was raised, so nothing has to be imported before.
_CODES = {
    "UnknownSession": NOT_FOUND, "UnknownCheckpoint": NOT_FOUND, "StoreMissing": NOT_FOUND, "AmbiguousSession": USAGE,
    "InvalidSessionId": USAGE, "DefinitionError": USAGE, "ValueRefused": USAGE, "StateRefused": USAGE,
    "AlreadyRunning": CONFLICT, "HoldLost": CONFLICT, "WrongOwner": CONFLICT, "InputConflict": CONFLICT,
    "VerbRefused": CONFLICT, "SessionEnded": CONFLICT, "UnknownQuestion": NOT_FOUND, "SeveralQuestions": USAGE,
    "AnswerRefused": USAGE, "AnswerConflict": CONFLICT, "QuestionChanged": CONFLICT, "QuestionClosed": CONFLICT,
    "WrongSession": CONFLICT, "UnknownFile": NOT_FOUND, "UndecidedEdits": DECISION, "FolderRefused": CONFLICT,
}  # fmt: skip


class Unknown(click.UsageError):
    """A name that does not exist: usage, without the lines about options, which would not help."""


class Refused(click.ClickException):
    """A clear no with an exit code of its own."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance


def code_of(error: BaseException) -> int:
    """The exit code of an error of Pausepoint's; 1 for others."""
    for cls in type(error).__mro__:
        if cls.__name__ in _CODES:
            return _CODES[cls.__name__]
    return FAILED


def guarded(app: Callable[..., Any], name: str = NAME) -> NoReturn:
    """Run the app as a process: every end has its exit code, and no reader that leaves is an error.

    ``name`` is who says no.
    """
    if wants_json():
        from pausepoint.cli.console import reserve_stdout

        reserve_stdout()
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else DONE)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        _tell(error, name)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _leave_stdout()
        sys.exit(141)
    except Exception as error:
        if type(error).__module__ != PausepointError.__module__:
            raise
        code = code_of(error)
        _tell(Refused(str(error), code), name)
        sys.exit(code)


def wants_json() -> bool:
    """Whether this process was asked for JSON."""
    return "--json" in sys.argv or "--jsonl" in sys.argv


def _leave_stdout() -> None:
    """Nobody reads any more: let what is still buffered go nowhere, without another error at the very end."""
    from pausepoint.cli import console as output

    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, output.reserved):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def _tell(error: click.ClickException, name: str) -> None:
    """For a person a line on stderr; who asked for JSON gets that, also there: stdout stays what was asked for."""
    message = _message(error)
    if wants_json():
        click.echo(json.dumps({"error": message, "exit_code": error.exit_code}), err=True)
        return
    if sys.stderr.isatty():
        from pausepoint.cli.console import terminal_width, wrapped

        message = wrapped(f"{name}: {message}", terminal_width(), 2)
    else:
        message = f"{name}: {message}"
    click.echo(message, err=True)


def _message(error: click.ClickException) -> str:
    """What is wrong, and where to read on."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is None or isinstance(error, Unknown):
        return message
    if isinstance(error, click.NoSuchOption):
        options = [name for param in context.command.get_params(context) for name in param.opts if name[:2] == "--"]
        message = f"there is no option {error.option_name}{did_you_mean(error.option_name, options)}"
    return f"{message.removesuffix('.')}{'' if message.endswith('?') else ';'} see {_help_of(context)}"


def _help_of(context: click.Context) -> str:
    loaded, _ = context.meta.get(TARGET, (None, None))  # the options of `run` depend on its target
    named = loaded is not None and any(param.name == "where" for param in context.command.params)
    return " ".join([context.command_path, *([loaded.target] if named else []), "--help"])
