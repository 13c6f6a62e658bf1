"""Real PDF files, made from nothing: pages of text, an outline, ballast that cannot be compressed, a password."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple


class Writer:
    """Writes objects one after another, so that a large file is never in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.offsets: dict[int, int] = {}
        self.file.write(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")

    def put(self, number: int, body: bytes) -> None:
        self.offsets[number] = self.file.tell()
        self.file.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))

    def stream(self, number: int, content: bytes, entries: bytes = b"") -> None:
        self.put(number, b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), entries, content))

    def end(self, root: int, trailer: bytes = b"") -> None:
        start, count = self.file.tell(), max(self.offsets) + 1
        self.file.write(b"xref\n0 %d\n0000000000 65535 f \n" % count)
        for number in range(1, count):
            self.file.write(b"%010d 00000 n \n" % self.offsets[number])
        self.file.write(b"trailer\n<< /Size %d /Root %d 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (
            count, root, trailer, start))  # fmt: skip


class Bold(NamedTuple):
    """A bold line of some size."""

    text: str
    size: float


def _text(lines: Iterable[str | Bold]) -> bytes:
    """The operators that show lines of Latin text."""
    shown = []
    for line in lines:
        style = f"/F2 {line.size} Tf" if isinstance(line, Bold) else "/F1 11 Tf"
        safe = (line.text if isinstance(line, Bold) else line).replace("\\", r"\\")
        shown.append(f"{style} ({safe.replace('(', chr(92) + '(').replace(')', chr(92) + ')')}) Tj T*")
    return ("BT 14 TL 50 800 Td " + " ".join(shown) + " ET").encode("latin-1")


PICTURE = b"q 495 0 0 742 50 50 cm /X Do Q"
"""What a scanned page shows."""


def make_pdf(
    path: Path, pages: Sequence[Sequence[str | Bold] | bytes], outline: Sequence[tuple[str, int]] = (),
    ballast: int = 0, encrypted: bool = False,
) -> Path:  # fmt: skip
    """A PDF with these lines on its pages, or a `PICTURE`. ``outline``: titles, pages. ``ballast``: bytes per page."""
    first, marks = 6, 6 + 3 * len(pages)
    with path.open("wb") as file:
        pdf = Writer(file)
        outlined = b"/Outlines 3 0 R" if outline else b""
        pdf.put(1, b"<< /Type /Catalog /Pages 2 0 R %b >>" % outlined)
        kids = b" ".join(b"%d 0 R" % (first + 3 * number) for number in range(len(pages)))
        pdf.put(2, b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, len(pages)))
        last = marks + len(outline) - 1
        pdf.put(3, b"<< /Type /Outlines /First %d 0 R /Last %d 0 R /Count %d >>" % (marks, last, len(outline))
                if outline else b"null")  # fmt: skip
        pdf.put(4, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
        pdf.put(5, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>")
        for number, lines in enumerate(pages):
            page = first + 3 * number
            pdf.put(page, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R"
                          b" /Resources << /Font << /F1 4 0 R /F2 5 0 R >> /XObject << /X %d 0 R >> >> >>"
                          % (page + 1, page + 2))  # fmt: skip
            content = lines if isinstance(lines, bytes) else _text(lines)
            pdf.stream(page + 1, zlib.compress(content), b"/Filter /FlateDecode")
            _ballast(pdf, page + 2, ballast)
        for number, (title, page) in enumerate(outline):
            around = b"/Prev %d 0 R " % (marks + number - 1) if number else b""
            around += b"/Next %d 0 R" % (marks + number + 1) if number + 1 < len(outline) else b""
            pdf.put(marks + number, b"<< /Title (%b) /Parent 3 0 R %b /Dest [%d 0 R /Fit] >>"
                    % (title.encode("latin-1"), around, first + 3 * page))  # fmt: skip
        password = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%b> /U <%b> >> /ID [<00> <00>]" % (
            b"11" * 32, b"22" * 32)  # fmt: skip
        pdf.end(1, password if encrypted else b"")
    return path


def _ballast(pdf: Writer, number: int, size: int) -> None:
    """A picture of noise."""
    side = max(int(size**0.5), 1)
    pdf.stream(number, os.urandom(side * side) if size else b"\0",
               b"/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8"
               % (side, side))  # fmt: skip


def _page(number: int, word: str) -> list[str]:
    return [f"Page {number + 1}", *(f"The {word} of line {line} is {line} = x + {number}." for line in range(30))]


def textbook(path: Path, pages: int = 840, ballast: int = 62_000, chapters: int = 12) -> Path:
    """A book with an outline."""
    size = pages // chapters
    words = [
        "limit",
        "series",
        "integral",
        "parts",
        "root",
        "ratio",
        "area",
        "volume",
        "curve",
        "vector",
        "field",
        "flux",
    ]
    texts = [_page(number, words[number // size % 12]) for number in range(pages)]
    titles = [(f"Chapter {number + 1}: The {words[number % 12]}", number * size) for number in range(chapters)]
    return make_pdf(path, texts, titles, ballast)
