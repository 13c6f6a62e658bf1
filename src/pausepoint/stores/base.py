"""The `Store` protocol: the atomic operations that the engine needs from a database.

A store knows records and facts (`pausepoint.model.sessions`). It never sees workflows or states.

**Atomicity.** Each method is one transaction. When it returns, its effect is on disk. When it raises, nothing happened.

**Threads.** All methods are called from the event loop's thread and must not block it for long.

**Hold.** At most one engine drives a session. `claim` succeeds only if no live engine holds the session, or with
``steal``. Each claim raises the session's fence by one. `commit` succeeds only while the fence is the one that `claim`
returned, so an engine that lost its hold can write nothing. An engine is alive as long as its process is, or as its
lease lasts (`Store.lease_left`).

**Guests.** The code of a guest session (``guest``) runs in a program of its own. `due`, `take` and `next_wake` leave
guests out, whatever has arrived for them. All other methods treat them like other sessions.

**Signals and mail.** Everything that reaches a session from outside is a signal: a request to pause, resume or cancel,
a message, an answer, a file, a child's report. Signals that a step must read are also *mail*: they stay in the
session's inbox until a commit consumes them.

**Owners.** A session id may name the owner that the session must have (`OwnedId`). Every method that looks the session
up by such an id calls `check_owner` in its transaction, which raises `WrongOwner`.

**Damage.** A store verifies what it reads: records and signals against their digests, large values against their hash,
facts against their checksum. It raises `DamagedRecord` instead of returning wrong data. Methods that return many
sessions or questions list the damaged ones separately, so that one damaged session does not hide the others.

**Errors.** The store turns database errors into `StoreError`. An error of `commit` is never ambiguous: the store finds
out whether the transaction took effect before it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pausepoint.model.budgets import NO_BUDGET, Allowance, Purse
from pausepoint.model.changes import Mark, Page
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.descriptions import StoredDescription
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer, Answered, Inquiry
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.remembered import Remembered
from pausepoint.model.sessions import Filter, Pause, QuestionStatus, SessionRow, Status, Stopping
from pausepoint.stores.drawers import Drawers
from pausepoint.stores.files import Files
from pausepoint.stores.found import Found, FoundDescriptions, FoundQuestions
from pausepoint.stores.limits import Limits
from pausepoint.stores.pause_flag import PauseFlag
from pausepoint.stores.places import StreamFolder
from pausepoint.stores.schedules import Schedules
from pausepoint.stores.upkeep import Upkeep

OnChange = Callable[[frozenset[int] | None], None]
"""Called with the keys of the sessions that have changed; None means that anything may have changed."""


class Store(Upkeep, Schedules, Limits, Drawers, Protocol):
    """A database for sessions. The module's docstring describes the contract that all methods share."""

    async def open(self, on_change: OnChange) -> None:
        """Connect, create or migrate the schema, and register this engine as a possible holder.

        An engine that has announced no queue may be registered with its first write instead, so that one that only
        looks does not wait for a write of another program.

        From now on the store calls ``on_change``, on the event loop, soon after another process or another engine has
        written: within 2 seconds after a request from outside or the release of a session, otherwise within 5. It
        passes the keys of the sessions that have changed, or None: anything may have changed.

        Cancelled sessions that are still open and that no live engine drives end now: the engine that had to end them
        has died. Raises `NewerSchema`, without changing the database, if a newer version of Pausepoint wrote it.
        """

    async def close(self) -> None:
        """Finish all submitted work, release every session that this engine holds, and disconnect.

        Closing a closed store does nothing.
        """

    @property
    def number(self) -> int:
        """The number of this engine, as found in `SessionRow.holder` of the sessions that it holds."""

    def lease_left(self, number: int) -> float | None:
        """Return for how many seconds no other engine can take over sessions that this engine holds as ``number``.

        None: for as long as its process lives. In a store whose engines have leases, the number is negative once the
        lease has ended or this engine has another number. The engine begins no operation in the last seconds of a
        lease, and stops what it drives when the lease ends. The store gets another lease, with another number, as soon
        as it can; then it calls ``on_change``. Takes microseconds.
        """

    def announce(self, workflows: Sequence[str], queues: Sequence[str] | None = None) -> None:
        """Record whose due sessions this engine picks up, for `about`. Replaces what was announced before.

        They are the sessions of these workflows in these queues; None stands for all queues. An engine that never
        picks anything up announces no workflow and no queue.

        May be called before `open`. Afterwards, it takes effect at the latest with the next write of this engine other
        than a commit, so that it costs no write of its own.
        """

    def has_news(self) -> bool:
        """Return whether any engine has written since ``on_change`` was last called. Takes microseconds."""

    @property
    def trouble(self) -> str | None:
        """Why the store cannot be written at present, since when, and what to do; None while it is healthy.

        Meanwhile, methods that write raise `StoreReadOnly`. The store still tries `pause`, `cancel` and the methods
        that free space. It calls ``on_change`` when the trouble begins and when it is over.
        """

    # sessions

    async def create(self, new: NewSession) -> SessionRow | None:
        """Store a new session with its first records, and return it. With ``new.claim``, this engine holds it.

        If no slot is free for it, it is not held, and is due: an engine picks it up when a slot is free.

        Return None, and store nothing, if the id is taken. While everything is paused, a session without a parent is
        paused too, and not held. A session with a parent copies the parent's operator pause. Raises `DamagedRecord` if
        one of the large values in ``new.names`` is missing, and `UnknownSession` if the parent does not exist or is
        being removed.
        """

    async def get(self, session_id: str, *, sure: bool = False) -> SessionRow | None:
        """Return the facts about one session; None if it does not exist.

        With ``sure``, a store that looks ids up in an index does not believe the index alone: if the session exists,
        but the index does not find it, it raises `DamagedRecord`. That may cost a scan if there is no such session.

        For a session that is being removed, a store returns None or raises `UnknownSession`.
        """

    async def find(self, query: Filter) -> Found:
        """Return the sessions that match, ordered by ``query.sort``: newest or largest first, names from A to Z.

        Damaged sessions are listed in ``damaged``. The cost is a scan of the facts, plus the rows returned. Sessions of
        an owner, with a tag, or that have failed are found by index. If ``query.limit`` leaves sessions out, ``next``
        is the position (`pausepoint.model.sessions.position`) of the last one found. ``query.after`` finds the sessions
        after a position, whether or not a session is still there.
        """

    async def ids(self, query: Filter) -> list[str]:
        """Return the ids of the sessions that match, in the order of `find`, without reading the rest of their facts.

        Damaged sessions are included.
        """

    async def tally(self, query: Filter) -> dict[tuple[str, Status], int]:
        """Count the sessions that match, by workflow and status. Nothing is verified, so damaged sessions count too."""

    async def spending(self, query: Filter) -> dict[str, int]:
        """Return what the sessions that match have spent, in millionths of a dollar, by workflow.

        What a child has spent is part of its parent's sum too. As in `tally`, nothing is verified.
        """

    async def waking(self, now: int, limit: int, owner: str | None = None) -> Found:
        """Return the next ``limit`` sessions that wake up on their own after ``now``, the earliest first.

        Sessions that are paused, and guests, are left out. ``owner`` selects the sessions of one owner. The cost
        depends on the sessions returned, and on those of other owners and paused ones before them.
        """

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        """Return the log records with ``since <= seq <= until``, in order, each verified against its digest.

        The first record is verified against its predecessor. Raises `DamagedRecord`, which names the first bad record.
        """

    async def key_frame(self, key: int, seq: int) -> int:
        """Return the number of the last key frame at or before ``seq``. The state at ``seq`` is rebuilt from there."""

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return large values by hash, each verified. Raises `DamagedRecord` if one is missing or does not match."""

    # driving

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        """Take the hold of a session, raise its fence, and return its facts.

        A step that an engine kept in memory is no longer valid after a claim by another one: the fence tells it so. A
        session whose holder died is freed first, as by `reap`. ``steal`` takes the session even from a live engine.
        With ``fence``, the claim succeeds only if the session still has that fence. Only a person's resume, which
        withdraws the pauses first, passes ``paused``: then a pause that was requested since does not prevent the claim,
        and the session parks before any step.

        Raises `UnknownSession`; `SessionEnded` if the session is completed or cancelled; `AlreadyRunning` if a live
        engine, this one included, holds it; `HoldLost` if ``fence`` no longer matches; `VerbRefused` if ``paused`` is
        not set, and a pause of the session is requested, or the session has failed and the pause of everything would
        stop it; and `LimitReached` if no slot is free for the session, which is then due, so that an engine picks it up
        when a slot is free.
        """

    async def commit(self, commit: Commit) -> Flags | None:
        """Move a held session forward, and return the requests from outside.

        In one transaction, a commit appends the records, moves the position, adds the spending, opens and closes pause
        records, and with ``release`` gives up the hold. It resets the crash count unless ``keep_crashes`` is set.
        Commits of one session take effect in the order in which they are submitted.

        **Conditions.** Return None, and write nothing, if ``only_if_paused`` is set and no pause is requested any more,
        or if ``only_if_waiting`` names a question that is no longer waiting.

        **End.** A commit that completes or cancels the session also closes its open pauses and withdraws the pause
        request.

        **Questions.** ``asks`` opens questions, or starts their next round and clears their answer. ``questions``
        changes open questions. With ``settles``, and when the session ends, its open questions get their final status
        (`pausepoint.model.questions.settled`), and unread answers to them are no longer mail.

        Raises `HoldLost` if the fence or ``base_seq`` no longer matches. Raises `StoreReadOnly` if the disk is full or
        failing; the session then loses its hold, and is free as soon as the store can be written again. If it is to
        pause, the store frees it before that, if it can: someone may wait for it.
        """

    async def revise(self, commit: Commit) -> Found:
        """Claim a session that no engine drives, commit, and release it, in one transaction and in any status.

        ``commit`` must have ``release`` set, and the fence with which the session was read. An ended session is open
        again afterwards, unless the commit ends it: the request that cancelled it is withdrawn, and while everything is
        paused the session is paused too, like a new one. With ``cancel_children``, the same transaction cancels all
        unended descendants as `cancel` does, after it has moved the session. Return these descendants.

        Raises `AlreadyRunning` if a live engine holds the session, and `HoldLost` if the fence or ``base_seq`` no
        longer matches, or if `pausepoint.model.commits.overlooks_a_wake`.
        """

    async def unkeep(self, key: int, fence: int) -> None:
        """Record that this engine no longer has the step in memory that it kept under this fence.

        If the disk is full or failing, the store records it as soon as it can be written again.
        """

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        """Return the fence of these sessions and the requests from outside, by key."""

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """Return the session's unread signals, oldest first, at most ``limit``. A commit consumes them.

        ``kind`` selects one kind of signal. ``about`` further selects signals about one question or child, as defined
        by `pausepoint.model.questions.about`. The cost depends on the signals returned, not on those that wait.
        """

    async def purses(self, key: int) -> list[Purse]:
        """Return id, spending and budget of the session and its ancestors. Sessions without a budget are left out."""

    async def due(
        self, now: int, workflows: Sequence[str], limit: int, tree: str | None = None,
        queues: Sequence[str] | None = None, skip: Mapping[int, int] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        """Return sessions of these workflows that are ready to resume: their wake-up time or their mail has come.

        Sessions that a live engine drives, or whose step it keeps, are left out, and so are guests, and those for which
        no slot is free. They come in the order of `pausepoint.model.queues`. ``tree`` selects one session and its
        descendants, ``queues`` the sessions of these queues. ``skip`` is as in `take`.
        """

    async def take(
        self, now: int, workflows: Sequence[str], limit: int, skip: Mapping[int, int] | None = None,
        queues: Sequence[str] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        """Claim up to ``limit`` sessions of these workflows that are ready, in one transaction, and return them.

        A session is ready if `pausepoint.model.sessions.ready_at` is at or before ``now``. They are taken in the order
        of `pausepoint.model.queues`, and only as long as the limits leave slots. ``queues`` selects the sessions of
        these queues. A session whose step a live engine keeps is left to it. Sessions of engines that died are
        freed before, by `reap`. ``skip`` are keys of sessions to leave out as long as they are at the given record. A
        guest is never ready. While nothing can be taken, nothing is written.
        """

    async def reap(self) -> frozenset[int]:
        """Free the sessions that engines held when they died, and return their keys. Each of them counts a crash.

        A freed session that was cancelled ends, because the engine that had to end it has died. Sessions of live
        engines stay as they are. Many sessions are freed in several transactions, so that other writes have their turn.
        While no engine has died, nothing is written, and the cost is small: every engine that drives sessions calls
        this once per second.
        """

    async def release(self, key: int, fence: int) -> None:
        """Give up the hold of a session without a record, and count no crash. Do nothing if the hold was lost.

        If the disk is full or failing, the session is free as soon as the store can be written again.
        """

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        """Return when the next session or schedule of these workflows is due after ``now``; None if there is none.

        The next time when a limit with ``per`` lets a session get to work counts too.

        Guests and paused schedules do not count. ``tree`` is as in `due`; schedules belong to no tree.
        """

    # from outside

    async def pause(self, query: Filter, pause: Pause) -> Found:
        """Request a pause of all unended sessions that match, in one transaction. Each request is a signal.

        Return all matching sessions as they are afterwards, including ended ones, which stay unchanged. A session that
        already has a pause request stays as it is, with three exceptions: ``abort`` overrides ``finish``, ``freeze``
        freezes its timers from now on, and a session under the pause of everything also gets a pause of its own.

        With ``pause.standing``, start the pause of everything instead, and return nothing. It is one fact of the store,
        so the cost does not depend on the number of sessions. Until `lift`, it stops every session that has not ended,
        old or new: rows and flags say so, `pauses` lists it, `claim` refuses them, `take` and `due` leave them out. A
        commit that parks a session under it, `create`, `revise` and `import_` write a record of it, and a signal. A
        session that is unpaused is exempt until everything is paused again. If the pause is already in effect, its
        author and start time stay.

        Damaged sessions are paused too, as far as the database can be written: damage must not prevent a session from
        being stopped.
        """

    async def standing_pause(self) -> Pause | None:
        """Return the pause of everything, if it is in effect."""

    async def stopping(self) -> Stopping:
        """Return how many driven sessions the pause of everything asked to stop, and the longest time one took.

        The time of a session ends with the commit that parks it because of the pause. Without a pause of everything,
        nothing was asked.
        """

    async def lift(self, by: str | None, at: int) -> bool:
        """End the pause of everything, and return whether it was in effect.

        The cost does not depend on the number of sessions, because nothing is written for them. Records that are part
        of the pause count as closed from now on, by ``by``; the next verb that takes or unpauses a session closes them,
        adds the time that the pause froze to ``frozen``, and adds a signal of kind ``resume``. A session that also has
        a pause of its own stays paused. What parked or was created under the pause is due now; other sessions are as
        they were before.
        """

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget: Allowance = NO_BUDGET, wake: bool = False,
        exempt: bool = True,
    ) -> SessionRow:  # fmt: skip
        """Withdraw the operator's pauses of a session and its descendants, and record who did.

        The time that a pause with ``freeze`` lasted is added to ``frozen``. ``budget`` sets new limits for the session;
        those that are None stay. With ``wake``, the sessions become due if they need an engine to drive them, and the
        named session also if `pausepoint.model.sessions.can_be_handed_over`; if it has failed, it is ready again, and
        keeps its failure until its next commit. If `pausepoint.model.sessions.can_be_tried_again`, the other pauses of
        these sessions are closed and their crashes forgiven: the engine that drives one pauses it again if a reason
        persists.

        A session that is unpaused while everything is paused is exempt from that pause. Without ``exempt``, nothing
        changes while everything is paused: only a person's resume lets a session run then.

        Without ``wake``, those that wait for nothing are not due, because the caller drives them. A session whose step
        an engine keeps becomes due in any case, so that another engine can drive it if the keeper dies. Damaged
        descendants stay unchanged, because they cannot resume anyway.
        """

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        """End a session and its unended descendants, in one transaction.

        Return them as they are afterwards, the session itself first.

        Each of them gets the request, as a signal. Those that no live engine drives end at once, with the commit that
        `pausepoint.model.endings.cancelled` returns: parents before children, so that no report goes to a session that
        ends too. An engine that drives one sees the request at its next commit, and ends it. If the session has ended
        or was cancelled before, nothing is requested of it again, but what is still open below it ends as well.

        Damaged descendants get the request, as far as the database can be written, and stay open.
        """

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        """Deliver a message to a session, which becomes due if it waits for one. Raises `SessionEnded`."""

    async def answer(self, given: Answer) -> Answered:
        """Decide about an answer to a question, and deliver it if it is accepted. Only the first answer is accepted.

        `pausepoint.model.questions.choose` decides which question the answer is for; ``judge`` returns the verdict.

        - An accepted answer is a signal of kind ``answer`` and mail. A session that waits for it becomes due.
        - An answer that came before its question is a signal of kind ``early`` and mail, kept until the question is
          asked.
        - The first invalid answer is mail too: kind ``answer``, with the reason and without the content. The question
          keeps waiting, and the step counts the round. An answer that is accepted before the step has read the invalid
          one replaces it.
        - Any other refused answer is counted. If `pausepoint.model.questions.is_noted`, it is also a signal of kind
          ``refused``, without the content. If the question has expired, the store sets ``told``.
        - With ``given.message``, an answer that no question waits for is delivered as a message, as by `send`.
        - With ``given.once``, a message is delivered once: if the session's tree has got one with this key before,
          nothing is written, and `pausepoint.model.questions.judge_again` returns the verdict. This also holds after
          the session has ended. Only a delivered message uses up its key.

        Raises `UnknownSession`, and `SessionEnded` if the session has ended and has no such question.
        """

    async def questions(self, query: Inquiry) -> FoundQuestions:
        """Return the questions that match, each verified, with the record that asks and the answer.

        They are sorted by ``query.sort``, as `pausepoint.model.questions.place_of` defines it. ``next`` is as in
        `find`. Damaged questions are listed in ``damaged``. A damaged question that was requested by its id raises
        `DamagedRecord`.
        """

    async def tally_questions(self, query: Inquiry) -> dict[QuestionStatus, int]:
        """Count the questions that match, by current status. As in `tally`, nothing is verified."""

    async def forget_questions(self, before: int, limit: int) -> int:
        """Delete up to ``limit`` questions that were settled before a time, and return how many were deleted.

        The session's log and signals are kept.
        """

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        """Record that a session has a file whose content is already in its folder. Return its signal, and True.

        The signal has the kind ``file`` and is not mail. If the session already has a file with the same content,
        nothing is written, and that file's signal is returned with False.

        Raises `FileRefused` if another file has the id, and `HoldLost` if ``fence`` no longer matches.
        """

    async def files(self, key: int, id: str | None = None, sha256: str | None = None) -> list[SignalRecord]:
        """Return the signals that added the session's files, in order, each verified. Redacted ones are left out.

        ``id`` selects one file; ``sha256`` selects files with that content. The cost depends only on the signals
        returned.
        """

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        """Return pause records, oldest first.

        A pause flag that someone set directly in the database appears as a pause without an author.
        """

    async def first_pauses(self, keys: Sequence[int]) -> dict[int, Pause]:
        """Return the first open pause of each of these sessions, by key, as `pauses` lists it.

        Sessions that have none, or that do not exist, are left out, and so are records that do not match their
        checksum. The cost depends on the open pauses of these sessions.
        """

    async def signals(self, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
        """Return the signals with ``after < n <= until``, in order, verified like `records`."""

    # contents of files, and places on the disk

    def files_of(self, session_id: str) -> Files | None:
        """Return the contents of a session's files; None if the store cannot hold files. The session need not exist.

        Raises `InvalidSessionId` for an id that is not valid, because its files could be anywhere.
        """

    async def sessions_with_files(self) -> list[str]:
        """Return the ids of the sessions for which there are contents of files, also if the store does not know them.

        The ids are valid and in order. The list is empty if the store cannot hold files.
        """

    def flag(self) -> PauseFlag | None:
        """Return the file that exists while everything is paused; None if the store is not on a disk.

        The engine creates and removes it. A store whose database another process can keep locked writes a pause of
        everything into it first, and lets it take effect before it is stored.
        """

    def streams(self) -> StreamFolder | None:
        """Return the folder for the live streams of sessions; None if only this process can follow them.

        Live streams are not part of the store's data: nothing in it depends on them. This may be called before `open`.
        """

    # requests by key

    async def remember(
        self, key: str, digest: bytes, answer: bytes | None, until: int, replaces: bytes | None = None
    ) -> Remembered:
        """Take a key to carry out a request, or store the request's answer. Return what is remembered afterwards.

        Without an ``answer``, exactly one of several engines that call this at the same time gets ``claimed``; the
        others get the answer, or ``at_work``. A key without an answer whose engine has died can be taken again:
        ``took_effect`` then says whether the request had its effect before. `pausepoint.stores.remembered` describes
        how a request has one effect, even if processes are killed.

        A request with another digest, or with an answer, stays as it is. Only an answer that equals ``replaces`` is
        replaced, with its ``until``. While the engine that took a key is alive, only that engine can answer it. At
        ``until`` the key is free again, by the store's clock. `pausepoint.model.remembered.check_remembered` checks the
        arguments.
        """

    async def recall(self, key: str) -> Remembered | None:
        """Return what is remembered about a request, and change nothing; None if its key is free."""

    async def forget(self, key: str) -> bool:
        """Give up a key that this engine has taken, if its request has neither an answer nor an effect.

        Return whether the key is free now.
        """

    def once(self, key: str, each: bool = False) -> AbstractContextManager[None]:
        """Return a block whose first write has its effect together with the key, in one transaction.

        The writes are those that the current task makes with `create`, `revise`, `pause`, `lift`, `unpause`, `cancel`,
        `send`, `answer`, `add_file`, `set_schedule`, `drop_schedule`, `remove` and `import_`. The first of them that
        succeeds also sets ``took_effect``. Later ones, and writes of the sessions that the block starts, are as usual.
        A call that changes nothing, such as `create` with an id that is taken or `answer` with a refused answer, does
        not count.

        If this engine does not hold the key any more, the write raises `KeyLost` and writes nothing.

        With ``each``, every `pause`, `unpause` and `cancel` of the block counts, and has its effect once on each
        session: one that the request has treated before, in this block or in another one, is returned as it is. A
        `pause` treats all sessions that it finds, the others the one that they name.
        """

    async def treated(self) -> list[str]:
        """Return the ids of the sessions that the request of the present block has treated, parents first.

        Outside of a block of `once` with ``each`` there are none.
        """

    async def forget_expired(self, now: int, limit: int) -> int:
        """Delete up to ``limit`` remembered requests whose ``until`` is at or before ``now``. Return how many."""

    # descriptions of workflows

    async def keep_description(self, new: StoredDescription) -> None:
        """Store the description of a workflow, unless it is stored. ``seen_at`` only rises.

        Of each version of a workflow, only the `pausepoint.model.descriptions.MOST_DESCRIPTIONS` that were seen last
        are kept.
        """

    async def description_seen(self, digest: bytes) -> int | None:
        """Return ``seen_at`` of the description with this digest; None if it is not stored, or damaged."""

    async def descriptions(self, workflow: str | None = None) -> FoundDescriptions:
        """Return the descriptions of a workflow, newest version first, then those seen last; each verified.

        Without a name, return the newest of each workflow, ordered by name. Damaged ones are listed in ``damaged``.
        """

    async def forget_descriptions(self, before: int, limit: int) -> int:
        """Delete up to ``limit`` descriptions that were last seen before a time and whose workflow has no session."""

    # following

    async def changes(self, after: Mark | None, limit: int) -> Page | None:
        """Return the next sessions with records, signals or tombstones after a mark. None means the mark is lost.

        All writes since the mark are found, each once, whichever engine made them. The changes of one session come in
        the order of its history; those of several sessions between two pages in the order of commits. Sessions that
        are being removed are left out; their tombstones come once they are removed, before other changes. ``limit`` is
        about how many records and signals are looked at; the cost follows it, not the size of the store.

        A mark is lost if the store no longer knows what came before it, because one of the rows that it names was
        removed, or belongs to another store. ``after=None`` returns an empty page with the present mark.
        """

    async def describe_holders(self, holders: Collection[int]) -> dict[int, str]:
        """Describe holders for people: process id, host, and start time. Engines that are gone are described too."""
