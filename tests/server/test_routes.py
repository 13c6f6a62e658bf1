"""Every line of the table of routes, for every role and every kind of bad request."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getmembers, isfunction
from typing import get_args

import pytest

from pausepoint import Engine, Session
from pausepoint.engine.limits import StoreLimits
from pausepoint.engine.remembered import RequestKeys
from pausepoint.engine.schedules import StoreSchedules
from pausepoint.server.calls import Route
from pausepoint.server.people import Person
from pausepoint.server.roles import ROLES, Role
from pausepoint.server.routes import ROUTES
from tests.server.kit import API, Served, check_problem, filled, named, send, served, state_of

SIGNED = [route for route in ROUTES if route.role is not None]
BODIES = [route for route in ROUTES if route.body is not None]
NAMED = [route for route in ROUTES if "{" in route.path and "{name" not in route.path]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("matrix")) as found:
        found.questions["anns"] = found.asked("anns", owner="ann")
        yield found


def path_of(server: Served, route: Route) -> str:
    return filled(route, "anns", server.questions["anns"])


@pytest.mark.parametrize("route", SIGNED, ids=named)
def test_without_a_token_nothing_is_answered(server: Served, route: Route) -> None:
    before = state_of(server, "anns")
    with server.kept() as client:
        answer = send(client, route, path_of(server, route))
    check_problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert state_of(server, "anns") == before


@pytest.mark.parametrize("route", SIGNED, ids=named)
def test_a_wrong_token_is_refused(server: Served, route: Route) -> None:
    for token in (server.tokens.own[:-1], "a.b"):
        with server.kept(token) as client:
            check_problem(send(client, route, path_of(server, route)), 401)


@pytest.mark.parametrize("route", SIGNED, ids=named)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says(server: Served, route: Route, role: Role) -> None:
    before = state_of(server, "anns")
    with server.kept(server.token(role)) as client:
        answer = send(client, route, filled(route, "unknown", "unknown"), {"nonsense": 1} if route.body else ...)
    allowed = route.role == "any" or route.heads or Person("x", role).may(route.role)  # type: ignore[arg-type]
    if allowed:
        assert answer.status_code not in (401, 403), answer.text
    else:
        assert check_problem(answer, 403)["role"] == route.role
    assert state_of(server, "anns") == before


@pytest.mark.parametrize("route", NAMED, ids=named)
def test_what_belongs_to_another_owner_does_not_exist(server: Served, route: Route) -> None:
    before = state_of(server, "anns")
    bobs = server.token("admin", "bob")
    with server.kept(bobs, **{"If-Match": '"1.0.1"'}) as client:
        if route.uploads:
            answer = client.request(route.method, path_of(server, route), params={"filename": "a"}, content=b"x")
        else:
            params = {"a": "1"} if route.path.endswith("/diff") else None
            answer = send(client, route, path_of(server, route), params=params)
    check_problem(answer, 403 if route.path.startswith("/store") else 404)
    assert state_of(server, "anns") == before


@pytest.mark.parametrize("route", NAMED, ids=named)
def test_an_unknown_name_is_a_404(server: Served, route: Route) -> None:
    with server.kept(server.tokens.own, **{"If-Match": '"1.0.1"'}) as client:
        params = {"a": "1"} if route.path.endswith("/diff") else {"filename": "a"} if route.uploads else None
        answer = send(client, route, filled(route, "unknown", "unknown"), params=params)
    check_problem(answer, 404)


@pytest.mark.parametrize("route", [each for each in ROUTES if "{session_id}" in each.path], ids=named)
def test_the_beginning_of_an_id_names_no_session(server: Served, route: Route) -> None:
    before = state_of(server, "anns")
    with server.kept(server.tokens.own, **{"If-Match": '"1.0.1"'}) as client:
        params = {"a": "1"} if route.path.endswith("/diff") else {"filename": "a"} if route.uploads else None
        check_problem(send(client, route, filled(route, "ann", "unknown"), params=params), 404)
    assert state_of(server, "anns") == before


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_the_beginning_of_an_id_names_no_session_for_a_bulk_verb(server: Served, verb: str) -> None:
    before = state_of(server, "anns")
    with server.kept(server.tokens.own) as client:
        answer = client.post("/sessions/bulk", json={"verb": verb, "ids": ["ann"]})
    assert [item["problem"]["status"] for item in answer.json()["refused"]] == [404], answer.text
    assert state_of(server, "anns") == before


@pytest.mark.parametrize("route", [each for each in ROUTES if "{session_id}" in each.path], ids=named)
def test_an_id_that_cannot_exist_is_refused(server: Served, route: Route) -> None:
    for wrong in ("%00", "a%0Ab", "..", "x" * 300, "%C3%BC%F0%9F%98%80" * 40):
        with server.kept(server.tokens.own, **{"If-Match": '"1.0.1"'}) as client:
            params = {"a": "1"} if route.path.endswith("/diff") else {"filename": "a"} if route.uploads else None
            answer = send(client, route, filled(route, wrong, "x"), params=params)
        check_problem(answer, 400, 404, 405)


@pytest.mark.parametrize("route", BODIES, ids=named)
def test_a_malformed_body_is_refused_and_changes_nothing(server: Served, route: Route) -> None:
    before = state_of(server, "anns")
    headers = {"Content-Type": "application/json", "X-Pausepoint": "1", "If-Match": '"1.0.1"'}
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    for data in (b"{", b"[]", b"null", b'"text"', b'{"nonsense": 1}', b'{"by": "eve"}', b"\xff\xfe", b"{} {}", deep):
        with server.kept(server.tokens.own) as client:
            answer = client.request(route.method, path_of(server, route), content=data, headers=headers)
        check_problem(answer, 400)
    assert state_of(server, "anns") == before


@pytest.mark.parametrize("route", BODIES, ids=named)
def test_a_body_that_is_too_large_is_refused(server: Served, route: Route) -> None:
    large = b'{"reason": "' + b"x" * 2**20 + b'"}'

    def slices() -> Iterator[bytes]:
        for start in range(0, len(large), 100_000):
            yield large[start : start + 100_000]

    headers = {"Content-Type": "application/json", "X-Pausepoint": "1"}
    for content in (large, slices()):  # with its length, and without
        with server.kept(server.tokens.own) as client:
            answer = client.request(route.method, path_of(server, route), content=content, headers=headers)
        assert check_problem(answer, 413)["limit"] == 2**20


@pytest.mark.parametrize("route", BODIES, ids=named)
def test_a_body_that_is_not_json_is_refused(server: Served, route: Route) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        with server.kept(server.tokens.own, **{"X-Pausepoint": "1"}) as client:
            answer = client.request(
                route.method, path_of(server, route), content=b'{"reason": "x"}', headers={"Content-Type": kind}
            )
        check_problem(answer, 415)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_an_unknown_name_in_the_query_is_refused(server: Served, route: Route) -> None:
    with server.kept(server.tokens.own, **{"X-Pausepoint": "1"}) as client:
        params = {"nonsense": "1"} | ({"a": "1"} if route.path.endswith("/diff") else {})
        check_problem(client.request(route.method, path_of(server, route), params=params), 400)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_another_method_is_refused(server: Served, route: Route) -> None:
    known = {each.method for each in ROUTES if each.path == route.path}
    for method in {"PATCH", "OPTIONS", "TRACE", "BREW"} - known:
        with server.kept(server.tokens.own) as client:
            answer = client.request(method, path_of(server, route))
        check_problem(answer, 405)
        assert known <= {each.strip() for each in answer.headers["allow"].split(",")}


def test_every_route_has_a_verb_and_an_example() -> None:
    for route in ROUTES:
        assert not route.verb or route.verb in VERBS, route
        assert route.summary.endswith("."), route
        assert route.role is None or route.role == "any" or route.role in get_args(Role)
        assert (route.body is None) == (route.example is None), route
        assert not route.path.startswith(API)


KINDS = {"": Engine, "keys.": RequestKeys, "limits.": StoreLimits, "schedules.": StoreSchedules}
VERBS = {"files"} | {
    prefix + name for prefix, kind in [*KINDS.items(), ("", Session)] for name, verb in getmembers(kind, isfunction)
    if not name.startswith("_")
}  # fmt: skip
"""The verbs of engines and sessions."""

UNREACHABLE = {
    "close": "the server's own",
    "definition": "GET workflows",
    "drawer": "for adapters, which run next to the store",
    "drawers": "for adapters; doctor lists them",
    "drive_only": "for programs that drive one session",
    "emit": "an event comes from the program of a session",
    "find": "clients send whole ids",
    "forget": "POST rewind, with to_operation",
    "idle": "for programs that wait",
    "keys.forget": "the server's own, for requests that are sent twice",
    "keys.once": "the server's own, for requests that are sent twice",
    "keys.recall": "the server's own, for requests that are sent twice",
    "keys.remember": "the server's own, for requests that are sent twice",
    "last_event": "GET events",
    "move": "opens a store that the caller names",
    "obstacles": "GET plan",
    "outcome": "waits; the page follows the session instead",
    "outline": "GET session, whose description names the steps",
    "rebuild": "reads a folder of the server",
    "register": "code is named when the server starts",
    "result": "waits; the page follows the session instead",
    "retries": "GET events",
    "same_input": "for the command line",
    "session": "a handle",
    "stand_by": "for programs that drive one session",
    "status": "GET session",
    "state": "GET state, which needs no code",
    "stranded": "for the command line",
    "take_ready": "the server's own",
    "take_up": "the server's own",
    "visit": "a program's own code",
    "watch": "GET stream",
}
"""Verbs that no route calls, and why."""


def test_every_verb_is_reachable_or_listed_with_a_reason() -> None:
    also = {"pauses", "origin", "tombstones", "plan_fork", "plan_edit"}  # called next to another verb
    also |= {"tally_questions", "engines", "stream", "spending", "waking", "progress"}
    reached = {route.verb for route in ROUTES} | also
    assert VERBS - reached - UNREACHABLE.keys() == set()
    assert UNREACHABLE.keys() - VERBS == set()


def test_the_page_and_its_files_are_served(server: Served) -> None:
    with server.kept(server.tokens.own) as client:
        page = client.get(server.base + "/")
        assert page.headers["content-type"].startswith("text/html")
        static = [each.split('"')[0] for each in page.text.split('"static/')[1:]]
        assert len(static) == 3
        for each in static:
            found = client.get(f"{server.base}/static/{each}")
            assert found.status_code == 200
            assert "immutable" in found.headers["cache-control"]
