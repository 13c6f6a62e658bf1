"""The gate: a model that lies is caught in every run, and its lies are listed, marked and sent to a person."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pausepoint import Outcome, Status
from pausepoint.apps.memo import MemoState
from pausepoint.apps.memo.draft import rounds
from pausepoint.apps.memo.models import Finding, Section
from tests.apps.memo_kit import Desk
from tests.support.loop import on_loop
from tests.support.modelserver import Says, model_in_use

Lie = Callable[[str, random.Random], str]

TRUTHS = {
    "Revenue grew from $1.9 million in 2028 to $4.2 million in 2029.":
        "In 2029 revenue increased to $4.2 million, up from $1.9 million in 2028.",
    "The main competitors of Fernstone are Gypsora and Hempwall, and competition is expected to rise.":
        "Gypsora and Hempwall are the main competitors, and competition is expected to increase.",
    "Chiara Quarry was hired in May 2028 as Chief Financial Officer.":
        "Since May 2028, Chiara Quarry has been the Chief Financial Officer.",
    "The market for inner wall panels in Europe was worth $21 billion in 2029.":
        "However, the European market for inner wall panels was worth about $21 billion in 2029.",
    "Fernstone depends on a single supplier of fern ash, which delivered 82 percent of it in 2029.":
        "Notably, a single supplier delivered 82% of the fern ash in 2029.",
}  # fmt: skip
"""Sentences of the sources, and how an honest model says the same in other words."""


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


FIGURE, YEAR, VERB = r"\d (?:million|billion|percent)", r"20\d\d", r"\b(?:was|were|is|are|has)\b"
LIES: list[tuple[Lie, str]] = [
    (other_digit, FIGURE), (other_scale, "million|billion"), (other_year, YEAR), (other_name, "."), (denied, VERB),
    (fallen, "grew|rose"), (invented, "."), (half_true, "."), (stranger, "."), (other_passage, FIGURE),
    (exchanged, r"\$.* million .*\$.* million"),
]  # fmt: skip
"""Eleven ways to lie, and which sentences they fit."""


def written(
    findings: dict[str, list[Finding]], lie: Lie | None, fits: str, seed: int
) -> tuple[dict[str, list[Finding]], str]:
    """What a model makes of the findings: an honest one says some in other words, a liar also lies once."""
    chance = random.Random(seed)
    said = {
        name: [each.model_copy(update={"sentence": TRUTHS.get(each.sentence, each.sentence)}) for each in those]
        for name, those in findings.items()
    }  # fmt: skip
    if lie is None:
        return said, ""
    places = [
        (name, at)
        for name, those in findings.items()
        for at, each in enumerate(those)
        if re.search(fits, each.sentence)
    ]
    name, at = chance.choice(places)
    told = lie(findings[name][at].sentence, chance)
    said[name][at] = findings[name][at].model_copy(update={"sentence": told})
    return said, told


def answers(outline: list[Section], said: dict[str, list[Finding]]) -> list[Says]:
    """The answers of the model to the questions for the sections, in order."""
    order = [section for each in rounds(outline) for section in each]
    texts = [[{"text": each.sentence, "sources": [each.source]} for each in said[section.name]] for section in order]
    return [Says(json.dumps({"sentences": text})) for text in texts]


async def memo_by(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, lie: Lie | None = None, fits: str = "", seed: int = 0
) -> tuple[Outcome[MemoState], str]:  # fmt: skip
    """Write the memo with a model. Return the outcome and the lie."""
    monkeypatch.setattr("pausepoint.apps.memo.workflow.AT_ONCE", 1)
    with model_in_use(monkeypatch) as server:
        await desk.run(until="section_research")
        found = json.loads(desk.read("1-section-research.json"))["findings"]
        findings = {name: [Finding(**each) for each in those] for name, those in found.items()}
        said, told = written(findings, lie, fits, seed)
        server.will(*answers(desk.state().outline, said))
        return await desk.resume(), told


@pytest.mark.long
@pytest.mark.covers("S4.21", "S4.22", "S4.67")
@pytest.mark.parametrize(("seed", "lie", "fits"), [(seed, *each) for seed, each in enumerate(LIES)])
@on_loop
async def test_a_lying_model_is_caught_and_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, lie: Lie, fits: str
) -> None:
    desk = Desk(tmp_path)
    outcome, told = await memo_by(desk, monkeypatch, lie, fits, seed)
    checked = json.loads(desk.read("3-validation.json"))
    listed = [*checked["citation_validation"]["unsupported"], *checked["fact_check_results"]["unsupported"]]
    assert {each["claim"] for each in listed} == {told}, "the lie, and nothing that is true"
    assert checked["overall_score"] < 8.0
    assert outcome.status is Status.WAITING
    assert told in outcome.questions[0].next_question
    assert desk.read("4-final-draft.md").count("[⚠ unsupported: ") == 1


@pytest.mark.long
@pytest.mark.covers("S4.68")
@on_loop
async def test_an_honest_model_is_not_held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(tmp_path)
    outcome, _ = await memo_by(desk, monkeypatch)
    assert (outcome.status, outcome.state.validation.overall_score) == (Status.COMPLETED, 10.0)
    draft = desk.read("4-final-draft.md")
    assert "⚠" not in draft
    assert "up from $1.9 million in 2028[^" in draft
