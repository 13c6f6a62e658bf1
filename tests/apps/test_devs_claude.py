"""Claude Code itself as tasks of devs: one pause stops three agents at their next tool calls."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.devs_kit import lines, write_plan
from tests.apps.test_devs_gated import CALLS, COMMAND, NAMES, Gated, is_paused
from tests.apps.test_devs_standby import status, waits
from tests.gate.claude import HOW, Api, bash, environment, find, serving
from tests.gate.kit import write_hooks
from tests.support.forkserver import Forks

pytestmark = pytest.mark.skipif(find() is None, reason=HOW)


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as api:
        for name in NAMES:
            api.plans[name] = [[bash(f"echo {name}-{n} >> effects.txt; {COMMAND}")] for n in range(1, CALLS + 1)]
        yield api
        assert api.outside == [], "nothing may leave the machine"


@pytest.fixture
def gated(api: Api, tmp_path: Path, forks: Forks) -> Gated:
    claude, options = shlex.quote(str(find())), "--output-format json --allowedTools Bash"

    def task(name: str) -> dict[str, Any]:
        run = f"echo {name} >> began; {claude} -p '[plan {name}] Go.' {options}"
        again = f"echo {name} again >> began; {claude} -p 'Continue.' --resume {{session}} {options}"
        return {"id": name, "agent": "claude", "run": run, "again": again}

    write_plan(tmp_path, [task(name) for name in NAMES], agents=3, env=environment(api, tmp_path / "home"))
    write_hooks(tmp_path / "work")
    return Gated(tmp_path, forks)


@pytest.mark.long
def test_three_agents_stop_at_their_next_call_and_survive_a_kill_of_the_process(gated: Gated) -> None:
    first = gated.begun()
    is_paused(gated)
    waits(gated, first)
    assert {name: [call["name"] for call in agent["pendingToolCalls"]] for name, agent in gated.snapshot.items()} == {
        name: ["command", "Bash"] for name in NAMES
    }
    assert gated.done == Counter(f"{name}-1" for name in NAMES), "no other call began"
    gated.kill(first)
    assert "plan completed: 3 done" in gated.run("resume", "plan.json", "--edits", "accept")
    gated.check_once()
    assert sorted(lines(gated.folder, "began")) == sorted([*NAMES, *(f"{name} again" for name in NAMES)])
    assert all(each["spent_usd"] > 0 for each in status(gated)["tasks"])
