"""Files and artifacts: always attachments, never outside of their session, parts on request."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from tests.server.kit import Served, check_problem, letter, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("files")) as found:
        found.asked("one", owner="ann")
        yield found


def upload(server: Served, name: str, data: bytes, kind: str) -> str:
    with server.admin() as client:
        answer = client.post(
            "/sessions/one/files", params={"filename": name}, content=data, headers={"Content-Type": kind}
        )
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["file_id"])


def check_attachment(answer: httpx.Response) -> None:
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] in ("application/octet-stream", "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("page.html", "text/html"), ("image.svg", "image/svg+xml"), ("a.js", "text/javascript"), ("a.xml", "text/xml"),
        ('a"b\u2028c.html', "text/html"), ("ü 😀.txt", "text/plain"), ("../../etc/passwd", "text/plain"),
        ("a\r\nSet-Cookie: x=1.txt", "text/plain"),
    ],
)  # fmt: skip
def test_a_file_is_saved_and_never_shown(server: Served, name: str, kind: str) -> None:
    data = f"<script>alert({name!r})</script>".encode()
    file_id = upload(server, name, data, kind)
    with server.client(server.token("viewer", "ann")) as client:
        answer = client.get(f"/sessions/one/files/{file_id}")
    assert answer.content == data
    check_attachment(answer)
    assert "set-cookie" not in answer.headers
    assert ("text/plain" in answer.headers["content-type"]) == (kind == "text/plain")


def test_parts_of_a_file_can_be_asked_for(server: Served) -> None:
    file_id = upload(server, "digits.txt", b"0123456789", "text/plain")
    with server.admin() as client:
        path = f"/sessions/one/files/{file_id}"
        for asked, part, where in (
            ("0-3", b"0123", "0-3"),
            ("7-", b"789", "7-9"),
            ("-2", b"89", "8-9"),
            ("5-99", b"56789", "5-9"),
        ):
            answer = client.get(path, headers={"Range": f"bytes={asked}"})
            assert (answer.status_code, answer.content) == (206, part)
            assert answer.headers["content-range"] == f"bytes {where}/10"
        for wrong in ("bytes=10-", "bytes=5-2", "bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=-11"):
            answer = client.get(path, headers={"Range": wrong})
            check_problem(answer, 416)
            assert answer.headers["content-range"] == "bytes */10"


def test_a_large_file_is_streamed_and_known_content_is_kept_once(server: Served) -> None:
    data = os.urandom(3 * 2**20)  # more than a JSON body may have
    file_id = upload(server, "large.bin", data, "application/octet-stream")
    assert upload(server, "again.bin", data, "application/octet-stream") == file_id
    with server.admin() as client:
        assert client.get(f"/sessions/one/files/{file_id}").content == data
        check_problem(client.post("/sessions/one/files", content=b"x"), 400)
        wrong = {"filename": "a", "content_type": "no type"}
        check_problem(client.post("/sessions/one/files", params=wrong, content=b"x"), 422)


@pytest.mark.parametrize(
    "path",
    ["../store.db", "%2e%2e/store.db", "..%2fstore.db", "%2Fetc%2Fpasswd", "letter.html%00", "link.html",
     ".pausepoint/session.json", "%252e%252e/store.db"],
)  # fmt: skip
def test_an_artifact_is_one_of_the_published_files(server: Served, path: str) -> None:
    folder = server.folder / "letter"

    async def published() -> None:
        session = await server.engine.start(letter, session_id="three", folder=folder, topic="x")
        await session.outcome()

    server.run(published())
    link = folder / "link.html"
    link.unlink(missing_ok=True)
    link.symlink_to(server.folder / "serve-token")
    with server.admin() as client:
        good = client.get("/sessions/three/artifacts/letter.html")
        check_attachment(good)
        assert good.headers["content-type"] == "application/octet-stream"  # HTML does not run
        answer = client.get(httpx.URL(f"{server.base}/api/v1/sessions/three/artifacts/{path}"))
        check_problem(answer, 404)
        assert server.tokens.own not in answer.text


def test_an_artifact_that_became_a_link_is_not_followed(server: Served) -> None:
    folder = server.folder / "linked"

    async def published() -> None:
        session = await server.engine.start(letter, session_id="four", folder=folder, topic="x")
        await session.outcome()

    server.run(published())
    (folder / "letter.html").unlink()
    (folder / "letter.html").symlink_to(server.folder / "serve-token")
    with server.admin() as client:
        answer = client.get("/sessions/four/artifacts/letter.html")
        check_problem(answer, 404, 409)
        assert server.tokens.own not in answer.text
