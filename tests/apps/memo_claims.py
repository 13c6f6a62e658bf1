"""Measure the check of claims: `python -m tests.apps.memo_claims DOCUMENTS` prints how many lies and truths it doubts.

The claims are in `memo_claims.json`, an honest one and a lie for each passage, in two sets of three companies each.
DOCUMENTS is a folder with the annual reports that they are about; a report is found by the key of the passage, which
begins with the name of its file. Claims about a report that the folder does not have are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pausepoint.apps.memo import checks, documents
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo.models import Section, Source
from pausepoint.apps.memo.prose import slug

CLAIMS = Path(__file__).with_name("memo_claims.json")
SETS = [("UnitedHealth Group", "Walmart", "AbbVie"), ("Salesforce", "Coca-Cola", "Mastercard")]
MONEY = Section(name="02-money", title="Money", about=["revenue"])


def why_doubted(claim: str, key: str, company: str, sources: list[Source]) -> list[str]:
    """Return why the check doubts a claim about a passage; an empty list if it does not."""
    text = f"## Money\n\n{claim.rstrip('. ')} [@{key}].\n"
    memo = citing.assembled(f"# {company}\n", {MONEY.name: text}, [MONEY], sources)
    return [each.why for each in checks.check_citations(memo, sources, company).unsupported]


def main(folder: Path) -> None:
    """Print the lies that are missed and the honest claims that are accused, with the reason, and how many."""
    reports = {slug(path.stem): path for path in documents.listed(folder)}

    @cache
    def sources(key: str) -> list[Source]:
        return [documents.read(reports[key])]

    rows = json.loads(CLAIMS.read_text("utf-8"))
    for companies in SETS:
        measure([row for row in rows if row["company"] in companies and report_of(row) in reports], sources)


def report_of(row: dict[str, str]) -> str:
    """Return the key of the report that a claim is about."""
    return row["passage"].rpartition("-")[0]


def measure(rows: list[dict[str, str]], sources: Callable[[str], list[Source]]) -> None:
    """Print the result for a set of claims. ``sources`` returns a report by its key."""
    caught = accused = 0
    for row in rows:
        key, company = row["passage"], row["company"]
        report = sources(report_of(row))
        why = why_doubted(row["honest"], key, company, report)
        accused += bool(why)
        print(f"accused: {row['honest']}\n  {'; '.join(why)}" if why else "", end="\n" if why else "")
        is_caught = bool(why_doubted(row["lie"], key, company, report))
        caught += is_caught
        print("" if is_caught else f"missed ({row['kind']}): {row['lie']}\n", end="")
    print(f"{caught} of {len(rows)} lies are caught, {accused} of {len(rows)} honest claims are accused.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
