"""A folder as a book: which of its files are chapters, and in which order.

`SUMMARY.md` says what belongs to the book, as in mdBook and GitBook. An index (`index.md`, `README.md`, the `toctree`
of `index.rst`) says what comes first. Otherwise the names of the files do: 2 comes before 10.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import materials
from pausepoint.apps.planner.charsets import decoded
from pausepoint.apps.planner.materials import ENDINGS, MARKDOWN, PDF, RST
from pausepoint.apps.planner.models import FileEntry, Upload
from pausepoint.apps.words import many, one_line

MOST_FILES, MOST_ENTRIES = 500, 20_000
"""A folder with more files that can be read, or more entries of any kind, is not a book but a disk."""

LONGEST_INDEX = 2**20
FEW_WORDS = 100
"""An index with fewer words besides its links has no text to study."""

UNSUPPORTED = "a type that cannot be read"
NAMED = 5
"""So many skipped files of a kind are named."""

LEFT_OUT = frozenset({"node_modules", "__pycache__", "__MACOSX", "_build", "_site"})
"""Folders of programs. What is in them was copied or made from something else."""

INDEXES = ("summary", "index", "readme", "_index")
_FIRST = re.compile(
    r"(?i)^(_?index|readme|title|cover|preface|foreword|prologue|vorwort|avant-propos|intro(duction)?|overview|welcome"
    r"|einleitung|einführung)(?![^\W\d_])"
)
_LAST = re.compile(
    r"(?i)^((appendi(x|ces)|app(?=[-_ ]?[a-h\d]))[-_ ]?([a-h]|\d+)?|anhang|annexe|epilogue|afterword|conclusions?"
    r"|glossary|references|bibliography|licen[cs]e|copying|changelog)(?![^\W\d_])"
)
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)>\s]*)>?[^)]*\)")
_TOCTREE = re.compile(r"^(?P<indent> *)(?:\.\. toctree::|`{3,}\{toctree\}).*$", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]{2,}")
PREFERRED = (MARKDOWN, RST, PDF)
"""Of two files that have one name and differ in their type only, the earlier type is read."""


class Folder(NamedTuple):
    """The chapters of a folder, in order, as paths inside it. ``notes`` say which files are not read, and why."""

    path: Path
    chapters: list[str]
    notes: list[str]


def expanded(
    uploads: Iterable[Upload], known: Iterable[FileEntry | Upload] = ()
) -> tuple[list[Upload], list[str]]:  # fmt: skip
    """Return some uploads with the chapters of a folder in its place, and which of its files are not read.

    ``known``: the files that the session has. Raises `BadInput` for two chapters of one name.
    """
    given = list(uploads)
    books = _books({each.path.resolve(): each for each in given if each.path.is_dir() and not each.book}, [*known])
    found: list[Upload] = []
    notes: list[str] = []
    for upload in given:
        if not upload.path.is_dir():
            found.append(upload)
            continue
        folder = read_folder(upload.path)
        book = upload.book or books[upload.path.resolve()]
        found += [upload.model_copy(update={"path": folder.path / name, "book": book, "name": name})
                  for name in folder.chapters]  # fmt: skip
        notes += [f"{upload.path}: {note}" for note in folder.notes]
    paths: dict[tuple[str, str], Path] = {}
    for upload in found:
        other = paths.setdefault((upload.book, upload.filename), upload.path) if upload.book else upload.path
        if other.resolve() != upload.path.resolve():
            raise BadInput(
                f"{upload.path}: Book {upload.book!r} would have two chapters called {upload.filename!r}. The other is"
                f" {other}. Rename one of them, or give them different books."
            )
    return found, notes


def _books(folders: Mapping[Path, Upload], known: Sequence[FileEntry | Upload]) -> dict[Path, str]:
    """Return the names of the books in some folders. Those of one name have the name of the folder above, too.

    A book of other courses is another book. A book of the same course is the folder that is added again.
    """
    found: dict[Path, str] = {}
    for folder, upload in folders.items():
        taken = {each.book for each in known if not _share_a_course(each, upload)}
        name = folder.name or "book"
        for count in range(2, len(folder.parts)):
            if name not in taken and all(other == folder or _end(other, count - 1) != name for other in folders):
                break
            name = _end(folder, count)
        found[folder] = name
    return found


def _end(folder: Path, count: int) -> str:
    return "/".join(folder.parts[-count:])


def _share_a_course(file: FileEntry | Upload, other: Upload) -> bool:
    return file.is_shared or other.is_shared or bool({*file.course_ids} & {*other.course_ids})


def read_folder(path: Path) -> Folder:
    """Return the chapters of a folder and of the folders in it. Raises `BadInput` if there are none, or too many."""
    root = path.resolve()
    found, skipped = _listed(path, root)
    readable = [name for name in found if Path(name).suffix.lower() in ENDINGS]
    skipped += [(name, UNSUPPORTED) for name in found if Path(name).suffix.lower() not in ENDINGS]
    ordered, unlisted, indexes = _ordered(root, readable)
    if len(ordered) > MOST_FILES:
        raise BadInput(
            f"{path}: The folder has {len(ordered)} files that can be read, and a book has at most {MOST_FILES}."
            " Name the folder of one book."
        )
    skipped += [(name, "not in SUMMARY.md") for name in unlisted]
    chapters: list[str] = []
    for name in ordered:
        reason = _doubled(name, ordered) or _unreadable(root / name)
        if reason:
            skipped.append((name, reason))
        elif name not in indexes:
            chapters.append(name)
    if not chapters:
        raise BadInput("\n".join([f"{path}: The folder has no file that can be read ({', '.join(ENDINGS)}).",
                                  *_notes(skipped)]).replace("\n", " "))  # fmt: skip
    return Folder(path, chapters, _notes(skipped))


def _listed(path: Path, root: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the files of a folder that are not hidden, and those that are skipped with the reason."""
    found: list[str] = []
    skipped: list[tuple[str, str]] = []
    entries = 0
    for parent, folders, names in os.walk(root, onerror=_refuse):
        linked = [each for each in folders if Path(parent, each).is_symlink()]
        skipped += [(_inside(root, Path(parent, each)), "a link to a folder") for each in linked if not _hidden(each)]
        folders[:] = sorted(each for each in folders if not (each in LEFT_OUT or each in linked or _hidden(each)))
        entries += len(folders) + len(names)
        if entries > MOST_ENTRIES:
            raise BadInput(f"{path}: The folder has more than {MOST_ENTRIES:,} files. Name the folder of one book.")
        for name in names:
            inside = _inside(root, Path(parent, name))
            if _hidden(name) or not Path(parent, name).exists():
                continue
            shown = inside.encode(errors="replace").decode()
            if shown != inside:
                skipped.append((shown, "its name is not valid text"))
            elif not Path(parent, name).resolve().is_relative_to(root):
                skipped.append((inside, "a link that leads out of the folder"))
            elif Path(parent, name).is_file():
                found.append(inside)
    return sorted(found, key=natural), skipped


def _refuse(error: OSError) -> None:
    raise BadInput(f"{error.filename}: {error.strerror or error}. Check the path.") from None


def _inside(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _hidden(name: str) -> bool:
    return name.startswith((".", "~$")) or name in ("Thumbs.db", "desktop.ini")


def natural(name: str) -> list[tuple[int, list[tuple[int, int, str]]]]:
    """Return a key that sorts paths as people count: 2 before 10, prefaces first, appendices last.

    >>> sorted(["ch10.md", "appendix-a.md", "ch2.md", "preface.md", "ch2/b.md", "ch2/README.md"], key=natural)
    ['preface.md', 'ch2.md', 'ch2/README.md', 'ch2/b.md', 'ch10.md', 'appendix-a.md']
    """
    return [
        (-1 if _FIRST.match(part) else int(bool(_LAST.match(part))), _counted(part))
        for part in name.removesuffix(Path(name).suffix).split("/")
    ]


def as_listed(paths: Sequence[Path]) -> list[Path]:
    """Return some paths in the order in which they were given. The order of a shell is that of the alphabet.

    >>> [str(path) for path in as_listed([Path("ch1.md"), Path("ch10.md"), Path("ch2.md")])]
    ['ch1.md', 'ch2.md', 'ch10.md']
    >>> [str(path) for path in as_listed([Path("b.md"), Path("a.md")])]
    ['b.md', 'a.md']
    """
    by_shell = [str(path).casefold() for path in paths]
    is_shells = by_shell == sorted(by_shell) or paths == tuple(sorted(paths))
    return sorted(paths, key=lambda path: natural(path.as_posix())) if is_shells else list(paths)


def _counted(part: str) -> list[tuple[int, int, str]]:
    pieces = re.split(r"(\d+)", part.casefold())
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces if piece]


def _doubled(name: str, others: Sequence[str]) -> str:
    """Return why a file is skipped that differs from another in its type only: slides and their PDF."""
    stem, kind = name.rpartition(".")[0], _rank(name)
    better = [each for each in others if each.rpartition(".")[0] == stem and _rank(each) < kind]
    return f"same name as {better[0]}" if better else ""


def _rank(name: str) -> tuple[int, str]:
    kind = ENDINGS[Path(name).suffix.lower()]
    return PREFERRED.index(kind) if kind in PREFERRED else len(PREFERRED), name


def _unreadable(path: Path) -> str:
    try:
        materials.checked(path)
    except BadInput as error:
        return str(error).removeprefix(f"{path}: ").partition(". ")[0].rstrip(".").lower()
    return ""


def _notes(skipped: Sequence[tuple[str, str]]) -> list[str]:
    """Return one sentence for each reason, with the names of a few files."""
    counted = Counter(reason for _, reason in skipped)
    notes: list[str] = []
    for reason, count in counted.items():
        names = [one_line(name) for name, why in skipped if why == reason]
        more = f" and {count - NAMED} more" if count > NAMED else ""
        notes.append(f"Skipped {many(count, 'file')} ({reason}): {', '.join(names[:NAMED])}{more}.")
    return notes


# the order


def _ordered(root: Path, names: Sequence[str]) -> tuple[list[str], list[str], set[str]]:
    """Return the files in their order, those that are not part of the book, and the indexes without own text."""
    summaries = [name for name in names if Path(name).name.casefold() == "summary.md"]
    for summary in sorted(summaries, key=lambda name: name.count("/")):
        listed = [name for name in _links(root, summary, names) if name not in summaries]
        if len(listed) > 1:
            return listed, [name for name in names if name not in {*listed, summary}], set()
    indexes: set[str] = set()
    order = list(_followed(root, names, indexes, set(), [name for name in names if "/" not in name and _index(name)]))
    return [*order, *(name for name in names if name not in order)], [], indexes


def _index(name: str) -> bool:
    return Path(name).stem.casefold() in INDEXES and ENDINGS[Path(name).suffix.lower()] in (MARKDOWN, RST)


def _followed(
    root: Path, names: Sequence[str], indexes: set[str], seen: set[str], begin: Iterable[str]
) -> Iterator[str]:  # fmt: skip
    """Yield files and, after each index, what it lists. Note the indexes that are nothing but a list."""
    for name in begin:
        if name in seen:
            continue
        seen.add(name)
        yield name
        if _index(name) or name.endswith(".rst"):
            listed = _links(root, name, names)
            if len(listed) > 1:
                indexes.update([name] if _is_list(root / name) else [])
                yield from _followed(root, names, indexes, seen, listed)


def _links(root: Path, index: str, names: Sequence[str]) -> list[str]:
    """Return the files of the folder that an index names, each once, in its order."""
    text = _text(root / index)
    targets = _LINK.findall(text) if index.lower().endswith((".md", ".markdown")) else []
    targets += _trees(text)
    folder = Path(index).parent
    found: dict[str, None] = {}
    for target in targets:
        path = Path(os.path.normpath(folder / unquote(target.partition("#")[0].partition("?")[0]).lstrip("/")))
        found.update(dict.fromkeys(_meant(path.as_posix(), names)))
    found.pop(index, None)
    return list(found)


def _meant(target: str, names: Sequence[str]) -> list[str]:
    """Return the files that a link means: with or without its type, the index of a folder, or a pattern."""
    if "*" in target:
        pattern = re.compile(".*".join("[^/]*".join(map(re.escape, part.split("*"))) for part in target.split("**")))
        return [name for name in names if pattern.fullmatch(name.rpartition(".")[0]) or pattern.fullmatch(name)]
    alike = {target, *(f"{target}{ending}" for ending in ENDINGS)}
    alike |= {f"{target}/{index}{ending}" for index in ("index", "README", "_index") for ending in (".md", ".rst")}
    return [name for name in names if name in alike][:1]


def _trees(text: str) -> Iterator[str]:
    """Yield the entries of the tables of contents that Sphinx makes: lines below `.. toctree::`."""
    for tree in _TOCTREE.finditer(text):
        is_directive = "::" in tree[0]
        for line in text[tree.end() :].split("\n")[1:]:
            if line.strip() and is_directive and len(line) - len(line.lstrip()) <= len(tree["indent"]):
                break
            if line.strip().startswith("```"):
                break
            if line.strip() and not line.strip().startswith(":"):
                named = re.fullmatch(r".*<([^<>]+)>", line.strip())
                yield named[1] if named else line.strip()


def _is_list(path: Path) -> bool:
    """Return whether an index has next to no text besides its links."""
    text = _TOCTREE.sub("", _LINK.sub("", _text(path)))
    trees = set(_trees(_text(path)))
    lines = [line.strip() for line in text.split("\n") if line.strip() not in trees]
    return len(_WORD.findall("\n".join(line for line in lines if not line.startswith(("#", ":"))))) < FEW_WORDS


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        return decoded(stream.read(LONGEST_INDEX))
