"""Gates: agents of other programs report here before each tool call, and wait here while they are paused.

An agent such as Claude Code calls a hook before and after each tool call, `pausepoint.integrations.gate`. The hook
connects to a `GateSocket` and asks. Each agent has a `Gate` with the calls that wait at it or are in flight.
`Gate.attend` lets them through inside a step, where each call is an operation: so a pause, a budget and a cancellation
hold it like any other operation, and it counts as in flight until the agent says that it is over.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from pausepoint.errors import Declined
from pausepoint.gate.approval import restriction_of_call
from pausepoint.gate.payloads import approval_of_call
from pausepoint.gate.reports import FOLLOWING, SCRIPT, AgentFacts, Background, CallFacts, Report
from pausepoint.gate.warden import Process, look, present
from pausepoint.model.approvals import Approval, ApprovalPart, line_of, question_line
from pausepoint.orchestrator.snapshot import ToolCall
from pausepoint.runtime.context import Context

CALL = "agent.call"
"""The event of a call that an agent wants to make. A session that attends agents declares it."""

PROMPT, SAID = "agent.prompt", "agent.said"
"""The events of what a person tells an agent, and of what its model says and its tools return."""

BACKGROUND = "agent.background"
"""The event of a paused agent that has left commands running."""

KEPT = 2_000
"""The most characters of one argument in the history."""

SNAPSHOT = 16 * 1024
"""The most characters of one argument in a snapshot."""

CONTAINERS = ("Task", "Agent")
"""Tools that run another agent, whose calls come to the gate on their own. They do not count as in flight."""

TICK = 0.02
"""Seconds between two looks of a call that was let go at its session, which perhaps does not know of the pause yet."""

_UNUSUAL = re.compile(r"[^\w.-]")

Answer = dict[str, Any]
OK: Answer = {"do": "ok"}


class Cost(NamedTuple):
    """What an agent says it has spent."""

    id: str
    usd: float
    tokens: int


class Call:
    """One tool call: it waits at the gate until it is answered, then it is in flight until it has ended."""

    def __init__(self, facts: CallFacts, agent: AgentFacts, answer: Callable[[Answer], None]) -> None:
        self.id = facts.id or f"call-{uuid4().hex}"
        self.name = facts.name or "call"
        self.arguments = facts.arguments
        self.cut = facts.cut
        self.missing = facts.missing
        self.folder = agent.folder
        self.sub = agent.sub
        self.lasts = self.name not in CONTAINERS
        self.at = time.time()
        self.in_flight = False
        self.began = 0  # when it was let through, as `Process.start` counts
        self.let_go = asyncio.Event()  # its session need not wait for it: its command is frozen, or the server ends
        self.asks = False  # the agent asks its own person for a permission
        self.approval: Approval | None = None  # what a person is shown
        self.is_asked = False  # a person is asked whether it may run
        self.is_approved = False
        self.is_noted = False  # it is in the history of the session
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers = [answer]

    def __repr__(self) -> str:
        return f"Call({self.id!r}, {self.said!r})"

    @property
    def said(self) -> str:
        """The call in one line. A long one is folded."""
        first = next((value for value in self.arguments.values() if isinstance(value, str) and value.strip()), "")
        return f"{self.name}: {line_of(ApprovalPart('', first.strip()))}" if first else self.name

    def answer(self, answer: Answer) -> None:
        """Tell all hooks of the call what to do. Does nothing for a hook that has gone."""
        for each in self._answers:
            each(answer)

    def again(self, answer: Callable[[Answer], None]) -> None:
        """Answer another connection, too: the hook lost the first one, or the agent has the hook twice."""
        self._answers.append(answer)
        if self.in_flight:
            answer(self.go)

    @property
    def go(self) -> Answer:
        """The answer that lets the call run."""
        return {"do": "run", "approved": True} if self.is_approved else {"do": "run"}

    def is_heard_without(self, answer: Callable[[Answer], None]) -> bool:
        """Forget a connection. Return whether another hook waits for the answer."""
        self._answers.remove(answer)
        return bool(self._answers)

    def end(self, how: str) -> None:
        """Note that the call is over."""
        if not self.ended.done():
            self.ended.set_result(how)


class Gate:
    """The gate of one agent. ``restricted`` are the commands and tools that need a person's approval.

    ``say`` is called with a line about each thing that happens here. ``facts`` are added to the event of each call.
    """

    def __init__(
        self, name: str, restricted: Sequence[str] = (), say: Callable[[str], None] = lambda text: None,
        facts: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.restricted = tuple(restricted)
        self.say = say
        self.facts = dict(facts or {})
        self.agent: AgentFacts | None = None
        self.process: Process | None = None  # that of the agent, if it is known
        self.calls: dict[str, Call] = {}
        self.costs: list[Cost] = []
        self.prompts: list[str] = []  # that are not recorded yet
        self.closing = ""  # what the model said at the end of the last turn
        self.notes: Callable[[Context], Awaitable[None]] | None = None  # records what is said, if that is stored
        self.transcript = ""
        self.heard_at = 0.0  # when the agent itself last reported; sub-agents do not count
        self.background: tuple[Background, ...] = ()
        self.at_rest = asyncio.Event()  # the agent has ended its turn, or has not begun one
        self.at_rest.set()
        self.ended = asyncio.Event()  # the agent has ended
        self.is_lost = False  # its process ended without a word
        self.news = asyncio.Event()
        self.withdrawn: asyncio.Queue[str] = asyncio.Queue()  # calls that a person is asked about, without a hook
        self.shown = (0, 0)
        self.why = ""
        self._refusal = ""

    def __repr__(self) -> str:
        return f"Gate({self.name!r}, {len(self.waiting)} waiting, {len(self.in_flight)} in flight)"

    @property
    def waiting(self) -> list[Call]:
        """The calls that wait to be let through."""
        return [call for call in self.calls.values() if not call.in_flight]

    @property
    def in_flight(self) -> list[Call]:
        """The calls that the agent makes now."""
        return [call for call in self.calls.values() if call.in_flight]

    @property
    def is_busy(self) -> bool:
        """Whether the agent works, or something that it reported is not recorded yet."""
        return bool(self.costs) or not self._is_quiet

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait, for a snapshot."""
        return tuple(ToolCall(call.id, call.name, _bounded(call.arguments, SNAPSHOT)) for call in self.waiting)

    # what the agent reports

    def heard(self, report: Report, answer: Callable[[Answer], None]) -> Call | None:
        """Take a report. Return the call if its hook waits for an answer; the others are answered at once."""
        self._take(report)
        if report.agent.sub is None:
            self.heard_at = time.time()
        self.transcript = report.transcript or self.transcript
        if report.event == "before":
            return self._arrived(report, answer)
        answer({**OK, "why": self.why, "id": self.name} if report.event == "prompt" and self.why else OK)
        match report.event:
            case "after":
                self._over(report)
            case "asks":
                self._asks(report)
            case "batch":
                self._end_calls("not reported", report.agent.sub)
            case "stop" | "idle":
                self.background = report.background
                self.closing = report.closing
                if report.failure:
                    self.say(f"was stopped by its model: {report.failure}")
                self._rest()
            case "start":
                self.say(f"begins in {report.agent.folder}")
            case "prompt":
                self._end_calls("interrupted", None)  # sub-agents in the background go on
                self.at_rest.clear()
                self.prompts += [report.prompt] if report.prompt and self.notes is not None else []
            case "end":
                self.finish()
            case "spend":
                self.costs.append(Cost(uuid4().hex, report.usd, report.tokens))
            case "progress":
                self.shown = (report.done, report.total)
        self.news.set()
        return None

    def _take(self, report: Report) -> None:
        """Note who reports. The number of a process may be used again, so its start is noted, too.

        A hook that outlives its agent has another parent, and must not replace the agent's process by that.
        """
        agent = report.agent
        if self.agent is not None and self.agent.pid > 1 and (agent.pid <= 1 or report.event in FOLLOWING):
            agent = msgspec.structs.replace(agent, pid=self.agent.pid)
        if self.agent is None or agent.pid != self.agent.pid:
            self.process = look(agent.pid) if agent.pid > 1 else None
        self.agent = agent

    def _arrived(self, report: Report, answer: Callable[[Answer], None]) -> Call:
        facts = report.call or CallFacts()
        self.at_rest.clear()
        if (known := self.calls.get(facts.id)) is not None:
            known.again(answer)
            return known
        if report.agent.kind == "codex":  # it does not report the end of a call that failed
            self._end_calls("not reported", report.agent.sub)
        call = Call(facts, report.agent, answer)
        self.calls[call.id] = call
        if self._refusal:
            self.refuse(call, self._refusal, stop=True)
        elif self.why:
            self.say(f"waits to run {call.said}")
            answer({"do": "wait", "why": self.why})
        self.news.set()
        return call

    def _over(self, report: Report) -> None:
        facts = report.call or CallFacts()
        same = [call for call in self.in_flight if call.name == facts.name and call.sub == report.agent.sub]
        call = self.calls.get(facts.id) or (same[0] if same and not facts.id else None)
        if call is not None:
            call.end("done" if report.ok else "failed")
            if call.name == "TodoWrite":
                self._note_todos(call.arguments.get("todos"))

    def _asks(self, report: Report) -> None:
        """Mark a call that waits for a yes in the agent's own window. It may begin at any time."""
        name = report.call.name if report.call is not None else ""
        for call in self.in_flight:
            if call.name == name and call.sub == report.agent.sub:
                call.asks = True

    def _note_todos(self, todos: Any) -> None:
        if isinstance(todos, list):
            done = [each for each in todos if isinstance(each, dict) and each.get("status") == "completed"]
            self.shown = (len(done), len(todos))

    def _rest(self) -> None:
        """The turn is over, so no call of the agent itself is in flight, also if its end was not reported."""
        if any(each.kind == "subagent" for each in self.background):
            self._end_calls("not reported", None)  # a sub-agent works on; its end begins another turn
            return
        self._end_calls("not reported")
        if not self.at_rest.is_set():
            self.say("rests")
        self.at_rest.set()

    def _end_calls(self, how: str, *subs: str | None) -> None:
        """End the calls in flight: all, or those of the agent itself (None) or of one sub-agent."""
        for call in self.in_flight:
            if not subs or call.sub in subs:
                call.end(how)

    def interrupted(self) -> None:
        """Note that its person has interrupted the agent, which now waits for the next prompt.

        Its sub-agents in the background go on.
        """
        self._end_calls("interrupted", None)
        if not any(call.sub for call in self.calls.values()):
            self.say("was interrupted by its person")
            self.at_rest.set()
        self.news.set()

    def finish(self) -> None:
        """Note that the agent has ended."""
        for call in self.waiting:
            self.left(call)
        self._end_calls("interrupted")
        self.say("is gone: its process has ended" if self.is_lost else "has ended")
        self.ended.set()
        self.news.set()

    def lost(self) -> None:
        """Note that the agent's process has ended without a word."""
        self.is_lost = True
        self.finish()

    def left(self, call: Call, answer: Callable[[Answer], None] | None = None) -> None:
        """Forget a call whose hooks have gone before it was answered: the agent does not make it.

        ``answer`` is that of the one hook that has gone; another one may still wait.
        """
        if answer is not None and call.is_heard_without(answer):
            return
        if not call.in_flight and self.calls.get(call.id) is call:
            del self.calls[call.id]
            call.end("withdrawn")
            if call.is_asked:
                self.withdrawn.put_nowait(call.id)
            self.news.set()

    def tell(self, why: str) -> None:
        """Say why calls wait, from now on."""
        self.why = why
        self.say(why)
        for call in self.waiting:
            self.say(f"waits to run {call.said}")
            call.answer({"do": "wait", "why": why})

    @property
    def is_script(self) -> bool:
        """Whether a script reports here. Its process is the shell of a person, with other commands."""
        return self.agent is not None and self.agent.kind == SCRIPT

    @property
    def is_closed(self) -> bool:
        """Whether every call is refused."""
        return bool(self._refusal)

    def close(self, reason: str) -> None:
        """Refuse every call from now on, and stop an agent that can be stopped."""
        self._refusal = reason
        for call in self.waiting:
            self.refuse(call, reason, stop=True)

    def refuse(self, call: Call, reason: str, stop: bool = False) -> None:
        """Refuse one call. The agent reads the reason. ``stop``: it would be refused every other call, too."""
        self.say(f"may not run {call.said}: {reason}")
        call.answer({"do": "refuse", "reason": reason} | ({"stop": True} if stop else {}))
        self.calls.pop(call.id, None)
        call.end("refused")

    # what a session does with it

    async def attend(self, ctx: Context) -> None:
        """Let calls through, one operation each, until the agent rests or has ended.

        A pause holds the calls that wait; they are let through when this runs again.
        """
        self.why = ""
        served: dict[Call, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while not (self._is_quiet and all(task.done() for task in served.values())):
                self.news.clear()
                await self.record(ctx)
                served = {call: task for call, task in served.items() if not task.done()}
                for call in [call for call in self.calls.values() if call not in served]:
                    served[call] = group.create_task(self._pass(ctx, call))
                    served[call].add_done_callback(lambda _: self.news.set())
                await self.news.wait()
        await self.record(ctx)

    @property
    def _is_quiet(self) -> bool:
        return not self.calls and (self.at_rest.is_set() or self.ended.is_set())

    async def record(self, ctx: Context) -> None:
        """Record what is said, and the progress and the costs that the agent has reported."""
        if self.notes is not None:
            await self.notes(ctx)
        if self.shown[1]:
            ctx.progress(*self.shown)
        while self.costs:
            cost = self.costs[0]
            await ctx.do(charge, cost.usd, cost.tokens, key=cost.id)
            self.costs.remove(cost)

    async def _pass(self, ctx: Context, call: Call) -> None:
        if not call.is_noted:
            ctx.emit(CALL, call.said, id=call.id, name=call.name, arguments=_stored(call.arguments), **self.facts)
            await ctx.commit()  # so that everybody sees what waits here
            call.is_noted = True
        if not call.in_flight and self._needs_approval(call):
            call.answer({"do": "wait", "why": "it needs an approval"})
            call.is_asked = True
            approval = await self._approval(call)
            try:
                call.is_approved = await ctx.confirm(
                    question_line(approval), key=call.id, expires=None, payload=msgspec.to_builtins(approval)
                )
            except Declined as no:
                if call.ended.done():
                    return  # its hook has gone, and so nobody reads the reason
                self.refuse(call, f"A person refused it: {no.reason or 'no reason given'}. Do not try it another way.")
                return
        if call.ended.done() and not call.in_flight:
            return  # its hook has gone meanwhile
        await ctx.do(self._tool(call), key=call.id)
        if not call.in_flight and not call.ended.done():  # the agent has made another call with this id before
            await ctx.do(self._tool(call), key=f"{call.id} {uuid4().hex}")
        self.calls.pop(call.id, None)

    def _needs_approval(self, call: Call) -> bool:
        """Return whether a person must be asked. A command that was cut may hide what is restricted."""
        is_restricted = restriction_of_call(call.name, call.arguments, self.restricted) is not None
        return is_restricted or (call.cut and bool(self.restricted))

    async def _approval(self, call: Call) -> Approval:
        """Return what a person is shown. It is made once, so that a question stays the same over a pause."""
        if call.approval is None:
            why = "it is too long to be checked" if call.cut else ""
            call.approval = await asyncio.to_thread(
                approval_of_call, self.name, call.folder, call.name, call.arguments, self.restricted, call.missing, why
            )
        return call.approval

    def _tool(self, call: Call) -> Callable[..., Any]:
        """Return the operation of a call: it is in flight from the answer until the agent reports its end."""

        async def tool(ctx: Context) -> str:
            if not call.in_flight and not call.ended.done():
                call.in_flight, call.began = True, present()
                self.say(f"runs {call.said}")
                call.answer(call.go)
            return await _ended(call, ctx) if call.lasts else "started"

        tool.__name__ = tool.__qualname__ = _UNUSUAL.sub("_", call.name)
        return tool


async def _ended(call: Call, ctx: Context) -> str:
    """Wait for the end of a call. While it is let go, the session can stop; the next visit waits on."""
    while not call.ended.done():
        going = asyncio.ensure_future(call.let_go.wait())
        waits: list[asyncio.Future[Any]] = [call.ended, going]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            going.cancel()
        while call.let_go.is_set() and not call.ended.done():
            await ctx.safe_point()
            await asyncio.sleep(TICK)
    return call.ended.result()


def charge(usd: float, tokens: int, ctx: Context) -> None:
    """Record a cost of an agent, as an operation of its session."""
    ctx.spend(usd=usd, tokens=tokens)


def folded(text: str) -> str:
    """Return a text for the history, where nobody needs a whole file."""
    return text if len(text) <= KEPT else f"{text[:KEPT]}… ({len(text):,} characters in all)"


def _stored(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the history, where nobody needs a whole file."""
    texts = {name: value if isinstance(value, str) else _json(value) for name, value in arguments.items()}
    return _bounded(texts, KEPT)


def _bounded(arguments: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return arguments with at most so many characters each. A cut one says how many there are."""
    texts = {name: value if isinstance(value, str) else _json(value) for name, value in arguments.items()}
    return {
        name: value if len(text := texts[name]) <= most else f"{text[:most]}… ({len(text):,} characters in all)"
        for name, value in arguments.items()
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
