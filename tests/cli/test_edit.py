"""`edit`, `rewind` and `fork`: what is changed, what is refused, and how to go on."""

from __future__ import annotations

import asyncio
import getpass
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel, ConfigDict

from pausepoint import Engine, Session, Status, Workflow, step
from pausepoint.cli.app import app
from pausepoint.cli.commands.edit import _as_json, _visits
from pausepoint.cli.context import Cli
from pausepoint.cli.editor import changes
from pausepoint.cli.fields import assigned, from_text, typed
from tests.cli import office
from tests.cli.kit import Process, plain, run
from tests.cli.test_pause import OFFICE, opened
from tests.support.loop import on_loop
from tests.support.pipeline import Gate


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that says where its workflow is; the store has one completed session, ``one``."""
    (tmp_path / "pyproject.toml").write_text(f'[tool.pausepoint.workflows]\nbrief = "{OFFICE}:brief"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VISUAL", raising=False)

    async def complete() -> None:
        async with opened(tmp_path) as engine:
            session = await engine.start(
                office.brief, topic="otters", session_id="one", owner="ann", tags=["sea"], budget=5
            )
            assert (await session.outcome()).status is Status.COMPLETED

    asyncio.run(complete())
    yield tmp_path
    office.held.clear()


def look(place: Path, session_id: str = "one") -> tuple[Any, Any, list[Any]]:
    """The facts, the state and the events of a session."""

    async def found() -> tuple[Any, Any, list[Any]]:
        async with opened(place) as engine:
            events = [event async for event in engine.session(session_id).events()]
            return await engine.session(session_id).info(), await engine.session(session_id).state(), events

    return asyncio.run(found())


def call(*args: str) -> Result:
    """In this process."""
    return CliRunner().invoke(app, list(args))


def editor(place: Path, *edits: str) -> str:
    """An editor that does one thing at each call: Python over ``text``, the content of the file."""
    script = place / "editor.py"
    script.write_text(
        "import json, pathlib, subprocess, sys\n"
        f"calls, edits = pathlib.Path({str(place / 'calls')!r}), {edits!r}\n"
        "number = int(calls.read_text()) if calls.exists() else 0\n"
        "calls.write_text(str(number + 1))\n"
        "text = pathlib.Path(sys.argv[1]).read_text()\n"
        "exec(edits[number])\n"
        "pathlib.Path(sys.argv[1]).write_text(text)\n"
    )
    return shlex.join([sys.executable, str(script)])


# edit --set


def test_set_takes_texts_and_json_by_the_type_of_the_field_and_goes_on_when_told(place: Path) -> None:
    done = run(
        "edit", "one", "--set", "topic=7", "--set", 'facts=["a", "b"]', "--set", "plan.title=x = y",
        "--set", "due=2024-05-06", "--reason", "typo", cwd=place,
    )  # fmt: skip
    assert done == (
        0,
        "Changed topic, facts, plan.title, due.\none is ready after finish.\n",
        "Resume:  pausepoint resume one\n",
    )
    _, state, events = look(place)
    assert (state.topic, state.facts, state.plan.title, state.due) == ("7", ["a", "b"], "x = y", date(2024, 5, 6))
    (edited,) = [event for event in events if event.event_type == "session.edited"]
    assert (edited.data["by"], edited.data["reason"]) == (getpass.getuser(), "typo")


@pytest.mark.long
def test_an_edit_goes_on_here_with_run_as_far_as_it_is_told(place: Path) -> None:
    run("rewind", "one", "--to", "write#1", cwd=place)
    done = run("edit", "one", "--set", "topic=seals", "--run", "--pause-after", "review", "--json", cwd=place)
    found = json.loads(done.stdout)
    assert (done.code, found["status"], found["state"]["draft"]) == (3, "paused", "seals, draft 1")


def test_what_is_so_already_is_not_recorded(place: Path) -> None:
    seq = look(place)[0].seq
    found = call("edit", "one", "--set", "topic=otters", "--set", "wanted=2", "--json")
    assert (found.exit_code, json.loads(found.stdout)["changed"]) == (0, [])
    assert look(place)[0].seq == seq


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["wanted=many"], "wanted: Input should be a valid integer"),
        (["topic=a", "plan.pages=0"], "plan.pages: Input should be greater than or equal to 1"),
        (["topci=a"], "Did you mean 'topic'?"),
        (["topic"], "Write FIELD=VALUE"),
        (["topic=a", "topic=b"], "--set topic is given twice"),
        (["plan.title=a", 'plan={"title": "b"}'], "'plan.title' is part of 'plan', which is changed too"),
    ],
    ids=["wrong type", "validator", "unknown field", "no value", "twice", "part and whole"],
)
def test_an_edit_that_is_refused_changes_nothing(given: list[str], says: str, place: Path) -> None:
    before = look(place)
    found = call("edit", "one", *[word for each in given for word in ("--set", each)])
    said = found.stderr + str(found.exception)  # errors of Pausepoint's own become lines where the process ends
    assert (found.exit_code, says in said) in [(2, True), (1, True)]
    assert look(place)[:2] == before[:2]


def test_the_exit_code_of_a_refused_edit_is_that_of_usage(place: Path) -> None:
    done = run("edit", "one", "--set", "wanted=many", cwd=place)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("pausepoint: wanted: Input should be a valid integer")


def test_without_the_code_it_says_which_workflow_is_meant_and_how_to_name_it(place: Path) -> None:
    (place / "pyproject.toml").unlink()
    store = str(place / ".pausepoint/pausepoint.db")
    for args in (["edit", "one"], ["rewind", "one", "--to", "write"], ["fork", "one"]):
        found = call(*args)
        assert found.exit_code == 2
        assert "Session 'one' needs the code of workflow 'brief', which is not loaded." in found.stderr
        assert "Add --target file.py:name" in found.stderr
    found = call("edit", "one", "--set", "topic=a", "--target", f"{OFFICE}:brief", "--store", store)
    assert (found.exit_code, found.stderr) == (
        0,
        f"Resume:  pausepoint resume one --target {OFFICE}:brief --store {store}\n",
    )


@asynccontextmanager
async def held_in_write(place: Path) -> AsyncIterator[tuple[Engine, Session[Any], Gate]]:
    """A session that runs in this process, in a step that ends when the gate is opened."""
    (place / "pyproject.toml").write_text(f'[tool.pausepoint.workflows]\nbrief = "{OFFICE}:brief"\n')
    gate = office.held["write"] = Gate()
    try:
        async with opened(place) as engine:
            session = await engine.start(office.brief, topic="otters", session_id="one")
            await gate.reached.wait()
            yield engine, session, gate
    finally:
        office.held.clear()


@pytest.mark.long
@on_loop
async def test_a_running_session_is_refused_or_with_force_paused_first(tmp_path: Path) -> None:
    async with held_in_write(tmp_path) as (_, session, gate):
        done = await asyncio.to_thread(run, "edit", "one", "--set", "topic=a", cwd=tmp_path)
        assert done.code == 5
        assert "Pause it first: `pausepoint pause one --wait`, or use --force." in done.stderr
        forced = asyncio.create_task(
            asyncio.to_thread(run, "rewind", "one", "--to", "research", "--force", "--json", cwd=tmp_path)
        )
        while not (await session.info()).pause_requested:
            await asyncio.sleep(0.02)
        gate.opened.set()
        done = await forced
        found = json.loads(done.stdout)
        assert (done.code, found["status"], found["step"]) == (0, "paused", "research")
        assert found["left_behind"] == ["research#1", "write#1"]
        assert found["resume"] == "pausepoint resume one"


@on_loop
async def test_a_fork_with_force_stops_the_other_one_first(tmp_path: Path) -> None:
    async with held_in_write(tmp_path) as (engine, session, gate):
        forced = asyncio.create_task(
            asyncio.to_thread(run, "fork", "one", "--session-id", "two", "--force", cwd=tmp_path)
        )
        while not (await session.info()).pause_requested:
            await asyncio.sleep(0.02)
        gate.opened.set()
        done = await forced
        assert done.code == 0, done.stderr
        assert (await session.info()).status is Status.PAUSED
        assert (await engine.session("two").info()).step == (await session.info()).step != "write"


# edit in an editor


def test_what_was_changed_in_the_editor_is_one_edit(place: Path) -> None:
    change = editor(place, "text = text.replace('otters', 'seals').replace('\"pages\": 1', '\"pages\": 3')")
    done = run("edit", "one", cwd=place, env={"EDITOR": change})
    assert (done.code, done.stdout.splitlines()[0]) == (0, "Changed topic, facts, plan, draft.")
    _, state, events = look(place)
    assert (state.topic, state.facts, state.plan.pages) == ("seals", ["seals are animals"], 3)
    assert sum(event.event_type == "session.edited" for event in events) == 1


def test_nothing_changed_in_the_editor_is_nothing_recorded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setenv("EDITOR", "true")
    seq = look(place)[0].seq
    found = call("edit", "one")
    assert (found.exit_code, found.stdout) == (0, "Nothing changed.\n")
    assert look(place)[0].seq == seq


def test_without_a_terminal_a_refused_text_is_kept_and_its_place_told(place: Path) -> None:
    change = editor(place, 'text = text.replace(\'"wanted": 2\', \'"wanted": "many"\')')
    done = run("edit", "one", cwd=place, env={"EDITOR": change, "TMPDIR": str(place)})
    assert (done.code, "wanted: Input should be a valid integer" in done.stderr) == (2, True)
    kept = Path(done.stderr.strip().rpartition(" ")[2])
    assert kept.parent == place
    assert json.loads(kept.read_text())["wanted"] == "many"
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_at_a_terminal_a_refused_text_is_offered_again(place: Path) -> None:
    change = editor(
        place, 'text = text.replace(\'"wanted": 2\', \'"wanted": "many"\')', "text = text.replace('\"many\"', '4')"
    )
    with Process("edit", "one", cwd=place, env={"EDITOR": change, "TMPDIR": str(place)}, tty=True) as process:
        process.until("Edit it again? [Y/n]")
        process.type("\n")
        done = process.wait()
    assert (done.code, "Changed wanted." in plain(done.stdout)) == (0, True)
    assert look(place)[1].wanted == 4
    assert not list(place.glob("pausepoint-*.json"))


@pytest.mark.long
def test_a_session_that_moved_while_it_was_edited_is_a_conflict_and_the_text_is_kept(place: Path) -> None:
    other = [sys.executable, "-m", "pausepoint", "edit", "one", "--set", "topic=whales"]
    change = editor(place, f"subprocess.run({other!r}, check=True); text = text.replace('otters', 'seals')")
    done = run("edit", "one", cwd=place, env={"EDITOR": change, "TMPDIR": str(place)})
    assert (done.code, "has changed since its state was read" in done.stderr) == (5, True)
    (kept,) = place.glob("pausepoint-*.json")
    assert json.loads(kept.read_text())["topic"] == "seals"
    assert look(place)[1].topic == "whales"


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("false", 1, "The editor 'false' exited with code 1"),
        ("no-such-editor", 2, "cannot be started"),
        ("", 2, "use --set FIELD=VALUE"),
    ],
    ids=["fails", "is not there", "is not named"],
)
def test_an_editor_that_fails_changes_nothing(
    command: str, code: int, says: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setenv("EDITOR", command)
    found = call("edit", "one")
    assert (found.exit_code, says in found.stderr) == (code, True)
    assert len(list(place.glob("pausepoint-*.json"))) == (command == "false")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1', "not valid JSON: Expecting ',' delimiter: line 1"),
        ("[]", "not a JSON object"),
        ('{"a": 1, "b": 2, "aa": 3}', "has no field 'aa'. Did you mean 'a'?"),
        ('{"a": 1}', "The field 'b' is missing"),
    ],
    ids=["no json", "no object", "unknown", "missing"],
)
def test_what_cannot_be_meant_in_an_editor_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        changes({"a": 1, "b": [2]}, text)


def test_only_what_differs_is_a_change() -> None:
    before = {"a": 1, "b": [2], "c": {"d": None}}
    assert changes(before, json.dumps(before, indent=7)) == {}
    assert changes(before, '{"c": {"d": 0}, "b": [2], "a": true}') == {"a": True, "c": {"d": 0}}


def test_a_field_that_has_no_form_in_json_does_not_hide_the_others(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Image(BaseModel):
        name: str = "x"
        pixels: bytes = b"\xff"

    assert _as_json(Cli(None, (), False, False), Image()) == {"name": "x"}
    assert "The field 'pixels' cannot be written as JSON and is left out" in capsys.readouterr().err


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (str, "5", "5"),
        (str, '"quoted"', '"quoted"'),
        (str | None, "null", None),
        (str | None, "none", "none"),
        (int, "5", 5),
        (int | None, "null", None),
        (float | str, "5", 5),
        (list[str], '["a"]', ["a"]),
        (list[str], "a", "a"),
        (date, "2024-05-06", "2024-05-06"),
        (Literal["a", "b"], "a", "a"),
        (Literal[1, 2], "2", 2),
        (Colour, "red", "red"),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Any, "text", "text"),
        (Any, "[1]", [1]),
        (object, "1", 1),
    ],
    ids=str,
)
def test_a_text_means_what_the_type_takes(annotation: Any, text: str, value: Any) -> None:
    found = from_text(annotation, text)
    assert (type(found), found) == (type(value), value)


def test_a_strict_model_gets_values_of_its_types() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        due: date = date.min
        price: Decimal = Decimal(0)
        wrong: int = 0

    @step(writes="price")
    async def pay(due: date) -> Decimal:
        return Decimal(1)

    workflow = Workflow("strict", state=Strict, steps=[pay])
    plain = assigned(workflow, ["due=2024-05-06", "price=1.50", "wrong=x"])
    assert typed(workflow, plain) == {"due": date(2024, 5, 6), "price": Decimal("1.50"), "wrong": "x"}


# edit --dry-run


def test_an_edit_is_planned_and_changes_nothing(place: Path) -> None:
    before = look(place)
    done = run("edit", "one", "--set", "wanted=5", "--dry-run", cwd=place)
    assert done.code == 0
    assert done.stdout.startswith("Plan of an edit of one: wanted.\n")
    assert "next" not in done.stdout, "the route after the last step is asked again, and no step is known to run"
    assert done.stderr.endswith("This is a dry run: nothing was changed.\n")
    plan = json.loads(call("edit", "one", "--set", "wanted=5", "--dry-run", "--json").stdout)
    assert (plan["session_id"], plan["status"], plan["changed"]) == ("one", "ready", [])
    assert call("edit", "one", "--set", "wanted=5", "--dry-run", "--force").exit_code == 0
    assert look(place) == before


def test_an_edit_that_would_be_refused_says_why_when_it_is_planned(place: Path) -> None:
    before = look(place)
    refused = run("edit", "one", "--set", "plan.pages=0", "--dry-run", cwd=place)
    assert (refused.code, "greater than or equal to 1" in refused.stderr) == (2, True)
    editor = run("edit", "one", "--dry-run", cwd=place)
    assert (editor.code, "--dry-run needs --set" in editor.stderr) == (2, True)
    same = call("edit", "one", "--set", "topic=otters", "--dry-run")
    assert (same.exit_code, same.stdout) == (0, "Nothing changed.\n")
    assert look(place) == before


# rewind


def test_a_rewind_is_planned_then_done_and_the_session_stands_still(place: Path) -> None:
    before = look(place)
    done = run("rewind", "one", "--to", "write#2", "--dry-run", cwd=place, tty=True)
    shown = plain(done.stdout)
    assert done.code == 0
    assert shown.startswith(
        "Plan of a rewind of one to before write#2:\nWould roll back: write#2, review#2, finish#1.\n"
    )
    assert "▸ next      write     rewound" in shown
    assert shown.endswith("This is a dry run: nothing was changed.\n")
    assert max(map(len, shown.splitlines())) <= 80
    assert look(place) == before

    done = run("rewind", "one", "--to", "write#2", "--reason", "dull", cwd=place)
    assert done == (
        0,
        "Rewound to before write#2.\nRolled back: write#2, review#2, finish#1.\none is ready at write#2.\n",
        "Resume:  pausepoint resume one\n",
    )
    (rewound,) = [event for event in look(place)[2] if event.event_type == "session.rewound"]
    assert (rewound.data["by"], rewound.data["reason"]) == (getpass.getuser(), "dull")


def test_a_rewind_to_a_number_with_run_redoes_it_here(place: Path) -> None:
    async def number() -> int:
        async with opened(place) as engine:
            return next(each.seq for each in await engine.session("one").checkpoints() if each.name == "review#1")

    done = run("rewind", "one", "--to", str(asyncio.run(number())), "--reuse", "--run", cwd=place)
    assert done.code == 0
    assert "Running step: review\n" in done.stdout
    assert "Session one of brief completed" in done.stdout
    info, _, events = look(place)
    assert info.status is Status.COMPLETED
    assert [event.data["reuse"] for event in events if event.event_type == "session.rewound"] == [True]


@pytest.mark.long
def test_a_rewind_sets_values_in_the_same_act(place: Path) -> None:
    before = look(place)
    assert call("rewind", "one", "--to", "write#1", "--set", "plan.pages=0", "--dry-run").exit_code != 0
    found = call("rewind", "one", "--to", "write#1", "--set", "topic=seals", "--dry-run", "--json")
    assert json.loads(found.stdout)["left_behind"][0] == "write#1"
    assert look(place) == before

    done = run("rewind", "one", "--to", "write#1", "--set", "topic=seals", "--set", "wanted=1", cwd=place)
    assert done.code == 0
    assert done.stdout.endswith("finish#1.\nChanged topic, wanted.\none is ready at write.\n")
    info, state, events = look(place)
    assert (state.topic, state.wanted, info.held_by_guard) == ("seals", 1, False)
    told = [event for event in events if event.event_type in ("session.rewound", "session.edited")]
    assert [event.data["by"] for event in told] == [getpass.getuser()] * 2
    found = call("rewind", "one", "--to", "write#1", "--set", "topic=otters", "--json")
    assert json.loads(found.stdout)["changed"] == ["topic"]


AGENT = """
from pathlib import Path
from pausepoint import Context, workflow

async def think(turn: int) -> str:
    return "nonsense" if turn == 2 and not Path("better").exists() else f"tool {turn}"

async def use(tool: str) -> str:
    return f"{tool} done"

@workflow
async def agent(turns: int, ctx: Context) -> list[str]:
    results = []
    for turn in range(turns):
        reply = await ctx.do(think, turn)
        if reply == "nonsense":
            raise ValueError("nonsense")
        results.append(await ctx.do(use, reply))
    return results
"""


@pytest.mark.long
def test_an_operation_is_forgotten_and_a_fork_begins_before_one(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nagent = "agent.py:agent"\n')
    assert run("run", "agent.py", "--turns", "4", "--session-id", "a", cwd=tmp_path).code == 1
    planned = run("rewind", "a", "--to-operation", "think#2", "--dry-run", cwd=tmp_path, tty=True)
    assert plain(planned.stdout).startswith("Plan of a rewind of a to before operation think#2:\n")
    assert "! runs again  think      2 of them had finished in agent#1" in plain(planned.stdout)
    assert run("forget", "a", "think", "--dry-run", "--json", cwd=tmp_path).code == 0

    wrong = run("forget", "a", "thnk", cwd=tmp_path)
    assert (wrong.code, "Did you mean 'think'? List them with `pausepoint show a --operations`." in wrong.stderr) == (
        4,
        True,
    )
    both = run("rewind", "a", "--to", "agent", "--to-operation", "think", cwd=tmp_path)
    assert (both.code, "Name one place" in both.stderr) == (2, True)

    done = run("forget", "a", "think#2", "--reason", "nonsense", cwd=tmp_path)
    assert done.stdout == "Rewound to before operation think#2.\nForgotten: think (2), use.\na is ready at agent.\n"
    shown = run("show", "a", "--operations", cwd=tmp_path).stdout
    assert (shown.count("undone by a rewind"), "  think  record 2, " in shown) == (3, True)
    (tmp_path / "better").touch()
    resumed = run("resume", "a", cwd=tmp_path)
    assert (resumed.code, resumed.stdout.splitlines()[-1][:30]) == (0, '["tool 0 done", "tool 1 done",')

    for words, why in {("--result", "[1"): "--result is not JSON", ("--result", "7"): "think"}.items():
        refused = run("rewind", "a", "--to-operation", "think", *words, cwd=tmp_path)
        assert (refused.code != 0, why in refused.stderr) == (True, True)
    replaced = ("rewind", "a", "--to-operation", "think", "--result", '"my tool"', "--run")
    assert '"my tool done"]' in run(*replaced, cwd=tmp_path).stdout

    forked = run("fork", "a", "--at-operation", "use#4", "--session-id", "b", cwd=tmp_path)
    assert forked.stdout.startswith("Forked a (before operation use#4) as b.\n")
    assert run("fork", "a", "--at-operation", "use", "--at-step", "agent", cwd=tmp_path).code == 2


def test_a_place_that_is_not_there_is_not_found(place: Path) -> None:
    done = run("rewind", "one", "--to", "writ", "--json", cwd=place)
    assert (done.code, done.stdout) == (4, "")
    assert "Did you mean 'write'?" in json.loads(done.stderr)["error"]


def test_how_far_to_go_is_asked_before_anything_is_changed(place: Path) -> None:
    before = look(place)
    found = call("rewind", "one", "--to", "write", "--pause-after", "review")
    assert (found.exit_code, "--pause-after needs --run." in found.stderr) == (2, True)
    assert call("rewind", "one", "--to", "write", "--run", "--pause-after", "reviw").exit_code != 0
    assert look(place) == before


def test_many_visits_are_not_all_listed() -> None:
    assert _visits("Rolled back", ["a#1"]) == "Rolled back: a#1."
    many = [f"a#{n}" for n in range(1, 10)]
    assert _visits("Rolled back", many) == "Rolled back: a#1, a#2, a#3, a#4, a#5, and 4 more."


# fork


def test_a_fork_stands_still_until_it_is_told_to_go_on(place: Path) -> None:
    done = run(
        "fork", "one", "--at-step", "write#2", "--set", "topic=seals", "--session-id", "two", "--tag", "ice", "--json",
        cwd=place,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (done.code, found["status"], found["step"], found["visit"]) == (0, "paused", "write", 2)
    assert (found["forked_from"], found["resume"]) == ("one", "pausepoint resume two")
    assert (found["owner"], found["tags"], found["budget_usd"]) == ("ann", ["ice"], 5)
    assert look(place, "two")[1].topic == "seals"
    assert look(place)[0].status is Status.COMPLETED

    found = call("fork", "one", "--session-id", "two")
    said = "Session 'two' already exists and is paused. Choose another --session-id."
    assert (found.exit_code, said in found.stderr) == (5, True)


@pytest.mark.long
def test_a_fork_goes_on_at_once_with_run(place: Path) -> None:
    done = run("fork", "one", "--at-step", "finish", "--set", "topic=seals", "--session-id", "two", "--run", cwd=place)
    assert done.code == 0
    assert done.stdout.startswith("Forked one (before finish) as two.\n")
    assert "Starting at finish, as forked\n" in done.stdout
    assert "Finished step: finish" in done.stdout
    info, state, _ = look(place, "two")
    assert (info.status, state.topic, state.draft) == (Status.COMPLETED, "seals", "otters, draft 2")


def test_the_plan_of_a_fork_stores_nothing_and_validates_what_is_set(place: Path) -> None:
    found = call("fork", "one", "--at-step", "review", "--dry-run", "--json")
    plan = json.loads(found.stdout)
    assert (found.exit_code, plan["session_id"]) == (0, "one")
    assert {each["step"]: each["verdict"] for each in plan["steps"]}["review"] == "next"
    assert call("fork", "one", "--dry-run", "--set", "plan.pages=0").exit_code != 0

    async def listed() -> list[str]:
        async with opened(place) as engine:
            return [info.session_id for info in await engine.sessions()]

    assert asyncio.run(listed()) == ["one"]


CHANGING = """
from pydantic import BaseModel
from pausepoint import Workflow, step

class Order(BaseModel):
    count: {type}
    sent: str = ""

@step(writes="sent")
async def send(count: {type}) -> str:
    return f"sent {{count!r}}"

order = Workflow("order", state=Order, steps=[send])
"""


@pytest.mark.long
@pytest.mark.parametrize("editor", [False, True])
def test_an_edit_mends_a_value_that_does_not_fit_a_changed_type(tmp_path: Path, editor: bool) -> None:
    code = tmp_path / "order.py"
    code.write_text(CHANGING.format(type="str"))
    target = ("--target", "order.py")
    assert run("run", "order.py", "--count", "many", "--session-id", "a", "--paused", cwd=tmp_path).code == 3
    code.write_text(CHANGING.format(type="int"))
    how = () if editor else ("--set", "count=3")
    done = run("edit", "a", *how, *target, cwd=tmp_path, env={"EDITOR": """sed -i 's/"many"/3/'"""})
    assert done.code == 0, done.stderr
    assert run("resume", "a", *target, cwd=tmp_path).code == 0
    assert json.loads(run("show", "a", "--json", cwd=tmp_path).stdout)["state"] == {"count": 3, "sent": "sent 3"}
