"""Agents of other programs as tasks, such as Claude Code: a pause holds them at their next tool call.

The hooks of such an agent report to a gate of this process. Each tool call is an operation inside the operation of the
command, so the run can pause while an agent waits at its gate. The agent's process is kept then, and continues with
that call after a resume. The agent's own session is remembered: after a kill, the task continues it if it can.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pausepoint import Context, Engine
from pausepoint.apps.devs.commands import KEY, TASK, Commands, Ran, whole
from pausepoint.apps.devs.models import SESSION, Plan, Todo, log_of
from pausepoint.apps.input import BadInput
from pausepoint.errors import GateRefused
from pausepoint.gate import (
    AGENT_KINDS,
    Gate,
    GateSocket,
    Report,
    close_withdrawn,
    make_private,
    missing_hooks,
    socket_path,
    tokens_in,
    tokens_of,
)
from pausepoint.orchestrator import ToolCall

AGENTS = "agents"
"""The folder with the sessions of agents, in the folder of the run's own files."""

RESULT = 256 * 1024
"""The most bytes at the end of an output that are searched for the agent's result."""

MOST = 100
"""The most agents and scripts that one agent may run."""


class Cost(NamedTuple):
    """What a command says that it has cost."""

    usd: float
    tokens: int


class GatedAgent:
    """One agent, with a gate for itself and for each agent and script that it runs.

    ``memory`` is shown in the snapshot. ``file`` remembers the agent's own session.
    """

    def __init__(self, todo: Todo, key: str, restricted: list[str], file: Path) -> None:
        self.task = todo.id
        self.kind = str(todo.agent)
        self.key = key
        self.token = secrets.token_urlsafe(32)
        self.restricted = restricted
        self.memory: dict[str, Any] = {}
        self.file = file
        self.session = ""
        self.run_id = ""
        self.watch: asyncio.Task[None] | None = None
        self.gates: dict[tuple[str, str], Gate] = {}
        self.more = asyncio.Event()  # there is another gate

    def hears(self, report: Report) -> Gate:
        """Return the gate for a report. The first session of its kind is the agent's own one."""
        who = report.agent.kind, report.agent.session
        if not self.session and who[0] == self.kind:
            self._remember(who[1])
        gate = self.gates.get(who)
        if gate is None:
            if len(self.gates) >= MOST:
                own = self.kind, self.session
                self.gates = {each: gate for each, gate in self.gates.items() if gate.is_busy or each == own}
            if len(self.gates) >= MOST:
                raise GateRefused(f"{MOST} agents and scripts of {self.task} are here already. End some of them.")
            name = self.task if who == (self.kind, self.session) else f"{self.task} ({who[0]} {who[1][:8]})"
            gate = self.gates[who] = Gate(name, self.restricted, facts={"task": self.task})
            self.more.set()
        return gate

    def restrict(self, restricted: list[str]) -> None:
        """Ask about these commands and tools from now on: the plan may have changed while the agent was kept."""
        self.restricted = restricted
        for gate in self.gates.values():
            gate.restricted = tuple(restricted)

    @property
    def is_held(self) -> bool:
        """Whether calls wait here and none is in flight."""
        gates = self.gates.values()
        return any(gate.waiting for gate in gates) and not any(gate.in_flight for gate in gates)

    @property
    def transcript(self) -> str:
        """The transcript of the agent; empty if it has none."""
        gate = self.gates.get((self.kind, self.session))
        return "" if gate is None else gate.transcript

    async def attend(self, ctx: Context) -> None:
        """Let the calls at all gates through, turn after turn."""
        served: dict[Gate, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self.more.clear()
                gates = list(self.gates.values())
                for gate in [gate for gate in served if gate not in gates]:
                    served.pop(gate).cancel()
                for gate in [gate for gate in gates if gate not in served]:
                    served[gate] = group.create_task(_attend(gate, ctx))
                await self.more.wait()

    def _remember(self, session: str) -> None:
        """Store the agent's own session before its first call, so that a kill does not lose it."""
        self.session = self.memory["session"] = session
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_name(f".{self.file.name}.{os.getpid()}.part")
        part.write_text(json.dumps({"key": self.key, "kind": self.kind, "session": session}), "utf-8")
        os.replace(part, self.file)

    def known_session(self) -> str:
        """Return the session of an earlier process of the same operation; empty if there is none."""
        try:
            found = json.loads(self.file.read_text("utf-8"))
        except (OSError, ValueError):
            return ""
        same = isinstance(found, dict) and (found.get("key"), found.get("kind")) == (self.key, self.kind)
        session = found.get("session") if same else None
        return session if isinstance(session, str) else ""


class GatedAgents:
    """The agents of other programs that this process runs for a plan. The socket is opened for the first one."""

    def __init__(self, plan: Plan, commands: Commands, engine: Engine) -> None:
        self.plan = plan
        self.commands = commands
        self.engine = engine
        self._closing: dict[Gate, asyncio.Task[None]] = {}
        self._agents: dict[str, GatedAgent] = {}  # by the key of the operation
        self._memories: dict[str, dict[str, Any]] = {}
        self._socket: GateSocket | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the socket. The hooks that leave then withdraw nothing: their agents ask again after a resume."""
        watches = [agent.watch for agent in self._agents.values() if agent.watch is not None]
        for task in (tasks := [*self._closing.values(), *watches]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            await self._socket.__aexit__(None, None, None)
            self._socket = None

    def shows(self, task: str, memory: dict[str, Any]) -> None:
        """Show the agent of a task in the memory of the agent that does the task."""
        self._memories[task] = memory

    def pending(self, task: str) -> list[ToolCall]:
        """Return the calls that the agent of a task waits to make."""
        gates = [gate for agent in self._agents.values() if agent.task == task for gate in agent.gates.values()]
        return [call for gate in gates for call in gate.pending]

    async def run(self, todo: Todo, ctx: Context) -> Ran:
        """Run the agent of a task until it ends, or continue the one that was kept."""
        assert todo.run is not None
        socket = await self._opened()
        key = ctx.idempotency_key
        agent, command = self._agents.get(key), todo.run
        if agent is None or not self.commands.has(key):
            check_hooks(todo, self.plan.workspace)
            self._agents = {each: agent for each, agent in self._agents.items() if agent.task != todo.id}
            agent = self._agents[key] = GatedAgent(todo, key, self.plan.head.restricted, self._file(todo))
            command = _again(todo, agent.known_session()) or todo.run
        agent.run_id = ctx.session_id
        if agent.watch is not None:
            agent.watch.cancel()
        agent.restrict(self.plan.head.restricted)
        agent.memory = self._memories.get(todo.id, {})
        agent.memory |= {"agent": agent.kind} | ({"session": agent.session} if agent.session else {})
        env = {
            **todo.env, TASK: todo.id, "DEVS_RUN": self.plan.name, KEY: key, "PAUSEPOINT_GATE": str(socket.path),
            "PAUSEPOINT_GATE_ON_LOSS": self.plan.head.on_loss,
        }  # fmt: skip
        running = self.commands.run(
            command, self.plan.workspace / todo.folder, log_of(self.plan, todo.id),
            todo.timeout or self.plan.head.timeout, env, token=agent.token, safe_point=ctx.safe_point,
            is_held=lambda: agent.is_held,
        )  # fmt: skip
        ran = await self._attended(agent, asyncio.ensure_future(running), ctx)
        await self._charge(agent, ctx)
        return ran

    async def _opened(self) -> GateSocket:
        """Open the socket, once for all agents. One that a killed process left has the same path, and is replaced."""
        async with self._opening:
            if self._socket is None:
                try:
                    path = socket_path(self.plan.state)
                    make_private(path.parent)
                    self._socket = await GateSocket(path, self._find).__aenter__()
                except GateRefused as error:
                    raise BadInput(str(error)) from error
            return self._socket

    def _find(self, report: Report) -> Gate:
        given = (report.token or "").encode("utf-8", "replace")
        for agent in self._agents.values():
            if secrets.compare_digest(agent.token.encode(), given):
                return self._served(agent, agent.hears(report))
        raise GateRefused("it does not come from an agent of this run.")

    def _served(self, agent: GatedAgent, gate: Gate) -> Gate:
        """Close the questions of calls at this gate that are withdrawn, also while the run waits for an answer."""
        if gate not in self._closing:
            closing = close_withdrawn(self.engine, gate, lambda: agent.run_id)
            self._closing[gate] = asyncio.create_task(closing, name=f"questions of {gate.name}")
        return gate

    def _file(self, todo: Todo) -> Path:
        return self.plan.state / AGENTS / f"{todo.id}.json"

    async def _attended(self, agent: GatedAgent, running: asyncio.Future[Ran], ctx: Context) -> Ran:
        """Let the calls of the agent through until its process ends."""
        attending = asyncio.ensure_future(agent.attend(ctx))
        try:
            both: list[asyncio.Future[Any]] = [running, attending]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not running.done() and (error := attending.exception()) is not None:
                for gate in agent.gates.values():
                    gate.close(f"The run cannot serve this agent: {error}")
                raise error
            ran = await running
        except BaseException:
            running.cancel()
            await whole(asyncio.wait([running]))
            if self.commands.has(agent.key):
                agent.watch = asyncio.create_task(self._watch(agent), name=f"the end of {agent.task}")
            else:
                self._agents.pop(agent.key, None)
            for gate in agent.gates.values():
                gate.tell(f"run {self.plan.name} has stopped; the call runs after a resume or an answer")
            raise
        finally:
            attending.cancel()
            await asyncio.wait([attending])
        self._agents.pop(agent.key, None)
        for gate in agent.gates.values():
            gate.finish()
            await gate.record(ctx)
        return ran

    async def _watch(self, agent: GatedAgent) -> None:
        """Note the end of an agent that is kept. A run that waits for an answer about its call continues then."""
        await self.commands.ended(agent.key)
        for gate in agent.gates.values():
            gate.lost()

    async def _charge(self, agent: GatedAgent, ctx: Context) -> None:
        """Record the cost that the agent's result names; otherwise the tokens in its transcript."""
        cost = await asyncio.to_thread(cost_in, log_of(self.plan, agent.task))
        if cost is None and agent.transcript:
            cost = Cost(0.0, await asyncio.to_thread(tokens_in, Path(agent.transcript)))
        if cost is not None and (cost.usd or cost.tokens):
            ctx.spend(usd=cost.usd, tokens=cost.tokens)


async def _attend(gate: Gate, ctx: Context) -> None:
    """Let the calls at one gate through, turn after turn."""
    while True:
        gate.news.clear()
        await gate.attend(ctx)
        await gate.news.wait()


def _again(todo: Todo, session: str) -> str:
    """Return the command that continues a session; empty if there is none."""
    return todo.again.replace(SESSION, shlex.quote(session)) if todo.again and session else ""


def check_hooks(todo: Todo, workspace: Path) -> None:
    """Refuse an agent whose hooks are not installed: a pause would not stop it."""
    kind = AGENT_KINDS[str(todo.agent)]
    if problem := missing_hooks(kind, workspace / todo.folder):
        own = " --user" if todo.folder != "." else ""  # a project has one place for hooks, at its root
        raise BadInput(f"{problem}. Install them: pausepoint gate install {kind.name}{own}")


def cost_in(log: Path) -> Cost | None:
    """Return the cost in the last line of an output that is an agent's JSON result; None if there is none."""
    with suppress(OSError, ValueError), open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - RESULT))
        lines = file.read().splitlines()
        found = json.loads(next((line for line in reversed(lines) if line.strip()), b""))
        if isinstance(found, dict) and isinstance(usd := found.get("total_cost_usd"), int | float) and usd >= 0:
            return Cost(float(usd), tokens_of(found.get("usage")))
    return None
