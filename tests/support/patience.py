"""Longer waits for other processes than a user would accept: a busy machine delays each of them for seconds."""

from __future__ import annotations

import sys

from tests.support.loop import PATIENCE

_WAITS = {
    "pausepoint.engine.control": ("KEEPER_PATIENCE", PATIENCE / 4),
    "pausepoint.integrations.mcp_desk": ("PATIENCE", PATIENCE / 4),
    "pausepoint.orchestrator.orchestrator": ("PATIENCE", PATIENCE / 4),
    "pausepoint.testing.suite.base": ("PATIENCE", PATIENCE),
}
"""After these waits, an engine does without the other process, which a test of what both do together would notice, or a
test of the store suite fails."""


def be_patient() -> None:
    """Lengthen the waits of this process, in the modules that it has imported."""
    for name, (wait, seconds) in _WAITS.items():
        module = sys.modules.get(name)
        if module is not None:
            assert hasattr(module, wait), f"{name}.{wait}"
            setattr(module, wait, seconds)
