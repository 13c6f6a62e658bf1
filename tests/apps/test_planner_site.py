"""The plan on a phone, over HTTP: links that open one plan, and marks that the plan keeps."""

from __future__ import annotations

import csv
import json
import signal
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

from pausepoint import Engine
from pausepoint.apps.planner import planner, sessions
from pausepoint.apps.planner.__main__ import main
from pausepoint.apps.planner.models import PlanRow, Upload
from pausepoint.apps.planner.shown import days
from pausepoint.server.tokens import Tokens
from pausepoint.server.visitors import Visitors
from tests.apps.calls import Call, calling
from tests.apps.planner_kit import CALC, HIST, run
from tests.apps.planner_web import link, phone, plan, web
from tests.server.kit import Served
from tests.support.forkserver import Child, Forks
from tests.support.held import Driven
from tests.support.waits import until

call = calling(main)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two plans. Tests that share it leave no marks."""
    with web(tmp_path_factory.mktemp("web")) as server:
        plan(server)
        plan(server, "autumn", [])
        yield server


def read(http: httpx.Client) -> dict[str, Any]:
    answer = http.get("/plan")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for day in document["days"] for row in day["rows"] if row["id"]]


def mark(http: httpx.Client, what: str, done: bool = True) -> dict[str, Any]:
    answer = http.post("/marks", json={"what": what, "done": done})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def status(document: dict[str, Any], row_id: str) -> str:
    (found,) = (row["status"] for row in rows(document) if row["id"] == row_id)
    return str(found)


def left(document: dict[str, Any], what: str) -> int:
    (found,) = (topic["left"] for course in document["topics"] for topic in course["topics"] if topic["what"] == what)
    return int(found)


def test_the_page_shows_every_row_of_the_plan(shared: Served) -> None:
    state = shared.run(shared.engine.session("spring").state())
    with phone(shared.base, link(shared.folder)) as http:
        document = read(http)
    shown = [(row["id"], row["task"], row["minutes"]) for row in rows(document)]
    planned = state.planning_state.plan_rows
    assert shown == [(row.row_id, row.task_description, row.estimated_minutes) for row in planned if
                     row.estimated_minutes]  # fmt: skip
    assert document["session_id"] == "spring"
    assert document["midterms"] == ["Thu 21 Feb 2030: Calculus II", "Tue 26 Feb 2030: History"]
    assert {course["course"] for course in document["topics"]} == {"Calculus II", "History"}


@pytest.mark.long
def test_a_mark_of_a_row_is_kept_written_and_removed(tmp_path: Path) -> None:
    with web(tmp_path) as server:
        table = Path(plan(server).artifacts.csv_path or "")
        with phone(server.base, link(tmp_path)) as http:
            first, second, *_ = rows(read(http))
            assert status(mark(http, first["id"]), first["id"]) == "done"
            assert status(mark(http, second["id"]), second["id"]) == "done"  # the planner may still write the first
            assert [status(read(http), row["id"]) for row in (first, second)] == ["done", "done"]
            assert status(mark(http, first["id"], False), first["id"]) == "planned"
            server.run(server.engine.session("spring").outcome())
            with table.open(newline="") as file:
                assert [row["row_id"] for row in csv.DictReader(file) if row["status"] == "done"] == [second["id"]]
    # What was marked is there without the server.
    with Engine(tmp_path / "store.db", workflows=[planner], create=False) as engine:
        state = sessions.state_of(engine, "spring")
    assert {each.row_id for each in state.user_inputs.progress} == {second["id"]}
    assert state.planning_state.plan_version == 1


@pytest.mark.long
def test_a_topic_is_marked_and_unmarked_and_one_of_another_course_with_its_name_is_not(tmp_path: Path) -> None:
    book = tmp_path / "book.md"
    text = "".join(f"## {title}\n\n{'some words about it and more ' * 400}\n\n" for title in ("Eels", "Crabs", "Kelp"))
    book.write_text(f"# Sea\n\n{text}")
    with web(tmp_path) as server:
        plan(server, uploads=[Upload(path=book, is_shared=True)], shared_constraints={"max_minutes_per_day": 240})
        with phone(server.base, link(tmp_path)) as http:
            before = read(http)
            whole = left(before, "calc2: Eels")
            after = mark(http, "calc2: Eels")
            assert (left(after, "calc2: Eels"), left(after, "hist: Eels")) == (0, whole)
            marked = [row for row in rows(after) if row["status"] == "done"]
            assert {(row["course"], row["topic"]) for row in marked} == {("Calculus II", "Eels")}
            assert left(mark(http, "calc2: Eels", False), "calc2: Eels") == whole
            # A row that is done with its topic can be unmarked, too.
            row = next(row for row in rows(before) if (row["course"], row["topic"]) == ("Calculus II", "Eels"))
            assert status(mark(http, "calc2: Eels"), row["id"]) == "done"
            assert status(mark(http, row["id"], False), row["id"]) == "planned"


def test_what_cannot_be_marked_is_refused_by_name_and_changes_nothing(shared: Served) -> None:
    with phone(shared.base, link(shared.folder)) as http:
        before = read(http)
        refused = {
            "calc2-000000": (409, "calc2-000000: No row, day, topic or section has this name"),
            rows(before)[0]["id"]: (409, "Nothing of it is marked. Load the page again."),
            "": (400, "what"),
        }
        for what, (code, detail) in refused.items():
            answer = http.post("/marks", json={"what": what, "done": code != 409 or what == "calc2-000000"})
            assert (answer.status_code, detail in answer.json()["detail"]) == (code, True), answer.text
        other = http.post("/marks", json={"what": "x", "done": True, "session_id": "autumn"})
        assert (other.status_code, "session_id" in other.json()["detail"]) == (400, True)
        assert read(http) == before


def test_a_forged_expired_changed_revoked_or_foreign_link_is_refused_with_a_sentence(shared: Served) -> None:
    folder = shared.folder
    good = link(folder)
    data, _, seal = good.partition(".")
    _, _, other_seal = link(folder, "autumn").partition(".")
    revoked = link(folder, "revoked")
    Visitors(Tokens(folder), "plan").revoke("revoked")
    wrong = {
        "expired": link(folder, seconds=-1), "changed seal": f"{data}.{seal[:-2]}AA", "unsigned": data, "empty": "",
        "other seal": f"{data}.{other_seal}", "changed data": f"{data[:-1]}A.{seal}", "revoked": revoked,
        "of the chat": Visitors(Tokens(folder), "chat").link("spring", 60).link, "the token": shared.tokens.own,
    }  # fmt: skip
    for name, text in wrong.items():
        with phone(shared.base) as http:
            answer = http.post("/login", json={"link": text})
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False), name
            assert answer.json()["detail"] == "The link is wrong, has expired or was revoked. Ask for a new one.", name
            refused = http.get("/plan")
            assert (refused.status_code, "Open your link again" in refused.json()["detail"]) == (401, True), name
            assert http.post("/marks", json={"what": "calc2: Limits", "done": True}).status_code == 401, name


def test_a_link_opens_one_plan_and_nothing_else_of_the_server(shared: Served) -> None:
    with phone(shared.base, link(shared.folder, "autumn")) as http:
        assert read(http)["session_id"] == "autumn"
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in http.cookies.jar)
        for path in ("/sessions", "/sessions/autumn/state", "/inbox"):
            with shared.client(Cookie=cookies) as api:
                assert api.get(path).status_code in (401, 429)
        forged = http.post("/marks", json={"what": "x", "done": True}, headers={"X-Pausepoint": "0"})
        assert forged.status_code == 403


def test_a_session_without_a_plan_and_one_that_is_gone_say_so(tmp_path: Path) -> None:
    with web(tmp_path) as server:
        plan(server, courses=[CALC | {"midterm_date": None}])  # the planner waits for a date
        with phone(server.base, link(tmp_path)) as http, phone(server.base, link(tmp_path, "gone")) as other:
            assert (read(http)["version"], read(http)["days"]) == (0, [])
            answer = other.get("/plan")
            assert (answer.status_code, "gone" in answer.json()["detail"]) == (404, True)


@pytest.mark.long
def test_marks_that_come_at_once_are_all_kept(tmp_path: Path) -> None:
    with web(tmp_path) as server:
        plan(server)
        with phone(server.base, link(tmp_path)) as http:
            ids = [row["id"] for row in rows(read(http))][:5]
            threads = [threading.Thread(target=mark, args=(http, each)) for each in ids]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [status(read(http), each) for each in ids] == ["done"] * 5


@pytest.mark.long
def test_a_server_that_drives_nothing_keeps_marks_for_the_planner(tmp_path: Path) -> None:
    with web(tmp_path) as server:
        plan(server)
    with web(tmp_path, drives="none") as server, phone(server.base, link(tmp_path)) as http:
        first, second, *_ = rows(read(http))
        assert status(mark(http, first["id"]), first["id"]) == "done"
        assert status(mark(http, second["id"]), second["id"]) == "done"
    with Engine(tmp_path / "store.db", workflows=[planner], create=False) as engine:
        outcome = engine.session("spring").resume().outcome()
    assert outcome.state.status == "completed"
    assert {each.row_id for each in outcome.state.user_inputs.progress} == {first["id"], second["id"]}


class Program(Driven):
    """The planner's program, which serves plans."""

    job = "tests.apps.planner_watched:job"

    def serve(self, port: int = 0) -> tuple[Child, str]:
        """Start the server, and return its address when it listens."""
        child = self.begin("serve", "--port", str(port), "--json")
        return child, json.loads(self.first_line(child))["sites"]["plan"].removesuffix("/plan/")


@pytest.mark.long
def test_a_server_that_is_killed_after_a_mark_has_it_and_writes_it_when_it_is_back(
    tmp_path: Path, forks: Forks
) -> None:
    program = Program(tmp_path, forks)
    with Engine(program.store, workflows=[planner]) as engine:
        table = Path(run(engine, "spring").artifacts.csv_path or "")
    child, base = program.serve()
    with phone(base, link(tmp_path)) as http:
        row = rows(read(http))[0]
        assert status(mark(http, row["id"]), row["id"]) == "done"
        program.kill(child)
        again, _ = program.serve(int(base.rpartition(":")[2]))
        assert status(read(http), row["id"]) == "done"  # the sign-in outlives the server, too
    until(lambda: ",done," in table.read_text("utf-8"), "the plan was not written again")
    again.signal(signal.SIGTERM)
    program.ends(again, 143)


# the command


@pytest.mark.long
def test_the_command_prints_a_link_and_revokes_it(here: Path, call: Call) -> None:
    courses = [f"--course={each['course_id']}:{each['course_name']}:2031-01-01" for each in (CALC, HIST)]
    assert call("run", "--session-id", "spring", *courses, "--start", "2030-12-20", "--store", "store.db").code == 0
    store = "--store", "store.db"
    printed = call("link", "spring", "--days", "2", "--url", "https://plan.example.org/", *store)
    assert printed.code == 0
    address, _, signed = printed.out.strip().partition("#link=")
    assert address == "https://plan.example.org/plan/"
    with web(here) as server, phone(server.base, signed) as http:
        assert read(http)["session_id"] == "spring"
        revoked = call("link", "--revoke", "--json", *store)
        assert (revoked.code, revoked.document) == (0, {"session_id": "spring", "revoked": True})
        assert http.get("/plan").status_code == 401
    document = call("link", "--json", *store).document
    assert set(document) == {"session_id", "address", "expires_at"}
    assert document["address"].startswith("http://127.0.0.1:7333/plan/#link=")
    unknown = call("link", "autumn", *store)
    assert (unknown.code, "autumn" in unknown.err) == (4, True)
    assert "Print a link with which a phone shows the plan" in call("link", "--help").out
    assert call("link", "spring", "--days", "0", *store).code == 2


def test_idle_days_in_a_row_come_as_one_but_today_stays_alone() -> None:
    def row(day: int, task: str = "Free") -> PlanRow:
        return PlanRow(
            date=date(2030, 2, day), course="", topic="", task_description=task, estimated_minutes=0, priority="low",
            row_id="id" if task == "Study" else "",
        )  # fmt: skip

    rows = [*map(row, (4, 5, 6, 7)), row(8, "Study"), row(8, "Study"), row(9), row(10, "Rest"), row(11, "Rest")]
    assert [(name, len(of_day)) for name, of_day in days(rows, date(2030, 2, 5))] == [
        ("Mon 4 Feb", 1), ("Tue 5 Feb", 1), ("Wed 6 Feb to Thu 7 Feb", 1), ("Fri 8 Feb", 2), ("Sat 9 Feb", 1),
        ("Sun 10 Feb to Mon 11 Feb", 1),
    ]  # fmt: skip
