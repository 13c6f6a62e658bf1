"""What a shell offers: asked as bash, zsh and fish ask, without one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import run
from tests.cli.zoo import fill

Zoo = tuple[Path, dict[str, str]]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    return folder, fill(folder, "octopus", "fail", "wait", student="lunch")


def asked(shell: str, line: str, cwd: Path) -> str:
    """The answer to Tab at the end of a line."""
    words = line.split(" ")
    number = words[-1] if shell == "fish" else str(len(words) - 1)
    done = run(cwd=cwd, env={"_PAUSEPOINT_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": number})
    assert done.stderr == ""
    return done.stdout


def offered(line: str, cwd: Path) -> list[str]:
    return [each.partition(",")[2] for each in asked("bash", f"pausepoint {line}", cwd).splitlines() if each]


def test_ids_are_offered_the_last_that_moved_first(zoo: Zoo) -> None:
    folder, ids = zoo
    newest_first = ["student", ids["wait"], ids["fail"], ids["octopus"]]
    assert offered("show ", folder) == newest_first
    assert offered("show stu", folder) == ["student"]
    assert offered(f"export {ids['fail'][:4]}", folder) == [ids["fail"]]


def test_only_ids_are_offered_with_which_a_command_can_do_something(zoo: Zoo) -> None:
    folder, ids = zoo
    assert offered("resume ", folder) == ["student", ids["wait"], ids["fail"]]
    assert offered("cancel student ", folder) == ["student", ids["wait"], ids["fail"]]
    assert offered("watch ", folder) == [ids["wait"]]


def test_zsh_and_fish_say_how_a_session_stands_beside_its_id(zoo: Zoo) -> None:
    folder, ids = zoo
    kind, id, said = asked("zsh", "pausepoint resume student", folder).splitlines()
    assert (kind, id) == ("plain", "student")
    assert said.startswith("brief paused at research ")
    (line,) = asked("fish", f"pausepoint plan {ids['fail']}", folder).splitlines()
    assert line.startswith(f"plain,{ids['fail']}\tbrief failed at write ")


@pytest.mark.long
def test_workflows_targets_steps_and_statuses_are_offered(zoo: Zoo) -> None:
    folder, ids = zoo
    assert offered("ls --workflow b", folder) == ["brief"]
    assert offered("worker --workflow ", folder) == ["brief"]
    assert offered("run ", folder) == ["brief"]
    assert asked("bash", "pausepoint run other", folder) == "file,other\n", "what no workflow is called is a file"
    assert offered("run brief --at-step w", folder) == ["write"]
    assert "--topic" in offered("run brief --to", folder)
    assert offered(f"why {ids['fail']} ", folder) == ["research", "write", "review"]
    assert offered("rewind student --to re", folder) == ["research", "review"]
    assert offered("ls --status paus", folder) == ["pausing", "paused"]


def test_another_store_is_looked_at_if_the_line_names_it(zoo: Zoo, tmp_path: Path) -> None:
    folder, _ = zoo
    assert offered(f"show --store {folder / '.pausepoint/pausepoint.db'} stu", tmp_path) == ["student"]


def test_where_nothing_can_be_found_nothing_is_said_and_nothing_is_made(tmp_path: Path) -> None:
    assert offered("show ", tmp_path) == []
    assert offered("why nobody ", tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "broken.db").write_text("no database at all, and longer than a header of one hundred bytes " * 4)
    assert offered("show --store broken.db ", tmp_path) == []
