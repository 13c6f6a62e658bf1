"""Texts of strangers are texts: none runs, none becomes an element, in no view and no dialog."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Error, expect

from tests.page import checks
from tests.page.hostile import (
    ASKS,
    CONFIRMS,
    FAILS,
    GUARDS,
    HOSTILE,
    PROOF,
    REMOVED,
    VECTORS,
    attack,
    name,
    text,
)  # fmt: skip
from tests.page.kit import AGENTS, INBOX, NETWORK, NOW, SESSIONS, STORE, Person, Screen, session, visit, words
from tests.server.kit import Served, served

AUDIT = """
() => {
  const made = 'iframe, math, object, embed, base, style, script:not([src]), img[src="x"], form[action], '
    + 'a[href^="javascript:" i]';
  const isCode = ({ name }) => name.startsWith('on') || name === 'style' || name === 'srcdoc';
  const code = [...document.querySelectorAll('*')].filter((each) => [...each.attributes].some(isCode));
  return [...document.querySelectorAll(made), ...code].map((each) => each.outerHTML.slice(0, 200));
}
"""
SHOWN = """
() => {
  const hidden = (each) => [each.value ?? '', each.tagName === 'OPTION' ? each.textContent : ''];
  const texts = (each) => [...each.attributes].map(({ value }) => value).concat(hidden(each));
  return [document.title, document.body.innerText, ...[...document.querySelectorAll('*')].flatMap(texts)].join('\\n');
}
"""
UNFOLD = "() => { for (const each of document.querySelectorAll('details')) each.open = true; }"

PLACES = {
    "owner", "tag", "reason", "by", "statekey", "statevalue", "listvalue", "question", "choice", "option", "title",
    "description", "default", "variant", "listtitle", "item", "complaint", "failure", "errortype", "operationerror",
    "eventsummary", "data", "datakey", "file", "artifact", "artifacttext", "edited", "answer", "closedquestion",
    "answeredby", "confirm", "tool", "argument", "guard", "removedby", "everything", "everyone",
    "token", "restricted", "command",
}  # fmt: skip
"""Where strangers can write. Each must have been seen as text."""

SESSION_TABS = ("State", "History", "Output", "Artifacts", "Files", "Children", "Cost")
EDITED = f"/sessions/{ASKS}?tab=artifacts&file={name('artifact')}.md"
DIALOGS = (
    (ASKS, "Pause"), (ASKS, "Fork"), (ASKS, "Rewind"), (ASKS, "Edit"), (ASKS, "Cancel"), (CONFIRMS, "Resume"),
    (FAILS, "Resume"), (GUARDS, "Edit"),
)  # fmt: skip


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("stranger")
    with served(folder, workflows=tuple(HOSTILE)) as server:
        server.run(attack(server.engine, folder))
        server.token("viewer", name=text("token"))
        yield server


@pytest.fixture(scope="module")
def ann(chrome: Browser, stranger: Served) -> Iterator[Person]:
    with visit(chrome, stranger) as person:
        person.sign_in()
        person.allowed.append(NETWORK)
        yield person


def examined(person: Person) -> set[str]:
    """Check what a tab shows now, and return the places whose text it shows."""
    person.page.evaluate(UNFOLD)
    assert person.page.evaluate(AUDIT) == []
    assert person.complaints() == []
    shown: str = person.page.evaluate(SHOWN)
    return set(re.findall(rf"(\w+)-{re.escape(PROOF)}", shown))


@pytest.mark.long
def test_no_text_of_a_stranger_runs_in_any_view(ann: Person) -> None:
    views = [
        NOW,
        INBOX,
        SESSIONS,
        AGENTS,
        STORE,
        Screen(f"/sessions/{REMOVED}", REMOVED),
        Screen(EDITED, ASKS, "Artifacts"),
    ]
    views += [session(ASKS, tab) for tab in SESSION_TABS]
    views += [session(each, tab) for each in (CONFIRMS, FAILS, GUARDS) for tab in ("State", "History")]
    seen: dict[str, list[str]] = {}
    for view in views:
        ann.open(view)
        for place in examined(ann):
            seen.setdefault(place, []).append(str(view))
    ann.server.run(ann.server.engine.pause_all(reason=text("everything"), by=text("everyone")))
    for view in (NOW, session(CONFIRMS)):
        ann.open(view)
        expect(ann.main).to_contain_text("everything-<img")
        for place in examined(ann):
            seen.setdefault(place, []).append(str(view))
    ann.server.run(ann.server.engine.lift_pause())
    assert PLACES - set(seen) == set()


@pytest.mark.long
@pytest.mark.parametrize(("session_id", "verb"), DIALOGS)
def test_no_text_of_a_stranger_runs_in_a_dialog(ann: Person, session_id: str, verb: str) -> None:
    ann.open(session(session_id))
    ann.button(f"{verb}…").first.click()
    expect(ann.dialog).to_be_visible()
    if verb in ("Fork", "Rewind", "Resume"):
        expect(ann.dialog.get_by_role("list", name="Plan")).to_be_visible()
    examined(ann)
    ann.press("Escape")
    expect(ann.dialog).to_have_count(0)


@pytest.mark.long
def test_long_texts_of_strangers_fit_a_narrow_window(ann: Person) -> None:
    found = {}
    ann.page.set_viewport_size({"width": 390, "height": 900})
    for view in (
        NOW,
        INBOX,
        SESSIONS,
        session(ASKS),
        session(FAILS),
        session(CONFIRMS),
        session(ASKS, "Artifacts"),
        AGENTS,
        STORE,
    ):
        ann.open(view)
        found[str(view)] = checks.overflow(ann.page)
    ann.page.set_viewport_size({"width": 1440, "height": 900})
    assert {view: wide for view, wide in found.items() if wide} == {}


@pytest.mark.browser
def test_a_filter_by_a_strangers_text_finds_its_sessions(ann: Person) -> None:
    ann.open(SESSIONS)
    ann.region("List of sessions").get_by_role("link", name=words("owner-<img")).first.click()
    expect(ann.page).to_have_url(re.compile("owner="))
    expect(ann.button("owner owner-<img")).to_be_visible()
    expect(ann.region("List of sessions").get_by_role("link", name=FAILS)).to_be_visible()
    examined(ann)


ADDRESSES = [
    "/sessions/{}", "/inbox/{}", "/agents/{}", "/{}", "/sessions?status={}", "/sessions?text={}",
    "/sessions?owner={}&tag={}",
    "/sessions?workflow={}&sort={}&after={}", f"/sessions/{ASKS}?tab={{}}", f"/sessions/{ASKS}?tab=history&type={{}}",
    f"/sessions/{ASKS}?at={{}}&before={{}}", f"/sessions/{ASKS}?tab=artifacts&file={{}}",
]  # fmt: skip


@pytest.mark.browser
def test_no_address_runs_what_it_contains(ann: Person) -> None:
    """A stranger may send a link to the page."""
    for address in ADDRESSES:
        for vector in (VECTORS[0], VECTORS[-1]):
            quoted = ann.page.evaluate("(text) => encodeURIComponent(text)", vector)
            ann.page.goto(f"{ann.server.base}/#{address.replace('{}', quoted)}")
            expect(ann.heading).to_be_visible()
            examined(ann)


@pytest.mark.browser
def test_html_and_svg_of_a_session_are_downloads(ann: Person) -> None:
    ann.open(session(ASKS, "Files"))
    with ann.page.expect_download() as download:
        ann.page.get_by_role("tabpanel").get_by_role("link", name=words("file-<img")).click()
    assert download.value.suggested_filename.endswith(".html")
    ann.open(session(ASKS, "Artifacts"))
    with ann.page.expect_download():
        ann.page.get_by_role("tabpanel").get_by_role("link", name=words("artifact-<img")).first.click()
    examined(ann)


@pytest.mark.long
def test_what_a_stranger_types_stays_text(ann: Person) -> None:
    """The search, a reason and a refusal show what was typed."""
    ann.open(SESSIONS)
    ann.page.get_by_role("searchbox").press_sequentially("<img src=x onerror=pwned(0)>")
    ann.press("Enter")
    expect(ann.main).to_contain_text("No session matches")
    examined(ann)
    ann.open(session(FAILS))
    ann.button("Fork").click()
    ann.dialog.get_by_label("Id of the new session").fill("<img src=x onerror=pwned('id')>")
    ann.dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(ann.dialog.get_by_role("alert").filter(has_text="letters")).to_be_visible()
    examined(ann)
    ann.press("Escape")


@pytest.mark.browser
@pytest.mark.parametrize("screen", [NOW, session(ASKS)], ids=["now", "session"])
def test_html_from_text_throws_on_the_page(chrome: Browser, stranger: Served, screen: Screen) -> None:
    with visit(chrome, stranger) as person:
        person.sign_in()
        person.open(screen)
        with pytest.raises(Error, match="TrustedHTML"):
            person.page.evaluate("() => { document.createElement('p').innerHTML = '<b>x</b>'; }")
        assert person.page.evaluate("document.cookie") == ""
        person.allowed.append("")  # the policy reports what was tried
