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


FAULTS: dict[Callable[[Page], object], str] = {
    checks.overflow: added("canvas", width="3000"),
    checks.barriers: added("button"),
    checks.garbage: added("p", textContent="[object Object]"),
    checks.long_lists: f"for (let n = 0; n < 201; n++) {added('li', textContent='row')}",
}


@pytest.mark.long
def test_a_fault_of_the_page_is_found(ann: Person) -> None:
    ann.open(SESSIONS)
    for check, fault in FAULTS.items():
        assert not check(ann.page)
        ann.page.evaluate(f"() => {{ {fault} }}")
        assert check(ann.page)
        ann.page.evaluate("() => document.querySelector('main').lastElementChild.remove()")


COMPLAINTS = {
    "console.warn('twin')": "console: warning: twin",
    "setTimeout(() => { throw new Error('twin'); })": "error: twin",
    "document.querySelector('main').setAttribute('style', 'color: red')": "policy: style-src",
    added("script", src="http://127.0.0.1:9/x.js"): "policy: require-trusted-types-for",
    "pwned('twin')": "ran: twin",
    "alert('another')": "ran: another",
}


@pytest.mark.long
def test_what_a_tab_complains_about_is_noticed(ann: Person) -> None:
    ann.open(SESSIONS)
    for fault, said in COMPLAINTS.items():
        ann.check()
        ann.page.evaluate(f"() => {{ try {{ {fault} }} catch {{}} }}")
        ann.page.wait_for_function("new Promise((done) => setTimeout(() => done(true), 0))")
        complaints = ann.complaints()
        assert any(each.startswith(said) for each in complaints), complaints


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
