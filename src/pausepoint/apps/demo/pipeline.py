"""The demo's workflow: a short report on prime numbers.

Every number and every word in the report is computed. The pace and the prices are simulated: each piece of work waits
as if for a model's answer.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, step

SPANS, WIDTH = 8, 25_000
PRICES = {
    "outline": Decimal("0.05"),
    "survey": Decimal("0.12"),
    "compare": Decimal("0.04"),
    "verify": Decimal("0.06"),
    "draft": Decimal("0.15"),
    "review": Decimal("0.08"),
    "publish": Decimal("0.02"),
}


class Desk:
    """Settings of a worker process: how long a piece of work waits, and the file in which calls are counted."""

    pace = 0.0
    calls: Path | None = None


class Finding(BaseModel):
    """The result of surveying one span of numbers."""

    start: int
    primes: int
    gap: int
    gap_after: int


class Report(BaseModel):
    """The state of the workflow. Each step adds its results for the steps after it."""

    upto: int = SPANS * WIDTH
    spans: list[int] = []
    findings: list[Finding] = []
    total: int = 0
    widest: Finding | None = None
    recount: int = 0
    sections: list[str] = []
    words: int = 0
    text: str = ""


async def work(ctx: Context, piece: object = "") -> None:
    """Do one piece of work: count the call, wait, and spend its price."""
    if Desk.calls is not None:
        line = f"{ctx.step} {piece}".strip() + f"\t{os.getpid()}\n"
        with Desk.calls.open("a") as file:
            file.write(line)
    await asyncio.sleep(Desk.pace)
    ctx.spend(usd=PRICES[ctx.step])


def primes_below(limit: int) -> list[int]:
    """Return the primes below a limit, using a sieve.

    >>> primes_below(12)
    [2, 3, 5, 7, 11]
    """
    marks = bytearray([1]) * limit
    marks[:2] = bytes(2)
    for number in range(2, math.isqrt(limit - 1) + 1):
        if marks[number]:
            marks[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return [number for number in range(limit) if marks[number]]


@step(writes="spans")
async def outline(upto: int, ctx: Context) -> list[int]:
    """List the spans to survey."""
    await work(ctx)
    return list(range(0, upto, WIDTH))


async def look(start: int, ctx: Context) -> Finding:
    """Survey one span."""
    await work(ctx, start)
    primes = [prime for prime in primes_below(start + WIDTH) if prime >= start]
    gap, after = max((after - before, before) for before, after in pairwise(primes))
    return Finding(start=start, primes=len(primes), gap=gap, gap_after=after)


@step(writes="findings")
async def survey(spans: list[int], ctx: Context) -> list[Finding]:
    """Survey all spans, two at a time. Each result is kept as soon as it is finished."""
    return await ctx.map(look, spans, concurrency=2)


@step(writes=["total", "widest"])
async def compare(findings: list[Finding], ctx: Context) -> Mapping[str, object]:
    """Add up the primes and find the widest gap."""
    await work(ctx)
    return {
        "total": sum(finding.primes for finding in findings),
        "widest": max(findings, key=lambda finding: finding.gap),
    }


@step(writes="recount")
async def verify(upto: int, ctx: Context) -> int:
    """Count the primes a second time, in another way."""
    await work(ctx)
    return len(primes_below(upto))


def opening(state: Report) -> str:
    """Say how many primes there are."""
    share = state.total / state.upto
    return f"Below {state.upto:,} there are {state.total:,} primes, {share:.1%} of all numbers."


def thinning(state: Report) -> str:
    """Say how primes get rarer."""
    first, last = state.findings[0], state.findings[-1]
    return f"They thin out: {first.primes:,} in the first {WIDTH:,} numbers, {last.primes:,} in the last {WIDTH:,}."


def gaps(state: Report) -> str:
    """Say where primes are far apart."""
    widest = state.widest
    assert widest is not None
    end = widest.gap_after + widest.gap
    return f"The widest gap within a span is {widest.gap}: no prime follows {widest.gap_after:,} before {end:,}."


def estimate(state: Report) -> str:
    """Compare the count with the prime number theorem."""
    expected = state.upto / math.log(state.upto)
    return f"x / ln x expects {expected:,.0f}, which is {abs(state.total - expected) / state.total:.1%} off."


SECTIONS: dict[str, Callable[[Report], str]] = {
    section.__name__: section for section in (opening, thinning, gaps, estimate)
}


@step(writes="sections")
async def draft(state: Report, ctx: Context) -> list[str]:
    """Write one section after the other. A pause takes effect between two sections."""

    async def write(name: str, ctx: Context) -> str:
        await work(ctx, name)
        return SECTIONS[name](state)

    return await ctx.map(write, SECTIONS, concurrency=1)


@step(writes="words")
async def review(sections: list[str], total: int, recount: int, ctx: Context) -> int:
    """Refuse a report whose numbers do not agree, and count its words."""
    await work(ctx)
    if total != recount:
        raise ValueError(f"The survey counts {total} primes, but the sieve counts {recount}.")
    return sum(len(section.split()) for section in sections)


@step(writes="text")
async def publish(sections: list[str], ctx: Context) -> str:
    """Assemble the report."""
    await work(ctx)
    return "\n".join(sections)


report = Workflow("report", state=Report, steps=[outline, survey, compare, verify, draft, review, publish])
