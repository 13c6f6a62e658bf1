"""One session and many processes: run in one, paused from a second, watched from a third, killed, resumed."""

from __future__ import annotations

import signal

import pytest

from tests.cli.desk import Desk
from tests.cli.kit import Process, run

TARGET = ("--target", "brief.py")


@pytest.mark.long
def test_a_session_is_run_paused_watched_killed_and_resumed_by_different_processes(desk: Desk) -> None:
    """The first processes are new ones, as a shell starts them."""
    desk.hold("research")
    with Process("run", "brief.py", "--topic", "otters", "--session-id", "mine", cwd=desk.root, new=True) as runner:
        runner.until("Running step: research")
        with Process("watch", "mine", cwd=desk.root, tty=True, new=True) as watcher:
            watcher.until("mine")
            assert run("pause", "mine", "--reason", "lunch", "--by", "Ada", cwd=desk.root, new=True).code == 0
            runner.until("Pausing at the next safe point of research")
            desk.release("research")
            assert runner.wait().code == 3
            assert "lunch" in runner.seen
            assert watcher.wait().code == 3

    desk.hold("write")
    with Process("resume", "mine", *TARGET, cwd=desk.root) as runner:
        runner.until("Running step: write")
        with Process("watch", "mine", cwd=desk.root) as watcher:
            watcher.until("write")
            runner.signal(signal.SIGKILL)
            assert runner.wait().code == -signal.SIGKILL
            assert watcher.wait().code == 3  # it could go on, and nobody drives it

    desk.release("write")
    code, out, _ = run("resume", "mine", *TARGET, cwd=desk.root)
    assert code == 0
    assert "Resuming from checkpoint: research" in out
    assert [call for call in desk.calls if call != "write"] == [
        "plan", "look_up otters 0", "look_up otters 1", "look_up otters 2", "research", "review",
    ]  # fmt: skip
    assert [(info.session_id, info.status.value) for info in desk.sessions()] == [("mine", "completed")]
