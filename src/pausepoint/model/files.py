"""The facts recorded about a file, and the rules for cleaning its name.

A file's name is only a label for people. It is cleaned, and never used to find or create a file. The stored name is
built from the file's id and an extension of plain letters and digits.
"""

from __future__ import annotations

import re
import unicodedata

import msgspec

from pausepoint.errors import FileRefused
from pausepoint.model.drawers import check_drawers
from pausepoint.model.ids import check_session_id, shortened
from pausepoint.model.stores import Whole

LONGEST_NAME = 255
"""The longest label, in bytes of UTF-8. File systems accept this length, so a label also works as a file name."""

SHORT = 12
"""How many digits of the hash a file id has, unless another file of the session has the same digits."""

_HASH = re.compile(r"[0-9a-f]{64}")
_ENDING = re.compile(r"[A-Za-z0-9]{1,10}")
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?")
_TYPE = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(;[\t -~]{0,255})?", re.ASCII)


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts about a session's file, as stored in the signal that added it.

    ``sha256`` and ``size`` identify the content. ``ending`` is the extension of the stored name; ``origin`` is the
    operation of the step that added the file, if a step did.
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
        """Return the file's name in the session's folder."""
        return f"{self.id}.{self.ending}"


file_facts = msgspec.json.Decoder(FileFacts).decode


def unfit_facts(facts: FileFacts) -> str:
    """Return why these cannot be the facts of a stored file; empty if they can.

    Facts from another store are checked with it, because the stored name becomes a path.

    >>> unfit_facts(FileFacts("../../x", "x.txt", "text/plain", 1, "0" * 64, "txt"))
    "its id '../../x' is not derived from its hash"
    """
    if not is_hash(facts.sha256):
        return f"its hash {shortened(facts.sha256)} is not 64 hexadecimal digits"
    if facts.id not in [file_id(facts.sha256, length) for length in range(SHORT, len(facts.sha256) + 1)]:
        return f"its id {shortened(facts.id)} is not derived from its hash"
    if ending_of(f"x.{facts.ending}") != facts.ending:
        return f"its extension {shortened(facts.ending)} is not 1 to 10 plain letters and digits"
    if re.search(r"[/\\\x00-\x1f\x7f-\x9f]", facts.filename) or not 0 < len(facts.filename) <= LONGEST_NAME:
        return f"its name {shortened(facts.filename)} is not a plain file name"
    if not is_content_type(facts.content_type):
        return f"its content type {shortened(facts.content_type)} is not a media type"
    return "" if facts.size >= 0 else f"its size {facts.size} is negative"


def check_names(session: Whole) -> None:
    """Check the names of an imported session that become paths: its id, its parent's id, and the names of its files.

    The names and numbers in its drawers are checked, too. Raises `InvalidSessionId`, `FileRefused` or `DrawerRefused`.
    """
    check_drawers(session.drawers)
    check_session_id(session.row.session_id)
    if session.row.parent_id is not None:
        check_session_id(session.row.parent_id)
    for signal in session.signals:
        if signal.kind == "file" and not signal.redacted and (why := unfit_facts(facts := file_facts(signal.payload))):
            raise FileRefused(
                f"File {shortened(facts.id)} of session {session.row.session_id!r} cannot be stored: {why}. Export the"
                " session again.",
                session_id=session.row.session_id,
            )


def is_hash(text: str) -> bool:
    """Return whether a string is a SHA-256 hash in lower-case hexadecimal digits.

    >>> is_hash("0" * 64), is_hash("../x")
    (True, False)
    """
    return _HASH.fullmatch(text) is not None


def file_id(content: str, length: int = SHORT) -> str:
    """Return a file's id, derived from the hash of its content. It is the same in every session.

    >>> file_id("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    'file_2cf24dba5fb0'
    """
    return f"file_{content[:length]}"


def cleaned(name: str) -> str:
    """Return a file name as a label, without folders, invisible characters or reserved device names.

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
    """Shorten a name between two characters, and keep its extension."""
    if len(name.encode()) <= LONGEST_NAME:
        return name
    stem, dot, ending = name.rpartition(".")
    tail = (dot + ending) if stem and len(ending.encode()) < 32 else ""
    head = (stem if tail else name).encode()[: LONGEST_NAME - len(tail.encode())]
    return head.decode(errors="ignore") + tail


def ending_of(name: str) -> str:
    """Return the extension of the stored name.

    >>> ending_of("Notes.PDF"), ending_of("archive.tar.gz"), ending_of("README"), ending_of("x.p/df")
    ('pdf', 'gz', 'bin', 'bin')
    """
    ending = name.rpartition(".")[2] if "." in name else ""
    return ending.lower() if _ENDING.fullmatch(ending) else "bin"


def is_content_type(text: str) -> bool:
    """Return whether a string is a valid media type.

    >>> is_content_type("text/plain; charset=utf-8"), is_content_type("plain"), is_content_type("a/b\\n")
    (True, False, False)
    """
    return _TYPE.fullmatch(text) is not None
