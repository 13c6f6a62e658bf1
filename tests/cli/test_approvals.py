"""A call that needs an approval, on the command line: folded, never cut, and all of it one key or command away."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.gate import approval_of_call
from pausepoint.model.approvals import question_line
from tests.cli.kit import Process, plain, run
from tests.cli.samples import STORE, within

LONG = f"{'echo harmless; ' * 300}git push --force && rm -rf ./important\u202e # "
CALL = approval_of_call("claude-ada", "/srv/shop", "Bash", {"command": LONG, "timeout": 9}, ["git push"])


@workflow
async def asks(ctx: Context) -> bool:
    return await ctx.confirm(question_line(CALL), payload=msgspec.to_builtins(CALL))


@pytest.fixture
def question(tmp_path: Path) -> str:
    async def start(engine: Engine) -> str:
        session = await engine.start(asks, session_id="ada")
        return (await session.outcome()).questions[0].id

    id: str = within(tmp_path / STORE, start, asks)
    return id


@pytest.mark.long
def test_the_inbox_says_how_much_of_a_call_is_folded_and_how_to_see_all(tmp_path: Path, question: str) -> None:
    with Process("inbox", cwd=tmp_path, tty=True) as process:
        shown = " ".join(plain(process.wait().stdout).split())
    assert "Bash, restricted (git push)" in shown
    assert "characters folded …]" in shown
    assert "git push --force && rm -rf ./important‹U+202E›" in shown, "the end is not cut off"
    assert f"answer {question} --later" in shown
    piped = run("inbox", cwd=tmp_path)
    assert "git push --force && rm -rf ./important‹U+202E›" in piped.stdout
    assert json.loads(run("inbox", "--json", cwd=tmp_path).stdout)["questions"][0]["payload"]["tool"] == "Bash"


def test_one_command_shows_all_of_a_call(tmp_path: Path, question: str) -> None:
    printed = re.search(r"answer \S+ --later", plain(run("inbox", cwd=tmp_path, tty=True).stdout))
    assert printed
    shown = run(*printed[0].split(), cwd=tmp_path).stdout
    assert LONG.replace("\u202e", "‹U+202E›").rstrip() in shown
    assert "Folder: /srv/shop\nAgent: claude-ada" in shown
    assert "Tool: Bash · restricted (git push)" in shown
    assert '"timeout": 9' in shown
    assert f"answer {question} --later" in run("show", "ada", cwd=tmp_path).stdout.replace("\n", " ")


def test_one_key_shows_all_of_a_call_at_the_prompt(tmp_path: Path, question: str) -> None:
    with Process("answer", question, cwd=tmp_path, tty=True) as process:
        folded = process.until("v shows all]")
        assert "characters folded …]" in folded
        assert folded.count("echo harmless") < 100
        assert "\x1b[7mgit\x1b[0m" in process.seen, "the restricted words stand out"
        process.type("v\n")
        process.until('"timeout": 9')
        process.type("n\n")
        process.until("Reason")
        process.type("\n")
        done = process.wait()
    assert plain(done.stdout).count("echo harmless") > 300
    assert "\u202e" not in done.stdout
