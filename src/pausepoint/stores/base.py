"""The Store protocol: the atomic decisions that the engine needs of a database.

A store knows records and facts (`pausepoint.model.sessions`), never workflows or states. Each verb is
one transaction; when it returns, what it did is on disk; when it raises, nothing happened.
All verbs are called from the event loop's thread and must not block it for long.

**Hold.** A session is driven by at most one engine. `claim` succeeds only while no live
engine holds the session; it raises the fence by one. `commit` succeeds only while the
fence is still the one that the claim returned, so an engine that was overtaken can write
nothing. An engine is alive as long as its process is.

**Errors.** Database errors become `StoreError`s at the store's edge. An error of `commit`
is never ambiguous: the store finds out whether the transaction took effect before it
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from pausepoint.errors import DamagedRecord
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer, Answered, Inquiry, QuestionRow
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import (
    About,
    Commit,
    Filter,
    Flags,
    NewSession,
    Pause,
    Proved,
    QuestionStatus,
    Removal,
    SessionRow,
    Space,
    Status,
    Sweep,
    Tombstone,
    Whole,
)


class Found(list[SessionRow]):
    """Sessions that were looked for. ``damaged``: the facts about these could not be read, and why; each names its
    ``session_id``."""

    def __init__(self, rows: Iterable[SessionRow] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)


class FoundQuestions(list[QuestionRow]):
    """Questions that were looked for. ``damaged``: these could not be read, and why."""

    def __init__(self, rows: Iterable[QuestionRow] = (), damaged: Iterable[DamagedRecord] = ()) -> None:
        super().__init__(rows)
        self.damaged = tuple(damaged)


class Store(Protocol):
    """See the module's text for the contract that all verbs share."""

    async def open(self, on_change: Callable[[], None]) -> None:
        """Connect, create or migrate the schema, register this engine as a possible holder.

        From now on ``on_change`` is called, on the event loop, soon after another process
        (or another engine) has written. Raises `NewerSchema` with no byte changed.
        """

    async def close(self) -> None:
        """Finish what was submitted, release the hold on everything, disconnect. Twice is no error."""

    @property
    def number(self) -> int:
        """Which holder this engine is: what `SessionRow.holder` says of the sessions that it holds."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present, since when, and what to do; None while all is well.

        Writing verbs raise `StoreReadOnly` meanwhile; `pause` and `cancel` are tried all the same. ``on_change`` is
        called when trouble begins and when it is over.
        """

    # sessions

    async def create(self, new: NewSession) -> SessionRow | None:
        """Store a session with its first records; hold it if ``new.claim``.

        While everything stands still, one without a parent does too, and is not held; one with a parent copies the
        operator's pause of that. None, and nothing stored, if the id is taken. Raises
        `DamagedRecord` if one of ``new.names`` is not there.
        """

    async def get(self, session_id: str) -> SessionRow | None:
        """The facts about one session; None if there is none.

        One that is being removed is none; a store may say so by raising `UnknownSession`.
        """

    async def find(self, query: Filter) -> Found:
        """The sessions that match, in the order of ``sort``: the newest or largest first, names from A on.

        One that is damaged does not hide the others. Costs what comes back, and a scan of the facts.
        """

    async def tally(self, query: Filter) -> dict[tuple[str, Status], int]:
        """How many sessions match, by workflow and status, whatever their number. Unproved: damaged ones count too."""

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        """Log records with ``since <= seq <= until``, in order, each proved against its digest.

        The first is proved against the record before it. Raises `DamagedRecord`, naming the
        first bad one.
        """

    async def key_frame(self, key: int, seq: int) -> int:
        """The last key frame with a number of at most ``seq``: from it on the records tell the state at ``seq``."""

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """Large values by hash, each proved against it. Raises `DamagedRecord` for a missing or changed one."""

    # driving

    async def claim(self, session_id: str, steal: bool = False, fence: int | None = None) -> SessionRow:
        """Take the hold and raise the fence; with ``fence`` only if that is still the session's, else `HoldLost`.

        Counts a crash if the former holder died without releasing. Raises `UnknownSession`,
        or `AlreadyRunning` if another live engine (or this one) holds it; ``steal`` takes it
        over from a live one too.
        """

    async def commit(self, commit: Commit) -> Flags | None:
        """Move a held session forward; the requests from outside come back.

        Resets the crash count (unless ``keep_crashes``: the session got no further), adds the
        spending, opens and closes pause records and, with ``release``, gives up the hold, all
        in one transaction. Raises `HoldLost` if fence or ``seq`` no longer fit. None, and
        nothing written, if ``only_if_paused`` is set and no pause is requested any more. One
        that ends the session for good (completed, cancelled) closes its open pauses and
        withdraws the request: nobody waits for them any more.
        ``asks`` opens questions, or their next round, whose answer is then None; ``questions`` changes open ones. None,
        and nothing written, if ``only_if_waiting`` names a question that does not wait any more. With ``settles``, and
        at the end of the session, its open questions get their last status (`pausepoint.model.questions.settled`), and answers
        to them that nobody has taken in are mail no more.
        Commits of one session take effect in the order given. One that is refused as `StoreReadOnly` costs the hold:
        the session is free as soon as the store can be written again.
        """

    async def revise(self, commit: Commit) -> None:
        """Claim a session that nobody drives, commit, and release it, in one transaction; whatever its status.

        ``commit`` has ``release``, and the fence that the session was read with. Raises `AlreadyRunning` if a live
        engine holds the session, `HoldLost` if fence or ``seq`` no longer fit. The session is no longer ended, and
        stands still if everything does, as if it were created now; one that was cancelled is no longer asked to be.
        With ``cancel_children`` all that descends from it and has not ended is asked to end, as by `cancel`.
        """

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        """Fence and outside requests of these sessions."""

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """The signals that the session has yet to take in, oldest first, at most ``limit``. A commit consumes them.

        Of one ``kind`` only, if that is given; and of those only what is ``about`` something, as
        `pausepoint.model.questions.about` says. Costs what comes back, however many others wait.
        """

    async def purses(self, key: int) -> list[tuple[str, int, int]]:
        """Id, spending and budget of the session and of those above it that have a budget."""

    async def due(
        self, now: int, workflows: Sequence[str], limit: int, tree: str | None = None
    ) -> list[SessionRow]:  # fmt: skip
        """Sessions of these workflows that nobody drives and that could go on: their time or their mail has come.

        With ``tree`` only this session and what descends from it.
        """

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        """When the next session of these workflows wakes, after ``now``; ``tree`` as for `due`."""

    # from outside

    async def pause(self, query: Filter, pause: Pause) -> Found:
        """Request a pause of all unended sessions that match, in one transaction.

        Sessions already asked to pause stay as they are, except that ``abort`` overrides
        ``finish``, and that a pause of its own comes beside a standing one. Each request is a signal with its author.
        With ``pause.standing`` it stands from now on, in the same transaction: `create`, `revise` and `import_` see
        it, until `lift`. If one stands already, it stays who asked and since when. The matching rows come back as they
        are afterwards, ended ones unchanged among them. Damaged ones are asked too, as far as that can be written:
        nothing may keep a session from being stopped.
        """

    async def standing_pause(self) -> Pause | None:
        """The pause of everything, while it stands."""

    async def lift(self, by: str | None, at: int) -> Found:
        """End the pause of everything, and what it asked of sessions; twice is no error.

        The sessions that were part of it come back as they are afterwards. One that is paused by itself as well stays
        so; what nothing else holds back is due (`pausepoint.model.sessions.would_go_on`). Damaged ones are left as they are.
        """

    async def unpause(self, session_id: str, by: str | None, at: int, budget_usd: int | None = None) -> SessionRow:
        """Withdraw the operator's pauses of a session and its descendants, and note who did.

        Time spent under a pause that froze the timers is added to ``frozen``. Optionally sets a new budget. Damaged
        descendants, which could not go on, are left as they are.
        """

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        """Request the end of a session and of all that descends from it. The session itself comes first.

        Damaged ones below it are asked too, as with `pause`.
        """

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        """Keep a message for a session; it becomes due if it waits for one. Raises `SessionEnded`."""

    async def answer(self, given: Answer) -> Answered:
        """Take the first answer to a question, once and for all, and deliver it: a session that waits for one is due.

        Which question is meant, and whether the answer is taken, is for `pausepoint.model.questions.choose` and ``judge`` to
        say. An answer that is taken is a signal (``answer``) and mail; one that came before its question is kept as
        mail (``early``). The first that is ``invalid`` is mail as well (``answer``, with the reason and without
        content; the question still waits): the step counts the round. It gives way to one that is taken before the
        step has read it. What else is refused is counted and, if `pausepoint.model.questions.is_noted`, a signal (``refused``)
        without content; that a question has expired is noted as told. With ``message``, what no question waits for is
        sent as by `send`. Raises `UnknownSession` and `SessionEnded` for a session without such a question.
        """

    async def questions(self, query: Inquiry) -> FoundQuestions:
        """The questions that match, oldest first, each proved, with the record that asks and the answer.

        One that is damaged does not hide the others, unless it was asked for by its id: then `DamagedRecord`.
        """

    async def tally_questions(self, query: Inquiry) -> dict[QuestionStatus, int]:
        """How many questions match, by what they are at this moment, whatever their number. Unproved, like `tally`."""

    async def forget_questions(self, before: int, limit: int) -> int:
        """Delete up to ``limit`` questions that came to their end before a time; how many. Logs and signals stay."""

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        """Note that a session has a file; the bytes are in its folder already. A signal (``file``), and no mail.

        If it has one of the same content, nothing is written and that one's signal comes back, with False. Raises
        `FileRefused` if the id is that of another content, and `HoldLost` if a ``fence`` is given and is no longer the
        session's.
        """

    async def files(self, key: int, id: str | None = None, sha256: str | None = None) -> list[SignalRecord]:
        """The signals that brought the files of a session, in order, each proved; redacted ones are left out.

        Only that with this ``id``, or those of that content, if one is given. Costs what comes back, whatever else
        there is.
        """

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        """Pause records, oldest first. A pause flag set by hand in the database shows as one of an unknown author."""

    async def signals(self, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
        """What came from outside, with ``after < n <= until``, in order, proved like `records`."""

    # the end of data; these also work while the disk is full, as far as they can

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        """Mark a session and all that descends from it as being removed: no other verb knows them any more.

        Their fences rise, so that nobody who thinks to hold one can write. Raises `AlreadyRunning` if one of them is
        held by a live engine and `VerbRefused` for one that has a parent. With ``expired``, empty and nothing done if
        the session is held, or was touched, or would wake, less than its ``keep_for`` before ``at``; one that is
        completed or cancelled and has none counts as kept for ``ended_for``. A session whose
        facts are damaged does not expire (`DamagedRecord`), but can be removed by hand; ``status`` in its tombstone
        is then ``damaged``.
        """

    async def removing(self) -> list[Removal]:
        """The sessions whose removal was begun and not completed; children before parents."""

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        """Delete up to ``limit`` rows of a session that is being removed.

        When nothing else is left its row gives way to its tombstone, in one transaction; that comes back. The id can
        then be used again, the key never.
        """

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        """Key and id of sessions without a parent that may have expired by ``now``, with ``key > after``, in order.

        ``ended_for`` as for `remove`.
        """

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        """What is left of removed sessions, in the order of removal, each proved."""

    def folder(self, session_id: str) -> Path | None:
        """Where the files of a session lie, whether there are any or not; None if the store has no place for files."""

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        """Look at up to ``limit`` large values after number ``after``; with ``apply`` delete what nothing names."""

    async def weight(self, session_id: str) -> int:
        """About how many bytes would be free without a session and all that descends from it. 0 if there is none."""

    async def space(self) -> Space:
        """How many bytes are taken, and how many of them are free."""

    async def compact(self, at_most: int) -> int:
        """Give about that many free bytes back to the system; how many were. 0: there are none to give."""

    async def fold(self) -> bool:
        """Make sure that nothing deleted can be found in the store's files. False if others prevent it at present."""

    # proof

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        """All sessions with ``key > after``, in order: key, id, and the facts or what is wrong with them."""

    async def names(self, key: int) -> dict[bytes, bool]:
        """The large values that a session names, and whether each is there."""

    async def values(self, after: int, limit: int) -> Proved:
        """Prove up to ``limit`` large values, from number ``after`` on."""

    async def check(self) -> list[str]:
        """What the database itself finds wrong with its files, and what in it belongs to nobody; one line each."""

    def describe_holder(self, holder: int | None) -> str:
        """Who that is, for a person: host, process id, since when."""

    async def about(self) -> About:
        """What there is to know about the store as a whole, and which engines have it open or died with sessions."""

    # moving

    async def whole(self, session_id: str) -> list[Whole]:
        """A session and all that descends from it, who calls before who is called, as of one moment, each proved.

        Raises `UnknownSession` or `DamagedRecord`.
        """

    async def import_(self, sessions: Sequence[Whole]) -> bool:
        """Store sessions as they were elsewhere, in one transaction; nobody holds them then.

        A standing pause that they were part of there is one of their own here. While everything stands still here,
        they do too.

        ``key``, ``holder``, ``fence`` and ``parent`` of their rows do not count: a parent is found among them, by
        ``parent_id``. False, and nothing stored, if one of the ids is taken.
        """
