"""The server inside another application: FastAPI with its own lifespan, its own sign-in and its own routes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from pausepoint import Engine
from pausepoint.server import Person, app
from pausepoint.server.tokens import Tokens
from tests.server.kit import check_problem, served

PEOPLE = {"ann": Person("ann", role="operator", owner="ann"), "root": Person("root", role="admin")}


async def who(request: Request) -> Person | None:
    return PEOPLE.get(request.headers.get("X-User", ""))


def mounted(**options: Any) -> Any:
    def make(engine: Engine, tokens: Tokens, port: int) -> FastAPI:
        @asynccontextmanager
        async def lifespan(api: FastAPI) -> AsyncIterator[None]:
            api.state.began = True
            yield

        api = FastAPI(lifespan=lifespan)

        @api.get("/hello")
        async def hello() -> dict[str, bool]:
            return {"began": api.state.began}

        api.mount("/pausepoint", app(engine, **options))
        return api

    return make


@pytest.mark.long
def test_it_is_mounted_in_fastapi_with_the_sign_in_of_the_program(tmp_path: Path) -> None:
    with served(tmp_path, make=mounted(who=who)) as server:
        server.asked("anns", owner="ann")
        server.asked("bobs", owner="bob")
        base = f"{server.base}/pausepoint/api/v1"
        with server.client(**{"X-User": "ann"}) as client:
            assert client.get(f"{server.base}/hello").json() == {"began": True}
            assert client.get(f"{base}/me").json()["name"] == "ann"
            assert [each["session_id"] for each in client.get(f"{base}/sessions").json()["sessions"]] == ["anns"]
            check_problem(client.get(f"{base}/sessions/bobs"), 404)
            check_problem(client.post(f"{base}/sessions/anns/pause", json={}), 403)  # it may be a cookie of the program
            basic = client.post(f"{base}/sessions/anns/pause", json={}, headers={"Authorization": "Basic YW5uOng="})
            check_problem(basic, 403)  # browsers send it on their own, too
            assert client.post(f"{base}/sessions/anns/plan", json={"verb": "resume"},
                               headers={"Authorization": "Bearer x"}).status_code == 200  # fmt: skip
            done = client.post(f"{base}/sessions/anns/pause", json={"reason": "x"}, headers={"X-Pausepoint": "1"})
            assert done.json()["pause"]["by"] == "ann"
            made = client.post(
                f"{base}/sessions", json={"workflow": "brief", "input": {"topic": "x"}}, headers={"X-Pausepoint": "1"}
            )
            assert made.headers["location"].startswith("/pausepoint/api/v1/sessions/")
            assert client.get(server.base + made.headers["location"]).status_code == 200
            assert "static/" in client.get(f"{server.base}/pausepoint/").text
            assert client.get(f"{base}/openapi.json").json()["servers"] == [{"url": "/pausepoint/api/v1"}]
            check_problem(client.get(f"{base}/nothing"), 404)
            check_problem(client.request("PATCH", f"{base}/me"), 405)
            check_problem(client.get(f"{base}/me", headers={"Host": "evil.example"}), 421)
        with server.client(**{"X-User": "eve"}) as client:
            check_problem(client.get(f"{base}/me"), 401)


def test_without_a_sign_in_of_its_own_it_uses_the_tokens_next_to_the_store(tmp_path: Path) -> None:
    with served(tmp_path, make=mounted(page=False)) as server:
        base = f"{server.base}/pausepoint/api/v1"
        with server.admin(**{"X-Pausepoint": "1"}) as client:
            signed = client.post(f"{base}/login", json={"token": server.tokens.own})  # the first request of all
            assert "Path=/pausepoint;" in signed.headers["set-cookie"]
            assert client.get(f"{base}/me").json()["role"] == "admin"
            check_problem(client.get(f"{server.base}/pausepoint/"), 404)
        with server.client() as client:
            check_problem(client.get(f"{base}/me"), 401)


def test_other_hosts_are_named(tmp_path: Path) -> None:
    with served(tmp_path, make=mounted(who=who, hosts=["api.example"])) as server:
        base = f"{server.base}/pausepoint/api/v1"
        with server.client(**{"X-User": "root", "Host": "api.example:8000"}) as client:
            assert client.get(f"{base}/me").status_code == 200
        with server.client(**{"X-User": "root"}) as client:
            check_problem(client.get(f"{base}/me"), 421)


def test_a_person_needs_a_role_that_exists() -> None:
    with pytest.raises(ValueError, match="role must be one of viewer, answerer, operator, admin, not 'boss'"):
        Person("ann", role="boss")  # type: ignore[arg-type]


@pytest.mark.long
def test_the_package_is_imported_quickly_and_without_what_only_some_need() -> None:
    program = (
        "import sys\n"
        "before = len(sys.modules)\n"
        "import pausepoint.server\n"
        "assert len(sys.modules) - before < 60\n"  # its time depends on what else the machine does
        "from pausepoint.server import app\n"
        "heavy = {'uvicorn', 'pydantic.main', 'fastapi', 'rich', 'pausepoint.engine.engine'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
