"""A batch: one session for each document of a folder. Run it as often as you like: python batch.py FOLDER"""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from pausepoint import Context, Engine, Limit, workflow


async def summarize(text: str) -> str:
    """Stand in for a language model."""
    print("summarizing", text.split(".")[0], flush=True)
    await asyncio.sleep(1)
    if "?" in text:
        raise ValueError("this document is a question")
    return text.split(".")[0]


@workflow(limit=Limit(4))  # at most four of these sessions are at work, in all processes together
async def digest(path: str, ctx: Context) -> str:
    return await ctx.do(summarize, Path(path).read_text(), retry=2)


async def main(folder: str) -> None:
    async with Engine(workflows=[digest]) as engine:
        batch = Path(folder).resolve()
        sessions = [
            await engine.start(digest, session_id=f"{batch.name}-{file.stem}", tags=batch.name, path=str(file))
            for file in sorted(batch.glob("*.txt"))
        ]
        outcomes = await asyncio.gather(*(session.outcome() for session in sessions))
        print(dict(Counter(outcome.status.value for outcome in outcomes)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
