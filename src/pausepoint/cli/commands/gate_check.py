"""What `gate check` looks at: the settings of agents, the hook, the file of the gate, its socket and its server."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pausepoint.cli.findings import Finding
from pausepoint.cli.host import command_line
from pausepoint.cli.text import one_line
from pausepoint.gate.callers import GateCaller
from pausepoint.gate.hooks import AGENT_KINDS, BLOCKS, AgentKind, HookCommand, HookSettings, hook_file
from pausepoint.gate.settings import LONGEST_SOCKET, GateSettings, OnLoss, SettingsRefused, not_private, read_gate
from pausepoint.integrations.gate import GatePlace

if TYPE_CHECKING:
    from pausepoint.gate.installation import Installation

CPU = 0.060
"""Seconds of processor time that one call of the hook may take."""

PATIENCE = 20
"""Seconds that the hook gets for an event that it does not wait for."""


def findings_of(where: Installation) -> Iterator[Finding]:
    """Yield findings about the gate of a project. The hook of each agent runs once."""
    known: GateSettings | None = None
    try:
        known = read_gate(where.gate_file)
    except SettingsRefused as error:
        yield Finding("bad", "gate.json", str(error), _install("claude"))
    else:
        yield from _gate_file(where, known)
    files = list(_settings_files(where))
    yield from (each for each in files if isinstance(each, Finding))
    found = [each for each in files if isinstance(each, HookSettings) and each.entries()]
    if not found and not any(isinstance(each, Finding) for each in files):
        yield Finding("bad", "settings", f"no agent of {where.root} has the hooks of the gate", _install("claude"))
    for file in found:
        yield from _file(file, known)
    for kind in dict.fromkeys(file.kind.name for file in found):
        yield _left_open(AGENT_KINDS[kind], "open" if known is None else known.on_loss)
    yield from _twice(found)
    if known is not None:
        yield from _socket(known)
        yield from _server(known)
    for command in dict.fromkeys(entry.command for file in found for entry in file.entries()):
        yield from _hook(where.root, command)


def _install(kind: str) -> str:
    return f"`{command_line('gate', 'install', kind)}`"


def _gate_file(where: Installation, known: GateSettings | None) -> Iterator[Finding]:
    path = where.gate_file
    if known is None:
        yield Finding("bad", "gate.json", f"there is no {path}, so the hook lets every call run", _install("claude"))
        return
    store = f"sqlite:///{where.store.absolute()}"
    if known.store != store:
        yield Finding("bad", "gate.json", f"it names the store {known.store}, not {store}", _install("claude"))
    elif stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield Finding("bad", "gate.json", f"other users can read or change {path}", f"chmod 600 {path}")
    else:
        limits = ", ".join(known.restricted) or "nothing"
        yield Finding("ok", "gate.json", f"fails {known.on_loss}; restricted: {limits}")


# settings


def _settings_files(where: Installation) -> Iterator[HookSettings | Finding]:
    for kind in AGENT_KINDS.values():
        for path in dict.fromkeys(kind.file(scope, where.root) for scope in kind.files):
            try:
                yield HookSettings.read(kind, path)
            except SettingsRefused as error:
                yield Finding("bad", "settings", str(error), "fix the file, then check again")


def _file(file: HookSettings, known: GateSettings | None) -> Iterator[Finding]:
    kind, problems = file.kind, list(_problems(file, known))
    for problem in problems:
        yield Finding("bad", "settings", f"{file.path}: {problem}", _install(kind.name))
    if file.text.value.get("disableAllHooks") is True:
        yield Finding("bad", "settings", f"{file.path}: disableAllHooks turns the hooks off", "remove this setting")
    elif not problems:
        yield Finding("ok", "settings", f"{file.path}: {len(kind.events)} hooks of {kind.title}")


def _problems(file: HookSettings, known: GateSettings | None) -> Iterator[str]:
    found = file.entries()
    on_loss = "open" if known is None else known.on_loss
    for event in file.kind.events:
        entries = [entry for entry in found if entry.event == event]
        if len(entries) != 1:
            yield f"{event} {'has no hook' if not entries else 'has the hook several times'}"
            continue
        (entry,) = entries
        wanted = file.wanted(event, entry.command, on_loss)
        if not entry.matches_all:
            yield f"{event} has the hook only for {entry.matcher!r}"
        if entry.hook.get("timeout") != wanted["timeout"]:
            yield f"{event} has the timeout {entry.hook.get('timeout')!r} instead of {wanted['timeout']}"
        if entry.hook["command"] != wanted["command"] or any(entry.hook.get(key) != wanted.get(key) for key in BLOCKS):
            yield f"{event} does not fail {on_loss}, as gate.json says"
    if len({entry.command for entry in found}) > 1:
        yield "its hooks belong to several installations"


def _left_open(kind: AgentKind, on_loss: OnLoss) -> Finding:
    """Say when a call of this agent runs without the gate."""
    version = _version(kind)
    title = f"{kind.title} {'.'.join(map(str, version))}".rstrip()
    if kind.gaps:
        return Finding("warn", kind.name, f"{title} runs a call {kind.gaps}", kind.remedy)
    if on_loss == "open":
        return Finding(
            "ok", kind.name, f"{title} runs a call if its hook fails, is missing or takes too long: it fails open"
        )
    if version >= kind.blocks_since:
        return Finding("ok", kind.name, f"{title} refuses a call if its hook fails, is missing or takes too long")
    known = ".".join(map(str, kind.blocks_since))
    text = f"{title} may run a call if its hook is missing or takes too long: only {known} is known to refuse it"
    unknown = "" if version else f"; `{kind.name} --version` did not tell the version"
    return Finding("warn", kind.name, text + unknown, f"update {kind.title} to {known} or later")


def _version(kind: AgentKind) -> tuple[int, ...]:
    """Return the version of an agent that is installed; empty if it does not tell."""
    try:
        done = subprocess.run([kind.name, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    numbers = re.search(rb"\d+(\.\d+)+", done.stdout)
    return () if numbers is None else tuple(map(int, numbers[0].split(b".")))


def _twice(files: list[HookSettings]) -> Iterator[Finding]:
    for kind in AGENT_KINDS.values():
        paths = [str(file.path) for file in files if file.kind is kind]
        if len(paths) > 1:
            way = f"`{command_line('gate', 'uninstall', kind.name, '--user')}`, then install them once"
            yield Finding("warn", "settings", f"{' and '.join(paths)} have the hooks, so they may run twice", way)


# the socket and the server


def _socket(known: GateSettings) -> Iterator[Finding]:
    path = Path(known.socket)
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        yield Finding("bad", "socket", f"{path} is too long for a socket", _install("claude"))
    try:
        problem = not_private(path.parent)
    except FileNotFoundError:
        yield Finding("ok", "socket", f"{path.parent} does not exist yet; the server creates it")
    except OSError as error:
        yield Finding("bad", "socket", f"{path.parent} cannot be used: {error.strerror}", "check its permissions")
    else:
        if problem:
            yield Finding("bad", "socket", f"{path.parent}: {problem}", f"chmod 700 {path.parent}, or remove it")
        else:
            yield Finding("ok", "socket", f"{path}, in a folder that only you can enter")


def _server(known: GateSettings) -> Iterator[Finding]:
    took = GateCaller(GatePlace(known.socket, known.flag, known.on_loss), "check", "check").end()
    if took is not None:
        yield Finding("ok", "server", f"answers in {took * 1000:.0f} ms")
    elif known.on_loss == "closed":
        yield Finding("bad", "server", "none answers, so all tool calls are refused", _serve())
    else:
        yield Finding("warn", "server", "none answers, so tool calls run unless everything is paused", _serve())


def _serve() -> str:
    return f"`{command_line('gate', 'serve')}`"


# the hook


def _hook(root: Path, command: HookCommand) -> Iterator[Finding]:
    way = _install(command.kind)
    if not os.access(command.python, os.X_OK):
        yield Finding("bad", "python", f"{command.python} is not a program", way)
        return
    if command.native and not os.access(command.native, os.X_OK):
        yield Finding("bad", "hook", f"{command.native} is not a program", way)
        return
    if not os.path.isfile(command.hook):
        yield Finding("bad", "hook", f"there is no file {command.hook}", way)
        return
    if Path(command.hook) != hook_file():
        yield Finding("warn", "hook", f"{command.hook} belongs to another installation than this command", way)
    yield _round_trip(root, command)


def _round_trip(root: Path, command: HookCommand) -> Finding:
    """Run the hook as an agent does, with the end of a session that does not exist."""
    event = {"hook_event_name": "SessionEnd", "session_id": "pausepoint-check", "cwd": str(root), "reason": "other"}
    line = command.line("SessionEnd", "open")
    began, before = time.monotonic(), _cpu()
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=json.dumps(event).encode(), cwd=root, env=_environment(),
            capture_output=True, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Finding("bad", "hook", f"it did not answer within {PATIENCE} s", _install(command.kind))
    took, cpu = time.monotonic() - began, _cpu() - before
    if done.returncode:
        said = one_line(done.stderr.decode(errors="replace"))[-300:]
        return Finding("bad", "hook", f"it failed with exit code {done.returncode}: {said}", _install(command.kind))
    form = "in C" if command.native else "in Python"
    text = f"{form}, answers {command.kind} in {took * 1000:.0f} ms, {cpu * 1000:.0f} ms of them on the processor"
    if cpu > CPU:
        return Finding("warn", "hook", text, f"more than {CPU * 1000:.0f} ms slow every tool call: use a faster Python")
    return Finding("ok", "hook", text)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    """Return the environment without another gate, so that gate.json counts."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PAUSEPOINT_GATE")}
