"""``holdfast worker``: what nobody drives is driven; what a person stopped is left alone."""

from __future__ import annotations

import asyncio
import json
import re
import signal

from holdfast import Engine
from tests.cli import brief as sample
from tests.cli.desk import Desk
from tests.cli.kit import Process, run

TARGET = ("--target", "brief.py")


def interrupted(desk: Desk, *ids: str) -> None:
    """Sessions that were started by an engine that was closed before they could do anything."""

    async def start() -> None:
        async with Engine(desk.store) as engine:
            for session_id in ids:
                await engine.start(sample.brief, topic="otters", session_id=session_id)

    asyncio.run(start())


def test_a_worker_drives_what_is_ready_and_leaves_what_was_paused_or_failed(desk: Desk) -> None:
    interrupted(desk, "one", "two")
    desk.stored("paused")
    desk.failed("plan", "failed")
    code, out, err = run("worker", "--once", *TARGET, cwd=desk.root)
    assert code == 0
    assert f"Driving brief in {desk.store}" in err
    for session in ("one", "two"):
        assert re.search(rf"^\d\d:\d\d:\d\d  {session}  resumed .*$", out, re.MULTILINE)
        assert re.search(rf"^\d\d:\d\d:\d\d  {session}  completed$", out, re.MULTILINE)
    stand = {info.session_id: info.status.value for info in desk.sessions()}
    assert stand == {"one": "completed", "two": "completed", "paused": "paused", "failed": "failed"}


def test_a_worker_takes_up_what_another_process_was_killed_with_and_ends_with_143(desk: Desk) -> None:
    with Process("worker", "--jsonl", *TARGET, cwd=desk.root) as worker:
        desk.hold("write")
        with Process("run", "brief.py", "--topic", "otters", "--session-id", "mine", cwd=desk.root) as process:
            process.until("Running agent: write")
            process.signal(signal.SIGKILL)
        desk.release("write")
        worker.until('"text": "completed"')
        worker.signal(signal.SIGTERM)
        done = worker.wait()
    assert done.code == 143
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["session_id"] for line in lines] == ["mine"] * len(lines)
    assert lines[0]["text"].startswith("resumed")
    assert desk.calls.count("plan") == 1


def test_an_interrupted_worker_leaves_its_sessions_ready(desk: Desk) -> None:
    interrupted(desk, "mine")
    desk.hold("write")
    with Process("worker", *TARGET, cwd=desk.root, tty=True) as worker:
        worker.until("mine  resumed")
        desk.reaches("write")
        worker.type("\x03")
        desk.release("write")
        done = worker.wait()
    assert done.code == 130
    assert "Stopped; what was not finished is ready for the next one." in done.stdout
    (info,) = desk.sessions()
    assert info.status.value in ("ready", "completed")


def test_one_document_tells_what_was_driven(desk: Desk) -> None:
    interrupted(desk, "mine")
    code, out, _ = run("worker", "--once", "--json", "--workflow", "brief", *TARGET, cwd=desk.root)
    assert code == 0
    assert [(each["session_id"], each["status"]) for each in json.loads(out)["sessions"]] == [("mine", "completed")]


def test_a_worker_needs_code_and_an_end_for_one_document(desk: Desk) -> None:
    code, said = desk.refused("worker")
    assert (code, "add --target" in said) == (2, True)
    code, said = desk.refused("worker", "--workflow", "breif", *TARGET)
    assert (code, "did you mean 'brief'" in said) == (2, True)
    code, said = desk.refused("worker", "--json", *TARGET)
    assert (code, "--once" in said) == (2, True)
    code, said = desk.refused("worker", "--store", "nowhere.db", *TARGET)
    assert (code, "there is no store at" in said) == (4, True)
    assert not desk.store.parent.exists()
