"""Every screen, wide and narrow, light and dark: nothing on the console, nothing too wide, no barrier."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import product
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from pausepoint.orchestrator import Orchestrator, Task, TaskAgent
from tests.page import checks
from tests.page.kit import AGENTS, INBOX, NETWORK, NOW, SESSIONS, STORE, Person, Screen, session, visit, words
from tests.server.kit import Served

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (1440, 390)
LOOKS: tuple[tuple[int, Scheme], ...] = tuple(product(WIDTHS, SCHEMES))
OTHER_WIDTHS = (2560, 760, 759, 320)

SCREENS = (
    NOW, INBOX, SESSIONS, Screen("/sessions?status=waiting&sort=updated", "Sessions"), AGENTS, STORE,
    session("brief-octopus"), session("brief-octopus", "History"), session("brief-octopus", "Cost"),
    session("crawl-kelp", "Output"), session("memo-moorwerk", "Artifacts"), session("digest-ann", "Files"),
    session("brief-whelk", "Children"), session("import-returns"),
)  # fmt: skip
SAMPLE = (NOW, INBOX, SESSIONS, AGENTS, STORE, *SCREENS[6:14:4], SCREENS[-1])
"""The screens that the suite looks at. The others are for ``make browser``."""
UNUSUAL = (
    session("summary-kelp"), session("book-sea", "Children"), session("sync-returns"), session("ladder-34"),
    session("ladder-120"), session("rounds"), session("visitor-1"), session("b:ann@example.org+1"),
    session("report-brinefjord", "Artifacts"),
    Screen("/sessions/report-brinefjord?tab=artifacts&file=1-research.md", "report-brinefjord", "Artifacts"),
    session("batch-large"), session("scan-map"), Screen("/sessions/digest-removed", "digest-removed"), INBOX, SESSIONS,
)  # fmt: skip
DIALOGS = (
    (NOW, "Pause everything"), (NOW, "Keys"), (session("brief-octopus-b"), "Resume"),
    (session("brief-octopus"), "Rewind"),
    (session("brief-octopus"), "Fork"), (session("memo-moorwerk"), "Edit"), (session("brief-limpet"), "Pause"),
    (session("digest-ann"), "Wake now"), (session("brief-limpet"), "Cancel"),
    (Screen("/sessions?workflow=digest", "Sessions"), "Pause"),
)  # fmt: skip


@pytest.fixture(scope="module")
def ann(chrome: Browser, shown: Served) -> Iterator[Person]:
    with visit(chrome, shown) as person:
        person.sign_in()
        yield person


@pytest.fixture(scope="module")
def ben(chrome: Browser, unusual: Served) -> Iterator[Person]:
    with visit(chrome, unusual) as person:
        person.sign_in()
        person.allowed.append(NETWORK)  # one of the sessions was removed
        yield person


def look(person: Person, width: int, scheme: Scheme) -> None:
    person.page.set_viewport_size({"width": width, "height": 900})
    person.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")


def faults(person: Person, examined: tuple[tuple[int, Scheme], ...] = LOOKS) -> dict[str, list[str]]:
    """Return what is wrong with what a tab shows now, in each look. axe-core takes a second, so it may get a sample."""
    found = {}
    for width, scheme in LOOKS:
        look(person, width, scheme)
        wrong = checks.overflow(person.page)
        if (width, scheme) in examined:
            wrong += checks.barriers(person.page)
        found[f"{width} {scheme}"] = wrong
    found["words"] = checks.garbage(person.page)
    found["console"] = person.complaints()
    found["rows"] = [f"{what}: {rows} rows" for what, rows in checks.long_lists(person.page).items()]
    return {where: wrong for where, wrong in found.items() if wrong}


@pytest.mark.long
@pytest.mark.parametrize("screen", SAMPLE, ids=str)
def test_a_screen_is_quiet_fits_the_window_and_has_no_barrier(ann: Person, screen: Screen) -> None:
    look(ann, 1440, "light")
    ann.open(screen)
    expect(ann.heading).to_have_count(1)
    sample = (1440, SCHEMES[0]) if SCREENS.index(screen) % 2 else (390, SCHEMES[1])
    assert faults(ann, (sample,)) == {}


@pytest.mark.parametrize(
    ("screen", "heading", "regions"),
    [
        (
            NOW,
            "running",
            ("Open questions", "Running", "Failed", "Paused individually", "Wakes next", "Spent by workflow"),
        ),
        (INBOX, "Inbox", ("Open questions", "Recently closed")),
        (SESSIONS, "Sessions", ("List of sessions",)),
        (session("brief-limpet"), "brief-limpet", ("Why it is not running", "Course", "Details")),
    ],
    ids=str,
)
def test_a_screen_has_its_parts(ann: Person, screen: Screen, heading: str, regions: tuple[str, ...]) -> None:
    ann.open(screen)
    expect(ann.heading).to_contain_text(heading)
    for name in regions:
        expect(ann.region(name)).to_be_visible()


def test_the_store_screen_has_engines_tokens_and_jobs(ann: Person) -> None:
    ann.open(STORE)
    for part in ("engines", "tokens"):
        expect(ann.main.get_by_role("region", name=words(part)).first).to_be_visible()
    for verb in ("verify", "clean up"):
        expect(ann.main.get_by_role("button", name=words(verb)).first).to_be_visible()


@pytest.mark.long
def test_the_agents_screen_shows_a_run_and_pauses_it(person: Person) -> None:
    engine = person.server.engine
    tasks = [Task(id="schema"), Task(id="page", needs=["schema"])]
    person.server.run(Orchestrator(engine, "release-7", develop, agents=1).start(tasks, owner="ann"))
    person.open(AGENTS)
    for text in ("release-7", "schema", "page"):
        expect(person.main).to_contain_text(text)
    person.main.get_by_role("button", name=words("pause")).first.click()
    person.dialog.get_by_label("Why").fill("read the plan first")
    person.dialog.get_by_role("button", name=words("pause")).click()
    expect(person.main.get_by_role("button", name=words("resume")).first).to_be_visible()
    expect(person.main).to_contain_text("read the plan first")


async def develop(agent: TaskAgent) -> str:
    for _ in range(5_000):
        await agent.call(asyncio.sleep, 0.05)
    return agent.task.id


@pytest.mark.long
def test_empty_screens_say_what_will_appear_there(person: Person) -> None:
    for screen in (NOW, INBOX, SESSIONS, AGENTS, STORE):
        person.open(screen)
        assert checks.overflow(person.page) == []
        text = person.main.inner_text()
        words = ("pausepoint ", "ctx.", "appears here", "sign in with tokens")
        assert any(word in text for word in words), (screen, text)


@pytest.mark.browser
def test_what_a_role_may_not_do_is_not_offered(chrome: Browser, shown: Served) -> None:
    with visit(chrome, shown) as person:
        person.sign_in(shown.token("viewer"))
        expect(person.button("Pause everything")).to_have_count(0)
        expect(person.page.get_by_role("navigation").get_by_role("link", name="Inbox")).to_have_count(0)
        person.open(session("brief-limpet"))
        for verb in ("Pause", "Rewind", "Fork", "Edit", "Cancel", "Answer"):
            expect(person.button(verb)).to_have_count(0)
    with visit(chrome, shown) as person:
        person.sign_in(shown.token("answerer"), INBOX)
        expect(person.page.get_by_role("navigation").get_by_role("link", name="Sessions")).to_have_count(0)
        assert faults(person, ()) == {}


@pytest.mark.browser
def test_a_person_who_is_not_signed_in_sees_how(chrome: Browser, shown: Served) -> None:
    with visit(chrome, shown) as person:
        person.allowed.append(NETWORK)
        person.page.goto(shown.base)
        expect(person.heading).to_have_text("Sign in")
        assert faults(person, LOOKS[::3]) == {}


@pytest.mark.parametrize("path", ["/nowhere", "/sessions/none", "/inbox/q_none", "/sessions/%E0%A4%A", "/sessions/%"])
def test_an_address_that_leads_nowhere_says_so(ann: Person, path: str) -> None:
    ann.page.goto(f"{ann.server.base}/#{path}")
    expect(ann.main.get_by_role("alert")).to_be_visible(timeout=10_000)
    expect(ann.main.get_by_role("link", name="Start page")).to_be_visible()
    ann.open(NOW)  # a reading that was due before may still fail until here
    assert [each for each in ann.complaints() if NETWORK not in each] == []


# all of it: make browser


@pytest.mark.browser
@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_a_screen_is_faultless_in_every_look(ann: Person, screen: Screen) -> None:
    ann.open(screen)
    assert faults(ann) == {}


@pytest.mark.browser
@pytest.mark.parametrize("screen", UNUSUAL, ids=str)
def test_an_unusual_session_is_faultless_in_every_look(ben: Person, screen: Screen) -> None:
    ben.open(screen)
    assert faults(ben) == {}


@pytest.mark.browser
@pytest.mark.parametrize("width", OTHER_WIDTHS)
@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_a_screen_fits_other_widths(ann: Person, screen: Screen, width: int) -> None:
    look(ann, width, "light")
    ann.open(screen)
    assert checks.overflow(ann.page) == []


@pytest.mark.browser
@pytest.mark.parametrize(("screen", "name"), DIALOGS, ids=str)
def test_a_dialog_is_faultless_in_every_look(ann: Person, screen: Screen, name: str) -> None:
    look(ann, 1440, "light")
    ann.open(screen)
    ann.main.or_(ann.page.get_by_role("contentinfo")).get_by_role("button", name=words(name)).first.click()
    expect(ann.dialog).to_be_visible()
    assert faults(ann) == {}
    ann.press("Escape")
    expect(ann.dialog).to_have_count(0)


@pytest.mark.browser
def test_the_pause_of_everything_is_faultless_in_every_look(person: Person) -> None:
    person.server.run(person.server.engine.pause(everything=True, reason="read the logs first", by="ann"))
    expect(person.heading).to_have_text("Everything is paused")
    assert faults(person) == {}
