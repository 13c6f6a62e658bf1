"""The gate: command-line agents of other programs under the one pause button. See `docs/gate.md`.

All names in `__all__` are public.
"""

from __future__ import annotations

from pausepoint.gate.approval import restriction, restriction_of_call
from pausepoint.gate.callers import GateCaller, Verdict, find_place
from pausepoint.gate.gates import CALL, Gate
from pausepoint.gate.guests import AGENTS, AgentNote, GuestAgents, agent_note, close_withdrawn
from pausepoint.gate.hooks import AGENT_KINDS, AgentKind, HookCommand, HookSettings, hook_command, missing_hooks
from pausepoint.gate.installation import Installation
from pausepoint.gate.payloads import approval_of_call
from pausepoint.gate.reports import AgentFacts, Report
from pausepoint.gate.settings import (
    GateSettings,
    SettingsRefused,
    find_gate,
    make_private,
    read_gate,
    runtime_folder,
    socket_path,
)
from pausepoint.gate.sockets import GateSocket
from pausepoint.gate.transcripts import tokens_in, tokens_of
from pausepoint.gate.warden import Processes, adopt_orphans, under_warden, warden_command
from pausepoint.integrations.gate import GatePlace

__all__ = [
    "AGENTS",
    "AGENT_KINDS",
    "CALL",
    "AgentFacts",
    "AgentKind",
    "AgentNote",
    "Gate",
    "GateCaller",
    "GatePlace",
    "GateSettings",
    "GateSocket",
    "GuestAgents",
    "HookCommand",
    "HookSettings",
    "Installation",
    "Processes",
    "Report",
    "SettingsRefused",
    "Verdict",
    "adopt_orphans",
    "agent_note",
    "approval_of_call",
    "close_withdrawn",
    "find_gate",
    "find_place",
    "hook_command",
    "make_private",
    "missing_hooks",
    "read_gate",
    "restriction",
    "restriction_of_call",
    "runtime_folder",
    "socket_path",
    "tokens_in",
    "tokens_of",
    "under_warden",
    "warden_command",
]
