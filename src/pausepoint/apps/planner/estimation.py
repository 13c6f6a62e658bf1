"""EstimationAgent: estimate the time, priority and confidence of each topic.

Reading takes one minute per 100 words, and up to twice as long for material that is full of formulas. Going over it
again adds half of that time. Each exercise or example takes 5 minutes. A topic without readable text takes 4 minutes a
page, and half of that again. Minutes are in steps of 5. The minutes of a topic are divided among its sections in the
same way. Nothing that a language model says changes an estimate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pausepoint.apps.planner.models import (
    STEP,
    EstimationPayload,
    EstimationState,
    Evidence,
    Measure,
    Priority,
    Section,
    SectionEstimate,
    TopicEstimate,
)

WORDS_PER_MINUTE, MINUTES_PER_PAGE, MINUTES_PER_TASK, AGAIN = 100, 4, 5, 1.5
MINUTES_PER_PROBLEM, LEAST_TO_SOLVE, MINUTES_OF_AN_EXAM = 10, 15, 90
WITHOUT_MATERIAL = 120
OFTEN = 0.5
"""A topic that so many of the old exams ask about has high priority. One that none asks about has low priority."""

CONFIDENCE = {"outline": 0.9, "heading": 0.85, "model": 0.55, "terms": 0.55, "nothing": 0.2}
SHORT_TEXT = 300
UNSURE = 0.6
"""Estimates below this confidence are flagged. So are estimates from files that were not read completely."""


def estimate(payload: EstimationPayload) -> EstimationState:
    """Estimate every topic."""
    estimates: list[TopicEstimate] = []
    flags: list[str] = []
    for evidence in payload.course_topic_evidence:
        estimates.append(_estimate(evidence))
        is_unsure = estimates[-1].confidence < UNSURE or evidence.measure.missing
        flags += [_flag(estimates[-1], evidence)] if is_unsure else []
    return EstimationState(topic_estimates=estimates, uncertainty_flags=flags)


def minutes(measure: Measure) -> int:
    """Return how many minutes a topic takes.

    >>> minutes(Measure(words=2400, pages=6)), minutes(Measure(words=2400, signs=1200)), minutes(Measure(tasks=5))
    (40, 55, 25)
    >>> minutes(Measure(pages=10, basis="outline")), minutes(Measure())
    (60, 120)
    """
    kept = {name: getattr(measure, name) for name in ("filenames", "titles", "missing", "exams", "asked")}
    if measure == Measure(**kept):
        return WITHOUT_MATERIAL
    unread = MINUTES_PER_PAGE * measure.pages * AGAIN if not measure.words else 0
    solved = sum(_time(each) for each in measure.sections if each.role != "book")
    return max(STEP, math.ceil(round(_reading(measure) + unread + solved, 6) / STEP) * STEP)


def _time(section: Section) -> float:
    """Return the minutes of a section by its role. Exercises are solved, an old exam is written and then marked."""
    if section.role == "old_exam":
        return (section.duration or MINUTES_OF_AN_EXAM) * AGAIN
    if section.role == "exercises":
        return max(MINUTES_PER_PROBLEM * section.tasks, section.words / WORDS_PER_MINUTE, LEAST_TO_SOLVE)
    return _reading(section)


def _reading(measure: Measure | Section) -> float:
    """Return the minutes for the text, its formulas and its tasks."""
    return measure.words / WORDS_PER_MINUTE * (1 + density(measure)) * AGAIN + MINUTES_PER_TASK * measure.tasks


def sections(measure: Measure, whole: int) -> list[SectionEstimate]:
    """Return the sections of a topic that takes ``whole`` minutes, each with its share."""
    weights = [_time(each) for each in measure.sections]
    shares = divided(whole, weights)
    names = _named(measure.sections)
    return [
        SectionEstimate(
            section=name, number=each.number, title=each.title, filename=each.filename,
            book=measure.titles.get(each.filename, ""), role=each.role, first_page=each.first_page,
            last_page=each.last_page, minutes=share,
        )
        for name, each, share in zip(names, measure.sections, shares, strict=True)
    ]  # fmt: skip


def _named(listed: Sequence[Section]) -> list[str]:
    """Return a name for each section that no other section of the topic has."""
    counted: Counter[str] = Counter()
    found: list[str] = []
    for each in listed:
        name = f"{each.number} {each.title}".strip()
        counted[name] += 1
        found.append(f"{name} ({counted[name]})" if counted[name] > 1 else name)
    return found


def divided(whole: int, weights: Sequence[float]) -> list[int]:
    """Divide minutes by weight, in steps of 5. The sum stays the same; a small part may get nothing.

    >>> divided(60, [10, 20, 30]), divided(15, [1, 1, 1, 1]), divided(10, [0, 0])
    ([10, 20, 30], [5, 5, 0, 5], [5, 5])
    """
    total = sum(weights)
    weights, total = (weights, total) if total else ([1.0] * len(weights), float(len(weights)))
    found: list[int] = []
    reached, given = 0.0, 0
    for weight in weights:
        reached += weight
        upto = min(round(whole * reached / total / STEP) * STEP, whole)
        found.append(upto - given)
        given = upto
    if found:
        found[-1] += whole - given
    return found


def density(measure: Measure | Section) -> float:
    """Return the density of formulas, from 0 to 1."""
    return min(measure.signs / measure.words, 1.0) if measure.words else 0.0


def _estimate(evidence: Evidence) -> TopicEstimate:
    time = minutes(evidence.measure)
    return TopicEstimate(
        course_id=evidence.course_id, topic=evidence.topic, estimated_minutes=time,
        priority=priority(evidence.measure), confidence=confidence(evidence),
        source_files=evidence.measure.filenames, sections=sections(evidence.measure, time),
    )  # fmt: skip


def priority(measure: Measure) -> Priority:
    """Return the priority: what old exams ask matters most. Length does not count.

    >>> priority(Measure()), [priority(Measure(exams=3, asked=asked)) for asked in (0, 1, 2)]
    ('medium', ['low', 'medium', 'high'])
    """
    if measure.exams and measure.asked >= OFTEN * measure.exams:
        return "high"
    return "low" if measure.exams and not measure.asked else "medium"


def confidence(evidence: Evidence) -> float:
    """Return the confidence: it depends on how the topic was found, its length, and the unread share of its files."""
    measure = evidence.measure
    short = 0.15 * (1 - min(measure.words / SHORT_TEXT, 1))
    several = 0.05 if len(evidence.source_files) > 1 else 0.0
    return round(min(max(CONFIDENCE[measure.basis] - short + several - measure.missing / 2, 0.05), 1.0), 2)


def _flag(found: TopicEstimate, evidence: Evidence) -> str:
    measure = evidence.measure
    why = []
    if measure.basis == "nothing":
        why.append(evidence.evidence_summary)
    if measure.basis in ("terms", "model"):
        why.append("the material has no headings")
    if measure.words < SHORT_TEXT and measure.basis != "nothing":
        why.append(f"only {measure.words} words cover it" if measure.words else "its pages have no text")
    if measure.missing:
        why.append(f"{measure.missing:.0%} of its files could not be read")
    return f"{found.course_id}, {found.topic}: confidence {found.confidence:.2f}, {', '.join(why) or 'little evidence'}"
