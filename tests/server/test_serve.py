"""`pausepoint serve` as a process: it prints an address, signs in, drives, and ends without losing anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pausepoint import Engine, Status
from pausepoint.server.tokens import Tokens
from tests.cli.kit import run
from tests.server.kit import brief, served
from tests.server.processes import Process

TARGET = "tests.server.kit:brief"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Engine(tmp_path / "store.db"):
        return tmp_path


@pytest.mark.long
def test_it_makes_a_store_serves_drives_and_ends(tmp_path: Path) -> None:
    store = tmp_path
    server = Process(store, "--target", TARGET)
    try:
        assert "Drives brief" in server.log.read_text()
        assert (store / "serve-token").read_text().strip() == server.token
        asked = {"workflow": "brief", "input": {"topic": "octopus"}, "session_id": "one"}
        assert server.client.post("/sessions", json=asked).status_code == 201
        server.until("one", "waiting")
        (question,) = server.client.get("/inbox").json()["questions"]
        assert server.client.post(f"/inbox/{question['id']}/answer", json={"value": "formal"}).status_code == 200
        server.until("one", "completed")
        assert server.client.get("/health/ready").status_code == 204
        assert server.client.get("/me").json()["role"] == "admin"
        assert server.client.get(server.base).text.startswith("<!doctype html>")
    finally:
        code = server.end()
    assert code == 143, server.log.read_text()
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "can be reached from other machines"),
        (["--host", "example.org"], "can be reached from other machines"),
        (["--tls-cert", "x.pem"], "x.pem"),
        (["--drive"], "no workflow to drive"),
        (["--behind-proxy", "--proxy-from", "nonsense"], "is not a network"),
        (["--port", "-1"], "whole number"),
    ],
)
def test_what_would_be_unsafe_or_cannot_work_is_refused(store: Path, options: list[str], said: str) -> None:
    done = run("serve", *options, "--store", str(store / "store.db"), cwd=store)
    assert (done.code, said in done.stderr) == (2, True), done.stderr


def test_a_port_that_is_taken_is_named(store: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port, "--store", str(store / "store.db"), cwd=store)
    assert done.code == 2
    assert f"port {port}" in done.stderr


def test_a_store_that_does_not_exist_is_not_made_to_observe_it(tmp_path: Path) -> None:
    done = run("serve", "--store", str(tmp_path / "none.db"), cwd=tmp_path)
    assert (done.code, "There is no store" in done.stderr) == (4, True)
    assert not (tmp_path / "serve-token").exists()


def test_a_folder_of_the_store_that_does_not_exist_is_a_slip_of_the_pen(tmp_path: Path) -> None:
    done = run("serve", "--store", str(tmp_path / "stroe" / "store.db"), "--target", TARGET, cwd=tmp_path)
    assert (done.code, f"There is no folder {tmp_path / 'stroe'} for the store" in done.stderr) == (4, True)
    assert not (tmp_path / "stroe").exists()


def test_tokens_are_created_listed_and_revoked(store: Path) -> None:
    where = ["--store", str(store / "store.db")]
    assert "There is no token" in run("serve", "token", "list", *where, cwd=store).stdout
    made = run("serve", "token", "create", "--role", "answerer", "--owner", "ann", "--expires", "7d", *where, cwd=store)
    secret = made.stdout.strip()
    (kept,) = Tokens(store).kept
    assert Tokens(store).find(secret, time.time()) == kept
    assert (kept.role, kept.owner, kept.expires_at) == ("answerer", "ann", kept.created_at + 7 * 86_400)
    listed = run("serve", "token", "list", *where, cwd=store).stdout
    assert kept.id in listed
    assert secret not in listed
    assert run("serve", "token", "revoke", kept.id, *where, cwd=store).code == 0
    assert run("serve", "token", "revoke", kept.id, *where, cwd=store).code == 4
    assert run("serve", "token", "create", "--role", "boss", *where, cwd=store).code == 2
    assert run("serve", "token", "create", "--role", "viewer", "--expires", "soon", *where, cwd=store).code == 2


@pytest.mark.long
def test_a_link_answers_one_question(store: Path) -> None:
    where = ["--store", str(store / "store.db")]
    with Engine(store / "store.db") as engine:
        outcome = engine.start(brief, session_id="one", topic="x").outcome()
        (question,) = outcome.questions
    made = run("serve", "link", question.id[:8], "--name", "Ann", *where, cwd=store)
    token = made.stdout.strip().partition("#token=")[2]
    assert run("serve", "link", "nobody", *where, cwd=store).code == 4
    with served(store) as server, server.client(token) as client:
        (found,) = client.get("/inbox").json()["questions"]
        assert found["id"] == question.id
        answered = client.post(f"/inbox/{question.id}/answer", json={"value": "formal"})
        assert answered.json()["by"] == "Ann"
        assert server.run(server.engine.session("one").outcome()).status is Status.COMPLETED
