"""The recording of the gate: a small sample of it, the checks that it makes, and the picture in the docs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.gate.film import plain
from tests.gate.recording import MOST, SHELL, Effect, NotProven, Play, check, write
from tests.gate.show_agent import WAITS
from tests.gate.stage import HOW, find_tmux
from tests.support.children import ROOT

ELEMENTS = {"svg", "title", "style", "g", "rect", "path", "text"}
ATTRIBUTES = {"class", "d", "height", "role", "rx", "textLength", "transform", "viewBox", "width", "x", "y"}


def check_picture(text: str) -> None:
    """Check that a picture is an SVG that loads nothing and runs nothing."""
    root = ElementTree.fromstring(text)
    assert {each.tag for each in root.iter()} == {f"{{http://www.w3.org/2000/svg}}{name}" for name in ELEMENTS}
    assert {name for each in root.iter() for name in each.attrib} == ATTRIBUTES
    [style] = (each.text or "" for each in root.iter() if each.tag.endswith("style"))
    assert not [word for word in ("url(", "@import", "@font-face") if word in style]
    assert all(word in style for word in ("prefers-reduced-motion", "prefers-color-scheme:dark", "infinite"))
    assert text.count('still"') > 3, "without motion, it shows something"


@pytest.mark.long
@pytest.mark.skipif(find_tmux() is None, reason=HOW)
def test_a_recording_shows_agents_that_wait_and_can_be_looked_at_without_a_script(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pp", dir="/tmp") as home:  # sockets need a short path
        film = Play(Path(home), ["api", "docs"], calls=4, hold=0).record()
    paused = film.at(film.marks["list"])
    assert all(WAITS in plain(paused.screens[name]) for name in ("api", "docs"))
    assert "All have stopped" in plain(paused.screens[SHELL])
    write(film, tmp_path)
    picture, cast = (tmp_path / "gate.svg").read_text(), (tmp_path / "gate.cast").read_text()
    check_picture(picture)
    assert "waiting at the gate" in picture
    assert home not in picture + cast
    header, *events = map(json.loads, cast.splitlines())
    assert header["version"] == 2
    assert [at for at, *_ in events] == sorted(at for at, *_ in events)
    assert {kind for _, kind, _ in events} == {"o"}


def test_the_picture_in_the_docs_loads_nothing_and_is_small() -> None:
    text = (ROOT / "docs" / "pictures" / "gate.svg").read_text()
    check_picture(text)
    assert len(text.encode()) <= MOST


GOOD = [Effect("a-1", 1.0), Effect("a-2", 9.0)]


@pytest.mark.parametrize(
    ("effects", "why"),
    [
        ([*GOOD, Effect("a-3", 6.0)], "began while everything was paused: a-3"),
        (GOOD[:1], "a-2 0 times"),
        ([*GOOD, Effect("a-1", 10.0)], "a-1 2 times"),
        ([Effect("a-1", 1.0), Effect("a-2", 2.0)], "in the middle of the work"),
    ],
)
def test_a_recording_that_does_not_prove_what_it_shows_is_not_written(effects: list[Effect], why: str) -> None:
    check(GOOD, ["a-1", "a-2"], paused_at=5.0, resumed_at=8.0)
    with pytest.raises(NotProven, match=why):
        check(effects, ["a-1", "a-2"], paused_at=5.0, resumed_at=8.0)
