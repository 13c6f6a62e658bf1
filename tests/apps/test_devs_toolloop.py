"""A task that is a prompt with tools: the model names calls, and each exchange and each call is made once."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pausepoint.apps.devs.__main__ import main
from tests.apps.calls import Call, calling
from tests.apps.devs_kit import effects, write_plan
from tests.apps.programs import Devs
from tests.support.forkserver import Child, Forks
from tests.support.modelserver import Calls, ModelServer, Says, model_in_use
from tests.support.waits import until

call = calling(main)

FIX: dict[str, Any] = {"id": "fix", "prompt": "Write a.txt.", "tools": ["read", "write", "list", "run"]}


@pytest.fixture
def server(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with model_in_use(monkeypatch, price="1000/1000") as server:
        yield server


def calls(tool: str, **arguments: str) -> Calls:
    return Calls(((tool, arguments),))


def results(server: ModelServer) -> list[Any]:
    """Return the results that the model saw in the last request."""
    return [json.loads(each["content"]) for each in server.requests[-1]["messages"] if each["role"] == "tool"]


@pytest.mark.long
def test_a_model_does_a_task_with_its_tools(server: ModelServer, here: Path, call: Call) -> None:
    write_plan(here, [FIX])
    server.will(
        calls("list"), calls("read", path="task.sh"), calls("write", path="docs/a.txt", content="ahoy"),
        calls("run", command="cat docs/a.txt; exit 3"), calls("read", path="none.txt"), Says("It is done."),
    )  # fmt: skip
    done = call("run", "plan.json", "--json")
    assert (done.code, done.last_document["counts"]) == (0, {"done": 1}), done.err
    assert (here / "work" / "docs" / "a.txt").read_text() == "ahoy"
    listed, read, written, ran, missing = results(server)
    assert listed == {"files": ["task.sh"]}
    assert read["content"].startswith("# What every task does")
    assert (written, ran) == ({"written": 4}, {"exit_code": 3, "output": "ahoy"})
    assert missing == {"error": "none.txt: No such file or directory"}
    [agent] = done.last_document["agents"]
    assert (agent["spent_usd"], agent["spent_tokens"]) == (pytest.approx(0.72), 720)
    assert json.loads(server.requests[0]["messages"][-1]["content"]) == {"task": "Write a.txt.", "turns": 30}
    assert [each["function"]["name"] for each in server.requests[0]["tools"]] == ["read", "write", "list", "run"]


@pytest.mark.long
def test_calls_of_one_turn_are_made_in_their_order(server: ModelServer, here: Path, call: Call) -> None:
    write_plan(here, [FIX], restricted=["cat"])
    both = (
        ("write", {"path": "a.txt", "content": "x"}),
        ("run", {"command": "cat a.txt"}),
        ("run", {"command": "cat a.txt"}),
    )
    server.will(Calls(both), Says("Done."))
    for _ in range(2):
        waits = call("run", "plan.json", "--json")
        assert waits.code == 3, waits.err
        assert call("answer", waits.last_document["questions"][0]["id"], "--approve").code == 0
    assert call("run", "plan.json").code == 0
    assert results(server) == [{"written": 1}, *[{"exit_code": 0, "output": "x"}] * 2]
    assert len(server.requests) == 2


@pytest.mark.long
def test_a_tool_does_not_leave_the_workspace(server: ModelServer, here: Path, call: Call) -> None:
    write_plan(here, [FIX])
    (here / "outside").mkdir()
    (here / "work" / "link").symlink_to(here / "outside")
    paths = ["../out.txt", "/etc/out.txt", ".devs/x", "link/out.txt", "", "nul\0"]
    server.will(*(calls("write", path=path, content="x") for path in paths), calls("read", path="link/x"), Says("No."))
    assert call("run", "plan.json").code == 0
    assert [list(each) for each in results(server)] == [["error"]] * 7
    assert list((here / "outside").iterdir()) == []
    assert not (here / "out.txt").exists()


@pytest.mark.long
def test_a_tool_that_the_plan_does_not_give_is_refused(server: ModelServer, here: Path, call: Call) -> None:
    write_plan(here, [FIX | {"tools": ["read"]}])
    server.will(calls("run", command="touch ran"), Says("No."))
    assert call("run", "plan.json").code == 0
    [refused] = [each["content"] for each in server.requests[-1]["messages"] if each["role"] == "tool"]
    assert "Unknown tool name: 'run'" in refused
    assert not (here / "work" / "ran").exists()


@pytest.mark.long
def test_a_restricted_command_asks_and_a_no_is_for_the_model(server: ModelServer, here: Path, call: Call) -> None:
    write_plan(here, [FIX], restricted=["rm"])
    server.will(calls("run", command="rm -f x"), calls("run", command="rm -f y"), Says("I stop."))
    for answer in (["--approve"], ["--reject", "not now"]):
        waits = call("run", "plan.json", "--json")
        assert waits.code == 3
        assert call("answer", waits.last_document["questions"][0]["id"], *answer).code == 0
    assert call("run", "plan.json").code == 0
    assert results(server) == [{"exit_code": 0, "output": ""}, {"error": "'rm -f y' was refused: not now"}]
    assert len(server.requests) == 3, "no exchange is paid for twice"


@pytest.mark.long
def test_commands_have_a_time_limit_and_the_model_has_turns(server: ModelServer, here: Path, call: Call) -> None:
    write_plan(here, [FIX | {"timeout": 0.2, "turns": 2}])
    server.will(calls("run", command="sleep 100"), calls("read", path="task.sh"))
    failed = call("run", "plan.json")
    assert failed.code == 1
    assert "TurnsUsed: The model has not finished within 2 turns" in failed.err
    assert results(server) == [{"error": "timed out and was ended"}]


class DevsWithModel(Devs):
    """Devs in a process that finds the model."""

    server_url = ""

    def begin(self, *args: str, at: str = "", by: signal.Signals | None = None) -> Child:
        settings = {"PAUSEPOINT_MODEL": "tiny", "PAUSEPOINT_MODEL_URL": self.server_url, "NO_PROXY": "127.0.0.1"}
        held = {"HELD_FOLDER": str(self.folder), "HELD_AT": at, "HELD_BY": by.name if by else ""}
        return self.server.start(
            self.job, args=[*args, *self.options], folder=str(self.folder), said=str(self._said(self.server.next)),
            environment=settings | held,
        )  # fmt: skip


@pytest.fixture
def devs(here: Path, forks: Forks, server: ModelServer) -> DevsWithModel:
    write_plan(here, [FIX])
    found = DevsWithModel(here, forks)
    found.server_url = server.url
    return found


@pytest.mark.long
def test_a_pause_stops_before_the_next_tool_call_which_the_snapshot_shows(
    devs: DevsWithModel, server: ModelServer
) -> None:
    answered = threading.Event()
    server.will(Calls((("write", {"path": "a.txt", "content": "x"}),), answered), Says("Done."))
    child = devs.begin("run", "plan.json")
    until(lambda: len(server.requests) == 1)
    devs.run("pause", "plan.json")
    answered.set()
    devs.ends(child, 3)
    assert not (devs.work / "a.txt").exists()
    [agent] = json.loads((devs.work / ".devs" / "state_snapshot.json").read_text())["activeAgents"]
    assert agent["pendingToolCalls"] == [{"id": "fix/1", "name": "write", "arguments": {"args": ["a.txt", "x"]}}]
    assert agent["memory"] == {"turn": 1}
    devs.run("resume", "plan.json")
    assert (devs.work / "a.txt").read_text() == "x"
    assert len(server.requests) == 2


@pytest.mark.long
def test_after_a_kill_in_a_tool_call_nothing_finished_is_repeated(devs: DevsWithModel, server: ModelServer) -> None:
    server.will(
        calls("write", path="a.txt", content="x"), calls("run", command="sh task.sh fix"), calls("read", path="a.txt"),
        Says("Done."),
    )  # fmt: skip
    held = devs.hold_task("fix")
    devs.run("run", "plan.json", at="during fix")
    (devs.work / "a.txt").write_text("changed since")
    held.unlink()
    devs.run("resume", "plan.json")
    assert effects(devs.folder) == ["fix"]
    assert (devs.work / "a.txt").read_text() == "changed since", "the file is not written again"
    assert len(server.requests) == 4
