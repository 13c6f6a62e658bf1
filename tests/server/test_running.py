"""Running the server: TLS, a proxy, a browser, JSON for programs, and how it ends."""

from __future__ import annotations

import json
import shlex
import signal
import ssl
import sys
import time
from pathlib import Path

import httpx
import pytest
import trustme

from pausepoint import Engine
from pausepoint.server.tokens import Tokens
from tests.cli.documents import check
from tests.cli.kit import run
from tests.server.kit import brief, check_problem
from tests.server.processes import Process
from tests.support.loop import PATIENCE
from tests.support.waits import until

BROWSER = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
"""A browser that notes what it should open."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Engine(tmp_path / "store.db"):
        return tmp_path


def certified(folder: Path) -> tuple[list[str], ssl.SSLContext]:
    """Make a certificate for this machine. Return the options of the server, and what a client trusts."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(str(folder / "key.pem"))
    made.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")], trust


@pytest.mark.long
def test_over_tls_the_cookie_is_secure_the_browser_opens_and_ctrl_c_ends_streams(store: Path) -> None:
    options, trust = certified(store)
    opened = store / "opened"
    browser = shlex.join([sys.executable, "-c", BROWSER, str(opened)]) + " %s"
    with Process(store, *options, "--open", "--json", env={"BROWSER": browser}, verify=trust) as server:
        line = server.log.read_text().splitlines()[0]
        check("serve", line)
        said = json.loads(line)
        assert said["address"].startswith("https://127.0.0.1:")
        assert Path(said["token_file"]).read_text().strip() == server.token
        assert (said["store"], said["drives"], said["workflows"]) == (str(store / "store.db"), False, [])
        until(opened.exists)
        until(lambda: opened.read_text() == server.address)
        with httpx.Client(base_url=server.base, verify=trust, trust_env=False, timeout=PATIENCE) as page:
            head = {"X-Pausepoint": "1", "Origin": server.base}
            answer = page.post("/api/v1/login", json={"token": server.token}, headers=head)
            assert "; Secure" in answer.headers["set-cookie"]
            assert page.get("/api/v1/me").status_code == 200
        with pytest.raises(httpx.TransportError), httpx.Client(trust_env=False, timeout=PATIENCE) as plain:
            plain.get(server.base.replace("https:", "http:")).raise_for_status()
        with server.client.stream("GET", "/stream") as stream:
            parts, text = stream.iter_text(), ""
            while "id: " not in text:
                text += next(parts)
            server.process.send_signal(signal.SIGINT)
            text += "".join(parts)  # the stream ends in order
        assert "event: reset" in text, "it did not end because its time was over"
        assert server.process.wait(PATIENCE) == 130
        assert "Traceback" not in server.log.read_text()


@pytest.mark.long
def test_only_the_proxy_signs_people_in_and_a_new_token_signs_them_out(store: Path) -> None:
    old = Tokens(store).make()
    said = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "pausepoint-viewer", "X-Forwarded-Proto": "https"}
    with Process(store, "--behind-proxy", "--proxy-from", "127.0.0.2", "--new-token") as server:
        assert server.token != old
        assert server.token not in server.log.read_text(), "a log may keep it"
        assert "Drives nothing" in server.log.read_text()

        def me(address: str, **headers: str) -> httpx.Response:
            transport = httpx.HTTPTransport(local_address=address, verify=False)
            with httpx.Client(transport=transport, timeout=PATIENCE, headers=headers) as client:
                return client.get(f"{server.base}/api/v1/me")

        assert me("127.0.0.2", **said).json()["name"] == "ann"
        assert me("127.0.0.2", **said, Origin=server.base.replace("http:", "https:")).status_code == 200
        check_problem(me("127.0.0.1", **said), 401)
        check_problem(me("127.0.0.3", **said), 401)
        check_problem(me("127.0.0.1", Authorization=f"Bearer {old}"), 401)
        assert me("127.0.0.1", Authorization=f"Bearer {server.token}").json()["role"] == "admin"


def test_commands_about_tokens_and_links_print_json(store: Path) -> None:
    where = ["--store", str(store / "store.db"), "--json"]
    words = ["serve", "token", "create", "--role", "viewer", "--owner", "ann", "--expires", "7d"]
    made = json.loads(run(*words, *where, cwd=store).stdout)
    (kept,) = Tokens(store).kept
    assert (made["id"], made["role"], made["owner"], made["expired"]) == (kept.id, "viewer", "ann", False)
    assert Tokens(store).find(made.pop("token"), time.time()) == kept
    assert json.loads(run("serve", "token", "list", *where, cwd=store).stdout) == {"tokens": [made]}
    revoked = run("serve", "token", "revoke", kept.id, *where, cwd=store)
    assert json.loads(revoked.stdout) == {"revoked": kept.id}
    refused = run("serve", "token", "revoke", kept.id, *where, cwd=store)
    assert (refused.code, json.loads(refused.stderr)["exit_code"]) == (4, 4)
    with Engine(store / "store.db") as engine:
        (question,) = engine.start(brief, session_id="one", topic="x").outcome().questions
    link = json.loads(run("serve", "link", question.id, *where, cwd=store).stdout)
    assert (link["question_id"], "#token=" in link["address"]) == (question.id, True)


def test_a_server_that_cannot_begin_says_so_in_json(store: Path) -> None:
    done = run("serve", "--json", "--host", "0.0.0.0", "--store", str(store / "store.db"), cwd=store)
    assert (done.code, done.stdout) == (2, "")
    assert "can be reached from other machines" in json.loads(done.stderr)["error"]
