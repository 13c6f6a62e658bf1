"""Requests that have one effect, however often they are sent: the header ``Idempotency-Key``.

The store keeps the key for a day, with a digest of its request and its answer, so all servers over the store agree.
``engine.keys`` does the hard part: one engine takes the key, and the effect is stored in the same transaction as the
note that there was one. If the server is killed, the next request with the key finds out whether the effect happened.
If so, it is not repeated: `AGAIN` says how each handler answers from the present facts instead, and completes what a
kill between two transactions of a verb has left. The store also knows on which sessions a bulk verb took effect, so it
is completed for the others only.

What is stored as the digest has two parts: the digest of the request, and an `Intent`, which the first server writes
before the effect. It has random bits, for the ids of what the request creates, so a second server knows them too.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pausepoint.engine.store_documents import RedactionDocument
from pausepoint.errors import AlreadyRunning, HoldLost, KeyLost, SessionEnded, StoreError, VerbRefused
from pausepoint.model.ids import new_session_id
from pausepoint.model.remembered import LARGEST_ANSWER, Remembered
from pausepoint.model.sessions import Status
from pausepoint.server import (
    bodies,
    documents,
    files,
    inbox,
    runs,
    schedules,
    sessions,
    slots,
    standing,
    store,
    transfer,
    verbs,
)
from pausepoint.server.calls import CUT_OFF, KEY_PATTERN, Call, Handler, Reply, Route, Scope, Sent
from pausepoint.server.problems import PROBLEM, Problem, problem_of

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.views import SessionInfo

KEY, REPLAYED = "Idempotency-Key", "Idempotency-Replayed"

WAIT = 1
"""After how many seconds a client should ask again, if its request is still being carried out."""

_DIGEST = sha256().digest_size
_INTENT = Struct(">QQQ")


class Intent(NamedTuple):
    """What a server writes down before it carries out a request.

    ``bits`` name what the request creates. ``at`` is the time, in microseconds. ``fence`` is that of the session, if
    the request resumes one: if it has risen, an engine has taken the session since.
    """

    bits: int
    at: int
    fence: int

    @classmethod
    def read(cls, digest: bytes) -> Intent:
        return cls(*_INTENT.unpack(digest[_DIGEST:]))

    def after(self, digest: bytes) -> bytes:
        """Return a request's digest with this intent."""
        return digest + _INTENT.pack(*self)


class _Stored(msgspec.Struct, array_like=True):
    """An answer as the store keeps it. ``body`` is JSON; None if there is none."""

    status: int
    headers: dict[str, str]
    content_type: str
    body: bytes | None

    def to_bytes(self) -> bytes:
        return zlib.compress(msgspec.msgpack.encode(self), 1)

    @property
    def reply(self) -> Reply:
        body = None if self.body is None else msgspec.Raw(self.body)
        return Reply(body, self.status, self.headers, self.content_type)


def is_given(scope: Scope) -> bool:
    """Return whether a request has a key, if only an empty one."""
    return any(name.lower() == KEY.lower().encode() for name, _ in scope.get("headers", ()))


class Retries:
    """The keys of requests, as one server handles them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Keys that this server has taken and could not answer: their request had an effect, or was cut off. They are
        # taken as long as this engine lives, so no other server can continue them. Each is kept as long as the store
        # keeps it, with that time; the oldest is first.
        self._unanswered: dict[str, int] = {}

    async def answer(self, route: Route, call: Call, data: bytes) -> Sent:
        """Carry out a request unless that was done before, and return its answer. ``data`` is the body."""
        key, digest = _key_of(call), _digest_of(route, call, data)
        found = await self._taken(key, digest, call)
        if found.digest[:_DIGEST] != digest:
            raise _reused()
        if found.answer is not None:
            return await _replayed(route, call, found.answer)
        if not found.claimed and key not in self._unanswered:
            raise Problem(
                409, f"A request with this {KEY} is still being carried out. Send it again in a moment to get its"
                " answer.", "request-at-work", headers={"Retry-After": str(WAIT)}, retry_after=WAIT,
            )  # fmt: skip
        async with self._carrying_out(key, found.until):
            reply = await _carried_out(route, call, key, found)
            await self._keep(key, found, reply)
        return _marked(reply) if found.took_effect else reply

    async def _taken(self, key: str, digest: bytes, call: Call) -> Remembered:
        known = await self._engine.keys.recall(key)
        if known is None or known.digest[:_DIGEST] != digest:
            intent = Intent(secrets.randbits(60), self._engine.clock.now(), await _fence_of(call))
            return await self._engine.keys.remember(key, intent.after(digest))
        return await self._engine.keys.remember(key, known.digest)

    @asynccontextmanager
    async def _carrying_out(self, key: str, until: int) -> AsyncIterator[None]:
        """Give the key up if the block fails. If the request had an effect, the next one with its key continues."""
        self._unanswered.pop(key, None)
        try:
            yield
        except Exception as error:
            if not isinstance(error.__cause__, KeyLost) and not await self._is_free(key):
                self._leave(key, until)  # it is still this server's
            raise
        except BaseException:  # the request was cut off, and perhaps its write is still on the way
            self._leave(key, until)
            raise

    def _leave(self, key: str, until: int) -> None:
        """Remember that a key is without an answer, and forget those that the store has forgotten."""
        self._unanswered[key] = until
        now = self._engine.clock.now()
        for each, end in list(self._unanswered.items()):
            if end > now:
                break
            del self._unanswered[each]

    async def _is_free(self, key: str) -> bool:
        try:
            return await self._engine.keys.forget(key)
        except StoreError:
            return False

    async def _keep(self, key: str, found: Remembered, reply: Reply) -> None:
        body = None if reply.document is None else msgspec.json.encode(reply.document)
        data = _Stored(reply.status, dict(reply.headers), reply.content_type, body).to_bytes()
        if len(data) > LARGEST_ANSWER:
            data = _of_problem(_lost("was too large to be kept"), "").to_bytes()
        try:
            await self._engine.keys.remember(key, found.digest, data)
        except StoreError:  # the client gets its answer now; if it asks again, the answer is made from the facts
            self._leave(key, found.until)


def _key_of(call: Call) -> str:
    """Return the key as the store knows it. Raises a 400 if it does not fit."""
    given = call.header(KEY)
    if re.fullmatch(KEY_PATTERN, given) is None:
        raise Problem(
            400, f"The header {KEY} must have 1 to 200 visible ASCII characters, without spaces. Send another one, such"
            " as a random UUID.", "unfit-key",
        )  # fmt: skip
    return stored_key(call.signed, given)


def stored_key(signed: str, given: str) -> str:
    """Return a key as the store knows it: every sign-in has keys of its own."""
    return f"http {sha256(signed.encode()).hexdigest()[:32]} {given}"


def _digest_of(route: Route, call: Call, data: bytes) -> bytes:
    """Return the digest of a request. The bytes of an upload are compared when they have come."""
    person = call.person
    facts = (
        route.method, route.path, sorted(call.params.items()), call.scope.get("query_string", b""),
        call.header("if-match"), call.header("content-type") if route.uploads else "",
        person.name, person.owner, person.question,
    )  # fmt: skip
    return sha256(msgspec.msgpack.encode(facts) + data).digest()


async def _fence_of(call: Call) -> int:
    if not isinstance(call.body, bodies.Resume) or "session_id" not in call.params:
        return 0
    return (await call.access.info(call.session_id)).fence


async def _carried_out(route: Route, call: Call, key: str, found: Remembered) -> Reply:
    """Return the answer of the handler. A refusal that is final is an answer too; others are raised."""
    call.intent = intent = Intent.read(found.digest)
    call.new_id, call.message_key = new_session_id(intent.bits), f"http {intent.bits:015x}"
    handler = AGAIN.get(route.handler, _answer_lost) if found.took_effect else route.handler
    each = handler is verbs.bulk
    try:
        with call.engine.keys.once(key, each=each) if each or not found.took_effect else nullcontext():
            reply = await handler(call)
    except Exception as error:
        problem = problem_of(error)
        if not _is_final(problem):
            raise problem from error
        reply = _of_problem(problem, call.scope["path"]).reply
    assert isinstance(reply, Reply)
    return reply


def _is_final(problem: Problem) -> bool:
    """Return whether another attempt would be refused, too. Errors of the server and of the connection pass."""
    return problem.status < 500 and problem.status not in (408, 429) and problem.kind != CUT_OFF


async def _replayed(route: Route, call: Call, data: bytes) -> Reply:
    """Return a kept answer. The bytes of an upload must be those that the answer is about."""
    stored = msgspec.msgpack.decode(zlib.decompress(data), type=_Stored)
    compares = route.uploads and stored.body is not None and stored.status < 400
    if compares and await _hash_of(call) != msgspec.json.decode(stored.body or b"")["sha256"]:
        raise _reused()
    return _marked(stored.reply)


def _of_problem(problem: Problem, path: str) -> _Stored:
    return _Stored(problem.status, problem.headers, PROBLEM, msgspec.json.encode(problem.document(path)))


def _marked(reply: Reply) -> Reply:
    return reply._replace(headers={**reply.headers, REPLAYED: "true"})


def _reused() -> Problem:
    return Problem(
        422, f"This {KEY} was used before, for another request: the address, the body, a condition or the person"
        " differs. Nothing was changed. Send every new request with a new key.", "key-reused",
    )  # fmt: skip


def _lost(why: str) -> Problem:
    return Problem(
        409, f"The request took effect before, but its answer {why}. Do not repeat it with another key. Read what it"
        " was about instead.", "answer-lost",
    )  # fmt: skip


async def _hash_of(call: Call) -> str:
    found = sha256()
    async for chunk in call.chunks():
        found.update(chunk)
    return found.hexdigest()


# the answers to requests that have taken effect


async def _answer_lost(call: Call) -> Reply:
    raise _lost("is not known, because the server was killed meanwhile")


async def _present(call: Call) -> Reply:
    """Answer with the present facts of the session."""
    return await sessions.headed(call, await call.engine.session(call.session_id).info())


async def _created(call: Call) -> Reply:
    """Answer with the session that was started or forked, and make sure that an engine drives it."""
    asked: bodies.Start | bodies.Fork = call.body
    info = await call.engine.session(asked.session_id or call.new_id or "").info()
    if not asked.paused and call.desk.drives:
        await _drive(call, info)
    elif not asked.paused and info.signals <= 1:  # only its first pause: no request has come since
        await call.engine.session(info.session_id).resume(by=call.by, here=False)
    reply = sessions.headed if asked.paused or call.desk.drives else sessions.handed_over
    return await reply(call, await call.engine.session(info.session_id).info(), 201)


async def _drive(call: Call, info: SessionInfo) -> None:
    """Drive a session that no engine drives. Withdraw nothing: a person may have paused it since."""
    known = info.workflow in call.engine.workflows and not info.guest
    if known and info.status in (Status.CREATED, Status.READY):
        with suppress(AlreadyRunning, HoldLost, SessionEnded, VerbRefused):
            await call.engine.session(info.session_id).take_up(fence=info.fence, by=call.by)


async def _resumed(call: Call) -> Reply:
    """Complete a resume. It adopts edits, withdraws pauses and drives the session, in several transactions."""
    assert call.intent is not None
    info = await call.engine.session(call.session_id).info()
    here = call.desk.drives and info.workflow in call.engine.workflows and not info.guest
    paused_since = await _is_paused_since(call)
    if here and not paused_since and (info.fence == call.intent.fence or info.status is Status.PAUSED):
        return await verbs.resume(call)  # no engine has driven it since
    if here and not paused_since:
        await _drive(call, info)
    reply = sessions.headed if here or info.guest else sessions.handed_over
    return await reply(call, await call.engine.session(call.session_id).info())


async def _run_resumed(call: Call) -> Reply:
    """Complete a resume of a run, unless the run was paused since."""
    return await (runs.show(call) if await _is_paused_since(call) else runs.resume(call))


async def _is_paused_since(call: Call) -> bool:
    """Return whether the session was paused after the request began."""
    assert call.intent is not None
    return any(each.created_at > call.intent.at for each in await call.engine.session(call.session_id).pauses())


async def _removed(call: Call) -> Reply:
    """Complete a removal, and answer with its tombstone."""
    assert call.intent is not None
    found = await call.engine.tombstones(call.session_id)
    stones = [each for each in found if each.removed_at >= call.intent.at]  # the id may have been used before
    stone = (
        stones[0] if stones else await call.engine.session(call.session_id).remove(by=call.by, reason=call.body.reason)
    )
    return Reply(documents.tombstone(stone))


async def _redacted(call: Call) -> Reply:
    """Answer with the last redaction. Whether its content is erased from the disk is not known."""
    event = await call.engine.session(call.session_id).last_event("session.redacted")
    if event is None:
        return await _answer_lost(call)
    ranges, signals = event.data.get("records", ()), event.data.get("signals", ())
    records = [seq for first, last in ranges for seq in range(first, last + 1)]
    return Reply(RedactionDocument(call.session_id, records, list(signals), erased=False))


async def _uploaded(call: Call) -> Reply:
    """Answer with the file that was added. Its bytes have to come again, to compare them."""
    digest = await _hash_of(call)
    records = [each for each in await call.engine.session(call.session_id).files.list() if each.sha256 == digest]
    if not records:
        raise _reused()
    return Reply(documents.FileDocument.of(records[-1]), 201)


AGAIN: Mapping[Handler, Handler] = {
    sessions.start: _created,
    verbs.fork: _created,
    verbs.pause: _present,
    verbs.cancel: _present,
    verbs.send: _present,
    verbs.edit: _present,
    verbs.ask_again: _present,
    verbs.rewind: _present,
    verbs.resume: _resumed,
    runs.pause: runs.show,
    runs.resume: _run_resumed,
    verbs.bulk: verbs.bulk,  # leaves out the sessions that it has treated
    verbs.remove: _removed,
    verbs.redact: _redacted,
    files.upload: _uploaded,
    transfer.import_session: transfer.import_again,
    files.adopt: files.artifacts,
    files.restore: files.restore,  # writes files only; the same ones again
    inbox.answer: inbox.answer,  # the same answer gets the same receipt
    schedules.put: schedules.show,
    schedules.pause: schedules.show,
    schedules.resume: schedules.show,
    schedules.trigger: schedules.show,
    schedules.delete: schedules.removed,
    slots.put: slots.put,  # the same limit again
    slots.delete: slots.removed,
    standing.put: standing.again,
    standing.delete: standing.again,
    store.verify: store.verify,
    store.collect: store.collect,
}
"""Handler → how a request is answered that has taken effect before, in a server that was killed."""
