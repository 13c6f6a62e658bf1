"""What is recorded of a file, and what becomes of the name that somebody gave it.

A name is a label for people: it is cleaned, and never used to find or make a file. Stored names are made of the id and
an ending of plain letters and digits.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

LONGEST_NAME = 255
"""Bytes of UTF-8: what file systems admit, should somebody use the label as a file name elsewhere."""

SHORT = 12
"""How many digits of the hash an id has, unless another file of the session has the same ones."""

_ENDING = re.compile(r"[A-Za-z0-9]{1,10}")
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_TYPE = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(;[\t -~]{0,255})?", re.ASCII)


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a session, as the signal that brought it carries it. Its content is known by ``sha256`` and ``size``.

    ``ending`` is what its stored name ends with, ``origin`` the operation of a step that added it.
    """

    id: str
    filename: str
    content_type: str
    size: int
    sha256: str
    ending: str
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    origin: str = ""

    @property
    def stored_name(self) -> str:
        """What it is called in the session's folder."""
        return f"{self.id}.{self.ending}"


file_facts = msgspec.json.Decoder(FileFacts).decode


def file_id(content: str, length: int = SHORT) -> str:
    """The id of a file, from the hash of its content: the same in every session that has it.

    >>> file_id("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    'file_2cf24dba5fb0'
    """
    return f"file_{content[:length]}"


def cleaned(name: str) -> str:
    """A file name as a label: no folders, nothing invisible, nothing that a system would take for a device.

    >>> cleaned("../../etc/passwd"), cleaned("C:\\\\notes\\\\a.pdf"), cleaned("NUL.txt"), cleaned("..")
    ('passwd', 'a.pdf', '_NUL.txt', 'file')
    """
    name = re.split(r"[/\\]", name)[-1]
    name = "".join(each for each in name if unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    name = name.strip() if name.strip(" .") else ""
    if _DEVICE.fullmatch(name):
        name = f"_{name}"
    return _shortened(name) or "file"


def _shortened(name: str) -> str:
    """Cut in the middle, between two characters: the ending says what it is."""
    if len(name.encode()) <= LONGEST_NAME:
        return name
    stem, dot, ending = name.rpartition(".")
    tail = (dot + ending) if stem and len(ending.encode()) < 32 else ""
    head = (stem if tail else name).encode()[: LONGEST_NAME - len(tail.encode())]
    return head.decode(errors="ignore") + tail


def ending_of(name: str) -> str:
    """What the stored name ends with.

    >>> ending_of("Notes.PDF"), ending_of("archive.tar.gz"), ending_of("README"), ending_of("x.p/df")
    ('pdf', 'gz', 'bin', 'bin')
    """
    ending = name.rpartition(".")[2] if "." in name else ""
    return ending.lower() if _ENDING.fullmatch(ending) else "bin"


def is_content_type(text: str) -> bool:
    """Whether a text could be a media type.

    >>> is_content_type("text/plain; charset=utf-8"), is_content_type("plain"), is_content_type("a/b\\n")
    (True, False, False)
    """
    return _TYPE.fullmatch(text) is not None
