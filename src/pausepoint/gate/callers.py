"""The side of the gate that a script is on: ask before an action, report what it cost."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pausepoint.gate.settings import OnLoss, SettingsRefused, find_gate, read_gate
from pausepoint.name import variable

LARGEST = 2**20
"""The most bytes of one message."""

PATIENCE = 30.0
"""Seconds until a server that has answered before and went away counts as lost."""

ANSWERS_WITHIN = 5.0
"""Seconds that a server gets for its first answer."""

LOOK_EVERY = 0.2
"""Seconds between two looks at the flag file, and between two attempts to connect."""


class NoServer(Exception):
    """No server answers at the gate."""


class TooLate(Exception):
    """The time for an answer is over. The argument is what the gate waits for."""


@dataclass(frozen=True)
class GatePlace:
    """Where the gate is. ``flag`` is empty if there is no flag file, ``token`` None without a token."""

    socket: str
    flag: str = ""
    on_loss: OnLoss = "open"
    token: str | None = None

    @property
    def is_flagged(self) -> bool:
        return bool(self.flag) and os.path.exists(self.flag)


@dataclass(frozen=True)
class Verdict:
    """What to do with an action: ``run`` it, ``refuse`` it, or try ``later``. ``served``: a server said so."""

    do: Literal["run", "refuse", "later"]
    reason: str = ""
    approved: bool = False
    served: bool = True


def find_place(folder: Path, environ: Mapping[str, str] = os.environ) -> GatePlace | None:
    """Return the gate of this process: the one that its environment names, or that of the nearest project."""
    if path := environ.get(variable("GATE")):
        given = environ.get(variable("GATE_ON_LOSS"), "closed")
        on_loss: OnLoss = "open" if given == "open" else "closed"
        return GatePlace(path, "", on_loss, environ.get(variable("GATE_TOKEN")))
    file = find_gate(folder)
    found = None if file is None else read_gate(file)
    return None if found is None else GatePlace(found.socket, found.flag, found.on_loss)


@dataclass(frozen=True)
class GateCaller:
    """A script at the gate. ``name`` names it there."""

    place: GatePlace
    name: str
    kind: str = "script"

    def before(
        self, action: str, arguments: Mapping[str, str], timeout: float | None = None,
        waits: Callable[[str], None] = lambda _: None,
    ) -> Verdict:  # fmt: skip
        """Ask whether an action may run, and wait for the answer, at most ``timeout`` seconds.

        ``waits`` is called with the reason whenever the gate has one to wait.
        """
        call = {"id": uuid.uuid4().hex, "name": action, "arguments": dict(arguments)}
        ends = None if timeout is None else time.monotonic() + timeout
        try:
            verdict = _verdict(self._last_word("before", {"call": call}, ends, waits))
        except TooLate as late:
            return Verdict("later", str(late))
        except NoServer as gone:
            return Verdict("run" if self.place.on_loss == "open" else "later", str(gone), served=False)
        if verdict.do == "run":  # nothing tells the gate when the action ends, so it must not wait for that
            self._tell("after", {"call": {"id": call["id"], "name": action}, "ok": True})
        return verdict

    def spend(self, usd: float, tokens: int) -> bool:
        """Report a cost. Return false if no server has taken it."""
        return self._tell("spend", {"usd": usd, "tokens": tokens})

    def end(self) -> float | None:
        """Report that this caller has ended. Return the seconds until the answer; None if no server answered."""
        began = time.monotonic()
        return time.monotonic() - began if self._tell("end", {}) else None

    def _tell(self, event: str, facts: dict[str, Any]) -> bool:
        try:
            return any(said.get("do") == "ok" for said in self._talk(event, facts, time.monotonic()))
        except (NoServer, TooLate):
            return False

    def _last_word(
        self, event: str, facts: dict[str, Any], ends: float | None, waits: Callable[[str], None]
    ) -> dict[str, Any]:
        """Return the last answer. While everything is paused, a missing server means to wait."""
        why, reached, lost_at = "", False, time.monotonic()
        while True:
            reason = ""
            try:
                for said in self._talk(event, facts, ends):
                    reached, lost_at = True, time.monotonic()
                    if said.get("do") != "wait":
                        return said
                    why = _heard(str(said.get("why", "")) or "the gate is closed", why, waits)
                    _check(ends, why)
            except TooLate:
                raise TooLate(why or "the gate does not answer") from None
            except NoServer as gone:
                if self.place.is_flagged:
                    reason, lost_at = "everything is paused", time.monotonic()
                elif not reached or time.monotonic() - lost_at > PATIENCE:
                    raise NoServer(f"no server answers at {self.place.socket}") from gone
            why = _heard(reason or why, why, waits)
            _check(ends, why)
            time.sleep(LOOK_EVERY)

    def _talk(self, event: str, facts: dict[str, Any], ends: float | None) -> Iterator[dict[str, Any]]:
        """Send one message and yield the answers. Raises `NoServer` if the last one does not come."""
        agent = {"kind": self.kind, "session": self.name, "sub": None, "folder": os.getcwd(), "pid": os.getppid()}
        message = {"v": 1, "token": self.place.token, "event": event, "agent": agent, **facts}
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LARGEST:
            raise SettingsRefused("The arguments are too large for the gate. Pass at most 1 MiB.")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
                wire.settimeout(ANSWERS_WITHIN)
                wire.connect(self.place.socket)
                wire.sendall(line)
                yield from _answers(wire, ends)
        except (OSError, ValueError) as error:
            raise NoServer(str(error)) from error


def _heard(reason: str, before: str, waits: Callable[[str], None]) -> str:
    if reason != before:
        waits(reason)
    return reason


def _check(ends: float | None, why: str) -> None:
    if ends is not None and time.monotonic() >= ends:
        raise TooLate(why or "the gate does not answer")


def _answers(wire: socket.socket, ends: float | None) -> Iterator[dict[str, Any]]:
    """Yield answers up to the last one. The first one always gets some time."""
    rest, until = b"", None if ends is None else max(ends, time.monotonic() + ANSWERS_WITHIN)
    while True:
        left = ANSWERS_WITHIN if until is None else until - time.monotonic()
        if left <= 0:
            raise TooLate
        wire.settimeout(left)
        try:
            data = wire.recv(65_536)
        except TimeoutError:
            continue
        if not data or len(rest) > LARGEST:
            raise ConnectionError("the server has closed the connection")
        *lines, rest = (rest + data).split(b"\n")
        for each in lines:
            said = json.loads(each)
            if not isinstance(said, dict):
                raise ValueError("the answer is not an object")
            yield said
            if said.get("do") != "wait":
                return
        until = ends


def _verdict(said: dict[str, Any]) -> Verdict:
    do = said.get("do")
    if do == "run":
        return Verdict("run", approved=said.get("approved") is True)
    if do == "refuse":
        return Verdict("refuse", str(said.get("reason", "")) or "the gate refuses it")
    return Verdict("later", f"the gate answers {do!r}, which is not known here")
