"""The end of a stream: of its sign-in, or of the server."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from msgspec.structs import replace

from pausepoint import Engine
from pausepoint.server import Person, app, clients
from pausepoint.server import hub as hubs
from pausepoint.server.hub import hub_of
from pausepoint.server.tokens import CreatedToken, Tokens
from tests.server.kit import Served, check_problem, served
from tests.server.streams import Reader, history, told


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the hub check sign-ins all the time."""
    monkeypatch.setattr(hubs, "CHECK", 0.05)


def once(when: Callable[[], bool], act: Callable[[], object]) -> Callable[[], bool]:
    """Return a condition that is never met. It acts once when it is time."""
    acted: list[object] = []

    def condition() -> bool:
        if not acted and when():
            acted.append(True)
            act()
        return False

    return condition


@pytest.mark.long
@pytest.mark.parametrize("how", ["revoked", "expired", "other role"])
def test_a_sign_in_that_ends_loses_its_streams(tmp_path: Path, checked: None, how: str) -> None:
    with served(tmp_path) as server:
        kept, secret = server.tokens.create(how, "operator", None, time.time(), 3600)
        with server.client(secret) as client, server.admin() as other:
            reader, bystander = Reader(client, "now"), Reader(other, "now")
            reader.read(once(reader.has_mark, lambda: end_sign_in(server, kept, how)))  # until it ends
            if how == "other role":
                assert client.get("/me").json()["role"] == "viewer"
            else:
                check_problem(client.get("/stream", params={"topics": "now"}), 401)
            server.asked("after")
            bystander.read(bystander.has_mark)


def test_a_sign_in_is_checked_again_every_few_seconds() -> None:
    assert hubs.CHECK + clients.ASKING < 10


def end_sign_in(server: Served, kept: CreatedToken, how: str) -> None:
    tokens = server.tokens
    if how == "revoked":
        assert tokens.revoke(kept.id)
    else:
        changed = {"expires_at": int(time.time())} if how == "expired" else {"role": "viewer"}
        tokens._store(tuple(replace(each, **changed) if each.id == kept.id else each for each in tokens.kept))


@pytest.mark.long
@pytest.mark.parametrize("way", ["token", "cookie"])
def test_a_new_token_of_the_server_ends_all_its_streams(tmp_path: Path, checked: None, way: str) -> None:
    with served(tmp_path) as server, server.client() as client:
        if way == "token":
            client.headers["Authorization"] = f"Bearer {server.tokens.own}"
        else:
            answer = client.post("/login", json={"token": server.tokens.own}, headers={"X-Pausepoint": "1"})
            assert answer.status_code == 200
        reader = Reader(client, "now")
        reader.read(once(reader.has_mark, lambda: server.tokens.make(new=True)))
        check_problem(client.get("/now"), 401)


def test_the_sign_in_of_the_program_is_asked_again(tmp_path: Path, checked: None) -> None:
    people: dict[str, Person | None] = {"ann": Person("ann", "viewer")}

    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        return app(engine, who=lambda request: people["ann"], hosts=[f"127.0.0.1:{port}"])

    with served(tmp_path, make=make) as server, server.client() as client:
        for change in (Person("ann", "viewer", "ann"), None):
            reader = Reader(client, "now")
            reader.read(once(reader.has_mark, partial(people.update, ann=change)))
        check_problem(client.get("/now"), 401)


@pytest.mark.long
def test_a_server_that_ends_sends_a_reset_and_another_one_continues(tmp_path: Path) -> None:
    with ExitStack() as first:
        server = first.enter_context(served(tmp_path))
        server.asked("kept")
        with server.admin() as client:
            reader = Reader(client, "session:kept")

            hub = hub_of(server.engine)
            reader.read(once(reader.has_mark, lambda: asyncio.run_coroutine_threadsafe(hub.close(), server.loop)))
            assert reader.found[-1] == ("reset", {})
    with served(tmp_path) as server, server.admin() as client:
        (question,) = server.run(server.engine.session("kept").questions())
        server.run(server.engine.answer(question.id, "formal"))
        server.run(server.engine.session("kept").outcome())
        again = Reader(client, "session:kept", reader.last)
        again.read(again.ended)
        known = history(client, "kept")
        assert not again.of("reset")
        assert sorted(map(told, again.lines)) == sorted(map(told, known[-len(again.lines) :]))
        assert {"question.answered", "answer.accepted"} & {each["event_type"] for each in again.lines}


@pytest.mark.long
def test_a_hub_is_forgotten_with_the_last_application() -> None:
    engine = Engine(":memory:")
    applications = [app(engine), app(engine)]
    hub = ref(hub_of(engine))
    assert hub_of(engine) is hub()
    applications.clear()
    gc.collect()
    assert hub() is None
