"""ParentInsight: write the report for the parents as a page, an e-mail and Markdown, using only facts from the data.

The stress level follows from the plan. It is *high* if work cannot be finished before it is due, if three or more
pieces are overdue, or if more than 90 % of the free time is needed. It is *moderate* if anything is overdue or
more than 60 % of the free time is needed. Otherwise it is *low*.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pausepoint.apps.aura.contents import DOUBTFUL, basis, contents
from pausepoint.apps.aura.facts import Facts
from pausepoint.apps.aura.mail import as_mail
from pausepoint.apps.aura.markdown import as_markdown, as_text
from pausepoint.apps.aura.models import ParentReport, SubjectMastery
from pausepoint.apps.aura.page import as_html
from pausepoint.apps.files import put
from pausepoint.apps.input import BadInput

Stress = Literal["low", "moderate", "high"]

HIGH_SHARE, MODERATE_SHARE, MANY_OVERDUE = 0.9, 0.6, 3


def stress(facts: Facts) -> tuple[Stress, str]:
    """Return the stress level and the reason for it."""
    speech = facts.speech
    overdue, danger = facts.overview.overdue_count, len(facts.in_danger)
    share = facts.needed / facts.free if facts.free else float(bool(facts.needed))
    needed = speech.say("needed", len(facts.load), needed=speech.length(facts.needed), free=speech.length(facts.free))
    parts = [
        *([speech.say("danger_count", danger)] if danger else []),
        *([speech.say("overdue_count", overdue)] if overdue else []),
        needed,
    ]
    level: Stress = "low"
    if danger or overdue >= MANY_OVERDUE or share > HIGH_SHARE:
        level = "high"
    elif overdue or share > MODERATE_SHARE:
        level = "moderate"
    return level, " ".join(parts)


def summary(facts: Facts) -> list[str]:
    """Return the report in a few sentences, all computed from the facts."""
    speech, say = facts.speech, facts.speech.say
    still_open = facts.overview.still_open
    graded = [each for each in facts.profile.subjects if each.mastery is not None and each.graded]
    lines = [say("open_work", still_open, name=facts.name)] if still_open else []
    lines = lines or [say("nothing_open", name=facts.name)]
    if still_open and not facts.overview.overdue_count:
        lines.append(say("all_in_time"))
    if graded:
        best = max(graded, key=lambda each: (each.mastery or 0.0, each.subject))
        lines.append(_level(facts, "strongest", best))
        others = sorted(graded, key=lambda each: (each.need, each.subject), reverse=True)
        others = [each for each in others if each.subject != best.subject]
        certain = [each for each in others if each.confidence >= DOUBTFUL]
        if certain:
            lines.append(_level(facts, "weakest", certain[0]))
        elif others:
            lines.append(_level(facts, "lowest_so_far", others[0]))
    falling = [each.subject for each in graded if each.trend == "falling"]
    if falling:
        lines.append(say("falling_in", subjects=", ".join(falling)))
    first = facts.overview.next_due
    if first is not None and first.due is not None:
        lines.append(say("next_due", title=first.title, course=first.course, when=speech.when(first.due)))
    return lines


def _level(facts: Facts, key: str, subject: SubjectMastery) -> str:
    share = facts.speech.share(subject.mastery or 0.0)
    return facts.speech.say(key, subject=subject.subject, share=share, basis=basis(facts.speech, subject))


def write(facts: Facts, sentences: Sequence[str], folder: Path, name: str, mail_to: str = "") -> ParentReport:
    """Write all files. The same facts give the same bytes, so a second write after a crash changes nothing."""
    level, because = stress(facts)
    report = ParentReport(
        stress=level, stress_because=because, summary=list(sentences), markdown=folder / f"{name}.md",
        html=folder / f"{name}.html", mail=folder / f"{name}.eml",
    )  # fmt: skip
    found = contents(facts, report)
    page = as_html(found)
    title = f"{found.title}, {found.day}"
    mail = as_mail(title, as_text(found), page, to=mail_to, sent=facts.speech.now, name=name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        put(report.markdown, as_markdown(found).encode(), private=True)
        put(report.html, page.encode(), private=True)
        put(folder / f"{name}.eml", mail, private=True)
    except OSError as error:
        raise BadInput(
            f"reports: Cannot write to {folder}: {error.strerror}. Fix that, or set another folder"
            " (edit ID --set reports=FOLDER). Then resume."
        ) from error
    return report
