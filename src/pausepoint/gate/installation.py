"""The gate of a project: which files change when it is installed and when it is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pausepoint.gate.hooks import AGENT_KINDS, AgentKind, HookSettings, Scope, hook_command
from pausepoint.gate.settings import (
    Change,
    GateSettings,
    OnLoss,
    SettingsRefused,
    apply,
    gate_file,
    read_file,
    read_gate,
    socket_path,
)
from pausepoint.gate.warden import HOOK
from pausepoint.name import FOLDER

LONGEST_PATTERN = 200


@dataclass(frozen=True)
class Installation:
    """The gate of the project in ``root``, whose store is the file ``store``."""

    root: Path
    store: Path

    @property
    def gate_file(self) -> Path:
        return gate_file(self.root)

    def settings(self, on_loss: OnLoss | None = None, restricted: tuple[str, ...] | None = None) -> GateSettings:
        """Return the settings of the gate. What is not given stays as it was installed before."""
        known = read_gate(self.gate_file)
        store = self.store.absolute()
        socket = socket_path(self.root)
        if known is not None and Path(known.socket).name == socket.name and Path(known.socket).parent.parent.is_dir():
            socket = Path(known.socket)  # agents that run now use it, also if this shell has another XDG_RUNTIME_DIR
        made = GateSettings(str(socket), f"{store}-paused", f"sqlite:///{store}")
        if known is not None:
            made = replace(made, on_loss=known.on_loss, restricted=known.restricted, created=known.created)
        made = made if on_loss is None else replace(made, on_loss=on_loss)
        return made if restricted is None else replace(made, restricted=_patterns(restricted))

    def install(
        self, kind: AgentKind, scope: Scope, on_loss: OnLoss | None = None, restricted: tuple[str, ...] | None = None
    ) -> list[Change]:
        """Return the changes that put an agent under the gate."""
        wanted = self.settings(on_loss, restricted)
        file = HookSettings.read(kind, kind.file(scope, self.root))
        if file.data is None and str(file.path) not in wanted.created:
            wanted = replace(wanted, created=(*wanted.created, str(file.path)))
        hooks = Change(file.path, file.data, file.with_hooks(hook_command(kind.name), wanted.on_loss))
        gate = Change(self.gate_file, read_file(self.gate_file), wanted.to_bytes(), 0o600)
        folder = self.root / FOLDER
        ignored = [] if folder.exists() else [Change(folder / ".gitignore", None, b"*\n")]
        return [*ignored, gate, hooks]  # the hook needs the file of the gate

    def files(self, kinds: Iterable[AgentKind], user: bool = False) -> Iterator[HookSettings]:
        """Yield the settings files of the project that have hooks of the gate; with ``user`` also those of the user.

        A file that does not name the hook need not be valid.
        """
        for kind in kinds:
            scopes = [scope for scope in kind.files if scope != "user" or user]
            for path in dict.fromkeys(kind.file(scope, self.root) for scope in scopes):
                data = read_file(path)
                if data is not None and HOOK.encode() in data and (file := HookSettings(kind, path, data)).entries():
                    yield file

    def uninstall(self, kinds: Iterable[AgentKind], user: bool = False) -> list[Change]:
        """Return the changes that take back everything that `install` wrote."""
        kinds = list(kinds)
        try:
            known = read_gate(self.gate_file)
        except SettingsRefused:
            known = None  # it is removed anyway
        created = () if known is None else known.created
        changes = [self._without(file, created) for file in self.files(kinds, user)]
        others = [kind for kind in AGENT_KINDS.values() if kind not in kinds]
        if not any(self.files(others)):
            changes.append(Change(self.gate_file, read_file(self.gate_file), None))
        return [each for each in changes if each.is_one]

    def _without(self, file: HookSettings, created: tuple[str, ...]) -> Change:
        after = file.without_hooks()
        is_empty = str(file.path) in created and HookSettings(file.kind, file.path, after).is_empty
        return Change(file.path, file.data, None if is_empty else after)


def take_back(changes: Iterable[Change]) -> None:
    """Write the changes of `Installation.uninstall`, and remove the folders that are empty then."""
    changes = list(changes)
    apply(changes)
    for each in changes:
        if each.after is None and each.path.parent.name != FOLDER:
            with suppress(OSError):
                each.path.parent.rmdir()


def _patterns(given: tuple[str, ...]) -> tuple[str, ...]:
    for each in given:
        if len(each) > LONGEST_PATTERN or not each.isprintable():
            raise SettingsRefused(
                f"{each[:40]!r} is not a pattern. Give the first words of a command, or the name of a tool, in at most"
                f" {LONGEST_PATTERN} characters."
            )
    return tuple(dict.fromkeys(" ".join(each.split()) for each in given if each.strip()))
