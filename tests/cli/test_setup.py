"""`init`, `demo` and `completion`; and what it costs to start a command at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.kit import plain, run
from tests.cli.samples import letters, project

# init


@pytest.mark.long
def test_init_makes_a_project_whose_example_runs(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"')
    done = run("init", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (done.code, told["kept"]) == (0, [])
    assert told["made"] == [".pausepoint/", "brief.py", "pyproject.toml"]
    settings = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert settings == {
        "project": {"name": "mine"},
        "tool": {"pausepoint": {"workflows": {"brief": "brief.py:brief"}}},
    }
    assert (tmp_path / ".pausepoint" / ".gitignore").read_text() == "*\n"
    assert told["next"] == "pausepoint run brief --topic octopus"
    ran = run(*told["next"].split()[1:], "--json", cwd=tmp_path)
    assert (ran.code, json.loads(ran.stdout)["status"]) == (0, "completed"), ran
    assert "octopus, habitat" in json.loads(ran.stdout)["state"]["draft"]


def test_init_overwrites_nothing_and_a_second_time_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "brief.py").write_text("mine")
    (tmp_path / "pyproject.toml").write_text("")
    first = run("init", cwd=tmp_path, tty=True)
    assert first.code == 0
    assert "created  .pausepoint/" in plain(first.stdout)
    assert "kept     brief.py: it already exists" in plain(first.stdout)
    assert ((tmp_path / "brief.py").read_text(), (tmp_path / "pyproject.toml").read_text()) == ("mine", "")
    second = run("init", cwd=tmp_path)
    assert (second.code, second.stdout.count("kept")) == (0, 3)


@pytest.mark.long
def test_init_in_an_empty_folder_makes_an_example_that_is_resumed_without_a_target(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    assert (tmp_path / "pyproject.toml").read_text() == '[tool.pausepoint.workflows]\nbrief = "brief.py:brief"\n'
    started = run("run", "brief", "--topic", "squid", "--paused", cwd=tmp_path)
    assert started.code == 3, started.stderr
    assert run("resume", cwd=tmp_path).code == 0


def test_init_leaves_a_broken_pyproject_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project")
    done = run("init", cwd=tmp_path)
    assert done.code == 2
    assert "pyproject.toml is not valid TOML" in done.stderr
    assert (tmp_path / "pyproject.toml").read_text() == "[project"


# demo


def test_the_demo_is_a_command(tmp_path: Path) -> None:
    """What it shows is tested where it is; here, that its options reach it."""
    (tmp_path / "taken").write_text("")
    done = run("demo", "--fast", "--store", "taken", cwd=tmp_path)
    assert done.code == 2
    assert "Cannot create a store in taken" in done.stderr
    assert "killed, resumed and paused" in run("demo", "--help", cwd=tmp_path).stdout


# completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script_and_where_to_put_it(tmp_path: Path, shell: str) -> None:
    done = run("completion", cwd=tmp_path, env={"SHELL": f"/usr/bin/{shell}"})
    assert (done.code, done.stderr) == (0, "")
    assert "_PAUSEPOINT_COMPLETE" in done.stdout
    assert f"pausepoint completion {shell}" in done.stdout.splitlines()[-1]


def test_completion_completes_commands_and_options(tmp_path: Path) -> None:
    def completed(words: str) -> set[str]:
        asked = {
            "_PAUSEPOINT_COMPLETE": "bash_complete",
            "COMP_WORDS": f"pausepoint {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        return {line.partition(",")[2] for line in run(cwd=tmp_path, env=asked).stdout.splitlines()}

    assert completed("ver") == {"verify"}
    assert "--keep-for" in completed("gc --k")
    assert run("completion", cwd=tmp_path, env={"SHELL": "/bin/csh"}).code == 2


# make


def test_make_demo_passes_options_on_and_its_help_fits_a_terminal() -> None:
    root = Path(__file__).resolve().parents[2]
    demo = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo", "ARGS=--keep"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert demo.stdout.rstrip().endswith("-m pausepoint.apps.demo --keep")
    told = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    assert "make demo" in told
    assert max(map(len, told.splitlines())) <= 80


# what it costs


# Every command in a process of its own, forked from one that has imported nothing but the table of commands.
MODULES = """
import json, os, sys
from pausepoint.cli.app import app

def modules(args):
    out, into = os.pipe()
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            code = app(args, standalone_mode=False)
        except BaseException as error:
            code = repr(error)
        os.write(into, json.dumps([code, sorted(sys.modules)]).encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as found:
        return json.loads(found.read())

print(json.dumps([modules(args) for args in json.loads(sys.argv[1])]))
"""
HEAVY = {"pydantic", "apsw", "msgspec", "rich", "pausepoint.engine.engine", "pausepoint.model.sessions"}
STRANGE = {"rich", "pytest", "hypothesis", "pausepoint.testing", "pausepoint.apps.demo", "opentelemetry", "jsonschema"}


def unmeasured() -> dict[str, str]:
    """The environment without a measurement of coverage, which imports modules of its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def imported(cwd: Path, *calls: list[str]) -> list[tuple[object, set[str]]]:
    """How each call ended, and what was imported by then."""
    words = [sys.executable, "-c", MODULES, json.dumps(calls)]
    done = subprocess.run(words, cwd=cwd, env=unmeasured(), capture_output=True, text=True, check=True)
    return [(code, set(found)) for code, found in json.loads(done.stdout)]


@pytest.mark.long
def test_help_of_any_command_imports_neither_the_engine_nor_what_draws(tmp_path: Path) -> None:
    from pausepoint.cli.app import COMMANDS

    calls = [["--help"], ["--version"], ["init"], ["completion", "bash"], *([name, "--help"] for name in COMMANDS)]
    found = imported(tmp_path, *calls)
    wrong = {" ".join(call): loaded & HEAVY for call, (_, loaded) in zip(calls, found, strict=True) if loaded & HEAVY}
    assert not wrong
    assert "click" in found[0][1]


MOST_MODULES = 440  # some interpreters load modules of their own, such as a sitecustomize
"""Processor time of a short command is import time, which only a quiet machine can measure. A module can be counted."""


@pytest.mark.long
def test_a_listing_and_a_completion_import_few_modules(tmp_path: Path) -> None:
    letters(project(tmp_path), ada="Ada")
    [(code, loaded)] = imported(tmp_path, ["ls"])
    assert code in (None, 0)
    assert len(loaded) < MOST_MODULES
    assert not loaded & {"pydantic", "ctypes", "email", "http", "unittest", "xml"}
    words = {"COMP_WORDS": "pausepoint show a", "COMP_CWORD": "2", "_PAUSEPOINT_COMPLETE": "bash_complete"}
    program = (
        "import sys\nfrom pausepoint.cli.app import app\n"
        "try: app(prog_name='pausepoint')\n"
        "except SystemExit: print('\\n', len(sys.modules), ' ', 'pydantic' in sys.modules, sep='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=unmeasured() | words,
        capture_output=True,
        text=True,
        check=True,
    )
    *items, said = done.stdout.split("\n")[:-1]
    assert "plain,ada" in "".join(items)
    count, pydantic = said.split(" ")
    assert (int(count) < MOST_MODULES, pydantic) == (True, "False")


@pytest.mark.long
def test_a_command_that_draws_nothing_imports_nothing_that_draws(tmp_path: Path) -> None:
    letters(project(tmp_path), ada="Ada")
    calls = [["ls"], ["status", "--json"], ["show", "ada"], ["events", "ada"], ["verify"], ["doctor"]]
    for call, (code, loaded) in zip(calls, imported(tmp_path, *calls), strict=True):
        assert code in (None, 0), (call, code)
        assert "apsw" in loaded, call
        assert not loaded & STRANGE, call
        if call[0] not in ("plan", "doctor"):
            assert "letter" not in loaded, f"{call} needs no code, and imported it"
