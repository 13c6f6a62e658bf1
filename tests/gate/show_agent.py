"""A fake agent that shows what it does, for the recording of the gate:  python -m tests.gate.show_agent NAME

It asks the hooks of its project before each call, as `tests.gate.fake_agent` does. The calls themselves only take time.
Each one appends a line with its name and the time when it began to ``effects.txt``.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.gate import fake_agent

STORIES: dict[str, list[str]] = {
    "api": [
        "Read src/api/users.py", "Edit src/api/users.py", "Bash pytest -q tests/api", "Edit src/api/errors.py",
        "Bash pytest -q tests/api", "Bash git commit -am paging",
    ],
    "billing": [
        "Grep round( in src/billing", "Read src/billing/tax.py", "Edit src/billing/tax.py", "Bash make invoices",
        "Bash pytest -q tests/billing", "Bash git commit -am rounding",
    ],
    "docs": [
        "Read docs/guide.md", "Write docs/paging.md", "Edit docs/index.md", "Bash make links", "Edit docs/guide.md",
        "Bash make docs",
    ],
    "mobile": [
        "Read app/login.kt", "Bash ./gradlew test", "Edit app/login.kt", "Edit app/login_test.kt",
        "Bash ./gradlew test", "Bash ./gradlew lint",
    ],
    "search": [
        "Bash make index", "Read src/search/rank.py", "Edit src/search/rank.py", "Bash python bench.py",
        "Edit src/search/rank.py", "Bash python bench.py",
    ],
    "tests": [
        "Bash pytest -q --lf", "Read tests/test_cart.py", "Edit tests/test_cart.py", "Bash pytest -q tests",
        "Edit src/cart.py", "Bash pytest -q tests",
    ],
}  # fmt: skip
"""The calls of each agent: a tool and what it is used for."""

CALLS = 6
"""How many calls each agent makes."""

PACES = {"api": 2.0, "billing": 2.8, "docs": 1.8, "mobile": 3.0, "search": 2.3, "tests": 2.6}
"""Seconds that each agent thinks before a call, and half as many that the call takes.

They differ, so that the agents do not work in step. They are long, so that the pause comes in time on a busy machine;
the recording shows it all faster.
"""

HURRY = "hurry"
"""A file. When it exists, agents neither think nor take time."""

PATIENT = "patient"
"""A file. When it exists, the second call of an agent lasts until everything is paused, so the pause is in time."""

WAITS_AFTER = 0.7
"""Seconds without an answer after which an agent shows that it waits."""

EFFECTS = "effects.txt"
ENDED = "All done."
WAITS = "waiting at the gate"

DIM, BLUE, GREEN, YELLOW = "2", "34", "32", "33"
PLAIN = "\x1b[0m"
THINKS, ASKED, WAITING, RUNS, DONE = "…○‖●✓"
"""The sign in front of a call."""


def effects_of(name: str, calls: int) -> list[str]:
    """Return the names of an agent's calls."""
    return [f"{name}-{number}" for number in range(1, calls + 1)]


def paint(sign: str, text: str, colour: str, below: str = "") -> None:
    """Write the last line of the screen again, and a line below it that stays until the next call of this."""
    sys.stdout.write(f"\r\x1b[J\x1b[{colour}m{sign}{PLAIN if sign == DONE else ''} {text}{PLAIN}")
    if below:
        sys.stdout.write(f"\r\n  \x1b[{colour};7m{below}{PLAIN}\x1b[A")
    sys.stdout.flush()


class ShowAgent:
    """An agent with a line on the screen for each call: thinking, asked, waiting, running or done."""

    def __init__(self, name: str, calls: int) -> None:
        self.name = name
        self.story = STORIES[name][:calls]
        self.agent = fake_agent.Agent(fake_agent.options(["--session", name]))

    def run(self) -> None:
        """Make all calls."""
        self.agent.fire("SessionStart", source="startup")
        self.agent.fire("UserPromptSubmit", prompt="Go.")
        for effect, text in zip(effects_of(self.name, len(self.story)), self.story, strict=True):
            paint(THINKS, "thinking", DIM)
            self._take(PACES[self.name])
            self._call(effect, text)
        self.agent.conclude(ENDED, [])
        self.agent.fire("SessionEnd", reason="other")
        paint(" ", ENDED, DIM)

    def _call(self, effect: str, text: str) -> None:
        tool, _, what = text.partition(" ")
        given = {"command" if tool == "Bash" else "file_path": what}
        call: dict[str, Any] = {"tool_name": tool, "tool_input": given, "tool_use_id": effect}
        shown = f"{tool:<6}{what}"
        self.agent.answered([call], {})
        if not self._allowed(call, shown):
            raise SystemExit(f"the gate refused {effect}")
        with Path(EFFECTS).open("a") as file:
            file.write(f"{effect} {time.time()}\n")
        paint(RUNS, shown, BLUE)
        self._take(PACES[self.name] / 2)
        while effect.endswith("-2") and Path(PATIENT).exists() and not self._pause_came():
            time.sleep(0.02)
        self.agent.fire("PostToolUse", **call, duration_ms=1, tool_response={})
        self.agent.batch([call], {})
        paint(DONE, shown, GREEN)
        sys.stdout.write("\r\n")

    def _pause_came(self) -> bool:
        return Path(HURRY).exists() or any(Path(".pausepoint").glob("*-paused"))

    def _take(self, seconds: float) -> None:
        time.sleep(0 if Path(HURRY).exists() else seconds)

    def _allowed(self, call: dict[str, Any], shown: str) -> bool:
        """Ask the hooks. If the answer takes time, show that the agent waits."""
        paint(ASKED, shown, DIM)
        waits = threading.Timer(WAITS_AFTER, paint, [WAITING, shown, YELLOW, WAITS])
        waits.start()
        try:
            return self.agent.allowed(call, {})
        finally:
            waits.cancel()
            waits.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gate.show_agent", description="A fake agent to look at.")
    parser.add_argument("name", choices=STORIES)
    parser.add_argument("--calls", type=int, default=CALLS)
    given = parser.parse_args()
    sys.stdout.write("\x1b[?25l")  # no cursor
    ShowAgent(given.name, given.calls).run()
    threading.Event().wait()  # what is on the screen stays there until the terminal is closed


if __name__ == "__main__":
    main()
