"""Engines that are broken on purpose: one call of ``os.fsync`` in the source is left out.

A *site* is the function that asks for the sync, such as ``stores.disk:Upload.finish``.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import FrameType

PACKAGE = "pausepoint."


def skip(site: str) -> Counter[str]:
    """Leave out the syncs of one site in this process. Return the counter of all sites that ask for one."""
    sync, asked = os.fsync, Counter[str]()

    def fsync(descriptor: int) -> None:
        found = site_of(sys._getframe(1))
        asked[found] += 1
        if found != site:
            sync(descriptor)

    os.fsync = fsync  # type: ignore[assignment]
    return asked


def site_of(frame: FrameType) -> str:
    """Return the site of a call in ``frame``. A helper that only syncs is not a site; its caller is."""
    found: FrameType | None = frame
    while found is not None and found.f_code.co_name in ("sync_folder", "_synced"):
        found = found.f_back
    assert found is not None
    return f"{str(found.f_globals.get('__name__', '')).removeprefix(PACKAGE)}:{found.f_code.co_qualname}"
