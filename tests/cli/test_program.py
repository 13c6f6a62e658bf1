"""``pausepoint.program``: workflows as a program of their own, as people meet it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, Field

from pausepoint import Engine, Outcome, Workflow, program, step
from pausepoint.cli import Start
from pausepoint.cli.exits import Refused
from pausepoint.errors import DefinitionError
from tests.cli import documents
from tests.cli.desk import Desk, last_line
from tests.cli.kit import Done, Process, plain, run
from tests.docs.pages import DOCS, blocks
from tests.support.loop import PATIENCE

PAGE = DOCS / "programs.md"

LEAFLET = '''
from pathlib import Path
from typing import Annotated

from brief import Brief, brief
from pydantic import BaseModel, DirectoryPath, Field

from pausepoint import Engine, Outcome, Workflow, program, step


class Note(BaseModel):
    text: str
    shouted: str = ""


@step(writes="shouted")
def shout(text: str) -> str:
    return text.upper()


def begin(
    about: Annotated[str, Field(description="What it is about.")] = "otters",
    count: Annotated[int, Field(ge=1)] = 2,
    data: DirectoryPath | None = None,
) -> Brief:
    """What a session starts with."""
    if "/" in about:
        raise ValueError(f"--about: {about!r} is a path, not a subject")
    if data is not None:
        about = (data / "about.txt").read_text()
    return Brief(topic=about, count=count)


def told(outcome: Outcome[Brief]) -> str:
    return f"THE LEAFLET: {outcome.state.draft}"


main = program(
    brief, Workflow("note", state=Note, steps=[shout]), begin=begin, result=told, name="leaflet",
    help="Writes a leaflet.",
)

if __name__ == "__main__":
    main()
'''
OURS = ("-m", "leaflet")


class Word(BaseModel):
    word: str
    said: str = ""


@step(writes="said")
def say(word: str) -> str:
    return word


SPEECH = Workflow("speech", state=Word, steps=[say])


@pytest.fixture
def shop(desk: Desk) -> Desk:
    """A folder with a program in it."""
    (desk.root / "leaflet.py").write_text(LEAFLET)
    return desk


def ours(shop: Desk, *args: str, **how: Any) -> Done:
    return run(*args, cwd=shop.root, program=OURS, **how)


def pasted(command: str, shop: Desk) -> subprocess.CompletedProcess[str]:
    """What somebody gets who types that into their shell."""
    return subprocess.run(command, shell=True, cwd=shop.root, capture_output=True, text=True, timeout=PATIENCE)


def own_command(text: str) -> str:
    said, _, command = last_line(text).partition(":  ")
    assert said == "Resume", text
    assert command.startswith(f"{sys.executable} -m leaflet resume "), text
    return command


# running


def test_without_a_command_it_runs_and_prints_its_own_result(shop: Desk) -> None:
    done = ours(shop)
    assert done.code == 0, done
    assert "Finished step: review" in done.stdout
    assert last_line(done.stdout) == "THE LEAFLET: otters: fact about otters 0, fact about otters 1"
    assert [info.workflow for info in shop.sessions()] == ["brief"]


def test_the_options_are_those_of_begin(shop: Desk) -> None:
    done = ours(shop, "--about", "squid", "--count", "1")
    assert last_line(done.stdout) == "THE LEAFLET: squid: fact about squid 0"
    shown = ours(shop, "--help").stdout
    assert re.search(r"--about TEXT +What it is about\.  \[default: \"otters\"\]", shown)
    assert "--data PATH" in shown
    assert "--topic" not in shown
    assert "--target" not in shown
    assert "resume " in shown
    assert shown.startswith("Usage: ")
    assert "python -m leaflet [COMMAND] [note] [OPTIONS]" in " ".join(shown.split())


def test_json_is_the_document_of_run_and_nothing_else(shop: Desk) -> None:
    done = ours(shop, "--json")
    assert done.code == 0
    documents.check("run", done.stdout)
    assert "THE LEAFLET" not in done.stdout


def test_progress_is_drawn_on_a_terminal_and_the_result_comes_last(shop: Desk) -> None:
    shop.hold("write")
    with Process(cwd=shop.root, program=OURS, tty=True) as process:
        process.until("2 of 4 steps")
        shop.release("write")
        done = process.wait()
    assert done.code == 0
    text = plain(done.stdout)
    assert "█" in text
    assert last_line(text).startswith("THE LEAFLET: otters")


@pytest.mark.long
def test_ctrl_c_ends_with_the_programs_own_command_and_that_goes_on(shop: Desk) -> None:
    shop.hold("write")
    with Process(cwd=shop.root, program=OURS, tty=True) as process:
        process.until("2 of 4 steps")
        process.type("\x03")
        process.until("again aborts it")
        shop.release("write")
        done = process.wait()
    assert done.code == 130
    again = pasted(own_command(done.stdout), shop)
    assert again.returncode == 0, again
    assert last_line(again.stdout).startswith("THE LEAFLET: otters")
    assert shop.calls.count("plan") == shop.calls.count("write") == 1


@pytest.mark.long
def test_a_failed_step_ends_with_1_and_the_programs_own_command(shop: Desk) -> None:
    shop.breaks("review")
    done = ours(shop)
    assert done.code == 1
    shop.mend("review")
    assert pasted(own_command(done.stderr), shop).returncode == 0


@pytest.mark.long
def test_what_one_begins_pausepoint_goes_on_with_and_the_other_way_round(shop: Desk) -> None:
    shop.hold("write")
    with Process("--session-id", "mine", cwd=shop.root, program=OURS) as process:
        shop.reaches("write")
        process.signal(signal.SIGKILL)
        assert process.wait().code == -signal.SIGKILL
    shop.release("write")
    paused = run("resume", "mine", "--target", "leaflet:brief", "--pause-after", "write", cwd=shop.root)
    assert paused.code == 3, paused
    assert "pausepoint resume mine --target leaflet:brief" in paused.stderr
    done = ours(shop, "resume")
    assert done.code == 0, done
    assert last_line(done.stdout).startswith("THE LEAFLET")
    assert shop.calls.count("plan") == 1


@pytest.mark.long
def test_an_interrupted_session_of_the_same_input_is_offered(shop: Desk) -> None:
    shop.breaks("review")
    first = ours(shop)
    assert first.code == 1
    shop.mend("review")
    hinted = ours(shop, "--paused")
    assert f"Resume it instead:  {own_command(first.stderr)}" in hinted.stderr
    with Process(cwd=shop.root, program=OURS, tty=True) as process:
        process.until("Resume it?")
        process.type("y\n")
        done = process.wait()
    assert done.code == 0
    assert "THE LEAFLET: otters" in plain(done.stdout)


@pytest.mark.long
def test_detached_it_is_itself_that_runs_in_the_background(shop: Desk) -> None:
    shop.hold("review")
    done = ours(shop, "--detach", "--about", "eels", "--session-id", "eels")
    assert done.code == 0, done
    assert f"Watch:  {sys.executable} -m leaflet watch eels" in done.stderr
    with Process("watch", "eels", cwd=shop.root, program=OURS) as watching:
        shop.reaches("review")
        shop.release("review")
        assert watching.wait().code == 0
    log = (shop.store.parent / "logs" / "eels.log").read_text()
    assert "THE LEAFLET: eels" in log


def typed_on_the_page() -> list[tuple[str, list[str]]]:
    """The commands of docs/programs.md, with what is printed below them."""
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    parts = [part.strip().splitlines() for part in shown.split("$ ")[1:]]
    return [(command, printed) for command, *printed in parts]


@pytest.mark.long
def test_the_page_about_programs_shows_programs_that_do_so(tmp_path: Path) -> None:
    first, second = (block.source for block in blocks(PAGE) if "main = program(" in block.source)
    ending = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    file = tmp_path / "leaflet.py"
    commands = typed_on_the_page()
    assert len(commands) == 7
    for command, printed in commands:
        words = shlex.split(command)
        own = words[2] in ("otters", "work")
        file.write_text(f"{first}\n{second if own else ''}\n{ending}")
        assert words[:2] == ["python", "leaflet.py"]
        done = run(*words[2:], cwd=tmp_path, program=["leaflet.py"])
        assert done.code == (3 if "--paused" in words else 2 if "work" in words else 0), done
        assert not printed or done.stderr.splitlines() == printed


# refusing


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["--data", "nowhere"], "leaflet: --data: Path does not point to a directory", id="type"),
        pytest.param(["--count", "0"], "leaflet: --count: Input should be greater than or equal to 1", id="bound"),
        pytest.param(["--about", "a/b"], "leaflet: --about: 'a/b' is a path, not a subject", id="refused by begin"),
        pytest.param(["--data", "."], "leaflet: about.txt: No such file or directory", id="a missing file"),
        pytest.param(["--abot", "x"], "--about", id="mistyped option"),
        pytest.param(["resum"], "leaflet: There is no command 'resum'. Did you mean 'resume'?", id="mistyped command"),
        pytest.param(["nte", "--text", "x"], "Did you mean 'note'?", id="mistyped workflow"),
        pytest.param(["init"], "leaflet: There is no command 'init'", id="not for programs"),
    ],
)
def test_bad_input_is_named_and_nothing_is_stored(shop: Desk, args: list[str], said: str) -> None:
    done = ours(shop, *args)
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not shop.store.exists()


# several workflows


def test_other_workflows_are_run_by_name_and_show_their_fields(shop: Desk) -> None:
    done = ours(shop, "note", "--text", "quiet")
    assert done.code == 0, done
    assert last_line(done.stdout) == 'shouted  "QUIET"'
    assert "--text TEXT" in ours(shop, "run", "note", "--help").stdout


def test_a_session_of_another_programs_workflow_is_left_alone(shop: Desk) -> None:
    with Engine(shop.store) as engine:
        engine.start(SPEECH, word="hush", session_id="theirs", paused=True)
    done = ours(shop, "resume", "theirs")
    assert done.code == 2
    assert "workflow 'speech', which this program does not have. Its workflows are: brief, note." in done.stderr
    (show,) = re.findall(r"`([^`]*)`", done.stderr)
    assert show.endswith("-m leaflet show theirs")
    assert ours(shop, *shlex.split(show)[3:]).code == 0
    assert "pausepoint resume theirs" in ours(shop, "show", "theirs").stdout
    assert ours(shop, "resume").code == 4


# its store, its name


def test_a_store_of_its_own_is_used_unless_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main = program(SPEECH, store="own/speech.db", arguments=["word"])
    assert main(["hello"], standalone_mode=False) == 0
    assert (tmp_path / "own" / "speech.db").exists()
    assert not (tmp_path / ".pausepoint").exists()
    assert main(["hello", "--store", "named.db"], standalone_mode=False) == 0
    monkeypatch.setenv("PAUSEPOINT_STORE", str(tmp_path / "told.db"))
    assert main(["hello"], standalone_mode=False) == 0
    assert (tmp_path / "named.db").exists()
    assert (tmp_path / "told.db").exists()
    shown = " ".join(CliRunner().invoke(main, ["ls", "--help"]).output.split())
    assert "The store. Default: PAUSEPOINT_STORE, or own/speech.db." in shown


@pytest.mark.long
def test_an_installed_script_is_called_by_its_name(tmp_path: Path, desk: Desk) -> None:
    script = tmp_path / "bin" / "leaflet"
    script.parent.mkdir()
    (desk.root / "leaflet.py").write_text(LEAFLET)
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, '.')\nfrom leaflet import main\nmain()\n")
    script.chmod(0o755)
    desk.breaks("plan")
    path = {"PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    for words, env in (("leaflet", path), (str(script), {})):
        done = subprocess.run(
            [str(script)], cwd=desk.root, env=os.environ | env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 1, done
        assert last_line(done.stderr).startswith(f"Resume:  {words} resume "), done.stderr
    assert shutil.which("leaflet") is None, "else the second way would have found it, too"


def test_commands_of_its_own_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main = program(SPEECH)

    @main.command()
    def hush() -> None:
        """Say nothing."""
        click.echo("…")

    assert CliRunner().invoke(main, ["hush"], standalone_mode=False).output == "…\n"
    assert re.search(r"hush +Say nothing\.", CliRunner().invoke(main, ["--help"], standalone_mode=False).output)


# definitions


def no_type(word) -> Word:  # type: ignore[no-untyped-def]
    return Word(word=word)


def any_number(*words: str) -> Word:
    return Word(word=" ".join(words))


def hidden(word: Nowhere) -> Word:  # type: ignore[name-defined]  # noqa: F821
    return Word(word=word)


async def no_wait(word: str) -> Word:
    return Word(word=word)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"begin": no_type}, "parameter 'word' of begin has no type", id="no type"),
        pytest.param({"begin": any_number}, "which cannot become an option", id="no name"),
        pytest.param(
            {"begin": hidden}, "begin: an annotation uses 'Nowhere', which is not defined", id="type that is not found"
        ),
        pytest.param({"begin": no_wait}, "begin is async. Make it a plain function", id="async"),
        pytest.param({"arguments": ["word", "word"]}, "names the argument 'word' twice", id="twice"),
        pytest.param({"arguments": ["wrod"]}, "Did you mean 'word'", id="no such argument"),
    ],
)
def test_a_program_that_cannot_be_right_is_refused_when_it_is_made(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        program(SPEECH, **wrong)


def begun(begin: Any, *args: str) -> Any:
    def shown(outcome: Outcome[Word]) -> str:
        return outcome.state.said

    return program(SPEECH, begin=begin, result=shown, store="speech.db")(list(args), standalone_mode=False)


def test_begin_is_told_the_store_and_the_owner_wherever_they_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.pausepoint]\nstore = "kept/project.db"\n')
    told: list[Start] = []

    def begin(start: Start, word: str = "ahoy") -> Word:
        told.append(start)
        return Word(word=word)

    main = program(SPEECH, begin=begin)
    assert "--start" not in CliRunner().invoke(main, ["--help"]).output
    assert main([], standalone_mode=False) == 0
    assert main(["--store", "named.db", "--owner", "ann", "--session-id", "s1"], standalone_mode=False) == 0
    monkeypatch.setenv("PAUSEPOINT_STORE", str(tmp_path / "told" / "x.db"))
    assert main([], standalone_mode=False) == 0
    kept, elsewhere = tmp_path / "kept", tmp_path / "told"
    assert told == [
        Start(str(kept / "project.db"), kept),
        Start(str(tmp_path / "named.db"), tmp_path, "ann", "s1", "named.db"),
        Start(str(elsewhere / "x.db"), elsewhere),
    ]
    assert all(Path(start.store).exists() for start in told)


def test_begin_may_return_fields_and_what_the_state_does_not_admit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def fields(word: str) -> Mapping[str, Any]:
        return {"word": word}

    def wrong() -> Word:
        return Word.model_validate({"word": 5})

    def nothing() -> None:
        pass

    def short(word: Annotated[str, Field(min_length=3)]) -> Word:
        return Word(word=word)

    def wordless() -> Word:
        raise ValueError

    assert begun(fields, "--word", "ahoy") == 0
    assert capsys.readouterr().out.endswith("\nahoy\n")
    with pytest.raises(Refused, match=r"^word: Input should be a valid string$"):
        begun(wrong)
    with pytest.raises(DefinitionError, match="Return a Word"):
        begun(nothing)
    with pytest.raises(Refused, match=r"^--word: String should have at least 3 characters$"):
        begun(short, "--word", "no")
    with pytest.raises(Refused, match=r"^WORD: String should have at least 3 characters$"):
        program(SPEECH, begin=short, arguments=["word"])(["no"], standalone_mode=False)
    with pytest.raises(Refused, match=r"^The input was refused: ValueError$"):
        begun(wordless)


class Words(BaseModel):
    words: list[str] = []
    code: str = Field(default_factory=lambda: token_hex(4))
    said: str = ""


@step(writes="said")
def join(words: list[str], code: str) -> str:
    return f"{' '.join(words)} {code}"


def test_what_begin_fills_in_place_is_part_of_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    made: list[Words] = []

    def begin(word: str) -> Words:
        made.append(Words())
        made[-1].words.append(word)
        return made[-1]

    words = Workflow("words", state=Words, steps=[join])
    main = program(words, begin=begin, store="words.db")
    for word in ("ahoy", "ashore"):
        assert main(["--word", word, "--session-id", word], standalone_mode=False) == 0
    with Engine("words.db", workflows=[words]) as engine:
        states = [engine.session(word).state() for word in ("ahoy", "ashore")]
    assert [state.model_dump()["said"] for state in states] == [f"ahoy {made[0].code}", f"ashore {made[1].code}"]
