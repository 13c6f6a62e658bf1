"""docs/cli.md says what the commands say of themselves, and the schema has everything that they print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator, ValidationError

from holdfast.cli import failing
from holdfast.cli.app import COMMANDS, SECTIONS, app
from tests.cli import documents
from tests.cli.kit import run
from tests.docs.pages import code, rows, section
from tools.cli_reference import PAGE, render

NO_JSON = {"demo", "completion"}
"""What they print is for a terminal or a shell."""


def options_of(name: str) -> set[str]:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return {option for param in command.params for option in param.opts}


def test_the_page_is_what_the_commands_say_of_themselves() -> None:
    page = PAGE.read_text("utf-8")
    assert render(page) == page, "docs/cli.md is not up to date; run: python -m tools.cli_reference"


def test_a_page_without_a_place_for_the_generated_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the commands"):
        render("# Something else")


def test_every_command_is_there_with_help_and_the_table_says_what_it_does() -> None:
    context = click.Context(app)
    for table in SECTIONS.values():
        for name, (_, short) in table.items():
            command = app.get_command(context, name)
            assert command is not None, name
            assert command.help, f"{name} has no help"
            assert short.endswith("."), name


def test_every_command_has_a_json_form_and_the_schema_has_it() -> None:
    with_json = {name for name in COMMANDS if "--json" in options_of(name)}
    assert with_json == COMMANDS.keys() - NO_JSON
    assert documents.SCHEMA["commands"].keys() == with_json
    for name, forms in documents.SCHEMA["commands"].items():
        assert ("jsonl" in forms) == ("--jsonl" in options_of(name)), name
        for form, schema in forms.items():
            Draft202012Validator.check_schema(schema)
            documents.validator(name, form)
    Draft202012Validator.check_schema({"$defs": documents.SCHEMA["$defs"]})


def test_every_shape_of_the_schema_is_used_and_described() -> None:
    text = str(documents.SCHEMA)
    for name, shape in documents.SCHEMA["$defs"].items():
        assert shape["description"].endswith("."), name
        assert f"#/$defs/{name}'" in text or name == "error", f"nobody prints {name}"


def test_a_document_with_a_name_too_many_or_too_few_does_not_pass() -> None:
    right = '{"session_id": "a", "checkpoints": []}'
    documents.check("checkpoints", right)
    for wrong in ('{"session_id": "a"}', '{"session_id": "a", "checkpoints": [], "more": 1}', '{"session_id": 1}'):
        with pytest.raises(ValidationError):
            documents.check("checkpoints", wrong)
    Draft202012Validator(
        {"$defs": documents.SCHEMA["$defs"], **documents.SCHEMA["commands"]["checkpoints"]["json"]}
    ).validate({"session_id": "a", "checkpoints": [], "more": 1})  # readers ignore what they do not know


def test_the_exit_codes_of_the_page_are_those_of_the_program() -> None:
    listed = {int(number) for number, _ in rows(section(PAGE, "Exit codes"))}
    assert listed == {
        failing.DONE, failing.FAILED, failing.USAGE, failing.PERSON, failing.NOT_FOUND, failing.CONFLICT,
        failing.DECISION, failing.INTERRUPTED, failing.TERMINATED,
    }  # fmt: skip


def test_the_page_lists_every_variable_that_is_looked_at() -> None:
    listed = {name for cell, _ in rows(section(PAGE, "Settings")) for name in code(cell)}
    source = "".join(path.read_text("utf-8") for path in sorted(Path(failing.__file__).parent.glob("*.py")))
    used = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", source))
    assert used | {"HOLDFAST_STORE", "COLUMNS"} == listed


def test_an_error_is_one_line_for_people_and_one_object_for_programs(tmp_path: Path) -> None:
    told = run("show", "nobody", cwd=tmp_path)
    assert (told.code, told.stdout, told.stderr.count("\n")) == (4, "", 1)
    asked = run("show", "nobody", "--json", cwd=tmp_path)
    schema = {"$defs": documents.SCHEMA["$defs"], "$ref": "#/$defs/error"}
    found = json.loads(asked.stderr)
    Draft202012Validator(schema).validate(found)
    assert (asked.code, asked.stdout, found["exit_code"]) == (4, "", 4)


def test_a_command_that_does_not_exist_gets_the_nearest_one(tmp_path: Path) -> None:
    done = run("verfy", cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert "did you mean 'verify'" in done.stderr
