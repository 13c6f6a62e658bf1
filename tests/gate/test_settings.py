"""Hooks are added to the settings of an agent, and taken back, while every other byte stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.gate import HookCommand, HookSettings, SettingsRefused, socket_path
from pausepoint.gate.hooks import AGENT_KINDS, HELD, SHORT, hook_command, hook_file
from pausepoint.gate.json_text import JsonText
from pausepoint.gate.settings import Change, GateSettings, OnLoss, apply, gate_file, make_private, read_gate

CLAUDE, CODEX = AGENT_KINDS["claude"], AGENT_KINDS["codex"]
COMMAND = hook_command("claude")
FORMER = HookCommand("/old venv/bin/python", "/old venv/lib/pausepoint/integrations/gate.py", "claude")

TABS = '{\n\t"permissions": {"allow": ["Bash(ls:*)","Read"], "deny": []},\n\t"model":"opus"\n}\n'
OTHERS = """{
    "hooks": {
        "PreToolUse": [
            { "matcher": "Bash", "hooks": [ { "type": "command", "command": "./guard.sh", "timeout": 5 } ] }
        ],
        "PreCompact": [{"hooks": [{"type": "command", "command": "echo"}]}]
    },
    "env": {"A": "\\u00e4"}
}"""


def settings(text: str | bytes | None) -> HookSettings:
    return HookSettings(CLAUDE, Path("settings.json"), text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    "text",
    [
        TABS,
        OTHERS,
        OTHERS.replace("\n", "\r\n"),
        '{"model": "opus"}',
        "{}",
        '\ufeff{\n  "a": 1\n}\n',
        '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}\n\n',
    ],
    ids=["tabs", "others", "windows", "one line", "empty", "mark", "stop"],
)
def test_hooks_are_taken_back_byte_for_byte(text: str) -> None:
    before = text.encode()
    after = settings(before).with_hooks(COMMAND, "open")
    assert sorted(entry.event for entry in settings(after).entries()) == sorted(CLAUDE.events)
    assert settings(after).with_hooks(COMMAND, "open") == after, "a second install changes nothing"
    assert settings(after).without_hooks() == before


@pytest.mark.parametrize("text", [TABS, OTHERS, OTHERS.replace("\n", "\r\n")])
def test_every_line_of_the_file_stays(text: str) -> None:
    after = settings(text).with_hooks(COMMAND, "open").decode()
    kept = iter(after.splitlines(keepends=True))
    assert [line for line in text.splitlines() if not any(line.rstrip(",") in each for each in kept)] == []
    assert ("\r\n" in text) == ("\r\n" in after)
    assert "\n" not in after.replace("\r\n", "") or "\r\n" not in text


def test_the_hooks_are_what_agents_read() -> None:
    found = json.loads(settings(None).with_hooks(COMMAND, "closed"))["hooks"]
    assert list(found) == list(CLAUDE.events)
    (before,) = found["PreToolUse"]
    assert before["matcher"] == "*"
    assert before["hooks"][0] == {
        "type": "command", "command": COMMAND.line("PreToolUse", "closed"), "timeout": HELD, "onFailure": "block",
    }  # fmt: skip
    for event, (group,) in found.items():
        if event != "PreToolUse":
            assert group["hooks"][0]["command"].endswith(" claude || exit 1"), "only a tool call is refused"
            assert group["hooks"][0]["timeout"] == SHORT
            assert "onFailure" not in group["hooks"][0]
    codex = json.loads(HookSettings(CODEX, Path("hooks.json"), None).with_hooks(hook_command("codex"), "open"))
    assert {"PostToolUseFailure", "Notification"} & codex["hooks"].keys() == set(), "Codex does not have them"
    assert codex["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"] == 3, "Codex allows no more"
    assert hook_file().parts[-3:] == ("pausepoint", "integrations", "gate.py")


@pytest.mark.parametrize("text", [TABS, OTHERS, "{}"])
def test_another_interpreter_is_updated_in_its_place(text: str) -> None:
    former = settings(text).with_hooks(FORMER, "open")
    after = settings(former).with_hooks(COMMAND, "open")
    assert after == settings(text).with_hooks(COMMAND, "open")
    assert b"old venv" not in after
    assert settings(former).without_hooks() == text.encode(), "also the hooks of another installation are taken back"


def test_an_open_gate_takes_back_that_a_failed_hook_blocks() -> None:
    closed = settings(None).with_hooks(COMMAND, "closed")
    assert settings(closed).with_hooks(COMMAND, "open") == settings(None).with_hooks(COMMAND, "open")
    codex = HookSettings(CODEX, Path("hooks.json"), None).with_hooks(hook_command("codex"), "closed")
    assert b"onFailure" not in codex, "Codex does not read it"


def test_the_hooks_of_a_former_version_are_replaced_in_their_place() -> None:
    whole = json.loads(settings(None).with_hooks(COMMAND, "closed"))
    (hook,) = whole["hooks"]["PreToolUse"][0]["hooks"]
    del hook["onFailure"]
    hook["command"] = hook["command"].split(" || ")[0] + " || exit 2"
    after = settings(json.dumps(whole)).with_hooks(COMMAND, "closed")
    assert json.loads(after) == json.loads(settings(None).with_hooks(COMMAND, "closed"))


def test_hooks_that_see_only_some_tools_or_are_there_twice_are_replaced() -> None:
    whole = json.loads(settings(None).with_hooks(COMMAND, "open"))
    (group,) = whole["hooks"]["PreToolUse"]
    whole["hooks"]["PreToolUse"] = [group | {"matcher": "Bash"}, group]
    whole["hooks"]["PreCompact"] = [group]  # a former version may have used other events
    after = json.loads(settings(json.dumps(whole)).with_hooks(COMMAND, "open"))
    assert after["hooks"]["PreToolUse"] == [group]
    assert "PreCompact" not in after["hooks"]


def test_what_a_person_added_to_an_entry_stays() -> None:
    whole = json.loads(settings(None).with_hooks(FORMER, "open"))
    group = whole["hooks"]["Stop"][0]
    group["hooks"][0]["statusMessage"] = "at the gate"
    group["hooks"].append({"type": "command", "command": f"nice {COMMAND.line('Stop', 'open')}"})
    after = settings(json.dumps(whole)).with_hooks(COMMAND, "open")
    ours, other = json.loads(after)["hooks"]["Stop"][0]["hooks"]
    assert ours["statusMessage"] == "at the gate"
    assert ours["command"] == COMMAND.line("Stop", "open")
    assert other["command"].startswith("nice "), "a command that wraps the hook belongs to its author"
    assert json.loads(settings(after).without_hooks()) == {"hooks": {"Stop": [{"hooks": [other]}]}}


@pytest.mark.parametrize("path", ["/a b/py", '/a"b/py', "/a$HOME/py", "/a'b/`py`", "/ä!/py"])
def test_any_path_survives_the_shell(path: str) -> None:
    command = HookCommand(path, f"{path}/pausepoint/integrations/gate.py", "codex")
    for form in (command, command._replace(native=f"{path}/gate-hook")):
        assert HookCommand.of(form.line("PreToolUse", "closed")) == form


@pytest.mark.parametrize("fault", ["no hook", "no interpreter", "no hook in C", "the hook fails"])
def test_a_fault_refuses_only_tool_calls_and_only_where_it_must(tmp_path: Path, fault: str) -> None:
    """Python ends with 2 if there is no hook. For other events that would discard prompts, and keep turns going."""
    hook = tmp_path / "pausepoint" / "integrations" / "gate.py"
    if fault != "no hook":
        hook.parent.mkdir(parents=True)
        hook.write_text("raise SystemExit(1)")
    command = COMMAND._replace(hook=str(hook))
    command = command._replace(python=str(tmp_path / "gone")) if fault == "no interpreter" else command
    command = command._replace(native=str(tmp_path / "gate-hook")) if fault == "no hook in C" else command
    ends = {
        (event, on_loss): subprocess.run(["/bin/sh", "-c", command.line(event, on_loss)], capture_output=True)
        for event in ("PreToolUse", "UserPromptSubmit")
        for on_loss in get_args(OnLoss)
    }
    codes = {each: done.returncode for each, done in ends.items() if done.returncode != 1}
    assert codes == {("PreToolUse", "closed"): 2}
    assert b"this call is refused" in ends["PreToolUse", "closed"].stderr, "Codex refuses only with a text"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not valid JSON"),
        ('{"a": 1} // note', "is not valid JSON"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff{}", "is not UTF-8"),
        ("[]", "a list instead of an object"),
        ('"x"', "a str instead of an object"),
        ('{"hooks": []}', "hooks that are not an object"),
        ('{"hooks": {"Stop": {}}}', "an entry of hooks.Stop that is not an object with a list of hooks"),
        ('{"hooks": {"Stop": [{"type": "command"}]}}', "an entry of hooks.Stop"),
        ('{"hooks": {"Stop": [{"matcher": {}, "hooks": []}]}}', "an entry of hooks.Stop"),
    ],
)
def test_a_file_that_agents_would_not_read_is_refused_by_name(text: str | bytes, what: str) -> None:
    with pytest.raises(SettingsRefused, match=r"settings\.json .*Nothing was changed") as caught:
        settings(text)
    assert what in str(caught.value)


# text


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


@pytest.mark.long
@given(VALUES, st.sampled_from([None, 2, 4, "\t"]), st.data())
def test_a_change_of_any_document_is_the_change_of_its_value(value: Any, indent: Any, data: st.DataObject) -> None:
    document = {"x": value, "y": [value, 1]}
    text = JsonText(json.dumps(document, indent=indent, ensure_ascii=data.draw(st.booleans())))
    assert text.added((), value, "z").value == document | {"z": value}
    assert text.added(("y",), value).value == document | {"y": [value, 1, value]}
    assert text.replaced(("x",), 7).value == document | {"x": 7}
    assert text.removed(("x",)).value == {"y": [value, 1]}
    assert text.removed(("y", 0)).value == document | {"y": [1]}
    added = text.added((), value, "z")
    assert added.removed(("z",)).text == text.text


# files


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("1")
    kept.chmod(0o640)
    (tmp_path / "file").write_text("")
    changes = [
        Change(kept, b"1", b"2"),
        Change(tmp_path / "new" / "folder" / "a.json", None, b"{}", 0o600),
        Change(tmp_path / "file" / "b.json", None, b"{}"),
    ]
    with pytest.raises(SettingsRefused, match=r"b\.json cannot be written"):
        apply(changes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "kept.json"]
    assert kept.read_text() == "1"
    apply(changes[:2])
    assert kept.read_text() == "2"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert changes[1].path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsRefused, match="was changed meanwhile"):
        apply([Change(kept, b"1", b"3")])


def test_a_failure_after_the_first_file_puts_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("1")
    real, calls = os.replace, list[object]()

    def fails(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(*args)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(SettingsRefused, match="b cannot be written: No space left"):
        apply([Change(first, b"1", b"2"), Change(second, None, b"x")])
    assert len(calls) == 2
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "1"}


def test_a_gate_file_says_what_was_written_and_nothing_else_is_accepted(tmp_path: Path) -> None:
    made = GateSettings("/s", "/f", "sqlite:////x.db", "closed", ("git push",), ("/p/.claude/settings.json",))
    path = gate_file(tmp_path)
    apply([Change(path, None, made.to_bytes(), 0o600)])
    assert read_gate(path) == made
    assert read_gate(tmp_path / "none") is None
    faults: list[dict[str, Any]] = [{"v": 2}, {"socket": 1}, {"flag": ""}, {"on_loss": "maybe"}, {"restricted": [1]}]
    for wrong in ["{", "[]", "{}", *(json.dumps(made.to_json() | fault) for fault in faults)]:
        path.write_text(wrong)
        with pytest.raises(SettingsRefused, match=r"gate\.json is not valid: .*Delete the file"):
            read_gate(path)


def test_a_socket_is_in_a_private_folder_and_its_path_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert socket_path(tmp_path).parent == Path(f"/tmp/pausepoint-{os.getuid()}")
    assert socket_path(tmp_path) != socket_path(tmp_path / "other")
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/{'x' * 90}")
    with pytest.raises(SettingsRefused, match=r"too long for a socket.*XDG_RUNTIME_DIR"):
        socket_path(tmp_path)
    make_private(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for folder, what in (("mine", "other users can enter it"), ("link", "it is not a folder")):
        with pytest.raises(SettingsRefused, match=what):
            make_private(tmp_path / folder)
