"""What a test of a workflow needs: an engine in memory, a manual clock, crashes on purpose, forced replays.

And for authors of stores, the suite that every store must pass (`pausepoint.testing.suite`). The pytest
fixtures are in `pausepoint.testing.fixtures`; nothing else here needs pytest.
"""

from __future__ import annotations

from pausepoint.testing.clock import ManualClock
from pausepoint.testing.crashes import CrashPointFailed, crash_at, crash_points, every_crash_point
from pausepoint.testing.inline import InlineEngine, engine, run
from pausepoint.testing.machine import CrashPoint, CrashPointMissed, Machine, after, before
from pausepoint.testing.recorded import Difference, RecordingDiffers, load, record, rehearse, replay
from pausepoint.testing.replay import always_replay

__all__ = [
    "CrashPoint",
    "CrashPointFailed",
    "CrashPointMissed",
    "Difference",
    "InlineEngine",
    "Machine",
    "ManualClock",
    "RecordingDiffers",
    "after",
    "always_replay",
    "before",
    "crash_at",
    "crash_points",
    "engine",
    "every_crash_point",
    "load",
    "record",
    "rehearse",
    "replay",
    "run",
]
