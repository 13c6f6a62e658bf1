"""Open PDF files, one thread at a time, and read the text of their pages."""

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
"""PDFium is not safe to use from several threads."""


def reads_pdf() -> bool:
    """Return whether the library that reads PDF files is installed."""
    return find_spec("pypdfium2") is not None


@contextmanager
def opened(path: Path | str, name: str) -> Iterator[Any]:
    """Open a PDF, and close it at the end. Other threads wait until then. Raises `BadInput` if it cannot be opened."""
    if not reads_pdf():
        raise BadInput(f"{name}: Reading PDF files needs pypdfium2. Install it: pip install 'pausepoint[apps]'")
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
    """Return why a PDF cannot be opened.

    The library may report the error of the previous file, so the content is checked as well.
    """
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if asks_for_password and content.find(b"/Encrypt") >= 0:
            return "The PDF is encrypted. Save a copy without a password."
    return "The PDF cannot be read. It is damaged or has no pages; export it again."


def page_text(document: Any, number: int) -> str:
    """Return the text of a page. Page numbers start at 0."""
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
