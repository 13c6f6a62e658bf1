"""Take the pictures of the page for README and docs:  python -m tests.page.shots FOLDER

Each screen is shown wide and light, and some also narrow and dark. The sessions are those of the exhibit. The
engine's clock begins at a fixed time. The browser's clock is stopped at a later time. So a picture changes only if
the page does.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import tempfile
import time
import zlib
from base64 import b64decode, b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import gethostname
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from pausepoint import Status
from pausepoint.clock import to_micros
from tests.page import exhibit, extremes
from tests.page.browser import chromium
from tests.page.kit import AGENTS, INBOX, NOW, SESSIONS, STORE, Person, Screen, eventually, session, visit
from tests.page.workflows import ALL
from tests.server.kit import Served, served
from tests.support.children import ROOT

BEGAN = datetime(2026, 5, 4, 9, 12, tzinfo=UTC)
"""When the sessions begin."""
LATER = timedelta(minutes=38)
"""How much later the pictures are taken."""
MOST = 150_000
"""Bytes that a picture may have."""

LOOKS: tuple[tuple[int, int, Literal["light", "dark"]], ...] = ((1440, 900, "light"), (390, 844, "dark"))
NARROW = 390
PHONE = ("now", "inbox", "session", "agents")
"""The screens that are shown narrow too."""

SCREENS = {
    "now": NOW,
    "inbox": INBOX,
    "sessions": SESSIONS,
    "session": session("brief-octopus"),
    "failed": session("sync-returns"),
    "artifacts": Screen(
        "/sessions/report-brinefjord?tab=artifacts&file=1-research.md", "report-brinefjord", "Artifacts"
    ),
    "running": session("crawl-kelp", "History"),
    "agents": AGENTS,
    "store": STORE,
}


class SetClock:
    """A clock that begins at a given time and can be moved on."""

    def __init__(self, began: datetime) -> None:
        self._offset = to_micros(began) - time.time_ns() // 1000

    def move(self, by: timedelta) -> None:
        self._offset += by // timedelta(microseconds=1)

    def now(self) -> int:
        return time.time_ns() // 1000 + self._offset

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


QUANTISE = """
async (url) => {
  const bitmap = await createImageBitmap(await (await fetch(url)).blob()), { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer), count = new Map();
  for (const each of pixels) count.set(each, (count.get(each) ?? 0) + 1);
  const palette = [...count].sort(([, a], [, b]) => b - a).slice(0, 256).map(([colour]) => colour);
  const parts = (colour) => [colour & 255, colour >> 8 & 255, colour >> 16 & 255];
  const known = palette.map(parts), index = new Map(palette.map((colour, n) => [colour, n]));
  for (const colour of count.keys()) {
    if (index.has(colour)) continue;
    const [r, g, b] = parts(colour), far = ([x, y, z]) => (x - r) ** 2 + (y - g) ** 2 + (z - b) ** 2;
    index.set(colour, known.reduce((best, each, n) => far(each) < far(known[best]) ? n : best, 0));
  }
  const rows = Array.from({ length: height }, (_, y) =>
    String.fromCharCode(0, ...pixels.subarray(y * width, (y + 1) * width).values().map((each) => index.get(each))));
  return { width, height, palette: known.flat(), rows: btoa(rows.join('')) };
}
"""
"""Reduces a picture to its 256 most frequent colours, which is a third of the bytes. Other colours get the nearest."""


NEUTRAL = """
(names) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, text = names.reduce((all, [from, to]) => all.replaceAll(from, to), node.data);
    if (text !== node.data) node.data = text;
  }
}
"""
"""Replaces what the pictures must not show: the folders and the name of the machine that they are taken on."""


def packed(blank: Page, png: bytes) -> bytes:
    """Return a picture with fewer colours, and compressed well. The browser compresses in haste."""
    found = blank.evaluate(QUANTISE, f"data:image/png;base64,{b64encode(png).decode()}")
    written = {
        b"IHDR": struct.pack(">IIBBBBB", found["width"], found["height"], 8, 3, 0, 0, 0),
        b"PLTE": bytes(found["palette"]),
        b"IDAT": zlib.compress(b64decode(found["rows"]), 9),
        b"IEND": b"",
    }
    return png[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in written.items()
    )


def shoot(person: Person, name: str, folder: Path) -> int:
    """Write a picture of what a tab shows, and return its size in bytes."""
    names = [(str(person.server.folder), "~/project"), (str(ROOT), "~/project"), (f"on {gethostname()}", "on laptop")]
    person.page.evaluate("document.activeElement.blur()")
    person.page.evaluate(NEUTRAL, names)
    taken = person.page.screenshot(animations="disabled", caret="hide")
    with closing(person.page.context.new_page()) as blank:
        picture = packed(blank, taken)
    if len(picture) > MOST:
        raise SystemExit(f"{name} has {len(picture):,} bytes, more than {MOST:,}. Show less on it.")
    (folder / f"{name}.png").write_bytes(picture)
    print(f"{name}.png: {len(picture):,} bytes")
    return len(picture)


def take(browser: Browser, server: Served, folder: Path) -> int:
    """Take all pictures, and return how many there are."""
    taken = 0
    for width, height, scheme in LOOKS:
        options = {"color_scheme": scheme, "timezone_id": "UTC", "locale": "en-GB"}
        with visit(browser, server, width=width, height=height, **options) as person:
            person.page.clock.set_fixed_time(BEGAN + LATER)
            person.sign_in(server.token("admin", name="ann"))
            for name, screen in SCREENS.items() if width > NARROW else [(each, SCREENS[each]) for each in PHONE]:
                person.open(screen)
                taken += bool(shoot(person, f"{name}-{width}-{scheme}", folder))
            if width <= NARROW:
                continue
            person.open(session("brief-octopus"))
            person.button("Rewind").click()
            expect(person.dialog.get_by_role("list", name="Plan")).to_be_visible()
            taken += bool(shoot(person, f"plan-{width}-{scheme}", folder))
            person.press("Escape")
            person.open(NOW)
            server.run(server.engine.pause_all(reason="look at the costs first", by="ann"))
            expect(person.heading).to_have_text("Everything is paused")
            expect(person.main).to_contain_text("stopped after")
            taken += bool(shoot(person, f"paused-{width}-{scheme}", folder))
            server.run(server.engine.lift_pause())
            expect(person.heading).not_to_have_text("Everything is paused")
    return taken


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.page.shots", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    clock = SetClock(BEGAN)
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        home = Path(temporary)
        with served(home, workflows=ALL, clock=clock) as server:
            server.run(exhibit.fill(server.engine, home))
            server.run(extremes.add(server.engine, home, items=200))
            clock.move(LATER)
            eventually(lambda: server.run(server.engine.session("crawl-kelp").info()).status is Status.RUNNING)
            print(f"{take(browser, server, folder)} pictures in {folder}")


if __name__ == "__main__":
    main()
