"""A handle with an owner: every verb checks the owner, in its own transaction."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, Engine, workflow
from pausepoint.engine.session import Session
from pausepoint.errors import StateRefused, WrongOwner
from pausepoint.model.ids import OwnedId
from tests.support.loop import on_loop


@workflow
async def letter(topic: str, ctx: Context) -> str:
    return str(await ctx.ask(f"Send the {topic}?"))


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "send": ("hello",), "answer": ("yes",), "artifact": ("letter.md",), "edit": ({"topic": "bill"},),
    "plan_edit": ({"topic": "bill"},), "rewind": ("letter",), "plan_rewind": ("letter",), "diff": (1,),
    "emit": ("note.made",),
}  # fmt: skip
KEYWORDS: dict[str, dict[str, Any]] = {"redact": {"seq": 1}}
WITHOUT_CHECK = {"files"}  # a property; the test below calls its verbs

VERBS = sorted(
    name for name, value in vars(Session).items() if not name.startswith("_") and name not in WITHOUT_CHECK
)  # fmt: skip


async def stored(engine: Engine) -> list[Any]:
    infos = [info for info in await engine.sessions() if info.session_id == "mine"]
    return [*infos, *[event async for event in engine.session("mine").events()]]


async def taken_over(engine: Engine) -> Session[Any]:
    """Return Bob's handle on a session that was removed since, and whose id Ann has taken."""
    await (await engine.start(letter, session_id="mine", owner="bob", topic="letter")).outcome()
    handle = engine.session("mine", owner="bob")
    await engine.session("mine").cancel()
    await engine.session("mine").remove()
    await (await engine.start(letter, session_id="mine", owner="ann", topic="letter")).outcome()
    return handle


async def call(session: Session[Any], verb: str) -> None:
    result = getattr(session, verb)(*ARGUMENTS.get(verb, ()), **KEYWORDS.get(verb, {}))
    if isinstance(result, AsyncIterator):
        await anext(result)
    elif inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("verb", VERBS)
@on_loop
async def test_every_verb_of_a_handle_checks_the_owner(verb: str) -> None:
    async with Engine(":memory:") as engine:
        bobs = await taken_over(engine)
        before = await stored(engine)
        with pytest.raises(WrongOwner, match=r"Session 'mine' belongs to 'ann', not to 'bob'\. Use it as its owner\."):
            await call(bobs, verb)
        assert await stored(engine) == before


@on_loop
async def test_files_of_a_handle_check_the_owner(tmp_path: Path) -> None:
    async with Engine(tmp_path / "s.db") as engine:
        bobs = await taken_over(engine)
        (tmp_path / "a.txt").write_text("a")
        with pytest.raises(WrongOwner):
            await bobs.files.add(tmp_path / "a.txt")
        with pytest.raises(WrongOwner):
            await bobs.files.list()


@on_loop
async def test_the_owner_can_use_every_kind_of_verb() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(letter, session_id="mine", owner="ann", topic="letter")).outcome()
        anns = engine.session("mine", letter, owner="ann")
        assert (anns.owner, anns.id, (await anns.info()).session_id) == ("ann", "mine", "mine")
        assert type((await anns.info()).session_id) is str
        await anns.pause("lunch")
        fork = await anns.fork(session_id="copy", paused=True)
        assert (fork.owner, (await fork.info()).owner) == ("ann", "ann")
        await anns.resume()
        assert (await anns.answer("yes")).session_id == "mine"
        assert (await anns.outcome()).result == "yes"
        await anns.remove()


@on_loop
async def test_a_handle_is_refused_to_another_owner_and_open_if_there_is_none() -> None:
    async with Engine(":memory:") as engine:
        await engine.start(letter, session_id="mine", owner="ann", paused=True, topic="letter")
        await engine.start(letter, session_id="free", paused=True, topic="letter")
        with pytest.raises(WrongOwner):
            await engine.session("mine", owner="bob").info()
        assert (await engine.session("free", owner="bob").status()).value == "paused"
        bobs = engine.session("free", owner="bob")
        with pytest.raises(WrongOwner):
            await bobs.diff(other="mine")


def test_the_blocking_handle_checks_the_owner_too() -> None:
    with Engine(":memory:") as engine:
        engine.start(letter, session_id="mine", owner="ann", paused=True, topic="letter")
        with pytest.raises(WrongOwner):
            engine.session("mine", owner="bob").info()
        anns = engine.session("mine", owner="ann")
        assert anns.pause("lunch")[0].status.value == "paused"


@on_loop
async def test_a_message_that_starts_a_session_needs_a_workflow_and_fields_that_its_input_has() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(letter, session_id="mine", owner="ann", topic="letter")).outcome()
        before = await stored(engine)
        with pytest.raises(TypeError, match=r"needs the workflow.*engine\.session\('new', workflow\)"):
            await engine.session("new").send("hello", start={"topic": "letter"})
        with pytest.raises(TypeError, match=r"has no field 'topci'\. Did you mean 'topic'\?"):
            await engine.session("mine", letter).send("hello", start={"topci": "letter"})
        with pytest.raises(WrongOwner):
            await engine.session("mine", letter, owner="bob").send("hello", start={"topic": "letter"})
        assert await stored(engine) == before
        await engine.session("anns", letter, owner="ann").send("hello", start={"topic": "letter"})
        assert (await engine.session("anns").info()).owner == "ann"


@pytest.mark.parametrize("verb", ["edit", "rewind", "plan_edit", "plan_rewind", "plan_fork"])
@on_loop
async def test_an_owner_is_no_field_of_the_state_that_a_verb_would_drop(verb: str) -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(letter, session_id="mine", owner="ann", topic="letter")).outcome()
        before = await stored(engine)
        with pytest.raises((StateRefused, TypeError), match="owner"):
            await getattr(engine.session("mine"), verb)(*([] if "rewind" not in verb else ["letter"]), owner="bob")
        assert await stored(engine) == before


def test_an_id_with_an_owner_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(OwnedId("mine", "ann")))
    assert (copy, copy.owner, type(copy)) == ("mine", "ann", OwnedId)
