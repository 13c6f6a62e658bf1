"""`skill`: a coding agent learns from one file how to put a script under Pausepoint."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from pausepoint.cli.app import COMMANDS
from tests.cli.kit import run
from tests.docs.pages import ROOT
from tests.gate.claude import Agents, Call, bash, find, result, serving

SKILL = ROOT / "src" / "pausepoint" / "cli" / "templates" / "SKILL.md"


def test_the_skill_is_written_once_and_a_changed_one_is_not_replaced_silently(tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "skills" / "pausepoint" / "SKILL.md"
    for done in ("created", "kept"):
        told = run("skill", "--json", cwd=tmp_path)
        assert (told.code, json.loads(told.stdout)) == (0, {"file": str(file), "done": done})
    assert file.read_bytes() == SKILL.read_bytes()
    file.write_text("mine")
    refused = run("skill", cwd=tmp_path)
    assert (refused.code, file.read_text()) == (5, "mine")
    assert "add --replace" in refused.stderr
    assert run("skill", "--replace", cwd=tmp_path).stdout == f"replaced {file}\n"
    assert file.read_bytes() == SKILL.read_bytes()


def test_the_skill_goes_where_another_agent_looks_for_it(tmp_path: Path) -> None:
    home = os.environ | {"HOME": str(tmp_path / "home")}
    assert run("skill", "--user", cwd=tmp_path, env=home).code == 0
    assert run("skill", "--into", "skills", cwd=tmp_path).code == 0
    for folder in ("home/.claude/skills", "skills"):
        assert (tmp_path / folder / "pausepoint" / "SKILL.md").exists()
    (tmp_path / "taken").write_text("")
    refused = run("skill", "--into", "taken", cwd=tmp_path)
    assert (refused.code, "Name another folder with --into" in refused.stderr) == (2, True)
    assert run("skill", "--into", "skills", "--user", cwd=tmp_path).code == 2


@pytest.mark.long
def test_the_program_and_the_commands_of_the_skill_do_what_it_says(tmp_path: Path) -> None:
    text = SKILL.read_text()
    head = re.match(r"---\nname: pausepoint\ndescription: (.{1,1024})\n---\n", text)
    assert head is not None, "an agent reads these two lines to decide whether it needs the skill"
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "digest.py").write_text(program)
    [typed] = re.findall(r"^\$ pausepoint (run .*)$", text, re.MULTILINE)
    assert run(*shlex.split(typed), cwd=tmp_path).code == 3
    for words, code in (("plan digest --target digest.py", 0), ("pause digest", 0), ("inbox", 0)):
        assert f"`pausepoint {words}`" in text
        assert run(*words.split(), cwd=tmp_path).code == code, words
    assert run("answer", "digest", "yes", cwd=tmp_path).code == 0
    done = run("resume", "digest", "--target", "digest.py", cwd=tmp_path)
    assert (done.code, "2 documents" in done.stdout) == (0, True), done
    assert set(re.findall(r"`pausepoint ([a-z-]+)", text)) <= COMMANDS.keys()


@pytest.mark.long
@pytest.mark.skipif(find() is None, reason="Claude Code is not installed: make programs")
def test_claude_code_loads_the_skill_and_follows_it(tmp_path: Path) -> None:
    """The transcript of the real program: it knows the skill, reads it, and one of its commands runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    assert run("skill", cwd=folder).code == 0
    with serving(skill=[[Call("Skill", {"skill": "pausepoint"})], [bash("pausepoint --version")]]) as api:
        agents = Agents(api, folder, tmp_path / "home")
        agents.environ["PATH"] = f"{Path(sys.executable).parent}:{agents.environ['PATH']}"
        try:
            result(agents.start("[plan skill] Put fetch.py under Pausepoint.", tools="Skill Bash"))
        finally:
            agents.end()
        first, *later = [json.dumps(each) for each in api.asked if each.get("tools")]
    said = "\n".join(later)
    assert "Put a long-running Python script under Pausepoint" in first, "the agent is told that the skill exists"
    assert "Make the main function `async`, decorate it with `@workflow`" in said, "it has read the skill"
    assert re.search(r"pausepoint \d+\.\d+\.\d+", said), "it has run a command of it"
