"""The hooks of the gate in the settings of Claude Code and Codex: add them, take them back, check them.

Other entries of these files are never touched.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pausepoint.gate.json_text import JsonText
from pausepoint.gate.settings import OnLoss, SettingsRefused, read_file
from pausepoint.gate.warden import HOOK

Scope = Literal["project", "local", "user"]
"""Whose settings: those of the project, those of this copy of it, or those of the user."""

HELD, SHORT = 86_400, 60
"""Seconds that an agent waits for the hook before a tool call, and for the others."""

BEFORE = "PreToolUse"

NATIVE = "gate-hook"
"""The file of the hook in C, beside the one in Python."""

_ENDS = {"closed": "{ echo 'The gate of Pausepoint failed, so this call is refused.' >&2; exit 2; }", "open": "exit 1"}
"""What the shell does after a hook that failed. 2 refuses the call, in Codex only with a line on stderr. With 1 the
agent shows the failure and continues."""

BLOCKS = {"onFailure": "block"}
"""What a hook says to Claude Code: a call is refused if its hook times out, is missing or fails."""


@dataclass(frozen=True)
class AgentKind:
    """An agent whose hooks are known: its files and the events that it has."""

    name: str
    title: str
    files: dict[Scope, str]
    home: str
    variable: str
    events: tuple[str, ...]
    blocks_since: tuple[int, ...] = ()
    """A version that reads `BLOCKS`; an older one may ignore it. Empty: none does."""
    limits: dict[str, int] = field(default_factory=dict)
    """The most seconds that it allows for some events."""
    gaps: str = ""
    """When it runs a call without its hook, whatever the settings say; with `remedy`, the way to close what can be."""
    remedy: str = ""

    def file(self, scope: Scope, root: Path) -> Path:
        """Return the settings file. Raises `SettingsRefused` if the agent has none of this scope."""
        if scope not in self.files:
            raise SettingsRefused(f"{self.title} has no settings for one copy of a project. Leave out --local.")
        if scope != "user":
            return root / self.files[scope]
        given = os.environ.get(self.variable)
        return (Path(given) if given else Path.home() / self.home) / self.files[scope]


AGENT_KINDS = {
    "claude": AgentKind(
        "claude",
        "Claude Code",
        {"project": ".claude/settings.json", "local": ".claude/settings.local.json", "user": "settings.json"},
        ".claude",
        "CLAUDE_CONFIG_DIR",
        (
            BEFORE, "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest", "UserPromptSubmit",
            "SessionStart", "SessionEnd", "Stop", "StopFailure", "SubagentStop", "Notification",
        ),
        blocks_since=(2, 1, 327),
    ),
    "codex": AgentKind(
        "codex",
        "Codex",
        {"project": ".codex/hooks.json", "user": "hooks.json"},
        ".codex",
        "CODEX_HOME",
        (BEFORE, "PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop", "SubagentStop"),
        limits={"SessionEnd": 3},
        gaps="if its hook is missing or takes too long, skips hooks that you have not trusted, and calls none for some"
        " of its tools",
        remedy="start codex and type /hooks",
    ),
}  # fmt: skip


def hook_file() -> Path:
    """Return the file of the hook. The module is not imported."""
    return Path(__file__).absolute().parents[2] / HOOK


def native_hook() -> str:
    """Return the hook in C. Empty if this installation has none: no C compiler was at hand when it was built."""
    path = hook_file().with_name(NATIVE)
    return str(path) if os.access(path, os.X_OK) else ""


class HookCommand(NamedTuple):
    """The command of a hook, taken apart. ``native`` is the hook in C, or empty."""

    python: str
    hook: str
    kind: str
    native: str = ""

    def line(self, event: str, on_loss: OnLoss) -> str:
        """Return the shell command for an event.

        A failure must not end with 2, unless it must refuse a tool call: Python itself ends with 2 if the file is
        gone, and agents would then keep a turn from ending, or discard what a person typed.

        >>> HookCommand("/bin/python", "/x/pausepoint/integrations/gate.py", "claude").line("PreToolUse", "open")
        '"/bin/python" -I -S "/x/pausepoint/integrations/gate.py" claude || exit 1'
        """
        end = _ENDS[on_loss if event == BEFORE else "open"]
        start = f"{_quoted(self.native)} {_quoted(self.python)}" if self.native else f"{_quoted(self.python)} -I -S"
        return f"{start} {_quoted(self.hook)} {self.kind} || {end}"

    @classmethod
    def of(cls, line: object) -> HookCommand | None:
        """Return the parts of a command that `line` made, also with other paths; None for any other command.

        >>> HookCommand.of("'/old/py' -I -S /y/pausepoint/integrations/gate.py codex || exit 1")
        HookCommand(python='/old/py', hook='/y/pausepoint/integrations/gate.py', kind='codex', native='')
        >>> HookCommand.of('"/x/gate-hook" /py "/x/pausepoint/integrations/gate.py" claude || exit 1')
        HookCommand(python='/py', hook='/x/pausepoint/integrations/gate.py', kind='claude', native='/x/gate-hook')
        >>> HookCommand.of("nice -I -S gate.py claude") is None
        True
        """
        try:
            words = shlex.split(line) if isinstance(line, str) else []
        except ValueError:
            return None
        native = words.pop(0) if words and words[0].endswith(f"/{NATIVE}") else ""
        if not native and words[1:3] == ["-I", "-S"]:
            del words[1:3]
        elif not native:
            return None
        is_ours = (
            len(words) >= 3
            and words[1].endswith(f"/{HOOK}")
            and words[2] in AGENT_KINDS
            and words[3:5] in ([], ["||", "exit"], ["||", "{"])
        )
        return cls(words[0], words[1], words[2], native) if is_ours else None


def hook_command(kind: str) -> HookCommand:
    """Return the command of this installation."""
    if not sys.executable:
        raise SettingsRefused("The path of the Python interpreter is not known. Install from another Python.")
    return HookCommand(sys.executable, str(hook_file()), kind, native_hook())


def missing_hooks(kind: AgentKind, folder: Path) -> str:
    """Return why an agent in a folder would not stop at the gate; empty if all its hooks are installed.

    >>> missing_hooks(AGENT_KINDS["codex"], Path("/nowhere"))
    'Codex has no hooks of the gate in /nowhere'
    """
    found: set[str] = set()
    for scope in kind.files:
        try:
            settings = HookSettings.read(kind, kind.file(scope, folder))
        except SettingsRefused as error:
            return str(error).rstrip(".")
        if settings.text.value.get("disableAllHooks") is True:
            return f"{settings.path}: disableAllHooks turns the hooks off"
        found |= {entry.event for entry in settings.entries() if entry.matches_all}
    missing = [event for event in kind.events if event not in found]
    if len(missing) == len(kind.events):
        return f"{kind.title} has no hooks of the gate in {folder}"
    return f"{kind.title} lacks hooks of the gate in {folder}: {', '.join(missing)}" if missing else ""


def _quoted(path: str) -> str:
    return shlex.quote(path) if set(path) & set('"$`\\!\n') else f'"{path}"'


class Entry(NamedTuple):
    """A hook of the gate in a settings file."""

    event: str
    group: int
    place: int
    matcher: Any
    hook: dict[str, Any]

    @property
    def path(self) -> tuple[str | int, ...]:
        return ("hooks", self.event, self.group, "hooks", self.place)

    @property
    def matches_all(self) -> bool:
        return self.matcher in (None, "", "*")

    @property
    def command(self) -> HookCommand:
        found = HookCommand.of(self.hook["command"])
        assert found is not None  # this is how it was found
        return found


class HookSettings:
    """A settings file of an agent, with or without the hooks of the gate."""

    def __init__(self, kind: AgentKind, path: Path, data: bytes | None) -> None:
        """Read the content of a file. Raises `SettingsRefused` if hooks cannot be added to it."""
        self.kind = kind
        self.path = path
        self.data = data
        self._mark = b"\xef\xbb\xbf" if (data or b"").startswith(b"\xef\xbb\xbf") else b""
        text = self._decoded((data or b"").removeprefix(self._mark))
        try:
            self.text = JsonText(text if text.strip() else "{}\n")
        except ValueError as error:
            raise self._refused(f"is not valid JSON: {error}") from None
        for problem in self.misshapen():
            raise self._refused(f"has {problem}, so {kind.title} ignores the whole file")

    @classmethod
    def read(cls, kind: AgentKind, path: Path) -> HookSettings:
        """Read a settings file, which need not exist."""
        return cls(kind, path, read_file(path))

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self._refused("is not UTF-8") from None

    def _refused(self, what: str) -> SettingsRefused:
        return SettingsRefused(f"{self.path} {what}. Fix the file first. Nothing was changed.")

    def misshapen(self) -> Iterator[str]:
        """Yield what does not have the shape of hooks. One such entry makes agents ignore all settings of the file."""
        value = self.text.value
        if not isinstance(value, dict):
            yield f"a {type(value).__name__} instead of an object"
            return
        hooks = value.get("hooks", {})
        if not isinstance(hooks, dict):
            yield "hooks that are not an object"
            return
        for event, groups in hooks.items():
            if not isinstance(groups, list) or not all(map(_is_group, groups)):
                yield f"an entry of hooks.{event} that is not an object with a list of hooks"

    def entries(self) -> list[Entry]:
        """Return the hooks of the gate, also those of another installation."""
        return [
            Entry(event, group, index, outer.get("matcher"), hook)
            for event, groups in self.text.value.get("hooks", {}).items()
            for group, outer in enumerate(groups)
            for index, hook in enumerate(outer["hooks"])
            if (command := HookCommand.of(hook.get("command"))) is not None and command.kind == self.kind.name
        ]

    def wanted(self, event: str, command: HookCommand, on_loss: OnLoss) -> dict[str, Any]:
        """Return the hook for an event."""
        timeout = HELD if event == BEFORE else self.kind.limits.get(event, SHORT)
        blocks = BLOCKS if event == BEFORE and on_loss == "closed" and self.kind.blocks_since else {}
        return {"type": "command", "command": command.line(event, on_loss), "timeout": timeout, **blocks}

    def with_hooks(self, command: HookCommand, on_loss: OnLoss) -> bytes:
        """Return the file with the hooks of the gate. Hooks of another installation are replaced in their place."""
        new = self
        for event in {entry.event: None for entry in self.entries()}:
            if event not in self.kind.events:
                new = new._without(event)
        for event in self.kind.events:
            wanted = new.wanted(event, command, on_loss)
            found = [entry for entry in new.entries() if entry.event == event]
            if len(found) == 1 and found[0].matches_all:
                kept = {**{name: value for name, value in found[0].hook.items() if name not in BLOCKS}, **wanted}
                new = new if kept == found[0].hook else new._changed(new.text.replaced(found[0].path, kept))
            else:
                new = new._without(event)._added(event, wanted)
        return new.to_bytes()

    def without_hooks(self) -> bytes:
        """Return the file without the hooks of the gate."""
        new = self
        for event in {entry.event: None for entry in self.entries()}:
            new = new._without(event)
        return new.to_bytes()

    @property
    def is_empty(self) -> bool:
        """Whether the file says nothing."""
        return not self.text.value

    def to_bytes(self) -> bytes:
        """Return the file."""
        return self._mark + self.text.text.encode()

    def _changed(self, text: JsonText) -> HookSettings:
        return HookSettings(self.kind, self.path, self._mark + text.text.encode())

    def _added(self, event: str, hook: dict[str, Any]) -> HookSettings:
        group = {"matcher": "*", "hooks": [hook]} if "ToolUse" in event else {"hooks": [hook]}
        text = self.text if "hooks" in self.text.value else self.text.added((), {}, "hooks")
        if event in text.value["hooks"]:
            return self._changed(text.added(("hooks", event), group))
        return self._changed(text.added(("hooks",), [group], event))

    def _without(self, event: str) -> HookSettings:
        """Remove the hooks of the gate from an event, and what is empty then."""
        text = self.text
        for entry in reversed([each for each in self.entries() if each.event == event]):
            path: tuple[str | int, ...] = entry.path
            text = text.removed(path)
            while len(path) > 1 and not _at(text.value, path[:-1]):
                path = path[:-2] if path[-2] == "hooks" and len(path) > 2 else path[:-1]
                text = text.removed(path)
        return self._changed(text)


def _is_group(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("matcher", ""), str):
        return False
    hooks = value.get("hooks")
    return isinstance(hooks, list) and all(isinstance(each, dict) for each in hooks)


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for name in path:
        value = value[name]
    return value
