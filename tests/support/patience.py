"""Longer waits for other processes than a user would accept: a busy machine delays each of them for seconds."""

from __future__ import annotations

import sys

from tests.support.loop import PATIENCE

_WAITS = {
    "pausepoint.engine.control": "KEEPER_PATIENCE",
    "pausepoint.integrations.mcp_desk": "PATIENCE",
    "pausepoint.orchestrator.orchestrator": "PATIENCE",
}
"""After these waits, an engine does without the other process, which a test of what both do together would notice."""


def be_patient() -> None:
    """Lengthen the waits of this process, in the modules that it has imported."""
    for name, wait in _WAITS.items():
        module = sys.modules.get(name)
        if module is not None:
            assert hasattr(module, wait), f"{name}.{wait}"
            setattr(module, wait, PATIENCE / 4)
