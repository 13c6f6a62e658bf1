"""`session.result()` waits until a session has ended."""

from __future__ import annotations

import asyncio
import re
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest

from pausepoint import BlockingContext, Context, Engine, run, workflow
from pausepoint.errors import InputConflict, NotFinished, VerbRefused
from pausepoint.testing import ManualClock
from tests.cli.kit import run as call
from tests.support.loop import on_loop
from tests.support.waits import until

HOUR = 3600.0


@workflow
async def letter(ctx: Context) -> str:
    words = await ctx.receive(str, timeout=HOUR)
    if words == "bad":
        raise ValueError("the words are bad")
    return words or "nothing came"


@on_loop
async def test_a_result_waits_until_the_time_limit_of_a_message_has_passed() -> None:
    clock = ManualClock()
    async with Engine(":memory:", workflows=[letter], clock=clock) as engine:
        session = await engine.start(letter)
        assert (await session.outcome()).status == "waiting"  # a person may be shown that it waits
        result = asyncio.create_task(session.result())
        clock.advance(HOUR + 1)
        assert await result == "nothing came"


@on_loop
async def test_a_result_waits_through_a_pause_and_a_message() -> None:
    async with Engine(":memory:", workflows=[letter]) as engine:
        session = await engine.start(letter)
        result = asyncio.create_task(session.result())
        await session.pause()
        assert (await session.outcome()).status == "paused"
        await session.send("hello")
        assert not result.done()
        await session.resume()
        assert await result == "hello"


@on_loop
async def test_a_result_of_a_failed_or_cancelled_session_raises_its_error() -> None:
    async with Engine(":memory:", workflows=[letter]) as engine:
        failing, cancelled = await engine.start(letter), await engine.start(letter)
        await failing.send("bad")
        with pytest.raises(NotFinished, match="failed: ValueError in letter: the words are bad") as failure:
            await failing.result()
        assert failure.value.status == "failed"
        await cancelled.cancel()
        with pytest.raises(NotFinished, match="was cancelled and has no result"):
            await cancelled.result()


@on_loop
async def test_a_result_with_a_time_limit_says_what_the_session_waits_for() -> None:
    async with Engine(":memory:", workflows=[letter]) as engine:
        session = await engine.start(letter)
        with pytest.raises(NotFinished, match="waits for a message"):
            await session.result(timeout=0.05)
        with pytest.raises(ValueError, match="until must be 'ended' or 'parked'"):
            await engine.session(session.id).outcome(until="later")  # type: ignore[arg-type]


def test_a_result_in_blocking_code(tmp_path: Path) -> None:
    with Engine(tmp_path / "p.db", workflows=[letter]) as engine:
        session = engine.start(letter)
        until(lambda: session.status() == "waiting")
        sender = threading.Thread(target=session.send, args=("hello",))
        sender.start()
        assert session.result() == "hello"
        sender.join()


@workflow
def inquiry(how: str, ctx: BlockingContext) -> str:
    if how == "fail" and not Path(ctx.session_id).exists():
        raise OSError("no file")
    if how == "spend":
        ctx.spend(usd=2)
        ctx.do(str, "more")
    if how == "decline":
        ctx.confirm("Pay?")
    return ctx.ask("Which?") if how == "ask" else "done"


@pytest.mark.long
def test_errors_after_run_name_run_and_commands_and_the_way_out_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def words(how: str, **options: Any) -> str:
        with pytest.raises(NotFinished) as refused:
            assert run(inquiry, store="my.db", session_id=how, how=how, **options).result
        assert "engine." not in str(refused.value)
        return str(refused.value)

    def type_(message: str, *more: str) -> None:
        (command,) = re.findall(r"`(.*?)`, then call run\(…, session_id='.*'\)", message)
        assert call(*shlex.split(command)[1:], *more, cwd=tmp_path).code == 0

    assert words("fail").endswith("OSError in inquiry: no file. Remove the cause, then retry the step with"
                                  " run(…, session_id='fail').")  # fmt: skip
    Path("fail").touch()
    assert run(inquiry, store="my.db", session_id="fail", how="fail").result == "done"
    assert words("spend", budget=1).endswith("Continue it with run(…, session_id='spend', budget=…).")
    assert run(inquiry, store="my.db", session_id="spend", how="spend", budget=9).result == "done"
    type_(words("ask"), "this one")
    assert run(inquiry, store="my.db", session_id="ask", how="ask").result == "this one"

    type_(words("decline"), "no")
    type_(words("decline"))
    type_(words("decline"), "yes")
    assert run(inquiry, store="my.db", session_id="decline", how="decline").result == "done"
    with Engine("my.db", workflows=[inquiry]) as engine:
        engine.start(inquiry, session_id="gone", paused=True, how="").cancel()
        engine.pause_all(reason="stop")
    with pytest.raises(VerbRefused, match=r"cancelled .* another session_id to run\(\), or rewind it with `.* my.db`"):
        run(inquiry, store="my.db", session_id="gone", how="")
    assert "is paused with everything else: stop." in words("late")
    type_(words("late"))
    assert run(inquiry, store="my.db", session_id="late", how="late").result == "done"


def test_a_session_with_other_input_is_refused_in_words_of_run(tmp_path: Path) -> None:
    run(inquiry, store=tmp_path / "p.db", session_id="x", how="")
    with pytest.raises(InputConflict, match=r"Pass another session_id to run\(\)") as refused:
        run(inquiry, store=tmp_path / "p.db", session_id="x", how="other")
    assert "engine." not in str(refused.value)
