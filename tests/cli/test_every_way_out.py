"""Every command that the command line prints is executed, and each works. A new one without a scene fails the test."""

from __future__ import annotations

import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint import Engine
from pausepoint.cli import context, drive, findings
from pausepoint.cli.commands import doctor, redact
from pausepoint.cli.console import Output
from pausepoint.cli.context import ADD, Cli
from tests.apps.test_planner_program import (
    test_a_session_is_made_filled_run_replanned_saved_and_ended_step_by_step as planned_step_by_step,
)
from tests.cli import test_approvals, test_dev, test_mcp, test_program, test_show, ways
from tests.cli.kit import run
from tests.cli.samples import STORE
from tests.cli.scenes import FILLED, SCENES, WORKS, Scene, ended, healed, project, topics, workflows
from tests.cli.ways import Site
from tests.support.folders import scratch
from tests.support.loop import PATIENCE

ELSEWHERE = {
    Site("context", "Cli.check_code", "show"): test_program.test_a_session_of_another_programs_workflow_is_left_alone,
    Site("ways", "_named_commands", "*"): planned_step_by_step,
    Site("commands.inbox", "_tell_approvals", "answer"): test_approvals.test_one_command_shows_all_of_a_call,
    Site("commands.dev", "_Dev._announce", "ls"): test_dev.test_everything_starts_stops_and_starts_again_with_its_data,
    Site("commands.show", "_show_operations", "show"): test_show.test_show_lists_what_operations_received_and_returned,
    Site("commands.show", "_show_conversation", "show"): test_show.test_show_tells_a_session_as_a_conversation,
    Site("commands.mcp", "_settings.command", "*"): test_mcp.test_the_commands_that_the_tools_name_work,
    Site("commands.mcp", "_settings.command", "resume"): test_mcp.test_the_commands_that_the_tools_name_work,
    Site("commands.mcp", "_settings", "resume"): test_mcp.test_the_commands_that_the_tools_name_work,
}
"""Sites whose commands another test executes: that test."""


class Followed:
    """Runs scenes, and executes the commands that they print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sites: set[Site] = set()
        self.wrong: list[str] = []
        self.copies = 0

    def play(self, name: str, scene: Scene) -> None:
        """Prepare a scene, and follow what its commands print for the first time."""
        stage = self._new()
        stage.mkdir()
        scene.prepare(stage)
        for line in scene.says:
            here = self._copy(stage)
            question = here / "question"
            words = shlex.split(line.replace("QUESTION", question.read_text() if question.exists() else ""))
            _, text = ended(here, words, here / "ways")
            self.follow_all(f"{name}: {line}", here, scene, text)

    def follow_all(self, where: str, here: Path, scene: Scene, text: str) -> None:
        """Execute the commands that were recorded and printed, of each site the first ones."""
        for site, command in ways.made(here / "ways"):
            for full in ways.printed(text, command) if site not in self.sites else []:
                self.sites.add(site)
                self.follow(where, here, scene, full, text)

    def follow(self, where: str, stage: Path, scene: Scene, full: str, text: str) -> None:
        """Execute a printed command in a copy of the folder."""
        here = self._copy(stage)
        scene.heal(here)
        words = [FILLED.get(word, word) for word in shlex.split(full)]
        if words[0] == "python":
            code, said = run(*words[1:], cwd=here, program=())[:2]
        else:
            line = next(line for line in text.splitlines() if full in line)
            added = ["--target", scene.target] if ADD in line else []
            code, said = ended(here, [*_completed(words[1:]), *added])
        self.judge(where, full, code, said, scene.codes.get(words[1], 0))

    def judge(self, where: str, full: str, code: int, said: str, allowed: int = 0) -> None:
        if code not in (*WORKS, allowed):
            self.wrong.append(f"{where}\n  said {full!r}, which ended with {code}:\n{said}")

    def beside(self, line: str) -> None:
        """Follow what a command prints about a session that another process drives."""
        with driven(self._new()) as here:
            done = run(*shlex.split(line), cwd=here, env={ways.RECORD: str(here / "ways")})
            text, found = done.stdout + done.stderr, ways.made(here / "ways")
        for site, command in found:
            for full in ways.printed(text, command) if site not in self.sites else []:
                self.sites.add(site)
                with driven(self._new(), lasts=0.3) as here:
                    code, *said = run(*shlex.split(full)[1:], cwd=here)
                self.judge(f"beside: {line}", full, code, "".join(said))

    def inside(self, line: str, scene: Scene, patch: Callable[[pytest.MonkeyPatch], None]) -> None:
        """Follow what a command prints under conditions that only this process can make."""
        stage = self._new()
        stage.mkdir()
        scene.prepare(stage)
        with pytest.MonkeyPatch.context() as patched:
            patch(patched)
            _, text = ended(stage, shlex.split(line), stage / "ways")
        self.follow_all(f"inside: {line}", stage, scene, text)

    def _new(self) -> Path:
        self.copies += 1
        return self.folder / str(self.copies)

    def _copy(self, folder: Path) -> Path:
        """Copy a folder. If a process that was started in it closes the database meanwhile, copy it again."""
        while True:
            try:
                return Path(shutil.copytree(folder, self._new()))
            except shutil.Error as exc:
                if not all("No such file" in why for *_, why in exc.args[0]):
                    raise


@contextmanager
def driven(folder: Path, lasts: float = PATIENCE) -> Iterator[Path]:
    """A folder with a session that an engine of this process drives, until ``lasts`` seconds have passed."""
    folder.mkdir()
    job, _ = workflows(project(folder))
    ends = threading.Timer(lasts, (folder / "go").touch)
    with chdir(folder), Engine(folder / STORE, workflows=[job]) as engine:
        session = engine.start(job, session_id="h1", topic="hold")
        while str(session.status()) != "running":
            time.sleep(0.01)
        ends.start()
        yield folder
        ends.cancel()
        (folder / "go").touch()


def little_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(findings, "LITTLE", 2**62)


def no_ways(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor, "with_commands", lambda *_: "")


def not_erased(patch: pytest.MonkeyPatch) -> None:
    real = redact._redact

    async def left(*args: Any) -> tuple[str, Any]:
        session_id, found = await real(*args)
        return session_id, replace(found, erased=False)

    patch.setattr(redact, "_redact", left)


def interrupted_watcher(patch: pytest.MonkeyPatch) -> None:
    """Ctrl+C while another process drives the session."""
    real = drive.DrivenSession._drive_until_stop

    async def stopped(*args: Any) -> int:
        await real(*args)
        raise KeyboardInterrupt

    patch.setattr(drive.DrivenSession, "_drive_until_stop", stopped)
    patch.setattr(drive, "_runs_elsewhere", lambda _: True)


def at_a_terminal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Output, "terminal", property(lambda _: True, lambda *_: None), raising=False)
    patch.setattr(Output, "width", property(lambda _: 80, lambda *_: None), raising=False)


BESIDE = ("show h1", "resume h1", "edit h1 --set topic=x", "rewind h1 --to begin --dry-run")
"""Commands about a session that another process drives."""

INSIDE = {
    "doctor": (SCENES["an empty store"], little_room),
    "doctor --target job.py:job": (SCENES["changed code"], no_ways),
    "redact 1 --field text": (Scene(topics("")), not_erased),
    "show fail1": (Scene(topics("fail")), at_a_terminal),
    "resume ask1": (Scene(topics("ask")), interrupted_watcher),
    "pause --all": (SCENES["a gate"], lambda _: None),
}
"""Commands whose conditions only this process can make, or only the folder that was prepared: a gate knows its path."""


def _completed(words: list[str]) -> list[str]:
    """Return a command with what it would ask a person for, and so that it ends."""
    match words:
        case ["answer", name, *options] if "--later" not in options:
            return ["answer", name, "formal", *options]
        case ["worker", *options]:
            return ["worker", "--once", *options]
        case ["gate", "serve", *_]:
            return ["gate", "--help"]  # it runs until it is stopped; tests of the gate do that
        case ["gate", "install" | "uninstall", *_]:
            return [*words, "--yes"]
    return words


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.mark.long
def test_every_command_that_is_printed_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "PICK_UP_LOOKS", 1)  # no other process is there to pick a session up
    followed = Followed(folder)
    for name, scene in SCENES.items():
        followed.play(name, scene)
    for line in BESIDE:
        followed.beside(line)
    for line, (scene, patch) in INSIDE.items():
        followed.inside(line, scene, patch)
    assert not followed.wrong, "\n".join(followed.wrong)
    missing = {
        site for site in ways.sites() - ELSEWHERE.keys() if not any(is_at(site, each) for each in followed.sites)
    }
    assert not missing, f"Add a scene in which these commands are printed: {sorted(missing)}"


def is_at(site: Site, followed: Site) -> bool:
    return site[:2] == followed[:2] and site.verb in (followed.verb, "*")


@pytest.mark.long
def test_messages_name_only_options_that_commands_have() -> None:
    assert list(ways.wrong_options()) == []


@pytest.mark.long
def test_commands_are_printed_through_the_doors_only() -> None:
    assert list(ways.written()) == []


@pytest.mark.parametrize("source", ['f"{NAME} resume {x}"', '"or `pausepoint gc --apply`"'])
def test_a_command_beside_the_doors_is_found(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.py").write_text(f"""def hint(x):\n    'Print: pausepoint ls.'\n    print({source})\n""")
    monkeypatch.setattr(ways, "ROOT", tmp_path)
    (found,) = ways.written()
    assert found.startswith("new.py: ")


def test_a_new_site_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["def hint(cli, info, verb):", "    cli.out.note(cli.command('edit', info.id))", "    cli.command(verb)"]
    (tmp_path / "new.py").write_text("\n".join([*lines, "    cli.resume_line(info), command_line('ls')"]))
    monkeypatch.setattr(ways, "ROOT", tmp_path)
    assert ways.sites() == {Site("new", "hint", verb) for verb in ("edit", "*", "resume", "ls")}


@pytest.mark.parametrize("words", [["--target", "TARGET"], ["--store", "elsewhere.db"], ["--force"]])
def test_a_way_out_that_does_not_work_is_caught(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cli, "store_words", lambda *_: words)
    followed = Followed(tmp_path)
    followed.play("broken", Scene(topics("fail"), ("show fail1",), healed))
    assert "pausepoint resume fail1" in followed.wrong[0]
