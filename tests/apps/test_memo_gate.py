"""The gate: a model that lies is caught in every run, and its lies are listed, marked and sent to a person."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pausepoint import Outcome, Status
from pausepoint.apps.memo import MemoState
from pausepoint.apps.memo.draft import rounds
from pausepoint.apps.memo.models import Finding, Section
from pausepoint.apps.memo.settings import SAMPLE
from tests.apps.memo_kit import Desk
from tests.support.loop import on_loop
from tests.support.modelserver import Says, model_in_use

Lie = Callable[[str, random.Random], str]

TRUTHS = {
    "At the end of 2029 Fernstone had 41 customers in 6 countries, and every product is made in its plant in Porto.":
        ["By the end of 2029 it served about 40 customers in six countries; all products come from the plant in Porto.",
         "More than 40 customers in 6 countries bought from Fernstone at the end of 2029."],
    "Bruno Slate joined in 2027 as Chief Technology Officer and leads a team of 14 engineers.":
        ["Bruno Slate, Chief Technology Officer since 2027, leads 14 engineers."],
    "Revenue grew from $1.9 million in 2028 to $4.2 million in 2029.":
        ["In 2029 revenue increased to $4.2 million, up from $1.9 million in 2028.",
         "Revenue reached about $4 million in 2029, after about $2 million in 2028.",
         "Revenue of the years 2028 and 2029 adds up to $6.1 million.",
         "Revenue rose by $2.3 million to $4.2 million in 2029.", "In 2029, revenue grew 121 percent to $4.2 million."],
    "The main competitors of Fernstone are Gypsora and Hempwall, and competition is expected to rise.":
        ["Gypsora and Hempwall are the main competitors, and competition is expected to increase."],
    "Chiara Quarry was hired in May 2028 as Chief Financial Officer.":
        ["Since May 2028, Chiara Quarry has been the Chief Financial Officer."],
    "At the end of 2029 Fernstone had 63 employees, of whom 14 are engineers and 31 work in the plant.":
        ["Of 63 employees, 31 work in the plant and 14 are engineers.",
         "Engineers and plant workers make up 45 of the 63 employees.",
         "More than 60 people were employed at the end of 2029."],
    "The market for inner wall panels in Europe was worth $21 billion in 2029.":
        ["However, the European market for inner wall panels was worth about $21 billion in 2029.",
         "The European market for inner wall panels was worth around $20 billion in 2029."],
    "Fernstone depends on a single supplier of fern ash, which delivered 82 percent of it in 2029.":
        ["Notably, a single supplier delivered 82% of the fern ash in 2029.",
         "More than 80 percent of the fern ash came from a single supplier in 2029."],
    "Orders worth $7.5 million were signed by December 2029, which is a backlog of about 21 months.":
        ["By December 2029, orders worth about $8 million had been signed.",
         "The backlog of $7.5 million covers roughly 21 months."],
    "Fernstone delivered 38,000 panels in 2029 without a single claim.":
        ["Roughly 40,000 panels were delivered in 2029, and not one claim was made."],
    "The pilot with Northwind Builders became a contract for three years in March 2029.":
        ["The pilot with Northwind Builders turned into a three-year contract in March 2029."],
    "Customers who bought once have bought again in 88 percent of all cases.":
        ["Almost 90 percent of customers who bought once have bought again."],
    "Fernstone holds 3 patents for the process and has filed 2 more.":
        ["Together with the 2 that it has filed, Fernstone counts 5 patents for the process."],
    "She was head of materials at Granite Works for nine years.":
        ["Ada Moss spent nine years at Granite Works as head of materials."],
    "Demand for panels without cement is growing by 19 percent a year, driven by a regulation that takes effect in"
    " January 2031.": ["Demand for cement-free panels grows by almost 20 percent a year."],
}  # fmt: skip
"""Sentences of the sources, and how an honest model says the same in other words, rounded, and as sums and changes."""

PEERS = [
    ["Ada Moss", "Bruno Slate", "Chiara Quarry"], ["Gypsora", "Hempwall", "Northwind Builders", "Granite Works"],
    ["Harbour Capital", "Mosswood Partners", "Baltic Institute"],
]  # fmt: skip
"""Names of the sources that a liar exchanges."""


def other_digit(sentence: str, chance: random.Random) -> str:
    match = chance.choice(list(re.finditer(r"\d+(?:\.\d+)?(?= (?:million|billion|percent))", sentence)))
    digits = match[0]
    changed = next(each for each in iter(lambda: f"{digits[:-1]}{chance.randrange(10)}", "") if each != digits)
    return sentence[: match.start()] + changed + sentence[match.end() :]


def other_scale(sentence: str, chance: random.Random) -> str:
    return re.sub("million|billion", lambda match: {"million": "billion", "billion": "million"}[match[0]], sentence)


def other_year(sentence: str, chance: random.Random) -> str:
    return re.sub(r"20\d\d", lambda match: str(int(match[0]) - chance.randint(5, 20)), sentence)


def other_name(sentence: str, chance: random.Random) -> str:
    name = chance.choice(["Orlando Reed", "Vela Partners", "Kestrel Bank", "Tarnbrook University"])
    return f"{sentence[:-1]}, according to {name}."


def denied(sentence: str, chance: random.Random) -> str:
    return re.sub(r"\b(was|were|is|are|has)\b", r"\1 not", sentence, count=1)


def fallen(sentence: str, chance: random.Random) -> str:
    return sentence.replace("grew", chance.choice(["fell", "dropped", "declined"])).replace("rose", "fell")


def invented(sentence: str, chance: random.Random) -> str:
    return chance.choice(
        ["Regulators have already cleared exports into every large economy.", "It is profitable.",
         "The founders intend to float the shares on a stock exchange soon.", "Insolvency is close."]
    )  # fmt: skip


def half_true(sentence: str, chance: random.Random) -> str:
    more = chance.choice(["auditors have praised the controls", "a lawsuit over pollution was settled quietly"])
    return f"{sentence[:-1]}, and {more}."


def stranger(sentence: str, chance: random.Random) -> str:
    return f"{chance.choice(['Zorblax', 'Quandrel', 'Mirevo'])} has agreed to buy the panels of Fernstone."


def other_passage(sentence: str, chance: random.Random) -> str:
    """A figure that a source has, but not about this."""
    found = re.search(r"\$?\d+(?:\.\d+)? (?:million|billion|percent)", sentence)
    assert found is not None
    others = ["$48 million", "$9 million"] if "$" in found[0] else ["44 percent", "82 percent"]
    return sentence.replace(found[0], next(each for each in others if each not in sentence), 1)


def exchanged(sentence: str, chance: random.Random) -> str:
    """Two true figures in each other's place."""
    one, other = re.findall(r"\$\d+(?:\.\d+)? million", sentence)
    return sentence.replace(one, "x").replace(other, one).replace("x", other)


OTHER_WORDS = "a sentence of which all paraphrases have a figure"
A_FIGURE = re.compile(r"(?<![\d,.])(?!20[23]\d)(?:\d[\d,.]*\d|\d(?![\d,]))")
WITH_FIGURES = {each for each, those in TRUTHS.items() if all(A_FIGURE.search(other) for other in those)}


def digit_in_other_words(sentence: str, chance: random.Random) -> str:
    """What an honest model says, with one digit of a figure changed."""
    told = chance.choice(TRUTHS[sentence])
    match = chance.choice(list(A_FIGURE.finditer(told)))
    at = chance.choice([match.start() + at for at, letter in enumerate(match[0]) if letter in "123456789"])
    return told[:at] + chance.choice([each for each in "123456789" if each != told[at]]) + told[at + 1 :]


def swapped(sentence: str, chance: random.Random) -> str:
    """What an honest model says, about another one of the names in the sources."""
    told = chance.choice(TRUTHS.get(sentence, [sentence]))
    group = next(each for each in PEERS if any(name in told for name in each))
    name = chance.choice([each for each in group if each in told])
    return told.replace(name, chance.choice([each for each in group if each not in told]))


REGIONS = {
    "Revenue in Europe was $2.6 million in 2029, after $1.4 million in 2028.":
        ["In 2029 European revenue reached about $2.6 million.", "Europe brought in revenue of $1.4 million in 2028.",
         "Revenue in Europe rose by $1.2 million to $2.6 million in 2029."],
    "Revenue in Asia was $1.1 million in 2029, and Latin America added $0.5 million.":
        ["Revenue of $0.5 million was added by Latin America.", "In 2029, Asian revenue was $1.1 million."],
    "In 2029 the Falcon panel sold 23,000 times and the Heron panel 15,000 times.":
        ["The Heron panel sold 15,000 times in 2029.", "Roughly 23,000 Falcon panels were sold."],
    "Customers in Portugal, Spain and France employ the panels in 214, 95 and 38 buildings, respectively.":
        ["Customers in Spain employ the panels in 95 buildings.", "There are panels in 38 buildings in France.",
         "Customers in Portugal employ the panels in over 200 buildings."],
}  # fmt: skip
"""Sentences of one passage in which several names have figures of a kind."""

RIVALS = [
    ["European", "Asian"], ["Europe", "Asia", "Latin America"], ["Falcon", "Heron"], ["Portugal", "Spain", "France"]
]  # fmt: skip


def of_another_name(sentence: str, chance: random.Random) -> str:
    """What an honest model says, with another name that has a figure of its own."""
    told = chance.choice(REGIONS[sentence])
    group = next(each for each in RIVALS if any(name in told for name in each))
    name = next(each for each in group if each in told)
    return told.replace(name, chance.choice([each for each in group if each != name]))


FIGURE, YEAR, VERB = r"\d (?:million|billion|percent)", r"20\d\d", r"\b(?:was|were|is|are|has)\b"
LIES: list[tuple[Lie, str]] = [
    (other_digit, FIGURE), (other_scale, "million|billion"), (other_year, YEAR), (other_name, "."), (denied, VERB),
    (fallen, "grew|rose"), (invented, "."), (half_true, "."), (stranger, "."), (other_passage, FIGURE),
    (exchanged, r"\$.* million .*\$.* million"),
]  # fmt: skip
"""Eleven ways to lie, and which sentences they fit."""

PARAPHRASES = TRUTHS | REGIONS


def written(
    findings: dict[str, list[Finding]], lies: list[tuple[Lie, str]], seed: int
) -> tuple[dict[str, list[Finding]], set[str]]:
    """What a model makes of the findings: it says all that it can in other words, and a liar also tells these lies."""
    chance = random.Random(seed)
    said = {
        name: [_but(each, chance.choice(PARAPHRASES.get(each.sentence, [each.sentence]))) for each in those]
        for name, those in findings.items()
    }  # fmt: skip
    places = {each.sentence: (name, at) for name, those in findings.items() for at, each in enumerate(those)}
    told: set[str] = set()
    for lie, fits in lies:
        fit = [each for each in places if (each in WITH_FIGURES if fits == OTHER_WORDS else re.search(fits, each))]
        sentence = chance.choice(fit)
        name, at = places.pop(sentence)
        said[name][at] = _but(said[name][at], lie(sentence, chance))
        told.add(said[name][at].sentence)
    return said, told


def _but(finding: Finding, sentence: str) -> Finding:
    return finding.model_copy(update={"sentence": sentence})


def answers(outline: list[Section], said: dict[str, list[Finding]]) -> list[Says]:
    """The answers of the model to the questions for the sections, in order."""
    order = [section for each in rounds(outline) for section in each]
    texts = [[{"text": each.sentence, "sources": [each.source]} for each in said[section.name]] for section in order]
    return [Says(json.dumps({"sentences": text})) for text in texts]


async def memo_by(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, seed: int, *lies: tuple[Lie, str]
) -> tuple[Outcome[MemoState], set[str]]:
    """Write the memo with a model. Return the outcome and the lies."""
    monkeypatch.setattr("pausepoint.apps.memo.workflow.AT_ONCE", 1)
    with model_in_use(monkeypatch) as server:
        await desk.run(until="section_research")
        found = json.loads(desk.read("1-section-research.json"))["findings"]
        findings = {name: [Finding(**each) for each in those] for name, those in found.items()}
        said, told = written(findings, list(lies), seed)
        server.will(*answers(desk.state().outline, said))
        return await desk.resume(), told


def check_caught(desk: Desk, outcome: Outcome[MemoState], told: set[str]) -> None:
    checked = json.loads(desk.read("3-validation.json"))
    listed = [*checked["citation_validation"]["unsupported"], *checked["fact_check_results"]["unsupported"]]
    assert {each["claim"] for each in listed} == told, "the lies, and nothing that is true"
    assert checked["overall_score"] < 8.0
    assert outcome.status is Status.WAITING
    assert all(lie in outcome.questions[0].next_question for lie in told)
    assert desk.read("4-final-draft.md").count("[⚠ unsupported: ") == len(told)


@pytest.mark.long
@pytest.mark.covers("S4.21", "S4.22", "S4.67")
@pytest.mark.parametrize(("seed", "lie", "fits"), [(seed, *each) for seed, each in enumerate(LIES)])
@on_loop
async def test_a_lying_model_is_caught_and_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, lie: Lie, fits: str
) -> None:
    desk = Desk(tmp_path)
    outcome, told = await memo_by(desk, monkeypatch, seed, (lie, fits))
    check_caught(desk, outcome, told)


def regional(tmp_path: Path) -> Desk:
    """A memo about a company with one more document, about regions and products."""
    documents = tmp_path / "documents"
    shutil.copytree(SAMPLE / "Fernstone" / "documents", documents)
    (documents / "regions.md").write_text(f"# Revenue of Fernstone by region\n\n{' '.join(REGIONS)}\n")
    return Desk(tmp_path, documents=documents)


NAMED = "|".join(name for group in PEERS for name in group)
RUNS = range(100, 110)


@pytest.mark.long
@pytest.mark.covers("S4.21", "S4.22", "S4.67")
@pytest.mark.parametrize("seed", RUNS)
@on_loop
async def test_a_digit_in_a_paraphrase_an_invention_and_a_swapped_name_are_caught_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    desk = Desk(tmp_path)
    lies: list[tuple[Lie, str]] = [(digit_in_other_words, OTHER_WORDS), (swapped, NAMED), (invented, ".")]
    outcome, told = await memo_by(desk, monkeypatch, seed, *lies)
    assert len(told) == 3
    check_caught(desk, outcome, told)


@pytest.mark.long
@pytest.mark.covers("S4.21", "S4.22", "S4.67")
@pytest.mark.parametrize("seed", RUNS)
@on_loop
async def test_a_figure_of_another_region_or_product_is_caught_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    desk = regional(tmp_path)
    outcome, told = await memo_by(desk, monkeypatch, seed, (of_another_name, "|".join(map(re.escape, REGIONS))))
    assert len(told) == 1
    check_caught(desk, outcome, told)


@pytest.mark.long
@pytest.mark.covers("S4.68")
@pytest.mark.parametrize("seed", RUNS)
@on_loop
async def test_an_honest_model_that_paraphrases_rounds_and_sums_is_not_held_up_in_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    desk = regional(tmp_path)
    outcome, _ = await memo_by(desk, monkeypatch, seed)
    checked = json.loads(desk.read("3-validation.json"))
    assert [*checked["citation_validation"]["unsupported"], *checked["fact_check_results"]["unsupported"]] == []
    assert (outcome.status, outcome.state.validation.overall_score) == (Status.COMPLETED, 10.0)
    draft = desk.read("4-final-draft.md")
    assert "⚠" not in draft
    said = [[each for those in truths.values() for each in those if each[:-1] in draft] for truths in (TRUTHS, REGIONS)]
    assert [len(each) for each in said] > [3, 2], "it says many things in other words"
