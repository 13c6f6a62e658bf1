"""A verb that changes a session takes its whole id; the beginning of an id is only for reading.

The tables below name every verb of the command line, of the five programs and of the server for models. A verb that
they do not name fails `test_every_verb_is_in_a_table`. The routes are in `tests/server/test_routes.py`.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.cli.app import COMMANDS, app
from pausepoint.cli.options import NAMING
from pausepoint.integrations.mcp_desk import Desk, Settings
from pausepoint.integrations.mcp_tools import TOOLS
from tests.cli.kit import run

NAME, BEGINNING = "autumn-b", "autumn"

CHANGING: dict[str, list[str]] = {
    "resume": [], "answer": ["yes"], "pause": [], "cancel": [], "send": ["hello"], "edit": ["--set", "topic=x"],
    "ask-again": [], "rewind": ["--to", "plan"], "forget": ["look"], "fork": [],
    "redact": ["--seq", "1"], "artifacts adopt": [], "artifacts restore": [],
}  # fmt: skip
READING: dict[str, list[str]] = {
    "show": [], "watch": [], "events": [], "plan": [], "why": [], "checkpoints": [], "diff": [], "inbox": [],
    "export": ["-"], "verify": [], "artifacts ls": [], "artifacts verify": [],
}  # fmt: skip
WITHOUT_SESSION = {
    "init", "skill", "demo", "run", "worker", "dev", "schedule", "serve", "notify", "mcp", "mirror", "ls", "status",
    "workflows", "limit", "gate", "doctor", "gc", "import", "move", "completion",
}  # fmt: skip

PROGRAMS: dict[str, tuple[dict[str, list[str]], dict[str, list[str]], set[str]]] = {
    "aura": ({}, {}, {"sign-in"}),
    "helpdesk": ({"operator": ["--take-over"]}, {}, {"chat", "link"}),  # a chat begins if there is none with this id
    "planner": (
        {
            "course": ["calc"], "file": ["notes.md"], "replan": [], "done": [], "skip": ["row-1"],
            "estimate": ["limits", "30"], "pace": ["1.5"], "partial": ["notes.md", "--warning", "half"], "retry": [],
            "remove": ["notes.md"], "replace": ["notes.md", "other.md"],
            "end": [], "link": [],
        },
        {"progress": [], "document": [], "plans": [], "save": ["out"], "open": []},
        {"create"},
    ),
    "memo": ({}, {}, {"write"}),  # a memo is named by its company and its version folder
    "devs": (
        {"run": [], "resume": [], "pause": [], "skip": ["build"], "rewind": ["--all"]},
        {"status": [], "logs": []},
        set(),
    ),
}  # fmt: skip
"""Program → its own verbs: those that change a session, those that only read one, and those that name none."""

TOOLS_WITH_ID = {"show_session", "events", "plan", "open_questions", "pause_session", "resume_session", "send"}


OWN_PROGRAM = """
import click
from pausepoint import Context, program, workflow
from pausepoint.engine import BlockingEngine

@workflow
async def approval(topic: str, ctx: Context) -> str:
    return topic

main = program(approval)

@main.verb()
@click.argument("chat")
def stop(engine: BlockingEngine, chat: str) -> str:
    return str(engine.session(engine.find(chat, exact=True).session_id).cancel())

main()
"""


@workflow
async def approval(topic: str, ctx: Context) -> str:
    return str(await ctx.ask(f"Plan the {topic}?", choices=["yes", "no"]))


def make_store(folder: Path, *names: str) -> Path:
    """Make a store with sessions that wait for an answer."""

    async def make() -> None:
        async with Engine(folder / "s.db") as engine:
            for name in names:
                await (await engine.start(approval, session_id=name, topic="term")).outcome()

    asyncio.run(make())
    return folder / "s.db"


def stored(store: Path) -> list[Any]:
    """What must not change when a command is refused."""

    async def read() -> list[Any]:
        async with Engine(store, create=False, drives="none") as engine:
            infos = sorted(await engine.sessions(), key=lambda info: info.session_id)
            return [(info, [event async for event in engine.session(info.session_id).events()]) for info in infos]

    return asyncio.run(read())


def program_verbs(name: str) -> dict[str, click.Command]:
    main = import_module(f"pausepoint.apps.{name}.__main__").main
    return dict(main.commands)


def names_a_session(command: click.Command) -> bool:
    return bool((NAMING | {"sessions"}) & {param.name for param in command.params})


def test_every_verb_is_in_a_table() -> None:
    named = {verb.split()[0] for verb in (*CHANGING, *READING)}
    assert named | WITHOUT_SESSION == set(COMMANDS)
    context = click.Context(app)
    commands = {name: app.get_command(context, name) for name in COMMANDS}
    assert {name for name, command in commands.items() if command and names_a_session(command)} == named
    for program, (changing, reading, without) in PROGRAMS.items():
        assert {*changing, *reading, *without} == set(program_verbs(program)), program
    assert {name for name, tool in TOOLS.items() if "session_id" in tool.schema["properties"]} == TOOLS_WITH_ID


@pytest.mark.long
@pytest.mark.parametrize("verb", CHANGING)
def test_the_beginning_of_an_id_changes_no_session(tmp_path: Path, verb: str) -> None:
    store = make_store(tmp_path, NAME)
    before = stored(store)
    done = run(*verb.split(), BEGINNING, *CHANGING[verb], "--store", store, cwd=tmp_path)
    assert done.code == 4, done
    assert f"There is no {BEGINNING!r}" in done.stderr
    assert stored(store) == before
    if verb != "answer":
        typed = f"pausepoint {verb} {NAME} {' '.join(CHANGING[verb])}".strip()
        assert f"Then type:  {typed} --store" in done.stderr.replace("python -m ", "")


@pytest.mark.long
@pytest.mark.parametrize("verb", READING)
def test_the_beginning_of_an_id_is_enough_to_read(tmp_path: Path, verb: str) -> None:
    store = make_store(tmp_path, NAME)
    done = run(*verb.split(), BEGINNING, *READING[verb], "--store", store, cwd=tmp_path)
    assert done.code != 4, done
    assert "There is no" not in done.stderr


OWN = [(program, verb, words) for program, (changing, _, _) in PROGRAMS.items() for verb, words in changing.items()]


@pytest.mark.long
@pytest.mark.parametrize(("program", "verb", "words"), OWN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_program_changes_no_session_by_the_beginning_of_an_id(
    tmp_path: Path, program: str, verb: str, words: list[str]
) -> None:
    store = make_store(tmp_path, NAME)
    (tmp_path / "notes.md").write_text("# Limits\n")
    before = stored(store)
    done = run(verb, BEGINNING, *words, "--store", store, cwd=tmp_path, program=("-m", f"pausepoint.apps.{program}"))
    assert (done.code, stored(store)) == (4, before), done
    if program != "helpdesk":  # it takes whole ids only, and knows no beginnings
        assert f"{verb} {NAME}" in done.stderr


def test_tools_for_models_change_no_session_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    store = make_store(tmp_path, NAME)
    before = stored(store)
    desk = Desk(Settings(lambda: Engine(store, create=False, drives="none"), allow="act"))

    async def call(name: str) -> str:
        needed = {"message": "hello"} if "message" in TOOLS[name].schema["properties"] else {}
        try:
            await desk.call(name, desk.arguments(name, {"session_id": BEGINNING, **needed}), "test")
        except Exception as error:
            return str(error)
        return "done"

    for name in sorted(TOOLS_WITH_ID):
        answer = asyncio.run(call(name))
        if TOOLS[name].is_look:
            assert "has no session" not in answer, name
        else:
            assert f"Did you mean {NAME!r}?" in answer, name
    assert stored(store) == before


@pytest.mark.parametrize(
    ("reply", "code", "status"), [("y\n", 0, "cancelled"), ("n\n", 4, "waiting"), ("\n", 4, "waiting")]
)
def test_at_a_terminal_the_beginning_of_an_id_becomes_a_question(
    tmp_path: Path, reply: str, code: int, status: str
) -> None:
    store = make_store(tmp_path, NAME, "winter")
    done = run("cancel", BEGINNING, "winter", "--store", store, cwd=tmp_path, tty=True, typed=reply)
    assert f"Did you mean {NAME}?" in " ".join(done.stdout.split())
    assert done.code == code, done
    assert [info.status.value for info, _ in stored(store)] == [status, status], "all or none"


def test_a_verb_of_a_program_that_names_its_argument_otherwise_is_refused_and_asks_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path, NAME)
    (tmp_path / "own.py").write_text(OWN_PROGRAM)
    before = stored(store)
    done = run("stop", BEGINNING, "--store", store, cwd=tmp_path, tty=True, program=("own.py",))
    assert (done.code, stored(store)) == (4, before), done
    assert f"stop {NAME}" in " ".join(done.stdout.split())


@pytest.mark.long
def test_an_answer_on_the_command_line_names_its_question_whole(tmp_path: Path) -> None:
    store = make_store(tmp_path, NAME)
    question = run("inbox", "--json", "--store", store, cwd=tmp_path).stdout.partition('"id": "')[2].partition('"')[0]
    assert run("answer", question[:6], "yes", "--store", store, cwd=tmp_path).code == 4
    assert run("answer", question[:6], "--store", store, cwd=tmp_path, tty=True, typed="yes\n").code == 0


@pytest.mark.long
def test_a_removed_session_is_not_mistaken_for_one_whose_id_begins_alike(tmp_path: Path) -> None:
    store = make_store(tmp_path, "sc", "sc2")

    async def remove() -> None:
        async with Engine(store, drives="none") as engine:
            await engine.session("sc").remove()

    asyncio.run(remove())
    before = stored(store)
    for words in (["cancel", "sc"], ["show", "sc"], ["edit", "sc", "--set", "topic=x"]):
        done = run(*words, "--store", store, cwd=tmp_path)
        assert (done.code, "'sc' (approval) was removed" in done.stderr) == (4, True), done
    done = run("end", "sc", "--store", store, cwd=tmp_path, program=("-m", "pausepoint.apps.planner"))
    assert (done.code, "Session 'sc' was removed" in done.stderr) == (4, True), done
    assert stored(store) == before
