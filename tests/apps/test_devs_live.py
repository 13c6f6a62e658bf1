"""Devs at a real terminal: the graph is drawn while things happen, by the run itself and from beside it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.apps.devs_kit import lines, small, task, write_plan
from tests.cli.kit import Process, plain, screen
from tests.support.loop import PATIENCE
from tests.support.waits import until

DEVS = ("-m", "pausepoint.apps.devs")


def rows(shown: str) -> dict[str, str]:
    """The mark before each task, as the screen stands."""
    found = [line.split() for line in screen(shown).splitlines()]
    return {words[1]: words[0] for words in found if len(words) > 1 and words[1] in "abcde"}


def until_shown(process: Process, **marks: str) -> None:
    end = time.monotonic() + PATIENCE
    while not marks.items() <= rows(process.seen).items():
        assert time.monotonic() < end, screen(process.seen)
        process._read(end)


@pytest.mark.long
def test_status_shows_the_graph_live_and_the_run_asks_in_place(tmp_path: Path) -> None:
    write_plan(tmp_path, [*small(), task("e", ["d"], run="rm -f x")], restricted=["rm"])
    held = [tmp_path / "work" / f"hold-{id}" for id in "bd"]
    for path in held:
        path.touch()
    with Process("run", "plan.json", cwd=tmp_path, program=DEVS, tty=True) as run:
        until(lambda: any(line.startswith("b ") for line in lines(tmp_path, "began")))
        with Process("status", "plan", cwd=tmp_path, program=DEVS, tty=True, size=(140, 40), beside=run) as status:
            until_shown(status, a="✓", c="✓", d="·", e="·")
            held[0].unlink()
            until_shown(status, a="✓", b="✓", c="✓", e="·")  # nobody typed anything: it is live
            status.type("\x03")
            assert status.wait().code == 130
        assert run.child.poll() is None, "who only looks ends nothing"
        with Process("status", "plan", cwd=tmp_path, program=DEVS, tty=True, beside=run) as status:
            until_shown(status, c="✓", e="·")
            held[1].unlink()
            assert status.wait().code == 0, "it ends when the run stands"
            assert rows(status.seen) == {"a": "✓", "b": "✓", "c": "✓", "d": "✓", "e": "?"}
        run.until("Approve (yes, no, later)")
        run.type("yes\n")
        assert run.wait().code == 0
    assert rows(run.seen) == dict.fromkeys("abcde", "✓")
    assert "plan completed: 5 done" in plain(run.seen)


@pytest.mark.long
def test_a_workspace_that_another_hand_changed_is_asked_about_and_ctrl_c_is_an_answer(tmp_path: Path) -> None:
    write_plan(tmp_path, [task("a", run="rm -f x")], restricted=["rm"])
    with Process("run", "plan.json", cwd=tmp_path, program=DEVS) as run:
        assert run.wait().code == 3
    (tmp_path / "work" / "mine").touch()
    asks = "Accept the changed files? [y/N]: "
    with Process("resume", "plan", cwd=tmp_path, program=DEVS, tty=True) as resume:
        resume.until(asks)
        resume.interrupt()
        assert (resume.wait().code, "Interrupted. Finished work is kept" in plain(resume.seen)) == (130, True)
    with Process("resume", "plan", cwd=tmp_path, program=DEVS, tty=True) as resume:
        resume.until(asks)
        resume.type("n\n")
        assert (resume.wait().code, "Nothing was done." in plain(resume.seen)) == (6, True)
    with Process("resume", "plan", cwd=tmp_path, program=DEVS, tty=True) as resume:
        resume.until(asks)
        resume.type("y\n")
        resume.until("Approve (yes, no, later)")
        resume.type("yes\n")
        assert resume.wait().code == 0
    assert plain(resume.seen).count("new: mine") == 1
