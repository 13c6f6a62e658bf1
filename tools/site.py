"""Build the documentation as a site that works without a network: build/site.

    python -m tools.site [--into build]

The pages are those of docs/, the README, the changelog, the page for contributors and the READMEs of the applications.
They are copied to build/pages with links that fit there, and Zensical builds them. The command fails if Zensical warns,
if a page is missing in the navigation, if a link leads nowhere, or if a page would load something from another host.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "zensical.toml"
DECISIONS = '    "decisions/index.md",\n'
INSTALL = "Zensical is not installed. Install the tools for developers with: make venv"

_PARTS = re.compile(r"^```.*?^```$|^<!--.*?-->$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
"""Blocks of code, comments, code in a line: their brackets are no links."""
_LINK = re.compile(r"(\[[^\]]*\]\()([^)\s]+)(\))")


def pages() -> dict[str, str]:
    """Map the path of every source in the repository to its path on the site."""
    docs = ROOT / "docs"
    found = {_in_repository(path): path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))}
    found |= {f"{name.upper()}.md": f"{name}.md" for name in ("readme", "changelog", "contributing")}
    found["SECURITY.md"] = "vulnerabilities.md"  # docs/security.md is about the server
    apps = ROOT / "src" / "pausepoint" / "apps"
    found[f"{_in_repository(apps)}/README.md"] = "apps/index.md"
    return found | {_in_repository(path): f"apps/{path.parent.name}.md" for path in sorted(apps.glob("*/README.md"))}


def others() -> dict[str, str]:
    """Map the path of every other file that pages show or link to its path on the site."""
    found = {path: path.removeprefix("docs/") for path in map(_in_repository, sorted((ROOT / "docs").rglob("*")))}
    found = {path: there for path, there in found.items() if (ROOT / path).is_file() and not path.endswith(".md")}
    return found | {"LICENSE": "license.txt"}


def _in_repository(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


class Dead(Exception):
    """A link to a file that is not on the site."""


def rewritten(text: str, source: str, targets: dict[str, str]) -> str:
    """Return the text of a page with links that are right on the site, and tables instead of drawings."""
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(_table(found[0]) if found[0].startswith("```mermaid") else found[0])
        return f"\0{len(kept) - 1}\0"

    def link(found: re.Match[str]) -> str:
        return found[1] + _target(found[2], source, targets) + found[3]

    linked = _LINK.sub(link, _PARTS.sub(keep, text))
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], linked)


def _table(drawing: str) -> str:
    """Return the transitions of a state diagram as a table. Zensical would draw it with a script from another host.

    >>> print(_table("```mermaid\\nstateDiagram-v2\\n    [*] --> paused: pause\\n    paused --> [*]\\n```"))
    | from | to | by |
    |---|---|---|
    | (begin) | paused | pause |
    | paused | (end) | |
    """
    rows = re.findall(r"^ +(\S+) --> ([^\s:]+)(?:: (.*))?$", drawing, re.MULTILINE)
    lines = ["| from | to | by |", "|---|---|---|"]
    for begin, end, by in rows:
        cells = [begin.replace("[*]", "(begin)"), end.replace("[*]", "(end)"), by.replace("|", "\\|")]
        lines.append(f"| {cells[0]} | {cells[1]} | {cells[2]}{' ' * bool(by)}|")
    return "\n".join(lines)


def _target(link: str, source: str, targets: dict[str, str]) -> str:
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    file, mark, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), file))
    there = targets.get(path) or targets.get(f"{path}/README.md")
    if there is None:
        raise Dead(f"{source} links to {link}, which is not on the site")
    return posixpath.relpath(there, posixpath.dirname(targets[source]) or ".") + mark + anchor


def stage(folder: Path) -> None:
    """Write the pages, and the settings that name all of them, to a folder."""
    targets = pages() | others()
    staged = folder / "pages"
    shutil.rmtree(staged, ignore_errors=True)
    for source, there in targets.items():
        file = staged / there
        file.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            file.write_text(rewritten((ROOT / source).read_text("utf-8"), source, targets), "utf-8")
        else:
            shutil.copy(ROOT / source, file)
    records = sorted(there for there in pages().values() if re.match(r"decisions/\d", there))
    settings = CONFIG.read_text("utf-8")
    if settings.count(DECISIONS) != 1:
        raise ValueError(f"zensical.toml must have the line {DECISIONS.strip()} once: the decisions are added there.")
    listed = "".join(f'    "{record}",\n' for record in records)
    (folder / "zensical.toml").write_text(settings.replace(DECISIONS, DECISIONS + listed), "utf-8")


def navigation(settings: Path) -> list[str]:
    """Return the pages that the navigation names, in order."""
    return list(pages_of(tomllib.loads(settings.read_text("utf-8"))["project"]["nav"]))


def pages_of(entry: Any) -> Iterator[str]:
    """Yield the pages of an entry of the navigation, in order."""
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(each)


def overview(folder: Path) -> str:
    """Return llms.txt: the pages of the navigation with a sentence each, for programs that read instead of looking."""
    project = tomllib.loads((folder / "zensical.toml").read_text("utf-8"))["project"]
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for entry in project["nav"]:
        for name, below in entry.items():
            lines += ["", f"## {name}", ""]
            lines += [_described(folder / "pages", page) for page in pages_of(below) if "decisions/0" not in page]
    return "\n".join(lines) + "\n"


def _described(folder: Path, page: str) -> str:
    title, _, text = (folder / page).read_text("utf-8").removeprefix("# ").partition("\n")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|<!--.*?-->", r"\1", text, flags=re.DOTALL)
    first = next(part for part in plain.split("\n\n") if re.match(r"\s*(?!```)[A-Z*`]", part))
    sentence = re.split(r"(?<=\.)\s", " ".join(first.split()))[0]
    return f"- [{title.strip()}]({page}): {sentence.rstrip(':')}"


def build(folder: Path) -> str:
    """Build the site from the staged pages, and return what Zensical printed."""
    program = Path(sys.executable).with_name("zensical")
    if not program.exists():
        raise SystemExit(INSTALL)
    for made in ("site", ".cache"):
        shutil.rmtree(folder / made, ignore_errors=True)
    done = subprocess.run(
        [program, "build", "--strict", "--clean", "--config-file", folder / "zensical.toml"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nZensical did not build the site (exit code {done.returncode}).")
    return done.stdout


def _only_markdown(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (name.endswith(".md") or Path(folder, name).is_dir())]


class Reference(NamedTuple):
    """Something that a built page names: a link, or a thing that a browser loads for it."""

    tag: str
    url: str

    @property
    def is_loaded(self) -> bool:
        return self.tag != "a"


class Page(HTMLParser):
    """The references and anchors of one built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.anchors: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", "") or values.get("name", ""))
        if tag == "link" and values.get("rel") in ("canonical", "next", "prev", "alternate"):
            return
        for name in ("href", "src", "data", "poster") if tag != "base" else ():
            if name in values:
                self.references.append(Reference(tag, values[name]))
        for part in values.get("srcset", "").split(","):
            if part.strip():
                self.references.append(Reference(tag, part.split()[0]))
        if "style" in values:
            self._style(values["style"])

    def updatepos(self, i: int, j: int) -> int:
        """Count no lines: nothing asks for them."""
        return j

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._style(data)

    def _style(self, text: str) -> None:
        self.references += [Reference("style", url) for url in urls_of_style(text)]


def urls_of_style(text: str) -> list[str]:
    """Return the addresses that a style sheet loads, except those that contain their data."""
    found = re.findall(r"url\(\s*[\"']?([^\"')]+)", text) + re.findall(r"@import\s+[\"']([^\"']+)", text)
    return [url for url in found if not url.startswith(("data:", "#"))]


def problems(site: Path) -> list[str]:
    """Return what is wrong with a built site: links that lead nowhere, things from other hosts."""
    parsed = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [problem for path in parsed for problem in _problems_of(path, site, parsed)]
    for sheet in sorted(site.rglob("*.css")):
        name = sheet.relative_to(site).as_posix()
        found += [f"{name} loads {url}" for url in urls_of_style(sheet.read_text("utf-8")) if _is_elsewhere(url)]
    return found


def _problems_of(path: Path, site: Path, parsed: dict[Path, Page]) -> Iterator[str]:
    name = path.relative_to(site).as_posix()
    if name == "404.html":  # Zensical gives it addresses that begin at the root of a host
        return
    for reference in parsed[path].references:
        url = urlsplit(reference.url)
        if _is_elsewhere(reference.url):
            if reference.is_loaded:
                yield f"{name} loads {reference.url}"
            continue
        if url.scheme:
            continue
        target = (path.parent / unquote(url.path)).resolve() if url.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"{name} links to {reference.url}, which does not exist"
        elif url.fragment and target in parsed and unquote(url.fragment) not in parsed[target].anchors:
            yield f"{name} links to {reference.url}: no such heading"


def _is_elsewhere(url: str) -> bool:
    return url.startswith(("http:", "https:", "//"))


def main() -> None:
    """Build and check the site."""
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--into", type=Path, default=ROOT / "build", help="the folder that gets pages/ and site/")
    folder = parser.parse_args().into.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stage(folder)
    named, there = navigation(folder / "zensical.toml"), list(pages().values())
    wrong = [f"zensical.toml does not name {page}" for page in there if page not in named]
    wrong += [f"zensical.toml names {page}, which does not exist" for page in named if page not in there]
    if not wrong:
        build(folder)
        shutil.copytree(folder / "pages", folder / "site", ignore=_only_markdown, dirs_exist_ok=True)
        (folder / "site" / "llms.txt").write_text(overview(folder), "utf-8")
        wrong = problems(folder / "site")
    if wrong:
        raise SystemExit("\n".join([*wrong, f"The site has {len(wrong)} problems."]))
    print(f"{len(there)} pages: {folder / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
