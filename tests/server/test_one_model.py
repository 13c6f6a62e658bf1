"""The command line, HTTP and a program work on one session, with one model of its state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import run
from tests.cli.samples import Letter, letters, project, within
from tests.server.processes import Process

CODE = "tests.cli.letter:letter"


@pytest.mark.covers("S3.5")
def test_the_api_the_commands_and_a_program_work_on_one_session_with_one_state_model(tmp_path: Path) -> None:
    folder = project(tmp_path)
    store = letters(folder, one="Ada")

    def command(*words: str) -> Any:
        done = run(*words, "--json", cwd=folder)
        assert done.code == 0, done.stderr
        return json.loads(done.stdout)

    with Process(store.parent, "--target", CODE, "--store", str(store)) as server:

        def state() -> Any:
            return server.client.get("/sessions/one/state").json()["values"]

        def change(**fields: str) -> Any:
            mark = server.client.get("/sessions/one").headers["etag"]
            return server.client.post("/sessions/one/edit", json={"fields": fields}, headers={"If-Match": mark})

        paused = server.client.post("/sessions/one/pause", json={"reason": "lunch"})  # or the server takes up each edit
        assert paused.status_code == 200, paused.text
        assert [each["reason"] for each in command("show", "one")["pauses"]] == ["lunch"]

        assert command("show", "one")["state"] == state() == {"name": "Ada", "text": "Dear Ada", "reply": ""}
        command("edit", "one", "--set", "text=Hello")
        assert state()["text"] == "Hello"
        changed = change(text="Good morning")
        assert changed.status_code == 200, changed.text
        assert command("show", "one")["state"]["text"] == "Good morning"

        refused = change(txet="Hello").json()["detail"], run("edit", "one", "--set", "txet=Hello", cwd=folder).stderr
        assert all("Letter has no field 'txet'. Did you mean 'text'?" in each for each in refused), refused

        command("send", "one", "Thank you")
        resumed = server.client.post("/sessions/one/resume", json={})
        assert resumed.status_code == 200, resumed.text
        server.until("one", "completed")
        events = server.client.get("/sessions/one/events").json()["events"]
        assert events == command("events", "one")["events"]
        assert state() == command("show", "one")["state"]
    final = within(store, lambda engine: engine.session("one").state())
    assert final == Letter(name="Ada", text="Good morning", reply="Thank you")
