"""``program(instead=…)``: a function of the program's own in place of ``run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Workflow, program, step
from pausepoint.cli import Start
from pausepoint.cli.exits import Refused
from pausepoint.errors import DefinitionError, UnknownSession


class Note(BaseModel):
    text: str = ""


@step(writes="text")
def say(text: str) -> str:
    return text


@step(writes="text")
async def ask(ctx: Context) -> str:
    return await ctx.ask("What?")


NOTE = Workflow("note", state=Note, steps=[say])
ASK = Workflow("ask", state=Note, steps=[ask])
ECHO = {"told": ""}


def echo(
    start: Start, words: Annotated[list[str] | None, Field(description="What to say.")] = None, count: int = 1
) -> tuple[int, Any]:
    """Say something."""
    if count < 1:
        raise ValueError("--count: at least one")
    if count == 404:
        raise FileNotFoundError(2, "No such file", "gone.txt")
    ECHO["told"] = start.command("resume", "s1")
    return 3, {"words": (words or []) * count, "folder": str(start.folder)}


def test_it_is_what_happens_without_a_command_and_run_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main = program(NOTE, instead=echo, help="Says things.")
    assert main(["--words", "a", "--words", "b", "--count", "2", "--json"], standalone_mode=False) == 3
    assert json.loads(capsys.readouterr().out) == {
        "words": ["a", "b", "a", "b"],
        "folder": str(tmp_path / ".pausepoint"),
    }
    assert main(["echo", "--words", "a"], standalone_mode=False) == 3
    assert capsys.readouterr().out == ""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "Says things." in shown
    assert "--words TEXT" in shown
    assert "resume" in shown
    assert "\n  run " not in shown


def test_the_commands_that_it_prints_name_the_store_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main = program(NOTE, instead=echo)
    main([], standalone_mode=False)
    assert ECHO["told"].endswith(" resume s1")
    main(["--store", "x y.db"], standalone_mode=False)
    assert ECHO["told"].endswith(" resume s1 --store 'x y.db'")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--count", "0"], "--count: at least one"),
        (["--count", "404"], "gone.txt: No such file"),
        (["run"], "There is no command 'run'"),
    ],
)
def test_what_it_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((Refused, Exception), match=said) as caught:
        program(NOTE, instead=echo)(args, standalone_mode=False)
    assert getattr(caught.value, "exit_code", None) == 2


def test_options_can_be_given_by_their_place_and_have_names_that_python_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[object] = []

    def copy(title: str, from_: int = 0, type_: str = "plain") -> int:
        """Copy it."""
        told.append((title, from_, type_))
        return 0

    main = program(NOTE, instead=copy, arguments=["title"])
    assert main(["A note", "--from", "3", "--type", "odd"], standalone_mode=False) == 0
    assert told == [("A note", 3, "odd")]
    with pytest.raises(Exception, match="Missing input: TITLE"):
        main([], standalone_mode=False)
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "TITLE" in shown
    assert "--from INTEGER" in shown
    with pytest.raises(DefinitionError, match=r"no option 'titel' for arguments=\. Did you mean 'title'"):
        program(NOTE, instead=copy, arguments=["titel"])


def test_what_is_for_run_does_not_go_with_it() -> None:
    with pytest.raises(DefinitionError, match="Program 'note' has instead=, which replaces run"):
        program(NOTE, instead=echo, result=lambda outcome: "")
    with pytest.raises(DefinitionError, match="Program 'note': parameter 'words' of instead has no type"):
        program(NOTE, instead=lambda words: 0)


def test_a_program_that_makes_its_own_workflows_needs_a_name_and_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    others = ["resume", "worker", "serve", "notify", "schedule", "mirror", "mcp"]
    main = program(instead=echo, name="crew", without=others)

    @main.verb()
    @click.argument("session")
    def resume(start: Start, session: str) -> tuple[int, Any]:
        """Go on in its own way."""
        if session == "nobody":
            raise UnknownSession("no session 'nobody'", session_id="nobody")
        return 3, {"command": start.command("resume", session)}

    assert main(["--words", "a"], standalone_mode=False) == 3
    with Engine(tmp_path / ".pausepoint" / "pausepoint.db") as engine:
        for id in ("s1", "s2"):
            engine.start(ASK, session_id=id).outcome()
    assert main(["resume", "s1", "--json"], standalone_mode=False) == 3
    assert json.loads(capsys.readouterr().out)["command"].endswith(" resume s1")
    with pytest.raises(UnknownSession):
        main(["resume", "nobody"], standalone_mode=False)
    assert main(["answer", "s1", "yes"], standalone_mode=False) == 0
    assert "pausepoint resume" not in capsys.readouterr().err
    assert main(["answer", "s2", "yes", "--run", "--json"], standalone_mode=False) == 3, "its own resume went on"
    assert json.loads(capsys.readouterr().out)["command"].endswith(" resume s2")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "\nRun:" not in capsys.readouterr().out, "a section without commands is left out"


def test_a_program_without_workflow_name_or_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match="Pass a workflow, or name= and instead="):
        program(name="crew")
    with pytest.raises(DefinitionError, match="Pass a workflow, or name= and instead="):
        program(instead=echo)
