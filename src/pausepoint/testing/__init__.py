"""Helpers for testing workflows: an in-memory engine, a manual clock, simulated crashes and forced replays.

Store authors find the tests that every store must pass in `pausepoint.testing.suite`. The pytest fixtures are in
`pausepoint.testing.fixtures`. Only these two need pytest.
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
