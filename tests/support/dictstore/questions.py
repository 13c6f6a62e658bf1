"""Questions and their answers."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from pausepoint.errors import (
    SessionEnded,
)
from pausepoint.model import questions
from pausepoint.model.commits import Commit
from pausepoint.model.questions import Answer, Answered, Inquiry, QuestionRow, choose, judge, place_of, reply, settled
from pausepoint.model.sessions import Position, QuestionChange, QuestionStatus
from pausepoint.stores.found import FoundQuestions
from tests.support.dictstore.data import OPEN, Kept, over
from tests.support.dictstore.requests import Requests


class Questions(Requests):
    """Questions and their answers."""

    async def answer(self, given: Answer) -> Answered:
        self._check()
        if given.once:
            tree = self._tree(self._root(self._named(given.session_id or "")).row.session_id)
            for first in [signal for kept in tree for signal in kept.signals]:
                if questions.once_of(first) == given.once:
                    row = self._seen(self._named(given.session_id or ""))
                    return Answered(questions.judge_again(given, first), row, early=first)
        return await self._decide(given)

    def _root(self, kept: Kept) -> Kept:
        while kept.row.parent is not None:
            kept = self._by(kept.row.parent)
        return kept

    async def _decide(self, given: Answer) -> Answered:
        if given.question is not None:
            self._find_id(given.session_id or "")
            found = await self.questions(Inquiry(ids=(given.question,)))
            return self._answer(given, found[0]) if found else Answered("unknown")
        kept = self._named(given.session_id or "")
        chosen = choose(given, await self.questions(Inquiry(session_id=given.session_id)))
        if isinstance(chosen, QuestionRow):
            return self._answer(given, chosen)
        if chosen is not None:
            if chosen.verdict != "none" or not given.message:
                return chosen
            sent = await self.send(kept.row.session_id, given.by, given.at, questions.message(given))
            return Answered("queued", sent)
        if over(kept.row):
            raise SessionEnded(f"{given.session_id} has ended", session_id=given.session_id, status=str(kept.row.ended))
        for first in await self.mail(kept.row.key, 1, "early", given.key):
            return Answered(questions.judge_early(given, first), self._seen(kept), early=first)
        n = self._signal(kept, "early", given.by, given.at, reply(given))
        self._deliver(kept, n, "early")
        self._tell()
        return Answered("early", self._seen(kept), early=kept.signals[n - 1])

    def _answer(self, given: Answer, found: QuestionRow) -> Answered:
        kept, verdict = self._named(found.session_id), judge(given, found)
        facts = kept.questions[found.n]
        if verdict == "taken" or (verdict == "invalid" and given.message and facts.answer is None):
            why = () if verdict == "taken" else (verdict, questions.objection_to(given, found))
            kept.inbox = [n for n in kept.inbox if n != facts.answer]
            n = self._signal(kept, "answer", given.by, given.at, reply(given, found, *why))
            status = QuestionStatus.RESUMED if verdict == "taken" else facts.status
            facts = replace(facts, status=status, answer=n, updated_at=given.at)
            self._deliver(kept, n, "answer")
        elif verdict != "same":
            facts = replace(facts, told=facts.told or verdict == "expired", refused=facts.refused + 1)
            if questions.is_noted(facts.refused):
                said = reply(given, found, verdict, count=facts.refused)
                self._signal(kept, "refused", given.by, given.at, said)
        kept.questions[found.n] = facts
        self._tell()
        return Answered(verdict, self._seen(kept), self._asked(kept, found.n))

    async def questions(self, query: Inquiry) -> FoundQuestions:
        self._check()
        rows = [self._asked(kept, n) for kept in self._known() for n in kept.questions]
        rows.sort(key=lambda row: _place(row, query), reverse=(query.sort == "updated") != query.reverse)
        rows = [row for row in rows if not query.ids or row.facts.id in query.ids]
        rows = [row for row in rows if query.session in (None, self._named(row.session_id).row.key)]
        rows = [row for row in rows if query.session_id in (None, row.session_id, row.root_id)]
        rows = [row for row in rows if query.workflow in (None, row.workflow) and query.owner in (None, row.owner)]
        rows = [row for row in rows if query.key in (None, row.facts.key)]
        rows = [row for row in rows if row.facts.id.startswith(query.prefix)]
        now = self.clock.now()
        found = [row for row in rows if not query.statuses or row.status_at(now) in query.statuses]
        if query.after is not None:
            falls = (query.sort == "updated") != query.reverse
            found = [
                row
                for row in found
                if (_place(row, query) < query.after if falls else _place(row, query) > query.after)
            ]
        page = found[: query.limit]
        return FoundQuestions(page, next=_place(page[-1], query) if page and len(page) < len(found) else None)

    def _asked(self, kept: Kept, n: int) -> QuestionRow:
        facts, root, now = kept.questions[n], kept.row, self.clock.now()
        while root.parent is not None:
            root = self._by(root.parent).row
        record = kept.records[facts.seq - 1]
        since = self._frozen_since(kept)
        frozen = 0 if since is None else max(now - max(since, facts.updated_at), 0)
        failure = kept.row.failure if kept.row.ended == "failed" else None
        return QuestionRow(
            n, facts, kept.row.session_id, root.session_id, root.workflow, root.owner, record.step, record.payload,
            None if facts.answer is None else kept.signals[facts.answer - 1],
            self._seen(kept).frozen + frozen,
            None if failure is None else failure.message,
        )  # fmt: skip

    async def tally_questions(self, query: Inquiry) -> dict[QuestionStatus, int]:
        now = self.clock.now()
        return Counter(row.status_at(now) for row in await self.questions(replace(query, after=None, limit=None)))

    async def forget_questions(self, before: int, limit: int) -> int:
        self._check()
        known = [(kept, n, facts) for kept in self._known() for n, facts in kept.questions.items()]
        done = [(kept, n) for kept, n, facts in known if facts.status not in OPEN and facts.updated_at < before][:limit]
        for kept, n in done:
            del kept.questions[n]
        return len(done)

    def _settle_questions(self, kept: Kept, commit: Commit) -> None:
        for facts in commit.asks:
            known = next((n for n, each in kept.questions.items() if each.id == facts.id), None)
            if known is None:
                self.data.last_question = known = self.data.last_question + 1
            before = kept.questions.get(known, facts)
            facts = replace(facts, seq=commit.records[0].seq)
            kept.questions[known] = questions.next_round(facts, before, commit.consume)
        changes = {each.id: each for each in commit.questions}
        over = commit.settles or commit.ended in ("completed", "cancelled")
        opened = [(n, each) for n, each in kept.questions.items() if each.status in OPEN]
        for n, facts in opened:
            if (change := changes.get(facts.id)) is not None:
                dropped = facts.answer
                facts = kept.questions[n] = questions.changed(facts, change, commit.updated_at)
                if facts.answer is None:
                    kept.inbox = [unread for unread in kept.inbox if unread != dropped]
            if over and facts.status in OPEN:
                status = settled(facts, kept.inbox, commit.ended)
                last = QuestionChange(facts.id, status)
                kept.questions[n] = questions.changed(facts, last, commit.updated_at)
                kept.inbox = [unread for unread in kept.inbox if unread != facts.answer]


def _place(row: QuestionRow, query: Inquiry) -> Position:
    return place_of(row.n, row.facts, query.sort)
