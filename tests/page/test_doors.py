"""The doors of a session: start it with a form, find it by date, compare, export, import, redact and delete it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from playwright.sync_api import Browser, expect
from pydantic import BaseModel, Field

from pausepoint import Artifact, Engine, Workflow, step
from tests.page import checks
from tests.page.exhibit import digest
from tests.page.kit import INBOX, NETWORK, SESSIONS, Person, Screen, asked, eventually, session, visit, window
from tests.server.kit import Served, brief, served


class Tone(Enum):
    FORMAL = "formal"
    PLAYFUL = "playful"


class Place(BaseModel):
    city: str
    zip: int | None = None


class Everything(BaseModel):
    """A field of each type."""

    text: str
    whole: int = Field(ge=1, le=9)
    number: float = 0.5
    price: Decimal = Decimal("1.50")
    yes: bool = True
    day: dt.date
    hour: dt.time | None = None
    moment: dt.datetime | None = None
    span: dt.timedelta | None = None
    id: UUID | None = None
    tone: Tone = Tone.FORMAL
    kind: Literal["a", "b"]
    many: list[str] = []
    pair: tuple[int, str] | None = None
    table: dict[str, int] = {}
    place: Place
    either: int | str = 3
    anything: Any = None
    folder: str = ""
    written: str = ""


@step(writes="written")
def write(text: str) -> str:
    return f"{text}!"


everything = Workflow("everything", state=Everything, steps=[write])


class Letter(BaseModel):
    topic: str
    text: str = ""


@step(writes="text", publishes=Artifact("letter.md"))
def compose(topic: str) -> str:
    return f"# {topic}\n"


letter = Workflow("letter", state=Letter, steps=[compose])
START = Screen("/start", "Start a session")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, workflows=(everything, letter, digest, brief)) as one:
        yield one


def chosen(person: Person, workflow: str) -> None:
    person.open(START)
    person.page.get_by_label("Workflow").select_option(workflow)
    person.button("Start").wait_for()


def state(person: Person, workflow: str) -> tuple[str, Any]:
    async def ended() -> tuple[str, Any]:
        (info,) = await person.server.engine.sessions(workflow=workflow)
        return info.session_id, (await person.server.engine.session(info.session_id).outcome()).state

    return person.server.run(ended())


@pytest.mark.browser
def test_a_session_with_a_field_of_each_type_is_started_with_a_form(person: Person) -> None:
    person.open(SESSIONS)
    person.main.get_by_role("link", name="Start a session").click()
    person.wait(START)
    chosen(person, "everything")
    form = person.region("New session")
    form.get_by_label("Text", exact=True).fill("kelp")
    form.get_by_label("Whole").fill("7")
    form.get_by_label("Day").fill("2026-05-04")
    form.get_by_label("Hour").fill("09:30")
    form.get_by_role("radio", name="playful").check()
    form.get_by_role("group", name="Kind").get_by_role("radio", name="b").check()
    form.get_by_role("button", name="Add one").click()
    form.get_by_label("1.").fill("one")
    form.get_by_label("Pair").fill('[1, "x"]')
    form.get_by_label("Table").fill('{"a": 1}')
    form.get_by_label("City").fill("Kiel")
    form.get_by_label("Anything").fill('{"deep": [1]}')
    form.get_by_label("Folder").first.fill("a field, not an option")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(person.heading).not_to_have_text("Start a session")
    _, found = state(person, "everything")
    assert (found.text, found.whole, found.day, found.hour) == ("kelp", 7, dt.date(2026, 5, 4), dt.time(9, 30))
    assert (found.tone, found.kind, found.many, found.pair) == (Tone.PLAYFUL, "b", ["one"], (1, "x"))
    assert (found.table, found.place.city, found.anything) == ({"a": 1}, "Kiel", {"deep": [1]})
    assert (found.number, found.price, found.yes, found.either) == (0.5, Decimal("1.50"), True, 3)
    assert (found.folder, found.written) == ("a field, not an option", "kelp!")


@pytest.mark.browser
def test_a_refused_start_says_why_beside_the_field_and_keeps_what_was_typed(person: Person) -> None:
    chosen(person, "everything")
    person.allowed.append(NETWORK)
    form = person.region("New session")
    long = "‮" + "x" * 10_000
    form.get_by_label("Text", exact=True).fill(long)
    form.get_by_label("Whole").fill("70")
    form.get_by_label("Day").fill("2026-05-04")
    form.get_by_role("group", name="Kind").get_by_role("radio", name="b").check()
    form.get_by_label("City").fill("Kiel")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("Nothing was started")
    expect(form.get_by_label("Text", exact=True)).to_have_value(long)
    for width in (1440, 390):
        person.page.set_viewport_size({"width": width, "height": 900})
        assert checks.overflow(person.page) == []
        assert checks.barriers(person.page) == []
    form.get_by_label("Whole").fill("7")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(person.heading).not_to_have_text("Start a session")
    _, found = state(person, "everything")
    assert (found.text, found.whole) == (long, 7)


@pytest.mark.browser
def test_a_workflow_with_artifacts_asks_for_a_folder(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(person.server.folder)
    chosen(person, "letter")
    person.allowed.append(NETWORK)
    form = person.region("New session")
    form.get_by_label("Topic").fill("tides")
    form.get_by_label("Folder for its artifacts").fill("../outside")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(form).to_contain_text("is not below the folder")
    form.get_by_label("Folder for its artifacts").fill("letters/tides")
    form.get_by_text("Options").click()
    form.get_by_role("textbox", name=re.compile("^Id ")).fill("letter-1")
    form.get_by_label("Tags").fill("night may")
    form.get_by_label("Budget in USD").fill("2.5")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(person.heading).to_have_text("letter-1")
    info = person.server.run(person.server.engine.session("letter-1").info())
    assert (info.tags, info.budget_usd) == (("night", "may"), 2.5)
    eventually((person.server.folder / "letters/tides/letter.md").exists)


def paused(person: Person, *names: str) -> None:
    for name in names:
        person.server.run(person.server.engine.start(digest, reader="x", session_id=name, paused=True))


@pytest.mark.browser
def test_a_session_is_deleted_only_if_its_id_is_typed(person: Person) -> None:
    paused(person, "spring", "spring2027")
    person.allowed.append(NETWORK)
    person.open(session("spring"))
    person.button("Delete").click()
    expect(person.dialog).to_contain_text("1 session would be deleted")
    expect(person.dialog.get_by_role("list", name="Plan")).to_contain_text("spring")
    typed = person.dialog.get_by_label("Type the id of the session")
    typed.fill("spring2027")
    person.dialog.get_by_role("button", name="Delete it permanently").click()
    expect(person.dialog.get_by_role("alert")).to_contain_text("Nothing was deleted")
    person.dialog.get_by_label("Why").fill("asked to")
    typed.fill("spring")
    typed.press("Enter")
    person.wait(SESSIONS)
    listed = person.region("List of sessions")
    expect(listed.get_by_role("link", name="spring2027")).to_be_visible()
    expect(listed.get_by_role("link", name="spring", exact=True)).to_have_count(0)
    (left,) = person.server.run(person.server.engine.sessions())
    assert left.session_id == "spring2027"


@pytest.mark.browser
def test_a_session_is_exported_to_a_file_that_another_store_imports(person: Person, tmp_path: Path) -> None:
    paused(person, "digest-x")
    person.open(session("digest-x"))
    with person.page.expect_download() as download:
        person.main.get_by_role("link", name="Export").click()
    file = tmp_path / "copy.bundle"
    download.value.save_as(file)

    async def read() -> str:
        async with Engine(":memory:") as engine:
            return (await engine.import_session(file)).session_id

    assert person.server.run(read()) == "digest-x"


@pytest.mark.browser
def test_a_field_is_redacted(person: Person) -> None:
    place, day = Place(city="Kiel"), dt.date(2026, 5, 4)
    given = Everything(text="x", whole=1, day=day, kind="a", place=place, anything="ann@example.org")
    person.server.run(person.server.engine.start(everything, given, session_id="all", paused=True))
    person.open(session("all"))
    expect(person.page.get_by_role("tabpanel", name="State")).to_contain_text("ann@example.org")
    person.button("Redact").click()
    expect(person.dialog).to_contain_text("Nothing brings it back")
    person.dialog.get_by_label("Field").select_option("anything")
    person.dialog.get_by_label("Why").fill("personal data")
    person.dialog.get_by_role("button", name="Redact").click()
    expect(person.dialog).to_have_count(0)
    expect(person.page.get_by_role("tabpanel", name="State")).not_to_contain_text("ann@example.org")
    stored = person.server.run(person.server.engine.session("all").stored())
    assert stored.values["anything"] is None


@pytest.mark.long
def test_only_an_administrator_is_offered_to_take_a_session_out(chrome: Browser, server: Served) -> None:
    server.run(server.engine.start(digest, reader="x", session_id="digest-x", paused=True))
    with visit(chrome, server) as person:
        person.sign_in(server.token("operator"))
        person.open(session("digest-x"))
        expect(person.button("Resume")).to_be_visible()
        for name in ("Delete", "Redact"):
            expect(person.button(name)).to_have_count(0)
        expect(person.main.get_by_role("link", name="Export")).to_have_count(0)
    with visit(chrome, server) as person:
        person.sign_in(server.token("viewer"))
        person.open(SESSIONS)
        expect(person.main.get_by_role("link", name="Start a session")).to_have_count(0)


@pytest.mark.browser
def test_the_list_is_filtered_by_days_of_the_reader(person: Person) -> None:
    paused(person, "digest-x")
    person.open(SESSIONS)
    listed = person.region("List of sessions")
    row = listed.get_by_role("link", name="digest-x")
    today = dt.date.today()
    since, until_day = person.page.get_by_label("Changed on or after"), person.page.get_by_label("Changed on or before")
    since.fill((today + dt.timedelta(days=2)).isoformat())
    expect(listed).to_contain_text("No session matches")
    since.fill((today - dt.timedelta(days=2)).isoformat())
    expect(row).to_be_visible()
    until_day.fill((today - dt.timedelta(days=2)).isoformat())
    expect(listed).to_contain_text("No session matches")
    expect(until_day).to_have_value((today - dt.timedelta(days=2)).isoformat())
    until_day.fill("")
    expect(row).to_be_visible()


COMPARE = Screen("/compare", "Compare")


@pytest.mark.browser
def test_two_sessions_are_compared_now_and_at_a_checkpoint(person: Person) -> None:
    long = "reef-" + "x" * 110
    engine = person.server.engine

    async def begin() -> None:
        await (await engine.start(brief, topic="octopus", session_id="brief-1")).outcome()
        await engine.session("brief-1").fork(session_id=long, changes={"topic": "squid <b>\u202e"}, paused=True)

    person.server.run(begin())
    person.open(session(long))
    person.main.get_by_role("link", name="Compare", exact=True).click()
    differences, facts = person.region("Differences"), person.region("Facts")
    expect(differences).to_contain_text("1 difference")
    expect(differences).to_contain_text("octopus squid <b>‹U+202E›")
    expect(facts.get_by_role("row", name="Status")).to_contain_text(re.compile("waiting.*paused", re.DOTALL))
    for width in (1440, 390):
        person.page.set_viewport_size({"width": width, "height": 900})
        assert checks.overflow(person.page) == []
        assert checks.barriers(person.page) == []

    person.page.get_by_label("Checkpoint of the first session").select_option(label="research#1 (record 3)")
    expect(differences).to_contain_text("at 3")
    person.main.get_by_role("link", name="Swap").click()
    expect(differences).to_contain_text("squid <b>‹U+202E› octopus")
    person.server.run(engine.session(long).edit({"tone": "by hand"}))
    expect(differences).to_contain_text("by hand (empty)")  # without loading the page again

    person.allowed.append(NETWORK)
    other = person.page.get_by_label("Second session", exact=True)
    other.fill("nobody")
    other.press("Enter")
    expect(person.main.get_by_role("alert")).to_contain_text("nobody")
    other.fill(long)
    other.press("Enter")
    expect(differences).to_contain_text("No differences")


@pytest.mark.browser
def test_a_comparison_begins_with_two_selected_sessions_or_with_two_ids(person: Person) -> None:
    paused(person, "digest-a", "digest-b")
    person.open(SESSIONS)
    for name in ("digest-a", "digest-b"):
        person.page.get_by_label(f"select {name}", exact=True).check()
    person.main.get_by_role("link", name="Compare", exact=True).click()
    expect(person.region("Differences")).to_contain_text("The two states have the same values")
    person.open(COMPARE)
    expect(person.main).to_contain_text("Name two sessions")
    person.page.get_by_label("First session", exact=True).fill("digest-a")
    person.page.get_by_label("Second session", exact=True).fill("digest-b")
    person.page.get_by_role("button", name="Compare").click()
    expect(person.region("Differences")).to_contain_text("No differences")


@pytest.mark.browser
def test_an_answer_link_is_made_on_the_page_and_answers_its_question(person: Person, chrome: Browser) -> None:
    question = asked(person.server, brief, "brief-1", topic="octopus")
    person.open(INBOX)
    person.question("Which tone?").get_by_role("button", name="Share").click()
    person.dialog.get_by_label("Who answers").fill("Ann <b>\u202e")
    person.dialog.get_by_label("The link ends after").select_option(label="1 day")
    person.dialog.get_by_role("button", name="Make the link").click()
    address = person.dialog.get_by_label("Copy the link")
    expect(address).to_have_value(re.compile(f"^{re.escape(person.server.base)}/#token="))
    expect(person.dialog).to_contain_text("It ends in 23 h")
    for width in (1440, 390):
        person.page.set_viewport_size({"width": width, "height": 900})
        assert checks.overflow(person.page) == []
        assert checks.barriers(person.page) == []
    with window(chrome) as outside:
        visitor = Person(outside.new_page(), person.server)
        visitor.page.goto(address.input_value())
        visitor.wait(INBOX)
        expect(visitor.button("Share")).to_have_count(0)
        visitor.question("Which tone?").get_by_role("radio", name="formal").check()
        visitor.question("Which tone?").get_by_role("button", name="Answer").click()
        expect(visitor.heading).to_have_text("Thank you")
        visitor.allowed.append(NETWORK)  # the link has ended
        visitor.check()
    person.press("Escape")
    expect(person.dialog).to_have_count(0)
    expect(person.region("Recently closed")).to_contain_text("Ann <b>‹U+202E› (link of root)")
    receipt = person.server.run(person.server.engine.question(question)).receipt
    assert receipt is not None
    assert receipt.by == "Ann <b>\u202e (link of root)"


@pytest.mark.browser
def test_a_person_who_may_only_answer_makes_no_links(chrome: Browser, server: Served) -> None:
    asked(server, brief, "brief-1", topic="octopus")
    with visit(chrome, server) as person:
        person.sign_in(server.token("answerer"), INBOX)
        expect(person.question("Which tone?")).to_be_visible()
        expect(person.button("Share")).to_have_count(0)


@pytest.mark.browser
def test_a_session_of_another_store_is_imported(person: Person, tmp_path: Path) -> None:
    file = tmp_path / "copy.bundle"
    long = "digest-" + "x" * 110

    async def export() -> None:
        async with Engine(":memory:") as engine:
            await (await engine.start(digest, reader="ann", session_id=long, paused=True)).export(file)

    person.server.run(export())
    person.allowed.append(NETWORK)
    person.open(SESSIONS)
    person.button("Import").click()
    broken = {"name": "broken.bundle", "mimeType": "text/plain", "buffer": b"hello"}
    person.dialog.get_by_label("File").set_input_files(broken)  # type: ignore[arg-type]
    person.dialog.get_by_role("button", name="Import").click()
    expect(person.dialog.get_by_role("alert")).to_contain_text("not an exported Pausepoint session")
    for width in (1440, 390):
        person.page.set_viewport_size({"width": width, "height": 900})
        assert checks.overflow(person.page) == []
        assert checks.barriers(person.page) == []
    person.dialog.get_by_label("File").set_input_files(file)
    person.dialog.get_by_role("button", name="Import").click()
    expect(person.heading).to_have_text(long)
    expect(person.main).to_contain_text("paused")
    assert person.server.run(person.server.engine.session(long).stored()).values["reader"] == "ann"

    person.open(SESSIONS)
    person.button("Import").click()
    person.dialog.get_by_label("File").set_input_files(file)
    person.dialog.get_by_role("button", name="Import").click()
    expect(person.dialog.get_by_role("alert")).to_contain_text("already exists")
    person.dialog.get_by_label("Id,").fill("digest-copy")
    person.dialog.get_by_role("button", name="Import").click()
    expect(person.heading).to_have_text("digest-copy")


@pytest.mark.browser
def test_only_an_administrator_of_all_owners_is_offered_to_import(chrome: Browser, server: Served) -> None:
    for token in (server.token("operator"), server.token("admin", "ann")):
        with visit(chrome, server) as person:
            person.sign_in(token)
            person.open(SESSIONS)
            expect(person.main.get_by_role("link", name="Start a session")).to_be_visible()
            expect(person.button("Import")).to_have_count(0)
