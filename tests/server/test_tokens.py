"""Tokens over HTTP: an admin creates, lists and revokes them, and sees a secret once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pausepoint import Engine
from pausepoint.server.asgi import Settings, application
from pausepoint.server.people import Person
from pausepoint.server.retries import KEY
from pausepoint.server.tokens import Tokens
from tests.server.kit import FREE, check_problem, fits, served


def test_a_token_works_until_it_is_revoked_and_its_secret_is_shown_once(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.admin(**{KEY: "same"}) as admin:
        asked = {"role": "viewer", "name": "board", "owner": "ann", "seconds": 3600}
        answer = admin.post("/store/tokens", json=asked)
        created = answer.json()
        fits(created, "created_token")
        assert (answer.status_code, created["name"], created["expired"]) == (201, "board", False)
        again = admin.post("/store/tokens", json=asked).json()
        assert again["token"] != created["token"], "an answer with a secret is not stored, whatever key is sent"
        listed = admin.get("/store/tokens")
        fits(listed.json(), "access_tokens")
        assert [each["id"] for each in listed.json()["tokens"]] == [created["id"], again["id"]]
        assert created["token"] not in listed.text
        with server.client(created["token"]) as client:
            assert client.get("/me").json() == {"name": "board", "role": "viewer", "owner": "ann", "question": None}
            assert admin.request("DELETE", f"/store/tokens/{created['id']}", json={}).status_code == 204
            check_problem(client.get("/me"), 401)
        check_problem(admin.request("DELETE", f"/store/tokens/{created['id']}", json={}), 404)
        assert not any(created["token"].encode() in each.read_bytes() for each in tmp_path.iterdir() if each.is_file())


def test_the_name_is_the_owner_or_the_role_and_a_bad_token_is_refused(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.admin() as admin:
        names = [
            admin.post("/store/tokens", json={"role": "viewer"} | more).json()["name"]
            for more in ({}, {"owner": "ann"})
        ]
        assert names == ["viewer", "ann"]
        for wrong in ({}, {"role": "root"}, {"role": "viewer", "owner": ""}, {"role": "viewer", "seconds": 0}):
            check_problem(admin.post("/store/tokens", json=wrong), 400)


def test_tokens_that_are_created_and_revoked_at_the_same_time_are_all_kept_or_gone(tmp_path: Path) -> None:
    with served(tmp_path) as server, server.admin() as admin, ThreadPoolExecutor(6) as threads:

        def create(n: int) -> str:
            id: str = admin.post("/store/tokens", json={"role": "viewer", "name": f"t{n}"}).json()["id"]
            if n % 3 == 0:
                assert admin.request("DELETE", f"/store/tokens/{id}", json={}).status_code == 204
            return id

        made = list(threads.map(create, range(24)))
        kept = [each["id"] for each in admin.get("/store/tokens").json()["tokens"]]
        assert sorted(kept) == sorted(id for n, id in enumerate(made) if n % 3)


def test_only_an_admin_of_all_owners_sees_tokens(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for token in (server.token("operator"), server.token("admin", "ann")):
            with server.client(token) as client:
                check_problem(client.get("/store/tokens"), 403)
                check_problem(client.post("/store/tokens", json={"role": "admin"}), 403)
                check_problem(client.request("DELETE", "/store/tokens/00000000", json={}), 403)


def test_a_server_whose_program_signs_people_in_has_no_tokens(tmp_path: Path) -> None:
    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        def who(request: Any) -> Person:
            return Person("ann", "admin")

        return application(engine, Settings(hosts=[f"127.0.0.1:{port}"], who=who, limits=FREE))

    with served(tmp_path, make=make) as server, server.client(**{"X-Pausepoint": "1"}) as client:
        assert "no tokens" in check_problem(client.get("/store/tokens"), 404)["detail"]
