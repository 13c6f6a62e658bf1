"""docs/cli.md says what the commands say of themselves, and the schema has everything that they print."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator, ValidationError

from pausepoint.cli import exits as failing
from pausepoint.cli.app import COMMANDS, SECTIONS, app
from tests.cli import captures, documents
from tests.cli.kit import plain, run
from tests.cli.zoo import fill, here
from tests.docs.pages import code, rows, section
from tools.cli_reference import PAGE, render

NO_JSON = {"demo", "completion"}
ENDLESS = {"dev"}
"""Commands that do not end by themselves. Their own tests check what they print."""
"""What they print is for a terminal or a shell."""


def options_of(name: str) -> set[str]:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    below = list(command.commands.values()) if isinstance(command, click.Group) else []
    return {option for each in (command, *below) for param in each.params for option in param.opts}


def test_the_page_is_what_the_commands_say_of_themselves() -> None:
    page = PAGE.read_text("utf-8")
    assert render(page) == page, "docs/cli.md is not up to date; run: python -m tools.cli_reference"


@pytest.mark.long
def test_the_page_shows_what_a_terminal_shows(tmp_path: Path) -> None:
    shown = captures.printed(PAGE.read_text("utf-8"))
    seen = captures.made(tmp_path / "briefs")
    assert shown.keys() == seen.keys()
    for command, text in shown.items():
        again = "python -m tests.cli.captures FOLDER"
        assert captures.alike(text) == captures.alike(seen[command]), f"docs/cli.md is not up to date; run: {again}"
        assert all(len(line) <= 80 for line in text.splitlines()), command


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


@pytest.mark.long
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


@pytest.mark.long
def test_the_schema_can_be_printed() -> None:
    done = subprocess.run([sys.executable, "-m", "pausepoint.cli.schema"], capture_output=True, check=True)
    assert json.loads(done.stdout) == documents.SCHEMA


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
        failing.DECISION, failing.TRY_LATER, failing.INTERRUPTED, failing.TERMINATED,
    }  # fmt: skip


OTHERS = {"PAUSEPOINT_STORE", "PAUSEPOINT_TARGET", "PAUSEPOINT_NOTIFY_URLS", "PAUSEPOINT_TRACEBACK", "COLUMNS"}
"""The variables that other code than that of the command line looks at, or that it looks at by another name."""


def test_the_page_lists_every_variable_that_is_looked_at() -> None:
    listed = {name for cell, _ in rows(section(PAGE, "Settings")) for name in code(cell)}
    source = "".join(path.read_text("utf-8") for path in sorted(Path(failing.__file__).parent.rglob("*.py")))
    used = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", source))
    assert used | OTHERS == listed


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
    assert "Did you mean 'verify'" in done.stderr


CALLS: dict[str, str] = {
    "init": "", "skill": "", "run": "brief --topic octopus", "resume": "student", "send": "WAITING hello",
    "worker": "--once",
    "ls": "", "show": "FAILED", "status": "", "watch": "FAILED --history", "events": "FAILED", "plan": "FAILED",
    "inbox": "", "notify": "json://127.0.0.1:1 --once", "answer": "ASKED formal",
    "mirror": "firestore --project none --once", "mcp": "--tools",
    "why": "FAILED write", "checkpoints": "FAILED", "diff": "FAILED research", "pause": "FAILED --reason lunch",
    "cancel": "spare", "edit": "student --set score=3", "rewind": "student --to research",
    "ask-again": "DECLINED",
    "fork": "FAILED --at-step write --set topic=ok", "verify": "", "doctor": "", "gc": "",
    "export": "FAILED file.jsonl", "import": "file.jsonl --session-id copy", "artifacts": "ls FAILED",
    "move": ".pausepoint/pausepoint.db new.db --dry-run", "redact": "copy --seq 2", "workflows": "",
    "serve": "token list", "gate": "install claude --dry-run", "schedule": "ls", "limit": "ls",
    "forget": "WAITING look_up",
}  # fmt: skip
"""A call of every command that has --json and ends, in an order in which each has something to do."""


@pytest.mark.long
def test_every_command_prints_the_document_that_the_schema_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")  # so that no request leaves the machine
    ids = fill(tmp_path, "fail", "wait", "ask", "no", student="lunch", spare="never mind")
    assert CALLS.keys() == COMMANDS.keys() - NO_JSON - ENDLESS
    for name, args in CALLS.items():
        for word, topic in (("FAILED", "fail"), ("WAITING", "wait"), ("ASKED", "ask"), ("DECLINED", "no")):
            args = args.replace(word, ids[topic])
        words = args.split()
        for form in ("jsonl", "json"):
            if form == "json" or f"--{form}" in options_of(name):
                done = here(tmp_path, name, *words, f"--{form}")
                assert done.code in (0, 1, 3), (name, done)
                assert done.stdout, (name, form)
                documents.check(name, done.stdout, form)


# in words


@pytest.mark.long
def test_a_mistake_in_the_options_is_one_line_with_the_nearest_name_and_where_to_read_on(zoo: Path) -> None:
    fields = "See `pausepoint run brief.py:brief --help`."
    for words, said in {
        "gc --aply": "There is no option --aply. Did you mean '--apply'? See `pausepoint gc --help`.",
        "run brief --topc x": f"There is no option --topc. Did you mean '--topic'? {fields}",
        "ls --sort ages": "--sort: 'ages' is not one of updated, created, status, workflow, spent, id."
        " See `pausepoint ls --help`.",
        "ls --sort ids": "--sort: 'ids' is not one of updated, created, status, workflow, spent, id. Did you mean 'id'?"
        " See `pausepoint ls --help`.",
        "ls --limit abc": "--limit: 'abc' is not accepted. Give a whole number, 0 or more. See `pausepoint ls --help`.",
        "events s --last 0": "--last: '0' is not accepted. Give a whole number, 1 or more."
        " See `pausepoint events --help`.",
        "completion fishy": "'fishy' is not one of bash, zsh, fish. Did you mean 'fish'?"
        " See `pausepoint completion --help`.",
        "ls --limit": "The option --limit needs a value.",
        "ls one two": "There are too many arguments. Remove: one two. See `pausepoint ls --help`.",
        "show": "The argument SESSION[@CHECKPOINT] is missing. See `pausepoint show --help`.",
        "rewind student": "Name one place: a visit with --to STEP, or an operation with --to-operation NAME.",
        "forget student": "The argument NAME[#N]|NUMBER|ID is missing. See `pausepoint forget --help`.",
        "run brief --topic x --budget much": "--budget: 'much' is not a budget."
        f" Write dollars, such as 2.50, or limits, such as usd=2.50,tokens=20000,operations=100. {fields}",
        "run breif": "'breif' is not a file or a workflow of this project. Did you mean 'brief'?",
        "run brif.py": "There is no file brif.py. Did you mean 'brief.py'?",
        "show studnet": "There is no session 'studnet' in this store. Did you mean 'student'?",
    }.items():
        done = run(*words.split(), cwd=zoo)
        assert (done.code, done.stdout, done.stderr) == (4 if "studnet" in words else 2, "", f"pausepoint: {said}\n")


def test_sentences_are_wrapped_between_words_on_a_terminal_and_commands_stay_whole(zoo: Path) -> None:
    code, out, _ = run("show", "long", cwd=zoo, tty=True, size=(60, 24))
    lines = plain(out).splitlines()
    assert code == 0
    first = next(index for index, line in enumerate(lines) if line.startswith("Paused by bob: "))
    assert lines[first] + " " + lines[first + 1] == f"Paused by bob: {LONG}"
    command = run("run", "brief", "--topic", "squid", cwd=zoo, tty=True, size=(40, 24), typed="n\n")
    assert "has the same\r\ninput" in command.stdout
    narrow = run("rewind", "student", "--to", "nowhere", cwd=zoo, tty=True, size=(50, 24))
    assert max(map(len, plain(narrow.stdout).splitlines())) <= 50
    piped = run("show", "long", cwd=zoo)
    assert f"Paused by bob: {LONG}" in piped.stdout.splitlines()


LONG = "the question is whether anybody has asked the harbour master"


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    fill(folder, student="lunch", long=LONG)
    return folder


def test_without_a_command_the_help_is_printed_as_it_is(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: pausepoint [OPTIONS] COMMAND")
    assert done.stderr.rstrip().endswith("Print the completion script for a shell.")
