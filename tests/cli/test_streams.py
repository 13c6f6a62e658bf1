"""Live output in ``run``, ``resume`` and ``watch``: whole lines at a terminal, lines of JSON with --jsonl."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from pausepoint.cli.streams import Scroll
from pausepoint.model import Gap, Restarted, StreamChunk
from tests.cli import documents
from tests.cli.kit import Process, plain, run, screen

WORKFLOWS = """
import asyncio
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, step

TOKENS = "Tides follow the moon.\\nTwice a day they rise, and twi".split(" ")


class Story(BaseModel):
    text: str = ""


async def tell(ctx: Context) -> str:
    for number, token in enumerate(TOKENS):
        ctx.stream(token if number == 0 else f" {token}")
        await asyncio.sleep(0.02)
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    ctx.stream("ce\\x1b[2J they fall.")
    return "told"


@step(writes="text")
async def write(ctx: Context) -> str:
    for word in ("one", " two", " three"):
        print(word, end="", flush=True)
        await asyncio.sleep(0.15)
    for share in ("10 %", "\\r20 %", "\\r30 %"):
        print("\\n" * (share == "10 %") + share, end="", flush=True)
        await asyncio.sleep(0.15)
    print()
    return await ctx.do(tell)


story = Workflow("story", state=Story, steps=[write])
"""

TEXT = "Tides follow the moon.\nTwice a day they rise, and twice\x1b[2J they fall."
FIRST, SECOND = "Tides follow the moon.", r"Twice a day they rise, and twice␛[2J they fall."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "story.py").write_text(WORKFLOWS)
    return tmp_path


def lines(shown: str) -> list[str]:
    """Return what a terminal shows at the end."""
    return [line for line in screen(shown).splitlines() if line.strip()]


@pytest.mark.long
def test_run_shows_tokens_as_they_come_and_keeps_partial_lines(place: Path) -> None:
    with Process("run", "story.py", "--session-id", "s", cwd=place, tty=True) as process:
        process.until("Twice a day they rise, and twi")  # while the line is not complete
        (place / "go").touch()
        done = process.wait()
    assert done.code == 0
    shown = lines(done.stdout)
    assert shown[:4] == ["one two three", "30 %", FIRST, SECOND]
    assert [line for line in shown if line.startswith("Tides")] == [FIRST]
    assert "\x1b[2J" not in done.stdout


@pytest.mark.long
def test_watch_in_another_terminal_shows_them_too(place: Path) -> None:
    with Process("run", "story.py", "--session-id", "s", cwd=place) as process:
        process.until("Running step: write")
        with Process("watch", "s", "--history", cwd=place, tty=True) as watch:
            watch.until("Twice a day they rise, and twi")
            (place / "go").touch()
            shown = lines(watch.wait().stdout)
        done = process.wait()
    assert done.code == 0
    assert "Tides" not in done.stdout, "a pipe gets lines about the session, not tokens"
    assert [line for line in shown if line in (FIRST, SECOND)] == [FIRST, SECOND]


@pytest.mark.long
def test_json_lines_have_every_chunk(place: Path) -> None:
    (place / "go").touch()
    done = run("run", "story.py", "--session-id", "s", "--jsonl", cwd=place)
    assert done.code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    chunks = [each for each in found if each.get("event_type") == "stream.chunk"]
    assert "".join(each["data"]["text"] for each in chunks) == TEXT
    assert [each["data"]["n"] for each in chunks] == list(range(1, len(chunks) + 1))
    assert {each["cursor"] for each in chunks} == {""}
    assert chunks[0]["data"]["source"].startswith("write#1/tell~")


@pytest.mark.long
def test_watch_as_json_lines_has_the_chunks_of_a_killed_process_and_their_restart(place: Path) -> None:
    with Process("run", "story.py", "--session-id", "s", "--jsonl", cwd=place) as process:
        process.until('" twi"')
        process.signal(signal.SIGKILL)
        process.wait()
    with Process("resume", "s", "--target", "story.py", "--jsonl", cwd=place) as process:
        process.until('" twi"')
        with Process("watch", "s", "--jsonl", "--history", cwd=place) as watch:
            watch.until("stream.restarted")
            (place / "go").touch()
            printed = watch.wait().stdout
        assert process.wait().code == 0
    documents.check("watch", printed, "jsonl")
    found = [json.loads(line) for line in printed.splitlines()]
    text = ""
    for each in found:
        if each["event_type"] == "stream.chunk":
            text += each["data"]["text"]
        elif each["event_type"] == "stream.restarted":
            assert text.endswith(" twi")
            text = ""
    assert text == TEXT
    assert [each["event_type"] for each in found].count("stream.restarted") == 1


# the scroll above a live display


def scroll(width: int = 20) -> tuple[Scroll, list[str]]:
    printed: list[str] = []
    return Scroll(lambda line, style: printed.append(line), width), printed


def chunk(text: str, operation: str = "/say~1f#1", kind: str = "text") -> StreamChunk:
    return StreamChunk(1, text, kind, "talk", 1, operation, 1, 1)


def test_long_lines_are_broken_between_words_while_they_grow() -> None:
    shown, printed = scroll()
    for word in ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]:
        shown.item(chunk(f"{word} "))
    assert printed == ["the quick brown fox", "jumps over the lazy"]
    assert list(shown.partial.values()) == ["dog "]
    shown.flush()
    assert (printed[-1], shown.partial) == ("dog ", {})


@pytest.mark.parametrize("letter", ["x", "日"])
def test_a_long_chunk_without_spaces_is_broken_in_time_that_grows_with_its_length(letter: str) -> None:
    shown, printed = scroll(80)
    began = time.process_time()
    shown.item(chunk(letter * 10_000))
    assert time.process_time() - began < 2
    assert {len(line) for line in printed} == {80 if letter == "x" else 40}
    shown.flush()
    assert "".join(printed) == letter * 10_000


def test_lines_of_several_sources_are_told_apart() -> None:
    shown, printed = scroll()
    shown.item(chunk("a", '/map:say/say["x"]'))
    shown.item(chunk("1", '/map:say/say["y"]'))
    shown.item(chunk("b\n", '/map:say/say["x"]'))
    shown.item(chunk("2\n3\n", '/map:say/say["y"]'))
    assert printed == ['talk, say["x"]:', "ab", 'talk, say["y"]:', "12", "3"]


def test_restarts_and_gaps_are_shown_and_other_kinds_are_not() -> None:
    shown, printed = scroll()
    shown.item(chunk("wrong"))
    shown.item(chunk("{}", kind="json"))
    shown.item(Restarted(2, ("talk#1/say~1f#1", "talk#1/silent#1")))
    shown.item(chunk("right"))
    shown.item(Gap(9, 4))
    assert printed == ["↻ talk, say starts again", "right", "… 4 pieces of the output were lost"]


def test_what_is_logged_does_not_break_the_text_around_it() -> None:
    printed: list[str] = []
    shown = Scroll(lambda line, style: printed.append(line), 80, ("text", "log"))
    shown.item(chunk("Tides "))
    shown.item(chunk("INFO tides: asked\n", kind="log"))
    shown.item(chunk("follow the moon.\n"))
    assert printed == ["talk, say, log:", "INFO tides: asked", "talk, say:", "Tides follow the moon."]


DEBUGGED = """
from pausepoint import workflow

@workflow
async def awaited() -> str:
    word = "squid"
    breakpoint()
    return word

@workflow
def blocking() -> str:
    word = "squid"
    import pdb; pdb.set_trace()
    return word
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["awaited", "blocking"])
def test_a_debugger_in_a_step_has_the_terminal_for_itself(tmp_path: Path, name: str) -> None:
    (tmp_path / "look.py").write_text(DEBUGGED)
    with Process("run", f"look.py:{name}", cwd=tmp_path, tty=True) as process:
        process.until("(Pdb) ")
        shown = len(process.seen)
        process.type("word * 2\n")
        process.until("'squidsquid'")
        assert "look.py" in process.seen  # it stops in the step, not in a function of ours
        assert "\x1b[" not in process.seen[shown:], "nothing is drawn meanwhile"
        process.type("c\n")
        done = process.wait()
    assert (done.code, plain(done.stdout).rstrip().endswith("squid")) == (0, True)
