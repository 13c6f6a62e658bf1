"""Generated graphs of tasks."""

from __future__ import annotations

import random

from pausepoint.orchestrator import Task


def generated(tasks: int, needs: int, seed: int) -> list[Task]:
    """So many tasks with so many needs among them, in random order and of random priorities. No cycle."""
    draw = random.Random(seed)
    found: set[tuple[int, int]] = set()
    while len(found) < needs:
        first, second = sorted(draw.sample(range(tasks), 2))
        found.add((second, first))
    needed: dict[int, list[str]] = {}
    for second, first in sorted(found):
        needed.setdefault(second, []).append(f"t{first}")
    made = [Task(id=f"t{n}", needs=needed.get(n, []), priority=draw.randint(0, 3)) for n in range(tasks)]
    draw.shuffle(made)
    return made
