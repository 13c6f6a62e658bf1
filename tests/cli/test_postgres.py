"""A store on a server, named on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pausepoint.cli.exits import Refused
from pausepoint.cli.project import Project, find_store
from pausepoint.clock import SystemClock
from pausepoint.engine.stores import store_from
from pausepoint.errors import StoreError

URL = "postgresql://ada:secret@db.example.com/work"


def test_the_url_of_a_server_names_a_store_and_is_shown_without_its_password(tmp_path: Path) -> None:
    place = find_store(URL, Project(tmp_path, None, {}))
    assert (place.url, place.path, place.exists) == (URL, None, True)
    assert place.shown == "postgresql://ada@db.example.com/work"
    for options, shown in (
        ("password=secret", ""),
        ("user=ada&password=se%2Fcret&schema=team", "?user=ada&schema=team"),
    ):
        place = find_store(f"{URL}?{options}&sslpassword=secret", Project(tmp_path, None, {}))
        assert place.shown == f"postgresql://ada@db.example.com/work{shown}"
    place = find_store(URL, Project(tmp_path, None, {}))
    assert getattr(store_from(URL, SystemClock()), "path", "") == f"{place.shown}?schema=pausepoint"


def test_another_kind_of_server_is_refused_with_the_ways_that_work(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"'mysql' is not known. Use a path, .* or postgresql://host/database"):
        find_store("mysql://db/work", Project(tmp_path, None, {}))
    with pytest.raises(Refused, match="mysql://ada@db/work: the store type"):
        find_store("mysql://ada:secret@db/work?password=secret", Project(tmp_path, None, {}))


@pytest.mark.parametrize("option", ["schema=Team-1", "prepare=maybe"])
def test_an_option_of_the_url_that_is_not_valid_is_refused(option: str) -> None:
    with pytest.raises(StoreError, match="in the URL of the store is not valid"):
        store_from(f"{URL}?{option}", SystemClock())


def test_without_the_driver_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pausepoint.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'pausepoint\[postgres\]'"):
        store_from(URL, SystemClock())
