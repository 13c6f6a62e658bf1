"""Verbs of a program's own: what they get, what becomes of what they return, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel

from pausepoint import Context, Workflow, program, step
from pausepoint.engine import BlockingEngine
from pausepoint.errors import DefinitionError, UnknownSession


class Note(BaseModel):
    word: str = "ahoy"
    said: str = ""


@step(writes="said")
async def say(word: str, ctx: Context) -> str:
    return word.upper()


class Shown(BaseModel):
    word: str
    said: str


note = Workflow("note", state=Note, steps=[say])
main = program(note)


@main.verb()
@click.argument("session")
@click.option("--loud", is_flag=True)
def tell(engine: BlockingEngine, session: str, loud: bool) -> tuple[str, Shown]:
    """Say what was said."""
    state = engine.session(engine.find(session).session_id).state()
    assert isinstance(state, Note)
    return f"{state.said}{'!' if loud else ''}", Shown(word=state.word, said=state.said)


@main.verb("say-it")
@click.argument("session")
@click.argument("word")
def change_word(engine: BlockingEngine, session: str, word: str) -> Any:
    """Say something else."""
    if word == "nothing":
        raise ValueError("WORD: nothing cannot be said")
    if word == "file":
        raise FileNotFoundError(2, "No such file or directory", "word.txt")
    if word == "model":
        Shown.model_validate({"word": 1})
    engine.session(session).rewind("say", word=word)
    click.echo(f"now {word}")
    return engine.session(session)


def called(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[Any, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(args))
    return end.value.code, *capsys.readouterr()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAUSEPOINT_STORE", raising=False)
    return tmp_path


def test_a_verb_prints_its_text_or_with_json_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "--session-id", "n1")[0] == 0
    assert called(capsys, "tell", "n1") == (0, "AHOY\n", "")
    assert called(capsys, "tell", "n", "--loud") == (0, "AHOY!\n", "")
    code, out, _ = called(capsys, "tell", "n1", "--json")
    assert (code, json.loads(out)) == (0, {"word": "ahoy", "said": "AHOY"})


def test_a_session_that_is_returned_goes_on_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    called(capsys, "--session-id", "n1")
    code, out, _ = called(capsys, "say-it", "n1", "hello")
    assert code == 0
    assert out.startswith("now hello\n")
    assert "Session n1 of note completed" in out
    assert called(capsys, "tell", "n1")[1] == "HELLO\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("nothing", "note: WORD: nothing cannot be said\n"),
        ("file", "note: word.txt: No such file or directory\n"),
        ("model", "note: word: Input should be a valid string; said: Field required\n"),
    ],
)
def test_a_refusal_is_one_line_and_the_code_2(capsys: pytest.CaptureFixture[str], word: str, said: str) -> None:
    called(capsys, "--session-id", "n1")
    assert called(capsys, "say-it", "n1", word) == (2, "", said)
    assert called(capsys, "tell", "n1")[1] == "AHOY\n"


def test_an_error_of_pausepoint_has_its_own_code_and_without_a_store_none_is_made(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    code, _, err = called(capsys, "tell", "n1")
    assert (code, "There is no store at" in err) == (4, True)
    assert list(here.iterdir()) == []
    called(capsys, "--session-id", "n1", "--store", "other.db")
    code, _, err = called(capsys, "tell", "n2", "--store", "other.db")
    assert (code, err.startswith("note: No session id begins with 'n2'.")) == (4, True)
    with pytest.raises(UnknownSession):
        main(["tell", "n2", "--store", "other.db"], standalone_mode=False)


def test_verbs_are_in_the_help_with_their_whole_line_and_have_the_common_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = called(capsys, "--help")
    assert "  tell    Say what was said.\n" in out
    _, out, _ = called(capsys, "tell", "--help")
    assert all(option in out for option in ("--store", "--json", "--loud"))


def test_a_command_that_would_never_be_reached_is_refused_when_the_program_is_made() -> None:
    made = program(note)

    def show(engine: BlockingEngine) -> Any: ...

    def tell_it(engine: BlockingEngine) -> Any: ...

    with pytest.raises(DefinitionError, match=r"Program 'note': the command name 'show' of show .* `pausepoint show`"):
        made.verb()(show)
    with pytest.raises(DefinitionError, match=r"'pause' of tell_it .* `pausepoint pause`"):
        made.command("pause")(tell_it)
    made.verb("tell")(show)
    with pytest.raises(DefinitionError, match=r"'tell' of tell_it is already used by show. Use another name."):
        made.verb("tell")(tell_it)
    made.verb("demo")(tell_it)  # of the commands of pausepoint, programs do not have this one
    assert sorted(made.commands) == ["demo", "tell"]


def test_what_takes_the_place_of_run_may_not_have_the_name_of_another_command() -> None:
    def answer() -> int:
        return 0

    with pytest.raises(DefinitionError, match=r"'answer' .* `pausepoint answer`"):
        program(note, instead=answer)


def test_a_program_without_a_command_of_pausepoint_may_have_its_own_of_that_name() -> None:
    made = program(note, without=["show"])

    @made.verb()
    def show(engine: BlockingEngine) -> Any:
        """Show it in another way."""

    found = made.get_command(click.Context(made), "show")
    assert found is not None
    assert (found.help, made.list_commands(click.Context(made)).count("show")) == ("Show it in another way.", 1)
    with pytest.raises(DefinitionError, match=r"without= names 'shwo', which is not a command .*Did you mean 'show'"):
        program(note, without=["shwo"])
