"""Ask questions at a terminal, with prompts that follow the JSON schema of the answer.

Input is checked here first, so that a typing mistake does not use up a round. Ctrl+D leaves the question open, Ctrl+C
exits the program.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.exits import USAGE, Refused
from pausepoint.cli.fields import Field, OneOf, resolved
from pausepoint.cli.text import approval, one_line, time_left
from pausepoint.errors import did_you_mean
from pausepoint.model.marks import marked_line

if TYPE_CHECKING:
    from pausepoint.cli.console import Output
    from pausepoint.model.approvals import Approval
    from pausepoint.model.questions import Question

LEAVE = "Ctrl+D leaves the question open"
LONGEST = 4096
"""The longest line that a terminal passes on, in bytes."""


class Later(Exception):
    """The person leaves the question open."""


def at_terminal(out: Output) -> bool:
    """Return whether a person is at a terminal and can be asked."""
    return out.for_people and out.terminal and sys.stdin.isatty()


def ask(out: Output, question: Question) -> Any:
    """Ask a person a question, and return the answer as plain data."""
    show_question(out, question)
    out.say(out.paint(f"{LEAVE}.", dim=True))
    if question.kind == "confirm":
        return _ask_confirmation(out, question)
    fields = fields_of(question)
    if fields is None:
        return _ask_value(_value_field(question), question.default)
    return _ask_parts(fields, needs_some=question.kind == "collect")


def show_question(out: Output, question: Question, whole: bool = False) -> None:
    """Show a question with its session, round and time limit. A long call to approve is folded, unless ``whole``."""
    out.line()
    for line in question.next_question.splitlines() or [""]:
        out.say(out.paint(one_line(line), bold=True))
    if question.complaint:
        out.say(out.paint(one_line(f"Asked again: {question.complaint}"), "yellow"))
    asker = f"{question.llm_node_id} of {question.asked_in} ({question.workflow_id})"
    rounds = f"round {question.current_round} of {question.max_rounds}" if question.current_round > 1 else ""
    out.say(out.paint("; ".join(filter(None, (asker, rounds, time_left(question)))), dim=True))
    if (call := approval(question)) is not None:
        _show_approval(out, call, whole)
    elif question.payload is not None:
        for line in json.dumps(question.payload, indent=2, ensure_ascii=False).splitlines():
            out.line(out.paint(marked_line(line), dim=True))
    if question.collected_params_json not in (None, "{}"):
        out.say(out.paint(one_line(f"So far: {question.collected_params_json}"), dim=True))


_DIFF = {"+": "green", "-": "red", "@": "cyan"}


def _show_approval(out: Output, call: Approval, whole: bool) -> None:
    """Show a call that needs an approval. The words that made it restricted stand out."""
    from pausepoint.model.approvals import sections

    for section in sections(call, whole):
        out.line()
        if section.heading:
            out.line(out.paint(section.heading, bold=True))
        styled = "".join(_styled(out, kind, text) for kind, text in section.pieces)
        for line in styled.replace("\r\n", "\n").split("\n"):
            out.line(out.paint(line, _DIFF.get(line[:1])) if section.is_diff else line)


def _styled(out: Output, kind: str, text: str) -> str:
    text = text.replace("\t", "    ")
    if kind == "match":
        return "\n".join(out.paint(line, "yellow", bold=True, reverse=True) for line in text.split("\n"))
    return out.paint(text, "magenta", bold=True) if kind == "fold" else text


def confirmation(approved: bool, reason: str = "") -> dict[str, Any]:
    """Return the answer to a confirmation."""
    return {"approved": approved} | ({"reason": reason} if reason else {})


def fields_of(question: Question) -> dict[str, Field] | None:
    """Return the parts of an answer that are not collected yet; None if the answer is one value."""
    schema = question.answer_schema or {}
    definitions = schema.get("$defs", {})
    kind = resolved(schema, definitions)
    if not kind.get("properties"):
        return None
    known = json.loads(question.collected_params_json or "{}")
    required = kind.get("required", ())
    return {
        name: Field(name, each, definitions, name in required)
        for name, each in kind["properties"].items()
        if name not in known
    }


def assigned(question: Question, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer that ``--set NAME=VALUE`` gives. Parts that were collected before can be set again."""
    schema = question.answer_schema or {}
    definitions = schema.get("$defs", {})
    known = resolved(schema, definitions).get("properties")
    if not known:
        raise Refused(f"Question {question.id} asks for one value. Pass it as TEXT, without --set.", USAGE)
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise Refused(f"--set {pair!r} has no value. Write NAME=VALUE.", USAGE)
        if name not in known:
            raise Refused(f"The answer has no part {name!r}{did_you_mean(name, known)}", USAGE)
        texts.setdefault(name, []).append(text)
    fields = {name: Field(name, known[name], definitions, True) for name in texts}
    return {name: _converted(field, texts[name]) for name, field in fields.items()}


def _converted(field: Field, texts: list[str]) -> Any:
    if len(texts) > 1 and not field.many:
        raise Refused(f"--set {field.name} is given {len(texts)} times. Give it once.", USAGE)
    try:
        return field.convert(texts)
    except click.BadParameter as error:
        raise Refused(f"--set {field.name}: {error.message}", USAGE) from None


# prompts


def _value_field(question: Question) -> Field:
    schema = question.answer_schema
    schema = {"type": "string"} if schema is None else schema
    return Field("", schema, schema.get("$defs", {}), required=True)


def _ask_confirmation(out: Output, question: Question) -> dict[str, Any]:
    call = approval(question)
    folded = call if call is not None and call.is_folded else None
    while True:
        reply = _read_text("Approve? [y/n, v shows all] " if folded else "Approve? [y/n] ").casefold()
        if reply in ("y", "yes"):
            return confirmation(True)
        if reply in ("n", "no"):
            return confirmation(False, _read_text("Reason (optional): "))
        if reply == "v" and folded is not None:
            _show_approval(out, folded, whole=True)
        else:
            click.echo(f"Type y or n. {LEAVE}.")


def confirmed(question: str, err: bool = False, default: bool = True) -> bool:
    """Ask yes or no; an empty line means ``default``. Ctrl+D raises `click.Abort`. ``err``: write to stderr."""
    while True:
        try:
            said = _read_text(f"{question} [{'Y/n' if default else 'y/N'}]: ", err).casefold()
        except Later:
            raise click.Abort from None
        if said in ("", "y", "yes", "n", "no"):
            return default if not said else said in ("y", "yes")
        click.echo("Type y or n.", err=err)


def _ask_value(field: Field, default: Any) -> Any:
    if isinstance(field.type, OneOf) and not field.many:
        for number, name in enumerate(field.type.values, 1):
            click.echo(f"  {number}  {one_line(name)}")
    shown = "" if default is None else f" [{one_line(_as_text(default))}]"
    while True:
        text = _read_text(f"Answer{_hint(field)}{shown}: ")
        if not text and default is not None:
            return default
        if not text:
            click.echo(f"Type an answer. {LEAVE}.")
            continue
        try:
            return _read(field, text)
        except click.BadParameter as error:
            click.echo(error.message)


def _ask_parts(fields: dict[str, Field], needs_some: bool) -> dict[str, Any]:
    """Ask for each part of an answer. An empty line skips an optional part."""
    while True:
        parts = {name: _ask_part(field) for name, field in fields.items()}
        found = {name: part[0] for name, part in parts.items() if part}
        if found or not needs_some:
            return found
        click.echo(f"Give at least one of them. {LEAVE}.")


def _ask_part(field: Field) -> tuple[Any] | None:
    about = f" ({one_line(field.help)})" if field.help else ""
    shown = "" if field.default is None else f" [{one_line(_as_text(field.default))}]"
    while True:
        text = _read_text(f"  {field.name}{about}{_hint(field)}{shown}: ")
        if not text and not field.required:
            return None
        if not text:
            click.echo(f"  {field.name} is required. {LEAVE}.")
            continue
        try:
            return (_read(field, text),)
        except click.BadParameter as error:
            click.echo(f"  {error.message}")


def _hint(field: Field) -> str:
    if field.metavar == "TEXT":
        return " (several: a, b)" if field.many else ""
    return f" ({field.metavar}, several: a, b)" if field.many else f" ({field.metavar})"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(field: Field, text: str) -> Any:
    """Return the typed text as a value. A choice may be given by its number, unless the choices are numbers."""
    if field.many:
        given = json.loads(text) if _is_list(text) else [part.strip() for part in text.split(",")]
        return [field.type.convert(each, None, None) for each in given]
    if isinstance(field.type, OneOf):
        text = _chosen(list(field.type.values), text)
    return field.type.convert(text, None, None)


def _chosen(names: list[str], text: str) -> str:
    """Return the choice that the text names, by its name or its number.

    >>> _chosen(["formal", "playful"], "2"), _chosen(["formal", "playful"], "Formal"), _chosen(["3", "2"], "2")
    ('playful', 'formal', '2')
    """
    alike = [name for name in names if name.casefold() == text.casefold()]
    if not alike and text.isdecimal() and 0 < int(text) <= len(names):
        return names[int(text) - 1]
    return alike[0] if alike else text


def _is_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False


def _read_text(label: str, err: bool = False) -> str:
    """Ask for a line of text."""
    while True:
        click.echo(label, nl=False, err=err)
        try:
            line = _read_line()
            if not line:
                click.echo(err=err)
                raise Later
            return line.decode(sys.stdin.encoding).strip()
        except KeyboardInterrupt:
            click.echo(err=err)
            raise
        except UnicodeDecodeError:
            click.echo("The input is not UTF-8. Type it again.", err=err)


def _read_line() -> bytes:
    """Read a line from the terminal; empty at the end of the input.

    It also waits for signals, because Python handles a signal that arrives just before a read only after the read.
    """
    signalled, signals = os.pipe()
    os.set_blocking(signals, False)
    former = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    try:
        while True:
            ready, _, _ = select.select([sys.stdin, signalled], [], [])
            if sys.stdin in ready:
                return os.read(sys.stdin.fileno(), LONGEST)
            os.read(signalled, LONGEST)  # the signal's handler has run and did not end the program
    finally:
        signal.set_wakeup_fd(former)
        os.close(signalled)
        os.close(signals)
