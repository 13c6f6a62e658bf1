"""The store over HTTP: what needs attention and what to do, and the sessions that do not fit the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Workflow, step
from tests.server.kit import brief, check_problem, fits, served


def checks(client: Any, *levels: str) -> list[tuple[str, str, str | None]]:
    found = client.get("/store").json()
    fits(found, "store")
    return [(each["about"], each["text"], each["way_out"]) for each in found["checks"] if each["level"] in levels]


def test_what_needs_attention_is_named_with_the_request_that_helps(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.admin() as client:
        server.asked("one")
        found = client.get("/store").json()
        (own,) = found["engines"]
        assert (own["workflows"], found["size_bytes"] > 0) == (["brief", "letter"], True)
        assert checks(client, "warn", "bad") == []
        client.put("/standing-pause", json={"reason": "a wrong model"})
        ((about, text, way),) = checks(client, "warn")
        assert (about, "a wrong model" in text, way) == ("sessions", True, "DELETE /standing-pause lifts the pause")


@pytest.mark.long
def test_a_workflow_that_no_engine_drives_is_named(tmp_path: Path) -> None:
    with served(tmp_path, workflows=(brief,)) as worker:
        worker.asked("waits")
        worker.finished("done")
    with served(tmp_path, workflows=(), drives="none") as observer, observer.admin() as client:
        assert checks(client, "warn", "bad") == [
            (
                "engines",
                "No engine drives 'brief'. Its sessions that have not ended: 1",
                "Start `pausepoint worker`.",
            )
        ]
        with served(tmp_path, workflows=(brief,)):
            assert checks(client, "warn", "bad") == []


class Fewer(BaseModel):
    topic: str


@step
async def research(topic: str) -> None:
    pass


@pytest.mark.long
def test_sessions_that_do_not_fit_the_code_are_listed_with_reasons_and_requests(tmp_path: Path) -> None:
    with served(tmp_path, workflows=(brief,)) as worker:
        for number in range(3):
            worker.asked(f"s{number}")
    changed = Workflow("brief", state=Fewer, steps=[research])
    with served(tmp_path, workflows=(changed,), drives="none") as server, server.admin() as client:
        pages = [client.get("/store/misfits?limit=2").json()]
        pages.append(client.get("/store/misfits", params={"limit": "2", "after": pages[0]["next"]}).json())
        for page in pages:
            fits(page, "misfits")
        assert [[each["session"]["session_id"] for each in page["misfits"]] for page in pages] == [["s2", "s1"], ["s0"]]
        assert pages[1]["next"] is None
        (first, *_) = client.get("/store/misfits").json()["misfits"]
        assert "no longer has" in first["reasons"][0]
        path = f"/sessions/{first['session']['session_id']}"
        assert f'run the later steps again: POST {path}/rewind with {{"to": "research"}}' in first["ways"]
        check_problem(client.get("/store/misfits?after=nonsense"), 400)
    with served(tmp_path, workflows=(), drives="none") as observer, observer.admin() as client:
        assert client.get("/store/misfits").json()["misfits"] == [], "it has no code that they could not fit"
        with observer.client(observer.token("admin", "ann")) as limited:
            check_problem(limited.get("/store"), 403)
            check_problem(limited.get("/store/misfits"), 403)
