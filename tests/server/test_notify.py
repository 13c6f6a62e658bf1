"""`pausepoint notify` as a process: killed, stopped, several at a time; its links, its messages and its secrets."""

from __future__ import annotations

import json
import signal
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Engine, Workflow, step
from pausepoint.engine import BlockingEngine
from pausepoint.integrations.messages import AGAIN
from tests.cli.kit import run
from tests.server.kit import served
from tests.server.notifier import Notifier, notified
from tests.support.webhook import Webhook, webhook

SECRET = "hunter2-7f1c"


class Refund(BaseModel):
    topic: str
    card: str = "4111-1111"
    answer: str = ""


@step(writes="answer")
def decide(ctx: BlockingContext, topic: str) -> str:
    return ctx.ask(f"Refund {topic}?", expires=timedelta(hours=1))


refund = Workflow("refund", state=Refund, steps=[decide])


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[BlockingEngine]:
    """An engine whose store is in the folder of the test."""
    with Engine(tmp_path / "store.db", workflows=[refund]) as engine:
        yield engine


def ask(desk: BlockingEngine, topic: str, owner: str | None = None) -> str:
    session = desk.start(refund, topic=topic, session_id=topic, owner=owner)
    session.outcome()
    return session.questions()[0].id


@pytest.mark.long
def test_a_killed_process_is_replaced_and_nothing_is_sent_twice(
    tmp_path: Path, desk: BlockingEngine, hook: Webhook
) -> None:
    ask(desk, "one")
    with Notifier(tmp_path, hook.url()) as process:
        two = ask(desk, "two")
        process.until(f"sent {two} of refund to JSON (URL 1)")
        process.kill()
    ask(desk, "three")
    for _ in range(2):
        assert notified(tmp_path, hook.url(), "--once").code == 0
    assert hook.texts == ["Refund one?", "Refund two?", "Refund three?"]
    assert AGAIN not in str(hook.got)


@pytest.mark.long
def test_a_kill_before_the_confirmation_costs_one_more_message_which_says_so(
    tmp_path: Path, desk: BlockingEngine, hook: Webhook
) -> None:
    ask(desk, "one")
    hook.answers.clear()
    with Notifier(tmp_path, hook.url()) as process:
        hook.until(1)
        process.kill()
        assert " sent " not in process.said
    hook.answers.set()
    for _ in range(2):
        assert notified(tmp_path, hook.url(), "--once").code == 0
    assert [AGAIN in each["message"] for each in hook.got] == [False, True]


@pytest.mark.long
def test_several_processes_send_each_question_once(tmp_path: Path, desk: BlockingEngine, hook: Webhook) -> None:
    with Notifier(tmp_path, hook.url()) as one, Notifier(tmp_path, hook.url()) as two:
        for process in (one, two):
            process.until("Ctrl+C")
        for n in range(6):
            ask(desk, f"case-{n}")
        hook.until(6)
        for process in (one, two):
            process.signal(signal.SIGTERM)
            done = process.wait()
            assert done.code == 143, done
            assert "Stopped." in done.stderr
    assert notified(tmp_path, hook.url(), "--once").code == 0
    assert sorted(hook.texts) == [f"Refund case-{n}?" for n in range(6)]


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_process_waits_for_the_message_on_its_way_unless_it_is_stopped_twice(
    number: signal.Signals, code: int, tmp_path: Path, desk: BlockingEngine, hook: Webhook
) -> None:
    ask(desk, "one")
    hook.answers.clear()
    with Notifier(tmp_path, hook.url(), "--jsonl") as process:
        hook.until(1)
        process.signal(number)
        hook.answers.set()
        done = process.wait()
    assert (done.code, done.stderr) == (code, "")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["status"] == "sent"
    ask(desk, "two")
    hook.answers.clear()
    with Notifier(tmp_path, hook.url()) as process:
        hook.until(2)
        process.signal(number)
        process.until("without waiting")
        process.signal(number)
        assert process.wait().code == code
    assert hook.texts == ["Refund one?", "Refund two?"]


@pytest.mark.long
def test_a_link_answers_its_question_and_ends_with_it(tmp_path: Path, hook: Webhook) -> None:
    with served(tmp_path, workflows=(refund,)) as server:

        async def ask(topic: str) -> str:
            session = await server.engine.start(refund, topic=topic, session_id=topic)
            await session.outcome()
            return (await session.questions())[0].id

        one, other = server.run(ask("one")), server.run(ask("other"))
        done = notified(tmp_path, hook.url(), "--once", "--url", f"{server.base}/", "--name", "Ann")
        assert done.code == 0, done
        (line,) = [line for line in hook.got[0]["message"].splitlines() if line.startswith("Answer: ")]
        address, _, token = line.removeprefix("Answer: ").partition("/#token=")
        assert (address, hook.texts[0]) == (server.base, "Refund one?")
        assert token not in done.stdout + done.stderr
        with server.client(token) as client:
            assert [each["id"] for each in client.get("/inbox").json()["questions"]] == [one]
            assert client.post(f"/inbox/{other}/answer", json={"value": "yes"}).status_code == 404
            assert client.post(f"/inbox/{one}/answer", json={"value": "yes"}).status_code == 200
        receipt = server.run(server.engine.question(one)).receipt
        assert receipt is not None
        assert receipt.by == "Ann"
        question = server.run(server.engine.question(other))
        assert question.expired_at is not None
        second = hook.got[1]["message"].partition("#token=")[2].split(".")[0]
        until = json.loads(urlsafe_b64decode(second + "=" * (-len(second) % 4)))["until"]
        assert until == int(question.expired_at.timestamp())


@pytest.mark.long
def test_without_a_server_the_message_names_the_command(tmp_path: Path, desk: BlockingEngine, hook: Webhook) -> None:
    hers = ask(desk, "hers", owner="ann")
    ask(desk, "his", owner="bob")
    done = notified(tmp_path, hook.url(), "--once", "--owner", "ann", "--json")
    assert done.code == 0, done
    document = json.loads(done.stdout)
    assert [(each["question_id"], each["status"]) for each in document["notices"]] == [(hers, "sent")]
    (message,) = hook.got
    assert f"Answer: pausepoint answer {hers} --store store.db" in message["message"].splitlines()
    assert "4111-1111" not in str(message)
    words = [*message["message"].partition("Answer: pausepoint ")[2].splitlines()[0].split(), "yes"]
    assert run(*words, cwd=tmp_path).code == 0


@pytest.mark.long
def test_no_output_and_no_file_contains_a_secret(tmp_path: Path, desk: BlockingEngine, hook: Webhook) -> None:
    ask(desk, "one")
    hook.refuses = "Refund"
    url = f"{hook.url(f'path-{SECRET}', f'ann:{SECRET}@')}?+X-Token={SECRET}"
    words = [url, f"json://ann:{SECRET}@127.0.0.1:1/", "--once"]
    refused = notified(tmp_path, *words, "--json")
    assert refused.code == 1, refused
    failed = {(each["number"], each["reason"]) for each in json.loads(refused.stdout)["notices"]}
    assert failed == {(1, "it answered with the status 503"), (2, "it cannot be reached")}
    hook.refuses = None
    sent = notified(tmp_path, "--once", env={"PAUSEPOINT_NOTIFY_URLS": url})
    assert sent.code == 0, sent
    wrong = [notified(tmp_path, *words, each) for each in (f"slack://{SECRET}", SECRET)]
    assert [each.code for each in wrong] == [2, 2]
    assert "URL 3 (slack://…) is not an address that apprise accepts" in wrong[0].stderr
    said = "".join(each.stdout + each.stderr for each in (refused, sent, *wrong))
    assert SECRET not in said
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "store.db" for path in kept)
    assert [path.name for path in kept if SECRET.encode() in path.read_bytes()] == []
    assert len(hook.got) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("json://127.0.0.1 --json", "--json prints one document at the end, but notify does not end"),
        ("json://127.0.0.1 --url pausepoint", "--url is not the address of a server"),
        ("json://127.0.0.1 --expires soon", "'soon' is not a time span"),
        ("", "The argument URL... is missing"),
    ],
)
def test_a_wrong_call_is_refused(words: str, said: str, tmp_path: Path, desk: BlockingEngine) -> None:
    done = notified(tmp_path, *words.split())
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_store_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    done = notified(tmp_path, "json://127.0.0.1", "--once")
    assert done.code == 4
    assert list(tmp_path.iterdir()) == []
