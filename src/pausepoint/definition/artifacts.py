"""What a step leaves as files: how it is declared, how a value becomes a file, and how a file becomes a value again.

An artifact is a field of the state in a form that people read and edit. This module knows no folder and no log: it
turns values into named bytes, and bytes back into values, or says what is wrong with them, and where.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, get_args, get_origin

import msgspec

from pausepoint.codec.values import Typed, typed
from pausepoint.definition.fields import Place, Shape, overlap
from pausepoint.definition.types import NONE, members, show
from pausepoint.errors import DefinitionError, PausepointError, StepError
from pausepoint.name import FOLDER

SMALLEST = 100
"""Bytes below which a file that nobody recorded is taken for a remnant, where its artifact says nothing else."""

_SAFE = re.compile(r"[^/\x00-\x1f]{1,200}")
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Codec(msgspec.Struct, frozen=True):
    """How a value is written as a text of its own making, and read back. Reading raises `ValueError` for what is none.

    >>> Codec(write=str, read=int).read("7")
    7
    """

    write: Callable[[Any], str]
    read: Callable[[str], Any]


@dataclass(frozen=True)
class Artifact:
    """A file that a step leaves, or one for each entry of a dict: ``Artifact("2-sections/*.md", carries="sections")``.

    ``carries`` is the field of the state that it shows (by default the one that the step writes). ``codec`` is
    ``"json"``, ``"text"``, ``"markdown"`` or a `Codec`; by default the ending of the path tells. ``count``: as many
    files as this number, or as the entries of that field. ``holds`` looks at the value: False, or a text that says what
    is missing, means that the step is not done; None, True or an empty text, that it is. ``min_bytes``: what is smaller
    and was not recorded does not count. The path may name fields of the state: ``"{company}.md"``.
    """

    path: str
    carries: str | None = None
    codec: Literal["json", "text", "markdown"] | Codec | None = None
    count: int | str | None = None
    holds: Callable[[Any], object] | None = None
    min_bytes: int = SMALLEST

    def __post_init__(self) -> None:
        if problem := _unfit_path(self.path):
            raise DefinitionError(f"artifact {self.path!r}: {problem}")
        if self.count is not None and "*" not in self.path:
            raise DefinitionError(f"artifact {self.path!r}: count is for a path with a *, which stands for many files")
        if type(self.min_bytes) is not int or self.min_bytes < 0:
            raise DefinitionError(f"artifact {self.path!r}: min_bytes is a number of bytes, not {self.min_bytes!r}")


class Unfit(Exception):
    """What a file holds cannot be the artifact; ``line`` and ``column`` say where, if that is known."""

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {reason}" if line else reason)
        self.reason, self.line, self.column = reason, line, column


class BoundArtifact:
    """An artifact of a step of one workflow: it knows the type of what it carries."""

    def __init__(self, spec: Artifact, place: Place, counted: str | None = None) -> None:
        self.spec = spec
        self.path = spec.path
        self.place = place
        self.counted = counted
        self.many = "*" in spec.path
        self.typed: Typed = typed(_entry_type(place.annotation)) if self.many else place.typed
        self.named = tuple(_FIELD.findall(spec.path))
        self.codec = _codec(spec, self.typed)

    @property
    def fields(self) -> tuple[str, ...]:
        """What has to be read of the state to make its files."""
        return (self.place.path, *self.named, *((self.counted,) if self.counted else ()))

    def files(self, value: Any, state: Mapping[str, Any]) -> dict[str, tuple[str, bytes]]:
        """Name → entry and bytes. None leaves no file. `StepError` if this is not what was declared."""
        if value is None:
            return {}
        pattern = named(self.path, {name: state[name] for name in self.named})
        entries = {"": value} if not self.many else value
        if problem := self.lacks(value, state):
            raise StepError(f"{pattern}: {problem}")
        found: dict[str, tuple[str, bytes]] = {}
        for key, entry in entries.items():
            if self.many and (_SAFE.fullmatch(key) is None or key.startswith(".")):
                raise StepError(f"{pattern}: the entry {key!r:.60} cannot be the name of a file; give it a plain one")
            found[pattern.replace("*", key)] = key, self.encoded(entry)
        for path, (_, data) in found.items():
            if max(len(part.encode()) for part in path.split("/")) > LONGEST:
                raise StepError(f"{path:.60}…: no name may have more than {LONGEST} bytes; choose a shorter one")
            if len(data) > LARGEST:
                raise StepError(f"{path}: {len(data)} bytes are too many for an artifact; it has {LARGEST} at most")
        return found

    def lacks(self, value: Any, state: Mapping[str, Any]) -> str:
        """Why a value does not show that the step is done; empty if it does."""
        wanted = self.spec.count
        if isinstance(wanted, str):
            wanted = _amount(state[wanted])
        if wanted is not None and len(value) != wanted:
            return f"{len(value)} of {wanted} files are there"
        return self.misses(value)

    def misses(self, value: Any) -> str:
        """What the content has to hold and does not; empty if all is there."""
        said = True if self.spec.holds is None else self.spec.holds(value)
        if isinstance(said, str):
            return said
        return "" if said is None or said else "what it has to hold is not in it"

    def encoded(self, value: Any) -> bytes:
        """A value as the content of a file. A text is written as it is."""
        if self.codec == "json":
            data = self.typed.adapter.dump_json(value, indent=2, by_alias=False)
            return data + b"\n"
        return (str(value) if self.codec == "text" else self.codec.write(value)).encode()

    def decoded(self, data: bytes) -> Any:
        """The value that a file holds. Raises `Unfit`."""
        text = _text(data)
        if self.codec == "json":
            return self._from_json(text)
        try:
            return self._checked(text if self.codec == "text" else self.codec.read(text))
        except ValueError as exc:
            raise Unfit(str(exc)) from exc

    def _from_json(self, text: str) -> Any:
        from pydantic import ValidationError  # who only defines workflows does without

        try:
            json.loads(text)
        except json.JSONDecodeError as exc:
            raise Unfit(exc.msg, exc.lineno, exc.colno) from exc
        try:
            return self._checked(self.typed.adapter.validate_json(text, by_alias=False, by_name=True))
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise Unfit(f"{where}: {first['msg']}" if where else first["msg"], *position(text, first["loc"])) from exc

    def _checked(self, value: Any) -> Any:
        try:
            return self.typed.validate(value, self.path) if self.many else self.place.check(value)
        except PausepointError as exc:
            raise Unfit(str(exc)) from exc

    def could_be(self, path: str) -> bool:
        """Whether a file of that path may have been one of this artifact."""
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(self.path).replace(r"\*", "[^/]+"))
        return re.fullmatch(pattern, path) is not None


def bind(spec: Artifact, writes: tuple[Place, ...], state: Shape) -> BoundArtifact:
    """Fit an artifact to the step that leaves it. Raises `DefinitionError`."""
    if not isinstance(spec, Artifact):
        raise DefinitionError(f"leaves={spec!r:.60} is no Artifact; write leaves=Artifact('name.json')")
    where = f"artifact {spec.path!r}"
    if spec.carries is None and len(writes) != 1:
        raise DefinitionError(f"{where}: say which field it carries: carries='...'")
    place = state.place(writes[0].path if spec.carries is None else spec.carries)
    if place.under_optional:
        raise DefinitionError(f"{where}: {place.path!r} is a part of something that may be None; carry that one")
    if not any(overlap(place.path, each.path) for each in writes):
        raise DefinitionError(f"{where}: it carries {place.path!r}, which the step does not write; add it to writes=")
    if "*" in spec.path and _entry_type(place.annotation) is None:
        raise DefinitionError(
            f"{where}: a * stands for the entries of a dict[str, ...], not of {show(place.annotation)}"
        )
    counted = spec.count if isinstance(spec.count, str) else None
    for name in (*_FIELD.findall(spec.path), *((counted,) if counted else ())):
        state.place(name)
    return BoundArtifact(spec, place, counted)


def named(path: str, values: Mapping[str, Any]) -> str:
    """A path with the values of the fields that it names, each made fit for a file name.

    >>> named("{company}/memo.md", {"company": "Fern & Stone/Ltd"})
    'Fern-Stone-Ltd/memo.md'
    """
    return _FIELD.sub(lambda found: safe_name(str(values[found[1]])), path)


def entry_of(pattern: str, path: str) -> str:
    """Which entry a file is, of those that a path with a * stands for. A single file has the entry ``""``.

    >>> entry_of("Fern-Stone/*.md", "Fern-Stone/01-intro.md")
    '01-intro'
    """
    head, star, tail = pattern.partition("*")
    return path[len(head) : len(path) - len(tail)] if star else ""


def clash(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths that cannot both be files: one is a folder of the other, or only letter case tells them apart.

    >>> clash(["a.md", "b/A.md", "b/a.md"]), clash(["a", "a/b.md"]), clash(["a.md", "a/b.md"])
    (('b/A.md', 'b/a.md'), ('a', 'a/b.md'), None)
    """
    seen: dict[tuple[str, ...], str] = {}
    for path in sorted({*paths}, key=lambda path: (path.count("/"), path)):
        parts = tuple(unicodedata.normalize("NFC", path).casefold().split("/"))
        for length in range(1, len(parts) + 1):
            if (other := seen.get(parts[:length])) is not None:
                return other, path
        seen[parts] = path
    return None


def safe_name(text: str) -> str:
    """A text as a part of a file name: letters, digits and ``. _ -``; never empty, never hidden.

    >>> safe_name("../../etc/passwd"), safe_name("Ärzte & Co. KG"), safe_name("...")
    ('etc-passwd', 'Ärzte-Co.-KG', 'unnamed')
    """
    name = re.sub(r"[^\w.]+", "-", text, flags=re.UNICODE).strip("-.")
    return re.sub(r"\.{2,}", ".", name)[:100] or "unnamed"


def position(text: str, way: tuple[int | str, ...]) -> tuple[int, int]:
    """Line and column of a place inside a JSON text; of the last one on the way that is there.

    >>> position('{"a": 1,\\n "b": [2, "x"]}', ("b", 1))
    (2, 11)
    """
    at = _skip(text, 0)
    for part in way:
        inner = next((start for name, start in _members(text, at) if name == part), None)
        if inner is None:
            break
        at = inner
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _members(text: str, at: int) -> Iterator[tuple[int | str, int]]:
    """The names or numbers of what is inside a JSON object or array, and where each value begins."""
    scan, opened = json.JSONDecoder().raw_decode, text[at : at + 1]
    if opened not in ("{", "["):
        return
    at, number = _skip(text, at + 1), 0
    while text[at : at + 1] not in ("}", "]", ""):
        name: int | str = number
        if opened == "{":
            name, at = scan(text, at)
            at = _skip(text, _skip(text, at) + 1)
        yield name, at
        _, at = scan(text, at)
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at : at + 1] == "," else at
        number += 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode()
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise Unfit("it is not UTF-8", line, column) from exc


def _codec(spec: Artifact, kind: Typed) -> Literal["json", "text"] | Codec:
    given = spec.codec
    if given is None:
        is_text = all(member is str or member is NONE for member in members(kind.annotation))
        given = "json" if spec.path.endswith(".json") or not is_text else "text"
    return "text" if given == "markdown" else given


def _entry_type(annotation: Any) -> Any:
    kinds = [each for each in members(annotation) if each is not NONE]
    found = kinds[0] if len(kinds) == 1 else None
    inside = get_args(found)
    return inside[1] if get_origin(found) is dict and len(inside) == 2 and inside[0] is str else None


def _amount(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


def _unfit_path(path: object) -> str:
    """Why this cannot be the path of an artifact; empty if it can. It never leads out of the session's folder."""
    if not isinstance(path, str) or not path:
        return "its path is a text such as 'research.json'"
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path or any(part in ("..", ".") for part in path.split("/")):
        return "its path is relative to the session's folder and does not leave it; write 'folder/name.md'"
    if any(_SAFE.fullmatch(part) is None for part in parts) or "//" in path or path.endswith("/"):
        return "its path is made of plain names with / between them"
    if parts[0].casefold() == OWN:
        return f"the folder {OWN} is the engine's own; choose another"
    if parts[0].startswith(".") and ("*" in parts[0] or "{" in parts[0]):
        return f"a name that begins with a dot is written out: it might become {OWN}, which is the engine's own"
    if path.count("*") > 1 or "*" in "/".join(parts[:-1]) or any(mark in path for mark in "?[]"):
        return "one * may stand for the names of the entries, in the last name of the path, and nothing else"
    if "*" not in _FIELD.sub("", path) and "{" in _FIELD.sub("", path):
        return "a field is named as {company}"
    return ""


def check_inside(path: str) -> str:
    """A path of one file inside the session's folder. `DefinitionError` for anything else."""
    if problem := _unfit_path(path) or ("it names no single file" if "*" in path or "{" in path else ""):
        raise DefinitionError(f"artifact {path!r}: {problem}")
    return path


OWN = FOLDER
"""The folder inside a session's folder that is ours."""


LARGEST = 2**28
"""Bytes that a file may have. What is larger is no artifact, and is not read into memory to find that out."""


LONGEST = 240
"""Bytes that a name in a path may have, so that a file can have it in the bin too, behind a number."""
