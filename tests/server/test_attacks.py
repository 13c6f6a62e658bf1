"""Attacks: what other sites, wrong names, broken requests and curious people try. Each is refused, nothing changes."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from pausepoint.server.guard import CSP, HEADERS
from pausepoint.server.limits import Limits
from pausepoint.server.problems import problem_of
from tests.server.kit import API, FREE, Served, check_problem, letter, raw, served, state_of
from tests.support.loop import PATIENCE

PAGE = {"X-Pausepoint": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("attacks")) as found:
        for owner in ("ann", "bob"):
            found.questions[owner] = found.asked(f"{owner}s", topic=f"secret of {owner}", owner=owner)
        yield found


@pytest.fixture
def page(server: Served) -> Iterator[httpx.Client]:
    """A browser that is signed in."""
    with server.client() as client:
        assert client.post("/login", json={"token": server.tokens.own}, headers=PAGE).status_code == 200
        yield client


# other sites

SITES: dict[str, dict[str, str]] = {
    "a form": {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example",
               "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    "a form of an old browser": {"Content-Type": "application/x-www-form-urlencoded"},
    "a form with text/plain": {"Content-Type": "text/plain", "Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "an upload form": {"Content-Type": "multipart/form-data; boundary=x"},
    "fetch without CORS": {"Content-Type": "text/plain", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    "a sandboxed frame": {"Content-Type": "application/json", "Origin": "null", **PAGE},
    "another port": {"Content-Type": "application/json", "Origin": "http://127.0.0.1:8000", **PAGE},
    "another port, says the browser": {"Content-Type": "application/json", "Sec-Fetch-Site": "same-site", **PAGE},
    "another scheme": {"Content-Type": "application/json", "Origin": "https://127.0.0.1:{port}", **PAGE},
    "JSON without our header": {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"},
    "a wrong value of our header": {"Content-Type": "application/json", "X-Pausepoint": "0"},
}  # fmt: skip


@pytest.mark.parametrize("site", SITES)
def test_another_site_cannot_use_the_sign_in_of_the_browser(server: Served, page: httpx.Client, site: str) -> None:
    headers = {name: value.format(port=server.port) for name, value in SITES[site].items()}
    before = state_of(server, "anns")
    for method, path in (
        ("PUT", "/standing-pause"), ("POST", "/sessions/anns/pause"), ("DELETE", "/sessions/anns"),
        ("POST", "/sessions/anns/files?filename=a"), ("POST", "/logout"), ("POST", "/store/gc"),
    ):  # fmt: skip
        answer = page.request(method, path, content=b'{"reason": "evil"}', headers=headers)
        assert check_problem(answer, 403)["type"] == "urn:pausepoint:origin"
        assert "set-cookie" not in answer.headers
    assert state_of(server, "anns") == before
    assert page.get("/me").status_code == 200


def test_another_site_cannot_read_with_the_sign_in_of_the_browser(server: Served, page: httpx.Client) -> None:
    for site in ("cross-site", "same-site"):
        for path in ("/sessions", "/sessions/anns", "/stream", "/sessions/anns/export"):
            check_problem(page.get(path, headers={"Sec-Fetch-Site": site}), 403)
        assert page.get(f"{server.base}/", headers={"Sec-Fetch-Site": site}).status_code == 200  # a link in a mail
    for site in ("same-origin", "none"):
        assert page.get("/sessions", headers={"Sec-Fetch-Site": site}).status_code == 200
    with server.admin() as program:  # a token is not sent by a browser on its own
        assert program.get("/sessions", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_the_requests_of_another_site_do_not_use_up_the_limit(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(actions=2, reads=2)) as server, server.client() as page:
        page.post("/login", json={"token": server.tokens.own}, headers=PAGE)
        for _ in range(4):
            check_problem(page.post("/sessions", json={}), 403)
            check_problem(page.get("/me", headers={"Sec-Fetch-Site": "same-site"}), 403)
        assert page.get("/me").status_code == 200


# headers


def test_every_kind_of_answer_has_the_headers(server: Served, page: httpx.Client) -> None:
    upload = {"content": b"<script>", "params": {"filename": "a.html"}}
    with server.admin() as client:
        file = client.post("/sessions/anns/files", **upload).json()["file_id"]  # type: ignore[arg-type]
        mark = client.get("/sessions/anns").headers["etag"]
        static = re.findall(r'"(static/[^"]+)"', client.get(f"{server.base}/").text)[0]
        answers = {
            200: client.get("/me"),
            201: client.post("/sessions", json={"workflow": "brief", "input": {"topic": "x"}, "paused": True}),
            204: client.get("/health/live"),
            206: client.get(f"/sessions/anns/files/{file}", headers={"Range": "bytes=0-1"}),
            304: client.get("/sessions/anns", headers={"If-None-Match": mark}), 400: client.get("/me?x=1"),
            401: httpx.get(f"{server.base}{API}/me", trust_env=False, timeout=PATIENCE),
            403: page.put("/standing-pause", json={}),
            404: client.get("/nothing"), 405: client.request("PATCH", "/me"),
            409: client.post("/sessions", json={"workflow": "x"}),
            412: client.post("/sessions/anns/edit", json={"fields": {"topic": "x"}}, headers={"If-Match": '"0.0.0"'}),
            413: client.post("/login", content=b"x" * (2**20 + 1), headers=PAGE),
            415: client.post("/sessions", content=b"{}", headers={"Content-Type": "text/plain"}),
            416: client.get(f"/sessions/anns/files/{file}", headers={"Range": "bytes=99-"}),
            421: client.get("/me", headers={"Host": "evil.example"}),
            428: client.post("/sessions/anns/edit", json={"fields": {"topic": "x"}}),
        }  # fmt: skip
        more = [
            client.head("/me"),
            client.head(f"/sessions/anns/files/{file}"),
            client.options("/me"),
            client.get(f"{server.base}/{static}"),
            client.head(f"{server.base}/"),
            client.get(f"{server.base}/x"),
        ]
    assert {status: answer.status_code for status, answer in answers.items()} == {each: each for each in answers}
    for answer in [*answers.values(), *more]:
        attached = "content-disposition" in answer.headers
        for name, value in HEADERS.items():
            wanted = "sandbox; default-src 'none'" if attached and name == "content-security-policy" else value
            if name == "cache-control" and answer is more[3]:
                wanted = "public, max-age=31536000, immutable"
            assert answer.headers.get_list(name) == [wanted], (answer.request.url, name)
        assert "access-control-allow-origin" not in answer.headers
    assert "unsafe" not in CSP
    assert "require-trusted-types-for 'script'" in CSP


def test_an_unexpected_error_has_an_id_and_no_traceback(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("/srv/secret/place is broken")

    monkeypatch.setattr(type(server.engine), "tally", broken)
    with server.admin() as client:
        answer = client.get("/sessions?count=1")
    document = check_problem(answer, 500)
    assert "secret" not in answer.text
    assert f"error {document['id']}" in caplog.text
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("embedded null byte"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
        KeyError("/srv/x"),
        TypeError("x."),
    ],
)
def test_an_error_of_python_is_not_taken_for_a_wrong_request(error: Exception) -> None:
    found = problem_of(error)
    assert (found.status, str(error) in found.detail) == (500, False)


# broken requests


@pytest.mark.parametrize(
    "text",
    [
        "GET {api}/me HTTP/1.1\nHost: {host}\nContent-Length: 5\nContent-Length: 6\n\nhello",
        "PUT {api}/x HTTP/1.1\nHost: {host}\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\n\nGET / HTTP/1.1\n\n",
        "POST {api}/login HTTP/1.1\nHost: {host}\nTransfer-Encoding: gzip, chunked\n\n0\n\n",
        "POST {api}/login HTTP/1.1\nHost: {host}\nContent-Length: -1\n\n",
        "POST {api}/login HTTP/1.1\nHost: {host}\nContent-Length: 1e3\n\n",
        "GET {api}/me HTTP/1.1\nHost : {host}\n\n",
        "GET {api}/me HTTP/1.1\nHost: {host}\n folded: x\nX:\x00\n\n",
        "GET {api}/m\xe9 HTTP/1.1\nHost: {host}\n\n",
        "nonsense\n\n",
    ],
)
def test_a_request_that_two_servers_could_read_differently_is_refused(server: Served, text: str) -> None:
    answer = raw(server, text.format(api=API, host=f"127.0.0.1:{server.port}"))
    assert answer.split()[1] == "400", answer
    assert answer.count("HTTP/1.1 ") == 1  # what follows is no second request


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{port}/api/v1/me",
        "http://evil.example/api/v1/me",
        "https://evil.example",
        "*",
        "evil.example:443",
        "//evil.example/x",
    ],
)
def test_a_request_line_with_an_address_is_refused(server: Served, target: str) -> None:
    for method in ("GET", "CONNECT", "OPTIONS"):
        text = (
            f"{method} {target.format(port=server.port)} HTTP/1.1\nHost: 127.0.0.1:{server.port}\nConnection: close\n"
        )
        answer = raw(server, f"{text}Authorization: Bearer {server.tokens.own}\n\n")
        assert answer.split()[1] in ("400", "404", "421"), answer


@pytest.mark.parametrize("depth", [100, 500, 900, 1_200, 100_000])
def test_deep_values_are_stored_or_refused_and_never_break_a_later_read(server: Served, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    mark = f"deep-{depth}"
    server.asked(mark)
    with server.admin(**{"Content-Type": "application/json"}) as client:
        for path, body in (
            (f"/sessions/{mark}/send", f'{{"value": {deep}}}'),
            ("/sessions", f'{{"workflow": "brief", "input": {{"topic": {deep}}}}}'),
            (f"/sessions/{mark}/plan", f'{{"verb": "fork", "changes": {{"topic": {deep}}}}}'),
            (f"/sessions/{mark}/fork", f'{{"changes": {{"notes": {deep}}}}}'),
        ):
            answer = client.post(path, content=body)
            assert answer.status_code in (200, 400, 422), answer.text
            if answer.status_code != 200:
                check_problem(answer, 400, 422)
        for path in ("", "/events", "/state"):
            assert client.get(f"/sessions/{mark}{path}").status_code == 200


@pytest.mark.parametrize(
    "value", ['"\\ud800"', '"\\u0000"', "1e999", "-1e999", "1" * 5_000, "NaN", '"a\\tb"', "\u2028"]
)
def test_strange_values_are_stored_or_refused(server: Served, value: str) -> None:
    with server.admin(**{"Content-Type": "application/json"}) as client:
        answer = client.post("/sessions/anns/send", content=f'{{"value": {value}}}'.encode())
        assert answer.status_code == 200 or check_problem(answer, 400, 422)
        assert client.get("/sessions/anns/events").status_code == 200


@pytest.mark.long
def test_a_body_that_trickles_in_is_cut_off(tmp_path: Path) -> None:
    """Each piece comes in time, but all of them would take days."""
    with served(tmp_path, limits=replace(FREE, body_seconds=0.3)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            head = (
                f"POST {API}/login HTTP/1.1\nHost: 127.0.0.1:{server.port}\nX-Pausepoint: 1\nContent-Length: 9999\n\n"
            )
            connection.sendall(head.replace("\n", "\r\n").encode())
            connection.settimeout(0.05)
            answer = b""
            while not answer:
                try:
                    answer = connection.recv(65_536)
                except TimeoutError:
                    connection.sendall(b" ")
        assert answer.split()[1] == b"408"


def test_a_web_socket_is_refused(server: Served) -> None:
    upgrade = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: QUFBQQ=="
    answer = raw(server, f"GET {API}/stream HTTP/1.0\nHost: 127.0.0.1:{server.port}\n{upgrade}\n\n")
    assert answer.split()[1] in ("400", "401", "403"), answer


# places on the disk


def test_messages_do_not_name_folders_of_the_server(server: Served) -> None:
    folder = server.folder / "letters"

    async def published() -> None:
        session = await server.engine.start(letter, session_id="placed", folder=folder, topic="x")
        await session.outcome()

    server.run(published())
    (folder / "letter.html").unlink()
    with server.admin() as client:
        missing = client.get("/sessions/placed/artifacts/letter.html")
        check_problem(missing, 404, 409)
        path = "/sessions/placed/artifacts"
        for answer in (
            missing, client.post(f"{path}/adopt", json={"paths": ["letter.html"]}),
            client.post(f"{path}/adopt", json={"paths": ["../../etc/passwd"]}),
            client.post(f"{path}/restore", json={"paths": [str(folder / "x")]}),
        ):  # fmt: skip
            assert answer.status_code >= 400
            assert str(server.folder) not in answer.json()["detail"].replace(str(folder / "x"), "")


TRAVERSALS = [
    "../{}",
    "..%2f{}",
    "%2e%2e%2f{}",
    "%252e%252e%252f{}",
    "..%5c{}",
    "%00{}",
    "{}%00.html",
    "%c0%ae%c0%ae/{}",
    "//{}",
]


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_address_leads_out_of_its_folder(server: Served, path: str) -> None:
    target = path.format("serve-token")
    for place in (
        "/sessions/anns/files/",
        "/sessions/anns/artifacts/",
        "/sessions/",
        "/workflows/",
        "/store/jobs/",
        "/sessions/anns/state/",
    ):
        text = f"GET {API}{place}{target} HTTP/1.1\nHost: 127.0.0.1:{server.port}\nConnection: close\n"
        answer = raw(server, f"{text}Authorization: Bearer {server.tokens.own}\n\n")
        assert answer.split()[1] in ("400", "404", "409"), answer
        assert server.tokens.own not in answer
    for place in ("/sessions/{}/export", "/sessions/{}/files"):
        text = f"GET {API}{place.format(target)} HTTP/1.1\nHost: 127.0.0.1:{server.port}\nConnection: close\n"
        answer = raw(server, f"{text}Authorization: Bearer {server.tokens.own}\n\n")
        assert answer.split()[1] in ("400", "404"), answer


# logs


def test_log_lines_have_no_query_body_token_or_line_break(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with server.admin(**PAGE) as client:
        client.post("/login?nonsense=query-secret", json={"token": "body-secret"})
        client.post("/login", json={"token": server.tokens.own})
        client.get("/sessions?text=query-secret&nonsense=1")
        client.post("/sessions/anns/send", json={"value": "body-secret"})
        client.post("/sessions", json={"workflow": "brief", "input": {"topic": 7, "body-secret": 1}})
        client.get("/sessions/x%0Aforged%1b[31m", headers={"Referer": "https://x/?referer-secret"})
        client.get("/me", headers={"Cookie": "pausepoint-00000000=cookie-secret"})
    ours = [each.getMessage() for each in caplog.records if each.name.startswith(("pausepoint", "uvicorn.error"))]
    assert "POST /api/v1/login 200" in ours
    assert any("x\\nforged\\x1b[31m" in each for each in ours)
    for text in ours:
        assert not [each for each in ("\n", "\x1b", "secret", server.tokens.own) if each in text]
