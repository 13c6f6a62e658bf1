"""A store of 100,000 sessions: the page shows what changes elsewhere and what a person has done, in every window."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from benchmarks.many import WORKFLOWS, fill
from pausepoint import Engine
from tests.page.exhibit import digest
from tests.page.kit import INBOX, NOW, SESSIONS, STORE, Screen, asked, session, visit
from tests.server.kit import Served, brief, served

SESSIONS_IN_ALL = 100_000
PAUSED = Screen("/sessions?status=paused", "Sessions")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("big")
    with ThreadPoolExecutor(1) as pool:  # the browser has an event loop in this thread
        pool.submit(fill, folder / "store.db", SESSIONS_IN_ALL).result()
    with served(folder, workflows=(*WORKFLOWS, brief, digest)) as server:
        yield server


def elsewhere(server: Served, *names: str) -> None:
    """Start paused sessions with an engine of its own, as another process does."""

    async def start(place: Path) -> None:
        async with Engine(place, workflows=[digest], drives="none", signals=False) as engine:
            for name in names:
                await engine.start(digest, reader="ann", session_id=name, paused=True)

    server.run(start(server.folder / "store.db"))


def count(server: Served) -> str:
    """Return the filter of the paused sessions with their number, as the list shows it."""
    paused = server.run(server.engine.tally(status="paused"))
    return f"paused {sum(paused.values()):,}"


@pytest.mark.long
def test_what_changes_elsewhere_appears_in_lists_and_counts(chrome: Browser, big: Served) -> None:
    with visit(chrome, big) as person:
        person.sign_in()
        person.open(SESSIONS)
        elsewhere(big, "far-1")
        expect(person.main.get_by_role("link", name="far-1", exact=True)).to_be_visible()
        expect(person.button(count(big))).to_be_visible()
        person.open(NOW)
        elsewhere(big, "far-2")
        expect(person.region("Paused individually").get_by_role("link", name="far-2", exact=True)).to_be_visible()
        big.run(big.engine.session("far-2").cancel())
        expect(person.region("Paused individually").get_by_role("link", name="far-2", exact=True)).to_have_count(0)


@pytest.mark.long
def test_what_a_person_does_is_there_when_the_dialog_closes(chrome: Browser, big: Served) -> None:
    asked(big, brief, "mine", topic="octopus")
    with visit(chrome, big) as person:
        person.sign_in()
        person.open(SESSIONS)
        row = person.region("List of sessions").get_by_role("row").filter(has_text="mine")
        row.get_by_label("select mine").check()
        for say, status in (("Pause", "paused"), ("Resume", "waiting")):
            person.main.get_by_role("button", name=f"{say}…").click()
            person.dialog.get_by_role("button", name=say, exact=True).click()
            expect(person.dialog).to_have_count(0)
            assert status in row.inner_text()  # no wait: the screen was read again before the dialog closed
            assert person.button(count(big)).count() == (1 if count(big) != "paused 0" else 0)
            row.get_by_label("select mine").check()


@pytest.mark.long
def test_six_windows_at_once_stay_right(chrome: Browser, big: Served) -> None:
    question = asked(big, brief, "six", topic="octopus")
    with ExitStack() as stack:
        people = [stack.enter_context(visit(chrome, big)) for _ in range(6)]
        for person, screen in zip(people, (NOW, SESSIONS, PAUSED, INBOX, session("six"), STORE), strict=True):
            person.sign_in()
            person.open(screen)
        now, listed, paused, inbox, one, store = people
        names = [f"six-{n}" for n in range(10)]
        elsewhere(big, *names)
        for name in names:
            for person in (listed, paused):
                expect(person.main.get_by_role("link", name=name, exact=True)).to_be_visible()
        for name in names[-5:]:  # this list is short
            expect(now.region("Paused individually").get_by_role("link", name=name, exact=True)).to_be_visible()
        expect(listed.button(count(big))).to_be_visible()
        big.run(big.engine.answer(question, "formal", by="ben"))
        expect(one.main).to_contain_text("completed")
        expect(inbox.region("Recently closed")).to_contain_text("six · ben")
        for name in names:
            big.run(big.engine.session(name).cancel())
        expect(paused.main.get_by_role("link", name="six-", exact=False)).to_have_count(0)
        expect(now.region("Paused individually").get_by_role("link", name="six-")).to_have_count(0)
        expect(store.heading).to_have_text("Store")
