"""Turn a company's name and options into a starting state, or refuse them before anything is stored."""

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
"""The made-up companies: one with a deck and many sources, one with almost nothing."""

DATA = "data"
"""The folder of the companies' JSON files."""


def starting(
    company: str, *, data: Path | None = None, deck: Path | None = None, documents: Path | None = None,
    outline: Path | None = None, kind: InvestmentType = "direct", mode: MemoMode = "consider",
) -> MemoState:  # fmt: skip
    """Return the state of a new session. Options override the files that the company's JSON names.

    Paths in the JSON are relative to it. All files are checked here, so that a broken file is refused now and not in
    the middle of a session.
    """
    if not any(letter.isalnum() for letter in company):
        raise BadInput("COMPANY: The name must contain a letter or a digit.")
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
    """Return the JSON file of a company: in ``data/``, or a sample."""
    name = VersionFolders(DATA, company).name
    own = Path(DATA) / f"{name}.json"
    if own.exists():
        return own
    if company in SAMPLES:
        return SAMPLE / f"{company}.json"
    raise BadInput(
        f"COMPANY: There is no data about {company!r} in {own}. Create that file with at least"
        f' {{"name": "{company}", "documents": "FOLDER"}}, or pass --data FILE. Samples: {", ".join(SAMPLES)}.'
    )


def read_data(path: Path, company: str) -> CompanyData:
    """Return the company's data. Raises `BadInput` with the invalid field or the syntax error."""
    try:
        found = CompanyData.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}. Check the path of the data.") from None
    except ValidationError as error:
        raise BadInput(f"{path}: {refusal(error)}") from None
    if found.name.casefold() != company.strip().casefold():
        raise BadInput(
            f"{path}: name: The data is about {found.name!r}, not about {company!r}. Correct the name, or pass another"
            " --data."
        )
    return found


def _beside(path: Path, named: str | None) -> Path | None:
    return None if named is None else path.parent / named


def deck_file(path: Path) -> Path:
    """Return the path of a readable deck."""
    if path.suffix.lower() != ".pdf":
        raise BadInput(f"{path}: The deck is not a PDF file. Save it as PDF.")
    if path.is_dir():
        raise BadInput(f"{path}: This is a folder. Name a PDF file with --deck.")
    decks.read(path)
    return path.absolute()


def documents_folder(folder: Path) -> Path:
    """Return the path of a folder that contains documents."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: There is no such folder. Name a folder of documents with --documents.")
    if not reading.listed(folder):
        raise BadInput(f"{folder}: The folder contains no documents. Add files of type {', '.join(reading.ENDINGS)}.")
    return folder.absolute()
