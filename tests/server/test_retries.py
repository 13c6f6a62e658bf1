"""A request with an Idempotency-Key has one effect, and every repetition gets the first answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from pausepoint import Session
from pausepoint.errors import StoreUnavailable
from pausepoint.model.views import SessionInfo
from pausepoint.server.limits import Limits
from pausepoint.server.openapi import openapi, template
from pausepoint.server.retries import AGAIN, KEY, REPLAYED, stored_key
from pausepoint.server.routes import ROUTES
from tests.server.kit import API, Served, check_problem, served
from tests.support.loop import PATIENCE
from tests.support.waits import until

START = {"workflow": "brief", "input": {"topic": "octopus"}, "paused": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("retries")) as found:
        yield found


def keyed(key: str | None = None) -> dict[str, str]:
    return {KEY: key or str(uuid4())}


def count(client: httpx.Client) -> int:
    found: int = client.get("/sessions?count=1").json()["total"]
    return found


def events(server: Served, session_id: str, kind: str) -> int:
    """How many events of a kind the history has."""

    async def found() -> int:
        return len([each async for each in server.engine.session(session_id).events() if each.event_type == kind])

    return server.run(found())


def same(one: httpx.Response, other: httpx.Response) -> bool:
    """Whether an answer is another one again, and says so."""
    names = ("etag", "location", "content-type")
    heads = [[each.headers.get(name) for name in names] for each in (one, other)]
    assert (one.headers.get(REPLAYED), other.headers.get(REPLAYED)) == (None, "true")
    return (one.status_code, one.content, heads[0]) == (other.status_code, other.content, heads[1])


def test_a_repeated_start_is_one_session_and_gets_the_first_answer(server: Served) -> None:
    with server.admin(**keyed()) as client:
        before = count(client)
        first = client.post("/sessions", json=START)
        server.run(server.engine.session(first.json()["session_id"]).resume(here=False))  # it has changed since
        assert same(first, client.post("/sessions", json=START))
        assert (first.status_code, count(client)) == (201, before + 1)
        assert first.headers["location"].endswith(first.json()["session_id"])


def test_without_a_key_or_with_another_one_it_is_another_request(server: Served) -> None:
    with server.admin() as client:
        before = count(client)
        for headers in ({}, {}, keyed(), keyed()):
            assert client.post("/sessions", json=START, headers=headers).status_code == 201
        assert count(client) == before + 4


def test_the_same_key_for_another_request_is_refused_and_changes_nothing(server: Served) -> None:
    server.asked("one")
    server.asked("two")
    with server.admin(**keyed()) as client:
        mark = client.get("/sessions/one").headers["etag"]
        change = {"fields": {"notes": "x"}}
        done = client.post("/sessions/one/edit", json=change, headers={"If-Match": mark})
        assert done.status_code == 200
        before = (
            server.run(server.engine.session("one").info()),
            server.run(server.engine.session("two").info()),
            count(client),
        )
        others: list[tuple[str, str, Any, dict[str, str]]] = [
            ("POST", "/sessions/one/edit", {"fields": {"notes": "y"}}, {"If-Match": mark}),
            ("POST", "/sessions/two/edit", change, {"If-Match": mark}),
            ("POST", "/sessions/one/edit", change, {"If-Match": done.headers["etag"]}),
            ("POST", "/sessions/one/pause", {}, {}),
            ("PUT", "/standing-pause", {}, {}),
            ("DELETE", "/sessions/one", {}, {}),
        ]
        for method, path, body, headers in others:
            refused = client.request(method, path, json=body, headers=headers)
            assert check_problem(refused, 422)["type"] == "urn:pausepoint:key-reused"
        now = (
            server.run(server.engine.session("one").info()),
            server.run(server.engine.session("two").info()),
            count(client),
        )
        assert now == before


def test_every_sign_in_has_keys_of_its_own(server: Served) -> None:
    head = keyed()
    with server.admin(**head) as one, server.client(server.token("operator"), **head) as other:
        made = [each.post("/sessions", json=START).json()["session_id"] for each in (one, other)]
        assert len(set(made)) == 2


def test_another_person_with_the_same_sign_in_is_another_request(tmp_path: Path) -> None:
    from pausepoint import Engine
    from pausepoint.server.asgi import Settings, application
    from pausepoint.server.people import Person
    from pausepoint.server.tokens import Tokens
    from tests.server.kit import FREE

    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        def who(request: Any) -> Person:
            return Person("shared", "operator", request.headers.get("x-owner"))

        return application(engine, Settings(who=who, hosts=[f"127.0.0.1:{port}"], limits=FREE))

    with served(tmp_path, make=make) as server, server.client(**keyed(), **{"X-Pausepoint": "1"}) as client:
        assert client.post("/sessions", json=START, headers={"X-Owner": "ann"}).status_code == 201
        check_problem(client.post("/sessions", json=START, headers={"X-Owner": "bob"}), 422)


@pytest.mark.parametrize("key", ["", "two words", "x" * 201, "ü".encode().decode("latin-1"), "tab\tbed"])
def test_a_key_that_does_not_fit_is_refused(server: Served, key: str) -> None:
    with server.admin() as client:
        before = count(client)
        refused = client.post("/sessions", json=START, headers=[(KEY.encode(), key.encode("latin-1"))])
        assert check_problem(refused, 400)["type"] == "urn:pausepoint:unfit-key"
        twice = client.post("/sessions", json=START, headers=[(KEY, "a"), (KEY, "a")])
        check_problem(twice, 400)
        assert count(client) == before
        assert client.get("/me", headers={KEY: "two words"}).status_code == 200  # a read does not look at it


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_second_request_during_the_first_is_told_to_wait(server: Served, elsewhere: bool) -> None:
    name = f"slow-{elsewhere}"
    server.asked(name)
    head, sent, go_on = keyed(), threading.Event(), threading.Event()

    def body() -> Iterator[bytes]:
        yield b"first half, "
        sent.set()
        assert go_on.wait(PATIENCE)
        yield b"second half"

    answers: list[httpx.Response] = []
    with (
        served(server.folder, drives="none") if elsewhere else nullcontext(server) as second,
        server.admin(**head) as client, second.admin(**head) as other,
    ):  # fmt: skip
        path = f"/sessions/{name}/files?filename=notes.txt"
        thread = threading.Thread(target=lambda: answers.append(client.post(path, content=body())))
        thread.start()
        assert sent.wait(PATIENCE)
        until(lambda: at_work(server, head))
        early = other.post(path, content=b"first half, second half")
        assert early.headers["retry-after"] == "1"
        assert check_problem(early, 409)["type"] == "urn:pausepoint:request-at-work"
        go_on.set()
        thread.join(PATIENCE)
        assert same(answers[0], other.post(path, content=b"first half, second half"))
        check_problem(other.post(path, content=b"other bytes"), 422)
        check_problem(other.post(path.replace("notes", "other"), content=b"first half, second half"), 422)
        assert len(client.get(f"/sessions/{name}/files").json()["files"]) == 1


def at_work(server: Served, head: dict[str, str]) -> bool:
    """Whether the request with this key is being carried out for the server's own token."""
    found = server.run(server.engine.keys.recall(stored_key("own", head[KEY])))
    return found is not None and found.at_work


def test_an_upload_whose_connection_breaks_can_be_repeated(server: Served) -> None:
    server.asked("broken")
    head = keyed()
    token = server.tokens.own
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        lines = [
            f"POST {API}/sessions/broken/files?filename=a.txt HTTP/1.1", f"Host: 127.0.0.1:{server.port}",
            f"Authorization: Bearer {token}", f"{KEY}: {head[KEY]}", "Content-Length: 100", "", "the first part",
        ]  # fmt: skip
        client.sendall("\r\n".join(lines).encode())
        until(lambda: at_work(server, head))
    until(lambda: not at_work(server, head))  # the server has noticed
    with server.admin(**head) as again:
        answer = again.post("/sessions/broken/files?filename=a.txt", content=b"all of it")
        assert (answer.status_code, answer.headers.get(REPLAYED)) == (201, None)


def test_a_final_refusal_is_kept(server: Served) -> None:
    server.asked("refused")
    with server.admin(**keyed(), **{"If-Match": '"0.0.0"'}) as client:
        change = {"fields": {"notes": "x"}}
        first = client.post("/sessions/refused/edit", json=change)
        check_problem(first, 412)
        server.run(server.engine.session("refused").pause())
        assert same(first, client.post("/sessions/refused/edit", json=change))
        assert first.json()["present"]["pause"] is None  # as it was then


@pytest.mark.long
def test_a_limit_that_was_reached_is_not_kept(tmp_path: Path) -> None:
    head = keyed()
    with served(tmp_path, limits=Limits(actions=1)) as server, server.admin(**head) as client:
        client.post("/sessions", json={"workflow": "none"}, headers=keyed())
        check_problem(client.post("/sessions", json=START), 429)
    with served(tmp_path) as server, server.admin(**head) as client:
        assert client.post("/sessions", json=START).status_code == 201


@pytest.mark.parametrize("effect", [False, True])
def test_an_error_of_the_server_is_not_kept(server: Served, monkeypatch: pytest.MonkeyPatch, effect: bool) -> None:
    name = f"error-{effect}"
    server.asked(name)
    pause, info = Session.pause, Session.info

    async def no_pause(*args: Any, **given: Any) -> Any:
        raise StoreUnavailable("The store is busy. Retry later.", path="")

    async def paused(*args: Any, **given: Any) -> Any:
        monkeypatch.setattr(Session, "info", no_pause)
        return await pause(*args, **given)

    with server.admin(**keyed()) as client:
        monkeypatch.setattr(Session, "pause", paused if effect else no_pause)
        check_problem(client.post(f"/sessions/{name}/pause", json={}), 503)
        monkeypatch.setattr(Session, "pause", pause)
        monkeypatch.setattr(Session, "info", info)
        again = client.post(f"/sessions/{name}/pause", json={})
        assert (again.status_code, again.json()["status"]) == (200, "paused")
        assert again.headers.get(REPLAYED) == ("true" if effect else None)
        server.run(server.engine.session(name).resume(here=False))
        assert client.post(f"/sessions/{name}/pause", json={}).content == again.content
        assert isinstance(server.run(server.engine.session(name).info()), SessionInfo)
        assert (
            events(server, name, "pause.requested"),
            server.run(server.engine.session(name).info()).status.value,
        ) == (
            1,
            "waiting",
        )


def test_an_answer_that_cannot_be_kept_is_still_sent(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    server.asked("unkept")
    remember = server.engine.keys.remember

    async def full(key: str, digest: bytes, answer: bytes | None = None, **given: Any) -> Any:
        if answer is not None:
            raise StoreUnavailable("The disk is full. Free some space.", path="")
        return await remember(key, digest, **given)

    with server.admin(**keyed()) as client:
        monkeypatch.setattr(server.engine.keys, "remember", full)
        assert client.post("/sessions/unkept/pause", json={}).status_code == 200
        monkeypatch.undo()
        server.run(server.engine.session("unkept").resume(here=False))
        again = client.post("/sessions/unkept/pause", json={})
        assert (again.json()["status"], again.headers.get(REPLAYED)) == ("waiting", "true")
        assert events(server, "unkept", "pause.requested") == 1


def test_a_key_without_an_answer_is_forgotten_when_the_store_forgets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = StoreUnavailable("The store is busy. Retry later.", path="")
    with served(tmp_path) as server, server.admin() as client:
        server.asked("day")
        pause, now, hours = Session.pause, server.engine.clock.now, 0

        async def paused_and_lost(*args: Any, **given: Any) -> Any:
            await pause(*args, **given)
            raise lost

        monkeypatch.setattr(server.engine.clock, "now", lambda: now() + hours * 3_600_000_000)
        monkeypatch.setattr(Session, "pause", paused_and_lost)
        for hours in (0, 12, 25):
            check_problem(client.post("/sessions/day/pause", json={}, headers=keyed(f"after-{hours}")), 503)
        kept = server.app.app.routes[0].endpoint.desk.retries._unanswered
        assert [key.rpartition("-")[2] for key in kept] == ["12", "25"]


@pytest.mark.long
def test_servers_over_one_store_agree(tmp_path: Path) -> None:
    head = keyed()
    with (
        served(tmp_path) as one, served(tmp_path, drives="none") as other,
        one.admin(**head) as first, other.admin(**head) as second,
    ):  # fmt: skip
        done = first.post("/sessions", json=START)
        assert same(done, second.post("/sessions", json=START))
        check_problem(second.post("/sessions", json=START | {"tags": ["x"]}), 422)
        assert count(first) == 1


def test_an_answer_that_is_too_large_is_not_kept(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pausepoint.server.retries.LARGEST_ANSWER", 600)
    server.asked("large")
    body = {"reason": "".join(uuid4().hex for _ in range(50))}  # which cannot be compressed
    with server.admin(**keyed()) as client:
        assert client.post("/sessions/large/pause", json=body).status_code == 200
        again = client.post("/sessions/large/pause", json=body)
        assert check_problem(again, 409)["type"] == "urn:pausepoint:answer-lost"
        assert events(server, "large", "pause.requested") == 1


def test_login_and_plans_keep_nothing(server: Served) -> None:
    server.asked("planned")
    with server.client(**keyed(), **{"X-Pausepoint": "1"}) as client:
        for _ in range(2):
            answer = client.post("/login", json={"token": server.tokens.own})
            assert (answer.status_code, REPLAYED in answer.headers) == (200, False)
        for verb in ("resume", "fork"):
            assert client.post("/sessions/planned/plan", json={"verb": verb}).status_code == 200


def test_every_action_says_how_it_is_answered_after_a_kill_and_names_the_header() -> None:
    actions = [route for route in ROUTES if route.takes_key]
    assert {route.handler for route in actions} == AGAIN.keys()
    described = openapi(ROUTES)["paths"]
    for route in ROUTES:
        found = described[template(route.path)][route.method.lower()]
        assert (KEY in {each["name"] for each in found["parameters"]}) == route.takes_key, route
        assert route.takes_key <= {"409", "422"}.issubset(found["responses"])
