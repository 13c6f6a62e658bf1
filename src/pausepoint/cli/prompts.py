"""Questions at a terminal: what is asked, and prompts that follow the JSON schema of the answer.

What is typed is looked at here already, so that a slip of the finger uses up no round. Ctrl+D leaves a question open,
Ctrl+C the program.
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
from pausepoint.cli.text import left, one_line
from pausepoint.errors import did_you_mean

if TYPE_CHECKING:
    from pausepoint.cli.console import Output
    from pausepoint.model.questions import Question

LEAVE = "Ctrl+D leaves the question open"
LONGEST = 4096
"""Bytes of a line, as terminals have it."""


class Later(Exception):
    """Somebody leaves a question open."""


def at_terminal(out: Output) -> bool:
    """Whether somebody is there who could be asked."""
    return out.for_people and out.terminal and sys.stdin.isatty()


def prompted(out: Output, question: Question) -> Any:
    """Put a question to a person; the answer as plain data."""
    put(out, question)
    out.say(out.paint(f"{LEAVE}.", dim=True))
    if question.kind == "confirm":
        return _decided()
    fields = fields_of(question)
    if fields is None:
        return _single(_whole(question), question.default)
    return _object(fields, needs_some=question.kind == "collect")


def put(out: Output, question: Question) -> None:
    """Show what is asked, and what is known of it."""
    out.line()
    for line in question.next_question.splitlines() or [""]:
        out.say(out.paint(one_line(line), bold=True))
    if question.complaint:
        out.say(out.paint(one_line(f"Asked again: {question.complaint}"), "yellow"))
    asker = f"{question.llm_node_id} of {question.asked_in} ({question.workflow_id})"
    rounds = f"round {question.current_round} of {question.max_rounds}" if question.current_round > 1 else ""
    out.say(out.paint("; ".join(filter(None, (asker, rounds, left(question)))), dim=True))
    if question.collected_params_json not in (None, "{}"):
        out.say(out.paint(one_line(f"So far: {question.collected_params_json}"), dim=True))


def decision(approved: bool, reason: str = "") -> dict[str, Any]:
    """The answer to a confirmation."""
    return {"approved": approved} | ({"reason": reason} if reason else {})


def fields_of(question: Question) -> dict[str, Field] | None:
    """The parts of an answer that has some, without those that were collected before; None if it is one value."""
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
    """The answer that ``--set NAME=VALUE`` gives. Also what was collected before may be set anew."""
    schema = question.answer_schema or {}
    definitions = schema.get("$defs", {})
    known = resolved(schema, definitions).get("properties")
    if not known:
        raise Refused(f"question {question.id} asks for one value, not for parts of one: give it without --set", USAGE)
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise Refused(f"--set {pair!r}: write NAME=VALUE", USAGE)
        if name not in known:
            raise Refused(f"the answer has no {name!r}{did_you_mean(name, known)}", USAGE)
        texts.setdefault(name, []).append(text)
    fields = {name: Field(name, known[name], definitions, True) for name in texts}
    return {name: _converted(field, texts[name]) for name, field in fields.items()}


def _converted(field: Field, texts: list[str]) -> Any:
    if len(texts) > 1 and not field.many:
        raise Refused(f"--set {field.name} is given twice", USAGE)
    try:
        return field.convert(texts)
    except click.BadParameter as error:
        raise Refused(f"--set {field.name}: {error.message}", USAGE) from None


# one by one


def _whole(question: Question) -> Field:
    schema = question.answer_schema
    schema = {"type": "string"} if schema is None else schema
    return Field("", schema, schema.get("$defs", {}), required=True)


def _decided() -> dict[str, Any]:
    while True:
        said = _typed("Approve? [y/n] ").casefold()
        if said in ("y", "yes"):
            return decision(True)
        if said in ("n", "no"):
            return decision(False, _typed("Why? (may stay empty) "))
        click.echo(f"y or n, please; {LEAVE}")


def _single(field: Field, default: Any) -> Any:
    if isinstance(field.type, OneOf) and not field.many:
        for number, name in enumerate(field.type.values, 1):
            click.echo(f"  {number}  {one_line(name)}")
    shown = "" if default is None else f" [{one_line(_written(default))}]"
    while True:
        text = _typed(f"Answer{_hint(field)}{shown}: ")
        if not text and default is not None:
            return default
        if not text:
            click.echo(f"Nothing was typed; {LEAVE}")
            continue
        try:
            return _read(field, text)
        except click.BadParameter as error:
            click.echo(error.message)


def _object(fields: dict[str, Field], needs_some: bool) -> dict[str, Any]:
    """Each part on a line of its own. What may be missing is left out by an empty line."""
    while True:
        parts = {name: _part(field) for name, field in fields.items()}
        found = {name: part[0] for name, part in parts.items() if part}
        if found or not needs_some:
            return found
        click.echo(f"At least one of them is needed; {LEAVE}")


def _part(field: Field) -> tuple[Any] | None:
    about = f" ({one_line(field.help)})" if field.help else ""
    shown = "" if field.default is None else f" [{one_line(_written(field.default))}]"
    while True:
        text = _typed(f"  {field.name}{about}{_hint(field)}{shown}: ")
        if not text and not field.required:
            return None
        if not text:
            click.echo(f"  {field.name} is needed; {LEAVE}")
            continue
        try:
            return (_read(field, text),)
        except click.BadParameter as error:
            click.echo(f"  {error.message}")


def _hint(field: Field) -> str:
    if field.metavar == "TEXT":
        return " (several: a, b)" if field.many else ""
    return f" ({field.metavar}, several: a, b)" if field.many else f" ({field.metavar})"


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(field: Field, text: str) -> Any:
    """What was typed as a value. Choices are known by their number as well, unless they are numbers."""
    if field.many:
        given = json.loads(text) if _is_list(text) else [part.strip() for part in text.split(",")]
        return [field.type.convert(each, None, None) for each in given]
    if isinstance(field.type, OneOf):
        text = _chosen(list(field.type.values), text)
    return field.type.convert(text, None, None)


def _chosen(names: list[str], text: str) -> str:
    """
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


def _typed(label: str) -> str:
    """A line that somebody types."""
    while True:
        click.echo(label, nl=False)
        try:
            line = _line()
            if not line:
                click.echo()
                raise Later
            return line.decode(sys.stdin.encoding).strip()
        except KeyboardInterrupt:
            click.echo()
            raise
        except UnicodeDecodeError:
            click.echo("That could not be read: it is no UTF-8")


def _line() -> bytes:
    """A line from the terminal; empty at its end. Ctrl+C is waited for as well.

    Python would sleep over a signal that comes just before it begins to read, until something is typed.
    """
    signalled, signals = os.pipe()
    os.set_blocking(signals, False)
    former = signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    try:
        while True:
            ready, _, _ = select.select([sys.stdin, signalled], [], [])
            if sys.stdin in ready:
                return os.read(sys.stdin.fileno(), LONGEST)
            os.read(signalled, LONGEST)  # the signal's handler has run by now, and did not want to end this
    finally:
        signal.set_wakeup_fd(former)
        os.close(signalled)
        os.close(signals)
