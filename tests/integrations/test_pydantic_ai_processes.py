"""The agent of docs/pydantic-ai.md in real processes: paused, killed, answered from outside. Effects are counted."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Context, testing, workflow
from tests.docs.programs import NEVER, Folder, Program
from tests.integrations.scripted_agent import Script, asked, operations
from tests.support.loop import PATIENCE, on_loop

PAUSEPOINT = ("-m", "pausepoint")
START = (*PAUSEPOINT, "run", "concierge.py", "--task", "Book a hotel.", "--session-id", "trip")
RESUME = (*PAUSEPOINT, "resume", "trip", "--target", "concierge.py")
LISBON, PORTO, STAY = "hotels: find Lisbon", "hotels: find Porto", "hotels: 2 nights, Hotel Astoria in Lisbon"
RESULT = (
    "I compared Hotel Astoria in Lisbon: 120 euros a night and Hotel Astoria in Porto: 120 euros a night."
    " The booking: done, 2 nights, Hotel Astoria in Lisbon."
)


def calls(*printed: list[str]) -> Counter[str]:
    """Count the calls of the service, in all processes."""
    return Counter(line for lines in printed for line in lines if line.startswith("hotels: "))


def answer(folder: Folder) -> None:
    """Answer the question of the session, in another process than its own."""
    with folder.desk() as desk:
        [question] = desk.questions()
        assert (question.key, question.payload["tool"]) == ("concierge.1/stay", "book")
        desk.answer(question.id, True, by="ann")


def ended(folder: Folder) -> None:
    """Check what a session that was not disturbed would have, too."""
    with folder.desk() as desk:
        info = desk.session("trip").info()
        assert (info.status, desk.session("trip").stored().values["result"]) == ("completed", RESULT)
        assert info.spent_operations == 7  # three requests, two searches, one question, one booking
        assert info.spent_tokens == 278
    assert folder.orders("hotels") == [STAY.removeprefix("hotels: ")]


def until_stored(folder: Folder, program: Program, count: int) -> None:
    """Wait until the session has stored this many operations."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert program.job.is_alive(), program.printed()
        with folder.desk() as desk:
            if desk.session("trip").info().spent_operations == count:
                return
        time.sleep(0.02)
    raise AssertionError(f"the session never had {count} operations")


@pytest.mark.long
def test_an_agent_is_paused_between_its_calls_and_answered_by_another_process(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    gate = folder.gate()
    with folder.running(*START) as program:
        program.until(LISBON)
        program.until(PORTO)
        with folder.desk() as desk:
            assert desk.session("trip").pause(reason="lunch")[0].status == "pausing"
        gate.touch()
        first = program.lines()
    with folder.desk() as desk:
        paused = desk.session("trip").info()
        assert (paused.status, paused.spent_operations) == ("paused", 3)  # the request, and both calls in progress
    second = folder.python(*RESUME)
    answer(folder)
    third = folder.python(*RESUME)
    assert calls(first, second, third) == {LISBON: 1, PORTO: 1, STAY: 1}
    ended(folder)


def killed_in_porto(folder: Folder) -> list[str]:
    """Kill the agent while one of two parallel calls is in progress. Return what this run printed."""
    folder.replace("concierge.py", "hotels.find(city)", "hotels.find(city, takes=3600 * (city == 'Porto'))")
    folder.replace("stand_in.py", "find(self, city: str)", "find(self, city: str, takes: float)")
    folder.replace("stand_in.py", 'TAKES)\n        return f"Hotel', 'takes)\n        return f"Hotel')
    with folder.running(*START) as program:
        program.until(PORTO)
        until_stored(folder, program, 2)  # the request and the call for Lisbon
        program.killed()
        printed = program.printed()
    folder.set()
    folder.replace("concierge.py", "hotels.find(city, takes=3600 * (city == 'Porto'))", "hotels.find(city)")
    return printed


@pytest.mark.long
def test_a_kill_repeats_the_call_in_progress_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    first = killed_in_porto(folder)
    second = folder.python(*RESUME)
    assert calls(first) == {LISBON: 1, PORTO: 1}
    assert calls(second) == {PORTO: 1}
    answer(folder)
    folder.set(takes=NEVER)
    with folder.running(*RESUME) as program:
        program.until(STAY)
        program.killed()
        third = program.printed()
    folder.set()
    assert calls(third, folder.python(*RESUME)) == {STAY: 2}  # the service knows the key, and books once
    ended(folder)


@pytest.mark.long
def test_a_tool_that_is_no_operation_is_repeated(tmp_path: Path) -> None:
    """The broken twin: without its operation, the call that had ended runs again."""
    folder = Folder(tmp_path)
    folder.replace("concierge.py", "@agent.tool_plain\n", '@agent.tool_plain(metadata={"pausepoint": False})\n')
    folder.set(takes=NEVER)
    with folder.running(*START) as program:
        program.until(PORTO)
        until_stored(folder, program, 1)
        program.killed()
    folder.set()
    assert calls(folder.python(*RESUME)) == {LISBON: 1, PORTO: 1}


SERVER = """
import os, sys
from pathlib import Path
from mcp.server import MCPServer

server = MCPServer("shop", instructions="Prices are in cents.")

@server.tool()
def charge(cents: int) -> str:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()} {cents}\\n")
    return f"charged {cents}"

server.run("stdio")
"""


@on_loop
async def test_calls_of_a_real_mcp_server_are_operations(tmp_path: Path) -> None:
    """The server is a process that speaks MCP over its standard streams. Each run of the step has its own."""
    pytest.importorskip("fastmcp", reason="pydantic-ai calls MCP servers with fastmcp-slim[client]")
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    (tmp_path / "server.py").write_text(SERVER)
    charged = tmp_path / "charged"
    program = StdioTransport(sys.executable, [str(tmp_path / "server.py"), str(charged)], keep_alive=False)
    shop: Any = MCPToolset(program, id="shop", include_instructions=True, init_timeout=PATIENCE)
    script = Script([[("charge", {"cents": 5})], [("look", {})], [("charge", {"cents": 7}), ("charge", {"cents": 9})]])
    agent = script.agent(toolsets=[shop])

    @agent.tool_plain(requires_approval=True)
    def look() -> str:
        return "seen"

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("charge")).output

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert list(await asked(session)) == ["biller.1/look-10"]
        await session.answer(True)
        assert (await session.outcome()).result == "charged 5, seen, charged 7, charged 9"
        names = [id.rpartition("[")[0] for id in await operations(session)]
    servers = [line.split() for line in charged.read_text().splitlines()]
    assert sorted(cents for _, cents in servers) == ["5", "7", "9"]
    assert len({pid for pid, _ in servers}) == 2  # one before the question, one after it
    assert Counter(names) == {
        "/biller__mcp_server__shop.get_tools": 1,
        "/biller__mcp_server__shop.get_instructions": 4,
        "/biller__mcp_server__shop.call_tool:charge": 3,
        "/biller__model.request": 4,
        "/biller__function_toolset__<agent>.call_tool:look": 1,
        "/confirm": 1,
    }
