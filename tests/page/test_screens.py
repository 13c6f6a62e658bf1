"""Every screen, wide and narrow, light and dark: nothing on the console, nothing too wide, no barrier."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect
from pydantic import BaseModel

from pausepoint import Context, Limit, Workflow, step
from pausepoint.orchestrator import Orchestrator, Task, TaskAgent
from tests.page import checks
from tests.page.kit import AGENTS, INBOX, NETWORK, NOW, SESSIONS, STORE, Person, Screen, session, visit, words
from tests.server.kit import Served, at_the_gate

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (1440, 390)
LOOKS: tuple[tuple[int, Scheme], ...] = tuple(product(WIDTHS, SCHEMES))
OTHER_WIDTHS = (2560, 760, 759, 320)

SCREENS = (
    NOW, INBOX, SESSIONS, Screen("/sessions?status=waiting&sort=updated", "Sessions"), AGENTS, STORE,
    session("brief-octopus"), session("brief-octopus", "Conversation"), session("brief-octopus", "Operations"),
    session("brief-octopus", "History"), session("brief-octopus", "Cost"), session("crawl-kelp", "Output"),
    session("memo-moorwerk", "Artifacts"), session("digest-ann", "Files"), session("brief-whelk", "Children"),
    Screen("/start?workflow=brief", "Start a session"),
    Screen("/compare?one=brief-octopus&other=brief-octopus-b", "Compare"), session("import-returns"),
)  # fmt: skip
SAMPLE = (NOW, INBOX, SESSIONS, AGENTS, STORE, *SCREENS[6:14:4], SCREENS[-1])
"""The screens that the suite looks at. The others are for ``make browser``."""
UNUSUAL = (
    session("summary-kelp"), session("book-sea", "Children"), session("sync-returns"), session("ladder-34"),
    session("ladder-120"), session("rounds"), Screen("/sessions/rounds?from=1", "rounds"), session("visitor-1"),
    session("b:ann@example.org+1"),
    session("report-brinefjord", "Artifacts"),
    Screen("/sessions/report-brinefjord?tab=artifacts&file=1-research.md", "report-brinefjord", "Artifacts"),
    session("batch-large"), session("scan-map"), Screen("/sessions/digest-removed", "digest-removed"), INBOX, SESSIONS,
)  # fmt: skip
DIALOGS = (
    (NOW, "Pause everything"), (NOW, "Keys"), (session("brief-octopus-b"), "Resume"),
    (session("brief-octopus"), "Rewind"),
    (session("brief-octopus"), "Fork"), (session("memo-moorwerk"), "Edit"), (session("brief-limpet"), "Pause"),
    (session("digest-ann"), "Wake now"), (session("brief-limpet"), "Cancel"), (session("brief-limpet"), "Redact"),
    (session("brief-limpet"), "Delete"),
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


@pytest.mark.long
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
def test_a_schedule_is_paused_resumed_triggered_and_removed_on_the_store_screen(person: Person) -> None:
    engine = person.server.engine
    person.server.run(engine.schedule("morning", Workflow("later", state=Job, steps=[work]), cron="0 7 * * 1-5"))
    person.open(STORE)
    part = person.main.get_by_role("region", name=words("schedules"))
    expect(part).to_contain_text("0 7 * * 1-5 in UTC")
    part.get_by_role("button", name="Pause morning").click()
    expect(part).to_contain_text("paused by")
    part.get_by_role("button", name="Resume morning").click()
    expect(part).to_contain_text("next run")
    part.get_by_role("button", name="Trigger morning").click()
    expect(part.get_by_role("link")).to_contain_text("morning@")
    part.get_by_role("button", name="Remove… morning").click()
    person.dialog.get_by_role("button", name=words("remove")).click()
    expect(part).to_contain_text("pausepoint schedule add")
    assert list(person.server.run(engine.schedules.list())) == []


@pytest.mark.long
def test_a_limit_is_set_and_removed_on_the_store_screen_and_a_session_says_that_it_waits_for_a_slot(
    person: Person,
) -> None:
    release, engine = asyncio.Event(), person.server.engine

    @step
    async def hold() -> None:
        await release.wait()

    async def end() -> None:
        release.set()

    held = Workflow("held", state=Job, steps=[hold], queue="gpu", priority=-5, limit=Limit(9, by="owner"))
    person.open(STORE)
    part = person.main.get_by_role("region", name=words("queues and limits"))
    part.get_by_role("button", name=words("set a limit")).click()
    person.dialog.get_by_label("Name").fill("gpu")
    person.dialog.get_by_label("At most").fill("1")
    person.dialog.get_by_role("button", name="Set", exact=True).click()
    expect(part).to_contain_text("at most 1 at once")
    for session_id in ("one", "two"):
        person.server.run(engine.start(held, session_id=session_id, lane="c7"))
    expect(part).to_contain_text("1 ready, 1 at work")
    person.open(session("two"))
    expect(person.main).to_contain_text("Waits for a free slot of queue gpu, 1 of 1 at work")
    expect(person.main).to_contain_text(re.compile("queue gpu.*priority -5.*lane c7"))
    person.server.run(engine.limit(workflow=held, most=3))
    person.open(STORE)
    part.get_by_role("button", name="Limit… workflow held").click()
    expect(person.dialog.get_by_label("At most")).to_have_value("3")  # not that of the code
    person.dialog.get_by_label("In so many seconds").fill("60")
    expect(person.dialog.get_by_label("Counted")).to_be_disabled()
    person.dialog.get_by_role("button", name="Set", exact=True).click()
    expect(part).to_contain_text("at most 3 in 60 s")
    part.get_by_role("button", name="Remove… the limit of queue gpu").click()
    person.dialog.get_by_role("button", name=words("remove")).click()
    expect(part).to_contain_text("0 ready, 2 at work")
    assert "gpu" not in [each.name for each in person.server.run(engine.limits.list())]
    person.server.run(end())


class Job(BaseModel):
    done: bool = False


@step(writes="done")
async def work() -> bool:
    return True


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


@pytest.mark.long
@pytest.mark.parametrize("path", ["/nowhere", "/sessions/none", "/inbox/q_none", "/sessions/%E0%A4%A", "/sessions/%"])
def test_an_address_that_leads_nowhere_says_so(ann: Person, path: str) -> None:
    ann.page.goto(f"{ann.server.base}/#{path}")
    expect(ann.main.get_by_role("alert")).to_be_visible()
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
    person.server.run(person.server.engine.pause_all(reason="read the logs first", by="ann"))
    expect(person.heading).to_have_text("Everything is paused")
    assert faults(person) == {}


class Pages(BaseModel):
    read: int = 0


async def fetch(page: int, api_key: str) -> str:
    return f"page {page} " * 1000


@step(writes="read")
async def crawl(ctx: Context) -> int:
    return len([await ctx.do(fetch, page, api_key="4711") for page in range(3)])


@pytest.mark.long
def test_an_operation_tells_what_it_received_and_returned(person: Person) -> None:
    engine = person.server.engine
    crawled = Workflow("crawled", state=Pages, steps=[crawl])

    async def run() -> None:
        await (await engine.start(crawled, session_id="crawl-1")).outcome()

    person.server.run(run())
    person.open(session("crawl-1", "Operations"))
    rows = person.region("Operations").locator("details")
    expect(rows).to_have_count(3)
    newest = rows.first
    expect(newest.locator("summary")).to_contain_text("2, ‹masked›")
    newest.locator("summary").click()
    expect(newest.locator("dd").first).to_have_text("2")
    expect(newest.get_by_text("‹masked›", exact=True)).to_be_visible()
    expect(newest).to_contain_text("… ‹7,002 bytes›")
    newest.get_by_role("button", name="Show all").click()
    expect(newest.locator("dd").last).to_have_text("page 2 " * 1000)
    assert "4711" not in person.main.inner_text()
    assert faults(person, ((390, "dark"),)) == {}


@pytest.mark.browser
def test_a_session_is_rewound_to_an_operation_from_its_list(person: Person) -> None:
    engine = person.server.engine
    crawled = Workflow("crawled", state=Pages, steps=[crawl])

    async def run() -> None:
        await (await engine.start(crawled, session_id="crawl-2")).outcome()

    person.server.run(run())
    person.open(session("crawl-2", "Operations"))
    rows = person.region("Operations").locator("details")
    rows.nth(1).locator("summary").click()
    rows.nth(1).get_by_role("button", name="Fork from before it").click()
    expect(person.dialog.get_by_role("list", name="Plan")).to_contain_text("runs again")
    person.press("Escape")
    rows.nth(1).get_by_role("button", name="Rewind to before it").click()
    expect(person.dialog).to_contain_text("What came before it is kept.")
    plan = person.dialog.get_by_role("list", name="Plan")
    expect(plan).to_contain_text("its result is kept")
    expect(plan).to_contain_text("2 of them had finished in crawl#1")
    assert faults(person, ((390, "dark"),)) == {}
    person.dialog.get_by_role("button", name="Rewind", exact=True).click()
    expect(person.dialog).to_have_count(0)
    expect(rows.first).to_contain_text("undone by a rewind")
    expect(rows.last).not_to_contain_text("undone by a rewind")
    rows.last.locator("summary").click()
    rows.last.get_by_role("button", name="Rewind to before it").click()
    person.dialog.get_by_text("Options").click()
    person.dialog.get_by_label("Result").fill("page zero")
    person.dialog.get_by_role("button", name="Rewind", exact=True).click()
    expect(person.dialog).to_have_count(0)
    expect(rows).to_have_count(4)
    expect(rows.first.locator("dd").last).to_have_text("page zero")
    info = person.server.run(engine.session("crawl-2").info())
    assert (info.status.value, info.step) == ("ready", "crawl")


async def answer(messages: list[Any]) -> list[dict[str, Any]]:
    if len(messages) > 1:
        return [{"type": "text", "text": "Booked. " * 2000}]
    call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"page": 7}}
    return [{"type": "thinking", "thinking": "Page 7 has it."}, {"type": "text", "text": "I look."}, call]


@step(writes="read")
async def talk(ctx: Context) -> int:
    messages: list[Any] = [{"role": "user", "content": "Book <b>it</b>\u202e."}]
    reply = await ctx.do(answer, messages)
    await ctx.do(fetch, 7, api_key="4711")
    await ctx.confirm("Book it?")
    await ctx.do(answer, [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": "Yes."}])
    return 1


@pytest.mark.long
def test_a_session_is_told_as_a_conversation(person: Person) -> None:
    engine = person.server.engine
    talked = Workflow("talked", state=Pages, steps=[talk])

    async def run() -> None:
        session = await engine.start(talked, session_id="talk-1")
        await session.outcome()
        (question,) = await session.questions()
        await engine.answer(question.id, {"approved": True}, by="ann")
        await session.outcome()

    person.server.run(run())
    person.open(session("talk-1", "Conversation"))
    turns = person.region("Conversation").get_by_role("article")
    expect(turns).to_have_count(7)
    expect(turns.nth(0)).to_contain_text("Book <b>it</b>‹U+202E›.")
    expect(turns.nth(1)).to_contain_text("wants to call fetch")
    turns.nth(1).get_by_text("Thinking", exact=True).click()
    expect(turns.nth(1).get_by_text("Page 7 has it.")).to_be_visible()
    turns.nth(2).locator("summary").click()
    expect(turns.nth(2).get_by_text("‹masked›", exact=True)).to_be_visible()
    expect(turns.nth(2)).to_contain_text("page 7 page 7")
    expect(turns.nth(3)).to_contain_text("Book it?")
    expect(turns.nth(4)).to_contain_text("ann")
    expect(turns.nth(4)).to_contain_text("yes")
    expect(turns.nth(6)).to_contain_text("‹16,000 characters›")
    assert "4711" not in person.main.inner_text()
    assert faults(person, ((390, "dark"),)) == {}


@pytest.mark.long
def test_agents_at_the_gate_tell_what_they_do_and_are_paused_one_by_one(person: Person) -> None:
    engine = person.server.engine
    person.server.run(at_the_gate(engine, "claude-ada", "Fix the build. " * 20))
    person.server.run(at_the_gate(engine, "claude-bob", "Write\u202e <b>tests</b>."))
    person.open(AGENTS)
    gate = person.region("At the gate")
    ada, bob = (gate.get_by_role("listitem").filter(has_text=name) for name in ("claude-ada", "claude-bob"))
    expect(bob).to_contain_text("“Write‹U+202E› <b>tests</b>.”")
    expect(bob).to_contain_text("pts/3 · main · /srv/site")
    assert faults(person, ((390, "dark"),)) == {}
    ada.get_by_role("button", name="Pause… claude-ada").click()
    person.dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(ada).to_contain_text("paused")
    expect(ada.get_by_role("button", name="Resume… claude-ada")).to_be_visible()
    expect(bob).to_contain_text("ready")
    bob.get_by_role("link", name="claude-bob").click()
    expect(person.region("Conversation").get_by_role("article")).to_have_count(1)
    expect(person.main).to_contain_text("terminal pts/3")
    expect(person.main.locator(".meta")).not_to_contain_text("visit")  # it makes calls
