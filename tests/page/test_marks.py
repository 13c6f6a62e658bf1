"""Characters that a browser obeys or hides are drawn as marks, on the page as everywhere else."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
from playwright.sync_api import expect

from pausepoint import Context, workflow
from pausepoint.model import marks
from tests.page.kit import INBOX, Person, asked

PAGE = files("pausepoint.server").joinpath("page")

MARKED = """
async (texts) => {
  const app = [...document.scripts].map(({ src }) => src).find((src) => src.endsWith('/app.js'));
  const { marked } = await import(app.replace('app.js', 'marks.js'));
  return texts.map(marked);
}
"""


def test_the_page_and_python_have_the_same_table() -> None:
    script = PAGE.joinpath("marks.js").read_text("utf-8")
    tables = ["".join(re.findall(r"'([^']*)'", part)) for part in re.findall(r"const [A-Z]+ = ('[^;]*);", script)]
    assert tables == [marks.HIDDEN, marks.JOINED]


def test_every_module_of_the_page_draws_text_with_marks() -> None:
    """The `html` of the library itself would draw a text as it is."""
    scripts = {each.name: each.read_text("utf-8") for each in PAGE.iterdir() if each.name.endswith(".js")}
    own = [name for name, script in scripts.items() if re.search(r"import {[^}]*\bhtml\b[^}]*} from './vendor", script)]
    assert own == ["marks.js"]


@pytest.mark.long
def test_the_page_marks_every_character_as_python_does(person: Person) -> None:
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    rows = ["".join(map(chr, codes[at : at + 4096])) for at in range(0, len(codes), 4096)]
    joined = [f"{a}{joiner}{b}" for joiner in "\u200c\u200d" for a in "aक👩\u200d" for b in "bष🚀\u202e"]
    texts = [*rows, *joined, "a\r\nb\rc\td"]
    drawn: list[str] = person.page.evaluate(MARKED, texts)
    assert drawn == [marks.marked(text) for text in texts]
    lone = person.page.evaluate("() => '\\ud83d'")
    assert json.dumps(lone)  # a half of a pair cannot be sent to Python as text, so only the browser draws it
    assert person.page.evaluate(f"async () => (await ({MARKED})(['x\\ud83d']))[0]") == marks.marked("x\ud83d")


@workflow
async def turned(text: str, ctx: Context) -> str:
    return str(await ctx.ask(text, payload={"command": text}))


@pytest.mark.long
def test_a_direction_character_does_not_turn_a_line_of_the_page_around(person: Person) -> None:
    asked(person.server, turned, "turned", text="Run x\u202egnp.exe\u200b now?")
    person.open(INBOX)
    article = person.page.get_by_role("article")
    expect(article.get_by_role("heading")).to_have_text("Run x‹U+202E›gnp.exe‹U+200B› now?")
    expect(article.locator("pre").first).to_contain_text("x‹U+202E›gnp.exe‹U+200B› now?")
    assert article.get_attribute("aria-label") == "Run x‹U+202E›gnp.exe‹U+200B› now?"
    assert "\u202e" not in person.page.content()
