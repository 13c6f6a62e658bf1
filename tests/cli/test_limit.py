"""``pausepoint limit`` and ``pausepoint worker --queue``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.cli.kit import Process, run
from tests.cli.letter import letter
from tests.cli.samples import STORE, execute, project, within


@pytest.mark.long
def test_limits_are_set_listed_and_removed(tmp_path: Path) -> None:
    folder = project(tmp_path)
    missed = run("limit", "set", "--queue", "gpu", "--most", "4", "--store", "mist.db", cwd=folder)
    assert (missed.code, "There is no store at" in missed.stderr, (folder / "mist.db").exists()) == (4, True, False)
    done = run("limit", "set", "--queue", "gpu", "--most", "4", cwd=folder)
    assert (done.code, done.stdout) == (0, "Set the limit of queue gpu: 4 at once.\n"), done.stderr
    for words in (
        ("--workflow", "letter", "--most", "2", "--by", "owner"),
        ("--lane", "c7", "--most", "9", "--per", "60"),
    ):
        assert run("limit", "set", *words, cwd=folder).code == 0
    said = run("limit", "ls", cwd=folder).stdout
    for part in ("9 in 60 s", "4 at once", "2 at once per owner"):
        assert part in said
    listed = json.loads(run("limit", "ls", "--json", cwd=folder).stdout)["limits"]
    assert [(each["scope"], each["most"], each["per_seconds"], each["by"]) for each in listed] == [
        ("lane", 9, 60, None), ("queue", 4, None, None), ("workflow", 2, None, "owner"),
    ]  # fmt: skip
    assert json.loads(run("limit", "rm", "--queue", "gpu", "--json", cwd=folder).stdout) == {"removed": 1}
    assert run("limit", "rm", "--queue", "gpu", cwd=folder).code == 4
    execute(folder / STORE, "UPDATE limits SET most = 99 WHERE scope = 'lane'")
    damaged = run("limit", "ls", cwd=folder)
    assert (damaged.code, "cannot be read" in damaged.stdout) == (5, True)
    assert "limit of lane 'c7'" in run("verify", cwd=folder).stdout
    assert run("limit", "rm", "--lane", "c7", cwd=folder).code == 0
    assert run("limit", "set", "--workflow", "letter", "--none", "--by", "owner", cwd=folder).code == 0
    assert "no limit" in run("limit", "ls", cwd=folder).stdout
    closed = run("limit", "set", "--queue", "gpu", "--most", "0", cwd=folder)
    assert closed.stdout == "Set the limit of queue gpu: closed.\n", closed.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "--most", "4"), "--queue"),
        (("set", "--queue", "a", "--lane", "b", "--most", "4"), "one of"),
        (("set", "--queue", "a"), "--most"),
        (("set", "--queue", "a b", "--most", "4"), "not a valid name"),
        (("set", "--queue", "a", "--most", "4", "--per", "1", "--by", "owner"), "Leave out per or by"),
        (("set", "--queue", "a", "--most", "4", "--per", "99999999"), "not 1157 days"),
        (("set", "--queue", "a", "--most", "4", "--per", "9" * 20), "366 days at most"),
        (("set", "--queue", "a", "--none"), "There is no limit"),
        (("rm", "--queue", "a", "--most", "4"), "takes no other option"),
        (("rm", "--queue", "a", "--most", "0"), "takes no other option"),
        (("set", "--queue", "a", "--most", "0", "--per", "1"), "Leave out per to close it"),
        (("ls", "--most", "0"), "takes no options"),
    ],
)
def test_what_is_refused_says_why(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    folder = project(tmp_path)
    done = run("limit", *words, cwd=folder)
    assert (done.code, said in done.stderr) == (2, True), done.stderr
    assert "There are no limits" in run("limit", "ls", cwd=folder).stdout or not (folder / STORE).exists()


@pytest.mark.long
def test_a_worker_drives_its_queues_and_ls_says_what_waits_for_a_slot(tmp_path: Path) -> None:
    async def act(engine: Engine) -> None:
        await engine.limit(queue="gpu", most=1)
        engine._service.waker.queues = ()  # this engine leaves them to the worker
        for name, queue in (("one", "gpu"), ("two", "gpu"), ("other", "default")):
            await engine.start(letter, session_id=name, name="ada", queue=queue, priority=-3)
        await engine.session("one").take_up()
        for words in (("ls",), ("show", "two"), ("status",)):
            said = run(*words, cwd=folder).stdout
            assert "waits for a free slot of queue gpu, 1 of 1 at work" in said, said
            assert "-3" in said or words == ("ls",)
        listed = json.loads(run("ls", "--queue", "default", "--json", cwd=folder).stdout)["sessions"]
        assert [each["session_id"] for each in listed] == ["other"]
        await engine.idle()

    folder = project(tmp_path)
    within(folder / STORE, act)
    words = "run", "letter.py", "--name", "eve", "--queue", "mail", "--priority", "-7", "--lane", "c7"
    assert run("limit", "set", "--lane", "c7", "--most", "1", "--per", "3600", cwd=folder).code == 0
    begun = run(*words, cwd=folder)
    assert begun.code == 3, begun.stderr
    (mail,) = json.loads(run("ls", "--queue", "mail", "--json", cwd=folder).stdout)["sessions"]
    assert (mail["priority"], mail["lane"]) == (-7, "c7")
    with Process(*words, "--force-restart", cwd=folder) as waiting:
        waiting.until("Waiting for a free slot of lane c7, 1 in 3600 s")
    shown = json.loads(run("show", "two", "--json", cwd=folder).stdout)
    assert (shown["queue"], shown["priority"]) == ("gpu", -3)
    done = run("worker", "--once", "--target", "letter.py", "--queue", "other, gpu", "--concurrency", "1", cwd=folder)
    assert done.code == 0, done.stderr
    found = {id: json.loads(run("show", id, "--json", cwd=folder).stdout)["status"] for id in ("two", "other")}
    assert found == {"two": "waiting", "other": "ready"}
    refused = run("worker", "--once", "--target", "letter.py", "--queue", "a b", cwd=folder)
    assert (refused.code, "not a valid name of a queue" in refused.stderr) == (2, True)
