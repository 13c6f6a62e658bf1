"""Bring the flag file of a store in line with the pause of everything.

The store is the truth; the file follows it. Only a request that is not stored yet is in the file alone, and stays there
until the store has it.
"""

from __future__ import annotations

import logging

from pausepoint.errors import DamagedRecord
from pausepoint.model.sessions import Pause
from pausepoint.name import NAME
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread


async def show(store: Store) -> None:
    """Write or remove the flag file, as the store says. A disk that refuses it does not undo the pause."""
    flag = store.flag()
    if flag is None:
        return
    pause: Pause | None = None
    try:
        pause = await store.standing_pause()
        while flag.request() is None:
            await in_thread(flag.remove) if pause is None else await in_thread(flag.show, pause)
            shown, pause = pause, await store.standing_pause()
            if pause == shown:
                return  # otherwise another process has changed it meanwhile, and may have shown that before us
    except DamagedRecord:
        return  # a lift repairs it, and shows it then
    except OSError as error:
        logging.getLogger(NAME).warning(
            "%s cannot be %s: %s. Agents without a server of their gate look at it; check its folder.",
            flag.path, "removed" if pause is None else "written", error.strerror or error,
        )  # fmt: skip


async def mend(store: Store) -> None:
    """Bring a flag file in line that a killed process left behind."""
    flag = store.flag()
    if flag is not None and flag.version() is not None:
        await show(store)
