"""SkillMastery: how well each subject is mastered, computed from work that was graded, late or missing.

For every subject (courses of the same name count as one), over its pieces of evidence::

    score       points / max_points, at most 1; times 0.9 if it was late; 0 if it is missing
    weight      0.5 ** (age in days / 30), halved for missing work
    mastery     Σ weight · score / Σ weight
    confidence  Σ weight / (Σ weight + 2)

The age counts from the day when the work was due, or else handed in or graded; work without any of these counts as 30
days old. The trend compares the weighted mean of the later half of the graded work with that of the earlier half.
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
"""How much weight makes a mastery half certain."""

STEADY = 0.05
HISTORY = 24
"""The most results of a subject that are kept for its chart."""


@dataclass(frozen=True)
class Evidence:
    """What one piece of work says about its subject."""

    at: datetime | None
    score: float
    weight: float
    graded: bool


def analyze(assignments: Sequence[Assignment], now: datetime) -> SkillProfile:
    """The profile of a student. The order of the assignments does not matter."""
    by_subject: dict[str, list[Assignment]] = defaultdict(list)
    names: dict[str, str] = {}
    for each in assignments:
        key = subject_key(each.course)
        names[key] = min(names.get(key, each.course), each.course)
        by_subject[key].append(each)
    subjects = [subject(names[key], by_subject[key], now) for key in sorted(by_subject)]
    weight = sum(each.confidence for each in subjects)
    total = sum(each.confidence * each.mastery for each in subjects if each.mastery is not None)
    return SkillProfile(subjects=subjects, overall=_share(total, weight))


def subject(name: str, work: Sequence[Assignment], now: datetime) -> SubjectMastery:
    """The mastery of one subject."""
    found = [each for assignment in work if (each := evidence(assignment, now)) is not None]
    found.sort(key=lambda each: (each.at.timestamp() if each.at else 0.0, each.score))
    weight = sum(each.weight for each in found)
    graded = [each for each in found if each.graded]
    return SubjectMastery(
        subject=name,
        mastery=_mean(found),
        confidence=weight / (weight + DOUBT),
        graded=len(graded),
        late=sum(each.late and not each.is_open for each in work),  # the API calls missing work late, too
        missing=sum(each.is_overdue(now) for each in work),
        trend=_trend(graded),
        history=[Result(at=each.at, score=each.score) for each in graded if each.at is not None][-HISTORY:],
    )


def evidence(work: Assignment, now: datetime) -> Evidence | None:
    """What a piece of work says; None as long as it says nothing."""
    at = work.due or work.handed_in_at or work.graded_at
    age = HALF_LIFE if at is None else max((now - at).total_seconds() / 86_400, 0.0)
    weight = 0.5 ** (age / HALF_LIFE)
    if work.score is not None:
        return Evidence(at, work.score * (LATE if work.late else 1.0), weight, graded=True)
    if work.is_overdue(now):
        return Evidence(at, 0.0, weight * MISSING_WEIGHT, graded=False)
    return None


def _mean(found: Iterable[Evidence]) -> float | None:
    found = list(found)
    return _share(sum(each.weight * each.score for each in found), sum(each.weight for each in found))


def _share(part: float, whole: float) -> float | None:
    """Work that is many years old weighs so little that its weight is 0 for a computer: it says nothing then."""
    return min(part / whole, 1.0) if whole > 0 else None


def _trend(graded: Sequence[Evidence]) -> Literal["rising", "steady", "falling"] | None:
    """With fewer than four results there is none."""
    if len(graded) < 4:
        return None
    middle = len(graded) // 2
    earlier, later = _mean(graded[:middle]), _mean(graded[middle:])
    if earlier is None or later is None:
        return None
    if abs(later - earlier) < STEADY:
        return "steady"
    return "rising" if later > earlier else "falling"
