"""The checks find what they look for: each is tried on a page with a known fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Error, Page

from tests.page import checks
from tests.page.exhibit import digest
from tests.page.kit import SESSIONS, Person, visit
from tests.server.kit import Served

NAKED = """<!doctype html><title>twin</title><body><script>
fetch('api/v1/sessions').then((answer) => answer.json()).then(({ sessions }) => {
  document.body.innerHTML = sessions.map((each) => `<p>${each.owner}</p>`).join('');
});</script>"""
"""A page that draws the texts of strangers as HTML, without a policy."""


@pytest.fixture
def ann(chrome: Browser, shown: Served) -> Iterator[Person]:
    with visit(chrome, shown) as person:
        person.sign_in()
        yield person
        person.allowed.append("")  # the fault is wanted


def added(tag: str, **attributes: str) -> str:
    """Return a script that adds an element to the page."""
    return f"document.querySelector('main').append(Object.assign(document.createElement('{tag}'), {attributes}))"


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (added("canvas", width="3000"), checks.overflow),
        (added("button"), checks.barriers),
        (added("p", textContent="[object Object]"), checks.garbage),
        (f"for (let n = 0; n < 201; n++) {added('li', textContent='row')}", checks.long_lists),
    ],
    ids=["wide text", "button without name", "no word", "too many rows"],
)
def test_a_fault_of_the_page_is_found(ann: Person, fault: str, check: Callable[[Page], object]) -> None:
    ann.open(SESSIONS)
    assert not check(ann.page)
    ann.page.evaluate(f"() => {{ {fault} }}")
    assert check(ann.page)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("console.warn('twin')", "console: warning: twin"),
        ("setTimeout(() => { throw new Error('twin'); })", "error: twin"),
        ("document.querySelector('main').setAttribute('style', 'color: red')", "policy: style-src"),
        (added("script", src="http://127.0.0.1:9/x.js"), "policy: "),
        ("pwned('twin')", "ran: twin"),
        ("alert('twin')", "ran: twin"),
    ],
    ids=["console", "error", "style", "script", "sentinel", "alert"],
)
def test_what_a_tab_complains_about_is_noticed(ann: Person, fault: str, said: str) -> None:
    ann.open(SESSIONS)
    ann.check()
    ann.page.evaluate(f"() => {{ try {{ {fault} }} catch {{}} }}")
    ann.page.wait_for_function("new Promise((done) => setTimeout(() => done(true), 0))")
    assert any(each.startswith(said) for each in ann.complaints()), ann.complaints()


@pytest.mark.long
def test_the_policy_forbids_html_from_text(ann: Person) -> None:
    for assignment in (
        "innerHTML = '<b>x</b>'",
        "outerHTML = '<b>x</b>'",
        "insertAdjacentHTML('beforeend', '<b>x</b>')",
    ):
        with pytest.raises(Error, match="TrustedHTML"):
            ann.page.evaluate(f"() => {{ document.querySelector('main').{assignment} }}")
    with pytest.raises(Error, match=r"[Pp]olicy"):
        ann.page.evaluate("() => { trustedTypes.createPolicy('another', {}); }")


@pytest.mark.long
def test_a_page_that_draws_texts_as_html_runs_them(chrome: Browser, server: Served) -> None:
    server.run(server.engine.start(digest, reader="x", owner="<img src=x onerror=pwned('owner')>"))
    with visit(chrome, server) as person:
        person.allowed.append("")
        person.sign_in()
        person.page.route(f"{server.base}/", lambda route: route.fulfill(body=NAKED, content_type="text/html"))
        person.page.goto(f"{server.base}/")
        person.page.reload()
        person.page.wait_for_function("ran.length")
        person.allowed.clear()
        assert "ran: owner" in person.complaints()
