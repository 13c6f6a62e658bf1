"""An agent whose model gives a bad reply, for tests that go back to an operation."""

from typing import Any

from pausepoint import Context, Engine, Status, current, workflow
from pausepoint.engine.session import Session
from pausepoint.engine.spans import operations

CALLS: list[str] = []
REPLIES: dict[int, str] = {}
"""What the model says at its nth turn, instead of "tool n"."""


async def think(messages: list[str], ctx: Context) -> str:
    turn = len(messages) // 2
    CALLS.append(f"think {turn}")
    ctx.spend(usd=1)
    return REPLIES.get(turn, f"tool {turn}")


async def use(tool: str) -> str:
    CALLS.append(f"use {tool}")
    return f"{tool} is done, {current().idempotency_key}"


@workflow(events=["agent.began", "agent.replied"])
async def agent(turns: int, ctx: Context) -> list[str]:
    messages = ["begin"]
    ctx.emit("agent.began")
    for turn in range(turns):
        reply = await ctx.do(think, messages)
        ctx.emit("agent.replied", str(turn))
        if not reply.startswith("tool"):
            raise ValueError(f"cannot read {reply!r}")
        messages += [reply, await ctx.do(use, reply)]
    return messages


async def failed(engine: Engine) -> Session[Any, Any]:
    """Return a session whose third reply cannot be read, however often it is resumed."""
    REPLIES[2] = "nonsense"
    session = await engine.start(agent, turns=4, session_id="one")
    assert (await session.outcome()).status is Status.FAILED
    REPLIES.clear()
    CALLS.clear()
    await session.resume()
    assert (await session.outcome()).status is Status.FAILED
    assert CALLS == []
    return session


async def finished(session: Session[Any, Any]) -> list[str]:
    CALLS.clear()
    await session.resume()
    outcome = await session.outcome()
    assert outcome.status is Status.COMPLETED, outcome
    return list(CALLS)


AFTER = ["think 2", "use tool 2", "think 3", "use tool 3"]


async def number_of(engine: Engine, name: str, nth: int) -> int:
    return [each for each in await operations(engine, "one") if each.name == name][nth - 1].seq
