"""Signing in: tokens, cookies, links, the proxy, and how each of them ends."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint import Engine
from pausepoint.server.asgi import Settings, application
from pausepoint.server.limits import Attempts, Limits
from pausepoint.server.signin import SignIn
from pausepoint.server.tokens import FILE, LIST, Tokens
from tests.server.kit import FREE, Served, check_problem, served

PAGE = {"X-Pausepoint": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("signin")) as found:
        yield found


def test_the_files_of_tokens_are_for_the_user_alone_and_hold_no_secret(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    own = tokens.make()
    _, secret = tokens.create("ann", "viewer", None, time.time(), None)
    for name in (FILE, LIST):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert secret not in (tmp_path / LIST).read_text()
    assert secret.split("_", 2)[2] not in (tmp_path / LIST).read_text()
    assert len(own) == 32  # 192 bits
    assert Tokens(tmp_path).make() == own
    assert tokens.make(new=True) != own


def test_a_token_is_traded_for_a_cookie_that_scripts_cannot_read(server: Served) -> None:
    with server.client(**PAGE) as client:
        answer = client.post("/login", json={"token": server.tokens.own})
        cookie = answer.headers["set-cookie"]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"):
            assert part in cookie, cookie
        assert "Secure" not in cookie  # it would not be sent back over plain HTTP
        assert server.tokens.own not in cookie
        assert client.get("/me").json() == {"name": "root", "role": "admin", "owner": None, "question": None}
        assert client.post("/sessions", json={"workflow": "none"}).status_code == 409
        gone = client.post("/logout", json={})
        assert "Max-Age=0" in gone.headers["set-cookie"]
        check_problem(client.get("/me"), 401)


def test_a_changed_cookie_is_refused(server: Served) -> None:
    with server.client(**PAGE) as client:
        client.post("/login", json={"token": server.token("viewer")})
        ((name, value),) = client.cookies.items()
    data, _, mac = value.partition(".")
    other = data[:-2] + ("AA" if data[-2:] != "AA" else "BB")
    for wrong in (f"{other}.{mac}", f"{data}.{mac[:-2]}", data, f".{mac}", "", "x" * 5_000):
        with server.client(Cookie=f"{name}={wrong}") as client:
            check_problem(client.get("/me"), 401)


def test_a_created_token_has_its_role_owner_and_end(server: Served) -> None:
    kept, secret = server.tokens.create("Ann's script", "answerer", "ann", time.time(), 3_600)
    with server.client(secret, **PAGE) as client:
        assert client.get("/me").json() == {
            "name": "Ann's script", "role": "answerer", "owner": "ann", "question": None
        }  # fmt: skip
        assert client.post("/login", json={"token": secret}).status_code == 200
    _, expired = server.tokens.create("late", "admin", None, time.time() - 100, 50)
    with server.client(expired) as client:
        check_problem(client.get("/me"), 401)
    assert kept.person.owner == "ann"


def test_revoking_a_token_signs_out_everyone_who_used_it(server: Served) -> None:
    kept, secret = server.tokens.create("gone soon", "viewer", None, time.time(), None)
    with server.client(**PAGE) as by_cookie, server.client(secret) as by_token:
        by_cookie.post("/login", json={"token": secret})
        assert by_cookie.get("/me").status_code == by_token.get("/me").status_code == 200
        assert server.tokens.revoke(kept.id)
        check_problem(by_cookie.get("/me"), 401)
        check_problem(by_token.get("/me"), 401)
    assert not server.tokens.revoke(kept.id)


def test_a_new_token_signs_everyone_out(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.client(**PAGE) as client:
        old = server.tokens.own
        client.post("/login", json={"token": old})
        assert client.get("/me").status_code == 200
        server.tokens.make(new=True)
        check_problem(client.get("/me"), 401)
        check_problem(client.post("/login", json={"token": old}), 401)


@pytest.mark.long
def test_another_server_over_the_same_store_accepts_the_cookie(tmp_path: Path) -> None:
    with served(tmp_path) as one, served(tmp_path) as other, one.client(**PAGE) as client:
        client.post("/login", json={"token": one.tokens.own})
        ((name, value),) = client.cookies.items()
        with other.client(Cookie=f"{name}={value}") as again:
            assert again.get("/me").status_code == 200


def test_a_link_sees_and_answers_one_question_until_it_ends(server: Served) -> None:
    question, other = server.asked("linked"), server.asked("not-linked")
    signin = SignIn(server.tokens, Attempts(5))
    link = signin.link(question, "mail", time.time() + 60)
    with server.client(**PAGE) as client:
        assert client.post("/login", json={"token": link}).json()["question"] == question
        assert [each["id"] for each in client.get("/inbox").json()["questions"]] == [question]
        check_problem(client.get("/sessions/linked"), 403)
        check_problem(client.get(f"/inbox/{other}"), 404)
        check_problem(client.get("/sessions/not-linked"), 403)
        check_problem(client.post(f"/inbox/{other}/answer", json={"value": "formal", "seen": "00"}), 404)
        for path in ("/sessions", "/sessions/linked/state", "/store", "/workflows", "/openapi.json"):
            check_problem(client.get(path), 403)
        assert "openapi" not in check_problem(client.get("/inbox?limit=x"), 400)["detail"], "which it may not read"
        assert "openapi" not in check_problem(client.post(f"/inbox/{question}/answer", json={}), 400)["detail"]
        check_problem(client.post("/sessions/linked/pause", json={}), 403)
        check_problem(client.post(f"/inbox/{question}/answer", json={"value": "formal"}), 428)
        seen = client.get(f"/inbox/{question}").json()["digest"]
        answered = client.post(f"/inbox/{question}/answer", json={"value": "formal", "seen": seen})
        assert answered.json()["by"] == "mail"
    expired = signin.link(question, "mail", time.time() - 1)
    with server.client(expired) as client:
        check_problem(client.get("/inbox"), 401)


def test_an_answerer_may_read_the_description_that_refusals_name(server: Served) -> None:
    with server.client(server.token("answerer")) as client:
        assert "GET /openapi.json" in check_problem(client.get("/inbox?limit=x"), 400)["detail"]
        assert client.get("/openapi.json").status_code == 200


def test_guessing_tokens_is_slowed_down_over_http(tmp_path: Path) -> None:
    with served(tmp_path, limits=replace(FREE, wrong_tokens=3)) as server:
        with server.client(**PAGE) as client:
            for number in range(3):
                check_problem(client.post("/login", json={"token": f"guess {number}"}), 401)
            refused = client.post("/login", json={"token": server.tokens.own})  # even the right one has to wait
            assert int(refused.headers["retry-after"]) > 0
            check_problem(refused, 429)
        with server.client("guess") as client:
            check_problem(client.get("/me"), 429)


def test_a_sign_in_has_a_limit_of_requests(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(actions=2, reads=3)) as server, server.admin() as client:
        assert [client.get("/me").status_code for _ in range(4)] == [200, 200, 200, 429]
        last = [client.post("/sessions", json={"workflow": "none"}) for _ in range(3)][-1]
        assert check_problem(last, 429)["retry_after"] <= 60
        with server.client(server.token("viewer")) as other:
            assert other.get("/me").status_code == 200


def behind_proxy(networks: list[str]) -> Any:
    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        hosts = [f"127.0.0.1:{port}", "pausepoint.example"]
        return application(engine, Settings(hosts=hosts, tokens=tokens, proxies=networks, limits=FREE))

    return make


def test_a_proxy_signs_people_in(tmp_path: Path) -> None:
    said = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "staff, pausepoint-operator", "X-Forwarded-Proto": "https"}
    with served(tmp_path, make=behind_proxy(["127.0.0.1"])) as server:
        with server.client(**said, Host="pausepoint.example", Origin="https://pausepoint.example") as client:
            assert client.get("/me").json()["role"] == "operator"
            check_problem(client.post("/sessions", json={"workflow": "x"}), 403)  # the proxy's cookie is ambient
            assert client.post("/sessions", json={"workflow": "x"}, headers=PAGE).status_code == 409
        with server.client(**(said | {"X-Forwarded-Groups": "staff"})) as client:
            check_problem(client.get("/me"), 401)
        for name, value in (("X-Forwarded-User", "eve"), ("X-Forwarded-Groups", "admin")):
            twice = [*said.items(), (name, value)]  # a line of the client that the proxy did not remove
            with server.client() as client:
                check_problem(client.get("/me", headers=twice), 401)


def test_an_answer_link_works_behind_a_proxy_that_names_nobody(tmp_path: Path) -> None:
    with served(tmp_path, make=behind_proxy(["127.0.0.1"])) as server, server.client(**PAGE) as client:
        question = server.asked("linked")
        link = SignIn(server.tokens, Attempts(5)).link(question, "mail", time.time() + 60)
        https = {"X-Forwarded-Proto": "https"}
        cookie = client.post("/login", json={"token": link}, headers=https).headers["set-cookie"]
        assert "; Secure" in cookie
        client.headers["Cookie"] = cookie.partition(";")[0]  # which httpx would keep back without TLS
        assert client.get("/me").json()["question"] == question
        check_problem(client.get("/sessions/linked"), 403)
        ann = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "pausepoint-viewer"}
        assert client.get("/me", headers=ann).json()["name"] == "ann", "whom the proxy signs in"
        for said in ([("X-Forwarded-User", "ann")], [*ann.items(), ("X-Forwarded-User", "eve")]):
            check_problem(client.get("/me", headers=[*client.headers.items(), *said]), 401)
        seen = client.get(f"/inbox/{question}").json()["digest"]
        answered = client.post(f"/inbox/{question}/answer", json={"value": "formal", "seen": seen})
        assert answered.json()["by"] == "mail"


def test_behind_a_proxy_no_other_cookie_signs_in(tmp_path: Path) -> None:
    with served(tmp_path, make=behind_proxy(["127.0.0.1"])) as server, server.client(**PAGE) as client:
        assert client.post("/login", json={"token": server.tokens.own}).status_code == 200
        check_problem(client.get("/me"), 401)


@pytest.mark.long
def test_nobody_else_can_pretend_to_be_the_proxy(tmp_path: Path) -> None:
    said = {"X-Forwarded-User": "eve", "X-Forwarded-Groups": "admin"}
    with served(tmp_path, make=behind_proxy(["10.0.0.0/8"])) as server, server.client(**said) as client:
        check_problem(client.get("/me"), 401)
    with served(tmp_path) as server, server.client(**said) as client:
        check_problem(client.get("/me"), 401)
