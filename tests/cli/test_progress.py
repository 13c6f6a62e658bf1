"""The lines that ``run`` and ``resume`` print without a terminal: true, and in the order in which things happen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.kit import plain, run

WORKFLOWS = """
from pydantic import BaseModel

from pausepoint import Context, Workflow, guard, program, step


class Doc(BaseModel):
    ok: bool = False
    a: str = ""
    b: str = ""


@step(writes="a")
async def one() -> str:
    print("one prints", flush=True)
    return "1"


@guard(after="one")
def allowed(ok: bool) -> str | None:
    return None if ok else "not yet"


@step(writes="b")
async def two(ctx: Context) -> str:
    print("two prints", flush=True)
    ctx.spend(usd=1)
    await ctx.do(str, 2)
    return "2"


pair = Workflow("pair", state=Doc, steps=[one, two], guards=[allowed])

if __name__ == "__main__":
    program(pair, step_word="agent", store="own.db")()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "pair.py").write_text(WORKFLOWS)
    return tmp_path


def lines(*args: str, cwd: Path, program: tuple[str, ...] = ("-m", "pausepoint")) -> list[str]:
    """What a command prints, without times."""
    out = run(*args, cwd=cwd, program=program).stdout
    return re.sub(r"(in|after) [\d.<]+ ?\w+( \w+)?", r"\1 TIME", out).splitlines()


def test_every_line_comes_when_it_is_true(place: Path) -> None:
    out = lines("run", "pair.py", "--session-id", "s", "--ok", cwd=place)
    assert out[:7] == [
        "Session s of pair",
        "Running step: one",
        "one prints",
        "Finished step: one in TIME",
        "Running step: two",
        "two prints",
        "Finished step: two in TIME, $1.00",
    ]


def test_a_session_that_was_stored_paused_starts_and_does_not_look_for_checkpoints(place: Path) -> None:
    run("run", "pair.py", "--session-id", "s", "--paused", cwd=place)
    out = lines("resume", "s", "--target", "pair.py", cwd=place)
    assert out[:3] == ["Running step: one", "one prints", "Finished step: one in TIME"]


def test_a_resumed_session_says_so_before_its_step_prints(place: Path) -> None:
    run("run", "pair.py", "--session-id", "s", cwd=place)
    run("edit", "s", "--set", "ok=true", "--target", "pair.py", cwd=place)
    out = lines("resume", "s", "--target", "pair.py", cwd=place)
    assert out[:4] == [
        "Resuming from checkpoint: one", "Skipped, done before: one", "Running step: two", "two prints",
    ]  # fmt: skip


def test_a_session_that_paused_itself_is_not_reported_as_pausing_when_it_is_resumed(place: Path) -> None:
    run("run", "pair.py", "--session-id", "s", "--ok", "--budget", "0.5", cwd=place)
    out = lines("resume", "s", "--budget", "5", "--target", "pair.py", cwd=place)
    assert "Resuming from checkpoint: one" in out
    assert [line for line in out if line.startswith("Pausing")] == []


@pytest.mark.covers("S4.61")
def test_a_program_chooses_the_word_for_its_steps(place: Path) -> None:
    out = lines("--session-id", "s", "--ok", cwd=place, program=("pair.py",))
    assert out[1:4] == ["Running agent: one", "one prints", "Finished agent: one in TIME"]
    assert [line for line in out if " step" in line] == []


@pytest.mark.long
def test_a_quiet_program_shows_its_steps_only_if_it_is_asked_to(place: Path) -> None:
    (place / "quiet.py").write_text(f"{WORKFLOWS.partition('if __name__')[0]}program(pair, quiet=True)()\n")
    program = ("quiet.py",)
    out = lines("--session-id", "q", cwd=place, program=program)  # the guard holds it
    assert out == ["Session q of pair", "one prints", "Session q of pair is paused after TIME"]
    run("edit", "q", "--set", "ok=true", cwd=place, program=program)
    out = lines("resume", "q", cwd=place, program=program)
    assert out == ["two prints", "Session q of pair completed after TIME, $1.00", 'a  "1"', 'b  "2"']
    out = lines("-v", "--session-id", "r", "--ok", cwd=place, program=program)
    assert out[1:3] == ["Running step: one", "one prints"]
    assert "-v, --verbose" in run("resume", "--help", cwd=place, program=program).stdout
    assert run("resume", "q", "-v", cwd=place, program=("pair.py",)).code == 2  # other programs do not have it


@pytest.mark.long
def test_the_store_is_named_before_or_after_the_command(place: Path) -> None:
    run("--store", "x.db", "run", "pair.py", "--session-id", "s", "--paused", cwd=place)
    for words in (["--store", "x.db", "ls"], ["--store=x.db", "ls"], ["ls", "--store", "x.db"]):
        assert "pair" in run(*words, cwd=place).stdout
    assert "pair" in run("--store", "y.db", "ls", "--store", "x.db", cwd=place).stdout  # the nearer one counts
    program = ("pair.py",)
    run("--store", "p.db", "--session-id", "t", "--paused", cwd=place, program=program)
    for words in (["--store", "p.db", "ls"], ["--store=p.db", "ls"], ["ls", "--store", "p.db"]):
        assert "pair" in run(*words, cwd=place, program=program).stdout
    assert not (place / "own.db").exists()
    missing = run("--store", cwd=place, program=program)
    assert (missing.code, "The option --store needs a value." in missing.stderr) == (2, True)


LONG = """
from pydantic import BaseModel
from pausepoint import Workflow, program, step

class Doc(BaseModel):
    text: str = ""

@step(writes="text")
def write() -> str:
    return " ".join(["harbourmaster"] * 9)

program(Workflow("long", state=Doc, steps=[write]), result=lambda outcome: outcome.state.text)()
"""


def test_the_result_of_a_program_is_wrapped_between_words(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(LONG)
    code, out, _ = run(cwd=tmp_path, program=("long.py",), tty=True)
    said = [line for line in plain(out).splitlines() if "harbour" in line]
    assert (code, len(said)) == (0, 2)
    assert " ".join(said) == " ".join(["harbourmaster"] * 9)
    piped = run(cwd=tmp_path, program=("long.py", "--force-restart"))
    assert " ".join(["harbourmaster"] * 9) in piped.stdout.splitlines()
