"""What a person with an owner can find out about the sessions of others: nothing, whatever they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.server.kit import Served, check_problem, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("owners")) as found:
        for owner in ("ann", "bob"):
            found.questions[owner] = found.asked(f"{owner}s", topic=f"secret of {owner}", owner=owner)
        yield found


def test_another_owners_session_and_an_unknown_one_are_told_apart_by_nothing(server: Served) -> None:
    paths = (
        "/sessions/{}",
        "/sessions/{}/events",
        "/sessions/{}/artifacts",
        "/sessions/{}/state",
        "/sessions/{}/plan",
        "/sessions/{}/export",
        "/sessions/{}/files",
    )
    with server.client(server.token("admin", "ann")) as client:
        for path in paths:
            found, unknown = (client.get(path.format(each)) for each in ("bobs", "none"))
            assert found.text.replace("bobs", "none") == unknown.text
        question = server.questions["bob"]
        found, unknown = client.get(f"/inbox/{question}"), client.get(f"/inbox/{'0' * len(question)}")
        assert found.text.replace(question, "0" * len(question)) == unknown.text
        bulk = client.post("/sessions/bulk", json={"verb": "pause", "ids": ["bobs", "none"], "dry_run": True}).json()
        first, second = bulk["refused"]
        assert json.dumps(first).replace("bobs", "none") == json.dumps(second)


def test_nothing_that_an_owner_reads_names_another_one(server: Served) -> None:
    """Bob's id, topic, question and name are in no answer, whatever Ann asks for."""
    secrets = ("bobs", "secret of bob", server.questions["bob"], '"bob"')
    with server.client(server.token("admin", "ann")) as client:
        for path in (
            "/sessions?count=1", "/sessions?text=secret&count=1", "/sessions?text=bob", "/sessions?prefix=b",
            "/sessions?status=waiting&sort=updated&count=1", "/sessions?level=root&count=1", "/inbox", "/now",
            "/inbox?status=WAITING_USER_INPUT,COMPLETED", "/workflows", "/workflows/brief", "/standing-pause",
            "/sessions/anns", "/sessions/anns/tree", "/sessions/anns/children", "/me",
        ):  # fmt: skip
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            assert not [each for each in secrets if each in answer.text], (path, answer.text)
        assert {each["owner"] for each in client.get("/sessions?text=s").json()["sessions"]} == {"ann"}
        for body in ({"workflow": "brief", "input": {"topic": "x"}, "session_id": "bobs"},
                     {"workflow": "brief", "input": {"topic": "secret of bob"}, "session_id": "bobs"}):  # fmt: skip
            answer = client.post("/sessions", json=body)
            assert "secret" not in json.dumps(check_problem(answer, 409))
        forked = client.post("/sessions/anns/fork", json={"session_id": "bobs"})
        check_problem(forked, 409)
        assert "ann" not in str(server.run(server.engine.session("bobs").info()).owner)


def test_a_file_of_another_session_is_not_reachable_through_an_own_one(server: Served) -> None:
    with server.admin() as root, server.client(server.token("admin", "ann")) as client:
        file = root.post("/sessions/bobs/files", params={"filename": "b.txt"}, content=b"bob's").json()["file_id"]
        check_problem(client.get(f"/sessions/anns/files/{file}"), 404)
        redacted = client.post("/sessions/anns/redact", json={"file": file})
        assert redacted.status_code in (404, 409, 422), redacted.text
        assert root.get(f"/sessions/bobs/files/{file}").content == b"bob's"
        again = client.post("/sessions/anns/files", params={"filename": "b.txt"}, content=b"bob's")
        assert again.status_code == 201  # the answer hides that another session has this content


def test_the_origin_of_a_fork_is_shown_to_those_who_may_see_it(server: Served) -> None:
    server.run(server.engine.session("bobs").fork(session_id="from-bob", owner="ann", paused=True))
    with server.client(server.token("viewer", "ann")) as client, server.admin() as root:
        assert client.get("/sessions/from-bob").json()["origin"] is None
        assert root.get("/sessions/from-bob").json()["origin"]["session_id"] == "bobs"


def test_an_empty_owner_is_an_owner(server: Served) -> None:
    with server.client(server.token("admin", "")) as client:
        nothing: dict[str, object] = {"sessions": [], "next": None, "damaged": [], "total": 0}
        assert client.get("/sessions?count=1").json() == nothing
        check_problem(client.get("/sessions/anns"), 404)
        check_problem(client.get("/store"), 403)
        check_problem(client.put("/standing-pause", json={}), 403)
        check_problem(client.get("/schedules"), 403)
        check_problem(client.get("/limits"), 403)
        check_problem(client.get("/queues"), 403)
        check_problem(client.post("/sessions", json={"workflow": "brief", "priority": -9}), 403)
        check_problem(client.put("/limits/queue/gpu", json={"most": 1}), 403)
        check_problem(client.delete("/limits/queue/gpu"), 403)
        check_problem(client.post("/schedules/x/trigger", json={}), 403)
        check_problem(client.delete("/schedules/x"), 403)
        assert client.get("/inbox").json()["questions"] == []
        done = client.post("/sessions/bulk", json={"verb": "cancel", "filter": {"workflow": "brief"}, "dry_run": True})
        assert done.json()["done"] == []
