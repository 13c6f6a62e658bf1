"""What the store remembers besides sessions: requests by key, and descriptions of workflows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from pausepoint.errors import DamagedRecord
from pausepoint.model.budgets import NO_BUDGET, Allowance
from pausepoint.model.commits import Commit, NewSession
from pausepoint.model.descriptions import MOST_DESCRIPTIONS, StoredDescription
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer, Answered
from pausepoint.model.records import SignalRecord
from pausepoint.model.remembered import Remembered, check_key, check_remembered
from pausepoint.model.sessions import Filter, Pause, SessionRow
from pausepoint.model.stores import Removal
from pausepoint.stores import text
from pausepoint.stores.found import Found, FoundDescriptions
from pausepoint.stores.remembered import current, current_each, key_lost, once
from pausepoint.stores.text import storable
from tests.support.dictstore.data import Kept, Request
from tests.support.dictstore.removal import Removals


class Notes(Removals):
    """Requests by key, and descriptions of workflows."""

    async def remember(
        self, key: str, digest: bytes, answer: bytes | None, until: int, replaces: bytes | None = None
    ) -> Remembered:
        self._check()
        check_remembered(key, digest, answer)
        kept = self._request(key)
        claimed = False
        if kept is None:
            claimed, kept = answer is None, Request(digest, answer, until, self._number)
            self.data.requests[key] = kept
        elif kept.digest == digest and kept.answer is not None:
            if answer is not None and kept.answer == replaces:
                kept.answer, kept.until = answer, until
        elif kept.digest == digest:
            mine, alive = kept.holder == self._number, kept.holder in self.data.engines
            if (mine and answer is not None) or not alive:
                kept.answer, kept.until, kept.holder = answer, until, self._number
                claimed = answer is None
        return self._seen_request(key, kept, claimed)

    async def recall(self, key: str) -> Remembered | None:
        self._check()
        kept = self._request(check_key(key))
        return None if kept is None else self._seen_request(key, kept, False)

    async def forget(self, key: str) -> bool:
        self._check()
        kept = self.data.requests.get(check_key(key))
        free = kept is not None and kept.holder == self._number and kept.answer is None and not kept.took_effect
        if free:
            del self.data.requests[key]
        return free

    def once(self, key: str, each: bool = False) -> AbstractContextManager[None]:
        return once(self, key, each)

    async def treated(self) -> list[str]:
        self._check()
        block = current_each(self)
        keys = set[int]() if block is None else self.data.requests[block.key].treated
        return [kept.row.session_id for kept in self._known() if kept.row.key in keys]

    async def forget_expired(self, now: int, limit: int) -> int:
        self._check()
        old = [key for key, kept in self.data.requests.items() if kept.until <= now][:limit]
        for key in old:
            del self.data.requests[key]
        return len(old)

    def _request(self, key: str) -> Request | None:
        kept = self.data.requests.get(key)
        return None if kept is None or kept.until <= self.clock.now() else kept

    def _seen_request(self, key: str, kept: Request, claimed: bool) -> Remembered:
        at_work = kept.answer is None and kept.holder in self.data.engines
        return Remembered(key, kept.digest, kept.answer, kept.until, claimed, at_work, kept.took_effect)

    # descriptions of workflows

    async def keep_description(self, new: StoredDescription) -> None:
        self._check()
        before = self.data.descriptions.get(new.digest)
        seen = new.seen_at if before is None else max(new.seen_at, before.seen_at)
        self.data.descriptions[new.digest] = replace(new, seen_at=seen)
        same = [each for each in await self.descriptions(new.workflow) if each.version == new.version]
        for old in same[MOST_DESCRIPTIONS:]:
            del self.data.descriptions[old.digest]

    async def description_seen(self, digest: bytes) -> int | None:
        self._check()
        found = self.data.descriptions.get(digest)
        return None if found is None or sha256(found.document).digest() != digest else found.seen_at

    async def descriptions(self, workflow: str | None = None) -> FoundDescriptions:
        self._check()
        newest_last = sorted(self.data.descriptions.values(), key=lambda each: (each.version, each.seen_at))
        damaged = [each for each in newest_last if sha256(each.document).digest() != each.digest]
        errors = [DamagedRecord("a description does not match its digest") for _ in damaged]
        found = [each for each in newest_last if each not in damaged]
        if workflow is None:
            newest = {each.workflow: each for each in found}
            return FoundDescriptions((newest[name] for name in sorted(newest)), errors)
        return FoundDescriptions((each for each in reversed(found) if each.workflow == workflow), errors)

    async def forget_descriptions(self, before: int, limit: int) -> int:
        self._check()
        used = {kept.row.workflow for kept in self.data.sessions.values()}
        old = [each for each in self.data.descriptions.values() if each.seen_at < before and each.workflow not in used]
        for each in old[:limit]:
            del self.data.descriptions[each.digest]
        return len(old[:limit])

    # the verbs whose effect counts: nothing else runs between the check of the key and the end of the verb

    def _check_key(self) -> None:
        block = current_each(self) or current(self)
        kept = None if block is None else self._request(block.key)
        if block is not None and (kept is None or kept.holder != self._number or kept.answer is not None):
            raise key_lost(block.key)

    def _took_effect(self, effect: bool = True) -> None:
        block = current(self)
        if block is not None and effect:
            self.data.requests[block.key].took_effect = block.over = True

    def _takes(self, kept: Kept) -> bool:
        block = current_each(self)
        if block is None:
            return True
        treated = self.data.requests[block.key].treated
        is_new = kept.row.key not in treated
        treated.add(kept.row.key)
        return is_new

    async def create(self, new: NewSession) -> SessionRow | None:
        self._check_key()
        row = await super().create(text.of_session(new))
        self._took_effect(row is not None)
        return row

    async def revise(self, commit: Commit) -> Found:
        self._check_key()
        found = await super().revise(text.of_commit(commit))
        self._took_effect()
        return found

    async def pause(self, query: Filter, pause: Pause) -> Found:
        self._check_key()
        found = await super().pause(query, text.of_pause(pause))
        self._took_effect()
        return found

    async def lift(self, by: str | None, at: int) -> bool:
        self._check_key()
        found = await super().lift(storable(by), at)
        self._took_effect()
        return found

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget: Allowance = NO_BUDGET, wake: bool = False,
        exempt: bool = True,
    ) -> SessionRow:  # fmt: skip
        self._check_key()
        row = await super().unpause(session_id, storable(by), at, budget, wake, exempt)
        self._took_effect()
        return row

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        self._check_key()
        found = await super().cancel(session_id, storable(by), storable(reason), at)
        self._took_effect()
        return found

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        self._check_key()
        row = await super().send(session_id, storable(by), at, payload)
        self._took_effect()
        return row

    async def answer(self, given: Answer) -> Answered:
        self._check_key()
        found = await super().answer(replace(given, by=storable(given.by)))
        self._took_effect(found.was_delivered)
        return found

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        self._check_key()
        found = await super().add_file(session_id, storable(by), at, file, fence)
        self._took_effect()
        return found

    async def remove(
        self, session_id: str, by: str | None, reason: str, *given: Any, **options: Any
    ) -> list[Removal]:  # fmt: skip
        self._check_key()
        found = await super().remove(session_id, storable(by), storable(reason), *given, **options)
        self._took_effect()
        return found
