"""PDF files: opened for one thread at a time, and the text of their pages."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pausepoint.apps.input import BadInput

_pdfium = threading.Lock()
"""The library is not made for threads."""


def reads_pdf() -> bool:
    """Whether the library for it is installed."""
    return find_spec("pypdfium2") is not None


@contextmanager
def opened(path: Path | str, name: str) -> Iterator[Any]:
    """A PDF, open, for one thread at a time. Pages that were used are closed with it. `BadInput` says what is wrong."""
    if not reads_pdf():
        raise BadInput(f"{name}: reading PDF files needs more: pip install 'pausepoint[apps]'")
    import pypdfium2
    from pypdfium2 import raw

    with _pdfium:
        try:
            document = pypdfium2.PdfDocument(str(path))
        except pypdfium2.PdfiumError as error:
            asks_for_password = error.err_code == raw.FPDF_ERR_PASSWORD
            raise BadInput(f"{name}: {_wrong(Path(path), asks_for_password)}") from None
        try:
            yield document
        finally:
            document.close()


def _wrong(path: Path, asks_for_password: bool) -> str:
    """Why a PDF cannot be opened. The library's reason may be that of the file before, so the file is asked too."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if asks_for_password and content.find(b"/Encrypt") >= 0:
            return "the PDF is encrypted; save a copy without a password"
    return "the PDF cannot be read: it is damaged, or has no pages"


def page_text(document: Any, number: int) -> str:
    """The text of a page; pages begin at 0."""
    page = document[number]
    try:
        text = page.get_textpage()
        try:
            found: str = text.get_text_range()
        finally:
            text.close()
    finally:
        page.close()
    return found.replace("\r\n", "\n").replace("\r", "\n")
