"""Measure the planner on documents that a lottery has drawn: ``python -m tests.apps.planner_lottery COMMAND``.

``draw`` prints the documents that the seed draws from the candidates. ``fetch`` downloads them into ``build/``: Debian
packages with apt-get and dpkg-deb, source distributions with pip. ``measure`` reads each of them as the planner does,
compares its topics with those that were written down, and writes the result and the tables of the planner's README.
``measure --show`` also prints the topics that are not right, and what the planner has in their place.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import subprocess
import sys
import tarfile
import tomllib
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import materials
from pausepoint.apps.planner.chapters import book_of
from pausepoint.apps.planner.ingestion import A_SET, MARKUPS
from pausepoint.apps.planner.materials import PDF
from tests.apps.planner_books import windows
from tests.support.children import ROOT

DATA = Path(__file__).parent / "data"
CANDIDATES, LOTTERY = DATA / "planner_candidates.txt", DATA / "planner_lottery.toml"
RESULT = DATA / "planner_lottery_result.json"
README = ROOT / "src/pausepoint/apps/planner/README.md"
FETCHED = ROOT / "build/planner_lottery"
BEGIN, END = "<!-- lottery: written by tests/apps/planner_lottery.py -->", "<!-- end of lottery -->"

SEED = 20301119
SEATS = {"outline": 20, "pdf": 10, "text": 6, "markdown": 2, "set": 2, "rst": 2}
GROUPS = {
    "PDF with an outline": ("outline",),
    "PDF without an outline": ("pdf",),
    "plain text and Markdown": ("text", "markdown", "set", "rst"),
}
SHOWN = {"outline": "PDF, outline", "pdf": "PDF", "set": "Markdown, several files", "rst": "reStructuredText"}

_TONGUE = re.compile(r"[-_.](?:[a-z]{2}|zh-(?:cn|tw|hans)|pt-(?:br|pt))(?=$|[-_.])", re.I)
_NUMBER = re.compile(
    r"^(?:(?:chapter|appendix|section|chapitre|annexe|kapitel|anhang|cap[ií]tulo|capítol|capitolo|глава|розділ|chương"
    r"|phụ lục)\s+[\dA-Z]+(?:[.:]|\s)|第?\s*\d+\s*[章节節部]|\d+(?:\.\d+)*[.:)]?\s"
    r"|[A-Z](?:\.\d+)+[.:]?\s|[A-Z][.:]\s)\s*",
    re.I,
)
_TYPOGRAPHY = str.maketrans("‘’“”–—", "''\"\"--")


class Candidate(NamedTuple):
    """A document in a package. ``language`` is the one that its name says, and English if it says none."""

    kind: str
    language: str
    source: str
    package: str
    version: str
    path: str

    @property
    def work(self) -> str:
        """The package without its language: a book is drawn in one language only."""
        return _TONGUE.sub("", self.package)


class Place(NamedTuple):
    """A title and where it starts: a page or a line, from 1, and the file if there are several."""

    title: str
    at: int
    file: str = ""


# the lottery


def candidates() -> list[Candidate]:
    """Return the candidates in the order of their file."""
    return [
        Candidate(*line.split("\t"))
        for line in CANDIDATES.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


def draw(documents: list[Candidate], rejected: set[tuple[str, str]]) -> list[Candidate]:
    """Return the documents that the seed draws: of each kind up to half in other languages than English, each once.

    A rejected document gives its place to the next one.
    """
    drawn: list[Candidate] = []
    for kind, seats in SEATS.items():
        bowl = [document for document in documents if document.kind == kind]
        random.Random(f"{SEED} {kind}").shuffle(bowl)
        bowl = [document for document in bowl if (document.package, document.path) not in rejected]
        chosen: list[Candidate] = []
        for wanted, others in ((seats // 2, True), (seats, False)):
            for document in bowl:
                taken = any(
                    document.work == other.work or (others and document.language == other.language) for other in chosen
                )
                if len(chosen) < wanted and not taken and (document.language != "en") == others:
                    chosen.append(document)
        drawn += chosen
    return drawn


def lottery() -> dict[str, Any]:
    """Return the committed list: the seed, the rejected and the drawn documents with their topics."""
    return tomllib.loads(LOTTERY.read_text(encoding="utf-8"))


def rejected(listed: dict[str, Any]) -> set[tuple[str, str]]:
    return {(document["package"], document["path"]) for document in listed["rejected"]}


# the documents


def folder_of(document: dict[str, Any]) -> Path:
    return FETCHED / str(document["package"])


def files_of(document: dict[str, Any]) -> list[Path]:
    """Return the fetched files of a document, in the order of their names."""
    pattern = Path(document["path"]).name.removesuffix(".gz")
    return sorted(folder_of(document).glob(pattern))


def digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def fetch(document: dict[str, Any]) -> None:
    """Download a package, and keep the files of the document in it. A document that is there is kept."""
    if files_of(document) and digest(files_of(document)) == document["sha256"]:
        return
    with TemporaryDirectory() as name:
        unpacked = _unpacked(Path(name), document["source"], document["package"], document["version"])
        folder_of(document).mkdir(parents=True, exist_ok=True)
        for path in sorted(unpacked.glob(document["path"])):
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            (folder_of(document) / path.name.removesuffix(".gz")).write_bytes(content)
    if digest(files_of(document)) != document["sha256"]:
        sys.exit(f"{document['package']}: {document['path']} has another content than the one that was judged.")


def _unpacked(folder: Path, source: str, package: str, version: str) -> Path:
    """Return the folder with the content of a package."""
    if source == "debian":
        subprocess.run(["apt-get", "download", f"{package}={version}"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["dpkg-deb", "-x", str(next(folder.glob("*.deb"))), "content"], cwd=folder, check=True)
        return folder / "content"
    words = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", f"{package}=={version}"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "content", filter="data")
    return next((folder / "content").iterdir())


# the measure


def normalised(title: str) -> str:
    """Return a title without its number, its spaces and the shapes of its quotation marks.

    >>> normalised("2.1  The ’first’\\tstep"), normalised("A. Tools"), normalised("A tool")
    ("The'first'step", 'Tools', 'Atool')
    """
    plain = unicodedata.normalize("NFKC", title).translate(_TYPOGRAPHY)
    return "".join(_NUMBER.sub("", " ".join(plain.split())).split())


def same(topic: str, title: str) -> bool:
    """Return whether a topic of the planner is the chapter with a title, or the first of the parts that it names so.

    >>> same("3 EELS", "Eels"), same("Eels (1 of 2)", "Eels"), same("Eels: Long – Short", "Eels"), same("Eel", "Eels")
    (True, True, True, False)
    """
    ours, theirs = normalised(topic), normalised(title)
    if ours.isupper() or theirs.isupper():
        ours, theirs = ours.casefold(), theirs.casefold()
    return ours == theirs or ours.startswith((f"{theirs}:", f"{theirs}(1of"))


def topics(path: Path, files: int) -> list[Place]:
    """Return the topics that the planner makes of one of some files of a course, with their pages.

    A text has pages of some thousand bytes.
    """
    kind = materials.checked(path)
    found = windows(path, materials.outline(str(path), kind))
    book = book_of(found, path.name, paged=kind == PDF, is_chapter=kind in MARKUPS and files >= A_SET)
    starts = [found[chunk].pieces[at].page + 1 for chunk, at in (topic.places[0] for topic in book.topics)]
    return [Place(topic.title, start, path.name) for topic, start in zip(book.topics, starts, strict=True)]


def page_of(path: Path, line: int) -> int:
    """Return the page of the planner that has a line of a text. Both are counted from 1."""
    kind = materials.checked(path)
    pages = materials.window(str(path), kind, 0, materials.page_count(str(path), kind))
    before = [0, *accumulate(page.text.count("\n") for page in pages)]
    return bisect_right(before, line - 1)


def measured(document: dict[str, Any]) -> dict[str, Any]:
    """Return what the planner makes of a document: how many of its topics are right, and which are not."""
    wanted = [Place(*topic) for topic in document["topics"]]
    found: list[Place] = []
    refused = ""
    paths = files_of(document)
    for path in paths:
        try:
            found += topics(path, len(paths))
        except BadInput as error:
            refused = str(error).partition(": ")[2].partition(". ")[0]
    wrong = [place for place in wanted if refused or not _is_right(place, found, document)]
    return {
        "package": document["package"], "path": document["path"], "topics": len(wanted), "found": len(found),
        "right": len(wanted) - len(wrong), "wrong": [list(place[:2]) for place in wrong], "refused": refused,
        "instead": [list(place[:2]) for place in found] if wrong else [],
    }  # fmt: skip


def _is_right(wanted: Place, found: Sequence[Place], document: dict[str, Any]) -> bool:
    paths = files_of(document)
    path = next(path for path in paths if path.name == (wanted.file or paths[0].name))
    page = wanted.at if path.suffix == ".pdf" else page_of(path, wanted.at)
    return any(place.file == path.name and place.at == page and same(place.title, wanted.title) for place in found)


# the tables


def tables(listed: dict[str, Any], results: Sequence[dict[str, Any]]) -> str:
    """Return the tables of the README: the kinds, and the documents."""
    both = list(zip(listed["document"], results, strict=True))
    rows = ["| kind | documents | topics | right | share | fully right |", "|---|---|---|---|---|---|"]
    for group, kinds in {**GROUPS, "all": tuple(SEATS)}.items():
        mine = [result for document, result in both if document["kind"] in kinds]
        total, right = sum(result["topics"] for result in mine), sum(result["right"] for result in mine)
        whole = sum(result["right"] == result["topics"] for result in mine)
        rows.append(f"| {group} | {len(mine)} | {total} | {right} | {100 * right / total:.0f} % | {whole} |")
    rows += ["", "| document | language | kind | topics | right | the planner has |", "|---|---|---|---|---|---|"]
    for document, result in both:
        kind = SHOWN.get(document["kind"], document["kind"])
        name = f"`{Path(document['path']).name.removesuffix('.gz')}` ({document['package']} {document['version']})"
        said = "refused" if result["refused"] else result["found"]
        rows.append(f"| {name} | {document['language']} | {kind} | {result['topics']} | {result['right']} | {said} |")
    return "\n".join(rows)


def written(page: str, part: str) -> str:
    """Return a page with a part between the markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The README has no place for the tables. Add the markers {BEGIN} … {END}.")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["draw", "fetch", "measure"])
    parser.add_argument("--show", action="store_true", help="print the topics that are not right")
    given = parser.parse_args()
    listed = lottery()
    if given.command == "draw":
        for candidate in draw(candidates(), rejected(listed)):
            print(*candidate, sep="\t")
        return
    if given.command == "fetch":
        for document in listed["document"]:
            fetch(document)
            print(f"{document['package']}: {', '.join(path.name for path in files_of(document))}", flush=True)
        return
    results = []
    for document in listed["document"]:
        result = measured(document)
        results.append(result)
        print(f"{result['right']:3} of {result['topics']:3}  {document['package']} {result['refused']}", flush=True)
        if given.show and result["wrong"]:
            print(f"    not right: {result['wrong']}\n    the planner has: {result['instead']}")
    RESULT.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    README.write_text(written(README.read_text(encoding="utf-8"), tables(listed, results)), encoding="utf-8")


if __name__ == "__main__":
    main()
