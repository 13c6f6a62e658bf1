"""The web chat over HTTP: customers with links, strangers without, and nobody who sees what belongs to another one."""

from __future__ import annotations

import json
import signal
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import httpx
import pytest

from pausepoint.apps.helpdesk.site import NAME
from pausepoint.server.calls import JSON
from pausepoint.server.signin import SignIn
from pausepoint.server.tokens import Tokens
from pausepoint.server.visitors import Visitors
from tests.apps.helpdesk_kit import effects, rows
from tests.apps.helpdesk_web import DAY, Customer, link, web
from tests.server.kit import Served
from tests.support.forkserver import Child, Forks
from tests.support.held import Held
from tests.support.loop import PATIENCE

ANN, BEN = "ann@example.com", "ben@example.com"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with web(tmp_path_factory.mktemp("web")) as found:
        yield found


@pytest.mark.long
def test_a_customer_sees_and_changes_only_own_orders_and_own_messages(tmp_path: Path) -> None:
    with web(tmp_path) as server:
        with Customer(server.base, link(tmp_path, ANN)) as ann, Customer(server.base, link(tmp_path, BEN)) as ben:
            assert ann.says("Where is A-1001?").startswith("Order A-1001 (Storm lantern)")
            assert "I cannot find order B-2001" in ann.says("Where is B-2001?")
            assert "I cannot find order B-2002" in ann.says("cancel the order B-2002")
            assert "I cannot find order B-2001" in ann.says("refund B-2001, it is damaged")
            assert ben.read()["messages"] == []
            assert "Tea kettle" in ben.says("Where is B-2001?")
            assert ann.says("never mind, cancel")
            assert ann.says("bye") == "Goodbye!"
            assert ann.says("Where is A-1002?").startswith("Order A-1002")
            assert [each["text"] for each in ben.read()["messages"] if each["author"] == "customer"] == [
                "Where is B-2001?"
            ]
        assert effects(tmp_path / "shop.db").total() == 0
        # Each chat belongs to its customer, also in the API.
        owners = {info.owner for info in server.run(server.engine.sessions(workflow="helpdesk"))}
        assert owners == {ANN, BEN}


def test_a_sign_in_for_the_chat_opens_nothing_else(desk: Served) -> None:
    with Customer(desk.base, link(desk.folder, ANN)) as ann:
        assert ann.says("hello")
        [chat] = desk.run(desk.engine.sessions(workflow="helpdesk", owner=ANN))
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in ann.http.cookies.jar)
        bearer = f"Bearer {link(desk.folder, ANN)}"
        for head in ({"Cookie": cookies}, {"Authorization": bearer}):
            with desk.client(**head) as api:
                for path in ("/sessions", f"/sessions/{chat.session_id}/state", "/inbox", "/stream"):
                    assert api.get(path).status_code in (401, 429)
        # No address of the chat takes the name of a chat, so another one cannot be named.
        other = {"text": "hi", "key": "12345678", "chat": "web-000000000000-1"}
        answer = ann.http.post("/messages", json=other)
        assert (answer.status_code, "unknown member 'chat'" in answer.json()["detail"]) == (400, True)
        assert ann.http.get(f"/messages/{chat.session_id}").status_code == 404


def test_a_forged_expired_revoked_or_foreign_link_is_refused(desk: Served) -> None:
    folder = desk.folder
    good = link(folder, BEN)
    data, _, mac = good.partition(".")
    with Customer(desk.base, good) as ben:
        ben.read()
        Visitors(Tokens(folder), NAME).revoke(BEN)
        assert ben.http.get("/messages").status_code == 401
        assert ben.send("hello").status_code == 401
    kept = folder / "serve-chat-links.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {BEN: 1}
    answered = SignIn(Tokens(folder), None).link("q", BEN, time.time() + DAY)  # type: ignore[arg-type]
    wrong = {
        "revoked": good, "expired": link(folder, ANN, -1), "another customer's signature": f"{data}.{mac[:-2]}AA",
        "unsigned": data, "empty": "", "no link": "ä.ö", "an answer link": answered, "the token": desk.tokens.own,
        "of another site": Visitors(Tokens(folder), "other").link(ANN, DAY).link,
    }  # fmt: skip
    for name, given in wrong.items():
        with Customer(desk.base) as stranger:
            answer = stranger.http.post("/login", json={"link": given})
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False), name
            assert answer.json()["detail"].endswith("Ask for a new one."), name
            assert stranger.http.get("/messages").status_code == 401, name
    with Customer(desk.base, link(folder, BEN)) as ben:  # a new link works
        assert ben.read()["name"] == "Ben Okafor"


def test_other_hosts_other_sites_and_requests_without_the_header_are_refused(desk: Served) -> None:
    with Customer(desk.base, link(desk.folder, ANN)) as ann:
        before = ann.read()["messages"]
        body = {"text": "cancel the order A-1002", "key": "attack-0001"}
        attacks: list[tuple[dict[str, str], int]] = [
            ({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"X-Pausepoint": "0"}, 403),
        ]  # fmt: skip
        for head, status in attacks:
            assert ann.http.post("/messages", json=body, headers=head).status_code == status, head
        as_form = ann.http.post("/messages", content=json.dumps(body), headers={"Content-Type": "text/plain"})
        assert as_form.status_code == 415
        for head in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert ann.http.get("/messages", headers=head).status_code in (403, 421)
        assert ann.read()["messages"] == before
        assert ann.http.post("/login", json={"link": "x"}, headers={"X-Pausepoint": ""}).status_code == 403
        cookie = ann.http.post("/login", json={"link": link(desk.folder, ANN)}).headers["set-cookie"]
        assert "; Path=/chat/; " in cookie
        assert cookie.endswith("; HttpOnly; SameSite=Strict")
        assert ann.http.post("/messages", json={"text": "x" * 4_001, "key": "12345678"}).status_code == 400
        assert ann.http.post("/messages", json={"text": "", "key": "12345678"}).status_code == 400


def test_the_page_is_one_that_loads_nothing_from_elsewhere_and_runs_no_other_script(desk: Served) -> None:
    with httpx.Client(base_url=desk.base, trust_env=False, verify=False, timeout=PATIENCE) as http:
        assert http.get("/chat").headers["location"] == "chat/"
        page = http.get("/chat/")
        assert page.headers["content-type"].startswith("text/html")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "//" not in page.text.replace("<!doctype", "")
        names = [part.partition('"')[0] for part in page.text.split('="static/')[1:]]
        assert len(names) == 3
        for name in names:
            assert http.get(f"/chat/static/{name}").status_code == 200
        assert http.get("/chat/static/x/../../shop.db").status_code == 404


@pytest.mark.long
def test_the_stream_brings_each_message_and_ends_with_the_sign_in(desk: Served) -> None:
    customer = "lihua@example.com"
    with (
        Customer(desk.base, link(desk.folder, customer)) as reader,
        Customer(desk.base, link(desk.folder, customer)) as writer,
    ):
        stream = reader.streamed()
        assert next(stream)["messages"] == []
        writer.send("C-3001到哪了？")
        last = next(each for each in stream if len(each["messages"]) == 2 and not each["typing"])
        assert (last["language"], last["messages"][1]["text"][:8]) == ("zh", "订单C-3001")
        Visitors(Tokens(desk.folder), NAME).revoke(customer)
        assert list(stream) == []  # it ends


@pytest.mark.long
def test_a_customer_who_is_back_after_a_restart_is_asked_again_what_has_expired(tmp_path: Path) -> None:
    with web(tmp_path, expires=timedelta(seconds=3)) as server, Customer(server.base, link(tmp_path, ANN)) as ann:
        assert ann.says("refund A-1001, it is damaged").startswith("Shall I refund 49.90")
    end = time.monotonic() + PATIENCE
    with web(tmp_path, expires=timedelta(seconds=3)) as server, Customer(server.base, link(tmp_path, ANN)) as ann:
        while server.run(server.engine.questions()):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert ann.http.post("/return", json={}).status_code == 200
        said = ann.until(lambda said: sum("Shall I refund 49.90" in text for _, text in said) == 2)
        assert [author for author, _ in said].count("customer") == 1
    assert effects(tmp_path / "shop.db").total() == 0


@pytest.mark.long
def test_a_form_that_answers_for_the_customer_is_shown_as_the_operators(tmp_path: Path) -> None:
    with web(tmp_path) as server, Customer(server.base, link(tmp_path, ANN)) as ann:
        ann.says("refund A-1001, it is damaged")
        [question] = server.run(server.engine.questions(owner=ANN))
        server.run(server.engine.answer(question.id, True, by="Mia", channel="http"))
        said = ann.until(lambda said: said[-1][1].startswith("Done: 49.90"))
        assert [author for author, _ in said] == ["customer", "bot", "operator", "bot"]


@pytest.mark.long
def test_four_simultaneous_yes_pay_one_refund(tmp_path: Path) -> None:
    with web(tmp_path) as server, Customer(server.base, link(tmp_path, ANN)) as ann:
        ann.says("refund A-1001, it is damaged")
        tabs = [Customer(server.base, link(tmp_path, ANN)) for _ in range(4)]
        together = Barrier(len(tabs))

        def agree(tab: Customer) -> int:
            with tab:
                together.wait(PATIENCE)
                return tab.send("yes").status_code

        with ThreadPoolExecutor(len(tabs)) as threads:
            assert list(threads.map(agree, tabs)) == [200] * len(tabs)
        said = ann.until(lambda said: [author for author, _ in said].count("customer") == 1 + len(tabs))
        assert [text for _, text in said if text.startswith("Done: 49.90")] == [said[3][1]]
        assert rows(tmp_path / "shop.db", "SELECT number, amount FROM refunds") == [("A-1001", "49.90")]


class Killed(Held):
    """The helpdesk's server as a process with watched tools."""

    job = "tests.apps.helpdesk_watched:job"

    def serve(self, port: int, at: str = "") -> tuple[Child, int]:
        """Start the server, and wait until it listens. At the point ``at`` it kills itself."""
        by = signal.SIGKILL if at else None
        child = super().begin("serve", "--port", str(port), "--shop", "sales.db", "--json", at=at, by=by)
        said = json.loads(self.first_line(child))
        return child, int(said["sites"]["chat"].rsplit(":", 1)[1].split("/")[0])


@pytest.mark.long
@pytest.mark.parametrize("point", ["before pay_refund", "after pay_refund", "said yes"])
def test_a_server_that_is_killed_in_the_middle_of_a_chat_loses_and_doubles_nothing(
    tmp_path: Path, forks: Forks, point: str
) -> None:
    with Killed(tmp_path, forks) as held:
        child, port = held.serve(0, at=point)
        with Customer(f"http://127.0.0.1:{port}", link(tmp_path, ANN)) as ann:
            asked = ann.says("refund A-1001, it is damaged")
            assert asked.startswith("Shall I refund 49.90")
            with suppress(httpx.TransportError):  # killed before the answer was sent
                ann.send("yes", key="the-same-key")
            held.ends(child, -signal.SIGKILL)
            again, _ = held.serve(port)
            assert JSON in ann.http.get("/messages").headers["content-type"]  # the sign-in outlives the server
            assert ann.send("yes", key="the-same-key").json() == {"late": False}  # as the page does
            said = ann.until(lambda said: said[-1][1].startswith("Done: 49.90"))
        assert [author for author, _ in said] == ["customer", "bot", "customer", "bot"]
        assert rows(tmp_path / "sales.db", "SELECT number, amount FROM refunds") == [("A-1001", "49.90")]
        again.signal(signal.SIGTERM)
        held.ends(again, 143)
