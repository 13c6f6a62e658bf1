"""`ls` and `status`."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.cli.commands.ls import CHILDREN
from pausepoint.cli.text import short_ids
from tests.cli import documents
from tests.cli.kit import plain, run
from tests.cli.samples import STORE, crowd, execute, letter, letters, within
from tests.cli.zoo import fill, here

Zoo = tuple[Path, dict[str, str]]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    return folder, fill(folder, "octopus", "fail", "wait", "guard", "call", "sleep", student="lunch")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_ls_in_a_pipe_lists_whole_ids_the_last_that_moved_first(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("ls", cwd=folder)
    assert done.code == 0
    assert done.stderr == ""
    head, *listed = rows(done.stdout)
    assert head == ["SESSION", "WORKFLOW", "STATUS", "STEP", "UPDATED", "SPENT", "OWNER", "NOTE"]
    assert [row[0] for row in listed if row[0] != "└"] == [
        "student", *(ids[topic] for topic in ("sleep", "call", "guard", "wait", "fail", "octopus")),
    ]  # fmt: skip
    [child] = [row for row in listed if row[0] == "└"]
    assert child[1].startswith(f"{ids['call']}.")
    assert listed[listed.index(child) - 1][0] == ids["call"]
    said = {row[0]: " ".join(row) for row in listed}
    assert "bob: lunch" in said["student"]
    assert "for a child" in said[ids["call"]]
    assert "after review" in said[ids["guard"]]
    assert "guard: too dull" in said[ids["guard"]]
    assert r"ValueError: no tone for it ␛[2J" in said[ids["fail"]], "it must not reach the terminal as it is"
    assert "(in 2 h 59 min)" in said[ids["sleep"]]
    assert "$0.03" in said[ids["octopus"]]


def test_ls_on_a_terminal_cuts_ids_and_lines_to_what_fits(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("ls", cwd=folder, tty=True)
    assert done.code == 0
    lines = plain(done.stdout).splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[31mfailed" in done.stdout
    beginnings = [line.split()[0] for line in lines[1:] if "└" not in line]
    assert [each for each in beginnings if each != "student"] == [
        ids[topic][:6] for topic in ("sleep", "call", "guard", "wait", "fail", "octopus")
    ]
    [child] = [line.split()[1] for line in lines if "└" in line]
    shown = here(folder, "show", child, "--json")
    assert json.loads(shown.stdout)["parent_id"] == ids["call"], "what is shown can be typed"
    without = run("ls", cwd=folder, tty=True, env={"NO_COLOR": "1"}, size=(140, 24))
    assert "\x1b" not in without.stdout
    assert "until" in without.stdout
    assert "(in 2 h 59 min)" in without.stdout, "there is room for it now"


def test_ls_filters_sorts_and_cuts(zoo: Zoo) -> None:
    folder, ids = zoo

    def listed(*args: str) -> list[str]:
        done = here(folder, "ls", "--json", *args)
        assert (done.code, done.stderr) == (0, "")
        documents.check("ls", done.stdout)
        found = json.loads(done.stdout)
        assert found["damaged"] == []
        return [each["session_id"] for each in found["sessions"]]

    assert listed("--status", "failed", "--status", "paused") == ["student", ids["guard"], ids["fail"]]
    assert listed("--owner", "ann") == [ids["wait"]]
    assert set(listed("--tag", "zoo", "--no-children")) == set(ids.values())
    assert listed("--sort", "created", "--reverse", "--limit", "2") == [ids["octopus"], ids["fail"]]
    lines = here(folder, "ls", "--jsonl", "--limit", "3").stdout
    documents.check("ls", lines, "jsonl")
    assert len(lines.splitlines()) == 4, "three sessions, and the child of one of them"


def test_ls_says_why_it_is_empty(zoo: Zoo, tmp_path: Path) -> None:
    folder, _ = zoo
    mistyped = here(folder, "ls", "--workflow", "breif")
    assert (mistyped.code, mistyped.stdout) == (0, "")
    assert "Did you mean 'brief'?" in mistyped.stderr
    assert "No session matches. The store has 8 sessions." in here(folder, "ls", "--status", "ready").stderr
    assert here(folder, "ls", "--status", "redy").code == 2
    nothing = run("ls", "--json", cwd=tmp_path)
    assert (nothing.code, json.loads(nothing.stdout)) == (
        0,
        {"standing_pause": None, "sessions": [], "total": 0, "next": None, "damaged": []},
    )
    hinted = run("status", cwd=tmp_path)
    assert (hinted.code, hinted.stdout) == (0, "")
    assert "`pausepoint run --help` explains" in hinted.stderr
    assert list(tmp_path.iterdir()) == [], "looking creates nothing"
    missing = run("ls", "--store", "other.db", cwd=tmp_path)
    assert (missing.code, missing.stdout) == (4, "")
    said = f"pausepoint: There is no store at {tmp_path / 'other.db'}. Check --store and PAUSEPOINT_STORE.\n"
    assert missing.stderr == said


def test_a_damaged_session_is_named_and_hides_no_other(tmp_path: Path) -> None:
    store = letters(tmp_path, ada="Ada", bob="Bob")
    execute(store, "UPDATE sessions SET visit = visit + 1 WHERE session_id = 'ada'")
    done = run("ls", cwd=tmp_path)
    assert done.code == 0
    assert [row[0] for row in rows(done.stdout)] == ["SESSION", "bob"]
    assert "! Session 'ada': the facts in its row" in done.stderr
    printed = here(tmp_path, "status", "--json").stdout
    documents.check("status", printed)
    assert [each["session_id"] for each in json.loads(printed)["damaged"]] == ["ada"]


def test_status_tells_who_waits_for_whom_and_until_when(zoo: Zoo) -> None:
    folder, ids = zoo
    done = run("status", cwd=folder)
    assert (done.code, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first.startswith("3 waiting, 1 sleeping, 2 paused, 1 failed, 1 completed")
    [parent] = [line for line in lines if line.startswith(f"  {ids['call']} ")]
    assert f"for a child · {ids['call']}." in parent
    [asleep] = [line for line in lines if ids["sleep"] in line]
    assert "until" in asleep
    assert any("student" in line and "bob: lunch" in line for line in lines)
    printed = here(folder, "status", "--json", "--limit", "1").stdout
    documents.check("status", printed)
    found = json.loads(printed)
    assert found["counts"] == {"waiting": 3, "sleeping": 1, "paused": 2, "failed": 1, "completed": 1}
    assert [each["status"] for each in found["sessions"]] == ["waiting", "sleeping", "paused", "failed"]
    assert found["trouble"] is None


def test_status_names_the_child_that_a_paused_session_waits_for(tmp_path: Path) -> None:
    parent = fill(tmp_path, "call")["call"]
    here(tmp_path, "pause", parent)
    sessions = json.loads(here(tmp_path, "status", "--json").stdout)["sessions"]
    [found] = [each for each in sessions if each["session_id"] == parent]
    assert found["status"] == "paused"
    assert [each["session_id"].startswith(f"{parent}.") for each in found["waits_for"]] == [True]


@pytest.mark.long
def test_of_thousands_of_sessions_only_those_that_are_shown_are_read(tmp_path: Path) -> None:
    async def start(engine: Engine) -> None:
        await asyncio.gather(*(engine.start(letter, name=str(number), paused=True) for number in range(2000)))

    store = tmp_path / STORE
    within(store, start)
    newest = "SELECT key FROM sessions ORDER BY created_at DESC, key DESC LIMIT 50"
    execute(store, f"UPDATE sessions SET visit = visit + 1 WHERE key NOT IN ({newest})")  # a read of these finds damage
    for args, shown in ((["ls"], 20), (["ls", "--status", "paused", "--limit", "50"], 50), (["status"], 10)):
        done = here(tmp_path, *args)
        assert (done.code, "damaged" in done.stdout, "!" in done.stderr) == (0, False, False), args
        assert sum(" letter " in line for line in done.stdout.splitlines()) == shown, args
    assert "20 of 2,000 sessions. --all lists all." in here(tmp_path, "ls").stderr
    assert here(tmp_path, "status").stdout.startswith("2,000 paused")
    assert here(tmp_path, "ls", "--all").stderr.count("! Session") == 1950, "the damage is there to be found"


def test_children_stand_below_who_called_them_if_that_one_is_listed(zoo: Zoo) -> None:
    folder, ids = zoo

    def listed(*args: str) -> list[str]:
        lines = here(folder, "ls", *args).stdout.splitlines()[1:]
        return [line.split(ids["call"])[0] for line in lines if ids["call"] in line]

    assert listed() == ["", "└ "]
    assert listed("--status", "waiting") == ["", "└ "]
    assert listed("--sort", "status") == ["", "└ "]
    assert listed("--sort", "status", "--reverse") == ["", "└ "]
    assert listed("--no-children") == [""]
    assert listed("--owner", "ann") == [], "nor below one that is not listed"


def test_a_limit_counts_sessions_and_cuts_long_rows_of_children(tmp_path: Path) -> None:
    async def start(engine: Engine) -> None:
        await (await engine.start(crowd, session_id="crowd", size=CHILDREN + 5)).outcome()
        for name in ("one", "two"):
            await engine.start(letter, session_id=name, name=name, paused=True)

    within(tmp_path / STORE, start, crowd, letter)
    first = [row[0] for row in rows(here(tmp_path, "ls", "--limit", "3", "--sort", "created").stdout)[1:]]
    assert first == ["two", "one", "crowd", *["└"] * CHILDREN]
    every = here(tmp_path, "ls", "--all").stdout
    assert every.count("└") == CHILDREN + 5
    assert len(rows(here(tmp_path, "ls", "--limit", "2", "--sort", "created").stdout)) == 3


# in this process


def test_short_ids_are_unique_and_long_enough() -> None:
    ids = [f"{number:012x}".replace("l", "x") for number in range(500)]
    short = short_ids(ids)
    assert all(sum(other.startswith(beginning) for other in ids) == 1 for beginning in short.values())
    assert short_ids(["aaaaaaaaaaaa"]) == {"aaaaaaaaaaaa": "aaaaaa"}
    assert short_ids(["my-run", "my-run.0123456789abcdef"])["my-run.0123456789abcdef"] == "my-run.0123"
    siblings = short_ids(["my-run", "my-run.0123456789abcdef", "my-run.01234f6789abcdef"])
    assert list(siblings.values()) == ["my-run", "my-run.012345", "my-run.01234f"]


def test_notes_do_not_depend_on_the_day() -> None:
    from pausepoint.cli.text import clock

    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert clock(noon, noon) == f"{noon.astimezone():%H:%M:%S}"
    assert clock(datetime(2024, 4, 1, 12, tzinfo=UTC), noon).startswith("01 Apr")
    assert clock(datetime(2023, 4, 1, 12, tzinfo=UTC), noon).startswith("2023-04-01")


def test_a_list_is_searched_for_a_text_and_read_page_by_page(zoo: Zoo) -> None:
    folder, ids = zoo

    def listed(*words: str) -> tuple[list[str], str | None]:
        done = run("ls", "--json", "--no-children", *words, cwd=folder)
        assert done.code == 0, done.stderr
        found = json.loads(done.stdout)
        return [each["session_id"] for each in found["sessions"]], found["next"]

    assert listed("--text", "LUNCH") == (["student"], None)
    assert listed("--text", "no tone for") == ([ids["fail"]], None)
    assert listed("--text", "%") == ([], None)
    whole, _ = listed("--all", "--sort", "id")
    first, next = listed("--sort", "id", "--limit", "3")
    assert next is not None
    rest, end = listed("--sort", "id", "--after", next)
    assert (first + rest, end) == (whole, None)
    for words in (("--after", "nonsense"), ("--after", next), ("--after", next, "--sort", "id", "--reverse")):
        refused = here(folder, "ls", *words)
        assert refused.code == 2
        assert "--after is not a cursor of this list. Pass `next` of the JSON of the page before" in refused.stderr
    refused = here(folder, "ls", "--sort", "status", "--after", next)
    assert (refused.code, "--after does not work with --sort status" in refused.stderr) == (2, True)


def test_the_json_of_a_paused_session_says_why(zoo: Zoo) -> None:
    folder, ids = zoo
    listed = json.loads(here(folder, "ls", "--json").stdout)["sessions"]
    found = {each["session_id"]: each["pause"] for each in listed}
    assert [found["student"][name] for name in ("kind", "reason", "by")] == ["operator", "lunch", "bob"]
    assert found[ids["guard"]]["kind"] == "guard"
    assert found[ids["octopus"]] is None
