"""The guard: requests that another site, another name or another method sends are refused, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.server.kit import API, FREE, Served, check_problem, raw, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("guard")) as found:
        found.asked("one")
        yield found


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1", "localhost",
        "localhost.:{port}", "127.0.0.1:{port}.", "127.0.0.1:1", "[::2]:{port}", "0.0.0.0:{port}", "127.1:{port}",
        "2130706433:{port}", "127.0.0.1:{port}@evil.example", "user@127.0.0.1:{port}", "",
    ],
)  # fmt: skip
def test_another_host_is_refused(server: Served, host: str) -> None:
    with server.admin() as client:
        for path in ("/me", f"{server.base}/", "/health/live"):
            check_problem(client.get(path, headers={"Host": host.format(port=server.port)}), 421)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_its_own_names_are_accepted(server: Served, host: str) -> None:
    with server.admin() as client:
        assert client.get("/me", headers={"Host": host.format(port=server.port)}).status_code == 200


def test_two_hosts_and_none_are_refused(server: Served) -> None:
    for hosts in ("", f"Host: 127.0.0.1:{server.port}\nHost: evil.example\n"):
        answer = raw(server, f"GET {API}/health/live HTTP/1.1\n{hosts}Connection: close\n\n")
        assert answer.split()[1] in ("400", "421"), answer


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", "http://localhost:{port}"],
)
def test_another_origin_is_refused_on_every_method(server: Served, method: str, origin: str) -> None:
    with server.admin() as client:
        answer = client.request(method, "/standing-pause", headers={"Origin": origin.format(port=server.port)})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    if method != "HEAD":
        check_problem(answer, 403)


def test_its_own_origin_is_accepted(server: Served) -> None:
    with server.admin(Origin=server.base) as client:
        assert client.get("/me").status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_a_request_that_another_site_triggered_is_refused(server: Served, site: str) -> None:
    with server.admin(**{"Sec-Fetch-Site": site}) as client:
        check_problem(client.post("/sessions/one/pause", json={}), 403)
        check_problem(client.delete("/sessions/one"), 403)
        assert client.get("/me").status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_a_cookie_alone_changes_nothing(server: Served, kind: str) -> None:
    """What a form, or fetch in the mode no-cors, of a sibling port can send: the cookie, but no header of its own."""
    with server.client() as client:
        signed = client.post("/login", json={"token": server.tokens.own}, headers={"X-Pausepoint": "1"})
        assert signed.status_code == 200
        answer = client.post("/sessions/one/pause", content=b"{}", headers={"Content-Type": kind})
        check_problem(answer, 403)
        upload = client.post("/sessions/one/files?filename=a", content=b"x", headers={"Content-Type": kind})
        check_problem(upload, 403)
        assert server.run(server.engine.session("one").info()).pause_requested is False


def test_signing_in_needs_the_header_of_the_page_too(server: Served) -> None:
    with server.client() as client:
        check_problem(client.post("/login", json={"token": server.tokens.own}), 403)
        check_problem(client.post("/logout", json={}), 403)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../asgi.py", "/static/x/index.html", "/static/%2e%2e/asgi.py", "/static/{folder}/../../asgi.py",
        "/static/{folder}/%2e%2e/%2e%2e/asgi.py", "/static/{folder}/..%2f..%2fasgi.py", "/static/{folder}/style.css%00",
        "/static/{folder}//etc/passwd", "/static/{folder}/", "/static/{folder}/%252e%252e/asgi.py",
    ],
)  # fmt: skip
def test_the_page_serves_its_own_files_only(server: Served, path: str) -> None:
    with server.admin() as client:
        folder = client.get(server.base).text.split("static/")[1].split("/")[0]
        target = path.format(folder=folder)
    answer = raw(server, f"GET {target} HTTP/1.1\nHost: 127.0.0.1:{server.port}\nConnection: close\n\n")
    assert answer.split()[1] == "404", answer
    assert "import" not in answer


def test_a_flood_of_headers_is_refused(server: Served) -> None:
    many = "".join(f"X-{number}: {'y' * 20}\n" for number in range(10_000))
    try:
        answer = raw(server, f"GET {API}/me HTTP/1.1\nHost: 127.0.0.1:{server.port}\n{many}\n")
    except (ConnectionResetError, BrokenPipeError):
        return
    assert answer.split()[1] in ("400", "431"), answer[:200]


@pytest.mark.long
def test_an_upload_that_stops_is_cut_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(tmp_path_factory.mktemp("slow"), limits=replace(FREE, body_seconds=0.05)) as server:
        server.asked("one")
        answer = raw(
            server,
            f"POST {API}/sessions/one/files?filename=a HTTP/1.1\nHost: 127.0.0.1:{server.port}\n"
            f"Authorization: Bearer {server.tokens.own}\nContent-Length: 100\nConnection: close\n\n{{",
        )
        assert answer.split()[1] == "408", answer
        assert server.run(server.engine.session("one").files.list()) == []
