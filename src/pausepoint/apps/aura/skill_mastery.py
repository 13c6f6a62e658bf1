"""SkillMastery: compute how well each subject is mastered from graded, late and missing work.

Courses with the same name are one subject. For every subject, over all of its evidence::

    score       points / max_points, at most 1; times 0.9 if it was late; 0 if it is missing
    weight      0.5 ** (age in days / 30), halved for missing work
    mastery     Σ weight · score / Σ weight
    confidence  Σ weight / (Σ weight + 2)

Without a grade there is no mastery: missing work alone does not say what a student knows. The age counts from the due
date, or else from the day when the work was handed in or graded. Work without any of these dates counts as 30 days old.
The trend compares the weighted mean of the later half of the graded work with that of the earlier half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pausepoint.apps.aura.models import Assignment, Result, SkillProfile, SubjectMastery, subject_key

HALF_LIFE = 30.0
LATE = 0.9
MISSING_WEIGHT = 0.5
DOUBT = 2.0
"""The total weight at which the confidence is 50 %."""

STEADY = 0.05
HISTORY = 24
"""The maximum number of results that are kept for a subject's chart."""


@dataclass(frozen=True)
class Evidence:
    """The evidence that one piece of work gives about its subject."""

    at: datetime | None
    score: float
    weight: float
    graded: bool


def analyze(assignments: Sequence[Assignment], now: datetime) -> SkillProfile:
    """Return the profile of a student. The order of the assignments does not matter."""
    by_subject: dict[str, list[Assignment]] = defaultdict(list)
    names: dict[str, str] = {}
    for each in assignments:
        key = subject_key(each.course)
        names[key] = min(names.get(key, each.course), each.course)
        by_subject[key].append(each)
    subjects = [subject(names[key], by_subject[key], now) for key in sorted(by_subject)]
    levels = [(each.confidence, each.mastery) for each in subjects if each.mastery is not None]
    total = sum(confidence * mastery for confidence, mastery in levels)
    return SkillProfile(subjects=subjects, overall=_share(total, sum(confidence for confidence, _ in levels)))


def subject(name: str, work: Sequence[Assignment], now: datetime) -> SubjectMastery:
    """Return the mastery of one subject."""
    found = [each for assignment in work if (each := evidence(assignment, now)) is not None]
    found.sort(key=lambda each: (each.at.timestamp() if each.at else 0.0, each.score))
    weight = sum(each.weight for each in found)
    graded = [each for each in found if each.graded]
    return SubjectMastery(
        subject=name,
        mastery=_mean(found) if graded else None,
        confidence=weight / (weight + DOUBT),
        graded=len(graded),
        late=sum(each.late and not each.is_open for each in work),  # the API reports missing work as late as well
        missing=sum(each.is_overdue(now) for each in work),
        trend=_trend(graded),
        history=[Result(at=each.at, score=each.score) for each in graded if each.at is not None][-HISTORY:],
    )


def evidence(work: Assignment, now: datetime) -> Evidence | None:
    """Return the evidence of a piece of work, or None if there is none yet."""
    at = work.due or work.handed_in_at or work.graded_at
    age = HALF_LIFE if at is None else max((now - at).total_seconds() / 86_400, 0.0)
    weight = 0.5 ** (age / HALF_LIFE)
    if work.score is not None and not work.excused:
        return Evidence(at, work.score * (LATE if work.late else 1.0), weight, graded=True)
    if work.is_overdue(now):
        return Evidence(at, 0.0, weight * MISSING_WEIGHT, graded=False)
    return None


def _mean(found: Iterable[Evidence]) -> float | None:
    found = list(found)
    return _share(sum(each.weight * each.score for each in found), sum(each.weight for each in found))


def _share(part: float, whole: float) -> float | None:
    """Return a share, or None if the whole is 0. The weight of work that is many years old underflows to 0."""
    return min(part / whole, 1.0) if whole > 0 else None


def _trend(graded: Sequence[Evidence]) -> Literal["rising", "steady", "falling"] | None:
    """Return the trend, or None with fewer than four results."""
    if len(graded) < 4:
        return None
    middle = len(graded) // 2
    earlier, later = _mean(graded[:middle]), _mean(graded[middle:])
    if earlier is None or later is None:
        return None
    if abs(later - earlier) < STEADY:
        return "steady"
    return "rising" if later > earlier else "falling"
