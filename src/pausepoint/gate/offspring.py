"""The commands that an agent has started, in the foreground and in the background."""

from __future__ import annotations

from pausepoint.gate.warden import Processes, command_of

SHOWN = 200
"""The most characters of a command."""


def processes_of(pid: int) -> Processes:
    """Return the processes that an agent has started, without the hooks of the gate."""
    return Processes(parent=pid)


def offspring(pid: int) -> list[str]:
    """Return the commands that an agent has started and that have not ended, without the hooks of the gate.

    A shell that only waits for its command is left out. Empty where there is no ``/proc``.
    """
    found = processes_of(pid).find()
    waiting = {each.parent for each in found}
    return [
        f"{line[:SHOWN]} (process {each.pid}, {'frozen' if each.is_stopped else 'running'})"
        for each in found
        if each.pid not in waiting and (line := command_of(each.pid))
    ]
