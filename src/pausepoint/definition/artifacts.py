"""Artifacts: how a step declares them, how a value becomes a file, and how a file becomes a value again.

An artifact is a field of the state in a form that people read and edit. This module knows neither the folder nor the
log. It turns values into named bytes and bytes back into values, and reports the line and column of an error.
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
"""The default for `Artifact.min_bytes`: a file that is not recorded and has fewer bytes counts as incomplete."""

OWN = FOLDER
"""The engine's own folder inside a session's folder."""

LARGEST = 2**28
"""The largest size of an artifact in bytes. Larger files are refused before they are read into memory."""

LONGEST = 240
"""The longest name in a path, in bytes. It is below the usual limit of 255, because files in the bin get a prefix."""

_SAFE = re.compile(r"[^/\x00-\x1f]{1,200}")
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Codec(msgspec.Struct, frozen=True):
    """Two functions that write a value as text and read it back. ``read`` raises `ValueError` for invalid text.

    >>> Codec(write=str, read=int).read("7")
    7
    """

    write: Callable[[Any], str]
    read: Callable[[str], Any]


@dataclass(frozen=True)
class Artifact:
    """A file that a step publishes: ``Artifact("research.json")``.

    A path with a ``*`` stands for one file per entry of a dict: ``Artifact("2-sections/*.md", carries="sections")``.

    ``carries`` names the field of the state that the file shows. The default is the field that the step writes.
    ``codec`` is ``"json"``, ``"text"``, ``"markdown"`` or a `Codec`. The default is JSON for a path that ends in
    ``.json`` and for every value that is not a string, and text otherwise.
    ``count`` is the required number of files, or the name of a field that holds this number or has this many entries.
    ``holds`` checks the value. It returns None, True or an empty string if the value is complete. It returns False, or
    a string that says what is missing, if the step is not done.
    ``min_bytes`` is the smallest size of a file that is not recorded. A smaller file counts as incomplete.
    The path may contain fields of the state: ``"{company}.md"``.
    """

    path: str
    carries: str | None = None
    codec: Literal["json", "text", "markdown"] | Codec | None = None
    count: int | str | None = None
    holds: Callable[[Any], object] | None = None
    min_bytes: int = SMALLEST

    def __post_init__(self) -> None:
        if problem := _unfit_path(self.path):
            raise DefinitionError(f"Artifact {self.path!r}: {problem}")
        if self.count is not None and "*" not in self.path:
            raise DefinitionError(
                f"Artifact {self.path!r}: count= needs a path with a '*', which stands for many files."
                " Add a '*' to the path, or remove count=."
            )
        if type(self.min_bytes) is not int or self.min_bytes < 0:
            raise DefinitionError(
                f"Artifact {self.path!r}: min_bytes must be a number of bytes, 0 or more, not {self.min_bytes!r}."
            )


class Unfit(Exception):
    """The content of a file is not valid for its artifact. ``line`` and ``column`` say where; 0 means unknown."""

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {reason}" if line else reason)
        self.reason, self.line, self.column = reason, line, column


class BoundArtifact:
    """An artifact that is bound to a step of one workflow, and so knows the type of its value."""

    def __init__(self, spec: Artifact, place: Place, counted: str | None = None) -> None:
        self.spec = spec
        self.path: str = spec.path
        self.place = place
        self.counted = counted
        self.many: bool = "*" in spec.path
        self.typed: Typed = typed(_entry_type(place.annotation)) if self.many else place.typed
        self.named: tuple[str, ...] = tuple(_FIELD.findall(spec.path))
        self.codec = _codec(spec, self.typed)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the state that are needed to make the files."""
        return (self.place.path, *self.named, *((self.counted,) if self.counted else ()))

    def files(self, value: Any, state: Mapping[str, Any]) -> dict[str, tuple[str, bytes]]:
        """Return the entry key and the bytes of each file, by path. The value None makes no file.

        Raises `StepError` if the value does not match the declaration.
        """
        if value is None:
            return {}
        pattern = named(self.path, {name: state[name] for name in self.named})
        entries = {"": value} if not self.many else value
        if problem := self.lacks(value, state):
            raise StepError(f"Artifact {pattern!r} is incomplete: {problem.rstrip('.')}. Return what is missing.")
        found: dict[str, tuple[str, bytes]] = {}
        for key, entry in entries.items():
            if self.many and (_SAFE.fullmatch(key) is None or key.startswith(".")):
                raise StepError(
                    f"Artifact {pattern!r}: the key {key!r:.60} cannot be a file name."
                    " Use a key without '/' or control characters that does not start with a dot."
                )
            found[pattern.replace("*", key)] = key, self.encoded(entry)
        for path, (_, data) in found.items():
            if max(len(part.encode()) for part in path.split("/")) > LONGEST:
                raise StepError(
                    f"Artifact '{path:.60}…' has a name of more than {LONGEST} bytes. Choose a shorter name."
                )
            if len(data) > LARGEST:
                raise StepError(
                    f"Artifact {path!r} has {len(data)} bytes; the limit is {LARGEST}. Split it into several files."
                )
        return found

    def lacks(self, value: Any, state: Mapping[str, Any]) -> str:
        """Return why the value does not prove that the step is done; empty if it does."""
        wanted = self.spec.count
        if isinstance(wanted, str):
            wanted = _amount(state[wanted])
        if wanted is not None and len(value) != wanted:
            return f"{len(value)} of {wanted} files are there"
        return self.misses(value)

    def misses(self, value: Any) -> str:
        """Return what ``holds`` reports as missing; empty if nothing is."""
        result = True if self.spec.holds is None else self.spec.holds(value)
        if isinstance(result, str):
            return result
        return "" if result is None or result else "its holds= check returned False"

    def encoded(self, value: Any) -> bytes:
        """Return a value as the content of a file. A string is written as it is."""
        if self.codec == "json":
            data = self.typed.adapter.dump_json(value, indent=2, by_alias=False)
            return data + b"\n"
        return (str(value) if self.codec == "text" else self.codec.write(value)).encode()

    def decoded(self, data: bytes) -> Any:
        """Return the value in the content of a file. Raises `Unfit`."""
        text = _text(data)
        if self.codec == "json":
            return self._from_json(text)
        try:
            return self._checked(text if self.codec == "text" else self.codec.read(text))
        except ValueError as exc:
            raise Unfit(str(exc)) from exc

    def _from_json(self, text: str) -> Any:
        from pydantic import ValidationError  # defining workflows does not need pydantic

        try:
            json.loads(text)
        except json.JSONDecodeError as exc:
            raise Unfit(exc.msg, exc.lineno, exc.colno) from exc
        except ValueError as exc:
            raise Unfit("a number has too many digits") from exc
        except RecursionError as exc:
            raise Unfit("it is nested too deep") from exc
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
        """Return whether this artifact may have published a file with that path."""
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(self.path).replace(r"\*", "[^/]+"))
        return re.fullmatch(pattern, path) is not None


def bind(spec: Artifact, writes: tuple[Place, ...], state: Shape) -> BoundArtifact:
    """Bind an artifact to the step that publishes it. Raises `DefinitionError`."""
    if not isinstance(spec, Artifact):
        raise DefinitionError(f"publishes={spec!r:.60} is not an Artifact. Write publishes=Artifact('name.json').")
    where = f"artifact {spec.path!r}"
    if spec.carries is None and len(writes) != 1:
        raise DefinitionError(
            f"{where}: the step writes {len(writes)} fields. Name the field of this artifact with carries='...'."
        )
    place = state.place(writes[0].path if spec.carries is None else spec.carries)
    if place.under_optional:
        raise DefinitionError(
            f"{where}: {place.path!r} is part of a field that may be None. Pass that field in carries= instead."
        )
    if not any(overlap(place.path, each.path) for each in writes):
        raise DefinitionError(f"{where}: the step does not write {place.path!r}. Add it to writes=.")
    if "*" in spec.path and _entry_type(place.annotation) is None:
        raise DefinitionError(
            f"{where}: a path with a '*' needs a field of type dict[str, ...], but {place.path!r} is"
            f" {show(place.annotation)}. Remove the '*', or carry a dict."
        )
    counted = spec.count if isinstance(spec.count, str) else None
    for name in (*_FIELD.findall(spec.path), *((counted,) if counted else ())):
        state.place(name)
    return BoundArtifact(spec, place, counted)


def named(path: str, values: Mapping[str, Any]) -> str:
    """Return a path with its fields replaced by their values. Each value is made safe for a file name.

    >>> named("{company}/memo.md", {"company": "Fern & Stone/Ltd"})
    'Fern-Stone-Ltd/memo.md'
    """
    return _FIELD.sub(lambda found: safe_name(str(values[found[1]])), path)


def entry_of(pattern: str, path: str) -> str:
    """Return the dict key of a file that matches a path with a ``*``. A single file has the key ``""``.

    >>> entry_of("Fern-Stone/*.md", "Fern-Stone/01-intro.md")
    '01-intro'
    """
    head, star, tail = pattern.partition("*")
    return path[len(head) : len(path) - len(tail)] if star else ""


def clash(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that cannot both be files, or None.

    Two paths clash if one is a folder in the path of the other, or if they differ only in upper and lower case.

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
    """Return a string as part of a file name: letters, digits and ``. _ -``. It is never empty and never hidden.

    >>> safe_name("../../etc/passwd"), safe_name("Ärzte & Co. KG"), safe_name("...")
    ('etc-passwd', 'Ärzte-Co.-KG', 'unnamed')
    """
    name = re.sub(r"[^\w.]+", "-", text, flags=re.UNICODE).strip("-.")
    return re.sub(r"\.{2,}", ".", name)[:100] or "unnamed"


def position(text: str, way: tuple[int | str, ...]) -> tuple[int, int]:
    """Return line and column of the value at a path inside a JSON text, or of its nearest parent that exists.

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
    """Yield the keys or indexes of a JSON object or array, each with the offset of its value."""
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
        raise Unfit("the file is not UTF-8", line, column) from exc


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
    """Return why this cannot be the path of an artifact; empty if it can.

    A valid path never leads out of the session's folder.
    """
    if not isinstance(path, str) or not path:
        return "the path must be a string such as 'research.json'."
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path or any(part in ("..", ".") for part in path.split("/")):
        return "the path must be relative and stay inside the session's folder. Write it like 'folder/name.md'."
    if any(_SAFE.fullmatch(part) is None for part in parts) or "//" in path or path.endswith("/"):
        return "the path must be plain names separated by '/'. Write it like 'folder/name.md'."
    if parts[0].casefold() == OWN:
        return f"the folder {OWN!r} belongs to the engine. Choose another one."
    if parts[0].startswith(".") and ("*" in parts[0] or "{" in parts[0]):
        return (
            f"a first name with a leading dot cannot contain '*' or a field, because it could become {OWN!r}, which"
            " belongs to the engine. Write the name out."
        )
    if path.count("*") > 1 or "*" in "/".join(parts[:-1]) or any(mark in path for mark in "?[]"):
        return "only one '*' is allowed, in the last name of the path, and none of '?', '[' and ']'."
    if "*" not in _FIELD.sub("", path) and "{" in _FIELD.sub("", path):
        return "a field in the path must be a name in braces, such as '{company}'."
    return ""


def unfit_file(path: str) -> str:
    """Return why this cannot be the path of a published file; empty if it can.

    Unlike the path in a declaration, it may contain ``*`` or braces, because the key of an entry may.

    >>> unfit_file("sections/a*b.md"), unfit_file("../x.md")
    ('', 'it leads out of the folder of the artifacts')
    """
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        return "it leads out of the folder of the artifacts"
    if parts[0].casefold() == OWN:
        return f"the folder {OWN!r} belongs to the engine"
    if any(_SAFE.fullmatch(part) is None or len(part.encode(errors="replace")) > LONGEST for part in parts):
        return f"its names must be plain, and at most {LONGEST} bytes long"
    return ""


def check_inside(path: str) -> str:
    """Return ``path`` if it is the path of one file inside the session's folder. Raises `DefinitionError` otherwise."""
    if problem := _unfit_path(path) or ("name a single file." if "*" in path or "{" in path else ""):
        raise DefinitionError(f"Artifact {path!r}: {problem}")
    return path
