"""The output of tasks: it stays below its limit whatever a command prints, and can be read and followed."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausepoint.apps.devs import read
from pausepoint.apps.devs.__main__ import main
from pausepoint.apps.devs.commands import Commands
from pausepoint.apps.devs.output import Output, Reader, last_line, size_of
from tests.apps.calls import Call, calling
from tests.apps.devs_kit import small, task, write_plan
from tests.apps.programs import Devs
from tests.support.forkserver import Forks
from tests.support.loop import on_loop
from tests.support.waits import until

call = calling(main)

LIMIT = 1_000
LEFT_OUT = re.compile(rb"\n--- +(\d+) bytes of output are left out here ---\n")


def whole(reader: Reader) -> bytes:
    found = b""
    while data := reader.read(most=97):
        found += data
    return found


@settings(max_examples=40)
@given(pieces=st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=30))
def test_the_first_and_the_last_part_are_kept_and_a_follower_misses_nothing_that_it_does_not_name(
    pieces: list[tuple[int, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        _check(Path(folder) / "x.txt", pieces)


def _check(path: Path, pieces: list[tuple[int, bool]]) -> None:
    output, follower = Output(path, LIMIT), Reader(path, LIMIT)
    printed = followed = b""
    for number, (size, follows) in enumerate(pieces):
        piece = (f"{number}:" + "x" * size + "\n").encode()
        printed += piece
        output.write(piece)
        if output.is_full:
            output.shorten()
        assert path.stat().st_size <= LIMIT
        if follows:
            followed += whole(follower)
    output.close()
    kept = path.read_bytes() if pieces else b""
    assert restored(kept, printed)
    assert restored(followed + whole(follower), printed), "every gap is named, with its size"
    assert whole(Reader(path, LIMIT)) == kept
    if len(printed) > LIMIT:
        assert kept.startswith(printed[: LIMIT // 4])
        assert kept.endswith(printed[-LIMIT // 8 :])


def restored(found: bytes, printed: bytes) -> bool:
    """Whether a text is the whole one with gaps of the sizes that it names."""
    at = 0
    parts = LEFT_OUT.split(found)
    for text, gap in zip(parts[::2], [*map(int, parts[1::2]), 0], strict=True):
        if printed[at : at + len(text)] != text:
            return False
        at += len(text) + gap
    return at == len(printed)


@pytest.mark.long
@on_loop
async def test_a_command_that_prints_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    async with Commands(tmp_path / ".devs", grace=0.1, env={}, output_limit=100_000) as commands:
        ran = await commands.run("yes 0123456789 | head -c 10000000; echo end", tmp_path, tmp_path / "log", None, {})
        assert (ran.code, len(ran.tail), ran.tail[-4:]) == (0, 2000, "end\n")
        assert (tmp_path / "log").stat().st_size <= 100_000
        found = LEFT_OUT.search((tmp_path / "log").read_bytes())
        assert found is not None
        assert int(found[1]) > 9_000_000
        endless = await commands.run("yes", tmp_path, tmp_path / "log", 0.5, {})
        assert (endless.code, endless.tail[-4:]) == (None, "y\ny\n")
        files = [path for path in tmp_path.iterdir() if path.is_file()]
        assert [path.name for path in files] == ["log"]
        assert files[0].stat().st_size <= 100_000
        assert b"--- 20" in files[0].read_bytes()[:10], "the first line stays"


@pytest.mark.parametrize(("text", "ends"), [("", ""), ("a\n\nb\n", "b"), ("a\nb", "b"), ("\n \n", "")])
def test_the_last_line_and_the_last_lines(tmp_path: Path, text: str, ends: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    assert last_line(path) == ends
    lines = text.splitlines(keepends=True)
    for number in range(4):
        reader = Reader(path, LIMIT)
        reader.skip_to_last(number)
        assert whole(reader).decode() == "".join(lines[len(lines) - number :] if number < len(lines) else lines)
    assert last_line(tmp_path / "none") == ""


def test_a_limit_is_a_number_of_bytes_or_a_size(here: Path, call: Call) -> None:
    assert read(write_plan(here, small(), output_limit="64 KiB")).head.output_limit == 65_536
    assert read(write_plan(here, small(), output_limit=5_000)).head.output_limit == 5_000
    assert read(write_plan(here, small())).head.output_limit == 10_000_000
    for wrong, said in (("much", "'much' is not a size; write a number of bytes"), (10, "greater than or equal to")):
        write_plan(here, small(), output_limit=wrong)
        done = call("run", "plan.json")
        assert (done.code, f"output_limit: {said}" in done.err.replace("Input should be ", "")) == (2, True), done.err
    with pytest.raises(ValueError, match="'3 feet' is not a size"):
        size_of("3 feet")


# the command


@pytest.mark.long
def test_logs_prints_the_output_of_a_task_as_it_is_and_of_all_with_their_names(here: Path, call: Call) -> None:
    write_plan(here, [task("a", run="echo one; echo two"), task("long", ["a"], run="printf 'th\\303\\250\\nree'")])
    assert call("logs", "plan.json").code == 4
    call("run", "plan.json")
    said = call("logs", "plan.json", "a").out.splitlines()
    assert (said[0].startswith("--- 20"), said[1:]) == (True, ["one", "two"])
    both = call("logs", "plan", "--lines", "1").out
    assert both == "a    | two\nlong | ree\n"
    assert "long | thè\n" in call("logs", "plan").out
    assert call("logs", "plan", "-f", "-n", "1").out == both, "nothing runs, so nothing is waited for"
    document = call("logs", "plan", "a", "-n", "1", "--json").document
    assert document == {"run": "plan", "tasks": [{"id": "a", "text": "two\n"}]}
    assert "Run plan has no task 'b'" in call("logs", "plan", "b").err


@pytest.mark.long
def test_logs_follows_a_run_through_the_shortening_of_its_output_until_it_stops(tmp_path: Path, forks: Forks) -> None:
    script = "echo first; while [ ! -e go ]; do sleep 0.01; done; seq 20000; while [ ! -e stop ]; do sleep 0.01; done"
    write_plan(tmp_path, [task("a", run=script), task("b", ["a"])], output_limit=20_000)
    devs = Devs(tmp_path, forks)
    run = devs.begin("run", "plan.json")
    log = devs.work / ".devs" / "output" / "a.txt"
    until(lambda: log.exists() and "first\n" in log.read_text())
    follower = devs.begin("logs", "plan.json", "-f", "a")
    until(lambda: "first\n" in devs.all_said)
    (devs.work / "go").touch()
    until(lambda: log.read_text().endswith("\n20000\n"))
    until(lambda: devs.said(follower).endswith("\n20000\n"))
    assert log.stat().st_size <= 20_000
    assert follower.is_alive()
    (devs.work / "stop").touch()
    devs.ends(run, 0)
    said = devs.ends(follower, 0)
    assert restored(said.encode().partition(b"\n")[2], b"first\n" + b"".join(b"%d\n" % n for n in range(1, 20001)))


@pytest.mark.long
def test_status_shows_the_last_line_of_what_runs(tmp_path: Path, forks: Forks) -> None:
    held = "echo 'compiling \\033[1m7 of 9'; while [ ! -e stop ]; do sleep 0.01; done"
    write_plan(tmp_path, [task("a", run=held)])
    devs = Devs(tmp_path, forks)
    run = devs.begin("run", "plan.json")

    def shown() -> str:
        said = devs.run("status", "plan.json")
        return said if "compiling" in said else ""

    until(lambda: (devs.work / ".devs" / "output" / "a.txt").exists())
    assert "\033" not in until(shown)
    (devs.work / "stop").touch()
    devs.ends(run, 0)
