"""The part of the store model about the pause of everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine
from msgspec.structs import replace

from pausepoint.model.everything import Round, frozen_since
from pausepoint.model.records import Record
from pausepoint.model.sessions import Pause, QuestionFacts, SessionRow


@dataclass
class Known:
    """The model's facts about a session that are not in its row."""

    records: list[Record]
    pauses: list[Pause] = field(default_factory=list)
    signals: list[tuple[int, str, str | None, int, Any]] = field(default_factory=list)
    inbox: list[int] = field(default_factory=list)
    names: set[bytes] = field(default_factory=set)
    questions: dict[str, QuestionFacts] = field(default_factory=dict)
    exempt: int = 0
    epochs: list[int] = field(default_factory=list)  # for each pause, the pause of everything that it is part of


class EverythingModel(RuleBasedStateMachine):
    """What a pause of everything means for the sessions of the model."""

    rows: dict[str, SessionRow]
    known: dict[str, Known]
    still: Pause | None
    rounds: list[Round]

    def row(self, session_id: str) -> SessionRow:
        raise NotImplementedError

    def signal(self, session_id: str, kind: str, by: str | None, at: int, data: Any) -> int:
        raise NotImplementedError

    def stopped(self, session_id: str) -> bool:
        """Return whether the pause of everything stops a session."""
        return self.rows[session_id].ended is None and self.is_concerned(session_id)

    def is_concerned(self, session_id: str) -> bool:
        """Return whether the pause of everything stops a session, or would if the session were opened again."""
        return self.still is not None and self.known[session_id].exempt < self.rounds[-1].round

    def freezing(self, session_id: str) -> tuple[int, int | None, dict[int, int]]:
        """Return what decides about a session's frozen time."""
        known = self.known[session_id]
        own = [each.created_at for each in known.pauses if is_request(each) and not each.standing and each.freeze]
        noted = {
            epoch: each.created_at
            for epoch, each in zip(known.epochs, known.pauses, strict=True)
            if is_request(each) and each.standing
        }
        return known.exempt, min(own, default=None), noted

    def last_lifted(self) -> int:
        return max((each.round for each in self.rounds if each.lifted_at is not None), default=0)

    def lift_of(self, epoch: int) -> Round | None:
        return next((each for each in self.rounds if each.epoch == epoch and each.lifted_at is not None), None)

    def exempt_like(self, above: str | None) -> int:
        return max(self.last_lifted(), 0 if above is None else self.known[above].exempt)

    def took_effect(self, session_id: str, at: int) -> None:
        """A session has parked because of its own pauses."""
        known = self.known[session_id]
        for index, pause in enumerate(known.pauses):
            waits = is_request(pause) and not pause.standing and pause.took_effect_at is None
            known.pauses[index] = replace(pause, took_effect_at=at) if waits else pause

    def noted(
        self, session_id: str, at: int | None = None, after: int | None = None, took_effect_at: int | None = None
    ) -> None:
        """Write the session's record of the pause of everything, if that stops it and it has none."""
        if self.still is None or not self.stopped(session_id):
            return
        row, known, epoch = self.rows[session_id], self.known[session_id], self.rounds[-1].epoch
        exempt, _, noted = self.freezing(session_id)
        if epoch in noted:
            return
        since = min(each.at for each in self.rounds if each.epoch == epoch and each.round > exempt)
        record = replace(
            self.still, id="", step=row.step or "", created_at=since if at is None else at,
            took_effect_at=took_effect_at,
        )  # fmt: skip
        self.add_pause(session_id, record, epoch)
        n = self.signal(session_id, "pause", record.by, record.created_at, request_of(record))
        if after is not None:
            known.signals[n - 1] = (after, *known.signals[n - 1][1:])
        if row.wakes_at is None and row.waiting is None:
            self.rows[session_id] = replace(row, wakes_at=0)

    def add_pause(self, session_id: str, pause: Pause, epoch: int = 0) -> None:
        self.known[session_id].pauses.append(pause)
        self.known[session_id].epochs.append(epoch)

    def settled(self, session_id: str) -> None:
        """Count what lifted pauses of everything froze, and close the session's records of them."""
        known = self.known[session_id]
        if known.exempt >= self.last_lifted():
            return
        self.rows[session_id] = replace(self.rows[session_id], frozen=self.row(session_id).frozen)
        known.exempt = self.last_lifted()
        for index, pause in enumerate(known.pauses):
            lift = self.lift_of(known.epochs[index])
            if pause.standing and pause.closed_at is None and lift is not None and lift.lifted_at is not None:
                known.pauses[index] = replace(pause, closed_at=lift.lifted_at, closed_by=lift.lifted_by)
                self.signal(session_id, "resume", lift.lifted_by, lift.lifted_at, {})

    def frozen_since(self, session_id: str) -> int | None:
        rounds = self.rounds if self.rows[session_id].ended is None else ()
        return frozen_since(rounds, *self.freezing(session_id))

    def stands(self, pause: Pause) -> None:
        """Pause everything from now on. The first request stays the one on record."""
        before, first = self.still, self.still or pause
        mode = pause.mode if pause.mode == "abort" else first.mode
        self.still = replace(first, mode=mode, freeze=first.freeze or pause.freeze)
        last = self.rounds[-1].round if self.rounds else 0
        if self.still == before and last not in {known.exempt for known in self.known.values()}:
            return
        epoch = last + 1 if before is None else self.rounds[-1].epoch
        self.rounds.append(Round(last + 1, epoch, pause.created_at, self.still.freeze))

    def lifted(self, by: str | None, now: int) -> bool:
        lifted, self.still = self.still is not None, None
        self.rounds[:] = [
            replace(each, lifted_at=now, lifted_by=by) if each.lifted_at is None else each for each in self.rounds
        ]
        return lifted

    def shown(self, pause: Pause, epoch: int) -> Pause:
        """Return a pause record as the store shows it: lifted, or with the mode of the pause of everything."""
        if not pause.standing or pause.closed_at is not None:
            return pause
        if (lift := self.lift_of(epoch)) is not None:
            return replace(pause, closed_at=lift.lifted_at, closed_by=lift.lifted_by)
        return replace(pause, mode=self.still.mode if self.still is not None else pause.mode)


def is_request(pause: Pause) -> bool:
    return pause.kind == "operator" and pause.closed_at is None


def request_of(pause: Pause) -> dict[str, object]:
    return {"reason": pause.reason, "mode": pause.mode} | ({"freeze": True} if pause.freeze else {})
