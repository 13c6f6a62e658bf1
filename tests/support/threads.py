"""Count the threads that a test starts. Those of tests that ran before come and go meanwhile."""

from __future__ import annotations

import threading

import pytest


def started_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return a list to which each thread is added that the calling thread starts from now on."""
    started = list[threading.Thread]()
    start, here = threading.Thread.start, threading.current_thread()

    def count(thread: threading.Thread) -> None:
        if threading.current_thread() is here:
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", count)
    return started
