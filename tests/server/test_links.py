"""Answer links: one question until it is answered or the link ends, and nothing else. Tokens and cookies that ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pausepoint.server.calls import Route
from pausepoint.server.limits import Attempts
from pausepoint.server.people import Person
from pausepoint.server.routes import ROUTES
from pausepoint.server.seals import Seal
from pausepoint.server.signin import SignIn, Ticket
from pausepoint.server.tokens import Tokens
from tests.server.kit import Served, check_problem, filled, named, send, served, state_of

OPEN = {"/inbox", "/inbox/{question_id}", "/inbox/{question_id}/answer", "/stream", "/me"}
"""What a link is for: to see its question, to answer it, and to hear when another person does."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("links")) as found:
        found.questions["mine"] = found.asked("mine", owner="ann")
        found.questions["other"] = found.asked("other", owner="ann")
        yield found


def signin(server: Served) -> SignIn:
    return SignIn(server.tokens, Attempts(5))


def link(server: Served, session_id: str, seconds: float = 60) -> str:
    return signin(server).link(server.questions[session_id], "mail", time.time() + seconds)


@pytest.mark.parametrize("route", [each for each in ROUTES if each.role is not None], ids=named)
def test_a_link_opens_its_question_and_no_other_route(server: Served, route: Route) -> None:
    before = state_of(server, "mine"), state_of(server, "other")
    with server.kept(link(server, "mine"), **{"If-Match": '"1.0.1"'}) as client:
        for session_id in ("mine", "other"):
            question = server.questions[session_id]
            wrong = {"value": "formal", "seen": "nonsense"} if route.path.endswith("/answer") else ...
            answer = send(client, route, filled(route, session_id, question), wrong)
            if route.path not in OPEN:
                assert check_problem(answer, 403)["type"] == "urn:pausepoint:role"
            elif session_id == "other" and "{question_id}" in route.path:
                check_problem(answer, 404)
            elif route.path.endswith("/answer"):
                check_problem(answer, 400)
            else:
                assert answer.status_code == 200, answer.text
                assert server.questions["other"] not in (answer.text if not route.streams else "")
    after = state_of(server, "mine"), state_of(server, "other")
    assert after == before


def test_links_open_exactly_these_routes() -> None:
    assert {each.path for each in ROUTES if each.links} == OPEN


def test_a_link_ends_when_its_question_is_answered(server: Served) -> None:
    server.questions["once"] = question = server.asked("once")
    token = link(server, "once")
    with server.client(token) as client, server.client(**{"X-Pausepoint": "1"}) as page:
        assert page.post("/login", json={"token": token}).status_code == 200
        assert client.post(f"/inbox/{question}/answer", json={"value": "formal"}).json()["by"] == "mail"
        server.run(server.engine.session("once").outcome())
        before = state_of(server, "once")
        for each in (client, page):
            for answer in (
                each.get("/inbox"), each.get(f"/inbox/{question}"),
                each.post(f"/inbox/{question}/answer", json={"value": "playful", "seen": "00"}),
                each.post(f"/inbox/{question}/answer", json={"value": "formal", "seen": "00"}),
            ):  # fmt: skip
                assert "the link has ended" in check_problem(answer, 410)["detail"]
        assert state_of(server, "once") == before


def test_links_are_counted_by_their_question(server: Served) -> None:
    """Otherwise the links of all people would share the limits of one."""
    with server.client(**{"X-Pausepoint": "1"}) as page:
        page.post("/login", json={"token": link(server, "mine")})
        (cookie,) = page.cookies.items()
    scope = {"type": "http", "headers": [(b"cookie", "=".join(cookie).encode())]}
    found = signin(server)._by_cookie(scope)
    assert found is not None
    assert found.id == f"link:{server.questions['mine']}"


def wrong_tokens(server: Served, folder: Path) -> dict[str, str]:
    """Tokens and links that look right."""
    good, own = link(server, "mine"), server.tokens.own
    data, _, mac = good.partition(".")
    other = Tokens(folder)
    other.make()
    foreign = SignIn(other, Attempts(5))
    kept, secret = server.tokens.create("gone", "admin", None, time.time(), None)
    server.tokens.revoke(kept.id)
    ticket = Ticket(Person("eve", "admin"), int(time.time()) + 60, "own")
    return {
        "ended link": link(server, "mine", -1),
        "link of another store": foreign.link(server.questions["mine"], "mail", time.time() + 60),
        "truncated link": good[:-1],
        "link without a signature": data,
        "link with an empty signature": f"{data}.",
        "link with the signature of another": f"{data}.{link(server, 'other').partition('.')[2]}",
        "link with more behind it": f"{good}.{mac}",
        "cookie as a token": Seal(signin(server).tokens, "cookie").sealed(ticket),
        "cookie of another store": Seal(foreign.tokens, "cookie").sealed(ticket),
        "truncated token": own[:-1],
        "token with more behind it": f"{own}a",
        "token in other letters": own.swapcase(),
        "token of another store": other.own,
        "expired token": server.tokens.create("late", "admin", None, time.time() - 100, 50)[1],
        "revoked token": secret,
        "id of a token": kept.id,
        "hash of a token": kept.hash,
        "nothing": "",
        "not ASCII": "ü" * 32,
        "NUL": f"{own}\0",
        "long": "x" * 2_000,
    }


def test_tokens_that_are_not_right_open_nothing(server: Served, tmp_path: Path) -> None:
    before = state_of(server, "mine")
    with server.client(**{"X-Pausepoint": "1"}) as client:
        for name, token in wrong_tokens(server, tmp_path).items():
            check_problem(client.post("/login", json={"token": token}), 401)
            if token and token.isascii() and "\0" not in token:
                given = {"Authorization": f"Bearer {token}"}
                check_problem(client.get("/me", headers=given), 401)
                check_problem(client.put("/standing-pause", json={}, headers=given), 401)
                cookie = {"Cookie": f"{signin(server).cookie_name}={token}"}
                answer = client.get("/me", headers=cookie)
                assert answer.status_code == (200 if name == "cookie as a token" else 401), name
        cookie = {"Cookie": f"{signin(server).cookie_name}={link(server, 'mine')}"}
        check_problem(client.get("/me", headers=cookie), 401)  # a link is a token, and not a cookie
    assert state_of(server, "mine") == before


@pytest.mark.parametrize("given", ["Basic {own}", "{own}", "Bearer", "Bearer {own}, Bearer {own}", "Token x"])
def test_a_header_that_is_not_one_bearer_token_is_refused(server: Served, given: str) -> None:
    with server.client(Authorization=given.format(own=server.tokens.own)) as client:
        check_problem(client.get("/me"), 401)


def test_cookies_of_other_servers_do_not_hide_ours(server: Served) -> None:
    """Browsers share cookies between ports, so every server on this machine can add some."""
    with server.client(**{"X-Pausepoint": "1"}) as client:
        client.post("/login", json={"token": server.tokens.own})
        ((name, value),) = client.cookies.items()
    for before in ('a="b; c[]=d; ', f"{name}=nonsense; ", f"{name}={link(server, 'mine')}; ", "\xff=1; ", ";;=; "):
        headers = httpx.Headers([(b"Cookie", f"{before}{name}={value}".encode("latin-1"))])
        with server.client() as client:
            assert client.get("/me", headers=headers).status_code == 200, before
