"""``kill -9`` of programs that write to drawers: nothing acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import random
import signal
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from pausepoint import Engine
from tests.support.children import Child, child
from tests.support.loop import on_loop

KILLS = 3
TURNS = 15

WRITER = """
path, name, how = args
async with Engine(path, drives="none") as engine:
    drawer = engine.drawer("claude")

    async def turn(n, mine):
        if how == "twice":
            await drawer.append("log", [f"{name} {n}".encode()])
        await drawer.append("log", [f"{name} {n}".encode()], note=lambda old, now: b"%d" % (int(old or 0) + 1))
        await drawer.put_all({f"{name}/a": b"%d" % n, f"{name}/b": b"%d" % n}, if_version=mine)

    async def versions():
        return {key: each.version for key, each in (await drawer.values(f"{name}/")).items()}

    say("open")
    n = int(await heard())
    while True:
        if how == "early":
            say(n)
            await asyncio.sleep(0.02)
        await turn(n, await versions())
        if how != "early":
            say(n)
        n += 1
"""


def killed(running: Child, after: int, rng: random.Random) -> list[int]:
    """Kill a program some time after it has acknowledged so many turns. Return the turns that it has acknowledged."""
    said = [int(running.line()) for _ in range(after)]
    for _ in range(rng.randrange(2000)):  # somewhere in the next turn
        pass
    running.signal(signal.SIGKILL)
    assert running.ended() == -signal.SIGKILL, "the fault fired"
    with suppress(ValueError):  # what it had said before it died, and the line that the kill has cut
        while line := running.line():
            said.append(int(line))
    return said


async def verdict(path: Path, acknowledged: dict[str, int]) -> list[str]:
    """Return what is wrong with the drawer. ``acknowledged`` is the last turn of each program."""
    wrong: list[str] = []
    async with Engine(path, drives="none") as engine:
        drawer = engine.drawer("claude")
        entries = [each.decode().split() for each in await drawer.read("log") or []]
        values = await drawer.values()
        for name, last in acknowledged.items():
            turns = Counter(int(n) for who, n in entries if who == name)
            wrong += [f"{name} {n} is there {count} times" for n, count in turns.items() if count > 1]
            wrong += [f"{name} {n} is lost" for n in range(last + 1) if n not in turns]
            wrong += [f"{name} is at {n} and said {last}" for n in [max(turns, default=0)] if n > last + 1]
            a, b = values.get(f"{name}/a"), values.get(f"{name}/b")
            if a is None or b is None or a.data != b.data or int(a.data) < last:
                wrong.append(f"the values of {name} are {a} and {b} after turn {last}")
        (info,) = await drawer.streams()
        wrong += [] if info.note == b"%d" % len(entries) else [f"{info.note!r} does not count {len(entries)} entries"]
        wrong += [str(each) for each in (await engine.verify()).problems]
    return wrong


async def run(path: Path, how: str, kills: int) -> list[str]:
    """Kill two programs that write to one drawer, several times. Each continues where it was. Return what is wrong."""
    rng, last = random.Random(how), {"ann": -1, "ben": -1}
    for _ in range(kills):
        with ExitStack() as stack:
            programs = {name: stack.enter_context(child(WRITER, path, name, how)) for name in last}
            for running in programs.values():
                running.expect("open")
            for name, running in programs.items():
                running.tell(str(await following(path, name, last[name])))
            for name, running in programs.items():
                last[name] = killed(running, rng.randrange(1, TURNS), rng)[-1]
        if wrong := await verdict(path, last):
            return wrong
    return []


async def following(path: Path, name: str, last: int) -> int:
    """Return the turn after the last one that a program has made, whether or not it was acknowledged."""
    async with Engine(path, drives="none") as engine:
        entries = [each.decode().split() for each in await engine.drawer("claude").read("log") or []]
    return max([last, *(int(n) for who, n in entries if who == name)]) + 1


@pytest.mark.long
@on_loop
async def test_killed_programs_lose_and_double_nothing_in_a_drawer(tmp_path: Path) -> None:
    assert await run(tmp_path / "h.db", "sound", KILLS) == []


@pytest.mark.long
@pytest.mark.parametrize(("how", "what"), [("early", "is lost"), ("twice", "is there 2 times")])
@on_loop
async def test_a_program_that_acknowledges_early_or_repeats_itself_is_caught(
    tmp_path: Path, how: str, what: str
) -> None:
    assert any(what in each for each in await run(tmp_path / "h.db", how, KILLS))
