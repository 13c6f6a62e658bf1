"""Limits: requests, wrong tokens and streams, with a clock of the test where time matters; and the files of tokens."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint import Engine
from pausepoint.server.asgi import Settings, application
from pausepoint.server.limits import Attempts, Limits, Rates, Streams
from pausepoint.server.problems import Problem
from pausepoint.server.signin import address_of
from pausepoint.server.tokens import FILE, Tokens
from tests.server.kit import FREE, served
from tests.support.loop import PATIENCE

PAGE = {"X-Pausepoint": "1"}


def test_sixty_actions_and_three_thousand_reads_a_minute() -> None:
    now, limits = [0.0], Limits()
    rates = Rates(lambda: now[0])
    assert (limits.actions, limits.reads, limits.wrong_tokens, limits.streams, limits.all_streams) == (
        60,
        3000,
        5,
        16,
        2_000,
    )
    for kind, most in (("actions", limits.actions), ("reads", limits.reads)):
        now[0] = 0.0
        for _ in range(most):
            now[0] += 0.01
            rates.take("ann", kind, most)
        with pytest.raises(Problem) as refused:
            rates.take("ann", kind, most)
        wait = int(refused.value.headers["Retry-After"])
        assert 60 - most * 0.01 <= wait <= 60
        rates.take("bob", kind, most)
        now[0] += wait
        rates.take("ann", kind, most)


def test_the_wait_after_wrong_tokens_ends_and_does_not_grow_for_ever() -> None:
    now = [0.0]
    attempts = Attempts(5, lambda: now[0])
    waits = []
    attempts.right("here", "known")
    for number in range(14):
        attempts.wrong("here", f"guess {number}")
        try:
            attempts.check("here", "guess")
        except Problem as refused:
            waits.append(int(refused.headers["Retry-After"]))
            attempts.check("here", "known")  # it does not wait
            attempts.check("elsewhere", "guess")
            now[0] += waits[-1]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    now[0] += 7_201
    for number in range(4):
        attempts.wrong("here", f"later {number}")
    attempts.check("here", "guess")  # counting began again


def test_an_old_token_does_not_lock_out_the_others_at_its_address() -> None:
    attempts = Attempts(5, lambda: 0.0)
    attempts.right("here", "the token of the page")
    for _ in range(100):
        attempts.wrong("here", "an old token")  # of a program that tries again and again
    attempts.check("here", "another")
    for number in range(5):
        attempts.wrong("here", f"guess {number}")
    with pytest.raises(Problem):
        attempts.check("here", "another")
    attempts.check("here", "the token of the page")
    attempts.wrong("here", "the token of the page")  # it was revoked
    with pytest.raises(Problem):
        attempts.check("here", "the token of the page")


def test_a_right_token_does_not_let_its_owner_guess_others() -> None:
    attempts = Attempts(5, lambda: 0.0)
    for number in range(5):
        attempts.right("here", "mine")
        attempts.wrong("here", f"guess {number}")
    with pytest.raises(Problem):
        attempts.check("here", "guess 6")


def test_what_is_remembered_about_strangers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pausepoint.server.limits.REMEMBERED", 50)
    attempts, rates = Attempts(5, lambda: 0.0), Rates(lambda: 0.0)
    for number in range(500):
        attempts.wrong(f"address {number}", "x")
        attempts.wrong("one address", f"guess {number}")
        attempts.right("one address", f"token {number}")
        rates.take(f"person {number}", "reads", 5)
    assert len(attempts._wrong) == len(attempts._right) == len(rates._seen) == 50
    assert len(attempts._wrong["one address"].hashes) == 5
    strict = Attempts(1, lambda: 0.0)
    for number in range(9):
        strict.wrong("one address", f"guess {number}")
    assert len(strict._wrong["one address"].hashes) == 1


def test_the_addresses_of_one_network_count_as_one() -> None:
    def scope(address: str) -> dict[str, Any]:
        return {"client": (address, 1)}

    assert address_of(scope("2001:db8::1")) == address_of(scope("2001:db8::ffff"))
    assert address_of(scope("2001:db8::1")) != address_of(scope("2001:db9::1"))
    assert address_of(scope("10.0.0.1")) != address_of(scope("10.0.0.2"))
    assert address_of({}) == ""


@pytest.mark.parametrize(("proxies", "by_proxy"), [((), ""), (("127.0.0.1",), ", 198.51.100.7"), (("10.0.0.0/8",), "")])
def test_a_client_cannot_get_another_address_by_a_header(
    tmp_path: Path, proxies: tuple[str, ...], by_proxy: str
) -> None:
    """Neither without a proxy, nor behind one: only the last part of the line comes from the proxy."""

    def make(engine: Engine, tokens: Tokens, port: int) -> Any:
        limits = replace(FREE, wrong_tokens=3)
        return application(engine, Settings(hosts=[f"127.0.0.1:{port}"], tokens=tokens, proxies=proxies, limits=limits))

    with served(tmp_path, make=make) as server, server.client(**PAGE) as client:
        said = []
        for number in range(6):
            headers = {"X-Forwarded-For": f"203.0.113.{number}{by_proxy}", "Forwarded": f"for=203.0.113.{number}"}
            said.append(client.post("/login", json={"token": f"guess {number}"}, headers=headers).status_code)
    assert said == [401] * 3 + [429] * 3


def test_streams_are_limited_however_fast_they_are_opened(tmp_path: Path) -> None:
    with served(tmp_path, limits=replace(FREE, streams=3, all_streams=5)) as server:
        got, gate, done = list[int](), threading.Barrier(8), threading.Event()

        def watch(token: str) -> None:
            with server.client(token) as client:
                gate.wait(PATIENCE)
                with client.stream("GET", "/stream") as answer:
                    got.append(answer.status_code)
                    assert answer.status_code == 200 or answer.headers["retry-after"]
                    done.wait(PATIENCE)

        threads = [threading.Thread(target=watch, args=(token,))
                   for token in [server.tokens.own] * 4 + [server.token("viewer")] * 4]  # fmt: skip
        for each in threads:
            each.start()
        while len(got) < 8:
            done.wait(0.01)
        done.set()
        for each in threads:
            each.join(PATIENCE)
    assert sorted(got) == [200] * 5 + [429] * 3


def test_streams_are_counted_until_they_end() -> None:
    streams, limits = Streams(), Limits(streams=1, all_streams=2)
    streams.take("ann", limits)
    with pytest.raises(Problem, match="You have 1"):
        streams.take("ann", limits)
    streams.take("bob", limits)
    with pytest.raises(Problem, match="The server has 2"):
        streams.take("eve", limits)
    streams.leave("ann")
    streams.take("eve", limits)
    assert set(streams._open) == {"bob", "eve"}


def test_servers_that_start_at_the_same_time_make_one_token(tmp_path: Path) -> None:
    gate, made = threading.Barrier(8), list[str]()

    def make() -> None:
        gate.wait(PATIENCE)
        made.append(Tokens(tmp_path).make())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert len(made) == 8
    assert set(made) == {(tmp_path / FILE).read_text().strip()}


def test_a_token_that_others_can_read_is_closed_again(tmp_path: Path) -> None:
    token = Tokens(tmp_path).make()
    (tmp_path / FILE).chmod(0o644)
    assert Tokens(tmp_path).make() == token
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
