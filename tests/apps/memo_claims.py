"""Measure the check of claims: `python -m tests.apps.memo_claims DOCUMENTS` prints how many lies and truths it doubts.

The claims are in `memo_claims.json`, an honest one and a lie for each passage. DOCUMENTS is a folder with the annual
reports that they are about; a report is found by the key of the passage, which begins with the name of its file.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

from pausepoint.apps.memo import checks, documents
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo.models import Section, Source
from pausepoint.apps.memo.prose import slug

CLAIMS = Path(__file__).with_name("memo_claims.json")
MONEY = Section(name="02-money", title="Money", about=["revenue"])


def why_doubted(claim: str, key: str, company: str, sources: list[Source]) -> list[str]:
    """Return why the check doubts a claim about a passage; an empty list if it does not."""
    text = f"## Money\n\n{claim.rstrip('. ')} [@{key}].\n"
    memo = citing.assembled(f"# {company}\n", {MONEY.name: text}, [MONEY], sources)
    return [each.why for each in checks.check_citations(memo, sources, company).unsupported]


def main(folder: Path) -> None:
    """Print the lies that are missed and the honest claims that are accused, with the reason, and how many."""
    paths = documents.listed(folder)

    @cache
    def sources(key: str) -> list[Source]:
        return [documents.read(next(path for path in paths if slug(path.stem) == key))]

    rows = json.loads(CLAIMS.read_text("utf-8"))
    caught = accused = 0
    for row in rows:
        key, company = row["passage"], row["company"]
        report = sources(key.rpartition("-")[0])
        why = why_doubted(row["honest"], key, company, report)
        accused += bool(why)
        print(f"accused: {row['honest']}\n  {'; '.join(why)}" if why else "", end="\n" if why else "")
        is_caught = bool(why_doubted(row["lie"], key, company, report))
        caught += is_caught
        print("" if is_caught else f"missed ({row['kind']}): {row['lie']}\n", end="")
    print(f"{caught} of {len(rows)} lies are caught, {accused} of {len(rows)} honest claims are accused.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
