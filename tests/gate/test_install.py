"""`gate install` and `gate uninstall`: what they write, what they refuse, and that they can be taken back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pausepoint.gate import read_gate, socket_path
from pausepoint.gate.hooks import AGENT_KINDS
from tests.cli import documents
from tests.cli.kit import Done, run
from tests.cli.zoo import here

OWN = '{\n\t"model": "opus",\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}\n}\n'


def gate(folder: Path, *words: str) -> Done:
    done = here(folder, "gate", *words)
    if "--json" in words and done.code == 0:
        documents.check("gate", done.stdout)
    return done


def settings(project: Path, name: str = "settings.json") -> Path:
    return project / ".claude" / name


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_an_installation_is_shown_written_and_found_again(alone: Path) -> None:
    done = gate(alone, "install", "claude", "--yes", "--restricted", "git  push", "--restricted", "Write")
    assert done.code == 0
    assert f"+++ {settings(alone)}" in done.stdout
    assert done.stdout.splitlines()[-2:] == [
        f"Claude Code asks the gate before each tool call: {settings(alone)}.",
        "While no server answers, tool calls run, unless everything is paused. To refuse them instead, install with"
        " --closed.",
    ]
    found = read_gate(alone / ".pausepoint" / "gate.json")
    assert found is not None
    assert (found.on_loss, found.restricted) == ("open", ("git push", "Write"))
    assert found.socket == str(socket_path(alone))
    assert found.store == f"sqlite:///{alone}/.pausepoint/pausepoint.db"
    assert found.flag == f"{alone}/.pausepoint/pausepoint.db-paused"
    assert (alone / ".pausepoint" / "gate.json").stat().st_mode & 0o777 == 0o600
    assert (alone / ".pausepoint").stat().st_mode & 0o777 == 0o700
    assert (alone / ".pausepoint" / ".gitignore").read_text() == "*\n"
    before = everything(alone)
    again = gate(alone, "install", "claude")
    assert (again.code, everything(alone)) == (0, before)
    assert again.stdout.startswith("Claude Code already asks the gate before each tool call")


def test_what_is_not_given_again_stays_and_what_is_given_changes(alone: Path) -> None:
    gate(alone, "install", "claude", "--yes", "--closed", "--restricted", "git push")
    assert "onFailure" in settings(alone).read_text()
    gate(alone, "install", "codex", "--yes")
    kept = read_gate(alone / ".pausepoint" / "gate.json")
    assert kept is not None
    assert (kept.on_loss, kept.restricted) == ("closed", ("git push",))
    gate(alone, "install", "claude", "--yes", "--open", "--restricted", "")
    changed = read_gate(alone / ".pausepoint" / "gate.json")
    assert changed is not None
    assert (changed.on_loss, changed.restricted) == ("open", ())
    assert "onFailure" not in settings(alone).read_text()


@pytest.mark.parametrize("own", [None, OWN, "{}"])
@pytest.mark.parametrize("agent", AGENT_KINDS)
def test_uninstall_leaves_what_was_there(alone: Path, agent: str, own: str | None) -> None:
    file = AGENT_KINDS[agent].file("project", alone)
    if own is not None:
        file.parent.mkdir()
        file.write_text(own)
    before = everything(alone)
    gate(alone, "install", agent, "--yes")
    assert everything(alone) != before
    done = gate(alone, "uninstall", "--yes")
    assert done.code == 0, done
    assert f"{'removed' if own is None else 'changed'}  {file}" in done.stdout
    assert everything(alone) == before | {".pausepoint/.gitignore": "*\n"}
    assert file.parent.exists() == (own is not None)
    assert gate(alone, "uninstall").stdout == f"The gate is not installed in {alone}.\n"


def test_what_a_person_added_to_our_file_stays(alone: Path) -> None:
    gate(alone, "install", "claude", "--yes")
    made = json.loads(settings(alone).read_text())
    settings(alone).write_text(json.dumps(made | {"model": "opus"}))
    gate(alone, "uninstall", "--yes")
    assert json.loads(settings(alone).read_text()) == {"model": "opus"}


def test_one_agent_can_be_uninstalled_and_the_other_keeps_its_gate(alone: Path) -> None:
    for agent in AGENT_KINDS:
        gate(alone, "install", agent, "--yes")
    gate(alone, "uninstall", "codex", "--yes")
    assert not (alone / ".codex").exists()
    assert (alone / ".pausepoint" / "gate.json").exists()
    gate(alone, "uninstall", "claude", "--yes")
    assert not (alone / ".pausepoint" / "gate.json").exists()


def test_local_and_user_settings_are_other_files(alone: Path) -> None:
    gate(alone, "install", "claude", "--local", "--yes")
    gate(alone, "install", "claude", "--user", "--yes")
    mine = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "settings.json"
    assert not settings(alone).exists()
    assert settings(alone, "settings.local.json").exists()
    assert mine.exists()
    done = gate(alone, "uninstall", "--yes")
    assert not settings(alone, "settings.local.json").exists()
    assert mine.exists(), "other projects may need it"
    assert f"{mine} has hooks of the gate. Take them out, too:  pausepoint gate uninstall --user" in done.stderr
    gate(alone, "uninstall", "--user", "--yes")
    assert mine.read_text() == "{}\n", "the file that said who created it was removed before"
    assert "no settings for one copy" in gate(alone, "install", "codex", "--local").stderr
    assert gate(alone, "install", "claude", "--local", "--user").code == 2


def test_a_dry_run_and_a_missing_yes_write_nothing(alone: Path) -> None:
    dry = gate(alone, "install", "claude", "--dry-run")
    assert (dry.code, everything(alone)) == (0, {})
    assert "PreToolUse" in dry.stdout
    refused = gate(alone, "install", "claude")
    assert (refused.code, everything(alone)) == (2, {})
    assert "Add --yes to write the change, or --dry-run to see it." in refused.stderr


def test_everything_can_be_paused_before_the_gate_has_a_store(alone: Path) -> None:
    assert "There is no store here" in here(alone, "pause", "--all").stdout
    assert gate(alone, "install", "claude", "--yes").code == 0
    assert here(alone, "pause", "--all", "--reason", "lunch").code == 0
    found = read_gate(alone / ".pausepoint" / "gate.json")
    assert found is not None
    assert "lunch" in Path(found.flag).read_text()
    assert "already asks the gate" in gate(alone, "install", "claude", "--dry-run").stdout


def test_json_has_the_change_of_every_file(alone: Path) -> None:
    for words in (["install", "codex", "--yes"], ["install", "codex"], ["uninstall", "--dry-run"]):
        found = json.loads(gate(alone, *words, "--json").stdout)
        assert found["written"] == ("--yes" in words)
        assert len(found["changes"]) == {"--yes": 3, "codex": 0, "--dry-run": 2}[words[-1]]


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_person_at_a_terminal_is_asked(alone: Path, typed: str, code: int) -> None:
    done = run("gate", "install", "claude", cwd=alone, tty=True, typed=typed)
    assert done.code == code, done
    assert "Write this? [Y/n]" in done.stdout
    assert settings(alone).exists() == (code == 0)


# what is refused


def broken(file: Path) -> None:
    file.write_text("{")


def a_list(file: Path) -> None:
    file.write_text("[]")


def a_link(file: Path) -> None:
    (file.parent / "real.json").write_text("{}")
    file.symlink_to("real.json")


def a_folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("prepare", "what"),
    [
        (broken, "is not valid JSON"),
        (a_list, "has a list instead of an object"),
        (a_link, "is a symbolic link to real.json"),
        (a_folder, "is not an ordinary file"),
    ],
)
def test_a_file_that_cannot_take_hooks_is_named_and_nothing_changes(alone: Path, prepare: object, what: str) -> None:
    settings(alone).parent.mkdir()
    assert callable(prepare)
    prepare(settings(alone))
    before = everything(alone)
    done = gate(alone, "install", "claude", "--yes")
    assert (done.code, everything(alone)) == (5, before)
    assert f"{settings(alone)} {what}" in done.stderr
    assert "Nothing was changed." in done.stderr
    assert not (alone / ".pausepoint").exists()


def test_a_folder_that_cannot_be_written_is_named_and_nothing_changes(alone: Path) -> None:
    (alone / ".claude").write_text("not a folder")
    done = gate(alone, "install", "claude", "--yes")
    assert (done.code, everything(alone)) == (5, {".claude": "not a folder"})
    assert f"{settings(alone)} cannot be written" in done.stderr


def test_a_path_too_long_for_a_socket_is_refused(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(alone / ("x" * 90)))
    done = gate(alone, "install", "claude", "--yes")
    assert (done.code, everything(alone)) == (5, {})
    assert "too long for a socket" in done.stderr


def test_a_pattern_that_no_command_can_have_is_refused(alone: Path) -> None:
    done = gate(alone, "install", "claude", "--yes", "--restricted", "rm\n-rf")
    assert (done.code, everything(alone)) == (5, {})
    assert "is not a pattern" in done.stderr


def test_a_broken_file_without_our_hooks_does_not_stop_uninstall(alone: Path) -> None:
    gate(alone, "install", "claude", "--yes")
    (alone / ".codex").mkdir()
    (alone / ".codex" / "hooks.json").write_text("{")
    (alone / ".pausepoint" / "gate.json").write_text("{")
    assert gate(alone, "uninstall", "--yes").code == 0
    assert not (alone / ".pausepoint" / "gate.json").exists()
