"""The side of the gate that a script is on: ask before an action, report what it cost.

It talks to the gate as the hook of an agent does, `pausepoint.integrations.gate`.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pausepoint.gate.reports import SCRIPT
from pausepoint.gate.settings import SettingsRefused
from pausepoint.integrations.gate import LIMIT, GatePlace, Lost, Talk, TooLate, find


@dataclass(frozen=True)
class Verdict:
    """What to do with an action: ``run`` it, ``refuse`` it, or try ``later``. ``served``: a server said so."""

    do: Literal["run", "refuse", "later"]
    reason: str = ""
    approved: bool = False
    served: bool = True


def find_place(folder: Path, environ: Mapping[str, str] = os.environ) -> GatePlace | None:
    """Return the gate of this process: the one that its environment names, or that of the nearest project."""
    try:
        return find(environ, str(folder.absolute()))
    except (OSError, ValueError) as error:
        raise SettingsRefused(f"{error}. Delete the file, then install the gate again.") from None


@dataclass(frozen=True)
class GateCaller:
    """A script at the gate. ``name`` names it there."""

    place: GatePlace
    name: str
    kind: str = SCRIPT

    def before(
        self, action: str, arguments: Mapping[str, str], timeout: float | None = None,
        waits: Callable[[str], None] = lambda _: None,
    ) -> Verdict:  # fmt: skip
        """Ask whether an action may run, and wait for the answer, at most ``timeout`` seconds.

        ``waits`` is called with the reason whenever the gate has one to wait.
        """
        call = {"id": uuid.uuid4().hex, "name": action, "arguments": dict(arguments)}
        talk = self._talk("before", math.inf if timeout is None else timeout, waits, call=call)
        try:
            verdict = _verdict(talk.answer(0.0))
        except TooLate as late:
            return Verdict("later", str(late))
        except Lost:
            do: Literal["run", "later"] = "run" if self.place.on_loss == "open" else "later"
            return Verdict(do, f"no server answers at {self.place.socket}", served=False)
        if verdict.do == "run":  # nothing tells the gate when the action ends, so it must not wait for that
            self._tell("stop")
        return verdict

    def spend(self, usd: float, tokens: int) -> bool:
        """Report a cost. Return false if no server has taken it."""
        return self._tell("spend", usd=usd, tokens=tokens)

    def end(self) -> float | None:
        """Report that this caller has ended. Return the seconds until the answer; None if no server answered."""
        began = time.monotonic()
        return time.monotonic() - began if self._tell("end") else None

    def _tell(self, event: str, **said: object) -> bool:
        try:
            return self._talk(event, 0.0, None, **said).answer(0.0).get("do") == "ok"
        except (Lost, TooLate):
            return False

    def _talk(
        self, event: str, limit: float, waits: Callable[[str], None] | None = None, **said: object
    ) -> Talk:  # fmt: skip
        agent = {"kind": self.kind, "session": self.name, "sub": None, "folder": os.getcwd(), "pid": os.getppid()}
        message = {"v": 1, "token": self.place.token, "event": event, "agent": agent, **said}
        talk = Talk(self.place, message, limit, waits)
        if len(talk.line) > LIMIT:
            raise SettingsRefused("The arguments are too large for the gate. Pass at most 1 MB.")
        return talk


def _verdict(said: dict[str, Any]) -> Verdict:
    do = said.get("do")
    if do == "run":
        return Verdict("run", approved=said.get("approved") is True)
    if do == "refuse":
        return Verdict("refuse", str(said.get("reason", "")) or "the gate refuses it")
    return Verdict("later", f"the gate answers {do!r}, which is not known here")
