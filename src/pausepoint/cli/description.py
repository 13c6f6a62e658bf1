"""The description of a session: what is notable about it, why it does not run, and the exact commands that help.

Every command that says more about a session than its status calls `describe`, and prints a part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pausepoint.cli.console import ago
from pausepoint.cli.context import Cli
from pausepoint.cli.text import answer_hint, approval, clock, one_line, standing_pause_line, time_left, wait_phrase
from pausepoint.cli.ways import reasons_now, retest, ways_out, ways_to_ask_again, with_commands

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.questions import Question
    from pausepoint.model.sessions import Pause
    from pausepoint.model.views import Obstacles, SessionInfo

ASKED = 5
"""The number of questions of one session to show."""

CHILDREN = 5
"""The number of children of one session to show."""

RUN = " --run"
"""The option of ``answer`` that also resumes the session."""

GUEST = "Its code runs in another program, which continues it."
"""What to say about a guest session that nobody else can continue."""

AGENT = "agent"
"""The workflow of agents at the gate. Say that they make calls, and not that these are visits of a guest."""


class Description(NamedTuple):
    """A session, and what explains its status: its open pauses, and the questions and children that it waits for.

    ``standing`` is the pause of everything, if that is one of its pauses. ``now`` is what a resume would find; None if
    that was not tested, or if its code cannot be loaded here.
    """

    info: SessionInfo
    pauses: Sequence[Pause] = ()
    questions: Sequence[Question] = ()
    children: Sequence[SessionInfo] = ()
    standing: Pause | None = None
    now: Obstacles | None = None

    @property
    def is_agent(self) -> bool:
        """Whether it is the session of an agent at the gate."""
        return self.info.guest and self.info.workflow == AGENT

    def note(self) -> str:
        """Return what is notable about the session, in a few words."""
        info = self.info
        cancel = "cancel requested" if info.cancel_requested else ""
        match info.status.value:
            case "running":
                done = f"{info.progress[0]}/{info.progress[1]}" if info.progress else ""
                return ", ".join(filter(None, (done, cancel)))
            case "pausing":
                return "still finishing a call" if self.is_agent else f"still finishing {info.step}#{info.visit}"
            case "paused":
                failed = [f"failed: {_failure_phrase(info)}"] if info.failure else []
                return "; ".join(dict.fromkeys([*map(pause_note, self.pauses), *failed]))
            case "waiting" if self.questions:
                more = f" (and {len(self.questions) - 1} more)" if len(self.questions) > 1 else ""
                return one_line(f"asks: {self.questions[0].next_question}{more}")
            case "waiting":
                return wait_phrase(info)
            case "sleeping" if info.wakes_at:
                return f"until {clock(info.wakes_at)} ({ago(info.wakes_at)})"
            case "failed" if info.failure:
                return _failure_phrase(info)
            case "created" | "ready" if info.waits_for_slot:
                return f"waits for a free slot of {info.waits_for_slot}"
            case "ready":
                program = "agent" if self.is_agent else "program"
                return f"waits for its {program}" if info.guest else "not running"
        return ""

    def reasons(self, cli: Cli) -> list[str]:
        """Return the reasons for the session's status, one line each."""
        info = self.info
        if info.guest and info.status.value in ("created", "ready", "sleeping"):
            until = f"Sleeping until {clock(info.wakes_at)} ({ago(info.wakes_at)}). " if info.wakes_at else ""
            return [until + GUEST]
        if info.waits_for_slot:
            return [f"It waits for a free slot of {info.waits_for_slot}, and runs when there is one."]
        match info.status.value:
            case "created":
                return ["No step has finished yet, and no process is running it."]
            case "ready":
                return ["It can continue, but no process is running it."]
            case "cancelled":
                return ["It was cancelled."]
            case "pausing":
                what, when = f"{info.step}#{info.visit}", "at the next safe point"
                if self.is_agent:
                    what, when = "a call", "before the next one"
                head = f"Still finishing {what}; it pauses {when}."
                return [head, *(_pause_line(pause, "Pause requested") for pause in self.pauses)]
            case "paused":
                return [*self._why_paused(cli), *_failure_line(cli, info)]
            case "failed":
                return [*_failure_line(cli, info), *([GUEST] if info.guest else [])]
            case "waiting" if self.questions:
                return [_question_line(each) for each in self.questions]
            case "waiting":
                return [f"Waiting {wait_phrase(info)}.", *map(_child_line, self.children[:CHILDREN])]
            case "sleeping" if info.wakes_at:
                return [f"Sleeping until {clock(info.wakes_at)} ({ago(info.wakes_at)}); a worker wakes it then."]
        return []

    def _why_paused(self, cli: Cli) -> list[str]:
        everything = [] if self.standing is None else [standing_pause_line(self.standing)]
        own = [_pause_line(pause, cut=self.now is not None) for pause in self.pauses if not pause.standing]
        changed = reasons_now(cli, self.info, self.pauses, self.now)
        return [*everything, *(with_commands(line, cli, self.info) for line in own), *changed]

    def commands(self, cli: Cli, then: str = "", planned: bool = False) -> list[str]:
        """Return what a person can do now, one line each.

        ``then``: the command to use after the wait has ended. ``planned``: the plan is already shown.
        """
        found = self._commands(cli, bool(then), planned)
        if then and self.info.status.value == "waiting" and not any(how.endswith(RUN) for _, how in found):
            found = [*found, ("Then:", then)]
        width = max((len(what) for what, _ in found), default=0)
        return [f"{what.ljust(width)}  {command}" for what, command in found]

    def lines(self, cli: Cli, then: str = "") -> list[str]:
        """Return why the session does not run, and the exact commands that help. Empty if there is nothing to do."""
        return [*self.reasons(cli), *self.commands(cli, then)]

    def _commands(self, cli: Cli, resumes: bool, planned: bool) -> list[tuple[str, str]]:
        """Return labels and exact commands. ``resumes``: an answer also resumes the session."""
        info = self.info
        name, workflow = info.session_id, info.workflow
        resume, add = cli.resume(info), cli.to_add(info)
        match info.status.value:
            case "sleeping" if info.guest:
                return [("End its timers:", f"{resume} --wake")]
            case "created" | "ready" | "failed" if info.guest:
                return []
            case "created" | "ready" | "failed":
                again = ways_to_ask_again(cli, info) if info.status.value == "failed" else []
                return [*again, (f"Resume{add}:", resume)]
            case "running":
                return [("Watch:", cli.command("watch", name)), ("Pause:", cli.command("pause", name))]
            case "pausing":
                return [("Withdraw the pause:", resume)]
            case "paused":
                lift = [("Resume everything:", cli.lift)] if any(pause.standing for pause in self.pauses) else []
                again = ways_to_ask_again(cli, info)
                return [*again, *lift, *ways_out(cli, info, self.pauses, self.now, planned)]
            case "waiting" if self.questions:
                code, run = (workflow, RUN) if resumes and not info.guest else (None, "")
                calls = [question for question in self.questions if approval(question) is not None]
                return [
                    *(("Answer:", cli.command("answer", each.id, code) + run) for each in self.questions),
                    *(("Show all that would run:", f"{cli.command('answer', call.id)} --later") for call in calls),
                ]
            case "waiting" if "message" in info.waiting:
                return [("Send:", f"{cli.command('send', name)} MESSAGE")]
            case "waiting":
                some = self.children[:CHILDREN]
                return [("Show the child:", cli.command("show", each.session_id)) for each in some]
            case "sleeping":
                worker = cli.command("worker", workflow=workflow)
                return [(f"Wake it now{add}:", f"{resume} --wake"), (f"Wake it when due{add}:", worker)]
            case "cancelled":
                return [(f"Start a new session from it{add}:", cli.command("fork", name, workflow))]
        return []


async def describe(engine: Engine, info: SessionInfo, cli: Cli | None = None) -> Description:
    """Read what explains a session's status. With ``cli``, also test what a resume would find now."""
    pauses = await engine.session(info.session_id).pauses() if info.status.value in ("pausing", "paused") else []
    reads_children = "child" in info.waiting or (cli is not None and info.status.value == "waiting")
    called = await engine.session(info.session_id).children() if reads_children else []
    found = Description(
        info, pauses, await open_questions(engine, info),
        [each for each in called if each.status.value not in ("completed", "cancelled")],
    )  # fmt: skip
    if cli is None or info.status.value != "paused":
        return found
    standing = await engine.standing_pause() if any(pause.standing for pause in pauses) else None
    return found._replace(standing=standing, now=await retest(cli, engine, info, pauses))


async def open_questions(engine: Engine, info: SessionInfo, most: int = ASKED) -> list[Question]:
    """Return the questions that a session, or a child of it, waits for."""
    if info.status.value != "waiting" or not {"answer", "child"} & set(info.waiting):
        return []
    return list(await engine.questions(tree=info.session_id, limit=most))


def pause_note(pause: Pause) -> str:
    """Return a pause in a few words: who asked for it, and why."""
    if pause.kind == "operator":
        who = pause.by or "an operator"
        return one_line(f"{who}: {pause.reason}" if pause.reason else f"by {who}")
    return one_line(f"{pause.kind}: {pause.reason}")


def _failure_phrase(info: SessionInfo) -> str:
    return one_line(f"{info.failure.type}: {info.failure.message}") if info.failure is not None else ""


def _failure_line(cli: Cli, info: SessionInfo) -> list[str]:
    if info.failure is None:
        return []
    tries = f" after {info.failure.attempts} attempts" if info.failure.attempts > 1 else ""
    return [with_commands(f"Failed in {info.failure.step}#{info.visit}{tries}: {_failure_phrase(info)}", cli, info)]


def _question_line(question: Question) -> str:
    again = f"asked again: {question.complaint}" if question.complaint else ""
    where = f"in {question.sub_chain_id}" if question.sub_chain_id else ""
    known = "; ".join(filter(None, (answer_hint(question), again, time_left(question), where)))
    return one_line(f"Question: {question.next_question} ({known})")


def _pause_line(pause: Pause, verb: str = "Paused", cut: bool = False) -> str:
    """Return a line about a pause. ``cut``: without the ways out that were stored with it."""
    who = f" by {pause.by}" if pause.by else ""
    if pause.kind == "operator":
        return one_line(f"{verb}{who}" + (f": {pause.reason}" if pause.reason else "."))
    if pause.kind == "guard":
        return one_line(f"Paused by a guard{f' after step {pause.step}' if pause.step else ''}: {pause.reason}")
    reason = pause.reason.partition(" What to do: ")[0] if cut else pause.reason
    return one_line(f"Paused{f' at step {pause.step}' if pause.step else ''} ({pause.kind}): {reason}")


def _child_line(child: SessionInfo) -> str:
    return f"  {child.session_id} is {child.status.value} {Description(child).note()}".rstrip()
