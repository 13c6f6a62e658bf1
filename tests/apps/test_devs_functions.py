"""A task that is a Python function: found and checked before anything starts, durable between its operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pausepoint.apps.devs import read
from pausepoint.apps.devs.__main__ import main
from pausepoint.apps.input import BadInput
from tests.apps.calls import Call, calling
from tests.apps.devs_kit import lines, write_plan
from tests.apps.programs import Devs
from tests.support.forkserver import Forks
from tests.support.waits import until

call = calling(main)

MODULE = """
import threading
import time
from pathlib import Path

from pausepoint import BlockingContext, Context

HERE = Path(__file__).parent
VALUE = 3

def plain(text, times=1):
    assert threading.current_thread() is not threading.main_thread()
    return [text] * times

async def later(text: str) -> dict[str, str]:
    return {"text": text}

def note(n):
    with open(HERE / "began", "a") as file:
        file.write(f"note {n}\\n")
    while n == 2 and (HERE / "hold").exists():
        time.sleep(0.01)
    return n

async def counted(most: int, ctx: Context) -> int:
    return sum([await ctx.do(note, n) for n in range(most)])

def counted_in_thread(most: int, ctx: BlockingContext) -> int:
    return sum([ctx.do(note, n) for n in range(most)])

def broken():
    raise OSError("no disk")

def odd():
    return object()
"""


def plan(folder: Path, module: str, *tasks: dict[str, Any]) -> Path:
    path = write_plan(folder, list(tasks))
    (folder / "work" / f"{module}.py").write_text(MODULE)
    return path


def test_functions_are_called_with_their_arguments_and_their_results_are_kept(here: Path, call: Call) -> None:
    plan(
        here, "devs_plain", {"id": "a", "python": "devs_plain:plain", "arguments": {"text": "x", "times": 2}},
        {"id": "b", "python": "devs_plain:later", "arguments": {"text": "y"}, "needs": ["a"]},
        {"id": "c", "python": "devs_plain:counted", "arguments": {"most": 4}},
        {"id": "d", "python": "json:dumps", "arguments": {"obj": [1]}},
    )  # fmt: skip
    done = call("run", "plan.json", "--json")
    assert (done.code, done.last_document["counts"]) == (0, {"done": 4}), done.err
    assert lines(here, "began") == [f"note {n}" for n in range(4)]
    assert "work" not in call("status", "plan.json").err
    again = call("resume", "plan.json")
    assert "plan completed: 4 done" in again.out


def test_a_function_that_raises_or_returns_no_plain_value_fails_its_task_alone(here: Path, call: Call) -> None:
    plan(here, "devs_bad", {"id": "a", "python": "devs_bad:broken"}, {"id": "b", "python": "devs_bad:odd"})
    failed = call("run", "plan.json", "--json")
    notes = {each["id"]: each["note"] for each in failed.last_document["tasks"]}
    assert failed.code == 1
    assert notes["a"] == "OSError: no disk"
    assert "object" in notes["b"]


WRONG = [
    ("nowhere_at_all:f", {}, "'t': there is no module 'nowhere_at_all' in"),
    ("devs_wrong:plan", {"text": "x"}, "'t': devs_wrong has no function 'plan'. Did you mean 'plain'?"),
    ("devs_wrong:VALUE", {}, "'t': devs_wrong:VALUE is int, not a function"),
    ("devs_wrong:plain", {}, "'t': arguments: devs_wrong:plain does not accept them: missing a required"),
    ("devs_wrong:counted", {"most": 1, "least": 0}, "got an unexpected keyword argument 'least'"),
    ("devs_broken:f", {}, "'t': devs_broken cannot be imported: ZeroDivisionError: division by zero"),
    ("devs_hungry:f", {}, "'t': devs_hungry cannot be imported: No module named 'no_such_friend'"),
    ("devs_wrong", {}, "'t': python: 'devs_wrong' does not name a function; write module:function"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "said"), WRONG, ids=[each[0] for each in WRONG])
def test_mistakes_are_told_with_task_and_line_before_anything_starts(
    here: Path, call: Call, name: str, arguments: dict[str, Any], said: str
) -> None:
    first = {"id": "first", "run": "touch started"}
    path = plan(here, "devs_wrong", first, {"id": "t", "python": name, "arguments": arguments})
    (here / "work" / "devs_broken.py").write_text("1 / 0")
    (here / "work" / "devs_hungry.py").write_text("import no_such_friend")
    refused = call("run", "plan.json")
    assert refused.code == 2
    [line] = [line.strip() for line in refused.err.splitlines() if said in line]
    text = path.read_text().splitlines()
    assert text[int(line.split()[1].strip(":")) - 1].strip().startswith(('"python"', '"arguments"'))
    assert not (here / "work" / "started").exists()


def test_a_module_that_another_task_writes_is_found_when_its_turn_comes(here: Path, call: Call) -> None:
    make = "echo 'def f(): return 5' > devs_made.py"
    write_plan(here, [{"id": "make", "run": make}, {"id": "use", "python": "devs_made:f", "needs": ["make"]}])
    assert call("run", "plan.json").code == 0


def test_keys_that_do_not_belong_to_a_function_are_refused(here: Path) -> None:
    path = plan(here, "devs_keys", {"id": "a", "python": "devs_keys:broken", "timeout": 3.0, "env": {"A": "b"}})
    with pytest.raises(BadInput, match="a task with python runs no commands; remove env and timeout"):
        read(path)


@pytest.mark.long
@pytest.mark.parametrize("function", ["counted", "counted_in_thread"])
@pytest.mark.parametrize("way", ["pause", "kill"])
def test_a_function_stops_between_its_operations_and_repeats_none(
    tmp_path: Path, forks: Forks, way: str, function: str
) -> None:
    task = {"id": "a", "python": f"devs_long:{function}", "arguments": {"most": 5}}
    plan(tmp_path, "devs_long", task)
    devs = Devs(tmp_path, forks)
    held = devs.work / "hold"
    held.touch()
    child = devs.begin("run", "plan.json")
    until(lambda: len(lines(tmp_path, "began")) == 3)
    if way == "pause":
        devs.run("pause", "plan.json")
        held.unlink()
        devs.ends(child, 3)
        assert lines(tmp_path, "began") == [f"note {n}" for n in range(3)], "it stops before its next operation"
    else:
        devs.kill(child)
        held.unlink()
    devs.run("resume", "plan.json")
    again = ["note 2"] if way == "kill" else []
    assert lines(tmp_path, "began") == [*(f"note {n}" for n in range(3)), *again, "note 3", "note 4"]
