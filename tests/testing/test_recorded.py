"""Sessions kept as files: rehearsed against changed code, and readable for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Append, Context, Status, Workflow, guard, route, step, testing
from pausepoint.errors import DamagedRecord, DefinitionError
from pausepoint.runtime import Batch
from pausepoint.testing import RecordingDiffers
from tests.support.corpus import CORPUS
from tests.support.sample import TOPIC, sample

ran: list[str] = []


class Doc(BaseModel):
    topic: str
    facts: Annotated[list[str], Append] = []
    draft: str = ""
    rounds: int = 0


async def look_up(word: str) -> str:
    ran.append(word)
    if word == "gap":
        raise ConnectionError("not found")
    return word.upper()


def research(words: tuple[str, ...] = ("mind", "arms"), emits: str = "found") -> Any:
    @step(writes="facts")
    async def research(topic: str, ctx: Context) -> list[str]:
        facts = [await ctx.do(look_up, word) for word in words]
        if emits:
            ctx.emit("noted", emits)
        return facts

    return research


def write(join: str = " ") -> Any:
    @step(writes=["draft", "rounds"])
    async def write(facts: list[str], rounds: int) -> dict[str, Any]:
        return {"draft": join.join(facts), "rounds": rounds + 1}

    return write


def made(*steps: Any, rounds: int = 2, reason: str | None = None, name: str = "doc") -> Workflow[Doc]:
    @route(after="write")
    def enough(facts: list[str], rounds: int) -> Literal["write", None]:
        return "write" if rounds < limit else None

    limit = rounds

    @guard(after="research")
    def checked(facts: list[str]) -> str | None:
        return reason

    return Workflow(name, state=Doc, steps=list(steps), routes=[enough], guards=[checked], events=["noted"])


async def kept(workflow: Workflow[Any], path: Path, **fields: Any) -> Any:
    async with testing.engine(workflow) as engine:
        session = await engine.start(workflow, **fields)
        outcome = await session.outcome()
        await testing.record(session, path)
        return outcome


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "doc.jsonl"
    asyncio.run(kept(made(research(), write()), path, topic="octopus"))
    ran.clear()
    return path


@pytest.mark.long
@pytest.mark.parametrize("name", CORPUS)
def test_unchanged_code_rehearses_without_a_difference_and_runs_no_operation(name: str, tmp_path: Path) -> None:
    case = CORPUS[name]()
    outcome = asyncio.run(kept(case.workflow, tmp_path / "it.jsonl", **case.given))
    case.ran.clear()
    testing.replay(tmp_path / "it.jsonl", case.workflow)
    assert case.ran == []
    assert testing.load(tmp_path / "it.jsonl", case.workflow) == outcome.state


def test_a_workflow_with_a_bit_of_everything_rehearses(tmp_path: Path) -> None:
    asyncio.run(kept(sample, tmp_path / "it.jsonl", topic=TOPIC))
    testing.replay(tmp_path / "it.jsonl", sample)


CHANGES: dict[str, tuple[Callable[[], Workflow[Doc]], str]] = {
    "another operation": (
        lambda: made(research(("mind", "ink")), write()),
        r"record 4, research#1: it asks for operation /look_up~\w+#1, which was not recorded",
    ),
    "one operation less": (
        lambda: made(research(("mind",)), write()),
        r"record 4, research#1: it no longer asks for operation /look_up~\w+#1",
    ),
    "another event": (
        lambda: made(research(emits="lost"), write()),
        r"research#1: it emits /emit:noted~\w+#1, which was not recorded",
    ),
    "no event": (lambda: made(research(emits=""), write()), r"research#1: it no longer emits /emit:noted~\w+#1"),
    "another value": (
        lambda: made(research(), write(", ")),
        r"record 5, write#1: it writes 'draft' as 'MIND, ARMS', not 'MIND ARMS'(.|\n)*record 6, write#2: it writes",
    ),
    "another route": (
        lambda: made(research(), write(), rounds=3),
        r"record 6, write#2: it leads to write, not to the end",
    ),
    "a guard that refuses": (
        lambda: made(research(), write(), reason="too thin"),
        r"record 4, research#1: a guard says 'too thin', not ''",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_code_is_reported_with_record_and_step(what: str, file: Path) -> None:
    workflow, message = CHANGES[what]
    with pytest.raises(RecordingDiffers, match=message) as caught:
        testing.replay(file, workflow())
    assert caught.value.differences == testing.rehearse(file, workflow())
    assert ran == []


def test_a_step_that_now_raises_is_reported(file: Path) -> None:
    @step(writes=["draft", "rounds"])
    async def write(facts: list[str], rounds: int) -> dict[str, Any]:
        raise KeyError("draft")

    [first, second] = testing.rehearse(file, made(research(), write))
    assert (first.what, second.visit) == ("it raises KeyError: 'draft'", 2)


def test_a_step_that_is_gone_or_skipped_is_reported(file: Path) -> None:
    def never(rounds: int) -> bool:
        return False

    @step(writes="facts", when=never)
    async def research(topic: str) -> list[str]:
        return []

    assert [each.what for each in testing.rehearse(file, made(research, write()))] == [
        "it would be skipped: never returns False"
    ]

    @step(writes="facts")
    async def searching(topic: str) -> list[str]:
        return ["MIND", "ARMS"]

    workflow = Workflow("doc", state=Doc, steps=[searching, write()])
    assert "workflow 'doc' no longer has this step" in [each.what for each in testing.rehearse(file, workflow)]


def test_one_change_is_one_difference_not_a_cascade(file: Path) -> None:
    @step(writes="facts")
    async def research(topic: str, ctx: Context) -> list[str]:
        facts = [await ctx.do(look_up, "mind"), await ctx.do(look_up, "arms")]
        ctx.emit("noted", "found")
        return facts[::-1]

    [difference] = testing.rehearse(file, made(research, write()))
    assert difference.step == "research"


def test_items_that_failed_when_it_was_recorded_fail_again_without_running(tmp_path: Path) -> None:
    @step(writes="facts")
    async def research(topic: str, ctx: Context) -> list[str]:
        batch: Batch[str] = await ctx.map(look_up, ["mind", "gap"], on_error="collect")
        return [*batch.done.values(), f"{len(batch.failed)} missing"]

    workflow = made(research, write())
    asyncio.run(kept(workflow, tmp_path / "it.jsonl", topic="octopus"))
    ran.clear()
    testing.replay(tmp_path / "it.jsonl", workflow)
    assert ran == []


def test_a_session_of_another_workflow_is_refused(file: Path) -> None:
    with pytest.raises(DefinitionError, match="a session of workflow 'doc', not of 'other'"):
        testing.replay(file, made(research(), write(), name="other"))


def test_a_paused_session_is_recorded_as_it_stands(tmp_path: Path) -> None:
    workflow = made(research(), write(), reason="too thin")
    outcome = asyncio.run(kept(workflow, tmp_path / "it.jsonl", topic="octopus"))
    assert outcome.status is Status.PAUSED
    testing.replay(tmp_path / "it.jsonl", workflow)
    [first] = testing.rehearse(tmp_path / "it.jsonl", made(research(), write()))
    assert first.what == "a guard says '', not 'too thin'"


# the file


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def rewrite(path: Path, lines: list[Any]) -> None:
    """Write changed lines under a hash that fits them: what a careful forger would do."""
    body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines[:-1])
    end = {"end": {"lines": len(lines) - 1, "sha256": sha256(body.encode()).hexdigest()}}
    path.write_text(body + json.dumps(end) + "\n", "utf-8")


def test_the_file_is_readable_lines_that_say_what_they_are(file: Path) -> None:
    lines = lines_of(file)
    assert lines[0] == {"pausepoint": "session", "format": 1}
    assert lines[1]["session"]["workflow"] == "doc"
    assert [line["record"]["kind"] for line in lines if "record" in line][:2] == ["key", "operation"]
    assert json.loads(lines[2]["record"]["payload"])["step"] == "research"
    assert list(lines[-1]) == ["end"]


def test_rewriting_a_file_unchanged_keeps_it_valid(file: Path) -> None:
    rewrite(file, lines_of(file))
    testing.replay(file, made(research(), write()))


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_file_that_was_cut_off_is_refused(file: Path, cut: int) -> None:
    file.write_bytes(file.read_bytes()[:-cut].rstrip(b"\n") if cut > 1 else file.read_bytes()[1:])
    with pytest.raises(DamagedRecord, match=r"doc\.jsonl"):
        testing.load(file, made(research(), write()))


def change_payload(lines: list[Any]) -> None:
    record = lines[3]["record"]
    record["payload"] = record["payload"].replace("MIND", "MINE")


DAMAGE: dict[str, tuple[Callable[[list[Any]], None], str]] = {
    "a payload": (change_payload, "record 2 is missing or does not match"),
    "a step's name": (lambda lines: lines[4]["record"].update(step="other"), "record 3 is missing"),
    "a missing record": (lambda lines: lines.pop(3), "record 2 is missing"),
    "an unknown line": (lambda lines: lines.insert(3, {"secret": 1}), "unknown kind of line 'secret'"),
    "a newer format": (lambda lines: lines[0].update(format=99), "has format 99.*Use a newer Pausepoint"),
    "another kind of file": (lambda lines: lines[0].update(pausepoint="cake"), "is not an exported Pausepoint session"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_change_of_the_file_is_found_even_under_a_hash_that_fits(what: str, file: Path) -> None:
    change, message = DAMAGE[what]
    lines = lines_of(file)
    change(lines)
    rewrite(file, lines)
    with pytest.raises(DamagedRecord, match=message):
        testing.load(file, made(research(), write()))


def test_a_large_value_that_is_missing_or_changed_is_found(tmp_path: Path) -> None:
    case = CORPUS["large"]()
    path = tmp_path / "large.jsonl"
    asyncio.run(kept(case.workflow, path, **case.given))
    whole = lines_of(path)
    last = next(index for index, line in enumerate(whole) if "blob" in line)
    rewrite(path, whole[:last] + whole[last + 1 :])
    with pytest.raises(DamagedRecord, match=f"is damaged: large value {whole[last]['blob']}"):
        testing.load(path, case.workflow)
    whole[last]["text"] = "changed"
    rewrite(path, whole)
    with pytest.raises(DamagedRecord, match="does not match its hash"):
        testing.load(path, case.workflow)
