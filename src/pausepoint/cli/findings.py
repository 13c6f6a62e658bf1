"""What `doctor` and the server report about a store: its disk, its engines and its sessions, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pausepoint.cli.console import ago
from pausepoint.cli.text import counted, size, standing_pause_line
from pausepoint.clock import to_datetime

if TYPE_CHECKING:
    from pausepoint.engine.store_documents import CheckDocument, CheckLevel
    from pausepoint.model.stores import About, Holder
    from pausepoint.model.views import Health

LITTLE = 512 * 2**20
"""Free bytes below which the disk gets a warning."""


MOST_SKEW = 1.0
"""Seconds by which the clocks of this machine and of a server may differ without a warning."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: CheckLevel
    about: str
    text: str
    way_out: str = ""

    def document(self) -> CheckDocument:
        """Return the finding as JSON shows it."""
        from pausepoint.engine.store_documents import CheckDocument  # the text of a help does not need it

        return CheckDocument(self.level, self.about, self.text, self.way_out or None)


class Ways(NamedTuple):
    """How the reader of a report does what it advises: by commands in a shell, by requests over HTTP."""

    clean_up: str
    verify: str
    lift: str
    show: Callable[[str], str]


def findings_of(health: Health, left: Mapping[int, str], ways: Ways) -> Iterator[Finding]:
    """Yield findings about a store. ``left``: how the sessions of engines that died can continue."""
    yield from _store(health, ways)
    yield from _engines(health, left)
    yield from _sessions(health, ways)


def _store(health: Health, ways: Ways) -> Iterator[Finding]:
    about = health.store
    free = f", {size(about.free)} of it free" if about.free else ""
    yield Finding("ok", "store", f"{about.place}, {size(about.size)}{free}, schema {about.schema}")
    # Opening a store refuses a SQLite with the WAL-reset bug, and a network file system.
    engine = about.versions.get("sqlite")
    if engine:
        yield Finding("ok", "sqlite", f"{engine} through apsw {about.versions['apsw']}, without the WAL-reset bug")
    yield from _server(about)
    yield from _disk(about, ways)
    if health.trouble:
        yield Finding("bad", "writing", health.trouble, "the store becomes writable again once that is fixed")


def _server(about: About) -> Iterator[Finding]:
    if about.server is None:
        return
    skew = (about.clock_skew_us or 0) / 1e6
    differ = f", its clock {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    way = "" if abs(skew) < MOST_SKEW else "keep the clocks in step, for example with NTP: timers fire early or late"
    yield Finding(
        "warn" if way else "ok", "server", f"{about.server}, answers in {about.latency_ms or 0:.1f} ms{differ}", way
    )


def _disk(about: About, ways: Ways) -> Iterator[Finding]:
    if about.disk_free is not None:
        kind = f"{about.file_system}, a local file system, " if about.file_system else ""
        little = about.disk_free < LITTLE
        way = f"free some space, or check what {ways.clean_up} can clean up" if little else ""
        yield Finding("warn" if little else "ok", "disk", f"{kind}{size(about.disk_free)} free", way)
    if about.ballast_size:
        whole = about.ballast is not None and about.ballast >= about.ballast_size
        text = f"{size(about.ballast or 0)} reserved for a full disk"
        way = "" if whole else f"it should be {size(about.ballast_size)}; it is created again when there is room"
        yield Finding("ok" if whole else "warn", "ballast", text, way)


def _engines(health: Health, left: Mapping[int, str]) -> Iterator[Finding]:
    """Yield findings about other processes. ``left``: what to do about those that ended without their sessions."""
    if not health.engines:
        yield Finding("ok", "engines", "no other process has the store open")
    for holder in health.engines:
        held = f"holds {_session_list(holder.sessions)}" if holder.sessions else "holds no session"
        drives = f" and drives {', '.join(holder.workflows)}" if holder.workflows else ""
        yield Finding("ok", "engines", f"{_holder_name(holder)} {held}{drives}")
    for holder in health.gone:
        yield Finding(
            "warn",
            "engines",
            f"{_holder_name(holder)} ended without finishing {_session_list(holder.sessions)}",
            left[holder.number],
        )


def _holder_name(holder: Holder) -> str:
    if not holder.pid:
        return f"engine {holder.number}"
    return f"process {holder.pid} on {holder.host} (started {ago(to_datetime(holder.since))})"


def _session_list(ids: tuple[str, ...]) -> str:
    listed = ", ".join(ids[:3]) + (", …" if len(ids) > 3 else "")
    return f"{counted(len(ids), 'session')} ({listed})"


def _sessions(health: Health, ways: Ways) -> Iterator[Finding]:
    text = ", ".join(f"{count:,} {status.value}" for status, count in sorted(health.sessions.items()))
    yield Finding("ok", "sessions", text or "none")
    if health.standing_pause is not None:
        way = f"{ways.lift} lifts the pause"
        yield Finding("warn", "sessions", standing_pause_line(health.standing_pause), way)
    yield from damaged(health.damaged, ways)
    for session_id, count in health.crashes.items():
        times = "once" if count == 1 else f"{count} times in a row"
        way = f"check {ways.show(session_id)}; after three times the session is paused"
        yield Finding("warn", "sessions", f"the process of {session_id} died {times}", way)


def damaged(errors: Iterable[object], ways: Ways) -> Iterator[Finding]:
    """Yield findings about sessions that cannot be read."""
    for error in errors:
        yield Finding("bad", "sessions", str(error), f"{ways.verify} lists everything that is damaged")
