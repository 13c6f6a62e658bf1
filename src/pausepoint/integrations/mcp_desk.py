"""Carries out the tools of the MCP server, and says in sentences what cannot be done.

This module knows nothing of the protocol. `mcp_server` speaks it.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from pausepoint.engine import documents, history_documents
from pausepoint.errors import (
    DamagedRecord,
    PausepointError,
    QuestionChanged,
    Redacted,
    UnknownQuestion,
    did_you_mean,
    error_text,
)
from pausepoint.integrations.excerpts import ROOM, encoded, excerpt, excerpts, fitted, part, size
from pausepoint.integrations.mcp_tools import (
    TOOLS,
    Allow,
    Arguments,
    Document,
    Events,
    ListSessions,
    OneSession,
    OpenQuestions,
    PauseEverything,
    PauseSession,
    Send,
    ShowSession,
    listed,
)
from pausepoint.integrations.words import Words, complaint
from pausepoint.model.sessions import QuestionStatus
from pausepoint.name import NAME
from pausepoint.threads import in_thread, to_its_end

if TYPE_CHECKING:
    from pausepoint.definition.workflow import Workflow
    from pausepoint.engine.engine import Engine
    from pausepoint.integrations.answers import Said
    from pausepoint.model.questions import Question
    from pausepoint.model.sessions import Event
    from pausepoint.model.views import SessionInfo, StandingPause, StoredState

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds to wait after an answer until its step has accepted it or asks again, if a process drives the session."""

LOOKS = 8
"""How many calls that only look may have the store open at the same time."""


# refusals


class CallRefused(Exception):
    """A call that is refused, with a sentence for the model."""


WORDING = Words(
    {
        "UnknownSession": "There is no session {session_id!r}. List the sessions with list_sessions.",
        "UnknownQuestion": "There is no question {question_id!r}. List the open questions with open_questions.",
        "AlreadyRunning": "Session {session_id!r} runs already, in {holder}.",
        "StoreMissing": (
            "There is no store at {path}. The first session creates it. If there should be one, check --store of this"
            " server."
        ),
    },
    {
        "AmbiguousSession": "Give more of the id.",
        "DamagedRecord": f"A person can look at the damage with `{NAME} verify`.",
        "DefinitionError": "A person must start the server with the present code of the workflow.",
        "FolderRefused": "A person must look at the folder.",
        "QuestionError": "List the open questions with open_questions.",
        "SessionEnded": f"It cannot continue. A person can rewind or fork it: `{NAME} rewind --help`.",
        "SessionError": "Read the session with show_session.",
        "StoreDamaged": f"A person must decide what to do: `{NAME} doctor --store {{path}}`.",
        "UnknownCheckpoint": "The events of the session name its checkpoints.",
        "ValueRefused": "Correct the value, then call the tool again.",
    },
    "The call was refused. Read the session with show_session, then decide what to do.",
)


def sentence_of(error: Exception) -> str:
    """Return an error as a sentence for a model. It is never a traceback."""
    if isinstance(error, CallRefused):
        return str(error)
    if isinstance(error, PausepointError):
        return WORDING.of(error)
    if type(error) is ValueError and str(error).endswith((".", "?")):  # the engine's sentence about an argument
        return WORDING.of(error)
    said = error_text(error)[:1_000]
    return f"The call failed with {type(error).__name__}: {said}"


# calls


def _command(verb: str, name: str | None) -> str:
    return shlex.join([NAME, *verb.split(), *([] if name is None else [name])])


class Settings(NamedTuple):
    """What the server was started with.

    - ``engine``: returns an engine on the store, which is opened for each call. A store that is created, moved or
      repaired while the server runs is therefore found.
    - ``workflows``: returns the workflows whose code is known, for `plan`. It is called in a thread.
    - ``command``: returns the command that a person types, from its verb and the id of a session or question.
    - ``resume``: returns the command that resumes a session, and what a person must add to it. Both commands are
      also needed after a pause or an answer was stored, so they must not load any code.
    - ``by``: the person's name for the history.
    """

    engine: Callable[[], Engine]
    workflows: Callable[[], Iterable[Workflow[Any]]] = lambda: ()
    command: Callable[[str, str | None], str] = lambda verb, name: _command(verb, name)
    resume: Callable[[SessionInfo], str] = lambda info: f"`{_command('resume', info.session_id)}`"
    allow: Allow = "look"
    by: str | None = None


class Desk:
    """Carries out the calls of one server. A pause never waits until slow searches end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._looks = asyncio.Semaphore(LOOKS)
        self._workflows: Sequence[Workflow[Any]] = ()

    def arguments(self, name: str, given: Document | None) -> Arguments:
        """Return the arguments of a call. Raises a `CallRefused` if there is no such tool, or it is not allowed."""
        tool = TOOLS.get(name)
        if tool is None:
            known = [each.name for each in listed(self.settings.allow)]
            raise CallRefused(f"There is no tool {name!r:.100}{did_you_mean(name, known)}")
        if tool.needs == "act" and self.settings.allow != "act":
            ids = ((given or {}).get(each) for each in ("question_id", "session_id"))
            about = next((each for each in ids if isinstance(each, str) and len(each) < 200), None)
            raise CallRefused(
                f"{name} is not allowed: this server may only look and pause. A person can allow it by starting the"
                f" server with --allow act, or do it in a terminal: `{self.settings.command(_VERBS[name], about)}`."
            )
        try:
            return msgspec.convert(given or {}, tool.arguments)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CallRefused(f"The arguments of {name} are not accepted: {complaint(error)}. Correct them.") from None

    async def call(self, name: str, arguments: Arguments, client: str) -> Document:
        """Carry out a call, and return its result. ``client`` is the name of the program that the model runs in."""
        work: Callable[[Engine, Any, str], Awaitable[Document]] = getattr(self, f"_{name}")
        if name == "plan":  # the code may take any time to load, so nothing is held meanwhile
            self._workflows = tuple(await in_thread(self.settings.workflows))
        async with self._looks if TOOLS[name].is_look else nullcontext():
            return await self._with_engine(lambda engine: work(engine, arguments, self._by(client)))

    async def _with_engine(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Open the store and work with it. If the client cancels the call, the work still ends and the store closes."""

        async def opened() -> T:
            async with self.settings.engine() as engine:
                return await work(engine)

        return await to_its_end(opened())

    def _by(self, client: str) -> str:
        """Return the name for the history of what a model did: the person and the program."""
        name = "".join(each for each in client if each.isprintable())[:60]
        return f"{self.settings.by} ({name or 'mcp'})" if self.settings.by else name or "mcp"

    # looking

    async def _list_sessions(self, engine: Engine, arguments: ListSessions, by: str) -> Document:
        chosen: Document = {"status": arguments.status or None, "workflow": arguments.workflow,
                            "owner": arguments.owner, "text": arguments.text}  # fmt: skip
        limit, page = arguments.limit, Document()
        while limit:
            infos = await engine.sessions(**chosen, limit=limit, after=arguments.after)
            page = {"sessions": [_brief(each) for each in infos], "next": infos.next,
                    "damaged": excerpt(to_builtins(documents.damaged(infos.damaged)), 3_000)}  # fmt: skip
            if size(page) <= ROOM // 2:
                break
            limit //= 2  # fewer on this page, so that the next one begins after the last that is shown
        total = sum((await engine.tally(**chosen)).values())
        return _lean({**page, "total": total, "standing_pause": await self._standing(engine)})

    async def _standing(self, engine: Engine) -> Document | None:
        pause = documents.standing_pause(await engine.standing_pause())
        if pause is None:
            return None
        return fitted(to_builtins(pause), 3_000) | {"lift_command": self.settings.command("resume --all", None)}

    async def _show_session(self, engine: Engine, given: ShowSession, by: str) -> Document:
        info = await engine.find(given.session_id)
        at = int(given.at) if given.at is not None and re.fullmatch(r"[0-9]{1,15}", given.at) else given.at
        if given.field is not None:
            return _field(await engine.session(info.session_id).stored(at), given.field, given.offset)
        stored, wrong = None, ""
        try:
            stored = await engine.session(info.session_id).stored(at)
        except (DamagedRecord, Redacted) as error:
            wrong = sentence_of(error)
        pauses = await engine.session(info.session_id).pauses()
        questions = self._questions(await engine.questions(tree=info.session_id, limit=10), ROOM // 3)
        children = [
            f"{each.session_id} ({each.status.value})" for each in await engine.session(info.session_id).children()
        ]
        facts = replace(documents.shown(info, pauses, (), None, stored, wrong), state=None)
        shown = fitted(_lean(to_builtins(facts) | {"children": children}), ROOM // 3) | _lean({"questions": questions})
        if stored is None:
            return shown
        state = excerpt(stored.values, max(ROOM - size(shown), ROOM // 10))
        if state is not stored.values:
            shown["left_out"] = "Parts of the state. Read a whole field with `field`."
        return shown | {"state": state}

    async def _events(self, engine: Engine, given: Events, by: str) -> Document:
        info = await engine.find(given.session_id)
        reading = cast("AsyncGenerator[Event, None]", engine.session(info.session_id).events(given.after or ""))
        found, room, left_out = deque[tuple[Document, int]](), ROOM, 0
        async with aclosing(reading):
            async for event in reading:
                document = excerpts(
                    _lean(to_builtins(history_documents.EventDocument.of(event)) | {"session_id": None}), ROOM // 20
                )
                length = size(document)
                if given.after is not None and (room < length or len(found) == given.limit):
                    break
                found.append((document, length))
                room -= length
                while given.after is None and (room < 0 or len(found) > given.limit):
                    room += found.popleft()[1]
                    left_out += 1
        shown = [document for document, _ in found]
        last = shown[-1]["cursor"] if shown else given.after
        return _lean({"session_id": info.session_id, "earlier_events": left_out or None}) | {
            "events": shown, "next": last
        }  # fmt: skip

    async def _plan(self, engine: Engine, given: OneSession, by: str) -> Document:
        info = await engine.find(given.session_id)
        for workflow in self._workflows:
            engine.register(workflow)
        if info.workflow not in engine.workflows:
            raise CallRefused(
                f"This server has no code of workflow {info.workflow!r}, which a plan needs. A person can start the"
                " server with --target file.py:name, or name the workflow in pyproject.toml under"
                f" [tool.{NAME}.workflows]{did_you_mean(info.workflow, engine.workflows)}"
            )
        return fitted(_lean((await engine.session(info.session_id).plan()).to_json()))

    async def _open_questions(self, engine: Engine, arguments: OpenQuestions, by: str) -> Document:
        session_id = None if arguments.session_id is None else (await engine.find(arguments.session_id)).session_id
        limit, page = arguments.limit, Document()
        while limit:
            questions = await engine.questions(tree=session_id, limit=limit, after=arguments.after)
            page = {"questions": self._questions(questions, ROOM * 3 // 4), "next": questions.next,
                    "damaged": excerpt(to_builtins(documents.damaged(questions.damaged)), 3_000)}  # fmt: skip
            if size(page) <= ROOM:
                break
            limit //= 2  # as for sessions
        return _lean(page) | {"total": sum((await engine.tally_questions(tree=session_id)).values())}

    def _questions(self, found: Sequence[Question], room: int) -> list[Document]:
        """Return open questions that take about ``room`` bytes. All are named, with the way to answer each of them."""
        each = 4_000
        while True:
            shown = [self._question(question, each) for question in found]
            if size(shown) <= room or each < 100:
                return shown
            each //= 3

    def _question(self, question: Question, room: int) -> Document:
        """Return an open question, with the way to answer it. Its other members take at most ``room`` bytes each."""
        way = "answer_question" if self.settings.allow == "act" else self.settings.command("answer", question.id)
        first = {"id": question.id, "next_question": excerpt(question.next_question, max(room, 300)), "answer": way}
        rest = _lean(to_builtins(documents.QuestionDocument.of(question, answer=way)))
        left_out = ("digest", "pause_reason", "version", *first)
        return first | excerpts({name: value for name, value in rest.items() if name not in left_out}, room)

    # pausing

    async def _pause_session(self, engine: Engine, given: PauseSession, by: str) -> Document:
        try:
            session_id = (await engine.find(given.session_id, exact=True)).session_id
            found = await engine.session(session_id).pause(reason=given.reason, by=by)
        except DamagedRecord as damage:
            raise await self._damaged(engine, damage, given, by) from None
        now = await engine.session(session_id).info()
        said = {
            "pausing": "It finishes its current operation first. show_session tells when it is paused.",
            "completed": "It has completed, so there is nothing to pause.",
            "cancelled": "It was cancelled, so there is nothing to pause.",
        }.get(now.status.value, "A person can resume it.")
        return _brief(now) | _lean({
            "children": len(found) - 1 or None, "note": said,
            "resume": self.settings.resume(now),
        })  # fmt: skip

    async def _damaged(self, engine: Engine, damage: DamagedRecord, given: PauseSession, by: str) -> CallRefused:
        """Pause a session that cannot be read, and return the refusal that says so."""
        if "session_id" not in damage.fields:  # of the whole store
            return CallRefused(sentence_of(damage))
        with suppress(DamagedRecord):  # it is raised after the pause was stored
            await engine.session(damage.fields["session_id"]).pause(reason=given.reason, by=by)
        return CallRefused(f"The pause is stored, but the session is damaged: {sentence_of(damage)}")

    async def _pause_everything(self, engine: Engine, given: PauseEverything, by: str) -> Document:
        found = await engine.pause_all(reason=given.reason, by=by)
        some = [{"session_id": each.session_id, "status": each.status.value} for each in found[:20]]
        total = sum((await engine.tally(status=("pausing", "paused"))).values())
        return {"standing_pause": await self._standing(engine), "sessions": some, "paused_or_pausing": total}

    # acting

    async def _resume_session(self, engine: Engine, given: OneSession, by: str) -> Document:
        info = await engine.find(given.session_id, exact=True)
        if (standing := await engine.standing_pause()) is not None:  # a resume would exempt the session from it
            raise self._all_paused(info.session_id, standing)
        await engine.session(info.session_id).resume(by=by, here=False)
        await self._check_not_exempted(engine, info.session_id, by)
        return await self._after(engine, info.session_id)

    async def _check_not_exempted(self, engine: Engine, session_id: str, by: str) -> None:
        """Pause a session again if everything was paused just before its resume, which exempted it from that pause."""
        standing = await engine.standing_pause()
        if standing is None or (await engine.session(session_id).info()).pause_requested:
            return
        await engine.session(session_id).pause(reason=excerpt(standing.reason, 500), by=by)
        raise self._all_paused(session_id, standing)

    def _all_paused(self, session_id: str, standing: StandingPause) -> CallRefused:
        why = f": {standing.reason}" if standing.reason else ""
        return CallRefused(
            f"Everything is paused{f' by {standing.by}' if standing.by else ''}{excerpt(why, 500)}. Only a person"
            f" may lift that: `{self.settings.command('resume --all', None)}`. Session {session_id!r} stays paused."
        )

    async def _after(self, engine: Engine, session_id: str) -> Document:
        """Return a session that can continue, and what a person must do if no process continues it."""
        info = await engine.session(session_id).info()
        found = _brief(info)
        if info.status.value not in ("ready", "created") or info.guest:
            return found
        if await _is_driven(engine, info):
            return found | {"note": "A process that has its code continues it."}
        return found | {"note": f"No open process has its code. A person runs it with {self.settings.resume(info)}."}

    async def _send(self, engine: Engine, given: Send, by: str) -> Document:
        info = await engine.find(given.session_id, exact=True)
        for question in await engine.questions(tree=info.session_id, limit=1):
            raise _would_answer(question.session_id, question.id)
        try:
            await engine.session(info.session_id).send(given.message, key=given.key, by=by, channel="mcp", seen="")
        except QuestionChanged as asking:  # meanwhile
            raise _would_answer(info.session_id, asking.question_id) from None
        return await self._after(engine, info.session_id)

    # questions

    async def question(self, question_id: str) -> Question:
        """Return a question in any status."""
        return await self._with_engine(lambda engine: _found(engine, question_id))

    async def answer(self, question: Question, said: Said, seen: str) -> Document | Question:
        """Store the answer that a person gave in a form, and return its receipt.

        Only the step can judge some answers. If a process drives the session, wait for that, and return the question
        if the step asks it again.
        """

        async def stored(engine: Engine) -> Document | Question:
            taken = await engine.answer(said.question_id, said.value, by=self.settings.by, channel="mcp", seen=seen)
            judged = await _judged(engine, question)
            if judged.status is QuestionStatus.WAITING:
                return judged
            info = await engine.session(taken.session_id).info()
            facts = _lean(to_builtins(documents.answered(taken, info, "")))
            note = {"answer": STORED} if judged.status is QuestionStatus.RESUMED and _can_run(info) else {}
            return facts | note | {"session": await self._after(engine, taken.session_id)}

        return await self._with_engine(stored)


STORED = "It is stored. The step still has to accept it. If it does not, the question is open again."
"""What is said about an answer that no step has judged yet."""


def _can_run(info: SessionInfo) -> bool:
    return info.status.value in ("created", "ready", "running")


async def _judged(engine: Engine, question: Question) -> Question:
    """Return a question when its step has judged the last answer, as far as a process drives the session."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        # In this order: a session that waits again has changed its question before.
        info, found = await engine.session(question.asked_in).info(), await _found(engine, question.id)
        waits = found.version == question.version and _can_run(info) and not info.pause_requested
        if not waits or asyncio.get_running_loop().time() > end or not await _is_driven(engine, info):
            return found
        await asyncio.sleep(0.05)


_VERBS = {"resume_session": "resume", "answer_question": "answer", "send": "send"}
"""The tools that act, and the commands that do the same."""


async def _is_driven(engine: Engine, info: SessionInfo) -> bool:
    """Return whether an open engine drives a session, or picks it up when it can continue."""
    facts = (info.workflow, info.session_id, info.queue)
    return info.holder is not None or any(each.picks_up(*facts) for each in await engine.engines())


async def _found(engine: Engine, question_id: str) -> Question:
    found = await engine.questions(prefix=question_id, status=None, limit=2)
    exact = [each for each in found if each.id == question_id] or list(found)
    if not exact:
        raise UnknownQuestion("", session_id="", question_id=question_id)
    if len(exact) > 1:
        raise CallRefused(f"Several questions have an id that begins with {question_id!r}. Give more of it.")
    return exact[0]


def _would_answer(session_id: str, question_id: str) -> CallRefused:
    return CallRefused(
        f"Session {session_id!r} asks a question, and a message would answer it. Nothing was sent. Call answer_question"
        f" with {question_id!r}, so that the person answers."
    )


def refusal_if_closed(question: Question) -> CallRefused | None:
    """Return the refusal of a question that takes no answer any more; None if it waits."""
    if question.status is QuestionStatus.WAITING:
        return None
    taken = question.receipt
    by = f" by {taken.by or 'a person'}" if taken is not None else ""
    at = f" at {taken.answered_at.isoformat()}" if taken is not None else ""
    how = f"was answered{by}{at}" if taken is not None else f"is {question.status.value}"
    return CallRefused(f"Question {question.id!r} {how}. List the open questions with open_questions.")


# documents


def _lean(document: Document) -> Document:
    """Return a document without members that say nothing, to save the model's room."""
    return {name: value for name, value in document.items() if value not in (None, "", [], {})}


def _brief(info: SessionInfo) -> Document:
    """Return a session's facts for a list: without its traceback, and with short texts."""
    facts = to_builtins(documents.SessionDocument.of(info))
    failure = None if info.failure is None else f"{info.failure.type}: {info.failure.message}"
    facts |= {"failure": failure, "pause": facts["pause"] and _lean(facts["pause"])}
    left_out = ("held_by_guard", "guest", "cancel_requested", "spent_operations", "priority")
    return excerpts(_lean({name: value for name, value in facts.items() if name not in left_out or value}), 500)


def _field(stored: StoredState, path: str, offset: int) -> Document:
    """Return one field of a state, or the part of it that fits."""
    found: Any = stored.values
    for name in path.split("."):
        if isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            known = list(found)[:50] if isinstance(found, dict) else ()
            raise CallRefused(f"The state of {stored.session_id} has no field {path!r:.100}{did_you_mean(name, known)}")
    document: Document = {"session_id": stored.session_id, "seq": stored.seq, "field": path}
    text = found if isinstance(found, str) else encoded(found)
    if offset == 0 and size(found) <= ROOM:
        return document | {"value": found}
    some, following = part(text, offset)
    return document | _lean({"characters": len(text), "offset": offset or None, "next_offset": following}) | {
        "part": some
    }  # fmt: skip
