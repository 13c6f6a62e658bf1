"""Plans: what is wrong with one is told at once, with its line; and which commands wait for a yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pausepoint.apps.devs import read
from pausepoint.apps.devs.__main__ import main
from pausepoint.apps.devs.models import todo_of
from pausepoint.apps.devs.plan import MOST
from pausepoint.apps.devs.sample import SAMPLE
from pausepoint.apps.input import BadInput
from pausepoint.gate import restriction
from tests.apps.calls import Call, calling

call = calling(main)

TOML = '''\
agnets = 3
agents = "two"

[[tasks]]
id = "fetch"
run = """
if true
[[tasks]]
"""

[[tasks]]
id = "build"
needs = ["fetsh"]
run = "make"
timeout = -1

[[tasks]]
id = "build"
run = ["definitely-no-such-program"]

[[tasks]]
run = "true"
rnu = 1

[[tasks]]
id = "x"
needs = ["y"]
run = " "

[[tasks]]
id = "y"
needs = ["x"]
run = "true"

[[tasks]]
id = "../out"
run = "true"

[[tasks]]
id = "m"
write = "../notes.md"
prompt = "notes"

[[tasks]]
id = "n"
run = "true"
write = "notes.md"

[[tasks]]
id = "gone"
run = "no-such-program-either --now"
folder = "."

[[tasks]]
id = "away"
run = "true"
folder = "no/where"
'''
SAID = [
    "line 1: there is no key 'agnets'. Did you mean 'agents'?",
    "line 2: agents: Input should be a valid integer",
    "line 6: task 'fetch': run: the shell cannot parse it: end of file unexpected",
    "line 13: task 'build': needs 'fetsh', which is not a task. Did you mean 'fetch'?",
    "line 15: task 'build': timeout: Input should be greater than 0",
    "line 18: task 'build': the id occurs twice; give each task its own",
    "line 19: task 'build': run: there is no program 'definitely-no-such-program'",
    "line 21: task number 4: id is missing",
    "line 23: task number 4: there is no key 'rnu'. Did you mean 'run'?",
    "line 27: task 'x': these tasks need each other: x → y → x; remove one of the needs",
    "line 28: task 'x': run: the command is empty",
    "line 36: task '../out': id: '../out' is not a valid name",
    "line 41: task 'm': write: '../notes.md' is not inside the workspace",
    "line 44: task 'n': set exactly one of run (a command), write (a file for a model), python (a function) and",
    "line 51: task 'gone': run: there is no program 'no-such-program-either'",
    "line 57: task 'away': folder: ",
]


def refused(path: Path) -> list[str]:
    with pytest.raises(BadInput) as error:
        read(path)
    return str(error.value).splitlines()


def test_all_mistakes_of_a_plan_are_told_together_with_task_and_line(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(TOML)
    first, *told = refused(path)
    assert first == f"{path}: The plan has {len(SAID)} mistakes. Nothing was started."
    assert len(told) == len(SAID), told
    for line, said in zip(told, SAID, strict=True):
        assert line.strip().startswith(said)


def test_the_same_mistakes_have_their_lines_in_json(tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    tasks = [{"id": "a", "run": "true", "needs": ["b"]}, {"id": "a", "run": 3}, "no table"]
    path.write_text(json.dumps({"name": "x", "agent": 2, "tasks": tasks}, indent=1))
    text = path.read_text().splitlines()
    _, *told = refused(path)
    numbered = {line.strip().partition(": ")[2]: int(line.split()[1].strip(":")) for line in told}
    assert {said: text[number - 1].strip() for said, number in numbered.items()} == {
        "there is no key 'agent'. Did you mean 'agents'?": '"agent": 2,',
        "task 'a': needs 'b', which is not a task. Known: a.": '"needs": [',
        "task 'a': the id occurs twice; give each task its own": '"id": "a",',
        "task 'a': run: a command is a string for the shell, or a list of words": '"run": 3',
        "task number 3: a task must be a table": '"no table"',
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.toml", "tasks = [", "is not valid TOML: "),
        ("p.toml", "", "there are no tasks"),
        ("p.toml", "tasks = 3", "tasks must be a list"),
        ("p.json", "[]", "A plan must be a JSON object with the key tasks"),
        ("p.json", '{"tasks": [}', "is not valid JSON: Expecting value: line 1 column 12"),
        ("p.json", '{"tasks": [{"id": "a", "id": "b"}]}', "the key 'id' occurs twice"),
        ("p.toml", 'workspace = "nowhere"\n[[tasks]]\nid = "a"\nrun = "true"', "line 1: workspace: "),
        ("p.toml", '[safety]\nsame_eror = 1\n[[tasks]]\nid = "a"\nrun = "true"', "Did you mean 'same_error'?"),
        ("p.toml", 'tasks = [{id = "a", run = "true", needs = ["a"]}]', "task 'a': these tasks need each other: a → a"),
        ("p.toml", "\udcff", "is not UTF-8 text"),
        (
            "p.toml",
            '[[tasks]]\nid = "a"\nrun = "echo \\u0000"',
            "line 3: task 'a': run: it contains NUL or surrogate characters",
        ),
        (
            "p.json",
            '{"tasks": [{"id": "a", "run": ["\\ud800"]}]}',
            "task 'a': run: it contains NUL or surrogate characters",
        ),
        (
            "p.toml",
            '[[tasks]]\nid = "a"\nrun = "true"\nenv = {"A=B" = ""}',
            "env: 'A=B' is not a valid name for a variable",
        ),
        ("9.toml", '[[tasks]]\nid = "a"\nrun = "true"', "the file name '9' is not a valid name for the run; add"),
        ("p.toml", '[[tasks]]\nid = "-a"\nrun = "true"', "digits and _ - ., and start with a letter or digit"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_the_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert any(said in line for line in refused(path)), refused(path)


def test_a_missing_plan_is_refused_by_the_program_and_nothing_is_stored(here: Path, call: Call) -> None:
    (here / "site.toml").write_text(TOML)
    for args, said in ((("run", "gone.toml"), "gone.toml: No such file"), (("site.toml",), "16 mistakes")):
        done = call(*args)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
    assert not (here / ".pausepoint").exists()


def test_many_mistakes_are_counted_and_the_first_ones_told(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("\n".join(f'[[tasks]]\nid = "t{n}"\nrun = 1' for n in range(MOST + 9)))
    first, *told = refused(path)
    assert f"{MOST + 9} mistakes" in first
    assert told[-1].strip() == "… and 9 more"


def test_what_another_task_may_make_is_not_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        '[[tasks]]\nid = "install"\nrun = "true"\n[[tasks]]\nid = "use"\nneeds = ["install"]\n'
        'run = "a-program-that-comes-later"\nfolder = "later"\n[[tasks]]\nid = "shell"\nrun = "cd . && true"\n'
    )
    assert [todo.id for todo in read(path).todos] == ["install", "use", "shell"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.toml", '[[tasks]]\nid = "a"\nrun = "true"'), ("p.json", '{"tasks": [{"id": "a", "run": "true"}]}')],
)
def test_a_mark_that_some_editors_write_at_the_beginning_is_no_mistake(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8-sig")
    assert [todo.id for todo in read(tmp_path / name).todos] == ["a"]


def test_a_task_goes_through_the_store_unchanged() -> None:
    for todo in read(SAMPLE / "book.toml").todos:
        assert todo_of(todo.as_task()) == todo


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("rm -rf build", "rm"),
        ("cd x; /bin/rm y", "rm"),
        ("find . -name x | xargs rm", "rm"),
        ("sh -c 'rm x'", "rm"),
        (["sh", "-c", "git push origin"], "git push"),
        ("echo $(git push)", "git push"),
        ("git -C sub push", "git*push*"),
        ("A=1 git push\n", "git push"),
        ("cat <<'X'\nit's\nX\nrm y", "rm"),
    ],
)
def test_a_restricted_command_is_found_wherever_it_begins(command: str | list[str], pattern: str) -> None:
    assert restriction(command, ["nothing", pattern]) == pattern


@pytest.mark.parametrize("command", ["echo confirm", "git pull", "farm x", ["charm", "rmdir"]])
def test_other_commands_are_not_restricted(command: str | list[str]) -> None:
    assert restriction(command, ["rm", "git push"]) is None
