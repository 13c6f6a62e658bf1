"""`gate check` finds what keeps the gate from working, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pausepoint.gate import socket_path
from pausepoint.gate.hooks import AGENT_KINDS, HookCommand, HookSettings, hook_command, native_hook
from tests.cli import documents
from tests.cli.zoo import here
from tests.gate.fake_server import serving


def checked(folder: Path) -> tuple[int, dict[str, list[tuple[str, str, str]]]]:
    done = here(folder, "gate", "check", "--json")
    documents.check("gate", done.stdout)
    found: dict[str, list[tuple[str, str, str]]] = {}
    for each in json.loads(done.stdout)["checks"]:
        found.setdefault(each["about"], []).append((each["level"], each["text"], each["way_out"] or ""))
    return done.code, found


@pytest.fixture
def installed(alone: Path) -> Path:
    assert here(alone, "gate", "install", "claude", "--yes").code == 0
    return alone


def test_a_healthy_gate_is_reported_as_such(installed: Path) -> None:
    with serving(socket_path(installed)) as server:
        code, found = checked(installed)
    assert code == 0
    assert {level for each in found.values() for level, _, _ in each} <= {"ok", "warn"}, found
    assert found["settings"] == [("ok", f"{installed}/.claude/settings.json: 12 hooks of Claude Code", "")]
    assert found["server"][0][1].startswith("answers in ")
    form = "C" if native_hook() else "Python"
    assert found["hook"][0][1].startswith(f"in {form}, answers claude in ")
    assert server.events() == ["end", "end"], "one from the check, one through the hook"
    assert server.asked[1]["agent"]["session"] == "pausepoint-check"


def test_without_anything_installed_it_says_how_to_install(alone: Path) -> None:
    code, found = checked(alone)
    assert code == 1
    assert found["settings"][0][2] == found["gate.json"][0][2] == "`pausepoint gate install claude`"


@pytest.mark.parametrize(("option", "level", "code"), [("--open", "warn", 0), ("--closed", "bad", 1)])
def test_a_missing_server_is_a_problem_if_calls_are_refused_then(
    alone: Path, option: str, level: str, code: int
) -> None:
    here(alone, "gate", "install", "claude", "--yes", option)
    assert checked(alone)[0] == code
    assert checked(alone)[1]["server"][0][0::2] == (level, "`pausepoint gate serve`")


@pytest.mark.parametrize(
    ("says", "option", "level", "text"),
    [
        (
            "2.1.327 (Claude Code)",
            "--closed",
            "ok",
            "Claude Code 2.1.327 refuses a call if its hook fails, is missing or",
        ),
        (
            "2.1.197 (Claude Code)",
            "--closed",
            "warn",
            "Claude Code 2.1.197 may run a call if its hook is missing or takes",
        ),
        ("", "--closed", "warn", "`claude --version` did not tell the version"),
        ("2.1.327 (Claude Code)", "--open", "ok", "Claude Code 2.1.327 runs a call if its hook fails, is missing or"),
    ],
)
def test_what_stays_open_is_said_for_the_version_of_the_agent(
    alone: Path, monkeypatch: pytest.MonkeyPatch, says: str, option: str, level: str, text: str
) -> None:
    programs = alone / "programs"
    programs.mkdir()
    (programs / "claude").write_text(f"#!/bin/sh\necho '{says}'\n")
    (programs / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    here(alone, "gate", "install", "claude", "--yes", option)
    ((found_level, found_text, way),) = checked(alone)[1]["claude"]
    assert found_level == level
    assert text in found_text
    assert way == ("update Claude Code to 2.1.327 or later" if level == "warn" else "")


def changed(project: Path, **hook: Any) -> None:
    file = project / ".claude" / "settings.json"
    whole = json.loads(file.read_text())
    whole["hooks"]["PreToolUse"][0]["hooks"][0] |= hook
    file.write_text(json.dumps(whole))


def moved(project: Path, command: HookCommand) -> None:
    file = HookSettings.read(AGENT_KINDS["claude"], project / ".claude" / "settings.json")
    file.path.write_bytes(file.with_hooks(command, "open"))


@pytest.mark.long
def test_each_fault_of_the_settings_is_named(installed: Path) -> None:
    file = installed / ".claude" / "settings.json"
    right = json.loads(file.read_text())
    changed(installed, timeout=600)
    assert "PreToolUse has the timeout 600 instead of 86400" in checked(installed)[1]["settings"][0][1]
    changed(installed, timeout=86_400, command=hook_command("claude").line("PreToolUse", "closed"))
    assert "PreToolUse does not fail open, as gate.json says" in checked(installed)[1]["settings"][0][1]
    for text, said in {
        json.dumps(right | {"hooks": {**right["hooks"], "Stop": []}}): "Stop has no hook",
        json.dumps(right).replace('"*"', '"Bash"', 1): "PreToolUse has the hook only for 'Bash'",
        json.dumps(right | {"hooks": {**right["hooks"], "Stop": right["hooks"]["Stop"] * 2}}): "Stop has the hook sev",
        json.dumps(right | {"disableAllHooks": True}): "disableAllHooks turns the hooks off",
        "{": "is not valid JSON",
    }.items():
        file.write_text(text)
        code, found = checked(installed)
        assert (code, found["settings"][0][0]) == (1, "bad")
        assert said in found["settings"][0][1]
    assert here(installed, "gate", "install", "claude", "--yes").code == 5
    file.write_text(json.dumps(right))
    assert checked(installed)[0] == 0


@pytest.mark.long
def test_a_missing_interpreter_or_hook_is_named(installed: Path, tmp_path: Path) -> None:
    right = hook_command("claude")
    moved(installed, right._replace(python=str(tmp_path / "gone")))
    assert checked(installed)[1]["python"][0][1] == f"{tmp_path / 'gone'} is not a program"
    moved(installed, right._replace(native=str(tmp_path / "gate-hook")))
    assert checked(installed)[1]["hook"][0][1] == f"{tmp_path / 'gate-hook'} is not a program"
    moved(installed, right._replace(hook=str(tmp_path / "pausepoint" / "integrations" / "gate.py")))
    assert "there is no file" in checked(installed)[1]["hook"][0][1]
    other = tmp_path / "pausepoint" / "integrations" / "gate.py"
    other.parent.mkdir(parents=True)
    other.write_text("raise SystemExit('broken')")
    code, found = checked(installed)
    assert code == 1
    assert [level for level, _, _ in found["hook"]] == ["warn", "bad"]
    assert "it failed with exit code 1: broken" in found["hook"][1][1]


def test_files_and_folders_that_others_can_use_are_named(installed: Path) -> None:
    (installed / ".pausepoint" / "gate.json").chmod(0o644)
    folder = socket_path(installed).parent
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    code, found = checked(installed)
    assert code == 1
    assert "other users can read or change" in found["gate.json"][0][1]
    assert found["socket"][0][1] == f"{folder}: other users can enter it"
    (installed / ".pausepoint" / "gate.json").write_text("{")
    assert "is not valid" in checked(installed)[1]["gate.json"][0][1]


def test_a_gate_of_another_store_and_hooks_in_two_files_are_named(installed: Path) -> None:
    here(installed, "gate", "install", "claude", "--user", "--yes")
    here(installed, "gate", "install", "codex", "--yes")
    code, found = checked(installed)
    assert code == 0
    assert next(text for level, text, _ in found["settings"] if level == "warn").endswith("so they may run twice")
    assert "skips hooks that you have not trusted" in found["codex"][0][1]
    done = here(installed, "gate", "check", "--store", "other.db")
    assert done.code == 1
    assert "it names the store" in done.stdout
