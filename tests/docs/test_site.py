"""The documentation as a site: complete, without dead links, and without anything from another host."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.workloads import GROWTHS
from tests.docs.pages import DOCS, PAGES, ROOT, section
from tests.page import shots
from tests.page.browser import chromium
from tests.support.loop import PATIENCE
from tools import site

SECTIONS = ["Start here", "How to", "Concepts", "Reference", "Operations", "Why", "Decisions", "For contributors"]
WIDTHS = (1280, 390)
SEEN = ("index", "readme", "concepts", "cli", "benchmarks", "decisions/index")
"""The pages that a browser opens."""


def built(folder: Path) -> Path:
    if not Path(sys.executable).with_name("zensical").exists():
        pytest.skip(site.INSTALL)
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", "--into", folder],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.long
def test_the_site_is_complete_and_a_browser_asks_no_other_host(tmp_path: Path) -> None:
    """One test: the site takes long to build."""
    folder = built(tmp_path)
    expected = {str(Path(page).with_suffix(".html")) for page in site.pages().values()}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.html")} - {"404.html"} == expected
    assert site.problems(folder) == []
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+\.md)\): .{20}", (folder / "llms.txt").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page for page in site.pages().values() if not re.match(r"decisions/\d", page))
    assert all((folder / page).is_file() for page in listed)
    check_in_browser(folder)


def test_the_navigation_names_every_page_once(tmp_path: Path) -> None:
    site.stage(tmp_path)
    named = site.navigation(tmp_path / "zensical.toml")
    assert sorted(named) == sorted(site.pages().values())


def test_the_sections_are_those_by_task() -> None:
    listed = tomllib.loads(site.CONFIG.read_text("utf-8"))["project"]["nav"]
    assert [name for entry in listed for name in entry] == SECTIONS


def test_a_dead_link_stops_the_build() -> None:
    with pytest.raises(site.Dead, match=r"docs/index\.md links to nowhere\.md"):
        site.rewritten("[there](nowhere.md)", "docs/index.md", site.pages())


def test_links_between_the_repository_and_the_site_are_rewritten() -> None:
    targets = site.pages() | site.others()
    text = "[`a`](docs/agent.md#run-it) [b](src/pausepoint/apps/aura/) [c](https://x.org) `[d](e)`\n```\n[f](g)\n```\n"
    expected = "[`a`](agent.md#run-it) [b](apps/aura.md) [c](https://x.org) `[d](e)`\n```\n[f](g)\n```\n"
    assert site.rewritten(text, "README.md", targets) == expected
    assert site.rewritten("[x](../guide.md)", "docs/decisions/index.md", targets) == "[x](../guide.md)"


def test_the_check_of_a_site_notices_what_is_wrong(tmp_path: Path) -> None:
    good = '<h1 id="top">A</h1><a href="b.html#there">b</a><a href="https://example.com">elsewhere</a>'
    (tmp_path / "a.html").write_text(good)
    (tmp_path / "b.html").write_text('<p id="there"></p><img src="data:image/png;base64,AA">')
    assert site.problems(tmp_path) == []
    wrong = {
        '<a href="c.html">': "a.html links to c.html, which does not exist",
        '<a href="b.html#gone">': "a.html links to b.html#gone: no such heading",
        '<script src="https://cdn.example.com/x.js"></script>': "a.html loads https://cdn.example.com/x.js",
        '<link rel="stylesheet" href="//fonts.example.com/x">': "a.html loads //fonts.example.com/x",
        '<img src="http://example.com/x.png">': "a.html loads http://example.com/x.png",
        "<style>p { background: url('https://example.com/x') }</style>": "a.html loads https://example.com/x",
    }
    for tag, problem in wrong.items():
        (tmp_path / "a.html").write_text(good + tag)
        assert site.problems(tmp_path) == [problem]
    (tmp_path / "a.html").write_text(good)
    (tmp_path / "x.css").write_text("@import 'https://example.com/y.css';")
    assert site.problems(tmp_path) == ["x.css loads https://example.com/y.css"]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def check_in_browser(folder: Path) -> None:
    """Check that a browser asks no other host, and that nothing is wider than the screen."""
    asked: list[str] = []
    wide: list[str] = []
    with served(folder) as address, chromium() as browser:
        for width in WIDTHS:
            context = browser.new_context(viewport={"width": width, "height": 800})
            context.on("request", lambda request: asked.append(request.url))
            opened = {name: context.new_page() for name in SEEN}
            for name, page in opened.items():
                page.goto(f"{address}/{name}.html", wait_until="commit")
            for name, page in opened.items():  # all of them become quiet at the same time
                page.wait_for_load_state("networkidle")
                if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                    wide.append(f"{name} at {width}")
        assert len(asked) > 10
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        assert wide == []


def test_without_zensical_the_command_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(sys.executable, tmp_path / "python")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SystemExit, match="make venv"):
        site.build(tmp_path)


def test_the_index_lists_the_pages_of_each_section_as_the_navigation_does() -> None:
    index, targets = DOCS / "index.md", site.pages()
    for entry in tomllib.loads(site.CONFIG.read_text("utf-8"))["project"]["nav"]:
        for title, pages in entry.items():
            links = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", section(index, title), re.MULTILINE)
            listed = [targets[(DOCS / link).resolve().relative_to(ROOT).as_posix()] for link in links]
            named = [
                page for page in site.pages_of(pages) if page != "index.md" and not re.match(r"apps/(?!index)", page)
            ]
            assert listed == named, title


def test_every_picture_is_taken_by_a_command() -> None:
    """make shots takes those of the page, make recording those of the gate; make bench-peers draws the plots."""
    shown = {path.name for path in (DOCS / "pictures").iterdir()}
    taken = {f"{name}-1440-light.png" for name in (*shots.SCREENS, "plan", "paused")}
    taken |= {f"{name}-{shots.NARROW}-dark.png" for name in shots.PHONE}
    taken |= {f"peers-{growth.key}.svg" for growth in GROWTHS}
    assert shown == taken | {"gate.svg", "gate.cast"}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "-m tests.page.shots" in makefile
    assert "-m tests.gate.recording" in makefile
    assert "-m benchmarks.peers" in makefile
    pictures = {link for page in PAGES for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))}
    assert pictures
    assert {Path(link).name for link in pictures} <= shown
