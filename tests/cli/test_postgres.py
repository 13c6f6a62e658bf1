"""A store on a server, named on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pausepoint.cli.exits import Refused
from pausepoint.cli.project import Project, find_store
from pausepoint.clock import SystemClock
from pausepoint.engine.stores import store_from
from pausepoint.errors import StoreError
from tests.cli.kit import Done, Process, run
from tests.cli.samples import CODE, project
from tests.support.postgres import schema_of, sql
from tests.support.waits import until

URL = "postgresql://ada:secret@db.example.com/work"


def test_the_url_of_a_server_names_a_store_and_is_shown_without_its_password(tmp_path: Path) -> None:
    place = find_store(URL, Project(tmp_path, None, {}))
    assert (place.url, place.path) == (URL, None)
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


# the first command on a server that has no store yet

START = "The first session creates it. `pausepoint run --help` explains how to start a session."
HERE = "there is no store here"


class NewStore:
    """A project whose store is on a server and does not exist yet. ``named``: each command names it by its URL."""

    def __init__(self, folder: Path, url: str, named: bool, code: str = CODE) -> None:
        self.url, self.folder = url, project(folder, code)
        self.env = {"PAUSEPOINT_STORE": url} if named else {}
        if not named:
            with (folder / "pyproject.toml").open("a") as settings:
                settings.write(f'[tool.pausepoint]\nstore = "{url}"\n')

    def __call__(self, *words: str | Path) -> Done:
        return run(*words, cwd=self.folder, env=self.env)

    @property
    def exists(self) -> bool:
        return sql(self.url, "SELECT to_regclass('store') IS NOT NULL") == [(True,)]


@pytest.fixture(params=[True, False], ids=["named", "of the project"])
def new_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NewStore]:
    with schema_of(new=True) as url:
        yield NewStore(tmp_path, url, request.param)


@pytest.mark.long
def test_the_first_run_creates_the_store_on_a_server(new_store: NewStore) -> None:
    assert new_store("run", "letter", "--nme", "Ada").code == 2
    assert not new_store.exists  # refused input leaves no store behind
    stored = new_store("run", "letter", "--name", "Ada", "--paused")
    assert ("of letter" in stored.stdout, new_store.exists) == (True, True), stored.stderr
    assert "of letter has the same input" in new_store("run", "letter", "--name", "Ada").stderr


@pytest.mark.long
def test_a_first_run_in_the_background_creates_the_store_on_a_server(new_store: NewStore) -> None:
    assert new_store("run", "letter", "--name", "Ada", "--detach").code == 0
    until(lambda: sql(new_store.url, "SELECT status FROM workflow_states") == [("waiting",)])


@pytest.mark.long
def test_what_looks_first_says_that_there_is_no_store_on_the_server_and_creates_none(new_store: NewStore) -> None:
    named = bool(new_store.env)
    for words, said in (
        ("ls", f"No sessions yet: {HERE}."),
        ("status", f"No sessions yet: {HERE}."),
        ("inbox", f"No questions: {HERE}."),
        ("watch", f"Nothing is running: {HERE}."),
        ("verify", START),
        ("pause --all", HERE),
        ("pause --tag night", HERE),
        ("resume --all", HERE),
    ):
        done = new_store(*words.split())
        text = done.stdout + done.stderr
        assert (done.code, (START if named else said).lower() in text.lower()) == (4 if named else 0, True), (
            words,
            text,
        )
    for words in ("show ada", "resume ada", "resume", "answer ada yes", "send ada hello", "limit ls", "export ada"):
        done = new_store(*words.split())
        assert (done.code, START in done.stderr) == (4, True), (words, done.stderr)
    done = new_store("serve", "--observe", "--port", "0")
    assert (done.code, START in done.stderr) == (4, True)
    done = new_store("move", new_store.url, "sqlite:///new.db")
    assert (done.code, "Check FROM." in done.stderr) == (4, True)
    done = new_store("doctor")
    assert (done.code, "none yet at postgresql://" in done.stdout) == (0, True), done.stderr
    assert not new_store.exists


@pytest.mark.long
@pytest.mark.parametrize("words", ["worker --target letter.py", "serve --port 0"])
def test_the_first_worker_or_server_creates_the_store_on_a_server(new_store: NewStore, words: str) -> None:
    with Process(*words.split(), cwd=new_store.folder, env=new_store.env) as process:
        process.until("Ctrl+C stops")
        assert new_store("ls").code == 0
        assert new_store.exists


@pytest.mark.long
def test_doctor_reports_a_server_that_does_not_answer(tmp_path: Path) -> None:
    done = run("doctor", "--store", "postgresql://127.0.0.1:1/work", cwd=tmp_path)
    assert (done.code, "bad   store" in done.stdout) == (1, True), done.stderr


ASKS = """
from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Letter(BaseModel):
    topic: str
    tone: str = ""


@step(writes="tone")
async def choose(ctx: Context) -> str:
    return await ctx.ask("Which tone?", choices=["formal", "playful"])


letter = Workflow("letter", state=Letter, steps=[choose])
"""


@pytest.mark.long
def test_the_commands_and_the_server_work_on_a_server_by_its_url(tmp_path: Path) -> None:
    with schema_of() as url:
        store = NewStore(tmp_path, url, named=True, code=ASKS)
        assert store("run", "letter", "--topic", "squid", "--session-id", "s1").code == 3
        (listed,) = json.loads(store("ls", "--json").stdout)["sessions"]
        assert (listed["session_id"], listed["status"]) == ("s1", "waiting")
        (question,) = json.loads(store("inbox", "--json").stdout)["questions"]

        with Process("serve", "--observe", "--port", "0", "--json", cwd=store.folder, env=store.env) as server:
            address = json.loads(server.until("}\n"))["address"]
            base, token = address.split("/#token=")
            with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
                assert client.get("/").headers["content-type"].startswith("text/html")
                (seen,) = client.get("/api/v1/sessions").json()["sessions"]
                assert (seen["session_id"], seen["status"]) == ("s1", "waiting")
                shown = client.get("/api/v1/sessions/s1")
                assert (shown.status_code, "waiting" in shown.text) == (200, True)

        assert store("pause", "s1").code == 0
        assert "paused" in store("show", "s1").stdout
        assert store("answer", question["id"], "formal").code == 0
        resumed = store("resume", "s1", "--target", "letter.py")
        assert (resumed.code, "completed" in resumed.stdout) == (0, True), resumed.stderr
        assert json.loads(store("show", "s1", "--json").stdout)["status"] == "completed"
