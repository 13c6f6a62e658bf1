"""The agent that is a model: it writes a file, a command checks it, and what that says goes back to the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pausepoint.apps.devs.__main__ import main
from tests.apps.calls import Call, calling
from tests.apps.devs_kit import write_plan
from tests.support.modelserver import ModelServer, Refuses, Says, Status, model_in_use


def draft(content: str) -> Says:
    return Says(json.dumps({"content": content}))


call = calling(main)


@pytest.fixture
def server(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with model_in_use(monkeypatch, price="1000/1000") as server:
        yield server


NOTES = {"id": "notes", "write": "docs/notes.md", "prompt": "Notes on ropes.", "check": "grep rope docs/notes.md"}


def asked(server: ModelServer, number: int) -> Any:
    return json.loads(server.requests[number]["messages"][-1]["content"])


def test_a_draft_that_the_check_refuses_is_written_again_with_what_it_said(
    server: ModelServer, tmp_path: Path, call: Call
) -> None:
    write_plan(tmp_path, [NOTES | {"check": "grep rope docs/notes.md || { echo no rope; false; }"}])
    server.will(draft("about tides"), draft("about a rope"))
    done = call("run", "plan.json", "--json")
    assert (done.code, done.last_document["counts"]) == (0, {"done": 1})
    assert (tmp_path / "work" / "docs" / "notes.md").read_text() == "about a rope"
    first, second = asked(server, 0), asked(server, 1)
    assert (first["what"], first["content_now"], first["the_check_said"]) == ("Notes on ropes.", None, "")
    assert (second["content_now"], second["the_check_said"]) == ("about tides", "no rope\n")
    assert done.last_document["spent_usd"] == pytest.approx(0.24)
    [agent], [task] = done.last_document["agents"], done.last_document["tasks"]
    for each in (agent, task):
        assert (each["spent_usd"], each["spent_tokens"]) == (pytest.approx(0.24), 240)
    shown = call("status", "plan.json").out
    assert "$0.2400, 240 tokens" in shown
    assert "Spent: agent-1 $0.2400, 240 tokens" in shown


@pytest.mark.long
def test_three_drafts_that_do_not_pass_fail_the_task_and_a_resume_asks_again(
    server: ModelServer, tmp_path: Path, call: Call
) -> None:
    write_plan(tmp_path, [NOTES])
    server.will(*[draft("about tides")] * 3)
    failed = call("run", "plan.json")
    assert failed.code == 1
    assert "The check accepted none of 3 drafts of docs/notes.md" in failed.err
    server.will(draft("a rope, at last"))
    assert call("resume", "plan.json").code == 0
    assert len(server.requests) == 4


@pytest.mark.long
def test_a_check_that_is_restricted_waits_for_a_yes_and_the_draft_is_not_paid_for_twice(
    server: ModelServer, tmp_path: Path, call: Call
) -> None:
    write_plan(tmp_path, [NOTES], restricted=["grep"])
    server.will(draft("a rope"))
    waits = call("run", "plan.json", "--json")
    assert waits.code == 3
    assert call("answer", waits.last_document["questions"][0]["id"], "--approve").code == 0
    assert call("resume", "plan.json").code == 0
    assert len(server.requests) == 1


@pytest.mark.long
def test_a_run_stops_before_its_budget_is_spent_and_goes_on_with_a_higher_one(
    server: ModelServer, tmp_path: Path, call: Call
) -> None:
    more = NOTES | {"id": "more", "needs": ["notes"], "write": "more.md", "check": "grep rope more.md"}
    write_plan(tmp_path, [NOTES, more])
    server.will(draft("a rope"), draft("another rope"))
    stopped = call("run", "plan.json", "--budget", "0.13")
    assert stopped.code == 3
    assert "$0.1200 of a budget of $0.1300 is spent, which is 92%" in stopped.out
    assert call("resume", "plan.json", "--budget", "1").code == 0
    assert len(server.requests) == 2


@pytest.mark.long
@pytest.mark.parametrize(("act", "said"), [(Refuses(), "declines"), (Status(401), "status 401")])
def test_a_model_that_gives_nothing_fails_that_task_alone(
    server: ModelServer, tmp_path: Path, call: Call, act: Any, said: str
) -> None:
    write_plan(tmp_path, [NOTES, {"id": "other", "run": "true"}])
    server.will(act)
    failed = call("run", "plan.json", "--json")
    assert (failed.code, failed.last_document["counts"]) == (1, {"failed": 1, "done": 1})
    assert said in failed.last_document["tasks"][0]["note"]


def test_a_model_that_is_away_is_waited_for_and_that_is_said(server: ModelServer, tmp_path: Path, call: Call) -> None:
    write_plan(tmp_path, [NOTES])
    server.will(Status(503), draft("a rope"))
    done = call("run", "plan.json")
    assert done.code == 0, done.err
    assert "The model tiny at" in done.out
    assert "status 503" in done.out


def test_a_file_that_leads_out_of_the_workspace_by_a_link_is_not_written(
    server: ModelServer, tmp_path: Path, call: Call
) -> None:
    write_plan(tmp_path, [NOTES])
    (tmp_path / "outside").mkdir()
    (tmp_path / "work" / "docs").symlink_to(tmp_path / "outside")
    failed = call("run", "plan.json")
    assert failed.code == 1
    assert "leads out of the workspace through a link" in failed.err
    assert list((tmp_path / "outside").iterdir()) == []


def test_without_a_model_such_a_plan_is_refused_before_anything_starts(tmp_path: Path, call: Call) -> None:
    write_plan(tmp_path, [NOTES])
    refused = call("run", "plan.json")
    assert refused.code == 2
    assert "No model is configured, but these tasks need one: notes. Set PAUSEPOINT_MODEL" in refused.err
    assert not (tmp_path / ".pausepoint").exists()
