"""Plans, visits and restores over HTTP: what they tell, and that a plan changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.server.kit import Served, check_problem, fits, letter, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("plans")) as found:
        yield found


def test_an_edit_is_planned_and_changes_nothing(server: Served) -> None:
    server.asked("planned")
    with server.kept(server.token("viewer")) as client:
        before = client.get("/sessions/planned")
        plan = client.post("/sessions/planned/plan", json={"verb": "edit", "fields": {"topic": "squid"}})
        fits(plan.json(), "plan")
        verdicts = {each["step"]: each["verdict"] for each in plan.json()["steps"]}
        assert verdicts == {"research": "done", "choose": "next", "write": "will run"}
        after = client.get("/sessions/planned")
        assert (after.headers["etag"], after.json()) == (before.headers["etag"], before.json())


def test_the_plan_of_an_edit_that_would_be_refused_says_why(server: Served) -> None:
    server.asked("refusing")
    with server.kept(server.token("viewer")) as client:

        def plan(**fields: object) -> object:
            return client.post("/sessions/refusing/plan", json={"verb": "edit", "fields": fields})

        assert check_problem(plan(topic=5), 422)["field"] == "topic"  # type: ignore[arg-type]
        assert "Did you mean 'topic'" in check_problem(plan(topci="x"), 422)["detail"]  # type: ignore[arg-type]
        check_problem(plan(), 400)  # type: ignore[arg-type]


def test_visits_are_listed_with_what_they_did_and_waited_for(server: Served) -> None:
    server.finished("spanned")
    with server.kept(server.token("viewer")) as client:
        whole = client.get("/sessions/spanned/spans").json()
        fits(whole, "spans")
        assert [each["step"] for each in whole["spans"]] == ["research", "choose", "write"]
        parts = [(part["kind"], part["name"]) for each in whole["spans"] for part in each["parts"]]
        assert [kind for kind, _ in parts] == ["operation", "question"]
        last = client.get("/sessions/spanned/spans?limit=1").json()["spans"]
        assert [each["step"] for each in last] == ["write"]
        earlier = client.get(f"/sessions/spanned/spans?before={last[0]['seq']}&limit=1").json()["spans"]
        assert [each["step"] for each in earlier] == ["choose"]
        later = client.get("/sessions/spanned/spans?at=choose%231").json()["spans"]
        assert [each["step"] for each in later] == ["choose", "write"]
        assert client.get("/sessions/spanned/spans?at=1&limit=1").json()["spans"][0]["step"] == "research"
        check_problem(client.get("/sessions/spanned/spans?at=choose%239"), 404)
        check_problem(client.get("/sessions/spanned/spans?at=1&before=9"), 400)
        check_problem(client.get("/sessions/spanned/spans?limit=201"), 400)
        check_problem(client.get("/sessions/spanned/spans?before=-1"), 400)
        check_problem(client.get("/sessions/nobody/spans"), 404)


def test_a_restore_is_recorded_as_that_of_the_signed_in_person(server: Served, tmp_path: Path) -> None:
    async def published() -> None:
        await (await server.engine.start(letter, session_id="posted", folder=tmp_path, topic="x")).outcome()

    server.run(published())
    (tmp_path / "letter.html").write_text("<b>edited by hand, and long enough</b>\n")
    with server.client(server.token("operator", name="ada")) as client:
        path = "/sessions/posted/artifacts/restore"
        check_problem(client.post(path, json={"by": "eve"}), 400)
        assert client.post(path, json={"reason": "a typo"}).json()["changed"] == ["letter.html"]
        events = client.get("/sessions/posted/events").json()["events"]
    assert [(each["agent_name"], each["summary"]) for each in events if each["event_type"] == "artifact.restored"] == [
        ("ada", "restored by ada: letter.html (a typo)")
    ]


def test_the_totals_of_a_session_say_where_a_page_of_visits_is(server: Served) -> None:
    server.finished("totalled")
    with server.kept(server.token("viewer")) as client:
        last = client.get("/sessions/totalled/spans?limit=1").json()["spans"][0]
        found = client.get(f"/sessions/totalled/totals?before={last['seq']}").json()
        fits(found, "totals")
        assert (found["visits"], found["earlier"]) == (3, 2)
        assert [each["name"] for each in found["steps"]] == ["research", "choose", "write"]
        assert [each["count"] for each in found["operations"]] == [1]
        check_problem(client.get("/sessions/nobody/totals"), 404)


def test_events_are_read_backwards_in_pages(server: Served) -> None:
    server.finished("told")
    with server.kept(server.token("viewer")) as client:
        whole = client.get("/sessions/told/events").json()["events"]
        newest = client.get("/sessions/told/events?before=&limit=3").json()["events"]
        assert newest == whole[-3:]
        earlier = client.get(f"/sessions/told/events?before={newest[0]['cursor']}&limit=3").json()["events"]
        assert earlier == whole[-6:-3]
        check_problem(client.get("/sessions/told/events?before=x"), 400)
        check_problem(client.get("/sessions/told/events?before=&after=1.0.0"), 400)


def test_operations_are_listed_with_their_values_and_read_one_by_one(server: Served) -> None:
    server.finished("valued")
    with server.kept(server.token("viewer")) as client:
        page = client.get("/sessions/valued/operations").json()
        fits(page, "operations")
        first, second = page["operations"]
        assert (first["name"], first["arguments"], first["result"]) == (
            "str", {"argument 1": "notes on octopus"}, "notes on octopus",
        )  # fmt: skip
        assert (second["name"], second["arguments"], second["result"]) == ("ask", {}, "formal")
        assert client.get("/sessions/valued/operations?limit=1").json()["operations"] == [second]
        earlier = client.get(f"/sessions/valued/operations?before={second['seq']}").json()["operations"]
        assert earlier == [first]
        one = client.get(f"/sessions/valued/operations/{quote(first['id'], safe='')}")
        fits(one.json(), "operation")
        assert one.json() == first
        problem = check_problem(client.get("/sessions/valued/operations/%2Fnone%2Fsuch~1"), 404)
        assert problem["detail"] == (
            "Session 'valued' has no operation '/none/such~1' that has ended. List them with GET"
            " /sessions/valued/operations."
        )
        check_problem(client.get("/sessions/nobody/operations"), 404)
        check_problem(client.get("/sessions/valued/operations?limit=201"), 400)
    with server.kept(server.token("viewer", owner="eve")) as client:
        check_problem(client.get(f"/sessions/valued/operations/{quote(first['id'], safe='')}"), 404)
