"""Convert DOCX, PPTX, EPUB and HTML to Markdown with the program `pandoc`, in its sandbox and within limits.

The program is on the PATH, or comes with the extra `documents`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner.headings import aside, is_generic

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
EPUB, HTML = "application/epub+zip", "text/html"
FORMATS = {DOCX: "docx", PPTX: "pptx", EPUB: "epub", HTML: "html"}
"""The content types that are converted, and pandoc's names for them."""

TIME_LIMIT = 120
"""The seconds after which a conversion is given up."""

LARGEST_FILE, LARGEST_UNPACKED, HEAP = 100 * 2**20, 2**30, "1g"
"""The most bytes of a document, those of its parts when they are unpacked, and pandoc's memory."""

HEAP_OVERFLOW = 251
FILTER = Path(__file__).with_suffix(".lua")
INSTALL = "pip install 'pausepoint[documents]'"

_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LOCKED_TEXT = re.compile(rb"""CipherReference\s[^>]*URI\s*=\s*["'][^"']*\.x?html?["']""")
_FIRST_SLIDE = re.compile(r"## (?P<title>.*\S)")
_NO_TITLE = re.compile(r"(?i)slide \d+|agenda|outline|today|plan|gliederung|ablauf|sommaire|programa?")
"""What a slide has in place of the title of the presentation."""


def markdown_of(path: Path, content: bytes, kind: str) -> bytes:
    """Return a document as Markdown in UTF-8. Raises `BadInput` if it cannot be converted."""
    name = FORMATS[kind].upper()
    program = _program(path, kind)
    if kind != HTML:
        _check_archive(path, content, name)
    arguments = [
        program, "--sandbox", "--from", FORMATS[kind], "--to", "gfm-raw_html", "--wrap", "none", "--lua-filter",
        str(FILTER), "+RTS", f"-M{HEAP}", "-RTS",
    ]  # fmt: skip
    try:
        done = subprocess.run(arguments, input=content, capture_output=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"{path}: pandoc did not finish within {TIME_LIMIT} seconds. Divide the document, or save it as PDF."
        ) from None
    except OSError as error:
        raise BadInput(f"{path}: {program} cannot be run: {error.strerror or error}. Install it: {INSTALL}") from None
    if done.returncode == HEAP_OVERFLOW:
        raise BadInput(f"{path}: pandoc needs too much memory for it. Divide the document, or save it as PDF.")
    if done.returncode:
        problem = " ".join(done.stderr.decode(errors="replace").split())[:200] or f"exit code {done.returncode}"
        raise BadInput(f"{path}: The {name} file cannot be read. It is damaged; save it again. (pandoc: {problem})")
    text = done.stdout.decode(errors="replace")
    if not re.search(r"[^\W_]", text):
        raise BadInput(f"{path}: The {name} file has no text. Save it as PDF and run OCR, for example with ocrmypdf.")
    return (_with_title(text, path) if kind == PPTX else text).encode()


def _check_archive(path: Path, content: bytes, name: str) -> None:
    """Raise `BadInput` for an archive that is damaged, encrypted or far larger than it looks."""
    if content.startswith(_OLD_OFFICE):
        raise BadInput(f"{path}: The file is encrypted, or of an old version of Office. Save a copy as {name}.")
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            parts = archive.infolist()
            rights = next((part for part in parts if part.filename == "META-INF/encryption.xml"), None)
            is_locked = any(part.flag_bits & 1 for part in parts) or (
                rights is not None and rights.file_size < 2**20 and bool(_LOCKED_TEXT.search(archive.read(rights)))
            )
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise BadInput(
            f"{path}: The {name} file cannot be read. It is damaged; save it again. ({error})"
        ) from None  # fmt: skip
    if is_locked:
        raise BadInput(f"{path}: The {name} file is encrypted. Save a copy without a password.")
    if sum(part.file_size for part in parts) > LARGEST_UNPACKED:
        raise BadInput(f"{path}: The {name} file unpacks to more than 1 GB. Leave out its pictures and films.")


def _with_title(text: str, path: Path) -> str:
    """Return slides with the title of the presentation: that of its first slide, or the name of the file.

    >>> _with_title("## Eels\\n\\n## Food", Path("a.pptx")), _with_title("## Agenda\\n\\n## Food", Path("b-c.pptx"))
    ('# Eels\\n\\n## Food', '# b c\\n\\n## Agenda\\n\\n## Food')
    """
    first = _FIRST_SLIDE.match(text)
    if first and not (_NO_TITLE.fullmatch(first["title"]) or is_generic(first["title"]) or aside(first["title"], 0.0)):
        return text.removeprefix("#")
    return text if text.startswith("# ") else f"# {re.sub('[-_]+', ' ', path.stem)}\n\n{text}"


def _program(path: Path, kind: str) -> str:
    """Return the first pandoc that reads a format. Raises `BadInput` if there is none."""
    name, too_old = FORMATS[kind], ""
    for program in _programs():
        if name in _formats(program):
            return program
        too_old = too_old or program
    if too_old:
        raise BadInput(f"{path}: {too_old} is too old for {name.upper()} files, install a newer one: {INSTALL}")
    raise BadInput(f"{path}: Reading {name.upper()} files needs pandoc, install it: {INSTALL}, or apt install pandoc")


def _programs() -> Iterator[str]:
    on_path = shutil.which("pandoc")
    if on_path:
        yield on_path
    package = find_spec("pypandoc")
    packaged = Path(package.origin).parent / "files/pandoc" if package and package.origin else None
    if packaged and packaged.is_file():
        yield str(packaged)


@cache
def _formats(program: str) -> list[str]:
    """Return the formats that a pandoc reads: none if it has no sandbox or cannot be run."""
    try:
        listed = subprocess.run(
            [program, "--sandbox", "--list-input-formats"], capture_output=True, text=True, timeout=TIME_LIMIT,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []
