"""The helpdesk's program with its tools watched, as a job of the fork server: a real process that need not import.

Before and after every call of a tool, and when a message is stored, there is a point at which a test can hold it
(`tests.support.held`). Everything else is as it is.
"""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pausepoint import Session
from pausepoint.apps.helpdesk.__main__ import main
from pausepoint.apps.helpdesk.chat import Talk, played
from pausepoint.apps.helpdesk.models import Desk
from pausepoint.apps.helpdesk.shop import Shop
from pausepoint.cli import Start
from tests.support.held import as_program, passed

CHECKS = ("order_status", "quote_address", "quote_refund", "quote_appointment", "quote_cancellation")
WRITES = ("change_address", "pay_refund", "book", "cancel_order", "open_ticket")
TOOLS = CHECKS + WRITES


def watch_tool(name: str) -> None:
    real = getattr(Shop, name)

    @functools.wraps(real)
    def watched(*args: Any, **kwargs: Any) -> Any:
        passed(f"before {name}")
        result = real(*args, **kwargs)
        passed(f"after {name}")
        return result

    setattr(Shop, name, watched)


def watch_all() -> None:
    for name in TOOLS:
        watch_tool(name)
    real = Session.send

    async def message(self: Session[Any], value: Any, **options: Any) -> Any:
        status = await real(self, value, **options)
        passed(f"said {value}")
        return status

    Session.send = message  # type: ignore[method-assign]


def warm_up() -> None:
    """Chat once: what is made on first use is then there in every fork."""
    with TemporaryDirectory() as folder:
        start = Start(f"{folder}/x.db", Path(folder))
        desk = Desk(shop=Path(folder, "shop.db"), now=datetime(2030, 3, 4, 9, tzinfo=UTC))
        talk = Talk(start, "warm", desk, None, "test")
        asyncio.run(
            played(talk, ["change the address", "A-1002", "Harbour Road 7", "24105 Kiel", "cancel", "bye"], whole=True)
        )


def job(args: list[str], **place: Any) -> None:
    """``python -m pausepoint.apps.helpdesk ARGS``."""
    with as_program("pausepoint.apps.helpdesk", args, **place):
        watch_all()
        main(args)
