"""The public surface: what ``from pausepoint import …`` offers, and nothing by accident."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import pausepoint
from pausepoint import BlockingContext, Engine, Workflow, errors, step
from pausepoint.engine.session_verbs import SessionVerbs


def test_every_public_name_is_there_sorted_and_from_one_of_our_modules() -> None:
    names = pausepoint.__all__
    assert sorted(names, key=lambda name: (name[0].islower(), name)) == names
    assert len(names) == len(set(names))
    for name in names:
        assert getattr(pausepoint, name) is not None, name
    assert set(names) == set(dir(pausepoint))


def test_names_are_resolved_when_they_are_asked_for_and_only_then() -> None:
    program = (
        "import sys, pausepoint\n"
        "loaded = {name for name in sys.modules if name.startswith('pausepoint.')}\n"
        "assert loaded == {'pausepoint.lazy'}, loaded\n"
        "from pausepoint import Workflow\n"
        "assert 'pausepoint.definition.workflow' in sys.modules\n"
        "assert 'pausepoint.stores' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.long
def test_a_program_that_only_runs_pauses_and_resumes_sessions_does_not_load_the_rest() -> None:
    program = (
        "import asyncio, sys\n"
        "before = set(sys.modules)  # whoever measures this process may have imported things already\n"
        "from pydantic import BaseModel\n"
        "from pausepoint import Context, Engine, Status, Workflow, step\n"
        "class State(BaseModel):\n"
        "    text: str = ''\n"
        "@step(writes='text')\n"
        "async def write(ctx: Context) -> str:\n"
        "    return await ctx.do(str, 'done')\n"
        "async def main():\n"
        "    async with Engine(':memory:') as engine:\n"
        "        session = await engine.start(Workflow('one', state=State, steps=[write]), paused=True)\n"
        "        await session.resume()\n"
        "        outcome = await session.outcome()\n"
        "        assert ((await session.pause())[0].status, outcome.state.text) == (Status.COMPLETED, 'done')\n"
        "asyncio.run(main())\n"
        "names = 'cli log.diff testing engine.blocking engine.bundle engine.plans engine.verify'.split()\n"
        "rest = {f'pausepoint.{name}' for name in names}\n"
        "loaded = sorted((rest | {'difflib', 'html'}) & (set(sys.modules) - before))\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.long
@pytest.mark.parametrize("command", ["ls", "inbox", "pause"])
def test_a_command_that_only_looks_or_asks_to_stop_does_not_wait_for_pydantic(command: str, tmp_path: Path) -> None:
    class State(BaseModel):
        text: str = ""

    @step(writes="text")
    def write(ctx: BlockingContext) -> str:
        return ctx.ask("What?")

    with Engine(tmp_path / "s.db") as engine:
        engine.start(Workflow("one", state=State, steps=[write]), session_id="one").outcome()
    program = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from pausepoint.cli.app import app\n"
        f"app({[command, *(['one'] if command == 'pause' else []), '--store', 's.db']!r}, standalone_mode=False)\n"
        "heavy = ('pydantic.main', 'pydantic_core', 'opentelemetry', 'rich')\n"
        "loaded = [name for name in heavy if name in sys.modules and name not in before]\n"
        "assert not loaded and 'pausepoint.engine.control' in sys.modules, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert "one" in done.stdout


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Workflw'"):
        _ = pausepoint.Workflw
    with pytest.raises(ImportError):
        exec("from pausepoint import nothing_of_the_kind")


ROOMS = ("", ".artifacts", ".cli", ".codec", ".definition", ".engine", ".integrations", ".log", ".model", ".runtime",
         ".server", ".stores")  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_offers_the_names_that_it_lists(room: str) -> None:
    package = import_module(f"pausepoint{room}")
    assert sorted(package.__all__, key=lambda name: (name[0].islower(), name)) == package.__all__
    for name, home in package._HOMES.items():
        assert name in package.__all__
        assert getattr(import_module(f"{package.__name__}.{home}"), name) is getattr(package, name)
        assert not (Path(str(package.__file__)).parent / f"{name}.py").exists()  # a module would hide the name
    with pytest.raises(AttributeError, match=f"module 'pausepoint{room}' has no attribute 'nothing'"):
        _ = package.nothing


def test_no_name_is_offered_by_two_rooms() -> None:
    names = [name for room in ROOMS for name in import_module(f"pausepoint{room}").__all__]
    assert sorted(names) == sorted(set(names))


FORMER = (
    "Append Artifact At Batch BlockingContext BlockingEngine BlockingSession Chunk ChunkState Chunked Codec Context"
    " Detection Engine Event File MapFailed Merge Outcome Plan Question Replace Retry Scope Session SessionId"
    " SessionInfo Start Status Tool VersionFolders Workflow collect detect guard migrate program route run step"
)
"""The names that the package offered before it had rooms."""


def test_every_former_name_is_still_offered() -> None:
    offered = {name for room in ROOMS for name in import_module(f"pausepoint{room}").__all__}
    assert set(FORMER.split()) - offered == set()


ERRORS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.PausepointError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_keeps_its_message_and_fields_when_it_is_pickled(kind: type[errors.PausepointError]) -> None:
    error = kind("what happened; what to do", session_id="one", field="topic")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.fields) == (str(error), {"session_id": "one", "field": "topic"})
    assert vars(again)["session_id"] == "one"


def test_signals_are_no_errors() -> None:
    assert issubclass(errors.Signal, BaseException)
    assert not issubclass(errors.Signal, Exception)


def test_a_verb_has_the_signature_of_the_part_that_does_its_work() -> None:
    """A verb is written twice: with its documentation on `Engine` or `Session`, and with its work in a part.

    Parts that users see, such as `Engine.schedules`, have both.
    """
    engine = Engine(":memory:")
    names = [name for name in dir(engine._parts) if not name.startswith("_")]
    parts = [getattr(engine._parts, name) for name in names if not isinstance(getattr(Engine, name, None), property)]
    pairs = {}
    for part in parts:
        for name, work in inspect.getmembers(part, inspect.ismethod):
            if name.startswith("_"):
                continue
            if inspect.isfunction(verb := getattr(Engine, name, None)):
                pairs[name] = shape(work), shape(verb.__get__(engine))
            elif inspect.isfunction(verb := getattr(SessionVerbs, name, None)):
                pairs[name] = shape(work)[1:], shape(verb.__get__(engine))  # the part gets the session's id first
    assert len(pairs) > 60, sorted(pairs)
    assert {name: pair for name, pair in pairs.items() if pair[0] != pair[1]} == {}


def shape(verb: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(verb).parameters.values()]
