"""What a session starts with: a company's name and options become a state, or a refusal before anything is stored."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from pausepoint.apps.input import BadInput, refusal
from pausepoint.apps.memo import deck as decks
from pausepoint.apps.memo import documents as reading
from pausepoint.apps.memo import outline as outlines
from pausepoint.apps.memo.models import CompanyData, InvestmentType, MemoMode, MemoState
from pausepoint.artifacts import VersionFolders

SAMPLE = Path(__file__).parent / "sample_data"
SAMPLES = ("Fernstone", "Quietwater")
"""The invented companies: one with a deck and many sources, one with almost nothing."""

DATA = "data"
"""The folder where a company's JSON is looked for."""


def starting(
    company: str, *, data: Path | None = None, deck: Path | None = None, documents: Path | None = None,
    outline: Path | None = None, kind: InvestmentType = "direct", mode: MemoMode = "consider",
) -> MemoState:  # fmt: skip
    """The state of a new session. Files that are named in the company's JSON lie beside it; options go first.

    Everything is looked at here, so that a file that is broken is told now and not in the middle of a session.
    """
    if not any(letter.isalnum() for letter in company):
        raise BadInput("COMPANY: a name is needed, with a letter or a digit in it")
    path = data or data_file(company)
    known = read_data(path, company)
    deck = deck or _beside(path, known.deck)
    documents = documents or _beside(path, known.documents)
    outline = outline or _beside(path, known.outline) or outlines.default(kind)
    return MemoState(
        company_name=company.strip(), company_data=known, outline=outlines.read(outline), investment_type=kind,
        memo_mode=mode, deck=deck and deck_file(deck), documents=documents and documents_folder(documents),
    )  # fmt: skip


def data_file(company: str) -> Path:
    """The JSON of a company: in ``data/``, or one of the samples."""
    name = VersionFolders(DATA, company).name
    own = Path(DATA) / f"{name}.json"
    if own.exists():
        return own
    if company in SAMPLES:
        return SAMPLE / f"{company}.json"
    raise BadInput(
        f"COMPANY: nothing is known of {company!r}: there is no {own}. Write one with at least"
        f' {{"name": "{company}", "documents": "FOLDER"}}, or give --data FILE; samples: {", ".join(SAMPLES)}'
    )


def read_data(path: Path, company: str) -> CompanyData:
    """The company's JSON. `BadInput` says which field is wrong, or where it is no JSON."""
    try:
        found = CompanyData.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise BadInput(f"{path}: {refusal(error)}") from None
    if found.name.casefold() != company.strip().casefold():
        raise BadInput(f"{path}: name: it is the data of {found.name!r}, not of {company!r}")
    return found


def _beside(path: Path, named: str | None) -> Path | None:
    return None if named is None else path.parent / named


def deck_file(path: Path) -> Path:
    """A deck that can be read."""
    if path.suffix.lower() != ".pdf":
        raise BadInput(f"{path}: a deck is a PDF file; save it as one")
    if path.is_dir():
        raise BadInput(f"{path}: it is a folder; --deck names a PDF")
    decks.read(path)
    return path.absolute()


def documents_folder(folder: Path) -> Path:
    """A folder with something to read in it."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder; --documents names one with PDF, Markdown, text or HTML")
    if not reading.listed(folder):
        raise BadInput(f"{folder}: no document is in it; it can be {', '.join(reading.ENDINGS)}")
    return folder.absolute()
