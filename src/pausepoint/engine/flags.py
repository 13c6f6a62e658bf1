"""The flag file of a store: it exists while everything is paused, for programs that do not open the store.

The hook of an agent looks at it when no server of its gate runs. The store is the truth; the file follows it.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Pause
from pausepoint.name import NAME
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread


async def show(store: Store) -> None:
    """Create or remove the flag file, as the store says. A disk that refuses it does not undo the pause."""
    flag = store.flag()
    if flag is None:
        return
    pause: Pause | None = None
    try:
        pause = await store.standing_pause()
        while True:
            await in_thread(_drop, flag) if pause is None else await in_thread(_put, flag, pause)
            shown, pause = pause, await store.standing_pause()
            if pause == shown:
                return  # otherwise another process has changed it meanwhile, and may have shown that before us
    except DamagedRecord:
        return  # a lift repairs it, and shows it then
    except OSError as error:
        logging.getLogger(NAME).warning(
            "%s cannot be %s: %s. Agents without a server of their gate look at it; check its folder.",
            flag, "removed" if pause is None else "written", error.strerror or error,
        )  # fmt: skip


async def mend(store: Store) -> None:
    """Remove a flag file that a killed process left behind."""
    flag = store.flag()
    if flag is not None and flag.exists():
        await show(store)


def _put(flag: Path, pause: Pause) -> None:
    part = flag.with_name(f"{flag.name}.{os.getpid()}")
    part.write_text(json.dumps({"by": pause.by, "reason": pause.reason, "at": pause.created_at / 1e6}), "utf-8")
    os.replace(part, flag)


def _drop(flag: Path) -> None:
    flag.unlink(missing_ok=True)
