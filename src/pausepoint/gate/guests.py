"""Agents that people start by hand, as guest sessions: so lists, pauses, questions and budgets work for them.

An agent such as Claude Code in a terminal reports to the gate of its project. Its session here is named after its own
one. While the agent works, the session is visited; each tool call is an operation of the visit. While the agent waits
for its person, the session is ready. When the agent ends, the session is completed; if its process dies, it has failed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pydantic import BaseModel

from pausepoint.definition.workflow import Workflow
from pausepoint.engine.engine import Engine
from pausepoint.errors import GateRefused, InputConflict, Parked, PausepointError, UnknownSession
from pausepoint.gate.freezer import Freezer, note_commands, record_of, records
from pausepoint.gate.gates import BACKGROUND, CALL, PROMPT, SAID, Gate, charge, folded
from pausepoint.gate.reports import FOLLOWING, SCRIPT, AgentFacts, Report
from pausepoint.gate.sockets import GateSocket
from pausepoint.gate.transcripts import Words, interrupted_since, lacks, tokens_in, transcript_of, words_in
from pausepoint.gate.warden import Process, look
from pausepoint.gate.where import branch_of, terminal_of
from pausepoint.model.approvals import ApprovalPart, line_of
from pausepoint.model.sessions import Status
from pausepoint.model.views import SessionInfo
from pausepoint.orchestrator.runs import RUN, RunReader
from pausepoint.runtime.context import Context
from pausepoint.threads import in_thread

MOST = 1_000
"""The most agents that one gate serves."""

LOOK_EVERY = 2.0
"""Seconds between two looks at the processes of the agents."""

NOTICE = 0.2
"""Seconds until calls in flight notice that the server must end."""

WRITTEN_WITHIN = 5.0
"""Seconds until an agent that ends has written its last answer into its transcript, with what it used for it."""

HELD = (Status.PAUSED, Status.PAUSING, Status.WAITING, Status.SLEEPING)
BY = "gate"
"""The author of an answer that the gate gives itself."""

TRIES = 5
"""How often the gate looks for the question about a call that was withdrawn."""

AGAIN = 1.0
"""Seconds until the session is tried again after an error of the store."""

SHORT = 8
"""How many characters of an agent's own session are in the id of its session here."""


class AgentGone(Exception):
    """The process of an agent has ended without a word."""


class GuestAgent(BaseModel):
    """The state of an agent's session: what it is, its own session, where it works, and how it ended."""

    kind: str
    session: str
    folder: str = ""
    ended: str = ""


AGENTS = Workflow.guest("agent", state=GuestAgent, events=[CALL, BACKGROUND, PROMPT, SAID], questions_expire=None)


async def close_withdrawn(engine: Engine, gate: Gate, session_id: Callable[[], str]) -> None:
    """Close questions about calls that the agent no longer waits to make: its session would wait for an answer."""
    no = {"approved": False, "reason": "the agent no longer waits to make this call"}
    while True:
        call = await gate.withdrawn.get()
        for _ in range(TRIES):
            found = await engine.questions(tree=session_id(), key=call)
            for question in found:
                with suppress(PausepointError):  # a person was faster
                    await engine.answer(question.id, no, by=BY)
            if found:
                break
            await asyncio.sleep(AGAIN / TRIES)  # the question may be about to be asked


class GuestAgents:
    """Serves the gate of a project: each agent that reports there gets a guest session in the store.

    ``restricted`` are the commands and tools that need a person's approval. ``say`` is called with the name of an agent
    and a line about each thing that it does. ``words``: whether to store what the agents are told and say.
    """

    def __init__(
        self, engine: Engine, path: Path, restricted: Sequence[str] = (),
        say: Callable[[str, str], None] = lambda name, text: None, words: bool = True,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.restricted = tuple(restricted)
        self.say = say
        self.words = words
        self.gates: dict[tuple[str, str], Gate] = {}
        self._socket = GateSocket(path, self._find)
        self._tasks: dict[Gate, asyncio.Task[None]] = {}
        self._freezers: dict[str, tuple[Freezer, asyncio.Task[None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.engine.register(AGENTS)
        await self._socket.__aenter__()
        for session_id, _ in records(self._socket.path):
            self._freezer(session_id)
        self._looking = asyncio.create_task(self._look())
        self._leaving = asyncio.create_task(self._leave())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gate in self:  # their hooks do not leave: they look for the next server
            gate.withdrawn = asyncio.Queue()
        await self._socket.__aexit__(kind, error, trace)
        freezing = [task for _, task in self._freezers.values()]
        own = [task for task in (self._looking, self._leaving) if task is not None]
        tasks = [*own, *self._tasks.values(), *freezing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def watched(self) -> None:
        """Wait for as long as the agents are served. Raises what has ended the watch over them."""
        assert self._looking is not None
        await self._looking

    def __iter__(self) -> Iterator[Gate]:
        return iter(self.gates.values())

    def _find(self, report: Report) -> Gate:
        who = report.agent.kind, report.agent.session
        gate = self.gates.get(who)
        if gate is None:
            if len(self.gates) >= MOST:
                raise GateRefused(f"{MOST} agents are at this gate already. End some of them.")
            gate = self.gates[who] = Gate(f"{who[0]}-{who[1][:SHORT]}", self.restricted)
            gate.say = lambda text: self.say(gate.name, text)
            guest = _Guest(self.engine, gate, report.agent, self._freezer, report.event)
            gate.notes = guest.note_words if self.words else None
            self._tasks[gate] = asyncio.create_task(self._serve(guest, who), name=f"gate {gate.name}")
        return gate

    async def _serve(self, guest: _Guest, who: tuple[str, str]) -> None:
        try:
            await guest.serve()
        except Exception as error:  # otherwise its hooks would wait forever, and nobody would know why
            failed = f"The gate cannot serve this agent: {type(error).__name__}: {error}."
            guest.gate.say(failed)
            guest.gate.close(f"{failed} End `pausepoint gate serve` and start it again.")
            raise
        finally:
            self.gates.pop(who, None)
            self._tasks.pop(guest.gate, None)
            if guest.session_id in self._freezers:
                self._freezers.pop(guest.session_id)[1].cancel()

    def _freezer(self, session_id: str) -> Freezer:
        """Return what freezes the commands of a session's agent."""
        freezer, _ = self._freezers.get(session_id, (None, None))
        if freezer is None or freezer.is_over:
            freezer = Freezer(self.engine, session_id, record_of(self._socket.path, session_id))
            following = asyncio.create_task(freezer.follow(), name=f"freezer {session_id}")
            self._freezers[session_id] = freezer, following
            following.add_done_callback(lambda task: self._forget(session_id, task))
        return freezer

    def _forget(self, session_id: str, following: asyncio.Task[None]) -> None:
        if self._freezers.get(session_id, (None, None))[1] is following:
            del self._freezers[session_id]

    async def _leave(self) -> None:
        """Let go of the calls in flight when a signal ends the server: they are the agents' own, and may take hours."""
        while not self.engine.ending:
            await asyncio.sleep(NOTICE)
        for call in [call for gate in self for call in gate.in_flight]:
            call.let_go.set()

    async def _look(self) -> None:
        """Notice agents whose process has ended, or which were interrupted: no hook reports that."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for gate in tuple(self):
                if gate.agent is None or gate.ended.is_set():
                    continue
                if not _is_alive(gate.agent.pid, gate.process):
                    gate.lost()
                elif gate.transcript:
                    await _notice_interruptions(gate, Path(gate.transcript))


class _Guest:
    """One agent and its session. ``event`` is the first one that the agent reported to this server.

    ``freezers`` returns what freezes the commands of a session.
    """

    def __init__(
        self, engine: Engine, gate: Gate, agent: AgentFacts, freezers: Callable[[str], Freezer], event: str
    ) -> None:
        self.engine = engine
        self.gate = gate
        self.agent = agent
        self.name = gate.name
        self.freezers = freezers
        self.event = event
        self.session_id = ""
        self.is_new = False  # the session does not exist yet
        self.began = time.time()
        self.read: tuple[str, int] | None = None  # the transcript, and up to which byte it is recorded
        self.latest = ""  # what its model said last
        self.early = ""  # that, if it is recorded before it is in the transcript

    async def serve(self) -> None:
        """Visit the session whenever the agent has something to do, until the agent ends."""
        closing = close_withdrawn(self.engine, self.gate, lambda: self.session_id)
        withdrawing = asyncio.create_task(closing, name=f"questions of {self.gate.name}")
        try:
            while True:
                self.gate.news.clear()
                if await self._turn():
                    return
                await self.gate.news.wait()
        finally:
            withdrawing.cancel()
            await asyncio.wait([withdrawing])

    async def _turn(self) -> bool:
        """Visit the session until the agent rests. Return whether the agent has ended and its session says so."""
        gate = self.gate
        if self.engine.ending:
            return False  # each visit would be stopped at once; the next server goes on
        try:
            if gate.is_closed or not await self._is_open():
                return gate.ended.is_set()
            await self._visit()
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return False  # the agent rests
        except AgentGone:
            pass
        except Parked as parked:
            await self._wait(parked)
            return False
        except PausepointError as error:
            if isinstance(error, InputConflict) and self.is_new:
                self.session_id = ""  # another agent was faster with this name
            else:  # such as a full disk
                gate.tell(str(error))
                await asyncio.sleep(AGAIN)
            gate.news.set()
            return False
        return True

    async def _visit(self) -> None:
        gate = self.gate
        agent = self.agent
        state = GuestAgent(kind=agent.kind, session=agent.session, folder=agent.folder)
        given = state if self.is_new else None
        async with self.engine.visit(AGENTS, session_id=self.session_id, input=given, tags=[agent.kind]) as ctx:
            self.is_new = False
            self._freezer()
            await gate.attend(ctx)
            is_over = gate.ended.is_set()  # if it ends only now, another visit records its end
            await self._charge(ctx, is_over)
            if gate.is_lost and not gate.at_rest.is_set():
                raise AgentGone(f"The process of agent {gate.name} ended in the middle of its work.")
            if not is_over:
                raise asyncio.CancelledError  # ends the visit; the session stays open
            ctx.output = {"ended": "its process ended" if gate.is_lost else "it ended"}

    async def _is_open(self) -> bool:
        """Choose the session of this agent. Return False if it has none: it was cancelled, or has ended."""
        number = 1
        while not self.session_id:
            name = self.name if number == 1 else f"{self.name}-{number}"
            try:
                info = await self.engine.session(name).info()
            except UnknownSession:
                if self.event == "end" and not self.gate.is_busy:
                    return False  # nothing is known of this agent, and it has ended
                self.session_id, self.is_new = name, True
                break
            stored = await self.engine.session(name).stored()
            ours = info.workflow == AGENTS.name and stored.values.get("session") == self.agent.session
            if ours and info.status is Status.CANCELLED and self.event != "start":
                self._close(name)
                return False
            over = ours and info.status in (Status.COMPLETED, Status.FAILED)
            if over and self.event in FOLLOWING and not self.gate.is_busy:
                self.gate.ended.set()  # a hook reports late, and begins nothing
                return False
            if ours and info.status not in (Status.COMPLETED, Status.CANCELLED):
                self.session_id = name
            number += 1
        self.gate.name = self.session_id
        return True

    def _close(self, session_id: str) -> None:
        self.gate.close(f"Session {session_id} was cancelled by a person. Stop here, and do not try another way.")

    async def _charge(self, ctx: Context, is_over: bool) -> None:
        """Record what the agent has used since the last turn, by the sum in its transcript."""
        if not self.gate.transcript:
            return
        if is_over:
            await self._until_whole()
        total = await in_thread(tokens_in, Path(self.gate.transcript))
        known = (await self.engine.session(self.session_id).info()).spent_tokens
        if total > known:
            await ctx.do(charge, 0.0, total - known, key=f"until {total}")

    async def _until_whole(self) -> None:
        """Wait until the transcript has the last answer of an agent that ends. A process that has ended writes none."""
        gate, path, last = self.gate, Path(self.gate.transcript), self.gate.closing or self.latest
        limit = time.monotonic() + WRITTEN_WITHIN
        while last and time.monotonic() < limit and await in_thread(lacks, path, last):
            if not _is_alive(self.agent.pid, gate.process):
                return
            await asyncio.sleep(NOTICE)

    async def note_words(self, ctx: Context) -> None:
        """Record what the agent was told and said, and what its tools returned, since the last time."""
        gate, words, end = self.gate, list[Words](), 0
        if gate.transcript:
            start = await self._read_until()
            words, end = await in_thread(words_in, Path(gate.transcript), start, self.began)
        texts = [each.text for each in words if not each.id]
        if self.early in texts:  # and now it is there
            words = [each for each in words if each.id or each.text != self.early]
            self.early = ""
        elif gate.closing and gate.closing not in (*texts, self.latest):
            words.append(Words(gate.closing, ""))
            self.early = gate.closing
        self.latest = gate.closing or ([self.latest, *texts])[-1]
        gate.closing = ""
        prompts = tuple(gate.prompts)
        for text in prompts:
            agent = gate.agent or self.agent
            place = {"folder": agent.folder, "branch": branch_of(agent.folder), "terminal": terminal_of(agent.pid)}
            ctx.emit(PROMPT, _line(text), text=folded(text), **place)
        for each in words:
            ctx.emit(SAID, _line(each.text), text=folded(each.text), id=each.id, transcript=gate.transcript, end=end)
        if (prompts or words) and not gate.waiting:  # a call that is let through commits them
            await ctx.commit()
        del gate.prompts[: len(prompts)]
        self.read = gate.transcript, end

    async def _read_until(self) -> int:
        """Return up to which byte the transcript is recorded, also by an earlier server."""
        if self.read is None or self.read[0] != self.gate.transcript:
            last = None if self.is_new else await self.engine.session(self.session_id).last_event(SAID)
            is_same = last is not None and last.data.get("transcript") == self.gate.transcript
            self.read = self.gate.transcript, last.data["end"] if last is not None and is_same else 0
            self.began = 0.0 if is_same else self.began
        return self.read[1]

    def _freezer(self) -> Freezer:
        """Return what freezes this agent's commands, also while it rests."""
        freezer = self.freezers(self.session_id)
        freezer.gate = self.gate
        return freezer

    async def _wait(self, parked: Parked) -> None:
        """Wait until a session that must not run may run again, or was cancelled."""
        self.gate.tell(f"{parked.status}: {parked.reason}".rstrip(": "))
        if not await self._freezer().is_wanted(
            await self.engine.session(self.session_id).info()
        ):  # which notes them itself
            await note_commands(self.engine, self.session_id, self.gate)
        async with aclosing(self.engine.session(self.session_id).watch()) as news:
            async for info in news:
                if info.status is Status.CANCELLED:
                    self._close(self.session_id)
                if info.status not in HELD:
                    break
        self.gate.news.set()


def _line(text: str) -> str:
    return line_of(ApprovalPart("", text.strip()))


class AgentNote(NamedTuple):
    """What an agent that was stopped wants to do, and what it has left running; what it was told last, and where."""

    call: str = ""
    background: str = ""
    prompt: str = ""
    folder: str = ""
    branch: str = ""
    terminal: str = ""


async def agent_note(engine: Engine, info: SessionInfo) -> AgentNote:
    """Return the tool call that an agent waits to make, its commands in the background, and its last prompt.

    The agent was started by hand, or its session is a run, which has several agents: one per task.
    """
    if RUN in info.tags and info.status in HELD:
        begun = [each for each in (await RunReader(engine, info.session_id).read()).tasks if each.begun]
        calls = [f"{each.task.id}: {each.last.summary}" for each in begun if each.last and each.last.event_type == CALL]
        return AgentNote("; ".join(calls))
    if info.workflow != AGENTS.name or not info.guest:
        return AgentNote()
    session = engine.session(info.session_id)
    told = None if SCRIPT in info.tags else await session.last_event(PROMPT)  # which scripts do not have
    note = AgentNote() if told is None else AgentNote("", "", told.summary, **_place(told.data))
    if info.status not in HELD:
        return note
    left = None
    if info.pause is not None:
        left = await session.last_event(BACKGROUND, since=info.pause.created_at)
    background, ids = ("", ()) if left is None else (left.summary, left.data.get("begun", ()))
    note = note._replace(background=background)
    asked = await session.last_event(CALL)
    if asked is None or asked.data.get("id") in ids:
        return note
    after = {event.event_type async for event in session.events(after=asked.cursor)}
    return note if "operation.completed" in after else note._replace(call=asked.summary)


def _place(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(data.get(name, "")) for name in ("folder", "branch", "terminal")}


async def _notice_interruptions(gate: Gate, transcript: Path) -> None:
    """End the calls that a person has interrupted in the agent's window. Only the transcripts tell."""
    for call in gate.in_flight:
        if await in_thread(interrupted_since, transcript_of(transcript, call.sub), call.at):
            call.end("interrupted")
    if not gate.at_rest.is_set() and await in_thread(interrupted_since, transcript, gate.heard_at):
        gate.interrupted()


def _is_alive(pid: int, first: Process | None) -> bool:
    """Return whether an agent's process has not ended. ``first`` is what was found when the agent first reported.

    Another process may have its number by now. The hook may not know the number (0); then the agent has to say that it
    ends.
    """
    if pid <= 1:
        return True
    if first is not None:
        now = look(pid)
        return now is not None and now.start == first.start and not now.is_dead
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
