"""Open PDF files, one thread at a time, and read the text of their pages, with the style of each line on request."""

from __future__ import annotations

import ctypes
import math
import mmap
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pausepoint.apps.input import BadInput

_pdfium = threading.Lock()
"""PDFium is not safe to use from several threads."""

_BOLD_NAME = re.compile(r"(?i)bold|black|heavy|demi(?!cond)|gothic-?(medium|[bhu]\b)|cmb|sfb[xf]|ecb[xl]|-bx")
_BOLD_WEIGHT = 600
_A_DRAWING = 50
"""A page of fewer lines is a blank page with some decoration."""

_LIGATURES = dict(zip("\x0b\x0c\r\x0e\x0f\x1b\x1c\x1d\x1e\x1f", ("ff", "fi", "fl", "ffi", "ffl") * 2, strict=True))
"""The codes that fonts of TeX have for ligatures. A font without names of its letters shows only its codes."""

_LIGATURE = re.compile(
    r"(?:(?<=[^\W\d_]{2})|(?<=[^\W\d_])(?=.[^\W\d_])|(?=.[^\W\d_]{2}))(?:[\x0b\x0c\x0e\x0f\x1b-\x1f]|\r(?!\r?\n))"
)
"""A code of a ligature in a word. Elsewhere it is a sign of a formula."""

_LINE = re.compile(rf"(?:[^\r\n]|{_LIGATURE.pattern})+")


class Style(NamedTuple):
    """How a line looks: the height of its letters in points, and whether it is bold."""

    size: float = 0.0
    bold: bool = False


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


@contextmanager
def _text_of(document: Any, number: int) -> Iterator[tuple[Any, Any, str]]:
    page = document[number]
    try:
        text = page.get_textpage()
        try:
            yield page, text, text.get_text_range()
        finally:
            text.close()
    finally:
        page.close()


def page_text(document: Any, number: int) -> str:
    """Return the text of a page. Page numbers start at 0."""
    with _text_of(document, number) as (_, _, found):
        return _with_ligatures(found).replace("\r\n", "\n").replace("\r", "\n")


def _with_ligatures(text: str) -> str:
    """Return a text with letters instead of the codes of ligatures.

    >>> _with_ligatures("\\x0cnd o\\x0bice, re\\rect, di\\x1bicult, 2 \\x0c x\\r\\n")
    'find office, reflect, difficult, 2 \\x0c x\\r\\n'
    """
    return _LIGATURE.sub(lambda found: _LIGATURES[found[0]], text)


def is_picture(document: Any, number: int) -> bool:
    """Return whether a page shows a picture, as a scanned page does, or a drawing of many lines."""
    from pypdfium2 import raw

    page = document[number]
    try:
        shown = (item.type for item in page.get_objects(max_depth=3))
        drawn = 0
        for kind in shown:
            drawn += kind == raw.FPDF_PAGEOBJ_PATH
            if kind == raw.FPDF_PAGEOBJ_IMAGE or drawn >= _A_DRAWING:
                return True
        return False
    finally:
        page.close()


def styled_lines(document: Any, number: int) -> list[tuple[str, Style]]:
    """Return the lines of a page with their styles. The first letter of a line decides.

    A heading may end in another style, for example with a full stop or a page number.
    """
    with _text_of(document, number) as (_, text, found):
        wide = any(letter > "\uffff" for letter in found)
        lines = []
        for line in _LINE.finditer(found):
            shown = line[0].strip()
            if shown:
                at = line.start() + len(line[0]) - len(line[0].lstrip())
                at = len(found[:at].encode("utf-16-le")) // 2 if wide else at  # the library counts in UTF-16
                lines.append((_with_ligatures(shown), _style(text, at)))
        return lines


def _style(text: Any, at: int) -> Style:
    from pypdfium2 import raw

    index = raw.FPDFText_GetCharIndexFromTextIndex(text, at)
    if index < 0:
        return Style()
    matrix, flags, name = raw.FS_MATRIX(), ctypes.c_int(), ctypes.create_string_buffer(100)
    size = raw.FPDFText_GetFontSize(text, index)
    if raw.FPDFText_GetMatrix(text, index, matrix):
        size *= math.hypot(matrix.c, matrix.d)  # some programs set size 1 and scale the page
    raw.FPDFText_GetFontInfo(text, index, name, len(name), flags)
    bold = raw.FPDFText_GetFontWeight(text, index) >= _BOLD_WEIGHT
    return Style(round(size * 2) / 2, bold or bool(_BOLD_NAME.search(name.value.decode("utf-8", "replace"))))
